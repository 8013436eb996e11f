/**
 * A short way that an `HttpClient` may offer beside `execute`: a request and a callback, without a fiber, a request
 * value and a response value for each. What the SDK sends thousands of times goes this way if there is one. A client
 * that is wrapped (`mapRequest`, `transform`, …) is another client and offers none, so nothing that a user puts around
 * a client is ever passed by.
 *
 * @since 0.1.0
 */
import type * as HttpClient from "@effect/platform/HttpClient"
import type * as Cause from "effect/Cause"
import * as Data from "effect/Data"
import type * as Fiber from "effect/Fiber"
import type { Purpose } from "../protocol/Endpoint.ts"
import type { HttpFailure } from "./HttpFailure.ts"

/**
 * @since 0.1.0
 * @category symbols
 */
export const TypeId: unique symbol = Symbol.for("effect-tinker/http/HttpDirect")

/**
 * @since 0.1.0
 * @category models
 */
export interface Outgoing {
  readonly method: "GET" | "POST" | "PUT" | "DELETE"
  readonly url: string
  readonly purpose: Purpose
  /** Name and value in turn, names in lower case and each once. */
  readonly headers: ReadonlyArray<string>
  /** After `onBodySent` its memory may hold something else: who keeps it longer keeps a copy. */
  readonly body: string | Uint8Array | undefined
  /** Called at most once, by a client that can tell: it has let go of the body, and so has all that is below it. */
  readonly onBodySent?: (() => void) | undefined
}

/**
 * An answer read to its end, decoded. Redirects are not followed.
 *
 * @since 0.1.0
 * @category models
 */
export interface Incoming {
  readonly status: number
  /** By names in lower case. */
  readonly headers: Readonly<Record<string, string | undefined>>
  /** Maybe a part of a bigger buffer, which it keeps alive. */
  readonly body: Uint8Array
}

/**
 * The request is not one: nothing was sent, and nothing will be however often it is tried.
 *
 * @since 0.1.0
 * @category errors
 */
export class Unsendable extends Data.TaggedError("Unsendable")<{ readonly cause: unknown }> {
  /** @since 0.1.0 */
  override get message(): string {
    return `can't be sent: ${this.cause instanceof Error ? this.cause.message : String(this.cause)}`
  }
}

/**
 * An answer of whatever status, or why there is none; or a defect of the client itself, which nothing heals.
 *
 * @since 0.1.0
 * @category models
 */
export type Outcome =
  | { readonly _tag: "Answered"; readonly answer: Incoming }
  | { readonly _tag: "Failed"; readonly failure: HttpFailure | Unsendable }
  | { readonly _tag: "Died"; readonly cause: Cause.Cause<never> }

/**
 * Sends a request and gives the way to give it up. `done` is called at most once, maybe at once, and not after that.
 * `fiber` is the one that asks: for its clock and all else that it has around it, where that matters.
 *
 * @since 0.1.0
 * @category models
 */
export type Send = (
  request: Outgoing,
  done: (outcome: Outcome) => void,
  fiber: Fiber.RuntimeFiber<unknown, unknown>,
) => () => void

/**
 * The short way of this client, if it has one.
 *
 * @since 0.1.0
 * @category accessors
 */
export const of = (client: HttpClient.HttpClient): Send | undefined =>
  (client as HttpClient.HttpClient & { readonly [TypeId]?: Send })[TypeId]

/**
 * The same client with a short way, which must do what `execute` does.
 *
 * @since 0.1.0
 * @category constructors
 */
export const offer = (client: HttpClient.HttpClient, send: Send): HttpClient.HttpClient =>
  Object.assign(Object.create(client), { [TypeId]: send })
