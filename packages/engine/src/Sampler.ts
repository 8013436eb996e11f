/**
 * Requests and results of sampling.
 *
 * @since 0.1.0
 */
import { EngineError } from "./EngineError.ts"
import { checkTokens } from "./Losses.ts"
import type { ModelConfig } from "./ModelConfig.ts"

/**
 * A sampling request.
 *
 * @since 0.1.0
 * @category models
 */
export interface SampleRequest {
  readonly prompt: ArrayLike<number>
  /** The number of sequences. Default: 1. */
  readonly samples?: number | undefined
  /** Default: the remaining context. With 0, the prompt is only scored. */
  readonly maxTokens?: number | undefined
  /** 0 takes the most likely token. Default: 1. */
  readonly temperature?: number | undefined
  /** Default: -1, which means all tokens. */
  readonly topK?: number | undefined
  readonly topP?: number | undefined
  /** The same seed gives the same tokens. Default: a random seed for each request. */
  readonly seed?: number | undefined
  /** Tokens that end a sequence and are included in it. Default: those of the model; an empty list means none. */
  readonly stopTokens?: ArrayLike<number> | undefined
  /** Texts that end a sequence, and a function that decodes tokens. */
  readonly stopTexts?: {
    readonly texts: ReadonlyArray<string>
    readonly decode: (tokens: ReadonlyArray<number>) => string
  }
  readonly promptLogprobs?: boolean | undefined
  /** The number of most likely tokens to return for each prompt token. */
  readonly topkPromptLogprobs?: number | undefined
  /** The number of most likely tokens to return for each sampled token. */
  readonly topkSampleLogprobs?: number | undefined
  /** Tokens to score at positions of the prompt, from 1 on, because nothing precedes the first token. */
  readonly promptTargets?: PromptTargets | undefined
  /** The number of tokens to draw, with the temperature only, in place of each prompt token except the first. */
  readonly promptDraws?: number | undefined
  /** Called with each sampled token and the index of its sequence. */
  readonly onToken?: ((sequence: number, token: SampledToken) => void) | undefined
}

/**
 * Tokens to score at positions of the prompt.
 *
 * @since 0.1.0
 * @category models
 */
export interface PromptTargets {
  readonly positions: ArrayLike<number>
  readonly tokens: ArrayLike<number>
}

/**
 * A sampled token and its log probability.
 *
 * @since 0.1.0
 * @category models
 */
export interface SampledToken {
  readonly token: number
  readonly logprob: number
  /** The most likely tokens at this position, most likely first, if requested. */
  readonly top: { readonly tokenIds: Int32Array; readonly logprobs: Float32Array } | undefined
}

/**
 * `length` rows of `k` cells, most likely first. An empty row holds token 0 with -99999, as on the wire.
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
 * A sampled sequence.
 *
 * @since 0.1.0
 * @category models
 */
export interface Sequence {
  readonly tokens: Int32Array
  /** Log probabilities of the model itself, independent of temperature, top-k and top-p, as `forward` returns them. */
  readonly logprobs: Float32Array
  readonly stopReason: "stop" | "length"
  readonly topk: Topk | undefined
}

/**
 * The result of a sampling request.
 *
 * @since 0.1.0
 * @category models
 */
export interface SampleResult {
  readonly sequences: ReadonlyArray<Sequence>
  /** One value per prompt token; NaN for the first. */
  readonly promptLogprobs: Float32Array | undefined
  readonly topkPrompt: Topk | undefined
  /** One value per target. */
  readonly promptTargets: Float32Array | undefined
  /** One row per prompt token except the first. */
  readonly promptDraws: { readonly tokens: Int32Array; readonly logprobs: Float32Array } | undefined
}

/**
 * A checked request with all defaults filled in.
 *
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
 * Fills in the defaults and checks the values. Throws an `EngineError`.
 *
 * @since 0.1.0
 * @category validation
 */
export const prepare = (request: SampleRequest, config: ModelConfig, anySeed: () => number): Prepared => {
  const prompt = checkTokens(request.prompt, config.vocabSize, "prompt")
  if (prompt.length === 0) throw invalid("prompt: expected at least one token")
  const room = config.maxPositions - prompt.length
  if (room < (request.maxTokens === 0 ? 0 : 1))
    throw invalid(`prompt: ${prompt.length} tokens leave no room in the model's context of ${config.maxPositions}`)
  const integer = (value: number, name: string, low: number, high: number): number => {
    if (!Number.isSafeInteger(value) || value < low || value > high)
      throw invalid(`${name}: expected an integer from ${low} to ${high}, got ${value}`)
    return value
  }
  const temperature = request.temperature ?? 1
  if (!(temperature >= 0 && temperature < Infinity))
    throw invalid(`temperature: expected a finite number of at least 0, got ${temperature}`)
  const topP = request.topP ?? 1
  if (!(topP >= 0 && topP <= 1)) throw invalid(`topP: expected a number from 0 to 1, got ${topP}`)
  const topK = request.topK ?? -1
  if (topK !== -1) integer(topK, "topK", 1, Number.MAX_SAFE_INTEGER)
  if (request.stopTexts?.texts.some((text) => text === "")) throw invalid("stopTexts: expected non-empty strings")
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
    maxTokens: Math.min(room, integer(request.maxTokens ?? room, "maxTokens", 0, Number.MAX_SAFE_INTEGER)),
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
