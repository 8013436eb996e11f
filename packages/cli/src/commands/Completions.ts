/** Implements `tinkerfx completions`. */
import * as Command from "@effect/cli/Command"
import * as Effect from "effect/Effect"
import { type Handler, name, root } from "../internal/Commands.ts"
import { Shell } from "../internal/Shell.ts"

const program = root("all")

const scripts = {
  bash: Command.getBashCompletions(program, name),
  zsh: Command.getZshCompletions(program, name),
  fish: Command.getFishCompletions(program, name),
}

export const completions: Handler<{ readonly shell: string }> = ({ shell }) =>
  Effect.gen(function* () {
    const { out } = yield* Shell
    const lines = yield* scripts[shell === "zsh" || shell === "fish" ? shell : "bash"]
    yield* out(`${lines.join("\n")}\n`)
  })
