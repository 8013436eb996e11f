/** Evaluations that sample answers and score them. */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Message from "@effect-tinker/tokenizer/Message"
import type { Renderer } from "@effect-tinker/tokenizer/Renderer"
import type * as SamplingClient from "effect-tinker/SamplingClient"
import { InvalidInput, UnexpectedResponse } from "effect-tinker/TinkerError"
import * as PassAtK from "../../PassAtK.ts"
import { textOf } from "../Conversations.ts"
import type { Evaluation, Metric } from "./Questions.ts"

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
        name: question.name ?? textOf(question.messages),
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
