/**
 * What the server says about itself, asked once and before anything else: which credentials it takes and which limits
 * it sets. A server without that endpoint gets the defaults.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Ref from "effect/Ref"
import type * as Scope from "effect/Scope"
import type { ClientConfig } from "./schemas/Session.ts"
import * as SingleFlight from "../internal/util/SingleFlight.ts"
import { ClientClosed, type TinkerError } from "../TinkerError.ts"

/**
 * @since 0.1.0
 * @category models
 */
export interface Service {
  /** The flags; fetched by the first who asks. A failure is told to those who waited and tried again by the next. */
  readonly flags: Effect.Effect<ClientConfig, TinkerError>
  /** What is known by now, without asking. */
  readonly known: Effect.Effect<Option.Option<ClientConfig>>
}

/**
 * @since 0.1.0
 * @category tags
 */
export class ServerConfig extends Context.Tag("effect-tinker/protocol/ServerConfig")<ServerConfig, Service>() {}

/**
 * `known` is given, because the requests that `fetch` makes read it already.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (
  fetch: Effect.Effect<ClientConfig, TinkerError>,
  defaults: ClientConfig,
  known: Ref.Ref<Option.Option<ClientConfig>>,
): Effect.Effect<Service, never, Scope.Scope> =>
  Effect.map(Effect.scope, (scope) => {
    const fetchOnce = SingleFlight.make(
      fetch.pipe(
        // The reference dies on a 404; open servers of an older protocol answer just that.
        Effect.catchTag("NotFound", () => Effect.succeed(defaults)),
        Effect.tap((flags) => Ref.set(known, Option.some(flags))),
      ),
      scope,
      () => new ClientClosed({ operation: "client/config" }),
    )
    return {
      flags: Effect.flatMap(Ref.get(known), Option.match({ onNone: () => fetchOnce.run, onSome: Effect.succeed })),
      known: Ref.get(known),
    }
  })
