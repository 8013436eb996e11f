/** Implements `tinkerfx serve`. */
import * as EngineHost from "@effect-tinker/server/EngineHost"
import { ModelHost } from "@effect-tinker/server/ModelHost"
import * as NodeTinkerServer from "@effect-tinker/server/NodeTinkerServer"
import * as TinkerServer from "@effect-tinker/server/TinkerServer"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { randomBytes } from "node:crypto"
import { readFile } from "node:fs/promises"
import { resolve } from "node:path"
import type { Handler } from "../internal/Commands.ts"
import { Failure, UsageError } from "../internal/Failure.ts"
import * as LocalModel from "../internal/LocalModel.ts"
import { Shell } from "../internal/Shell.ts"

const usageError = (message: string) => new UsageError({ message: `Invalid value for ${message}` })

const integer = (
  name: string,
  text: string | undefined,
  { from, to }: { readonly from: number; readonly to: number },
): Effect.Effect<number | undefined, UsageError> => {
  if (text === undefined) return Effect.succeed(undefined)
  const number = Number(text)
  return Number.isInteger(number) && number >= from && number <= to && text.trim() !== ""
    ? Effect.succeed(number)
    : usageError(`'--${name}': expected an integer from ${from} to ${to}, got "${text}"`)
}

const keyOf =
  (option: string) =>
  (text: string): Effect.Effect<string, UsageError> =>
    text.startsWith("tml-") && text.length > 4
      ? Effect.succeed(text)
      : usageError(`'--${option}': a key must start with "tml-", otherwise clients do not send it`)

const keysIn =
  (directory: string) =>
  (file: string): Effect.Effect<ReadonlyArray<string>, Failure | UsageError> =>
    Effect.tryPromise({
      try: () => readFile(resolve(directory, file), "utf8"),
      catch: (cause) =>
        new Failure({
          message: `Cannot read ${file}: ${cause instanceof Error ? cause.message : String(cause)}`,
          hint: "--api-key-file takes a file with one key per line.",
          cause,
        }),
    }).pipe(
      Effect.map((text) =>
        text
          .split("\n")
          .map((line) => line.trim())
          .filter((line) => line !== ""),
      ),
      Effect.flatMap(Effect.forEach(keyOf("api-key-file"))),
    )

const originOf = (text: string): Effect.Effect<string, UsageError> =>
  URL.canParse(text) && new URL(text).origin === text
    ? Effect.succeed(text)
    : usageError(`'--cors-origin': expected an origin such as http://localhost:3000, got "${text}"`)

/** Generates a key for a server that other machines can reach. It is printed because it appears nowhere else. */
const keysOf = (given: ReadonlyArray<string>, host: string | undefined) =>
  Effect.gen(function* () {
    if (given.length > 0 || host === undefined || NodeTinkerServer.isLoopback(host)) return given
    const { out } = yield* Shell
    const key = `tml-${randomBytes(24).toString("base64url")}`
    yield* out(`API key: ${key}\n`)
    return [key]
  })

/** Serves until interrupted. With a data directory, unfinished work continues at the next start. */
export const serve: Handler<{
  readonly host: string | undefined
  readonly port: string | undefined
  readonly apiKey: ReadonlyArray<string>
  readonly apiKeyFile: ReadonlyArray<string>
  readonly allowedHost: ReadonlyArray<string>
  readonly corsOrigin: ReadonlyArray<string>
  readonly dataDir: string | undefined
  readonly model: ReadonlyArray<string>
  readonly jwt: boolean
  readonly sessionTimeout: string | undefined
}> = (input) =>
  Effect.gen(function* () {
    const { directory, out } = yield* Shell
    const port = yield* integer("port", input.port, { from: 0, to: 65_535 })
    const sessionTimeout = yield* integer("session-timeout", input.sessionTimeout, { from: 20, to: 31_536_000 })
    const sources = yield* Effect.forEach(input.model, LocalModel.parse("model", directory))
    const given = [
      ...(yield* Effect.forEach(input.apiKey, keyOf("api-key"))),
      ...(yield* Effect.forEach(input.apiKeyFile, keysIn(directory))).flat(),
    ]
    const corsOrigins = yield* Effect.forEach(input.corsOrigin, originOf)
    const server = TinkerServer.layer({
      apiKeys: (yield* keysOf(given, input.host)).map((key) => Redacted.make(key)),
      dataDirectory: input.dataDir === undefined ? undefined : resolve(directory, input.dataDir),
      jwt: input.jwt ? "1 hour" : undefined,
      sessionTimeout: sessionTimeout === undefined ? undefined : `${sessionTimeout} seconds`,
    }).pipe(Layer.provideMerge(EngineHost.layer(sources.length === 0 ? undefined : sources)))
    yield* Effect.gen(function* () {
      const { models } = yield* ModelHost
      const { host, allowedHost: allowedHosts } = input
      const running = yield* TinkerServer.TinkerServer
      const { url } = yield* NodeTinkerServer.listen(running, { host, port, allowedHosts, corsOrigins })
      yield* out(`models: ${models.map(({ name }) => name).join(", ")}\nlistening on ${url}\n`)
      yield* Effect.never
    }).pipe(
      Effect.scoped,
      Effect.provide(server),
      Effect.mapError((cause) => new Failure({ message: cause.message, cause })),
    )
  })
