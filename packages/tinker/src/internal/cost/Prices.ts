/** Prices as data, and what tokens and storage cost by them. */
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type * as Billing from "../../protocol/schemas/Billing.ts"
import { kindOf, kinds, priceOf } from "./Kinds.ts"
import { type Money, usd } from "./Money.ts"
import type { Tokens } from "./Tokens.ts"

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
 * Returns what storing checkpoints costs.
 *
 * @since 0.1.0
 * @category getters
 */
export const storageCost = (prices: Prices, storage: Storage): Money =>
  usd((prices.storagePerGigabyteMonth * storage.bytes * (storage.months ?? 1)) / 1e9)
