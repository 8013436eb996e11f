/** Replays the reference's sampling: the same requests, the same results, and the intended differences. */
import { describe, expect, it } from "@effect/vitest"
import { Effect, Either, Fiber, Logger, Option, Schema, TestClock } from "effect"
import { ModelInput, SampleResult, TensorData } from "effect-tinker"
import * as SamplerHandle from "effect-tinker/SamplerHandle"
import * as SamplingClient from "effect-tinker/SamplingClient"
import * as HttpScript from "./support/HttpScript.ts"
import * as Recorded from "./support/Recorded.ts"
import * as Sampling from "./support/Sampling.ts"
import * as VirtualTime from "./support/VirtualTime.ts"

const quiet = Logger.remove(Logger.defaultLogger)

/** The recorded result in the encoded form of our result. */
const untyped = (value: unknown): unknown => {
  if (Array.isArray(value)) return value.map(untyped)
  if (typeof value !== "object" || value === null) return value
  return Object.fromEntries(
    Object.entries(value)
      .filter(([key, value]) => key !== "$type" && value !== null)
      .map(([key, value]) => [key, untyped(value)]),
  )
}

const asJson = (result: SampleResult.SampleResult) => Schema.encodeSync(SampleResult.SampleResult)(result)

type VectorFile = Parameters<typeof Recorded.vector>[0]

const exchangesOf = (file: VectorFile) => {
  const vector = Recorded.vector(file)
  return vector.exchanges ?? (vector.request === null ? [] : [vector])
}

/** The recorded answers, by path. */
const answersOf = (file: VectorFile): Sampling.Replies => {
  const replies: Record<string, Array<HttpScript.Reply>> = {}
  for (const { request, response } of exchangesOf(file)) {
    const { body, bodyBase64, delaySeconds, headers, status } = response as typeof response & {
      readonly bodyBase64?: string
      readonly delaySeconds?: number
      readonly headers?: Record<string, string>
    }
    const list = (replies[request.path.replace("/api/v1/", "")] ??= [])
    list.push({
      status,
      body: bodyBase64 === undefined ? body : Buffer.from(bodyBase64, "base64"),
      ...(headers === undefined ? {} : { headers }),
      ...(delaySeconds === undefined ? {} : { delaySeconds }),
    })
  }
  return replies
}

/** The recorded requests, with the number 0 where our client is opened for a single sample. */
const requestsOf = (file: VectorFile) =>
  exchangesOf(file).map(({ request }) => ({
    path: request.path,
    body: typeof request.body === "object" && "seq_id" in request.body! ? { ...request.body, seq_id: 0 } : request.body,
  }))

const sent = (seen: ReadonlyArray<HttpScript.Seen>) =>
  seen
    .filter(({ path }) => !/client\/|create_session|heartbeat|finish/.test(path))
    .map(({ body, path }) => ({ path, body: JSON.parse(body) }))

const sessionOf = (file: VectorFile): SamplingClient.Target => {
  const { body } = exchangesOf(file)[0]!.request
  return { samplingSessionId: (body as { readonly sampling_session_id: string }).sampling_session_id }
}

const prompt = [11, 12, 13, 14]

/** Runs one call of a client on the recorded answers. */
const replay = <A, E>(
  file: VectorFile,
  use: (client: SamplingClient.Service) => Effect.Effect<A, E>,
  options?: SamplingClient.Options,
  more: Sampling.Replies = {},
) =>
  Effect.gen(function* () {
    const client = yield* SamplingClient.make(sessionOf(file), options)
    const result = yield* Effect.either(use(client))
    return { result, seen: (yield* HttpScript.HttpScript).seen }
  }).pipe(
    Effect.scoped,
    Effect.provide(Sampling.layer({ ...answersOf(file), ...more })),
    VirtualTime.run,
    Effect.provide(quiet),
  )

const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

const samples: ReadonlyArray<readonly [VectorFile, SamplingClient.Request, SamplingClient.Options?]> = [
  ["vectors/sample_defaults.json", { prompt }],
  [
    "vectors/sample_all_params.json",
    {
      prompt,
      numSamples: 2,
      params: { maxTokens: 16, seed: 42, stop: ["\n", "END"], temperature: 0.7, topK: 50, topP: 0.9 },
      promptLogprobs: true,
      topkPromptLogprobs: 2,
      topkSampleLogprobs: 2,
    },
  ],
  ["vectors/sample_stop_string.json", { prompt, params: { maxTokens: 4, stop: "\n" } }],
  ["vectors/sample_stop_tokens.json", { prompt, params: { maxTokens: 4, stop: [198, 2] } }],
  ["vectors/sample_stop_empty.json", { prompt, params: { maxTokens: 4, stop: [] } }],
  [
    "vectors/sample_response_topk.json",
    { prompt, params: { maxTokens: 2 }, promptLogprobs: true, topkPromptLogprobs: 2, topkSampleLogprobs: 2 },
  ],
  [
    "vectors/sample_target_prompt_logprobs_sparse.json",
    {
      prompt,
      params: { maxTokens: 2 },
      targetPromptLogprobs: Either.getOrThrow(
        TensorData.int64([6], { shape: [3, 4], sparse: { crowIndices: [0, 0, 0, 1], colIndices: [2] } }),
      ),
    },
  ],
  ["vectors/sample_prompt_alt_tokens.json", { prompt, params: { maxTokens: 2 }, promptAltTokensK: 2 }],
  [
    "vectors/sample_prompt_logprobs_last_n.json",
    { prompt, params: { maxTokens: 1 }, promptLogprobs: true, promptLogprobsLastN: 2 },
  ],
  // In the reference a setting of the whole client, here of a client or a sample.
  ["vectors/sample_record_stability_info.json", { prompt, params: { maxTokens: 2 } }, { recordStabilityInfo: true }],
  ["vectors/sample_record_stability_info.json", { prompt, params: { maxTokens: 2 }, recordStabilityInfo: true }],
  [
    "vectors/sample_multimodal.json",
    {
      prompt: ModelInput.make(
        { type: "encoded_text", tokens: Int32Array.of(1) },
        { type: "image", data: Buffer.from(png, "base64"), format: "png", expectedTokens: 4 },
        { type: "image_asset_pointer", format: "jpeg", location: "gs://bucket/x.jpg", expectedTokens: 9 },
        { type: "image_asset_pointer", format: "png", location: "gs://bucket/y.png" },
        ModelInput.dmel(Uint8Array.of(0, 2, 3, 4, ...new Uint8Array(12))),
      ),
      params: { maxTokens: 2 },
    },
  ],
]

describe("recorded samples", () => {
  it.effect.each(samples)("sample matches the recording %s", ([file, request, options]) =>
    Effect.gen(function* () {
      const { result, seen } = yield* replay(file, (client) => client.sample(request), options)
      expect(sent(seen)).toEqual(requestsOf(file))
      expect(Either.map(result, asJson)).toEqual(Either.right(untyped(Recorded.vector(file).result)))
      const [submitted, polled] = seen.filter(({ path }) => /asample|retrieve/.test(path))
      expect(submitted?.headers["x-tinker-sampling-backpressure"]).toBe("1")
      expect(submitted?.purpose).toBe("sample")
      expect(polled?.headers).toMatchObject({ "x-tinker-request-type": "Sample", accept: "application/x-protobuf" })
      expect(polled?.headers["x-tinker-create-promise-roundtrip-time"]).toBe("0")
    }),
  )

  it.effect.each([
    ["vectors/compute_logprobs.json", undefined],
    ["vectors/compute_logprobs_last_n.json", { lastN: 1 }],
  ] as const)("computeLogprobs matches the recording %s", ([file, options]) =>
    Effect.gen(function* () {
      const { result, seen } = yield* replay(file, (client) => client.computeLogprobs(prompt, options))
      expect(sent(seen)).toEqual(requestsOf(file))
      expect(Either.map(result, SampleResult.toNullable)).toEqual(Either.right(Recorded.vector(file).result))
    }),
  )

  it.effect("submit.sample returns a future: vectors/sample_all_params.json", () =>
    Effect.gen(function* () {
      const file = "vectors/sample_all_params.json"
      const [, request] = samples.find(([name]) => name === file)!
      const { result, seen } = yield* replay(file, (client) =>
        Effect.gen(function* () {
          const future = yield* client.submit.sample(request)
          expect(future.requestId).toBe("req-0042")
          return yield* future.await
        }),
      )
      expect(sent(seen)).toEqual(requestsOf(file))
      expect(Either.map(result, asJson)).toEqual(Either.right(untyped(Recorded.vector(file).result)))
    }),
  )

  it.effect("vectors/sample_prompt_alt_tokens_missing.json: a requested field that is missing is an error", () =>
    Effect.gen(function* () {
      const file = "vectors/sample_prompt_alt_tokens_missing.json"
      const { result, seen } = yield* replay(file, (client) =>
        client.sample({ prompt, params: { maxTokens: 2 }, promptAltTokensK: 2 }),
      )
      expect(sent(seen)).toEqual(requestsOf(file))
      expect(Either.flip(result)).toMatchObject({
        right: { _tag: "UnexpectedResponse", requestId: Option.some("req-0050") },
      })
      expect(Recorded.vector(file).result).toMatchObject({ $error: "RuntimeError" })
    }),
  )

  it.effect(
    "vectors/sample_target_prompt_logprobs_bad_dtype.json: targets of the wrong type are rejected before sending",
    () =>
      Effect.gen(function* () {
        const file = "vectors/sample_target_prompt_logprobs_bad_dtype.json"
        expect(exchangesOf(file)).toEqual([])
        const { result, seen } = yield* replay("vectors/sample_defaults.json", (client) =>
          client.sample({
            prompt,
            // As untyped code could call it.
            targetPromptLogprobs: Either.getOrThrow(TensorData.float32([[1]])) as unknown as TensorData.Input<"int64">,
          }),
        )
        expect(sent(seen)).toEqual([])
        expect(Either.flip(result)).toMatchObject({
          right: {
            _tag: "InvalidInput",
            path: "sample.targetPromptLogprobs",
            problem: "expected a int64 tensor, got float32",
          },
        })
        expect(Recorded.vector(file).result).toMatchObject({ $error: "ValueError" })
      }),
  )

  it.effect("vectors-0.25.0/sample.json: newer fields are left out for an older server that rejects them", () =>
    Effect.gen(function* () {
      const file = "vectors-0.25.0/sample.json"
      const forbidden = ["topk_sample_logprobs", "prompt_alt_tokens_k", "record_stability_info"]
      const answers = answersOf(file)
      const { result, seen } = yield* replay(
        file,
        (client) => client.sample({ prompt: [1, 2], params: { maxTokens: 2 }, promptLogprobs: true }),
        {},
        {
          asample: [
            {
              status: 422,
              body: { detail: forbidden.map((name) => ({ type: "extra_forbidden", loc: ["body", name] })) },
            },
            ...(answers["asample"] ?? []),
          ],
        },
      )
      expect(sent(seen).slice(1)).toEqual(requestsOf(file))
      // Sequence ids are newer than this recording, and present.
      const [sequence] = Either.getOrThrow(result).sequences
      expect(sequence?.sequenceId).toEqual(Option.some("seq-0-0"))
      expect(asJson(Either.getOrThrow(result))).toMatchObject(untyped(Recorded.vector(file).result) as object)
    }),
  )
})

describe("recorded clients", () => {
  const opened = (target: SamplingClient.Target, before: number, answer: HttpScript.Reply) =>
    Effect.gen(function* () {
      for (let i = 0; i < before; i++) yield* SamplingClient.make({ baseModel: "other" })
      const client = yield* Effect.either(SamplingClient.make(target))
      const { to } = yield* HttpScript.HttpScript
      return { client, requests: to("create_sampling_session").slice(before) }
    }).pipe(
      Effect.scoped,
      Effect.provide(
        Sampling.layer({
          create_sampling_session: [
            ...Array.from({ length: before }, () => ({ body: { sampling_session_id: "other" } })),
            answer,
          ],
        }),
      ),
      VirtualTime.run,
    )

  it.effect.each([
    ["vectors/create_sampling_client_base_model.json", { baseModel: "Qwen/Qwen3-8B" }],
    ["vectors/create_sampling_client_model_path.json", { modelPath: "tinker://run-1/sampler_weights/s-1" }],
  ] as const)("SamplingClient.make matches the recording %s", ([file, target]) =>
    Effect.gen(function* () {
      const vector = Recorded.vector(file)
      const { sampling_session_seq_id } = vector.request.body as { readonly sampling_session_seq_id: number }
      const { client, requests } = yield* opened(target, sampling_session_seq_id, { body: vector.response.body })
      expect(requests.map(({ body }) => JSON.parse(body))).toEqual([vector.request.body])
      expect(Either.getOrThrow(client).samplingSessionId).toBe(
        (vector.result as { readonly sampling_session_id: string }).sampling_session_id,
      )
    }),
  )

  it.effect("vectors/create_sampling_client_bad_path.json: an invalid path is rejected before sending", () =>
    Effect.gen(function* () {
      const vector = Recorded.vector("vectors/create_sampling_client_bad_path.json")
      const { client, requests } = yield* opened({ modelPath: "/weights" }, 0, {})
      expect(requests).toEqual([])
      expect(vector.request).toBe(null)
      expect(Either.flip(client)).toMatchObject({
        right: {
          _tag: "InvalidInput",
          path: "modelPath",
          problem: expect.stringContaining("does not start with tinker://"),
        },
      })
    }),
  )

  it.effect("vectors/cancel_future.json: interrupting a sample cancels it if the server enables that", () =>
    Effect.gen(function* () {
      const file = "vectors/cancel_future.json"
      const seen = yield* Effect.gen(function* () {
        const client = yield* SamplingClient.make(sessionOf(file))
        const sampling = yield* Effect.fork(client.sample({ prompt, params: { maxTokens: 2 } }))
        yield* TestClock.adjust("200 millis")
        yield* Fiber.interrupt(sampling)
        yield* TestClock.adjust("1 minute")
        return (yield* HttpScript.HttpScript).seen
      }).pipe(
        Effect.scoped,
        Effect.provide(
          Sampling.layer({
            ...answersOf(file),
            "client/dynamic_config": [{ body: { sample_cancel_enabled: true }, forever: true }],
          }),
        ),
      )
      expect(sent(seen)).toEqual(requestsOf(file))
    }),
  )

  it.effect("vectors/join_sampling_session.json: a clone that joins numbers its samples in the given block", () =>
    Effect.gen(function* () {
      const file = "vectors/join_sampling_session.json"
      const handle = SamplerHandle.encode(Sampling.handle({ sampleJoinSamplingSession: true }))
      const { result, seen } = yield* Effect.gen(function* () {
        const clone = yield* SamplingClient.fromHandle(handle)
        const result = yield* clone.sample({ prompt, params: { maxTokens: 2 } })
        return { result, seen: (yield* HttpScript.HttpScript).seen }
      }).pipe(Effect.scoped, Effect.provide(Sampling.sessionless(answersOf(file))), VirtualTime.run)
      expect(sent(seen)).toEqual(exchangesOf(file).map(({ request }) => ({ path: request.path, body: request.body })))
      expect(asJson(result)).toEqual(untyped(Recorded.vector(file).result))
    }),
  )

  it.effect("vectors/sampler_handle.json: a handle equals that of the reference", () =>
    Effect.gen(function* () {
      const recorded = JSON.parse(
        JSON.stringify(Recorded.vector("vectors/sampler_handle.json").result).replace("PORT", "1234"),
      )
      const text = yield* Effect.flatMap(
        SamplingClient.make({ samplingSessionId: "sess-0001:sample:2" }),
        ({ handle }) => handle,
      ).pipe(
        Effect.scoped,
        Effect.provide(
          Sampling.layer(
            { "client/config": [{ body: recorded.holder.client_config }] },
            { baseUrl: "http://127.0.0.1:1234" },
          ),
        ),
        VirtualTime.run,
      )
      expect(text).toMatch(/^[\w-]+=*$/)
      expect(text.length % 4).toBe(0)
      expect(JSON.parse(Buffer.from(text, "base64url").toString())).toEqual(recorded)
      // The reference's own text decodes too.
      const theirs = Buffer.from(JSON.stringify(recorded)).toString("base64").replaceAll("+", "-").replaceAll("/", "_")
      expect(SamplerHandle.decode(theirs)).toEqual(SamplerHandle.decode(text))
    }),
  )

  it.effect("behaviours/sample_clone_seq_ids.json: the original numbers from 0, a clone from another block", () =>
    Effect.gen(function* () {
      const { expect: recorded } = Recorded.behaviour("behaviours/sample_clone_seq_ids.json")
      const numbers = yield* Effect.gen(function* () {
        const original = yield* SamplingClient.make(Sampling.samplingSession)
        const clone = yield* SamplingClient.fromHandle(yield* original.handle)
        for (const client of [original, original, clone, clone]) yield* client.sample({ prompt })
        const { to } = yield* HttpScript.HttpScript
        return to("asample").map(({ body }) => Number(JSON.parse(body).seq_id))
      }).pipe(Effect.scoped, Effect.provide(Sampling.layer(Sampling.ready)), VirtualTime.run)
      const [first, second, cloned, next] = numbers as [number, number, number, number]
      expect([first, second]).toEqual([0, 1])
      expect({
        original: first,
        cloneBlockAtLeast1: cloned >= 1e9,
        cloneOffset: cloned % 1e9,
      }).toEqual(recorded.result)
      expect(next).toBe(cloned + 1)
      expect(Number.isSafeInteger(cloned + 1e9)).toBe(true)
    }),
  )
})

describe("recorded behavior", () => {
  const scriptOf = (file: `behaviours/${string}.json`) => {
    const { expect: recorded, script } = Recorded.behaviour(file)
    const replies: Record<string, Array<HttpScript.Reply>> = {}
    for (const answer of script) {
      const [[path, [reply] = []] = [""]] = Object.entries(Recorded.replies([answer])).filter(
        ([path]) => path !== "client/config",
      )
      const bytes = answer.bodyBase64 === undefined ? undefined : Buffer.from(answer.bodyBase64, "base64")
      if (reply !== undefined) (replies[path] ??= []).push({ ...reply, ...(bytes && { body: bytes }) })
    }
    return { recorded, replies }
  }

  const one = { prompt: [1, 2, 3], params: { maxTokens: 1 } }

  /** Runs one sample on the recorded answers. */
  const run = (file: `behaviours/${string}.json`, request: SamplingClient.Request = one, more: Sampling.Replies = {}) =>
    Effect.gen(function* () {
      const { recorded, replies } = scriptOf(file)
      const { result, seen } = yield* Effect.gen(function* () {
        const client = yield* SamplingClient.make(Sampling.samplingSession)
        const result = yield* Effect.either(client.sample(request))
        return { result, seen: (yield* HttpScript.HttpScript).seen }
      }).pipe(Effect.scoped, Effect.provide(Sampling.layer({ ...replies, ...more })), VirtualTime.run)
      const traffic = seen.filter(({ path }) => /asample|retrieve_future/.test(path))
      const start = traffic[0]?.at ?? 0
      return {
        recorded,
        result,
        requests: sent(traffic),
        times: traffic.map(({ at }) => at - start),
        keys: traffic.map(({ headers }) => headers["x-idempotency-key"]),
      }
    }).pipe(Effect.provide(quiet))

  const bodies = (recorded: Recorded.Behaviour["expect"]) =>
    recorded.requests.map(({ body, request }) => ({ path: request.replace("POST ", ""), body }))

  it.effect(
    "behaviours/sample_429_backpressure.json: a 429 backs off as recorded, except that Retry-After is honored",
    () =>
      Effect.gen(function* () {
        const { keys, recorded, requests, result, times } = yield* run("behaviours/sample_429_backpressure.json")
        expect(requests).toEqual(bodies(recorded))
        expect(Either.map(result, asJson)).toEqual(Either.right(untyped(recorded.result)))
        // The server asked for seven seconds; the second 429 has no Retry-After.
        expect(times).toEqual([0, 7000, 8000, 8000])
        expect(new Set(keys).size).toBe(4)
      }),
  )

  it.effect("behaviours/sample_429_large_prompt.json: a 429 backs off for five seconds with a large prompt", () =>
    Effect.gen(function* () {
      const tokens = Array.from({ length: 13_108 }, () => 1)
      const { recorded, requests, result, times } = yield* run("behaviours/sample_429_large_prompt.json", {
        ...one,
        prompt: tokens,
      })
      expect(times).toEqual([0, 5000, 5000])
      expect(Either.map(result, asJson)).toEqual(Either.right(untyped(recorded.result)))
      expect(requests.map(({ path }) => path)).toEqual(bodies(recorded).map(({ path }) => path))
      expect(requests.slice(0, 2).map(({ body }) => [body.seq_id, body.prompt.chunks[0].tokens.length])).toEqual([
        [0, 13_108],
        [0, 13_108],
      ])
      // With one token less the prompt is not large.
      const smaller = yield* run("behaviours/sample_429_large_prompt.json", { ...one, prompt: tokens.slice(1) })
      expect(smaller.times).toEqual([0, 1000, 1000])
    }),
  )

  it.effect(
    "behaviours/sample_asample_402.json: a 402 is retried as recorded, after the usual five-second billing pause",
    () =>
      Effect.gen(function* () {
        const { recorded, requests, result, times } = yield* run("behaviours/sample_asample_402.json")
        expect(requests).toEqual(bodies(recorded))
        expect(Either.map(result, asJson)).toEqual(Either.right(untyped(recorded.result)))
        expect(times).toEqual([0, 5000, 5000])
      }),
  )

  it.effect("behaviours/sample_future_410_resamples.json: a sample is submitted again after its promise expired", () =>
    Effect.gen(function* () {
      const { recorded, requests, result, times } = yield* run("behaviours/sample_future_410_resamples.json")
      expect(requests).toEqual(bodies(recorded))
      expect(Either.map(result, asJson)).toEqual(Either.right(untyped(recorded.result)))
      const [, , second = 0, , third = 0] = times
      expect(second).toBeGreaterThanOrEqual(375)
      expect(second).toBeLessThanOrEqual(625)
      expect(third - second).toBeGreaterThanOrEqual(750)
      expect(third - second).toBeLessThanOrEqual(1250)
    }),
  )

  it.effect(
    "behaviours/sample_no_retries_flag.json: a sample is not submitted again if the server disables retries",
    () =>
      Effect.gen(function* () {
        const flags = { "client/config": [{ body: { sample_no_retries: true } }] }
        const { recorded, requests, result } = yield* run("behaviours/sample_no_retries_flag.json", one, flags)
        expect(requests).toEqual(bodies(recorded))
        expect(Either.flip(result)).toMatchObject({
          right: { _tag: "PromiseExpired", requestId: "req-0001", detail: "gone" },
        })
        expect(recorded.error).toMatchObject({ $error: "RetryableException" })
      }),
  )

  it.effect("behaviours/sample_cancel_disabled.json: no cancellation is sent if the server does not enable it", () =>
    Effect.gen(function* () {
      const { recorded, replies } = scriptOf("behaviours/sample_cancel_disabled.json")
      const traffic = yield* Effect.gen(function* () {
        const client = yield* SamplingClient.make(Sampling.samplingSession)
        const sampling = yield* Effect.fork(client.sample(one))
        // As long as the recorded polls last, plus our pause.
        yield* TestClock.adjust("650 millis")
        yield* Fiber.interrupt(sampling)
        yield* TestClock.adjust("1 minute")
        return (yield* HttpScript.HttpScript).seen.filter(({ path }) => /asample|_future/.test(path))
      }).pipe(Effect.scoped, Effect.provide(Sampling.layer(replies)))
      expect(sent(traffic)).toEqual(bodies(recorded))
    }),
  )

  /** Starts the given number of samples at once, all with the same answer; returns when each was submitted. */
  const crowd = (count: number, replies: Sampling.Replies) =>
    Effect.gen(function* () {
      const client = yield* SamplingClient.make(Sampling.samplingSession)
      yield* Effect.forEach(Array.from({ length: count }), () => client.sample(one), { concurrency: "unbounded" })
      const { to } = yield* HttpScript.HttpScript
      const submitted = to("asample")
      return submitted.map(({ at }) => at - (submitted[0]?.at ?? 0))
    }).pipe(
      Effect.scoped,
      Effect.provide(Sampling.layer({ ...Sampling.ready, ...replies })),
      VirtualTime.run,
      Effect.provide(quiet),
    )

  const slow = (seconds: number) => ({ ...Sampling.accepted("req"), delaySeconds: seconds, forever: true })

  it.effect("behaviours/sample_bytes_semaphore.json: samples are admitted while the byte balance is not negative", () =>
    Effect.gen(function* () {
      const { recorded } = scriptOf("behaviours/sample_bytes_semaphore.json")
      const times = yield* crowd(4, {
        "client/config": [{ body: { sample_dispatch_bytes_semaphore_size: 50 } }],
        asample: [slow(0.3)],
      })
      expect(times).toEqual([0, 0, 300, 300])
      expect(recorded).toMatchObject({ maxInflightAsample: 2 })
    }),
  )

  it.effect("behaviours/sample_dispatch_limit_400.json: at most 400 samples are submitted concurrently", () =>
    Effect.gen(function* () {
      const { recorded } = scriptOf("behaviours/sample_dispatch_limit_400.json")
      const times = yield* crowd(460, { asample: [slow(10)] })
      expect(times.filter((at) => at === 0).length).toBe(
        (recorded as { maxInflightAsample?: number }).maxInflightAsample,
      )
      expect(times.filter((at) => at === 10_000).length).toBe(60)
    }),
  )

  it.effect("behaviours/sample_throttled_after_429.json: ten samples at a time are admitted after a 429", () =>
    Effect.gen(function* () {
      const { recorded } = scriptOf("behaviours/sample_throttled_after_429.json")
      expect(recorded).toMatchObject({ maxInflightAsampleAfter429: 10 })
      const times = yield* Effect.gen(function* () {
        const client = yield* SamplingClient.make(Sampling.samplingSession)
        const first = yield* Effect.fork(client.sample(one))
        yield* Effect.sleep("500 millis")
        yield* Effect.forEach(Array.from({ length: 30 }), () => client.sample(one), { concurrency: "unbounded" })
        yield* Fiber.join(first)
        const { to } = yield* HttpScript.HttpScript
        const submitted = to("asample")
        return submitted.map(({ at }) => at - (submitted[0]?.at ?? 0))
      }).pipe(
        Effect.scoped,
        Effect.provide(Sampling.layer({ ...Sampling.ready, asample: [{ status: 429, body: {} }, slow(0.4)] })),
        VirtualTime.run,
        Effect.provide(quiet),
      )
      const at = (time: number) => times.filter((at) => at === time).length
      expect([at(0), at(1000), at(1400), at(1800), at(2200)]).toEqual([1, 10, 10, 10, 1])
    }),
  )
})

describe("intentional differences from the reference", () => {
  it.effect("vectors/sample_missing_sequence_ids.json: sampling works with a server that sends no sequence ids", () =>
    Effect.gen(function* () {
      const file = "vectors/sample_missing_sequence_ids.json"
      const { result, seen } = yield* replay(file, (client) => client.sample({ prompt }))
      expect(sent(seen)).toEqual(requestsOf(file))
      const [sequence] = Either.getOrThrow(result).sequences
      expect(sequence?.tokens).toEqual(Int32Array.of(101, 102, 103))
      expect(sequence?.logprobs).toEqual(Option.some(Float32Array.of(-0.5, -0.25, -0.125)))
      expect(sequence?.sequenceId).toEqual(Option.none())
      expect(Recorded.vector(file).result).toMatchObject({ $error: "AssertionError" })
    }),
  )
})
