/** Connects our clients to an in-process server with the stand-in model. */
import { Effect, Layer, Logger, Redacted, type Scope } from "effect"
import { RateLimiter, RestClient, ServiceClient, TinkerConfig } from "effect-tinker"
import * as Transport from "effect-tinker/Transport"
import * as VirtualTime from "effect-tinker/testing/VirtualTime"
import { LocalTinker, ModelHost, type ServerOptions } from "@effect-tinker/server"
import * as StandInModel from "./StandInModel.ts"

export const baseModel = StandInModel.name

export const host = Layer.sync(ModelHost.ModelHost, () => ModelHost.inline(StandInModel.make()))

export const server = (options?: ServerOptions.ServerOptions) => Layer.provide(LocalTinker.layerOn(options), host)

export const clients = (key = "tml-a") =>
  Layer.mergeAll(ServiceClient.layer(), RestClient.layer).pipe(
    Layer.provideMerge(Transport.layer),
    Layer.provideMerge(RateLimiter.layer),
    Layer.provide(TinkerConfig.layer({ baseUrl: "http://local", apiKey: Redacted.make(key) })),
  )

export const layer = (options?: ServerOptions.ServerOptions) => Layer.provideMerge(clients(), server(options))

const quiet = Logger.remove(Logger.defaultLogger)

/** Runs a program in virtual time. */
export const run = <A, E>(
  program: Effect.Effect<A, E, Layer.Layer.Success<ReturnType<typeof layer>> | Scope.Scope>,
  options?: ServerOptions.ServerOptions,
) => program.pipe(Effect.scoped, Effect.provide(Layer.merge(layer(options), quiet)), VirtualTime.run)

const text = "hello world, hello again"

/** A batch that trains each character to predict the next one. */
export const batch = (words = text) => {
  const codes = [...words].map((char) => char.charCodeAt(0))
  return [
    {
      modelInput: codes.slice(0, -1),
      inputs: { targetTokens: codes.slice(1), weights: codes.slice(1).map(() => 1) },
    },
  ]
}
