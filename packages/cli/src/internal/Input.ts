/** Reads the input of the command. */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { Shell } from "./Shell.ts"

/** The whole input. */
export const all: Effect.Effect<string, never, Shell> = Effect.gen(function* () {
  const { line } = yield* Shell
  const lines: Array<string> = []
  for (let next = yield* line; Option.isSome(next); next = yield* line) lines.push(next.value)
  return lines.join("\n")
})
