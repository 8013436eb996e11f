/** Writes the help of a command in the form of the official command, from the parser's own documentation. */
import type * as HelpDoc from "@effect/cli/HelpDoc"
import type * as Span from "@effect/cli/HelpDoc/Span"
import * as Option from "effect/Option"
import { builtIn, type Flag, flagsOf, type Node, positionalsOf, usageOf } from "./Arguments.ts"

const spanText = (span: Span.Span): string => {
  switch (span._tag) {
    case "Sequence":
      return spanText(span.left) + spanText(span.right)
    case "Text":
    case "URI":
      return span.value
    case "Highlight":
    case "Strong":
    case "Weak":
      return spanText(span.value)
  }
}

type Block = Exclude<HelpDoc.HelpDoc, HelpDoc.Sequence>

const blocksOf = (doc: HelpDoc.HelpDoc): ReadonlyArray<Block> =>
  doc._tag === "Sequence" ? [...blocksOf(doc.left), ...blocksOf(doc.right)] : [doc]

const paragraphsOf = (doc: HelpDoc.HelpDoc): ReadonlyArray<string> =>
  blocksOf(doc).flatMap((block) => (block._tag === "Paragraph" ? [spanText(block.value)] : []))

/** The first paragraph under the heading of a description. */
export const descriptionOf = (help: HelpDoc.HelpDoc): string => {
  const blocks = blocksOf(help)
  const heading = blocks.findIndex((block) => block._tag === "Header" && spanText(block.value) === "DESCRIPTION")
  const next = heading < 0 ? undefined : blocks[heading + 1]
  return next?._tag === "Paragraph" ? spanText(next.value) : ""
}

/** Splits the parser's help for an argument or option: its first paragraph is the type, the second is our description. */
const wordsAbout = ({ help }: Node, name: string): string => {
  const definitions = blocksOf(help).flatMap((block) => (block._tag === "DescriptionList" ? block.definitions : []))
  const found = definitions.find(([term]) =>
    spanText(term)
      .split(/[\s(),[\]]+/)
      .includes(name),
  )
  return found === undefined ? "" : (paragraphsOf(found[1])[1] ?? "")
}

const wrapped = (text: string, width: number): ReadonlyArray<string> => {
  const lines: Array<string> = []
  let line = ""
  for (const word of text.split(" ")) {
    if (line !== "" && line.length + 1 + word.length > width) {
      lines.push(line)
      line = word
    } else line = line === "" ? word : `${line} ${word}`
  }
  return [...lines, line]
}

const metavar = (flag: Flag): string =>
  Option.match(flag.values, {
    onNone: () => "",
    onSome: (values) => ` ${values.includes("|") ? `[${values.replaceAll(" ", "")}]` : values.toUpperCase()}`,
  })

const term = (flag: Flag): string => {
  const names = flag.names.toSorted((a, b) => a.length - b.length)
  return `${names.join(", ")}${metavar(flag)}`
}

/** Lists terms and what they mean in two columns. */
const section = (title: string, entries: ReadonlyArray<readonly [string, string]>, width: number): string => {
  if (entries.length === 0) return ""
  const column = Math.min(30, Math.max(...entries.map(([term]) => term.length))) + 4
  const lines = entries.flatMap(([term, words]) => {
    const [first = "", ...rest] = wrapped(words, Math.max(20, width - column))
    const start = `  ${term}`
    const head =
      start.length + 2 > column ? [start, `${" ".repeat(column)}${first}`] : [`${start.padEnd(column)}${first}`]
    return [...head, ...rest.map((line) => `${" ".repeat(column)}${line}`)]
  })
  return `\n${title}:\n${lines.map((line) => `${line.trimEnd()}\n`).join("")}`
}

const builtInWords: Readonly<Record<string, string>> = {
  "--help": "Show this message and exit.",
  "--version": "Show the version and exit.",
  "--wizard": "Ask for the arguments of a command one by one.",
}

/** Writes the help of the last command of a path. */
export const render = (path: ReadonlyArray<Node>, columns: number): string => {
  const node = path.at(-1)
  if (node === undefined) return ""
  const width = Math.max(40, Math.min(columns, 80) - 2)
  const isRoot = path.length === 1
  const known = builtIn.filter(({ name }) => name === "--help" || (isRoot && name in builtInWords))
  const flags = [...flagsOf(node), ...known]
  const about = (flag: Flag): string => builtInWords[flag.name] ?? wordsAbout(node, flag.name)
  return [
    `Usage: ${usageOf(path).line}\n\n`,
    ...wrapped(node.description, width - 2).map((line) => `  ${line}\n`),
    section(
      "Arguments",
      positionalsOf(node).map(({ name }) => [name, wordsAbout(node, `<${name.toLowerCase()}>`)]),
      width,
    ),
    section(
      "Options",
      flags.map((flag) => [term(flag), about(flag)]),
      width,
    ),
    section(
      "Commands",
      node.children
        .map((child): readonly [string, string] => [child.name, child.description.replace(/\. .*$/s, ".")])
        .toSorted(([a], [b]) => (a < b ? -1 : 1)),
      width,
    ),
  ].join("")
}
