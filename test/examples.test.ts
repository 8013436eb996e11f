import { execFile } from "node:child_process"
import { mkdirSync, writeFileSync } from "node:fs"
import { dirname } from "node:path"
import { fileURLToPath } from "node:url"
import { promisify } from "node:util"
import { beforeAll, describe, expect, it } from "@effect/vitest"
import { type Example, examples, programs, tags } from "./support/Examples.ts"
import type { Ran } from "./support/run-examples.ts"
import { root, typeErrors } from "./support/TypeErrors.ts"

/** The exports that users meet first. */
const required = [
  "ApiFuture.all",
  "ChatClient.ChatClient",
  "Checkpoint.parse",
  "Cost.make",
  "CustomLoss.fromGradient",
  "Download.toFile",
  "LocalTinker.layer",
  "Loss.crossEntropy",
  "ModelInput.ModelInput",
  "NodeTinker.layerConfig",
  "Optimizer.adam",
  "Optimizer.cosine",
  "Renderers.byName",
  "Report.html",
  "RestClient.RestClient",
  "RetryPolicy.make",
  "SamplingClient.SamplingClient",
  "SamplingParams.SamplingParams",
  "ScriptedServer.layer",
  "ServiceClient.ServiceClient",
  "ServiceClient.layer",
  "Tinker.layer",
  "TinkerConfig.layer",
  "TinkerConfig.layerConfig",
  "TinkerError.isTinkerError",
  "TinkerTenants.layer",
  "TrainingClient.TrainingClient",
  "TrainingClient.layerLora",
  "TrainingClient.open",
  "TrainingJournal.memory",
]

const runner = fileURLToPath(new URL("./support/run-examples.ts", import.meta.url))

/** Runs all examples in one process, because loading the packages takes longer than running an example. */
const runAll = async (all: ReadonlyArray<Example>): Promise<ReadonlyMap<string, Ran>> => {
  for (const { name, text } of all) {
    mkdirSync(dirname(name), { recursive: true })
    writeFileSync(name, text)
  }
  const { stdout } = await promisify(execFile)(
    process.execPath,
    ["--import", "tsx", runner, ...all.map(({ name }) => name)],
    { cwd: root, maxBuffer: 2 ** 24 },
  )
  const ran: ReadonlyArray<Ran> = JSON.parse(stdout)
  return new Map(ran.map((one) => [one.file, one]))
}

/** Only `test:all` checks types and runs the programs in the documentation, which train for half a minute. */
const isFull = process.env["TINKER_TESTS"] === "all"
const run = isFull ? [...examples, ...programs] : examples

describe("examples in doc comments", () => {
  let ran: ReadonlyMap<string, Ran>
  beforeAll(async () => void (ran = await runAll(run)), 600_000)

  it("every @example has the form that this test reads", () => {
    expect(examples.length).toBe(tags)
  })

  it("every export that users meet first has an example", () => {
    const documented = new Set(examples.map(({ of }) => of))
    expect(required.filter((name) => !documented.has(name))).toEqual([])
  })

  if (isFull) {
    it("all examples compile", () => {
      expect(typeErrors(examples)).toEqual([])
    })
  }

  it("a recipe in the documentation has at most 25 lines of code", () => {
    const lines = programs.map(({ text }) => text.split("\n").filter((line) => line.trim() !== "").length)
    expect(lines.length).toBeGreaterThan(2)
    expect(Math.max(...lines)).toBeLessThanOrEqual(25)
  })

  for (const { name, of, output } of run) {
    it(`the example of ${of} runs and prints what it states`, () => {
      expect(output).not.toEqual([])
      expect(ran.get(name)).toEqual({ file: name, output })
    })
  }
})
