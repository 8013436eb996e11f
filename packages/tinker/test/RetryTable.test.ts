// Tests every row of the table "Who retries what" in docs/errors-and-retries.md, for all endpoints.
import { describe, expect, it } from "@effect/vitest"
import { Effect, Layer, Redacted } from "effect"
import { RetryPolicy, TinkerConfig } from "effect-tinker"
import * as Api from "effect-tinker/protocol/Api"
import type * as Endpoint from "effect-tinker/protocol/Endpoint"
import * as Transport from "effect-tinker/Transport"
import * as HttpScript from "./support/HttpScript.ts"
import * as VirtualTime from "./support/VirtualTime.ts"

type Row = Endpoint.Endpoint<never, unknown>
const isRow = (value: unknown): value is Row => typeof value === "object" && value !== null && "operation" in value
const endpoints = Object.values<unknown>(Api).filter(isRow)
const named = (predicate: (row: Row) => boolean) =>
  endpoints
    .filter(predicate)
    .map((row) => row.operation)
    .toSorted()

/** The number of times an endpoint like this row is sent when every answer is `reply`. */
const attempts = (row: Row, reply: HttpScript.Reply) => {
  // Keeps only the properties that the transport reads, so that every endpoint can be called without an input.
  const { "~types": _, ...rest } = row
  const probe: Endpoint.Endpoint<object, unknown> = {
    ...rest,
    path: "probe",
    params: undefined,
    query: undefined,
    body: { kind: "none" },
  }
  return Effect.gen(function* () {
    const { call } = yield* Transport.Transport
    yield* Effect.exit(call(probe, {}))
    return (yield* HttpScript.HttpScript).to("probe").length
  }).pipe(
    Effect.provide(
      Layer.provideMerge(
        Transport.layer,
        Layer.merge(
          TinkerConfig.layer({
            baseUrl: "http://server",
            apiKey: Redacted.make("tml-a"),
            retryPolicy: RetryPolicy.make({ maxRetries: 2, billingPause: "7 seconds" }),
          }),
          HttpScript.layer({ "client/config": [{ body: {}, forever: true }], probe: [{ ...reply, forever: true }] }),
        ),
      ),
    ),
    VirtualTime.run,
  )
}
describe("retries per endpoint", () => {
  it("each endpoint has the retry class that the table documents", () => {
    expect(named((row) => row.retry === "none")).toEqual(
      [
        "asample",
        "cancel_future",
        "client/dynamic_config",
        "retrieve_future",
        "retrieve_futures",
        "session_heartbeat",
        "telemetry",
      ].toSorted(),
    )
    expect(named((row) => row.retry === "startup")).toEqual(
      ["auth/token", "client/config", "create_model", "create_sampling_session", "create_session"].toSorted(),
    )
    expect(new Set(named((row) => row.sequenced))).toEqual(
      new Set([
        "forward",
        "forward_backward",
        "load_weights",
        "optim_step",
        "save_weights",
        "save_weights_external",
        "save_weights_for_sampler",
      ]),
    )
  })

  /** The number of attempts per status when every answer has that status. */
  const expected = (row: Row) => {
    const all = row.retry === "none" ? 1 : 3
    return { 503: all, 429: all, 408: all, 409: row.sequenced ? 1 : all, 402: row.retry === "standard" ? 3 : 1, 422: 1 }
  }

  it.effect.each(endpoints.map((row) => [`${row.method} ${row.path}`, row] as const))(
    "%s is retried as the table documents",
    ([, row]) =>
      Effect.forEach(Object.entries(expected(row)), ([status, times]) =>
        Effect.map(attempts(row, { status: Number(status), body: { detail: "x" } }), (sent) =>
          expect(sent, status).toBe(times),
        ),
      ),
  )

  it.effect("lost and refused connections are retried", () =>
    Effect.gen(function* () {
      for (const row of endpoints.filter((row, i) => endpoints.findIndex(({ retry }) => retry === row.retry) === i)) {
        expect(yield* attempts(row, { drop: "after" }), row.retry).toBe(row.retry === "none" ? 1 : 3)
        expect(yield* attempts(row, { drop: "before" }), row.retry).toBe(row.retry === "none" ? 1 : 3)
      }
    }),
  )
})
