/**
 * Loss functions as values. A loss fixes, while compiling, which inputs its datums carry and what configuration it
 * takes; {@link prepare} holds data from untyped code to the same rules before anything is sent.
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
  /** Whether every input with one dimension has one element for each target token. */
  readonly perToken: boolean
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
  readonly weights?: Floats | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface ClippedInputs extends PolicyInputs {
  /** For each token, in place of the configured one. */
  readonly clipLowThreshold?: Floats | undefined
  /** For each token, in place of the configured one. */
  readonly clipHighThreshold?: Floats | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface GspoInputs extends ClippedInputs {
  readonly sequenceRatioMask?: Floats | undefined
}

/**
 * Between which ratios of new to old probability the gradient flows.
 *
 * @since 0.1.0
 * @category models
 */
export interface ClipConfig {
  readonly clipLowThreshold?: number | undefined
  readonly clipHighThreshold?: number | undefined
}

/**
 * The element type of an input; with a question mark a datum can do without it.
 *
 * @since 0.1.0
 * @category models
 */
export type Kind = TensorData.Dtype | `${TensorData.Dtype}?`

/**
 * What datums carry when a loss declares these kinds of input.
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

/** The inputs that losses share have names of their own on the wire. */
const wireNames: ReadonlyMap<string, string> = new Map([
  ["targetTokens", "target_tokens"],
  ["clipLowThreshold", "clip_low_threshold"],
  ["clipHighThreshold", "clip_high_threshold"],
  ["sequenceRatioMask", "sequence_ratio_mask"],
])

/**
 * A loss function that this module doesn't know, e.g. one of another server. `inputs` declares what its datums carry,
 * e.g. `{ targetTokens: "int64", bonus: "float32?" }`. The inputs of the losses below have their usual names
 * (`targetTokens`); any other name is sent as it is written.
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
      // From a program without types it may be anything: `prepare` refuses that.
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
 * Weighted log likelihood of the target tokens: supervised learning.
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
 * Policy gradient, corrected for the policy that sampled.
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
 * Proximal policy optimization. What isn't configured is the server's default.
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
 * Policy optimization with one ratio for a whole sequence.
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
 * Its configuration is open; the keys are the wire's, e.g. `kl_coeff`.
 *
 * @since 0.1.0
 * @category constructors
 */
export const stableReinforce = (config: Readonly<Record<string, number | string>> = {}): Loss<PolicyInputs> =>
  make({ name: "stable_reinforce", inputs: policy, config, perToken: true })

/**
 * A loss function that was uploaded to the server. `inputs` declares what its datums carry, as in {@link make}.
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
 * Turns keys that a datum of the loss hasn't got into mistakes that don't compile, also where the datum is not written
 * down on the spot, e.g. in a `map`.
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
 * A datum for a loss, checked where it is written.
 *
 * @since 0.1.0
 * @category constructors
 */
export const datum = <Inputs, D extends Datum<NoInfer<Inputs>>>(
  _loss: Loss<Inputs>,
  datum: D & Exact<NoInfer<Inputs>, D>,
): Datum<Inputs> => datum

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
export type PreparedChunk = ModelInput.Pieces["chunks"][number]

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
 * A datum that can be sent: checked, every name the wire's. Arrays are held, not copied: leave them alone until the
 * batch was sent.
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
export const prepare = <Inputs, D extends Datum<NoInfer<Inputs>>>(
  loss: Loss<Inputs>,
  data: ReadonlyArray<D & Exact<NoInfer<Inputs>, D>>,
): Either.Either<PreparedBatch, InvalidInput> => prepareUnknown(loss, data)

/**
 * {@link prepare} for data that the compiler knows little of: from a file, or in code that is generic in the loss. The
 * checks are the same.
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
      return invalid(`loss.config.${key}`, `expected a finite number or a text, got ${describe(value)}`)
  }
  const names = new Set<string>()
  for (const [key, spec] of Object.entries(loss.inputs)) {
    if (!Predicate.isRecord(spec) || !Object.hasOwn(kinds, spec.dtype))
      return invalid(`loss.inputs.${key}`, "expected float32 or int64")
    if (names.has(spec.name)) return invalid(`loss.inputs.${key}`, `${spec.name} on the wire, as another input`)
    names.add(spec.name)
  }
  return Either.void
}

const datumKeys = new Set(["modelInput", "inputs", "modelInputSpans", "lossInputSpans"])

/** Errors tell where in the datum: which datum it is, is told by who knows that there is one. */
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
    return invalid(`.${absent}`, "missing: spans are given for both the model's input and the loss's, or for none")
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
  // What the value really is, is for `ModelInput` to find out.
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
  // What the value really is, is for `TensorData` to find out.
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
    return invalid(`.inputs.${targets.key}`, `expected ${tokens}, as many as the model's input, got ${rows}`)
  const odd = inputs.find(({ tensor: { shape, data } }) => (shape?.length ?? 1) === 1 && data.length !== rows)
  return perToken && odd !== undefined
    ? invalid(`.inputs.${odd.key}`, `expected ${rows}, as many as ${targets.key}, got ${odd.tensor.data.length}`)
    : Either.void
}

// As the service counts them, to cut a batch into requests where the reference does.
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
