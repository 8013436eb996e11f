/**
 * An endpoint and its input become an Effect: credential, headers, idempotency key, deadline, retries, status to
 * error, decoding. The only module of the API clients that sees `HttpClient`.
 *
 * @since 0.1.0
 */
import * as HttpClient from "@effect/platform/HttpClient"
import type * as HttpClientResponse from "@effect/platform/HttpClientResponse"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Layer from "effect/Layer"
import * as LogLevel from "effect/LogLevel"
import * as Option from "effect/Option"
import * as ParseResult from "effect/ParseResult"
import type * as Redacted from "effect/Redacted"
import * as Ref from "effect/Ref"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import * as Api from "./Api.ts"
import { Accepted } from "./api/Futures.ts"
import type { ClientConfig } from "./api/Session.ts"
import * as Credentials from "./Credentials.ts"
import * as Endpoint from "./Endpoint.ts"
import { Host } from "./Host.ts"
import { preview, shorten } from "./internal/Answer.ts"
import * as Http from "./internal/Http.ts"
import * as Meters from "./internal/Meters.ts"
import { readAccepted } from "./internal/ReadAccepted.ts"
import { redactor, reveal, secretsIn } from "./internal/Redact.ts"
import * as Timeouts from "./internal/Timeouts.ts"
import { current, type Trace, traced, traceparentOf } from "./internal/Traced.ts"
import { timeOf } from "./internal/Uptime.ts"
import * as UnknownFields from "./internal/UnknownFields.ts"
import * as RetryPolicy from "./RetryPolicy.ts"
import * as ServerConfig from "./ServerConfig.ts"
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
const decoders = new WeakMap<
  Endpoint.ResponseBody,
  (value: unknown) => Either.Either<unknown, ParseResult.ParseError>
>()
const decoderOf = (response: Extract<Endpoint.ResponseBody, { readonly kind: "json" }>) => {
  let decoder = decoders.get(response)
  if (decoder === undefined) {
    decoder = response.schema === Accepted ? readAccepted : Schema.decodeUnknownEither(response.schema)
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
    Effect.flatMap(Clock.currentTimeMillis, (now) => Effect.fail(Http.unexpected(attempt, reply, now, reason, detail)))
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

/** Who looks at a request: a tracer, the metrics, the server. */
interface Watched {
  readonly trace: Trace | undefined
  readonly meter: Meters.Meter | undefined
  readonly traceparent: string | undefined
}

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

/** An attempt that somebody looks at. */
const observed = <A>(
  { meter, retryCount, trace }: Http.Attempt,
  exchange: Effect.Effect<A, TinkerError>,
): Effect.Effect<A, TinkerError> =>
  meter === undefined && trace === undefined
    ? exchange
    : Effect.tapError(exchange, (error) =>
        Effect.sync(() => {
          meter?.failed(error._tag === "RateLimited")
          const status = statusOf(error)
          if (status !== undefined) trace?.attribute("http.response.status_code", status)
          trace?.event("tinker.attempt_failed", { attempt: retryCount + 1, error: error._tag, message: error.message })
        }),
      )

/** One logical request: what all of its attempts share. */
class Call {
  startedAt: number
  private attempts = 0
  private readonly url: string
  private readonly timeout: number
  private readonly idempotencyKey: string
  private readonly headers: Readonly<Record<string, string>>

  private readonly endpoint: Endpoint.Endpoint<never, unknown>
  private readonly rendered: Endpoint.Rendered
  private readonly options: CallOptions
  private readonly secrets: ReadonlyArray<Redacted.Redacted<string>>
  private readonly clock: Clock.Clock
  private readonly watched: Watched

  constructor(
    config: Config.Service,
    endpoint: Endpoint.Endpoint<never, unknown>,
    rendered: Endpoint.Rendered,
    options: CallOptions,
    secrets: ReadonlyArray<Redacted.Redacted<string>>,
    clock: Clock.Clock,
    watched: Watched,
  ) {
    const { path, query } = rendered
    this.endpoint = endpoint
    this.rendered = rendered
    this.options = options
    this.secrets = secrets
    this.clock = clock
    this.watched = watched
    this.startedAt = clock.unsafeCurrentTimeMillis()
    this.url = `${config.baseUrl}/${endpoint.root}/${path}${query === "" ? "" : `?${query}`}`
    this.timeout =
      options.timeout === null
        ? Number.POSITIVE_INFINITY
        : Duration.toMillis(options.timeout ?? endpoint.timeout ?? config.attemptTimeout)
    this.idempotencyKey = options.idempotencyKey ?? `effect-tinker-${globalThis.crypto.randomUUID()}`
    const given = options.headers === undefined ? noHeaders : reveal(options.headers)
    const { traceparent } = watched
    this.headers = traceparent === undefined ? given : { traceparent, ...given }
  }

  attempt(token: Redacted.Redacted<string>): Http.Attempt {
    const { operation, purpose, redirect, scheme } = this.endpoint
    const { body, method, secrets } = this.rendered
    const { meter, trace } = this.watched
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
      retryCount: this.attempts++,
      timeout: this.timeout,
      startedAt: this.startedAt,
      clock: this.clock,
      meter,
      trace,
      // An input's own secrets can come back in the server's words, too.
      redact: (text) => redactor([token, ...this.secrets, ...secretsIn(this.options.headers ?? {}), ...secrets])(text),
    }
  }
}

/** What a call is given besides its input, checked before anything is sent. */
const checkOptions = (operation: string, options: CallOptions): Option.Option<InvalidInput> => {
  const { headers = noHeaders, idempotencyKey, timeout } = options
  const invalid = (path: string, problem: string) =>
    Option.some(new InvalidInput({ path: `${operation}.options.${path}`, problem }))
  if (timeout !== undefined && timeout !== null && Option.isNone(Duration.decodeUnknown(timeout))) {
    return invalid("timeout", "is not a duration")
  }
  const problemWith = (name: string, value: string | Redacted.Redacted<string>) =>
    Option.flatMap(Config.problemWithHeader(name, value), (problem) => invalid(`headers.${name}`, problem))
  // Every poll comes by here, so nothing is made that is not needed.
  for (const name of Object.keys(headers)) {
    const problem = problemWith(name, headers[name] ?? "")
    if (Option.isSome(problem)) return problem
  }
  return idempotencyKey === undefined ? Option.none() : problemWith("x-idempotency-key", idempotencyKey)
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
  const http = Http.make(yield* HttpClient.HttpClient, config, (yield* Host).platform, yield* Timeouts.make)
  const configured = [...secretsIn(config.headers), ...Option.toArray(config.apiKey)]
  const known = yield* Ref.make(Option.none<ClientConfig>())
  let closed = false
  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      closed = true
    }),
  )

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
          Effect.map(Ref.get(known), (flags) =>
            RetryPolicy.make({
              billingPause: Option.match(flags, {
                onNone: () => undefined,
                onSome: (flags) => Duration.seconds(flags.billingExceptionMaxPauseDurationSec),
              }),
            }),
          ),
      },
    )

  /** The whole life of one logical request; `exchange` is one attempt on the wire. */
  const perform = <A>(
    endpoint: Endpoint.Endpoint<never, unknown>,
    rendered: Endpoint.Rendered,
    options: CallOptions,
    auth: Auth,
    exchange: (attempt: Http.Attempt) => Effect.Effect<A, TinkerError>,
  ): Effect.Effect<A, TinkerError> =>
    traced((fiber) => {
      if (closed) return Effect.fail(new ClientClosed({ operation: endpoint.operation }))
      const problem = options === noOptions ? Option.none() : checkOptions(endpoint.operation, options)
      if (Option.isSome(problem)) return Effect.fail(problem.value)
      const time = timeOf(fiber)
      // Without a span of its own it leaves the one around it alone.
      const trace = endpoint.span === undefined ? undefined : current(fiber)
      if (trace !== undefined) tellRequest(trace, rendered)
      const call = new Call(config, endpoint, rendered, options, configured, time.clock, {
        trace,
        meter: meters(endpoint.operation),
        traceparent: config.traceparent ? traceparentOf(fiber) : undefined,
      })
      // Who has a loop of its own gets each error at once, unless it asks for more.
      const leftToCaller = endpoint.retry === "none" && options.retryPolicy === undefined
      const again = (error: TinkerError) => !leftToCaller && mayRetry(endpoint, error)
      let renewed = false

      const attempt = (token: Redacted.Redacted<string>): Effect.Effect<A, TinkerError> => {
        if (closed) return Effect.fail(new ClientClosed({ operation: endpoint.operation }))
        const next = call.attempt(token)
        return observed(next, exchange(next))
      }

      /** One forced exchange and one resend for a JWT that is refused, in the whole life of the request. */
      const resend = (refused: TinkerError, token: Redacted.Redacted<string>): Effect.Effect<A, TinkerError> => {
        if (refused._tag !== "Unauthorized" || renewed) return Effect.fail(refused)
        renewed = true
        return Effect.flatMap(auth.renew(token), Option.match({ onNone: () => Effect.fail(refused), onSome: attempt }))
      }

      /** The schedule is made when it is needed: most requests succeed at once. */
      const retry = (first: Redacted.Redacted<string>, failure: TinkerError): Effect.Effect<A, TinkerError> => {
        if (!again(failure)) return Effect.fail(failure)
        const allowed = options.mayRetry ?? (() => Effect.succeed(true))
        const warned = (error: TinkerError) =>
          again(error) ? logged(Effect.logWarning(`Tinker: ${error.message}`)) : Effect.void
        let known: TinkerError | undefined = failure
        const next = Effect.suspend(() => {
          const error = known
          known = undefined
          return error === undefined
            ? Effect.flatMap(auth.again(first), (token) =>
                Effect.catchAll(attempt(token), (refused) => resend(refused, token)),
              )
            : Effect.fail(error)
        })
        return Effect.flatMap(policyOf(options), (schedule) =>
          Effect.retry(Effect.tapError(next, warned), {
            schedule,
            while: (error) => (again(error) ? allowed(error) : false),
          }),
        )
      }

      const begin = (token: Redacted.Redacted<string>) =>
        Effect.catchAll(attempt(token), (error) =>
          error._tag === "Unauthorized"
            ? Effect.catchAll(resend(error, token), (error) => retry(token, error))
            : retry(token, error),
        )
      const token = auth.ready(time.uptime())
      return token === undefined
        ? Effect.flatMap(auth.token, (token) => {
            // Waiting for a token is not part of the request.
            call.startedAt = time.clock.unsafeCurrentTimeMillis()
            return begin(token)
          })
        : begin(token)
    }, endpoint.span)

  const sendAs =
    (authOf: (endpoint: Endpoint.Endpoint<never, unknown>) => Auth): Service["send"] =>
    (endpoint, rendered, options = noOptions) =>
      perform(
        endpoint,
        rendered,
        options,
        options.credential === undefined ? authOf(endpoint) : fixed(Effect.succeed(options.credential)),
        (attempt) =>
          http.send(attempt, (reply) => {
            tellReply(attempt, reply)
            const decoded = decode(endpoint, reply, attempt)
            return reply.headers["x-deprecation-note"] === undefined
              ? decoded
              : Effect.zipRight(announceDeprecation(attempt, reply.headers), decoded)
          }),
      )

  const unknownFields = UnknownFields.make()
  const render: Service["render"] = (endpoint, input) =>
    Endpoint.render(endpoint, input, { without: unknownFields.of(endpoint) })

  const callWith = (send: Service["send"]): Service["call"] => {
    const call: Service["call"] = (endpoint, input, options) =>
      Effect.suspend(() => {
        const rendered = render(endpoint, input)
        if (Either.isLeft(rendered)) return Effect.fail(rendered.left)
        return Effect.catchAll(send(endpoint, rendered.right, options), (error) =>
          unknownFields.learn(endpoint, error) && Endpoint.differs(rendered.right, render(endpoint, input))
            ? call(endpoint, input, options)
            : Effect.fail(error),
        )
      })
    return call
  }

  const fixed = (token: Auth["token"]): Auth => ({
    token,
    ready: () => undefined,
    // A credential command is run once for one logical request.
    again: Effect.succeed,
    renew: () => Effect.succeedNone,
  })
  const source = yield* Credentials.source
  const serverConfig = yield* ServerConfig.make(
    callWith(sendAs(() => fixed(source.credential)))(Api.clientConfig, { sdkVersion: config.sdkVersion }),
    Api.defaultClientConfig,
    known,
  )
  const credentials = yield* Credentials.make(source, {
    flags: serverConfig.flags,
    exchange: (credential) =>
      Effect.map(callWith(sendAs(() => fixed(Effect.succeed(credential))))(Api.authToken, {}), ({ jwt }) => jwt),
  })
  const tokens: Auth = { ...credentials, again: () => credentials.token }

  const authFor = (endpoint: Endpoint.Endpoint<never, unknown>): Auth =>
    endpoint.auth === "credential" ? fixed(credentials.credential) : tokens

  const send = sendAs(authFor)
  const transport: Service = {
    call: callWith(send),
    render,
    send: (endpoint, rendered, options) =>
      // Who renders by itself renders again after a refusal, and sees what was learnt.
      Effect.tapError(send(endpoint, rendered, options), (error) =>
        Effect.sync(() => unknownFields.learn(endpoint, error)),
      ),
    raw: (endpoint, input, options = {}) =>
      Effect.uninterruptibleMask((restore) =>
        Effect.gen(function* () {
          const rendered = yield* render(endpoint, input)
          const { attempt, response } = yield* restore(
            perform(endpoint, rendered, options, authFor(endpoint), (attempt) =>
              Effect.map(http.open(attempt), (response) => ({ attempt, response })),
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
