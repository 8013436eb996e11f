/** A numbered request of a model: how it is written, and how it is sent. */
import type * as Effect from "effect/Effect"
import type * as Either from "effect/Either"
import type { Kind } from "../../ApiFuture.ts"
import type * as Endpoint from "../../protocol/Endpoint.ts"
import type { Accepted } from "../../protocol/schemas/Futures.ts"
import type { InvalidInput, TinkerError } from "../../TinkerError.ts"
import type { CallOptions, Service as Transport } from "../../Transport.ts"
import type { Encoding } from "../core/SequenceState.ts"

/** One way to write a request. A pass has two: protobuf and JSON. */
export interface Rendering {
  readonly operation: string
  readonly encoding: Encoding
  readonly render: (seq: number) => Either.Either<Endpoint.Rendered, InvalidInput>
  /** Finds what `render` would refuse, at a lower cost where possible. */
  readonly check: () => Either.Either<unknown, InvalidInput>
  readonly send: (rendered: Endpoint.Rendered, options: CallOptions) => Effect.Effect<Accepted, TinkerError>
}

export interface Request<out B = unknown> {
  /** The kind of its result. */
  readonly kind: Kind<B>
  /** In order of preference. */
  readonly renderings: readonly [Rendering, ...ReadonlyArray<Rendering>]
  /** Its size in the budget of bytes that are being submitted. */
  readonly bytes: number
}

/** Returns the rendering for an encoding, or the preferred one. */
export const renderingFor = ({ renderings }: Request, encoding: Encoding): Rendering =>
  renderings.find((rendering) => rendering.encoding === encoding) ?? renderings[0]

/** Creates a rendering from an endpoint and a function that gives the endpoint's input for a number. */
export const rendering = <I>(
  transport: Transport,
  endpoint: Endpoint.Endpoint<I, Accepted>,
  input: (seq: number) => I,
  pass?: { readonly encoding: "protobuf" | "json"; readonly check?: Rendering["check"] },
): Rendering => ({
  operation: endpoint.operation,
  encoding: pass?.encoding ?? "fixed",
  render: (seq) => transport.render(endpoint, input(seq)),
  check: pass?.check ?? (() => transport.render(endpoint, input(1))),
  send: (rendered, options) => transport.send(endpoint, rendered, options),
})
