/**
 * Prompt distillation: a teacher that follows a long system prompt answers questions, and the student learns the answers
 * without that prompt. The answers are sampled once and kept with the run.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import type { Conversation } from "@effect-tinker/tokenizer/Message"
import type { Renderer } from "@effect-tinker/tokenizer/Renderer"
import type * as Tokenizer from "@effect-tinker/tokenizer/Tokenizer"
import * as ModelInput from "effect-tinker/ModelInput"
import type { ServiceClient } from "effect-tinker/ServiceClient"
import { BadRow } from "./DataError.ts"
import * as Evaluate from "./Evaluate.ts"
import * as Answers from "./internal/Answers.ts"
import { datumsOf, promptOf, sequencesOf } from "./internal/Conversations.ts"
import * as Examples from "./internal/Examples.ts"
import * as OtherModel from "./internal/OtherModel.ts"
import { batchingOf, decodeConfig, openRun, whole } from "./internal/Recipe.ts"
import type { Row } from "./Rows.ts"
import type { Run } from "./Run.ts"
import type { RunEvent } from "./RunEvent.ts"
import type { RunStore } from "./RunStore.ts"
import * as Supervised from "./Supervised.ts"
import type * as Table from "./Table.ts"
import * as TrainingLoop from "./TrainingLoop.ts"

const { onBadRow: _, trainOn: __, ...supervisedFields } = Supervised.Config.fields

/**
 * The configuration of prompt distillation: that of supervised fine-tuning, and how the teacher answers. It can be read
 * from JSON.
 *
 * @since 0.1.0
 * @category models
 */
export const Config = Schema.Struct({
  ...supervisedFields,
  /** The system prompt that only the teacher sees. */
  systemPrompt: Schema.propertySignature(Schema.NonEmptyString).annotations({
    description: "The system prompt that only the teacher sees.",
  }),
  /** A base model, or the path of a checkpoint. Not given: the base model of the student. */
  teacher: Schema.optional(Schema.String).annotations({
    description: "The teacher: a base model, or the path of a checkpoint. Not given: the base model of the student.",
  }),
  /**
   * The most tokens of an answer.
   *
   * @default 1000
   */
  maxTokens: Schema.optionalWith(whole, { default: () => 1_000 }).annotations({
    description: "The most tokens of an answer.",
  }),
  /**
   * The temperature that the teacher answers with.
   *
   * @default 0.15
   */
  temperature: Schema.optionalWith(Schema.NonNegative, { default: () => 0.15 }).annotations({
    description: "The temperature that the teacher answers with.",
  }),
  /**
   * How many answers are sampled at once.
   *
   * @default 64
   */
  concurrency: Schema.optionalWith(whole, { default: () => 64 }).annotations({
    description: "How many answers are sampled at once.",
  }),
  /**
   * Decides about a question that can't be rendered, and one whose answer has no end within `maxTokens`: it is
   * counted and left out, or it ends the run before the first step.
   *
   * @default skip
   */
  onBadRow: Schema.optionalWith(Schema.Literal("fail", "skip"), { default: () => "skip" as const }).annotations({
    description:
      "What happens to a question that can't be rendered, and to one whose answer has no end within maxTokens: it is counted and left out, or it ends the run before the first step.",
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
 * Options of {@link train}.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options<out E = never, out R = never> extends TrainingLoop.Control {
  readonly config: Input
  readonly renderer: Renderer
  /**
   * The renderer of the teacher, if that is another kind of model.
   *
   * @default the renderer of the student
   */
  readonly teacherRenderer?: Renderer | undefined
  /** Adds bits per byte to the metrics, which can be compared between models with different tokenizers. */
  readonly tokenizer?: Tokenizer.Service | undefined
  /** The questions. An answer at the end of a conversation is left out: the teacher gives its own. */
  readonly data: Table.Table<Conversation>
  /** Evaluations beside that of the held-out questions. */
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
 * Starts the run in the current store, or continues it, and emits its new events. The teacher answers all questions
 * before the first step. Answers are kept in `answers.jsonl` as soon as they are sampled: a run that is killed and run
 * again samples only those that are missing, and ends with the same weights.
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
      const { cost, data, renderer, stop = Effect.never, teacherRenderer = renderer, tokenizer } = options
      const { maxLength, maxTokens, model, onBadRow, seed, systemPrompt, temperature } = config
      const learningRate = yield* Examples.learningRateOf(config)
      // Problems with the questions are found before the teacher answers them.
      yield* Examples.prepare({ config, data, sequences: (row) => questionOf(renderer, row) })
      const run = yield* openRun(
        "prompt_distillation",
        config,
        { ...Schema.encodeSync(Config)({ ...config, learningRate }), teacherRenderer: teacherRenderer.name },
        options,
      )
      if (run._tag === "Completed") return Stream.empty
      const teacher: Answers.Teacher = {
        name: config.teacher ?? model,
        renderer: teacherRenderer,
        systemPrompt,
        maxTokens,
        temperature,
        seed,
      }
      const sampler = yield* OtherModel.sampler(run, teacher.name, cost)
      const answers = Answers.table(run.store, sampler, data, teacher, { concurrency: config.concurrency, onBadRow })
      const answered = yield* Effect.raceFirst(answers, stopped(run, stop))
      const answeredOnly = <A, E>(row: Row<Conversation>, made: Effect.Effect<A, E>) =>
        Effect.zipRight(Answers.check(row, teacher), made)
      const trainOn = "last_assistant_message"
      const prepared = yield* Examples.prepare({
        config,
        data: answered,
        sequences: (row) => answeredOnly(row, sequencesOf(renderer, { ...config, trainOn }, row)),
      })
      return Examples.events(run, learningRate, prepared, {
        ...options,
        config,
        datums: (row) => answeredOnly(row, datumsOf(renderer, { maxLength, trainOn }, row)),
        heldOut: (test) => Evaluate.likelihood({ name: "test", renderer, data: test, trainOn, maxLength, tokenizer }),
      })
    }),
  )

/** Renders a question to measure it. */
const questionOf = (renderer: Renderer, row: Row<Conversation>) =>
  Effect.gen(function* () {
    const messages = yield* promptOf(row)
    const prompt = yield* Effect.mapError(
      renderer.generationPrompt(messages),
      ({ message: problem }) =>
        new BadRow({ file: row.file, row: row.row, field: "messages", reason: "InvalidRow", problem }),
    )
    return [{ field: "messages", length: Option.getOrElse(ModelInput.length(prompt), () => 0) }]
  })

/** Ends the run before its first step, when it is asked to or has spent its budget. */
const stopped = ({ nextStep: step, spending, store }: Run, stop: Effect.Effect<unknown>) => {
  const exceeded = Option.match(spending, { onNone: () => Effect.never, onSome: ({ exceeded }) => exceeded })
  return Effect.flatMap(
    Effect.raceFirst(
      Effect.as(stop, undefined),
      Effect.map(exceeded, ({ message }) => message),
    ),
    (reason) => new TrainingLoop.RunStopped({ run: store.name, step, checkpoint: "nothing", reason }),
  )
}
