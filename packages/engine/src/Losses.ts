/**
 * The loss functions: what a datum must carry for each, its value for each token, and its slope along the log
 * probability of that token. Names of inputs and configuration are the wire's. The formulas are in docs/engine.md.
 *
 * @since 0.1.0
 */
import { EngineError } from "./EngineError.ts"

/**
 * Numbers of a datum: dense, of one dimension or of two, or two dimensions in compressed sparse rows, where what is
 * left out is 0.
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
 * One training example. `inputs` are by their names on the wire, e.g. `target_tokens`.
 *
 * @since 0.1.0
 * @category models
 */
export interface Datum {
  readonly tokens: ArrayLike<number>
  readonly inputs: Readonly<Record<string, Tensor>>
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Loss {
  readonly name: string
  readonly config?: Readonly<Record<string, number | string>> | undefined
}

/**
 * The value of one token's loss and its derivative by the token's log probability.
 *
 * @since 0.1.0
 * @category models
 */
export type TokenLoss = (logprob: number, index: number) => { readonly loss: number; readonly slope: number }

/**
 * A datum that was checked: `columns` targets for each of `rows` tokens.
 *
 * @since 0.1.0
 * @category models
 */
export interface Prepared {
  readonly tokens: Int32Array
  readonly targets: Int32Array
  readonly columns: number
  readonly loss: TokenLoss
}

const fail = (reason: EngineError["reason"], problem: string) => new EngineError({ reason, problem })

/** No request needs a denser one. */
const denseAtMost = 2 ** 26

const dense = (
  tensor: Tensor,
  path: string,
): { readonly data: ArrayLike<number>; readonly shape: ReadonlyArray<number> } => {
  const { data, shape = [data.length], sparse } = tensor
  if (!shape.every((size) => Number.isSafeInteger(size) && size >= 0))
    throw fail("InvalidInput", `${path}: the shape [${shape}] is none`)
  const size = shape.reduce((a, b) => a * b, 1)
  if (size > denseAtMost) throw fail("InvalidInput", `${path}: ${size} elements are too many`)
  if (sparse === undefined) {
    if (size !== data.length) throw fail("InvalidInput", `${path}: ${data.length} elements are not of shape [${shape}]`)
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
  if (!fits) throw fail("InvalidInput", `${path}: the indices are not those of [${shape}] with ${data.length} elements`)
  const full = new Float64Array(size)
  for (let row = 0; row < rows; row++) {
    const end = crowIndices[row + 1] ?? 0
    if (end < (crowIndices[row] ?? 0)) throw fail("InvalidInput", `${path}: the row indices go down at ${row}`)
    for (let i = crowIndices[row] ?? 0; i < end; i++) {
      const column = colIndices[i] ?? -1
      if (!(column >= 0 && column < columns)) throw fail("InvalidInput", `${path}: column ${column} of ${columns}`)
      full[row * columns + column] = data[i] ?? 0
    }
  }
  return { data: full, shape }
}

/** What a caller without types may have put where a token belongs. */
const described = (value: unknown): string => {
  if (typeof value !== "object" || value === null) return String(value)
  return "type" in value && typeof value.type === "string" ? `a chunk of type ${value.type}` : "an object"
}

/**
 * Token ids, each within the vocabulary; throws otherwise. Images and other chunks that are no text are `Unsupported`.
 *
 * @since 0.1.0
 * @category validation
 */
export const checkTokens = (ids: ArrayLike<number>, vocabSize: number, path: string): Int32Array => {
  const known = `the vocabulary is 0 to ${vocabSize - 1}`
  if (typeof ids !== "object" || ids === null || typeof ids.length !== "number")
    throw fail("Unsupported", `${path}: ${described(ids)}, but the engine reads tokens only: ${known}`)
  const tokens = new Int32Array(ids.length)
  for (let i = 0; i < ids.length; i++) {
    const id: unknown = ids[i]
    if (typeof id === "object" && id !== null)
      throw fail("Unsupported", `${path}[${i}]: ${described(id)}, but the engine reads tokens only: ${known}`)
    if (typeof id !== "number" || !Number.isInteger(id) || id < 0 || id >= vocabSize)
      throw fail("InvalidInput", `${path}[${i}]: ${described(id)} is not a token: ${known}`)
    tokens[i] = id
  }
  return tokens
}

/**
 * As `checkTokens`, and neither empty nor longer than the model reads.
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
  if (length === 0) throw fail("InvalidInput", `${path}: there is no token`)
  if (length > maxPositions) throw fail("InvalidInput", `${path}: ${length} tokens, the model reads ${maxPositions}`)
  return tokens
}

type Get = (name: string) => Float32Array | undefined
type Number_ = (name: string, otherwise: number) => number

interface Definition {
  readonly required: ReadonlyArray<string>
  readonly optional: ReadonlyArray<string>
  readonly config: ReadonlyArray<string>
  readonly make: (get: Get, number: Number_) => TokenLoss
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

/** A loss of the ratio to the probability that a token was sampled with, and of that ratio between its bounds. */
const ofRatio = (
  value: (ratio: number, clipped: number, gain: number, logprob: number) => ReturnType<TokenLoss>,
): Definition => ({
  required: ["logprobs", "advantages"],
  optional: ["weights", "clip_low_threshold", "clip_high_threshold"],
  config: ["clip_low_threshold", "clip_high_threshold"],
  make: (get, number) => {
    const [weights, old, advantages] = [get("weights"), get("logprobs"), get("advantages")]
    const clip = clips(get, number)
    return (logprob, index) => {
      const gain = at(weights, index, 1) * at(advantages, index, 0)
      if (gain === 0) return nothing
      const ratio = Math.exp(logprob - at(old, index, 0))
      return value(ratio, clip(index, ratio), gain, logprob)
    }
  },
})

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
  ppo: ofRatio((ratio, clipped, gain) =>
    ratio * gain <= clipped * gain
      ? { loss: -ratio * gain, slope: -ratio * gain }
      : { loss: -clipped * gain, slope: 0 },
  ),
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

/** Named on the wire; nobody here has verified what the service computes under these names. */
const undefinedHere = new Set(["gspo", "stable_reinforce"])

/**
 * Their names.
 *
 * @since 0.1.0
 * @category constants
 */
export const names: ReadonlyArray<string> = Object.keys(definitions)

/**
 * Holds all data to the loss's rules, before anything is computed. Throws an `EngineError`.
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
    const known = `Losses here: ${names.join(", ")}.`
    if (undefinedHere.has(loss.name))
      throw fail(
        "Unsupported",
        `loss ${loss.name}: its definition has not been verified, so it isn't done here. ${known}`,
      )
    if (loss.name === "custom")
      throw fail("Unsupported", `loss custom: graphs are not run here; send its linear form as cross_entropy. ${known}`)
    throw fail("InvalidInput", `loss ${JSON.stringify(loss.name)} is unknown. ${known}`)
  }
  const config = loss.config ?? {}
  for (const key of Object.keys(config)) {
    if (!definition.config.includes(key))
      throw fail(
        "InvalidInput",
        `${loss.name} has no setting ${key}; it has: ${definition.config.join(", ") || "none"}`,
      )
  }
  const number = (name: string, otherwise: number): number => {
    const value = config[name] ?? otherwise
    if (typeof value !== "number" || !Number.isFinite(value))
      throw fail("InvalidInput", `${loss.name}: ${name} is not a number`)
    return value
  }
  if (data.length === 0) throw fail("InvalidInput", "there is no datum")
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
    if (!known.includes(key)) throw fail("InvalidInput", `${path}.${key}: ${name} takes ${known.join(", ")}`)
  }
  for (const key of ["target_tokens", ...definition.required]) {
    if (!Object.hasOwn(datum.inputs, key)) throw fail("InvalidInput", `${path}.${key}: missing; ${name} needs it`)
  }
  const given = dense(datum.inputs["target_tokens"] ?? { data: [] }, `${path}.target_tokens`)
  const columns = given.shape.length === 2 ? (given.shape[1] ?? 0) : 1
  if (given.shape.length > 2 || given.shape[0] !== rows || columns === 0)
    throw fail("InvalidInput", `${path}.target_tokens: [${given.shape}] is not [${rows}] or [${rows}, K]`)
  const values = new Map<string, Float32Array>()
  for (const [key, tensor] of Object.entries(datum.inputs)) {
    if (key === "target_tokens") continue
    const { data, shape } = dense(tensor, `${path}.${key}`)
    const floats = new Float32Array(rows * columns)
    if (data.length === floats.length) floats.set(data)
    else if (data.length === rows && shape.length === 1)
      floats.forEach((_, i) => (floats[i] = data[(i / columns) | 0] ?? 0))
    else throw fail("InvalidInput", `${path}.${key}: [${shape}], but target_tokens is [${given.shape}]`)
    const bad = floats.findIndex((value) => !Number.isFinite(value))
    if (bad >= 0) throw fail("InvalidInput", `${path}.${key}[${bad}] is not a finite number`)
    values.set(key, floats)
  }
  return {
    tokens,
    targets: checkTokens(given.data, limits.vocabSize, `${path}.target_tokens`),
    columns,
    loss: definition.make((key) => values.get(key), number),
  }
}
