/** Runs on a scripted server, in virtual time. */
import type { HttpClient } from "@effect/platform"
import { Effect, Layer, Logger, Redacted } from "effect"
import { RateLimiter, Tinker, TinkerConfig } from "effect-tinker"
import * as ScriptedServer from "effect-tinker/testing/ScriptedServer"
import * as VirtualTime from "effect-tinker/testing/VirtualTime"

export type Server = HttpClient.HttpClient | ScriptedServer.ScriptedServer

/** New clients on an existing server, as after a restart of the process. */
export const clients = Layer.fresh(
  Tinker.layer().pipe(
    Layer.provide([
      TinkerConfig.layer({ baseUrl: "http://server", apiKey: Redacted.make("tml-a") }),
      RateLimiter.layer,
      Layer.effectContext(Effect.context<HttpClient.HttpClient>()),
    ]),
  ),
)

export const onServer = <A, E>(program: Effect.Effect<A, E, Server>, options?: ScriptedServer.Options) =>
  program.pipe(
    Effect.provide(Layer.merge(ScriptedServer.layer(options), Logger.remove(Logger.defaultLogger))),
    VirtualTime.run,
  )
