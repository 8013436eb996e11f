import { describe, expect, it } from "@effect/vitest"
import { Config, ConfigProvider, Duration, Effect, Either, Inspectable, LogLevel, Option, Redacted } from "effect"
import { TinkerConfig, type TinkerError } from "effect-tinker"
import * as Recorded from "./support/Recorded.ts"

const apiKey = Redacted.make("tml-secret-key")

const environment = (variables: Record<string, string>, overrides?: TinkerConfig.Overrides) =>
  Effect.withConfigProvider(
    TinkerConfig.fromEnvironment(overrides),
    ConfigProvider.fromMap(new Map(Object.entries(variables))),
  )
const problem = (effect: Effect.Effect<unknown, TinkerError.InvalidConfig>) =>
  Effect.map(Effect.flip(effect), (error) => error.message)

describe("TinkerConfig", () => {
  it("TinkerConfig has a default for everything except the credential", () => {
    const config = Either.getOrThrow(TinkerConfig.make({ apiKey }))
    expect(config.baseUrl).toBe("https://tinker.thinkingmachines.dev/services/tinker-prod")
    expect(Duration.toSeconds(config.attemptTimeout)).toBe(60)
    expect(config.telemetry).toBe(false)
  })

  it("TinkerConfig rejects secrets of untyped programs that are not Redacted, without showing them", () => {
    const message = (values: object) =>
      Either.match(TinkerConfig.make(values), { onLeft: (error) => error.message, onRight: () => "" })
    expect(message({ apiKey: "tml-plain" })).toBe('apiKey: expected Redacted.make("…"), got a string')
    expect(message({ apiKey, credentialCommand: 42 })).toBe(
      'credentialCommand: expected Redacted.make("…"), got a number',
    )
    expect(message({ apiKey, cloudflareAccess: { clientId: "a", clientSecret: "b" } })).toBe(
      'cloudflareAccess.clientId: expected Redacted.make("…"), got a string',
    )
  })

  it.effect("TinkerConfig reads every environment variable of the reference SDK", () =>
    Effect.gen(function* () {
      const config = yield* environment({
        TINKER_API_KEY: "tml-secret-key",
        TINKER_BASE_URL: "HTTP://Localhost:8000/",
        TINKER_CREDENTIAL_CMD: "echo tml-other",
        TINKER_PROJECT_ID: "project",
        TINKER_TAGS: "a, b,,a",
        TINKER_TELEMETRY: "Yes",
        TINKER_LOG: "DEBUG",
        TINKER_FEATURE_GATES: "x,y",
        CLOUDFLARE_ACCESS_CLIENT_ID: "cf-id",
        CLOUDFLARE_ACCESS_CLIENT_SECRET: "cf-secret",
        HOME: "/home/me",
      })
      expect(config).toMatchObject({
        baseUrl: "http://localhost:8000",
        apiKey: Option.some(apiKey),
        credentialCommand: Option.some(Redacted.make("echo tml-other")),
        credentialsFile: Option.some("/home/me/.tinker/credentials.json"),
        projectId: Option.some("project"),
        tags: ["a", "b"],
        telemetry: true,
        logLevel: Option.some(LogLevel.Debug),
        featureGates: ["x", "y"],
        headers: {
          "cf-access-client-id": Redacted.make("cf-id"),
          "cf-access-client-secret": Redacted.make("cf-secret"),
        },
      })
    }),
  )

  it.effect("TinkerConfig treats an empty variable as unset and prefers an option to its variable", () =>
    Effect.gen(function* () {
      const config = yield* environment(
        { TINKER_API_KEY: "tml-a", TINKER_BASE_URL: "", TINKER_TAGS: "a" },
        { tags: ["b"] },
      )
      expect(config.baseUrl).toBe("https://tinker.thinkingmachines.dev/services/tinker-prod")
      expect(config.tags).toEqual(["b"])
    }),
  )

  it.effect.each(["vectors/api_key_validation.json", "vectors/api_key_missing.json"] as const)(
    "a missing or malformed API key is rejected as recorded: %s",
    (file) =>
      Effect.gen(function* () {
        const { request, result } = Recorded.vector(file)
        expect(request).toBeNull()
        expect(result).toMatchObject({ $error: "TinkerError" })
        const key = /api_key='(.*?)'/.exec(Recorded.vector(file).call.op)?.[1]
        expect(yield* problem(environment(key === undefined ? {} : { TINKER_API_KEY: key }))).toMatch(
          /^TINKER_API_KEY: /,
        )
      }),
  )

  it.effect("TinkerConfig errors name the variable and the problem, never the secret", () =>
    Effect.gen(function* () {
      expect(yield* problem(environment({ TINKER_API_KEY: "sk-123" }))).toBe(
        "TINKER_API_KEY: must start with 'tml-' (an API key) or 'eyJ' (a JWT)",
      )
      const split = yield* problem(environment({ TINKER_API_KEY: "tml-secret\nkey" }))
      expect(split).toBe("TINKER_API_KEY: contains whitespace or a non-ASCII character")
      expect(yield* problem(environment({ TINKER_API_KEY: "tml-a", TINKER_BASE_URL: "ftp://host" }))).toMatch(
        /^TINKER_BASE_URL: expected http: or https:, got ftp:/,
      )
      expect(yield* problem(environment({ TINKER_API_KEY: "tml-a", TINKER_LOG: "loud" }))).toMatch(
        /^TINKER_LOG: must be one of/,
      )
      expect(yield* problem(environment({ TINKER_API_KEY: "tml-a", CLOUDFLARE_ACCESS_CLIENT_ID: "id" }))).toMatch(
        /^CLOUDFLARE_ACCESS_CLIENT_SECRET: not set/,
      )
      // Names on Object.prototype are not log levels.
      expect(yield* problem(environment({ TINKER_API_KEY: "tml-a", TINKER_LOG: "constructor" }))).toMatch(/^TINKER_LOG/)
      expect(yield* problem(environment({ TINKER_API_KEY: "tml-a", TINKER_TELEMETRY: "ture" }))).toMatch(
        /^TINKER_TELEMETRY: must be one of/,
      )
      const cloudflare = { CLOUDFLARE_ACCESS_CLIENT_ID: "id", CLOUDFLARE_ACCESS_CLIENT_SECRET: "hunter2\n" }
      expect(yield* problem(environment({ TINKER_API_KEY: "tml-a", ...cloudflare }))).toBe(
        "CLOUDFLARE_ACCESS_CLIENT_SECRET: contains a character that is not allowed in a header",
      )
      expect(yield* problem(environment({}))).toMatch(
        /^TINKER_API_KEY: not set, and TINKER_CREDENTIAL_CMD is not set either/,
      )
    }),
  )

  it.effect("a credential command takes precedence over a malformed key", () =>
    Effect.gen(function* () {
      const config = yield* environment({ TINKER_API_KEY: "sk-123", TINKER_CREDENTIAL_CMD: "echo tml-a" })
      expect(config.apiKey).toEqual(Option.none())
    }),
  )

  it("TinkerConfig rejects values that could only fail later", () => {
    const message = (values: TinkerConfig.Values) =>
      Either.getOrThrow(Either.flip(TinkerConfig.make({ apiKey, ...values }))).message
    expect(message({ headers: { "X-API-Key": "tml-a" } })).toBe(
      "headers.X-API-Key: reserved for the credential; use apiKey instead",
    )
    expect(message({ headers: { "a b": "c" } })).toBe("headers.a b: not a valid header name")
    expect(message({ headers: { a: "b\r\nx-evil: 1" } })).toBe(
      "headers.a: contains a character that is not allowed in a header",
    )
    expect(message({ attemptTimeout: "-1 seconds" })).toBe("attemptTimeout: must be greater than zero")
    expect(message({ maxResponseBytes: 0.5 })).toBe("maxResponseBytes: must be a positive integer")
  })

  it.effect("a setting can be a Config, which reads other variables than the reference SDK's", () =>
    Effect.gen(function* () {
      const variables = { TINKER_API_KEY: "tml-a", TEAM_KEY: "tml-b", TEAM_TIMEOUT: "20 seconds" }
      const config = yield* environment(variables, {
        apiKey: Config.redacted("TEAM_KEY"),
        attemptTimeout: Config.duration("TEAM_TIMEOUT"),
        baseUrl: "http://localhost:8000",
      })
      expect(Option.map(config.apiKey, Redacted.value)).toEqual(Option.some("tml-b"))
      expect(Duration.toSeconds(config.attemptTimeout)).toBe(20)
      expect(config.baseUrl).toBe("http://localhost:8000")
    }),
  )

  it.effect("a Config without a value names the setting and the variable, and shows no secret", () =>
    Effect.gen(function* () {
      const error = yield* Effect.flip(environment({}, { apiKey: Config.redacted("TEAM_KEY") }))
      expect(error._tag).toBe("InvalidConfig")
      expect(error.message).toMatch(/^apiKey: TEAM_KEY: /)
      const secret = yield* Effect.flip(
        environment({ TEAM_KEY: "hunter2" }, { apiKey: Config.redacted("TEAM_KEY"), maxResponseBytes: 1 }),
      )
      expect(secret.message).toBe("apiKey: must start with 'tml-' (an API key) or 'eyJ' (a JWT)")
    }),
  )

  it("a null timeout means no timeout", () => {
    const config = Either.getOrThrow(TinkerConfig.make({ apiKey, attemptTimeout: null }))
    expect(Duration.isFinite(config.attemptTimeout)).toBe(false)
  })

  it("a printed TinkerConfig contains no secret", () => {
    const config = Either.getOrThrow(
      TinkerConfig.make({
        apiKey,
        credentialCommand: Redacted.make("print hunter2"),
        headers: { a: Redacted.make("hunter2") },
      }),
    )
    const printed = [String(config), JSON.stringify(config), Inspectable.format(config)].join()
    expect(printed).not.toMatch(/secret-key|hunter2/)
  })
})
