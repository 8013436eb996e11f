import { describe, expect, it } from "@effect/vitest"
import { Chunk, DateTime, Effect, Either, FastCheck as fc, Fiber, Option, Schema, type Scope, Stream } from "effect"
import { Cost, CustomLoss, Gradient, Loss } from "effect-tinker"
import type * as Billing from "effect-tinker/protocol/schemas/Billing"
import type * as ScriptedServer from "effect-tinker/testing/ScriptedServer"
import * as Clients from "./support/Clients.ts"

const isFull = process.env["TINKER_TESTS"] === "all"

const prices: Cost.Prices = {
  date: "2026-01-01",
  source: "test",
  models: { "*": { prefill: 1, cachedPrefill: 0.1, sample: 2, train: 3 } },
  storagePerGigabyteMonth: 0.1,
}

/** A dollar per million tokens is a microdollar per token. */
const micros = (count: number) => BigInt(count) * 1_000_000n

const sampler = (baseModel = Clients.baseModel) =>
  Effect.flatMap(Clients.lora(), (client) =>
    Effect.map(client.saveWeightsAndGetSamplingClient(), (sampler) => ({ client, sampler, baseModel })),
  )

describe("money", () => {
  it("sums of tokens have no rounding error", () => {
    fc.assert(
      fc.property(fc.nat(1e9), fc.integer({ min: 0, max: 99_999 }), (count, milli) => {
        const list = { ...prices, models: { m: { train: milli / 1000 } } }
        expect(Either.getOrThrow(Cost.costOf(list, "m", { trained: count }))).toBe(
          BigInt(count) * BigInt(milli) * 1000n,
        )
      }),
    )
  })

  it("dollars become money and back", () => {
    expect(Cost.usd(0.1)).toBe(100_000_000_000n)
    expect(Cost.usd(12_345.678901)).toBe(12_345_678_901_000_000n)
    expect(Cost.toUsd(Cost.usd(3.74))).toBe(3.74)
    expect([0, 0.00015, 1, 1234.5].map((amount) => Cost.format(Cost.usd(amount)))).toEqual([
      "$0.00",
      "$0.000150",
      "$1.00",
      "$1234.50",
    ])
  })
})

describe("prices", () => {
  it("the list is plain JSON with date and source", () => {
    const again = Schema.decodeUnknownSync(Schema.parseJson(Cost.Prices))(JSON.stringify(Cost.listed))
    expect(again).toEqual(Cost.listed)
    expect(Cost.listed.date).toMatch(/^\d{4}-\d\d-\d\d$/)
    expect(Cost.listed.source).not.toBe("")
  })

  it("a missing price is an error that names model, kind and date", () => {
    const missing = Either.flip(Cost.costOf(Cost.listed, "Qwen/Qwen3.6-27B", { trained: 1 }))
    expect(Either.getOrThrow(missing).message).toBe(
      "the price list of 2026-10-07 has no price for train of Qwen/Qwen3.6-27B: add it to `models`",
    )
    expect(Either.isRight(Cost.costOf(Cost.listed, "Qwen/Qwen3.6-27B", { prefill: 1 }))).toBe(true)
    expect(Either.isLeft(Cost.costOf(Cost.listed, "constructor", { prefill: 1 }))).toBe(true)
  })

  it("pricesFromUsage takes the rates of the account", () => {
    const row = (info: Billing.UsageInfo, rate: number): Billing.UsageEvent => ({
      bucketStart: DateTime.unsafeMake("2026-11-01T00:00:00Z"),
      bucketEnd: DateTime.unsafeMake("2026-11-01T01:00:00Z"),
      eventInfo: info,
      baseModel: Option.some("m"),
      userId: Option.none(),
      userName: Option.none(),
      sessionId: Option.none(),
      projectId: Option.none(),
      estimatedCostUsd: Option.none(),
      effectiveRateUsdPerMillionTokens: Option.some(rate),
      effectiveRateUsdPerGigabyteMonth: Option.none(),
    })
    const usage = (data: ReadonlyArray<Billing.UsageEvent>) => ({ data, sessions: {}, costDataThrough: Option.none() })
    const learned = Cost.pricesFromUsage(
      usage([
        row({ type: "training", tokenCount: 5 }, 0.5),
        row({ type: "sampling_prefill", cached: true, tokenCount: 5 }, 0.01),
        row({ type: "checkpoint", count: 5 }, 9),
      ]),
    )
    expect(learned).toMatchObject({ date: "2026-11-01", models: { m: { train: 0.5, cachedPrefill: 0.01 } } })
    expect(learned.models["Qwen/Qwen3-8B"]).toEqual(Cost.listed.models["Qwen/Qwen3-8B"])
    expect(Cost.pricesFromUsage(usage([]))).toBe(Cost.listed)
  })
})

describe("estimates", () => {
  const total = (estimate: Either.Either<Cost.Estimate, Cost.PriceUnknown>) =>
    Cost.toUsd(Either.getOrThrow(estimate).total)

  it("a supervised run costs its tokens times epochs, evaluations and storage", () => {
    const run = { model: "m", tokens: 1_000_000, epochs: 2 }
    expect(total(Cost.estimateSupervised(prices, run))).toBe(6)
    const evaluations = { times: 4, samples: 100, promptTokens: 50, answerTokens: 20 }
    expect(total(Cost.estimateSupervised(prices, { ...run, evaluations }))).toBeCloseTo(6 + 0.02 + 0.016, 12)
    expect(total(Cost.estimateSupervised(prices, { ...run, storage: { bytes: 5e9, months: 2 } }))).toBe(7)
    expect(Either.isLeft(Cost.estimateSupervised(Cost.listed, { ...run, model: "unknown" }))).toBe(true)
  })

  it("a run of reinforcement learning counts every turn's prompt", () => {
    const run = { model: "m", steps: 10, groupsPerStep: 4, rolloutsPerGroup: 5, promptTokens: 100, answerTokens: 30 }
    expect(Either.getOrThrow(Cost.estimateRl(prices, run)).tokens).toEqual({
      prefill: 20_000,
      cachedPrefill: 0,
      sampled: 6_000,
      trained: 26_000,
    })
    const turns = { ...run, turns: 3, observationTokens: 10, cached: 0.5, updatesPerStep: 2, reference: true }
    // Prompts of 100, 140 and 180 tokens; the whole rollout has 210.
    expect(Either.getOrThrow(Cost.estimateRl(prices, turns)).tokens).toEqual({
      prefill: 200 * (210 + 210),
      cachedPrefill: 200 * 210,
      sampled: 200 * 90,
      trained: 200 * 210 * 2,
    })
  })
})

describe("meter", () => {
  it.effect("samples and passes are counted, however they are called", () =>
    Clients.run(
      Effect.gen(function* () {
        const { client } = yield* sampler()
        const meter = yield* Cost.make({ prices, spentBefore: micros(1_000) })
        const training = yield* Cost.training(meter, client, "m")
        const data = [Clients.datum(1, 2, 3), Clients.datum(1, 2)]
        yield* training.forwardBackward(data, Loss.crossEntropy)
        yield* training.forward(data, Loss.crossEntropy)
        yield* training.trainStep(data, Loss.crossEntropy, Clients.adam)
        const custom = CustomLoss.fromGradient((all) => ({
          loss: Gradient.neg(Gradient.sum(Gradient.concat(all.map(({ logprobs }) => logprobs)))),
        }))
        yield* training.forwardBackwardCustom(data, custom)
        const ticket = yield* training.enqueue.forwardBackward(data, Loss.crossEntropy)
        yield* ticket.await
        const steps = yield* Stream.make(data, data).pipe(
          training.trainSteps(Loss.crossEntropy, Clients.adam),
          Stream.runCollect,
        )
        expect(Chunk.size(steps)).toBe(2)
        const own = yield* training.saveWeightsAndGetSamplingClient()
        yield* own.sample({ prompt: [1, 2, 3, 4], params: { maxTokens: 50 }, numSamples: 2 })
        yield* own.computeLogprobs([1, 2, 3])
        const future = yield* own.submit.sample({ prompt: [1], params: { maxTokens: 50 } })
        yield* future.await
        yield* Effect.yieldNow()
        const { inFlight, spent, tokens, unconfirmed } = yield* meter.spending
        expect(tokens).toEqual({ m: { prefill: 8, cachedPrefill: 0, sampled: 10, trained: 24 } })
        expect([spent, unconfirmed, inFlight]).toEqual([micros(1_000 + 8 + 2 * 10 + 3 * 24), 0n, 0n])
        expect(yield* meter.metrics).toEqual({
          "cost/usd": 0.0011,
          "cost/tokens_trained": 24,
          "cost/tokens_sampled": 10,
          "cost/tokens_prefilled": 8,
          "cost/tokens_cached": 0,
        })
      }),
      { sample: () => ({ tokens: [1, 2, 3] }) },
    ),
  )

  it.effect("what was refused costs nothing, and what ended unknown counts in full", () =>
    Clients.run(
      Effect.gen(function* () {
        const { sampler: plain } = yield* sampler()
        const meter = yield* Cost.make({ prices })
        const own = yield* Cost.sampling(meter, plain, "m")
        yield* Effect.flip(own.sample({ prompt: [-1], params: { maxTokens: 5 } }))
        for (const maxTokens of [-5, Number.NaN, 1e300])
          yield* Effect.flip(own.sample({ prompt: [1], params: { maxTokens } }))
        // Callers without types.
        for (const request of [undefined, { prompt: null }]) yield* Effect.flip(own.sample(request as never))
        expect(yield* meter.spending).toMatchObject({ spent: 0n, unconfirmed: 0n, inFlight: 0n })
        const fiber = yield* Effect.fork(own.sample({ prompt: [1, 2], params: { maxTokens: 5 } }))
        yield* Effect.sleep("1 second")
        expect(yield* meter.spending).toMatchObject({ spent: 0n, unconfirmed: 0n, inFlight: micros(12) })
        yield* Fiber.interrupt(fiber)
        expect(yield* meter.spending).toMatchObject({ spent: 0n, unconfirmed: micros(12), inFlight: 0n })
      }),
      { work: "1 hour" },
    ),
  )

  it.effect("a model without the needed prices is refused before anything is spent", () =>
    Clients.run(
      Effect.gen(function* () {
        const { client } = yield* sampler()
        const meter = yield* Cost.make({ prices: Cost.listed })
        const error = yield* Effect.flip(Cost.training(meter, client, "Qwen/Qwen3.6-27B"))
        expect(error).toMatchObject({ _tag: "PriceUnknown", kind: "train" })
      }),
    ),
  )

  it.effect("without a budget a counted sampling client has the type of a plain one", () =>
    Clients.run(
      Effect.gen(function* () {
        const { sampler: plain } = yield* sampler()
        const own: typeof plain = yield* Cost.sampling(yield* Cost.make({ prices }), plain, "m")
        yield* own.sample({ prompt: [1], params: { maxTokens: 1 } })
      }),
    ),
  )

  it.effect("the layer provides a meter", () =>
    Effect.gen(function* () {
      const meter = yield* Cost.Meter
      expect((yield* meter.spending).spent).toBe(5n)
    }).pipe(Effect.provide(Cost.layer({ prices, spentBefore: 5n }))),
  )
})

describe("budget", () => {
  const request = (maxTokens: number) => ({ prompt: [1, 2], params: { maxTokens } })

  const withBudget = <A, E>(
    budget: Cost.Budget,
    program: (own: Cost.Sampling<Cost.BudgetExceeded>, meter: Cost.Service) => Effect.Effect<A, E, Scope.Scope>,
    options: ScriptedServer.Options = {},
  ) =>
    Clients.run(
      Effect.gen(function* () {
        const { sampler: plain } = yield* sampler()
        const meter = yield* Cost.make({ prices, budget })
        return yield* program(yield* Cost.sampling(meter, plain, "m"), meter)
      }),
      { sample: () => ({ tokens: [1, 2] }), work: "1 second", ...options },
    )

  it.effect("stop fails before the limit is exceeded, and says by how much", () =>
    withBudget({ limit: micros(20), onLimit: "stop" }, (own, meter) =>
      Effect.gen(function* () {
        yield* own.sample(request(2))
        yield* own.sample(request(2))
        // 12 are spent; the next may cost 2 + 8 = 10.
        const error = yield* Effect.flip(own.sample(request(4)))
        expect(error).toMatchObject({ _tag: "BudgetExceeded", limitUsd: 0.00002, spentUsd: 0.000012, nextUsd: 0.00001 })
        yield* own.sample(request(2))
        expect((yield* meter.spending).spent).toBe(micros(18))
      }),
    ),
  )

  it.effect("operations wait while those in flight may turn out to cost less", () =>
    withBudget({ limit: micros(60), onLimit: "stop" }, (own, meter) =>
      Effect.gen(function* () {
        // Each may cost 52 and costs 6.
        yield* Effect.all(
          Array.from({ length: 2 }, () => own.sample(request(25))),
          { concurrency: "unbounded" },
        )
        expect((yield* meter.spending).spent).toBe(micros(12))
      }),
    ),
  )

  it.effect("pause waits until the limit is raised", () =>
    withBudget({ limit: micros(10), onLimit: "pause" }, (own, meter) =>
      Effect.gen(function* () {
        yield* own.sample(request(2))
        const waiting = yield* Effect.fork(own.sample(request(2)))
        yield* Effect.sleep("1 day")
        expect(yield* Fiber.poll(waiting)).toEqual(Option.none())
        yield* meter.setLimit(micros(12))
        yield* Fiber.join(waiting)
        expect((yield* meter.spending).spent).toBe(micros(12))
      }),
    ),
  )

  it.effect("ask decides about a new limit, one question at a time", () => {
    const questions: Array<Cost.Question> = []
    const onLimit = (question: Cost.Question) =>
      Effect.delay(
        Effect.sync(() => {
          questions.push(question)
          return questions.length < 2 ? question.limit + micros(6) : undefined
        }),
        "1 minute",
      )
    return withBudget({ limit: micros(6), onLimit }, (own, meter) =>
      Effect.gen(function* () {
        const results = yield* Effect.all(
          Array.from({ length: 3 }, () => Effect.either(own.sample(request(2)))),
          { concurrency: "unbounded" },
        )
        expect(results.map(Either.isRight)).toEqual([true, true, false])
        expect(questions.map(({ limit, next }) => [limit, next])).toEqual([
          [micros(6), micros(6)],
          [micros(12), micros(6)],
        ])
        expect((yield* meter.spending).spent).toBe(micros(12))
      }),
    )
  })

  it.effect("an interrupted wait leaves nothing reserved", () =>
    withBudget({ limit: micros(6), onLimit: "pause" }, (own, meter) =>
      Effect.gen(function* () {
        yield* own.sample(request(2))
        const waiting = yield* Effect.fork(own.sample(request(2)))
        yield* Effect.sleep("1 second")
        yield* Fiber.interrupt(waiting)
        yield* meter.setLimit(micros(12))
        yield* own.sample(request(2))
        expect(yield* meter.spending).toMatchObject({ spent: micros(12), unconfirmed: 0n, inFlight: 0n })
      }),
    ),
  )

  it.effect("without a limit of its length a sample exceeds the budget by at most itself", () =>
    withBudget(
      { limit: micros(100), onLimit: "stop" },
      (own, meter) =>
        Effect.gen(function* () {
          yield* Effect.ignore(Effect.forever(own.sample({ prompt: [1, 2] })))
          const { spent } = yield* meter.spending
          expect(spent).toBeGreaterThan(micros(98))
          expect(spent).toBeLessThanOrEqual(micros(100 + 62))
        }),
      { sample: () => ({ tokens: Array.from({ length: 30 }, () => 1) }) },
    ),
  )

  it.effect("a pipeline of steps stops at the limit, and all that was sent is counted", () =>
    Clients.run(
      Effect.gen(function* () {
        const client = yield* Clients.lora()
        const meter = yield* Cost.make({ prices, budget: { limit: micros(3 * 2 * 5), onLimit: "stop" } })
        const training = yield* Cost.training(meter, client, "m")
        const batch = [Clients.datum(1, 2, 3)]
        const error = yield* Stream.repeatValue(batch).pipe(
          training.trainSteps(Loss.crossEntropy, Clients.adam, { ahead: 2 }),
          Stream.runDrain,
          Effect.flip,
        )
        expect(error._tag).toBe("BudgetExceeded")
        const { inFlight, spent, unconfirmed } = yield* meter.spending
        expect(spent + unconfirmed).toBe(micros(30))
        expect(inFlight).toBe(0n)
        const server = yield* Clients.model
        expect(server.applied.filter(({ operation }) => operation === "forward_backward").length).toBeLessThanOrEqual(5)
      }),
      { work: "1 second" },
    ),
  )

  interface Work {
    readonly kind: "sample" | "train"
    readonly at: number
    readonly prompt: number
    readonly most: number
    readonly answer: number
    readonly takes: number
    readonly interruptedAfter: number | undefined
  }

  const works: fc.Arbitrary<ReadonlyArray<Work>> = fc.array(
    fc.record({
      kind: fc.constantFrom("sample", "sample", "train"),
      at: fc.nat(20),
      prompt: fc.integer({ min: 1, max: 20 }),
      most: fc.integer({ min: 1, max: 40 }),
      answer: fc.nat(40),
      takes: fc.nat(10),
      interruptedAfter: fc.option(fc.nat(12), { nil: undefined, freq: 4 }),
    }),
    { minLength: 1, maxLength: 25 },
  )

  it("spending never exceeds the budget, whatever runs at once, takes long or is interrupted", async () => {
    const seen = { refused: 0, unconfirmed: 0, complete: 0 }
    await fc.assert(
      fc.asyncProperty(works, fc.nat(600), async (all, limit) => {
        /** What the server really did, in microdollars. */
        let served = 0
        const program = Effect.gen(function* () {
          const { client, sampler: plain } = yield* sampler()
          const meter = yield* Cost.make({ prices, budget: { limit: micros(limit), onLimit: "stop" } })
          const own = yield* Cost.sampling(meter, plain, "m")
          const training = yield* Cost.training(meter, client, "m")
          const run = (work: Work, index: number) => {
            const operation: Effect.Effect<unknown, { readonly _tag: string }> =
              work.kind === "sample"
                ? own.sample({
                    prompt: [index, ...Array.from({ length: work.prompt - 1 }, () => 1)],
                    params: { maxTokens: work.most },
                  })
                : training.forwardBackward([Clients.datum(...Array.from({ length: 11 }, () => 1))], Loss.crossEntropy)
            const limited =
              work.interruptedAfter === undefined
                ? operation
                : Effect.timeoutOption(operation, `${work.interruptedAfter} seconds`)
            return Effect.sleep(`${work.at} seconds`).pipe(
              Effect.zipRight(limited),
              Effect.matchEffect({
                onSuccess: () => Effect.succeed("done"),
                onFailure: ({ _tag }) => Effect.succeed(_tag),
              }),
            )
          }
          const endings = yield* Effect.all(all.map(run), { concurrency: "unbounded" })
          // Whatever the server still does for nobody.
          yield* Effect.sleep("10 minutes")
          const { inFlight, spent, unconfirmed } = yield* meter.spending
          const model = yield* Clients.model
          const passes = model.applied.filter(({ operation }) => operation === "forward_backward").length
          return { endings, inFlight, spent, unconfirmed, passes }
        })
        const { endings, inFlight, passes, spent, unconfirmed } = await Effect.runPromise(
          Clients.run(program, {
            work: ({ operation }) => (operation === "asample" ? `${all.length % 7} seconds` : "1 second"),
            sample: ({ prompt }) => {
              const [chunk] = prompt.chunks
              const tokens = chunk?.type === "encoded_text" ? chunk.tokens : []
              const work = all[tokens[0] ?? 0]
              const length = Math.min(work?.answer ?? 0, work?.most ?? 0)
              served += tokens.length + 2 * length
              return { tokens: Array.from({ length }, () => 1) }
            },
          }),
        )
        // A pass has ten tokens.
        const billed = micros(served + 30 * passes)
        expect(inFlight).toBe(0n)
        expect(spent + unconfirmed).toBeLessThanOrEqual(micros(limit))
        expect(billed).toBeLessThanOrEqual(micros(limit))
        expect(billed).toBeLessThanOrEqual(spent + unconfirmed)
        expect(endings.every((ending) => ending === "done" || ending === "BudgetExceeded")).toBe(true)
        if (unconfirmed === 0n) {
          expect(spent).toBe(billed)
          seen.complete++
        }
        if (endings.includes("BudgetExceeded")) seen.refused++
        if (unconfirmed > 0n) seen.unconfirmed++
      }),
      { numRuns: isFull ? 400 : 40, seed: isFull ? 20_261_118 : 7 },
    )
    // The cases are not trivial.
    expect(Math.min(seen.refused, seen.unconfirmed, seen.complete)).toBeGreaterThan(0)
  })
})
