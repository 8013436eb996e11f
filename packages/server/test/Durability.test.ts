import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { describe, expect, it } from "@effect/vitest"
import { Effect, Exit, Layer, Scope, Stream } from "effect"
import { Loss, Optimizer, RestClient, ServiceClient, TrainingJournal } from "effect-tinker"
import * as Api from "effect-tinker/protocol/Api"
import * as Transport from "effect-tinker/Transport"
import * as VirtualTime from "effect-tinker/testing/VirtualTime"
import { createClient } from "@libsql/client"
import * as Local from "./support/Local.ts"
import * as Raw from "./support/Raw.ts"

const adam = Optimizer.adam({ learningRate: 0.3 })

const directory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "tinker-server-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true })),
)

/** Runs a program on a fresh server; everything in memory is lost when it ends. */
const withServer = <A, E, R>(dataDirectory: string, program: Effect.Effect<A, E, R>) =>
  Effect.scoped(program).pipe(
    Effect.provide(Layer.fresh(Local.layer({ dataDirectory, snapshotEvery: 3 }))),
  ) as Effect.Effect<A, unknown>

const steps = (from: number, to: number) => Stream.range(from, to).pipe(Stream.map(() => Local.batch()))

const losses = Effect.gen(function* () {
  const service = yield* ServiceClient.ServiceClient
  const training = yield* service.createLoraTrainingClient({ baseModel: Local.baseModel, seed: 5 })
  return yield* steps(0, 9).pipe(
    training.trainSteps(Loss.crossEntropy, () => adam),
    Stream.runCollect,
    Effect.map((all) => [...all].map(({ metrics }) => metrics)),
  )
})

describe("data directory", () => {
  it.effect("a training run continues after a server restart, with and without a snapshot", () =>
    Effect.gen(function* () {
      const expected = yield* Local.run(losses)
      for (const split of [1, 4, 7]) {
        const path = yield* directory
        const journal = yield* TrainingJournal.memory
        const before = yield* withServer(
          path,
          Effect.gen(function* () {
            const service = yield* ServiceClient.ServiceClient
            // A failing scope does not finish the session, so it can be resumed.
            const crashing = yield* Scope.make()
            const training = yield* Scope.extend(
              service.createLoraTrainingClient({ baseModel: Local.baseModel, seed: 5, journal }),
              crashing,
            )
            const all = yield* steps(0, split - 1).pipe(
              training.trainSteps(Loss.crossEntropy, () => adam),
              Stream.runCollect,
            )
            yield* Scope.close(crashing, Exit.die("crash"))
            return yield* Effect.die([...all].map(({ metrics }) => metrics))
          }),
        ).pipe(Effect.catchAllDefect((all) => Effect.succeed(all as ReadonlyArray<unknown>)))
        const after = yield* withServer(
          path,
          Effect.gen(function* () {
            const service = yield* ServiceClient.ServiceClient
            const { client, nextStep } = yield* service.resumeTrainingClient({ journal })
            expect(nextStep).toBe(split)
            return yield* steps(split, 9).pipe(
              client.trainSteps(Loss.crossEntropy, () => adam, { startAt: split }),
              Stream.runCollect,
              Effect.map((all) => [...all].map(({ metrics }) => metrics)),
            )
          }),
        )
        expect([...before, ...after]).toEqual(expected)
      }
    }).pipe(Effect.scoped, VirtualTime.run),
  )

  it.live("a model created from a checkpoint survives a restart after the checkpoint was deleted", () =>
    Effect.gen(function* () {
      const path = yield* directory
      const lossOf = ({ post }: Raw.Raw, id: string, seq: number) =>
        Effect.flatMap(post("forward_backward", Raw.pass(id, seq)), ({ body }) =>
          Effect.map(
            post(
              "retrieve_future",
              { request_id: body.request_id, allow_metadata_only: false },
              { accept: "application/json" },
            ),
            (reply): number => reply.body.metrics["loss:sum"],
          ),
        )
      const started = Raw.make({ dataDirectory: path })
      const { expected, id } = yield* Effect.scoped(
        Effect.gen(function* () {
          const raw = yield* started
          const { ask, model, post, result, session } = raw
          const sessionId = yield* session
          const first = yield* model(sessionId)
          yield* lossOf(raw, first, 1)
          yield* result(yield* post("optim_step", Raw.step(first, 2)))
          const saved = yield* result(yield* post("save_weights", { model_id: first, seq_id: 3, path: "mid" }))
          const of = { session_id: sessionId, model_seq_id: 1, path: saved.body.path, optimizer: true }
          const made = yield* result(yield* post("load_weights", of))
          expect(made.body).toMatchObject({ model_id: `${sessionId}:train:1` })
          const removed = yield* ask("DELETE", `training_runs/${first}/checkpoints/weights/mid`)
          expect(removed.status).toBe(200)
          return { id: `${sessionId}:train:1`, expected: yield* lossOf(raw, first, 4) }
        }),
      )
      yield* Effect.scoped(
        Effect.flatMap(started, (raw) => Effect.map(lossOf(raw, id, 1), (loss) => expect(loss).toBe(expected))),
      )
    }).pipe(Effect.scoped),
  )

  it.live(
    "a save that was interrupted before its result was stored completes after a restart, and orphaned files are removed",
    () =>
      Effect.gen(function* () {
        const path = yield* directory
        const started = Raw.make({ dataDirectory: path })
        const weights = () => readdirSync(join(path, "files", "weights"))
        const { accepted, request } = yield* Effect.scoped(
          Effect.gen(function* () {
            const { model, post, result, session } = yield* started
            const request = { model_id: yield* model(yield* session), seq_id: 1, path: "kept" }
            const accepted = yield* post("save_weights", request)
            yield* result(accepted)
            return { accepted, request }
          }),
        )
        const [file] = weights()
        // The state after a kill between the two writes: the checkpoint is stored, its result is not.
        const client = createClient({ url: `file:${join(path, "tinker.db")}` })
        yield* Effect.promise(() =>
          client.execute({
            sql: "UPDATE futures SET state = 'queued', finished = NULL, result = NULL, body = ? WHERE operation = ?",
            args: [JSON.stringify(request), "save_weights"],
          }),
        )
        client.close()
        writeFileSync(join(path, "files", "weights", "orphan"), "x")
        writeFileSync(join(path, "files", "weights", ".part-1"), "x")
        mkdirSync(join(path, "files", "snapshots"), { recursive: true })
        writeFileSync(join(path, "files", "snapshots", "orphan%201"), "x")
        yield* Effect.scoped(
          Effect.gen(function* () {
            const { ask, result } = yield* started
            expect((yield* result(accepted)).body).toMatchObject({ path: expect.stringMatching(/weights\/kept$/) })
            expect((yield* ask("GET", "checkpoints")).body.checkpoints.length).toBe(1)
            expect(weights()).toEqual([file])
            expect(readdirSync(join(path, "files", "snapshots"))).toEqual([])
          }),
        )
      }).pipe(Effect.scoped),
  )

  it.live("weights of unnamed samplers are deleted when their session ends", () =>
    Effect.gen(function* () {
      const path = yield* directory
      const { model, post, result, session } = yield* Raw.make({ dataDirectory: path })
      const sessionId = yield* session
      const id = yield* model(sessionId)
      const saved = { model_id: id, seq_id: 1, sampling_session_seq_id: 0 }
      yield* result(yield* post("save_weights_for_sampler", saved))
      yield* result(yield* post("save_weights_for_sampler", { model_id: id, seq_id: 2, path: "named" }))
      expect(readdirSync(join(path, "files", "weights")).length).toBe(2)
      yield* post(`sessions/${sessionId}/finish`, { reason: { type: "success" }, detail: null })
      expect(readdirSync(join(path, "files", "weights")).length).toBe(1)
    }).pipe(Effect.scoped),
  )

  it.effect("checkpoints and results survive a restart", () =>
    Effect.gen(function* () {
      const path = yield* directory
      const first = yield* withServer(
        path,
        Effect.gen(function* () {
          const service = yield* ServiceClient.ServiceClient
          const { call } = yield* Transport.Transport
          const session = yield* service.session
          const training = yield* service.createLoraTrainingClient({ baseModel: Local.baseModel })
          yield* training.trainStep(Local.batch(), Loss.crossEntropy, adam)
          const saved = yield* training.saveState("kept", { userMetadata: { note: "n" } })
          const accepted = yield* call(Api.createModel, {
            sessionId: session.id,
            modelSeqId: 9,
            baseModel: Local.baseModel,
          })
          return yield* Effect.die({ path: saved.path, requestId: accepted.requestId })
        }),
      ).pipe(Effect.catchAllDefect((saved) => Effect.succeed(saved as { path: string; requestId: string })))
      yield* withServer(
        path,
        Effect.gen(function* () {
          const rest = yield* RestClient.RestClient
          const { call } = yield* Transport.Transport
          const { checkpoints } = yield* rest.listUserCheckpoints()
          expect(checkpoints.map(({ tinkerPath }) => tinkerPath)).toEqual([first.path])
          const answer = yield* call(Api.retrieveFuture, { requestId: first.requestId, allowMetadataOnly: false })
          expect(JSON.parse(new TextDecoder().decode(answer.body))).toMatchObject({ type: "create_model" })
          const service = yield* ServiceClient.ServiceClient
          const other = yield* service.createTrainingClientFromCheckpoint(first.path, { withOptimizer: true })
          yield* other.trainStep(Local.batch(), Loss.crossEntropy, adam)
        }),
      )
    }).pipe(Effect.scoped, VirtualTime.run),
  )
})
