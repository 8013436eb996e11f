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
import * as Layer from "effect/Layer"
import * as LogLevel from "effect/LogLevel"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as BaseUrl from "./BaseUrl.ts"
import type { RetryPolicy } from "./RetryPolicy.ts"
import { InvalidConfig } from "./TinkerError.ts"

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
  /** Sent with every request to the server; never to another origin. */
  readonly headers: Readonly<Record<string, Redacted.Redacted<string>>>
  readonly projectId: Option.Option<string>
  readonly tags: ReadonlyArray<string>
  /** The vendor's telemetry. */
  readonly telemetry: boolean
  /** The lowest level of the SDK's own log lines; none leaves it to the program's logger. */
  readonly logLevel: Option.Option<LogLevel.LogLevel>
  readonly featureGates: ReadonlyArray<string>
  /** For one attempt at an endpoint without a shorter time-out of its own. */
  readonly attemptTimeout: Duration.Duration
  /** None: the transport's own, `RetryPolicy.make()`. */
  readonly retryPolicy: Option.Option<RetryPolicy>
  /** How long a request waits while billing blocks the account; none leaves it to the server's flag. */
  readonly billingPause: Option.Option<Duration.Duration>
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
  readonly tags?: ReadonlyArray<string> | undefined
  readonly telemetry?: boolean | undefined
  readonly logLevel?: LogLevel.LogLevel | undefined
  readonly featureGates?: ReadonlyArray<string> | undefined
  /** `null`: no time-out. */
  readonly attemptTimeout?: Duration.DurationInput | null | undefined
  readonly retryPolicy?: RetryPolicy | undefined
  /** `null`: wait for ever. */
  readonly billingPause?: Duration.DurationInput | null | undefined
  readonly maxResponseBytes?: number | undefined
}

/**
 * @since 0.1.0
 * @category tags
 */
export class TinkerConfig extends Context.Tag("effect-tinker/TinkerConfig")<TinkerConfig, Service>() {}

/** The names a setting is reported under: an option of `layer` or a variable of the environment. */
const optionNames = { baseUrl: "baseUrl", apiKey: "apiKey", credentialCommand: "credentialCommand" }
const variableNames: typeof optionNames = {
  baseUrl: "TINKER_BASE_URL",
  apiKey: "TINKER_API_KEY",
  credentialCommand: "TINKER_CREDENTIAL_CMD",
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

const isToken = (name: string) => /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/.test(name)

const redactHeaders = (
  headers: Readonly<Record<string, string | Redacted.Redacted<string>>>,
): Either.Either<Record<string, Redacted.Redacted<string>>, InvalidConfig> => {
  const result: Record<string, Redacted.Redacted<string>> = {}
  for (const [name, value] of Object.entries(headers)) {
    const key = name.toLowerCase()
    const setting = `headers.${key}`
    if (!isToken(name)) return Either.left(new InvalidConfig({ setting, problem: "is not a header name" }))
    if (key === "x-api-key") {
      return Either.left(new InvalidConfig({ setting, problem: "is set from the credential; give it as apiKey" }))
    }
    const secret = Redacted.isRedacted(value) ? value : Redacted.make(value)
    if (/[^\t\x20-\x7e\x80-\xff]/.test(Redacted.value(secret))) {
      return Either.left(new InvalidConfig({ setting, problem: "holds a character that a header can't carry" }))
    }
    result[key] = secret
  }
  return Either.right(result)
}

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
    const given = Option.fromNullable(values.apiKey)
    const problem = Option.flatMap(given, problemWithCredential)
    if (Option.isSome(problem) && Option.isNone(credentialCommand)) {
      return yield* Either.left(new InvalidConfig({ setting: names.apiKey, problem: problem.value }))
    }
    const apiKey = Option.isSome(problem) ? Option.none() : given
    const credentialsFile = Option.fromNullable(values.credentialsFile)
    if (Option.isNone(apiKey) && Option.isNone(credentialCommand) && Option.isNone(credentialsFile)) {
      return yield* Either.left(
        new InvalidConfig({
          setting: names.apiKey,
          problem: `is not set, and neither is ${names.credentialCommand}; create a key in the Tinker console`,
        }),
      )
    }
    const headers = yield* redactHeaders(values.headers ?? {})
    if (values.cloudflareAccess !== undefined) {
      headers["cf-access-client-id"] ??= values.cloudflareAccess.clientId
      headers["cf-access-client-secret"] ??= values.cloudflareAccess.clientSecret
    }
    const attemptTimeout = yield* decodeDuration(
      "attemptTimeout",
      values.attemptTimeout === undefined ? "60 seconds" : values.attemptTimeout,
    )
    const billingPause =
      values.billingPause === undefined
        ? Option.none()
        : Option.some(yield* decodeDuration("billingPause", values.billingPause))
    const maxResponseBytes = values.maxResponseBytes ?? 256 * 1024 * 1024
    if (!Number.isSafeInteger(maxResponseBytes) || maxResponseBytes <= 0) {
      return yield* Either.left(
        new InvalidConfig({ setting: "maxResponseBytes", problem: "must be a positive integer" }),
      )
    }
    return {
      baseUrl,
      apiKey,
      credentialCommand,
      credentialsFile,
      headers,
      projectId: Option.fromNullable(values.projectId),
      tags: [...new Set(values.tags ?? [])],
      telemetry: values.telemetry ?? false,
      logLevel: Option.fromNullable(values.logLevel),
      featureGates: values.featureGates ?? [],
      attemptTimeout,
      retryPolicy: Option.fromNullable(values.retryPolicy),
      billingPause,
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

const parseLogLevel = (text: string | undefined): Either.Either<LogLevel.LogLevel | undefined, InvalidConfig> => {
  if (text === undefined) return Either.right(undefined)
  const level = logLevels[text.toLowerCase()]
  return level === undefined
    ? Either.left(
        new InvalidConfig({ setting: "TINKER_LOG", problem: `must be one of ${Object.keys(logLevels).join(", ")}` }),
      )
    : Either.right(level)
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
    const logLevel = yield* parseLogLevel(env.logLevel)
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
      telemetry: ["1", "true", "yes", "on"].includes((env.telemetry ?? "").toLowerCase()),
      logLevel,
      featureGates: list(env.featureGates),
    }
    const given = Object.entries(overrides).filter(([, value]) => value !== undefined)
    const names = {
      baseUrl: overrides.baseUrl === undefined ? variableNames.baseUrl : optionNames.baseUrl,
      apiKey: overrides.apiKey === undefined ? variableNames.apiKey : optionNames.apiKey,
      credentialCommand:
        overrides.credentialCommand === undefined ? variableNames.credentialCommand : optionNames.credentialCommand,
    }
    return yield* fromValues({ ...fromVariables, ...Object.fromEntries(given) }, names)
  })

/**
 * @since 0.1.0
 * @category layers
 */
export const layerConfig = (overrides: Values = {}): Layer.Layer<TinkerConfig, InvalidConfig> =>
  Layer.effect(TinkerConfig, fromEnvironment(overrides))
