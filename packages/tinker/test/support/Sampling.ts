/** Everything a sampling client needs, on a scripted server. */
import { Context, Effect, identity, Layer, Redacted, Schema, Stream } from "effect"
import { ApiFuture, RateLimiter, TinkerConfig } from "effect-tinker"
import * as Session from "effect-tinker/Session"
import * as Transport from "effect-tinker/Transport"
import * as Flags from "effect-tinker/protocol/schemas/Session"
import type * as SamplerHandle from "effect-tinker/SamplerHandle"
import * as SamplingClient from "effect-tinker/SamplingClient"
import * as HttpScript from "./HttpScript.ts"

export type Replies = Readonly<Record<string, ReadonlyArray<HttpScript.Reply>>>

/** The recorded server's answer to a sample: tokens 101, 102, 103. */
export const sampleBytes = Buffer.from("ChwSDGUAAABmAAAAZwAAABoMAAAAvwAAgL4AAAC+", "base64")

export const protobuf = (bytes: Uint8Array): HttpScript.Reply => ({
  headers: { "content-type": "application/x-protobuf" },
  body: bytes,
})

export const accepted = (requestId: string): HttpScript.Reply => ({ body: { request_id: requestId } })

export const pending: HttpScript.Reply = { status: 408, body: { queue_state: "active" }, delaySeconds: 40 }

export const ready: Replies = {
  asample: [{ ...accepted("req"), forever: true }],
  retrieve_future: [{ ...protobuf(sampleBytes), forever: true }],
}

const server = (replies: Replies) =>
  HttpScript.layer({
    "client/config": [{ body: {} }],
    "client/dynamic_config": [{ body: {}, forever: true }],
    create_session: [{ body: { session_id: "sess-0001" } }],
    session_heartbeat: [{ body: {}, forever: true }],
    "sess-0001/finish": [{ body: {}, forever: true }],
    ...replies,
  })

const configured = (values: TinkerConfig.Values) =>
  TinkerConfig.layer({ baseUrl: "http://server", apiKey: Redacted.make("tml-a"), ...values })

const transport = (replies: Replies, values: TinkerConfig.Values) =>
  Layer.provideMerge(Transport.layer, Layer.merge(configured(values), server(replies)))

/** Without a session, as in a process that was given a handle. */
export const sessionless = (replies: Replies, values: TinkerConfig.Values = {}) =>
  Layer.merge(transport(replies, values), RateLimiter.layer)

/** With a session, but without a limiter. */
export const unlimited = (replies: Replies, values: TinkerConfig.Values = {}) =>
  Layer.provideMerge(ApiFuture.layer, Layer.provideMerge(Session.layer(), transport(replies, values)))

export const layer = (replies: Replies, values: TinkerConfig.Values = {}) =>
  Layer.merge(unlimited(replies, values), RateLimiter.layer)

export const samplingSession: SamplingClient.Target = { samplingSessionId: "sess-0001:sample:0" }

/** The handle that a client of the sampling session would give to another process. */
export const handle = (
  flags: Partial<Flags.ClientConfig> = {},
  baseUrl = "http://server",
): SamplerHandle.SamplerHandle => ({
  sessionId: "sess-0001",
  samplingSessionId: "sess-0001:sample:0",
  holder: {
    baseUrl,
    defaultHeadersOverrides: {},
    clientConfig: { ...Schema.decodeSync(Flags.ClientConfig)({}), ...flags },
    clientDynamicConfig: Schema.decodeSync(Flags.DynamicConfig)({}),
  },
  recordStabilityInfo: false,
})

class First extends Context.Tag("test/First")<First, SamplingClient.Service>() {}
class Second extends Context.Tag("test/Second")<Second, SamplingClient.Service>() {}

/** The clients of a layer that is used in two places of one program. */
export const twice = <E, R>(layer: Layer.Layer<SamplingClient.SamplingClient, E, R>) => {
  const tag = SamplingClient.SamplingClient
  return Effect.all([First, Second]).pipe(
    Effect.provide(
      Layer.merge(Layer.project(layer, tag, First, identity), Layer.project(layer, tag, Second, identity)),
    ),
  )
}

/** Watches a stream of states in the background; returns the states seen so far. */
export const watch = (states: Stream.Stream<ApiFuture.QueueState>) =>
  Effect.gen(function* () {
    const seen: Array<string> = []
    yield* Effect.forkScoped(Stream.runForEach(states, ({ state }) => Effect.sync(() => seen.push(state))))
    yield* Effect.yieldNow()
    return seen as ReadonlyArray<string>
  })
