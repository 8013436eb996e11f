/** Validates a pass before it is accepted: a pass that the model cannot run is refused and changes nothing. */
import * as Either from "effect/Either"
import type { ModelInput } from "effect-tinker/ModelInput"
import type { PassRequest } from "effect-tinker/protocol/PassRequest"
import * as TensorData from "effect-tinker/TensorData"
import type { BaseModel, Example, Tensor } from "../ModelHost.ts"
import { bad, type Refusal } from "./Refusal.ts"

type Checked<A> = Either.Either<A, Refusal>

const outside = (tokens: ArrayLike<number>, vocabSize: number): number => {
  for (let i = 0; i < tokens.length; i++) {
    const token = tokens[i] ?? -1
    if (token < 0 || token >= vocabSize) return i
  }
  return -1
}

/**
 * Returns the tokens of an input; refuses tokens outside the vocabulary and inputs that are empty, too long or not
 * text.
 */
export const tokensOf = (input: ModelInput, model: BaseModel, field: string): Checked<Int32Array> => {
  const length = input.chunks.reduce((sum, chunk) => sum + (chunk.type === "encoded_text" ? chunk.tokens.length : 0), 0)
  if (length > model.maxContextLength)
    return Either.left(
      bad(field, `${length} tokens exceed the context length of ${model.name} (${model.maxContextLength})`),
    )
  const tokens = new Int32Array(length)
  let at = 0
  for (const [i, chunk] of input.chunks.entries()) {
    if (chunk.type !== "encoded_text")
      return Either.left(bad(`${field}.chunks[${i}]`, `${model.name} supports only text, got ${chunk.type}`))
    const invalid = outside(chunk.tokens, model.vocabSize)
    if (invalid >= 0)
      return Either.left(
        bad(
          `${field}.chunks[${i}].tokens[${invalid}]`,
          `${chunk.tokens[invalid]} is not in the vocabulary of ${model.name} (0 to ${model.vocabSize - 1})`,
        ),
      )
    tokens.set(chunk.tokens, at)
    at += chunk.tokens.length
  }
  return length === 0 ? Either.left(bad(field, "is empty")) : Either.right(tokens)
}

const dense = (tensor: TensorData.TensorData, field: string, bytes: number): Checked<Tensor> => {
  const { data, shape = [data.length], sparse } = tensor
  // A sparse tensor of a few bytes can stand for gigabytes of zeros. The targets, which it goes with, are not sparse.
  const size = shape.reduce((product, length) => product * length, 1)
  if (sparse !== undefined && size > Math.max(bytes, 1024))
    return Either.left(bad(field, `${size} elements are too many for a datum of ${bytes} bytes`))
  // Most tensors need no conversion.
  if (sparse === undefined && !(data instanceof BigInt64Array)) return Either.right({ data, shape })
  return Either.mapBoth(TensorData.toNumbers(tensor, field), {
    onLeft: ({ message }) => bad(field, message),
    onRight: (values) => ({
      data: tensor.dtype === "int64" ? Int32Array.from(values) : Float32Array.from(values),
      shape: tensor.shape ?? [values.length],
    }),
  })
}

const firstNaN = (values: Float32Array): number => {
  // A plain loop: a callback for each of half a million numbers would block the event loop for too long.
  for (let i = 0; i < values.length; i++) if (values[i] !== values[i]) return i
  return -1
}

const policy = ["logprobs", "advantages"]

/** The inputs that each loss requires. */
const required: Readonly<Record<string, ReadonlyArray<string>>> = {
  cross_entropy: [],
  importance_sampling: policy,
  ppo: policy,
  cispo: policy,
  gspo: policy,
  dro: policy,
  stable_reinforce: policy,
}

/** The inputs with one number per target. */
const perTarget = new Set([
  "weights",
  "logprobs",
  "advantages",
  "clip_low_threshold",
  "clip_high_threshold",
  "sequence_ratio_mask",
])

/** Checks a datum of the given number of bytes. */
export const exampleOf = (
  { input, inputs }: PassRequest["data"][number],
  loss: string,
  model: BaseModel,
  { bytes, field }: { readonly bytes: number; readonly field: string },
): Checked<Example> =>
  Either.gen(function* () {
    const tokens = yield* tokensOf(input, model, `${field}.model_input`)
    const read: Record<string, Tensor> = {}
    for (const [name, tensor] of inputs) read[name] = yield* dense(tensor, `${field}.loss_fn_inputs.${name}`, bytes)
    const at = (name: string) => `${field}.loss_fn_inputs.${name}`
    for (const name of ["target_tokens", ...(required[loss] ?? [])])
      if (read[name] === undefined) return yield* Either.left(bad(at(name), `is required by ${loss}`))
    const targets = read["target_tokens"]
    if (targets === undefined) return yield* Either.left(bad(at("target_tokens"), "is missing"))
    if (!(targets.data instanceof Int32Array))
      return yield* Either.left(bad(at("target_tokens"), "expected int64, got float32"))
    if (targets.shape[0] !== tokens.length)
      return yield* Either.left(
        bad(
          at("target_tokens"),
          `expected one value for each of the ${tokens.length} tokens, got ${targets.shape[0] ?? 0}`,
        ),
      )
    const invalid = outside(targets.data, model.vocabSize)
    if (invalid >= 0)
      return yield* Either.left(
        bad(
          `${at("target_tokens")}[${invalid}]`,
          `${targets.data[invalid]} is not in the vocabulary of ${model.name} (0 to ${model.vocabSize - 1})`,
        ),
      )
    for (const [name, tensor] of Object.entries(read)) {
      if (!perTarget.has(name)) continue
      if (tensor.data.length !== targets.data.length)
        return yield* Either.left(
          bad(at(name), `expected one value for each of the ${targets.data.length} targets, got ${tensor.data.length}`),
        )
      const nan = tensor.data instanceof Float32Array ? firstNaN(tensor.data) : -1
      if (nan >= 0) return yield* Either.left(bad(`${at(name)}[${nan}]`, "is not a number"))
    }
    return { tokens, inputs: read }
  })

/** Checks everything about a pass but its data. */
export const checkLoss = (loss: string, count: number, model: BaseModel): Checked<void> => {
  if (!model.losses.includes(loss))
    return Either.left(
      bad("loss_fn", `"${loss.slice(0, 80)}" is not supported; available losses: ${model.losses.join(", ")}`),
    )
  return count === 0 ? Either.left(bad("data", "is empty")) : Either.void
}
