/**
 * On-policy distillation: a student answers, a teacher rates every token of the answers by how likely it finds it, and the
 * tokens that the teacher finds likelier than the student become likelier. The student learns from its own answers, so
 * it learns what to do where it would err.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import type { Conversation } from "@effect-tinker/tokenizer/Message"
import type { Renderer } from "@effect-tinker/tokenizer/Renderer"
import type { Failure as RendererFailure } from "@effect-tinker/tokenizer/RendererError"
import type { ServiceClient } from "effect-tinker/ServiceClient"
import type { BadRow } from "./DataError.ts"
import * as Environment from "./Environment.ts"
import { promptOf } from "./internal/Conversations.ts"
import * as PolicyTraining from "./internal/PolicyTraining.ts"
import { batchesOf, decodeConfig, whole } from "./internal/Recipe.ts"
import * as Kl from "./Kl.ts"
import type { RunEvent } from "./RunEvent.ts"
import type { RunStore } from "./RunStore.ts"
import type * as Table from "./Table.ts"
import type * as TrainingLoop from "./TrainingLoop.ts"

/**
 * The configuration of on-policy distillation. It can be read from JSON.
 *
 * @since 0.1.0
 * @category models
 */
export const Config = Schema.Struct({
  ...PolicyTraining.policyFields,
  /** A base model, or the path of a checkpoint. It must have the tokens of the student. */
  teacher: Schema.propertySignature(Schema.String).annotations({
    description: "The teacher: a base model, or the path of a checkpoint. It must have the tokens of the student.",
  }),
  /** @default 1 */
  epochs: Schema.optionalWith(whole, { default: () => 1 }).annotations({ description: "How often each row is used." }),
  /** Ends the run after this many iterations. */
  maxIterations: Schema.optional(whole).annotations({ description: "Ends the run after this many iterations." }),
  /**
   * How many rollouts a row has.
   *
   * @default 4
   */
  groupSize: Schema.optionalWith(whole, { default: () => 4 }).annotations({
    description: "How many rollouts a row has.",
  }),
  /**
   * The most actions of a rollout.
   *
   * @default 8
   */
  maxTurns: Schema.optionalWith(whole, { default: () => 8 }).annotations({
    description: "The most actions of a rollout.",
  }),
  /**
   * How much the distance to the teacher counts against a token ({@link Kl.teacher}).
   *
   * @default 1
   */
  klPenalty: Schema.optionalWith(Schema.Positive, { default: () => 1 }).annotations({
    description: "How much the distance to the teacher counts against a token.",
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

export {
  /**
   * A rollout that failed, or did not end in time.
   *
   * @since 0.1.0
   * @category errors
   */
  RolloutFailed,
} from "./internal/Rollouts.ts"

/**
 * Options of {@link train}.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options<A extends Conversation, E = never, R = never> extends TrainingLoop.Control {
  readonly config: Input
  readonly renderer: Renderer
  /** The conversations to continue. An answer at the end of a conversation is left out: the student gives its own. */
  readonly data: Table.Table<A>
  /**
   * Returns the task of a row, e.g. one with tools, several turns, or a reward, which counts beside the teacher. It must
   * be the same whenever it is asked for. Not given: the student answers once, without a reward.
   */
  readonly task?: ((row: A) => Environment.Task<E, R>) | undefined
  /** Decodes tokens for people. */
  readonly decode?: ((tokens: Int32Array) => Effect.Effect<string>) | undefined
  readonly evaluations?: ReadonlyArray<TrainingLoop.Evaluation<E, R>> | undefined
}

/**
 * The errors of {@link train}, apart from those of evaluations.
 *
 * @since 0.1.0
 * @category errors
 */
export type TrainError = PolicyTraining.TrainError | RendererFailure | BadRow | Table.Failure

/**
 * Starts the run in the current store, or continues it, and emits its new events. `teacher_kl` is the mean distance of the
 * sampled tokens to the teacher. Rollouts are kept as soon as they end, so that a run that is killed and run again makes
 * the same rollouts and ends with the same weights, as far as the server does.
 *
 * @since 0.1.0
 * @category running
 */
export const train = <A extends Conversation, E = never, R = never>(
  options: Options<A, E, R>,
): Stream.Stream<RunEvent, TrainError | E, RunStore | ServiceClient | R> =>
  Stream.unwrap(
    Effect.gen(function* () {
      const config = yield* decodeConfig(Config, options.config)
      const { config: _, data, renderer, task, ...rest } = options
      const { epochs, groupsPerIteration, klDiscount: discount, klPenalty: coefficient, maxIterations, seed } = config
      const { batches, steps: iterations } = yield* batchesOf(data, {
        batchSize: groupsPerIteration,
        epochs,
        seed,
        maxSteps: maxIterations,
      })
      return PolicyTraining.train<E | RendererFailure, R, BadRow | Table.Failure>({
        ...rest,
        settings: {
          ...config,
          iterations,
          baseline: "group",
          normalizeAdvantages: false,
          // Without rewards all groups are constant.
          dropConstantGroups: false,
        },
        configuration: {
          recipe: "distillation",
          ...Schema.encodeSync(Config)(config),
          renderer: renderer.name,
          data: data.fingerprint,
        },
        userMetadata: { renderer_name: renderer.name },
        tasks: (iteration) =>
          Effect.flatMap(Effect.catchTag(batches.at(iteration), "InvalidInput", Effect.die), ({ rows }) =>
            Effect.forEach(rows, (row) =>
              task === undefined
                ? Effect.map(promptOf(row), (messages) => Environment.question({ renderer, messages, reward: () => 0 }))
                : Effect.succeed(task(row.value)),
            ),
          ),
        penalty: { model: config.teacher, apply: (data) => Kl.teacher(data, { coefficient, discount }) },
      })
    }),
  )
