/** Implements `tinkerfx completions`. */
import * as Command from "@effect/cli/Command"
import * as Effect from "effect/Effect"
import { type Handler, name, root } from "../internal/Commands.ts"
import { Shell } from "../internal/Shell.ts"

const scripts = {
  bash: Command.getBashCompletions(root, name),
  zsh: Command.getZshCompletions(root, name),
  fish: Command.getFishCompletions(root, name),
}

export const completions: Handler<{ readonly shell: string }> = ({ shell }) =>
  Effect.gen(function* () {
    const { out } = yield* Shell
    const lines = yield* scripts[shell === "zsh" || shell === "fish" ? shell : "bash"]
    yield* out(`${lines.join("\n")}\n`)
  })
