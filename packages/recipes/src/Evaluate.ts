/**
 * Evaluations: the same questions for any model, with scores, confidence intervals and the answers to look at. Every
 * evaluation works on its own ({@link run}), compares two models ({@link compare}), and follows a training run
 * ({@link inRun}).
 *
 * @since 0.1.0
 */
import * as Cause from "effect/Cause"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import type * as Datums from "@effect-tinker/tokenizer/Datums"
import * as Message from "@effect-tinker/tokenizer/Message"
import type { Renderer, TrainOn } from "@effect-tinker/tokenizer/Renderer"
import type * as Tokenizer from "@effect-tinker/tokenizer/Tokenizer"
import type * as SamplingClient from "effect-tinker/SamplingClient"
import { InvalidInput, UnexpectedResponse } from "effect-tinker/TinkerError"
import * as Bootstrap from "./Bootstrap.ts"
import type { BadRow } from "./DataError.ts"
import { datumsOf, predicted, rowsOf } from "./internal/Conversations.ts"
import { oneLine, shortNumber } from "./internal/Lines.ts"
import { sequenceOf } from "./internal/Recipe.ts"
import { seedOf } from "./internal/Rollouts.ts"
import * as Likelihood from "./Likelihood.ts"
import * as PassAtK from "./PassAtK.ts"
import * as Progress from "./Progress.ts"
import type { Metrics } from "./RunEvent.ts"
import type * as Table from "./Table.ts"
import type * as TrainingLoop from "./TrainingLoop.ts"

/**
 * What an evaluation measures.
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
   * What happens to a question that fails: it ends the evaluation, or it is left out of the scores and counted.
   *
   * @default fail
   */
  readonly onFailure?: "fail" | "count" | undefined
}

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
 * What became of a question.
 *
 * @since 0.1.0
 * @category models
 */
export type Outcome<A> =
  | ({ readonly _tag: "Answered"; readonly question: string } & Answer<A>)
  | { readonly _tag: "Failed"; readonly question: string; readonly error: QuestionFailed }

/**
 * The result of an evaluation.
 *
 * @since 0.1.0
 * @category models
 */
export interface Result<out A> {
  readonly name: string
  /** The metric that decides comparisons. */
  readonly main: Metric
  /** All numbers, by metric. */
  readonly metrics: Metrics
  /** The confidence intervals of the metrics that are means of scores. */
  readonly intervals: Readonly<Record<string, Bootstrap.Interval>>
  /** One for each question, in order. */
  readonly outcomes: ReadonlyArray<Outcome<A>>
  /** How many questions failed. */
  readonly failed: number
}

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
const askAll = <A, E, R>(
  samplers: ReadonlyArray<SamplingClient.Service>,
  evaluation: Evaluation<A, E, R>,
  options: Omit<Options, "confidence" | "resamples">,
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

interface Scored {
  readonly value: number
  readonly weight: number
}

const answersOf = <A>(outcomes: ReadonlyArray<Outcome<A>>) =>
  outcomes.flatMap((outcome) => (outcome._tag === "Answered" ? [outcome] : []))

const scoreOf = <A>(outcome: Outcome<A> | undefined, metric: string): Scored | undefined => {
  const value = outcome?._tag === "Answered" ? outcome.scores[metric] : undefined
  if (outcome?._tag !== "Answered" || value === undefined) return undefined
  return { value, weight: outcome.weights?.[metric] ?? 1 }
}

const scoresOf = <A>(outcomes: ReadonlyArray<Outcome<A>>, metric: string): ReadonlyArray<Scored> =>
  outcomes.flatMap((outcome) => scoreOf(outcome, metric) ?? [])

const meanOf = (scores: ReadonlyArray<Scored>): number => {
  const total = scores.reduce((sum, { weight }) => sum + weight, 0)
  return scores.reduce((sum, { value, weight }) => sum + value * weight, 0) / total
}

const metricsOf = <A, E, R>(
  { metrics, summarize }: Pick<Evaluation<A, E, R>, "metrics" | "summarize">,
  outcomes: ReadonlyArray<Outcome<A>>,
): Metrics => {
  const means = metrics.flatMap(({ name }) => {
    const scores = scoresOf(outcomes, name)
    return scores.length === 0 ? [] : [[name, meanOf(scores)] as const]
  })
  const answers = answersOf(outcomes)
  const failed = outcomes.length - answers.length
  return { ...Object.fromEntries(means), ...summarize?.(answers), ...(failed === 0 ? {} : { failed }) }
}

/** Nothing is known about a mean of which one value is infinite. */
const unknown = { low: Number.NEGATIVE_INFINITY, high: Number.POSITIVE_INFINITY }

const isFinite = (scores: ReadonlyArray<Scored>): boolean => scores.every(({ value }) => Number.isFinite(value))

const intervalOf = (
  scores: ReadonlyArray<Scored>,
  options: Bootstrap.Options,
): Either.Either<Bootstrap.Interval, InvalidInput> =>
  isFinite(scores)
    ? Bootstrap.mean(
        scores.map(({ value }) => value),
        { ...options, weights: scores.map(({ weight }) => weight) },
      )
    : Either.right({
        ...unknown,
        estimate: meanOf(scores),
        confidence: options.confidence ?? 0.95,
        count: scores.length,
      })

const resultOf = <A, E, R>(
  evaluation: Evaluation<A, E, R>,
  outcomes: ReadonlyArray<Outcome<A>>,
  { confidence, resamples, seed }: Options,
): Either.Either<Result<A>, InvalidInput> =>
  Either.gen(function* () {
    const intervals: Record<string, Bootstrap.Interval> = {}
    for (const { name } of evaluation.metrics) {
      const scores = scoresOf(outcomes, name)
      if (scores.length > 0) intervals[name] = yield* intervalOf(scores, { confidence, resamples, seed })
    }
    return {
      name: evaluation.name,
      main: evaluation.metrics[0],
      metrics: metricsOf(evaluation, outcomes),
      intervals,
      outcomes,
      failed: outcomes.filter(({ _tag }) => _tag === "Failed").length,
    }
  })

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
 * A comparison of two models on the same questions.
 *
 * @since 0.1.0
 * @category models
 */
export interface Comparison<out A> {
  readonly name: string
  readonly metric: Metric
  /** `undecided`: the questions do not tell the two models apart. */
  readonly verdict: "improved" | "worse" | "undecided"
  /** By how much the mean of the second model is larger, with the confidence interval of the pairs. */
  readonly difference: Bootstrap.Interval
  /** The probability that the second model is better. */
  readonly probability: number
  /** How many pairs were compared, and in how many of them the scores differ. */
  readonly pairs: number
  readonly changed: number
  readonly base: Result<A>
  readonly tuned: Result<A>
}

/**
 * Options of {@link compareResults}.
 *
 * @since 0.1.0
 * @category models
 */
export interface CompareOptions extends Pick<Bootstrap.Options, "confidence" | "resamples" | "seed"> {
  /**
   * The metric that decides.
   *
   * @default the first one of the evaluation
   */
  readonly metric?: Metric | undefined
}

/**
 * Compares two results of the same evaluation. Questions that failed in one of them are left out.
 *
 * The verdict is `improved` or `worse` if the confidence interval of the differences excludes 0 and enough pairs differ:
 * with 95% confidence at least 6, because fewer would all point in one direction by chance too often.
 *
 * @since 0.1.0
 * @category comparing
 */
export const compareResults = <A>(
  base: Result<A>,
  tuned: Result<A>,
  options: CompareOptions = {},
): Either.Either<Comparison<A>, InvalidInput> =>
  Either.gen(function* () {
    const { metric = base.main, ...bootstrap } = options
    const { confidence = 0.95 } = bootstrap
    const refuse = (problem: string) => Either.left(new InvalidInput({ path: "tuned", problem }))
    if (base.outcomes.length !== tuned.outcomes.length)
      return yield* refuse(`expected ${base.outcomes.length} outcomes, as in base, got ${tuned.outcomes.length}`)
    const odd = base.outcomes.findIndex(({ question }, at) => question !== tuned.outcomes[at]?.question)
    if (odd >= 0) return yield* refuse(`question ${odd} is not the one in base`)
    const pairs = base.outcomes.flatMap((outcome, at) => {
      const [before, after] = [scoreOf(outcome, metric.name), scoreOf(tuned.outcomes[at], metric.name)]
      return before === undefined || after === undefined ? [] : [{ before, after }]
    })
    if (pairs.length === 0) return yield* refuse(`no question has a ${metric.name} in both results`)
    const [before, after] = [pairs.map(({ before }) => before), pairs.map(({ after }) => after)]
    const difference: Bootstrap.Difference =
      isFinite(before) && isFinite(after)
        ? yield* Bootstrap.difference(
            before.map(({ value }) => value),
            after.map(({ value }) => value),
            { ...bootstrap, weights: before.map(({ weight }) => weight) },
          )
        : {
            ...unknown,
            estimate: meanOf(after) - meanOf(before),
            confidence,
            count: pairs.length,
            probabilityLarger: 0.5,
          }
    const changed = pairs.filter(({ after, before }) => after.value !== before.value).length
    const { probabilityLarger, ...interval } = difference
    const isHigher = metric.better === "highest"
    return {
      name: base.name,
      metric,
      verdict: verdictOf(interval, metric, changed),
      difference: interval,
      probability: isHigher ? probabilityLarger : 1 - probabilityLarger,
      pairs: pairs.length,
      changed,
      base,
      tuned,
    }
  })

/** The sign test: so many pairs that differ in the same direction by chance are rarer than the interval may be wrong. */
const verdictOf = (
  { confidence, high, low }: Bootstrap.Interval,
  { better }: Metric,
  changed: number,
): Comparison<never>["verdict"] => {
  if (2 * 0.5 ** changed > 1 - confidence || (low <= 0 && high >= 0)) return "undecided"
  return low > 0 === (better === "highest") ? "improved" : "worse"
}

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

const percent = (share: number): string => `${shortNumber(100 * share)}%`

const intervalText = ({ confidence, high, low }: Bootstrap.Interval): string =>
  `${percent(confidence)} confidence: ${shortNumber(low)} to ${shortNumber(high)}`

const countText = (count: number): string => `${count} question${count === 1 ? "" : "s"}`

const resultText = ({ failed, intervals, metrics, name, outcomes }: Result<unknown>): string =>
  [
    `${oneLine(name)}: ${countText(outcomes.length)}${failed === 0 ? "" : `, ${failed} failed`}`,
    ...Object.entries(metrics).flatMap(([metric, value]) => {
      const interval = intervals[metric]
      if (metric === "failed") return []
      return [
        `  ${oneLine(metric)} ${shortNumber(value)}${interval === undefined ? "" : ` (${intervalText(interval)})`}`,
      ]
    }),
  ].join("\n")

const verdictText = { improved: "The model improved", worse: "The model got worse", undecided: "Undecided" }

const comparisonText = (comparison: Comparison<unknown>): string => {
  const { base, changed, difference, metric, name, pairs, probability, tuned, verdict } = comparison
  const value = (result: Result<unknown>) => shortNumber(result.metrics[metric.name] ?? Number.NaN)
  const failed = base.failed + tuned.failed
  const hint =
    verdict === "undecided" && 2 * 0.5 ** changed > 1 - difference.confidence
      ? `  Only ${changed} of ${countText(pairs)} got another score, which is too few to decide. Ask more questions.`
      : verdict === "undecided"
        ? "  Ask more questions, or accept that the difference is small."
        : undefined
  return [
    `${verdictText[verdict]}: ${oneLine(name)}, ${countText(pairs)}${failed === 0 ? "" : `, ${failed} answers failed`}`,
    `  ${oneLine(metric.name)} ${value(base)} → ${value(tuned)} (${metric.better} is best)`,
    `  difference ${shortNumber(difference.estimate)} (${intervalText(difference)})`,
    `  probability of being better: ${percent(probability)}`,
    ...(hint === undefined ? [] : [hint]),
  ].join("\n")
}

/**
 * Shows a result or a comparison to people.
 *
 * @since 0.1.0
 * @category formatting
 */
export const format = (self: Result<unknown> | Comparison<unknown>): string =>
  "verdict" in self ? comparisonText(self) : resultText(self)

/**
 * Options of {@link likelihood}.
 *
 * @since 0.1.0
 * @category models
 */
export interface LikelihoodOptions {
  /**
   * The name of the evaluation.
   *
   * @default likelihood
   */
  readonly name?: string | undefined
  readonly renderer: Renderer
  readonly data: Table.Table<Message.Conversation> | ReadonlyArray<Message.Conversation>
  /**
   * Which tokens count.
   *
   * @default all_assistant_messages
   */
  readonly trainOn?: TrainOn | undefined
  /** The most tokens of a conversation; the rest is cut off. */
  readonly maxLength?: number | undefined
  /**
   * Whether `nll` is the mean of all tokens (`sum`), or of the means of the conversations (`mean`).
   *
   * @default sum
   */
  readonly reduction?: Datums.ExampleOptions["reduction"]
  /** Adds bits per byte, which can be compared between models with different tokenizers. */
  readonly tokenizer?: Pick<Tokenizer.Service, "decode" | "specialTokens"> | undefined
}

/**
 * Measures how well a model predicts conversations: the negative log-likelihood per token (`nll`), and bits per byte
 * (`bpb`) if the tokenizer is given. Nothing is sampled.
 *
 * @since 0.1.0
 * @category evaluations
 */
export const likelihood = (
  options: LikelihoodOptions,
): Evaluation<ReadonlyArray<Likelihood.Predicted>, BadRow | Table.Failure> => {
  const { data, renderer, tokenizer } = options
  const bytes = tokenizer && Likelihood.bytesOf(tokenizer)
  return {
    name: options.name ?? "likelihood",
    metrics: [{ name: "nll", better: "lowest" }, ...(bytes === undefined ? [] : [bpb])],
    questions: Effect.flatMap(
      rowsOf(data),
      Effect.forEach((row) =>
        Effect.map(datumsOf(renderer, options, row), (datums) => ({
          name: nameOf(row.value.messages),
          ask: (sampler: SamplingClient.Service) =>
            Effect.gen(function* () {
              const logprobs = yield* Effect.forEach(datums, (datum) =>
                Effect.map(sampler.computeLogprobs(sequenceOf(datum)), (all) => all.subarray(1)),
              )
              const answer = predicted(datums, logprobs)
              const totals = {
                nll: Likelihood.totalNll(answer),
                ...(bytes === undefined ? {} : { bpb: yield* Likelihood.totalBits(answer, bytes) }),
              }
              const counting = Object.entries(totals).filter(([, { size }]) => size > 0)
              return {
                scores: Object.fromEntries(counting.map(([name, { size, sum }]) => [name, sum / size])),
                weights: Object.fromEntries(counting.map(([name, { size }]) => [name, size])),
                answer,
              }
            }),
        })),
      ),
    ),
  }
}

const bpb: Metric = { name: "bpb", better: "lowest" }

const nameOf = (messages: ReadonlyArray<Message.Message>): string =>
  messages.map((message) => `${message.role}: ${Message.textOf(message)}`).join("\n")

/**
 * Something the model said.
 *
 * @since 0.1.0
 * @category models
 */
export interface Said {
  readonly text: string
  readonly message: Message.Message
  /** Whether the model stopped by itself or reached the limit of tokens. */
  readonly stopReason: "stop" | "length"
}

/**
 * A conversation that the model continues.
 *
 * @since 0.1.0
 * @category models
 */
export interface Prompt {
  readonly messages: ReadonlyArray<Message.Message>
  /**
   * Shows the question to people.
   *
   * @default the messages
   */
  readonly name?: string | undefined
}

/**
 * Options of evaluations that sample.
 *
 * @since 0.1.0
 * @category models
 */
export interface SampleOptions<out Q extends Prompt> {
  readonly name?: string | undefined
  readonly renderer: Renderer
  readonly questions: ReadonlyArray<Q>
  /** The most tokens of an answer. */
  readonly maxTokens: number
  readonly temperature?: number | undefined
}

const sampled = <Q extends Prompt, E, R>(
  options: SampleOptions<Q> & { readonly name: string; readonly temperature: number },
  metrics: Evaluation<unknown>["metrics"],
  attempts: number,
  score: (answers: ReadonlyArray<Said>, question: Q) => Effect.Effect<Readonly<Record<string, number>>, E, R>,
): Evaluation<ReadonlyArray<Said>, never, R> => {
  const { maxTokens, questions, renderer, temperature } = options
  return {
    name: options.name,
    metrics,
    questions: Effect.succeed(
      questions.map((question) => ({
        name: question.name ?? nameOf(question.messages),
        ask: (sampler: SamplingClient.Service, seed: number) =>
          Effect.gen(function* () {
            const prompt = yield* renderer.generationPrompt(question.messages)
            const params = { maxTokens, temperature, stop: renderer.stopSequences, seed }
            const { sequences } = yield* sampler.sample({ prompt, params, numSamples: attempts })
            if (sequences.length !== attempts)
              return yield* new UnexpectedResponse({
                operation: "sample",
                reason: "Schema",
                detail: `expected ${attempts} answers, got ${sequences.length}`,
              })
            const answer = yield* Effect.forEach(sequences, ({ stopReason, tokens }) =>
              Effect.map(renderer.parse(tokens), ({ message }): Said => ({
                text: Message.textOf(message).trim(),
                message,
                stopReason,
              })),
            )
            const scores = yield* score(answer, question)
            const bad = Object.values(scores).find((score) => !Number.isFinite(score))
            if (bad !== undefined)
              return yield* new InvalidInput({ path: "score", problem: `expected a finite number, got ${bad}` })
            return { scores, answer }
          }),
      })),
    ),
    show: (answers) => answers.map(({ text }) => text).join("\n---\n"),
  }
}

/**
 * Scores the answer to each question with a function of yours, which may be an effect: a rule, a test, or another model.
 *
 * @since 0.1.0
 * @category evaluations
 */
export const judge = <Q extends Prompt, E = never, R = never>(
  options: SampleOptions<Q> & {
    /** Rates an answer: higher is better, unless `better` says otherwise. */
    readonly score: (answer: Said, question: Q) => Effect.Effect<number, E, R> | number
    /**
     * The name of the metric.
     *
     * @default score
     */
    readonly metric?: string | undefined
    readonly better?: Metric["better"] | undefined
  },
): Evaluation<ReadonlyArray<Said>, never, R> => {
  const { better = "highest", metric = "score", name = "judge", temperature = 0 } = options
  return sampled({ ...options, name, temperature }, [{ name: metric, better }], 1, ([answer], question) =>
    Effect.map(
      answer === undefined ? Effect.succeed(Number.NaN) : valueOf(() => options.score(answer, question)),
      (score) => ({ [metric]: score }),
    ),
  )
}

const valueOf = <A, E, R>(make: () => Effect.Effect<A, E, R> | A): Effect.Effect<A, E, R> =>
  Effect.suspend(() => {
    const value = make()
    return Effect.isEffect(value) ? value : Effect.succeed(value)
  })

/**
 * A question with the answers that are right.
 *
 * @since 0.1.0
 * @category models
 */
export interface Answerable extends Prompt {
  readonly answers: ReadonlyArray<string>
}

/**
 * Scores an answer 1 if it is one of those that are right, and 0 otherwise (`exact_match`).
 *
 * @since 0.1.0
 * @category evaluations
 */
export const exactMatch = (
  options: SampleOptions<Answerable> & {
    /**
     * Applied to both texts before they are compared, e.g. to ignore case.
     *
     * @default removes space at both ends
     */
    readonly normalize?: ((text: string) => string) | undefined
  },
): Evaluation<ReadonlyArray<Said>> => {
  const { name = "exact_match", normalize = (text) => text.trim() } = options
  return judge({
    ...options,
    name,
    metric: "exact_match",
    score: ({ text }, { answers }) => (answers.some((answer) => normalize(answer) === normalize(text)) ? 1 : 0),
  })
}

/**
 * Estimates the probability that at least one of k attempts solves a question (`pass@k`, and `pass@1`), from several
 * attempts in one request.
 *
 * @since 0.1.0
 * @category evaluations
 */
export const passAtK = <Q extends Prompt, E = never, R = never>(
  options: SampleOptions<Q> & {
    readonly k: number
    /**
     * How many attempts each question has. More than k make the estimate better.
     *
     * @default k
     */
    readonly attempts?: number | undefined
    readonly isSolved: (answer: Said, question: Q) => Effect.Effect<boolean, E, R> | boolean
  },
): Either.Either<Evaluation<ReadonlyArray<Said>, never, R>, InvalidInput> => {
  const { isSolved, k, name = "pass_at_k", temperature = 1 } = options
  const { attempts = k } = options
  const passAt = (k: number): Metric & { readonly k: number } => ({ k, name: `pass@${k}`, better: "highest" })
  const metrics = [passAt(k), ...(k === 1 ? [] : [passAt(1)])] as const
  // The estimator knows which numbers are possible.
  return Either.map(PassAtK.estimate({ attempts, solved: 0 }, k), () =>
    sampled({ ...options, name, temperature }, metrics, attempts, (answers, question) =>
      Effect.gen(function* () {
        const solved = (yield* Effect.forEach(answers, (answer) => valueOf(() => isSolved(answer, question)))).filter(
          (one) => one,
        ).length
        const scores: Record<string, number> = {}
        for (const { k, name } of metrics) scores[name] = yield* PassAtK.estimate({ attempts, solved }, k)
        return scores
      }),
    ),
  )
}
