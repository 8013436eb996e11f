/**
 * Reinforcement learning: the policy solves tasks in groups, and rollouts that did better than their group become
 * likelier. Rollouts are sampled from the current weights and kept as soon as they end, so that a crash repeats none.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Predicate from "effect/Predicate"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import type { ServiceClient } from "effect-tinker/ServiceClient"
import { InvalidInput } from "effect-tinker/TinkerError"
import type { Task } from "./Environment.ts"
import * as PolicyTraining from "./internal/PolicyTraining.ts"
import { added, decodeConfig, whole } from "./internal/Recipe.ts"
import * as Kl from "./Kl.ts"
import type { RunEvent } from "./RunEvent.ts"
import type { RunStore } from "./RunStore.ts"
import type * as TrainingLoop from "./TrainingLoop.ts"

/**
 * The configuration of reinforcement learning. It can be read from JSON.
 *
 * @since 0.1.0
 * @category models
 */
export const Config = Schema.Struct({
  ...PolicyTraining.policyFields,
  /** How many batches of rollouts are made. */
  iterations: Schema.propertySignature(whole).annotations({ description: "How many batches of rollouts are made." }),
  /**
   * How many rollouts a task has.
   *
   * @default 8
   */
  groupSize: Schema.optionalWith(whole, { default: () => 8 }).annotations({
    description: "How many rollouts a task has.",
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
   * The baseline of a reward: the mean of its group, or of all others in it.
   *
   * @default group
   */
  baseline: Schema.optionalWith(Schema.Literal("group", "others"), { default: () => "group" as const }).annotations({
    description: "What a reward is compared with: the mean of its group, or of all others in it.",
  }),
  /**
   * Divides advantages by the standard deviation of their group.
   *
   * @default false
   */
  normalizeAdvantages: Schema.optionalWith(Schema.Boolean, { default: () => false }).annotations({
    description: "Divides advantages by the standard deviation of their group.",
  }),
  /**
   * Leaves out groups in which all rewards are the same.
   *
   * @default false
   */
  dropConstantGroups: Schema.optionalWith(Schema.Boolean, { default: () => false }).annotations({
    description: "Leaves out groups in which all rewards are the same.",
  }),
  /**
   * How much the distance to the reference counts against a token ({@link Kl.penalty}).
   *
   * @default 0
   */
  klPenalty: added(Schema.NonNegative, 0).annotations({
    description: "How much the distance to the reference counts against a token.",
  }),
  /** The reference: a base model, or the path of a checkpoint. Not given: the base model. */
  klReference: Schema.optional(Schema.String).annotations({
    description: "The reference: a base model, or the path of a checkpoint. Not given: the base model.",
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
export interface Options<E, R> extends TrainingLoop.Control {
  readonly config: Input
  /** Returns the task with a number, counted from 0 over all iterations. It must be the same whenever it is asked for. */
  readonly task: (index: number) => Task<E, R>
  /** Identifies the tasks, so that a run is not continued with others. */
  readonly tasks: string
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
export type TrainError = PolicyTraining.TrainError

/**
 * Starts the run in the current store, or continues it, and emits its new events. Sampling is seeded, and it is fixed in
 * advance which weights a rollout is sampled from, so that a run that is killed and run again makes the same rollouts
 * and ends with the same weights, as far as the server does.
 *
 * @since 0.1.0
 * @category running
 */
export const train = <E, R>(
  options: Options<E, R>,
): Stream.Stream<RunEvent, TrainError | E, RunStore | ServiceClient | R> =>
  Stream.unwrap(
    Effect.map(decodeConfig(Config, options.config), (config) => {
      const { groupsPerIteration, klDiscount: discount, klPenalty: coefficient, klReference, model } = config
      const { config: _, task, tasks, ...rest } = options
      return PolicyTraining.train<E, R, InvalidInput>({
        ...rest,
        settings: config,
        configuration: { recipe: "rl", ...Schema.encodeSync(Config)(config), tasks },
        tasks: (iteration) =>
          Either.all(
            Array.from({ length: groupsPerIteration }, (_, at) => taskAt(task, iteration * groupsPerIteration + at)),
          ),
        penalty:
          coefficient === 0
            ? undefined
            : { model: klReference ?? model, apply: (data) => Kl.penalty(data, { coefficient, discount }) },
      })
    }),
  )

/** Returns the task with a number. What the user's function throws names that number. */
const taskAt = <E, R>(task: Options<E, R>["task"], index: number): Either.Either<Task<E, R>, InvalidInput> => {
  const invalid = (problem: string, cause?: unknown) => new InvalidInput({ path: `task(${index})`, problem, cause })
  return Either.try({
    try: () => task(index),
    catch: (cause) => invalid(cause instanceof Error ? cause.message : String(cause), cause),
  }).pipe(Either.filterOrLeft(Predicate.isRecord, (found) => invalid(`expected a task, got ${String(found)}`)))
}
