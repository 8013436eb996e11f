/**
 * Samples from one set of weights. Thousands may run at once: they wait for their turn at the limiter that all clients
 * of the account share, outlast rate limits, billing stops and an unreliable network, and give up everything they hold
 * as soon as nobody wants them any more.
 *
 * @since 0.1.0
 */
import * as Cause from "effect/Cause"
import * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as ParseResult from "effect/ParseResult"
import * as Predicate from "effect/Predicate"
import * as Random from "effect/Random"
import * as Ref from "effect/Ref"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import * as Api from "./protocol/Api.ts"
import * as Sampling from "./protocol/schemas/Sampling.ts"
import * as ApiFuture from "./ApiFuture.ts"
import * as BaseUrl from "./http/BaseUrl.ts"
import * as Checkpoint from "./Checkpoint.ts"
import { describe, fromIssue, invalid, type Result } from "./internal/codec/Invalid.ts"
import { lazy } from "./internal/util/Lazy.ts"
import { Remembered } from "./internal/util/StructuralCache.ts"
import * as SampleDriver from "./internal/sampling/SampleDriver.ts"
import * as SingleFlight from "./internal/util/SingleFlight.ts"
import * as ModelInput from "./ModelInput.ts"
import type { RateLimiter } from "./RateLimiter.ts"
import * as SamplerHandle from "./SamplerHandle.ts"
import type { SampleResult } from "./SampleResult.ts"
import type { SamplingParams } from "./SamplingParams.ts"
import * as Session from "./Session.ts"
import * as Telemetry from "./Telemetry.ts"
import * as TensorData from "./TensorData.ts"
import * as Config from "./TinkerConfig.ts"
import { ClientClosed, type FutureError, InvalidInput, type TinkerError, UnexpectedResponse } from "./TinkerError.ts"
import { Transport } from "./Transport.ts"

/**
 * What to sample from: a base model, weights that were saved (`tinker://…`), or a sampling session that exists already
 * and belongs to this client alone.
 *
 * @since 0.1.0
 * @category models
 */
export type Target =
  | { readonly baseModel: string }
  | { readonly modelPath: Checkpoint.Input }
  | { readonly samplingSessionId: string }

/**
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** What samples that don't say it themselves ask for. Default: no. */
  readonly recordStabilityInfo?: boolean | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Request {
  /** Its arrays are held, not copied: leave them alone until the sample is done. */
  readonly prompt: ModelInput.Input
  readonly params?: SamplingParams | undefined
  /** How many continuations. Default: 1. */
  readonly numSamples?: number | undefined
  /** Also the log probabilities of the prompt's own tokens. */
  readonly promptLogprobs?: boolean | undefined
  /** Only of so many tokens at the end of the prompt. Together with `promptLogprobs`. */
  readonly promptLogprobsLastN?: number | undefined
  /** The likeliest tokens of each position of the prompt. */
  readonly topkPromptLogprobs?: number | undefined
  /** The likeliest tokens of each position of the sample. */
  readonly topkSampleLogprobs?: number | undefined
  /** So many tokens, drawn at the temperature, in place of each token of the prompt but the first. */
  readonly promptAltTokensK?: number | undefined
  /**
   * Token ids whose log probabilities are wanted, one row for each token of the prompt but the first. -1 asks for
   * nothing, and gets 0.
   */
  readonly targetPromptLogprobs?: TensorData.Input<"int64"> | undefined
  readonly recordStabilityInfo?: boolean | undefined
}

/**
 * How long to wait. `Duration.infinity` is possible for both.
 *
 * @since 0.1.0
 * @category models
 */
export interface SampleOptions {
  /** For all of it, from the call to the result. Default: for ever. */
  readonly deadline?: Duration.DurationInput | undefined
  /** Without news of it from the server, or without any sample of this client being done. Default: 2 hours. */
  readonly stalledAfter?: Duration.DurationInput | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Service {
  readonly samplingSessionId: string
  /** Interrupting it gives its place to the next at once, and tells the server if that wants to know. */
  readonly sample: (request: Request, options?: SampleOptions) => Effect.Effect<SampleResult, FutureError>
  /** The log probability of each token of the prompt; NaN for the first, and for those that were not asked for. */
  readonly computeLogprobs: (
    prompt: ModelInput.Input,
    options?: SampleOptions & {
      /** Only of so many tokens at the end. */
      readonly lastN?: number | undefined
    },
  ) => Effect.Effect<Float32Array, FutureError>
  /**
   * The same, done when the server has accepted it; the result is a future. Should it get lost and be submitted anew,
   * the future is still the same: its state is `expired` or `unreachable` in between, and it has one more id.
   */
  readonly submit: {
    readonly sample: (
      request: Request,
      options?: SampleOptions,
    ) => Effect.Effect<ApiFuture.ApiFuture<SampleResult>, FutureError>
  }
  readonly getBaseModel: Effect.Effect<string, TinkerError>
  /**
   * How samples fare on their way to the server: `active`, `paused_rate_limit`, `paused_billing` or `unreachable`. What
   * it is now and each change, until the client is closed.
   */
  readonly queueState: Stream.Stream<ApiFuture.QueueState>
  /** With which another process samples from the same weights; see {@link fromHandle}. It holds no secret. */
  readonly handle: Effect.Effect<string>
}

/**
 * @since 0.1.0
 * @category tags
 */
export class SamplingClient extends Context.Tag("effect-tinker/SamplingClient")<SamplingClient, Service>() {}

const requestKeys: Readonly<Record<keyof Request, true>> = {
  prompt: true,
  params: true,
  numSamples: true,
  promptLogprobs: true,
  promptLogprobsLastN: true,
  topkPromptLogprobs: true,
  topkSampleLogprobs: true,
  promptAltTokensK: true,
  targetPromptLogprobs: true,
  recordStabilityInfo: true,
}

/** As the program has it, not the wire. */
const RequestType = lazy(() => Schema.typeSchema(Sampling.SampleRequest))

/** Of which everything but the prompt was found to be right. */
const known = new Remembered<true>({ prompt: true })

/** All that can be wrong with a request is found here, before it waits for anything. */
const checkRequest = (request: Request): Result<SampleDriver.Input> => {
  if (!Predicate.isRecord(request)) {
    return invalid("sample", `expected { prompt, params, … }, got ${describe(request)}`)
  }
  for (const key of Object.keys(request)) {
    if (!Object.hasOwn(requestKeys, key)) {
      return invalid(`sample.${key}`, `unknown: a sample has ${Object.keys(requestKeys).join(", ")}`)
    }
  }
  const { params, prompt, targetPromptLogprobs, ...rest } = request
  const model = ModelInput.from(prompt, "sample.prompt")
  if (Either.isLeft(model)) return Either.left(model.left)
  const input: SampleDriver.Input = { ...rest, prompt: model.right, samplingParams: params }
  if (targetPromptLogprobs === undefined) {
    if (known.find(input) === true) return Either.right(input)
    return Either.map(checkInput(input), (checked) => {
      known.keep(checked, true)
      return checked
    })
  }
  return Either.flatMap(TensorData.from("int64", targetPromptLogprobs, "sample.targetPromptLogprobs"), (targets) =>
    checkInput({ ...input, targetPromptLogprobs: targets }),
  )
}

const checkInput = (input: SampleDriver.Input): Result<SampleDriver.Input> => {
  const request = { ...input, samplingSessionId: "", seqId: 0 }
  return Either.mapBoth(ParseResult.decodeUnknownEither(RequestType, { onExcessProperty: "error" })(request), {
    onRight: () => input,
    onLeft: (issue) => {
      const { path, problem } = fromIssue("sample", input, issue)
      // By the name it has here.
      return new InvalidInput({ path: path.replace(/^sample\.samplingParams/, "sample.params"), problem })
    },
  })
}

interface Parts extends SampleDriver.Parts {
  readonly options: Options
}

const makeClient = (
  parts: Parts,
): Effect.Effect<Service, never, Transport | RateLimiter | Config.TinkerConfig | Scope.Scope> =>
  Effect.gen(function* () {
    const { options: clientOptions, samplingSessionId, session } = parts
    const config = yield* Config.TinkerConfig
    const { call } = yield* Transport
    const driver = yield* SampleDriver.make(parts)

    /** Starts a sample and waits for `wanted`. Interrupting it before that is there ends the sample. */
    const begin = <A>(
      request: Request,
      options: SampleDriver.Options,
      wanted: (running: SampleDriver.Running) => Effect.Effect<A, FutureError>,
    ): Effect.Effect<A, FutureError> =>
      Effect.withFiberRuntime((fiber) => {
        const checked = checkRequest(request)
        if (Either.isLeft(checked)) return Effect.fail(checked.left)
        const input = checked.right
        const recordStabilityInfo = input.recordStabilityInfo ?? clientOptions.recordStabilityInfo
        // No interruption can come between the start and the handler that stops the sample.
        return Effect.uninterruptibleMask((restore) => {
          const running = driver.start(fiber, { ...input, recordStabilityInfo }, options)
          return Effect.matchCauseEffect(restore(wanted(running)), {
            onSuccess: Effect.succeed,
            onFailure: (cause) =>
              Cause.isInterrupted(cause)
                ? Effect.zipRight(running.stop, Effect.failCause(cause))
                : Effect.failCause(cause),
          })
        })
      })

    const mayResubmit = !session.flags.sampleNoRetries

    return SamplingClient.of({
      samplingSessionId,
      sample: (request, options) =>
        begin(request, { ...options, mayResubmit, isAwaited: true }, (running) => running.await),
      computeLogprobs: (prompt, { lastN, ...options } = {}) =>
        begin(
          { prompt, params: { maxTokens: 1 }, numSamples: 1, promptLogprobs: true, promptLogprobsLastN: lastN },
          // The server's flag against retries is about samples.
          { ...options, mayResubmit: true, isAwaited: true },
          (running) =>
            Effect.flatMap(running.await, ({ promptLogprobs }) =>
              Effect.mapError(
                promptLogprobs,
                () =>
                  new UnexpectedResponse({
                    operation: ApiFuture.kinds.sample.type,
                    requestId: Option.fromNullable(running.requestIds.at(-1)),
                    reason: "Schema",
                    detail: "no promptLogprobs, which were asked for",
                  }),
              ),
            ),
        ),
      submit: {
        sample: (request, options) =>
          begin(request, { ...options, mayResubmit, isAwaited: false }, (running) =>
            Effect.map(running.accepted, () => running.future),
          ),
      },
      getBaseModel: Effect.map(call(Api.getSampler, { samplerId: samplingSessionId }), ({ baseModel }) => baseModel),
      queueState: driver.queueState,
      handle: Effect.map(session.dynamic, (dynamic) =>
        SamplerHandle.encode({
          sessionId: session.id,
          samplingSessionId,
          holder: {
            baseUrl: config.baseUrl,
            defaultHeadersOverrides: SamplerHandle.publicHeaders(config.headers),
            clientConfig: session.flags,
            clientDynamicConfig: dynamic,
          },
          recordStabilityInfo: clientOptions.recordStabilityInfo ?? false,
        }),
      ),
    })
  })

/** What the server is asked for, if it can be asked at all. */
const checked = (target: Target): Result<Exclude<Target, { readonly modelPath: unknown }> | { modelPath: string }> => {
  if (!Predicate.isRecord(target)) {
    return invalid("target", `expected baseModel, modelPath or samplingSessionId, got ${describe(target)}`)
  }
  // From a program without types it may be there and not be given.
  if (!("modelPath" in target) || target.modelPath === undefined) return Either.right(target as { baseModel: string })
  return Either.map(Checkpoint.textOf(target.modelPath, "modelPath"), (modelPath) => ({ ...target, modelPath }))
}

/**
 * Why nothing can be sampled from this, whatever the server says.
 *
 * @internal
 */
export const check: (target: Target) => Either.Either<unknown, InvalidInput> = checked

/** The sampling session of a target; made if it doesn't exist yet. */
const open = (asked: Target): Effect.Effect<string, TinkerError, Transport | Session.Session> =>
  Effect.gen(function* () {
    const target = yield* checked(asked)
    if ("samplingSessionId" in target) return target.samplingSessionId
    const { call } = yield* Transport
    const session = yield* Session.Session
    const { samplingSessionId } = yield* call(Api.createSamplingSession, {
      ...target,
      sessionId: session.id,
      samplingSessionSeqId: yield* session.nextSampler,
    })
    return samplingSessionId
  })

/**
 * In the current scope, which ends every sample that is still under way. What is missing on the server, it makes.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (
  target: Target,
  options: Options = {},
): Effect.Effect<
  Service,
  TinkerError,
  Transport | Session.Session | ApiFuture.Futures | RateLimiter | Config.TinkerConfig | Scope.Scope
> =>
  Effect.gen(function* () {
    const samplingSessionId = yield* open(target)
    return yield* makeClient({
      samplingSessionId,
      session: yield* Session.Session,
      futures: yield* ApiFuture.Futures,
      first: Effect.succeed(0),
      options,
    })
  })

/** How many numbers each client of one sampling session has for itself. */
const block = 1_000_000_000

/** A session that somebody else keeps alive. It is never handed out: nothing can be made in it from here. */
const borrow = ({ holder, sessionId }: SamplerHandle.SamplerHandle): Session.Service => {
  const notOurs = Effect.dieMessage("a borrowed session makes no models and no samplers")
  return {
    id: sessionId,
    flags: holder.clientConfig,
    dynamic: Effect.succeed(holder.clientDynamicConfig),
    heartbeats: Stream.empty,
    lost: Effect.never,
    check: Effect.void,
    nextModel: notOurs,
    nextSampler: notOurs,
    nextCustomLoss: notOurs,
    learnt: Ref.unsafeMake(Session.nothingLearnt),
    keepForResume: Effect.void,
    telemetry: Telemetry.off,
  }
}

/**
 * A client that shares the sampling session of the one whose `handle` this is: in another process, or in this one. It
 * has no session of its own and keeps none alive: that is left to the program that made the handle. Credential and
 * headers are those of this program; the handle must be one of the configured server.
 *
 * @since 0.1.0
 * @category constructors
 */
export const fromHandle = (
  handle: string,
): Effect.Effect<Service, InvalidInput, Transport | RateLimiter | Config.TinkerConfig | Scope.Scope> =>
  Effect.gen(function* () {
    const decoded = yield* SamplerHandle.decode(handle)
    const { holder, recordStabilityInfo, samplingSessionId } = decoded
    const config = yield* Config.TinkerConfig
    if (!Option.contains(Either.getRight(BaseUrl.parse(holder.baseUrl)), config.baseUrl)) {
      return yield* invalid("handle.holder.base_url", "is not the server that this program is configured for")
    }
    const session = borrow(decoded)
    const futures = yield* Effect.provideService(ApiFuture.make, Session.Session, session)
    return yield* makeClient({
      samplingSessionId,
      session,
      futures,
      first: holder.clientConfig.sampleJoinSamplingSession
        ? yield* join(samplingSessionId)
        : // One of as many blocks as there are below 2^53, but the first, which is the original's.
          Effect.succeed(block * (yield* Random.nextIntBetween(1, Sampling.lastBlock + 1))),
      options: { recordStabilityInfo },
    })
  })

/** The block that the server gives a client which joins; asked for by its first sample. */
const join = (
  samplingSessionId: string,
): Effect.Effect<Effect.Effect<number, TinkerError>, never, Transport | Scope.Scope> =>
  Effect.gen(function* () {
    const { call } = yield* Transport
    const known = yield* Ref.make(Option.none<number>())
    const { run } = SingleFlight.make(
      Effect.tap(
        Effect.map(call(Api.joinSamplingSession, { samplingSessionId }), ({ clientCounter }) => block * clientCounter),
        (first) => Ref.set(known, Option.some(first)),
      ),
      yield* Effect.scope,
      () => new ClientClosed({ operation: Api.joinSamplingSession.operation }),
    )
    return Effect.flatMap(Ref.get(known), Option.match({ onNone: () => run, onSome: Effect.succeed }))
  })

/**
 * @since 0.1.0
 * @category layers
 */
export const layer = (
  target: Target,
  options?: Options,
): Layer.Layer<
  SamplingClient,
  TinkerError,
  Transport | Session.Session | ApiFuture.Futures | RateLimiter | Config.TinkerConfig
> => Layer.fresh(Layer.scoped(SamplingClient, make(target, options)))

/**
 * @since 0.1.0
 * @category layers
 */
export const layerFromHandle = (
  handle: string,
): Layer.Layer<SamplingClient, InvalidInput, Transport | RateLimiter | Config.TinkerConfig> =>
  Layer.fresh(Layer.scoped(SamplingClient, fromHandle(handle)))
