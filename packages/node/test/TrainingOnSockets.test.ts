/** Tests that need a real socket: the order in which requests are written, and which bytes they contain. */
import { subscribe, unsubscribe } from "node:diagnostics_channel"
import { describe, expect, it } from "@effect/vitest"
import { NodeTinker } from "@effect-tinker/node"
import { Deferred, Effect, Redacted, type Scope } from "effect"
import { Loss, Optimizer, ServiceClient, type TinkerError, type TrainingClient } from "effect-tinker"
import { type Request, scriptedWith } from "./support/ScriptedSocket.ts"

const adam = Optimizer.adam({ learningRate: 1e-4 })

type Around = Parameters<typeof scriptedWith>[0]

/** Runs training clients on a scripted server behind a socket. */
const training = <A, E>(
  around: Around,
  use: (
    client: Effect.Effect<TrainingClient.Service, TinkerError.TrainingError, Scope.Scope>,
  ) => Effect.Effect<A, E, Scope.Scope>,
) =>
  Effect.gen(function* () {
    const baseUrl = yield* scriptedWith(around)
    return yield* Effect.flatMap(ServiceClient.ServiceClient, (service) =>
      use(service.createLoraTrainingClient({ baseModel: "Qwen/Qwen3-8B", rank: 8 })),
    ).pipe(Effect.provide(NodeTinker.layer({ baseUrl, apiKey: Redacted.make("tml-a") })))
  })

const isPass = ({ path }: Request) => path.endsWith("/forward_backward")

describe("TrainingClient submissions", () => {
  /** Subscribes to a diagnostics channel of undici. */
  const observe = <A>(channel: string, of: (message: A) => void) =>
    Effect.acquireRelease(
      Effect.sync(() => {
        const listener = (message: unknown) => of(message as A)
        subscribe(channel, listener)
        return listener
      }),
      (listener) => Effect.sync(() => unsubscribe(channel, listener)),
    )

  it.scopedLive("submissions are sent before the polls of earlier submissions", () =>
    Effect.gen(function* () {
      // In the order of writing: two sockets of a server have no order.
      const paths: Array<string> = []
      yield* observe<{ readonly request: { readonly path: string } }>("undici:client:sendHeaders", ({ request }) => {
        paths.push(request.path)
      })
      yield* training(
        (_, handled) => handled,
        (made) =>
          Effect.gen(function* () {
            const client = yield* made
            yield* client.optimStep(adam)
            paths.length = 0
            yield* Effect.all(
              Array.from({ length: 5 }, () => client.optimStep(adam)),
              { concurrency: "unbounded" },
            )
          }),
      )
      const of = (name: string) => paths.flatMap((path, at) => (path.endsWith(name) ? [at] : []))
      const submissions = of("/optim_step")
      const polls = of("/retrieve_future")
      expect([submissions.length, polls.length]).toEqual([5, 5])
      for (let n = 0; n < 4; n++) expect(polls[n]).toBeGreaterThan(submissions[n + 1] ?? Number.NaN)
    }),
  )

  /** A batch of more than one megabyte that consists of one token. */
  const batch = (token: number) => {
    const tokens = Int32Array.from({ length: 50_000 }, () => token)
    const weights = new Float32Array(50_000).fill(token)
    return Array.from({ length: 2 }, () => ({ modelInput: tokens, inputs: { targetTokens: tokens, weights } }))
  }

  /** Returns the token that a body consists of. */
  const tokenIn = (body: Buffer) => {
    const found = Array.from({ length: 10 }, (_, n) => 100 + n).filter((token) =>
      body.includes(Buffer.from(Int32Array.from({ length: 50_000 }, () => token).buffer)),
    )
    return found.length === 1 ? found[0] : found
  }

  it.scopedLive("submissions in reused memory contain their own bytes", () =>
    Effect.gen(function* () {
      const bodies: Array<Buffer> = []
      const memories: Array<ArrayBufferLike> = []
      yield* observe<{ readonly chunk: Uint8Array }>("undici:request:bodyChunkSent", ({ chunk }) => {
        if (chunk.length > 1_000_000) memories.push(chunk.buffer)
      })
      yield* training(
        (request, handled) => {
          if (isPass(request)) bodies.push(request.body)
          return handled
        },
        (made) =>
          Effect.gen(function* () {
            const client = yield* made
            const pass = (token: number) => client.forwardBackward(batch(token), Loss.crossEntropy)
            yield* pass(100)
            yield* pass(101)
            yield* Effect.all([102, 103, 104, 105].map(pass), { concurrency: "unbounded" })
            yield* pass(106)
          }),
      )
      expect([bodies.length, memories.length]).toEqual([7, 7])
      // The first pass determines the server's format and keeps its own memory.
      expect(new Set(memories.slice(1)).size).toBe(1)
      expect(bodies.map(tokenIn)).toEqual([100, 101, 102, 103, 104, 105, 106])
    }),
  )

  it.scopedLive("a retried submission is unchanged even if another one needs memory meanwhile", () =>
    Effect.gen(function* () {
      const bodies: Array<Buffer> = []
      const refused = yield* Deferred.make<void>()
      const other = yield* Deferred.make<void>()
      yield* training(
        (request, handled) => {
          if (!isPass(request)) return handled
          bodies.push(request.body)
          switch (bodies.length) {
            case 2:
              // Refused only after another client has sent a pass of the same size.
              return Deferred.succeed(refused, undefined).pipe(
                Effect.zipRight(Deferred.await(other)),
                Effect.as({ status: 503, headers: {}, body: "{}" }),
              )
            case 3:
              return Effect.zipRight(Deferred.succeed(other, undefined), handled)
            default:
              return handled
          }
        },
        (made) =>
          Effect.gen(function* () {
            const [one, two] = yield* Effect.all([made, made])
            const pass = (client: TrainingClient.Service, token: number) =>
              client.forward(batch(token), Loss.crossEntropy)
            yield* pass(one, 100)
            yield* Effect.all([pass(one, 101), Effect.zipRight(Deferred.await(refused), pass(two, 102))], {
              concurrency: "unbounded",
            })
          }),
      )
      expect(bodies.map(tokenIn)).toEqual([100, 101, 102, 101])
    }),
  )
})
