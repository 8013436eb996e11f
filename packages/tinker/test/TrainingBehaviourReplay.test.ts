/** How the reference goes about training, done by ours: when it sends what, what it does about failures, and what differs. */
import { describe, expect, it } from "@effect/vitest"
import { Effect, Either, Option, Schema, type Scope } from "effect"
import { Loss, RetryPolicy, SampleResult, ServiceClient, type TrainingClient, TrainingResult } from "effect-tinker"
import * as Clients from "./support/Clients.ts"
import * as HttpScript from "./support/HttpScript.ts"
import * as Recorded from "./support/Recorded.ts"
import * as Replay from "./support/Replay.ts"

const { adam, baseModel } = Clients

const supervised = { modelInput: [1, 2, 3], inputs: { targetTokens: [2, 3, 4], weights: [0, 1, 1] } }
const batch = (size: number) => Array.from({ length: size }, () => supervised)

const created = (modelId = "sess-0001:train:0"): HttpScript.Reply => ({ body: { model_id: modelId } })
const updated: HttpScript.Reply = { body: { metrics: { "grad_norm:mean": 0.25 } } }
const path = (path: string): HttpScript.Reply => ({ body: { path } })
/** The result of a pass of one datum. */
const passed: HttpScript.Reply = {
  ...Replay.scriptOf("behaviours/chunk_future_fails.json")["retrieve_future"]![0]!,
  delaySeconds: 0,
}

interface Setup {
  readonly flags?: Readonly<Record<string, unknown>>
  readonly options?: TrainingClient.Options
  /** The answers to polls, where they were not recorded. */
  readonly results?: ReadonlyArray<HttpScript.Reply>
  readonly answers?: Replay.Replies
}

/** What a new client does with the recorded answers. */
const replay = <A, E>(
  file: Replay.BehaviourFile,
  use: (client: TrainingClient.Service) => Effect.Effect<A, E, Scope.Scope>,
  { answers = {}, flags = {}, options = {}, results }: Setup = {},
) => {
  const script = Replay.scriptOf(file)
  return Replay.run(
    Effect.gen(function* () {
      const { createLoraTrainingClient } = yield* ServiceClient.ServiceClient
      const client = yield* createLoraTrainingClient({ baseModel, ...options })
      return yield* Replay.watched(use(client))
    }),
    {
      ...script,
      "client/config": [{ body: flags }],
      create_model: [Replay.accepted("req-0001"), ...(script["create_model"] ?? [])],
      retrieve_future: [created(), ...(results ?? script["retrieve_future"] ?? [])],
      ...answers,
    },
  )
}

type Request = Pick<HttpScript.Seen, "path">
const isPoll = ({ path }: Request) => path.endsWith("/retrieve_future")
const submissions = (requests: ReadonlyArray<HttpScript.Seen>) => requests.filter((request) => !isPoll(request))

const numbers = (requests: ReadonlyArray<HttpScript.Seen>) =>
  Replay.asBehaviour(submissions(requests)).map(({ body }) => (body as { readonly seq_id?: number }).seq_id)

const recordedNumbers = (file: Replay.BehaviourFile) =>
  Replay.recordedBy(file).map(({ body }) => (body as { readonly seq_id?: number }).seq_id)

/** Without what tells attempts apart. */
const anyAttempt = (requests: ReadonlyArray<Readonly<Record<string, unknown>>>) =>
  requests.map(({ idempotencyKey: _key, retryCount: _count, ...request }) => request)

const keysOf = (requests: ReadonlyArray<HttpScript.Seen>) =>
  new Set(requests.map(({ headers }) => headers["x-idempotency-key"])).size

const gapsOf = (requests: ReadonlyArray<HttpScript.Seen>) =>
  requests.slice(1).map(({ at }, index) => at - (requests[index]?.at ?? 0))

const expected = (file: Replay.BehaviourFile) => Recorded.behaviour(file).expect

describe("order as recorded", () => {
  it.effect("behaviours/training_seq_ids.json", () =>
    Effect.gen(function* () {
      const file = "behaviours/training_seq_ids.json"
      const { requests, result } = yield* Replay.run(
        Effect.gen(function* () {
          const { createLoraTrainingClient } = yield* ServiceClient.ServiceClient
          const client = yield* createLoraTrainingClient({ baseModel })
          return yield* Replay.watched(
            Effect.gen(function* () {
              yield* client.forwardBackward(batch(3), Loss.crossEntropy)
              yield* client.optimStep(adam)
              yield* client.saveState("a")
              yield* client.forward(batch(1), Loss.crossEntropy)
              yield* client.loadState("tinker://r/weights/a")
              yield* client.saveWeightsExternal("c")
              yield* client.saveWeightsForSampler("b")
              yield* client.getInfo
              yield* client.saveWeightsAndGetSamplingClient()
              const other = yield* createLoraTrainingClient({ baseModel: "other" })
              yield* other.optimStep(adam)
            }),
          )
        }),
        {
          ...Replay.scriptOf(file),
          "client/config": [{ body: { fwdbwd_max_chunk_len: 2, parallel_fwdbwd_chunks: true } }],
          create_model: [Replay.accepted("req-0001"), Replay.accepted("req-0011")],
          retrieve_future: [
            created(),
            passed,
            passed,
            updated,
            path("tinker://a"),
            passed,
            path("tinker://r/weights/a"),
            path("tinker://c"),
            path("tinker://b"),
            { body: { sampling_session_id: "sess-0001:sample:0" } },
            created("sess-0001:train:1"),
            updated,
          ],
        },
      )
      expect(result._tag).toBe("Right")
      expect(Replay.asBehaviour(submissions(requests))).toEqual(Replay.recordedBy(file))
    }),
  )

  it.effect(
    "behaviours/training_turn_order.json: the next one goes when this one is answered, not when it is done",
    () =>
      Effect.gen(function* () {
        const file = "behaviours/training_turn_order.json"
        const { requests, result, times } = yield* replay(file, (client) =>
          Effect.gen(function* () {
            const pass = yield* client.enqueue.forwardBackward(batch(1), Loss.crossEntropy)
            const update = yield* client.enqueue.optimStep(adam)
            return yield* Effect.all([pass.await, update.await])
          }),
        )
        expect(result._tag).toBe("Right")
        expect(Replay.submissionsFirst(Replay.asBehaviour(requests))).toEqual(
          Replay.submissionsFirst(Replay.recordedBy(file)),
        )
        expect(times).toEqual([0, 1000, 1000, 1000])
      }),
  )

  it.effect("behaviours/training_parallel_chunks_overlap.json: the first piece when all others are answered", () =>
    Effect.gen(function* () {
      const file = "behaviours/training_parallel_chunks_overlap.json"
      const { requests, result } = yield* replay(
        file,
        (client) => client.forwardBackward(batch(4), Loss.crossEntropy),
        {
          flags: { fwdbwd_max_chunk_len: 1, parallel_fwdbwd_chunks: true },
          results: [passed, passed, passed, passed],
        },
      )
      const { maxInflight, result: outputs } = expected(file) as Recorded.Behaviour["expect"] & {
        readonly maxInflight?: number
      }
      const sent = submissions(requests)
      const start = sent[0]?.at ?? 0
      expect(sent.map(({ at }) => at - start)).toEqual([0, 0, 0, 500])
      expect(sent.filter(({ at }) => at === start).length).toBe(maxInflight)
      // Those that go together come in any order.
      const [first, second, third, last] = recordedNumbers(file)
      expect(numbers(requests)).toEqual([...[first!, second!, third!].toSorted((a, b) => a - b), last])
      const anyNumber = (all: ReturnType<typeof anyAttempt>) =>
        all.map((request) => ({ ...request, body: { ...(request["body"] as object), seq_id: 0 } }))
      expect(anyNumber(anyAttempt(Replay.asBehaviour(sent)))).toEqual(anyNumber(anyAttempt(Replay.recordedBy(file))))
      expect(Either.map(result, (pass) => pass.outputs.length)).toEqual(Either.right(outputs))
    }),
  )

  it.effect("behaviours/save_weights_for_sampler_late_seq_id.json, but in the order of the calls", () =>
    Effect.gen(function* () {
      const file = "behaviours/save_weights_for_sampler_late_seq_id.json"
      const { requests, result } = yield* replay(
        file,
        (client) =>
          Effect.gen(function* () {
            const sampler = yield* client.enqueue.saveWeightsForSampler("named")
            const update = yield* client.enqueue.optimStep(adam)
            const state = yield* client.enqueue.saveState("x")
            return yield* Effect.all([sampler.await, update.await, state.await])
          }),
        { results: [path("tinker://named"), updated, path("tinker://x")] },
      )
      expect(result._tag).toBe("Right")
      const ours = Replay.asBehaviour(submissions(requests))
      const [update, save, sampler] = Replay.recordedBy(file)
      expect(ours.map(({ request }) => request)).toEqual(
        [sampler, update, save].map((recorded) => recorded?.["request"]),
      )
      expect(numbers(requests)).toEqual([1, 2, 3])
    }),
  )

  it.effect(
    "behaviours/asyncio_interface_same_wire.json, but what the server offers is asked with no second start-up",
    () =>
      Effect.gen(function* () {
        const file = "behaviours/asyncio_interface_same_wire.json"
        const { result, seen } = yield* Replay.run(
          Effect.gen(function* () {
            const service = yield* ServiceClient.ServiceClient
            const { seen } = yield* HttpScript.HttpScript
            const training = yield* service.createLoraTrainingClient({ baseModel })
            const pass = yield* training.submit.forwardBackward(batch(1), Loss.crossEntropy)
            const update = yield* training.submit.optimStep(adam)
            yield* pass.await
            yield* update.await
            const sampling = yield* training.saveWeightsAndGetSamplingClient()
            const sample = yield* sampling.sample({ prompt: [1, 2, 3], params: { maxTokens: 1 } })
            const logprobs = yield* sampling.computeLogprobs([1, 2, 3])
            const info = yield* training.getInfo
            const { supportedModels } = yield* service.getServerCapabilities
            const result = {
              tokens: Array.from(sample.sequences[0]?.tokens ?? []),
              logprobs: SampleResult.toNullable(logprobs),
              model: info.modelId,
              models: supportedModels.length,
            }
            return { result, seen: [...seen] }
          }),
          Replay.scriptOf(file),
        )
        expect(result).toEqual(expected(file).result)
        const recorded = Replay.recordedBy(file)
        const startUp = recorded.slice(-3, -1)
        expect(startUp.map(({ request }) => request)).toEqual(recorded.slice(0, 2).map(({ request }) => request))
        expect(Replay.submissionsFirst(Replay.asBehaviour(seen))).toEqual(
          Replay.submissionsFirst([...recorded.slice(0, -3), ...recorded.slice(-1)]),
        )
      }),
  )
})

describe("results as recorded", () => {
  const asJson = Schema.encodeSync(TrainingResult.TrainingResult)

  it.effect("behaviours/chunk_future_fails.json: one piece that fails is the failure of all", () =>
    Effect.gen(function* () {
      const file = "behaviours/chunk_future_fails.json"
      const { requests, result } = yield* replay(
        file,
        (client) => client.forwardBackward(batch(3), Loss.crossEntropy),
        { flags: { fwdbwd_max_chunk_len: 1, parallel_fwdbwd_chunks: true } },
      )
      expect(Replay.submissionsFirst(Replay.asBehaviour(requests))).toEqual(
        Replay.submissionsFirst(Replay.recordedBy(file)),
      )
      expect(expected(file).error).toMatchObject({
        $error: "RequestFailedError",
        request_id: "req-0003",
        category: "server",
      })
      expect(Either.flip(result)).toMatchObject({
        right: { _tag: "RequestFailed", reason: "Server", requestId: Option.some("req-0003"), detail: "oom" },
      })
    }),
  )

  it.effect("behaviours/metrics_reduction.json, but what has no rule is shown", () =>
    Effect.gen(function* () {
      const file = "behaviours/metrics_reduction.json"
      const { requests, result } = yield* replay(
        file,
        (client) => client.forwardBackward(batch(3), Loss.crossEntropy),
        { flags: { fwdbwd_max_chunk_len: 2, parallel_fwdbwd_chunks: false } },
      )
      expect(recordedNumbers(file).slice(0, 2)).toEqual(numbers(requests))
      expect(requests.length).toBe(expected(file).totalRequests)
      const reference = Replay.untyped(expected(file).result) as typeof TrainingResult.TrainingResult.Encoded
      expect(Either.map(result, asJson)).toEqual(
        Either.right({ ...reference, metrics: { ...reference.metrics, "z:newkind": 1 } }),
      )
    }),
  )

  it.effect("behaviours/metrics_without_suffix.json, but a name is no failure", () =>
    Effect.gen(function* () {
      const file = "behaviours/metrics_without_suffix.json"
      const { requests, result } = yield* replay(file, (client) => client.forwardBackward(batch(1), Loss.crossEntropy))
      expect(Replay.asBehaviour(requests)).toEqual(Replay.recordedBy(file))
      expect(expected(file).error?.$error).toBe("ValueError")
      expect(Either.map(result, ({ metrics }) => metrics)).toEqual(Either.right({ loss: 1 }))
    }),
  )

  it.effect("behaviours/future_410_training.json: a result that is gone costs nothing but itself", () =>
    Effect.gen(function* () {
      const file = "behaviours/future_410_training.json"
      const script = Replay.scriptOf(file)
      const { requests, result } = yield* replay(
        file,
        (client) => Effect.zipLeft(Effect.flip(client.optimStep(adam)), client.optimStep(adam)),
        {
          answers: {
            optim_step: [...(script["optim_step"] ?? []), Replay.accepted("req-0003")],
            retrieve_future: [created(), ...(script["retrieve_future"] ?? []), updated],
          },
        },
      )
      expect(Replay.asBehaviour(requests).slice(0, 2)).toEqual(Replay.recordedBy(file))
      expect(expected(file).error).toMatchObject({ $error: "RetryableException" })
      expect(result).toMatchObject({ right: { _tag: "PromiseExpired", requestId: "req-0002", detail: "gone" } })
      expect(numbers(requests)).toEqual([1, 2])
    }),
  )
})

describe("failures as recorded", () => {
  it.effect("behaviours/create_model_402_not_paused.json: nobody waits for a bill before there is a model", () =>
    Effect.gen(function* () {
      const file = "behaviours/create_model_402_not_paused.json"
      const { requests, result } = yield* Replay.run(
        Effect.flatMap(ServiceClient.ServiceClient, ({ createLoraTrainingClient }) =>
          Replay.watched(createLoraTrainingClient({ baseModel: "b" })),
        ),
        Replay.scriptOf(file),
      )
      expect(Replay.asBehaviour(requests)).toEqual(Replay.recordedBy(file))
      expect(Either.flip(result)).toMatchObject({
        right: { _tag: Recorded.tagOf[expected(file).error?.$error ?? ""], detail: "billing" },
      })
    }),
  )

  it.effect("behaviours/optim_step_conflict_409.json: the same request again, after pauses of our own", () =>
    Effect.gen(function* () {
      const file = "behaviours/optim_step_conflict_409.json"
      const { requests, result } = yield* replay(file, (client) => client.optimStep(adam), { results: [updated] })
      const sent = submissions(requests)
      expect(anyAttempt(Replay.asBehaviour(sent))).toEqual(anyAttempt(Replay.recordedBy(file)))
      expect(keysOf(sent)).toBe(1)
      expect(gapsOf(sent)).toEqual([500, 1000])
      expect(result).toEqual(Either.right({ metrics: { "grad_norm:mean": 0.25 } }))
    }),
  )

  it.effect("behaviours/save_state_retry_new_key.json, but under one key", () =>
    Effect.gen(function* () {
      const file = "behaviours/save_state_retry_new_key.json"
      const { path: saved } = expected(file).result as { readonly path: string }
      const { requests, result } = yield* replay(file, (client) => client.saveState("ck"), { results: [path(saved)] })
      const sent = submissions(requests)
      expect(anyAttempt(Replay.asBehaviour(sent))).toEqual(anyAttempt(Replay.recordedBy(file)))
      expect(new Set(Replay.recordedBy(file).map(({ idempotencyKey }) => idempotencyKey)).size).toBe(3)
      expect(keysOf(sent)).toBe(1)
      // The pause after a failure of the server, and the first of those after a conflict.
      const [failed = 0, conflict = 0] = gapsOf(sent)
      expect(failed).toBeGreaterThanOrEqual(0.75 * RetryPolicy.firstDelay)
      expect(failed).toBeLessThanOrEqual(RetryPolicy.firstDelay)
      expect(conflict).toBe(500)
      expect(result).toEqual(Either.right({ path: saved }))
    }),
  )

  it.effect("behaviours/ephemeral_save_retry_burns_seq.json, but the request stays what it was", () =>
    Effect.gen(function* () {
      const file = "behaviours/ephemeral_save_retry_burns_seq.json"
      const { requests, result } = yield* replay(
        file,
        (client) => Effect.map(client.saveWeightsAndGetSamplingClient(), ({ samplingSessionId }) => samplingSessionId),
        { results: [{ body: { sampling_session_id: "sess-0001:sample:0" } }] },
      )
      const sent = submissions(requests)
      const [first] = Replay.recordedBy(file)
      expect(recordedNumbers(file)).toEqual([1, 1, 1])
      expect(anyAttempt(Replay.asBehaviour(sent))).toEqual(anyAttempt([first!, first!, first!]))
      expect(keysOf(sent)).toBe(1)
      expect(new Set(sent.map(({ body }) => body)).size).toBe(1)
      expect(result).toEqual(Either.right("sess-0001:sample:0"))
    }),
  )

  describe("behaviours/training_failed_submit_keeps_going.json", () => {
    const file = "behaviours/training_failed_submit_keeps_going.json"
    const refused = { status: 422, body: { detail: "bad" } }
    const both = (client: TrainingClient.Service) =>
      Effect.gen(function* () {
        const pass = yield* client.enqueue.forwardBackward(batch(1), Loss.crossEntropy)
        const update = yield* client.enqueue.optimStep(adam)
        return { first: yield* Effect.flip(pass.await), second: yield* update.await }
      })
    const outcome = {
      right: {
        first: { _tag: "RequestRejected", reason: "Unprocessable", detail: "bad" },
        second: { metrics: { "grad_norm:mean": 0.25 } },
      },
    }

    it.effect("the next one goes on, but with the number that was not used", () =>
      Effect.gen(function* () {
        const { requests, result } = yield* replay(file, both, {
          results: [updated],
          // Refused in either form: the first pass finds out what the server reads.
          answers: { forward_backward: [refused, refused] },
        })
        const [pass, json, update] = Replay.asBehaviour(submissions(requests))
        const [recordedPass, recordedUpdate] = Replay.recordedBy(file)
        expect(pass).toEqual(recordedPass)
        expect(json).toMatchObject({ request: pass?.["request"], body: { seq_id: 1 } })
        expect(recordedNumbers(file)).toEqual([1, 2])
        expect(update).toMatchObject({ request: recordedUpdate?.["request"], body: { seq_id: 1 } })
        expect(result).toMatchObject(outcome)
        expect(expected(file).result).toMatchObject({
          first: { $error: "UnprocessableEntityError" },
          second: outcome.right.second,
        })
      }),
    )

    it.effect("and with the recorded one on a server that counts what it refuses", () =>
      Effect.gen(function* () {
        const { requests, result } = yield* replay(file, both, {
          results: [updated],
          answers: {
            forward_backward: [refused, refused],
            optim_step: [{ status: 409, body: { detail: "seq conflict" } }, Replay.accepted("req-0002")],
          },
        })
        expect(numbers(requests)).toEqual([1, 1, 1, 2])
        const [, recordedUpdate] = Replay.recordedBy(file)
        expect(anyAttempt(Replay.asBehaviour(requests.slice(3, 4)))).toEqual(anyAttempt([recordedUpdate!]))
        expect(result).toMatchObject(outcome)
      }),
    )
  })
})

describe("the session poller is not used: each sample asks for its own result", () => {
  const sampled = (answers: Replay.Replies, { maxTokens, prompt } = { maxTokens: 1, prompt: [1, 2, 3] }) =>
    Replay.run(
      Effect.gen(function* () {
        const { createSamplingClient } = yield* ServiceClient.ServiceClient
        const client = yield* createSamplingClient({ samplingSessionId: "sess-0001:sample:0" })
        return yield* Replay.watched(client.sample({ prompt, params: { maxTokens } }))
      }),
      { ...answers, "client/config": [{ body: { sample_use_retrieve_futures: true } }] },
    )
  const accepted = { body: { request_id: "req-0001", sample_sequence_ids: ["seq-0-0"] } }
  const asJson = Schema.encodeSync(SampleResult.SampleResult)
  const paths = (requests: ReadonlyArray<HttpScript.Seen>) => requests.map(({ path }) => path)
  const own = ["/api/v1/asample", "/api/v1/retrieve_future"]
  /** As JSON of ours has it. */
  const reference = (result: unknown) =>
    JSON.parse(JSON.stringify(result), (key, value: unknown) => (key === "$type" || value === null ? undefined : value))

  it.effect("vectors/sample_retrieve_futures.json", () =>
    Effect.gen(function* () {
      const file = "vectors/sample_retrieve_futures.json"
      const { requests, result } = yield* sampled(Replay.answersOf(file), { maxTokens: 2, prompt: [11, 12, 13, 14] })
      const [submitted, , fetched] = Replay.requestsOf(file)
      expect(Replay.asVector(requests[0]!)).toEqual(submitted)
      // Its size is not known before it is asked for.
      const body = { ...(fetched?.body as object), allow_metadata_only: true }
      expect(Replay.asVector(requests[1]!)).toEqual({ ...fetched, body })
      expect(paths(requests)).toEqual(own)
      expect(Either.map(result, asJson)).toEqual(Either.right(reference(Recorded.vector(file).result)))
    }),
  )

  it.effect("behaviours/poller_errors_then_ok.json", () =>
    Effect.gen(function* () {
      const file = "behaviours/poller_errors_then_ok.json"
      const { requests, result } = yield* sampled({ ...Replay.scriptOf(file), asample: [accepted] })
      expect(paths(requests)).toEqual(own)
      expect(anyAttempt(Replay.asBehaviour(requests.slice(1)))).toEqual(anyAttempt(Replay.recordedBy(file).slice(-1)))
      expect(Either.map(result, asJson)).toEqual(Either.right(reference(expected(file).result)))
    }),
  )

  it.effect("behaviours/poller_failed_completion.json", () =>
    Effect.gen(function* () {
      const file = "behaviours/poller_failed_completion.json"
      const { requests, result } = yield* sampled({ ...Replay.scriptOf(file), asample: [accepted] })
      expect(paths(requests)).toEqual(own)
      expect(anyAttempt(Replay.asBehaviour(requests.slice(1)))).toEqual(anyAttempt(Replay.recordedBy(file).slice(1, 2)))
      expect(expected(file).error).toMatchObject({ $error: "RequestFailedError", category: "user" })
      expect(Either.flip(result)).toMatchObject({
        right: { _tag: "RequestRejected", reason: "UserCategory", requestId: Option.some("req-0001"), detail: "bad" },
      })
    }),
  )

  it.effect("behaviours/poller_fatal.json: so what is wrong with it is no sample's business", () =>
    Effect.gen(function* () {
      const file = "behaviours/poller_fatal.json"
      const results = Replay.scriptOf("behaviours/poller_errors_then_ok.json")["retrieve_future"] ?? []
      const answers = { ...Replay.scriptOf(file), asample: [accepted], retrieve_future: results }
      const { requests, result } = yield* sampled(answers)
      expect(paths(requests)).toEqual(own)
      expect(expected(file).error?.$error).toBe("TinkerError")
      expect(result._tag).toBe("Right")
    }),
  )
})
