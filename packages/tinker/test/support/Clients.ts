/** The clients on a scripted server, in virtual time, and helpers for their tests. */
import type { HttpClient } from "@effect/platform"
import { Cause, Effect, Exit, Layer, Logger, Option, Redacted, type Scope } from "effect"
import {
  Loss,
  Optimizer,
  RateLimiter,
  ServiceClient,
  TinkerConfig,
  type TinkerError,
  type TrainingClient,
} from "effect-tinker"
import * as Transport from "effect-tinker/Transport"
import * as ScriptedServer from "effect-tinker/testing/ScriptedServer"
import * as VirtualTime from "effect-tinker/testing/VirtualTime"

/** `provideMerge` alone would build a fresh layer twice: once as provided, once as merged. */
export const on =
  <B, E2, R2>(below: Layer.Layer<B, E2, R2>) =>
  <A, E>(above: Layer.Layer<A, E, B>): Layer.Layer<A | B, E | E2, R2> =>
    Layer.flatMap(below, (context) => Layer.provideMerge(above, Layer.succeedContext(context)))

/** Everything a client needs, on an existing server. */
export const clients = (values: TinkerConfig.Values = {}) =>
  on(
    on(
      Layer.mergeAll(
        TinkerConfig.layer({ baseUrl: "http://server", apiKey: Redacted.make("tml-a"), ...values }),
        RateLimiter.layer,
        Layer.effectContext(Effect.context<HttpClient.HttpClient>()),
      ),
    )(Transport.layer),
  )(ServiceClient.layer())

export const layer = (options?: ScriptedServer.Options, values?: TinkerConfig.Values) =>
  on(ScriptedServer.layer(options))(clients(values))

const quiet = Logger.remove(Logger.defaultLogger)

export type Env = Layer.Layer.Success<ReturnType<typeof layer>>

export const run = <A, E>(program: Effect.Effect<A, E, Env | Scope.Scope>, options?: ScriptedServer.Options) =>
  program.pipe(Effect.scoped, Effect.provide(Layer.merge(layer(options), quiet)), VirtualTime.run)

export const baseModel = "Qwen/Qwen3-8B"

export const lora = (options: TrainingClient.Options = {}) =>
  Effect.flatMap(ServiceClient.ServiceClient, (service) => service.createLoraTrainingClient({ baseModel, ...options }))

export const datum = (...tokens: ReadonlyArray<number>) => ({
  modelInput: tokens.slice(0, -1),
  inputs: { targetTokens: tokens.slice(1), weights: tokens.slice(1).map(() => 1) },
})

export const adam = Optimizer.adam()

export const pass = (client: TrainingClient.Service, ...tokens: ReadonlyArray<number>) =>
  client.forwardBackward([datum(...tokens)], Loss.crossEntropy)

export const server = ScriptedServer.ScriptedServer

export const fault = (fault: ScriptedServer.Fault) => Effect.flatMap(server, (server) => server.fault(fault))

/** The only model. */
export const model = Effect.flatMap(server, ({ models }) =>
  Effect.flatMap(models, ([model]) => Option.fromNullable(model)),
)

/** The applied operations, e.g. `1 forward_backward`. */
export const applied = Effect.map(model, ({ applied }) => applied.map(({ operation, seq }) => `${seq} ${operation}`))

/** The sequence numbers of the requests to one endpoint. */
export const sent = (operation: ScriptedServer.Operation) =>
  Effect.flatMap(server, ({ requestsTo }) => Effect.map(requestsTo(operation), (seen) => seen.map(({ seq }) => seq)))

/** How an effect ends, in short. */
export const ending = <A, E extends { readonly _tag: string }, R>(
  effect: Effect.Effect<A, E, R>,
): Effect.Effect<string, never, R> =>
  Effect.map(Effect.exit(effect), (exit) => {
    if (Exit.isSuccess(exit)) return "done"
    if (Cause.isInterruptedOnly(exit.cause)) return "interrupted"
    return Option.match(Cause.failureOption(exit.cause), {
      onNone: () => "died",
      onSome: describe,
    })
  })

const describe = (error: { readonly _tag: string }): string => {
  const { applied, reason } = error as Partial<TinkerError.SequenceBroken & TinkerError.RequestRejected>
  return [error._tag, reason, applied].filter((word) => word !== undefined).join(" ")
}
