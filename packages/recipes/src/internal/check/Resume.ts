/** Whether a saved state continues as if nothing had happened. */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { Datum } from "effect-tinker/Datum"
import * as Loss from "effect-tinker/Loss"
import * as Optimizer from "effect-tinker/Optimizer"
import { ServiceClient } from "effect-tinker/ServiceClient"
import { InvalidInput, type TrainingError, type UnexpectedResponse } from "effect-tinker/TinkerError"
import type * as TrainingClient from "effect-tinker/TrainingClient"
import * as TrainingResult from "effect-tinker/TrainingResult"
import * as Likelihood from "../../Likelihood.ts"
import { shortNumber } from "../Lines.ts"
import { positive, type Verdict, verdictOf, whole } from "./Common.ts"

/**
 * An example to train on.
 *
 * @since 0.1.0
 * @category models
 */
export type Example = Datum<{
  readonly targetTokens: Int32Array | ReadonlyArray<number>
  readonly weights: Float32Array | ReadonlyArray<number>
}>

/**
 * Options of {@link resume}.
 *
 * @since 0.1.0
 * @category models
 */
export interface ResumeOptions {
  /** The model to train: a base model, and the rank of its adapters. */
  readonly model: Omit<TrainingClient.LoraOptions, "journal">
  /**
   * At least two examples. The steps before the save train on the first half, the step after it on the other half, so
   * that an optimizer that has forgotten the first half takes another step.
   */
  readonly data: ReadonlyArray<Example>
  /**
   * How many steps are made before the state is saved.
   *
   * @default 3
   */
  readonly steps?: number | undefined
  /** @default Optimizer.adam({ learningRate: 1e-3 }) */
  readonly optimizer?: Optimizer.Optimizer | undefined
  /**
   * How far two log probabilities may be apart that should be the same.
   *
   * @default 0.01
   */
  readonly tolerance?: number | undefined
}

/**
 * One way to continue from a saved state, compared with the client that was never interrupted.
 *
 * `loaded`: into the same client, with the optimizer. `created`: as a new client, with the optimizer. `weights only`: as
 * a new client without the optimizer; it shows what a lost optimizer looks like.
 *
 * @since 0.1.0
 * @category models
 */
export interface Way {
  readonly name: "loaded" | "created" | "weights only"
  /** The loss of the next step. */
  readonly nextLoss: number
  /** The loss after that step. */
  readonly lossAfter: number
  /** The largest difference of a log probability before the next step: that of the weights. */
  readonly weights: number
  /** The largest difference of a log probability after the next step: that of the optimizer, if the weights are the same. */
  readonly optimizer: number
  readonly outcome: "same" | "other_weights" | "optimizer_dropped" | "other_optimizer" | "new_optimizer"
}

/**
 * The report of {@link resume}.
 *
 * @since 0.1.0
 * @category models
 */
export interface ResumeReport extends Verdict {
  readonly _tag: "Resume"
  readonly steps: number
  readonly tolerance: number
  /** The losses of the client that was never interrupted. */
  readonly uninterrupted: { readonly nextLoss: number; readonly lossAfter: number }
  readonly ways: ReadonlyArray<Way>
}

/** The next operations of a client. */
interface Continuation {
  readonly before: ReadonlyArray<Float32Array>
  readonly nextLoss: number
  readonly after: ReadonlyArray<Float32Array>
  readonly lossAfter: number
}

/** Returns the largest difference, infinite if one of them is no number. */
const distance = (a: ReadonlyArray<Float32Array>, b: ReadonlyArray<Float32Array>): number =>
  a.reduce(
    (most, values, index) =>
      values.reduce((most, value, at) => {
        const difference = Math.abs(value - (b[index]?.[at] ?? Number.NaN))
        return Math.max(most, Number.isNaN(difference) ? Number.POSITIVE_INFINITY : difference)
      }, most),
    0,
  )

const outcomeOf = (
  name: Way["name"],
  { fresh, optimizer, weights }: { readonly fresh: number; readonly optimizer: number; readonly weights: number },
  tolerance: number,
): Way["outcome"] => {
  if (weights > tolerance) return "other_weights"
  if (optimizer <= tolerance) return "same"
  if (name === "weights only") return "new_optimizer"
  return fresh <= tolerance ? "optimizer_dropped" : "other_optimizer"
}

const described = {
  loaded: "loading the state with its optimizer into the same client",
  created: "creating a client from the state with its optimizer",
  "weights only": "creating a client from the weights only",
}

const problemOf = ({ name, optimizer, outcome, weights }: Way, tolerance: number): ReadonlyArray<string> => {
  const how = described[name]
  switch (outcome) {
    case "other_weights":
      return [
        `${how} restores other weights: log probabilities differ by up to ${shortNumber(weights)}, more than ${tolerance}`,
      ]
    case "optimizer_dropped":
      return [
        `${how} drops the optimizer: the next step is that of a new one, and log probabilities differ by up to ${shortNumber(optimizer)}`,
      ]
    case "other_optimizer":
      return [
        `${how} restores another optimizer: after the next step, log probabilities differ by up to ${shortNumber(optimizer)}`,
      ]
    case "same":
      return name === "weights only"
        ? [
            `a step with a new optimizer is the same within ${tolerance}, so that a lost one can't be noticed: use more steps, a higher learning rate or other data`,
          ]
        : []
    case "new_optimizer":
      return []
  }
}

/**
 * Trains a few steps, saves the state, and continues from it in three ways, each of which should do what the client does
 * that was never interrupted: same weights, same next loss, and after the next step the same weights again. A server that
 * drops the state of the optimizer is found and named. The checkpoint is deleted afterwards.
 *
 * @example
 * ```ts
 * import { Console, Effect } from "effect"
 * import { Check } from "@effect-tinker/recipes"
 * import { NodeTinker } from "@effect-tinker/node"
 *
 * const example = (...tokens: ReadonlyArray<number>) => ({
 *   modelInput: tokens.slice(0, -1),
 *   inputs: { targetTokens: tokens.slice(1), weights: tokens.slice(1).map(() => 1) },
 * })
 *
 * const program = Effect.gen(function* () {
 *   const report = yield* Check.resume({
 *     model: { baseModel: "effect-tinker/valley-1.5m", rank: 8 },
 *     data: [example(10, 20, 30, 40), example(50, 60, 70, 80)],
 *   })
 *   yield* Console.log(report.ways.map(({ name, outcome }) => `${name}: ${outcome}`).join(", "))
 *   // → loaded: same, created: same, weights only: new_optimizer
 *   yield* Check.orFail(report)
 * })
 *
 * await Effect.runPromise(Effect.provide(program, NodeTinker.layerConfig()))
 * ```
 *
 * @since 0.1.0
 * @category checks
 */
export const resume = (
  options: ResumeOptions,
): Effect.Effect<
  ResumeReport,
  TrainingError | TrainingClient.StepFailed | InvalidInput | UnexpectedResponse,
  ServiceClient
> =>
  Effect.scoped(
    Effect.gen(function* () {
      const { data, model, optimizer = Optimizer.adam({ learningRate: 1e-3 }), steps = 3, tolerance = 0.01 } = options
      yield* whole({ steps })
      yield* positive({ tolerance })
      if (data.length < 2)
        return yield* new InvalidInput({ path: "data", problem: `expected at least two examples, got ${data.length}` })
      const [before, next] = [data.slice(0, data.length >> 1), data.slice(data.length >> 1)]
      const lossOf = (logprobs: ReadonlyArray<Float32Array>) =>
        Option.getOrElse(
          Likelihood.meanNll(next.map(({ inputs }, at) => ({ logprobs: logprobs[at] ?? [], weights: inputs.weights }))),
          () => Number.NaN,
        )
      const continued = (
        client: TrainingClient.Service,
      ): Effect.Effect<Continuation, TrainingError | TrainingClient.StepFailed | UnexpectedResponse> =>
        Effect.gen(function* () {
          const before = yield* TrainingResult.logprobs(yield* client.forward(next, Loss.crossEntropy))
          const { pass } = yield* client.trainStep(next, Loss.crossEntropy, optimizer)
          const after = yield* TrainingResult.logprobs(yield* client.forward(next, Loss.crossEntropy))
          const nextLoss = lossOf(yield* TrainingResult.logprobs(pass))
          return { before, nextLoss, after, lossAfter: lossOf(after) }
        })

      const service = yield* ServiceClient
      const client = yield* service.createLoraTrainingClient(model)
      for (let step = 0; step < steps; step++) yield* client.trainStep(before, Loss.crossEntropy, optimizer)
      const { path } = yield* Effect.acquireRelease(
        client.saveState("check-resume", { ttl: "1 hour", overwrite: true }),
        // It expires anyway.
        ({ path }) => Effect.ignore(service.rest.deleteCheckpointByPath(path)),
      )
      const created = (withOptimizer: boolean) =>
        Effect.scoped(
          Effect.flatMap(service.createTrainingClientFromCheckpoint(path, { withOptimizer, optimizer }), continued),
        )
      const expected = yield* continued(client)
      const fresh = yield* created(false)
      const found = [
        ["loaded", yield* Effect.zipRight(client.loadStateWithOptimizer(path), continued(client))],
        ["created", yield* created(true)],
        ["weights only", fresh],
      ] as const
      const ways = found.map(([name, { after, before, lossAfter, nextLoss }]): Way => {
        const weights = distance(expected.before, before)
        const changed = distance(expected.after, after)
        const outcome = outcomeOf(name, { weights, optimizer: changed, fresh: distance(fresh.after, after) }, tolerance)
        return { name, nextLoss, lossAfter, weights, optimizer: changed, outcome }
      })
      return {
        _tag: "Resume",
        steps,
        tolerance,
        uninterrupted: { nextLoss: expected.nextLoss, lossAfter: expected.lossAfter },
        ways,
        ...verdictOf(ways.flatMap((way) => problemOf(way, tolerance))),
      }
    }),
  )

export const resumeText = ({ steps, uninterrupted, ways }: ResumeReport): ReadonlyArray<string> => [
  `resume after ${steps} steps`,
  `  uninterrupted: loss ${shortNumber(uninterrupted.nextLoss)}, ${shortNumber(uninterrupted.lossAfter)} after the next step`,
  ...ways.map(
    ({ lossAfter, name, nextLoss, optimizer, outcome, weights }) =>
      `  ${name}: loss ${shortNumber(nextLoss)}, ${shortNumber(lossAfter)} after the next step; differences ${shortNumber(weights)} and ${shortNumber(optimizer)}: ${outcome.replace("_", " ")}`,
  ),
]
