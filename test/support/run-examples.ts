/**
 * Runs the examples whose files are given, one after the other, with a local server whose address is in the environment.
 * Prints the output of each as JSON.
 */
import { pathToFileURL } from "node:url"
import { format } from "node:util"
import { EngineHost, NodeTinkerServer, TinkerServer } from "@effect-tinker/server"
import { Effect } from "effect"

export interface Ran {
  readonly file: string
  readonly output: ReadonlyArray<string>
  readonly error?: string
}

/** Effect's logger prints to the console as well; log messages are not output of an example. */
const isLog = (line: string) => line.startsWith("timestamp=")

const run = (file: string): Effect.Effect<Ran> =>
  Effect.acquireUseRelease(
    Effect.sync(() => {
      const { log } = console
      const lines: Array<string> = []
      console.log = (...values) => void lines.push(format(...values))
      return { lines, log }
    }),
    ({ lines }) =>
      Effect.tryPromise(() => import(pathToFileURL(file).href)).pipe(
        Effect.as({}),
        Effect.catchAll(({ error }) => Effect.succeed({ error: String(error) })),
        Effect.map((ended) => ({
          file,
          output: lines.filter((line) => !isLog(line)).flatMap((line) => line.split("\n")),
          ...ended,
        })),
      ),
    ({ log }) => Effect.sync(() => void (console.log = log)),
  )

const ran = await Effect.gen(function* () {
  const server = yield* TinkerServer.make()
  const { url } = yield* NodeTinkerServer.listen(server, { port: 0 })
  Object.assign(process.env, { TINKER_BASE_URL: url, TINKER_API_KEY: "tml-example" })
  return yield* Effect.forEach(process.argv.slice(2), run)
}).pipe(Effect.scoped, Effect.provide(EngineHost.layer()), Effect.runPromise)

process.stdout.write(JSON.stringify(ran), () => process.exit(0))
