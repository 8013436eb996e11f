/**
 * Holds the server's flags, which define the accepted credentials and limits. They are fetched once, before any other
 * request. A server without this endpoint gets the defaults.
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
 * The server's flags.
 *
 * @since 0.1.0
 * @category models
 */
export interface Service {
  /**
   * Returns the flags and fetches them on first use. A failure is reported to the waiting callers, and the next caller
   * tries again.
   */
  readonly flags: Effect.Effect<ClientConfig, TinkerError>
  /** Returns the flags if they are already known. */
  readonly known: Effect.Effect<Option.Option<ClientConfig>>
}

/**
 * The service tag of the server's flags.
 *
 * @since 0.1.0
 * @category tags
 */
export class ServerConfig extends Context.Tag("effect-tinker/protocol/ServerConfig")<ServerConfig, Service>() {}

/**
 * Creates the service. `known` is passed in because the requests made by `fetch` read it.
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
        // The reference fails on a 404, but open servers with an older protocol return it.
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
