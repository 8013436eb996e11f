/**
 * Measures the cost of observability: CPU time of a whole call (schemas, credentials, deadline, retries) with an
 * immediate response, plain, with metrics, with `traceparent`, and with a tracer that records nothing. Without a
 * socket, which would hide the differences. Run: tsx scripts/bench/metrics.ts [calls per round]
 */
import { HttpClient } from "@effect/platform"
import { Effect, Option, Redacted, Tracer } from "effect"
import { TinkerConfig } from "effect-tinker"
import * as Api from "effect-tinker/protocol/Api"
import * as HttpDirect from "effect-tinker/http/HttpDirect"
import * as Transport from "effect-tinker/Transport"

const calls = Number(process.argv[2] ?? 4_000)
const rounds = 15

const utf8 = new TextEncoder()
const flags = utf8.encode("{}")
const accepted = utf8.encode('{"request_id":"req-1","model_id":"m"}')

const client = HttpDirect.offer(
  HttpClient.make(() => Effect.dieMessage("the long way")),
  (request, done) => {
    const body = request.url.endsWith("/client/config") ? flags : accepted
    done({ _tag: "Answered", answer: { status: 200, headers: {}, body } })
    return () => {}
  },
)

const make = (values: TinkerConfig.Values) =>
  Transport.make.pipe(
    Effect.provideService(HttpClient.HttpClient, client),
    Effect.provide(TinkerConfig.layer({ baseUrl: "http://server", apiKey: Redacted.make("tml-k"), ...values })),
    Effect.map(({ transport }) => transport.call(Api.unloadModel, { modelId: "m" })),
  )

const recordsNothing = Tracer.make({
  span: (name, parent, context, links, startTime, kind) => ({
    _tag: "Span",
    name,
    spanId: "0123456789abcdef",
    traceId: "0123456789abcdef0123456789abcdef",
    parent: Option.orElse(parent, () => Option.none()),
    context,
    status: { _tag: "Started", startTime },
    attributes: new Map(),
    links,
    sampled: true,
    kind,
    end: () => {},
    attribute: () => {},
    event: () => {},
    addLinks: () => {},
  }),
  context: (f) => f(),
})

const program = Effect.gen(function* () {
  const plain = yield* make({})
  const cases = {
    plain: plain,
    metrics: yield* make({ metrics: true }),
    traceparent: Effect.withSpan(yield* make({ traceparent: true }), "mine"),
    "  including its span": Effect.withSpan(plain, "mine"),
    "a tracer that records nothing": Effect.withTracer(plain, recordsNothing),
  }
  const best = new Map<string, number>()
  for (let round = 0; round <= rounds; round++) {
    for (const [name, call] of Object.entries(cases)) {
      let left = calls
      const before = process.cpuUsage()
      yield* Effect.whileLoop({ while: () => left-- > 0, body: () => call, step: () => {} })
      const { system, user } = process.cpuUsage(before)
      // The first round is warm-up.
      if (round > 0) best.set(name, Math.min(best.get(name) ?? Number.POSITIVE_INFINITY, (user + system) / calls))
    }
  }
  const base = best.get("plain") ?? Number.NaN
  for (const [name, micros] of best) {
    const more = (micros - base).toFixed(2).padStart(8)
    console.log(`${name.padEnd(34)}${micros.toFixed(2).padStart(8)} us CPU${more} us more`)
  }
})

await Effect.runPromise(Effect.scoped(program))
