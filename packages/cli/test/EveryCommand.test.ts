// Every command once on a terminal and once in a pipe, against the real local server. The short form runs a few.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { describe, expect, it } from "@effect/vitest"
import { NodeTinker } from "@effect-tinker/node"
import { Effect, Redacted } from "effect"
import { Loss, Optimizer, ServiceClient } from "effect-tinker"
import * as Hub from "./support/Hub.ts"
import { leaves } from "./support/Leaves.ts"
import * as Process from "./support/Process.ts"
import * as Terminal from "./support/Terminal.ts"

const key = "tml-every"
const baseModel = "effect-tinker/valley-1.5m"
const isFull = process.env["TINKER_TESTS"] === "all"

/** Below the package, so that commands outside of the bundle find the installed packages. */
const workplace = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(fileURLToPath(new URL("../node_modules/.every-", import.meta.url)))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true })),
)

/** Trains a model for one step and saves what the commands need. */
const trained = Effect.gen(function* () {
  const service = yield* ServiceClient.ServiceClient
  const training = yield* service.createLoraTrainingClient({ baseModel, rank: 4, seed: 1 })
  const data = [{ modelInput: [10, 20, 30], inputs: { targetTokens: [20, 30, 40], weights: [1, 1, 1] } }]
  yield* training.trainStep(data, Loss.crossEntropy, Optimizer.adam({ learningRate: 1e-3 }))
  const [kept, first, second] = [
    yield* training.saveState("kept"),
    yield* training.saveState("first"),
    yield* training.saveState("second"),
  ]
  return { run: training.modelId, session: training.session.id, kept: kept.path, spare: [first.path, second.path] }
}).pipe(Effect.scoped)

interface Case {
  readonly args: ReadonlyArray<string>
  /** Part of the output. */
  readonly shows: string | RegExp
  readonly code?: number
  /** The keys typed on a terminal. */
  readonly typed?: Terminal.Options["typed"]
  /** The input in a pipe. */
  readonly input?: string
}

const training = ["--rank", "4", "--learning-rate", "1e-3"]
const rollouts = ["--max-tokens", "4", "--group-size", "2", "--groups-per-iteration", "1"]

/** One case for each command; `way` keeps the terminal and the pipe apart. */
const casesOf = (
  { kept, run, session, spare }: Effect.Effect.Success<typeof trained>,
  way: "terminal" | "pipe",
): Readonly<Record<string, Case>> => ({
  "auth status": { args: [], shows: "Tinker accessible: yes" },
  // The local server has neither users nor an address for keys.
  "auth whoami": { args: [], shows: "does not identify its owner", code: 1 },
  "auth login": { args: [], shows: "Logged in as", typed: [["API key: ", `${key}\n`]], input: `${key}\n` },
  "auth logout": { args: [], shows: "Removed credential" },
  "billing usage": { args: ["2026-07-13T00:00:00Z", "2026-07-14T00:00:00Z"], shows: /usage/i },
  "billing checkpoint-storage": { args: [], shows: /storage/i },
  "checkpoint list": { args: ["--run-id", run], shows: "weights" },
  "checkpoint info": { args: [kept], shows: "Yes (Rank 4)" },
  "checkpoint publish": { args: [kept], shows: "" },
  "checkpoint unpublish": { args: [kept], shows: "" },
  "checkpoint set-ttl": { args: [kept, "--ttl", "7200"], shows: "" },
  "checkpoint delete": {
    args: [spare[way === "pipe" ? 0 : 1] ?? ""],
    shows: "Deleted 1 checkpoint(s)",
    typed: [["[y/N]: ", "y\n"]],
    input: "y\n",
  },
  "checkpoint download": { args: [kept, "-o", `download-${way}`], shows: "Downloaded to" },
  "checkpoint push-hf": { args: [kept, "-r", `adapter-${way}`], shows: "me/adapter" },
  "model list": { args: [], shows: baseModel },
  "run list": { args: [], shows: /\d training runs?/ },
  "run info": { args: [run], shows: "Yes (Rank 4)" },
  "session export-trace": { args: [session, "-o", `trace-${way}`], shows: "Saved to" },
  init: { args: [`project-${way}`], shows: "npm install" },
  "train sft": {
    args: ["--local", "--data", "chats.jsonl", "--batch-size", "2", ...training, "--out", `sft-${way}`],
    shows: "Chat with it",
  },
  "train rl": {
    args: [
      "--local",
      "--environment",
      "letter.mjs",
      "--iterations",
      "1",
      ...rollouts,
      ...training,
      "--out",
      `rl-${way}`,
    ],
    shows: "Chat with it",
  },
  "train dpo": {
    args: ["--local", "--data", "pairs.jsonl", ...training, "--out", `dpo-${way}`],
    shows: "Chat with it",
  },
  "train distill": {
    args: [
      "--local",
      "--data",
      "chats.jsonl",
      "--teacher",
      baseModel,
      "--max-iterations",
      "1",
      ...rollouts,
      ...training,
    ].concat(["--out", `distill-${way}`]),
    shows: "Chat with it",
  },
  resume: { args: [`sft-${way}`], shows: "complete already" },
  eval: { args: [`sft-${way}`, "--data", "chats.jsonl"], shows: "nll" },
  report: { args: [`sft-${way}`], shows: "report.html" },
  chat: {
    args: [`sft-${way}`, "--max-tokens", "4"],
    shows: "user: Hello",
    typed: [
      ["> ", "Hello\n"],
      ["> ", "/history\n"],
      ["> ", "\u0004"],
    ],
    input: "Hello\n/history\n",
  },
  sample: { args: [baseModel, "-p", "Hello", "-n", "2", "--max-tokens", "4"], shows: "2 of 2" },
  tokenize: { args: ["Hello"], shows: /\d/ },
  render: { args: ["chats.jsonl"], shows: "assistant" },
  lint: { args: ["chats.jsonl"], shows: "no problems found" },
  doctor: { args: [], shows: "accepts the key" },
  gc: { args: ["--older-than", "0h", "--keep", "0"], shows: "Nothing was deleted" },
  "cost estimate": { args: ["sft", "--model", "Qwen/Qwen3-8B", "--tokens", "1000000"], shows: "$0.44" },
  "cost meter": { args: ["counted"], shows: "trained tokens" },
  "cost reconcile": { args: ["counted"], shows: "The bill" },
  serve: { args: ["--port", "none"], shows: "an integer from 0 to 65535", code: 2 },
  completions: { args: ["bash"], shows: "tinkerfx" },
  version: { args: [], shows: /tinkerfx \d/ },
})

/** The commands outside of the bundle. */
const outside = new Set(["train", "resume", "eval", "report", "chat", "sample", "tokenize", "render", "lint", "serve"])

/** The short form. A chat needs what the training before it has made. */
const short = { terminal: ["train sft", "chat"], pipe: ["doctor"] } as const

const user = (content: string) => ({ role: "user", content })

const files: Readonly<Record<string, string>> = {
  "chats.jsonl": Array.from({ length: 2 }, (_, i) =>
    JSON.stringify({ messages: [user(`What is ${i} + 2?`), { role: "assistant", content: "Ahoy!" }] }),
  ).join("\n"),
  "pairs.jsonl": JSON.stringify({
    prompt: [user("Hi")],
    chosen: [{ role: "assistant", content: "Ahoy!" }],
    rejected: [{ role: "assistant", content: "No." }],
  }),
  "letter.mjs": `
    export const tasks = [{ messages: [{ role: "user", content: "Who are you?" }] }]
    export const reward = (answer) => answer.length
  `,
  "counted/config.json": JSON.stringify({ model: baseModel }),
  "counted/spending.json": JSON.stringify({
    spent: "0",
    step: 0,
    tokens: { prefill: 0, cachedPrefill: 0, sampled: 0, trained: 3 },
  }),
}

// oxlint-disable-next-line no-control-regex
const escapes = /\u001b\[[0-9;?]*[A-Za-z]/

describe("every command", () => {
  it("has a case", () => {
    const saved = { kept: "", run: "", session: "", spare: [] }
    expect(Object.keys(casesOf(saved, "pipe")).toSorted()).toEqual(leaves.toSorted())
  })

  it.live(
    "works on a terminal and in a pipe",
    () =>
      Effect.gen(function* () {
        const server = yield* Process.serve("--port", "0")
        const hub = yield* Hub.make
        const directory = yield* workplace
        const bin = yield* Terminal.bundle(directory)
        const saved = yield* Effect.provide(
          trained,
          NodeTinker.layer({ baseUrl: server.url, apiKey: Redacted.make(key) }),
        )
        yield* Effect.sync(() => {
          mkdirSync(join(directory, "counted"))
          for (const [name, text] of Object.entries(files)) writeFileSync(join(directory, name), `${text}\n`)
          const at = Date.now()
          const event = { _tag: "Checkpoint", statePath: saved.kept, at }
          writeFileSync(join(directory, "counted", "events.jsonl"), `${JSON.stringify(event)}\n`)
        })
        const env = { TINKER_BASE_URL: server.url, TINKER_API_KEY: key, HF_ENDPOINT: hub.url, HF_TOKEN: Hub.token }
        const problems: Array<string> = []
        for (const way of ["terminal", "pipe"] as const)
          for (const [command, { args, code = 0, input, shows, typed }] of Object.entries(casesOf(saved, way))) {
            if (!isFull && !short[way].some((name) => name === command)) continue
            const ended = yield* Terminal.run({
              bin,
              directory,
              env,
              cwd: directory,
              usesPackages: outside.has(command.split(" ")[0] ?? ""),
              args: [...command.split(" "), ...args],
              ...(way === "terminal" ? { columns: 100, typed: typed ?? [] } : { input: input ?? "" }),
            })
            const all = ended.stdout + ended.stderr
            const isShown = typeof shows === "string" ? all.includes(shows) : shows.test(all)
            const isPlain = way === "terminal" || !escapes.test(ended.stdout)
            if (ended.code !== code || !isShown || !isPlain || all.includes(key))
              problems.push(`${way}: ${command} ended with ${ended.code}: ${all}`)
          }
        expect(problems).toEqual([])
      }).pipe(Effect.scoped),
    600_000,
  )
})
