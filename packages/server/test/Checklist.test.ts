/** Checks, point by point, what the official SDK needs from a server. */
import { connect } from "node:net"
import { describe, expect, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import * as VirtualTime from "effect-tinker/testing/VirtualTime"
import { ModelHost, NodeTinkerServer, type ServerOptions, TinkerServer } from "@effect-tinker/server"
import * as Raw from "./support/Raw.ts"
import * as StandInModel from "./support/StandInModel.ts"

const run = <A, E>(program: (raw: Raw.Raw) => Effect.Effect<A, E>, options: ServerOptions.ServerOptions = {}) =>
  Effect.flatMap(Raw.make(options), program).pipe(Effect.scoped, VirtualTime.run)

const config = { sdk_version: "0.36.0" }
const protobuf = { accept: "application/x-protobuf" }

/** Creates a sampler of the base model and returns a function that samples from it. */
const sampling = ({ post, session }: Raw.Raw) =>
  Effect.gen(function* () {
    const request = { session_id: yield* session, sampling_session_seq_id: 0, base_model: StandInModel.name }
    const id: string = (yield* post("create_sampling_session", request)).body.sampling_session_id
    return (seq: number, headers: Readonly<Record<string, string>> = {}) =>
      post(
        "asample",
        {
          sampling_session_id: id,
          seq_id: seq,
          prompt: { chunks: [{ type: "encoded_text", tokens: [1] }] },
          sampling_params: { max_tokens: 2 },
          num_samples: 3,
        },
        headers,
      )
  })

describe("compatibility with the official SDK", () => {
  it.effect("1. TinkerServer answers client/config, client/dynamic_config and create_session", () =>
    run(({ post }) =>
      Effect.gen(function* () {
        expect((yield* post("client/config", config)).body).toMatchObject({ pjwt_auth_enabled: false })
        expect((yield* post("client/dynamic_config", config)).body).toEqual({
          refresh_interval_sec: 300,
          sample_cancel_enabled: true,
          sample_cancel_max_batch_size: 64,
        })
        expect((yield* post("create_session", config)).body.session_id).toMatch(/^session-/)
      }),
    ),
  )

  it.effect("2. TinkerServer returns a request_id for every submitted call, and sequence ids for samples", () =>
    run((raw) =>
      Effect.gen(function* () {
        const { model, post, session } = raw
        const sessionId = yield* session
        const id = yield* model(sessionId)
        const calls: ReadonlyArray<readonly [string, object]> = [
          ["forward_backward", Raw.pass(id, 1)],
          ["optim_step", Raw.step(id, 2)],
          ["save_weights", { model_id: id, seq_id: 3, path: "a" }],
          ["save_weights_for_sampler", { model_id: id, seq_id: 4, path: "b" }],
          ["save_weights_for_sampler", { model_id: id, seq_id: 5, sampling_session_seq_id: 7 }],
          ["save_weights_external", { model_id: id, seq_id: 6, path: "c" }],
          ["create_model", { session_id: sessionId, model_seq_id: 1, base_model: StandInModel.name }],
          ["unload_model", { model_id: id }],
        ]
        for (const [path, body] of calls)
          expect([path, (yield* post(path, body)).body.request_id]).toEqual([path, expect.any(String)])
        const sample = yield* (yield* sampling(raw))(0)
        expect(sample.body).toEqual({
          request_id: expect.any(String),
          sample_sequence_ids: [expect.any(String), expect.any(String), expect.any(String)],
        })
      }),
    ),
  )

  // Points 3 (held polls) and 5 (order of sequence numbers) are in Protocol.test.ts.

  it.effect("4. TinkerServer returns samples and passes as protobuf, everything else as JSON", () =>
    run((raw) =>
      Effect.gen(function* () {
        const { model, post, session } = raw
        const id = yield* model(yield* session)
        const typeOf = (reply: Raw.Reply) =>
          Effect.map(
            post("retrieve_future", { request_id: reply.body.request_id, allow_metadata_only: true }, protobuf),
            ({ headers }) => headers["content-type"],
          )
        expect(yield* typeOf(yield* post("forward_backward", Raw.pass(id, 1)))).toBe("application/x-protobuf")
        const { forward_backward_input: input, ...address } = Raw.pass(id, 2)
        expect(yield* typeOf(yield* post("forward", { ...address, forward_input: input }))).toBe(
          "application/x-protobuf",
        )
        expect(yield* typeOf(yield* (yield* sampling(raw))(0))).toBe("application/x-protobuf")
        expect(yield* typeOf(yield* post("optim_step", Raw.step(id, 3)))).toBe("application/json")
        expect(yield* typeOf(yield* post("save_weights", { model_id: id, seq_id: 4, path: "a" }))).toBe(
          "application/json",
        )
      }),
    ),
  )

  it.effect("6. TinkerServer recognizes a repeated request by its number, whatever its idempotency key", () =>
    run((raw) =>
      Effect.gen(function* () {
        const { ask, model, post, result, session } = raw
        const id = yield* model(yield* session)
        const save = (key: string) =>
          post("save_weights", { model_id: id, seq_id: 1, path: "a" }, { "x-idempotency-key": key })
        const first = yield* save("1")
        expect((yield* save("2")).body).toEqual(first.body)
        yield* result(first)
        expect((yield* save("3")).body).toEqual(first.body)
        expect((yield* ask("GET", "checkpoints")).body.checkpoints.length).toBe(1)
        // A different sampler number is still the same save.
        const ephemeral = (sampler: number) =>
          post("save_weights_for_sampler", { model_id: id, seq_id: 2, sampling_session_seq_id: sampler })
        expect((yield* ephemeral(8)).body).toEqual((yield* ephemeral(7)).body)
        const sample = yield* sampling(raw)
        const drawn = yield* sample(0, { "x-idempotency-key": "1" })
        expect((yield* sample(0, { "x-idempotency-key": "2" })).body).toEqual(drawn.body)
      }),
    ),
  )

  it.effect("7. every metric name ends with its reduction, and optim_step returns no mean", () =>
    run(({ model, post, result, session }) =>
      Effect.gen(function* () {
        const id = yield* model(yield* session)
        const pass = yield* post("forward_backward", Raw.pass(id, 1))
        const reply = yield* post(
          "retrieve_future",
          { request_id: pass.body.request_id, allow_metadata_only: false },
          { accept: "application/json" },
        )
        const step = yield* result(yield* post("optim_step", Raw.step(id, 2)))
        const names = [...Object.keys(reply.body.metrics), ...Object.keys(step.body.metrics)]
        expect(names.length).toBeGreaterThan(2)
        for (const name of names) expect(name).toMatch(/^[^:]+:(sum|mean|min|max|unique|slack|hash2)$/)
        expect(Object.keys(step.body.metrics).filter((name) => /:(mean|slack)$/.test(name))).toEqual([])
      }),
    ),
  )

  it.live("8. NodeTinkerServer sends errors uncompressed and with a content-length", () =>
    Effect.gen(function* () {
      const server = yield* Effect.provideService(
        TinkerServer.make(),
        ModelHost.ModelHost,
        ModelHost.inline(StandInModel.make()),
      )
      const { port } = yield* NodeTinkerServer.listen(server, { port: 0 })
      const body = JSON.stringify({ session_id: "x", model_seq_id: 0, base_model: "no/such" })
      const reply = yield* Effect.async<string>((resume) => {
        const socket = connect(port, "127.0.0.1", () =>
          socket.write(
            `POST /api/v1/create_model HTTP/1.1\r\nhost: localhost\r\nx-api-key: tml-a\r\naccept-encoding: gzip, zstd\r\n` +
              `connection: close\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
          ),
        )
        let all = ""
        socket.on("data", (part) => (all += part))
        socket.on("close", () => resume(Effect.succeed(all)))
      })
      const [head = "", rest = ""] = reply.split("\r\n\r\n")
      expect(head).toMatch(/^HTTP\/1\.1 404 /)
      expect(/content-length: (\d+)/i.exec(head)?.[1]).toBe(String(rest.length))
      expect(head).not.toMatch(/content-encoding|transfer-encoding/i)
      expect(JSON.parse(rest)).toEqual({ detail: "Session x not found" })
    }).pipe(Effect.scoped),
  )

  it.effect("8. and 9. a failed request returns a lowercase category with status 200, never 409", () =>
    run(({ model, post, result, session }) =>
      Effect.gen(function* () {
        const id = yield* model(yield* session)
        yield* result(yield* post("save_weights", { model_id: id, seq_id: 1, path: "a" }))
        // Saving under the same name again is accepted, but fails.
        const reply = yield* result(yield* post("save_weights", { model_id: id, seq_id: 2, path: "a" }))
        expect([reply.status, reply.body]).toEqual([
          200,
          { error: expect.stringContaining("already exists"), category: "user" },
        ])
      }),
    ),
  )

  it.effect("9. polls of a finished session get 410", () =>
    run(({ model, post, result, session }) =>
      Effect.gen(function* () {
        const sessionId = yield* session
        const id = yield* model(sessionId)
        const waiting = yield* post("optim_step", Raw.step(id, 2))
        yield* post(`sessions/${sessionId}/finish`, { reason: { type: "success" }, detail: null })
        expect((yield* result(waiting)).status).toBe(410)
      }),
    ),
  )

  it.effect("10. tokens live at least ten minutes, even if a shorter lifetime is configured", () =>
    run(
      ({ post }) =>
        Effect.gen(function* () {
          const { jwt } = (yield* post("auth/token", {})).body
          const { exp } = JSON.parse(Buffer.from(jwt.split(".")[1], "base64url").toString())
          const now = yield* Effect.clockWith((clock) => clock.currentTimeMillis)
          expect(exp - now / 1000).toBeGreaterThanOrEqual(599)
        }),
      { jwt: "1 second" },
    ),
  )

  it.effect("11. TinkerServer accepts X-API-Key, bearer tokens and unknown headers, and refuses zstd bodies", () =>
    run(
      ({ ask, post, server }) =>
        Effect.gen(function* () {
          expect((yield* ask("GET", "sessions", undefined, { "x-stainless-os": "Linux", "x-new": "1" })).status).toBe(
            200,
          )
          const bearer = (key: string) =>
            Effect.map(
              server.handle({
                method: "GET",
                path: "/oai/api/v1/models",
                headers: { authorization: `Bearer ${key}` },
                body: new Uint8Array(0),
              }),
              ({ status }) => status,
            )
          expect([yield* bearer("tml-a"), yield* bearer("tml-x")]).toEqual([200, 401])
          const zstd = yield* post("forward_backward", new Uint8Array([0x28, 0xb5, 0x2f, 0xfd]), {
            "content-encoding": "zstd",
            "content-type": "application/x-protobuf",
          })
          expect([zstd.status, zstd.body.detail]).toEqual([415, expect.stringContaining("zstd")])
          // The flag that makes clients send zstd is therefore off.
          expect((yield* post("client/config", config)).body.proto_compress_fwdbwd ?? false).toBe(false)
        }),
      { apiKeys: [Redacted.make("tml-a")] },
    ),
  )

  it.effect("12. TinkerServer accepts any telemetry", () =>
    run(({ post }) =>
      Effect.gen(function* () {
        for (const body of [{}, "no json", { events: [{ event: "NEW" }], session_id: "x" }])
          expect((yield* post("telemetry", body)).body).toEqual({ status: "accepted" })
      }),
    ),
  )
})
