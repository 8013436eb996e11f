/** Tests that sessions which ended are forgotten. */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { createClient } from "@libsql/client"
import { describe, expect, it } from "@effect/vitest"
import { type Clock, Effect, TestClock } from "effect"
import * as VirtualTime from "effect-tinker/testing/VirtualTime"
import * as Raw from "./support/Raw.ts"
import { name as baseModel } from "./support/StandInModel.ts"

const directory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "tinker-forget-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true })),
)

/** Counts the rows of the database, by kind. */
const rows = (path: string): Effect.Effect<Readonly<Record<string, number>>> =>
  Effect.promise(async () => {
    const client = createClient({ url: `file:${join(path, "tinker.db")}` })
    const sql =
      "SELECT kind, count(*) AS n FROM things GROUP BY kind UNION ALL SELECT 'future', count(*) FROM futures ORDER BY 1"
    const found = await client.execute(sql)
    client.close()
    return Object.fromEntries(found.rows.map((row) => [String(row["kind"]), Number(row["n"])]))
  })

/** Trains, samples and finishes a session; returns its id. */
const life = ({ ask, model, post, result, session }: Raw.Raw, saves: boolean) =>
  Effect.gen(function* () {
    const id = yield* session
    yield* ask("PUT", `sessions/${id}/project`, { project_id: "p" })
    const modelId = yield* model(id)
    yield* post("forward_backward", Raw.pass(modelId, 1))
    // A refused number is stored, too.
    yield* post("optim_step", Raw.step(modelId, 2, 1e39))
    const done = yield* result(yield* post("optim_step", Raw.step(modelId, 3)))
    expect(done.status).toBe(200)
    if (saves) yield* result(yield* post("save_weights", { model_id: modelId, seq_id: 4, path: "kept" }))
    const request = { session_id: id, sampling_session_seq_id: 0, base_model: baseModel }
    const sampler: string = (yield* post("create_sampling_session", request)).body.sampling_session_id
    const sample = yield* post("asample", {
      sampling_session_id: sampler,
      seq_id: 0,
      prompt: { chunks: [{ type: "encoded_text", tokens: [1] }] },
      sampling_params: { max_tokens: 2 },
      num_samples: 1,
    })
    yield* result(sample)
    yield* post(`sessions/${id}/finish`, { reason: { type: "success" }, detail: null })
    return { id, modelId, sampler, request: sample }
  })

describe("sessions that ended", () => {
  it.effect(
    "results are forgotten after resultRetention and sessions after sessionRetention, in memory and in the database",
    () =>
      Effect.gen(function* () {
        const dataDirectory = yield* directory
        const raw = yield* Raw.make({ dataDirectory, resultRetention: "1 hour", sessionRetention: "6 hours" })
        const { ask, post, result } = raw
        const first = yield* life(raw, false)
        for (let i = 0; i < 4; i++) yield* life(raw, false)
        expect(yield* rows(dataDirectory)).toEqual({
          future: 20,
          meta: 1,
          model: 5,
          refused: 5,
          sampler: 5,
          session: 5,
        })
        expect((yield* result(first.request)).status).toBe(200)

        yield* Effect.sleep("2 hours")
        expect(yield* rows(dataDirectory)).toEqual({ future: 0, meta: 1, model: 5, refused: 5, sampler: 5, session: 5 })
        expect((yield* result(first.request)).status).toBe(404)
        expect((yield* ask("GET", `sessions/${first.id}`)).status).toBe(200)
        expect((yield* post("session_heartbeat", { session_id: first.id })).status).toBe(410)

        yield* Effect.sleep("5 hours")
        expect(yield* rows(dataDirectory)).toEqual({ future: 0, meta: 1 })
        expect((yield* ask("GET", "sessions")).body.sessions).toEqual([])
        expect((yield* ask("GET", "training_runs")).body.training_runs).toEqual([])
        for (const path of [`sessions/${first.id}`, `samplers/${first.sampler}`, `training_runs/${first.modelId}`])
          expect([path, (yield* ask("GET", path)).status]).toEqual([path, 404])
      }).pipe(Effect.scoped, VirtualTime.run),
  )

  it.effect("checkpoints and their runs outlive their session, until the last checkpoint is deleted", () =>
    Effect.gen(function* () {
      const dataDirectory = yield* directory
      const raw = yield* Raw.make({ dataDirectory, sessionRetention: "2 hours" })
      const { ask, post, result } = raw
      const { modelId } = yield* life(raw, true)
      yield* Effect.sleep("3 hours")
      expect(yield* rows(dataDirectory)).toEqual({ checkpoint: 1, future: 0, meta: 1, model: 1 })
      expect((yield* ask("GET", `training_runs/${modelId}/checkpoints`)).body.checkpoints.length).toBe(1)
      expect((yield* ask("GET", "training_runs?project_id=p")).body.training_runs.length).toBe(1)
      const session = yield* raw.session
      const path = `tinker://${modelId}/weights/kept`
      const load = { session_id: session, model_seq_id: 0, path, optimizer: true }
      // Files are read in real time, during which virtual time passes.
      const loaded = yield* Effect.repeat(result(yield* post("load_weights", load)), {
        until: ({ status }) => status !== 408,
      })
      expect(loaded.body).toMatchObject({ model_id: `${session}:train:0` })
      yield* ask("DELETE", `training_runs/${modelId}/checkpoints/weights/kept`)
      yield* Effect.sleep("10 seconds")
      expect((yield* ask("GET", `training_runs/${modelId}`)).status).toBe(404)
    }).pipe(Effect.scoped, VirtualTime.run),
  )

  it.effect("sessions that ended before a restart are forgotten after it", () =>
    Effect.gen(function* () {
      const dataDirectory = yield* directory
      yield* Effect.scoped(Effect.flatMap(Raw.make({ dataDirectory }), (raw) => life(raw, false)))
      yield* Effect.sleep("8 days")
      yield* Effect.scoped(Effect.zipRight(Raw.make({ dataDirectory }), Effect.sleep("10 seconds")))
      expect(yield* rows(dataDirectory)).toEqual({ future: 0, meta: 1 })
    }).pipe(Effect.scoped, VirtualTime.run),
  )
})

describe("the time of day", () => {
  it.effect("a session outlives a clock that jumps by a day, and expires without heartbeats", () =>
    Effect.gen(function* () {
      let jump = 0
      const clock = yield* Effect.clock
      const jumping: Clock.Clock = Object.assign(Object.create(clock), {
        currentTimeMillis: Effect.map(clock.currentTimeMillis, (millis) => millis + jump),
        unsafeCurrentTimeMillis: () => clock.unsafeCurrentTimeMillis() + jump,
      })
      const { post, session } = yield* Effect.withClock(Raw.make(), jumping)
      const id = yield* session
      const beat = Effect.map(post("session_heartbeat", { session_id: id }), ({ status }) => status)
      for (jump of [86_400_000, 0, -86_400_000]) {
        yield* TestClock.adjust("5 seconds")
        expect(yield* Effect.withClock(beat, jumping)).toBe(200)
      }
      yield* TestClock.adjust("310 seconds")
      expect(yield* Effect.withClock(beat, jumping)).toBe(410)
    }).pipe(Effect.scoped),
  )
})
