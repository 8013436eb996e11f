/** Asks before something is deleted or overwritten. */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { existsSync } from "node:fs"
import { Aborted } from "./Failure.ts"
import { Shell } from "./Shell.ts"

/** Asks a question whose default answer is no. The end of the input aborts the command. */
export const confirm = (question: string): Effect.Effect<boolean, Aborted, Shell> =>
  Effect.gen(function* () {
    const shell = yield* Shell
    while (true) {
      yield* shell.out(`${question} [y/N]: `)
      const line = yield* shell.line
      if (Option.isNone(line)) return yield* new Aborted()
      const answer = line.value.trim().toLowerCase()
      if (answer === "y" || answer === "yes") return true
      if (answer === "n" || answer === "no" || answer === "") return false
      yield* shell.out("Error: invalid input\n")
    }
  })

/** Asks before a file is replaced, if a person can answer; a script replaces it, as with the official command. */
export const replace = (path: string, isAgreed: boolean): Effect.Effect<void, Aborted, Shell> =>
  Effect.gen(function* () {
    const { isInteractive } = yield* Shell
    if (isAgreed || !isInteractive || !existsSync(path)) return
    if (!(yield* confirm(`${path} exists. Overwrite it?`))) return yield* new Aborted()
  })
