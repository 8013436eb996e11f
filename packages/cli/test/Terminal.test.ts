// The real command against the real local server: in a pipe and on a terminal.
import { existsSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { describe, expect, it } from "@effect/vitest"
import { NodeTinker } from "@effect-tinker/node"
import { Effect, Redacted } from "effect"
import { Loss, Optimizer, ServiceClient } from "effect-tinker"
import * as Command from "./support/Command.ts"
import * as Hub from "./support/Hub.ts"
import * as Process from "./support/Process.ts"
import * as Terminal from "./support/Terminal.ts"

const key = "tml-terminal"
const baseModel = "effect-tinker/valley-1.5m"

// oxlint-disable-next-line no-control-regex
const escapes = /\u001b\[[0-9;?]*[A-Za-z]/g

/** Trains a model for one step and saves it twice. */
const trained = Effect.gen(function* () {
  const service = yield* ServiceClient.ServiceClient
  const training = yield* service.createLoraTrainingClient({ baseModel, rank: 4, seed: 1 })
  const data = [{ modelInput: [10, 20, 30], inputs: { targetTokens: [20, 30, 40], weights: [1, 1, 1] } }]
  yield* training.trainStep(data, Loss.crossEntropy, Optimizer.adam({ learningRate: 1e-3 }))
  const first = yield* training.saveState("first")
  const second = yield* training.saveState("second")
  return { run: training.modelId, first: first.path, second: second.path }
}).pipe(Effect.scoped)

describe("tinkerfx and the local server", () => {
  it.live(
    "the main commands work in a pipe and on a terminal",
    () =>
      Effect.gen(function* () {
        const server = yield* Process.serve("--port", "0")
        const env = { TINKER_BASE_URL: server.url, TINKER_API_KEY: key }
        const saved = yield* Effect.provide(
          trained,
          NodeTinker.layer({ baseUrl: server.url, apiKey: Redacted.make(key) }),
        )
        const directory = yield* Command.directory
        const bin = yield* Terminal.bundle(directory)
        const hub = yield* Hub.make
        const at = { directory, env: { ...env, HF_ENDPOINT: hub.url, HF_TOKEN: Hub.token } }
        const child = (args: ReadonlyArray<string>, options: Partial<Terminal.Options> = {}) =>
          Terminal.run({ bin, directory, env, args, ...options })

        // In a pipe: JSON of the official command, no escape codes.
        const list = yield* child(["-f", "json", "checkpoint", "list", "--run-id", saved.run])
        expect([list.code, list.stderr]).toEqual([0, ""])
        const { checkpoints } = JSON.parse(list.stdout)
        expect(checkpoints.map(({ tinker_path }: { tinker_path: string }) => tinker_path).toSorted()).toEqual([
          saved.first,
          saved.second,
        ])
        const info = yield* Command.run(["run", "info", saved.run], at)
        expect([info.exitCode, info.stdout]).toEqual([0, expect.stringContaining("Yes (Rank 4)")])

        // On a terminal of 60 columns: colors, lines that fit, questions, progress.
        const models = yield* child(["model", "list"], { columns: 60 })
        expect([models.code, models.stdout]).toEqual([0, expect.stringContaining(`\u001b[96m${baseModel}`)])
        const widths = models.stdout
          .replaceAll(escapes, "")
          .split("\r\n")
          .map((line) => line.length)
        expect(Math.max(...widths)).toBeLessThanOrEqual(60)
        const plain = yield* child(["model", "list"], { columns: 60, env: { ...env, NO_COLOR: "1" } })
        expect([plain.code, plain.stdout.match(escapes)]).toEqual([0, null])

        const deleted = yield* child(["checkpoint", "delete", saved.second], {
          columns: 80,
          typed: [["[y/N]: ", "y\n"]],
        })
        expect(deleted.code).toBe(0)
        expect(deleted.stdout).toContain("Deleting checkpoints  [####")
        expect(deleted.stdout).toContain("Deleted 1 checkpoint(s)")

        // A key that is typed is never shown, and Ctrl-C ends the question.
        const login = yield* child(["auth", "login"], {
          columns: 80,
          typed: [
            ["API key: ", "tml-x"],
            ["*****", "\u0003"],
          ],
        })
        expect([login.code, login.stdout.includes("tml-x"), login.stdout.includes("*****")]).toEqual([130, false, true])

        // Training weights are exported, downloaded and pushed.
        const download = yield* Command.run(["-f", "json", "checkpoint", "download", saved.first], at)
        expect([download.exitCode, download.stderr]).toEqual([0, ""])
        const { destination } = JSON.parse(download.stdout)
        const config = JSON.parse(readFileSync(join(destination, "adapter_config.json"), "utf8"))
        expect([config.r, existsSync(join(destination, "adapter_model.safetensors"))]).toEqual([4, true])

        const pushed = yield* Command.run(["checkpoint", "push-hf", saved.first, "-r", "adapter", "--public"], at)
        expect([pushed.exitCode, pushed.stderr]).toEqual([0, ""])
        expect(pushed.stdout).toContain("me/adapter")
        expect(hub.repositories()).toEqual([{ name: "me/adapter", private: false }])
        expect(hub.files("me/adapter", "main")).toEqual([
          "README.md",
          "adapter_config.json",
          "adapter_model.safetensors",
        ])
        expect(hub.text("me/adapter", "main", "README.md")).toContain(`tinker_path: ${saved.first}`)
        // The header names the model that was made for the export; the weights at the end are the same.
        const weights = (bytes: Buffer) => bytes.subarray(-100_000).toString("base64")
        expect(weights(hub.bytes("me/adapter", "main", "adapter_model.safetensors"))).toBe(
          weights(readFileSync(join(destination, "adapter_model.safetensors"))),
        )

        // The same repository refuses another checkpoint; without a name, the run names repository and branch.
        yield* Effect.sync(() => hub.write("me/adapter", "main", "README.md", "tinker://other/weights/x"))
        const other = yield* Command.run(["checkpoint", "push-hf", saved.first, "-r", "me/adapter"], at)
        expect([other.exitCode, other.stderr]).toEqual([
          1,
          `Error: Repo ID appears to contain a different Tinker checkpoint.\nFound tinker://other/weights/x, expected ${saved.first}.\n`,
        ])
        const derived = yield* Command.run(
          ["-f", "json", "checkpoint", "push-hf", saved.first, "--ignore-pattern", "*.safetensors", "--no-model-card"],
          at,
        )
        expect(derived.exitCode).toBe(0)
        const { repo_id } = JSON.parse(derived.stdout)
        expect(repo_id).toMatch(/^me\/tinker-valley-1\.5m-/)
        expect(hub.files(repo_id, "weights-first")).toEqual(["adapter_config.json"])

        const secrets = [key, Hub.token]
        const printed = [list, models, deleted, login, info, download, pushed, other, derived]
        for (const { stderr, stdout } of printed)
          expect(secrets.filter((secret) => (stdout + stderr).includes(secret))).toEqual([])
      }).pipe(Effect.scoped),
    300_000,
  )
})
