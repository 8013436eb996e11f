import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { describe, expect, it } from "@effect/vitest"
import { NodeTinker } from "@effect-tinker/node"
import { Effect, Redacted, Scope } from "effect"
import { Loss, Optimizer, ServiceClient } from "effect-tinker"
import * as Command from "./support/Command.ts"
import * as Process from "./support/Process.ts"

const directory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "tinkerfx-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true })),
)

const clients = (url: string, key = "tml-test") => NodeTinker.layer({ baseUrl: url, apiKey: Redacted.make(key) })

const baseModel = "effect-tinker/valley-1.5m"
const adam = Optimizer.adam({ learningRate: 5e-3 })
const data = Array.from({ length: 4 }, (_, i) => ({
  modelInput: [10, 20 + i, 30 + i],
  inputs: { targetTokens: [20 + i, 30 + i, 40 + i], weights: [1, 1, 1] },
}))

/** Trains and returns the losses; `between` runs between the submission of a step and its results. */
const train = (steps: number, between: (step: number) => Effect.Effect<void, Process.NotServed>) =>
  Effect.gen(function* () {
    const service = yield* ServiceClient.ServiceClient
    const training = yield* service.createLoraTrainingClient({ baseModel, rank: 4, seed: 11 })
    const losses: Array<number | undefined> = []
    for (let step = 0; step < steps; step++) {
      const pass = yield* training.submit.forwardBackward(data, Loss.crossEntropy)
      const update = yield* training.submit.optimStep(adam)
      yield* between(step)
      losses.push((yield* pass.await).metrics["loss:sum"])
      yield* update.await
    }
    return losses
  }).pipe(Effect.scoped)

/** Runs the command and returns its exit code and output. */
const runMain = (...args: ReadonlyArray<string>) =>
  Effect.map(
    Effect.flatMap(Command.directory, (directory) => Command.run(args, { directory })),
    ({ exitCode, stderr, stdout }) => [exitCode, stdout + stderr] as const,
  )

/** How many steps there are, and after which of them the server is killed: more than once for `test:all`. */
const [steps, kills] = process.env["TINKER_TESTS"] === "all" ? [9, [3, 6]] : [5, [2]]

describe("tinkerfx serve", () => {
  it.live(
    "tinkerfx serve beyond loopback prints a new key and accepts no other",
    () =>
      Effect.gen(function* () {
        const server = yield* Process.serve("--port", "0", "--host", "0.0.0.0")
        const key = /^API key: (tml-[\w-]{32})$/.exec(server.lines()[0] ?? "")?.[1] ?? ""
        const status = (key: string) =>
          Effect.promise(async () => {
            const headers = { "x-api-key": key }
            return (await fetch(`http://127.0.0.1:${server.port}/api/v1/sessions`, { headers })).status
          })
        expect([yield* status(key), yield* status("tml-other")]).toEqual([200, 401])
        const again = yield* Process.serve("--port", "0", "--host", "0.0.0.0", "--api-key", "tml-mine")
        expect(again.lines().join()).not.toContain("API key")
      }).pipe(Effect.scoped),
    60_000,
  )

  it.live(
    "tinkerfx serve prints its URL, serves training, and exits with 0 on SIGTERM",
    () =>
      Effect.gen(function* () {
        const server = yield* Process.serve("--port", "0", "--api-key", "tml-test")
        expect(server.lines()).toContain("models: effect-tinker/valley-1.5m, effect-tinker/valley-tools-1.5m")
        expect(server.url).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/)
        const losses = yield* Effect.provide(
          train(6, () => Effect.void),
          clients(server.url),
        )
        expect(losses.at(-1)).toBeLessThan(losses[0] ?? 0)
        const stranger = yield* Effect.flip(
          Effect.provide(
            train(1, () => Effect.void),
            clients(server.url, "tml-stranger"),
          ),
        )
        expect(stranger).toMatchObject({ _tag: "Unauthorized" })
        expect(yield* server.end("SIGTERM")).toBe(0)
      }).pipe(Effect.scoped),
    300_000,
  )

  it.live(
    "training continues with identical losses after tinkerfx serve was killed and restarted",
    () =>
      Effect.gen(function* () {
        const quiet = yield* Process.serve("--port", "0")
        const expected = yield* Effect.provide(
          train(steps, () => Effect.void),
          clients(quiet.url),
        )
        yield* quiet.end("SIGINT")

        const path = yield* directory
        let server = yield* Process.serve("--port", "0", "--data-dir", path)
        const { port, url } = server
        // Runs while both requests of the step are acknowledged and in progress.
        const kill = Effect.gen(function* () {
          expect(yield* server.end("SIGKILL")).toBe("SIGKILL")
          server = yield* Process.serve("--port", String(port), "--data-dir", path)
        })
        const scope = yield* Effect.scope
        const losses = yield* Effect.provide(
          train(steps, (step) =>
            kills.includes(step) ? Effect.provideService(kill, Scope.Scope, scope) : Effect.void,
          ),
          clients(url),
        )
        expect(losses).toEqual(expected)
        expect(yield* server.end("SIGINT")).toBe(0)
      }).pipe(Effect.scoped),
    300_000,
  )

  it.live("tinkerfx serve ends with exit code 1 and a reason if it cannot use its data directory", () =>
    Effect.gen(function* () {
      const file = join(yield* directory, "file")
      writeFileSync(file, "")
      expect(yield* runMain("serve", "--data-dir", file)).toEqual([
        1,
        `Error: the store could not create its directory: ${file} is not a directory; use a directory that can be written\n`,
      ])
    }).pipe(Effect.scoped),
  )

  it.live("tinkerfx serve accepts the keys in a file, which no list of processes shows", () =>
    Effect.gen(function* () {
      const file = join(yield* directory, "keys")
      writeFileSync(file, "tml-first\n\ntml-second\n")
      const server = yield* Process.serve("--port", "0", "--api-key-file", file)
      const status = (key: string) =>
        Effect.promise(
          async () => (await fetch(`${server.url}/api/v1/sessions`, { headers: { "x-api-key": key } })).status,
        )
      expect([yield* status("tml-first"), yield* status("tml-second"), yield* status("tml-x")]).toEqual([200, 200, 401])
    }).pipe(Effect.scoped),
  )

  it.live("tinkerfx serve prints help and reports invalid arguments with exit code 2", () =>
    Effect.gen(function* () {
      expect(yield* runMain("serve", "--help")).toEqual([0, expect.stringContaining("--data-dir TEXT")])
      expect(yield* runMain("serve", "--port", "70000")).toEqual([2, expect.stringContaining("from 0 to 65535")])
      expect(yield* runMain("serve", "--prot", "1")).toEqual([2, expect.stringContaining("--prot")])
      expect(yield* runMain("serve", "--model", "x=nowhere")).toEqual([2, expect.stringContaining("no config.json")])
      const [code, text] = yield* runMain("serve", "--api-key", "hidden")
      expect([code, text.includes("hidden")]).toEqual([2, false])
    }).pipe(Effect.scoped),
  )
})
