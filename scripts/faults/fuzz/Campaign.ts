/** Fuzzes targets, each in a process of its own that is watched for endless loops and for too much memory. */
import { readFile } from "node:fs/promises"
import { join } from "node:path"
import { Effect, Option } from "effect"
import { type Bundles, model } from "../lab/Bundles.ts"
import * as Child from "../lab/Child.ts"
import { directory } from "../lab/Directory.ts"
import type { Line, Settings } from "./Protocol.ts"

export interface Outcome {
  readonly target: string
  readonly runs: number
  /** In base64, like `input`. */
  readonly corpus: ReadonlyArray<string>
  readonly problem?: string | undefined
  readonly input?: string | undefined
}

/** A process that prints nothing for this long is in an endless loop. */
const silence = 30_000

const lastLine = (output: string): Line | undefined => {
  const lines = output.split("\n").filter((line) => line !== "")
  try {
    return JSON.parse(lines.at(-1) ?? "null") ?? undefined
  } catch {
    return undefined
  }
}

/** Waits for the end of a process, or for it to fall silent. */
const watched = (child: Child.Child): Effect.Effect<"ended" | "silent"> =>
  Effect.gen(function* () {
    let [length, since] = [-1, performance.now()]
    for (;;) {
      const end = yield* Effect.timeoutOption(child.ended, "500 millis")
      if (Option.isSome(end)) return "ended"
      const now = child.stdout().length
      if (now !== length) [length, since] = [now, performance.now()]
      else if (performance.now() - since > silence) return "silent"
    }
  })

/** Fuzzes one target for a time. */
export const run = (bundles: Bundles, settings: Omit<Settings, "inputFile">): Effect.Effect<Outcome> =>
  Effect.gen(function* () {
    const inputFile = join(yield* directory, "input")
    const child = yield* Child.run({
      program: bundles.fuzz,
      args: [JSON.stringify({ ...settings, inputFile } satisfies Settings)],
      env: { TINKER_LAB_MODEL: model },
      conditions: { node: ["--max-old-space-size=768"] },
    })
    const how = yield* watched(child)
    const line = lastLine(child.stdout())
    if (how === "ended" && line?._tag === "End") return { target: settings.target, ...line }
    const input = yield* Effect.promise(() => readFile(inputFile).catch(() => Buffer.alloc(0)))
    return {
      target: settings.target,
      runs: line?.runs ?? 0,
      corpus: [],
      problem: how === "silent" ? "an endless loop" : `the process died: ${child.stderr().slice(-1500)}`,
      input: input.toString("base64"),
    }
  }).pipe(Effect.scoped)
