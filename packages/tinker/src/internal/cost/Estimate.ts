/** Estimates the cost of a run before it starts. */
import * as Either from "effect/Either"
import type { Kind } from "./Kinds.ts"
import type { Money } from "./Money.ts"
import { costOf, type Prices, type PriceUnknown, type Storage, storageCost } from "./Prices.ts"
import { addTokens, noTokens, type Tokens } from "./Tokens.ts"

/**
 * Evaluations of a run.
 *
 * @since 0.1.0
 * @category estimates
 */
export interface Evaluations {
  /** How often the evaluation is made. */
  readonly times: number
  /** How many samples each takes. Without answers, the log probabilities of the prompts are computed. */
  readonly samples: number
  /** Tokens of a prompt on average. */
  readonly promptTokens: number
  /** Tokens of an answer on average. */
  readonly answerTokens: number
}

/**
 * A supervised run.
 *
 * @since 0.1.0
 * @category estimates
 */
export interface SupervisedRun {
  readonly model: string
  /** The tokens of all examples together. */
  readonly tokens: number
  /** @default 1 */
  readonly epochs?: number | undefined
  /** Whether a reference model computes the log probabilities of all examples once, as for preferences. */
  readonly reference?: boolean | undefined
  readonly evaluations?: Evaluations | undefined
  readonly storage?: Storage | undefined
}

/**
 * A run of reinforcement learning.
 *
 * @since 0.1.0
 * @category estimates
 */
export interface RlRun {
  readonly model: string
  readonly steps: number
  readonly groupsPerStep: number
  readonly rolloutsPerGroup: number
  /** Tokens of a prompt on average; with several turns, of the first one. */
  readonly promptTokens: number
  /** Tokens of an answer on average. */
  readonly answerTokens: number
  /**
   * Answers of a rollout. The prompt of each turn contains the turns before.
   *
   * @default 1
   */
  readonly turns?: number | undefined
  /**
   * Tokens that the environment adds before each turn but the first.
   *
   * @default 0
   */
  readonly observationTokens?: number | undefined
  /**
   * The part of the prompts that the server's cache has, from 0 to 1.
   *
   * @default 0
   */
  readonly cached?: number | undefined
  /**
   * Passes over each rollout.
   *
   * @default 1
   */
  readonly updatesPerStep?: number | undefined
  /**
   * The model that computes the log probabilities of each rollout, for a KL penalty or as a teacher; `true` is the model
   * itself.
   */
  readonly reference?: boolean | string | undefined
  readonly evaluations?: Evaluations | undefined
  readonly storage?: Storage | undefined
}

/**
 * The estimated cost of a run.
 *
 * @since 0.1.0
 * @category estimates
 */
export interface Estimate {
  readonly model: string
  readonly tokens: Tokens
  readonly total: Money
  /** The parts of the total. */
  readonly parts: Readonly<Record<Kind | "storage", Money>>
  /** The day of the prices. */
  readonly pricesOf: string
}

const evaluationTokens = (evaluations: Evaluations | undefined): Partial<Tokens> => {
  if (evaluations === undefined) return {}
  const count = evaluations.times * evaluations.samples
  return { prefill: count * evaluations.promptTokens, sampled: count * evaluations.answerTokens }
}

/** Adds up the cost; the tokens of the reference may have the prices of another model. */
const estimate = (
  prices: Prices,
  model: string,
  own: Tokens,
  reference: { readonly model: string; readonly prefill: number },
  storage: Storage | undefined,
): Either.Either<Estimate, PriceUnknown> =>
  Either.gen(function* () {
    const tokens = addTokens(own, { prefill: reference.prefill })
    const referenceCost = yield* costOf(prices, reference.model, { prefill: reference.prefill })
    const parts: Record<Kind | "storage", Money> = {
      prefill: (yield* costOf(prices, model, { prefill: own.prefill })) + referenceCost,
      cachedPrefill: yield* costOf(prices, model, { cachedPrefill: tokens.cachedPrefill }),
      sampled: yield* costOf(prices, model, { sampled: tokens.sampled }),
      trained: yield* costOf(prices, model, { trained: tokens.trained }),
      storage: storage === undefined ? 0n : storageCost(prices, storage),
    }
    const total = Object.values(parts).reduce((sum, part) => sum + part, 0n)
    return { model, tokens, total, parts, pricesOf: prices.date }
  })

/**
 * Estimates the cost of a supervised run.
 *
 * @example
 * ```ts
 * import { Either } from "effect"
 * import { Cost } from "effect-tinker"
 *
 * const estimate = Cost.estimateSupervised(Cost.listed, { model: "Qwen/Qwen3-8B", tokens: 4_000_000, epochs: 3 })
 * console.log(Either.getOrThrow(Either.map(estimate, ({ total }) => Cost.format(total)))) // → $5.28
 * ```
 *
 * @since 0.1.0
 * @category estimates
 */
export const estimateSupervised = (prices: Prices, run: SupervisedRun): Either.Either<Estimate, PriceUnknown> =>
  estimate(
    prices,
    run.model,
    addTokens({ ...noTokens, trained: run.tokens * (run.epochs ?? 1) }, evaluationTokens(run.evaluations)),
    { model: run.model, prefill: run.reference === true ? run.tokens : 0 },
    run.storage,
  )

/**
 * Estimates the cost of a run of reinforcement learning.
 *
 * @example
 * ```ts
 * import { Either } from "effect"
 * import { Cost } from "effect-tinker"
 *
 * const estimate = Cost.estimateRl(Cost.listed, {
 *   model: "Qwen/Qwen3-8B",
 *   steps: 100,
 *   groupsPerStep: 32,
 *   rolloutsPerGroup: 8,
 *   promptTokens: 200,
 *   answerTokens: 500,
 * })
 * const { parts, total } = Either.getOrThrow(estimate)
 * console.log(Cost.format(parts.prefill), Cost.format(parts.sampled), Cost.format(parts.trained)) // → $0.9984 $7.68 $7.88
 * console.log(Cost.format(total)) // → $16.56
 * ```
 *
 * @since 0.1.0
 * @category estimates
 */
export const estimateRl = (prices: Prices, run: RlRun): Either.Either<Estimate, PriceUnknown> => {
  const { answerTokens, cached = 0, observationTokens = 0, promptTokens, turns = 1, updatesPerStep = 1 } = run
  const rollouts = run.steps * run.groupsPerStep * run.rolloutsPerGroup
  /** The tokens that each later turn adds to its prompt. */
  const added = answerTokens + observationTokens
  const prompts = turns * promptTokens + (added * turns * (turns - 1)) / 2
  const whole = promptTokens + answerTokens + added * (turns - 1)
  const tokens: Tokens = {
    prefill: rollouts * prompts * (1 - cached),
    cachedPrefill: rollouts * prompts * cached,
    sampled: rollouts * turns * answerTokens,
    trained: rollouts * whole * updatesPerStep,
  }
  const reference = {
    model: typeof run.reference === "string" ? run.reference : run.model,
    prefill: run.reference === undefined || run.reference === false ? 0 : rollouts * whole,
  }
  return estimate(prices, run.model, addTokens(tokens, evaluationTokens(run.evaluations)), reference, run.storage)
}
