/** Frequent responses are decoded by fast readers, which must agree with their schemas. */
import { HttpClient } from "@effect/platform"
import { expect, it } from "@effect/vitest"
import { Effect, Either, Redacted, Schema } from "effect"
import { ApiFuture, RetryPolicy, TinkerConfig, type TinkerError } from "effect-tinker"
import * as Api from "effect-tinker/protocol/Api"
import * as HttpDirect from "effect-tinker/http/HttpDirect"
import * as Transport from "effect-tinker/Transport"
import * as Futures from "effect-tinker/protocol/schemas/Futures"
import * as Session from "effect-tinker/protocol/schemas/Session"
import * as Training from "effect-tinker/protocol/schemas/Training"

const acceptances: ReadonlyArray<unknown> = [
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

const heartbeats: ReadonlyArray<unknown> = [
  { type: "session_heartbeat" },
  { type: "session_heartbeat", more: 1 },
  { type: null },
  {},
  { type: "another" },
  { type: 1 },
  [],
  "session_heartbeat",
  null,
]

type Called = Effect.Effect<unknown, TinkerError.TinkerError>

const cases = [
  {
    name: "an acceptance",
    call: ({ call }: Transport.Service): Called => call(Api.unloadModel, { modelId: "m" }),
    bySchema: Schema.decodeUnknownEither(Futures.Accepted),
    answers: acceptances,
    readable: 4,
  },
  {
    name: "a heartbeat",
    call: ({ call }: Transport.Service): Called => call(Api.heartbeat, { sessionId: "s" }),
    bySchema: Schema.decodeUnknownEither(Session.HeartbeatResponse),
    answers: heartbeats,
    readable: 4,
  },
] as const

it.scoped.each(cases)("the fast JSON reader agrees with the schema: $name", ({ answers, bySchema, call, readable }) =>
  Effect.gen(function* () {
    let answer: unknown
    const client = HttpDirect.offer(
      HttpClient.make(() => Effect.dieMessage("HttpClient.execute was used")),
      (request, done) => {
        const responseBody = request.url.endsWith("/client/config") ? {} : answer
        const body = new TextEncoder().encode(JSON.stringify(responseBody))
        done({ _tag: "Answered", answer: { status: 200, headers: {}, body } })
        return () => {}
      },
    )
    const { transport } = yield* Transport.make.pipe(
      Effect.provideService(HttpClient.HttpClient, client),
      Effect.provide(
        TinkerConfig.layer({ baseUrl: "http://server", apiKey: Redacted.make("tml-k"), retryPolicy: RetryPolicy.none }),
      ),
    )
    const read: Array<Either.Either<unknown, string>> = []
    for (answer of answers) {
      read.push(yield* Effect.either(Effect.mapError(call(transport), ({ _tag }) => _tag)))
    }
    expect(read).toEqual(
      answers.map((answer) => Either.mapLeft<unknown, unknown, string>(bySchema(answer), () => "UnexpectedResponse")),
    )
    expect(read.filter(Either.isRight).length).toBe(readable)
  }),
)

it("the fast JSON reader agrees with the schema: the result of an optimizer step", () => {
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
