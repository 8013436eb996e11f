import { readdirSync, readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { Engine, type EngineError, type Losses, Safetensors } from "@effect-tinker/engine"
import { Either } from "effect"

export const folder = (name: string) => fileURLToPath(new URL(`../goldens/${name}`, import.meta.url))

export const tensors = (model: string, file: string) =>
  right(Safetensors.read(readFileSync(`${folder(model)}/${file}.safetensors`)))

export const parse = Safetensors.read

export const bytes = (model: string, file: string): Uint8Array => readFileSync(`${folder(model)}/${file}.safetensors`)

export interface Golden {
  readonly tokens: ReadonlyArray<ReadonlyArray<number>>
  readonly data: ReadonlyArray<Readonly<Record<string, ReadonlyArray<number>>>>
  readonly wide: ReadonlyArray<Readonly<Record<string, ReadonlyArray<ReadonlyArray<number>>>>>
  readonly losses: Readonly<
    Record<
      string,
      { readonly config: Record<string, number>; readonly inputs: ReadonlyArray<string>; readonly sum: number }
    >
  >
  readonly adamw: ReadonlyArray<{ readonly loss: number; readonly norm: number }>
  readonly dimuon: ReadonlyArray<{ readonly loss: number; readonly norm: number }>
}

export const golden = (model: string): Golden => JSON.parse(readFileSync(`${folder(model)}/golden.json`, "utf8"))

export const files = (model: string) => ({
  config: JSON.parse(readFileSync(`${folder(model)}/config.json`, "utf8")),
  weights: readdirSync(folder(model))
    .filter((name) => name.startsWith("model") && name.endsWith(".safetensors"))
    .map((name): Uint8Array => readFileSync(`${folder(model)}/${name}`)),
})

export const engine = (model: string, options?: Engine.EngineOptions): Engine.Engine =>
  right(Engine.make(files(model), options))

/** Creates an engine with the adapter that the goldens of torch used, named `a`. */
export const withAdapter = (model: string, options?: Engine.EngineOptions): Engine.Engine => {
  const made = engine(model, options)
  right(made.loadAdapter("a", bytes(model, "adapter")))
  return made
}

export const vector = (values: ReadonlyArray<number>): Losses.Tensor => ({ data: values })

export const matrix = (rows: ReadonlyArray<ReadonlyArray<number>>): Losses.Tensor => ({
  data: rows.flat(),
  shape: [rows.length, rows[0]?.length ?? 0],
})

export const datums = (of: Golden, inputs: ReadonlyArray<string>): ReadonlyArray<Losses.Datum> =>
  of.data.map((datum, i) => ({
    tokens: of.tokens[i] ?? [],
    inputs: Object.fromEntries(["target_tokens", ...inputs].map((name) => [name, vector(datum[name] ?? [])])),
  }))

/** Returns the largest difference, relative to the largest value of `b`. */
export const apart = (a: ArrayLike<number>, b: ArrayLike<number>): number => {
  let most = 0
  let difference = a.length === b.length ? 0 : Infinity
  for (let i = 0; i < b.length; i++) {
    most = Math.max(most, Math.abs(b[i] ?? 0))
    difference = Math.max(difference, Math.abs((a[i] ?? Number.NaN) - (b[i] ?? 0)))
  }
  return difference / Math.max(most, 1e-6)
}

/** Returns the value, or fails the test with the engine's error. */
export const right = <A>(result: Either.Either<A, EngineError.EngineError>): A =>
  Either.getOrThrowWith(result, (error) => error)
