/**
 * The configuration of one client: an immutable value, never a global. `layer(values)` for programs that know it,
 * `layerConfig` for those that read the environment. No other module reads the environment.
 *
 * @since 0.1.0
 */
import * as Config from "effect/Config"
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
import { redactor } from "./internal/util/Redact.ts"
import type { RetryPolicy } from "./RetryPolicy.ts"
import { InvalidConfig } from "./TinkerError.ts"
import { version } from "./protocol/Version.ts"

/**
 * @since 0.1.0
 * @category models
 */
export interface Service {
  readonly baseUrl: BaseUrl.BaseUrl
  /** At least one of the three is there. Which one a request uses is the business of `Credentials`. */
  readonly apiKey: Option.Option<Redacted.Redacted<string>>
  readonly credentialCommand: Option.Option<Redacted.Redacted<string>>
  readonly credentialsFile: Option.Option<string>
  /** Sent with every request to the server; never to another origin. What was given as `Redacted` is secret. */
  readonly headers: Readonly<Record<string, string | Redacted.Redacted<string>>>
  readonly projectId: Option.Option<string>
  /** What the server is told where it asks for the SDK's version. */
  readonly sdkVersion: string
  readonly tags: ReadonlyArray<string>
  /** The vendor's telemetry. */
  readonly telemetry: boolean
  /** Whose requests these are, as metrics tell them apart. */
  readonly tenant: Option.Option<string>
  /** Are requests, tokens and waits counted, in Effect's metrics? */
  readonly metrics: boolean
  /** Is the server told the trace that a request belongs to? */
  readonly traceparent: boolean
  /** The lowest level of the SDK's own log lines; none leaves it to the program's logger. */
  readonly logLevel: Option.Option<LogLevel.LogLevel>
  readonly featureGates: ReadonlyArray<string>
  /** For one attempt at an endpoint without a shorter time-out of its own. */
  readonly attemptTimeout: Duration.Duration
  /** None: `RetryPolicy.make()`, with the server's own budget for a billing stop. */
  readonly retryPolicy: Option.Option<RetryPolicy>
  /** An answer with more bytes than this, after decompression, is refused. */
  readonly maxResponseBytes: number
}

/**
 * What a program gives. Everything but a credential has a default.
 *
 * @since 0.1.0
 * @category models
 */
export interface Values {
  readonly baseUrl?: string | undefined
  readonly apiKey?: Redacted.Redacted<string> | undefined
  /** Run through a shell at each token exchange; its output is the credential. */
  readonly credentialCommand?: Redacted.Redacted<string> | undefined
  /** A file written by `tinker auth login`; used when there is neither a key nor a command. */
  readonly credentialsFile?: string | undefined
  readonly cloudflareAccess?:
    | { readonly clientId: Redacted.Redacted<string>; readonly clientSecret: Redacted.Redacted<string> }
    | undefined
  readonly headers?: Readonly<Record<string, string | Redacted.Redacted<string>>> | undefined
  readonly projectId?: string | undefined
  /** Another version to tell the server, should it treat ours as an old release of its own SDK. */
  readonly sdkVersion?: string | undefined
  readonly tags?: ReadonlyArray<string> | undefined
  readonly telemetry?: boolean | undefined
  /** A name, and no secret: it is a label of every metric. Default: `default`, and with `TinkerTenants` its own name. */
  readonly tenant?: string | undefined
  /** Default: no. */
  readonly metrics?: boolean | undefined
  /** Default: no. */
  readonly traceparent?: boolean | undefined
  readonly logLevel?: LogLevel.LogLevel | undefined
  readonly featureGates?: ReadonlyArray<string> | undefined
  /** `null`: no time-out. */
  readonly attemptTimeout?: Duration.DurationInput | null | undefined
  readonly retryPolicy?: RetryPolicy | undefined
  readonly maxResponseBytes?: number | undefined
}

/**
 * @since 0.1.0
 * @category tags
 */
export class TinkerConfig extends Context.Tag("effect-tinker/TinkerConfig")<TinkerConfig, Service>() {}

/** The names a setting is reported under: an option of `layer` or a variable of the environment. */
const optionNames = {
  baseUrl: "baseUrl",
  apiKey: "apiKey",
  credentialCommand: "credentialCommand",
  cloudflareId: "cloudflareAccess.clientId",
  cloudflareSecret: "cloudflareAccess.clientSecret",
}
const variableNames: typeof optionNames = {
  baseUrl: "TINKER_BASE_URL",
  apiKey: "TINKER_API_KEY",
  credentialCommand: "TINKER_CREDENTIAL_CMD",
  cloudflareId: "CLOUDFLARE_ACCESS_CLIENT_ID",
  cloudflareSecret: "CLOUDFLARE_ACCESS_CLIENT_SECRET",
}

/**
 * Is this a credential that Tinker issues? An API key starts with `tml-`, a JWT with `eyJ`.
 *
 * @since 0.1.0
 * @category predicates
 */
export const problemWithCredential = (credential: Redacted.Redacted<string>): Option.Option<string> => {
  const value = Redacted.value(credential)
  if (!value.startsWith("tml-") && !value.startsWith("eyJ")) {
    return Option.some("must start with 'tml-' (an API key) or 'eyJ' (a JWT)")
  }
  // What a header can't carry would otherwise surface as an obscure transport error, or split the header.
  return /^[\x21-\x7e]+$/.test(value) ? Option.none() : Option.some("holds a blank or a non-ASCII character")
}

/**
 * What is wrong with the name of a tenant, if anything: it is shown wherever metrics are.
 *
 * @since 0.1.0
 * @category predicates
 */
export const problemWithTenant = (name: string): Option.Option<string> => {
  if (name === "") return Option.some("is empty")
  return redactor([])(name) === name
    ? Option.none()
    : Option.some("reads like a credential, and the labels of metrics are not secret")
}

const isToken = (name: string) => /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/.test(name)

/**
 * What is wrong with a header, if anything: a name that is none, a character that it can't carry, or one that only
 * the SDK sets.
 *
 * @since 0.1.0
 * @category predicates
 */
export const problemWithHeader = (name: string, value: string | Redacted.Redacted<string>): Option.Option<string> => {
  if (!isToken(name)) return Option.some("is not a header name")
  if (name.toLowerCase() === "x-api-key") return Option.some("is set from the credential; give it as apiKey")
  return /[^\t\x20-\x7e\x80-\xff]/.test(Redacted.isRedacted(value) ? Redacted.value(value) : value)
    ? Option.some("holds a character that a header can't carry")
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
    onNone: () => Either.left(new InvalidConfig({ setting, problem: "is not a duration" })),
    onSome: (duration) =>
      Duration.greaterThan(duration, Duration.zero)
        ? Either.right(duration)
        : Either.left(new InvalidConfig({ setting, problem: "must be more than zero" })),
  })
}

const fromValues = (values: Values, names: typeof optionNames): Either.Either<Service, InvalidConfig> =>
  Either.gen(function* () {
    const baseUrl =
      values.baseUrl === undefined || values.baseUrl === ""
        ? BaseUrl.hosted
        : yield* BaseUrl.parse(values.baseUrl, names.baseUrl)
    const credentialCommand = Option.fromNullable(values.credentialCommand)
    // A key of the wrong shape yields to a command, as in the reference; without one it is an error.
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
          problem: `is not set, and neither is ${names.credentialCommand}; create a key in the Tinker console`,
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
    }
  })

/**
 * @since 0.1.0
 * @category constructors
 */
export const make = (values: Values): Either.Either<Service, InvalidConfig> => fromValues(values, optionNames)

/**
 * @since 0.1.0
 * @category layers
 */
export const layer = (values: Values): Layer.Layer<TinkerConfig, InvalidConfig> =>
  Layer.effect(
    TinkerConfig,
    Effect.suspend(() => make(values)),
  )

/**
 * The SDK's own log lines obey `logLevel`; the program's are not touched.
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

/** An empty variable counts as unset, as in the reference. */
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

/** One of some words, in any case; absent is undefined. */
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
 * From the environment, through Effect's `ConfigProvider`: the variables of the reference SDK. What `overrides` names
 * wins over its variable.
 *
 * @since 0.1.0
 * @category constructors
 */
export const fromEnvironment = (overrides: Values = {}): Effect.Effect<Service, InvalidConfig> =>
  Effect.gen(function* () {
    const env = yield* Effect.mapError(
      environment,
      (cause) => new InvalidConfig({ setting: "environment", problem: "could not be read", cause }),
    )
    const logLevel = yield* choose("TINKER_LOG", env.logLevel, logLevels)
    const telemetry = yield* choose("TINKER_TELEMETRY", env.telemetry, switches)
    if ((env.cloudflareId === undefined) !== (env.cloudflareSecret === undefined)) {
      return yield* new InvalidConfig({
        setting: env.cloudflareId === undefined ? "CLOUDFLARE_ACCESS_CLIENT_ID" : "CLOUDFLARE_ACCESS_CLIENT_SECRET",
        problem: "is missing although the other half of the pair is set",
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
    }
    return yield* fromValues({ ...fromVariables, ...Object.fromEntries(given) }, names)
  })

/**
 * @since 0.1.0
 * @category layers
 */
export const layerConfig = (overrides: Values = {}): Layer.Layer<TinkerConfig, InvalidConfig> =>
  Layer.effect(TinkerConfig, fromEnvironment(overrides))
