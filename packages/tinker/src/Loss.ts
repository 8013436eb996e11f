/**
 * Defines loss functions as values. A loss determines at compile time which inputs its datums have and which
 * configuration it takes; {@link prepare} enforces the same rules at run time before anything is sent.
 *
 * @since 0.1.0
 */
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import type * as Types from "effect/Types"
import type { Datum, Span } from "./Datum.ts"
import { describe, invalid, type Result } from "./internal/codec/Invalid.ts"
import { aToken, firstNonToken, kinds } from "./internal/util/TokenChecks.ts"
import * as ModelInput from "./ModelInput.ts"
import * as TensorData from "./TensorData.ts"
import { InvalidInput } from "./TinkerError.ts"

/**
 * An input of a loss: its wire name, its element type, and whether it is required.
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
 * A configured loss function. `Inputs` is the type of inputs that each datum must have.
 *
 * @since 0.1.0
 * @category models
 */
export interface Loss<in Inputs> {
  /** The wire name, e.g. `cross_entropy`. */
  readonly name: string
  /** The configuration in wire format. */
  readonly config: Readonly<Record<string, number | string>>
  readonly inputs: Readonly<Record<string, InputSpec>>
  /** Whether every one-dimensional input has one element per target token. */
  readonly perToken: boolean
  /** Exists only in the type system. */
  readonly "~inputs"?: (inputs: Inputs) => void
}

/**
 * Extracts the input type of a loss.
 *
 * @since 0.1.0
 * @category models
 */
export type Inputs<L> = L extends Loss<infer I> ? I : never

type Ints = TensorData.Input<"int64">
type Floats = TensorData.Input<"float32">

/**
 * The inputs of {@link crossEntropy}.
 *
 * @since 0.1.0
 * @category models
 */
export interface CrossEntropyInputs {
  readonly targetTokens: Ints
  readonly weights: Floats
}

/**
 * The inputs of policy gradient losses: the sampled tokens, the log probabilities they were sampled with, and the
 * advantage of each token.
 *
 * @since 0.1.0
 * @category models
 */
export interface PolicyInputs {
  readonly targetTokens: Ints
  readonly logprobs: Floats
  readonly advantages: Floats
  readonly weights?: Floats | undefined
}

/**
 * The inputs of the clipped policy gradient losses.
 *
 * @since 0.1.0
 * @category models
 */
export interface ClippedInputs extends PolicyInputs {
  /** Overrides the configured threshold for each token. */
  readonly clipLowThreshold?: Floats | undefined
  /** Overrides the configured threshold for each token. */
  readonly clipHighThreshold?: Floats | undefined
}

/**
 * The inputs of {@link gspo}.
 *
 * @since 0.1.0
 * @category models
 */
export interface GspoInputs extends ClippedInputs {
  readonly sequenceRatioMask?: Floats | undefined
}

/**
 * The range of ratios between new and old probability in which gradients flow.
 *
 * @since 0.1.0
 * @category models
 */
export interface ClipConfig {
  readonly clipLowThreshold?: number | undefined
  readonly clipHighThreshold?: number | undefined
}

/**
 * The element type of an input; a question mark makes the input optional.
 *
 * @since 0.1.0
 * @category models
 */
export type Kind = TensorData.Dtype | `${TensorData.Dtype}?`

/**
 * Derives the input type of a datum from the declared kinds.
 *
 * @since 0.1.0
 * @category models
 */
export type Declared<Kinds> = Types.Simplify<
  {
    readonly [K in keyof Kinds as Kinds[K] extends TensorData.Dtype ? K : never]: TensorData.Input<
      Kinds[K] & TensorData.Dtype
    >
  } & {
    readonly [K in keyof Kinds as Kinds[K] extends TensorData.Dtype ? never : K]?:
      | (Kinds[K] extends `${infer D extends TensorData.Dtype}?` ? TensorData.Input<D> : never)
      | undefined
  }
>

/** The wire names of the inputs that losses share. */
const wireNames: ReadonlyMap<string, string> = new Map([
  ["targetTokens", "target_tokens"],
  ["clipLowThreshold", "clip_low_threshold"],
  ["clipHighThreshold", "clip_high_threshold"],
  ["sequenceRatioMask", "sequence_ratio_mask"],
])

/**
 * Defines a loss function that this module does not provide, e.g. of another server. `inputs` declares the inputs of
 * its datums, e.g. `{ targetTokens: "int64", bonus: "float32?" }`. Shared inputs keep their names (`targetTokens`); any
 * other name is sent unchanged.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = <const Kinds extends Readonly<Record<string, Kind>>>(options: {
  readonly name: string
  readonly inputs: Kinds
  readonly config?: Readonly<Record<string, number | string>> | undefined
  readonly perToken?: boolean | undefined
}): Loss<Declared<Kinds>> => ({
  name: options.name,
  config: options.config ?? {},
  inputs: Object.fromEntries(
    Object.entries(options.inputs).map(([key, kind]) => {
      // Untyped programs may pass anything; `prepare` rejects invalid kinds.
      const dtype = String(kind).replace(/\?$/, "") as TensorData.Dtype
      return [key, { name: wireNames.get(key) ?? key, dtype, required: dtype === kind }]
    }),
  ),
  perToken: options.perToken ?? false,
})

const supervised = { targetTokens: "int64", weights: "float32" } as const

const policy = { targetTokens: "int64", logprobs: "float32", advantages: "float32", weights: "float32?" } as const

const clipped = { ...policy, clipLowThreshold: "float32?", clipHighThreshold: "float32?" } as const

/**
 * Supervised learning: weighted log likelihood of the target tokens.
 *
 * @example
 * ```ts
 * import { Console, Effect } from "effect"
 * import { Loss, ServiceClient } from "effect-tinker"
 * import { NodeTinker } from "@effect-tinker/node"
 *
 * // Predicts each next token; the weight 0 excludes the first one from the loss.
 * const data = [{ modelInput: [10, 20, 30], inputs: { targetTokens: [20, 30, 40], weights: [0, 1, 1] } }]
 *
 * const program = Effect.gen(function* () {
 *   const service = yield* ServiceClient.ServiceClient
 *   const training = yield* service.createLoraTrainingClient({ baseModel: "effect-tinker/valley-1.5m", rank: 8 })
 *   const { metrics } = yield* training.forward(data, Loss.crossEntropy)
 *   yield* Console.log(metrics["loss:sum"]?.toFixed(1)) // → 28.9
 * })
 *
 * await Effect.runPromise(program.pipe(Effect.scoped, Effect.provide(NodeTinker.layerConfig())))
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const crossEntropy: Loss<CrossEntropyInputs> = make({
  name: "cross_entropy",
  inputs: supervised,
  perToken: true,
})

/**
 * Policy gradient with importance sampling correction for the sampling policy.
 *
 * @since 0.1.0
 * @category constructors
 */
export const importanceSampling: Loss<PolicyInputs> = make({
  name: "importance_sampling",
  inputs: policy,
  perToken: true,
})

/**
 * Proximal policy optimization. Omitted settings use the server's defaults.
 *
 * @since 0.1.0
 * @category constructors
 */
export const ppo = (config: ClipConfig = {}): Loss<ClippedInputs> =>
  make({ name: "ppo", inputs: clipped, config: clip(config), perToken: true })

/**
 * Policy gradient with clipped importance weights.
 *
 * @since 0.1.0
 * @category constructors
 */
export const cispo = (config: ClipConfig = {}): Loss<ClippedInputs> =>
  make({ name: "cispo", inputs: clipped, config: clip(config), perToken: true })

/**
 * Policy optimization with one ratio per sequence.
 *
 * @since 0.1.0
 * @category constructors
 */
export const gspo = (config: ClipConfig = {}): Loss<GspoInputs> =>
  make({
    name: "gspo",
    inputs: { ...clipped, sequenceRatioMask: "float32?" },
    config: clip(config),
    perToken: true,
  })

/**
 * Direct reward optimization.
 *
 * @since 0.1.0
 * @category constructors
 */
export const dro = (config: { readonly beta?: number | undefined } = {}): Loss<PolicyInputs> =>
  make({ name: "dro", inputs: policy, config: given({ beta: config.beta }), perToken: true })

/**
 * The `stable_reinforce` loss. Its configuration is open and uses wire names, e.g. `kl_coeff`.
 *
 * @since 0.1.0
 * @category constructors
 */
export const stableReinforce = (config: Readonly<Record<string, number | string>> = {}): Loss<PolicyInputs> =>
  make({ name: "stable_reinforce", inputs: policy, config, perToken: true })

/**
 * Uses a loss function that was uploaded to the server. `inputs` declares the inputs of its datums, as in {@link make}.
 *
 * @since 0.1.0
 * @category constructors
 */
export const custom = <const Kinds extends Readonly<Record<string, Kind>>>(options: {
  readonly lossId: string
  readonly inputs: Kinds
}): Loss<Declared<Kinds>> => make({ name: "custom", inputs: options.inputs, config: { loss_id: options.lossId } })

const clip = (config: ClipConfig) =>
  given({ clip_low_threshold: config.clipLowThreshold, clip_high_threshold: config.clipHighThreshold })

const given = (config: Readonly<Record<string, number | undefined>>): Record<string, number> => {
  const entries: Record<string, number> = {}
  for (const [key, value] of Object.entries(config)) if (value !== undefined) entries[key] = value
  return entries
}

/**
 * Turns unknown keys into compile-time errors, even where a datum is not an object literal, e.g. in a `map`.
 *
 * @since 0.1.0
 * @category models
 */
export type Exact<Inputs, D> = D extends { readonly inputs: infer Given }
  ? { readonly [K in Exclude<keyof D, keyof Datum>]: never } & {
      readonly inputs: { readonly [K in Exclude<keyof Given, keyof Inputs>]: never }
    }
  : unknown

/**
 * Checks the type of a datum for a loss where it is written.
 *
 * @since 0.1.0
 * @category constructors
 */
export const datum = <Inputs, D extends Datum<NoInfer<Inputs>>>(
  _loss: Loss<Inputs>,
  datum: D & Exact<NoInfer<Inputs>, D>,
): Datum<Inputs> => datum

/**
 * A validated flat array of numbers. It is converted during serialization, because an intermediate copy would dominate
 * the cost.
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
 * A chunk of model input. Token ids in a plain array are validated here and converted during serialization.
 *
 * @since 0.1.0
 * @category models
 */
export type PreparedChunk = ModelInput.Pieces["chunks"][number]

/**
 * A validated input of a datum.
 *
 * @since 0.1.0
 * @category models
 */
export interface PreparedInput {
  /** The name used in code. */
  readonly key: string
  /** The name on the wire. */
  readonly name: string
  readonly tensor: TensorData.TensorData | CheckedNumbers
}

/**
 * A validated datum with wire names. Arrays are referenced, not copied: do not modify them until the batch has been
 * sent.
 *
 * @since 0.1.0
 * @category models
 */
export interface PreparedDatum {
  /** The position of the datum in the given data. */
  readonly index: number
  readonly chunks: ReadonlyArray<PreparedChunk>
  readonly inputs: ReadonlyArray<PreparedInput>
  readonly modelInputSpans: ReadonlyArray<Span>
  readonly lossInputSpans: ReadonlyArray<Span>
  /** The size that counts when a batch is split into requests. */
  readonly bytes: number
}

/**
 * A validated batch and its loss.
 *
 * @since 0.1.0
 * @category models
 */
export interface PreparedBatch {
  readonly loss: Pick<Loss<never>, "name" | "config">
  readonly data: ReadonlyArray<PreparedDatum>
}

/**
 * Validates a batch against its loss. Errors name the path of an unknown or missing input, e.g.
 * `data[3].inputs.wieghts`.
 *
 * @since 0.1.0
 * @category conversions
 */
export const prepare = <Inputs, D extends Datum<NoInfer<Inputs>>>(
  loss: Loss<Inputs>,
  data: ReadonlyArray<D & Exact<NoInfer<Inputs>, D>>,
): Either.Either<PreparedBatch, InvalidInput> => prepareUnknown(loss, data)

/**
 * Validates like {@link prepare}, for data of unknown type: from a file, or in code that is generic in the loss.
 *
 * @since 0.1.0
 * @category conversions
 */
export const prepareUnknown = (loss: Loss<never>, data: unknown): Either.Either<PreparedBatch, InvalidInput> => {
  const checked = checkLoss(loss)
  if (Either.isLeft(checked)) return Either.left(checked.left)
  if (!Array.isArray(data) || data.length === 0) return invalid("data", "expected at least one datum")
  const specs = Object.entries(loss.inputs).map(([key, spec]) => ({ ...spec, key, path: `.inputs.${key}` }))
  const prepared: Array<PreparedDatum> = []
  for (let index = 0; index < data.length; index++) {
    const result = prepareDatum(loss, specs, data[index], index)
    if (Either.isLeft(result)) {
      const { path, problem, cause } = result.left
      return Either.left(new InvalidInput({ path: `data[${index}]${path}`, problem, cause }))
    }
    prepared.push(result.right)
  }
  return Either.right({ loss: { name: loss.name, config: loss.config }, data: prepared })
}

const checkLoss = (loss: Loss<never>): Result<void> => {
  if (!Predicate.isRecord(loss) || typeof loss.name !== "string" || !Predicate.isRecord(loss.inputs))
    return invalid("loss", "expected a loss, e.g. Loss.crossEntropy")
  if (!Predicate.isRecord(loss.config))
    return invalid("loss.config", `expected an object, got ${describe(loss.config)}`)
  for (const [key, value] of Object.entries(loss.config)) {
    if (typeof value !== "string" && !Number.isFinite(value))
      return invalid(`loss.config.${key}`, `expected a finite number or a string, got ${describe(value)}`)
  }
  const names = new Set<string>()
  for (const [key, spec] of Object.entries(loss.inputs)) {
    if (!Predicate.isRecord(spec) || !Object.hasOwn(kinds, spec.dtype))
      return invalid(`loss.inputs.${key}`, "expected float32 or int64")
    if (names.has(spec.name)) return invalid(`loss.inputs.${key}`, `duplicate wire name ${spec.name}`)
    names.add(spec.name)
  }
  return Either.void
}

const datumKeys = new Set(["modelInput", "inputs", "modelInputSpans", "lossInputSpans"])

/** Validates a datum. Error paths are relative to the datum; the caller adds its position. */
const prepareDatum = (
  loss: Loss<never>,
  specs: ReadonlyArray<InputSpec & { readonly key: string; readonly path: string }>,
  datum: unknown,
  index: number,
): Result<PreparedDatum> => {
  if (!isDatum(datum)) return invalid("", `expected a datum, { modelInput, inputs }, got ${describe(datum)}`)
  for (const key of Object.keys(datum)) {
    if (!datumKeys.has(key)) return invalid(`.${key}`, `unknown: a datum has ${[...datumKeys].join(", ")}`)
  }
  if (!Predicate.isRecord(datum.inputs)) return invalid(".inputs", `expected an object: ${takes(loss)}`)
  for (const key of Object.keys(datum.inputs)) {
    if (!Object.hasOwn(loss.inputs, key)) return invalid(`.inputs.${key}`, `unknown: ${takes(loss)}`)
  }
  const chunks = prepareModelInput(datum.modelInput, ".modelInput")
  if (Either.isLeft(chunks)) return Either.left(chunks.left)

  const inputs: Array<PreparedInput> = []
  let bytes = ModelInput.trainingBytes({ chunks: chunks.right })
  for (const { dtype, key, name, path, required } of specs) {
    const value = Object.hasOwn(datum.inputs, key) ? datum.inputs[key] : undefined
    if (value === undefined) {
      if (required) return invalid(path, `missing: ${takes(loss)}`)
      continue
    }
    const tensor = prepareTensor(dtype, value, path)
    if (Either.isLeft(tensor)) return Either.left(tensor.left)
    inputs.push({ key, name, tensor: tensor.right })
    bytes += tensorBytes(tensor.right)
  }
  const lengths = checkLengths(loss, chunks.right, inputs)
  if (Either.isLeft(lengths)) return Either.left(lengths.left)

  const { modelInputSpans, lossInputSpans } = datum
  if ((modelInputSpans === undefined) !== (lossInputSpans === undefined)) {
    const absent = modelInputSpans === undefined ? "modelInputSpans" : "lossInputSpans"
    return invalid(
      `.${absent}`,
      "missing: spans are required for both the model input and the loss inputs, or for neither",
    )
  }
  const ofModel = checkSpans(modelInputSpans, ".modelInputSpans")
  if (Either.isLeft(ofModel)) return Either.left(ofModel.left)
  const ofLoss = checkSpans(lossInputSpans, ".lossInputSpans")
  if (Either.isLeft(ofLoss)) return Either.left(ofLoss.left)
  return Either.right({
    index,
    chunks: chunks.right,
    inputs,
    modelInputSpans: ofModel.right,
    lossInputSpans: ofLoss.right,
    bytes,
  })
}

const isDatum = (value: unknown): value is { readonly [K in keyof Datum]: unknown } => Predicate.isRecord(value)

const isFlatArray = (value: unknown): value is ReadonlyArray<number> =>
  Array.isArray(value) && typeof value[0] !== "object"

const prepareModelInput = (input: unknown, path: string): Result<ReadonlyArray<PreparedChunk>> => {
  if (input instanceof ModelInput.ModelInput) return Either.map(ModelInput.from(input, path), ({ chunks }) => chunks)
  // `ModelInput.text` validates the actual type.
  if (!isFlatArray(input)) return Either.map(ModelInput.text(input as ModelInput.TokenIds, path), (text) => [text])
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
  // `TensorData.from` validates the actual type.
  if (!isFlatArray(input)) return TensorData.from(dtype, input as TensorData.Input, path)
  const bad = kinds[dtype].first(input)
  return bad < 0
    ? Either.right({ dtype, data: input, shape: [input.length], sparse: undefined })
    : invalid(`${path}[${bad}]`, `expected ${kinds[dtype].expected}, got ${describe(input[bad])}`)
}

const checkLengths = (
  { perToken }: Loss<never>,
  chunks: ReadonlyArray<PreparedChunk>,
  inputs: ReadonlyArray<PreparedInput>,
): Result<void> => {
  const targets = inputs.find(({ name }) => name === "target_tokens")
  if (targets === undefined) return Either.void
  const { shape, data } = targets.tensor
  const rows = shape === undefined ? data.length : shape[0]
  const tokens = Option.getOrUndefined(ModelInput.length({ chunks })) ?? rows
  if (rows !== tokens)
    return invalid(`.inputs.${targets.key}`, `expected one value per token of the model input (${tokens}), got ${rows}`)
  const odd = inputs.find(({ tensor: { shape, data } }) => (shape?.length ?? 1) === 1 && data.length !== rows)
  return perToken && odd !== undefined
    ? invalid(
        `.inputs.${odd.key}`,
        `expected one value per element of ${targets.key} (${rows}), got ${odd.tensor.data.length}`,
      )
    : Either.void
}

// Counts bytes like the service does, so that batches are split into requests as in the reference.
const tensorBytes = ({ dtype, data, sparse }: PreparedInput["tensor"]): number => {
  const indices = sparse === undefined ? 0 : sparse.crowIndices.length + sparse.colIndices.length
  return data.length * (dtype === "float32" ? 4 : 8) + 8 * indices
}

const takes = (loss: Loss<never>): string => {
  const inputs = Object.entries(loss.inputs)
  const list = (required: boolean) =>
    inputs.filter(([, spec]) => spec.required === required).map(([key, spec]) => `${key} (${spec.dtype})`)
  const more = list(false)
  return `${loss.name} takes ${list(true).join(", ")}${more.length === 0 ? "" : `; optional: ${more.join(", ")}`}`
}

const isCount = (value: unknown) => Number.isSafeInteger(value) && Number(value) >= 0

const isSpan = (value: unknown): value is Span =>
  Predicate.isRecord(value) &&
  (value["source"] === "prompt" || value["source"] === "sampled") &&
  typeof value["sequenceId"] === "string" &&
  isCount(value["offset"]) &&
  isCount(value["length"])

const noSpans = Either.right<ReadonlyArray<Span>>([])

const checkSpans = (spans: unknown, path: string): Result<ReadonlyArray<Span>> => {
  if (spans === undefined) return noSpans
  if (!Array.isArray(spans)) return invalid(path, `expected an array of spans, got ${describe(spans)}`)
  const bad = spans.findIndex((span) => !isSpan(span))
  return bad < 0
    ? Either.right(spans)
    : invalid(`${path}[${bad}]`, "expected { source: prompt or sampled, sequenceId, offset, length }")
}
