/** Tracks the spending of a run: metered clients, a budget that stops the run, and a record that survives a crash. */
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import * as Cost from "effect-tinker/Cost"
import type { Datum } from "effect-tinker/Datum"
import type * as SamplingClient from "effect-tinker/SamplingClient"
import { InvalidInput } from "effect-tinker/TinkerError"
import type * as TrainingClient from "effect-tinker/TrainingClient"
import type { RunStoreFailed } from "../RunError.ts"
import type { Metrics } from "../RunEvent.ts"
import type { Service as Store } from "../RunStore.ts"
import * as Stored from "./Stored.ts"

/** The prices of a run's model, and how much the run may spend. */
export interface CostOptions {
  readonly prices: Cost.Prices
  /**
   * The run stops before it spends more, counted from its start over all processes. Continue it with a higher budget.
   */
  readonly budget?: Cost.Money | undefined
}

export interface Spending {
  /** Waits until the budget does not allow an operation. */
  readonly exceeded: Effect.Effect<Cost.BudgetExceeded>
  /** Why the budget has stopped the run, if it has. */
  readonly stoppedBy: Effect.Effect<Option.Option<Cost.BudgetExceeded>>
  /**
   * Counts the samples of a client, by default at the prices of the run's model. One that does not fit the budget stops
   * the run and never begins.
   */
  readonly sampling: (client: SamplingClient.Service, baseModel?: string) => Effect.Effect<SamplingClient.Service>
  /** Reserves the cost of passes over a batch. If it does not fit the budget, the run stops and this never completes. */
  readonly reserve: (data: ReadonlyArray<Datum<unknown>>, passes: number) => Effect.Effect<Reserved>
  /** Counts a step that a previous process has made, unless that process has counted it. */
  readonly countAgain: (
    step: number,
    data: ReadonlyArray<Datum<unknown>>,
    passes: number,
  ) => Effect.Effect<void, RunStoreFailed>
  /** `cost/usd` and the tokens, since the start of the run. */
  readonly metrics: Effect.Effect<Metrics>
}

/** Room in the budget for a step. */
export interface Reserved {
  readonly made: (step: number) => Effect.Effect<void, RunStoreFailed>
  /** The step was not sent. */
  readonly release: Effect.Effect<void>
}

const file = "spending.json"

const tokenCounts = Schema.Struct({
  prefill: Schema.Number,
  cachedPrefill: Schema.Number,
  sampled: Schema.Number,
  trained: Schema.Number,
})

/** In picodollars, with the number of the last step that was counted. */
const Kept = Schema.parseJson(Schema.Struct({ spent: Schema.BigInt, step: Schema.Number, tokens: tokenCounts }))

const tokensIn = (data: ReadonlyArray<Datum<unknown>>): number =>
  data.reduce((sum, { modelInput }) => sum + Cost.tokensIn(modelInput), 0)

/** Checks that the list has all prices of a model, before anything is sent. */
export const check = ({ prices }: CostOptions, model: string): Either.Either<void, InvalidInput> =>
  Either.mapBoth(Cost.costOf(prices, model, { prefill: 1, cachedPrefill: 1, sampled: 1, trained: 1 }), {
    onLeft: ({ message }) => new InvalidInput({ path: "cost.prices", problem: message }),
    onRight: () => undefined,
  })

/** Starts to count, with what previous processes of the run have spent. */
export const make = (
  { budget, prices }: CostOptions,
  model: string,
  store: Store,
): Effect.Effect<Spending, RunStoreFailed, Scope.Scope> =>
  Effect.gen(function* () {
    const before = yield* read(store)
    let lastStep = before.step
    const meter = yield* Cost.make({
      prices,
      spentBefore: before.spent,
      budget: budget === undefined ? undefined : { limit: budget, onLimit: "stop" },
    })
    const account = yield* Effect.orDie(meter.account(model, "training"))
    const over = yield* Deferred.make<Cost.BudgetExceeded>()
    const orStop = <A, E>(effect: Effect.Effect<A, E>): Effect.Effect<A, Exclude<E, Cost.BudgetExceeded>> =>
      Effect.catchAll(effect, (error) =>
        error instanceof Cost.BudgetExceeded
          ? Effect.zipRight(Deferred.succeed(over, error), Effect.never)
          : Effect.fail(error as Exclude<E, Cost.BudgetExceeded>),
      )
    const tokens = Effect.map(meter.spending, ({ tokens }) =>
      Object.values(tokens).reduce(Cost.addTokens, before.tokens),
    )
    const save = Effect.gen(function* () {
      const { spent, unconfirmed } = yield* meter.spending
      const kept = { spent: spent + unconfirmed, step: lastStep, tokens: yield* tokens }
      yield* store.write(file, Schema.encodeSync(Kept)(kept))
    })
    yield* Effect.addFinalizer(() => Effect.ignore(save))
    const counted = <A, E>(effect: Effect.Effect<A, E>) =>
      // The events of the run are written to the same store, and report its failure.
      Effect.tap(orStop(effect), () => Effect.ignore(save))
    const withoutLimit = <A>(effect: Effect.Effect<A, Cost.BudgetExceeded>) =>
      budget === undefined
        ? Effect.orDie(effect)
        : Effect.acquireUseRelease(
            meter.setLimit(Cost.usd(Number.MAX_SAFE_INTEGER)),
            () => Effect.orDie(effect),
            () => meter.setLimit(budget),
          )
    const settled = (step: number) => {
      lastStep = Math.max(lastStep, step)
      return save
    }
    return {
      exceeded: Deferred.await(over),
      stoppedBy: Effect.flatMap(Deferred.poll(over), Effect.transposeOption),
      sampling: (client, baseModel = model) =>
        Effect.map(Effect.orDie(Cost.sampling(meter, client, baseModel)), (metered) => ({
          ...client,
          sample: (request, options) => counted(metered.sample(request, options)),
          computeLogprobs: (prompt, options) => counted(metered.computeLogprobs(prompt, options)),
          submit: { sample: (request, options) => orStop(metered.submit.sample(request, options)) },
        })),
      reserve: (data, passes) => {
        const trained = tokensIn(data) * passes
        return Effect.map(orStop(account.reserve({ trained }, { isExact: true })), ({ release, settle }) => ({
          made: (step) => Effect.zipRight(settle({ trained }), settled(step)),
          release,
        }))
      },
      countAgain: (step, data, passes) => {
        if (step <= before.step) return Effect.void
        // It is spent, whatever the budget of this process is.
        const trained = tokensIn(data) * passes
        return account.reserve({ trained }, { isExact: true }).pipe(
          Effect.flatMap(({ settle }) => settle({ trained })),
          withoutLimit,
          Effect.zipRight(settled(step)),
        )
      },
      metrics: Effect.gen(function* () {
        const { cachedPrefill, prefill, sampled, trained } = yield* tokens
        return {
          ...(yield* meter.metrics),
          "cost/tokens_trained": trained,
          "cost/tokens_sampled": sampled,
          "cost/tokens_prefilled": prefill,
          "cost/tokens_cached": cachedPrefill,
        }
      }),
    }
  })

const read = (store: Store) =>
  Effect.flatMap(
    store.read(file),
    Option.match({
      onNone: () => Effect.succeed({ spent: 0n, step: -1, tokens: Cost.noTokens }),
      onSome: (text) => Stored.decode(store, file, Kept, text),
    }),
  )

/** A training client whose sampling clients are counted. Its own passes are counted by the loop. */
export const client = (client: TrainingClient.Service, { sampling }: Spending): TrainingClient.Service => ({
  ...client,
  createSamplingClient: (path, options) =>
    Effect.flatMap(client.createSamplingClient(path, options), (client) => sampling(client)),
  saveWeightsAndGetSamplingClient: (options) =>
    Effect.flatMap(client.saveWeightsAndGetSamplingClient(options), (client) => sampling(client)),
})
