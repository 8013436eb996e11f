/**
 * Samples from one set of weights. Thousands of samples may run concurrently: they queue at the limiter shared by all
 * clients of the account, survive rate limits, billing stops and network failures, and release all resources when
 * interrupted.
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
import { StructuralCache } from "./internal/util/StructuralCache.ts"
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
 * The weights to sample from: a base model, saved weights (`tinker://…`), or an existing sampling session that no other
 * client uses.
 *
 * @since 0.1.0
 * @category models
 */
export type Target =
  | { readonly baseModel: string }
  | { readonly modelPath: Checkpoint.Input }
  | { readonly samplingSessionId: string }

/**
 * Options of a sampling client.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /**
   * The value for samples that do not set it themselves.
   *
   * @default false
   */
  readonly recordStabilityInfo?: boolean | undefined
}

/**
 * A sampling request.
 *
 * @since 0.1.0
 * @category models
 */
export interface Request {
  /** The prompt. Its arrays are referenced, not copied: do not modify them until the sample is complete. */
  readonly prompt: ModelInput.Input
  readonly params?: SamplingParams | undefined
  /**
   * The number of sequences to generate.
   *
   * @default 1
   */
  readonly numSamples?: number | undefined
  /** Whether to return the log probabilities of the prompt tokens. */
  readonly promptLogprobs?: boolean | undefined
  /** Restricts `promptLogprobs` to this number of tokens at the end of the prompt. */
  readonly promptLogprobsLastN?: number | undefined
  /** The number of most likely tokens to return for each position of the prompt. */
  readonly topkPromptLogprobs?: number | undefined
  /** The number of most likely tokens to return for each position of the sample. */
  readonly topkSampleLogprobs?: number | undefined
  /** The number of alternative tokens to draw, at the given temperature, for each prompt token except the first. */
  readonly promptAltTokensK?: number | undefined
  /**
   * Token ids whose log probabilities to return, one row for each prompt token except the first. -1 requests nothing
   * and returns 0.
   */
  readonly targetPromptLogprobs?: TensorData.Input<"int64"> | undefined
  readonly recordStabilityInfo?: boolean | undefined
}

/**
 * Time limits of a sample. Both accept `Duration.infinity`.
 *
 * @since 0.1.0
 * @category models
 */
export interface SampleOptions {
  /**
   * The maximum time from the call to the result.
   *
   * @default unlimited
   */
  readonly deadline?: Duration.DurationInput | undefined
  /**
   * The maximum time without news from the server about this sample and without completion of any sample of this
   * client.
   *
   * @default "2 hours"
   */
  readonly stalledAfter?: Duration.DurationInput | undefined
}

/**
 * The operations of `SamplingClient`.
 *
 * @since 0.1.0
 * @category models
 */
export interface Service {
  readonly samplingSessionId: string
  /**
   * Samples and waits for the result. An interruption immediately frees the sample's place and notifies the server if
   * it supports that.
   */
  readonly sample: (request: Request, options?: SampleOptions) => Effect.Effect<SampleResult, FutureError>
  /** Returns the log probability of each prompt token; NaN for the first one and for those that were not requested. */
  readonly computeLogprobs: (
    prompt: ModelInput.Input,
    options?: SampleOptions & {
      /** Restricts the result to this number of tokens at the end of the prompt. */
      readonly lastN?: number | undefined
    },
  ) => Effect.Effect<Float32Array, FutureError>
  /**
   * Returns a future as soon as the server accepts the request. If the result is lost and submitted again, the future
   * stays the same: meanwhile its state is `expired` or `unreachable`, and it gains another id.
   */
  readonly submit: {
    readonly sample: (
      request: Request,
      options?: SampleOptions,
    ) => Effect.Effect<ApiFuture.ApiFuture<SampleResult>, FutureError>
  }
  readonly getBaseModel: Effect.Effect<string, TinkerError>
  /**
   * Emits the current state of submissions and every change until the client is closed: `active`, `paused_rate_limit`,
   * `paused_billing` or `unreachable`.
   */
  readonly queueState: Stream.Stream<ApiFuture.QueueState>
  /**
   * Returns a handle with which another process can sample from the same weights; see {@link fromHandle}. It contains
   * no secret.
   */
  readonly handle: Effect.Effect<string>
}

/**
 * The service tag of a sampling client.
 *
 * @example
 * ```ts
 * import { Console, Effect, Option } from "effect"
 * import { ServiceClient } from "effect-tinker"
 * import { NodeTinker } from "@effect-tinker/node"
 *
 * const program = Effect.gen(function* () {
 *   const service = yield* ServiceClient.ServiceClient
 *   const sampler = yield* service.createSamplingClient({ baseModel: "effect-tinker/valley-1.5m" })
 *   const { sequences } = yield* sampler.sample({
 *     prompt: [10, 20, 30],
 *     params: { maxTokens: 8, temperature: 0.7, stop: [] },
 *     numSamples: 4,
 *   })
 *   for (const { logprobs, tokens } of sequences) {
 *     const values = Option.map(logprobs, (values) => values.length)
 *     yield* Console.log(`${tokens.length} tokens, ${Option.getOrElse(values, () => 0)} log probabilities`)
 *     // → 8 tokens, 8 log probabilities
 *     // → 8 tokens, 8 log probabilities
 *     // → 8 tokens, 8 log probabilities
 *     // → 8 tokens, 8 log probabilities
 *   }
 * })
 *
 * await Effect.runPromise(program.pipe(Effect.scoped, Effect.provide(NodeTinker.layerConfig())))
 * ```
 *
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

/** Validates the decoded form, not the wire form. */
const RequestType = lazy(() => Schema.typeSchema(Sampling.SampleRequest))

/** Caches requests in which everything except the prompt is known to be valid. */
const known = new StructuralCache<true>({ prompt: true })

/** Validates a request before it waits for anything. */
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
      // Use the public name of the option.
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

    /** Starts a sample and waits for `wanted`. An interruption before then ends the sample. */
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
        // Prevents an interruption between the start and the installation of the handler that stops the sample.
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
          // The server's flag against retries applies only to samples.
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
                    detail: "the requested promptLogprobs are missing",
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

/** Validates a target and converts its checkpoint path. */
const checked = (target: Target): Result<Exclude<Target, { readonly modelPath: unknown }> | { modelPath: string }> => {
  if (!Predicate.isRecord(target)) {
    return invalid("target", `expected baseModel, modelPath or samplingSessionId, got ${describe(target)}`)
  }
  // Untyped programs may pass `modelPath: undefined`.
  if (!("modelPath" in target) || target.modelPath === undefined) return Either.right(target as { baseModel: string })
  return Either.map(Checkpoint.textOf(target.modelPath, "modelPath"), (modelPath) => ({ ...target, modelPath }))
}

/**
 * Checks whether a target is valid regardless of the server.
 *
 * @internal
 */
export const check: (target: Target) => Either.Either<unknown, InvalidInput> = checked

/** Returns the sampling session of a target and creates it if necessary. */
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
 * Creates a client in the current scope; closing the scope ends all running samples. Creates the sampling session on
 * the server if necessary.
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

/** The number of sequence numbers reserved for each client of a sampling session. */
const block = 1_000_000_000

/** Represents a session kept alive by another program. It is internal: nothing can be created in it from here. */
const borrow = ({ holder, sessionId }: SamplerHandle.SamplerHandle): Session.Service => {
  const notOurs = Effect.dieMessage("a borrowed session cannot create models or samplers")
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
 * Creates a client that shares the sampling session of a `handle`, in this or another process. It neither has nor keeps
 * alive a session of its own: the program that created the handle does. Credential and headers come from this program;
 * the handle must belong to the configured server.
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
      return yield* invalid("handle.holder.base_url", "does not match the configured base URL")
    }
    const session = borrow(decoded)
    const futures = yield* Effect.provideService(ApiFuture.make, Session.Session, session)
    return yield* makeClient({
      samplingSessionId,
      session,
      futures,
      first: holder.clientConfig.sampleJoinSamplingSession
        ? yield* join(samplingSessionId)
        : // Chooses one of the blocks below 2^53, except the first, which belongs to the original client.
          Effect.succeed(block * (yield* Random.nextIntBetween(1, Sampling.lastBlock + 1))),
      options: { recordStabilityInfo },
    })
  })

/** Requests a block of sequence numbers from the server when the first sample needs one. */
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
 * Provides a client for a target. The layer is fresh: a layer memoized by reference would hand one tenant's credential
 * to another.
 *
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
 * Provides a client for a handle. The layer is fresh: a layer memoized by reference would hand one tenant's credential
 * to another.
 *
 * @since 0.1.0
 * @category layers
 */
export const layerFromHandle = (
  handle: string,
): Layer.Layer<SamplingClient, InvalidInput, Transport | RateLimiter | Config.TinkerConfig> =>
  Layer.fresh(Layer.scoped(SamplingClient, fromHandle(handle)))
