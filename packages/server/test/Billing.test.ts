/** Tests that billing records what the server did, for each key, model and hour, so that a meter agrees with it. */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { describe, expect, it } from "@effect/vitest"
import { Effect, FastCheck as fc, Layer, Redacted, type Scope, Stream } from "effect"
import { AdminClient, Cost, Loss, Optimizer, ServiceClient } from "effect-tinker"
import type * as Transport from "effect-tinker/Transport"
import * as VirtualTime from "effect-tinker/testing/VirtualTime"
import type { ServerOptions } from "@effect-tinker/server"
import * as Local from "./support/Local.ts"
import * as Raw from "./support/Raw.ts"

const model = Local.baseModel
const year = { startingOn: new Date(0), endingBefore: new Date(3e10) }
const usage = Effect.flatMap(AdminClient.make, (admin) => admin.getBillingUsage(year))

const run = <A, E>(
  program: Effect.Effect<A, E, Layer.Layer.Success<ReturnType<typeof Local.layer>> | Transport.Transport | Scope.Scope>,
  options?: ServerOptions.ServerOptions,
) =>
  Local.run(program as Effect.Effect<A, E, Layer.Layer.Success<ReturnType<typeof Local.layer>> | Scope.Scope>, options)

const events = "billing/usage/events?starting_on=1970-01-01T00:00:00Z&ending_before=1971-01-01T00:00:00Z"

const codes = (text: string) => [...text].map((char) => char.charCodeAt(0))

const prices = { ...Cost.free, models: { "*": { prefill: 0.195, cachedPrefill: 0.039, sample: 0.6, train: 0.44 } } }

const metered = Effect.gen(function* () {
  const service = yield* ServiceClient.ServiceClient
  const meter = yield* Cost.make({ prices })
  const client = yield* service.createLoraTrainingClient({ baseModel: model, rank: 8 })
  return { meter, training: yield* Cost.training(meter, client, model), sessionId: client.session.id }
})

describe("billing", () => {
  it.effect("a meter and the server's billing agree to the token", () =>
    run(
      Effect.gen(function* () {
        const { meter, sessionId, training } = yield* metered
        yield* training.trainStep(Local.batch(), Loss.crossEntropy, Optimizer.adam())
        yield* training.forward(Local.batch("hello"), Loss.crossEntropy)
        yield* Stream.make(Local.batch("one"), Local.batch("two three")).pipe(
          training.trainSteps(Loss.crossEntropy, Optimizer.adam()),
          Stream.runDrain,
        )
        const sampler = yield* training.saveWeightsAndGetSamplingClient()
        yield* Effect.all(
          Array.from({ length: 8 }, (_, i) =>
            sampler.sample({
              prompt: codes("hello"),
              params: { maxTokens: 4 + i, stop: ["l"] },
              numSamples: 1 + (i % 3),
            }),
          ),
          { concurrency: "unbounded" },
        )
        yield* sampler.computeLogprobs(codes("hello world"))
        const result = Cost.reconcile(yield* meter.spending, yield* usage, { sessionIds: [sessionId] })
        expect(result.rows.filter(({ billed, metered }) => billed !== metered)).toEqual([])
        expect(result.isExact).toBe(true)
        expect(result.rows.find(({ kind }) => kind === "trained")?.billed).toBe(23 + 4 + 2 + 8)
        expect(result.rows.find(({ kind }) => kind === "prefill")?.billed).toBe(8 * 5 + 11)
        expect(result.rows.find(({ kind }) => kind === "sampled")?.billed).toBeGreaterThan(8)
        // A local server is free of charge.
        expect(result.billed).toBe(0n)
      }),
    ),
  )

  it.effect("what others do with the same key is a difference, unless sessions are named", () =>
    run(
      Effect.gen(function* () {
        const { meter, sessionId, training } = yield* metered
        yield* training.forwardBackward(Local.batch("hello"), Loss.crossEntropy)
        yield* Effect.gen(function* () {
          const service = yield* ServiceClient.ServiceClient
          const other = yield* service.createLoraTrainingClient({ baseModel: model, rank: 8 })
          yield* other.forwardBackward(Local.batch("world"), Loss.crossEntropy)
        }).pipe(Effect.scoped, Effect.provide(Layer.fresh(Local.clients())))
        const all = yield* usage
        const spending = yield* meter.spending
        expect(Cost.reconcile(spending, all, { sessionIds: [sessionId] }).isExact).toBe(true)
        const { isExact, rows } = Cost.reconcile(spending, all)
        expect(isExact).toBe(false)
        expect(rows.find(({ kind }) => kind === "trained")).toEqual({ model, kind: "trained", metered: 4, billed: 8 })
      }),
    ),
  )

  it.effect("usage is counted by key, model and hour, once for a repeated request, and not for failed ones", () =>
    Effect.flatMap(
      Raw.make({ apiKeys: [Redacted.make("tml-a"), Redacted.make("tml-b")] }),
      ({ ask, model, post, result, session }) =>
        Effect.gen(function* () {
          const id = yield* model(yield* session)
          const rows = (key: string) =>
            Effect.map(ask("GET", events, undefined, { "x-api-key": key }), ({ body }) =>
              body.data.map((row: { bucket_start: string; event_info: object }) => [
                row.bucket_start.slice(11, 13),
                row.event_info,
              ]),
            )
          const accepted = yield* post("forward_backward", Raw.pass(id, 1))
          yield* post("forward_backward", Raw.pass(id, 1))
          yield* result(accepted)
          yield* post("optim_step", { model_id: id, seq_id: 2, adam_params: { learning_rate: -1 } })
          yield* Effect.sleep("61 minutes")
          expect(yield* rows("tml-a")).toEqual([["00", { type: "training", token_count: 3 }]])
          expect(yield* rows("tml-b")).toEqual([])
        }),
    ).pipe(Effect.scoped, VirtualTime.run),
  )

  it.effect("chats are counted, complete, streamed, and as far as they came", () =>
    Effect.flatMap(Raw.make(), ({ ask, post }) =>
      Effect.gen(function* () {
        const counted = Effect.map(ask("GET", events), ({ body }) => {
          expect(body.sessions).toEqual({})
          const of = (type: string): number =>
            body.data.find((row: { event_info: { type: string } }) => row.event_info.type === type)?.event_info
              .token_count ?? 0
          return { prompt: of("sampling_prefill"), completion: of("sampling_sample") }
        })
        const request = { model, messages: [{ role: "user", content: "hello" }], max_tokens: 12, seed: 3, n: 2 }
        const { usage } = (yield* post("/oai/api/v1/chat/completions", request)).body
        expect(yield* counted).toEqual({ prompt: usage.prompt_tokens, completion: usage.completion_tokens })
        const streamed = yield* post("/oai/api/v1/chat/completions", { ...request, stream: true })
        yield* Stream.runDrain(streamed.body as Stream.Stream<Uint8Array>)
        expect(yield* counted).toEqual({ prompt: 2 * usage.prompt_tokens, completion: 2 * usage.completion_tokens })
        // A client that leaves early.
        const left = yield* post("/oai/api/v1/chat/completions", { ...request, stream: true })
        yield* Stream.runDrain(Stream.take(left.body as Stream.Stream<Uint8Array>, 4))
        expect((yield* counted).prompt).toBe(3 * usage.prompt_tokens)
      }),
    ).pipe(Effect.scoped, VirtualTime.run),
  )

  it.effect("usage survives a restart of the server", () =>
    Effect.gen(function* () {
      const dataDirectory = yield* Effect.acquireRelease(
        Effect.sync(() => mkdtempSync(join(tmpdir(), "billing-"))),
        (path) => Effect.sync(() => rmSync(path, { recursive: true })),
      )
      const spending = yield* run(
        Effect.gen(function* () {
          const { meter, training } = yield* metered
          yield* training.forwardBackward(Local.batch(), Loss.crossEntropy)
          return yield* meter.spending
        }),
        { dataDirectory },
      )
      expect(Cost.reconcile(spending, yield* run(usage, { dataDirectory })).isExact).toBe(true)
    }).pipe(Effect.scoped),
  )

  it("a meter agrees with the server whatever is trained and sampled", async () => {
    const operations = fc.array(
      fc.record({
        kind: fc.constantFrom("train" as const, "forward" as const, "sample" as const, "logprobs" as const),
        length: fc.integer({ min: 2, max: 30 }),
        most: fc.integer({ min: 1, max: 20 }),
        count: fc.integer({ min: 1, max: 4 }),
      }),
      { maxLength: 10 },
    )
    await fc.assert(
      fc.asyncProperty(operations, (all) =>
        Effect.runPromise(
          run(
            Effect.gen(function* () {
              const { meter, training } = yield* metered
              const sampler = yield* training.saveWeightsAndGetSamplingClient()
              yield* Effect.forEach(
                all,
                ({ count, kind, length, most }): Effect.Effect<unknown, unknown> => {
                  const text = "abc".repeat(20).slice(0, length)
                  switch (kind) {
                    case "train":
                      return training.trainStep(Local.batch(text), Loss.crossEntropy, Optimizer.adam())
                    case "forward":
                      return training.forward(Local.batch(text), Loss.crossEntropy)
                    case "sample":
                      return sampler.sample({ prompt: codes(text), params: { maxTokens: most }, numSamples: count })
                    case "logprobs":
                      return sampler.computeLogprobs(codes(text))
                  }
                },
                { concurrency: 3 },
              )
              const spending = yield* meter.spending
              const result = Cost.reconcile(spending, yield* usage)
              expect(result.rows.filter(({ billed, metered }) => billed !== metered)).toEqual([])
              expect(spending.unconfirmed).toBe(0n)
            }),
          ),
        ),
      ),
      { numRuns: 15 },
    )
  })
})
