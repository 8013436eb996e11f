/** Implements `tinkerfx checkpoint download`. */
import * as Effect from "effect/Effect"
import { existsSync } from "node:fs"
import { mkdir, rename, rm } from "node:fs/promises"
import { join, resolve } from "node:path"
import * as Clients from "../internal/Clients.ts"
import type { Handler } from "../internal/Commands.ts"
import { Aborted, Failure } from "../internal/Failure.ts"
import * as Output from "../internal/Output.ts"
import * as Prompt from "../internal/Prompt.ts"
import { Shell } from "../internal/Shell.ts"
import * as Weights from "../internal/Weights.ts"
import * as Words from "../internal/Words.ts"

const onDisk = <A>(path: string, run: () => Promise<A>): Effect.Effect<A, Failure> =>
  Effect.tryPromise({
    try: run,
    catch: (cause) =>
      new Failure({
        message: `Failed to save checkpoint: ${cause instanceof Error ? cause.message : String(cause)}`,
        hint: `Please check that you have write permissions to ${path}`,
        cause,
      }),
  })

export const download: Handler<{
  readonly path: string
  readonly output: string | undefined
  readonly force: boolean
  readonly yes: boolean
}> = ({ force, output, path, yes }, { format }) =>
  Effect.gen(function* () {
    const shell = yield* Shell
    const checkpoint = yield* Weights.parse(path)
    const parent = output ?? shell.directory
    const shown = join(parent, path.replace("tinker://", "").replaceAll("/", "_"))
    const target = resolve(shell.directory, shown)
    if (existsSync(target) && !force && !yes) {
      if (!shell.isInteractive)
        return yield* new Failure({
          message: `Target directory already exists: ${shown}`,
          hint: "Use --force to overwrite or choose a different output directory.",
        })
      if (!(yield* Prompt.confirm(`${shown} exists. Overwrite it?`))) return yield* new Aborted()
    }
    // Until all files are there, they are in a directory beside it.
    const partial = `${target}.part`
    const canResume = checkpoint.kind === "external"
    let progress = { complete: 0, all: 0 }
    const leave = Effect.gen(function* () {
      if (canResume && progress.complete > 0)
        return yield* shell.err(
          `Saved ${progress.complete} of ${progress.all} files in ${shown}.part; the same command continues there.\n`,
        )
      if (canResume && existsSync(partial))
        return yield* shell.err(`Partial data is in ${shown}.part; the same command continues there.\n`)
      yield* Effect.promise(() => rm(partial, { recursive: true, force: true }))
      yield* shell.err("Nothing was saved.\n")
    })
    const size = yield* Effect.gen(function* () {
      yield* onDisk(parent, async () => {
        if (!canResume) await rm(partial, { recursive: true, force: true })
        await mkdir(partial, { recursive: true })
      })
      const size = yield* Weights.download(checkpoint, {
        directory: partial,
        format,
        onFile: (complete, all) => (progress = { complete, all }),
      })
      yield* onDisk(parent, async () => {
        await rm(target, { recursive: true, force: true })
        await rename(partial, target)
      })
      return size
    }).pipe(
      Effect.onInterrupt(() => leave),
      Effect.tapError(() => leave),
      Clients.provide,
    )
    yield* Output.print(format, {
      json: () => ({
        checkpoint_path: path,
        destination: shown,
        ...(size > 0 ? { file_size_bytes: size } : {}),
      }),
      table: () => ({
        title: `Checkpoint Download: ${path}`,
        columns: Output.properties,
        rows: [
          ["Checkpoint Path", path],
          ...(size > 0 ? [["Total Size", Words.size(size)]] : []),
          ["Downloaded to", shown],
        ],
      }),
    })
  })
