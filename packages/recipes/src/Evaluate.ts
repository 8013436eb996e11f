/**
 * Evaluations: the same questions for any model, with scores, confidence intervals and the answers to look at. Every
 * evaluation works on its own ({@link run}), compares two models ({@link compare}), and follows a training run
 * ({@link inRun}).
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import type * as SamplingClient from "effect-tinker/SamplingClient"
import type { InvalidInput } from "effect-tinker/TinkerError"
import type * as Bootstrap from "./Bootstrap.ts"
import { type CompareOptions, compareResults, type Comparison } from "./internal/evaluate/Comparison.ts"
import { askAll, type AskOptions, type Evaluation, type QuestionFailed } from "./internal/evaluate/Questions.ts"
import { answersOf, metricsOf, type Result, resultOf } from "./internal/evaluate/Scores.ts"
import type * as Progress from "./Progress.ts"
import type * as TrainingLoop from "./TrainingLoop.ts"

export { type CompareOptions, compareResults, type Comparison } from "./internal/evaluate/Comparison.ts"
export { likelihood, type LikelihoodOptions } from "./internal/evaluate/Likelihood.ts"
export {
  type Answer,
  type AskOptions,
  type Evaluation,
  type Metric,
  type Outcome,
  type Question,
  QuestionFailed,
} from "./internal/evaluate/Questions.ts"
export {
  type Answerable,
  exactMatch,
  judge,
  passAtK,
  type Prompt,
  type Said,
  type SampleOptions,
} from "./internal/evaluate/Sampled.ts"
export type { Result } from "./internal/evaluate/Scores.ts"
export { format } from "./internal/evaluate/Text.ts"

/**
 * Options of {@link run} and {@link compare}.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options extends AskOptions, Pick<Bootstrap.Options, "confidence" | "resamples"> {
  /** Where to show progress, e.g. `Progress.standardError`. Not given: nowhere. */
  readonly progress?: Progress.Output | undefined
}

/**
 * Asks a model all questions of an evaluation.
 *
 * @example
 * ```ts
 * import { NodeContext } from "@effect/platform-node"
 * import { Evaluate } from "@effect-tinker/recipes"
 * import { LocalTinker } from "@effect-tinker/server"
 * import { Message } from "@effect-tinker/tokenizer"
 * import { Console, Effect } from "effect"
 * import { ServiceClient } from "effect-tinker"
 *
 * const program = Effect.gen(function* () {
 *   const renderer = yield* LocalTinker.renderer
 *   const service = yield* ServiceClient.ServiceClient
 *   const sampler = yield* service.createSamplingClient({ baseModel: "effect-tinker/valley-1.5m" })
 *   const questions = [{ messages: [Message.user("What is 1 + 1?")], answers: ["2", "two"] }]
 *   const result = yield* Evaluate.run(sampler, Evaluate.exactMatch({ renderer, questions, maxTokens: 16 }))
 *   yield* Console.log(result.outcomes.length, Object.keys(result.metrics)) // → 1 [ 'exact_match' ]
 * }).pipe(Effect.scoped)
 *
 * await Effect.runPromise(Effect.provide(program, [LocalTinker.layerTinker(), NodeContext.layer]))
 * ```
 *
 * @since 0.1.0
 * @category running
 */
export const run = <A, E, R>(
  sampler: SamplingClient.Service,
  evaluation: Evaluation<A, E, R>,
  options: Options = {},
): Effect.Effect<Result<A>, E | QuestionFailed | InvalidInput, R> =>
  Effect.flatMap(askAll([sampler], evaluation, options), ([outcomes = []]) => resultOf(evaluation, outcomes, options))

/**
 * Asks two models the same questions with the same seeds, and reports whether the second one is better.
 *
 * @since 0.1.0
 * @category comparing
 */
export const compare = <A, E, R>(
  base: SamplingClient.Service,
  tuned: SamplingClient.Service,
  evaluation: Evaluation<A, E, R>,
  options: Options & Pick<CompareOptions, "metric"> = {},
): Effect.Effect<Comparison<A>, E | QuestionFailed | InvalidInput, R> =>
  Effect.flatMap(askAll([base, tuned], evaluation, options), ([before = [], after = []]) =>
    Either.gen(function* () {
      const { confidence, metric, resamples, seed } = options
      const results = [
        yield* resultOf(evaluation, before, options),
        yield* resultOf(evaluation, after, options),
      ] as const
      return yield* compareResults(results[0], results[1], { confidence, metric, resamples, seed })
    }),
  )

/**
 * Makes an evaluation of a training run: its metrics become events with the names `<evaluation>/<metric>`, and some
 * answers become samples. The seeds do not depend on the step, so that steps can be compared and a run that is killed
 * repeats an evaluation with the same result.
 *
 * @since 0.1.0
 * @category running
 */
export const inRun = <A, E, R>(
  evaluation: Evaluation<A, E, R>,
  options: AskOptions & {
    /** Evaluates before the first step, after each multiple of this number, and after the last step. */
    readonly everySteps: number
    /**
     * How many answers are kept with the run each time.
     *
     * @default 4
     */
    readonly samples?: number | undefined
  },
): TrainingLoop.Evaluation<E | QuestionFailed | InvalidInput, R> => ({
  name: evaluation.name,
  everySteps: options.everySteps,
  evaluate: (sampler) =>
    Effect.map(askAll([sampler], evaluation, options), ([outcomes = []]) => {
      const { name, show } = evaluation
      const { samples = 4 } = options
      const numbers = Object.entries(metricsOf(evaluation, outcomes))
      return {
        metrics: Object.fromEntries(numbers.map(([metric, value]) => [`${name}/${metric}`, value])),
        samples:
          show === undefined
            ? []
            : answersOf(outcomes)
                .slice(0, samples)
                .map(({ answer, question, scores }) => ({
                  prompt: question,
                  tokens: [{ text: show(answer) }],
                  reward: scores[evaluation.metrics[0].name],
                })),
      }
    }),
})
