import { describe, expect, it } from "@effect/vitest"
import { Arbitrary, Context, Effect, Either, Exit, Fiber, Layer, Redacted, Scope, TestClock } from "effect"
import { RateLimiter } from "effect-tinker"
import * as SamplerHandle from "effect-tinker/SamplerHandle"
import * as SamplingClient from "effect-tinker/SamplingClient"
import * as HttpScript from "./support/HttpScript.ts"
import * as Sampling from "./support/Sampling.ts"
import * as VirtualTime from "./support/VirtualTime.ts"

const prompt = [1, 2, 3]

const text = (json: unknown) => Buffer.from(JSON.stringify(json)).toString("base64url")
const json = (handle: string) => JSON.parse(Buffer.from(handle, "base64url").toString())

/** A process that has only a configuration and the handle. */
const cloned = <A, E>(
  handle: string,
  replies: Sampling.Replies,
  use: (clone: SamplingClient.Service, script: HttpScript.Script) => Effect.Effect<A, E>,
) =>
  Effect.gen(function* () {
    const clone = yield* SamplingClient.fromHandle(handle)
    return yield* use(clone, yield* HttpScript.HttpScript)
  }).pipe(Effect.scoped, Effect.provide(Sampling.sessionless({ ...Sampling.ready, ...replies })), VirtualTime.run)

describe("sampler handles", () => {
  it.prop(
    "decoding an encoded handle gives the same handle",
    [Arbitrary.make(SamplerHandle.SamplerHandle)],
    ([handle]) => {
      const written = SamplerHandle.encode(handle)
      expect(written).toMatch(/^[\w-]*={0,2}$/)
      expect(written.length % 4).toBe(0)
      // JSON has no -0, so the encoded texts are compared.
      expect(Either.map(SamplerHandle.decode(written), SamplerHandle.encode)).toEqual(Either.right(written))
      const { holder, samplingSessionId, sessionId } = Either.getOrThrow(SamplerHandle.decode(written))
      expect([sessionId, samplingSessionId]).toEqual([handle.sessionId, handle.samplingSessionId])
      expect(holder.baseUrl).toBe(handle.holder.baseUrl)
      // Padding may be missing, because it gets lost in URLs.
      expect(SamplerHandle.decode(written.replace(/=+$/, ""))).toEqual(SamplerHandle.decode(written))
    },
  )

  it.effect("a handle contains no credential of its creator", () =>
    Effect.gen(function* () {
      const client = yield* SamplingClient.make(Sampling.samplingSession, { recordStabilityInfo: true })
      const handle = yield* client.handle
      expect(json(handle)).toMatchObject({
        session_id: "sess-0001",
        sampling_session_id: "sess-0001:sample:0",
        holder: { base_url: "http://server", default_headers_overrides: { "x-team": "red" }, api_key: null },
        record_stability_info: true,
      })
      expect(Buffer.from(handle, "base64url").toString()).not.toMatch(/tml-|hidden|secret/i)
    }).pipe(
      Effect.scoped,
      Effect.provide(
        Sampling.layer(
          {},
          {
            headers: {
              "X-Team": "red",
              "X-Hidden": Redacted.make("hidden"),
              Authorization: "Bearer hidden",
              Cookie: "hidden",
              "X-Note": "the key is tml-hidden",
            },
            cloudflareAccess: { clientId: Redacted.make("hidden"), clientSecret: Redacted.make("secret") },
          },
        ),
      ),
      VirtualTime.run,
    ),
  )

  it.effect.each([
    ["handle", "not base64!", "expected URL-safe base64"],
    ["handle", Buffer.from("no json").toString("base64url"), "expected JSON"],
    ["handle", undefined, "expected a string, got undefined"],
    ["handle", text(7), undefined],
    ["handle.session_id", text({ sampling_session_id: "a", holder: { base_url: "http://server" } }), undefined],
    ["handle.holder", text({ session_id: "a", sampling_session_id: "a" }), undefined],
    [
      "handle.holder.client_config.sample_no_retries",
      text({
        session_id: "a",
        sampling_session_id: "a",
        holder: { base_url: "http://server", client_config: { sample_no_retries: "tml-secret" } },
      }),
      undefined,
    ],
    [
      "handle.holder.base_url",
      SamplerHandle.encode(Sampling.handle({}, "http://elsewhere")),
      "does not match the configured base URL",
    ],
    ["handle.holder.base_url", SamplerHandle.encode(Sampling.handle({}, "nowhere")), undefined],
  ] as const)("an invalid handle is rejected without repeating its content: %s", ([path, handle, problem]) =>
    Effect.gen(function* () {
      // As untyped code could call it.
      const refused = yield* Effect.flip(cloned(handle as string, {}, () => Effect.void))
      expect(refused).toMatchObject({ _tag: "InvalidInput", path })
      if (problem !== undefined) expect(refused).toMatchObject({ problem })
      expect(refused.message).not.toContain("tml-secret")
    }),
  )

  it.effect("a handle is accepted for the same server however its URL is written", () =>
    cloned(SamplerHandle.encode(Sampling.handle({}, "HTTP://Server:80//")), {}, (clone) => clone.sample({ prompt })),
  )
})

describe("clones", () => {
  it.effect("a clone opens no session and samples with the credential of its own configuration", () =>
    cloned(
      SamplerHandle.encode({ ...Sampling.handle(), recordStabilityInfo: true }),
      { "samplers/sess-0001:sample:0": [{ body: { sampler_id: "x", base_model: "Qwen/Qwen3-8B" } }] },
      (clone, script) =>
        Effect.gen(function* () {
          yield* clone.sample({ prompt })
          yield* Effect.sleep("1 minute")
          expect(yield* clone.getBaseModel).toBe("Qwen/Qwen3-8B")
          expect(script.seen.map(({ path }) => path.replace("/api/v1/", ""))).toEqual([
            "client/config",
            "asample",
            "retrieve_future",
            "samplers/sess-0001:sample:0",
          ])
          const [sent] = script.to("asample")
          expect(sent?.headers["x-api-key"]).toBe("tml-a")
          expect(JSON.parse(sent?.body ?? "")).toMatchObject({
            sampling_session_id: "sess-0001:sample:0",
            record_stability_info: true,
          })
          // A clone can create a handle too.
          expect(json(yield* clone.handle)).toMatchObject({ session_id: "sess-0001", record_stability_info: true })
        }),
    ),
  )

  it.effect("a clone uses the flags from the handle", () =>
    cloned(SamplerHandle.encode(Sampling.handle({ sampleNoRetries: true })), { asample: [{ status: 503 }] }, (clone) =>
      Effect.gen(function* () {
        expect(yield* Effect.flip(clone.sample({ prompt }))).toMatchObject({ _tag: "Unavailable" })
      }),
    ),
  )

  it.effect("each clone numbers its samples in its own block", () =>
    Effect.gen(function* () {
      const firsts = yield* Effect.forEach(Array.from({ length: 5 }), () =>
        cloned(SamplerHandle.encode(Sampling.handle()), {}, (clone, script) =>
          Effect.gen(function* () {
            yield* clone.sample({ prompt })
            return Number(JSON.parse(script.to("asample")[0]?.body ?? "").seq_id)
          }),
        ),
      )
      expect(new Set(firsts).size).toBe(firsts.length)
      for (const first of firsts) {
        expect(first % 1e9).toBe(0)
        expect(first).toBeGreaterThan(0)
        expect(Number.isSafeInteger(first + 999_999_999)).toBe(true)
      }
    }),
  )

  const joining = SamplerHandle.encode(Sampling.handle({ sampleJoinSamplingSession: true }))

  it.effect("a clone that must join does so once, before its first sample", () =>
    cloned(joining, { join_sampling_session: [{ body: { client_counter: 3 }, delaySeconds: 1 }] }, (clone, script) =>
      Effect.gen(function* () {
        expect(script.to("join_sampling_session")).toEqual([])
        yield* Effect.forEach([1, 2, 3], () => clone.sample({ prompt }), { concurrency: "unbounded" })
        yield* clone.sample({ prompt })
        expect(script.to("join_sampling_session").length).toBe(1)
        const numbers = script.to("asample").map(({ body }) => JSON.parse(body).seq_id)
        expect(numbers).toEqual([3e9, 3e9 + 1, 3e9 + 2, 3e9 + 3])
      }),
    ),
  )

  it.effect("a failed join is reported and the next sample retries it", () =>
    cloned(
      joining,
      {
        join_sampling_session: [
          { status: 403, body: { detail: "no" } },
          // Two clones with such numbers would be indistinguishable.
          ...Array.from({ length: 4 }, () => ({ body: { client_counter: 9_007_199 } })),
          { body: { client_counter: 9_007_198 } },
        ],
      },
      (clone, script) =>
        Effect.gen(function* () {
          expect(yield* Effect.flip(clone.sample({ prompt }))).toMatchObject({ _tag: "Forbidden" })
          expect(yield* Effect.flip(clone.sample({ prompt }))).toMatchObject({ _tag: "UnexpectedResponse" })
          yield* clone.sample({ prompt })
          expect(script.to("asample").map(({ body }) => JSON.parse(body).seq_id)).toEqual([9_007_198e9])
        }),
    ),
  )

  it.effect("closing a clone while it joins fails all waiting samples", () =>
    Effect.gen(function* () {
      const everything = yield* Scope.make()
      const context = yield* Layer.buildWithScope(
        Sampling.sessionless({ join_sampling_session: [{ body: { client_counter: 3 }, delaySeconds: 30 }] }),
        everything,
      )
      const scope = yield* Scope.make()
      const clone = yield* SamplingClient.fromHandle(joining).pipe(Effect.provide(context), Scope.extend(scope))
      const waiting = yield* Effect.forEach([1, 2], () => Effect.fork(Effect.flip(clone.sample({ prompt }))))
      yield* TestClock.adjust("1 second")
      yield* Scope.close(scope, Exit.void)
      for (const fiber of waiting) expect(yield* Fiber.join(fiber)).toMatchObject({ _tag: "ClientClosed" })
      yield* Scope.close(everything, Exit.void)
    }),
  )

  it.effect("each use of the layer of a handle creates its own clone", () =>
    Effect.gen(function* () {
      const layer = SamplingClient.layerFromHandle(SamplerHandle.encode(Sampling.handle()))
      const [first, second] = yield* Sampling.twice(layer)
      expect(first).not.toBe(second)
    }).pipe(Effect.provide(Sampling.sessionless({})), VirtualTime.run),
  )

  it.effect("a clone waits after a 429 to its original, because they share a limiter", () =>
    Effect.gen(function* () {
      const context = yield* Layer.build(
        Sampling.unlimited({
          ...Sampling.ready,
          asample: [
            { status: 429, headers: { "retry-after": "30" } },
            { ...Sampling.accepted("req"), forever: true },
          ],
        }),
      )
      yield* Effect.gen(function* () {
        const original = yield* SamplingClient.make(Sampling.samplingSession)
        const clone = yield* SamplingClient.fromHandle(yield* original.handle)
        const refused = yield* Effect.fork(original.sample({ prompt }))
        yield* Effect.sleep("1 second")
        yield* clone.sample({ prompt })
        yield* Fiber.join(refused)
      }).pipe(Effect.provide(context))
      const { to } = Context.get(context, HttpScript.HttpScript)
      expect(to("asample").map(({ at }) => at)).toEqual([0, 30_000, 30_000])
    }).pipe(Effect.scoped, Effect.provide(RateLimiter.layer), VirtualTime.run),
  )
})
