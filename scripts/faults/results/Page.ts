/** Writes the page on reliability from the results. Pure. */
import type { Results, Row } from "./Results.ts"

const sections: ReadonlyArray<{ readonly prefix: string; readonly title: string; readonly text: string }> = [
  {
    prefix: "seeds ",
    title: "Faults on the network",
    text: `A training program (steps whose batches are sent in pieces, in parallel or one after another; saves, samples, a load, a list, a download) runs through a proxy that injects faults. A seed decides everything: the faults, where they strike, and whether the server issues tokens. \`recoverable\` faults must not be noticed; after \`hostile\` ones every result is right, or a typed error says truthfully what is unknown. The claims of errors are compared with the server's own database, and the weights on its disk byte for byte with a run without faults. Also checked: every caller resumes within the retry budget of five minutes and one more attempt; no fiber, socket, file, handle or permit is left; the process exits by itself; no key and no token is in any output or file.

Bytes that are changed on their way cannot be noticed without TLS. After such a fault, only the other promises are checked.`,
  },
  {
    prefix: "kills ",
    title: "Killed processes",
    text: "The client or the server of a training run is killed with SIGKILL, several times in a run, and started again.",
  },
  {
    prefix: "disks ",
    title: "Disks and clocks",
    text: "The same program on file systems that are full, read-only, slow or damaged, and with a clock that jumps back and forth.",
  },
  {
    prefix: "fuzz",
    title: "Decoders",
    text: "Mutated inputs, guided by the blocks of code that they reach, for everything that is read from the wire or from files.",
  },
  {
    prefix: "load ",
    title: "Load",
    text: "One client process against a server in another process. Fairness is Jain's index of what the tenants had received when half of everything was done: 1 if all had the same. The server computes 64 samples at a time, and tenants take turns.",
  },
  { prefix: "supply ", title: "Supply chain", text: "What is installed to build and test this repository." },
]

const cell = (text: string) => text.replaceAll("|", "\\|").replaceAll("\n", " ")

const line = ({ command, outcome, promise, tried }: Row) =>
  `| ${cell(promise)} | ${cell(tried)} | ${cell(outcome)} | \`${cell(command)}\` |`

const section = (rows: ReadonlyArray<Row>, images: ReadonlyArray<string>) => (one: (typeof sections)[number]) => {
  const own = rows.filter(({ id }) => id.startsWith(one.prefix))
  if (own.length === 0) return []
  return [
    `## ${one.title}`,
    one.text,
    ["| promise | tried | outcome | command |", "| --- | --- | --- | --- |", ...own.map(line)].join("\n"),
    ...(one.prefix === "load " ? images.map((name) => `![${name.replace(".svg", "")}](images/${name})`) : []),
  ]
}

/** The page, with one row for each kind of experiment that has a result. */
export const page = ({ rows }: Results, images: ReadonlyArray<string>): string =>
  [
    "# Reliability",
    "This page is generated from `reliability.json` by `pnpm faults:docs`: what is promised, what was tried, how often, and with which outcome. Every row can be repeated with its command, and a failing seed is printed with the command that repeats it.",
    ...sections.flatMap(section(rows, images)),
  ].join("\n\n") + "\n"
