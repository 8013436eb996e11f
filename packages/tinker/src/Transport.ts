/**
 * An endpoint and its input become an Effect: credential, headers, idempotency key, deadline, retries, status to
 * error, decoding. The only module of the API clients that sees `HttpClient`.
 *
 * @since 0.1.0
 */
import * as HttpClient from "@effect/platform/HttpClient"
import type * as HttpClientResponse from "@effect/platform/HttpClientResponse"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import type * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as LogLevel from "effect/LogLevel"
import * as Option from "effect/Option"
import * as ParseResult from "effect/ParseResult"
import type * as Redacted from "effect/Redacted"
import * as Ref from "effect/Ref"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import * as Api from "./protocol/Api.ts"
import type { ClientConfig } from "./protocol/schemas/Session.ts"
import * as Credentials from "./Credentials.ts"
import * as Endpoint from "./protocol/Endpoint.ts"
import { Host } from "./http/Host.ts"
import { preview } from "./internal/request/Refusal.ts"
import { shorten } from "./internal/util/Text.ts"
import { awaited, exitOf, nothingLeft, type Stop } from "./internal/util/Begun.ts"
import * as Http from "./internal/request/Attempt.ts"
import { idempotencyKey } from "./internal/request/IdempotencyKey.ts"
import * as Meters from "./internal/runtime/Meters.ts"
import { type Reader, readerOf } from "./internal/request/FastJson.ts"
import { redactor, reveal, secretsIn } from "./internal/util/Redact.ts"
import { runBeside } from "./internal/util/RunBeside.ts"
import * as Timeouts from "./internal/runtime/Timeouts.ts"
import { current, type Trace, traced, traceparentOf } from "./internal/runtime/Trace.ts"
import { type Time, timeOf } from "./internal/util/MonotonicClock.ts"
import * as UnknownFields from "./internal/request/UnknownFields.ts"
import * as RetryPolicy from "./RetryPolicy.ts"
import * as ServerConfig from "./protocol/ServerConfig.ts"
import * as Config from "./TinkerConfig.ts"
import {
  ClientClosed,
  type InvalidConfig,
  InvalidInput,
  isBillingStop,
  isRetryable,
  type RequestError,
  type TinkerError,
  type Unauthorized,
  type UnexpectedResponse,
} from "./TinkerError.ts"

/**
 * For one call. What is not given is as configured.
 *
 * @since 0.1.0
 * @category models
 */
export interface CallOptions {
  /** For one attempt; `null` means none. */
  readonly timeout?: Duration.DurationInput | null | undefined
  readonly retryPolicy?: RetryPolicy.RetryPolicy | undefined
  /** A secret among them is given as `Redacted`. */
  readonly headers?: Readonly<Record<string, string | Redacted.Redacted<string>>> | undefined
  /**
   * What the SDK itself has to say: names in lower case, not checked.
   *
   * @internal
   */
  readonly own?: Readonly<Record<string, string>> | undefined
  /**
   * Called when the HTTP client has let go of the body of the first attempt, if it can tell.
   *
   * @internal
   */
  readonly onBodySent?: (() => void) | undefined
  /** Kept across all attempts of this call; give one to keep it across calls, too. */
  readonly idempotencyKey?: string | undefined
  /** In place of the configured one, e.g. of somebody who shares weights. */
  readonly credential?: Redacted.Redacted<string> | undefined
  /** Asked after each failed attempt that the policy would repeat; `false` gives the error to the caller. */
  readonly mayRetry?: ((error: TinkerError) => Effect.Effect<boolean>) | undefined
}

/**
 * An answer as it came, its body not yet read. Read it once, within the scope.
 *
 * @since 0.1.0
 * @category models
 */
export interface RawResponse {
  readonly status: number
  readonly headers: Readonly<Record<string, string | undefined>>
  readonly stream: Stream.Stream<Uint8Array, RequestError>
  /** Takes the secrets of the request out of words that the answer holds. */
  readonly redact: (text: string) => string
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Service {
  readonly call: <I, A>(
    endpoint: Endpoint.Endpoint<I, A>,
    input: NoInfer<I>,
    options?: CallOptions,
  ) => Effect.Effect<A, TinkerError>
  /**
   * `call` for who has no fiber to spare, because there are thousands: sends at once, with all that this fiber has
   * around it, and tells the end once, maybe before it returns. Told is an `Exit`, unless there is more to do than to
   * wait (a retry, a token): then an effect that does it. Gives the way to stop it. It has no span of its own.
   */
  readonly begin: <I, A>(
    fiber: Fiber.RuntimeFiber<unknown, unknown>,
    endpoint: Endpoint.Endpoint<I, A>,
    input: NoInfer<I>,
    options: CallOptions | undefined,
    end: (result: Effect.Effect<A, TinkerError>) => void,
  ) => () => Effect.Effect<unknown>
  /**
   * Sends a request without a fiber of its own, in the context of the given fiber. Calls `onExit` exactly once, possibly
   * before it returns. The returned function stops the request; `onExit` is not called after that.
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
  /** What `call` would send now. It can be kept, and sent again as it is. */
  readonly render: <I, A>(
    endpoint: Endpoint.Endpoint<I, A>,
    input: NoInfer<I>,
  ) => Either.Either<Endpoint.Rendered, InvalidInput>
  /** The second half of `call`. */
  readonly send: <I, A>(
    endpoint: Endpoint.Endpoint<I, A>,
    rendered: Endpoint.Rendered,
    options?: CallOptions,
  ) => Effect.Effect<A, TinkerError>
  /** The second half of `begin`. */
  readonly dispatch: <I, A>(
    fiber: Fiber.RuntimeFiber<unknown, unknown>,
    endpoint: Endpoint.Endpoint<I, A>,
    rendered: Endpoint.Rendered,
    options: CallOptions,
    end: (result: Effect.Effect<A, TinkerError>) => void,
  ) => () => Effect.Effect<unknown>
  /** The same request, retried the same way; of a success status, headers and the body as a stream. */
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

/** Tells whether this error of this endpoint may be tried again at all; the policy tells when. */
const mayRetry = (endpoint: Endpoint.Endpoint<never, unknown>, error: TinkerError): boolean => {
  // Asking for the token and the flags has a budget of its own; repeating it here would multiply the two.
  if (!("operation" in error) || error.operation !== endpoint.operation) return false
  if (isBillingStop(error)) return endpoint.retry === "standard"
  // A conflict over a sequence number is for the one who counts them, unless the server asks for a retry.
  const conflict = error._tag === "RequestRejected" && error.reason === "Conflict" && Option.isNone(error.shouldRetry)
  return isRetryable(error) && !(conflict && endpoint.sequenced)
}

const utf8 = new TextDecoder()

/** Made at the first answer of an endpoint: at start-up it would cost for all of them. */
const decoders = new WeakMap<Endpoint.ResponseBody, Reader>()
const decoderOf = (response: Extract<Endpoint.ResponseBody, { readonly kind: "json" }>) => {
  let decoder = decoders.get(response)
  if (decoder === undefined) {
    decoder = readerOf(response.schema)
    decoders.set(response, decoder)
  }
  return decoder
}

const decode = <A>(
  endpoint: Endpoint.Endpoint<never, A>,
  reply: Http.Reply,
  attempt: Http.Attempt,
): Effect.Effect<A, UnexpectedResponse> => {
  const response = endpoint.response
  if (response.kind === "void") return Effect.succeed(undefined as A)
  if (response.kind === "raw") {
    const { body, headers, status } = reply
    const contentType = headers["content-type"] ?? ""
    const { redact } = attempt
    return Effect.succeed({ status, headers, contentType, body, redact } satisfies Endpoint.RawAnswer as A)
  }
  const unexpected = (reason: UnexpectedResponse["reason"], detail: string) =>
    Effect.fail(Http.unexpected(attempt, reply, attempt.clock.unsafeCurrentTimeMillis(), reason, detail))
  if (reply.body.length === 0) return unexpected("Empty", "the body is empty")
  let value: unknown
  try {
    // The content type is not asked: servers send JSON as text, and the schema has the last word.
    value = JSON.parse(utf8.decode(reply.body))
  } catch {
    return unexpected("NotJson", preview(reply.body, attempt.redact))
  }
  try {
    const decoded = decoderOf(response)(value)
    return Either.isRight(decoded)
      ? // The schema is that of the endpoint's own output.
        Effect.succeed(decoded.right as A)
      : unexpected("Schema", shorten(attempt.redact(ParseResult.TreeFormatter.formatErrorSync(decoded.left))))
  } catch (cause) {
    // Nested so deep that reading it overflows the stack.
    return unexpected("Schema", `it can't be walked: ${String(cause)}`)
  }
}

const noOptions: CallOptions = {}
const noHeaders: Readonly<Record<string, string>> = {}

const statusOf = (error: TinkerError): number | undefined =>
  "status" in error ? Option.getOrUndefined(error.status) : undefined

/** What its span tells of a request before it is sent. */
const tellRequest = (trace: Trace, { body, method }: Endpoint.Rendered) => {
  trace.attribute("http.request.method", method)
  trace.attribute("http.request.body.size", body?.bytes.length ?? 0)
}

/** What became of an attempt. */
const tellReply = ({ meter, retryCount, trace }: Http.Attempt, { body, status }: Http.Reply) => {
  meter?.received(body.length)
  if (trace === undefined) return
  trace.attribute("http.response.status_code", status)
  trace.attribute("http.response.body.size", body.length)
  if (retryCount > 0) trace.attribute("http.request.resend_count", retryCount)
}

/** The end of an attempt, told to who looks at it. */
const observed = <A>(
  { meter, retryCount, trace }: Http.Attempt,
  end: Effect.Effect<A, TinkerError>,
): Effect.Effect<A, TinkerError> => {
  if ((meter === undefined && trace === undefined) || exitOf(end)?._tag === "Success") return end
  const tell = (error: TinkerError) => {
    meter?.failed(error._tag === "RateLimited")
    const status = statusOf(error)
    if (status !== undefined) trace?.attribute("http.response.status_code", status)
    trace?.event("tinker.attempt_failed", { attempt: retryCount + 1, error: error._tag, message: error.message })
  }
  return onError(end, (error) => {
    tell(error)
    return Effect.fail(error)
  })
}

/** What becomes of a failure, found at once where the end is known already. */
const onError = <A>(
  end: Effect.Effect<A, TinkerError>,
  instead: (error: TinkerError) => Effect.Effect<A, TinkerError>,
): Effect.Effect<A, TinkerError> => {
  const exit = exitOf(end)
  if (exit === undefined) return Effect.catchAll(end, instead)
  if (exit._tag === "Success" || exit.cause._tag !== "Fail") return exit
  try {
    return instead(exit.cause.error)
  } catch (cause) {
    // It runs where nobody would hear of it: a user's tracer may be among those that are told.
    return Effect.die(cause)
  }
}

/** What an endpoint needs for each of its requests, found out once. */
interface Prepared<out A> {
  readonly exchange: Http.Begin<A, TinkerError>
  readonly meter: Meters.Meter | undefined
  /** Of those whose path names nothing. */
  readonly url: string
  /** In milliseconds. */
  readonly timeout: number
}

/** What all requests of a transport share. */
interface Shared {
  readonly config: Config.Service
  /** Among the configured headers and the key. */
  readonly secrets: ReadonlyArray<Redacted.Redacted<string>>
  readonly policyOf: (options: CallOptions) => Effect.Effect<RetryPolicy.RetryPolicy>
  readonly logged: <A>(effect: Effect.Effect<A>) => Effect.Effect<A>
  closed: boolean
}

/** The whole life of one logical request. */
class Request<A> {
  private attempts = 0
  private renewed = false
  private startedAt: number
  private readonly url: string
  private readonly timeout: number
  private readonly idempotencyKey: string
  private readonly headers: Readonly<Record<string, string>>

  private readonly shared: Shared
  private readonly endpoint: Endpoint.Endpoint<never, unknown>
  private readonly prepared: Prepared<A>
  private readonly rendered: Endpoint.Rendered
  private readonly options: CallOptions
  private readonly auth: Auth
  private readonly time: Time
  private readonly trace: Trace | undefined

  constructor(
    fiber: Fiber.RuntimeFiber<unknown, unknown>,
    shared: Shared,
    endpoint: Endpoint.Endpoint<never, unknown>,
    prepared: Prepared<A>,
    rendered: Endpoint.Rendered,
    options: CallOptions,
    auth: Auth,
  ) {
    const { path, query } = rendered
    this.shared = shared
    this.endpoint = endpoint
    this.prepared = prepared
    this.rendered = rendered
    this.options = options
    this.auth = auth
    this.time = timeOf(fiber)
    // Without a span of its own it leaves the one around it alone.
    this.trace = endpoint.span === undefined ? undefined : current(fiber)
    if (this.trace !== undefined) tellRequest(this.trace, rendered)
    this.startedAt = this.time.clock.unsafeCurrentTimeMillis()
    this.url =
      path === endpoint.path && query === ""
        ? prepared.url
        : `${shared.config.baseUrl}/${endpoint.root}/${path}${query === "" ? "" : `?${query}`}`
    this.timeout =
      options.timeout === undefined
        ? prepared.timeout
        : options.timeout === null
          ? Number.POSITIVE_INFINITY
          : Duration.toMillis(options.timeout)
    this.idempotencyKey = options.idempotencyKey ?? idempotencyKey()
    const { own = noHeaders } = options
    const given = options.headers === undefined ? own : { ...own, ...reveal(options.headers) }
    const traceparent = shared.config.traceparent ? traceparentOf(fiber) : undefined
    this.headers = traceparent === undefined ? given : { traceparent, ...given }
  }

  /** What needs no fiber is done at once, which is all of it if the first attempt brings an answer. */
  begin(fiber: Fiber.RuntimeFiber<unknown, unknown>, end: (result: Effect.Effect<A, TinkerError>) => void): Stop {
    const token = this.auth.ready(this.time.uptime())
    if (token !== undefined) {
      const next = this.next(token)
      return this.prepared.exchange(fiber, next, (result) => end(this.after(observed(next, result), token)))
    }
    end(
      Effect.flatMap(this.auth.token, (token) => {
        // Waiting for a token is not part of the request.
        this.startedAt = this.time.clock.unsafeCurrentTimeMillis()
        return this.after(this.attempt(token), token)
      }),
    )
    return nothingLeft
  }

  private next(token: Redacted.Redacted<string>): Http.Attempt {
    const { operation, purpose, redirect, scheme } = this.endpoint
    const { body, method } = this.rendered
    const retryCount = this.attempts++
    return {
      operation,
      purpose,
      method,
      url: this.url,
      body,
      fixed: this.endpoint.headers,
      headers: this.headers,
      redirect,
      scheme,
      token,
      idempotencyKey: this.idempotencyKey,
      retryCount,
      timeout: this.timeout,
      startedAt: this.startedAt,
      clock: this.time.clock,
      meter: this.prepared.meter,
      trace: this.trace,
      onBodySent: retryCount === 0 ? this.options.onBodySent : undefined,
      // An input's own secrets can come back in the server's words, too.
      redact: (text) =>
        redactor([token, ...this.shared.secrets, ...secretsIn(this.options.headers ?? {}), ...this.rendered.secrets])(
          text,
        ),
    }
  }

  /** One attempt, in a fiber. */
  private attempt(token: Redacted.Redacted<string>): Effect.Effect<A, TinkerError> {
    return Effect.withFiberRuntime((fiber) => {
      if (this.shared.closed) return Effect.fail(new ClientClosed({ operation: this.endpoint.operation }))
      const next = this.next(token)
      return awaited((end) => this.prepared.exchange(fiber, next, (result) => end(observed(next, result))))
    })
  }

  private after(
    result: Effect.Effect<A, TinkerError>,
    token: Redacted.Redacted<string>,
  ): Effect.Effect<A, TinkerError> {
    return onError(result, (error) =>
      error._tag === "Unauthorized"
        ? Effect.catchAll(this.resend(error, token), (error) => this.retry(token, error))
        : this.retry(token, error),
    )
  }

  /** One forced exchange and one resend for a JWT that is refused, in the whole life of the request. */
  private resend(refused: TinkerError, token: Redacted.Redacted<string>): Effect.Effect<A, TinkerError> {
    if (refused._tag !== "Unauthorized" || this.renewed) return Effect.fail(refused)
    this.renewed = true
    return Effect.flatMap(
      this.auth.renew(token),
      Option.match({ onNone: () => Effect.fail(refused), onSome: (token) => this.attempt(token) }),
    )
  }

  /** The schedule is made when it is needed: most requests succeed at once. */
  private retry(first: Redacted.Redacted<string>, failure: TinkerError): Effect.Effect<A, TinkerError> {
    const { logged, policyOf } = this.shared
    // Who has a loop of its own gets each error at once, unless it asks for more.
    const leftToCaller = this.endpoint.retry === "none" && this.options.retryPolicy === undefined
    const again = (error: TinkerError) => !leftToCaller && mayRetry(this.endpoint, error)
    if (!again(failure)) return Effect.fail(failure)
    const allowed = this.options.mayRetry ?? (() => Effect.succeed(true))
    const warned = (error: TinkerError) =>
      again(error) ? logged(Effect.logWarning(`Tinker: ${error.message}`)) : Effect.void
    let known: TinkerError | undefined = failure
    const next = Effect.suspend(() => {
      const error = known
      known = undefined
      return error === undefined
        ? Effect.flatMap(this.auth.again(first), (token) =>
            Effect.catchAll(this.attempt(token), (refused) => this.resend(refused, token)),
          )
        : Effect.fail(error)
    })
    return Effect.flatMap(policyOf(this.options), (schedule) =>
      Effect.retry(Effect.tapError(next, warned), {
        schedule,
        while: (error) => (again(error) ? allowed(error) : false),
      }),
    )
  }
}

/** What a call is given besides its input, checked before anything is sent. */
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
  const http = Http.make(yield* HttpClient.HttpClient, config, (yield* Host).platform, yield* Timeouts.make)
  const configured = [...secretsIn(config.headers), ...Option.toArray(config.apiKey)]
  const flags = yield* Ref.make(Option.none<ClientConfig>())
  const logged = Config.logged(config)
  const meters = Meters.make(config)

  const announceDeprecation = ({ operation, redact }: Http.Attempt, headers: Http.Reply["headers"]) => {
    const note = headers["x-deprecation-note"]
    if (note === undefined) return Effect.void
    const level = headers["x-deprecation-level"] === "error" ? LogLevel.Error : LogLevel.Warning
    return logged(Effect.logWithLevel(level, `${operation}: ${shorten(redact(note))}`))
  }

  const policyOf = (options: CallOptions) =>
    Option.match(
      Option.orElse(Option.fromNullable(options.retryPolicy), () => config.retryPolicy),
      {
        onSome: Effect.succeed,
        onNone: () =>
          Effect.map(Ref.get(flags), (flags) =>
            RetryPolicy.make({
              billingPause: Option.match(flags, {
                onNone: () => undefined,
                onSome: (flags) => Duration.seconds(flags.billingExceptionMaxPauseDurationSec),
              }),
            }),
          ),
      },
    )

  const shared: Shared = { config, secrets: configured, policyOf, logged, closed: false }
  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      shared.closed = true
    }),
  )

  const perform = <A>(
    fiber: Fiber.RuntimeFiber<unknown, unknown>,
    endpoint: Endpoint.Endpoint<never, unknown>,
    prepared: Prepared<A>,
    rendered: Endpoint.Rendered,
    options: CallOptions,
    auth: Auth,
    end: (result: Effect.Effect<A, TinkerError>) => void,
  ): Stop => {
    const refusal = shared.closed
      ? new ClientClosed({ operation: endpoint.operation })
      : checkOptions(endpoint.operation, options)
    if (refusal === undefined) {
      return new Request(fiber, shared, endpoint, prepared, rendered, options, auth).begin(fiber, end)
    }
    end(Effect.fail(refusal))
    return nothingLeft
  }

  const receive =
    <A>(endpoint: Endpoint.Endpoint<never, A>) =>
    (reply: Http.Reply, attempt: Http.Attempt): Effect.Effect<A, TinkerError> => {
      tellReply(attempt, reply)
      const decoded = decode(endpoint, reply, attempt)
      return reply.headers["x-deprecation-note"] === undefined
        ? decoded
        : Effect.zipRight(announceDeprecation(attempt, reply.headers), decoded)
    }
  const prepare = <A>(
    endpoint: Endpoint.Endpoint<never, unknown>,
    exchange: Http.Begin<A, TinkerError>,
  ): Prepared<A> => ({
    exchange,
    meter: meters(endpoint.operation),
    url: `${config.baseUrl}/${endpoint.root}/${endpoint.path}`,
    timeout: Duration.toMillis(endpoint.timeout ?? config.attemptTimeout),
  })
  const known = new WeakMap<object, Prepared<unknown>>()
  const preparedFor = <A>(endpoint: Endpoint.Endpoint<never, A>): Prepared<A> => {
    let prepared = known.get(endpoint)
    if (prepared === undefined) {
      prepared = prepare(endpoint, http.send(receive(endpoint)))
      known.set(endpoint, prepared)
    }
    // Kept by the endpoint that it was made for.
    return prepared as Prepared<A>
  }

  type AuthOf = (endpoint: Endpoint.Endpoint<never, unknown>, options: CallOptions) => Auth

  const unknownFields = UnknownFields.make()
  const render: Service["render"] = (endpoint, input) =>
    Endpoint.render(endpoint, input, { without: unknownFields.of(endpoint) })

  const beginAs = (authOf: AuthOf): Service["begin"] => {
    const begin: Service["begin"] = (fiber, endpoint, input, options = noOptions, end) => {
      const rendered = render(endpoint, input)
      if (Either.isLeft(rendered)) {
        end(Effect.fail(rendered.left))
        return nothingLeft
      }
      const sent = rendered.right
      return perform(fiber, endpoint, preparedFor(endpoint), sent, options, authOf(endpoint, options), (result) =>
        end(
          onError(result, (error) =>
            unknownFields.learn(endpoint, error) && Endpoint.differs(sent, render(endpoint, input))
              ? Effect.withFiberRuntime((fiber) => awaited((end) => begin(fiber, endpoint, input, options, end)))
              : Effect.fail(error),
          ),
        ),
      )
    }
    return begin
  }

  const callWith =
    (begin: Service["begin"]): Service["call"] =>
    (endpoint, input, options) =>
      traced((fiber) => awaited((end) => begin(fiber, endpoint, input, options, end)), endpoint.span)

  const fixed = (token: Auth["token"]): Auth => ({
    token,
    ready: () => undefined,
    // A credential command is run once for one logical request.
    again: Effect.succeed,
    renew: () => Effect.succeedNone,
  })
  const source = yield* Credentials.source
  const serverConfig = yield* ServerConfig.make(
    callWith(beginAs(() => fixed(source.credential)))(Api.clientConfig, { sdkVersion: config.sdkVersion }),
    Api.defaultClientConfig,
    flags,
  )
  const credentials = yield* Credentials.make(source, {
    flags: serverConfig.flags,
    exchange: (credential) =>
      Effect.map(callWith(beginAs(() => fixed(Effect.succeed(credential))))(Api.authToken, {}), ({ jwt }) => jwt),
  })
  const tokens: Auth = { ...credentials, again: () => credentials.token }

  const authFor: AuthOf = (endpoint, { credential }) => {
    if (credential !== undefined) return fixed(Effect.succeed(credential))
    return endpoint.auth === "credential" ? fixed(credentials.credential) : tokens
  }

  interface Opened {
    readonly attempt: Http.Attempt
    readonly response: HttpClientResponse.HttpClientResponse
  }
  const opening: Http.Begin<Opened, TinkerError> = (fiber, attempt, end) =>
    http.open(fiber, attempt, (result) => end(Effect.map(result, (response) => ({ attempt, response }))))

  const begin = beginAs(authFor)
  const dispatch: Service["dispatch"] = (fiber, endpoint, rendered, options, end) =>
    perform(fiber, endpoint, preparedFor(endpoint), rendered, options, authFor(endpoint, options), (result) =>
      end(
        // Who renders by itself renders again after a refusal, and sees what was learnt.
        onError(result, (error) => {
          unknownFields.learn(endpoint, error)
          return Effect.fail(error)
        }),
      ),
    )
  const start: Service["start"] = (fiber, endpoint, input, options, onExit) => {
    let stop = nothingLeft
    let isStopped = false
    const begun = begin(fiber, endpoint, input, options, (result) => {
      const exit = exitOf(result)
      if (exit !== undefined) return onExit(exit)
      const running = runBeside(fiber, result)
      running.addObserver((exit) => {
        if (!isStopped) onExit(exit)
      })
      stop = () => Fiber.interrupt(running)
    })
    if (stop === nothingLeft) stop = begun
    return () => {
      isStopped = true
      return stop()
    }
  }
  const transport: Service = {
    begin,
    start,
    call: callWith(begin),
    render,
    dispatch,
    send: (endpoint, rendered, options = noOptions) =>
      traced((fiber) => awaited((end) => dispatch(fiber, endpoint, rendered, options, end)), endpoint.span),
    raw: (endpoint, input, options = {}) =>
      Effect.uninterruptibleMask((restore) =>
        Effect.gen(function* () {
          const rendered = yield* render(endpoint, input)
          const { attempt, response } = yield* restore(
            traced(
              (fiber) =>
                awaited<Opened, TinkerError>((end) =>
                  perform(
                    fiber,
                    endpoint,
                    prepare(endpoint, opening),
                    rendered,
                    options,
                    authFor(endpoint, options),
                    end,
                  ),
                ),
              endpoint.span,
            ),
          )
          let begun = false
          // A body that nobody reads would keep its connection; one that is begun and left gives it back.
          yield* Effect.addFinalizer(() => (begun ? Effect.void : letGo(response)))
          yield* announceDeprecation(attempt, response.headers)
          const stream = Stream.mapError(response.stream, (error) => Http.foldBody(error, attempt))
          return {
            status: response.status,
            headers: response.headers,
            redact: attempt.redact,
            stream: Stream.suspend(() => {
              begun = true
              return stream
            }),
          }
        }),
      ),
  }
  return { transport, credentials, serverConfig }
})

const letGo = (response: HttpClientResponse.HttpClientResponse): Effect.Effect<void> =>
  Stream.runDrain(response.stream).pipe(
    Effect.interruptible,
    Effect.timeout(0),
    Effect.catchAllCause(() => Effect.void),
  )

interface Auth {
  readonly token: Effect.Effect<Redacted.Redacted<string>, TinkerError>
  readonly ready: Credentials.Service["ready"]
  /** For a later attempt of the same request, given the token of the first. */
  readonly again: (first: Redacted.Redacted<string>) => Effect.Effect<Redacted.Redacted<string>, TinkerError>
  readonly renew: Credentials.Service["renew"]
}

/**
 * Everything that depends on `TinkerConfig` is made anew wherever this layer is used: a layer memoised by reference
 * would hand one tenant's credential to the other.
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
