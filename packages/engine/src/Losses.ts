/**
 * The loss functions: their inputs, their value for each token, and the derivative by the log probability of that
 * token. Inputs and settings have the names used on the wire. The formulas are in docs/engine.md.
 *
 * @since 0.1.0
 */
import { EngineError } from "./EngineError.ts"

/**
 * An input of a datum: dense with one or two dimensions, or two-dimensional in compressed sparse rows (CSR), where
 * missing elements are 0.
 *
 * @since 0.1.0
 * @category models
 */
export interface Tensor {
  readonly data: ArrayLike<number>
  readonly shape?: ReadonlyArray<number> | undefined
  readonly sparse?: { readonly crowIndices: ArrayLike<number>; readonly colIndices: ArrayLike<number> } | undefined
}

/**
 * One training example. `inputs` are keyed by their names on the wire, e.g. `target_tokens`.
 *
 * @since 0.1.0
 * @category models
 */
export interface Datum {
  readonly tokens: ArrayLike<number>
  readonly inputs: Readonly<Record<string, Tensor>>
}

/**
 * The name of a loss and its settings.
 *
 * @since 0.1.0
 * @category models
 */
export interface Loss {
  readonly name: string
  readonly config?: Readonly<Record<string, number | string>> | undefined
}

/**
 * Computes the loss of one token and its derivative by the token's log probability.
 *
 * @since 0.1.0
 * @category models
 */
export type TokenLoss = (logprob: number, index: number) => { readonly loss: number; readonly slope: number }

/**
 * A checked datum, with `columns` targets for each token.
 *
 * @since 0.1.0
 * @category models
 */
export interface Prepared {
  readonly tokens: Int32Array
  readonly targets: Int32Array
  readonly columns: number
  /** The loss of a token, given the log probabilities of all targets if {@link isOfSequence} is true. */
  readonly loss: (logprobs: Float32Array) => TokenLoss
  /** Whether the loss of a token depends on the other tokens, which takes a pass to compute them first. */
  readonly isOfSequence: boolean
}

const fail = (reason: EngineError["reason"], problem: string) => new EngineError({ reason, problem })

/** More elements than any reasonable request has. */
const maxElements = 2 ** 26

const dense = (
  tensor: Tensor,
  path: string,
): { readonly data: ArrayLike<number>; readonly shape: ReadonlyArray<number> } => {
  const { data, shape = [data.length], sparse } = tensor
  if (!shape.every((size) => Number.isSafeInteger(size) && size >= 0))
    throw fail("InvalidInput", `${path}: invalid shape [${shape}]`)
  const size = shape.reduce((a, b) => a * b, 1)
  if (size > maxElements) throw fail("InvalidInput", `${path}: ${size} elements exceed the limit of ${maxElements}`)
  if (sparse === undefined) {
    if (size !== data.length)
      throw fail("InvalidInput", `${path}: ${data.length} elements do not match the shape [${shape}]`)
    return { data, shape }
  }
  const [rows = 0, columns = 0] = shape
  const { colIndices, crowIndices } = sparse
  const fits =
    shape.length === 2 &&
    crowIndices.length === rows + 1 &&
    crowIndices[0] === 0 &&
    crowIndices[rows] === data.length &&
    colIndices.length === data.length
  if (!fits)
    throw fail("InvalidInput", `${path}: the indices do not match the shape [${shape}] with ${data.length} elements`)
  const full = new Float64Array(size)
  for (let row = 0; row < rows; row++) {
    const end = crowIndices[row + 1] ?? 0
    if (end < (crowIndices[row] ?? 0)) throw fail("InvalidInput", `${path}: the row indices decrease at row ${row}`)
    for (let i = crowIndices[row] ?? 0; i < end; i++) {
      const column = colIndices[i] ?? -1
      if (!(column >= 0 && column < columns))
        throw fail("InvalidInput", `${path}: expected columns from 0 to ${columns - 1}, got ${column}`)
      full[row * columns + column] = data[i] ?? 0
    }
  }
  return { data: full, shape }
}

/** Describes a value that an untyped caller passed in place of a token. */
const described = (value: unknown): string => {
  if (typeof value !== "object" || value === null) return String(value)
  return "type" in value && typeof value.type === "string" ? `a chunk of type ${value.type}` : "an object"
}

/**
 * Checks that all token ids are within the vocabulary. Throws an `EngineError`; the reason is `Unsupported` for images
 * and other chunks that are not text.
 *
 * @since 0.1.0
 * @category validation
 */
export const checkTokens = (ids: ArrayLike<number>, vocabSize: number, path: string): Int32Array => {
  const expected = `expected token ids from 0 to ${vocabSize - 1}`
  if (typeof ids !== "object" || ids === null || typeof ids.length !== "number")
    throw fail("Unsupported", `${path}: ${described(ids)} is not supported; ${expected}`)
  const tokens = new Int32Array(ids.length)
  for (let i = 0; i < ids.length; i++) {
    const id: unknown = ids[i]
    if (typeof id === "object" && id !== null)
      throw fail("Unsupported", `${path}[${i}]: ${described(id)} is not supported; ${expected}`)
    if (typeof id !== "number" || !Number.isInteger(id) || id < 0 || id >= vocabSize)
      throw fail("InvalidInput", `${path}[${i}]: ${described(id)} is not a token; ${expected}`)
    tokens[i] = id
  }
  return tokens
}

/**
 * Checks tokens like `checkTokens`, and that their number is at least 1 and at most the model's context.
 *
 * @since 0.1.0
 * @category validation
 */
export const checkSequence = (
  ids: ArrayLike<number>,
  { maxPositions, vocabSize }: { readonly vocabSize: number; readonly maxPositions: number },
  path: string,
): Int32Array => {
  const tokens = checkTokens(ids, vocabSize, path)
  const { length } = tokens
  if (length === 0) throw fail("InvalidInput", `${path}: expected at least one token`)
  if (length > maxPositions)
    throw fail("InvalidInput", `${path}: ${length} tokens exceed the model's context of ${maxPositions}`)
  return tokens
}

type Get = (name: string) => Float32Array | undefined
type Number_ = (name: string, otherwise: number) => number

interface Definition {
  readonly required: ReadonlyArray<string>
  readonly optional: ReadonlyArray<string>
  readonly config: ReadonlyArray<string>
  readonly make: (get: Get, number: Number_) => TokenLoss
  /** For losses of a token that depend on the other tokens: replaces `make`, given the log probabilities of all. */
  readonly ofSequence?: (get: Get, number: Number_, logprobs: Float32Array) => TokenLoss
}

const at = (values: Float32Array | undefined, index: number, otherwise: number) => values?.[index] ?? otherwise

const clips = (get: Get, number: Number_) => {
  const low = number("clip_low_threshold", 0.8)
  const high = number("clip_high_threshold", 1.2)
  const lows = get("clip_low_threshold")
  const highs = get("clip_high_threshold")
  return (index: number, ratio: number) => Math.min(Math.max(ratio, at(lows, index, low)), at(highs, index, high))
}

const nothing = { loss: 0, slope: 0 }

/** Returns the gain of each target: its advantage times its weight. */
const gainsOf = (get: Get) => {
  const [weights, advantages] = [get("weights"), get("advantages")]
  return (index: number) => at(weights, index, 1) * at(advantages, index, 0)
}

/** Defines a loss on the ratio to the probability that a token was sampled with, and on the clipped ratio. */
const ofRatio = (
  value: (ratio: number, clipped: number, gain: number, logprob: number) => ReturnType<TokenLoss>,
): Definition => ({
  required: ["logprobs", "advantages"],
  optional: ["weights", "clip_low_threshold", "clip_high_threshold"],
  config: ["clip_low_threshold", "clip_high_threshold"],
  make: (get, number) => {
    const [old, gainOf, clip] = [get("logprobs"), gainsOf(get), clips(get, number)]
    return (logprob, index) => {
      const gain = gainOf(index)
      if (gain === 0) return nothing
      const ratio = Math.exp(logprob - at(old, index, 0))
      return value(ratio, clip(index, ratio), gain, logprob)
    }
  },
})

const clippedGain: Parameters<typeof ofRatio>[0] = (ratio, clipped, gain) =>
  ratio * gain <= clipped * gain ? { loss: -ratio * gain, slope: -ratio * gain } : { loss: -clipped * gain, slope: 0 }

/** The geometric mean of the ratios of the tokens in the mask, or without one, of those with a gain. */
const sequenceRatio = (get: Get, logprobs: Float32Array): number => {
  const [old, mask, gainOf] = [get("logprobs"), get("sequence_ratio_mask"), gainsOf(get)]
  let sum = 0
  let count = 0
  for (const [index, logprob] of logprobs.entries()) {
    if ((mask === undefined ? gainOf(index) : mask[index]) === 0) continue
    sum += logprob - at(old, index, 0)
    count++
  }
  return Math.exp(count === 0 ? 0 : sum / count)
}

const ppo = ofRatio(clippedGain)

const definitions: Readonly<Record<string, Definition>> = {
  cross_entropy: {
    required: ["weights"],
    optional: [],
    config: [],
    make: (get) => {
      const weights = get("weights")
      return (logprob, index) => {
        const weight = at(weights, index, 1)
        return { loss: weight === 0 ? 0 : -weight * logprob, slope: -weight }
      }
    },
  },
  importance_sampling: {
    required: ["logprobs", "advantages"],
    optional: ["weights"],
    config: [],
    make: (get) => {
      const [weights, old, advantages] = [get("weights"), get("logprobs"), get("advantages")]
      return (logprob, index) => {
        const gain = at(weights, index, 1) * at(advantages, index, 0)
        if (gain === 0) return nothing
        const value = -Math.exp(logprob - at(old, index, 0)) * gain
        return { loss: value, slope: value }
      }
    },
  },
  ppo,
  gspo: {
    ...ppo,
    optional: [...ppo.optional, "sequence_ratio_mask"],
    ofSequence: (get, number, logprobs) => {
      const [ratio, gainOf, clip] = [sequenceRatio(get, logprobs), gainsOf(get), clips(get, number)]
      return (logprob, index) => clippedGain(ratio, clip(index, ratio), gainOf(index), logprob)
    },
  },
  cispo: ofRatio((_, clipped, gain, logprob) => ({ loss: -clipped * gain * logprob, slope: -clipped * gain })),
  dro: {
    required: ["logprobs", "advantages"],
    optional: ["weights"],
    config: ["beta"],
    make: (get, number) => {
      const [weights, old, advantages] = [get("weights"), get("logprobs"), get("advantages")]
      const beta = number("beta", 0.05)
      return (logprob, index) => {
        const weight = at(weights, index, 1)
        if (weight === 0) return nothing
        const apart = logprob - at(old, index, 0)
        const advantage = at(advantages, index, 0)
        return {
          loss: -weight * (advantage * logprob - 0.5 * beta * apart * apart),
          slope: -weight * (advantage - beta * apart),
        }
      }
    },
  },
}

/** Losses of the wire protocol whose definitions are not published. */
const unpublished = new Set(["stable_reinforce"])

/**
 * The names of all supported losses.
 *
 * @since 0.1.0
 * @category constants
 */
export const names: ReadonlyArray<string> = Object.keys(definitions)

/**
 * Checks all data against the rules of the loss before anything is computed. Throws an `EngineError`.
 *
 * @since 0.1.0
 * @category validation
 */
export const prepare = (
  loss: Loss,
  data: ReadonlyArray<Datum>,
  limits: { readonly vocabSize: number; readonly maxPositions: number },
): ReadonlyArray<Prepared> => {
  const definition = Object.hasOwn(definitions, loss.name) ? definitions[loss.name] : undefined
  if (definition === undefined) {
    const known = `Supported losses: ${names.join(", ")}.`
    if (unpublished.has(loss.name))
      throw fail("Unsupported", `loss ${loss.name} is not supported because its definition is not published. ${known}`)
    if (loss.name === "custom")
      throw fail(
        "Unsupported",
        `loss custom: graphs are not supported; send the linear form as cross_entropy. ${known}`,
      )
    throw fail("InvalidInput", `unknown loss ${JSON.stringify(loss.name)}. ${known}`)
  }
  const config = loss.config ?? {}
  for (const key of Object.keys(config)) {
    if (!definition.config.includes(key))
      throw fail(
        "InvalidInput",
        `${loss.name} has no setting ${key}; available settings: ${definition.config.join(", ") || "none"}`,
      )
  }
  const number = (name: string, otherwise: number): number => {
    const value = config[name] ?? otherwise
    if (typeof value !== "number" || !Number.isFinite(value))
      throw fail("InvalidInput", `${loss.name}: expected ${name} to be a finite number`)
    return value
  }
  if (data.length === 0) throw fail("InvalidInput", "data: expected at least one datum")
  return data.map((datum, index) => prepareDatum(definition, loss.name, number, datum, `data[${index}]`, limits))
}

const prepareDatum = (
  definition: Definition,
  name: string,
  number: Number_,
  datum: Datum,
  path: string,
  limits: { readonly vocabSize: number; readonly maxPositions: number },
): Prepared => {
  const tokens = checkSequence(datum.tokens, limits, `${path}.tokens`)
  const rows = tokens.length
  const known = ["target_tokens", ...definition.required, ...definition.optional]
  for (const key of Object.keys(datum.inputs)) {
    if (!known.includes(key))
      throw fail("InvalidInput", `${path}.${key}: unknown input; ${name} accepts ${known.join(", ")}`)
  }
  for (const key of ["target_tokens", ...definition.required]) {
    if (!Object.hasOwn(datum.inputs, key)) throw fail("InvalidInput", `${path}.${key}: missing; required by ${name}`)
  }
  const given = dense(datum.inputs["target_tokens"] ?? { data: [] }, `${path}.target_tokens`)
  const columns = given.shape.length === 2 ? (given.shape[1] ?? 0) : 1
  if (given.shape.length > 2 || given.shape[0] !== rows || columns === 0)
    throw fail("InvalidInput", `${path}.target_tokens: expected shape [${rows}] or [${rows}, K], got [${given.shape}]`)
  const values = new Map<string, Float32Array>()
  for (const [key, tensor] of Object.entries(datum.inputs)) {
    if (key === "target_tokens") continue
    const { data, shape } = dense(tensor, `${path}.${key}`)
    const floats = new Float32Array(rows * columns)
    if (data.length === floats.length) floats.set(data)
    else if (data.length === rows && shape.length === 1)
      floats.forEach((_, i) => (floats[i] = data[(i / columns) | 0] ?? 0))
    else throw fail("InvalidInput", `${path}.${key}: shape [${shape}] does not match target_tokens [${given.shape}]`)
    const bad = floats.findIndex((value) => !Number.isFinite(value))
    if (bad >= 0) throw fail("InvalidInput", `${path}.${key}[${bad}]: expected a finite number`)
    values.set(key, floats)
  }
  const get: Get = (key) => values.get(key)
  const mask = get("sequence_ratio_mask")
  if (mask?.every((value) => value === 0) === true)
    throw fail("InvalidInput", `${path}.sequence_ratio_mask: expected at least one value other than 0`)
  const { make, ofSequence } = definition
  // Reads the settings even if the loss itself is made later, so that bad ones are reported before anything runs.
  const one = make(get, number)
  return {
    tokens,
    targets: checkTokens(given.data, limits.vocabSize, `${path}.target_tokens`),
    columns,
    loss: ofSequence === undefined ? () => one : (logprobs) => ofSequence(get, number, logprobs),
    isOfSequence: ofSequence !== undefined,
  }
}
