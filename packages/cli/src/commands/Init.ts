/** Implements `tinkerfx init`. */
import { version } from "effect-tinker/protocol/Version"
import * as Effect from "effect/Effect"
import { existsSync } from "node:fs"
import { basename, join, relative, resolve } from "node:path"
import type { Handler } from "../internal/Commands.ts"
import { Aborted, Failure } from "../internal/Failure.ts"
import * as Files from "../internal/Files.ts"
import * as Output from "../internal/Output.ts"
import * as Prompt from "../internal/Prompt.ts"
import { Shell } from "../internal/Shell.ts"
import * as Template from "../internal/Template.ts"

export const init: Handler<{ readonly directory: string | undefined; readonly yes: boolean }> = (input, { format }) =>
  Effect.gen(function* () {
    const shell = yield* Shell
    const directory = resolve(shell.directory, input.directory ?? ".")
    const files = Template.files(Template.nameOf(basename(directory)), version)
    const existing = [...files.keys()].filter((file) => existsSync(join(directory, file)))
    if (existing.length > 0 && !input.yes) {
      if (!shell.isInteractive)
        return yield* new Failure({
          message: `${relative(shell.directory, directory) || "This directory"} already has ${existing.join(", ")}`,
          hint: "Use another directory, or -y to overwrite them.",
        })
      if (!(yield* Prompt.confirm(`Overwrite ${existing.join(", ")}?`))) return yield* new Aborted()
    }
    yield* Effect.forEach(files, ([file, text]) => Files.write(join(directory, file), text))
    const shown = relative(shell.directory, directory)
    if (format === "json")
      return yield* Output.printRecords(format, {
        records: [...files.keys()].map((file) => ({ file: join(shown, file) })),
        table: () => ({ columns: [], rows: [] }),
      })
    yield* shell.out(
      [
        ...[...files.keys()].map((file) => `  ${join(shown, file)}`),
        "",
        "Next:",
        ...(shown === "" ? [] : [`  cd ${shown}`]),
        "  npm install",
        "  npm test         trains a small model on this machine, and checks that it learns",
        "  npm run train    trains with the settings in sft.yaml",
        "  npm run chat     talks to the result",
        "",
      ].join("\n"),
    )
  })
