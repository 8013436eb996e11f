/** Replays the reference's training behavior: the order of requests, the handling of failures, and the differences. */
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
/** The result of a pass with one datum. */
/** The result of a pass over any number of datums. */
const passed: HttpScript.Reply = { body: { metrics: { "loss:sum": 1 } } }
/** The result of a pass over one datum. */
const passedOne: HttpScript.Reply = {
  ...Replay.scriptOf("behaviours/chunk_future_fails.json")["retrieve_future"]![0]!,
  delaySeconds: 0,
}

interface Setup {
  readonly flags?: Readonly<Record<string, unknown>>
  readonly options?: TrainingClient.Options
  /** Poll answers, for recordings without them. */
  readonly results?: ReadonlyArray<HttpScript.Reply>
  readonly answers?: Replay.Replies
}

/** Runs a new client on the recorded answers. */
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

/** Without the headers that differ between attempts. */
const anyAttempt = (requests: ReadonlyArray<Readonly<Record<string, unknown>>>) =>
  requests.map(({ idempotencyKey: _key, retryCount: _count, ...request }) => request)

const keysOf = (requests: ReadonlyArray<HttpScript.Seen>) =>
  new Set(requests.map(({ headers }) => headers["x-idempotency-key"])).size

const gapsOf = (requests: ReadonlyArray<HttpScript.Seen>) =>
  requests.slice(1).map(({ at }, index) => at - (requests[index]?.at ?? 0))

const expected = (file: Replay.BehaviourFile) => Recorded.behaviour(file).expect

describe("recorded order", () => {
  it.effect("behaviours/training_seq_ids.json: training requests have the recorded sequence ids", () =>
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
    "behaviours/training_turn_order.json: a request is sent once the previous one is acknowledged, before it is done",
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

  it.effect(
    "behaviours/training_parallel_chunks_overlap.json: the first chunk is sent after all others are acknowledged",
    () =>
      Effect.gen(function* () {
        const file = "behaviours/training_parallel_chunks_overlap.json"
        const { requests, result } = yield* replay(
          file,
          (client) => client.forwardBackward(batch(4), Loss.crossEntropy),
          {
            flags: { fwdbwd_max_chunk_len: 1, parallel_fwdbwd_chunks: true },
            results: [passedOne, passedOne, passedOne, passedOne],
          },
        )
        const { maxInflight, result: outputs } = expected(file) as Recorded.Behaviour["expect"] & {
          readonly maxInflight?: number
        }
        const sent = submissions(requests)
        const start = sent[0]?.at ?? 0
        expect(sent.map(({ at }) => at - start)).toEqual([0, 0, 0, 500])
        expect(sent.filter(({ at }) => at === start).length).toBe(maxInflight)
        // Parallel chunks arrive in any order.
        const [first, second, third, last] = recordedNumbers(file)
        expect(numbers(requests)).toEqual([...[first!, second!, third!].toSorted((a, b) => a - b), last])
        const anyNumber = (all: ReturnType<typeof anyAttempt>) =>
          all.map((request) => ({ ...request, body: { ...(request["body"] as object), seq_id: 0 } }))
        expect(anyNumber(anyAttempt(Replay.asBehaviour(sent)))).toEqual(anyNumber(anyAttempt(Replay.recordedBy(file))))
        expect(Either.map(result, (pass) => pass.outputs.length)).toEqual(Either.right(outputs))
      }),
  )

  it.effect(
    "behaviours/save_weights_for_sampler_late_seq_id.json: sequence ids are as recorded, but in the order of the calls",
    () =>
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
    "behaviours/asyncio_interface_same_wire.json: requests are as recorded, without a second start-up for capabilities",
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

describe("recorded results", () => {
  const asJson = Schema.encodeSync(TrainingResult.TrainingResult)

  it.effect("behaviours/chunk_future_fails.json: a pass fails if one of its chunks fails", () =>
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

  it.effect(
    "behaviours/metrics_reduction.json: metrics are reduced as recorded, and those without a rule are kept",
    () =>
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

  it.effect(
    "behaviours/metrics_without_suffix.json: a metric name without a suffix is accepted, unlike in the reference",
    () =>
      Effect.gen(function* () {
        const file = "behaviours/metrics_without_suffix.json"
        const { requests, result } = yield* replay(file, (client) =>
          client.forwardBackward(batch(1), Loss.crossEntropy),
        )
        expect(Replay.asBehaviour(requests)).toEqual(Replay.recordedBy(file))
        expect(expected(file).error?.$error).toBe("ValueError")
        expect(Either.map(result, ({ metrics }) => metrics)).toEqual(Either.right({ loss: 1 }))
      }),
  )

  it.effect("behaviours/future_410_training.json: an expired result does not affect later requests", () =>
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

describe("recorded failures", () => {
  it.effect("behaviours/create_model_402_not_paused.json: a 402 is not waited for while a model is created", () =>
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

  it.effect("behaviours/optim_step_conflict_409.json: a conflict resends the same request, with our own delays", () =>
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

  it.effect(
    "behaviours/save_state_retry_new_key.json: a save is retried as recorded, but with one idempotency key",
    () =>
      Effect.gen(function* () {
        const file = "behaviours/save_state_retry_new_key.json"
        const { path: saved } = expected(file).result as { readonly path: string }
        const { requests, result } = yield* replay(file, (client) => client.saveState("ck"), { results: [path(saved)] })
        const sent = submissions(requests)
        expect(anyAttempt(Replay.asBehaviour(sent))).toEqual(anyAttempt(Replay.recordedBy(file)))
        expect(new Set(Replay.recordedBy(file).map(({ idempotencyKey }) => idempotencyKey)).size).toBe(3)
        expect(keysOf(sent)).toBe(1)
        // The delay after a server error, and the first delay after a conflict.
        const [failed = 0, conflict = 0] = gapsOf(sent)
        expect(failed).toBeGreaterThanOrEqual(0.75 * RetryPolicy.firstDelay)
        expect(failed).toBeLessThanOrEqual(RetryPolicy.firstDelay)
        expect(conflict).toBe(500)
        expect(result).toEqual(Either.right({ path: saved }))
      }),
  )

  it.effect(
    "behaviours/ephemeral_save_retry_burns_seq.json: a retried save is as recorded, but its request does not change",
    () =>
      Effect.gen(function* () {
        const file = "behaviours/ephemeral_save_retry_burns_seq.json"
        const { requests, result } = yield* replay(
          file,
          (client) =>
            Effect.map(client.saveWeightsAndGetSamplingClient(), ({ samplingSessionId }) => samplingSessionId),
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

  describe("behaviours/training_failed_submit_keeps_going.json: requests after a rejected one", () => {
    const file = "behaviours/training_failed_submit_keeps_going.json"
    const refused = { status: 422, body: { detail: "bad" } }
    const conflict = { status: 409, body: { detail: "seq conflict" } }
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

    it.effect("the request after a rejected one reuses its number", () =>
      Effect.gen(function* () {
        const { requests, result } = yield* replay(file, both, {
          results: [updated],
          // Rejected in both encodings: the first pass detects which one the server accepts.
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

    it.effect("the request after a rejected one has the recorded number if the server counts rejected requests", () =>
      Effect.gen(function* () {
        const { requests, result } = yield* replay(file, both, {
          results: [updated],
          answers: {
            forward_backward: [refused, refused],
            // The same request is sent twice more before another number is tried.
            optim_step: [conflict, conflict, conflict, Replay.accepted("req-0002")],
          },
        })
        expect(numbers(requests)).toEqual([1, 1, 1, 1, 1, 2])
        const [, recordedUpdate] = Replay.recordedBy(file)
        expect(anyAttempt(Replay.asBehaviour(requests.slice(5, 6)))).toEqual(anyAttempt([recordedUpdate!]))
        expect(result).toMatchObject(outcome)
      }),
    )
  })
})

describe("recordings of the session poller, which is not used: each sample polls its own result", () => {
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
  /** In the encoded form of our result. */
  const reference = (result: unknown) =>
    JSON.parse(JSON.stringify(result), (key, value: unknown) => (key === "$type" || value === null ? undefined : value))

  it.effect("vectors/sample_retrieve_futures.json: a sample polls its own result", () =>
    Effect.gen(function* () {
      const file = "vectors/sample_retrieve_futures.json"
      const { requests, result } = yield* sampled(Replay.answersOf(file), { maxTokens: 2, prompt: [11, 12, 13, 14] })
      const [submitted, , fetched] = Replay.requestsOf(file)
      expect(Replay.asVector(requests[0]!)).toEqual(submitted)
      // The size of a result is not known before it is requested.
      const body = { ...(fetched?.body as object), allow_metadata_only: true }
      expect(Replay.asVector(requests[1]!)).toEqual({ ...fetched, body })
      expect(paths(requests)).toEqual(own)
      expect(Either.map(result, asJson)).toEqual(Either.right(reference(Recorded.vector(file).result)))
    }),
  )

  it.effect("behaviours/poller_errors_then_ok.json: a sample polls its own result", () =>
    Effect.gen(function* () {
      const file = "behaviours/poller_errors_then_ok.json"
      const { requests, result } = yield* sampled({ ...Replay.scriptOf(file), asample: [accepted] })
      expect(paths(requests)).toEqual(own)
      expect(anyAttempt(Replay.asBehaviour(requests.slice(1)))).toEqual(anyAttempt(Replay.recordedBy(file).slice(-1)))
      expect(Either.map(result, asJson)).toEqual(Either.right(reference(expected(file).result)))
    }),
  )

  it.effect("behaviours/poller_failed_completion.json: a failed sample is reported to its caller", () =>
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

  it.effect("behaviours/poller_fatal.json: an error of the session poller does not affect samples", () =>
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
