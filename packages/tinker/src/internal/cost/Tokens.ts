/** Numbers of tokens by what was done with them. */
import * as Option from "effect/Option"
import * as ModelInput from "../../ModelInput.ts"

/**
 * Numbers of tokens by what was done with them.
 *
 * @since 0.1.0
 * @category models
 */
export interface Tokens {
  /** Tokens of prompts that were computed. */
  readonly prefill: number
  /** Tokens of prompts that the server's cache had. */
  readonly cachedPrefill: number
  /** Sampled tokens. */
  readonly sampled: number
  /** Tokens of forward and forward-backward passes. */
  readonly trained: number
}

/**
 * No tokens.
 *
 * @since 0.1.0
 * @category models
 */
export const noTokens: Tokens = { prefill: 0, cachedPrefill: 0, sampled: 0, trained: 0 }

/**
 * Adds numbers of tokens.
 *
 * @since 0.1.0
 * @category combinators
 */
export const addTokens = (a: Tokens, b: Partial<Tokens>): Tokens => ({
  prefill: a.prefill + (b.prefill ?? 0),
  cachedPrefill: a.cachedPrefill + (b.cachedPrefill ?? 0),
  sampled: a.sampled + (b.sampled ?? 0),
  trained: a.trained + (b.trained ?? 0),
})

/**
 * Returns the number of tokens of a prompt or of a datum's input. Images and audio of unknown length count as 0.
 *
 * @since 0.1.0
 * @category getters
 */
export const tokensIn = (input: ModelInput.Input): number =>
  input instanceof ModelInput.ModelInput ? Option.getOrElse(ModelInput.length(input), () => 0) : input.length
