/**
 * `tinkerfx serve`: a Tinker server on this machine.
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
import { existsSync } from "node:fs"
import { resolve } from "node:path"
import * as Arguments from "./Arguments.ts"

/**
 * @since 0.1.0
 * @category help
 */
export const help: string = `Usage: tinkerfx serve [options]

Serves the Tinker API on this machine, with a small real model that trains and samples on the CPU.
Point any Tinker client at it: TINKER_BASE_URL=http://127.0.0.1:8000 TINKER_API_KEY=tml-anything

Options:
  --host HOST        the address to listen on (127.0.0.1: only this machine can reach it)
  --port PORT        the port (8000); 0 takes a free one and prints it
  --api-key KEY      only this key opens the door, any other gets 401; may stand there more than once.
                     One key never sees what another made. Without any, every key is welcome
  --data-dir DIR     keep runs, checkpoints and unfinished work here, and go on with them after a restart.
                     Without it everything ends with the process
  --model NAME=DIR   serve the model in DIR (config.json, *.safetensors, tokenizer.json) under NAME; may stand
                     there more than once. Without any, the model that comes with the engine is served
  --jwt              have clients exchange their key for a token that lives an hour
  --session-timeout SECONDS
                     a session without a heartbeat for so long is over (300)
  -h, --help         this text

When it is ready it prints "listening on http://HOST:PORT". SIGINT and SIGTERM end it cleanly.`

const modelOf = (text: string): Effect.Effect<EngineBackend.ModelSource, Arguments.UsageError> => {
  const at = text.indexOf("=")
  const name = text.slice(0, at)
  const directory = text.slice(at + 1)
  if (at < 1 || directory === "")
    return new Arguments.UsageError({ message: `--model: expected NAME=DIR, got "${text}"` })
  return existsSync(resolve(directory, "config.json"))
    ? Effect.succeed({ name, directory: resolve(directory) })
    : new Arguments.UsageError({ message: `--model: there is no config.json in ${directory}` })
}

const keyOf = (text: string): Effect.Effect<Redacted.Redacted<string>, Arguments.UsageError> =>
  text.startsWith("tml-") && text.length > 4
    ? Effect.succeed(Redacted.make(text))
    : new Arguments.UsageError({ message: `--api-key: a key begins with "tml-", or clients will not send it` })

/**
 * Serves until it is interrupted. The work of an interrupted server is in the data directory, if there is one.
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
    const server = TinkerServer.layer({
      apiKeys: yield* Effect.forEach(Arguments.texts(flags, "api-key"), keyOf),
      dataDirectory: directory === undefined ? undefined : resolve(directory),
      jwt: flags["jwt"] === undefined ? undefined : "1 hour",
      sessionTimeout: timeout === undefined ? undefined : `${timeout} seconds`,
    }).pipe(Layer.provide(EngineHost.layer(models.length === 0 ? undefined : models)))
    yield* Effect.gen(function* () {
      const { url } = yield* NodeTinkerServer.listen(yield* TinkerServer.TinkerServer, {
        host: Arguments.text(flags, "host"),
        port,
      })
      yield* Console.log(`listening on ${url}`)
      yield* Effect.never
    }).pipe(Effect.scoped, Effect.provide(server))
  })
