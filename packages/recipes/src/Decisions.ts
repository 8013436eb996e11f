/**
 * Decisions: a question with a fixed set of choices, and a model that gives the probability of each of them. One request
 * is enough, however long the labels are: the prompt names each choice with an id of one token, and the model is asked for
 * the probability of every id at the place of the answer. Nothing is generated.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import * as Datums from "@effect-tinker/tokenizer/Datums"
import type { Renderer } from "@effect-tinker/tokenizer/Renderer"
import * as ModelInput from "effect-tinker/ModelInput"
import type * as SamplingClient from "effect-tinker/SamplingClient"
import type { ServiceClient } from "effect-tinker/ServiceClient"
import * as TensorData from "effect-tinker/TensorData"
import { type FutureError, InvalidInput, UnexpectedResponse } from "effect-tinker/TinkerError"
import { BadRow } from "./DataError.ts"
import * as DecisionRenderer from "./DecisionRenderer.ts"
import * as DecisionScores from "./DecisionScores.ts"
import type * as Evaluate from "./Evaluate.ts"
import { rowsOf } from "./internal/Conversations.ts"
import * as Examples from "./internal/Examples.ts"
import { batchingOf, decodeConfig } from "./internal/Recipe.ts"
import type { Row } from "./Rows.ts"
import type { RunEvent } from "./RunEvent.ts"
import type { RunStore } from "./RunStore.ts"
import * as Supervised from "./Supervised.ts"
import type * as Table from "./Table.ts"
import type * as TrainingLoop from "./TrainingLoop.ts"

/**
 * A row of a file of decisions: the right label of a question.
 *
 * @since 0.1.0
 * @category models
 */
export const Example = Schema.Struct({
  question: Schema.String,
  label: Schema.String,
  /** Not given: the choices of the configuration. */
  choices: Schema.optional(Schema.Array(DecisionRenderer.Choice)),
})

/**
 * The type of {@link Example}.
 *
 * @since 0.1.0
 * @category models
 */
export type Example = typeof Example.Type

const { onLongRow: _, trainOn: __, ...supervisedFields } = Supervised.Config.fields

/**
 * The configuration of a decision model: that of supervised fine-tuning, and the choices. It can be read from JSON.
 *
 * @since 0.1.0
 * @category models
 */
export const Config = Schema.Struct({
  ...supervisedFields,
  /** The choices of rows that have none of their own. */
  choices: Schema.optional(Schema.Array(DecisionRenderer.Choice)).annotations({
    description: "The choices of rows that have none of their own.",
  }),
  /**
   * The text that the model writes before the id of a choice. It keeps the id a token of its own, and an answer apart from a
   * sentence that begins with the same letter.
   *
   * @default choice#
   */
  prefix: Schema.optionalWith(Schema.String, { default: () => DecisionRenderer.defaultPrefix }).annotations({
    description: "What the model writes before the id of a choice.",
  }),
  /**
   * Decides about a row with more than `maxLength` tokens: it ends the run before the first step, or is counted and left
   * out. It is never cut, because the answer is its end.
   *
   * @default fail
   */
  onLongRow: Schema.optionalWith(Schema.Literal("fail", "skip"), { default: () => "fail" as const }).annotations({
    description:
      "What happens to a row with more than maxLength tokens: it ends the run before the first step, or is counted and left out.",
  }),
})

/**
 * The type of {@link Config}.
 *
 * @since 0.1.0
 * @category models
 */
export type Config = typeof Config.Type

/**
 * A configuration in which settings with a default may be missing.
 *
 * @since 0.1.0
 * @category models
 */
export type Input = typeof Config.Encoded

/**
 * Returns the probability of each label, in the order of the choices, from one request. The probabilities are those of the
 * ids among each other, so that they add up to 1.
 *
 * @since 0.1.0
 * @category computing
 */
export const probabilities = (
  sampler: SamplingClient.Service,
  { labels, length, prompt, tokens }: DecisionRenderer.Rendered,
): Effect.Effect<ReadonlyArray<DecisionScores.Probability>, FutureError> =>
  Effect.gen(function* () {
    // One row for each token after the first; only the last one, the place of the answer, has targets.
    const targets = yield* TensorData.int64(tokens, {
      shape: [length - 1, tokens.length],
      sparse: {
        crowIndices: Int32Array.from({ length }, (_, row) => (row === length - 1 ? tokens.length : 0)),
        colIndices: Int32Array.from(tokens, (_, column) => column),
      },
    })
    const { targetPromptLogprobs } = yield* sampler.sample({
      prompt,
      params: { maxTokens: 1 },
      targetPromptLogprobs: targets,
    })
    const logprobs = Option.match(targetPromptLogprobs, {
      onNone: () => [],
      onSome: ({ data }) => Array.from(data, Number).slice(-tokens.length),
    })
    if (logprobs.length !== tokens.length)
      return yield* new UnexpectedResponse({
        operation: "sample",
        reason: "Schema",
        detail: `expected the log probabilities of ${tokens.length} tokens, got ${logprobs.length}`,
      })
    return DecisionScores.softmax(logprobs).map((probability, at) => ({ label: labels[at] ?? "", probability }))
  })

/**
 * Options of {@link evaluation}.
 *
 * @since 0.1.0
 * @category models
 */
export interface EvaluationOptions {
  /**
   * The name of the evaluation.
   *
   * @default decisions
   */
  readonly name?: string | undefined
  readonly renderer: DecisionRenderer.Service
  readonly data: Table.Table<Example> | ReadonlyArray<Example>
  /** The choices of rows that have none of their own. */
  readonly choices?: ReadonlyArray<DecisionRenderer.Choice> | undefined
}

/**
 * Measures how well a model decides: `accuracy`, `log_loss` and `brier` ({@link DecisionScores.scores}), and `calibration_error`
 * ({@link DecisionScores.calibrationError}).
 *
 * @since 0.1.0
 * @category evaluations
 */
export const evaluation = (
  options: EvaluationOptions,
): Evaluate.Evaluation<DecisionScores.Decided, BadRow | Table.Failure> => ({
  name: options.name ?? "decisions",
  metrics: [
    { name: "accuracy", better: "highest" },
    { name: "log_loss", better: "lowest" },
    { name: "brier", better: "lowest" },
  ],
  questions: Effect.flatMap(
    rowsOf(options.data),
    Effect.forEach((row) =>
      Effect.map(rendered(options.renderer, options.choices, row), (decision) => ({
        name: row.value.question,
        ask: (sampler: SamplingClient.Service) =>
          Effect.map(probabilities(sampler, decision), (probabilities) => {
            const answer = { probabilities, label: row.value.label }
            return { scores: DecisionScores.scores(answer), answer }
          }),
      })),
    ),
  ),
  summarize: (answers) => ({ calibration_error: DecisionScores.calibrationError(answers.map(({ answer }) => answer)) }),
  show: ({ probabilities }) =>
    probabilities.map(({ label, probability }) => `${label} ${(100 * probability).toFixed(1)}%`).join(", "),
})

/** Renders a row. A label that is not among its choices is an error that names the row. */
const rendered = (
  renderer: DecisionRenderer.Service,
  fallback: ReadonlyArray<DecisionRenderer.Choice> | undefined,
  { file, row, value: { choices = fallback, label, question } }: Row<Example>,
): Effect.Effect<DecisionRenderer.Rendered, BadRow> => {
  const bad = (field: string, problem: string) => new BadRow({ file, row, field, reason: "InvalidRow", problem })
  if (choices === undefined) return Effect.fail(bad("choices", "it has no choices, and neither has the configuration"))
  return renderer.render({ question, choices }).pipe(
    Effect.mapError(({ message }) => bad("choices", message)),
    Effect.filterOrFail(
      ({ labels }) => labels.includes(label),
      ({ labels }) => bad("label", `expected one of ${JSON.stringify(labels)}, got ${JSON.stringify(label)}`),
    ),
  )
}

/**
 * Options of {@link train}.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options<out E = never, out R = never> extends TrainingLoop.Control {
  readonly config: Input
  readonly renderer: Renderer
  readonly data: Table.Table<Example>
  /** Evaluations beside that of the held-out decisions. */
  readonly evaluations?: ReadonlyArray<TrainingLoop.Evaluation<E, R>> | undefined
}

/**
 * The errors of {@link train}, apart from those of evaluations.
 *
 * @since 0.1.0
 * @category errors
 */
export type TrainError = Supervised.TrainError

/**
 * Starts the run in the current store, or continues it, and emits its new events. Trains on the id of the right label with
 * cross-entropy over all tokens, so that the model learns to answer with an id, and with which. The metrics of held-out
 * decisions are those of {@link evaluation}, with the name `test`.
 *
 * @since 0.1.0
 * @category running
 */
export const train = <E = never, R = never>(
  options: Options<E, R>,
): Stream.Stream<RunEvent, TrainError | E, RunStore | ServiceClient | R> =>
  Stream.unwrapScoped(
    Effect.gen(function* () {
      const config = yield* batchingOf(yield* decodeConfig(Config, options.config), 128)
      const { choices, maxLength, onLongRow } = config
      const decisions = DecisionRenderer.make(options.renderer, config)
      // Wrong choices are found before anything is sent.
      if (choices !== undefined)
        yield* Effect.mapError(decisions.render({ question: "", choices }), (error) =>
          error._tag === "InvalidInput" ? new InvalidInput({ path: "config.choices", problem: error.problem }) : error,
        )
      const render = (row: Row<Example>) => rendered(decisions, choices, row)
      return yield* Examples.train({
        ...options,
        recipe: "decisions",
        config: { ...config, onLongRow: maxLength === undefined ? undefined : onLongRow },
        configuration: (learningRate) => Schema.encodeSync(Config)({ ...config, learningRate }),
        datums: (row) =>
          Effect.flatMap(render(row), (decision) =>
            Effect.mapBoth(datumOf(decision, row.value.label), {
              onFailure: ({ message: problem }) =>
                new BadRow({ file: row.file, row: row.row, field: "question", reason: "InvalidRow", problem }),
              onSuccess: (datum) => [datum],
            }),
          ),
        sequences: (row) => Effect.map(render(row), ({ length }) => [{ field: "question", length }]),
        heldOut: (test) => evaluation({ name: "test", renderer: decisions, data: test, choices }),
      })
    }),
  )

/** Returns the datum of a decision: only the id of its label counts. */
const datumOf = ({ labels, length, prompt, tokens }: DecisionRenderer.Rendered, label: string) => {
  const weights = new Float32Array(length)
  weights[length - 1] = 1
  const chunks = prompt.chunks.map((chunk, at) => {
    if (chunk.type !== "encoded_text" || at < prompt.chunks.length - 1) return chunk
    const answered = chunk.tokens.slice()
    answered[answered.length - 1] = tokens[labels.indexOf(label)] ?? 0
    return { ...chunk, tokens: answered }
  })
  return Datums.fromExample({ modelInput: ModelInput.fromChunks(chunks), weights })
}
