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
        expect((yield* post("create_session", create(JSON.stringify(`${"[".repeat(1000)}\\"`)))).status).toBe(200)
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

/** A protobuf field with bytes. */
const field = (number: number, bytes: Uint8Array): Uint8Array => {
  const length: Array<number> = []
  for (let rest = bytes.length; ; rest >>>= 7) {
    length.push(rest > 127 ? (rest & 127) | 128 : rest)
    if (rest <= 127) break
  }
  return Buffer.concat([Buffer.from([number * 8 + 2, ...length]), bytes])
}

const text = (value: string): Uint8Array => Buffer.from(value)
const repeated = (bytes: Uint8Array, count: number): Uint8Array => Buffer.alloc(bytes.length * count, bytes)

describe("passes of many tiny parts", () => {
  const x = { "content-type": "application/x-protobuf" }
  const head = (id: string, seq: number) =>
    Buffer.concat([field(1, text(id)), Buffer.from([0x10, seq]), field(4, text("cross_entropy"))])

  it.effect("a protobuf pass with too many data, or with too many parts in one datum, gets 422", () =>
    run(({ model, post, session }) =>
      Effect.gen(function* () {
        const id = yield* model(yield* session)
        const empty = Buffer.from([0x1a, 0x00])
        const tensor = field(
          2,
          Buffer.concat([field(1, text("weights")), field(2, field(4, repeated(text("\u0001"), 9000)))]),
        )
        for (const [body, problem] of [
          [repeated(empty, 10_000), "more than 8192 data"],
          [field(3, repeated(Buffer.from([0x0a, 0x00]), 10_000)), "data[0] has more than 8192 elements"],
          [field(3, repeated(Buffer.from([0x1a, 0x00]), 10_000)), "data[0] has more than 8192 elements"],
          [field(3, repeated(field(2, field(2, new Uint8Array(0))), 5000)), "data[0] has more than 8192 elements"],
          [field(3, tensor), "data[0] has more than 8192 elements"],
          [repeated(field(5, new Uint8Array(0)), 600_000), "more than 524288 elements"],
          [field(3, Buffer.alloc(9 * 2 ** 20)), "data[0] has more than 8388608 bytes"],
          [Buffer.from([0x1a, 0xff, 0xff, 0xff, 0xff, 0x0f]), "the message is cut off"],
          [Buffer.from([0x1b]), "unknown wire type 3"],
        ] as const) {
          const refused = yield* post("forward_backward", Buffer.concat([head(id, 1), body]), x)
          expect([refused.status, refused.body.detail]).toEqual([422, problem])
        }
      }),
    ),
  )

  it.effect("a JSON pass with too many data, or with too many parts in one datum, gets 422", () =>
    run(({ model, post, session }) =>
      Effect.gen(function* () {
        const id = yield* model(yield* session)
        const body = (data: string) =>
          `{"model_id":"${id}","seq_id":1,"forward_backward_input":{"loss_fn":"cross_entropy","data":[${data}]}}`
        for (const [data, problem] of [
          [`${"{},".repeat(9000)}{}`, 'the body has more than 8192 elements in "data"'],
          [
            `{"a":[${"[],".repeat(9000)}[]]}`,
            'the body has an element of "data" with more than 8192 objects, arrays and keys',
          ],
          [
            `{${Array.from({ length: 9000 }, (_, i) => `"${i}":0`).join()}}`,
            'the body has an element of "data" with more than 8192 objects, arrays and keys',
          ],
        ] as const) {
          const refused = yield* post("forward_backward", body(data))
          expect([refused.status, refused.body.detail[0].msg]).toEqual([422, problem])
        }
      }),
    ),
  )

  it.effect("JSON passes with hidden, repeated or broken data are refused like any other invalid JSON", () =>
    run(({ model, post, session }) =>
      Effect.gen(function* () {
        const id = yield* model(yield* session)
        const valid = JSON.stringify(Raw.pass(id, 1))
        const data = JSON.stringify(Raw.pass(id, 1).forward_backward_input.data)
        const changed = (from: string, to: string) => valid.replace(from, () => to)
        for (const body of [
          changed('"data":', '"d\\u0061ta":'),
          changed('"data":', `"data":${data},"data":`),
          changed(data, data.replace(/]$/, ",]")),
          changed(data, data.replace(/]$/, "}")),
          changed(data, "[,]"),
          changed(data, "[{} {}]"),
          changed(data, "[1]"),
          changed(data, "{}"),
          valid.slice(0, -1),
          `${valid}]`,
          valid.slice(0, valid.indexOf(data) + 20),
        ])
          expect([body.slice(0, 200), (yield* post("forward_backward", body)).status]).toEqual([
            body.slice(0, 200),
            422,
          ])
        for (const empty of ["[]", "[ \n ]"]) {
          const refused = yield* post("forward_backward", changed(data, empty))
          expect([refused.status, refused.body.detail]).toEqual([400, "data: is empty"])
        }
        const spaced = JSON.stringify(Raw.pass(id, 1), null, 3)
        expect((yield* post("forward_backward", spaced)).status).toBe(200)
        // The same request, however it is written.
        expect((yield* post("forward_backward", valid)).status).toBe(200)
      }),
    ),
  )

  it.effect("a sparse tensor that stands for many more elements than its bytes gets 400", () =>
    run(({ model, post, session }) =>
      Effect.gen(function* () {
        const id = yield* model(yield* session)
        const body = Raw.pass(id, 1)
        const weights = {
          data: [],
          dtype: "float32",
          shape: [3, 4_000_000],
          sparse_crow_indices: [0, 0, 0, 0],
          sparse_col_indices: [],
        }
        const [datum] = body.forward_backward_input.data
        const hostile = {
          ...body,
          forward_backward_input: {
            ...body.forward_backward_input,
            data: [{ ...datum, loss_fn_inputs: { ...datum?.loss_fn_inputs, weights } }],
          },
        }
        const refused = yield* post("forward_backward", hostile)
        expect([refused.status, refused.body.detail]).toEqual([
          400,
          expect.stringMatching(/weights: 12000000 elements are too many for a datum of \d+ bytes/),
        ])
      }),
    ),
  )

  it.effect("passes beyond maxQueuedBytes get 429, except for the one that others wait for", () =>
    run(
      ({ model, post, result, session }) =>
        Effect.gen(function* () {
          const id = yield* model(yield* session)
          const late = [2, 3, 4].map((seq) => post("forward_backward", Raw.pass(id, seq)))
          const replies = yield* Effect.all(late)
          expect(replies.map(({ status }) => status)).toEqual([200, 429, 429])
          expect(replies[1]?.headers["retry-after"]).toBe("1")
          expect((yield* post("forward_backward", Raw.pass(id, 1))).status).toBe(200)
          for (const reply of replies.slice(0, 1)) expect((yield* result(reply)).status).toBe(200)
          expect((yield* post("forward_backward", Raw.pass(id, 3))).status).toBe(200)
        }),
      { maxQueuedBytes: 500 },
    ),
  )
})
