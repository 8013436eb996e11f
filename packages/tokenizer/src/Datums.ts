/**
 * Builds training data from conversations, trajectories and preferences: tokens shifted by one, with the inputs that
 * the loss needs for each target.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as ModelInput from "effect-tinker/ModelInput"
import { InvalidInput } from "effect-tinker/TinkerError"
import type { Message } from "./Message.ts"
import type { Example, Renderer, TrainOn } from "./Renderer.ts"
import type { Failure } from "./RendererError.ts"
import type { Tokens } from "./Tokenizer.ts"

/**
 * A datum for `Loss.crossEntropy` and for every `CustomLoss`.
 *
 * @since 0.1.0
 * @category models
 */
export interface SupervisedDatum {
  readonly modelInput: ModelInput.ModelInput
  readonly inputs: { readonly targetTokens: Int32Array; readonly weights: Float32Array }
}

/**
 * A datum for policy gradient losses such as `Loss.importanceSampling` and `Loss.ppo`.
 *
 * @since 0.1.0
 * @category models
 */
export interface PolicyDatum {
  readonly modelInput: ModelInput.ModelInput
  readonly inputs: {
    readonly targetTokens: Int32Array
    readonly logprobs: Float32Array
    readonly advantages: Float32Array
  }
}

/**
 * Options of {@link fromExample}.
 *
 * @since 0.1.0
 * @category models
 */
export interface ExampleOptions {
  /** The most tokens a datum may have. The rest is cut off; an image that does not fit is dropped as a whole. */
  readonly maxLength?: number | undefined
  /** `mean` scales the weights of a datum to a sum of 1, so that long answers do not dominate. Default: `sum`. */
  readonly reduction?: "sum" | "mean" | undefined
}

/**
 * Options of {@link fromConversation}.
 *
 * @since 0.1.0
 * @category models
 */
export interface ConversationOptions extends ExampleOptions {
  /** Default: `all_assistant_messages`. */
  readonly trainOn?: TrainOn | undefined
}

type Result<A> = Either.Either<A, InvalidInput>

const invalid = (path: string, problem: string) => Either.left(new InvalidInput({ path, problem }))

const lengthOf = (chunk: ModelInput.Chunk) => Option.getOrUndefined(ModelInput.length({ chunks: [chunk] }))

interface Sized {
  readonly chunk: ModelInput.Chunk
  readonly length: number
}

const sized = (chunks: ReadonlyArray<ModelInput.Chunk>, path: string): Result<ReadonlyArray<Sized>> => {
  const all: Array<Sized> = []
  for (const [index, chunk] of chunks.entries()) {
    const length = lengthOf(chunk)
    if (length === undefined) {
      const missing = chunk.type === "dmel" ? "length" : "expectedTokens"
      return invalid(`${path}.chunks[${index}].${missing}`, "missing; targets can't be aligned without a token count")
    }
    all.push({ chunk, length })
  }
  return Either.right(all)
}

const cut = (chunk: ModelInput.Chunk, length: number): ReadonlyArray<Sized> =>
  chunk.type === "encoded_text" && length > 0
    ? [{ chunk: { ...chunk, tokens: chunk.tokens.subarray(0, length) }, length }]
    : []

const truncated = (chunks: ReadonlyArray<Sized>, maxLength: number): ReadonlyArray<Sized> => {
  const kept: Array<Sized> = []
  let room = maxLength
  for (const one of chunks) {
    if (one.length > room) return [...kept, ...cut(one.chunk, room)]
    kept.push(one)
    room -= one.length
  }
  return kept
}

/** Uses all tokens but the last as input and all but the first as targets. Targets of images are 0. */
const shifted = (
  chunks: ReadonlyArray<Sized>,
  path: string,
): Result<{ readonly modelInput: ModelInput.ModelInput; readonly targetTokens: Int32Array }> => {
  const total = chunks.reduce((sum, { length }) => sum + length, 0)
  const last = chunks.at(-1)
  if (last?.chunk.type !== "encoded_text")
    return invalid(path, "expected text as the last chunk: an image has no target")
  if (total < 2) return invalid(path, `expected at least 2 tokens, an input and a target, got ${total}`)
  const targetTokens = new Int32Array(total - 1)
  let at = -1
  for (const { chunk, length } of chunks) {
    if (chunk.type === "encoded_text")
      targetTokens.set(at < 0 ? chunk.tokens.subarray(1) : chunk.tokens, Math.max(at, 0))
    at += length
  }
  const input = [...chunks.slice(0, -1), ...cut(last.chunk, last.length - 1)]
  return Either.right({ modelInput: ModelInput.fromChunks(joined(input.map(({ chunk }) => chunk))), targetTokens })
}

/** Merges consecutive text chunks. */
const joined = (chunks: ReadonlyArray<ModelInput.Chunk>): ReadonlyArray<ModelInput.Chunk> => {
  const all: Array<ModelInput.Chunk> = []
  for (const chunk of chunks) {
    const last = all.at(-1)
    if (chunk.type === "encoded_text" && last?.type === "encoded_text") {
      const tokens = new Int32Array(last.tokens.length + chunk.tokens.length)
      tokens.set(last.tokens)
      tokens.set(chunk.tokens, last.tokens.length)
      all[all.length - 1] = { type: "encoded_text", tokens }
    } else all.push(chunk)
  }
  return all
}

const reduced = (weights: Float32Array): Float32Array => {
  const total = Math.fround(weights.reduce((sum, weight) => sum + weight, 0))
  return total > 0 ? weights.map((weight) => weight / total) : weights
}

/**
 * Builds a datum from tokens and their weights: cuts it to length and shifts the targets by one. Trailing images are
 * dropped; the targets of other images are 0.
 *
 * @since 0.1.0
 * @category constructors
 */
export const fromExample = (
  { modelInput, weights }: Example,
  options: ExampleOptions = {},
): Either.Either<SupervisedDatum, InvalidInput> =>
  Either.gen(function* () {
    const { maxLength, reduction } = options
    if (maxLength !== undefined && !(Number.isInteger(maxLength) && maxLength > 0)) {
      return yield* invalid("maxLength", `expected a positive integer, got ${maxLength}`)
    }
    const all = yield* sized(modelInput.chunks, "modelInput")
    const total = all.reduce((sum, { length }) => sum + length, 0)
    if (weights.length !== total) {
      return yield* invalid("weights", `expected one weight per token (${total}), got ${weights.length}`)
    }
    const kept = (maxLength === undefined ? all : truncated(all, maxLength)).filter(({ length }) => length > 0)
    const end = kept.findLastIndex(({ chunk }) => chunk.type !== "image" && chunk.type !== "image_asset_pointer")
    const { modelInput: input, targetTokens } = yield* shifted(kept.slice(0, end + 1), "modelInput")
    const own = weights.slice(1, targetTokens.length + 1)
    return { modelInput: input, inputs: { targetTokens, weights: reduction === "mean" ? reduced(own) : own } }
  })

const split: ReadonlySet<TrainOn> = new Set(["last_assistant_message", "last_assistant_turn", "all_assistant_messages"])

/**
 * Builds the data of a conversation: one datum, or one for each trained answer if the renderer changes the history from
 * turn to turn.
 *
 * @since 0.1.0
 * @category constructors
 */
export const fromConversation = (
  renderer: Renderer,
  messages: ReadonlyArray<Message>,
  options: ConversationOptions = {},
): Effect.Effect<ReadonlyArray<SupervisedDatum>, Failure> =>
  Effect.gen(function* () {
    const trainOn = options.trainOn ?? "all_assistant_messages"
    const examples = split.has(trainOn)
      ? yield* renderer.supervisedExamples(messages, trainOn)
      : [yield* renderer.supervisedExample(messages, trainOn)]
    return yield* Either.all(examples.map((example) => fromExample(example, options)))
  })

/**
 * Two continuations of the same prompt: the preferred one and the rejected one.
 *
 * @since 0.1.0
 * @category models
 */
export interface Preference {
  readonly prompt: ReadonlyArray<Message>
  readonly chosen: ReadonlyArray<Message>
  readonly rejected: ReadonlyArray<Message>
}

/**
 * Builds one datum for each continuation, with a weight of 1 on the tokens of the answer. Meant for a `CustomLoss` that
 * compares the two, such as DPO. In a batch they alternate: `[chosen, rejected, chosen, rejected, …]`.
 *
 * @since 0.1.0
 * @category constructors
 */
export const fromPreference = (
  renderer: Renderer,
  { chosen, prompt, rejected }: Preference,
  options: Pick<ExampleOptions, "maxLength"> = {},
): Effect.Effect<{ readonly chosen: SupervisedDatum; readonly rejected: SupervisedDatum }, Failure> =>
  Effect.gen(function* () {
    const one = (answer: ReadonlyArray<Message>, path: string) =>
      answer.at(-1)?.role === "assistant"
        ? Effect.flatMap(renderer.supervisedExample([...prompt, ...answer], "last_assistant_message"), (example) =>
            fromExample(example, options),
          )
        : new InvalidInput({ path, problem: "expected the last message to be the assistant's" })
    return { chosen: yield* one(chosen, "chosen"), rejected: yield* one(rejected, "rejected") }
  })

/**
 * One step of a trajectory: the observation that the model saw and the tokens that it sampled.
 *
 * @since 0.1.0
 * @category models
 */
export interface Transition {
  readonly observation: ModelInput.Input
  readonly tokens: Tokens
  /** The log probability of each token at the time it was sampled. */
  readonly logprobs: ArrayLike<number>
  /** Whether to exclude these tokens from training, e.g. because they could not be parsed. */
  readonly masked?: boolean | undefined
}

/**
 * A datum of a trajectory and its mask.
 *
 * @since 0.1.0
 * @category models
 */
export interface TrajectoryDatum {
  readonly datum: PolicyDatum
  /**
   * 1 for targets that the model sampled and is trained on. Not sent to the server; use it for metrics and penalties.
   */
  readonly mask: Float32Array
}

/** One token, or one chunk that is not text. */
type Element = number | ModelInput.Chunk

const elementsOf = (input: ModelInput.ModelInput): ReadonlyArray<Element> =>
  input.chunks.flatMap((chunk): ReadonlyArray<Element> => (chunk.type === "encoded_text" ? [...chunk.tokens] : [chunk]))

const sameBytes = (one: Uint8Array, other: Uint8Array) =>
  one.length === other.length && one.every((byte, index) => byte === other[index])

const isSame = (one: Element, other: Element | undefined): boolean => {
  if (one === other) return true
  if (typeof one === "number" || typeof other === "number" || other === undefined) return false
  if (one.type === "image" && other.type === "image") {
    return one.format === other.format && one.expectedTokens === other.expectedTokens && sameBytes(one.data, other.data)
  }
  if (one.type === "image_asset_pointer" && other.type === "image_asset_pointer") {
    return one.location === other.location && one.expectedTokens === other.expectedTokens
  }
  return one.type === "dmel" && other.type === "dmel" && one.length === other.length && sameBytes(one.dmel, other.dmel)
}

class Sequence {
  readonly elements: Array<Element> = []
  readonly logprobs: Array<number> = []
  readonly advantages: Array<number> = []
  readonly mask: Array<number> = []

  isPrefixOf(observation: ReadonlyArray<Element>): boolean {
    return (
      this.elements.length <= observation.length &&
      this.elements.every((element, index) => isSame(element, observation[index]))
    )
  }

  add(element: Element, length: number, logprob: number, advantage: number, mask: number): void {
    this.elements.push(element)
    for (let index = 0; index < length; index++) {
      this.logprobs.push(logprob)
      this.advantages.push(advantage)
      this.mask.push(mask)
    }
  }

  toDatum(path: string): Result<TrajectoryDatum> {
    const chunks = joined(
      this.elements.map((element) =>
        typeof element === "number" ? { type: "encoded_text", tokens: Int32Array.of(element) } : element,
      ),
    )
    const tail = (numbers: ReadonlyArray<number>) => Float32Array.from(numbers.slice(1))
    return Either.map(
      Either.flatMap(sized(chunks, path), (all) => shifted(all, path)),
      ({ modelInput, targetTokens }) => ({
        datum: {
          modelInput,
          inputs: { targetTokens, logprobs: tail(this.logprobs), advantages: tail(this.advantages) },
        },
        mask: tail(this.mask),
      }),
    )
  }
}

/**
 * Builds the data of a trajectory. Steps share a datum for as long as each observation starts with everything before
 * it; otherwise a new datum starts. Observed tokens have log probability, advantage and mask 0; sampled tokens have the
 * advantage of the trajectory.
 *
 * @since 0.1.0
 * @category constructors
 */
export const fromTrajectory = (
  transitions: ReadonlyArray<Transition>,
  advantage: number,
): Either.Either<ReadonlyArray<TrajectoryDatum>, InvalidInput> =>
  Either.gen(function* () {
    if (!Number.isFinite(advantage)) return yield* invalid("advantage", `expected a finite number, got ${advantage}`)
    const done: Array<TrajectoryDatum> = []
    let sequence = new Sequence()
    for (const [index, { logprobs, masked, observation, tokens }] of transitions.entries()) {
      const path = `transitions[${index}]`
      const input = yield* ModelInput.from(observation, `${path}.observation`)
      const action = yield* ModelInput.text(tokens, `${path}.tokens`)
      if (logprobs.length !== action.tokens.length) {
        const problem = `expected one log probability per token (${action.tokens.length}), got ${logprobs.length}`
        return yield* invalid(`${path}.logprobs`, problem)
      }
      const observed = elementsOf(input)
      if (!sequence.isPrefixOf(observed)) {
        done.push(yield* sequence.toDatum(path))
        sequence = new Sequence()
      }
      for (const element of observed.slice(sequence.elements.length)) {
        const length = typeof element === "number" ? 1 : lengthOf(element)
        if (length === undefined) return yield* invalid(`${path}.observation`, "image or audio without a token count")
        sequence.add(element, length, 0, 0, 0)
      }
      const mask = masked === true ? 0 : 1
      for (const [at, token] of action.tokens.entries()) {
        sequence.add(token, 1, logprobs[at] ?? 0, mask * advantage, mask)
      }
    }
    if (sequence.elements.length > 0) done.push(yield* sequence.toDatum("transitions"))
    return done
  })
