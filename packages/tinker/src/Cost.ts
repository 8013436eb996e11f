/**
 * What training and sampling cost: prices as data, an estimate before a run, a meter and a budget during it, and a
 * comparison with the server's billing afterwards.
 *
 * Amounts of money are exact: whole picodollars (10⁻¹² USD) as bigint. A price of 0.195 USD per million tokens is 195,000
 * picodollars per token, so sums over any number of tokens have no rounding error.
 *
 * @since 0.1.0
 */
import * as Cause from "effect/Cause"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import type * as ApiFuture from "./ApiFuture.ts"
import type * as Checkpoint from "./Checkpoint.ts"
import type * as CustomLoss from "./CustomLoss.ts"
import type { Datum } from "./Datum.ts"
import * as Ledger from "./internal/cost/Ledger.ts"
import type * as Loss from "./Loss.ts"
import * as ModelInput from "./ModelInput.ts"
import type * as Optimizer from "./Optimizer.ts"
import type * as Billing from "./protocol/schemas/Billing.ts"
import type { SampleResult } from "./SampleResult.ts"
import type * as SamplingClient from "./SamplingClient.ts"
import type { FutureError, SubmitError, TinkerError, TrainingError } from "./TinkerError.ts"
import type * as TrainingClient from "./TrainingClient.ts"
import type { TrainingResult } from "./TrainingResult.ts"

// Money

/**
 * An amount of money in picodollars (10⁻¹² USD).
 *
 * @since 0.1.0
 * @category money
 */
export type Money = bigint

/**
 * Returns an amount in dollars as money. Digits beyond picodollars are rounded.
 *
 * @since 0.1.0
 * @category money
 */
export const usd = (dollars: number): Money => {
  // In two parts, because a float has not enough digits for a thousand dollars in picodollars.
  const micros = Math.trunc(dollars * 1e6)
  return BigInt(micros) * 1_000_000n + BigInt(Math.round((dollars * 1e6 - micros) * 1e6))
}

/**
 * Returns money in dollars, for display and metrics.
 *
 * @since 0.1.0
 * @category money
 */
export const toUsd = (money: Money): number => Number(money) / 1e12

/**
 * Formats money: whole cents from a dollar on, and more digits the less it is.
 *
 * @since 0.1.0
 * @category money
 */
export const format = (money: Money): string => {
  const dollars = toUsd(money)
  const size = Math.abs(dollars)
  return `$${dollars.toFixed(size >= 1 || size === 0 ? 2 : size >= 0.01 ? 4 : 6)}`
}

// Prices

/**
 * The prices of a model in USD per million tokens. A price that is not known is left out.
 *
 * @since 0.1.0
 * @category prices
 */
export const ModelPrice = Schema.Struct({
  prefill: Schema.optional(Schema.NonNegative),
  cachedPrefill: Schema.optional(Schema.NonNegative),
  sample: Schema.optional(Schema.NonNegative),
  train: Schema.optional(Schema.NonNegative),
})

/**
 * The type of {@link ModelPrice}.
 *
 * @since 0.1.0
 * @category prices
 */
export type ModelPrice = typeof ModelPrice.Type

/**
 * A price list, with the day and the place where it was read. It is plain JSON, so a newer one can come from a file.
 *
 * @since 0.1.0
 * @category prices
 */
export const Prices = Schema.Struct({
  /** The day on which the prices were valid, as `YYYY-MM-DD`. */
  date: Schema.String,
  source: Schema.String,
  /** By the name of the base model. `*` applies to models that are not listed. */
  models: Schema.Record({ key: Schema.String, value: ModelPrice }),
  /** USD per gigabyte (10⁹ bytes) and month of stored checkpoints. */
  storagePerGigabyteMonth: Schema.NonNegative,
})

/**
 * The type of {@link Prices}.
 *
 * @since 0.1.0
 * @category prices
 */
export type Prices = typeof Prices.Type

/**
 * Some list prices of the hosted service, without limited-time discounts. They change: compare them with the service's
 * page before you rely on them, or use {@link pricesFromUsage}.
 *
 * @since 0.1.0
 * @category prices
 */
export const listed: Prices = {
  date: "2026-10-07",
  source: "transcriptions of the page Models & Pricing of the Tinker documentation",
  models: {
    "Qwen/Qwen3-8B": { prefill: 0.195, cachedPrefill: 0.039, sample: 0.6, train: 0.44 },
    "Qwen/Qwen3.5-397B-A17B": { prefill: 3, cachedPrefill: 0.6, sample: 7.5 },
    "Qwen/Qwen3.6-27B": { prefill: 1.86, cachedPrefill: 0.372, sample: 5.595 },
    "Qwen/Qwen3.6-35B-A3B": { prefill: 0.54, cachedPrefill: 0.108, sample: 1.335 },
    "Qwen/Qwen3.8-27B": { prefill: 1.86, cachedPrefill: 0.372, sample: 5.595 },
    "thinkingmachines/Inkling": { prefill: 3.74, cachedPrefill: 0.374, sample: 9.36 },
    "thinkingmachines/Inkling-Small": { prefill: 1.16, cachedPrefill: 0.116, sample: 2.88 },
  },
  storagePerGigabyteMonth: 0.1,
}

/**
 * The price list of a server that charges nothing, e.g. a local one. The meter then still counts tokens.
 *
 * @since 0.1.0
 * @category prices
 */
export const free: Prices = {
  date: "always",
  source: "a server that charges nothing",
  models: { "*": { prefill: 0, cachedPrefill: 0, sample: 0, train: 0 } },
  storagePerGigabyteMonth: 0,
}

/**
 * Reads the prices that an account really pays from its billing rows. Models and kinds that the rows don't have are taken
 * from `fallback`.
 *
 * @since 0.1.0
 * @category prices
 */
export const pricesFromUsage = (usage: Billing.Usage, fallback: Prices = listed): Prices => {
  const models: Record<string, ModelPrice> = { ...fallback.models }
  let newest = ""
  for (const { baseModel, bucketEnd, effectiveRateUsdPerMillionTokens: rate, eventInfo } of usage.data) {
    const kind = kindOf(eventInfo)
    if (kind === undefined || Option.isNone(baseModel) || Option.isNone(rate)) continue
    const model = baseModel.value
    models[model] = { ...(Object.hasOwn(models, model) ? models[model] : {}), [priceOf[kind]]: rate.value }
    const day = new Date(bucketEnd.epochMillis).toISOString().slice(0, 10)
    if (day > newest) newest = day
  }
  return newest === "" ? fallback : { ...fallback, date: newest, source: "billing rows of the account", models }
}

/**
 * Reports that the price list lacks a price.
 *
 * @since 0.1.0
 * @category errors
 */
export class PriceUnknown extends Schema.TaggedError<PriceUnknown>("effect-tinker/Cost/PriceUnknown")("PriceUnknown", {
  model: Schema.String,
  kind: Schema.Literal("prefill", "cachedPrefill", "sample", "train"),
  date: Schema.String,
}) {
  /** @since 0.1.0 */
  override get message(): string {
    return `the price list of ${this.date} has no price for ${this.kind} of ${this.model}: add it to \`models\``
  }
}

// Tokens

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

type Kind = keyof Tokens

const kinds: ReadonlyArray<Kind> = ["prefill", "cachedPrefill", "sampled", "trained"]

const priceOf = { prefill: "prefill", cachedPrefill: "cachedPrefill", sampled: "sample", trained: "train" } as const

const kindOf = (info: Billing.UsageInfo): Kind | undefined => {
  switch (info.type) {
    case "training":
      return "trained"
    case "sampling_prefill":
      return "cached" in info && info.cached === true ? "cachedPrefill" : "prefill"
    case "sampling_sample":
      return "sampled"
    default:
      return undefined
  }
}

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

const modelPrice = ({ models }: Prices, model: string): ModelPrice =>
  (Object.hasOwn(models, model) ? models[model] : models["*"]) ?? {}

/** USD per million tokens are picodollars per token times a million. */
const perToken = (price: number): bigint => BigInt(Math.round(price * 1e6))

/**
 * Returns what tokens cost. Fails if a price that is needed is not in the list.
 *
 * @since 0.1.0
 * @category getters
 */
export const costOf = (prices: Prices, model: string, tokens: Partial<Tokens>): Either.Either<Money, PriceUnknown> => {
  const price = modelPrice(prices, model)
  let sum = 0n
  for (const kind of kinds) {
    const count = Math.ceil(tokens[kind] ?? 0)
    // A number that is none is refused by the client; here it must not change a sum.
    if (!(count > 0 && count < Number.MAX_SAFE_INTEGER)) continue
    const rate = price[priceOf[kind]]
    if (rate === undefined) return Either.left(new PriceUnknown({ model, kind: priceOf[kind], date: prices.date }))
    sum += perToken(rate) * BigInt(count)
  }
  return Either.right(sum)
}

/**
 * Returns what storing checkpoints costs.
 *
 * @since 0.1.0
 * @category getters
 */
export const storageCost = (prices: Prices, storage: Storage): Money =>
  usd((prices.storagePerGigabyteMonth * storage.bytes * (storage.months ?? 1)) / 1e9)

/**
 * Returns the number of tokens of a prompt or of a datum's input. Images and audio of unknown length count as 0.
 *
 * @since 0.1.0
 * @category getters
 */
export const tokensIn = (input: ModelInput.Input): number =>
  input instanceof ModelInput.ModelInput ? Option.getOrElse(ModelInput.length(input), () => 0) : input.length

const tokensOf = (data: ReadonlyArray<{ readonly modelInput: ModelInput.Input }>): number =>
  data.reduce((sum, { modelInput }) => sum + tokensIn(modelInput), 0)

// Estimates

/**
 * Checkpoints that are kept.
 *
 * @since 0.1.0
 * @category estimates
 */
export interface Storage {
  /** The size of all of them together. */
  readonly bytes: number
  /**
   * How long they are kept.
   *
   * @default 1
   */
  readonly months?: number | undefined
}

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
  /** Whether a reference model computes the log probabilities of each rollout, for a KL penalty. */
  readonly reference?: boolean | undefined
  readonly evaluations?: Evaluations | undefined
  readonly storage?: Storage | undefined
}

/**
 * What a run will cost.
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

const estimate = (
  prices: Prices,
  model: string,
  tokens: Tokens,
  storage: Storage | undefined,
): Either.Either<Estimate, PriceUnknown> =>
  Either.gen(function* () {
    const parts: Record<Kind | "storage", Money> = {
      prefill: yield* costOf(prices, model, { prefill: tokens.prefill }),
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
  /** What the prompts of later turns have more than those before. */
  const added = answerTokens + observationTokens
  const prompts = turns * promptTokens + (added * turns * (turns - 1)) / 2
  const whole = promptTokens + answerTokens + added * (turns - 1)
  const tokens: Tokens = {
    prefill: rollouts * (prompts * (1 - cached) + (run.reference === true ? whole : 0)),
    cachedPrefill: rollouts * prompts * cached,
    sampled: rollouts * turns * answerTokens,
    trained: rollouts * whole * updatesPerStep,
  }
  return estimate(prices, run.model, addTokens(tokens, evaluationTokens(run.evaluations)), run.storage)
}

// Meter

/**
 * Reports that an operation was not begun because it could exceed the budget.
 *
 * @since 0.1.0
 * @category errors
 */
export class BudgetExceeded extends Schema.TaggedError<BudgetExceeded>("effect-tinker/Cost/BudgetExceeded")(
  "BudgetExceeded",
  {
    limitUsd: Schema.Number,
    /** What was spent, or may have been. */
    spentUsd: Schema.Number,
    /** What the operation could have cost. */
    nextUsd: Schema.Number,
  },
) {
  /** @since 0.1.0 */
  override get message(): string {
    const [limit, spent, next] = [this.limitUsd, this.spentUsd, this.nextUsd].map((amount) => format(usd(amount)))
    return `the budget of ${limit} is used up: ${spent} are spent, and the next operation may cost ${next}`
  }
}

/**
 * What has been spent so far.
 *
 * @since 0.1.0
 * @category models
 */
export interface Spending {
  /** The cost of everything whose result has arrived, and what was spent before this meter was made. */
  readonly spent: Money
  /** The most that operations may have cost whose end is unknown: failed underway, or interrupted. */
  readonly unconfirmed: Money
  /** The most that the operations in flight can cost. */
  readonly inFlight: Money
  /** The tokens of `spent`, by model; without those that were spent before. */
  readonly tokens: Readonly<Record<string, Tokens>>
}

/**
 * An operation that wants to begin and does not fit the budget.
 *
 * @since 0.1.0
 * @category models
 */
export interface Question {
  readonly limit: Money
  readonly spent: Money
  /** What the operation can cost. */
  readonly next: Money
}

/**
 * A limit, and what happens before it is exceeded: `stop` fails with {@link BudgetExceeded}, `pause` waits until
 * `setLimit` raises the limit, and a function is asked for a new limit, or undefined to stop. While it is asked, no
 * other operation begins.
 *
 * @since 0.1.0
 * @category models
 */
export interface Budget {
  readonly limit: Money
  readonly onLimit: "stop" | "pause" | ((question: Question) => Effect.Effect<Money | undefined>)
}

/**
 * Room in the budget for an operation that is about to begin. Exactly one of its effects is used, once.
 *
 * @since 0.1.0
 * @category models
 */
export interface Reservation {
  /** Replaces the most that the operation could cost by what it did cost. */
  readonly settle: (tokens: Partial<Tokens>) => Effect.Effect<void>
  /** Gives the room back: the operation did not take place. */
  readonly release: Effect.Effect<void>
  /** Keeps the room used up: nobody knows how much of the operation took place. */
  readonly abandon: Effect.Effect<void>
}

/**
 * The spending on one model.
 *
 * @since 0.1.0
 * @category models
 */
export interface Account<E> {
  readonly model: string
  /**
   * Waits until the most that an operation can cost fits the budget. With `isExact` the operation costs just that, so
   * waiting for its end would not make room.
   */
  readonly reserve: (
    most: Partial<Tokens>,
    options?: { readonly isExact?: boolean | undefined },
  ) => Effect.Effect<Reservation, E>
  /** Runs an effect within the budget, and counts the tokens of its result. */
  readonly spend: <A, E2, R>(
    most: Partial<Tokens>,
    effect: Effect.Effect<A, E2, R>,
    tokensOf: (result: A) => Partial<Tokens>,
  ) => Effect.Effect<A, E | E2, R>
}

/**
 * Counts what is spent, and keeps it within a budget if it has one. `E` is {@link BudgetExceeded}, or never without a
 * budget.
 *
 * @since 0.1.0
 * @category models
 */
export interface Service<E = BudgetExceeded> {
  readonly spending: Effect.Effect<Spending>
  /** Returns dollars and tokens as metrics of a step: `cost/usd`, `cost/tokens_trained`, and so on. */
  readonly metrics: Effect.Effect<Readonly<Record<string, number>>>
  /** Opens the account of a model. Fails if a price that `uses` needs is missing. */
  readonly account: (model: string, uses: "training" | "sampling") => Effect.Effect<Account<E>, PriceUnknown>
  /** Changes the limit of the budget; operations that wait for it are checked again. */
  readonly setLimit: (limit: Money) => Effect.Effect<void>
  /** The scope of the fibers that observe results which nobody awaits. */
  readonly scope: Scope.Scope
}

/**
 * The service tag of a meter.
 *
 * @since 0.1.0
 * @category tags
 */
export class Meter extends Context.Tag("effect-tinker/Cost/Meter")<Meter, Service>() {}

/**
 * Options of a meter.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  readonly prices: Prices
  readonly budget?: Budget | undefined
  /** What the run has spent before, if it is continued. */
  readonly spentBefore?: Money | undefined
}

/** The tokens whose prices an account needs. */
const needed = {
  training: { trained: 1 },
  sampling: { prefill: 1, cachedPrefill: 1, sampled: 1 },
} as const

/** Refused before or on arrival: nothing was computed. */
const didNothing = (error: unknown): boolean => {
  const tag = typeof error === "object" && error !== null && "_tag" in error ? error._tag : undefined
  return ["InvalidInput", "RequestRejected", "NotFound", "Unauthorized", "Forbidden"].some((name) => tag === name)
}

/**
 * Creates a meter. What was reserved and never settled when the scope closes counts as unconfirmed.
 *
 * @example
 * ```ts
 * import { Console, Effect } from "effect"
 * import { Cost, ServiceClient } from "effect-tinker"
 * import { NodeTinker } from "@effect-tinker/node"
 *
 * const prices = { ...Cost.free, models: { "*": { prefill: 1, cachedPrefill: 0.1, sample: 2, train: 3 } } }
 *
 * const program = Effect.gen(function* () {
 *   const service = yield* ServiceClient.ServiceClient
 *   const meter = yield* Cost.make({ prices, budget: { limit: Cost.usd(0.0001), onLimit: "stop" } })
 *   const model = "effect-tinker/valley-1.5m"
 *   const sampler = yield* Cost.sampling(meter, yield* service.createSamplingClient({ baseModel: model }), model)
 *   const request = { prompt: [10, 20, 30, 40], params: { maxTokens: 10, stop: [] } }
 *   yield* Effect.forever(sampler.sample(request)).pipe(
 *     Effect.catchTag("BudgetExceeded", ({ message }) => Console.log(message)),
 *   )
 *   // → the budget of $0.000100 is used up: $0.000096 are spent, and the next operation may cost $0.000024
 *   const { spent, tokens } = yield* meter.spending
 *   yield* Console.log(Cost.toUsd(spent), tokens[model]?.sampled) // → 0.000096 40
 * })
 *
 * await Effect.runPromise(program.pipe(Effect.scoped, Effect.provide(NodeTinker.layerConfig())))
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const make: {
  (options: Options & { readonly budget: Budget }): Effect.Effect<Service<BudgetExceeded>, never, Scope.Scope>
  (options: Options & { readonly budget?: undefined }): Effect.Effect<Service<never>, never, Scope.Scope>
  (options: Options): Effect.Effect<Service<BudgetExceeded>, never, Scope.Scope>
} = ({ budget, prices, spentBefore = 0n }: Options): Effect.Effect<Service<never>, never, Scope.Scope> =>
  Effect.gen(function* () {
    const scope = yield* Effect.scope
    const ledger = new Ledger.Ledger(spentBefore, budget?.limit)
    const tokens = new Map<string, Tokens>()
    /** Only the first in line is checked, so that operations begin in the order in which they came. */
    const gate = yield* Effect.makeSemaphore(1)
    let changed = yield* Deferred.make<void>()
    const notify = Effect.flatMap(Deferred.make<void>(), (next) => {
      const before = changed
      changed = next
      return Deferred.succeed(before, undefined)
    })
    /** Prices were checked when the account was opened. */
    const moneyOf = (model: string, counts: Partial<Tokens>) =>
      Either.getOrElse(costOf(prices, model, counts), () => 0n)

    /** Waits, asks or fails until the amount fits. What it returns is already reserved. */
    const admit = (next: Money, isExact: boolean): Effect.Effect<void, BudgetExceeded> =>
      Effect.suspend(() => {
        const wait = Deferred.await(changed)
        switch (ledger.reserve(next, isExact)) {
          case "reserved":
            return Effect.void
          case "later":
            return Effect.zipRight(wait, admit(next, isExact))
          case "over": {
            if (budget?.onLimit === "pause") return Effect.zipRight(wait, admit(next, isExact))
            const question = { limit: ledger.limit ?? 0n, spent: ledger.committed, next }
            const stop = new BudgetExceeded({
              limitUsd: toUsd(question.limit),
              spentUsd: toUsd(question.spent),
              nextUsd: toUsd(next),
            })
            if (budget === undefined || budget.onLimit === "stop") return Effect.fail(stop)
            return Effect.flatMap(budget.onLimit(question), (limit) => {
              if (limit === undefined) return Effect.fail(stop)
              ledger.limit = limit
              return admit(next, isExact)
            })
          }
        }
      })

    const account = (model: string): Account<BudgetExceeded> => {
      const reserve: Account<BudgetExceeded>["reserve"] = (most, { isExact = false } = {}) =>
        Effect.suspend(() => {
          const amount = moneyOf(model, most)
          let isOpen = true
          const end = (close: () => void) =>
            Effect.suspend(() => {
              if (!isOpen) return Effect.void
              isOpen = false
              close()
              return Effect.asVoid(notify)
            })
          const reservation: Reservation = {
            settle: (counts) =>
              end(() => {
                tokens.set(model, addTokens(tokens.get(model) ?? noTokens, counts))
                ledger.settle(amount, isExact, moneyOf(model, counts))
              }),
            release: end(() => ledger.settle(amount, isExact, 0n)),
            abandon: end(() => ledger.abandon(amount, isExact)),
          }
          return Effect.as(gate.withPermits(1)(admit(amount, isExact)), reservation)
        })
      return {
        model,
        reserve,
        spend: (most, effect, tokensOf) =>
          Effect.uninterruptibleMask((restore) =>
            Effect.flatMap(interruptibleAdmission(restore, reserve(most)), (reservation) =>
              Effect.onExit(restore(effect), (exit) => settleExit(reservation, exit, tokensOf)),
            ),
          ),
      }
    }

    const service: Service<BudgetExceeded> = {
      spending: Effect.sync(() => ({
        spent: ledger.spent,
        unconfirmed: ledger.unconfirmed,
        inFlight: ledger.inFlight,
        tokens: Object.fromEntries(tokens),
      })),
      metrics: Effect.sync(() => {
        const all = [...tokens.values()].reduce(addTokens, noTokens)
        return {
          "cost/usd": toUsd(ledger.spent + ledger.unconfirmed),
          "cost/tokens_trained": all.trained,
          "cost/tokens_sampled": all.sampled,
          "cost/tokens_prefilled": all.prefill,
          "cost/tokens_cached": all.cachedPrefill,
        }
      }),
      account: (model, uses) => Effect.as(costOf(prices, model, needed[uses]), account(model)),
      setLimit: (limit) =>
        Effect.suspend(() => {
          ledger.limit = limit
          return Effect.asVoid(notify)
        }),
      scope,
    }
    // Without a budget nothing is refused.
    return service as unknown as Service<never>
  })

/** Waiting for room can be interrupted; a reservation that was made is never lost. */
const interruptibleAdmission = <E>(
  restore: <A, E2, R>(effect: Effect.Effect<A, E2, R>) => Effect.Effect<A, E2, R>,
  reserve: Effect.Effect<Reservation, E>,
): Effect.Effect<Reservation, E> =>
  Effect.suspend(() => {
    let made: Reservation | undefined
    return Effect.onInterrupt(
      restore(
        Effect.tap(reserve, (reservation) =>
          Effect.sync(() => {
            made = reservation
          }),
        ),
      ),
      () => Effect.suspend(() => made?.release ?? Effect.void),
    )
  })

const settleExit = <A, E>(
  reservation: Reservation,
  exit: Exit.Exit<A, E>,
  tokensOf: (result: A) => Partial<Tokens>,
): Effect.Effect<void> =>
  Exit.match(exit, {
    onSuccess: (result) => reservation.settle(tokensOf(result)),
    onFailure: (cause) =>
      Option.exists(Cause.failureOption(cause), didNothing) ? reservation.release : reservation.abandon,
  })

/**
 * Provides a meter. The layer is fresh: each use counts on its own.
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = (options: Options): Layer.Layer<Meter> => Layer.fresh(Layer.scoped(Meter, make(options)))

// Clients

/**
 * A sampling client whose samples are counted, and begun only within the budget.
 *
 * @since 0.1.0
 * @category clients
 */
export interface Sampling<E> extends Omit<SamplingClient.Service, "sample" | "computeLogprobs" | "submit"> {
  readonly sample: (
    request: SamplingClient.Request,
    options?: SamplingClient.SampleOptions,
  ) => Effect.Effect<SampleResult, FutureError | E>
  readonly computeLogprobs: (
    prompt: ModelInput.Input,
    options?: SamplingClient.SampleOptions & { readonly lastN?: number | undefined },
  ) => Effect.Effect<Float32Array, FutureError | E>
  readonly submit: {
    readonly sample: (
      request: SamplingClient.Request,
      options?: SamplingClient.SampleOptions,
    ) => Effect.Effect<ApiFuture.ApiFuture<SampleResult>, FutureError | E>
  }
}

/** The most that a sample can take. Without a limit of its length nothing is known of the answer. */
const most = ({ numSamples = 1, params, prompt }: SamplingClient.Request): Partial<Tokens> => ({
  prefill: tokensIn(prompt),
  sampled: numSamples * (params?.maxTokens ?? 0),
})

/** Callers without types may pass anything. A request that the client is going to refuse counts as nothing. */
const mostOf = (request: SamplingClient.Request): Partial<Tokens> =>
  Option.getOrElse(Option.liftThrowable(most)(request), () => ({}))

const sampledTokens = (
  prompt: ModelInput.Input,
  { promptCacheHitTokens, sequences }: SampleResult,
): Partial<Tokens> => {
  const length = tokensIn(prompt)
  const cachedPrefill = Math.min(length, promptCacheHitTokens)
  return {
    prefill: length - cachedPrefill,
    cachedPrefill,
    sampled: sequences.reduce((sum, { tokens }) => sum + tokens.length, 0),
  }
}

const meteredSampling = <E>(
  { scope }: Service<E>,
  client: SamplingClient.Service,
  account: Account<E>,
): Sampling<E> => ({
  ...client,
  sample: (request, options) =>
    account.spend(mostOf(request), client.sample(request, options), (result) => sampledTokens(request.prompt, result)),
  computeLogprobs: (prompt, options) => {
    // The server samples one token, because it can't sample none.
    const most = mostOf({ prompt, params: { maxTokens: 1 } })
    return account.spend(most, client.computeLogprobs(prompt, options), () => most)
  },
  submit: {
    sample: (request, options) =>
      observed(account, mostOf(request), scope, client.submit.sample(request, options), (result: SampleResult) =>
        sampledTokens(request.prompt, result),
      ),
  },
})

/** Submits an operation whose result may be awaited by nobody: a fiber observes it. */
const observed = <H extends { readonly await: Effect.Effect<A, unknown> }, A, E, E2, R>(
  account: Account<E>,
  most: Partial<Tokens>,
  scope: Scope.Scope,
  submit: Effect.Effect<H, E2, R>,
  tokensOf: (result: A) => Partial<Tokens>,
  isExact = false,
): Effect.Effect<H, E | E2, R> =>
  Effect.uninterruptibleMask((restore) =>
    Effect.flatMap(interruptibleAdmission(restore, account.reserve(most, { isExact })), (reservation) =>
      Effect.matchCauseEffect(restore(submit), {
        onFailure: (cause) =>
          Effect.zipRight(settleExit(reservation, Exit.failCause(cause), tokensOf), Effect.failCause(cause)),
        onSuccess: (handle) =>
          Effect.interruptible(handle.await).pipe(
            Effect.onExit((exit) => settleExit(reservation, exit, tokensOf)),
            Effect.ignore,
            Effect.forkIn(scope),
            Effect.as(handle),
          ),
      }),
    ),
  )

/**
 * Counts the samples of a client. `model` is the base model of its weights.
 *
 * @since 0.1.0
 * @category clients
 */
export const sampling = <E>(
  meter: Service<E>,
  client: SamplingClient.Service,
  model: string,
): Effect.Effect<Sampling<E>, PriceUnknown> =>
  Effect.map(meter.account(model, "sampling"), (account) => meteredSampling(meter, client, account))

type Passes = "forward" | "forwardBackward" | "forwardBackwardCustom"

/**
 * A training client whose passes are counted, and begun only within the budget. Passes have no `submit` form; its
 * sampling clients are counted as well.
 *
 * @since 0.1.0
 * @category clients
 */
export interface Training<E> extends Omit<
  TrainingClient.Service,
  | Passes
  | "trainStep"
  | "trainSteps"
  | "enqueue"
  | "submit"
  | "createSamplingClient"
  | "saveWeightsAndGetSamplingClient"
> {
  readonly forward: <Inputs, D extends Datum<NoInfer<Inputs>>>(
    data: TrainingClient.Data<Inputs, D>,
    loss: Loss.Loss<Inputs>,
    options?: TrainingClient.RequestOptions,
  ) => Effect.Effect<TrainingResult, TrainingError | E>
  readonly forwardBackward: Training<E>["forward"]
  readonly forwardBackwardCustom: <I extends CustomLoss.Inputs, E2, R>(
    data: ReadonlyArray<Datum<I>>,
    loss: CustomLoss.CustomLoss<I, E2, R>,
    options?: TrainingClient.RequestOptions,
  ) => Effect.Effect<TrainingResult, TrainingError | E | E2, R>
  readonly trainStep: {
    <Inputs, D extends Datum<NoInfer<Inputs>>>(
      data: TrainingClient.Data<Inputs, D>,
      loss: Loss.Loss<Inputs>,
      optimizer: Optimizer.Optimizer,
      options?: TrainingClient.RequestOptions,
    ): Effect.Effect<TrainingClient.Step, TrainingError | TrainingClient.StepFailed | E>
    <I extends CustomLoss.Inputs, E2, R>(
      data: ReadonlyArray<Datum<I>>,
      loss: CustomLoss.CustomLoss<I, E2, R>,
      optimizer: Optimizer.Optimizer,
      options?: TrainingClient.RequestOptions,
    ): Effect.Effect<TrainingClient.Step, TrainingError | TrainingClient.StepFailed | E | E2, R>
  }
  readonly trainSteps: {
    <Inputs, P = void, E2 = never, R2 = never>(
      loss: Loss.Loss<Inputs>,
      optimizer: Optimizer.Optimizer | Optimizer.Schedule<Optimizer.Optimizer>,
      options?: TrainingClient.StepsOptions<P, E2, R2>,
    ): <D extends Datum<NoInfer<Inputs>>, E3, R>(
      batches: Stream.Stream<TrainingClient.Data<Inputs, D>, E3, R>,
    ) => Stream.Stream<TrainingClient.PlacedStep<P>, E | E2 | E3 | TrainingError | TrainingClient.StepFailed, R | R2>
    <I extends CustomLoss.Inputs, E1, R1, P = void, E2 = never, R2 = never>(
      loss: CustomLoss.CustomLoss<I, E1, R1>,
      optimizer: Optimizer.Optimizer | Optimizer.Schedule<Optimizer.Optimizer>,
      options?: TrainingClient.StepsOptions<P, E2, R2>,
    ): <E3, R>(
      batches: Stream.Stream<ReadonlyArray<Datum<I>>, E3, R>,
    ) => Stream.Stream<
      TrainingClient.PlacedStep<P>,
      E | E1 | E2 | E3 | TrainingError | TrainingClient.StepFailed,
      R | R1 | R2
    >
  }
  readonly enqueue: Omit<TrainingClient.Calls<"enqueue">, Passes> & {
    readonly forward: <Inputs, D extends Datum<NoInfer<Inputs>>>(
      data: TrainingClient.Data<Inputs, D>,
      loss: Loss.Loss<Inputs>,
      options?: TrainingClient.RequestOptions,
    ) => Effect.Effect<TrainingClient.Ticket<TrainingResult>, SubmitError | E>
    readonly forwardBackward: Training<E>["enqueue"]["forward"]
  }
  readonly submit: Omit<TrainingClient.Calls<"submit">, Passes>
  readonly createSamplingClient: (
    modelPath: Checkpoint.Input,
    options?: SamplingClient.Options,
  ) => Effect.Effect<Sampling<E>, TinkerError | PriceUnknown, Scope.Scope>
  readonly saveWeightsAndGetSamplingClient: (
    options?: SamplingClient.Options,
  ) => Effect.Effect<Sampling<E>, TrainingError | PriceUnknown, Scope.Scope>
}

/** How often each token of a step is computed: a custom loss needs a forward pass before the other. */
const passesOf = (loss: object): number => ("evaluate" in loss ? 2 : 1)

/**
 * Counts the passes of a training client. `model` is its base model. Forward passes count like those with gradients.
 *
 * @since 0.1.0
 * @category clients
 */
export const training = <E>(
  meter: Service<E>,
  client: TrainingClient.Service,
  model: string,
): Effect.Effect<Training<E>, PriceUnknown> =>
  Effect.map(meter.account(model, "training"), (account) => {
    const counted = <A, E2, R>(
      data: unknown,
      passes: number,
      effect: Effect.Effect<A, E2, R>,
    ): Effect.Effect<A, E | E2, R> => {
      const trained = passes * countOf(data)
      return Effect.uninterruptibleMask((restore) =>
        Effect.flatMap(
          interruptibleAdmission(restore, account.reserve({ trained }, { isExact: true })),
          (reservation) => Effect.onExit(restore(effect), (exit) => settleExit(reservation, exit, () => ({ trained }))),
        ),
      )
    }
    type AnyPass<A> = (data: unknown, loss: object, options: unknown) => Effect.Effect<A>
    // The types of a pass relate its data to its loss; to count, its data suffice.
    const pass =
      (form: Passes, passes: number): AnyPass<TrainingResult> =>
      (data, loss, options) =>
        counted(
          data,
          passes,
          (client[form] as unknown as AnyPass<TrainingResult>)(data, loss, options),
        ) as Effect.Effect<TrainingResult>
    const enqueued =
      (form: "forward" | "forwardBackward"): AnyPass<TrainingClient.Ticket<TrainingResult>> =>
      (data, loss, options) => {
        const trained = countOf(data)
        const enqueue = client.enqueue[form] as unknown as AnyPass<TrainingClient.Ticket<TrainingResult>>
        return observed(
          account,
          { trained },
          meter.scope,
          enqueue(data, loss, options),
          () => ({ trained }),
          true,
        ) as Effect.Effect<TrainingClient.Ticket<TrainingResult>>
      }
    type AnyStep = (data: unknown, loss: object, ...rest: ReadonlyArray<unknown>) => Effect.Effect<TrainingClient.Step>
    type AnySteps = (
      loss: object,
      ...rest: ReadonlyArray<unknown>
    ) => (batches: Stream.Stream<unknown, E>) => Stream.Stream<TrainingClient.PlacedStep<unknown>, E>
    // The overloads of a client differ in their types only.
    const trainStep = client.trainStep as unknown as AnyStep
    const trainSteps = client.trainSteps as unknown as AnySteps
    const meteredStep: AnyStep = (data, loss, ...rest) =>
      counted(data, passesOf(loss), trainStep(data, loss, ...rest)) as Effect.Effect<TrainingClient.Step>
    const meteredSteps: AnySteps =
      (loss, ...rest) =>
      (batches) =>
        Stream.suspend(() => {
          /** Of the steps that are underway, oldest first. */
          const open: Array<{ readonly reservation: Reservation; readonly trained: number }> = []
          const admitted = Stream.mapEffect(batches, (batch) => {
            const trained = passesOf(loss) * countOf(batch)
            return Effect.uninterruptibleMask((restore) =>
              Effect.map(
                interruptibleAdmission(restore, account.reserve({ trained }, { isExact: true })),
                (reservation) => {
                  open.push({ reservation, trained })
                  return batch
                },
              ),
            )
          })
          return trainSteps(
            loss,
            ...rest,
          )(admitted).pipe(
            Stream.tap(() =>
              Effect.suspend(() => {
                const oldest = open.shift()
                return oldest?.reservation.settle({ trained: oldest.trained }) ?? Effect.void
              }),
            ),
            Stream.ensuring(
              Effect.suspend(() => Effect.forEach(open.splice(0), ({ reservation }) => reservation.abandon)),
            ),
          )
        })
    const sampler = (made: SamplingClient.Service) => sampling(meter, made, model)
    return {
      ...client,
      forward: pass("forward", 1) as unknown as Training<E>["forward"],
      forwardBackward: pass("forwardBackward", 1) as unknown as Training<E>["forwardBackward"],
      forwardBackwardCustom: pass("forwardBackwardCustom", 2) as unknown as Training<E>["forwardBackwardCustom"],
      trainStep: meteredStep as unknown as Training<E>["trainStep"],
      trainSteps: meteredSteps as unknown as Training<E>["trainSteps"],
      enqueue: {
        ...client.enqueue,
        forward: enqueued("forward") as unknown as Training<E>["enqueue"]["forward"],
        forwardBackward: enqueued("forwardBackward") as unknown as Training<E>["enqueue"]["forward"],
      },
      createSamplingClient: (path, options) => Effect.flatMap(client.createSamplingClient(path, options), sampler),
      saveWeightsAndGetSamplingClient: (options) =>
        Effect.flatMap(client.saveWeightsAndGetSamplingClient(options), sampler),
    }
  })

/** Callers without types may pass anything. Data that the client is going to refuse count as nothing. */
const countOf = (data: unknown): number =>
  Option.getOrElse(Option.liftThrowable(tokensOf)(data as ReadonlyArray<Datum<unknown>>), () => 0)

// Reconciliation

/**
 * A kind of usage of a model, as the meter and the server counted it.
 *
 * @since 0.1.0
 * @category reconciliation
 */
export interface Difference {
  readonly model: string
  readonly kind: keyof Tokens
  readonly metered: number
  readonly billed: number
}

/**
 * The meter compared with the server's billing rows.
 *
 * @since 0.1.0
 * @category reconciliation
 */
export interface Reconciliation {
  /** Whether the server billed exactly the tokens that were metered. */
  readonly isExact: boolean
  /** All kinds of usage of all models, equal or not. */
  readonly rows: ReadonlyArray<Difference>
  /** What the server charges for the rows, as far as they say. */
  readonly billed: Money
  /** What the meter counted, without operations of unknown end. */
  readonly metered: Money
}

/**
 * Compares what a meter counted with the server's billing rows. With `sessionIds`, only the rows of these sessions count;
 * else all do. The server may bill what the meter never saw: work of other programs, samples that were lost and
 * submitted again, or operations that were interrupted.
 *
 * @example
 * ```ts
 * import { Console, Effect } from "effect"
 * import { AdminClient, Cost, ServiceClient } from "effect-tinker"
 * import { NodeTinker } from "@effect-tinker/node"
 *
 * const program = Effect.gen(function* () {
 *   const model = "effect-tinker/valley-1.5m"
 *   const startingOn = new Date()
 *   const service = yield* ServiceClient.ServiceClient
 *   const meter = yield* Cost.make({ prices: Cost.free })
 *   const client = yield* service.createLoraTrainingClient({ baseModel: model, rank: 8 })
 *   const training = yield* Cost.training(meter, client, model)
 *   const sampler = yield* training.saveWeightsAndGetSamplingClient()
 *   yield* sampler.sample({ prompt: [10, 20, 30], params: { maxTokens: 8 }, numSamples: 4 })
 *
 *   const admin = yield* AdminClient.AdminClient
 *   const usage = yield* admin.getBillingUsage({ startingOn, endingBefore: new Date(Date.now() + 1_000) })
 *   const { isExact } = Cost.reconcile(yield* meter.spending, usage, { sessionIds: [client.session.id] })
 *   yield* Console.log(isExact) // → true
 * })
 *
 * await Effect.runPromise(program.pipe(Effect.scoped, Effect.provide(NodeTinker.layerConfig())))
 * ```
 *
 * @since 0.1.0
 * @category reconciliation
 */
export const reconcile = (
  spending: Spending,
  usage: Billing.Usage,
  options: { readonly sessionIds?: ReadonlyArray<string> | undefined } = {},
): Reconciliation => {
  const sessions = options.sessionIds === undefined ? undefined : new Set(options.sessionIds)
  const rows = usage.data.filter(
    ({ sessionId }) => sessions === undefined || Option.exists(sessionId, (id) => sessions.has(id)),
  )
  const billed = new Map<string, Tokens>()
  for (const { baseModel, eventInfo } of rows) {
    const kind = kindOf(eventInfo)
    if (kind === undefined) continue
    const model = Option.getOrElse(baseModel, () => "")
    const count = "tokenCount" in eventInfo ? Number(eventInfo.tokenCount) : 0
    billed.set(model, addTokens(billed.get(model) ?? noTokens, { [kind]: count }))
  }
  const models = [...new Set([...Object.keys(spending.tokens), ...billed.keys()])]
  const differences = models.flatMap((model) =>
    kinds.map((kind) => ({
      model,
      kind,
      metered: spending.tokens[model]?.[kind] ?? 0,
      billed: billed.get(model)?.[kind] ?? 0,
    })),
  )
  return {
    isExact: differences.every((row) => row.billed === row.metered),
    rows: differences,
    billed: rows.reduce((sum, row) => sum + usd(Option.getOrElse(row.estimatedCostUsd, () => 0)), 0n),
    metered: spending.spent,
  }
}
