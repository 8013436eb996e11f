/**
 * Implements `tinkerfx serve`, which runs a Tinker server on this machine.
 *
 * @since 0.1.0
 */
import type { EngineBackend } from "@effect-tinker/server"
import * as EngineHost from "@effect-tinker/server/EngineHost"
import type { FileError } from "@effect-tinker/server/CheckpointFiles"
import type { HostError } from "@effect-tinker/server/ModelHost"
import * as NodeTinkerServer from "@effect-tinker/server/NodeTinkerServer"
import type { StoreError } from "@effect-tinker/server/Store"
import * as TinkerServer from "@effect-tinker/server/TinkerServer"
import * as Console from "effect/Console"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { randomBytes } from "node:crypto"
import { existsSync } from "node:fs"
import { resolve } from "node:path"
import * as Arguments from "./Arguments.ts"

/**
 * The help text of `tinkerfx serve`.
 *
 * @since 0.1.0
 * @category help
 */
export const help: string = `Usage: tinkerfx serve [options]

Serves the Tinker API on this machine, with a small real model that trains and samples on the CPU.
To use it, point any Tinker client at it: TINKER_BASE_URL=http://127.0.0.1:8000 TINKER_API_KEY=tml-anything

Options:
  --host HOST        address to listen on (default: 127.0.0.1, reachable only from this machine). For any other
                     address, clients need a key: a new one is generated and printed unless --api-key is given
  --port PORT        port to listen on (default: 8000); 0 picks a free port
  --api-key KEY      accept this API key; repeatable. Each key sees only its own data.
                     Default: any key is accepted on a loopback address
  --allowed-host NAME
                     host name under which clients reach the server; repeatable. Addresses, localhost and the name
                     of this machine are always accepted
  --cors-origin ORIGIN
                     let web pages of this origin, e.g. http://localhost:3000, use the server; repeatable
  --data-dir DIR     store runs, checkpoints and unfinished work in DIR, and resume from it after a restart.
                     Default: everything is lost when the process exits
  --model NAME=DIR   serve the model in DIR (config.json, *.safetensors, tokenizer.json) under NAME; repeatable.
                     Default: the model that ships with the engine
  --jwt              make clients exchange their key for a token that is valid for one hour
  --session-timeout SECONDS
                     expire sessions after this long without a heartbeat (default: 300)
  -h, --help         show this help

Prints "listening on http://HOST:PORT" when it is ready. SIGINT and SIGTERM shut it down cleanly.`

const modelOf = (text: string): Effect.Effect<EngineBackend.ModelSource, Arguments.UsageError> => {
  const at = text.indexOf("=")
  const name = text.slice(0, at)
  const directory = text.slice(at + 1)
  if (at < 1 || directory === "")
    return new Arguments.UsageError({ message: `--model: expected NAME=DIR, got "${text}"` })
  return existsSync(resolve(directory, "config.json"))
    ? Effect.succeed({ name, directory: resolve(directory) })
    : new Arguments.UsageError({ message: `--model: no config.json found in ${directory}` })
}

const keyOf = (text: string): Effect.Effect<Redacted.Redacted<string>, Arguments.UsageError> =>
  text.startsWith("tml-") && text.length > 4
    ? Effect.succeed(Redacted.make(text))
    : new Arguments.UsageError({ message: `--api-key: a key must start with "tml-", otherwise clients do not send it` })

/** Generates a key for a server that other machines can reach. */
const newKey = Effect.sync(() => Redacted.make(`tml-${randomBytes(24).toString("base64url")}`))

/** Returns the accepted keys; prints the key if it was generated, because it appears nowhere else. */
const keysOf = (flags: Arguments.Flags, host: string | undefined) =>
  Effect.gen(function* () {
    const given = yield* Effect.forEach(Arguments.texts(flags, "api-key"), keyOf)
    if (given.length > 0 || host === undefined || NodeTinkerServer.isLoopback(host)) return given
    const key = yield* newKey
    yield* Console.log(`API key: ${Redacted.value(key)}`)
    return [key]
  })

const originOf = (text: string): Effect.Effect<string, Arguments.UsageError> =>
  URL.canParse(text) && new URL(text).origin === text
    ? Effect.succeed(text)
    : new Arguments.UsageError({
        message: `--cors-origin: expected an origin such as http://localhost:3000, got "${text}"`,
      })

/**
 * Serves until interrupted. With a data directory, unfinished work continues at the next start.
 *
 * @since 0.1.0
 * @category commands
 */
export const run = (
  args: ReadonlyArray<string>,
): Effect.Effect<void, Arguments.UsageError | NodeTinkerServer.ListenError | StoreError | FileError | HostError> =>
  Effect.gen(function* () {
    const flags = yield* Arguments.parse(args, {
      host: { type: "string" },
      port: { type: "string" },
      "api-key": { type: "string", multiple: true },
      "allowed-host": { type: "string", multiple: true },
      "cors-origin": { type: "string", multiple: true },
      "data-dir": { type: "string" },
      model: { type: "string", multiple: true },
      jwt: { type: "boolean" },
      "session-timeout": { type: "string" },
      help: { type: "boolean", short: "h" },
    })
    if (flags["help"] !== undefined) return yield* Console.log(help)
    const port = yield* Arguments.integer(flags, "port", { from: 0, to: 65_535 })
    const timeout = yield* Arguments.integer(flags, "session-timeout", { from: 20, to: 31_536_000 })
    const models = yield* Effect.forEach(Arguments.texts(flags, "model"), modelOf)
    const directory = Arguments.text(flags, "data-dir")
    const host = Arguments.text(flags, "host")
    const corsOrigins = yield* Effect.forEach(Arguments.texts(flags, "cors-origin"), originOf)
    const server = TinkerServer.layer({
      apiKeys: yield* keysOf(flags, host),
      dataDirectory: directory === undefined ? undefined : resolve(directory),
      jwt: flags["jwt"] === undefined ? undefined : "1 hour",
      sessionTimeout: timeout === undefined ? undefined : `${timeout} seconds`,
    }).pipe(Layer.provide(EngineHost.layer(models.length === 0 ? undefined : models)))
    yield* Effect.gen(function* () {
      const { url } = yield* NodeTinkerServer.listen(yield* TinkerServer.TinkerServer, {
        host,
        port,
        allowedHosts: Arguments.texts(flags, "allowed-host"),
        corsOrigins,
      })
      yield* Console.log(`listening on ${url}`)
      yield* Effect.never
    }).pipe(Effect.scoped, Effect.provide(server))
  })
