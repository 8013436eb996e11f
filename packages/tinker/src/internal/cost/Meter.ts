/** A meter counts the spending on each model, within a budget. */
import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import { format, type Money, usd } from "./Money.ts"
import type { Prices, PriceUnknown } from "./Prices.ts"
import type { Tokens } from "./Tokens.ts"

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
    /** Money that was spent, or may have been. */
    spentUsd: Schema.Number,
    /** The most that the operation could have cost. */
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
 * The spending so far.
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
  /** The most that the operation can cost. */
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
  /** Keeps the room used up: how much of the operation took place is unknown. */
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
  /** The scope of the fibers that observe results of submitted operations, awaited or not. */
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
  /** The spending of the run before it was continued. */
  readonly spentBefore?: Money | undefined
}
