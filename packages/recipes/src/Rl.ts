/**
 * Reinforcement learning: the policy solves tasks in groups, and rollouts that did better than their group become
 * likelier. Rollouts are sampled from the current weights and kept as soon as they end, so that a crash repeats none.
 *
 * @since 0.1.0
 */
import * as Array from "effect/Array"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import * as Datums from "@effect-tinker/tokenizer/Datums"
import * as Loss from "effect-tinker/Loss"
import * as Optimizer from "effect-tinker/Optimizer"
import type { ServiceClient } from "effect-tinker/ServiceClient"
import { type FutureError, InvalidInput, type TrainingError, type UnexpectedResponse } from "effect-tinker/TinkerError"
import * as TrainingResult from "effect-tinker/TrainingResult"
import * as Advantages from "./Advantages.ts"
import { CheckpointPolicy } from "./CheckpointPolicy.ts"
import type { Task } from "./Environment.ts"
import { decodeConfig, whole } from "./internal/Recipe.ts"
import * as Rollouts from "./internal/Rollouts.ts"
import * as Kl from "./Kl.ts"
import * as RolloutMetrics from "./RolloutMetrics.ts"
import * as Run from "./Run.ts"
import type { ConfigurationChanged, RunStoreFailed } from "./RunError.ts"
import type { Metrics, RunEvent } from "./RunEvent.ts"
import type { RunStore } from "./RunStore.ts"
import * as TrainingLoop from "./TrainingLoop.ts"

/**
 * The configuration of reinforcement learning. It can be read from JSON.
 *
 * @since 0.1.0
 * @category models
 */
export const Config = Schema.Struct({
  /** The base model, e.g. `Qwen/Qwen3-8B`. */
  model: Schema.String,
  /** @default 32 */
  rank: Schema.optionalWith(whole, { default: () => 32 }),
  /**
   * Decides the first weights of the adapters and what is sampled.
   *
   * @default 0
   */
  seed: Schema.optionalWith(Schema.NonNegativeInt, { default: () => 0 }),
  /** How many batches of rollouts are made. */
  iterations: whole,
  /**
   * How many tasks an iteration has.
   *
   * @default 16
   */
  groupsPerIteration: Schema.optionalWith(whole, { default: () => 16 }),
  /**
   * How many rollouts a task has.
   *
   * @default 8
   */
  groupSize: Schema.optionalWith(whole, { default: () => 8 }),
  /**
   * How many updates an iteration makes, each with its share of the rollouts.
   *
   * @default 1
   */
  updatesPerIteration: Schema.optionalWith(whole, { default: () => 1 }),
  /** The most tokens of an action. */
  maxTokens: whole,
  /**
   * The most actions of a rollout.
   *
   * @default 8
   */
  maxTurns: Schema.optionalWith(whole, { default: () => 8 }),
  /** @default 1 */
  temperature: Schema.optionalWith(Schema.NonNegative, { default: () => 1 }),
  learningRate: Schema.Positive,
  /** @default importance_sampling */
  loss: Schema.optionalWith(Schema.Literal("importance_sampling", "ppo", "cispo", "gspo", "dro"), {
    default: () => "importance_sampling" as const,
  }),
  /**
   * What a reward is compared with: the mean of its group, or of all others in it.
   *
   * @default group
   */
  baseline: Schema.optionalWith(Schema.Literal("group", "others"), { default: () => "group" as const }),
  /**
   * Divides advantages by the standard deviation of their group.
   *
   * @default false
   */
  normalizeAdvantages: Schema.optionalWith(Schema.Boolean, { default: () => false }),
  /**
   * Leaves out groups in which all rewards are the same.
   *
   * @default false
   */
  dropConstantGroups: Schema.optionalWith(Schema.Boolean, { default: () => false }),
  /**
   * What happens to a rollout that fails: it ends the run, is repeated in a new environment up to three times, or is
   * left out of its group.
   *
   * @default fail
   */
  onFailedRollout: Schema.optionalWith(Schema.Literal("fail", "retry", "shrink"), { default: () => "fail" as const }),
  /**
   * How long a rollout may take, in seconds.
   *
   * @default 600
   */
  rolloutTimeoutSeconds: Schema.optionalWith(Schema.Positive, { default: () => 600 }),
  /**
   * How many rollouts are under way at once.
   *
   * @default 64
   */
  concurrency: Schema.optionalWith(whole, { default: () => 64 }),
  /**
   * How many rollouts of an iteration become `Sample` events.
   *
   * @default 4
   */
  samplesPerIteration: Schema.optionalWith(Schema.NonNegativeInt, { default: () => 4 }),
  checkpoints: Schema.optionalWith(CheckpointPolicy, { default: () => Schema.decodeSync(CheckpointPolicy)({}) }),
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
export type TrainError =
  | TrainingLoop.LoopError
  | RunStoreFailed
  | ConfigurationChanged
  | Rollouts.RolloutFailed
  | Advantages.BadReward
  | InvalidInput
  | UnexpectedResponse
  | FutureError
  | TrainingError

type Inputs = Loss.PolicyInputs

const losses: Readonly<Record<Config["loss"], Loss.Loss<Inputs>>> = {
  importance_sampling: Loss.importanceSampling,
  ppo: Loss.ppo(),
  cispo: Loss.cispo(),
  gspo: Loss.gspo(),
  dro: Loss.dro(),
}

/**
 * Starts the run in the current store, or continues it, and emits its new events. Sampling is seeded, so that a run
 * that is killed and run again makes the same rollouts and ends with the same weights, as far as the server does.
 *
 * @since 0.1.0
 * @category running
 */
export const train = <E, R>(
  options: Options<E, R>,
): Stream.Stream<RunEvent, TrainError | E, RunStore | ServiceClient | R> =>
  Stream.unwrapScoped(
    Effect.gen(function* () {
      const config = yield* decodeConfig(Config, options.config)
      const { iterations, learningRate, rank, seed, updatesPerIteration } = config
      const rollouts = config.groupsPerIteration * config.groupSize
      if (updatesPerIteration > rollouts) {
        const problem = `expected at most ${rollouts}, the number of rollouts of an iteration, got ${updatesPerIteration}`
        return yield* new InvalidInput({ path: "config.updatesPerIteration", problem })
      }
      const run = yield* Run.open({
        model: { baseModel: config.model, rank, seed },
        configuration: { recipe: "rl", ...Schema.encodeSync(Config)(config), tasks: options.tasks },
        allowChanges: options.allowChanges,
      })
      if (run._tag === "Completed") return Stream.empty
      // The rollouts of an iteration that has begun are still needed.
      const firstNew = Math.ceil(run.nextStep / updatesPerIteration) * updatesPerIteration
      if (run._tag !== "Resumed") yield* Rollouts.forget(run.store, firstNew)
      const kept = yield* Rollouts.kept(run.store, firstStored(run, updatesPerIteration))
      const steps = iterations * updatesPerIteration
      const optimizer = Optimizer.adam({ learningRate, beta1: 0.9, beta2: 0.95, eps: 1e-8 })
      const iteration = (index: number) => iterationOf(run, config, options, kept, index)
      return TrainingLoop.events<Inputs, TrainError, R, UnexpectedResponse | InvalidInput, never, E, R>(run, {
        batches: (from) =>
          Stream.iterate(Math.floor(from / updatesPerIteration), (index) => index + 1).pipe(
            Stream.rechunk(1),
            Stream.mapEffect((index) => Effect.map(iteration(index), (batches) => ({ batches, index }))),
            Stream.mapConcat(({ batches, index }) => batches.slice(Math.max(0, from - index * updatesPerIteration))),
          ),
        steps,
        loss: losses[config.loss],
        optimizer,
        metrics: (made) => metricsOf(made, learningRate, steps),
        checkpoints: config.checkpoints,
        evaluations: options.evaluations,
        stop: options.stop,
      })
    }),
  )

/** The first policy version whose rollouts are still needed. */
const firstStored = ({ history, nextStep }: Run.Run, updatesPerIteration: number): number => {
  const logged = history.reduce((last, event) => (event._tag === "Step" ? Math.max(last, event.step) : last), -1)
  return Math.floor(Math.min(logged + 1, nextStep) / updatesPerIteration) * updatesPerIteration
}

/** Makes the rollouts of an iteration that are missing, and turns all of them into one batch for each update. */
const iterationOf = <E, R>(
  run: Run.Run,
  config: Config,
  { decode, task }: Options<E, R>,
  kept: ReadonlyMap<number, ReadonlyArray<Rollouts.Rollout>>,
  index: number,
): Effect.Effect<ReadonlyArray<TrainingLoop.Batch<Inputs> & Sampled>, TrainError, R> =>
  Effect.gen(function* () {
    const { groupSize, groupsPerIteration, updatesPerIteration } = config
    const version = index * updatesPerIteration
    const known = new Map((kept.get(version) ?? []).map((rollout) => [`${rollout.group} ${rollout.member}`, rollout]))
    const places = globalThis.Array.from({ length: groupsPerIteration * groupSize }, (_, place) => ({
      group: Math.floor(place / groupSize),
      member: place % groupSize,
    }))
    const missing = places.filter(({ group, member }) => !known.has(`${group} ${member}`))
    const failures: Array<Rollouts.RolloutFailed> = []
    // The weights of a later step are not those that these rollouts came from.
    if (missing.length > 0 && version >= run.nextStep) {
      const made = yield* rollAll(run, config, task, version, index * groupsPerIteration, missing)
      for (const result of made) {
        if (Either.isLeft(result)) failures.push(result.left)
        else known.set(`${result.right.group} ${result.right.member}`, result.right)
      }
    }
    const groups = globalThis.Array.from({ length: groupsPerIteration }, (_, group) =>
      globalThis.Array.from({ length: groupSize }, (_, member) => known.get(`${group} ${member}`)).filter(
        (rollout) => rollout !== undefined,
      ),
    )
    const computed = yield* Advantages.compute(groups, {
      baseline: config.baseline,
      normalize: config.normalizeAdvantages,
      dropConstant: config.dropConstantGroups,
    })
    const data = yield* Either.all(
      computed.groups.flatMap(({ advantages, members }) =>
        members.map(({ turns }, member) =>
          Datums.fromTrajectory(
            turns.map(({ logprobs, masked, prompt, tokens }) => ({
              observation: prompt,
              tokens: Int32Array.from(tokens),
              logprobs,
              masked,
            })),
            advantages[member] ?? 0,
          ),
        ),
      ),
    )
    const all = data.flat()
    if (all.length === 0) {
      const why = failures[0] === undefined ? "" : `: ${failures[0].message}`
      return yield* new InvalidInput({ path: "rollouts", problem: `iteration ${index} has none to train on${why}` })
    }
    const metrics: Metrics = {
      ...RolloutMetrics.compute(
        groups.map((members, group) => ({
          tags: task(index * groupsPerIteration + group).tags,
          members: members.map(({ reward, turns }) => ({
            reward,
            turns: turns.map(({ metrics, prompt, tokens }) => ({
              observationTokens: prompt.length,
              actionTokens: tokens.length,
              metrics,
            })),
          })),
        })),
      ),
      "rollouts/failed": failures.length,
      "rollouts/constant_groups": computed.constant,
    }
    const samples = yield* Effect.forEach(
      computed.groups
        .flatMap(({ advantages, members }) =>
          members.map((rollout, member) => ({ rollout, advantage: advantages[member] ?? 0 })),
        )
        .slice(0, decode === undefined ? 0 : config.samplesPerIteration),
      ({ advantage, rollout }) => sampleOf(rollout, advantage, index * groupsPerIteration, task, decode),
    )
    const warnings = failures.map((failure) => ({
      _tag: "Warning" as const,
      step: version,
      reason: "rollout_failed",
      message: failure.message,
    }))
    return globalThis.Array.from({ length: updatesPerIteration }, (_, update) => {
      const share = all.filter((_, at) => Math.floor((at * updatesPerIteration) / all.length) === update)
      // Fewer data than updates, e.g. because groups were left out: some are used again.
      const own = share.length > 0 ? share : all.slice(update % all.length, (update % all.length) + 1)
      return {
        data: own.map(({ datum }) => datum),
        masks: own.map(({ mask }) => mask),
        tokens: own.reduce((sum, { datum }) => sum + datum.inputs.targetTokens.length, 0),
        metrics: update === 0 ? metrics : {},
        notes: update === 0 ? [...samples, ...warnings] : [],
      }
    })
  })

/** What the metrics of a step need beside its data. */
interface Sampled {
  readonly masks: ReadonlyArray<Float32Array>
}

const rollAll = <E, R>(
  run: Run.Run,
  config: Config,
  task: Options<E, R>["task"],
  version: number,
  firstTask: number,
  places: ReadonlyArray<{ readonly group: number; readonly member: number }>,
) =>
  Effect.scoped(
    Effect.gen(function* () {
      const sampler = yield* run.client.saveWeightsAndGetSamplingClient()
      const { maxTokens, maxTurns, onFailedRollout, rolloutTimeoutSeconds, temperature } = config
      const limits = { maxTokens, maxTurns, temperature, timeout: rolloutTimeoutSeconds * 1_000 }
      const results = yield* Effect.forEach(
        places,
        (place) =>
          Rollouts.roll(sampler, task(firstTask + place.group), { ...place, seed: config.seed, version }, limits).pipe(
            Effect.retry({ times: onFailedRollout === "retry" ? 3 : 0, while: ({ _tag }) => _tag === "RolloutFailed" }),
            Effect.tap((rollout) => Rollouts.keep(run.store, rollout)),
            // The others go on: a failure ends the run only when all have ended.
            Effect.map((rollout): Either.Either<Rollouts.Rollout, Rollouts.RolloutFailed> => Either.right(rollout)),
            Effect.catchTag("RolloutFailed", (error) => Effect.succeed(Either.left(error))),
          ),
        { concurrency: config.concurrency },
      )
      const [failed] = Array.getLefts(results)
      if (failed !== undefined && onFailedRollout !== "shrink") return yield* failed
      return results
    }),
  )

const sampleOf = <E, R>(
  { group, reward, turns, version }: Rollouts.Rollout,
  advantage: number,
  firstTask: number,
  task: Options<E, R>["task"],
  decode: Options<E, R>["decode"],
) =>
  Effect.map(
    Effect.forEach(turns, ({ logprobs, tokens }) =>
      Effect.forEach(tokens, (token, at) =>
        Effect.map(decode?.(Int32Array.of(token)) ?? Effect.succeed(""), (text) => ({
          text,
          logprob: logprobs[at] ?? 0,
          advantage,
        })),
      ),
    ),
    (tokens) => ({
      _tag: "Sample" as const,
      step: version,
      source: "rollout",
      group: String(firstTask + group),
      prompt: task(firstTask + group).name,
      tokens: tokens.flat(),
      reward,
    }),
  )

const metricsOf = (
  { batch, pass, step }: TrainingLoop.MadeStep<Inputs>,
  learningRate: number,
  steps: number,
): Effect.Effect<Metrics, UnexpectedResponse | InvalidInput> =>
  Effect.gen(function* () {
    const trained = yield* TrainingResult.logprobs(pass)
    const { masks } = batch as TrainingLoop.Batch<Inputs> & Sampled
    const kl = yield* Kl.sampleTrain(
      batch.data.map(({ inputs }, index) => ({
        sampled: inputs.logprobs as ArrayLike<number>,
        other: trained[index] ?? [],
        mask: masks[index] ?? [],
      })),
    )
    return { ...kl, "optim/lr": learningRate, "progress/done_frac": (step + 1) / steps }
  })
