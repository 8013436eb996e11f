/** The meter compared with the server's bill. */
import * as Option from "effect/Option"
import type * as Billing from "../../protocol/schemas/Billing.ts"
import { kindOf, kinds } from "./Kinds.ts"
import type { Spending } from "./Meter.ts"
import { type Money, usd } from "./Money.ts"
import { addTokens, noTokens, type Tokens } from "./Tokens.ts"

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
  /** The server's charge for the rows that state one. */
  readonly billed: Money
  /** The meter's count, without operations whose outcome is unknown. */
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
