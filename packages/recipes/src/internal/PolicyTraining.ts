/**
 * Trains a policy on its own rollouts: what reinforcement learning and on-policy distillation have in common. They differ
 * in where tasks come from and in what is added to the advantages.
 */
import * as Array from "effect/Array"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Fiber from "effect/Fiber"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import * as Datums from "@effect-tinker/tokenizer/Datums"
import * as Loss from "effect-tinker/Loss"
import * as Optimizer from "effect-tinker/Optimizer"
import type * as SamplingClient from "effect-tinker/SamplingClient"
import type { ServiceClient } from "effect-tinker/ServiceClient"
import { type FutureError, InvalidInput, type TrainingError, type UnexpectedResponse } from "effect-tinker/TinkerError"
import * as TrainingResult from "effect-tinker/TrainingResult"
import * as Advantages from "../Advantages.ts"
import { CheckpointPolicy } from "../CheckpointPolicy.ts"
import type { Task } from "../Environment.ts"
import * as Kl from "../Kl.ts"
import * as RolloutMetrics from "../RolloutMetrics.ts"
import * as Run from "../Run.ts"
import type { ConfigurationChanged, RunStoreFailed } from "../RunError.ts"
import type { Metrics, RunEvent } from "../RunEvent.ts"
import type { RunStore } from "../RunStore.ts"
import * as TrainingLoop from "../TrainingLoop.ts"
import * as OtherModel from "./OtherModel.ts"
import * as Policies from "./Policies.ts"
import { added, sequenceOf, whole } from "./Recipe.ts"
import * as Rollouts from "./Rollouts.ts"
import * as Staleness from "./Staleness.ts"

/** The settings of every recipe that trains on rollouts. */
export const policyFields = {
  /** The base model, e.g. `Qwen/Qwen3-8B`. */
  model: Schema.propertySignature(Schema.String).annotations({ description: "The base model, e.g. Qwen/Qwen3-8B." }),
  /** @default 32 */
  rank: Schema.optionalWith(whole, { default: () => 32 }).annotations({ description: "The rank of the adapters." }),
  /**
   * Decides the first weights of the adapters and what is sampled.
   *
   * @default 0
   */
  seed: Schema.optionalWith(Schema.NonNegativeInt, { default: () => 0 }).annotations({
    description: "Decides the first weights of the adapters and what is sampled.",
  }),
  /**
   * How many tasks an iteration has.
   *
   * @default 16
   */
  groupsPerIteration: Schema.optionalWith(whole, { default: () => 16 }).annotations({
    description: "How many tasks an iteration has.",
  }),
  /**
   * How many updates an iteration makes, each with its share of the rollouts.
   *
   * @default 1
   */
  updatesPerIteration: Schema.optionalWith(whole, { default: () => 1 }).annotations({
    description: "How many updates an iteration makes, each with its share of the rollouts.",
  }),
  /**
   * Samples rollouts ahead, while updates are made: their weights may be this many updates older than those that the
   * first update of their iteration is made on. 0 samples from the current weights only.
   *
   * @default 0
   */
  maxStaleness: added(Schema.NonNegativeInt, 0).annotations({
    description:
      "Samples rollouts ahead, while updates are made: their weights may be this many updates older than those that the first update of their iteration is made on. 0 samples from the current weights only.",
  }),
  /** The most tokens of an action. */
  maxTokens: Schema.propertySignature(whole).annotations({ description: "The most tokens of an action." }),
  /** @default 1 */
  temperature: Schema.optionalWith(Schema.NonNegative, { default: () => 1 }).annotations({
    description: "The temperature of sampling.",
  }),
  learningRate: Schema.propertySignature(Schema.Positive).annotations({ description: "The learning rate." }),
  /** @default importance_sampling */
  loss: Schema.optionalWith(Schema.Literal("importance_sampling", "ppo", "cispo", "gspo", "dro"), {
    default: () => "importance_sampling" as const,
  }).annotations({ description: "The loss of the policy." }),
  /**
   * If above 0, a token also gets the penalties of those after it, each weighted by this factor once more.
   *
   * @default 0
   */
  klDiscount: added(Schema.NonNegative, 0).annotations({
    description:
      "If above 0, a token also gets the penalties of those after it, each weighted by this factor once more.",
  }),
  /**
   * Decides about a rollout that fails: it ends the run, is repeated in a new environment up to three times, or is
   * left out of its group.
   *
   * @default fail
   */
  onFailedRollout: Schema.optionalWith(Schema.Literal("fail", "retry", "shrink"), {
    default: () => "fail" as const,
  }).annotations({
    description:
      "What happens to a rollout that fails: it ends the run, is repeated in a new environment up to three times, or is left out of its group.",
  }),
  /**
   * How long a rollout may take, in seconds.
   *
   * @default 600
   */
  rolloutTimeoutSeconds: Schema.optionalWith(Schema.Positive, { default: () => 600 }).annotations({
    description: "How long a rollout may take, in seconds.",
  }),
  /**
   * How many rollouts are under way at once.
   *
   * @default 64
   */
  concurrency: Schema.optionalWith(whole, { default: () => 64 }).annotations({
    description: "How many rollouts are under way at once.",
  }),
  /**
   * How many rollouts of an iteration become `Sample` events.
   *
   * @default 4
   */
  samplesPerIteration: Schema.optionalWith(Schema.NonNegativeInt, { default: () => 4 }).annotations({
    description: "How many rollouts of an iteration become Sample events.",
  }),
  checkpoints: Schema.optionalWith(CheckpointPolicy, { default: () => Schema.decodeSync(CheckpointPolicy)({}) }),
} as const

const Fields = Schema.Struct(policyFields)

/** The settings, and what a recipe fixes or leaves to its user. */
export interface Settings extends Schema.Schema.Type<typeof Fields>, Pick<Advantages.Formula, "baseline"> {
  readonly iterations: number
  readonly groupSize: number
  readonly maxTurns: number
  readonly normalizeAdvantages: boolean
  readonly dropConstantGroups: boolean
}

/** The part of the advantages that another model's log probabilities add. */
export interface Penalty {
  /** A base model, or the path of a checkpoint. */
  readonly model: string
  readonly apply: (data: ReadonlyArray<Kl.Penalized>) => Either.Either<Kl.Penalty, InvalidInput>
}

export interface Recipe<E, R, E2> extends TrainingLoop.Control {
  readonly settings: Settings
  /** Everything that decides the outcome of the run. */
  readonly configuration: Run.Options["configuration"]
  readonly userMetadata?: Readonly<Record<string, string>> | undefined
  /** Returns the tasks of an iteration, one for each group. */
  readonly tasks: (iteration: number) => Effect.Effect<ReadonlyArray<Task<E, R>>, E2>
  readonly penalty: Penalty | undefined
  readonly decode?: ((tokens: Int32Array) => Effect.Effect<string>) | undefined
  readonly evaluations?: ReadonlyArray<TrainingLoop.Evaluation<E, R>> | undefined
}

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

const losses: Readonly<Record<Settings["loss"], Loss.Loss<Inputs>>> = {
  importance_sampling: Loss.importanceSampling,
  ppo: Loss.ppo(),
  cispo: Loss.cispo(),
  gspo: Loss.gspo(),
  dro: Loss.dro(),
}

/** Starts the run in the current store, or continues it, and emits its new events. */
export const train = <E, R, E2>(
  recipe: Recipe<E, R, E2>,
): Stream.Stream<RunEvent, TrainError | E | E2, RunStore | ServiceClient | R> =>
  Stream.unwrapScoped(
    Effect.gen(function* () {
      const { settings } = recipe
      const { iterations, learningRate, model, rank, seed, updatesPerIteration } = settings
      const rollouts = settings.groupsPerIteration * settings.groupSize
      if (updatesPerIteration > rollouts) {
        const problem = `expected at most ${rollouts}, the number of rollouts of an iteration, got ${updatesPerIteration}`
        return yield* new InvalidInput({ path: "config.updatesPerIteration", problem })
      }
      const run = yield* Run.open({
        model: { baseModel: model, rank, seed, userMetadata: recipe.userMetadata },
        configuration: recipe.configuration,
        allowChanges: recipe.allowChanges,
        cost: recipe.cost,
      })
      if (run._tag === "Completed") return Stream.empty
      const iterationAt = yield* pipeline(run, recipe)
      const steps = iterations * updatesPerIteration
      return TrainingLoop.events<Inputs, TrainError | E2, R, UnexpectedResponse | InvalidInput, never, E, R>(run, {
        batches: (from) =>
          Stream.iterate(from, (step) => step + 1).pipe(
            Stream.rechunk(1),
            Stream.mapEffect((step) =>
              Effect.flatMap(iterationAt(step), (batches) =>
                Effect.orDie(Effect.fromNullable(batches[step % updatesPerIteration])),
              ),
            ),
          ),
        steps,
        loss: losses[settings.loss],
        optimizer: Optimizer.adam({ learningRate, beta1: 0.9, beta2: 0.95, eps: 1e-8 }),
        metrics: (made) => metricsOf(made, learningRate, steps),
        checkpoints: settings.checkpoints,
        evaluations: recipe.evaluations,
        stop: recipe.stop,
      })
    }),
  )

/** The inputs to the metrics of a step beside its data. */
interface Sampled {
  readonly masks: ReadonlyArray<Float32Array>
}

/** One batch for each update of an iteration. */
type Batches = ReadonlyArray<TrainingLoop.Batch<Inputs> & Sampled>

/**
 * Returns the function that makes the batches of a step's iteration. The loop asks for a step when the update before it
 * has its place in the order of requests: that is the moment at which the iterations that sample from these weights
 * begin, whether or not they are the next to be trained on.
 */
const pipeline = <E, R, E2>(
  run: Run.Run,
  recipe: Recipe<E, R, E2>,
): Effect.Effect<
  (step: number) => Effect.Effect<Batches, TrainError | E2, R>,
  TrainError,
  ServiceClient | Scope.Scope
> =>
  Effect.gen(function* () {
    const { settings } = recipe
    const { maxStaleness, updatesPerIteration } = settings
    const scope = yield* Effect.scope
    const dropped =
      run._tag === "Resumed" ? 0 : yield* Rollouts.retain(run.store, updatesPerIteration, isValid(run, settings))
    if (dropped > 0)
      yield* Effect.logWarning(
        `${dropped} rollouts are sampled again: the run continues from step ${run.nextStep}, and their weights are made again`,
      )
    const known = yield* Rollouts.kept(run.store, updatesPerIteration, firstNeeded(run, updatesPerIteration))
    const policies =
      maxStaleness === 0 ? Policies.current(run) : yield* Policies.saved(run, settings.checkpoints.rollingTtlSeconds)
    const { penalty } = recipe
    const reference = penalty && {
      apply: penalty.apply,
      sampler: yield* OtherModel.sampler(run, penalty.model, recipe.cost),
    }
    const places = yield* Effect.makeSemaphore(settings.concurrency)

    const load = (iteration: number) =>
      Effect.map(recipe.tasks(iteration), (tasks): Iteration<E, R> => {
        const oldest = Staleness.versionOf(settings, iteration)
        const isBegun = Staleness.firstUpdate(settings, iteration) < run.nextStep
        // Only a run whose settings were changed has rollouts that are too old.
        const kept = [...(known.get(iteration)?.values() ?? [])].filter(({ version }) => isBegun || version >= oldest)
        // An iteration in which all have failed has ended the run: they are made again.
        const isUsable = isBegun || kept.some(({ failed }) => failed === undefined)
        const rollouts = new Map(isUsable ? kept.map((rollout) => [Rollouts.placeOf(rollout), rollout]) : [])
        const all = tasks.flatMap((_, group) => Array.makeBy(settings.groupSize, (member) => ({ group, member })))
        // The weights that an iteration in training was sampled from are gone.
        const missing = isBegun ? [] : all.filter((place) => !rollouts.has(Rollouts.placeOf(place)))
        return { index: iteration, tasks, rollouts, missing }
      })

    const started = new Map<number, Fiber.Fiber<Batches, TrainError | E2>>()
    let nextStart = Math.ceil(run.nextStep / updatesPerIteration)
    /** Starts an iteration now that the weights have a number of updates. */
    const start = (iteration: Iteration<E, R>, updates: number) =>
      Effect.gen(function* () {
        const planned = Staleness.versionOf(settings, iteration.index)
        const { length } = iteration.missing
        // Weights that are gone are replaced by the current ones, which are never older.
        const isGone = length > 0 && planned < updates && !(yield* policies.has(planned))
        const version = isGone ? updates : planned
        if (length > 0) yield* policies.place(version)
        if (iteration.rollouts.size > 0)
          yield* Effect.logInfo(
            `iteration ${iteration.index}: ${iteration.rollouts.size} rollouts are reused, ${length} sampled`,
          )
        const sampled =
          length === 0 ? Effect.succeed(iteration) : sampling(run, settings, policies, places, version, iteration)
        const fiber = yield* Effect.forkIn(
          Effect.flatMap(sampled, (iteration) => batchesOf(recipe, reference, iteration)),
          scope,
        )
        started.set(iteration.index, fiber)
      })

    return (step) =>
      Effect.gen(function* () {
        const index = Math.floor(step / updatesPerIteration)
        if (step >= run.nextStep) {
          const end = Staleness.allowed(settings, step)
          while (nextStart < end) yield* start(yield* load(nextStart++), step)
        }
        const fiber = started.get(index)
        if (fiber === undefined)
          return yield* Effect.flatMap(load(index), (iteration) => batchesOf(recipe, reference, iteration))
        const batches = yield* Effect.tapErrorTag(Fiber.join(fiber), "RolloutFailed", () =>
          // Those that are under way end, so that they are kept.
          Fiber.awaitAll([...started.values()]),
        )
        if (step % updatesPerIteration === updatesPerIteration - 1) {
          started.delete(index)
          if (Staleness.isLast(settings, index))
            yield* Effect.forkIn(policies.release(Staleness.versionOf(settings, index)), scope)
        }
        return batches
      })
  })

/** Returns which rollouts still belong to a run that does not continue in its session. */
const isValid =
  ({ _tag, nextStep }: Run.Run, settings: Staleness.Schedule) =>
  ({ iteration, version }: Rollouts.Rollout): boolean =>
    // A fork may sample otherwise, but the rollouts of an iteration that has begun are needed. A run that goes back to a
    // checkpoint can use what was sampled from it and from weights before it.
    Staleness.firstUpdate(settings, iteration) < nextStep || (_tag === "Restored" && version <= nextStep)

/** Returns the first iteration whose rollouts are still needed. */
const firstNeeded = ({ history, nextStep }: Run.Run, updatesPerIteration: number): number => {
  const logged = history.reduce((last, event) => (event._tag === "Step" ? Math.max(last, event.step) : last), -1)
  return Math.floor(Math.min(logged + 1, nextStep) / updatesPerIteration)
}

type Place = Pick<Rollouts.Rollout, "group" | "member">

/** An iteration: its tasks, the rollouts that were made, and the places of those that are missing. */
interface Iteration<E, R> {
  readonly index: number
  readonly tasks: ReadonlyArray<Task<E, R>>
  readonly rollouts: ReadonlyMap<string, Rollouts.Rollout>
  readonly missing: ReadonlyArray<Place>
}

/** Makes the rollouts that are missing. */
const sampling = <E, R>(
  run: Run.Run,
  settings: Settings,
  policies: Policies.Policies,
  places: Effect.Semaphore,
  version: number,
  iteration: Iteration<E, R>,
): Effect.Effect<Iteration<E, R>, TrainError, R> =>
  Effect.scoped(
    Effect.gen(function* () {
      const { index, missing, rollouts, tasks } = iteration
      const sampler = yield* policies.sampler(version)
      const { concurrency, maxTokens, maxTurns, onFailedRollout, rolloutTimeoutSeconds, seed, temperature } = settings
      const limits = { maxTokens, maxTurns, temperature, timeout: rolloutTimeoutSeconds * 1_000 }
      const first = Staleness.firstUpdate(settings, index)
      const results = yield* Effect.forEach(
        missing,
        (place) => {
          const task = tasks[place.group]
          if (task === undefined) return Effect.dieMessage(`iteration ${index} has no task ${place.group}`)
          const at = { ...place, iteration: index, version, seeds: [seed, first, place.group, place.member] }
          return Rollouts.roll(sampler, task, at, limits).pipe(
            Effect.retry({ times: onFailedRollout === "retry" ? 3 : 0, while: ({ _tag }) => _tag === "RolloutFailed" }),
            Effect.catchTag("RolloutFailed", (error) =>
              onFailedRollout === "shrink"
                ? Effect.succeed({ ...place, iteration: index, version, reward: 0, turns: [], failed: error.detail })
                : Effect.fail(error),
            ),
            places.withPermits(1),
            Effect.tap((rollout) => Rollouts.keep(run.store, rollout)),
            // The others go on: a failure ends the run only when all have ended.
            Effect.map((rollout): Either.Either<Rollouts.Rollout, Rollouts.RolloutFailed> => Either.right(rollout)),
            Effect.catchTag("RolloutFailed", (error) => Effect.succeed(Either.left(error))),
          )
        },
        { concurrency },
      )
      const [failed] = Array.getLefts(results)
      if (failed !== undefined) return yield* failed
      const made = Array.getRights(results).map((rollout) => [Rollouts.placeOf(rollout), rollout] as const)
      return { ...iteration, rollouts: new Map([...rollouts, ...made]), missing: [] }
    }),
  )

interface Reference extends Pick<Penalty, "apply"> {
  readonly sampler: SamplingClient.Service
}

/** A rollout with its data. */
interface Trained {
  readonly rollout: Rollouts.Rollout
  readonly data: ReadonlyArray<Datums.TrajectoryDatum>
}

/** Turns the rollouts of an iteration into one batch for each update. */
const batchesOf = <E, R, E2>(
  { decode, settings }: Recipe<E, R, E2>,
  reference: Reference | undefined,
  { index, rollouts, tasks }: Iteration<E, R>,
): Effect.Effect<Batches, TrainError> =>
  Effect.gen(function* () {
    const { groupSize, updatesPerIteration } = settings
    const first = Staleness.firstUpdate(settings, index)
    const ended = tasks.map((_, group) =>
      Array.makeBy(groupSize, (member) => rollouts.get(Rollouts.placeOf({ group, member }))).filter(
        (rollout) => rollout !== undefined,
      ),
    )
    const groups = ended.map((members) => members.filter(({ failed }) => failed === undefined))
    const failures = ended.flat().flatMap(({ failed: detail, group, member }) => {
      const { name = "" } = tasks[group] ?? {}
      return detail === undefined ? [] : [new Rollouts.RolloutFailed({ task: name, group, member, detail })]
    })
    const computed = yield* Advantages.compute(groups, {
      baseline: settings.baseline,
      normalize: settings.normalizeAdvantages,
      dropConstant: settings.dropConstantGroups,
    })
    const rated = yield* Effect.forEach(
      computed.groups.flatMap(({ advantages, members }) =>
        members.map((rollout, member) => ({ rollout, advantage: advantages[member] ?? 0 })),
      ),
      ({ advantage, rollout }) => Effect.map(dataOf(rollout, advantage), (data): Trained => ({ rollout, data })),
    )
    const { metrics: distances, trained } = yield* penalized(rated, reference, settings.concurrency)
    const all = trained.flatMap(({ data }) => data)
    if (all.length === 0) {
      const why = failures[0] === undefined ? "" : `: ${failures[0].message}`
      return yield* new InvalidInput({ path: "rollouts", problem: `iteration ${index} has none to train on${why}` })
    }
    const metrics: Metrics = {
      ...RolloutMetrics.compute(
        groups.map((members, group) => ({
          tags: tasks[group]?.tags,
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
      ...distances,
      ...ages(groups.flat(), first),
      "rollouts/failed": failures.length,
      "rollouts/constant_groups": computed.constant,
    }
    const samples = yield* Effect.forEach(
      trained.slice(0, decode === undefined ? 0 : settings.samplesPerIteration),
      (one) => sampleOf(one, first, index * settings.groupsPerIteration, tasks, decode),
    )
    const warnings = failures.map(({ message }) => ({
      _tag: "Warning" as const,
      step: first,
      reason: "rollout_failed",
      message,
    }))
    return Array.makeBy(updatesPerIteration, (update) => {
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

const dataOf = ({ turns }: Rollouts.Rollout, advantage: number) =>
  Datums.fromTrajectory(
    turns.map(({ logprobs, masked, prompt, tokens }) => ({
      observation: prompt,
      tokens: Int32Array.from(tokens),
      logprobs,
      masked,
    })),
    advantage,
  )

/** Adds what the log probabilities of a reference say about each token to the advantages. */
const penalized = (
  rated: ReadonlyArray<Trained>,
  reference: Reference | undefined,
  concurrency: number,
): Effect.Effect<{ readonly trained: ReadonlyArray<Trained>; readonly metrics: Metrics }, FutureError | InvalidInput> =>
  Effect.gen(function* () {
    if (reference === undefined) return { trained: rated, metrics: {} }
    const compared = yield* Effect.forEach(
      rated.flatMap(({ data }) => data),
      ({ datum, mask }) =>
        Effect.map(reference.sampler.computeLogprobs(sequenceOf(datum)), (logprobs) => ({
          sampled: datum.inputs.logprobs,
          other: logprobs.subarray(1),
          mask,
          advantages: datum.inputs.advantages,
        })),
      { concurrency },
    )
    const { advantages, metrics } = yield* reference.apply(compared)
    let at = 0
    const trained = rated.map(({ data, rollout }) => ({
      rollout,
      data: data.map(({ datum, mask }) => {
        const own = advantages[at++] ?? datum.inputs.advantages
        return { datum: { ...datum, inputs: { ...datum.inputs, advantages: own } }, mask }
      }),
    }))
    return { trained, metrics }
  })

/** Returns how many updates the policies of rollouts had, and how many have been made since the oldest. */
const ages = (rollouts: ReadonlyArray<Rollouts.Rollout>, firstUpdate: number): Metrics => {
  if (rollouts.length === 0) return {}
  const versions = rollouts.map(({ version }) => version)
  const oldest = Math.min(...versions)
  return {
    "sampling_client/step_min": oldest,
    "sampling_client/step_max": Math.max(...versions),
    "sampling_client/step_mean": versions.reduce((sum, version) => sum + version, 0) / versions.length,
    "rollouts/staleness": firstUpdate - oldest,
  }
}

const sampleOf = <E, R>(
  { data, rollout }: Trained,
  trainingStep: number,
  firstTask: number,
  tasks: ReadonlyArray<Task<E, R>>,
  decode: Recipe<E, R, never>["decode"],
) =>
  Effect.gen(function* () {
    const { group, reward, turns, version } = rollout
    const advantages = data.flatMap(({ datum, mask }) =>
      [...datum.inputs.advantages].filter((_, at) => (mask[at] ?? 0) > 0),
    )
    let at = 0
    const tokens = turns.flatMap(({ logprobs, masked, tokens }) =>
      tokens.map((token, index) => ({
        token,
        logprob: logprobs[index] ?? 0,
        advantage: masked === true ? 0 : (advantages[at++] ?? 0),
      })),
    )
    return {
      _tag: "Sample" as const,
      step: version,
      ...(version === trainingStep ? {} : { trainingStep }),
      source: "rollout",
      group: String(firstTask + group),
      prompt: tasks[group]?.name ?? "",
      tokens: yield* Effect.forEach(tokens, ({ token, ...rest }) =>
        Effect.map(decode?.(Int32Array.of(token)) ?? Effect.succeed(""), (text) => ({ text, ...rest })),
      ),
      reward,
    }
  })

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
