/** Serves the Tinker API for one client of the lab and prints its port. Settings are the first argument, as JSON. */
import { EngineHost, NodeTinkerServer, TinkerServer } from "@effect-tinker/server"
import { NodeRuntime } from "@effect/platform-node"
import { Console, Effect, Layer, Logger, Redacted } from "effect"
import { keyVariable, modelName, type ServerSettings } from "./Settings.ts"

const { dataDirectory, jwt, model, parallel, snapshotEvery }: ServerSettings = JSON.parse(process.argv[2] ?? "{}")

const server = TinkerServer.layer({
  apiKeys: (process.env[keyVariable] ?? "").split(",").map((key) => Redacted.make(key)),
  dataDirectory,
  jwt: jwt ? "1 hour" : undefined,
  snapshotEvery,
  flags: {
    // Three examples become three requests.
    fwdbwd_max_chunk_len: 1,
    parallel_fwdbwd_chunks: parallel,
  },
}).pipe(Layer.provide(EngineHost.layer([{ name: modelName, directory: model }])))

const serve = Effect.gen(function* () {
  const { port } = yield* NodeTinkerServer.listen(yield* TinkerServer.TinkerServer, {
    port: 0,
    closeGrace: "1 second",
    // Every awaited result holds a connection: a thousand tenants with four each need more than the default.
    maxConnections: 16_384,
  })
  yield* Console.log(String(port))
  return yield* Effect.never
})

// The first line of the output is the port.
const logs = Logger.replace(Logger.defaultLogger, Logger.withConsoleError(Logger.logfmtLogger))

serve.pipe(
  Effect.scoped,
  Effect.provide(Layer.provideMerge(server, logs)),
  NodeRuntime.runMain({ disablePrettyLogger: true }),
)
