/**
 * Reads model directories in the Hugging Face layout, including the one shipped with this package.
 *
 * @since 0.1.0
 */
import * as FileSystem from "@effect/platform/FileSystem"
import * as Path from "@effect/platform/Path"
import * as Effect from "effect/Effect"
import { EngineError } from "./EngineError.ts"
import * as Engine from "./Engine.ts"

/**
 * The contents of a model directory.
 *
 * @since 0.1.0
 * @category models
 */
export interface ModelFiles {
  readonly config: unknown
  /** The contents of the safetensors files. */
  readonly weights: ReadonlyArray<Uint8Array>
  /** The unparsed files of the tokenizer. */
  readonly tokenizer: string | undefined
  readonly tokenizerConfig: string | undefined
}

/**
 * The name of the model shipped with this package.
 *
 * @since 0.1.0
 * @category constants
 */
export const shippedName: string = "effect-tinker/valley-1.5m"

/**
 * The name of the model with tools shipped with this package.
 *
 * @since 0.1.0
 * @category constants
 */
export const shippedToolsName: string = "effect-tinker/valley-tools-1.5m"

const beside = (folder: string): Effect.Effect<string, EngineError, Path.Path> =>
  Effect.flatMap(Path.Path, (path) =>
    Effect.mapError(
      path.fromFileUrl(new URL(`../${folder}`, import.meta.url)),
      (cause) => new EngineError({ reason: "NotFound", problem: "this package is not in a file system", cause }),
    ),
  )

/**
 * The directory of the model shipped with this package.
 *
 * @since 0.1.0
 * @category constructors
 */
export const shipped: Effect.Effect<string, EngineError, Path.Path> = beside("model")

/**
 * The directory of the model with tools shipped with this package.
 *
 * @since 0.1.0
 * @category constructors
 */
export const shippedTools: Effect.Effect<string, EngineError, Path.Path> = beside("model-tools")

/** Reads files of a directory. */
const reader = (directory: string) =>
  Effect.gen(function* () {
    const fs = yield* FileSystem.FileSystem
    const path = yield* Path.Path
    const missing = (name: string) => (cause: unknown) =>
      new EngineError({ reason: "NotFound", problem: `failed to read ${path.join(directory, name)}`, cause })
    const text = (name: string) => Effect.mapError(fs.readFileString(path.join(directory, name)), missing(name))
    const bytes = (name: string) => Effect.mapError(fs.readFile(path.join(directory, name)), missing(name))
    const has = (name: string) => Effect.mapError(fs.exists(path.join(directory, name)), missing(name))
    const optional = (name: string) =>
      Effect.flatMap(has(name), (there) => (there ? text(name) : Effect.succeed(undefined)))
    const json = (name: string) =>
      Effect.flatMap(text(name), (content) =>
        Effect.try({
          try: (): unknown => JSON.parse(content),
          catch: (cause) => new EngineError({ reason: "InvalidModel", problem: `${name} is not valid JSON`, cause }),
        }),
      )
    return { bytes, has, json, optional }
  })

/**
 * Reads only `config.json`, which has the sizes of a model.
 *
 * @since 0.1.0
 * @category constructors
 */
export const config = Effect.fn("ModelFiles.config")(function* (directory: string) {
  return yield* (yield* reader(directory)).json("config.json")
})

/**
 * Reads `config.json`, `model.safetensors` or the files listed in `model.safetensors.index.json`, and, if they exist,
 * `tokenizer.json` and `tokenizer_config.json`.
 *
 * @since 0.1.0
 * @category constructors
 */
export const read = Effect.fn("ModelFiles.read")(function* (directory: string) {
  const { bytes, has, json, optional } = yield* reader(directory)
  const index = "model.safetensors.index.json"
  const sharded = yield* has(index)
  const names = sharded ? shards(yield* json(index)) : ["model.safetensors"]
  if (names === undefined || names.some((name) => name.includes("/") || name.includes("\\")))
    return yield* new EngineError({ reason: "InvalidModel", problem: `${index} has no weight_map with file names` })
  const files: ModelFiles = {
    config: yield* json("config.json"),
    weights: yield* Effect.forEach(names, bytes),
    tokenizer: yield* optional("tokenizer.json"),
    tokenizerConfig: yield* optional("tokenizer_config.json"),
  }
  return files
})

const shards = (index: unknown): ReadonlyArray<string> | undefined => {
  const map: unknown =
    typeof index === "object" && index !== null && "weight_map" in index ? index.weight_map : undefined
  return typeof map === "object" && map !== null ? [...new Set(Object.values(map).map(String))] : undefined
}

/**
 * Creates an engine from a directory, by default from the model shipped with this package.
 *
 * @since 0.1.0
 * @category constructors
 */
export const engine = Effect.fn("ModelFiles.engine")(function* (directory?: string, options?: Engine.EngineOptions) {
  return yield* Engine.make(yield* read(directory ?? (yield* shipped)), options)
})
