/** The management clients on a scripted server without sessions: opening one would be a defect. */
import { Effect, Layer, Logger, Redacted } from "effect"
import { type AdminClient, RateLimiter, type RestClient, Tinker, TinkerConfig } from "effect-tinker"
import * as VirtualTime from "effect-tinker/testing/VirtualTime"
import { exchanges } from "../api/wire.ts"
import * as Clients from "./Clients.ts"
import * as HttpScript from "./HttpScript.ts"
import * as Replay from "./Replay.ts"

export type Env = RestClient.RestClient | AdminClient.AdminClient | HttpScript.HttpScript

export const otherKey = "tml-other-key"

export const layer = (replies: Replay.Replies, values: TinkerConfig.Values = {}) =>
  Clients.on(
    Layer.mergeAll(
      HttpScript.layer({ "client/config": [{ body: {} }], ...replies }),
      TinkerConfig.layer({ baseUrl: "http://server", apiKey: Redacted.make("tml-a-key"), ...values }),
      RateLimiter.layer,
      Logger.remove(Logger.defaultLogger),
    ),
  )(Tinker.layer())

export const run = <A, E>(program: Effect.Effect<A, E, Env>, replies: Replay.Replies, values?: TinkerConfig.Values) =>
  program.pipe(Effect.provide(layer(replies, values)), VirtualTime.run)

/** The requests so far, except those at start-up. */
export const sent = Effect.map(HttpScript.HttpScript, ({ seen }) =>
  seen.filter(({ path }) => !/\/(client\/config|auth\/token)$/.test(path)),
)

/** The requests of a program and of a recording, both in the same form. */
export const replayed = <A, E>(file: Replay.VectorFile, program: Effect.Effect<A, E, Env>) =>
  run(
    Effect.gen(function* () {
      const result = yield* Effect.either(program)
      const requests = yield* sent
      return {
        result,
        requests: requests.map((seen) => ({
          ...Replay.asVector(seen),
          headers: comparable(file, Replay.asVector(seen).headers),
          query: seen.query,
        })),
        recorded: Replay.requestsOf(file).map((request, i) => ({
          ...request,
          query: exchanges(file)[i]?.request.query,
        })),
      }
    }),
    Replay.answersOf(file),
  )

/** Version 0.25.0 did not send its method names; credentials of others are recorded as placeholders. */
const comparable = (file: string, headers: Readonly<Record<string, string>>) =>
  Object.fromEntries(
    Object.entries(headers)
      .filter(([name]) => !(file.startsWith("vectors-0.25.0/") && name.startsWith("x-sdk-")))
      .map(([name, value]) => [name, value === otherKey ? "<WEIGHTS_ACCESS_TOKEN>" : value]),
  )
