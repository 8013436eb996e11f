// Kills the server repeatedly while it writes a checkpoint: at every step around the write in `test:all` (otherwise at
// one), and `TINKER_KILLS` times (default: 1) in the middle of the bytes.
import { mkdtempSync, readdirSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { describe, expect, it } from "@effect/vitest"
import { NodeTinker } from "@effect-tinker/node"
import { Effect, Random, Redacted, Scope } from "effect"
import { Loss, Optimizer, RestClient, ServiceClient } from "effect-tinker"
import * as Process from "./support/Process.ts"

const directory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "tinkerfx-kill-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true })),
)

const data = Array.from({ length: 4 }, (_, i) => ({
  modelInput: [10, 20 + i, 30 + i],
  inputs: { targetTokens: [20 + i, 30 + i, 40 + i], weights: [1, 1, 1] },
}))

const kills = Number(process.env["TINKER_KILLS"] ?? 1)
/** The whole set, for `test:all`. */
const isFull = process.env["TINKER_TESTS"] === "all"

describe("tinkerfx serve", () => {
  it.live(
    "a checkpoint save completes exactly once although the server is killed while writing it",
    () =>
      Effect.gen(function* () {
        const path = yield* directory
        const parts = yield* Effect.replicateEffect(Random.next, kills)
        const [before, after] = isFull ? [["opened"], ["synced", "renamed", "flushed"]] : [[], ["renamed"]]
        const places = [...before, ...parts.map(String), ...after]
        const first = yield* Process.doomed(places[0] ?? "", "--port", "0", "--data-dir", path)
        const url = yield* first.url
        const args = ["--port", new URL(url).port, "--data-dir", path]
        const weights = join(path, "files", "weights")
        const scope = yield* Effect.scope

        yield* Effect.gen(function* () {
          const service = yield* ServiceClient.ServiceClient
          const rest = yield* RestClient.RestClient
          const baseModel = "effect-tinker/valley-1.5m"
          const training = yield* service.createLoraTrainingClient({ baseModel, rank: 128, seed: 3 })
          const lossOf = (client: typeof training) =>
            Effect.map(client.forward(data, Loss.crossEntropy), ({ metrics }) => metrics["loss:sum"])
          yield* training.trainStep(data, Loss.crossEntropy, Optimizer.adam({ learningRate: 1e-2 }))
          const expected = yield* lossOf(training)

          // Each server process restarts the save and is killed a little later.
          const saving = yield* training.submit.saveState("survivor")
          expect(yield* first.died).toBe("SIGKILL")
          for (const place of places.slice(1)) {
            const server = yield* Process.doomed(place, ...args)
            expect([place, yield* server.died]).toEqual([place, "SIGKILL"])
            const left = readdirSync(weights)
            // Until all bytes are on disk, only temporary files exist.
            if (place !== "renamed" && place !== "flushed")
              expect(left.filter((name) => !name.startsWith(".part-"))).toEqual([])
          }
          yield* Scope.extend(Process.serve(...args), scope)
          const saved = yield* saving.await
          const { checkpoints } = yield* rest.listUserCheckpoints()
          expect(checkpoints.map(({ tinkerPath }) => tinkerPath)).toEqual([saved.path])
          expect(readdirSync(weights).length).toBe(1)
          const again = yield* service.createTrainingClientFromCheckpoint(saved.path, { withOptimizer: true })
          expect(yield* lossOf(again)).toBe(expected)
          // The model in training also continues.
          expect(yield* lossOf(training)).toBe(expected)
        }).pipe(Effect.scoped, Effect.provide(NodeTinker.layer({ baseUrl: url, apiKey: Redacted.make("tml-kill") })))
      }).pipe(Effect.scoped),
    300_000,
  )
})
