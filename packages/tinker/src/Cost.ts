/**
 * The cost of training and sampling: prices as data, an estimate before a run, a meter and a budget during it, and a
 * comparison with the server's billing afterwards.
 *
 * Amounts of money are exact: whole picodollars (10⁻¹² USD) as bigint. A price of 0.195 USD per million tokens is 195,000
 * picodollars per token, so sums over any number of tokens have no rounding error.
 *
 * @since 0.1.0
 */
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Layer from "effect/Layer"
import type * as Scope from "effect/Scope"
import { interruptibleAdmission, settleExit } from "./internal/cost/Admission.ts"
import * as Ledger from "./internal/cost/Ledger.ts"
import {
  type Account,
  type Budget,
  BudgetExceeded,
  Meter,
  type Options,
  type Reservation,
  type Service,
} from "./internal/cost/Meter.ts"
import { type Money, toUsd } from "./internal/cost/Money.ts"
import { costOf } from "./internal/cost/Prices.ts"
import { addTokens, noTokens, type Tokens } from "./internal/cost/Tokens.ts"

export * from "./internal/cost/Clients.ts"
export * from "./internal/cost/Estimate.ts"
export * from "./internal/cost/Meter.ts"
export * from "./internal/cost/Money.ts"
export * from "./internal/cost/Prices.ts"
export * from "./internal/cost/Reconcile.ts"
export * from "./internal/cost/Tokens.ts"

/** The tokens whose prices an account needs. */
const needed = {
  training: { trained: 1 },
  sampling: { prefill: 1, cachedPrefill: 1, sampled: 1 },
} as const

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

/**
 * Provides a meter. The layer is fresh: each use counts on its own.
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = (options: Options): Layer.Layer<Meter> => Layer.fresh(Layer.scoped(Meter, make(options)))
