/**
 * What can be asked of a sampler, and what it answers.
 *
 * @since 0.1.0
 */
import { EngineError } from "./EngineError.ts"
import { checkTokens } from "./Losses.ts"
import type { ModelConfig } from "./ModelConfig.ts"

/**
 * @since 0.1.0
 * @category models
 */
export interface SampleRequest {
  readonly prompt: ArrayLike<number>
  /** How many sequences; 1. */
  readonly samples?: number | undefined
  /** What is left of the context when not given. */
  readonly maxTokens?: number | undefined
  /** 1; 0 takes the likeliest. */
  readonly temperature?: number | undefined
  /** -1 is all. */
  readonly topK?: number | undefined
  readonly topP?: number | undefined
  /** The same seed gives the same text; without one each request differs. */
  readonly seed?: number | undefined
  /** Tokens that end a sequence, and are its last. The model's own when not given; none when empty. */
  readonly stopTokens?: ArrayLike<number> | undefined
  /** Texts that end a sequence, with a function that says what tokens mean. */
  readonly stopTexts?: {
    readonly texts: ReadonlyArray<string>
    readonly decode: (tokens: ReadonlyArray<number>) => string
  }
  readonly promptLogprobs?: boolean | undefined
  /** So many of the likeliest tokens for each token of the prompt. */
  readonly topkPromptLogprobs?: number | undefined
  /** So many of the likeliest tokens for each sampled token. */
  readonly topkSampleLogprobs?: number | undefined
  /** Tokens whose log probabilities are wanted at places of the prompt, from 1 on: nothing comes before the first. */
  readonly promptTargets?: PromptTargets | undefined
  /** So many tokens, drawn with the temperature alone, in place of each token of the prompt but the first. */
  readonly promptDraws?: number | undefined
  /** Hears of each token as it is drawn: of which sequence, and what it is. */
  readonly onToken?: ((sequence: number, token: SampledToken) => void) | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface PromptTargets {
  readonly positions: ArrayLike<number>
  readonly tokens: ArrayLike<number>
}

/**
 * @since 0.1.0
 * @category models
 */
export interface SampledToken {
  readonly token: number
  readonly logprob: number
  /** The likeliest in its place, likeliest first; none unless asked for. */
  readonly top: { readonly tokenIds: Int32Array; readonly logprobs: Float32Array } | undefined
}

/**
 * `length` rows of `k` cells, likeliest first. A row without any holds token 0 with -99999, as on the wire.
 *
 * @since 0.1.0
 * @category models
 */
export interface Topk {
  readonly k: number
  readonly length: number
  readonly tokenIds: Int32Array
  readonly logprobs: Float32Array
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Sequence {
  readonly tokens: Int32Array
  /** Of the model itself, whatever temperature, top-k and top-p did: those that `forward` gives. */
  readonly logprobs: Float32Array
  readonly stopReason: "stop" | "length"
  readonly topk: Topk | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface SampleResult {
  readonly sequences: ReadonlyArray<Sequence>
  /** One for each token of the prompt; NaN for the first. */
  readonly promptLogprobs: Float32Array | undefined
  readonly topkPrompt: Topk | undefined
  /** One for each target. */
  readonly promptTargets: Float32Array | undefined
  /** A row for each token of the prompt but the first. */
  readonly promptDraws: { readonly tokens: Int32Array; readonly logprobs: Float32Array } | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Prepared {
  readonly prompt: Int32Array
  readonly samples: number
  readonly maxTokens: number
  readonly temperature: number
  readonly topK: number
  readonly topP: number
  readonly seed: number
  readonly stopTokens: ReadonlySet<number>
  readonly stopTexts: SampleRequest["stopTexts"]
  readonly promptLogprobs: boolean
  readonly topkPrompt: number
  readonly topkSample: number
  readonly promptTargets: { readonly positions: Int32Array; readonly tokens: Int32Array } | undefined
  readonly promptDraws: number
  readonly onToken: SampleRequest["onToken"]
}

const invalid = (problem: string) => new EngineError({ reason: "InvalidInput", problem })

/**
 * With the defaults, or an `EngineError` is thrown.
 *
 * @since 0.1.0
 * @category validation
 */
export const prepare = (request: SampleRequest, config: ModelConfig, anySeed: () => number): Prepared => {
  const prompt = checkTokens(request.prompt, config.vocabSize, "prompt")
  if (prompt.length === 0) throw invalid("prompt: there is no token")
  const room = config.maxPositions - prompt.length
  if (room < 1) throw invalid(`prompt: ${prompt.length} tokens leave no room, the model reads ${config.maxPositions}`)
  const integer = (value: number, name: string, low: number, high: number): number => {
    if (!Number.isSafeInteger(value) || value < low || value > high)
      throw invalid(`${name}: expected an integer from ${low} to ${high}, got ${value}`)
    return value
  }
  const temperature = request.temperature ?? 1
  if (!(temperature >= 0 && temperature < Infinity)) throw invalid(`temperature: ${temperature} is not 0 or more`)
  const topP = request.topP ?? 1
  if (!(topP >= 0 && topP <= 1)) throw invalid(`topP: ${topP} is not between 0 and 1`)
  const topK = request.topK ?? -1
  if (topK !== -1) integer(topK, "topK", 1, Number.MAX_SAFE_INTEGER)
  if (request.stopTexts?.texts.some((text) => text === "")) throw invalid("stopTexts: an empty text stops at nothing")
  const none = Number.MIN_SAFE_INTEGER
  const targets = request.promptTargets && {
    positions: Int32Array.from(request.promptTargets.positions, (position, i) =>
      integer(position, `promptTargets.positions[${i}]`, 1, prompt.length - 1),
    ),
    tokens: checkTokens(request.promptTargets.tokens, config.vocabSize, "promptTargets.tokens"),
  }
  if (targets !== undefined && targets.positions.length !== targets.tokens.length)
    throw invalid(`promptTargets: ${targets.tokens.length} tokens for ${targets.positions.length} positions`)
  return {
    prompt,
    samples: integer(request.samples ?? 1, "samples", 1, 65_536),
    maxTokens: Math.min(room, integer(request.maxTokens ?? room, "maxTokens", 1, Number.MAX_SAFE_INTEGER)),
    temperature,
    topK,
    topP,
    seed: integer(request.seed ?? anySeed(), "seed", none, Number.MAX_SAFE_INTEGER),
    stopTokens: new Set(
      request.stopTokens === undefined
        ? config.eosTokens
        : checkTokens(request.stopTokens, config.vocabSize, "stopTokens"),
    ),
    stopTexts: request.stopTexts,
    promptLogprobs: request.promptLogprobs ?? false,
    topkPrompt: integer(request.topkPromptLogprobs ?? 0, "topkPromptLogprobs", 0, config.vocabSize),
    topkSample: integer(request.topkSampleLogprobs ?? 0, "topkSampleLogprobs", 0, config.vocabSize),
    promptTargets: targets,
    promptDraws: integer(request.promptDraws ?? 0, "promptDraws", 0, config.vocabSize),
    onToken: request.onToken,
  }
}
