import { describe, expect, it } from "@effect/vitest"
import { Effect, Either, Fiber, Redacted } from "effect"
import { Loss } from "effect-tinker"
import * as ForwardBackward from "effect-tinker/protocol/ForwardBackward"
import * as VirtualTime from "effect-tinker/testing/VirtualTime"
import type { ServerOptions } from "@effect-tinker/server"
import * as Raw from "./support/Raw.ts"
import { name as baseModel } from "./support/StandInModel.ts"

const run = <A, E>(
  program: (raw: Raw.Raw) => Effect.Effect<A, E>,
  options: ServerOptions.ServerOptions = {},
  model: Parameters<typeof Raw.make>[1] = {},
) => Effect.flatMap(Raw.make(options, model), program).pipe(Effect.scoped, VirtualTime.run)

const json = { accept: "application/json" }

/** Creates a promise that blocks the model until `open` is called. */
const gate = () => {
  let open = () => {}
  const opened = new Promise<void>((resolve) => {
    open = resolve
  })
  return { open: () => open(), opened }
}

describe("sequence numbers", () => {
  it.effect("requests run in the order of their sequence numbers, whatever their order of arrival", () =>
    run(({ model, post, result, session }) =>
      Effect.gen(function* () {
        const id = yield* model(yield* session)
        const update = yield* post("optim_step", Raw.step(id, 3))
        const second = yield* post("forward_backward", Raw.pass(id, 2, [5, 6, 7]))
        const first = yield* post("forward_backward", Raw.pass(id, 1))
        expect((yield* result(update)).body.metrics).toMatchObject({ "step:unique": 1 })
        const before = yield* post(
          "retrieve_future",
          { request_id: second.body.request_id, allow_metadata_only: false },
          json,
        )
        expect(before.body.metrics["loss:sum"]).toBeGreaterThan(0)
        expect((yield* result(first)).status).toBe(200)
      }),
    ),
  )

  it.effect("a repeated sequence number gets the same response, or 409 if the body differs", () =>
    run(({ model, post, session }) =>
      Effect.gen(function* () {
        const id = yield* model(yield* session)
        const first = yield* post("forward_backward", Raw.pass(id, 1))
        const again = yield* post("forward_backward", Raw.pass(id, 1))
        expect(again.body).toEqual(first.body)
        const other = yield* post("forward_backward", Raw.pass(id, 1, [9, 8, 7]))
        expect([other.status, other.body.detail]).toEqual([409, expect.stringContaining("seq_id 1")])
      }),
    ),
  )

  it.live("a large pass is recognized as a repetition across protobuf and JSON", () =>
    Effect.scoped(
      Effect.flatMap(Raw.make(), ({ model, post, session }) =>
        Effect.gen(function* () {
          const modelId = yield* model(yield* session)
          const tokens = Array.from({ length: 201 }, (_, i) => (i * 7) % 120)
          const data = Array.from({ length: 60 }, (_, i) => ({
            modelInput: tokens.slice(0, -1),
            inputs: { targetTokens: tokens.slice(1), weights: tokens.slice(1).map(() => i / 60) },
          }))
          const batch = Either.getOrThrow(Loss.prepareUnknown(Loss.crossEntropy, data))
          const request = { modelId, seqId: 1, batch, forwardOnly: false }
          const bytes = Either.getOrThrow(ForwardBackward.toProtobuf(request))
          // Large enough to be processed in several steps.
          expect(bytes.length).toBeGreaterThan(64 * 1024)
          const first = yield* post("forward_backward", bytes, { "content-type": "application/x-protobuf" })
          expect(first.status).toBe(200)
          const again = yield* post("forward_backward", Either.getOrThrow(ForwardBackward.toJson(request)))
          expect(again.body).toEqual(first.body)
          const other = { ...request, batch: { ...batch, data: batch.data.slice(1) } }
          expect((yield* post("forward_backward", Either.getOrThrow(ForwardBackward.toJson(other)))).status).toBe(409)
        }),
      ),
    ),
  )

  it.effect("the sequence number of a refused request is skipped and can be used again", () =>
    run(({ model, post, result, session }) =>
      Effect.gen(function* () {
        const id = yield* model(yield* session)
        const refused = yield* post("forward_backward", Raw.pass(id, 1, [1, 9999, 3]))
        expect([refused.status, refused.body.detail]).toEqual([400, expect.stringContaining("tokens[1]: 9999")])
        // The official SDK continues with the next number.
        expect((yield* result(yield* post("optim_step", Raw.step(id, 2)))).status).toBe(200)
        // Our own client reuses the same number.
        expect((yield* result(yield* post("forward_backward", Raw.pass(id, 1)))).status).toBe(200)
      }),
    ),
  )

  it.effect("a request fails if an earlier sequence number never arrives", () =>
    run(({ model, post, result, session }) =>
      Effect.gen(function* () {
        const id = yield* model(yield* session)
        const held = yield* post("optim_step", Raw.step(id, 2))
        let reply = yield* result(held)
        expect([reply.status, reply.body.queue_state_reason]).toEqual([408, "seq_id 1 has not arrived"])
        while (reply.status === 408) reply = yield* result(held)
        expect(reply.body).toEqual({ error: expect.stringContaining("seq_id 1 never arrived"), category: "user" })
        expect((yield* result(yield* post("optim_step", Raw.step(id, 3)))).body.metrics).toBeDefined()
      }),
    ),
  )
})

describe("retrieve_future", () => {
  it.effect("a poll is held for 30 seconds and then gets 408 with the queue state", () =>
    Effect.gen(function* () {
      const { open, opened } = gate()
      yield* run(
        ({ model, post, result, session }) =>
          Effect.gen(function* () {
            const id = yield* model(yield* session)
            const accepted = yield* post("forward_backward", Raw.pass(id, 1))
            const before = yield* Effect.clockWith((clock) => clock.currentTimeMillis)
            const reply = yield* result(accepted)
            const after = yield* Effect.clockWith((clock) => clock.currentTimeMillis)
            expect(reply).toMatchObject({ status: 408, body: { type: "try_again", queue_state: "active" } })
            expect(after - before).toBe(30_000)
            const waiting = yield* Effect.fork(result(accepted))
            open()
            expect((yield* Fiber.join(waiting)).headers["content-type"]).toBe("application/x-protobuf")
          }),
        {},
        { delay: () => opened },
      )
    }),
  )

  it.effect("polls of unknown futures and of other users' futures get 404", () =>
    run(
      ({ model, post, result, session }) =>
        Effect.gen(function* () {
          const id = yield* model(yield* session)
          const accepted = yield* post("forward_backward", Raw.pass(id, 1))
          const stranger = { "x-api-key": "tml-b" }
          const body = { request_id: accepted.body.request_id, allow_metadata_only: false }
          expect((yield* post("retrieve_future", body, stranger)).status).toBe(404)
          expect((yield* post("optim_step", Raw.step(id, 2), stranger)).status).toBe(404)
          expect((yield* post("session_heartbeat", { session_id: id.split(":")[0] }, stranger)).status).toBe(404)
          expect((yield* post("retrieve_future", { ...body, request_id: "x" })).status).toBe(404)
          expect((yield* result(accepted)).status).toBe(200)
        }),
      { apiKeys: [Redacted.make("tml-a"), Redacted.make("tml-b")] },
    ),
  )
})

describe("API keys", () => {
  it.effect("only configured API keys are accepted, and each sees only its own sessions", () =>
    run(
      ({ ask, session }) =>
        Effect.gen(function* () {
          const own = yield* session
          const as = (key: string) => ({ "x-api-key": key })
          expect((yield* ask("GET", "sessions", undefined, as("tml-c"))).status).toBe(401)
          expect((yield* ask("GET", "sessions", undefined, as(""))).status).toBe(401)
          expect((yield* ask("GET", "sessions", undefined, as("tml-b"))).body).toEqual({ sessions: [] })
          expect((yield* ask("GET", `sessions/${own}`, undefined, as("tml-b"))).status).toBe(404)
          expect((yield* ask("GET", "sessions")).body).toEqual({ sessions: [own] })
          expect((yield* ask("GET", "healthz", undefined, as("tml-c"))).body).toEqual({ status: "ok" })
        }),
      { apiKeys: [Redacted.make("tml-a"), Redacted.make("tml-b")] },
    ),
  )

  it.effect("an API key can be exchanged for a token that expires", () =>
    run(
      ({ ask, post }) =>
        Effect.gen(function* () {
          expect((yield* post("client/config", { sdk_version: "1" })).body.pjwt_auth_enabled).toBe(true)
          const { jwt } = (yield* post("auth/token", {})).body
          expect((yield* ask("GET", "sessions", undefined, { "x-api-key": jwt })).status).toBe(200)
          expect((yield* ask("GET", "sessions", undefined, { "x-api-key": `${jwt}x` })).status).toBe(401)
          yield* Effect.sleep("2 hours")
          expect((yield* ask("GET", "sessions", undefined, { "x-api-key": jwt })).status).toBe(401)
        }),
      { apiKeys: [Redacted.make("tml-a")], jwt: "1 hour" },
    ),
  )
})

describe("sessions", () => {
  it.effect("a session expires without heartbeats", () =>
    run(
      ({ model, post, session }) =>
        Effect.gen(function* () {
          const id = yield* session
          const modelId = yield* model(id)
          for (let i = 0; i < 12; i++) {
            yield* Effect.sleep("50 seconds")
            expect((yield* post("session_heartbeat", { session_id: id })).status).toBe(200)
          }
          yield* Effect.sleep("70 seconds")
          expect((yield* post("session_heartbeat", { session_id: id })).status).toBe(410)
          expect((yield* post("optim_step", Raw.step(modelId, 1))).status).toBe(410)
        }),
      { sessionTimeout: "1 minute" },
    ),
  )

  it.effect("results can be retrieved for one hour after their session ended", () =>
    run(({ model, post, result, session }) =>
      Effect.gen(function* () {
        const id = yield* session
        const accepted = yield* post("optim_step", Raw.step(yield* model(id), 1))
        const reply = yield* result(accepted)
        yield* post(`sessions/${id}/finish`, { reason: { type: "success" }, detail: null })
        yield* Effect.sleep("50 minutes")
        expect(yield* result(accepted)).toEqual(reply)
        yield* Effect.sleep("15 minutes")
        expect((yield* result(accepted)).status).toBe(404)
      }),
    ),
  )

  it.effect("create_session with the same idempotency key creates one session", () =>
    run(({ ask, post }) =>
      Effect.gen(function* () {
        const key = { "x-idempotency-key": "k" }
        const first = yield* post("create_session", { sdk_version: "1" }, key)
        const again = yield* post("create_session", { sdk_version: "1" }, key)
        expect(again.body).toEqual(first.body)
        expect((yield* ask("GET", "sessions")).body.sessions.length).toBe(1)
      }),
    ),
  )
})

describe("invalid requests", () => {
  it.effect("invalid requests are refused with the field name and change nothing", () =>
    run(({ ask, model, post, session }) =>
      Effect.gen(function* () {
        const id = yield* session
        const modelId = yield* model(id)
        const refusals: ReadonlyArray<readonly [string, unknown, number, string]> = [
          ["create_session", {}, 422, "sdk_version"],
          ["create_session", "{", 422, "JSON decode error"],
          ["create_model", { session_id: id, model_seq_id: 5, base_model: "no/such" }, 400, "base_model"],
          [
            "create_model",
            { session_id: id, model_seq_id: 5, base_model: baseModel, lora_config: { rank: 999 } },
            400,
            "rank",
          ],
          ["create_model", { session_id: "unknown", model_seq_id: 5, base_model: baseModel }, 404, "unknown"],
          ["optim_step", { model_id: modelId, seq_id: 1 }, 422, "adamParams"],
          ["save_weights", { model_id: modelId, seq_id: 1, path: "../x" }, 400, "path"],
          [
            "load_weights",
            { model_id: modelId, seq_id: 1, path: "tinker://x/weights/y", optimizer: false },
            404,
            "tinker://x",
          ],
          [
            "create_sampling_session",
            { session_id: id, sampling_session_seq_id: 0, base_model: "x" },
            400,
            "base_model",
          ],
        ]
        for (const [path, body, status, words] of refusals) {
          const reply = yield* post(path, body)
          expect([path, reply.status, JSON.stringify(reply.body)]).toEqual([
            path,
            status,
            expect.stringContaining(words),
          ])
        }
        const invalid = Raw.pass(modelId, 1)
        invalid.forward_backward_input.data[0]!.loss_fn_inputs.weights.data = [1]
        invalid.forward_backward_input.data[0]!.loss_fn_inputs.weights.shape = [1]
        expect((yield* post("forward_backward", invalid)).body.detail).toContain("loss_fn_inputs.weights")
        expect((yield* ask("GET", "nowhere")).status).toBe(404)
        expect((yield* ask("PUT", "optim_step")).status).toBe(405)
        expect((yield* ask("GET", "training_runs?limit=x")).status).toBe(422)
        expect((yield* ask("GET", "training_runs")).body.training_runs.length).toBe(1)
      }),
    ),
  )
})

describe("gradients", () => {
  it.effect("gradients do not leak from one model to another", () =>
    run(({ model, post, result, session }) =>
      Effect.gen(function* () {
        const loss = (id: string, from: number) =>
          Effect.gen(function* () {
            yield* post("forward_backward", Raw.pass(id, from))
            yield* result(yield* post("optim_step", Raw.step(id, from + 1)))
            const accepted = yield* post("forward_backward", Raw.pass(id, from + 2))
            const reply = yield* post(
              "retrieve_future",
              { request_id: accepted.body.request_id, allow_metadata_only: false },
              json,
            )
            return reply.body.metrics["loss:sum"] as number
          })
        const id = yield* session
        const control = yield* loss(yield* model(id, 0), 1)
        const dirty = yield* model(id, 1)
        yield* result(yield* post("forward_backward", Raw.pass(dirty, 1, [1, 3, 5, 7])))
        yield* result(yield* post("unload_model", { model_id: dirty }))
        expect(yield* loss(yield* model(id, 2), 1)).toBe(control)
        // A seed is a seed.
        expect(yield* loss(yield* model(id, 3, { seed: 2 }), 1)).not.toBe(control)
      }),
    ),
  )
})

describe("asample", () => {
  it.effect("samples beyond maxQueuedSamples get 429, and cancel_future frees a slot", () =>
    Effect.gen(function* () {
      const { open, opened } = gate()
      yield* run(
        ({ post, result, session }) =>
          Effect.gen(function* () {
            const id = yield* session
            const sampler = (yield* post("create_sampling_session", {
              session_id: id,
              sampling_session_seq_id: 0,
              base_model: baseModel,
            })).body.sampling_session_id
            const sample = (seq: number) =>
              post("asample", {
                sampling_session_id: sampler,
                seq_id: seq,
                prompt: { chunks: [{ type: "encoded_text", tokens: [1] }] },
                sampling_params: { max_tokens: 2 },
                num_samples: 2,
              })
            const first = yield* sample(0)
            expect(first.body.sample_sequence_ids.length).toBe(2)
            expect((yield* sample(0)).body).toEqual(first.body)
            yield* sample(1)
            const many = yield* sample(2)
            expect([many.status, many.headers["retry-after"]]).toEqual([429, "1"])
            yield* post("cancel_future", { request_id: first.body.request_id })
            expect((yield* result(first)).body).toMatchObject({ error: "cancelled" })
            const finished = yield* post("retrieve_futures", {
              target: { type: "sampling_session", sampling_session_id: sampler, cloned_sampler_id: 0 },
              prev_cursor: 0,
            })
            expect(finished.body.completions).toEqual([{ state: "failed", request_id: first.body.request_id }])
            const none = yield* post("retrieve_futures", {
              target: { type: "sampling_session", sampling_session_id: sampler, cloned_sampler_id: 0 },
              prev_cursor: finished.body.cursor,
              timeout: 1,
            })
            expect(none.body).toMatchObject({ completions: [], cursor: finished.body.cursor })
            expect((yield* sample(2)).status).toBe(200)
            open()
          }),
        { maxQueuedSamples: 2 },
        { delay: () => opened },
      )
    }),
  )
})
