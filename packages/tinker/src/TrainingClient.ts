/**
 * A model on the server, and what can be done to it. Every operation has three forms: `enqueue.x` completes when it has
 * its place in the order, `submit.x` when the server has it, `x` when its result is there. Requests reach the server in
 * the order of the calls; each is applied at most once, and if it can't be known whether it was, the client says so and
 * stops.
 *
 * @since 0.1.0
 */
import * as Cause from "effect/Cause"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as FiberId from "effect/FiberId"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type * as Redacted from "effect/Redacted"
import * as Ref from "effect/Ref"
import * as Runtime from "effect/Runtime"
import * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import * as Api from "./protocol/Api.ts"
import type { Accepted } from "./protocol/schemas/Futures.ts"
import type { LoraConfig, ModelInfo, OptimStepResult } from "./protocol/schemas/Training.ts"
import * as ApiFuture from "./ApiFuture.ts"
import * as Checkpoint from "./Checkpoint.ts"
import * as CustomLoss from "./CustomLoss.ts"
import type { Datum } from "./Datum.ts"
import type * as Endpoint from "./protocol/Endpoint.ts"
import { Host } from "./http/Host.ts"
import * as Chunks from "./internal/training/Chunks.ts"
import { combine } from "./internal/training/CombineResults.ts"
import * as JournalCalls from "./internal/training/Ledger.ts"
import * as Meters from "./internal/runtime/Meters.ts"
import * as Passes from "./internal/training/Passes.ts"
import * as Resuming from "./internal/training/Resuming.ts"
import * as Sequencer from "./internal/training/Sequencer.ts"
import * as Steps from "./internal/training/Steps.ts"
import * as StepTags from "./internal/training/StepTags.ts"
import * as Tickets from "./internal/training/Tickets.ts"
import * as Traced from "./internal/runtime/Trace.ts"
import * as Turns from "./internal/training/Turns.ts"
import { uptime } from "./internal/util/MonotonicClock.ts"
import type { JsonObject } from "./internal/codec/Wire.ts"
import * as Loss from "./Loss.ts"
import * as ModelInput from "./ModelInput.ts"
import * as Optimizer from "./Optimizer.ts"
import * as RateLimiter from "./RateLimiter.ts"
import * as SamplingClient from "./SamplingClient.ts"
import type { ServerConfig } from "./protocol/ServerConfig.ts"
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
  StepFailed,
  type SubmitError,
  type TinkerError,
  type TrainingError,
} from "./TinkerError.ts"
import * as TrainingJournal from "./TrainingJournal.ts"
import type { TrainingResult } from "./TrainingResult.ts"
import { Transport } from "./Transport.ts"

/**
 * An operation that has its place in the order of requests. Interrupting who waits for it leaves it alone; `cancel`
 * gives it up if it was not sent yet.
 *
 * @since 0.1.0
 * @category models
 */
export type Ticket<A, E = never> = Tickets.Ticket<A, E>

/**
 * How an operation is called: what it gives, and when.
 *
 * @since 0.1.0
 * @category models
 */
export type Form = "enqueue" | "submit" | "plain"

/**
 * What an operation with result `A` gives in a form. `E` and `R` are those of a user's own part in it.
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
 * For one operation.
 *
 * @since 0.1.0
 * @category models
 */
export interface RequestOptions extends Pick<ApiFuture.Options, "deadline" | "stalledAfter"> {
  /** Your own name for it, which the journal keeps. */
  readonly tag?: string | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface SaveOptions extends RequestOptions {
  /** For how long the server keeps it. Not given: as long as it likes. */
  readonly ttl?: Duration.DurationInput | undefined
  readonly userMetadata?: JsonObject | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface LoadOptions extends RequestOptions {
  /** Of somebody who shares the weights. */
  readonly weightsAccessToken?: Redacted.Redacted<string> | undefined
}

/**
 * Data for a loss: what it doesn't take does not compile.
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
export interface Operations<F extends Form> {
  /** Log probabilities and metrics; changes nothing. */
  readonly forward: <Inputs, D extends Datum<NoInfer<Inputs>>>(
    data: Data<Inputs, D>,
    loss: Loss.Loss<Inputs>,
    options?: RequestOptions,
  ) => Outcome<F, TrainingResult>
  /** Adds the gradients of a batch to those that are there since the last update. */
  readonly forwardBackward: <Inputs, D extends Datum<NoInfer<Inputs>>>(
    data: Data<Inputs, D>,
    loss: Loss.Loss<Inputs>,
    options?: RequestOptions,
  ) => Outcome<F, TrainingResult>
  /**
   * The same for a loss that is computed here: a forward pass, the loss function, and a second pass with its gradient.
   * It is acknowledged when the second pass is; other operations may come between the two.
   */
  readonly forwardBackwardCustom: <I extends CustomLoss.Inputs, E, R>(
    data: ReadonlyArray<Datum<I>>,
    loss: CustomLoss.CustomLoss<I, E, R>,
    options?: RequestOptions,
  ) => Outcome<F, TrainingResult, E | FutureError, R>
  /** Changes the weights by the gradients that have added up, and forgets them. */
  readonly optimStep: (optimizer: Optimizer.Optimizer, options?: RequestOptions) => Outcome<F, OptimStepResult>
  /** Weights and optimizer, to train on from. */
  readonly saveState: (
    name: string,
    options?: SaveOptions & { readonly overwrite?: boolean | undefined },
  ) => Outcome<F, { readonly path: string }>
  /** Weights, to sample from. */
  readonly saveWeightsForSampler: (name: string, options?: SaveOptions) => Outcome<F, { readonly path: string }>
  /** Weights, to take away. */
  readonly saveWeightsExternal: (
    name: string,
    options?: RequestOptions & {
      readonly ttl?: Duration.DurationInput | undefined
      /** Public keys of those who may read it. */
      readonly ageEncryptionRecipients?: ReadonlyArray<string> | undefined
    },
  ) => Outcome<F, { readonly path: string; readonly sizeBytes: Option.Option<number> }>
  /** The weights of a checkpoint; the optimizer starts anew. */
  readonly loadState: (path: Checkpoint.Input, options?: LoadOptions) => Outcome<F, void>
  /** The weights of a checkpoint, and its optimizer. */
  readonly loadStateWithOptimizer: (path: Checkpoint.Input, options?: LoadOptions) => Outcome<F, void>
}

/**
 * What came of one training step.
 *
 * @since 0.1.0
 * @category models
 */
export interface Step {
  /** From `startAt`. */
  readonly step: number
  readonly pass: TrainingResult
  readonly update: OptimStepResult
  /** Of both halves. */
  readonly metrics: Readonly<Record<string, number>>
  /** How many tokens the batch had, as far as that is known: an image may not tell. */
  readonly tokens: number
  /** From the call to the server's word that it has both halves. */
  readonly queueTime: Duration.Duration
  /** From the call to the results. */
  readonly duration: Duration.Duration
}

/**
 * @since 0.1.0
 * @category models
 */
export interface StepsOptions extends Pick<RequestOptions, "deadline" | "stalledAfter"> {
  /** The number of the first step. Default: 0. */
  readonly startAt?: number | undefined
  /** How many steps are sent ahead of the one whose result is awaited. Default: 1. */
  readonly ahead?: number | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Service extends Operations<"plain"> {
  readonly modelId: string
  readonly session: Session.Service
  readonly enqueue: Operations<"enqueue">
  readonly submit: Operations<"submit">
  /**
   * A pass and the update by it, on the wire back to back. If the pass is not accepted the update is not sent.
   */
  readonly trainStep: <Inputs, D extends Datum<NoInfer<Inputs>>>(
    data: Data<Inputs, D>,
    loss: Loss.Loss<Inputs>,
    optimizer: Optimizer.Optimizer,
    options?: RequestOptions,
  ) => Effect.Effect<Step, SubmitError | StepFailed>
  /**
   * A step for each batch, in order, the next one on its way while one is awaited. The optimizer may depend on the
   * step. The journal's tag of a step is `step <number>`.
   */
  readonly trainSteps: <Inputs>(
    loss: Loss.Loss<Inputs>,
    optimizer: Optimizer.Optimizer | Optimizer.Schedule<Optimizer.Optimizer>,
    options?: StepsOptions,
  ) => <D extends Datum<NoInfer<Inputs>>, E, R>(
    batches: Stream.Stream<Data<Inputs, D>, E, R>,
  ) => Stream.Stream<Step, E | SubmitError | StepFailed, R>
  readonly getInfo: Effect.Effect<ModelInfo, TinkerError>
  /** A sampler of weights that were saved. */
  readonly createSamplingClient: (
    modelPath: Checkpoint.Input,
    options?: SamplingClient.Options,
  ) => Effect.Effect<SamplingClient.Service, TinkerError, Scope.Scope>
  /** A sampler of the weights as they are at this point of the order. They are kept for it alone, without a name. */
  readonly saveWeightsAndGetSamplingClient: (
    options?: SamplingClient.Options,
  ) => Effect.Effect<SamplingClient.Service, TrainingError, Scope.Scope>
  /** Takes the model off the server, after all that was enqueued before. Servers without it answer `NotFound`. */
  readonly unload: Effect.Effect<void, TrainingError>
  /** Why nothing can be submitted any more, if that is so. */
  readonly broken: Effect.Effect<Option.Option<SequenceBroken>>
  /** Goes on after `SequenceBroken` with `partial`, with the gradients that were accepted. */
  readonly acceptPartial: Effect.Effect<void>
}

/**
 * @since 0.1.0
 * @category tags
 */
export class TrainingClient extends Context.Tag("effect-tinker/TrainingClient")<TrainingClient, Service>() {}

/**
 * How a client works, whatever its model.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options extends Pick<RequestOptions, "deadline" | "stalledAfter"> {
  /** How many operations may wait for their turn until `enqueue` has to. Default: 64. */
  readonly maxQueued?: number | undefined
  /** How long closing waits for a submission that is under way. Default: 5 seconds. */
  readonly closeGrace?: Duration.DurationInput | undefined
  /**
   * What to do when the answer to a pass or an update is lost. `probe` (the default): find out whether the server would
   * notice a second one, by a harmless forward pass under a used number; send it again if so, else stop. `resend`: send
   * it again, as the official SDK does. `stop`: fail with `SequenceBroken`.
   */
  readonly whenUnknown?: "probe" | "resend" | "stop" | undefined
  /** Lets `resume` go on after the process died. */
  readonly journal?: TrainingJournal.Journal | undefined
  /** Keep requests in the journal until they are acknowledged, so that they can be sent again. Default: yes. */
  readonly journalRequests?: boolean | undefined
}

/**
 * What a training client needs around it.
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

type Given = Option.Option<Sequencer.Start>

interface Made {
  readonly service: Service
  readonly deps: Tickets.Deps
  /** To be told of each state that one can go back to. */
  readonly saved: (seq: number, path: string) => void
}

/** A client of a model that exists. */
const make = (modelId: string, options: Options, start: Given): Effect.Effect<Made, never, Environment | Scope.Scope> =>
  Effect.gen(function* () {
    const transport = yield* Transport
    const session = yield* Session.Session
    const config = yield* TinkerConfig.TinkerConfig
    // Without our scope: a sampler lives in that of whoever makes it.
    const context = Context.omit(Scope.Scope)(yield* Effect.context<Environment | Scope.Scope>())
    const runtime = yield* Effect.runtime<never>()
    const scope = yield* Effect.scope
    const limiter = yield* (yield* RateLimiter.RateLimiter).limiter(RateLimiter.keyOf(config))
    const { flags, learnt } = session
    yield* limiter.configure({ trainingBytes: flags.fwdbwdDispatchBytesSemaphoreSize })
    const futures = yield* (yield* ApiFuture.Futures).inScope
    const journal = Option.fromNullable(options.journal)
    if (Option.isSome(journal)) yield* session.keepForResume

    const passes: Passes.Options = {
      transport,
      modelId,
      zstd: flags.protoCompressFwdbwd ? yield* (yield* Host).zstd : Option.none(),
    }
    const sequencer = Sequencer.make({
      transport,
      limiter,
      learnt,
      journal,
      keepRequests: options.journalRequests ?? true,
      whenUnknown: options.whenUnknown ?? "probe",
      probe: Passes.probe(
        passes,
        futures,
        Effect.map(Ref.get(learnt), ({ wire }) => wire),
      ),
      readsOnlyJson: Passes.readsOnlyJson(passes),
      start: Option.getOrUndefined(start),
    })
    const turns = yield* Turns.make<ClientClosed | SessionLost>({
      capacity: options.maxQueued ?? 64,
      closeGrace: Duration.decode(options.closeGrace ?? "5 seconds"),
      closed: () => new ClientClosed({ operation: "training" }),
    })
    yield* session.lost.pipe(
      Effect.catchTag("SessionLost", (lost) =>
        Effect.fail(new SessionLost({ ...lost, lastCheckpoint: sequencer.lastCheckpoint() })),
      ),
      Effect.catchAll((lost) => turns.end(lost, Duration.zero)),
      Effect.forkScoped,
      Effect.interruptible,
    )

    /** What only shortens a resume is written behind the back of those who wait. */
    const note = (record: TrainingJournal.Record) => {
      if (Option.isNone(journal)) return
      const written = Effect.catchAll(journal.value.append([{ record }]), (error) =>
        Effect.logWarning(`Tinker: ${error.message}`),
      )
      Runtime.runFork(runtime, TinkerConfig.logged(config)(written))
    }
    const meters = Meters.make(config)
    const attributes = { "tinker.session_id": session.id, "tinker.model_id": modelId }
    const deps: Tickets.Deps = {
      transport,
      turns,
      sequencer,
      futures,
      settled: (request, call, exit) => {
        sequencer.settled(request, call, exit)
        if (isFinal(exit)) note({ _tag: "Settled", seq: request.seq, succeeded: isDone(exit) })
      },
      report: session.telemetry.report,
      meters,
      attributes,
    }
    const saved = (seq: number, path: string) => {
      sequencer.saved(path)
      note({ _tag: "Checkpoint", seq, path })
    }

    // From the arguments of a call to what is to be submitted. Pure: bad input fails here, and uses no number.

    const single = <B, A, I>(
      kind: ApiFuture.Kind<B>,
      endpoint: Endpoint.Endpoint<I, Accepted>,
      input: (seqId: number) => I,
      requestOptions: RequestOptions,
      rest: Partial<Tickets.Operation<B, A>> & Pick<Tickets.Operation<B, A>, "combine">,
    ): Either.Either<Tickets.Operation<B, A>, InvalidInput> =>
      // Rendered once for nothing but its complaints; the numbers don't matter to them.
      Either.map(transport.render(endpoint, input(1)), () => ({
        ...plainOperation,
        ...waitOf(options, requestOptions),
        kind,
        requests: [{ forms: [Sequencer.form(transport, endpoint, input)], bytes: 0 }],
        onSuccess: () => undefined,
        ...rest,
      }))

    const pass = (
      batch: Loss.PreparedBatch,
      forwardOnly: boolean,
      requestOptions: RequestOptions,
    ): Tickets.Operation<TrainingResult, TrainingResult> => {
      const chunks = Chunks.cut(batch, {
        maxLength: flags.fwdbwdMaxChunkLen,
        maxBytes: flags.fwdbwdMaxChunkBytesCount,
      })
      const meter = forwardOnly ? undefined : meters(Api.forwardBackward.operation)
      let open = chunks.length
      return {
        ...plainOperation,
        ...waitOf(options, requestOptions),
        kind: forwardOnly ? ApiFuture.kinds.forward : ApiFuture.kinds.forwardBackward,
        requests: chunks.map((chunk) => Passes.request(passes, chunk, forwardOnly)),
        parallel: flags.parallelFwdbwdChunks,
        repeatable: forwardOnly,
        separable: forwardOnly,
        combine,
        onSuccess: () => {
          if (--open === 0) meter?.trained(tokensOf(batch))
        },
      }
    }

    const update = (optimizer: Optimizer.Optimizer, requestOptions: RequestOptions) =>
      Either.flatMap(Optimizer.validate(optimizer), (valid) =>
        single<OptimStepResult, OptimStepResult, Endpoint.Input<typeof Api.optimStep>>(
          ApiFuture.kinds.optimStep,
          Api.optimStep,
          (seqId) => ({ modelId, seqId, ...Optimizer.toParams(valid) }),
          requestOptions,
          { combine: only, repeatable: false },
        ),
      )

    const load = (input: Checkpoint.Input, optimizer: boolean, loadOptions: LoadOptions) =>
      Either.flatMap(Checkpoint.textOf(input), (path) =>
        single(
          ApiFuture.kinds.loadWeights,
          Api.loadWeights,
          (seqId) => ({ modelId, seqId, path, optimizer, weightsAccessToken: loadOptions.weightsAccessToken }),
          loadOptions,
          {
            combine: () => undefined,
            heals: true,
            // What is loaded can be loaded again.
            onSuccess: (seq) => {
              saved(seq, path)
              // What was left of an earlier batch is gone with the weights.
              sequencer.heal()
            },
          },
        ),
      )

    const ephemeral = (samplingSessionSeqId: number) =>
      single(
        ApiFuture.kinds.saveSamplingSession,
        Api.saveWeightsForSampler,
        (seqId) => ({ modelId, seqId, samplingSessionSeqId }),
        {},
        { combine: only },
      )

    const customPass = <I extends CustomLoss.Inputs, E, R>(
      data: ReadonlyArray<Datum<I>>,
      loss: CustomLoss.CustomLoss<I, E, R>,
      requestOptions: RequestOptions,
    ): Effect.Effect<Ticket<TrainingResult, E | FutureError>, SubmitError, R> =>
      Effect.gen(function* () {
        const prepared = yield* CustomLoss.prepare(data)
        const first = yield* Tickets.enqueue(deps, pass(prepared.forward, true, requestOptions))
        let second: Ticket<TrainingResult> | undefined
        const rest = Effect.gen(function* () {
          const found = yield* CustomLoss.linearize(loss, prepared, yield* first.await)
          second = yield* Tickets.enqueue(deps, pass(found.backward, false, requestOptions))
          const future = yield* second.acknowledged
          return ApiFuture.map(future, (result) => CustomLoss.finish(found, result))
        })
        return yield* background(scope, first, rest, () => second)
      })

    const operations = <F extends Form>({ custom, run }: Runner<F>): Operations<F> => ({
      forward: (data, loss, requestOptions = {}) =>
        run(Either.map(Loss.prepareUnknown(loss, data), (batch) => pass(batch, true, requestOptions))),
      forwardBackward: (data, loss, requestOptions = {}) =>
        run(Either.map(Loss.prepareUnknown(loss, data), (batch) => pass(batch, false, requestOptions))),
      forwardBackwardCustom: (data, loss, requestOptions = {}) => custom(customPass(data, loss, requestOptions)),
      optimStep: (optimizer, requestOptions = {}) => run(update(optimizer, requestOptions)),
      saveState: (name, { overwrite, ttl, userMetadata, ...requestOptions } = {}) =>
        run(
          Either.flatMap(seconds(ttl), (ttlSeconds) =>
            single(
              ApiFuture.kinds.saveWeights,
              Api.saveWeights,
              (seqId) => ({ modelId, seqId, path: name, overwrite, ttlSeconds, userMetadata }),
              requestOptions,
              {
                combine: (results) => ({ path: only(results).path }),
                named: true,
                onSuccess: (seq, { path }) => saved(seq, path),
              },
            ),
          ),
        ),
      saveWeightsForSampler: (name, { ttl, userMetadata, ...requestOptions } = {}) =>
        run(
          Either.flatMap(seconds(ttl), (ttlSeconds) =>
            single(
              ApiFuture.kinds.saveWeightsForSampler,
              Api.saveWeightsForSampler,
              (seqId) => ({ modelId, seqId, path: name, ttlSeconds, userMetadata }),
              requestOptions,
              { combine: (results) => ({ path: only(results).path }), named: true },
            ),
          ),
        ),
      saveWeightsExternal: (name, { ageEncryptionRecipients, ttl, ...requestOptions } = {}) =>
        run(
          Either.flatMap(seconds(ttl), (ttlSeconds) =>
            single(
              ApiFuture.kinds.saveWeightsExternal,
              Api.saveWeightsExternal,
              (seqId) => ({ modelId, seqId, path: name, ttlSeconds, ageEncryptionRecipients }),
              requestOptions,
              {
                combine: (results) => {
                  const { path, sizeBytes } = only(results)
                  return { path, sizeBytes }
                },
                named: true,
              },
            ),
          ),
        ),
      loadState: (path, loadOptions = {}) => run(load(path, false, loadOptions)),
      loadStateWithOptimizer: (path, loadOptions = {}) => run(load(path, true, loadOptions)),
    })

    const enqueueing: Runner<"enqueue"> = {
      run: (operation) =>
        Either.isRight(operation) ? Tickets.enqueue(deps, operation.right) : Effect.fail(operation.left),
      custom: (ticket) => ticket,
    }
    const submitting: Runner<"submit"> = {
      run: (operation) =>
        Either.isRight(operation) ? Tickets.submit(deps, operation.right) : Effect.fail(operation.left),
      custom: (ticket) => Effect.flatMap(ticket, acknowledgedOrCancelled),
    }
    const awaiting: Runner<"plain"> = {
      run: (operation) =>
        Either.isRight(operation) ? Tickets.run(deps, operation.right) : Effect.fail(operation.left),
      custom: (ticket) => Effect.flatMap(submitting.custom(ticket), (future) => future.await),
    }

    /** Both halves of a step have their places; what is left is to wait. */
    const beginStep = (
      data: unknown,
      loss: Loss.Loss<never>,
      optimizer: Optimizer.Optimizer,
      step: number,
      requestOptions: RequestOptions,
    ) =>
      Traced.opened(
        (trace) => beginTraced(trace, data, loss, optimizer, step, requestOptions),
        () => ({ name: "tinker.train_step", attributes: { ...attributes, "tinker.step": step } }),
      )

    const beginTraced = (
      trace: Traced.Trace | undefined,
      data: unknown,
      loss: Loss.Loss<never>,
      optimizer: Optimizer.Optimizer,
      step: number,
      requestOptions: RequestOptions,
    ) =>
      Effect.gen(function* () {
        const batch = yield* Loss.prepareUnknown(loss, data)
        const second = yield* update(optimizer, requestOptions)
        trace?.attribute("tinker.tokens", tokensOf(batch))
        const begunAt = yield* uptime
        const [passed, updated] = yield* Traced.within(
          trace,
          Tickets.enqueuePair(deps, pass(batch, false, requestOptions), second),
        )
        // Both or none: gradients without their update would be in the next one.
        const cancel = Effect.flatMap(passed.cancel, (taken) => (taken ? updated.cancel : Effect.succeed(false)))
        const finish = Effect.gen(function* () {
          yield* Effect.exit(Effect.zip(passed.acknowledged, updated.acknowledged))
          const acknowledgedAt = yield* uptime
          const exits = { pass: yield* Effect.exit(passed.await), update: yield* Effect.exit(updated.await) }
          if (Exit.isFailure(exits.pass) || Exit.isFailure(exits.update)) return yield* stepFailure(exits)
          return {
            step,
            pass: exits.pass.value,
            update: exits.update.value,
            metrics: { ...exits.pass.value.metrics, ...exits.update.value.metrics },
            tokens: tokensOf(batch),
            queueTime: Duration.millis(acknowledgedAt - begunAt),
            duration: Duration.millis((yield* uptime) - begunAt),
          }
        })
        const ending = Effect.onInterrupt(finish, () => cancel)
        return {
          // Whatever was sent goes on without us.
          leave: Effect.zipRight(
            cancel,
            Effect.sync(() => trace?.end(Exit.interrupt(FiberId.none))),
          ),
          finish: trace === undefined ? ending : Effect.onExit(ending, (exit) => Effect.sync(() => trace.end(exit))),
        }
      })

    const service: Service = {
      modelId,
      session,
      ...operations(awaiting),
      enqueue: operations(enqueueing),
      submit: operations(submitting),
      trainStep: (data, loss, optimizer, requestOptions = {}) =>
        Effect.flatMap(beginStep(data, loss, optimizer, 0, requestOptions), ({ finish }) => finish),
      trainSteps:
        (loss, optimizer, { ahead = 1, startAt = 0, ...requestOptions } = {}) =>
        (batches) =>
          Steps.pipeline(batches, {
            startAt,
            ahead,
            begin: (data, step) =>
              Effect.flatMap(Steps.optimizerAt(optimizer, step), (chosen) =>
                beginStep(data, loss, chosen, step, { ...requestOptions, tag: StepTags.tagOf(step) }),
              ),
          }),
      getInfo: transport.call(Api.getInfo, { modelId }),
      createSamplingClient: (modelPath, samplingOptions) =>
        Effect.provide(SamplingClient.make({ modelPath }, samplingOptions), context),
      saveWeightsAndGetSamplingClient: (samplingOptions) =>
        Effect.gen(function* () {
          const { samplingSessionId } = yield* awaiting.run(ephemeral(yield* session.nextSampler))
          return yield* Effect.provide(SamplingClient.make({ samplingSessionId }, samplingOptions), context)
        }),
      unload: unload(transport, futures, turns, modelId),
      broken: sequencer.broken,
      acceptPartial: Effect.sync(sequencer.heal),
    }
    return { service, deps, saved }
  })

interface Runner<F extends Form> {
  readonly run: <B, A>(operation: Either.Either<Tickets.Operation<B, A>, InvalidInput>) => Outcome<F, A>
  readonly custom: <E, R>(
    ticket: Effect.Effect<Ticket<TrainingResult, E | FutureError>, SubmitError, R>,
  ) => Outcome<F, TrainingResult, E | FutureError, R>
}

/** Who is interrupted while the operation still waits takes it back. */
const acknowledgedOrCancelled = <A, E>({ acknowledged, cancel }: Ticket<A, E>) =>
  Effect.onInterrupt(acknowledged, () => cancel)

/** Is it the client that is at its end, and not the request? */
const isEnd = (error: TrainingError): error is SequenceBroken | SessionLost | ClientClosed | JournalFailed =>
  error._tag === "SequenceBroken" ||
  error._tag === "SessionLost" ||
  error._tag === "ClientClosed" ||
  error._tag === "JournalFailed"

/** The end of the client is one error, and not two halves of one. */
const stepFailure = (exits: Pick<StepFailed, "pass" | "update">): Effect.Effect<never, SubmitError | StepFailed> => {
  const [pass, update] = [exits.pass, exits.update].map((exit) =>
    Exit.isFailure(exit) ? Option.getOrUndefined(Cause.failureOption(exit.cause)) : undefined,
  )
  return Effect.fail(pass !== undefined && pass === update && isEnd(pass) ? pass : new StepFailed(exits))
}

/** What most operations are like: one request, which can be made again without harm. */
const plainOperation = {
  parallel: false,
  repeatable: true,
  named: false,
  separable: true,
  heals: false,
  follows: false,
} as const

const waitOf = (client: Options, { deadline, stalledAfter, tag }: RequestOptions) => ({
  wait: { deadline: deadline ?? client.deadline, stalledAfter: stalledAfter ?? client.stalledAfter },
  tag: Option.fromNullable(tag),
})

const only = <B>(results: ReadonlyArray<B>): B => {
  const [result] = results
  // There is one request, and so one result.
  return result as B
}

const seconds = (ttl: Duration.DurationInput | undefined): Either.Either<number | undefined, InvalidInput> => {
  if (ttl === undefined) return Either.right(undefined)
  const duration = Duration.decodeUnknown(ttl)
  return Option.isSome(duration) && Duration.isFinite(duration.value)
    ? Either.right(Math.ceil(Duration.toSeconds(duration.value)))
    : Either.left(new InvalidInput({ path: "ttl", problem: "expected a finite duration" }))
}

const tokensOf = ({ data }: Loss.PreparedBatch): number =>
  data.reduce((sum, { chunks }) => sum + Option.getOrElse(ModelInput.length({ chunks }), () => 0), 0)

/** Was it done? If only its result is lost it was. */
const isDone = (exit: Exit.Exit<unknown, FutureError>): boolean =>
  Exit.isSuccess(exit) || Option.exists(Cause.failureOption(exit.cause), ({ _tag }) => _tag === "PromiseExpired")

/** Did the server pronounce on it? That nobody waited any longer is no verdict. */
const isFinal = (exit: Exit.Exit<unknown, FutureError>): boolean => {
  if (Exit.isSuccess(exit)) return true
  return Option.exists(Cause.failureOption(exit.cause), (error) => {
    switch (error._tag) {
      case "RequestRejected":
      case "PromiseExpired":
      case "NotFound":
        return true
      case "RequestFailed":
        return error.reason !== "PollerDied"
      default:
        return false
    }
  })
}

/** The rest of an operation in several steps, in a fiber of the client's whose end, however it comes, is told. */
const background = <A, E, R>(
  scope: Scope.Scope,
  first: Ticket<unknown>,
  rest: Effect.Effect<ApiFuture.ApiFuture<A>, SubmitError | E, R>,
  second: () => Ticket<A> | undefined,
): Effect.Effect<Ticket<A, E>, never, R> =>
  Effect.uninterruptible(
    Effect.gen(function* () {
      const acknowledged = yield* Deferred.make<ApiFuture.ApiFuture<A>, SubmitError | E>()
      let cancelled = false
      const fiber = yield* Effect.forkIn(Effect.interruptible(rest), scope)
      fiber.addObserver((exit) =>
        Deferred.unsafeDone(
          acknowledged,
          Exit.isFailure(exit) && Cause.isInterrupted(exit.cause) && !cancelled
            ? Exit.fail(new ClientClosed({ operation: "training" }))
            : exit,
        ),
      )
      const wait = Deferred.await(acknowledged)
      return {
        acknowledged: wait,
        await: Effect.flatMap(wait, (future) => future.await),
        cancel: Effect.suspend(() => {
          const sent = second()
          if (sent !== undefined) return sent.cancel
          cancelled = true
          return Effect.as(Effect.zipRight(first.cancel, Fiber.interruptFork(fiber)), true)
        }),
        queueState: Stream.concat(first.queueState, Tickets.statesOf(wait)),
      }
    }),
  )

const unload = (
  transport: typeof Transport.Service,
  futures: ApiFuture.Service,
  turns: Turns.Turns<ClientClosed | SessionLost>,
  modelId: string,
): Effect.Effect<void, TrainingError> => {
  const kind = ApiFuture.kinds.unloadModel
  const unloading = Effect.flatMap(transport.call(Api.unloadModel, { modelId }), ({ requestId }) =>
    Effect.flatMap(futures.attach(kind, requestId), (future) => future.await),
  )
  const inTurn = (trace: Traced.Trace | undefined) =>
    Effect.gen(function* () {
      const done = yield* Deferred.make<void, TrainingError>()
      yield* turns.enqueue({
        run: Effect.flatMap(Effect.exit(Traced.within(trace, unloading)), (exit) =>
          Deferred.done(done, Exit.asVoid(exit)),
        ),
        giveUp: (error) => Deferred.unsafeDone(done, Exit.fail(error)),
      })
      yield* Deferred.await(done)
      yield* turns.end(new ClientClosed({ operation: "unload" }), Duration.zero)
    })
  const attributes = { "tinker.model_id": modelId }
  return Traced.traced((fiber) => inTurn(Traced.current(fiber)), Tickets.spanName(kind), attributes, "internal")
}

/**
 * A new model.
 *
 * @since 0.1.0
 * @category models
 */
export interface LoraOptions extends Options, Partial<LoraConfig> {
  readonly baseModel: string
  readonly userMetadata?: JsonObject | undefined
  /** The kind of optimizer that the model is to be trained with. Default: Adam. */
  readonly optimizer?: Optimizer.Optimizer | undefined
}

/** Waits for the result of what belongs to no model yet, and so has no number among its requests. */
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
    return yield* Traced.traced(() => work, Tickets.spanName(kind), undefined, "internal")
  })

/** Waits for a model to be there. */
const created = (request: Endpoint.Input<typeof Api.createModel>) =>
  Effect.map(resultOf(ApiFuture.kinds.createModel, Api.createModel, request), ({ modelId }) => modelId)

/** A client of a model that was just made, with the first entry of its journal. */
const opened = (
  modelId: string,
  options: Options,
  from: Option.Option<typeof TrainingJournal.Origin.Type> = Option.none(),
) =>
  Effect.gen(function* () {
    const { journal } = options
    const { baseUrl } = yield* TinkerConfig.TinkerConfig
    const { id } = yield* Session.Session
    if (journal !== undefined)
      yield* journal.append([{ record: { _tag: "Opened", baseUrl, sessionId: id, modelId, from } }])
    return (yield* make(modelId, options, Option.none())).service
  })

/**
 * A new model with adapters over a base model, in the current scope.
 *
 * @since 0.1.0
 * @category constructors
 */
export const createLora = (options: LoraOptions): Effect.Effect<Service, TrainingError, Environment | Scope.Scope> =>
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
    return yield* opened(modelId, options)
  })

/**
 * A model that goes on from a checkpoint.
 *
 * @since 0.1.0
 * @category models
 */
export interface CheckpointOptions extends Options {
  /** Restore the optimizer, too. Default: no, it starts anew. */
  readonly withOptimizer?: boolean | undefined
  /** In place of the one that the checkpoint was made with. */
  readonly baseModel?: string | undefined
  /** The kind of optimizer that the model is to be trained with. Default: Adam, or the one that is restored. */
  readonly optimizer?: Optimizer.Optimizer | undefined
  readonly userMetadata?: JsonObject | undefined
  /** Of somebody who shares the weights. */
  readonly weightsAccessToken?: Redacted.Redacted<string> | undefined
}

/**
 * A new model with the weights of a checkpoint, in the current scope.
 *
 * @since 0.1.0
 * @category constructors
 */
export const fromCheckpoint = (
  input: Checkpoint.Input,
  options: CheckpointOptions = {},
): Effect.Effect<Service, TrainingError, Environment | Scope.Scope> =>
  Effect.gen(function* () {
    const path = yield* Checkpoint.textOf(input)
    const session = yield* Session.Session
    const transport = yield* Transport
    const { baseModel, optimizer, userMetadata, weightsAccessToken, withOptimizer = false } = options
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
      // The answer need not tell it: it follows from session and number.
      return yield* opened(
        Option.getOrElse(modelId, () => `${session.id}:train:${modelSeqId}`),
        options,
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
    const service = yield* opened(modelId, options, Option.some({ path, withOptimizer }))
    yield* service[withOptimizer ? "loadStateWithOptimizer" : "loadState"](path, { weightsAccessToken })
    return service
  })

/**
 * A call of an earlier life of the client.
 *
 * @since 0.1.0
 * @category resuming
 */
export interface Earlier {
  /** The wire's name, e.g. `optim_step`. */
  readonly operation: string
  /** One for each piece of it. */
  readonly seqs: ReadonlyArray<number>
  readonly tag: Option.Option<string>
}

/**
 * A call whose result was not known when the journal ended.
 *
 * @since 0.1.0
 * @category resuming
 */
export type Pending = Earlier &
  (
    | { readonly kind: "pass"; readonly future: ApiFuture.ApiFuture<TrainingResult> }
    | { readonly kind: "update"; readonly future: ApiFuture.ApiFuture<OptimStepResult> }
    | { readonly kind: "other"; readonly future: ApiFuture.ApiFuture<unknown> }
  )

/**
 * A client that goes on where another one ended.
 *
 * @since 0.1.0
 * @category resuming
 */
export interface Resumed {
  readonly client: Service
  /** What was done, in order. What failed is among it: its number is used. */
  readonly completed: ReadonlyArray<Earlier & { readonly succeeded: boolean }>
  /** What the server has, in order, and its results as soon as they are there. */
  readonly pending: ReadonlyArray<Pending>
  /** The number of the next step, if the client's work was `trainSteps`. */
  readonly nextStep: number
  /** The step of which the server has the pass but not the update: see `finishStep`. */
  readonly unfinished: Option.Option<number>
  /** Sends the update of the unfinished step, if there is one. To be done before anything else. */
  readonly finishStep: (
    optimizer: Optimizer.Optimizer | Optimizer.Schedule<Optimizer.Optimizer>,
  ) => Effect.Effect<Option.Option<OptimStepResult>, TrainingError>
}

/**
 * Goes on with the model of a journal, in its session if the server still knows it; that is `SessionLost` otherwise,
 * with the last checkpoint. What was acknowledged is waited for, what was about to be sent is sent again as it was. If
 * that can't be done safely it fails with `SequenceBroken`.
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
    if (Option.isNone(found)) return yield* new JournalFailed({ reason: "Empty", detail: "it holds no client" })
    const { lastCheckpoint, learnt, opened } = found.value
    const { baseUrl } = yield* TinkerConfig.TinkerConfig
    if (opened.baseUrl !== baseUrl)
      return yield* new InvalidConfig({ setting: "baseUrl", problem: `the journal is of ${opened.baseUrl}` })

    const session = yield* Session.resume({
      sessionId: opened.sessionId,
      learnt: Option.getOrElse(learnt, () => Session.nothingLearnt),
    }).pipe(
      Effect.catchTag("SessionLost", (lost) => new SessionLost({ ...lost, lastCheckpoint })),
      // From the first moment: what fails from here on must not end what another life could go on with.
      (session) =>
        Effect.uninterruptibleMask((restore) => Effect.tap(restore(session), (known) => known.keepForResume)),
    )
    const { calls, free } = JournalCalls.ledger(found.value.steps)
    yield* journal.append([
      { record: { _tag: "Resumed" } },
      ...free.map((seq) => ({ record: { _tag: "Withdrawn", seq } as const })),
    ])
    const inSession = Effect.provideService(Session.Session, session)
    const futures = yield* inSession(ApiFuture.make)

    const { deps, saved, service } = yield* make(
      opened.modelId,
      options,
      Option.some(Resuming.startOf(found.value, calls)),
    ).pipe(inSession, Effect.provideService(ApiFuture.Futures, futures))

    // Before anything new can be submitted.
    const pending = yield* deps.turns.exclusively(
      Effect.forEach(
        calls.filter(({ stands }) => stands !== "settled"),
        (call) => Resuming.reattach(deps, call, saved),
      ),
    )
    if (Option.isSome(opened.from) && !calls.some(Resuming.isLoaded)) {
      const loading = pending.find(({ operation }) => operation === Api.loadWeights.operation)
      const { path, withOptimizer } = opened.from.value
      // Without it the model is not the one that was asked for.
      yield* loading === undefined
        ? service[withOptimizer ? "loadStateWithOptimizer" : "loadState"](path)
        : loading.future.await
    }
    const progress = StepTags.progress(calls.map(Resuming.outcome))
    return {
      client: service,
      completed: calls
        .filter(({ stands }) => stands === "settled")
        .map((call) => ({ ...Resuming.describe(call.steps), succeeded: Resuming.outcome(call).succeeded !== false })),
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
 * @since 0.1.0
 * @category layers
 */
export const layerLora = (options: LoraOptions): Layer.Layer<TrainingClient, TrainingError, Environment> =>
  Layer.fresh(Layer.scoped(TrainingClient, createLora(options)))

/**
 * @since 0.1.0
 * @category layers
 */
export const layerFromCheckpoint = (
  path: Checkpoint.Input,
  options?: CheckpointOptions,
): Layer.Layer<TrainingClient, TrainingError, Environment> =>
  Layer.fresh(Layer.scoped(TrainingClient, fromCheckpoint(path, options)))
