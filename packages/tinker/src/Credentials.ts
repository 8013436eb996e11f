/**
 * Supplies the token for requests: the configured credential, or a JWT obtained in exchange for it when the server
 * requires one.
 *
 * @since 0.1.0
 */
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import { Host } from "./http/Host.ts"
import * as Jwt from "./internal/request/Jwt.ts"
import { fromCallback, noop, type Stop } from "./internal/util/Callback.ts"
import { lazy } from "./internal/util/Lazy.ts"
import { timeOf, uptime } from "./internal/util/MonotonicClock.ts"
import { redactor } from "./internal/util/Redact.ts"
import { runToExit } from "./internal/util/RunBeside.ts"
import * as SingleFlight from "./internal/util/SingleFlight.ts"
import { problemWithCredential, TinkerConfig } from "./TinkerConfig.ts"
import { ClientClosed, InvalidConfig, type TinkerError, Unauthorized } from "./TinkerError.ts"

/**
 * The operations of `Credentials`.
 *
 * @since 0.1.0
 * @category models
 */
export interface Service {
  /** Returns the configured credential: the API key, the output of the command, or the stored key. */
  readonly credential: Effect.Effect<Redacted.Redacted<string>, TinkerError>
  /** Returns the token for an ordinary request. */
  readonly token: Effect.Effect<Redacted.Redacted<string>, TinkerError>
  /**
   * Passes the token to `onExit`, synchronously if the token is available. Otherwise obtains it concurrently with the
   * given fiber; the returned function cancels that.
   *
   * @internal
   */
  readonly obtain: (
    fiber: Fiber.RuntimeFiber<unknown, unknown>,
    onExit: (exit: Exit.Exit<Redacted.Redacted<string>, TinkerError>) => void,
  ) => Stop
  /**
   * Returns a replacement for a token that was refused with 401, using one forced exchange for all concurrent callers.
   * Returns none when there is nothing to exchange, or when the refused token came from a forced exchange moments ago.
   */
  readonly renew: (
    refused: Redacted.Redacted<string>,
  ) => Effect.Effect<Option.Option<Redacted.Redacted<string>>, TinkerError>
}

/**
 * The service tag of the credentials.
 *
 * @since 0.1.0
 * @category tags
 */
export class Credentials extends Context.Tag("effect-tinker/Credentials")<Credentials, Service>() {}

/**
 * The configured credential and how to obtain it.
 *
 * @since 0.1.0
 * @category models
 */
export interface Source {
  readonly credential: Effect.Effect<Redacted.Redacted<string>, TinkerError>
  /** The credential command alone, for servers that require it. */
  readonly command: Option.Option<Effect.Effect<Redacted.Redacted<string>, TinkerError>>
}

/**
 * The server operations that {@link make} needs. This module sends no requests itself.
 *
 * @since 0.1.0
 * @category models
 */
export interface Server {
  readonly flags: Effect.Effect<
    { readonly pjwtAuthEnabled: boolean; readonly credentialDefaultSource: string },
    TinkerError
  >
  readonly exchange: (credential: Redacted.Redacted<string>) => Effect.Effect<Redacted.Redacted<string>, TinkerError>
}

interface Issued {
  readonly token: Redacted.Redacted<string>
  /** From this time on, a request starts a renewal in the background and uses this token. */
  readonly renewAt: number
  /** From this time on, a request waits briefly for the renewal. */
  readonly staleAt: number
  /** From this time on, this token is a last resort. */
  readonly endsAt: number
}

/**
 * Plans the renewals of a token: in the background 300 s and awaited 60 s before it expires, but never before half or
 * three quarters of its lifetime (the reference renews tokens shorter than 300 s continuously). A token without an
 * expiry, or one that appears expired on arrival because clocks differ, is also used for a while: the server's 401
 * decides.
 */
const issue = (token: Redacted.Redacted<string>, wall: number, now: number): Issued => {
  const life = Option.match(expiry(token), { onNone: () => Infinity, onSome: (end) => end - wall })
  const floor = 5_000
  return {
    token,
    renewAt: now + Math.max(floor, life - Math.min(300_000, life / 2)),
    staleAt: now + Math.max(floor, life - Math.min(60_000, life / 4)),
    endsAt: now + Math.max(floor, life),
  }
}

const endOf = Jwt.claims(lazy(() => Schema.Struct({ exp: Schema.Number })))

/** Returns the `exp` claim in milliseconds. */
const expiry = (token: Redacted.Redacted<string>): Option.Option<number> =>
  Option.map(endOf(token), ({ exp }) => exp * 1000)

/** The format of `~/.tinker/credentials.json`, as written by `tinker auth login`. */
const CredentialsFile = lazy(() =>
  Schema.parseJson(
    Schema.Struct({
      default: Schema.String,
      keys: Schema.Record({ key: Schema.String, value: Schema.Struct({ key: Schema.Redacted(Schema.String) }) }),
    }),
  ),
)

/** Command output and file contents may contain secrets that can be recognized only by their format. */
const redact = redactor([])

/** The delay in milliseconds before a failed exchange is repeated while an older token is available. */
const pauseAfterFailure = 10_000
/** The minimum number of milliseconds between two exchanges forced by a 401. */
const pauseBetweenForced = 5_000
/** The number of milliseconds a request waits for a renewal while the older token is still valid. */
const patience = 5_000

/**
 * Determines the configured credential: the API key, else the output of the command, else the stored key. Validates
 * everything that can be validated without running a command.
 *
 * @since 0.1.0
 * @category constructors
 */
export const source: Effect.Effect<Source, InvalidConfig | Unauthorized, TinkerConfig> = Effect.gen(function* () {
  const config = yield* TinkerConfig
  const host = yield* Host

  const usable = (setting: string, credential: Redacted.Redacted<string>) =>
    Option.match(problemWithCredential(credential), {
      onNone: () => Effect.succeed(credential),
      onSome: (problem) => Effect.fail(new InvalidConfig({ setting, problem })),
    })

  const runCommand = (command: Redacted.Redacted<string>) =>
    host.runCommand(command).pipe(
      Effect.mapError(
        (problem) =>
          new Unauthorized({ operation: "credential command", reason: "CredentialCommand", detail: redact(problem) }),
      ),
      Effect.flatMap((output) => usable("TINKER_CREDENTIAL_CMD (its output)", output)),
    )

  const readStored = (path: string) =>
    Effect.gen(function* () {
      const text = yield* Effect.mapError(
        host.readFile(path),
        (problem) =>
          new Unauthorized({ operation: "credentials file", reason: "CredentialFile", detail: redact(problem) }),
      )
      if (Option.isNone(text)) {
        return yield* new InvalidConfig({
          setting: "TINKER_API_KEY",
          problem: `not set, TINKER_CREDENTIAL_CMD is not set either, and ${path} does not exist; create a key in the Tinker console or store one with \`tinker auth login\``,
        })
      }
      const file = yield* Effect.mapError(
        Schema.decodeUnknown(CredentialsFile)(text.value),
        // A parse error would quote the file, including its keys.
        () => new InvalidConfig({ setting: path, problem: "not a valid credentials file" }),
      )
      const stored = file.keys[file.default]
      if (stored === undefined) {
        return yield* new InvalidConfig({ setting: path, problem: "no key for the default id" })
      }
      return yield* usable(path, stored.key)
    })

  const command = Option.map(config.credentialCommand, runCommand)
  if (Option.isSome(config.apiKey)) return { credential: Effect.succeed(config.apiKey.value), command }
  if (Option.isSome(command)) return { credential: command.value, command }
  // `TinkerConfig` guarantees at least one of the three. A missing file fails here, during construction.
  const path = Option.getOrElse(config.credentialsFile, () => "")
  return { credential: Effect.succeed(yield* readStored(path)), command }
})

/**
 * Creates the service, which renews tokens in the background within the current scope.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (source: Source, server: Server): Effect.Effect<Service, never, TinkerConfig | Scope.Scope> =>
  Effect.gen(function* () {
    const config = yield* TinkerConfig
    const scope = yield* Effect.scope
    const { credential } = source

    /** Returns the credential to exchange. The server can require the command. */
    const exchangeable = (wanted: string): Effect.Effect<Redacted.Redacted<string>, TinkerError> => {
      const isJwt = Option.exists(config.apiKey, (key) => Redacted.value(key).startsWith("eyJ"))
      if (wanted !== "credential_cmd" || isJwt) return credential
      return Option.match(source.command, {
        onSome: (command) => command,
        onNone: () =>
          Effect.fail(
            new InvalidConfig({
              setting: "TINKER_CREDENTIAL_CMD",
              problem: "not set, but this server accepts credentials only from a command",
            }),
          ),
      })
    }

    let issued: Issued | undefined
    let notBefore = -Infinity
    let forcedAt = -Infinity

    const exchange = SingleFlight.make(
      Effect.gen(function* () {
        const flags = yield* server.flags
        const token = yield* server.exchange(yield* exchangeable(flags.credentialDefaultSource))
        issued = issue(token, yield* Clock.currentTimeMillis, yield* uptime)
        return token
      }).pipe(
        Effect.tapError(() =>
          Effect.map(uptime, (now) => {
            notBefore = now + pauseAfterFailure
          }),
        ),
      ),
      scope,
      () => new ClientClosed({ operation: "auth/token" }),
    )

    const jwt = Effect.flatMap(uptime, (now) => {
      if (issued === undefined) return exchange.run
      const { endsAt, renewAt, staleAt, token } = issued
      if (now < renewAt || (now < notBefore && !exchange.isRunning())) return Effect.succeed(token)
      // A failed exchange does not fail the request while an older token is available.
      const renewed = Effect.orElseSucceed(exchange.run, () => token)
      if (now >= endsAt) return renewed
      // A slow exchange delays the request only briefly, and never past the token's expiry.
      if (now >= staleAt) {
        return Effect.map(
          Effect.timeoutOption(renewed, Math.min(patience, endsAt - now)),
          Option.getOrElse(() => token),
        )
      }
      return exchange.isRunning() ? Effect.succeed(token) : Effect.as(Effect.forkIn(renewed, scope), token)
    })

    /** A credential that the server accepts directly. It remains valid because the flags are read only once. */
    let lasting: Redacted.Redacted<string> | undefined

    const slowly: Effect.Effect<Redacted.Redacted<string>, TinkerError> = Effect.flatMap(server.flags, (flags) => {
      if (flags.pjwtAuthEnabled) return jwt
      if (Option.isNone(config.apiKey) && Option.isSome(config.credentialCommand)) {
        return Effect.fail(
          new InvalidConfig({
            setting: "TINKER_API_KEY",
            problem: "not set; a credential command is not sufficient for a server that does not issue JWTs",
          }),
        )
      }
      return Effect.map(credential, (credential) => (lasting = credential))
    })

    const obtain: Service["obtain"] = (fiber, onExit) => {
      if (lasting !== undefined) {
        onExit(Exit.succeed(lasting))
        return noop
      }
      if (issued !== undefined && timeOf(fiber).uptime() < issued.renewAt) {
        onExit(Exit.succeed(issued.token))
        return noop
      }
      return runToExit(fiber, slowly, onExit)
    }
    const token: Service["token"] = Effect.withFiberRuntime((fiber) => fromCallback((onExit) => obtain(fiber, onExit)))

    const renew = (refused: Redacted.Redacted<string>): ReturnType<Service["renew"]> =>
      Effect.flatMap(uptime, (now) => {
        if (issued === undefined) return Effect.succeedNone
        if (Redacted.value(issued.token) !== Redacted.value(refused)) return Effect.succeedSome(issued.token)
        // Requests that were refused at the same time share one exchange. The pause starts when it ends.
        if (exchange.isRunning()) return Effect.asSome(exchange.run)
        if (now - forcedAt < pauseBetweenForced) return Effect.succeedNone
        return Effect.asSome(
          Effect.ensuring(
            exchange.run,
            Effect.map(uptime, (end) => {
              forcedAt = end
            }),
          ),
        )
      })

    return { credential, token, obtain, renew }
  })
