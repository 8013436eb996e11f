/**
 * The configuration of a client: an immutable value, never global. Use `layer(values)` to pass values and `layerConfig`
 * to read the environment. No other module reads the environment.
 *
 * @since 0.1.0
 */
import * as Config from "effect/Config"
import type * as ConfigError from "effect/ConfigError"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as FiberRef from "effect/FiberRef"
import * as Layer from "effect/Layer"
import * as LogLevel from "effect/LogLevel"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as BaseUrl from "./http/BaseUrl.ts"
import * as Proxy from "./http/Proxy.ts"
import { redactor } from "./internal/util/Redact.ts"
import type { RetryPolicy } from "./RetryPolicy.ts"
import { InvalidConfig } from "./TinkerError.ts"
import { version } from "./protocol/Version.ts"

/**
 * A validated configuration.
 *
 * @since 0.1.0
 * @category models
 */
export interface Service {
  readonly baseUrl: BaseUrl.BaseUrl
  /** At least one of the three credentials is present. `Credentials` decides which one a request uses. */
  readonly apiKey: Option.Option<Redacted.Redacted<string>>
  readonly credentialCommand: Option.Option<Redacted.Redacted<string>>
  readonly credentialsFile: Option.Option<string>
  /** Sent with every request to the server and never to another origin. Values given as `Redacted` are secret. */
  readonly headers: Readonly<Record<string, string | Redacted.Redacted<string>>>
  readonly projectId: Option.Option<string>
  /** The SDK version reported to the server. */
  readonly sdkVersion: string
  readonly tags: ReadonlyArray<string>
  /** Whether vendor telemetry is enabled. */
  readonly telemetry: boolean
  /** The tenant label of the metrics. */
  readonly tenant: Option.Option<string>
  /** Whether requests, tokens and waiting times are recorded in Effect's metrics. */
  readonly metrics: boolean
  /** Whether the trace context is sent to the server. */
  readonly traceparent: boolean
  /** The minimum level of the SDK's own log messages; none uses the program's logger settings. */
  readonly logLevel: Option.Option<LogLevel.LogLevel>
  readonly featureGates: ReadonlyArray<string>
  /** The timeout of one attempt, unless the endpoint has a shorter one. */
  readonly attemptTimeout: Duration.Duration
  /** The retry policy; none uses `RetryPolicy.make()` with the server's billing budget. */
  readonly retryPolicy: Option.Option<RetryPolicy>
  /** The maximum size of a response in bytes, after decompression. */
  readonly maxResponseBytes: number
  /** The HTTP proxies, used by HTTP clients that support them (`@effect-tinker/node`). */
  readonly proxies: Proxy.Proxies
}

/**
 * HTTP proxies by the scheme of the server, for `@effect-tinker/node`.
 *
 * @since 0.1.0
 * @category models
 */
export interface ProxyValues {
  /** The URL of the proxy for https servers, `http://user:password@host:port` or with `https:`. */
  readonly https?: Redacted.Redacted<string> | undefined
  /** The URL of the proxy for http servers. The base URL must not be one of these: the proxy would see the key. */
  readonly http?: Redacted.Redacted<string> | undefined
  /** Servers that are reached directly: host names, which include all names below them, with an optional port; or `*`. */
  readonly except?: ReadonlyArray<string> | undefined
}

/**
 * The settings of a configuration. Everything except a credential has a default.
 *
 * @since 0.1.0
 * @category models
 */
export interface Values {
  readonly baseUrl?: string | undefined
  readonly apiKey?: Redacted.Redacted<string> | undefined
  /** A shell command that prints the credential; it runs for each token exchange. */
  readonly credentialCommand?: Redacted.Redacted<string> | undefined
  /** A file written by `tinker auth login`; used if there is neither a key nor a command. */
  readonly credentialsFile?: string | undefined
  readonly cloudflareAccess?:
    | { readonly clientId: Redacted.Redacted<string>; readonly clientSecret: Redacted.Redacted<string> }
    | undefined
  readonly headers?: Readonly<Record<string, string | Redacted.Redacted<string>>> | undefined
  readonly projectId?: string | undefined
  /** The SDK version to report, in case the server treats this SDK as an old release of the reference SDK. */
  readonly sdkVersion?: string | undefined
  readonly tags?: ReadonlyArray<string> | undefined
  readonly telemetry?: boolean | undefined
  /**
   * The label of every metric; must not be a secret. With `TinkerTenants` the default is the name of the tenant.
   *
   * @default "default"
   */
  readonly tenant?: string | undefined
  /**
   * Whether to record metrics.
   *
   * @default false
   */
  readonly metrics?: boolean | undefined
  /**
   * Whether to send the trace context to the server.
   *
   * @default false
   */
  readonly traceparent?: boolean | undefined
  readonly logLevel?: LogLevel.LogLevel | undefined
  readonly featureGates?: ReadonlyArray<string> | undefined
  /**
   * The timeout of one attempt. `null` disables it.
   *
   * @default "60 seconds"
   */
  readonly attemptTimeout?: Duration.DurationInput | null | undefined
  readonly retryPolicy?: RetryPolicy | undefined
  readonly maxResponseBytes?: number | undefined
  /** HTTP proxies; replaces those of the environment. `{}` uses none. */
  readonly proxy?: ProxyValues | undefined
}

/**
 * The service tag of the configuration.
 *
 * @since 0.1.0
 * @category tags
 */
export class TinkerConfig extends Context.Tag("effect-tinker/TinkerConfig")<TinkerConfig, Service>() {}

/** The names under which settings are reported in errors: an option of `layer` or an environment variable. */
const optionNames = {
  baseUrl: "baseUrl",
  apiKey: "apiKey",
  credentialCommand: "credentialCommand",
  cloudflareId: "cloudflareAccess.clientId",
  cloudflareSecret: "cloudflareAccess.clientSecret",
  httpsProxy: "proxy.https",
  httpProxy: "proxy.http",
  exceptProxy: "proxy.except",
}
const variableNames: typeof optionNames = {
  baseUrl: "TINKER_BASE_URL",
  apiKey: "TINKER_API_KEY",
  credentialCommand: "TINKER_CREDENTIAL_CMD",
  cloudflareId: "CLOUDFLARE_ACCESS_CLIENT_ID",
  cloudflareSecret: "CLOUDFLARE_ACCESS_CLIENT_SECRET",
  httpsProxy: "HTTPS_PROXY",
  httpProxy: "HTTP_PROXY",
  exceptProxy: "NO_PROXY",
}

/**
 * Returns why a value cannot be a Tinker credential, if it cannot. An API key starts with `tml-`, a JWT with `eyJ`.
 *
 * @since 0.1.0
 * @category predicates
 */
export const problemWithCredential = (credential: Redacted.Redacted<string>): Option.Option<string> => {
  const value = Redacted.value(credential)
  if (!value.startsWith("tml-") && !value.startsWith("eyJ")) {
    return Option.some("must start with 'tml-' (an API key) or 'eyJ' (a JWT)")
  }
  // Invalid header characters would otherwise cause an obscure transport error or split the header.
  return /^[\x21-\x7e]+$/.test(value) ? Option.none() : Option.some("contains whitespace or a non-ASCII character")
}

/**
 * Returns why a string cannot be the name of a tenant, if it cannot. The name is visible wherever metrics are.
 *
 * @since 0.1.0
 * @category predicates
 */
export const problemWithTenant = (name: string): Option.Option<string> => {
  if (name === "") return Option.some("must not be empty")
  return redactor([])(name) === name
    ? Option.none()
    : Option.some("looks like a credential, but metric labels are not secret")
}

const isToken = (name: string) => /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/.test(name)

/**
 * Returns why a header cannot be sent, if it cannot: an invalid name, an invalid character, or a header reserved for
 * the SDK.
 *
 * @since 0.1.0
 * @category predicates
 */
export const problemWithHeader = (name: string, value: string | Redacted.Redacted<string>): Option.Option<string> => {
  if (!isToken(name)) return Option.some("not a valid header name")
  if (name.toLowerCase() === "x-api-key") return Option.some("reserved for the credential; use apiKey instead")
  return /[^\t\x20-\x7e\x80-\xff]/.test(Redacted.isRedacted(value) ? Redacted.value(value) : value)
    ? Option.some("contains a character that is not allowed in a header")
    : Option.none()
}

const checkHeader = (
  setting: string,
  name: string,
  value: string | Redacted.Redacted<string>,
): Either.Either<readonly [string, string | Redacted.Redacted<string>], InvalidConfig> =>
  Option.match(problemWithHeader(name, value), {
    onNone: () => Either.right([name.toLowerCase(), value] as const),
    onSome: (problem) => Either.left(new InvalidConfig({ setting, problem })),
  })

const decodeDuration = (
  setting: string,
  input: Duration.DurationInput | null,
): Either.Either<Duration.Duration, InvalidConfig> => {
  if (input === null) return Either.right(Duration.infinity)
  return Option.match(Duration.decodeUnknown(input), {
    onNone: () => Either.left(new InvalidConfig({ setting, problem: "expected a duration" })),
    onSome: (duration) =>
      Duration.greaterThan(duration, Duration.zero)
        ? Either.right(duration)
        : Either.left(new InvalidConfig({ setting, problem: "must be greater than zero" })),
  })
}

/** Rejects a secret that an untyped program passes without `Redacted`. The message does not contain the value. */
const checkSecret = (setting: string, value: unknown): Either.Either<void, InvalidConfig> =>
  value === undefined || value === null || Redacted.isRedacted(value)
    ? Either.void
    : Either.left(
        new InvalidConfig({
          setting,
          problem: `expected Redacted.make("…"), got ${typeof value === "object" ? "an object" : `a ${typeof value}`}`,
        }),
      )

const parseProxy = (
  setting: string,
  proxy: Redacted.Redacted<string> | undefined,
): Either.Either<Option.Option<Redacted.Redacted<string>>, InvalidConfig> =>
  proxy === undefined
    ? Either.right(Option.none())
    : Either.mapBoth(Proxy.parse(proxy), {
        onLeft: (problem) => new InvalidConfig({ setting, problem }),
        onRight: Option.some,
      })

/** Validates the proxies. Refuses to send the key through a proxy in clear text. */
const proxiesOf = (
  { except = [], http, https }: ProxyValues,
  baseUrl: BaseUrl.BaseUrl,
  names: typeof optionNames,
): Either.Either<Proxy.Proxies, InvalidConfig> =>
  Either.gen(function* () {
    yield* checkSecret(names.httpsProxy, https)
    yield* checkSecret(names.httpProxy, http)
    const proxies: Proxy.Proxies = {
      https: yield* parseProxy(names.httpsProxy, https),
      http: yield* parseProxy(names.httpProxy, http),
      except: except.map((entry) => entry.trim()).filter((entry) => entry !== ""),
    }
    const url = new URL(baseUrl)
    if (url.protocol === "http:" && Option.isSome(Proxy.select(proxies, url))) {
      const problem = `the proxy would see the key, because ${names.baseUrl} is not https; use https, or add ${url.host} to ${names.exceptProxy}`
      return yield* Either.left(new InvalidConfig({ setting: names.httpProxy, problem }))
    }
    return proxies
  })

const fromValues = (values: Values, names: typeof optionNames): Either.Either<Service, InvalidConfig> =>
  Either.gen(function* () {
    const baseUrl =
      values.baseUrl === undefined || values.baseUrl === ""
        ? BaseUrl.hosted
        : yield* BaseUrl.parse(values.baseUrl, names.baseUrl)
    yield* checkSecret(names.apiKey, values.apiKey)
    yield* checkSecret(names.credentialCommand, values.credentialCommand)
    yield* checkSecret(names.cloudflareId, values.cloudflareAccess?.clientId)
    yield* checkSecret(names.cloudflareSecret, values.cloudflareAccess?.clientSecret)
    const credentialCommand = Option.fromNullable(values.credentialCommand)
    // As in the reference, an invalid key is ignored if there is a command; otherwise it is an error.
    const key = Option.fromNullable(values.apiKey)
    const problem = Option.flatMap(key, problemWithCredential)
    if (Option.isSome(problem) && Option.isNone(credentialCommand)) {
      return yield* Either.left(new InvalidConfig({ setting: names.apiKey, problem: problem.value }))
    }
    const apiKey = Option.isSome(problem) ? Option.none() : key
    const credentialsFile = Option.fromNullable(values.credentialsFile)
    if (Option.isNone(apiKey) && Option.isNone(credentialCommand) && Option.isNone(credentialsFile)) {
      return yield* Either.left(
        new InvalidConfig({
          setting: names.apiKey,
          problem: `not set, and ${names.credentialCommand} is not set either; create a key in the Tinker console`,
        }),
      )
    }
    const given = Object.entries(values.headers ?? {})
    const headers = yield* Either.all(given.map(([name, value]) => checkHeader(`headers.${name}`, name, value)))
    const access = values.cloudflareAccess
    const cloudflare =
      access === undefined
        ? []
        : yield* Either.all([
            checkHeader(names.cloudflareId, "cf-access-client-id", access.clientId),
            checkHeader(names.cloudflareSecret, "cf-access-client-secret", access.clientSecret),
          ])
    const attemptTimeout = yield* decodeDuration(
      "attemptTimeout",
      values.attemptTimeout === undefined ? "60 seconds" : values.attemptTimeout,
    )
    const maxResponseBytes = values.maxResponseBytes ?? 256 * 1024 * 1024
    if (!Number.isSafeInteger(maxResponseBytes) || maxResponseBytes <= 0) {
      return yield* Either.left(
        new InvalidConfig({ setting: "maxResponseBytes", problem: "must be a positive integer" }),
      )
    }
    const proxies = yield* proxiesOf(values.proxy ?? {}, baseUrl, names)
    const tenant = Option.fromNullable(values.tenant)
    const tenantProblem = Option.flatMap(tenant, problemWithTenant)
    if (Option.isSome(tenantProblem)) {
      return yield* Either.left(new InvalidConfig({ setting: "tenant", problem: tenantProblem.value }))
    }
    return {
      baseUrl,
      apiKey,
      credentialCommand,
      credentialsFile,
      headers: Object.fromEntries([...cloudflare, ...headers]),
      projectId: Option.fromNullable(values.projectId),
      sdkVersion: values.sdkVersion ?? version,
      tags: [...new Set(values.tags ?? [])],
      telemetry: values.telemetry ?? false,
      tenant,
      metrics: values.metrics ?? false,
      traceparent: values.traceparent ?? false,
      logLevel: Option.fromNullable(values.logLevel),
      featureGates: values.featureGates ?? [],
      attemptTimeout,
      retryPolicy: Option.fromNullable(values.retryPolicy),
      maxResponseBytes,
      proxies,
    }
  })

/**
 * Validates settings.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (values: Values): Either.Either<Service, InvalidConfig> => fromValues(values, optionNames)

/**
 * Provides a configuration from settings.
 *
 * @example
 * ```ts
 * import { Console, Effect, Option, Redacted } from "effect"
 * import { TinkerConfig } from "effect-tinker"
 *
 * const program = Effect.gen(function* () {
 *   const { apiKey, baseUrl } = yield* TinkerConfig.TinkerConfig
 *   yield* Console.log(baseUrl, String(Option.getOrNull(apiKey))) // → http://127.0.0.1:8000 <redacted>
 * })
 *
 * const layer = TinkerConfig.layer({
 *   baseUrl: "http://127.0.0.1:8000",
 *   apiKey: Redacted.make("tml-secret"),
 *   tags: ["experiment-7"],
 * })
 *
 * await Effect.runPromise(Effect.provide(program, layer))
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = (values: Values): Layer.Layer<TinkerConfig, InvalidConfig> =>
  Layer.effect(
    TinkerConfig,
    Effect.suspend(() => make(values)),
  )

/**
 * Applies `logLevel` to the SDK's own log messages without affecting those of the program.
 *
 * @since 0.1.0
 * @category logging
 */
export const logged =
  (config: Service) =>
  <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Option.match(config.logLevel, {
      onNone: () => effect,
      onSome: (level) => Effect.locally(effect, FiberRef.currentMinimumLogLevel, level),
    })

/** As in the reference, an empty variable counts as unset. */
const variable = (name: string) =>
  Config.string(name).pipe(
    Config.option,
    Config.map(Option.filter((text) => text !== "")),
    Config.map(Option.getOrUndefined),
  )

const secret = (name: string) =>
  Config.redacted(name).pipe(
    Config.option,
    Config.map(Option.filter((text) => Redacted.value(text) !== "")),
    Config.map(Option.getOrUndefined),
  )

const list = (text: string | undefined): ReadonlyArray<string> =>
  (text ?? "")
    .split(",")
    .map((part) => part.trim())
    .filter((part) => part !== "")

/** Reads a variable of many programs, whose name in lower case takes precedence. */
const shared = (name: string) =>
  Config.map(Config.all([secret(name.toLowerCase()), secret(name)]), ([lower, upper]) => lower ?? upper)

const environment = Config.all({
  baseUrl: variable("TINKER_BASE_URL"),
  apiKey: secret("TINKER_API_KEY"),
  credentialCommand: secret("TINKER_CREDENTIAL_CMD"),
  projectId: variable("TINKER_PROJECT_ID"),
  tags: variable("TINKER_TAGS"),
  telemetry: variable("TINKER_TELEMETRY"),
  logLevel: variable("TINKER_LOG"),
  featureGates: variable("TINKER_FEATURE_GATES"),
  cloudflareId: secret("CLOUDFLARE_ACCESS_CLIENT_ID"),
  cloudflareSecret: secret("CLOUDFLARE_ACCESS_CLIENT_SECRET"),
  httpsProxy: shared("HTTPS_PROXY"),
  httpProxy: shared("HTTP_PROXY"),
  noProxy: shared("NO_PROXY"),
  home: variable("HOME"),
  userProfile: variable("USERPROFILE"),
})

const logLevels: Readonly<Record<string, LogLevel.LogLevel>> = {
  trace: LogLevel.Trace,
  debug: LogLevel.Debug,
  info: LogLevel.Info,
  warn: LogLevel.Warning,
  warning: LogLevel.Warning,
  error: LogLevel.Error,
  critical: LogLevel.Fatal,
  fatal: LogLevel.Fatal,
  none: LogLevel.None,
  off: LogLevel.None,
}

const switches: Readonly<Record<string, boolean>> = {
  "1": true,
  true: true,
  yes: true,
  on: true,
  "0": false,
  false: false,
  no: false,
  off: false,
}

/** Looks up one of several words, ignoring case; undefined if absent. */
const choose = <A>(
  setting: string,
  text: string | undefined,
  words: Readonly<Record<string, A>>,
): Either.Either<A | undefined, InvalidConfig> => {
  const word = text?.toLowerCase()
  if (word === undefined) return Either.right(undefined)
  return Object.hasOwn(words, word)
    ? Either.right(words[word])
    : Either.left(new InvalidConfig({ setting, problem: `must be one of ${Object.keys(words).join(", ")}` }))
}

/**
 * Settings that replace environment variables: each a value, or a `Config` that reads it from elsewhere.
 *
 * @since 0.1.0
 * @category models
 */
export type Overrides = { readonly [K in keyof Values]: Values[K] | Config.Config<Values[K]> }

const isConfig = (value: unknown): value is Config.Config<unknown> => Config.isConfig(value)

const resolve = (overrides: Overrides): Effect.Effect<Values, InvalidConfig> =>
  Effect.map(
    Effect.forEach(Object.entries<unknown>(overrides), ([setting, value]) =>
      isConfig(value)
        ? Effect.mapBoth(value, {
            onSuccess: (resolved) => [setting, resolved] as const,
            onFailure: (cause) => new InvalidConfig({ setting, problem: problemOf(cause), cause }),
          })
        : Effect.succeed([setting, value] as const),
    ),
    Object.fromEntries,
  )

/** Names the variable, which a `ConfigError` of one field has. */
const problemOf = (error: ConfigError.ConfigError): string =>
  error._op === "MissingData" || error._op === "InvalidData"
    ? `${error.path.join(".")}: ${error.message}`
    : "could not be read"

/**
 * Reads the variables of the reference SDK through Effect's `ConfigProvider`. `settings` take precedence.
 *
 * @since 0.1.0
 * @category constructors
 */
export const fromEnvironment = (settings: Overrides = {}): Effect.Effect<Service, InvalidConfig> =>
  Effect.gen(function* () {
    const overrides = yield* resolve(settings)
    const env = yield* Effect.mapError(
      environment,
      (cause) => new InvalidConfig({ setting: "environment", problem: "could not be read", cause }),
    )
    const logLevel = yield* choose("TINKER_LOG", env.logLevel, logLevels)
    const telemetry = yield* choose("TINKER_TELEMETRY", env.telemetry, switches)
    if ((env.cloudflareId === undefined) !== (env.cloudflareSecret === undefined)) {
      return yield* new InvalidConfig({
        setting: env.cloudflareId === undefined ? "CLOUDFLARE_ACCESS_CLIENT_ID" : "CLOUDFLARE_ACCESS_CLIENT_SECRET",
        problem: "not set, but the other variable of the pair is",
      })
    }
    const home = env.home ?? env.userProfile
    const fromVariables: Values = {
      baseUrl: env.baseUrl,
      apiKey: env.apiKey,
      credentialCommand: env.credentialCommand,
      credentialsFile: home === undefined ? undefined : `${home}/.tinker/credentials.json`,
      cloudflareAccess:
        env.cloudflareId === undefined || env.cloudflareSecret === undefined
          ? undefined
          : { clientId: env.cloudflareId, clientSecret: env.cloudflareSecret },
      projectId: env.projectId,
      tags: list(env.tags),
      telemetry,
      logLevel,
      featureGates: list(env.featureGates),
      proxy: {
        https: env.httpsProxy,
        http: env.httpProxy,
        except: [...(env.noProxy === undefined ? [] : Redacted.value(env.noProxy).split(/[\s,]+/)), ...Proxy.loopback],
      },
    }
    const given = Object.entries(overrides).filter(([, value]) => value !== undefined)
    const pick = (option: keyof Values, name: keyof typeof optionNames) =>
      overrides[option] === undefined ? variableNames[name] : optionNames[name]
    const names: typeof optionNames = {
      baseUrl: pick("baseUrl", "baseUrl"),
      apiKey: pick("apiKey", "apiKey"),
      credentialCommand: pick("credentialCommand", "credentialCommand"),
      cloudflareId: pick("cloudflareAccess", "cloudflareId"),
      cloudflareSecret: pick("cloudflareAccess", "cloudflareSecret"),
      httpsProxy: pick("proxy", "httpsProxy"),
      httpProxy: pick("proxy", "httpProxy"),
      exceptProxy: pick("proxy", "exceptProxy"),
    }
    return yield* fromValues({ ...fromVariables, ...Object.fromEntries(given) }, names)
  })

/**
 * Provides a configuration from the environment. `settings` take precedence; each is a value or a `Config`.
 *
 * @example
 * ```ts
 * import { ConfigProvider, Console, Effect, Layer } from "effect"
 * import { TinkerConfig } from "effect-tinker"
 *
 * const program = Effect.gen(function* () {
 *   const { baseUrl, tags } = yield* TinkerConfig.TinkerConfig
 *   yield* Console.log(baseUrl, tags) // → http://127.0.0.1:8000 [ 'first', 'second' ]
 * })
 *
 * // Without this layer, the variables are those of the process.
 * const environment = Layer.setConfigProvider(
 *   ConfigProvider.fromMap(
 *     new Map([
 *       ["TINKER_BASE_URL", "http://127.0.0.1:8000"],
 *       ["TINKER_API_KEY", "tml-secret"],
 *       ["TINKER_TAGS", "first, second"],
 *     ]),
 *   ),
 * )
 *
 * await Effect.runPromise(
 *   program.pipe(Effect.provide(TinkerConfig.layerConfig()), Effect.provide(environment)),
 * )
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layerConfig = (settings: Overrides = {}): Layer.Layer<TinkerConfig, InvalidConfig> =>
  Layer.effect(TinkerConfig, fromEnvironment(settings))
