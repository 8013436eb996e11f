import { describe, expect, it } from "@effect/vitest"
import {
  Cause,
  Chunk,
  Context,
  Duration,
  Effect,
  Either,
  Exit,
  FastCheck,
  Fiber,
  Layer,
  Logger,
  LogLevel,
  Option,
  Redacted,
  Scope,
  Stream,
  Supervisor,
  TestClock,
} from "effect"
import { ApiFuture, ModelInput, RateLimiter, SampleResult, type TensorData, TinkerConfig } from "effect-tinker"
import * as SamplerHandle from "effect-tinker/SamplerHandle"
import * as SamplingClient from "effect-tinker/SamplingClient"
import * as HttpScript from "./support/HttpScript.ts"
import * as Sampling from "./support/Sampling.ts"
import * as VirtualTime from "./support/VirtualTime.ts"

const quiet = Logger.remove(Logger.defaultLogger)
const prompt = [1, 2, 3]
const { accepted, pending, protobuf, ready, sampleBytes } = Sampling

type Use<A, E> = (
  client: SamplingClient.Service,
  script: HttpScript.Script,
) => Effect.Effect<A, E, Scope.Scope | RateLimiter.RateLimiter | TinkerConfig.TinkerConfig>

/** One client on a scripted server; the test advances the clock. */
const run = <A, E>(replies: Sampling.Replies, use: Use<A, E>) =>
  Effect.gen(function* () {
    const client = yield* SamplingClient.make(Sampling.samplingSession)
    return yield* use(client, yield* HttpScript.HttpScript)
  }).pipe(Effect.scoped, Effect.provide(Layer.merge(Sampling.layer({ ...ready, ...replies }), quiet)))

/** One client on a scripted server with a clock that advances by itself. */
const runInVirtualTime = <A, E>(replies: Sampling.Replies, use: Use<A, E>) => VirtualTime.run(run(replies, use))

/** One client in its own scopes, so that a test can close them while fibers are waiting. */
const opened = (replies: Sampling.Replies) =>
  Effect.gen(function* () {
    const everything = yield* Scope.make()
    const context = yield* Layer.buildWithScope(
      Layer.merge(Sampling.layer({ ...ready, ...replies }), quiet),
      everything,
    )
    const scope = yield* Scope.make()
    const client = yield* SamplingClient.make(Sampling.samplingSession).pipe(
      Effect.provide(context),
      Scope.extend(scope),
    )
    return { client, everything, scope, script: Context.get(context, HttpScript.HttpScript) }
  })

const limiter = Effect.gen(function* () {
  const { limiter } = yield* RateLimiter.RateLimiter
  return yield* limiter(RateLimiter.keyOf(yield* TinkerConfig.TinkerConfig))
})

const numbers = (script: HttpScript.Script) => script.to("asample").map(({ body }) => Number(JSON.parse(body).seq_id))

const times = (requests: ReadonlyArray<HttpScript.Seen>) => requests.map(({ at }) => at - (requests[0]?.at ?? 0))

const config = (flags: Readonly<Record<string, unknown>>): Sampling.Replies => ({ "client/config": [{ body: flags }] })

const never: Sampling.Replies = { retrieve_future: [{ ...pending, forever: true }] }

describe("sample requests", () => {
  const bad: ReadonlyArray<readonly [string, unknown]> = [
    ["sample", null],
    ["sample.max_tokens", { prompt, max_tokens: 3 }],
    ["sample.prompt", { prompt: "text" }],
    ["sample.prompt[1]", { prompt: [1, -2] }],
    ["sample.prompt.chunks[0].type", { prompt: ModelInput.make({ type: "video" } as never) }],
    ["sample.params.maxTokens", { prompt, params: { maxTokens: -1 } }],
    ["sample.params.max_tokens", { prompt, params: { max_tokens: 3 } }],
    ["sample.numSamples", { prompt, numSamples: 0 }],
    ["sample.promptAltTokensK", { prompt, promptAltTokensK: -1 }],
    ["sample.promptLogprobsLastN", { prompt, promptLogprobs: true, promptLogprobsLastN: 0 }],
    ["sample.promptLogprobsLastN", { prompt, promptLogprobsLastN: 2 }],
    ["sample.targetPromptLogprobs", { prompt, targetPromptLogprobs: [1, 2] }],
  ]

  it.effect.each(bad)("an invalid sample request is rejected without using a number: %s", ([path, request]) =>
    runInVirtualTime({}, (client, script) =>
      Effect.gen(function* () {
        // As untyped code could call it.
        const refused = yield* Effect.flip(client.sample(request as SamplingClient.Request))
        expect(refused).toMatchObject({ _tag: "InvalidInput", path })
        const future = yield* Effect.flip(client.submit.sample(request as SamplingClient.Request))
        expect(future).toMatchObject({ _tag: "InvalidInput", path })
        expect(script.to("asample")).toEqual([])
        yield* client.sample({ prompt })
        expect(numbers(script)).toEqual([0])
      }),
    ),
  )

  it.effect("sample accepts prompts and targets in every kind of array", () =>
    runInVirtualTime({}, (client, script) =>
      Effect.gen(function* () {
        const prompts: ReadonlyArray<ModelInput.Input> = [
          prompt,
          Int32Array.from(prompt),
          Uint16Array.from(prompt),
          Either.getOrThrow(ModelInput.fromTokens(prompt)),
        ]
        const targets: TensorData.Input<"int64"> = [
          [1, 2],
          [3, 4],
        ]
        for (const prompt of prompts) yield* client.sample({ prompt, targetPromptLogprobs: targets })
        for (const { body } of script.to("asample")) {
          expect(JSON.parse(body)).toMatchObject({
            prompt: { chunks: [{ tokens: prompt, type: "encoded_text" }] },
            target_prompt_logprobs: { data: [1, 2, 3, 4], dtype: "int64", shape: [2, 2] },
          })
        }
        expect(numbers(script)).toEqual([0, 1, 2, 3])
      }),
    ),
  )
})

describe("sample results", () => {
  const json = (result: unknown): Sampling.Replies => ({ retrieve_future: [{ body: result, forever: true }] })
  const sequence = { tokens: [7, 8], logprobs: [-1, -2], stop_reason: "length" }

  it.effect("a JSON response decodes to the same sample as protobuf", () =>
    runInVirtualTime(json({ sequences: [sequence] }), (client) =>
      Effect.gen(function* () {
        const { sequences } = yield* client.sample({ prompt })
        expect(sequences).toEqual([
          {
            tokens: Int32Array.of(7, 8),
            logprobs: Option.some(Float32Array.of(-1, -2)),
            stopReason: "length",
            topkLogprobs: Option.none(),
            sequenceId: Option.none(),
          },
        ])
      }),
    ),
  )

  it.effect("prompt log probabilities are aligned with the tokens of the prompt", () =>
    runInVirtualTime(json({ sequences: [sequence], prompt_logprobs: [-0.5, -0.25] }), (client) =>
      Effect.gen(function* () {
        const aligned = Float32Array.of(Number.NaN, -0.5, -0.25)
        expect(yield* client.computeLogprobs(prompt)).toEqual(aligned)
        expect((yield* client.sample({ prompt, promptLogprobs: true })).promptLogprobs).toEqual(Option.some(aligned))
        // The token count of an image is unknown, so the server's values are kept as they are.
        const image = ModelInput.make({ type: "image_asset_pointer", format: "png", location: "x" })
        expect((yield* client.sample({ prompt: image })).promptLogprobs).toEqual(
          Option.some(Float32Array.of(-0.5, -0.25)),
        )
        // One is present although only the last two were requested.
        expect(yield* client.computeLogprobs(prompt, { lastN: 2 })).toEqual(aligned)
        const early = yield* Effect.flip(client.computeLogprobs(prompt, { lastN: 1 }))
        expect(early).toMatchObject({ _tag: "UnexpectedResponse", requestId: Option.some("req") })
        expect(early.message).toMatch(/at 1, before the last 1 of the prompt$/)
      }),
    ),
  )

  it.effect("computeLogprobs fails if the response has no log probabilities", () =>
    runInVirtualTime(json({ sequences: [sequence] }), (client) =>
      Effect.gen(function* () {
        expect(yield* Effect.flip(client.computeLogprobs(prompt))).toMatchObject({ _tag: "UnexpectedResponse" })
      }),
    ),
  )

  it.effect("a failed sample is not retried, whatever its category", () =>
    Effect.gen(function* () {
      for (const [body, tag] of [
        [{ error: "boom", category: "server" }, "RequestFailed"],
        [{ error: "boom" }, "RequestFailed"],
        [{ error: "too long", category: "user" }, "RequestRejected"],
      ] as const) {
        yield* runInVirtualTime(json(body), (client, script) =>
          Effect.gen(function* () {
            expect(yield* Effect.flip(client.sample({ prompt }))).toMatchObject({ _tag: tag, detail: body.error })
            expect(script.to("asample").length).toBe(1)
          }),
        )
      }
      // A conflict is final only when it is the result of a poll.
      const conflict = { retrieve_future: [{ status: 409, body: { detail: "sequence conflict" } }] }
      yield* runInVirtualTime(conflict, (client, script) =>
        Effect.gen(function* () {
          expect(yield* Effect.flip(client.sample({ prompt }))).toMatchObject({ _tag: "RequestRejected" })
          expect(script.to("asample").length).toBe(1)
        }),
      )
    }),
  )

  it.effect("getBaseModel asks the server for the base model", () =>
    runInVirtualTime(
      { "samplers/sess-0001:sample:0": [{ body: { sampler_id: "sess-0001:sample:0", base_model: "Qwen/Qwen3-8B" } }] },
      (client) =>
        Effect.gen(function* () {
          expect(yield* client.getBaseModel).toBe("Qwen/Qwen3-8B")
        }),
    ),
  )
})

describe("failed submissions", () => {
  it.effect("a failed sample submission is retried under its number with growing delays until it is accepted", () =>
    runInVirtualTime(
      {
        asample: [
          { status: 503 },
          { drop: "before" },
          { drop: "after" },
          { status: 408 },
          { status: 409, body: { detail: "conflict" } },
          { status: 500 },
          { status: 502 },
          accepted("req"),
        ],
      },
      (client, script) =>
        Effect.gen(function* () {
          yield* client.sample({ prompt })
          // A conflict means that the number is taken, so the sample gets another one.
          expect(numbers(script)).toEqual([0, 0, 0, 0, 0, 1, 1, 1])
          const at = times(script.to("asample"))
          const gaps = at.slice(1).map((time, i) => time - (at[i] ?? 0))
          gaps.forEach((gap, i) => {
            const delay = [20, 250][i] ?? Math.min(500 * 2 ** (i - 1), 10_000)
            expect(gap).toBeGreaterThanOrEqual(0.75 * delay)
            expect(gap).toBeLessThanOrEqual(Math.min(1.25 * delay, 10_000))
          })
        }),
    ),
  )

  it.effect("sample honors retry-after, and does not retry when the server says so or the error is permanent", () =>
    Effect.gen(function* () {
      const later = { status: 503, headers: { "retry-after": "17" } }
      yield* runInVirtualTime({ asample: [later, accepted("req")] }, (client, script) =>
        Effect.gen(function* () {
          yield* client.sample({ prompt })
          expect(times(script.to("asample"))).toEqual([0, 17_000])
        }),
      )
      for (const [reply, tag] of [
        [{ status: 503, headers: { "x-should-retry": "false" } }, "Unavailable"],
        [{ status: 429, headers: { "x-should-retry": "false" } }, "RateLimited"],
        [{ status: 402, headers: { "x-should-retry": "false" } }, "BillingPaused"],
        [{ status: 400, body: { detail: "bad" } }, "RequestRejected"],
        [{ status: 401, body: {} }, "Unauthorized"],
        [{ status: 404, body: {} }, "NotFound"],
      ] as const) {
        yield* runInVirtualTime({ asample: [reply] }, (client, script) =>
          Effect.gen(function* () {
            expect(yield* Effect.flip(client.sample({ prompt }))).toMatchObject({ _tag: tag })
            expect(script.to("asample").length).toBe(1)
          }),
        )
      }
    }),
  )

  it.effect("sample repeats a submission three times whose responses do not fit", () =>
    runInVirtualTime({ asample: [{ body: { nothing: "known" }, forever: true }] }, (client, script) =>
      Effect.gen(function* () {
        expect(yield* Effect.flip(client.sample({ prompt }))).toMatchObject({ _tag: "UnexpectedResponse" })
        const sent = script.to("asample")
        expect(sent.length).toBe(4)
        // The same number, so that the server does not sample twice.
        expect(new Set(sent.map(({ body }) => JSON.parse(body).seq_id)).size).toBe(1)
      }),
    ),
  )

  it.effect("sample_no_retries disables retries of samples, but not of log probabilities", () =>
    runInVirtualTime(
      {
        ...config({ sample_no_retries: true }),
        asample: [{ status: 503 }, { status: 429 }, { status: 500 }, { status: 503 }, accepted("req")],
        retrieve_future: [{ body: { sequences: [], prompt_logprobs: [null, -1, -2] } }],
      },
      (client, script) =>
        Effect.gen(function* () {
          expect(yield* Effect.flip(client.sample({ prompt }))).toMatchObject({ _tag: "Unavailable" })
          // Waiting after a 429 is not a retry.
          expect(yield* Effect.flip(client.submit.sample({ prompt }))).toMatchObject({ _tag: "Unavailable" })
          expect(yield* client.computeLogprobs(prompt)).toEqual(Float32Array.of(Number.NaN, -1, -2))
          expect(numbers(script)).toEqual([0, 1, 1, 2, 2])
        }),
    ),
  )

  const faults = {
    "429": { status: 429, body: { detail: "busy" } },
    "402": { status: 402, body: { detail: "pay" } },
    "503": { status: 503 },
    dropped: { drop: "after" },
    refused: { drop: "before" },
    "410": { status: 410, body: { detail: "gone" } },
  } as const
  type Fault = keyof typeof faults

  it.effect.prop(
    "after any sequence of failures a sample has one result, and a new number only after an expired promise",
    [
      FastCheck.array(FastCheck.constantFrom(...(Object.keys(faults) as ReadonlyArray<Fault>)), {
        maxLength: 12,
      }),
    ],
    ([kinds]) =>
      runInVirtualTime(
        {
          // A promise expires while it is polled, after the request was accepted.
          asample: [...kinds.map((kind) => (kind === "410" ? accepted("old") : faults[kind])), accepted("new")],
          retrieve_future: [
            ...kinds.filter((kind) => kind === "410").map((kind) => faults[kind]),
            protobuf(sampleBytes),
          ],
        },
        (client, script) =>
          Effect.gen(function* () {
            const { sequences } = yield* client.sample({ prompt })
            expect(sequences.length).toBe(1)
            let number = 0
            const expected = kinds.map((kind) => (kind === "410" ? number++ : number))
            expect(numbers(script)).toEqual([...expected, number])
          }),
      ),
    { fastCheck: { numRuns: 20 } },
  )
})

describe("rate limit responses", () => {
  /** A client with this key, on a shared registry. */
  const tenant = (key: string, replies: Sampling.Replies) =>
    Effect.gen(function* () {
      const context = yield* Layer.build(Sampling.unlimited({ ...ready, ...replies }, { apiKey: Redacted.make(key) }))
      const client = yield* SamplingClient.make(Sampling.samplingSession).pipe(Effect.provide(context))
      return { client, script: Context.get(context, HttpScript.HttpScript) }
    })

  it.effect("a 429 holds back all clients with the same key and no others", () =>
    Effect.gen(function* () {
      const busy = { status: 429, headers: { "retry-after": "30" }, body: { detail: "busy" } }
      const first = yield* tenant("tml-a", { asample: [busy, accepted("req")] })
      const second = yield* tenant("tml-a", {})
      const other = yield* tenant("tml-b", {})
      const refused = yield* Effect.fork(first.client.sample({ prompt }))
      yield* Effect.sleep("1 second")
      const sampling = [second, other].map(({ client }) => client.sample({ prompt }))
      yield* Effect.all(sampling, { concurrency: "unbounded" })
      yield* Fiber.join(refused)
      // All of them were opened at the same time.
      const sentAt = ({ script }: typeof first) => script.to("asample").map(({ at }) => at)
      expect(sentAt(first)).toEqual([0, 30_000])
      expect(sentAt(second)).toEqual([30_000])
      expect(sentAt(other)).toEqual([1000])
    }).pipe(Effect.scoped, Effect.provide(Layer.merge(RateLimiter.layer, quiet)), VirtualTime.run),
  )

  it.effect("a 429 closes the gate before the next sample can pass", () =>
    run(
      {
        asample: [
          { status: 429, delaySeconds: 1 },
          { ...accepted("req"), forever: true },
        ],
      },
      (client, script) =>
        Effect.gen(function* () {
          // Admits one sample at a time.
          yield* Effect.flatMap(limiter, ({ configure }) => configure({ sampleBytes: 0 }))
          const crowd = yield* Effect.fork(
            Effect.forEach([1, 2, 3], () => client.sample({ prompt }), { concurrency: "unbounded" }),
          )
          yield* TestClock.adjust("1 second")
          expect(script.to("asample").length).toBe(1)
          yield* TestClock.adjust("999 millis")
          expect(script.to("asample").length).toBe(1)
          yield* TestClock.adjust("1 millis")
          yield* Fiber.join(crowd)
          // The rate limited sample is the last in the queue and keeps its number.
          expect(numbers(script)).toEqual([0, 1, 2, 0])
        }),
    ),
  )

  it.effect("a 429 appears in queueState and is logged once a minute", () =>
    Effect.gen(function* () {
      const lines: Array<string> = []
      const log = Logger.replace(
        Logger.defaultLogger,
        Logger.make(({ message }) => void lines.push(String(message))),
      )
      const busy = { status: 429, headers: { "retry-after": "20" }, body: { detail: "busy" } }
      const seen = yield* Effect.gen(function* () {
        const client = yield* SamplingClient.make(Sampling.samplingSession)
        const seen = yield* Sampling.watch(client.queueState)
        yield* client.sample({ prompt })
        yield* Effect.yieldNow()
        return seen
      }).pipe(
        Effect.scoped,
        Effect.provide(
          Sampling.layer({ ...ready, asample: [busy, busy, busy, busy, { status: 503 }, accepted("req")] }),
        ),
        VirtualTime.run,
        Effect.provide(log),
      )
      expect(seen).toEqual(["active", "paused_rate_limit", "unreachable", "active"])
      const line = "Tinker: Sample waits, paused_rate_limit: asample was rate limited (HTTP 429): busy"
      expect(lines).toEqual([line, line])
    }),
  )
})

describe("billing pauses", () => {
  const unpaid = { status: 402, body: { detail: "pay" } }

  it.effect("a billing pause is retried every five seconds and appears in queueState until its budget is used up", () =>
    runInVirtualTime(
      {
        ...config({ billing_exception_max_pause_duration_sec: 12 }),
        asample: [{ ...unpaid, forever: true }],
      },
      (client, script) =>
        Effect.gen(function* () {
          const seen = yield* Sampling.watch(client.queueState)
          expect(yield* Effect.flip(client.sample({ prompt }))).toMatchObject({ _tag: "BillingPaused", detail: "pay" })
          expect(times(script.to("asample"))).toEqual([0, 5000, 10_000, 15_000])
          expect(seen).toEqual(["active", "paused_billing"])
          expect(new Set(numbers(script))).toEqual(new Set([0]))
          // The account is still blocked, so one request is enough.
          expect(yield* Effect.flip(client.sample({ prompt }))).toMatchObject({ _tag: "BillingPaused" })
          expect(script.to("asample").length).toBe(5)
          // Much later it counts as a new pause.
          yield* Effect.sleep("6 minutes")
          expect(yield* Effect.flip(client.sample({ prompt }))).toMatchObject({ _tag: "BillingPaused" })
          expect(script.to("asample").length).toBe(9)
        }),
    ),
  )

  it.effect("all samples share one billing budget, which is renewed after a pause ends", () =>
    runInVirtualTime(
      {
        ...config({ billing_exception_max_pause_duration_sec: 8 }),
        asample: [unpaid, unpaid, accepted("req"), unpaid, unpaid, accepted("req"), { ...unpaid, forever: true }],
      },
      (client, script) =>
        Effect.gen(function* () {
          yield* client.sample({ prompt })
          yield* client.sample({ prompt })
          const start = script.to("asample").length
          const crowd = yield* Effect.forEach(
            Array.from({ length: 50 }),
            () => Effect.flip(client.sample({ prompt })),
            { concurrency: "unbounded" },
          )
          expect(new Set(crowd.map(({ _tag }) => _tag))).toEqual(new Set(["BillingPaused"]))
          const asked = times(script.to("asample").slice(start))
          expect(asked.at(-1)).toBeLessThanOrEqual(10_000)
        }),
    ),
  )
})

describe("interrupting samples", () => {
  it.effect(
    "interrupting one of a thousand samples releases its permit immediately, in any state",
    () =>
      run({ asample: [{ ...accepted("req"), delaySeconds: 30, forever: true }], ...never }, (client, script) =>
        Effect.gen(function* () {
          const { stats } = yield* limiter
          const fibers = yield* Effect.forEach(Array.from({ length: 1000 }), () =>
            Effect.fork(client.sample({ prompt })),
          )
          yield* TestClock.adjust(0)
          expect((yield* stats).sampling).toMatchObject({ inFlight: 400, waiting: 600 })
          const interrupt = (index: number) =>
            Effect.gen(function* () {
              const exit = yield* Fiber.interrupt(fibers[index]!)
              expect(Exit.isFailure(exit) && Cause.isInterruptedOnly(exit.cause)).toBe(true)
              return (yield* stats).sampling
            })
          // Waiting, submitting, submitting: the next one is admitted without time passing.
          expect(yield* interrupt(900)).toMatchObject({ inFlight: 400, waiting: 599 })
          expect(yield* interrupt(7)).toMatchObject({ inFlight: 400, waiting: 598 })
          expect(yield* interrupt(8)).toMatchObject({ inFlight: 400, waiting: 597 })
          yield* TestClock.adjust(0)
          expect(script.to("asample").length).toBe(402)
          yield* Fiber.interruptAll(fibers)
          expect((yield* stats).sampling).toMatchObject({ inFlight: 0, waiting: 0, balance: 10_485_760, timer: false })
        }),
      ),
    120_000,
  )

  it.effect("interrupting a sample in flight releases its permit and stops its polls", () =>
    run({ ...config({ sample_max_concurrent_requests: 1 }), ...never }, (client, script) =>
      Effect.gen(function* () {
        const first = yield* Effect.fork(client.sample({ prompt }))
        const second = yield* Effect.fork(client.sample({ prompt: [4] }))
        yield* TestClock.adjust("1 minute")
        expect(script.to("asample").length).toBe(1)
        const polls = script.to("retrieve_future").length
        yield* Fiber.interrupt(first)
        yield* TestClock.adjust(0)
        expect(script.to("asample").length).toBe(2)
        yield* Fiber.interrupt(second)
        yield* TestClock.adjust("10 minutes")
        // The extra poll belongs to the second sample.
        expect(script.to("retrieve_future").length).toBe(polls + 1)
        // The permit of the second sample is released too.
        yield* Effect.fork(client.sample({ prompt: [5] }))
        yield* TestClock.adjust(0)
        expect(script.to("asample").length).toBe(3)
      }),
    ),
  )

  it.effect("a sample interrupted while waiting for a window, a retry or a permit leaves no work behind", () =>
    Effect.gen(function* () {
      for (const replies of [
        { asample: [{ status: 429, headers: { "retry-after": "60" } }] },
        { asample: [{ status: 402 }] },
        { asample: [{ status: 503, headers: { "retry-after": "60" } }] },
        { ...config({ sample_max_concurrent_requests: 1 }), asample: [accepted("a")], ...never },
      ]) {
        yield* run(replies, (client, script) =>
          Effect.gen(function* () {
            const { stats } = yield* limiter
            const fibers = yield* Effect.forEach([1, 2], () => Effect.fork(client.sample({ prompt })))
            yield* TestClock.adjust("1 second")
            yield* Fiber.interruptAll(fibers)
            expect((yield* stats).sampling).toMatchObject({ inFlight: 0, waiting: 0 })
            const before = script.seen.length
            yield* TestClock.adjust("9 seconds")
            // Only the heartbeat.
            expect(script.seen.slice(before).map(({ path }) => path)).toEqual(["/api/v1/session_heartbeat"])
          }),
        )
      }
    }),
  )

  const cancelling = (batch: number, more: Sampling.Replies): Sampling.Replies => ({
    "client/dynamic_config": [
      { body: { sample_cancel_enabled: true, sample_cancel_max_batch_size: batch }, forever: true },
    ],
    ...never,
    ...more,
  })

  it.effect(
    "interrupted samples are canceled on the server in background batches, and interruption does not wait for them",
    () =>
      run(cancelling(4, { cancel_future: [{ status: 500, delaySeconds: 20, forever: true }] }), (client, script) =>
        Effect.gen(function* () {
          const fibers = yield* Effect.forEach(Array.from({ length: 10 }), () => Effect.fork(client.sample({ prompt })))
          yield* TestClock.adjust("1 second")
          const ended = yield* Effect.fork(Fiber.interruptAll(fibers))
          yield* TestClock.adjust(0)
          expect(Option.isSome(yield* Fiber.poll(ended))).toBe(true)
          expect(script.to("cancel_future").length).toBe(4)
          yield* TestClock.adjust("20 seconds")
          expect(script.to("cancel_future").length).toBe(8)
          yield* TestClock.adjust("20 seconds")
          expect(script.to("cancel_future").length).toBe(10)
          // Failed cancellations are dropped, and later ones are sent again.
          yield* TestClock.adjust("1 minute")
          expect(script.to("cancel_future").length).toBe(10)
          const late = yield* Effect.fork(client.sample({ prompt }))
          yield* TestClock.adjust("1 second")
          yield* Fiber.interrupt(late)
          yield* TestClock.adjust(0)
          expect(script.to("cancel_future").length).toBe(11)
        }),
      ),
  )

  it.effect("interrupted samples are canceled according to the current server flags", () =>
    run(
      {
        "client/dynamic_config": [
          { body: { refresh_interval_sec: 60 } },
          { body: { refresh_interval_sec: 60, sample_cancel_enabled: true }, forever: true },
        ],
        cancel_future: [{ body: {}, forever: true }],
        ...never,
      },
      (client, script) =>
        Effect.gen(function* () {
          const [early, late] = yield* Effect.all([
            Effect.fork(client.sample({ prompt })),
            Effect.fork(client.sample({ prompt })),
          ])
          yield* TestClock.adjust("59 seconds")
          yield* Fiber.interrupt(early)
          yield* TestClock.adjust("2 seconds")
          expect(script.to("cancel_future").length).toBe(0)
          yield* Fiber.interrupt(late)
          yield* TestClock.adjust(0)
          expect(script.to("cancel_future").map(({ body }) => JSON.parse(body))).toEqual([{ request_id: "req" }])
        }),
    ),
  )

  it.effect(
    "a sample past its deadline is canceled on the server, and unaccepted, expired or finished samples are not",
    () =>
      run(
        cancelling(64, {
          asample: [
            accepted("slow"),
            { status: 503, headers: { "retry-after": "60" } },
            accepted("expired"),
            accepted("expired"),
            { ...accepted("late"), delaySeconds: 30 },
            accepted("done"),
          ],
          retrieve_future: [
            { ...pending, delaySeconds: 30 },
            { status: 410 },
            { status: 410 },
            { ...protobuf(sampleBytes) },
          ],
          cancel_future: [{ body: {}, forever: true }],
        }),
        (client, script) =>
          Effect.gen(function* () {
            const canceled = () => script.to("cancel_future").map(({ body }) => JSON.parse(body).request_id)
            const late = yield* Effect.fork(Effect.flip(client.sample({ prompt }, { deadline: "10 seconds" })))
            yield* TestClock.adjust("10 seconds")
            expect(yield* Fiber.join(late)).toMatchObject({ _tag: "DeadlineExceeded", requestId: "slow" })
            expect(canceled()).toEqual(["slow"])
            const unsent = yield* Effect.fork(client.sample({ prompt }))
            yield* TestClock.adjust("10 seconds")
            yield* Fiber.interrupt(unsent)
            // After the promise expired, and while the sample is submitted again.
            for (const pause of [Duration.zero, Duration.seconds(2)]) {
              const expired = yield* Effect.fork(client.sample({ prompt }))
              yield* TestClock.adjust(pause)
              yield* Fiber.interrupt(expired)
            }
            expect(script.to("asample").length).toBe(5)
            const done = yield* Effect.fork(client.sample({ prompt }))
            yield* TestClock.adjust("1 second")
            yield* Fiber.join(done)
            yield* TestClock.adjust("1 minute")
            expect(canceled()).toEqual(["slow"])
          }),
      ),
  )
})

describe("deadlines and stalls", () => {
  const busy = { status: 429, headers: { "retry-after": "60" }, body: { detail: "busy" } }

  it.effect.each([
    ["queued", { ...config({ sample_max_concurrent_requests: 1 }), ...never }, ""],
    ["submitting", { asample: [{ ...accepted("req"), delaySeconds: 50 }] }, ""],
    ["paused_rate_limit", { asample: [busy] }, ""],
    ["paused_billing", { asample: [{ status: 402, forever: true }] }, ""],
    ["unreachable", { asample: [{ status: 503, headers: { "retry-after": "60" } }] }, ""],
    ["submitted", { retrieve_future: [{ ...pending, delaySeconds: 44 }] }, "req"],
    ["active", { retrieve_future: [{ ...pending, delaySeconds: 5 }, pending] }, "req"],
  ] satisfies ReadonlyArray<readonly [string, Sampling.Replies, string]>)(
    "the deadline of a sample covers every state: %s",
    ([state, replies, requestId]) =>
      run(replies, (client) =>
        Effect.gen(function* () {
          if (state === "queued") yield* Effect.fork(client.sample({ prompt }))
          yield* TestClock.adjust(0)
          const late = yield* Effect.fork(Effect.flip(client.sample({ prompt }, { deadline: "10 seconds" })))
          yield* TestClock.adjust("9999 millis")
          expect(yield* Fiber.poll(late)).toEqual(Option.none())
          yield* TestClock.adjust("1 millis")
          expect(yield* Fiber.join(late)).toMatchObject({
            _tag: "DeadlineExceeded",
            queueState: state,
            requestId,
            requestType: "Sample",
            age: Duration.seconds(10),
            iterations: state === "active" ? 1 : 0,
          })
        }),
      ),
  )

  it.effect("a sample fails with Stalled when no sample of the client finishes for stalledAfter", () =>
    run({ asample: [{ ...busy, forever: true }] }, (client) =>
      Effect.gen(function* () {
        const stalled = (options: SamplingClient.SampleOptions) =>
          Effect.fork(Effect.flip(client.sample({ prompt }, options)))
        const first = yield* stalled({ stalledAfter: "2 minutes" })
        yield* TestClock.adjust("1 minute")
        const second = yield* stalled({ stalledAfter: "2 minutes" })
        const patient = yield* stalled({ stalledAfter: Duration.infinity, deadline: "4 minutes" })
        const impatient = yield* stalled({ stalledAfter: "10 seconds" })
        yield* TestClock.adjust("10 seconds")
        expect(yield* Fiber.join(impatient)).toMatchObject({ _tag: "Stalled", age: Duration.seconds(10) })
        yield* TestClock.adjust("49999 millis")
        expect(yield* Fiber.poll(first)).toEqual(Option.none())
        yield* TestClock.adjust("1 millis")
        expect(yield* Fiber.join(first)).toMatchObject({
          _tag: "Stalled",
          queueState: "paused_rate_limit",
          requestId: "",
          age: Duration.minutes(2),
        })
        // It has its own two minutes.
        expect(yield* Fiber.poll(second)).toEqual(Option.none())
        yield* TestClock.adjust("1 minute")
        expect(yield* Fiber.join(second)).toMatchObject({ _tag: "Stalled", age: Duration.minutes(2) })
        yield* TestClock.adjust("2 minutes")
        expect(yield* Fiber.join(patient)).toMatchObject({ _tag: "DeadlineExceeded", age: Duration.minutes(4) })
      }),
    ),
  )

  it.effect("a sample does not stall while other samples finish", () =>
    run(
      {
        asample: [
          { status: 503, headers: { "retry-after": "60" } },
          { ...accepted("req"), forever: true },
        ],
      },
      (client) =>
        Effect.gen(function* () {
          // It is retried after a minute, and other samples finish in the meantime.
          const slow = yield* Effect.fork(client.sample({ prompt }, { stalledAfter: "40 seconds" }))
          yield* TestClock.adjust("30 seconds")
          const other = yield* Effect.fork(client.sample({ prompt }))
          yield* TestClock.adjust("30 seconds")
          yield* Fiber.join(other)
          yield* Fiber.join(slow)
        }),
    ),
  )

  it.effect("samples stall after two hours unless the server disables stall detection", () =>
    Effect.gen(function* () {
      const ended = (sampleEnableStuckDetection: boolean) =>
        Effect.gen(function* () {
          // A clone has no heartbeats, so that hours pass quickly.
          const client = yield* SamplingClient.fromHandle(
            SamplerHandle.encode(Sampling.handle({ sampleEnableStuckDetection })),
          )
          const late = yield* Effect.fork(Effect.flip(client.sample({ prompt }, { deadline: "130 minutes" })))
          yield* TestClock.adjust("130 minutes")
          return yield* Fiber.join(late)
        }).pipe(
          Effect.scoped,
          Effect.provide(Layer.merge(Sampling.sessionless({ asample: [{ ...busy, forever: true }] }), quiet)),
        )
      expect(yield* ended(true)).toMatchObject({ _tag: "Stalled", age: Duration.hours(2) })
      expect(yield* ended(false)).toMatchObject({ _tag: "DeadlineExceeded", age: Duration.minutes(130) })
    }),
  )
})

describe("ending waiting samples", () => {
  const crowd = (client: SamplingClient.Service) =>
    Effect.forEach(Array.from({ length: 4 }), () => Effect.fork(Effect.flip(client.sample({ prompt }))))

  /** One sample is in the named state, the others queue behind it. */
  const waitingStates: ReadonlyArray<readonly [string, Sampling.Replies]> = [
    ["for a permit", { ...config({ sample_max_concurrent_requests: 1 }), ...never }],
    ["at the gate", { asample: [{ status: 429, headers: { "retry-after": "60" }, forever: true }] }],
    ["for the submission", { asample: [{ ...accepted("req"), delaySeconds: 55, forever: true }] }],
    ["for a retry", { asample: [{ status: 503, headers: { "retry-after": "60" }, forever: true }] }],
    ["for the result", never],
  ]

  it.effect.each(waitingStates)(
    "samples waiting %s fail with ClientClosed when the client's scope closes",
    ([, replies]) =>
      Effect.gen(function* () {
        const fibers = yield* Supervisor.track
        yield* Effect.gen(function* () {
          const { client, everything, scope, script } = yield* opened(replies)
          const waiting = yield* crowd(client)
          const submitted = yield* Effect.fork(
            Effect.flip(Effect.flatMap(client.submit.sample({ prompt }), (future) => future.await)),
          )
          yield* TestClock.adjust("1 second")
          expect((yield* fibers.value).length).toBeGreaterThan(5)
          yield* Scope.close(scope, Exit.void)
          for (const fiber of [...waiting, submitted]) {
            expect(yield* Fiber.join(fiber)).toMatchObject({ _tag: "ClientClosed" })
          }
          expect(yield* Effect.flip(client.sample({ prompt }))).toMatchObject({ _tag: "ClientClosed" })
          expect(yield* Effect.flip(client.submit.sample({ prompt }))).toMatchObject({ _tag: "ClientClosed" })
          const before = script.seen.length
          yield* TestClock.adjust("5 minutes")
          const after = script.seen.slice(before).filter(({ path }) => !/heartbeat|dynamic/.test(path))
          expect(after).toEqual([])
          yield* Scope.close(everything, Exit.void)
          yield* TestClock.adjust(0)
        }).pipe(Effect.supervised(fibers))
        // No fiber is left.
        expect(yield* fibers.value).toEqual([])
      }),
  )

  it.effect.each(waitingStates)("samples waiting %s fail with SessionLost when the session is lost", ([, replies]) =>
    Effect.gen(function* () {
      const lost = { status: 410, body: { detail: "bye" } }
      const { client, everything, script } = yield* opened({
        "client/dynamic_config": [{ body: { sample_cancel_enabled: true }, forever: true }],
        session_heartbeat: [{ ...lost, forever: true }],
        ...replies,
      })
      const waiting = yield* crowd(client)
      yield* TestClock.adjust("11 seconds")
      for (const fiber of waiting) {
        expect(yield* Fiber.join(fiber)).toMatchObject({ _tag: "SessionLost", reason: "Gone", detail: "bye" })
      }
      expect(yield* Effect.flip(client.sample({ prompt }))).toMatchObject({ _tag: "SessionLost" })
      // After the session is lost, no cancellations are sent.
      yield* TestClock.adjust("1 minute")
      expect(script.to("cancel_future")).toEqual([])
      yield* Scope.close(everything, Exit.void)
    }),
  )

  it.effect("samples fail with ClientClosed when the registry of limiters closes", () =>
    Effect.gen(function* () {
      const { client, everything } = yield* opened({
        asample: [{ status: 429, headers: { "retry-after": "60" }, forever: true }],
      })
      const waiting = yield* crowd(client)
      yield* TestClock.adjust("1 second")
      yield* Scope.close(everything, Exit.void)
      for (const fiber of waiting) expect(yield* Fiber.join(fiber)).toMatchObject({ _tag: "ClientClosed" })
    }),
  )
})

describe("submit.sample", () => {
  it.effect("submit.sample returns a future once accepted, and the future survives an expired promise", () =>
    runInVirtualTime(
      {
        asample: [{ status: 429 }, accepted("first"), accepted("second")],
        retrieve_future: [
          { status: 408, body: { queue_state: "paused_capacity", queue_state_reason: "full" }, delaySeconds: 40 },
          { status: 410 },
          { ...protobuf(sampleBytes), delaySeconds: 40 },
        ],
      },
      (client, script) =>
        Effect.gen(function* () {
          const submitting = yield* Effect.fork(client.submit.sample({ prompt }))
          const future = yield* Fiber.join(submitting)
          expect(script.to("asample").length).toBe(2)
          expect(future.requestId).toBe("first")
          expect(yield* future.poll).toEqual(Option.none())
          const impatient = yield* Effect.fork(future.await)
          const states = yield* Effect.fork(Stream.runCollect(future.queueState))
          yield* Effect.sleep("1 second")
          yield* Fiber.interrupt(impatient)
          const [a, b] = yield* Effect.all([future.await, future.await], { concurrency: "unbounded" })
          expect(a).toBe(b)
          expect(a.sequences[0]?.tokens).toEqual(Int32Array.of(101, 102, 103))
          expect(Option.isSome(yield* future.poll)).toBe(true)
          expect(future.requestIds).toEqual(["first", "second"])
          expect(numbers(script)).toEqual([0, 0, 1])
          const seen = Chunk.toReadonlyArray(yield* Fiber.join(states)).map(({ state }) => state)
          expect(seen).toEqual(["submitted", "paused_capacity", "expired", "submitting", "submitted"])
          const both = ApiFuture.all([future, ApiFuture.map(future, ({ sequences }) => sequences.length)])
          expect((yield* both.await)[1]).toBe(1)
        }),
    ),
  )

  it.effect("submit.sample holds its permit until the result arrives, and releases it if interrupted earlier", () =>
    run(
      {
        ...config({ sample_max_concurrent_requests: 1 }),
        asample: [{ ...accepted("req"), delaySeconds: 10, forever: true }],
        retrieve_future: [{ ...protobuf(sampleBytes), delaySeconds: 20, forever: true }],
      },
      (client, script) =>
        Effect.gen(function* () {
          const given = yield* Effect.fork(client.submit.sample({ prompt }))
          yield* TestClock.adjust("5 seconds")
          yield* Fiber.interrupt(given)
          const first = yield* Effect.fork(client.submit.sample({ prompt }))
          const second = yield* Effect.fork(client.submit.sample({ prompt }))
          yield* TestClock.adjust("10 seconds")
          yield* Fiber.join(first)
          expect(script.to("asample").length).toBe(2)
          yield* TestClock.adjust("20 seconds")
          expect(script.to("asample").length).toBe(3)
          yield* TestClock.adjust("10 seconds")
          yield* Fiber.join(second)
        }),
    ),
  )

  it.effect("submit.sample fails immediately when rejected, and its deadline includes the time after acceptance", () =>
    run({ asample: [{ status: 400, body: { detail: "bad" } }, accepted("req")], ...never }, (client) =>
      Effect.gen(function* () {
        const refused = yield* Effect.fork(Effect.flip(client.submit.sample({ prompt })))
        yield* TestClock.adjust(0)
        expect(yield* Fiber.join(refused)).toMatchObject({ _tag: "RequestRejected", detail: "bad" })
        const submitting = yield* Effect.fork(client.submit.sample({ prompt }, { deadline: "1 minute" }))
        yield* TestClock.adjust("1 second")
        const future = yield* Fiber.join(submitting)
        yield* TestClock.adjust("59 seconds")
        expect(yield* Effect.flip(future.await)).toMatchObject({ _tag: "DeadlineExceeded", age: Duration.minutes(1) })
      }),
    ),
  )
})

describe("SamplingClient", () => {
  it.effect("each use of SamplingClient.layer creates a client with its own sampling session", () =>
    Effect.gen(function* () {
      const [first, second] = yield* Sampling.twice(SamplingClient.layer({ baseModel: "Qwen/Qwen3-8B" }))
      expect(new Set([first.samplingSessionId, second.samplingSessionId])).toEqual(new Set(["sampler-0", "sampler-1"]))
      const { to } = yield* HttpScript.HttpScript
      const asked = to("create_sampling_session").map(({ body }) => JSON.parse(body).sampling_session_seq_id)
      expect(asked).toEqual([0, 1])
    }).pipe(
      Effect.provide(
        Sampling.layer({
          create_sampling_session: ["sampler-0", "sampler-1"].map((id) => ({ body: { sampling_session_id: id } })),
        }),
      ),
      VirtualTime.run,
    ),
  )

  it.effect("a finished sample leaves no fibers behind", () =>
    Effect.gen(function* () {
      const fibers = yield* Supervisor.track
      yield* Effect.gen(function* () {
        const client = yield* SamplingClient.fromHandle(SamplerHandle.encode(Sampling.handle()))
        const before = (yield* fibers.value).length
        const sample = Effect.gen(function* () {
          const sampling = yield* Effect.fork(client.sample({ prompt }, { stalledAfter: "1 minute" }))
          yield* TestClock.adjust("30 seconds")
          yield* Fiber.join(sampling)
        })
        yield* sample
        yield* sample
        yield* TestClock.adjust("1 second")
        // A sample still being watched would have rescheduled the timer.
        expect((yield* fibers.value).length).toBe(before)
      }).pipe(Effect.scoped, Effect.provide(Sampling.sessionless(ready)), Effect.supervised(fibers))
    }),
  )

  it.effect("SamplingClient.make rejects an invalid target", () =>
    Effect.gen(function* () {
      for (const target of [null, {}, { baseModel: "a", modelPath: "tinker://b" }, { modelPath: 7 }]) {
        // As untyped code could call it.
        const refused = yield* Effect.flip(SamplingClient.make(target as unknown as SamplingClient.Target))
        expect(refused).toMatchObject({ _tag: "InvalidInput" })
      }
      expect((yield* HttpScript.HttpScript).to("create_sampling_session")).toEqual([])
    }).pipe(Effect.scoped, Effect.provide(Sampling.layer({})), VirtualTime.run),
  )

  it.effect("SamplingClient respects the configured log level", () =>
    Effect.gen(function* () {
      const lines: Array<string> = []
      yield* Effect.flatMap(SamplingClient.make(Sampling.samplingSession), (client) => client.sample({ prompt })).pipe(
        Effect.scoped,
        Effect.provide(
          Sampling.layer({ ...ready, asample: [{ status: 429 }, accepted("req")] }, { logLevel: LogLevel.Error }),
        ),
        VirtualTime.run,
        Effect.provide(
          Logger.replace(
            Logger.defaultLogger,
            Logger.make(({ message }) => void lines.push(String(message))),
          ),
        ),
      )
      expect(lines).toEqual([])
    }),
  )

  it.effect("sample results are typed arrays", () =>
    runInVirtualTime({}, (client) =>
      Effect.gen(function* () {
        const { sequences } = yield* client.sample({ prompt })
        const [first] = sequences
        expect(first?.tokens).toBeInstanceOf(Int32Array)
        expect(Option.getOrThrow(first?.logprobs ?? Option.none())).toBeInstanceOf(Float32Array)
        expect(SampleResult.toNullable(Float32Array.of(Number.NaN, 1))).toEqual([null, 1])
      }),
    ),
  )
})
