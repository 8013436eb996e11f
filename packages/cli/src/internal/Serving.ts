/** Runs the local server with the installed packages. See `../commands/Serve.ts`. */
import * as EngineHost from "@effect-tinker/server/EngineHost"
import { ModelHost } from "@effect-tinker/server/ModelHost"
import * as NodeTinkerServer from "@effect-tinker/server/NodeTinkerServer"
import * as TinkerServer from "@effect-tinker/server/TinkerServer"
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { randomBytes } from "node:crypto"

export interface Model {
  readonly name: string
  readonly directory: string
}

export interface Options {
  readonly host: string | undefined
  readonly port: number | undefined
  readonly apiKeys: ReadonlyArray<string>
  readonly allowedHosts: ReadonlyArray<string>
  readonly corsOrigins: ReadonlyArray<string>
  readonly dataDirectory: string | undefined
  readonly models: ReadonlyArray<Model>
  readonly jwt: boolean
  readonly sessionTimeout: number | undefined
}

/** Generates a key for a server that other machines can reach. It is printed because it appears nowhere else. */
const keysOf = ({ apiKeys, host }: Options, print: (line: string) => void) => {
  if (apiKeys.length > 0 || host === undefined || NodeTinkerServer.isLoopback(host))
    return apiKeys.map((key) => Redacted.make(key))
  const key = `tml-${randomBytes(24).toString("base64url")}`
  print(`API key: ${key}`)
  return [Redacted.make(key)]
}

/** Serves until the signal; returns why it could not, if so. */
export const serve = async (
  options: Options,
  print: (line: string) => void,
  signal: AbortSignal,
): Promise<string | undefined> => {
  const host = EngineHost.layer(options.models.length === 0 ? undefined : options.models)
  const server = TinkerServer.layer({
    apiKeys: keysOf(options, print),
    dataDirectory: options.dataDirectory,
    jwt: options.jwt ? "1 hour" : undefined,
    sessionTimeout: options.sessionTimeout === undefined ? undefined : `${options.sessionTimeout} seconds`,
  }).pipe(Layer.provideMerge(host))
  const program = Effect.gen(function* () {
    const { models } = yield* ModelHost
    const { url } = yield* NodeTinkerServer.listen(yield* TinkerServer.TinkerServer, {
      host: options.host,
      port: options.port,
      allowedHosts: options.allowedHosts,
      corsOrigins: options.corsOrigins,
    })
    print(`models: ${models.map(({ name }) => name).join(", ")}`)
    print(`listening on ${url}`)
    yield* Effect.never
  }).pipe(Effect.scoped, Effect.provide(server))
  const exit = await Effect.runPromiseExit(program, { signal })
  if (Exit.isSuccess(exit) || Cause.isInterruptedOnly(exit.cause)) return undefined
  const error = Cause.squash(exit.cause)
  return error instanceof Error ? error.message : String(error)
}
