/** Questions for any model, and what becomes of them. */
import * as Cause from "effect/Cause"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import type * as SamplingClient from "effect-tinker/SamplingClient"
import { InvalidInput } from "effect-tinker/TinkerError"
import * as Progress from "../../Progress.ts"
import type { Metrics } from "../../RunEvent.ts"
import { seedOf } from "../Rollouts.ts"
import { meanOf, type Scored, scoresOf } from "./Scores.ts"

/**
 * The measurement of an evaluation.
 *
 * @since 0.1.0
 * @category models
 */
export interface Metric {
  readonly name: string
  /** Which values are better. */
  readonly better: "highest" | "lowest"
}

/**
 * The answer to a question and its scores.
 *
 * @since 0.1.0
 * @category models
 */
export interface Answer<out A> {
  /** By metric. A metric to which the question does not contribute is left out. */
  readonly scores: Readonly<Record<string, number>>
  /** How much the question counts, by metric, e.g. its number of tokens. Default: 1. */
  readonly weights?: Readonly<Record<string, number>> | undefined
  readonly answer: A
}

/**
 * A question of an evaluation.
 *
 * @since 0.1.0
 * @category models
 */
export interface Question<out A, out R = never> {
  /** Shows the question to people. */
  readonly name: string
  /** Asks a model and scores the answer. Whatever it fails with becomes {@link QuestionFailed}. */
  readonly ask: (sampler: SamplingClient.Service, seed: number) => Effect.Effect<Answer<A>, unknown, R>
}

/**
 * An evaluation: questions, and what their scores mean.
 *
 * @since 0.1.0
 * @category models
 */
export interface Evaluation<in out A, out E = never, out R = never> {
  readonly name: string
  /** The first one decides comparisons. */
  readonly metrics: readonly [Metric, ...ReadonlyArray<Metric>]
  readonly questions: Effect.Effect<ReadonlyArray<Question<A, R>>, E, R>
  /** Computes metrics that are not the mean of scores. */
  readonly summarize?: ((answers: ReadonlyArray<Answer<A>>) => Metrics) | undefined
  /** Shows an answer to people. Not given: answers are not shown. */
  readonly show?: ((answer: A) => string) | undefined
}

/**
 * Reports a question without a score: the model could not be asked, or the answer could not be judged. `cause` is the
 * error behind it.
 *
 * @since 0.1.0
 * @category errors
 */
export class QuestionFailed extends Data.TaggedError("QuestionFailed")<{
  readonly evaluation: string
  /** The number of the question, from 0. */
  readonly index: number
  readonly question: string
  readonly detail: string
  readonly cause: unknown
}> {
  /** @since 0.1.0 */
  override get message(): string {
    const question = JSON.stringify(this.question.slice(0, 200))
    return `question ${this.index} of ${this.evaluation} failed: ${this.detail}; the question is ${question}`
  }
}

/**
 * How questions are asked.
 *
 * @since 0.1.0
 * @category models
 */
export interface AskOptions {
  /**
   * How many questions are asked at once.
   *
   * @default 32
   */
  readonly concurrency?: number | undefined
  /**
   * Decides what is sampled. Every question has a seed of its own, which depends on this one and its number.
   *
   * @default 0
   */
  readonly seed?: number | undefined
  /**
   * Decides about a question that fails: it ends the evaluation, or it is left out of the scores and counted.
   *
   * @default fail
   */
  readonly onFailure?: "fail" | "count" | undefined
}

/**
 * The outcome of a question.
 *
 * @since 0.1.0
 * @category models
 */
export type Outcome<A> =
  | ({ readonly _tag: "Answered"; readonly question: string } & Answer<A>)
  | { readonly _tag: "Failed"; readonly question: string; readonly error: QuestionFailed }

const checkOptions = ({ concurrency = 32, seed = 0 }: AskOptions): Either.Either<number, InvalidInput> => {
  if (!Number.isSafeInteger(concurrency) || concurrency < 1)
    return Either.left(
      new InvalidInput({ path: "concurrency", problem: `expected a positive integer, got ${concurrency}` }),
    )
  return Number.isSafeInteger(seed)
    ? Either.right(concurrency)
    : Either.left(new InvalidInput({ path: "seed", problem: `expected an integer, got ${seed}` }))
}

/** Asks every sampler every question. The outcomes are in the order of the samplers. */
export const askAll = <A, E, R>(
  samplers: ReadonlyArray<SamplingClient.Service>,
  evaluation: Evaluation<A, E, R>,
  options: AskOptions & { readonly progress?: Progress.Output | undefined },
): Effect.Effect<ReadonlyArray<ReadonlyArray<Outcome<A>>>, E | QuestionFailed | InvalidInput, R> =>
  Effect.scoped(
    Effect.gen(function* () {
      const concurrency = yield* checkOptions(options)
      const { onFailure = "fail", progress, seed = 0 } = options
      const questions = yield* evaluation.questions
      if (questions.length === 0)
        return yield* new InvalidInput({ path: `${evaluation.name}.questions`, problem: "expected at least one" })
      const places = questions.flatMap((question, index) => samplers.map((sampler) => ({ index, question, sampler })))
      const { name: metric } = evaluation.metrics[0]
      const show = progress && (yield* Progress.counter(progress, places.length))
      const known: Array<Scored> = []
      const outcomes = yield* Effect.forEach(
        places,
        ({ index, question, sampler }) =>
          askOne(evaluation.name, question, index, sampler, seedOf(seed, index)).pipe(
            Effect.filterOrFail(
              (outcome) => outcome._tag === "Answered" || onFailure === "count",
              (outcome) => (outcome as Extract<Outcome<A>, { _tag: "Failed" }>).error,
            ),
            Effect.tap((outcome) => {
              known.push(...scoresOf([outcome], metric))
              return show?.(known.length === 0 ? undefined : { name: metric, value: meanOf(known) }) ?? Effect.void
            }),
          ),
        { concurrency },
      )
      const all = samplers.map((_, model) => outcomes.filter((_, at) => at % samplers.length === model))
      for (const one of all) {
        const [first] = one
        // Without any answer there is nothing to report but the reason.
        if (first?._tag === "Failed" && one.every(({ _tag }) => _tag === "Failed")) return yield* first.error
      }
      return all
    }),
  )

const askOne = <A, R>(
  evaluation: string,
  { ask, name }: Question<A, R>,
  index: number,
  sampler: SamplingClient.Service,
  seed: number,
): Effect.Effect<Outcome<A>, never, R> => {
  const question = name
  return Effect.matchCauseEffect(
    Effect.suspend(() => ask(sampler, seed)),
    {
      onSuccess: (answer) => Effect.succeed<Outcome<A>>({ _tag: "Answered", question, ...answer }),
      onFailure: (cause) => {
        if (Cause.isInterruptedOnly(cause)) return Effect.failCause(cause as Cause.Cause<never>)
        const error = Cause.squash(cause)
        const detail = error instanceof Error ? error.message : String(error)
        const failed = new QuestionFailed({ evaluation, index, question, detail, cause: error })
        return Effect.succeed<Outcome<A>>({ _tag: "Failed", question, error: failed })
      },
    },
  )
}
