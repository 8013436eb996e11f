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
import * as FiberRef from "effect/FiberRef"
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
import type { ClientConfig } from "./api/Session.ts"
import * as Credentials from "./Credentials.ts"
import * as Endpoint from "./Endpoint.ts"
import { Host } from "./Host.ts"
import { preview } from "./internal/Answer.ts"
import * as Http from "./internal/Http.ts"
import { redact, reveal } from "./internal/Redact.ts"
import * as RetryPolicy from "./RetryPolicy.ts"
import * as ServerConfig from "./ServerConfig.ts"
import { TinkerConfig } from "./TinkerConfig.ts"
import {
  type InvalidConfig,
  isRetryable,
  type RequestError,
  type TinkerError,
  type Unauthorized,
  UnexpectedResponse,
} from "./TinkerError.ts"
import { version } from "./Version.ts"

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
const mayRetry =
  (endpoint: Endpoint.Endpoint<never, unknown>) =>
  (error: TinkerError): boolean => {
    // Asking for the token and the flags has a budget of its own; repeating it here would multiply the two.
    if (!("operation" in error) || error.operation !== endpoint.operation) return false
    if (error._tag === "BillingPaused" && Option.isNone(error.shouldRetry)) return endpoint.retry === "standard"
    // A conflict over a sequence number is for the one who counts them, unless the server asks for a retry.
    const conflict = error._tag === "RequestRejected" && error.reason === "Conflict" && Option.isNone(error.shouldRetry)
    return isRetryable(error) && !(conflict && endpoint.sequenced)
  }

const decode = <A>(
  endpoint: Endpoint.Endpoint<never, A>,
  reply: Http.Reply,
  clean: (text: string) => string,
): Either.Either<A, UnexpectedResponse> => {
  const response = endpoint.response
  if (response.kind === "void") return Either.right(undefined as A)
  if (response.kind === "raw") {
    const contentType = reply.headers["content-type"] ?? ""
    return Either.right({ status: reply.status, contentType, body: reply.body } satisfies Endpoint.RawAnswer as A)
  }
  const unexpected = (reason: UnexpectedResponse["reason"], detail: string) =>
    Either.left(
      new UnexpectedResponse({ operation: endpoint.operation, reason, detail, status: Option.some(reply.status) }),
    )
  if (reply.body.length === 0) return unexpected("Empty", "the body is empty")
  let value: unknown
  try {
    // The content type is not asked: servers send JSON as text, and the schema has the last word.
    value = JSON.parse(new TextDecoder().decode(reply.body))
  } catch {
    return unexpected("NotJson", preview(reply.body, clean))
  }
  const decoded = Schema.decodeUnknownEither(response.schema)(value)
  return Either.isRight(decoded)
    ? Either.right(decoded.right)
    : unexpected("Schema", clean(ParseResult.TreeFormatter.formatErrorSync(decoded.left)))
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
  TinkerConfig | HttpClient.HttpClient | Scope.Scope
> = Effect.gen(function* () {
  const config = yield* TinkerConfig
  const http = Http.make(yield* HttpClient.HttpClient, config, (yield* Host).platform)
  const secrets = Object.values(config.headers)
  const known = yield* Ref.make(Option.none<ClientConfig>())

  /** The SDK's own log lines obey `logLevel`; the program's are not touched. */
  const logged = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Option.match(config.logLevel, {
      onNone: () => effect,
      onSome: (level) => Effect.locally(effect, FiberRef.currentMinimumLogLevel, level),
    })

  const announceDeprecation = ({ operation, redact }: Http.Attempt, headers: Http.Reply["headers"]) => {
    const note = headers["x-deprecation-note"]
    if (note === undefined) return Effect.void
    const level = headers["x-deprecation-level"] === "error" ? LogLevel.Error : LogLevel.Warning
    return logged(Effect.logWithLevel(level, `${operation}: ${redact(note)}`))
  }

  const policyOf = (endpoint: Endpoint.Endpoint<never, unknown>, options: CallOptions) =>
    Effect.map(Ref.get(known), (flags) => {
      const chosen = options.retryPolicy ?? Option.getOrUndefined(config.retryPolicy)
      if (endpoint.retry === "none") return options.retryPolicy ?? RetryPolicy.none
      return (
        chosen ??
        RetryPolicy.make({
          billingPause: Option.getOrElse(config.billingPause, () =>
            Option.match(flags, {
              onNone: () => RetryPolicy.defaultBillingPause,
              onSome: (flags) => Duration.seconds(flags.billingExceptionMaxPauseDurationSec),
            }),
          ),
        })
      )
    })

  /** The whole life of one logical request; `exchange` is one attempt on the wire. */
  const perform = <A>(
    endpoint: Endpoint.Endpoint<never, unknown>,
    input: unknown,
    options: CallOptions,
    auth: Auth,
    exchange: (attempt: Http.Attempt) => Effect.Effect<A, TinkerError>,
  ): Effect.Effect<A, TinkerError> =>
    Effect.suspend(() => {
      const rendered = Endpoint.render(endpoint, input as never)
      if (Either.isLeft(rendered)) return Effect.fail(rendered.left)
      const { body, method, path, query } = rendered.right
      const timeout =
        options.timeout === null
          ? Duration.infinity
          : Duration.decode(options.timeout ?? endpoint.timeout ?? config.attemptTimeout)
      const idempotencyKey = options.idempotencyKey ?? `effect-tinker-${globalThis.crypto.randomUUID()}`
      const given = Object.values(options.headers ?? {}).filter((value) => typeof value !== "string")
      const headers = { ...endpoint.headers, ...reveal(options.headers ?? {}) }
      let retryCount = 0
      let renewed = false

      const attempt = (startedAt: number): Effect.Effect<A, TinkerError> =>
        Effect.flatMap(auth.token, (token) => {
          const send = (token: Redacted.Redacted<string>) =>
            exchange({
              operation: endpoint.operation,
              purpose: endpoint.purpose,
              method,
              url: `${config.baseUrl}/api/v1/${path}${query === "" ? "" : `?${query}`}`,
              body,
              headers,
              token,
              idempotencyKey,
              retryCount: retryCount++,
              timeout,
              startedAt,
              redact: (text) => redact(text, [token, ...secrets, ...given]),
            })
          // One forced exchange and one resend for a JWT that is refused, in the whole life of the request.
          return Effect.catchAll(send(token), (refused) => {
            if (refused._tag !== "Unauthorized" || renewed) return Effect.fail(refused)
            renewed = true
            return Effect.flatMap(auth.renew(token), Option.match({ onNone: () => Effect.fail(refused), onSome: send }))
          })
        })

      const warned = (startedAt: number) =>
        Effect.tapError(attempt(startedAt), (error) =>
          mayRetry(endpoint)(error) ? logged(Effect.logWarning(`Tinker: ${error.message}`)) : Effect.void,
        )
      const retrying = Effect.gen(function* () {
        // First, because it also fetches the flags, which the policy reads.
        yield* auth.token
        const schedule = yield* policyOf(endpoint, options)
        const startedAt = yield* Clock.currentTimeMillis
        return yield* Effect.retry(warned(startedAt), { schedule, while: mayRetry(endpoint) })
      })
      return Effect.withSpan(retrying, `tinker.${endpoint.operation}`, { kind: "client" })
    })

  const request =
    (auth: Auth): Service["call"] =>
    (endpoint, input, options = {}) =>
      perform(endpoint, input, options, auth, (attempt) =>
        Effect.flatMap(http.send(attempt), (reply) =>
          Effect.zipRight(announceDeprecation(attempt, reply.headers), decode(endpoint, reply, attempt.redact)),
        ),
      )

  const source = yield* Credentials.source
  const plain: Auth = { token: source.credential, renew: () => Effect.succeedNone }
  const serverConfig = yield* ServerConfig.make(
    request(plain)(Api.clientConfig, { sdkVersion: version }),
    Api.defaultClientConfig,
    known,
  )
  const credentials = yield* Credentials.make(source, {
    flags: serverConfig.flags,
    exchange: (credential) =>
      Effect.map(
        request({ token: Effect.succeed(credential), renew: () => Effect.succeedNone })(Api.authToken, {}),
        ({ jwt }) => jwt,
      ),
  })

  const authFor = (endpoint: Endpoint.Endpoint<never, unknown>): Auth =>
    endpoint.auth === "credential" ? plain : credentials

  const transport: Service = {
    call: (endpoint, input, options) => request(authFor(endpoint))(endpoint, input, options),
    raw: (endpoint, input, options = {}) =>
      Effect.uninterruptibleMask((restore) =>
        perform(endpoint, input, options, authFor(endpoint), (attempt) =>
          Effect.map(http.open(attempt), (response) => ({ attempt, response })),
        ).pipe(
          restore,
          Effect.tap(({ response }) => Effect.addFinalizer(() => letGo(response))),
          Effect.map(({ attempt, response }) => ({
            status: response.status,
            headers: response.headers,
            stream: Stream.mapError(response.stream, (error) =>
              Http.fold(error, Http.fieldsOf(attempt), attempt.redact),
            ),
          })),
        ),
      ),
  }
  return { transport, credentials, serverConfig }
})

/** A body that nobody reads would keep its connection; one that is begun and left gives it back. */
const letGo = (response: HttpClientResponse.HttpClientResponse): Effect.Effect<void> =>
  Stream.runDrain(response.stream).pipe(Effect.interruptible, Effect.timeout(0), Effect.ignore)

interface Auth {
  readonly token: Effect.Effect<Redacted.Redacted<string>, TinkerError>
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
  TinkerConfig | HttpClient.HttpClient
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
