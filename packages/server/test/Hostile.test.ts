/** Sends requests that are valid JSON or protobuf but meant to do harm. */
import { describe, expect, it } from "@effect/vitest"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { createClient } from "@libsql/client"
import { Effect } from "effect"
import * as VirtualTime from "effect-tinker/testing/VirtualTime"
import type { ServerOptions } from "@effect-tinker/server"
import * as Raw from "./support/Raw.ts"

const run = <A, E>(program: (raw: Raw.Raw) => Effect.Effect<A, E>, options: ServerOptions.ServerOptions = {}) =>
  Effect.flatMap(Raw.make(options), program).pipe(Effect.scoped, VirtualTime.run)

const directory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "tinker-hostile-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true })),
)

describe("hyperparameters", () => {
  it.effect("optim_step refuses a learning rate beyond float32 and leaves the model as it is", () =>
    run(({ model, post, result, session }) =>
      Effect.gen(function* () {
        const id = yield* model(yield* session)
        yield* post("forward_backward", Raw.pass(id, 1))
        const refused = yield* post("optim_step", Raw.step(id, 2, 1e39))
        expect([refused.status, refused.body.detail]).toEqual([
          400,
          "adam_params.learning_rate: 1e+39 exceeds the range of float32",
        ])
        const done = yield* result(yield* post("optim_step", Raw.step(id, 3)))
        expect(done.body.metrics["step:unique"]).toBe(1)
      }),
    ),
  )
})

describe("JSON bodies", () => {
  const nested = (levels: number) => `${"[".repeat(levels)}${"]".repeat(levels)}`
  const create = (metadata: string) => `{"sdk_version":"1","user_metadata":{"a":${metadata}}}`

  it.effect("a body nested 10,000 levels deep gets 422, and one of 50 levels is accepted", () =>
    run(({ post }) =>
      Effect.gen(function* () {
        const deep = yield* post("create_session", create(nested(10_000)))
        expect([deep.status, deep.body.detail[0].msg]).toEqual([422, "the body has more than 64 levels of nesting"])
        expect((yield* post("create_session", create(nested(50)))).status).toBe(200)
        const objects = '{"a":'.repeat(10_000) + "1" + "}".repeat(10_000)
        expect((yield* post("optim_step", objects)).status).toBe(422)
        // Brackets within a string do not count.
        expect((yield* post("create_session", create(`"${"[".repeat(1000)}\\\""`))).status).toBe(200)
      }),
    ),
  )

  it.effect("a body with too many values gets 422, and at most 20 problems are listed, without large values", () =>
    run(({ post }) =>
      Effect.gen(function* () {
        const many = yield* post("create_session", create(`[${"0,".repeat(300_000)}0]`))
        expect([many.status, many.body.detail[0].msg]).toEqual([422, "the body has more than 262144 values"])
        for (const count of [1000, 100_000]) {
          const wrong = yield* post("create_session", {
            sdk_version: "1",
            tags: Array.from({ length: count }, () => 0),
          })
          expect(wrong.status).toBe(422)
          expect(wrong.body.detail.length).toBe(count === 1000 ? 20 : 1)
        }
        const large = yield* post("create_session", { sdk_version: Array.from({ length: 1000 }, () => "secret") })
        expect([large.status, large.body.detail[0].input]).toEqual([422, null])
        expect(JSON.stringify(large.body).length).toBeLessThan(1000)
      }),
    ),
  )
})

describe("ttl_seconds", () => {
  it.effect("every request with a TTL refuses one below an hour or above 100 years, and listings keep working", () =>
    run(({ ask, model, post, result, session }) =>
      Effect.gen(function* () {
        const id = yield* model(yield* session)
        const saved = (yield* result(yield* post("save_weights", { model_id: id, seq_id: 1, path: "one" }))).body.path
        let seq = 2
        for (const ttl_seconds of [0, 3599, 3_153_600_001, 8_640_000_000_001, Number.MAX_SAFE_INTEGER]) {
          const replies = [
            yield* ask("PUT", `training_runs/${id}/checkpoints/weights/one/ttl`, { ttl_seconds }),
            yield* post("copy_weights", { source_path: saved, ttl_seconds }),
            yield* post("save_weights", { model_id: id, seq_id: seq++, path: "two", ttl_seconds }),
            yield* post("save_weights_for_sampler", { model_id: id, seq_id: seq++, path: "two", ttl_seconds }),
            yield* post("save_weights_external", { model_id: id, seq_id: seq++, path: "two", ttl_seconds }),
          ]
          for (const { body, status } of replies)
            expect([status, body.detail]).toEqual([400, `ttl_seconds: expected 3600 to 3153600000, got ${ttl_seconds}`])
        }
        for (const ttl_seconds of [3600, 3_153_600_000, null])
          expect((yield* ask("PUT", `training_runs/${id}/checkpoints/weights/one/ttl`, { ttl_seconds })).status).toBe(
            200,
          )
        expect((yield* ask("GET", "checkpoints")).body.checkpoints.length).toBe(1)
      }),
    ),
  )

  it.live("checkpoints with an impossible date in the database are listed", () =>
    Effect.gen(function* () {
      const dataDirectory = yield* directory
      const started = Raw.make({ dataDirectory })
      const id = yield* Effect.scoped(
        Effect.gen(function* () {
          const { model, post, result, session } = yield* started
          const id = yield* model(yield* session)
          yield* result(yield* post("save_weights", { model_id: id, seq_id: 1, path: "one", ttl_seconds: 3600 }))
          return id
        }),
      )
      const client = createClient({ url: `file:${join(dataDirectory, "tinker.db")}` })
      yield* Effect.promise(() =>
        client.execute(
          "UPDATE things SET data = json_set(data, '$.expiresAt', 8640000000001000000) WHERE kind = 'checkpoint'",
        ),
      )
      client.close()
      yield* Effect.scoped(
        Effect.gen(function* () {
          const { ask } = yield* started
          for (const path of ["checkpoints", `training_runs/${id}/checkpoints`, "training_runs", `training_runs/${id}`])
            expect([path, (yield* ask("GET", path)).status]).toEqual([path, 200])
        }),
      )
    }).pipe(Effect.scoped),
  )
})
