/**
 * Trains a model on the server. Every operation has three forms: `enqueue.x` completes when the operation has its place
 * in the order, `submit.x` when the server has accepted it, `x` when its result has arrived. Requests reach the server in
 * the order of the calls. Each is applied at most once; if the client can't find out whether one was, it fails with
 * `SequenceBroken` and stops.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as Either from "effect/Either"
import * as ExecutionStrategy from "effect/ExecutionStrategy"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type * as Redacted from "effect/Redacted"
import * as Ref from "effect/Ref"
import * as Scope from "effect/Scope"
import type * as Stream from "effect/Stream"
import * as ApiFuture from "./ApiFuture.ts"
import * as Checkpoint from "./Checkpoint.ts"
import type * as CustomLoss from "./CustomLoss.ts"
import type { Datum } from "./Datum.ts"
import { Host } from "./http/Host.ts"
import type { JsonObject } from "./internal/codec/Wire.ts"
import * as Meters from "./internal/runtime/Meters.ts"
import { traced } from "./internal/runtime/Trace.ts"
import * as CustomPass from "./internal/training/CustomPass.ts"
import * as Ledger from "./internal/training/Ledger.ts"
import * as OpenPlan from "./internal/training/OpenPlan.ts"
import * as Operations from "./internal/training/Operations.ts"
import * as PassRequests from "./internal/training/PassRequests.ts"
import * as Resume from "./internal/training/Resume.ts"
import * as Steps from "./internal/training/Steps.ts"
import type { StepFailed } from "./internal/training/StepFailed.ts"
import * as StepTags from "./internal/training/StepTags.ts"
import type * as Submission from "./internal/training/Submission.ts"
import * as TrainingDriver from "./internal/training/TrainingDriver.ts"
import { uptime } from "./internal/util/MonotonicClock.ts"
import type * as Loss from "./Loss.ts"
import * as Optimizer from "./Optimizer.ts"
import * as Api from "./protocol/Api.ts"
import type * as Endpoint from "./protocol/Endpoint.ts"
import type { Accepted } from "./protocol/schemas/Futures.ts"
import type { LoraConfig, ModelInfo, OptimStepResult } from "./protocol/schemas/Training.ts"
import type { ServerConfig } from "./protocol/ServerConfig.ts"
import * as RateLimiter from "./RateLimiter.ts"
import * as SamplingClient from "./SamplingClient.ts"
import * as Session from "./Session.ts"
import * as TinkerConfig from "./TinkerConfig.ts"
import {
  ClientClosed,
  type FutureError,
  InvalidConfig,
  InvalidInput,
  JournalFailed,
  type SequenceBroken,
  SessionLost,
  type SubmitError,
  type TinkerError,
  type TrainingError,
} from "./TinkerError.ts"
import * as TrainingJournal from "./TrainingJournal.ts"
import type { TrainingResult } from "./TrainingResult.ts"
import { Transport } from "./Transport.ts"

/**
 * An operation that has its place in the order of requests. Interrupting a fiber that awaits it does not affect the
 * operation; `cancel` gives it up if it was not sent yet.
 *
 * @since 0.1.0
 * @category models
 */
export type Ticket<A, E = never> = Submission.Ticket<A, E>

/**
 * The form in which an operation is called.
 *
 * @since 0.1.0
 * @category models
 */
export type Form = "enqueue" | "submit" | "plain"

/**
 * The effect of an operation with result `A` in a form. `E` and `R` come from the user's own code, e.g. a custom loss.
 *
 * @since 0.1.0
 * @category models
 */
export type Outcome<F extends Form, A, E = never, R = never> = F extends "enqueue"
  ? Effect.Effect<Ticket<A, E>, SubmitError, R>
  : F extends "submit"
    ? Effect.Effect<ApiFuture.ApiFuture<A>, SubmitError | E, R>
    : Effect.Effect<A, TrainingError | E, R>

/**
 * Options of one operation.
 *
 * @since 0.1.0
 * @category models
 */
export interface RequestOptions extends Pick<ApiFuture.Options, "deadline" | "stalledAfter"> {
  /** A name for the operation, which the journal keeps. */
  readonly tag?: string | undefined
}

/**
 * Options of a save.
 *
 * @since 0.1.0
 * @category models
 */
export interface SaveOptions extends RequestOptions {
  /** How long the server keeps the checkpoint. Not given: the server decides. */
  readonly ttl?: Duration.DurationInput | undefined
  readonly userMetadata?: JsonObject | undefined
}

/**
 * Options of a load.
 *
 * @since 0.1.0
 * @category models
 */
export interface LoadOptions extends RequestOptions {
  /** Grants access to weights that another account shares. */
  readonly weightsAccessToken?: Redacted.Redacted<string> | undefined
}

/**
 * The data of a loss. Inputs that the loss does not take do not compile.
 *
 * @since 0.1.0
 * @category models
 */
export type Data<Inputs, D> = ReadonlyArray<D & Loss.Exact<NoInfer<Inputs>, D>>

/**
 * The operations of a model.
 *
 * @since 0.1.0
 * @category models
 */
export interface Calls<F extends Form> {
  /** Computes log probabilities and metrics without changing the model. */
  readonly forward: <Inputs, D extends Datum<NoInfer<Inputs>>>(
    data: Data<Inputs, D>,
    loss: Loss.Loss<Inputs>,
    options?: RequestOptions,
  ) => Outcome<F, TrainingResult>
  /** Adds the gradients of a batch to those accumulated since the last update. */
  readonly forwardBackward: <Inputs, D extends Datum<NoInfer<Inputs>>>(
    data: Data<Inputs, D>,
    loss: Loss.Loss<Inputs>,
    options?: RequestOptions,
  ) => Outcome<F, TrainingResult>
  /**
   * Does the same for a loss that this process computes: a forward pass, the loss function, and a second pass with its
   * gradient. It is acknowledged when the second pass is; other operations may come between the two.
   */
  readonly forwardBackwardCustom: <I extends CustomLoss.Inputs, E, R>(
    data: ReadonlyArray<Datum<I>>,
    loss: CustomLoss.CustomLoss<I, E, R>,
    options?: RequestOptions,
  ) => Outcome<F, TrainingResult, E | FutureError, R>
  /** Updates the weights with the accumulated gradients and clears them. */
  readonly optimStep: (optimizer: Optimizer.Optimizer, options?: RequestOptions) => Outcome<F, OptimStepResult>
  /** Saves weights and optimizer, to continue training from. */
  readonly saveState: (
    name: string,
    options?: SaveOptions & { readonly overwrite?: boolean | undefined },
  ) => Outcome<F, { readonly path: string }>
  /** Saves weights to sample from. */
  readonly saveWeightsForSampler: (name: string, options?: SaveOptions) => Outcome<F, { readonly path: string }>
  /** Saves weights for download. */
  readonly saveWeightsExternal: (
    name: string,
    options?: RequestOptions & {
      readonly ttl?: Duration.DurationInput | undefined
      /** Public keys (age) that can decrypt the weights. */
      readonly ageEncryptionRecipients?: ReadonlyArray<string> | undefined
    },
  ) => Outcome<F, { readonly path: string; readonly sizeBytes: Option.Option<number> }>
  /** Loads the weights of a checkpoint and resets the optimizer. */
  readonly loadState: (path: Checkpoint.Input, options?: LoadOptions) => Outcome<F, void>
  /** Loads the weights of a checkpoint and its optimizer. */
  readonly loadStateWithOptimizer: (path: Checkpoint.Input, options?: LoadOptions) => Outcome<F, void>
}

/**
 * The results of a training step.
 *
 * @since 0.1.0
 * @category models
 */
export type Step = Steps.Step

/**
 * A step of `trainSteps`, with the value of `afterUpdate`.
 *
 * @since 0.1.0
 * @category models
 */
export type PlacedStep<P> = Step & { readonly placed: P }

export {
  /**
   * A training step whose two halves ended differently, or failed for different reasons.
   *
   * @since 0.1.0
   * @category errors
   */
  StepFailed,
} from "./internal/training/StepFailed.ts"

/**
 * Options of `trainStep`.
 *
 * @since 0.1.0
 * @category models
 */
export interface StepOptions extends RequestOptions {
  /**
   * How many passes the batch is split into before its update. Gradients add up, so the update is that of one pass over
   * the whole batch. After a crash, a step has all of its passes or none.
   *
   * @default 1
   */
  readonly passes?: number | undefined
}

/**
 * Options of `trainSteps`.
 *
 * @since 0.1.0
 * @category models
 */
export interface StepsOptions<P = void, E = never, R = never> extends Pick<
  StepOptions,
  "deadline" | "stalledAfter" | "passes"
> {
  /**
   * The number of the first step.
   *
   * @default 0
   */
  readonly startAt?: number | undefined
  /**
   * How many steps are sent ahead of the one whose result is awaited.
   *
   * @default 1
   */
  readonly ahead?: number | undefined
  /**
   * Runs after the update of a step has its place in the order and before the next step gets one. What it enqueues, a
   * save or an evaluation, therefore sees the weights after exactly this step, while later steps stay on their way. Its
   * value is the step's `placed`.
   */
  readonly afterUpdate?: ((step: number) => Effect.Effect<P, E, R>) | undefined
}

/**
 * The operations of a model, in all three forms, and the training steps made of them.
 *
 * @since 0.1.0
 * @category models
 */
export interface Service extends Calls<"plain"> {
  readonly modelId: string
  readonly session: Session.Service
  readonly enqueue: Calls<"enqueue">
  readonly submit: Calls<"submit">
  /**
   * Sends a pass and its update back to back. If the pass is not accepted the update is not sent. The loss may be
   * computed by the server or, with a `CustomLoss`, by this process.
   */
  readonly trainStep: {
    <Inputs, D extends Datum<NoInfer<Inputs>>>(
      data: Data<Inputs, D>,
      loss: Loss.Loss<Inputs>,
      optimizer: Optimizer.Optimizer,
      options?: StepOptions,
    ): Effect.Effect<Step, TrainingError | StepFailed>
    <I extends CustomLoss.Inputs, E, R>(
      data: ReadonlyArray<Datum<I>>,
      loss: CustomLoss.CustomLoss<I, E, R>,
      optimizer: Optimizer.Optimizer,
      options?: StepOptions,
    ): Effect.Effect<Step, TrainingError | StepFailed | E, R>
  }
  /**
   * Makes a step of each batch, in order, and sends the next step while one is awaited. The optimizer may depend on the
   * step. The journal's tag of a step is `step <number>`. With a `CustomLoss` the forward pass of a step waits for the
   * update of the step before.
   */
  readonly trainSteps: {
    <Inputs, P = void, E2 = never, R2 = never>(
      loss: Loss.Loss<Inputs>,
      optimizer: Optimizer.Optimizer | Optimizer.Schedule<Optimizer.Optimizer>,
      options?: StepsOptions<P, E2, R2>,
    ): <D extends Datum<NoInfer<Inputs>>, E, R>(
      batches: Stream.Stream<Data<Inputs, D>, E, R>,
    ) => Stream.Stream<PlacedStep<P>, E | E2 | TrainingError | StepFailed, R | R2>
    <I extends CustomLoss.Inputs, E1, R1, P = void, E2 = never, R2 = never>(
      loss: CustomLoss.CustomLoss<I, E1, R1>,
      optimizer: Optimizer.Optimizer | Optimizer.Schedule<Optimizer.Optimizer>,
      options?: StepsOptions<P, E2, R2>,
    ): <E, R>(
      batches: Stream.Stream<ReadonlyArray<Datum<I>>, E, R>,
    ) => Stream.Stream<PlacedStep<P>, E | E1 | E2 | TrainingError | StepFailed, R | R1 | R2>
  }
  /** Returns the base model and the adapter's configuration. */
  readonly getInfo: Effect.Effect<ModelInfo, TinkerError>
  /** Creates a sampling client of saved weights. */
  readonly createSamplingClient: (
    modelPath: Checkpoint.Input,
    options?: SamplingClient.Options,
  ) => Effect.Effect<SamplingClient.Service, TinkerError, Scope.Scope>
  /** Creates a sampling client of the weights as they are at this point of the order, saved for it without a name. */
  readonly saveWeightsAndGetSamplingClient: (
    options?: SamplingClient.Options,
  ) => Effect.Effect<SamplingClient.Service, TrainingError, Scope.Scope>
  /** Removes the model from the server after everything enqueued before. Some servers respond with `NotFound`. */
  readonly unload: Effect.Effect<void, TrainingError>
  /** Returns the error that ended the sequence of requests, if any. */
  readonly broken: Effect.Effect<Option.Option<SequenceBroken>>
  /** Continues after `SequenceBroken` with `partial`, keeping the gradients that the server accepted. */
  readonly acceptPartial: Effect.Effect<void>
}

/**
 * The service tag of a training client.
 *
 * @example
 * ```ts
 * import { Console, Effect } from "effect"
 * import { Loss, Optimizer, ServiceClient } from "effect-tinker"
 * import { NodeTinker } from "@effect-tinker/node"
 *
 * const data = [{ modelInput: [10, 20, 30], inputs: { targetTokens: [20, 30, 40], weights: [1, 1, 1] } }]
 *
 * const program = Effect.gen(function* () {
 *   const service = yield* ServiceClient.ServiceClient
 *   const training = yield* service.createLoraTrainingClient({ baseModel: "effect-tinker/valley-1.5m", rank: 8 })
 *
 *   const first = yield* training.trainStep(data, Loss.crossEntropy, Optimizer.adam({ learningRate: 1e-2 }))
 *   const second = yield* training.trainStep(data, Loss.crossEntropy, Optimizer.adam({ learningRate: 1e-2 }))
 *   yield* Console.log(Number(second.metrics["loss:sum"]) < Number(first.metrics["loss:sum"])) // → true
 *
 *   const { path } = yield* training.saveState("after-two-steps")
 *   yield* Console.log(path.endsWith("/weights/after-two-steps")) // → true
 * })
 *
 * await Effect.runPromise(program.pipe(Effect.scoped, Effect.provide(NodeTinker.layerConfig())))
 * ```
 *
 * @since 0.1.0
 * @category tags
 */
export class TrainingClient extends Context.Tag("effect-tinker/TrainingClient")<TrainingClient, Service>() {}

/**
 * Options of every training client.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options extends Pick<RequestOptions, "deadline" | "stalledAfter"> {
  /**
   * How many operations may be queued before `enqueue` waits.
   *
   * @default 64
   */
  readonly maxQueued?: number | undefined
  /**
   * How long closing waits for a submission in progress.
   *
   * @default 5 seconds
   */
  readonly closeGrace?: Duration.DurationInput | undefined
  /**
   * Decides what happens when the response to a pass or an update is lost. `probe`: find out, by a harmless forward pass under a
   * used number, whether the server would detect a second one; if so, send it again, else stop. `resend`: send it again,
   * as the official SDK does. `stop`: fail with `SequenceBroken`.
   *
   * @default "probe"
   */
  readonly onUnknownOutcome?: "probe" | "resend" | "stop" | undefined
  /** Records requests, so that `open` and `resume` can continue after the process ended. */
  readonly journal?: TrainingJournal.Journal | undefined
  /**
   * Whether the journal keeps requests until they are acknowledged, so that they can be sent again.
   *
   * @default true
   */
  readonly journalRequests?: boolean | undefined
}

/**
 * The services that a training client requires.
 *
 * @since 0.1.0
 * @category models
 */
export type Environment =
  | Transport
  | Session.Session
  | ApiFuture.Futures
  | RateLimiter.RateLimiter
  | TinkerConfig.TinkerConfig

interface Made {
  readonly service: Service
  readonly driver: TrainingDriver.TrainingDriver
  readonly onSaved: Operations.Model["onSaved"]
}

/** Creates the client of a model that exists. */
const make = (
  modelId: string,
  options: Options,
  start?: TrainingDriver.Start,
  firstStep = 0,
): Effect.Effect<Made, never, Environment | Scope.Scope> =>
  Effect.gen(function* () {
    const transport = yield* Transport
    const session = yield* Session.Session
    const config = yield* TinkerConfig.TinkerConfig
    // Without this scope: a sampler lives in the scope of its own caller.
    const context = Context.omit(Scope.Scope)(yield* Effect.context<Environment | Scope.Scope>())
    const scope = yield* Effect.scope
    const { flags, learnt } = session
    const limiter = yield* (yield* RateLimiter.RateLimiter).limiter(RateLimiter.keyOf(config))
    yield* limiter.configure({ trainingBytes: flags.fwdbwdDispatchBytesSemaphoreSize })
    const futures = yield* ApiFuture.Futures
    const journal = Option.fromNullable(options.journal)
    if (Option.isSome(journal)) {
      yield* session.keepForResume
      // Runs after the driver has closed.
      yield* Effect.addFinalizer((exit) =>
        Exit.isSuccess(exit) && driver.state.broken === undefined
          ? Effect.ignoreLogged(journal.value.append([{ record: { _tag: "Completed" } }]))
          : Effect.void,
      )
    }

    const passes: PassRequests.Options = {
      transport,
      modelId,
      zstd: flags.protoCompressFwdbwd ? yield* (yield* Host).zstd : Option.none(),
    }
    const encoding = Effect.map(Ref.get(learnt), ({ wire }) => Option.getOrElse(wire, () => "protobuf" as const))
    const meters = Meters.make(config)
    const attributes = { "tinker.session_id": session.id, "tinker.model_id": modelId }
    const driver = yield* TrainingDriver.make({
      limiter,
      futures,
      learnt,
      journal,
      keepRequests: options.journalRequests ?? true,
      onUnknownOutcome: options.onUnknownOutcome ?? "probe",
      checkSession: session.check,
      probe: PassRequests.probe(passes, futures, encoding),
      readsOnlyJson: PassRequests.readsOnlyJson(passes),
      capacity: options.maxQueued ?? 64,
      closeGrace: Duration.decode(options.closeGrace ?? "5 seconds"),
      meters,
      attributes,
      report: session.telemetry.report,
      logged: TinkerConfig.logged(config),
      start,
    })
    yield* session.lost.pipe(
      Effect.catchTag("SessionLost", (lost) =>
        Effect.fail(new SessionLost({ ...lost, lastCheckpoint: driver.lastCheckpoint })),
      ),
      Effect.catchAll((lost) => driver.endAll(lost, Duration.zero)),
      Effect.forkScoped,
      Effect.interruptible,
    )
    const onSaved: Operations.Model["onSaved"] = (seq, path, withOptimizer) => driver.saved(seq, path, withOptimizer)
    const model: Operations.Model = {
      transport,
      modelId,
      flags,
      passes,
      meters,
      defaults: options,
      onSaved,
      onLoaded: () => driver.acceptPartial(),
    }
    const steps = { driver, model, attributes }
    let nextStep = firstStep

    const enqueue = operationsWith<"enqueue">(model, {
      run: (operation) => Effect.flatMap(operation, (operation) => driver.enqueue(operation)),
      custom: (data, loss, requestOptions) => CustomPass.enqueue({ driver, model, scope }, data, loss, requestOptions),
    })
    const submit = operationsWith<"submit">(model, {
      run: (operation) => Effect.flatMap(operation, (operation) => driver.submit(operation)),
      custom: (data, loss, requestOptions) =>
        Effect.flatMap(enqueue.forwardBackwardCustom(data, loss, requestOptions), acknowledgedOrCancelled),
    })
    const plain = operationsWith<"plain">(model, {
      run: (operation) => Effect.flatMap(operation, (operation) => driver.run(operation)),
      custom: (data, loss, requestOptions) =>
        Effect.flatMap(submit.forwardBackwardCustom(data, loss, requestOptions), (future) => future.await),
    })

    const service: Service = {
      modelId,
      session,
      ...plain,
      enqueue,
      submit,
      // Both overloads of each: without a custom loss there is no `E` and no `R`.
      trainStep: (<E, R>(
        data: unknown,
        loss: Steps.AnyLoss<E, R>,
        optimizer: Optimizer.Optimizer,
        requestOptions: StepOptions = {},
      ) =>
        Effect.suspend(() => {
          const step = nextStep++
          const tagged = { ...requestOptions, tag: requestOptions.tag ?? StepTags.tagOf(step) }
          return Effect.flatMap(Steps.begin(steps, data, loss, optimizer, step, tagged), ({ finish }) => finish)
        })) as unknown as Service["trainStep"],
      trainSteps: (<E1, R1, P, E2, R2>(
        loss: Steps.AnyLoss<E1, R1>,
        optimizer: Optimizer.Optimizer | Optimizer.Schedule<Optimizer.Optimizer>,
        { afterUpdate, ahead = 1, startAt = 0, ...requestOptions }: StepsOptions<P, E2, R2> = {},
      ) => {
        const begin = (data: unknown, step: number) =>
          Effect.gen(function* () {
            nextStep = Math.max(nextStep, step + 1)
            const chosen = yield* Steps.optimizerAt(optimizer, step)
            const tagged = { ...requestOptions, tag: StepTags.tagOf(step) }
            const begun = yield* Steps.begin(steps, data, loss, chosen, step, tagged)
            // Without `afterUpdate` its value is `void`.
            return yield* Steps.placing(begun, afterUpdate?.(step) ?? Effect.succeed(undefined as P))
          })
        return <E, R>(batches: Stream.Stream<unknown, E, R>) => Steps.pipeline(batches, { startAt, ahead, begin })
      }) as unknown as Service["trainSteps"],
      getInfo: transport.call(Api.getInfo, { modelId }),
      createSamplingClient: (modelPath, samplingOptions) =>
        Effect.provide(SamplingClient.make({ modelPath }, samplingOptions), context),
      saveWeightsAndGetSamplingClient: (samplingOptions) =>
        Effect.gen(function* () {
          const operation = yield* Operations.operations.saveSamplingSession(model, yield* session.nextSampler, {})
          const { samplingSessionId } = yield* driver.run(operation)
          return yield* Effect.provide(SamplingClient.make({ samplingSessionId }, samplingOptions), context)
        }),
      unload: unload(transport, futures, driver, modelId),
      broken: driver.broken,
      acceptPartial: Effect.sync(() => driver.acceptPartial()),
    }
    return { service, driver, onSaved }
  })

interface Runner<F extends Form> {
  readonly run: <B, A>(operation: Either.Either<Submission.Operation<B, A>, InvalidInput>) => Outcome<F, A>
  readonly custom: Calls<F>["forwardBackwardCustom"]
}

/** Every operation in one form of call. */
const operationsWith = <F extends Form>(model: Operations.Model, { custom, run }: Runner<F>): Calls<F> => {
  const rows = Operations.operations
  return {
    forward: (data, loss, options = {}) => run(rows.forward(model, loss, data, options)),
    forwardBackward: (data, loss, options = {}) => run(rows.forwardBackward(model, loss, data, options)),
    forwardBackwardCustom: custom,
    optimStep: (optimizer, options = {}) => run(rows.optimStep(model, optimizer, options)),
    saveState: (name, options = {}) => run(rows.saveState(model, name, options)),
    saveWeightsForSampler: (name, options = {}) => run(rows.saveWeightsForSampler(model, name, options)),
    saveWeightsExternal: (name, options = {}) => run(rows.saveWeightsExternal(model, name, options)),
    loadState: (path, options = {}) => run(rows.loadState(model, path, options)),
    loadStateWithOptimizer: (path, options = {}) => run(rows.loadStateWithOptimizer(model, path, options)),
  }
}

/** Gives the operation up when its caller is interrupted while it is still queued. */
const acknowledgedOrCancelled = <A, E>({ acknowledged, cancel }: Ticket<A, E>) =>
  Effect.onInterrupt(acknowledged, () => cancel)

const unload = (
  transport: typeof Transport.Service,
  futures: ApiFuture.Service,
  driver: TrainingDriver.TrainingDriver,
  modelId: string,
): Effect.Effect<void, TrainingError> => {
  const kind = ApiFuture.kinds.unloadModel
  const unloading = Effect.flatMap(transport.call(Api.unloadModel, { modelId }), ({ requestId }) =>
    futures.follow(kind, requestId),
  )
  return Effect.zipRight(
    driver.inOrder(Operations.barrier(kind), unloading),
    driver.end(new ClientClosed({ operation: "unload" }), Duration.zero),
  )
}

/**
 * Options of a new model with adapters.
 *
 * @since 0.1.0
 * @category models
 */
export interface LoraOptions extends Options, Partial<LoraConfig> {
  readonly baseModel: string
  readonly userMetadata?: JsonObject | undefined
  /**
   * The kind of optimizer to train the model with.
   *
   * @default Adam
   */
  readonly optimizer?: Optimizer.Optimizer | undefined
}

/** Waits for the result of a request that creates a model, and so has no sequence number. */
const resultOf = <A, I>(kind: ApiFuture.Kind<A>, endpoint: Endpoint.Endpoint<I, Accepted>, input: I) =>
  Effect.gen(function* () {
    const { call } = yield* Transport
    const { attach } = yield* ApiFuture.Futures
    const work = Effect.gen(function* () {
      const before = yield* uptime
      const { requestId } = yield* call(endpoint, input)
      const submittedIn = Duration.millis((yield* uptime) - before)
      const future = yield* attach(kind, requestId, { submittedIn })
      return yield* future.await
    })
    return yield* traced(() => work, TrainingDriver.spanName(kind), undefined, "internal")
  })

/** Creates a model and waits until it exists. */
const created = (request: Endpoint.Input<typeof Api.createModel>) =>
  Effect.map(resultOf(ApiFuture.kinds.createModel, Api.createModel, request), ({ modelId }) => modelId)

/** Creates the client of a new model and writes the first records of its journal. */
const makeNew = (
  modelId: string,
  options: Options,
  start: {
    readonly firstStep?: number | undefined
    /** The checkpoint to load first. */
    readonly from?: typeof TrainingJournal.Origin.Type | undefined
    /** The checkpoint that the server has loaded. */
    readonly loaded?: typeof TrainingJournal.Origin.Type | undefined
  } = {},
) =>
  Effect.gen(function* () {
    const { journal } = options
    const { firstStep = 0, from, loaded } = start
    const { baseUrl } = yield* TinkerConfig.TinkerConfig
    const { id: sessionId } = yield* Session.Session
    const opened = { _tag: "Opened", baseUrl, sessionId, modelId, from: Option.fromNullable(from), firstStep } as const
    if (journal !== undefined)
      yield* journal.append([
        { record: opened },
        ...(loaded === undefined ? [] : [{ record: { _tag: "Checkpoint", seq: 0, ...loaded } as const }]),
      ])
    return (yield* make(modelId, options, undefined, firstStep)).service
  })

/**
 * Creates a model with LoRA adapters on a base model. The client lives in the current scope.
 *
 * @since 0.1.0
 * @category constructors
 */
export const makeLora = (options: LoraOptions): Effect.Effect<Service, TrainingError, Environment | Scope.Scope> =>
  Effect.gen(function* () {
    const session = yield* Session.Session
    const { baseModel, optimizer, rank, seed, trainAttn, trainMlp, trainUnembed, userMetadata } = options
    const modelId = yield* created({
      sessionId: session.id,
      modelSeqId: yield* session.nextModel,
      baseModel,
      userMetadata,
      loraConfig: { rank, seed, trainAttn, trainMlp, trainUnembed },
      optimizerConfig: optimizer === undefined ? undefined : Optimizer.toConfig(optimizer),
    })
    return yield* makeNew(modelId, options)
  })

/**
 * Options of a new model with the weights of a checkpoint.
 *
 * @since 0.1.0
 * @category models
 */
export interface CheckpointOptions extends Options {
  /**
   * Whether to restore the optimizer as well.
   *
   * @default false
   */
  readonly withOptimizer?: boolean | undefined
  /**
   * The number of the first step, by which the journal counts.
   *
   * @default 0
   */
  readonly firstStep?: number | undefined
  /** Replaces the base model that the checkpoint was made with. */
  readonly baseModel?: string | undefined
  /**
   * The kind of optimizer to train the model with.
   *
   * @default the one that is restored, or Adam
   */
  readonly optimizer?: Optimizer.Optimizer | undefined
  readonly userMetadata?: JsonObject | undefined
  /** Grants access to weights that another account shares. */
  readonly weightsAccessToken?: Redacted.Redacted<string> | undefined
}

/**
 * Creates a model with the weights of a checkpoint. The client lives in the current scope.
 *
 * @since 0.1.0
 * @category constructors
 */
export const makeFromCheckpoint = (
  input: Checkpoint.Input,
  options: CheckpointOptions = {},
): Effect.Effect<Service, TrainingError, Environment | Scope.Scope> =>
  Effect.gen(function* () {
    const path = yield* Checkpoint.textOf(input)
    const session = yield* Session.Session
    const transport = yield* Transport
    const { baseModel, firstStep, optimizer, userMetadata, weightsAccessToken, withOptimizer = false } = options
    const optimizerConfig = optimizer === undefined ? undefined : Optimizer.toConfig(optimizer)
    if (session.flags.createModelViaLoadWeights) {
      const modelSeqId = yield* session.nextModel
      const { modelId } = yield* resultOf(ApiFuture.kinds.loadWeights, Api.loadWeightsAsModel, {
        sessionId: session.id,
        modelSeqId,
        path,
        optimizer: withOptimizer,
        baseModel,
        userMetadata,
        optimizerConfig,
        weightsAccessToken,
      })
      return yield* makeNew(
        // A response without an id leaves it to session and number.
        Option.getOrElse(modelId, () => `${session.id}:train:${modelSeqId}`),
        options,
        { firstStep, loaded: { path, withOptimizer } },
      )
    }
    const info = yield* transport.call(Api.getWeightsInfo, { tinkerPath: path }, { credential: weightsAccessToken })
    if (!info.isLora)
      return yield* new InvalidInput({ path: "path", problem: "expected a checkpoint of adapters, got full weights" })
    const modelId = yield* created({
      sessionId: session.id,
      modelSeqId: yield* session.nextModel,
      baseModel: baseModel ?? info.baseModel,
      userMetadata,
      loraConfig: {
        rank: Option.getOrUndefined(info.loraRank),
        trainUnembed: Option.getOrUndefined(info.trainUnembed),
        trainMlp: Option.getOrUndefined(info.trainMlp),
        trainAttn: Option.getOrUndefined(info.trainAttn),
      },
      optimizerConfig: optimizerConfig ?? (withOptimizer ? info.optimizerConfig : undefined),
    })
    const service = yield* makeNew(modelId, options, { firstStep, from: { path, withOptimizer } })
    yield* service[withOptimizer ? "loadStateWithOptimizer" : "loadState"](path, { weightsAccessToken })
    return service
  })

/**
 * A call that a previous process recorded in the journal.
 *
 * @since 0.1.0
 * @category resuming
 */
export type JournaledCall = Ledger.JournaledCall

/**
 * A call whose result was not known when the journal ended.
 *
 * @since 0.1.0
 * @category resuming
 */
export type Pending = Resume.Pending

/**
 * A call whose results had arrived when the journal ended. `result` asks the server for them again; it fails with
 * `PromiseExpired` if the server no longer has them.
 *
 * @since 0.1.0
 * @category resuming
 */
export type Completed = Resume.Completed

/**
 * A client that continues where a previous process stopped.
 *
 * @since 0.1.0
 * @category resuming
 */
export interface Resumed {
  readonly client: Service
  /** The calls whose results arrived, in order, including those that failed. */
  readonly completed: ReadonlyArray<Completed>
  /** The calls that the server has accepted, in order, with futures of their results. */
  readonly pending: ReadonlyArray<Pending>
  /** The number of the next step, however the steps were made. */
  readonly nextStep: number
  /** The step whose pass the server has accepted, but not its update. */
  readonly unfinished: Option.Option<number>
  /** Sends the update of the unfinished step, if there is one. Call it before any other operation. */
  readonly finishStep: (
    optimizer: Optimizer.Optimizer | Optimizer.Schedule<Optimizer.Optimizer>,
  ) => Effect.Effect<Option.Option<OptimStepResult>, TrainingError>
}

/**
 * Resumes the model of a journal in its session. Polls for the results of acknowledged requests and resends the request
 * that may not have arrived, byte for byte. Fails with `SessionLost`, which names the last checkpoint, if the server has
 * ended the session, and with `SequenceBroken` if a resend would not be safe. {@link open} handles both.
 *
 * @since 0.1.0
 * @category resuming
 */
export const resume = (
  options: Options & { readonly journal: TrainingJournal.Journal },
): Effect.Effect<
  Resumed,
  TrainingError,
  Transport | ServerConfig | RateLimiter.RateLimiter | TinkerConfig.TinkerConfig | Scope.Scope
> =>
  Effect.gen(function* () {
    const { journal } = options
    const found = TrainingJournal.state(yield* journal.read)
    if (Option.isNone(found))
      return yield* new JournalFailed({ reason: "Empty", detail: "it records no training client" })
    const { lastCheckpoint, learnt, opened } = found.value
    const { baseUrl } = yield* TinkerConfig.TinkerConfig
    if (opened.baseUrl !== baseUrl)
      return yield* new InvalidConfig({ setting: "baseUrl", problem: `the journal was written for ${opened.baseUrl}` })

    const session = yield* Session.resume({
      sessionId: opened.sessionId,
      learnt: Option.getOrElse(learnt, () => Session.nothingLearnt),
    }).pipe(
      Effect.catchTag(
        "SessionLost",
        (lost) => new SessionLost({ ...lost, lastCheckpoint: Option.map(lastCheckpoint, ({ path }) => path) }),
      ),
      // From the first moment: a failure after this must not end a session that another process could resume.
      (session) =>
        Effect.uninterruptibleMask((restore) => Effect.tap(restore(session), (known) => known.keepForResume)),
    )
    const { calls, free } = Ledger.ledger(found.value.steps)
    yield* journal.append([
      { record: { _tag: "Resumed" } },
      ...free.map((seq) => ({ record: { _tag: "Withdrawn", seq } as const })),
    ])
    const progress = StepTags.progress(calls.map(Ledger.outcome), opened.firstStep)
    const inSession = Effect.provideService(Session.Session, session)
    const futures = yield* inSession(ApiFuture.make)

    const { driver, onSaved, service } = yield* make(
      opened.modelId,
      options,
      Ledger.startOf(found.value, calls, free),
      progress.nextStep,
    ).pipe(inSession, Effect.provideService(ApiFuture.Futures, futures))

    // Nothing new can be submitted before this is done.
    const pending = yield* driver.exclusively(
      Resume.reattach(
        { driver, transport: yield* Transport, onSaved },
        calls.filter(({ stands }) => stands !== "settled"),
      ),
    )
    if (Option.isSome(opened.from) && !calls.some(Ledger.isLoaded)) {
      const loading = pending.find(({ operation }) => operation === Api.loadWeights.operation)
      const { path, withOptimizer } = opened.from.value
      // Without its weights it would be another model.
      yield* loading === undefined
        ? service[withOptimizer ? "loadStateWithOptimizer" : "loadState"](path)
        : loading.future.await
    }
    return {
      client: service,
      completed: calls
        .filter(({ stands }) => stands === "settled")
        .map((call) => Resume.completed(futures.follow, call)),
      pending,
      ...progress,
      finishStep: (optimizer) =>
        Option.match(progress.unfinished, {
          onNone: () => Effect.succeedNone,
          onSome: (step) =>
            Effect.flatMap(Steps.optimizerAt(optimizer, step), (chosen) =>
              Effect.asSome(service.optimStep(chosen, { tag: StepTags.tagOf(step) })),
            ),
        }),
    }
  })

/**
 * A checkpoint that training can go back to, and the first step after it.
 *
 * @since 0.1.0
 * @category resuming
 */
export type RestorePoint = OpenPlan.RestorePoint

/**
 * A training run that starts or continues.
 *
 * @since 0.1.0
 * @category resuming
 */
export interface OpenRun extends Pick<Resumed, "client" | "completed" | "pending" | "nextStep" | "finishStep"> {
  /**
   * `Started`: a new model. `Resumed`: the same model, with nothing lost. `Restored`: a new model with the weights and
   * the optimizer of the last checkpoint, because the session of the journal has ended or its state is unknown.
   */
  readonly _tag: "Started" | "Resumed" | "Restored"
  /** How many steps were made before and have to be made again. */
  readonly lostSteps: number
}

/**
 * A training run whose program ended with success.
 *
 * @since 0.1.0
 * @category resuming
 */
export interface CompletedRun {
  readonly _tag: "Completed"
  /** How many steps the run made. */
  readonly steps: number
  readonly lastCheckpoint: Option.Option<RestorePoint>
}

/**
 * Options of `open`: the model that a new run starts with, and the journal of the run.
 *
 * @since 0.1.0
 * @category resuming
 */
export type OpenOptions = (LoraOptions | (CheckpointOptions & { readonly checkpoint: Checkpoint.Input })) & {
  readonly journal: TrainingJournal.Journal
  /** Describes the session of a new model. */
  readonly session?: Session.Options | undefined
}

/**
 * Starts the training run of a journal, or continues it: in its session while the server keeps that, else from its last
 * checkpoint. Reports a run that is complete instead of starting it again.
 *
 * @example
 * ```ts
 * import { Console, Effect, Stream } from "effect"
 * import { Loss, Optimizer, TrainingClient, TrainingJournal } from "effect-tinker"
 * import { NodeTinker } from "@effect-tinker/node"
 *
 * const data = [{ modelInput: [10, 20, 30], inputs: { targetTokens: [20, 30, 40], weights: [1, 1, 1] } }]
 * const optimizer = Optimizer.adam({ learningRate: 1e-2 })
 *
 * const train = (journal: TrainingJournal.Journal, crashesBefore: number) =>
 *   Effect.gen(function* () {
 *     const run = yield* TrainingClient.open({ baseModel: "effect-tinker/valley-1.5m", rank: 8, journal })
 *     if (run._tag === "Completed") return yield* Console.log(`complete after ${run.steps} steps`)
 *     const { client, finishStep, nextStep } = run
 *     yield* Console.log(run._tag, nextStep)
 *     // Sends the update of a step whose pass was the last request before the crash.
 *     yield* finishStep(optimizer)
 *     yield* Stream.range(nextStep, 4).pipe(
 *       Stream.mapEffect((step) => (step === crashesBefore ? Effect.die("out of memory") : Effect.succeed(data))),
 *       client.trainSteps(Loss.crossEntropy, optimizer, { startAt: nextStep }),
 *       Stream.runDrain,
 *     )
 *   }).pipe(Effect.scoped, Effect.provide(NodeTinker.layerConfig()))
 *
 * await Effect.runPromise(
 *   Effect.gen(function* () {
 *     // `FileJournal` of @effect-tinker/node survives the process.
 *     const journal = yield* TrainingJournal.memory
 *     yield* Effect.exit(train(journal, 3)) // → Started 0
 *     yield* train(journal, 5) // → Resumed 3
 *     yield* train(journal, 5) // → complete after 5 steps
 *   }),
 * )
 * ```
 *
 * @since 0.1.0
 * @category resuming
 */
export const open = (
  options: OpenOptions,
): Effect.Effect<
  OpenRun | CompletedRun,
  TrainingError,
  Transport | ServerConfig | RateLimiter.RateLimiter | TinkerConfig.TinkerConfig | Scope.Scope
> =>
  Effect.gen(function* () {
    const plan = OpenPlan.plan(TrainingJournal.state(yield* options.journal.read))
    switch (plan._tag) {
      case "Completed":
        return plan
      case "Start":
        return newRun("Started", yield* inNewSession(options, start(options)), firstStepOf(options), 0)
      case "Resume":
        return yield* inOwnScope(resume(options)).pipe(
          Effect.map((resumed): OpenRun => ({ ...resumed, _tag: "Resumed", lostSteps: 0 })),
          Effect.catchTags({
            SessionLost: (error) => restore(options, plan.state, error),
            SequenceBroken: (error) => restore(options, plan.state, error),
          }),
        )
    }
  })

const start = (options: OpenOptions) =>
  "checkpoint" in options ? makeFromCheckpoint(options.checkpoint, options) : makeLora(options)

const firstStepOf = (options: OpenOptions): number => ("checkpoint" in options ? (options.firstStep ?? 0) : 0)

const newRun = (_tag: OpenRun["_tag"], client: Service, nextStep: number, lostSteps: number): OpenRun => ({
  _tag,
  client,
  nextStep,
  lostSteps,
  completed: [],
  pending: [],
  finishStep: () => Effect.succeedNone,
})

/**
 * Continues from the last checkpoint that the server still has, or starts over if none was saved. A run whose checkpoints
 * are all gone fails: to start over unasked would hide that they are lost.
 */
const restore = (options: OpenOptions, state: TrainingJournal.State, error: SessionLost | SequenceBroken) =>
  Effect.gen(function* () {
    const made = OpenPlan.stepsOf(state)
    const points = OpenPlan.restorePoints(state)
    const config = yield* TinkerConfig.TinkerConfig
    const warn = (from: string) =>
      TinkerConfig.logged(config)(
        Effect.logWarning(`Tinker: the run can't be resumed and continues from ${from}: ${error.message}`),
      )
    for (const [index, { path, step: firstStep, withOptimizer }] of points.entries()) {
      const restored = inOwnScope(
        inNewSession(options, makeFromCheckpoint(path, { ...options, withOptimizer, firstStep })),
      )
      const client = yield* Effect.catchIf(
        Effect.map(restored, Option.some),
        ({ _tag }) => _tag === "NotFound" && index < points.length - 1,
        () => Effect.succeedNone,
      )
      if (Option.isNone(client)) continue
      yield* warn(`step ${firstStep}, ${path}`)
      return newRun("Restored", client.value, firstStep, made - firstStep)
    }
    yield* warn("the start")
    const client = yield* inNewSession(options, start(options))
    return newRun("Started", client, state.opened.firstStep, made - state.opened.firstStep)
  })

const inNewSession = <A, E, R>(
  { session: sessionOptions }: OpenOptions,
  effect: Effect.Effect<A, E, R | Session.Session | ApiFuture.Futures>,
) =>
  Effect.gen(function* () {
    const session = yield* Session.make(sessionOptions)
    const futures = yield* Effect.provideService(ApiFuture.make, Session.Session, session)
    return yield* effect.pipe(
      Effect.provideService(Session.Session, session),
      Effect.provideService(ApiFuture.Futures, futures),
    )
  })

/** Closes what an effect has opened if it fails, and not only when the caller's scope closes. */
const inOwnScope = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R | Scope.Scope> =>
  Effect.uninterruptibleMask((restored) =>
    Effect.gen(function* () {
      const scope = yield* Scope.fork(yield* Effect.scope, ExecutionStrategy.sequential)
      const exit = yield* Effect.exit(restored(Effect.provideService(effect, Scope.Scope, scope)))
      if (Exit.isFailure(exit)) yield* Scope.close(scope, exit)
      return yield* exit
    }),
  )

/**
 * Provides a client of a new model with LoRA adapters. The layer is fresh: each use creates a model.
 *
 * @example
 * ```ts
 * import { Console, Effect, Layer } from "effect"
 * import { ApiFuture, Loss, Optimizer, TrainingClient } from "effect-tinker"
 * import * as Session from "effect-tinker/Session"
 * import { NodeTinker } from "@effect-tinker/node"
 *
 * const data = [{ modelInput: [10, 20, 30], inputs: { targetTokens: [20, 30, 40], weights: [1, 1, 1] } }]
 *
 * const program = Effect.gen(function* () {
 *   const training = yield* TrainingClient.TrainingClient
 *   const { metrics } = yield* training.trainStep(data, Loss.crossEntropy, Optimizer.adam())
 *   yield* Console.log(Number(metrics["loss:sum"]) > 0) // → true
 * })
 *
 * // One model for the whole program. A program with several models creates them with `ServiceClient`.
 * const layer = TrainingClient.layerLora({ baseModel: "effect-tinker/valley-1.5m", rank: 8 }).pipe(
 *   Layer.provide(ApiFuture.layer),
 *   Layer.provide(Session.layer()),
 *   Layer.provide(NodeTinker.layerConfig()),
 * )
 *
 * await Effect.runPromise(Effect.provide(program, layer))
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layerLora = (options: LoraOptions): Layer.Layer<TrainingClient, TrainingError, Environment> =>
  Layer.fresh(Layer.scoped(TrainingClient, makeLora(options)))

/**
 * Provides a client of a new model with the weights of a checkpoint. The layer is fresh: each use creates a model.
 *
 * @since 0.1.0
 * @category layers
 */
export const layerFromCheckpoint = (
  path: Checkpoint.Input,
  options?: CheckpointOptions,
): Layer.Layer<TrainingClient, TrainingError, Environment> =>
  Layer.fresh(Layer.scoped(TrainingClient, makeFromCheckpoint(path, options)))
