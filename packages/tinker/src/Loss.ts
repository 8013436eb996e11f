/**
 * Loss functions as values. A loss fixes, while compiling, which inputs its datums carry and what configuration it
 * takes; {@link prepare} holds data from untyped code to the same rules before anything is sent.
 *
 * @since 0.1.0
 */
import * as Either from "effect/Either"
import * as Predicate from "effect/Predicate"
import type { Datum, Span } from "./Datum.ts"
import * as ModelInput from "./ModelInput.ts"
import * as TensorData from "./TensorData.ts"
import { aToken, describe, firstNonToken, kinds } from "./internal/Numbers.ts"
import { InvalidInput } from "./TinkerError.ts"

/**
 * One input of a loss: its name on the wire, its element type, and whether a datum can do without.
 *
 * @since 0.1.0
 * @category models
 */
export interface InputSpec {
  readonly name: string
  readonly dtype: TensorData.Dtype
  readonly required: boolean
}

/**
 * A loss function, configured. `Inputs` is what each datum must carry.
 *
 * @since 0.1.0
 * @category models
 */
export interface Loss<in Inputs> {
  /** On the wire, e.g. `cross_entropy`. */
  readonly name: string
  /** As on the wire. */
  readonly config: Readonly<Record<string, number | string>>
  readonly inputs: Readonly<Record<string, InputSpec>>
  /** Types only. */
  readonly "~inputs"?: (inputs: Inputs) => void
}

/**
 * What the datums of a loss carry.
 *
 * @since 0.1.0
 * @category models
 */
export type Inputs<L> = L extends Loss<infer I> ? I : never

type Ints = TensorData.Input<"int64">
type Floats = TensorData.Input<"float32">

/**
 * @since 0.1.0
 * @category models
 */
export interface CrossEntropyInputs {
  readonly targetTokens: Ints
  readonly weights: Floats
}

/**
 * What every policy gradient takes: the tokens that were sampled, the log probabilities they were sampled with, and
 * how much better than expected each of them was.
 *
 * @since 0.1.0
 * @category models
 */
export interface PolicyInputs {
  readonly targetTokens: Ints
  readonly logprobs: Floats
  readonly advantages: Floats
  readonly weights?: Floats
}

/**
 * @since 0.1.0
 * @category models
 */
export interface ClippedInputs extends PolicyInputs {
  /** For each token, in place of the configured one. */
  readonly clipLowThreshold?: Floats
  /** For each token, in place of the configured one. */
  readonly clipHighThreshold?: Floats
}

/**
 * @since 0.1.0
 * @category models
 */
export interface GspoInputs extends ClippedInputs {
  readonly sequenceRatioMask?: Floats
}

/**
 * Between which ratios of new to old probability the gradient flows.
 *
 * @since 0.1.0
 * @category models
 */
export interface ClipConfig {
  readonly clipLowThreshold?: number
  readonly clipHighThreshold?: number
}

const needed = (name: string, dtype: TensorData.Dtype): InputSpec => ({ name, dtype, required: true })
const optional = (name: string, dtype: TensorData.Dtype): InputSpec => ({ name, dtype, required: false })

type Table<Inputs> = { readonly [K in keyof Inputs]-?: InputSpec }

const crossEntropyInputs: Table<CrossEntropyInputs> = {
  targetTokens: needed("target_tokens", "int64"),
  weights: needed("weights", "float32"),
}

const policyInputs: Table<PolicyInputs> = {
  targetTokens: needed("target_tokens", "int64"),
  logprobs: needed("logprobs", "float32"),
  advantages: needed("advantages", "float32"),
  weights: optional("weights", "float32"),
}

const clippedInputs: Table<ClippedInputs> = {
  ...policyInputs,
  clipLowThreshold: optional("clip_low_threshold", "float32"),
  clipHighThreshold: optional("clip_high_threshold", "float32"),
}

const gspoInputs: Table<GspoInputs> = {
  ...clippedInputs,
  sequenceRatioMask: optional("sequence_ratio_mask", "float32"),
}

/**
 * A loss function that this module doesn't know, e.g. one of another server.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = <Inputs>(options: {
  readonly name: string
  readonly inputs: Table<Inputs>
  readonly config?: Readonly<Record<string, number | string>>
}): Loss<Inputs> => ({ name: options.name, inputs: options.inputs, config: options.config ?? {} })

/**
 * Weighted log likelihood of the target tokens: supervised learning.
 *
 * @since 0.1.0
 * @category constructors
 */
export const crossEntropy: Loss<CrossEntropyInputs> = make({ name: "cross_entropy", inputs: crossEntropyInputs })

/**
 * Policy gradient, corrected for the policy that sampled.
 *
 * @since 0.1.0
 * @category constructors
 */
export const importanceSampling: Loss<PolicyInputs> = make({ name: "importance_sampling", inputs: policyInputs })

/**
 * Proximal policy optimization. What isn't configured is the server's default.
 *
 * @since 0.1.0
 * @category constructors
 */
export const ppo = (config: ClipConfig = {}): Loss<ClippedInputs> =>
  make({ name: "ppo", inputs: clippedInputs, config: clip(config) })

/**
 * Policy gradient with clipped importance weights.
 *
 * @since 0.1.0
 * @category constructors
 */
export const cispo = (config: ClipConfig = {}): Loss<ClippedInputs> =>
  make({ name: "cispo", inputs: clippedInputs, config: clip(config) })

/**
 * Policy optimization with one ratio for a whole sequence.
 *
 * @since 0.1.0
 * @category constructors
 */
export const gspo = (config: ClipConfig = {}): Loss<GspoInputs> =>
  make({ name: "gspo", inputs: gspoInputs, config: clip(config) })

/**
 * Direct reward optimization.
 *
 * @since 0.1.0
 * @category constructors
 */
export const dro = (config: { readonly beta?: number } = {}): Loss<PolicyInputs> =>
  make({ name: "dro", inputs: policyInputs, config: given({ beta: config.beta }) })

/**
 * Its configuration is open; the keys are the wire's, e.g. `kl_coeff`.
 *
 * @since 0.1.0
 * @category constructors
 */
export const stableReinforce = (config: Readonly<Record<string, number | string>> = {}): Loss<PolicyInputs> =>
  make({ name: "stable_reinforce", inputs: policyInputs, config })

/**
 * A loss function that was uploaded to the server. `inputs` declares what its datums carry. The inputs of the other
 * losses have their usual names (`targetTokens`); any other name is sent as it is written.
 *
 * @since 0.1.0
 * @category constructors
 */
export const custom = <const Dtypes extends Readonly<Record<string, TensorData.Dtype>>>(options: {
  readonly lossId: string
  readonly inputs: Dtypes
}): Loss<{ readonly [K in keyof Dtypes]: TensorData.Input<Dtypes[K]> }> => ({
  name: "custom",
  config: { loss_id: options.lossId },
  inputs: Object.fromEntries(
    Object.entries(options.inputs).map(([key, dtype]) => [key, needed(wireNames[key] ?? key, dtype)]),
  ),
})

const wireNames: Readonly<Record<string, string | undefined>> = Object.fromEntries(
  Object.entries(gspoInputs).map(([key, spec]) => [key, spec.name]),
)

const clip = (config: ClipConfig) =>
  given({ clip_low_threshold: config.clipLowThreshold, clip_high_threshold: config.clipHighThreshold })

const given = (config: Readonly<Record<string, number | undefined>>): Record<string, number> => {
  const entries: Record<string, number> = {}
  for (const [key, value] of Object.entries(config)) if (value !== undefined) entries[key] = value
  return entries
}

/**
 * A datum for a loss, checked where it is written.
 *
 * @since 0.1.0
 * @category constructors
 */
export const datum = <Inputs>(_loss: Loss<Inputs>, datum: Datum<NoInfer<Inputs>>): Datum<Inputs> => datum

/**
 * A flat array of numbers that was checked. It is converted while it is written: a copy in between would cost more
 * than all the rest.
 *
 * @since 0.1.0
 * @category models
 */
export interface CheckedNumbers {
  readonly dtype: TensorData.Dtype
  readonly data: ReadonlyArray<number>
  readonly shape: readonly [number]
  readonly sparse: undefined
}

/**
 * A piece of model input; token ids in a plain array were checked and are converted while they are written.
 *
 * @since 0.1.0
 * @category models
 */
export type PreparedChunk = ModelInput.Chunk | { readonly type: "encoded_text"; readonly tokens: ReadonlyArray<number> }

/**
 * @since 0.1.0
 * @category models
 */
export interface PreparedInput {
  /** As the user wrote it. */
  readonly key: string
  /** As the wire has it. */
  readonly name: string
  readonly tensor: TensorData.TensorData | CheckedNumbers
}

/**
 * A datum that can be sent: checked, every name the wire's. Arrays are held, not copied, so don't change them before
 * the request is answered.
 *
 * @since 0.1.0
 * @category models
 */
export interface PreparedDatum {
  /** Its place in the data it was given with. */
  readonly index: number
  readonly chunks: ReadonlyArray<PreparedChunk>
  readonly inputs: ReadonlyArray<PreparedInput>
  readonly modelInputSpans: ReadonlyArray<Span>
  readonly lossInputSpans: ReadonlyArray<Span>
  /** How large it counts when a batch is cut into requests. */
  readonly bytes: number
}

/**
 * @since 0.1.0
 * @category models
 */
export interface PreparedBatch {
  readonly loss: Pick<Loss<never>, "name" | "config">
  readonly data: ReadonlyArray<PreparedDatum>
}

/**
 * Checks a batch once, and holds it to its loss. An unknown or missing input is named by its path, e.g.
 * `data[3].inputs.wieghts`.
 *
 * @since 0.1.0
 * @category conversions
 */
export const prepare = <Inputs>(
  loss: Loss<Inputs>,
  data: ReadonlyArray<Datum<NoInfer<Inputs>>>,
): Either.Either<PreparedBatch, InvalidInput> => {
  for (const [key, value] of Object.entries(loss.config)) {
    if (typeof value !== "string" && !Number.isFinite(value))
      return invalid(`loss.config.${key}`, `expected a finite number or a text, got ${String(value)}`)
  }
  if (!Array.isArray(data) || data.length === 0) return invalid("data", "expected at least one datum")
  const specs = Object.entries(loss.inputs)
  const prepared: Array<PreparedDatum> = []
  for (const [index, datum] of data.entries()) {
    const result = prepareDatum(loss, specs, datum, index)
    if (Either.isLeft(result)) return Either.left(result.left)
    prepared.push(result.right)
  }
  return Either.right({ loss: { name: loss.name, config: loss.config }, data: prepared })
}

const invalid = (path: string, problem: string) => Either.left(new InvalidInput({ path, problem }))

const prepareDatum = (
  loss: Pick<Loss<never>, "name" | "inputs">,
  specs: ReadonlyArray<readonly [string, InputSpec]>,
  datum: Datum<unknown>,
  index: number,
): Either.Either<PreparedDatum, InvalidInput> => {
  const path = `data[${index}]`
  if (!Predicate.isRecord(datum)) return invalid(path, "expected a datum, { modelInput, inputs }")
  if (!Predicate.isRecord(datum.inputs)) return invalid(`${path}.inputs`, `expected ${expected(loss)}`)
  const chunks = prepareModelInput(datum.modelInput, `${path}.modelInput`)
  if (Either.isLeft(chunks)) return Either.left(chunks.left)

  for (const key of Object.keys(datum.inputs)) {
    if (!Object.hasOwn(loss.inputs, key)) return invalid(`${path}.inputs.${key}`, `unknown: ${expected(loss)}`)
  }
  const inputs: Array<PreparedInput> = []
  let bytes = 0
  for (const chunk of chunks.right) bytes += chunkBytes(chunk)
  for (const [key, { name, dtype, required }] of specs) {
    const value = datum.inputs[key]
    if (value === undefined) {
      if (required) return invalid(`${path}.inputs.${key}`, `missing: ${expected(loss)}`)
      continue
    }
    const tensor = prepareTensor(dtype, value, `${path}.inputs.${key}`)
    if (Either.isLeft(tensor)) return Either.left(tensor.left)
    inputs.push({ key, name, tensor: tensor.right })
    bytes += tensorBytes(tensor.right)
  }

  const { modelInputSpans, lossInputSpans } = datum
  if ((modelInputSpans === undefined) !== (lossInputSpans === undefined)) {
    const absent = modelInputSpans === undefined ? "modelInputSpans" : "lossInputSpans"
    return invalid(
      `${path}.${absent}`,
      "missing: spans are given for both the model's input and the loss's, or for none",
    )
  }
  const spans = spanProblem("modelInputSpans", modelInputSpans) ?? spanProblem("lossInputSpans", lossInputSpans)
  if (spans !== undefined)
    return invalid(`${path}.${spans}`, "expected { source: prompt or sampled, sequenceId, offset, length }")
  return Either.right({
    index,
    chunks: chunks.right,
    inputs,
    modelInputSpans: modelInputSpans ?? [],
    lossInputSpans: lossInputSpans ?? [],
    bytes,
  })
}

const isFlatArray = (value: unknown): value is ReadonlyArray<number> =>
  Array.isArray(value) && typeof value[0] !== "object"

const prepareModelInput = (
  input: ModelInput.Input,
  path: string,
): Either.Either<ReadonlyArray<PreparedChunk>, InvalidInput> => {
  if (!isFlatArray(input)) return Either.map(ModelInput.from(input, path), ({ chunks }) => chunks)
  const bad = firstNonToken(input)
  return bad < 0
    ? Either.right([{ type: "encoded_text", tokens: input }])
    : invalid(`${path}[${bad}]`, `expected ${aToken}, got ${describe(input[bad])}`)
}

const prepareTensor = (
  dtype: TensorData.Dtype,
  input: unknown,
  path: string,
): Either.Either<PreparedInput["tensor"], InvalidInput> => {
  // What the value really is, is for `TensorData` to find out.
  if (!isFlatArray(input)) return TensorData.from(dtype, input as TensorData.Input, path)
  const bad = kinds[dtype].first(input)
  return bad < 0
    ? Either.right({ dtype, data: input, shape: [input.length], sparse: undefined })
    : invalid(`${path}[${bad}]`, `expected ${kinds[dtype].expected}, got ${describe(input[bad])}`)
}

// As the service counts them, to cut a batch into requests where the reference does.
const chunkBytes = (chunk: PreparedChunk): number => {
  switch (chunk.type) {
    case "encoded_text":
      return 4 * chunk.tokens.length
    case "image":
      return chunk.data.length
    case "image_asset_pointer":
      return chunk.location.length
    case "dmel":
      return chunk.dmel.length
  }
}

const tensorBytes = ({ dtype, data, sparse }: PreparedInput["tensor"]): number => {
  const indices = sparse === undefined ? 0 : sparse.crowIndices.length + sparse.colIndices.length
  return data.length * (dtype === "float32" ? 4 : 8) + 8 * indices
}

const expected = (loss: Pick<Loss<never>, "name" | "inputs">): string => {
  const inputs = Object.entries(loss.inputs)
  const list = (required: boolean) =>
    inputs.filter(([, spec]) => spec.required === required).map(([key, spec]) => `${key} (${spec.dtype})`)
  const more = list(false)
  return `${loss.name} takes ${list(true).join(", ")}${more.length === 0 ? "" : `; optional: ${more.join(", ")}`}`
}

const spanProblem = (key: string, spans: ReadonlyArray<Span> | undefined): string | undefined => {
  if (spans === undefined) return undefined
  const isCount = (value: number) => Number.isSafeInteger(value) && value >= 0
  const bad = spans.findIndex(
    ({ source, sequenceId, offset, length }) =>
      (source !== "prompt" && source !== "sampled") ||
      typeof sequenceId !== "string" ||
      !isCount(offset) ||
      !isCount(length),
  )
  return bad < 0 ? undefined : `${key}[${bad}]`
}
