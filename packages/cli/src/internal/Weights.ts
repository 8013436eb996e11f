/** Downloads the files of a checkpoint. */
import * as Checkpoint from "effect-tinker/Checkpoint"
import * as RestClient from "effect-tinker/RestClient"
import * as ServiceClient from "effect-tinker/ServiceClient"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import { existsSync } from "node:fs"
import { stat } from "node:fs/promises"
import { resolve, sep } from "node:path"
import { Failure } from "./Failure.ts"
import * as Fetch from "./Fetch.ts"
import type { Format } from "./Output.ts"
import { Shell } from "./Shell.ts"

const hint =
  "Only training (tinker://run-id/weights/name) and external weights (tinker://run-id/external_weights/name) checkpoints can be downloaded."

/** Parses the path of a checkpoint that can be downloaded. */
export const parse = (path: string): Effect.Effect<Checkpoint.Path, Failure> =>
  Either.match(Checkpoint.parse(path), {
    onLeft: ({ problem }) => new Failure({ message: `Invalid checkpoint path: ${path}: ${problem}`, hint }),
    onRight: (parsed) =>
      parsed.kind === "sampler"
        ? new Failure({ message: `Sampler checkpoints cannot be downloaded: ${path}`, hint })
        : Effect.succeed(parsed),
  })

/** The lifetime of the copy through which training weights are downloaded. */
const lifetime = { text: "1 hour", seconds: 3600 } as const

/** URLs are signed anew when they expire within this time. */
const margin = 5 * 60_000

interface Options {
  readonly directory: string
  readonly format: Format
  /** Called before each file with how many are complete. */
  readonly onFile?: ((complete: number, all: number) => void) | undefined
}

/** Downloads external weights. Files that an earlier download completed in the directory are kept. */
const external = (path: Checkpoint.Path, { directory, format, onFile }: Options, renew: boolean) =>
  Effect.gen(function* () {
    const rest = yield* RestClient.RestClient
    const sign = Effect.tap(rest.getExternalWeightsUrls(path), () =>
      renew ? rest.setCheckpointTtl(path, lifetime.text) : Effect.void,
    )
    let signed = yield* sign
    const names = Object.keys(signed.urls).toSorted()
    if (names.length === 0)
      return yield* new Failure({
        message: `External weights checkpoint has no files: ${path}`,
        hint: "Save the weights again with saveWeightsExternal.",
      })
    const base = resolve(directory)
    const unsafe = names.find((name) => !resolve(base, name).startsWith(`${base}${sep}`))
    if (unsafe !== undefined)
      return yield* new Failure({
        message: `Unsafe file path in checkpoint: ${unsafe}`,
        hint: "The checkpoint may be corrupted or malicious.",
      })
    let total = 0
    for (const [index, name] of names.entries()) {
      onFile?.(index, names.length)
      const target = resolve(base, name)
      if (existsSync(target)) {
        total += (yield* Effect.promise(() => stat(target))).size
        continue
      }
      let isFirst = true
      const url = Effect.gen(function* () {
        const now = yield* Clock.currentTimeMillis
        if (!isFirst || now >= signed.expires.epochMillis - margin) signed = yield* sign
        isFirst = false
        return signed.urls[name] ?? ""
      })
      total += yield* Fetch.toFile(url, target, { label: name, format, keepPartial: !renew })
    }
    onFile?.(names.length, names.length)
    return total
  })

/** Loads training weights into a new training run and exports them from there; the export is deleted afterwards. */
const exported = (path: Checkpoint.Path, options: Options) =>
  Effect.gen(function* () {
    const { err } = yield* Shell
    const rest = yield* RestClient.RestClient
    const service = yield* ServiceClient.ServiceClient
    if (options.format !== "json")
      yield* err(
        `Exporting ${path} as external weights (this starts a training session on the checkpoint's base model)...\n`,
      )
    const training = yield* service.createTrainingClientFromCheckpoint(path, {
      userMetadata: { created_by: "tinkerfx checkpoint download" },
    })
    const saved = yield* training.saveWeightsExternal("download", { ttl: lifetime.text })
    const copy = yield* Checkpoint.parse(saved.path)
    return yield* Effect.ensuring(
      external(copy, options, true),
      Effect.catchAll(rest.deleteCheckpointByPath(copy), (error) =>
        err(
          `Warning: failed to delete the temporary export ${copy} (${error.message}); it expires in ${lifetime.seconds} seconds.\n`,
        ),
      ),
    )
  })

/** Downloads a checkpoint into a directory and returns its size. */
export const download = (path: Checkpoint.Path, options: Options) =>
  path.kind === "external" ? external(path, options, false) : Effect.scoped(exported(path, options))
