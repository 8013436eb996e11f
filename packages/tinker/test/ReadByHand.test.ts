/** What comes with every submission is read by hand; the schema says what must come of it. */
import { HttpClient } from "@effect/platform"
import { expect, it } from "@effect/vitest"
import { Effect, Either, Redacted, Schema } from "effect"
import { Api, ApiFuture, HttpDirect, TinkerConfig, Transport } from "effect-tinker"
import * as Futures from "effect-tinker/api/Futures"
import * as Training from "effect-tinker/api/Training"

const answers: ReadonlyArray<unknown> = [
  { request_id: "a" },
  { request_id: "a", model_id: null, sample_sequence_ids: null },
  { request_id: "a", model_id: "m", sample_sequence_ids: ["x", "y"], more: 1 },
  { request_id: "", sample_sequence_ids: [] },
  {},
  { request_id: 1 },
  { request_id: null },
  { request_id: "a", model_id: 1 },
  { request_id: "a", sample_sequence_ids: "x" },
  { request_id: "a", sample_sequence_ids: ["x", 1] },
  ["a"],
  "a",
  null,
]

const bySchema = Schema.decodeUnknownEither(Futures.Accepted)

it.scoped("the answer to a submission, as its schema would", () =>
  Effect.gen(function* () {
    let answer: unknown
    const client = HttpDirect.offer(
      HttpClient.make(() => Effect.dieMessage("the long way")),
      (request, done) => {
        const told = request.url.endsWith("/client/config") ? {} : answer
        const body = new TextEncoder().encode(JSON.stringify(told))
        done({ _tag: "Answered", answer: { status: 200, headers: {}, body } })
        return () => {}
      },
    )
    const { transport } = yield* Transport.make.pipe(
      Effect.provideService(HttpClient.HttpClient, client),
      Effect.provide(TinkerConfig.layer({ baseUrl: "http://server", apiKey: Redacted.make("tml-k") })),
    )
    const read = []
    for (answer of answers) read.push(yield* Effect.either(transport.call(Api.unloadModel, { modelId: "m" })))
    expect(read.map(Either.mapLeft(({ _tag }) => _tag))).toEqual(
      answers.map((answer) => Either.mapLeft(bySchema(answer), () => "UnexpectedResponse")),
    )
    expect(read.filter(Either.isRight).length).toBe(4)
  }),
)

it("the result of an update, as its schema would", () => {
  const results: ReadonlyArray<unknown> = [
    { metrics: {} },
    { metrics: { "a:sum": 1, b: -0.5 }, type: "optim_step", more: 1 },
    { metrics: { a: null } },
    { metrics: null },
    {},
    JSON.parse('{ "metrics": { "__proto__": 1 } }'),
    JSON.parse('{ "metrics": { "a": 1e999 } }'),
    { metrics: { a: "1" } },
    { metrics: [1] },
    { metrics: 1 },
    [],
    "a",
    null,
  ]
  const bySchema = Schema.decodeUnknownEither(Training.OptimStepResult)
  const read = results.map(ApiFuture.kinds.optimStep.fromJson)
  expect(read).toEqual(results.map((result) => bySchema(result)))
  expect(read.filter(Either.isRight).length).toBeGreaterThanOrEqual(5)
})
