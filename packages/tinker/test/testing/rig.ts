/** A scripted server with the lower half of the SDK on it, and helpers for tests. */
import { Effect, Either, Layer, Logger, Redacted } from "effect"
import { ApiFuture, Loss, Optimizer, type TinkerError, TinkerConfig } from "effect-tinker"
import * as Api from "effect-tinker/protocol/Api"
import type * as Endpoint from "effect-tinker/protocol/Endpoint"
import * as Session from "effect-tinker/Session"
import * as Transport from "effect-tinker/Transport"
import * as ScriptedServer from "effect-tinker/testing/ScriptedServer"
import * as VirtualTime from "effect-tinker/testing/VirtualTime"

/** `provideMerge` alone would build a fresh layer twice: once as provided, once as merged. */
const on =
  <B, E2>(below: Layer.Layer<B, E2>) =>
  <A, E>(above: Layer.Layer<A, E, B>): Layer.Layer<A | B, E | E2> =>
    Layer.flatMap(below, (context) => Layer.provideMerge(above, Layer.succeedContext(context)))

const config = TinkerConfig.layer({ baseUrl: "http://server/prefix", apiKey: Redacted.make("tml-a") })

export const transport = (options?: ScriptedServer.Options) =>
  on(Layer.merge(config, ScriptedServer.layer(options)))(Transport.layer)

export const layer = (options?: ScriptedServer.Options) => on(on(transport(options))(Session.layer()))(ApiFuture.layer)

const quiet = Logger.remove(Logger.defaultLogger)

export type Rig = ScriptedServer.ScriptedServer | Transport.Transport | Session.Session | ApiFuture.Futures

/** Runs a program on its own server in its own virtual time. */
export const run = <A, E>(
  program: Effect.Effect<A, E, Rig>,
  options?: ScriptedServer.Options,
): Effect.Effect<A, E | Layer.Layer.Error<ReturnType<typeof layer>>> =>
  program.pipe(Effect.provide(Layer.merge(layer(options), quiet)), VirtualTime.run)

export const call = <I, A>(
  endpoint: Endpoint.Endpoint<I, A>,
  input: NoInfer<I>,
  options?: Transport.CallOptions,
): Effect.Effect<A, TinkerError.TinkerError, Transport.Transport> =>
  Effect.flatMap(Transport.Transport, ({ call }) => call(endpoint, input, options))

/** The result of an accepted request. */
export const result = <A>(kind: ApiFuture.Kind<A>, { requestId }: { readonly requestId: string }) =>
  Effect.flatMap(ApiFuture.Futures, ({ attach }) => Effect.flatMap(attach(kind, requestId), (future) => future.await))

const { kinds } = ApiFuture

export const baseModel = "Qwen/Qwen3-8B"

export const createModel = (modelSeqId = 0) =>
  Effect.gen(function* () {
    const { id } = yield* Session.Session
    const accepted = yield* call(Api.createModel, { sessionId: id, modelSeqId, baseModel })
    return (yield* result(kinds.createModel, accepted)).modelId
  })

export const datum = (...tokens: ReadonlyArray<number>) => ({
  modelInput: tokens.slice(0, -1),
  inputs: { targetTokens: tokens.slice(1), weights: tokens.slice(1).map((_, i) => (i % 2 === 0 ? 1 : 0.1)) },
})

export const prepare = (...data: ReadonlyArray<ReturnType<typeof datum>>) =>
  Either.getOrThrow(Loss.prepare(Loss.crossEntropy, data))

export const batch = prepare(datum(1, 2, 3, 4), datum(9, 8, 7))

/** Submits only; `result` waits for the result. */
export const submitPass = (modelId: string, seqId: number, data = batch, wire: "protobuf" | "json" = "protobuf") =>
  wire === "json"
    ? call(Api.forwardBackwardJson, { modelId, seqId, batch: data })
    : call(Api.forwardBackward, { modelId, seqId, batch: data, forwardOnly: false })

export const submitForward = (modelId: string, seqId: number, data = batch, wire: "protobuf" | "json" = "protobuf") =>
  wire === "json"
    ? call(Api.forwardJson, { modelId, seqId, batch: data })
    : call(Api.forwardBackward, { modelId, seqId, batch: data, forwardOnly: true })

export const submitStep = (modelId: string, seqId: number, learningRate = 1e-4) =>
  call(Api.optimStep, { modelId, seqId, ...Optimizer.toParams(Optimizer.adam({ learningRate })) })

export const passed = (accepted: { readonly requestId: string }) => result(kinds.forwardBackward, accepted)
export const stepped = (accepted: { readonly requestId: string }) => result(kinds.optimStep, accepted)

/** The only model. */
export const model = Effect.flatMap(ScriptedServer.ScriptedServer, ({ models }) =>
  Effect.map(models, ([model]) => {
    if (model === undefined) throw new TypeError("there is no model")
    return model
  }),
)

export const applied = Effect.map(model, ({ applied }) => applied.map(({ seq }) => seq))

/** The error of a call, as its tag and reason. */
export const failure = <A, E extends { readonly _tag: string }, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.map(Effect.flip(effect), (error) =>
    "reason" in error ? `${error._tag} ${String(error.reason)}` : String(error._tag),
  )
