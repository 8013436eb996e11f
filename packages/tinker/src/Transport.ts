/**
 * Sends a request to an endpoint and returns its decoded response: credential, headers, idempotency key, deadline,
 * retries, errors. The only module of the API clients that uses `HttpClient`.
 *
 * @since 0.1.0
 */
import * as HttpClient from "@effect/platform/HttpClient"
import type * as HttpClientResponse from "@effect/platform/HttpClientResponse"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Exit from "effect/Exit"
import type * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as LogLevel from "effect/LogLevel"
import * as Option from "effect/Option"
import type * as Redacted from "effect/Redacted"
import * as Ref from "effect/Ref"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import * as Credentials from "./Credentials.ts"
import { Host } from "./http/Host.ts"
import type { Answered } from "./internal/request/Attempt.ts"
import * as AttemptError from "./internal/request/AttemptError.ts"
import * as ClientAdapter from "./internal/request/ClientAdapter.ts"
import { decode } from "./internal/request/Decode.ts"
import * as Request from "./internal/request/Request.ts"
import * as RequestHeaders from "./internal/request/RequestHeaders.ts"
import * as UnknownFields from "./internal/request/UnknownFields.ts"
import * as Meters from "./internal/runtime/Meters.ts"
import * as Timeouts from "./internal/runtime/Timeouts.ts"
import { traced } from "./internal/runtime/Trace.ts"
import { fromCallback, noop, type Stop, tryExit } from "./internal/util/Callback.ts"
import { secretsIn } from "./internal/util/Redact.ts"
import { runBeside, runToExit } from "./internal/util/RunBeside.ts"
import { shorten } from "./internal/util/Text.ts"
import * as Api from "./protocol/Api.ts"
import * as Endpoint from "./protocol/Endpoint.ts"
import type { ClientConfig } from "./protocol/schemas/Session.ts"
import * as ServerConfig from "./protocol/ServerConfig.ts"
import * as RetryPolicy from "./RetryPolicy.ts"
import * as Config from "./TinkerConfig.ts"
import {
  type InvalidConfig,
  InvalidInput,
  type RequestError,
  type TinkerError,
  type Unauthorized,
} from "./TinkerError.ts"

/**
 * Options of one call. Options that are not set are taken from the configuration.
 *
 * @since 0.1.0
 * @category models
 */
export interface CallOptions {
  /** The time limit of one attempt; `null` means none. */
  readonly timeout?: Duration.DurationInput | null | undefined
  readonly retryPolicy?: RetryPolicy.RetryPolicy | undefined
  /** Pass a secret header as `Redacted`. */
  readonly headers?: Readonly<Record<string, string | Redacted.Redacted<string>>> | undefined
  /**
   * Headers of the SDK itself. Names are in lower case and are not checked.
   *
   * @internal
   */
  readonly own?: Readonly<Record<string, string>> | undefined
  /**
   * Called once, when the request has ended and no attempt reads its body any more, if the HTTP client can detect that.
   *
   * @internal
   */
  readonly onBodySent?: (() => void) | undefined
  /** The same for all attempts of this call. Pass one to keep it across calls, too. */
  readonly idempotencyKey?: string | undefined
  /** Replaces the configured credential, e.g. by that of a user who shares weights. */
  readonly credential?: Redacted.Redacted<string> | undefined
  /** Runs after each failed attempt that the policy would repeat. `false` returns the error to the caller. */
  readonly mayRetry?: ((error: TinkerError) => Effect.Effect<boolean>) | undefined
}

/**
 * A response whose body has not been read. Read it once, within the scope.
 *
 * @since 0.1.0
 * @category models
 */
export interface RawResponse {
  readonly status: number
  readonly headers: Readonly<Record<string, string | undefined>>
  readonly stream: Stream.Stream<Uint8Array, RequestError>
  /** Removes the secrets of the request from a string in the response. */
  readonly redact: (text: string) => string
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Service {
  /** Sends a request and returns the decoded response. */
  readonly call: <I, A>(
    endpoint: Endpoint.Endpoint<I, A>,
    input: NoInfer<I>,
    options?: CallOptions,
  ) => Effect.Effect<A, TinkerError>
  /**
   * Sends a request without a fiber of its own, in the context of the given fiber. Calls `onExit` exactly once, possibly
   * before it returns. The returned function stops the request; `onExit` is not called after that. There is no span for
   * the request.
   *
   * @internal
   */
  readonly start: <I, A>(
    fiber: Fiber.RuntimeFiber<unknown, unknown>,
    endpoint: Endpoint.Endpoint<I, A>,
    input: NoInfer<I>,
    options: CallOptions | undefined,
    onExit: (exit: Exit.Exit<A, TinkerError>) => void,
  ) => () => Effect.Effect<unknown>
  /**
   * Does the same as `start` for a rendered request.
   *
   * @internal
   */
  readonly startRendered: <I, A>(
    fiber: Fiber.RuntimeFiber<unknown, unknown>,
    endpoint: Endpoint.Endpoint<I, A>,
    rendered: Endpoint.Rendered,
    options: CallOptions | undefined,
    onExit: (exit: Exit.Exit<A, TinkerError>) => void,
  ) => () => Effect.Effect<unknown>
  /** Returns what `call` would send now. It can be kept and sent again as it is. */
  readonly render: <I, A>(
    endpoint: Endpoint.Endpoint<I, A>,
    input: NoInfer<I>,
  ) => Either.Either<Endpoint.Rendered, InvalidInput>
  /** Sends a rendered request: the second half of `call`. */
  readonly send: <I, A>(
    endpoint: Endpoint.Endpoint<I, A>,
    rendered: Endpoint.Rendered,
    options?: CallOptions,
  ) => Effect.Effect<A, TinkerError>
  /** Sends the same request as `call`, with the same retries, and returns a success with its body as a stream. */
  readonly raw: <I, A>(
    endpoint: Endpoint.Endpoint<I, A>,
    input: NoInfer<I>,
    options?: CallOptions,
  ) => Effect.Effect<RawResponse, TinkerError, Scope.Scope>
}

/**
 * @since 0.1.0
 * @category tags
 */
export class Transport extends Context.Tag("effect-tinker/Transport")<Transport, Service>() {}

const noOptions: CallOptions = {}

/** Checks the options of a call before anything is sent. */
const checkOptions = (
  operation: string,
  { headers, idempotencyKey, timeout }: CallOptions,
): InvalidInput | undefined => {
  if (timeout !== undefined && timeout !== null && Option.isNone(Duration.decodeUnknown(timeout)))
    return badOption(operation, "timeout", "is not a duration")
  if (headers !== undefined) {
    for (const [name, value] of Object.entries(headers)) {
      const bad = badHeader(operation, name, value)
      if (bad !== undefined) return bad
    }
  }
  return idempotencyKey === undefined ? undefined : badHeader(operation, "x-idempotency-key", idempotencyKey)
}

const badHeader = (operation: string, name: string, value: string | Redacted.Redacted<string>) => {
  const problem = Config.problemWithHeader(name, value)
  return Option.isSome(problem) ? badOption(operation, `headers.${name}`, problem.value) : undefined
}

const badOption = (operation: string, path: string, problem: string): InvalidInput =>
  new InvalidInput({ path: `${operation}.options.${path}`, problem })

type AnyFiber = Fiber.RuntimeFiber<unknown, unknown>
type OnExit<A> = (exit: Exit.Exit<A, TinkerError>) => void

/** Returns the credential to use for a request of this endpoint. */
type AuthOf = (endpoint: Endpoint.Endpoint<never, unknown>, options: CallOptions) => Request.Auth

/** Uses one credential for all attempts of a request: a credential command runs once for each logical request. */
const fixed = (credential: Effect.Effect<Redacted.Redacted<string>, TinkerError>): Request.Auth => ({
  obtain: (fiber, onExit) => runToExit(fiber, credential, onExit),
  renew: () => Effect.succeedNone,
  isFixed: true,
})

/** Shows a successful response to the observers. A tracer that throws does not cost the caller the result. */
const observe = ({ retryCount, sent: { trace } }: Answered, reply: ClientAdapter.Reply, meter?: Meters.Meter) => {
  const { body, status } = reply
  meter?.received(body.length)
  if (trace === undefined) return
  tryExit(() => {
    trace.attribute("http.response.status_code", status)
    trace.attribute("http.response.body.size", body.length)
    if (retryCount > 0) trace.attribute("http.request.resend_count", retryCount)
  })
}

/** Logs the note of a deprecated endpoint, if the response has one. */
const deprecation =
  (logged: <A>(effect: Effect.Effect<A>) => Effect.Effect<A>) =>
  (attempt: Answered, { headers }: ClientAdapter.Reply): void => {
    const note = headers["x-deprecation-note"]
    if (note === undefined) return
    const level = headers["x-deprecation-level"] === "error" ? LogLevel.Error : LogLevel.Warning
    const message = `${attempt.operation}: ${shorten(attempt.redact(note))}`
    runBeside(attempt.sent.fiber, logged(Effect.logWithLevel(level, message)))
  }

/** Returns the routes of endpoints, made at the first request of each. */
const routes = (
  config: Config.Service,
  common: Readonly<Record<string, string>>,
  client: HttpClient.HttpClient,
  logDeprecation: ReturnType<typeof deprecation>,
) => {
  const meters = Meters.make(config)
  const send = ClientAdapter.direct(client)
  const open = ClientAdapter.opening(client)
  const prepare = <A>(
    endpoint: Endpoint.Endpoint<never, unknown>,
    send: ClientAdapter.Send,
    receive: Request.Prepared<A>["receive"],
  ): Request.Prepared<A> => ({
    endpoint,
    send,
    receive,
    headers: RequestHeaders.ofEndpoint(common, endpoint.headers),
    meter: meters(endpoint.operation),
    url: `${config.baseUrl}/${endpoint.root}/${endpoint.path}`,
    timeout: Duration.toMillis(endpoint.timeout ?? config.attemptTimeout),
  })
  const known = new WeakMap<object, Request.Prepared<unknown>>()
  return {
    /** The whole body is read and decoded. */
    decoded: <A>(endpoint: Endpoint.Endpoint<never, A>): Request.Prepared<A> => {
      let prepared = known.get(endpoint)
      if (prepared === undefined) {
        const meter = meters(endpoint.operation)
        prepared = prepare(endpoint, send, (reply, attempt) => {
          observe(attempt, reply, meter)
          logDeprecation(attempt, reply)
          return decode(endpoint, reply, attempt)
        })
        known.set(endpoint, prepared)
      }
      // Stored under the endpoint that it was made for.
      return prepared as Request.Prepared<A>
    },
    /** Leaves the body unread, to be streamed. */
    opened: (endpoint: Endpoint.Endpoint<never, unknown>) =>
      prepare(endpoint, open, (reply, attempt) => {
        logDeprecation(attempt, reply)
        return Exit.succeed({ reply, attempt })
      }),
  }
}

/**
 * @since 0.1.0
 * @category constructors
 */
export const make: Effect.Effect<
  {
    readonly transport: Service
    readonly credentials: Credentials.Service
    readonly serverConfig: ServerConfig.Service
  },
  InvalidConfig | Unauthorized,
  Config.TinkerConfig | HttpClient.HttpClient | Scope.Scope
> = Effect.gen(function* () {
  const config = yield* Config.TinkerConfig
  const logged = Config.logged(config)
  const flags = yield* Ref.make(Option.none<ClientConfig>())
  const common = RequestHeaders.common(config, (yield* Host).platform)
  const route = routes(config, common, yield* HttpClient.HttpClient, deprecation(logged))
  const client: Request.Client = {
    http: { timeouts: yield* Timeouts.make, maxResponseBytes: config.maxResponseBytes },
    baseUrl: config.baseUrl,
    traceparent: config.traceparent,
    secrets: [...secretsIn(config.headers), ...Option.toArray(config.apiKey)],
    retryPolicy: Option.match(config.retryPolicy, {
      onSome: Effect.succeed,
      onNone: () => Effect.map(Ref.get(flags), defaultPolicy),
    }),
    logWarning: (message) => logged(Effect.logWarning(message)),
    isClosed: false,
  }
  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      client.isClosed = true
    }),
  )

  const unknownFields = UnknownFields.make()
  const render: Service["render"] = (endpoint, input) =>
    Endpoint.render(endpoint, input, { without: unknownFields.of(endpoint) })

  const begin = <A>(
    fiber: AnyFiber,
    prepared: Request.Prepared<A>,
    rendered: Endpoint.Rendered,
    options: CallOptions,
    authOf: AuthOf,
    relearn: Request.Relearn,
    onExit: OnExit<A>,
  ): Stop => {
    const { endpoint } = prepared
    const invalid = checkOptions(endpoint.operation, options)
    if (invalid === undefined) {
      const auth = authOf(endpoint, options)
      return new Request.Request(fiber, client, prepared, rendered, options, auth, relearn, onExit).start()
    }
    onExit(Exit.fail(invalid))
    return noop
  }

  const startAs =
    (authOf: AuthOf): Service["start"] =>
    (fiber, endpoint, input, options = noOptions, onExit) => {
      const rendered = render(endpoint, input)
      if (Either.isLeft(rendered)) {
        onExit(Exit.fail(rendered.left))
        return noop
      }
      const relearn: Request.Relearn = (sent, error) => {
        if (!unknownFields.learn(endpoint, error)) return undefined
        const rendered = render(endpoint, input)
        return Either.isRight(rendered) && Endpoint.differs(sent, rendered) ? rendered.right : undefined
      }
      return begin(fiber, route.decoded(endpoint), rendered.right, options, authOf, relearn, onExit)
    }

  const callAs =
    (start: Service["start"]): Service["call"] =>
    (endpoint, input, options) =>
      traced((fiber) => fromCallback((onExit) => start(fiber, endpoint, input, options, onExit)), endpoint.span)

  const source = yield* Credentials.source
  const serverConfig = yield* ServerConfig.make(
    callAs(startAs(() => fixed(source.credential)))(Api.clientConfig, { sdkVersion: config.sdkVersion }),
    Api.defaultClientConfig,
    flags,
  )
  const credentials = yield* Credentials.make(source, {
    flags: serverConfig.flags,
    exchange: (credential) =>
      Effect.map(callAs(startAs(() => fixed(Effect.succeed(credential))))(Api.authToken, {}), ({ jwt }) => jwt),
  })
  const tokens: Request.Auth = { obtain: credentials.obtain, renew: credentials.renew, isFixed: false }
  const authOf: AuthOf = (endpoint, { credential }) => {
    if (credential !== undefined) return fixed(Effect.succeed(credential))
    return endpoint.auth === "credential" ? fixed(credentials.credential) : tokens
  }

  const start = startAs(authOf)
  // A caller that renders by itself renders again after an error, and then leaves out the unknown fields.
  const learnOnly =
    (endpoint: Endpoint.Endpoint<never, unknown>): Request.Relearn =>
    (_, error) => {
      unknownFields.learn(endpoint, error)
      return undefined
    }
  const startRendered: Service["startRendered"] = (fiber, endpoint, rendered, options = noOptions, onExit) =>
    begin(fiber, route.decoded(endpoint), rendered, options, authOf, learnOnly(endpoint), onExit)

  const transport: Service = {
    start,
    startRendered,
    render,
    call: callAs(start),
    send: (endpoint, rendered, options) =>
      traced(
        (fiber) => fromCallback((onExit) => startRendered(fiber, endpoint, rendered, options, onExit)),
        endpoint.span,
      ),
    raw: (endpoint, input, options = noOptions) =>
      Effect.uninterruptibleMask((restore) =>
        Effect.flatMap(render(endpoint, input), (rendered) =>
          Effect.flatMap(
            restore(
              traced(
                (fiber) =>
                  fromCallback<Opened, TinkerError>((onExit) =>
                    begin(fiber, route.opened(endpoint), rendered, options, authOf, learnNothing, onExit),
                  ),
                endpoint.span,
              ),
            ),
            streamed,
          ),
        ),
      ),
  }
  return { transport, credentials, serverConfig }
})

const learnNothing: Request.Relearn = () => undefined

const defaultPolicy = (flags: Option.Option<ClientConfig>): RetryPolicy.RetryPolicy =>
  RetryPolicy.make({
    billingPause: Option.match(flags, {
      onNone: () => undefined,
      onSome: (flags) => Duration.seconds(flags.billingExceptionMaxPauseDurationSec),
    }),
  })

/** A response whose headers have come, and the attempt that brought it. */
interface Opened {
  readonly reply: ClientAdapter.Reply
  readonly attempt: Answered
}

/** Returns the response with its body as a stream. */
const streamed = ({ attempt, reply }: Opened): Effect.Effect<RawResponse, never, Scope.Scope> => {
  const { headers, response, status } = reply
  const { redact } = attempt
  if (response === undefined) return Effect.succeed({ status, headers, redact, stream: Stream.succeed(reply.body) })
  const stream = Stream.mapError(response.stream, (error) => AttemptError.brokenOff(attempt, error))
  let isRead = false
  return Effect.as(
    // An unread body keeps its connection. A stream that was started gives it back by itself.
    Effect.addFinalizer(() => (isRead ? Effect.void : letGo(response))),
    {
      status,
      headers,
      redact,
      stream: Stream.suspend(() => {
        isRead = true
        return stream
      }),
    },
  )
}

const letGo = (response: HttpClientResponse.HttpClientResponse): Effect.Effect<void> =>
  Stream.runDrain(response.stream).pipe(
    Effect.interruptible,
    Effect.timeout(0),
    Effect.catchAllCause(() => Effect.void),
  )

/**
 * Builds a new transport wherever this layer is used: a layer memoised by reference would give one tenant's credential
 * to another.
 *
 * @since 0.1.0
 * @category layers
 */
export const layer: Layer.Layer<
  Transport | Credentials.Credentials | ServerConfig.ServerConfig,
  InvalidConfig | Unauthorized,
  Config.TinkerConfig | HttpClient.HttpClient
> = Layer.fresh(
  Layer.scopedContext(
    Effect.map(make, ({ credentials, serverConfig, transport }) =>
      Context.make(Transport, transport).pipe(
        Context.add(Credentials.Credentials, credentials),
        Context.add(ServerConfig.ServerConfig, serverConfig),
      ),
    ),
  ),
)
