/** Tests access between API keys, and what remains of sessions and runs. */
import { describe, expect, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import * as VirtualTime from "effect-tinker/testing/VirtualTime"
import type { ServerOptions } from "@effect-tinker/server"
import * as Raw from "./support/Raw.ts"
import { name as baseModel } from "./support/StandInModel.ts"

const run = <A, E>(program: (raw: Raw.Raw) => Effect.Effect<A, E>, options: ServerOptions.ServerOptions = {}) =>
  Effect.flatMap(
    Raw.make({ apiKeys: [Redacted.make("tml-a"), Redacted.make("tml-b")], jwt: "1 hour", ...options }),
    program,
  ).pipe(Effect.scoped, VirtualTime.run)

const asB = { "x-api-key": "tml-b" }

/** Creates a checkpoint of the first key and a model of the second. */
const scene = ({ model, post, result, session }: Raw.Raw) =>
  Effect.gen(function* () {
    const mine = yield* model(yield* session)
    const accepted = yield* post("save_weights", { model_id: mine, seq_id: 1, path: "one" })
    const path: string = (yield* result(accepted)).body.path
    const other: string = (yield* post("create_session", { sdk_version: "1" }, asB)).body.session_id
    yield* post(
      "create_model",
      { session_id: other, model_seq_id: 0, base_model: baseModel, lora_config: { rank: 8 } },
      asB,
    )
    return { mine, other, path, theirs: `${other}:train:0` }
  })

describe("many keys", () => {
  it.effect("keys are read once, when the server starts, however many requests there are", () => {
    let reads = 0
    const keys = Array.from({ length: 50 }, (_, i) => Redacted.make(`tml-${i}`))
    const apiKeys = new Proxy(keys, {
      get: (target, name) => {
        if (/^\d+$/.test(String(name))) reads++
        return Reflect.get(target, name)
      },
    })
    return run(
      ({ ask }) =>
        Effect.gen(function* () {
          expect(reads).toBeLessThanOrEqual(keys.length)
          const before = reads
          for (const [key, status] of [
            ["tml-0", 200],
            ["tml-49", 200],
            ["tml-50", 401],
          ] as const)
            expect((yield* ask("GET", "checkpoints", undefined, { "x-api-key": key })).status).toBe(status)
          expect(reads).toBe(before)
        }),
      { apiKeys },
    )
  })
})

describe("weights access token", () => {
  it.effect("a weights access token, given as key or JWT, grants access only to its owner's weights", () =>
    run(
      (raw) =>
        Effect.gen(function* () {
          const { post } = raw
          const { other, path, theirs } = yield* scene(raw)
          const load = (seq: number, token?: string) =>
            post(
              "load_weights",
              { model_id: theirs, seq_id: seq, path, optimizer: false, ...(token && { weights_access_token: token }) },
              asB,
            )
          const { jwt } = (yield* post("auth/token", {})).body
          const own = (yield* post("auth/token", {}, asB)).body.jwt
          for (const token of [undefined, "tml-c", own, `${jwt}x`]) expect((yield* load(1, token)).status).toBe(404)
          for (const [i, token] of ["tml-a", jwt].entries()) {
            const accepted = yield* load(i + 1, token)
            const reply = yield* post(
              "retrieve_future",
              { request_id: accepted.body.request_id, allow_metadata_only: false },
              asB,
            )
            expect(reply.body).toMatchObject({ path, model_id: theirs })
          }
          // The weights can be loaded as a new model and copied.
          const made = yield* post(
            "load_weights",
            { session_id: other, model_seq_id: 1, path, optimizer: true, weights_access_token: "tml-a" },
            asB,
          )
          expect(made.body.model_id).toBe(`${other}:train:1`)
          expect((yield* post("copy_weights", { source_path: path }, asB)).status).toBe(404)
          const header = { ...asB, "x-tinker-weights-access-token": "tml-a" }
          expect((yield* post("copy_weights", { source_path: path }, header)).status).toBe(200)
          // Other endpoints ignore the token.
          expect((yield* post("weights_info", { tinker_path: path }, header)).status).toBe(404)
          yield* Effect.sleep("2 hours")
          expect((yield* load(3, jwt)).status).toBe(404)
        }),
      { sessionTimeout: "3 hours" },
    ),
  )
})

describe("copy_weights", () => {
  it.effect("copied weights get a training run in the named project that cannot be trained", () =>
    run((raw) =>
      Effect.gen(function* () {
        const { ask, post } = raw
        const { path } = yield* scene(raw)
        const key = { "x-idempotency-key": "k" }
        const request = { source_path: path, destination_project_id: "p" }
        const copied: string = (yield* post("copy_weights", request, key)).body.tinker_path
        expect((yield* post("copy_weights", request, key)).body.tinker_path).toBe(copied)
        const id = copied.split("/")[2] ?? ""
        expect((yield* ask("GET", `training_runs/${id}`)).body).toMatchObject({
          training_run_id: id,
          base_model: baseModel,
          last_checkpoint: { tinker_path: copied },
        })
        expect((yield* ask("GET", `training_runs/${id}/checkpoints`)).body.checkpoints.length).toBe(1)
        const ofProject = (yield* ask("GET", "training_runs?project_id=p")).body.training_runs
        expect(ofProject.map((one: { training_run_id: string }) => one.training_run_id)).toEqual([id])
        const refused = yield* post("optim_step", Raw.step(id, 1))
        expect([refused.status, refused.body.detail]).toEqual([404, expect.stringContaining("is a copy")])
      }),
    ),
  )
})

describe("finished session", () => {
  it.effect("sampling in a finished session gets 410, and the session can still be looked up", () =>
    run(({ ask, post, session }) =>
      Effect.gen(function* () {
        const id = yield* session
        const request = { session_id: id, sampling_session_seq_id: 0, base_model: baseModel }
        const sampler = (yield* post("create_sampling_session", request)).body.sampling_session_id
        yield* post(`sessions/${id}/finish`, { reason: { type: "success" }, detail: null })
        const sample = yield* post("asample", {
          sampling_session_id: sampler,
          seq_id: 0,
          prompt: { chunks: [{ type: "encoded_text", tokens: [1] }] },
          sampling_params: { max_tokens: 2 },
          num_samples: 1,
        })
        // Not 404, which would mean that it never existed.
        expect([sample.status, sample.body.detail]).toEqual([410, `Session ${id} is finished`])
        expect((yield* ask("GET", `samplers/${sampler}`)).body).toMatchObject({ base_model: baseModel })
        expect((yield* ask("GET", `sessions/${id}`)).body.sampler_ids).toEqual([sampler])
      }),
    ),
  )
})

describe("results", () => {
  it.effect("results that are not cached in memory can be retrieved repeatedly", () =>
    run(
      (raw) =>
        Effect.gen(function* () {
          const { post, result } = raw
          const { mine } = yield* scene(raw)
          const pass = yield* post("forward_backward", Raw.pass(mine, 2))
          const step = yield* post("optim_step", Raw.step(mine, 3))
          const first = yield* result(step)
          expect(first.body.metrics["step:unique"]).toBe(1)
          expect(yield* result(step)).toEqual(first)
          expect((yield* result(pass)).headers["content-type"]).toBe("application/x-protobuf")
        }),
      { resultsInMemory: 0 },
    ),
  )
})
