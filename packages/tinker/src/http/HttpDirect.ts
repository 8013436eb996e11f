/**
 * The callback interface through which the SDK sends every HTTP request without a fiber. An `HttpClient` can implement
 * it in addition to `execute`. A client that does not, e.g. `fetch` or a client wrapped with `mapRequest` or
 * `transform`, is adapted by running `execute` in a fiber, so that wrappers are never bypassed.
 *
 * @since 0.1.0
 */
import type * as HttpClient from "@effect/platform/HttpClient"
import type * as Cause from "effect/Cause"
import * as Data from "effect/Data"
import type * as Effect from "effect/Effect"
import type * as Fiber from "effect/Fiber"
import type { Purpose } from "../protocol/Endpoint.ts"
import type { HttpFailure } from "./HttpFailure.ts"

/**
 * The key under which an `HttpClient` provides its implementation.
 *
 * @since 0.1.0
 * @category symbols
 */
export const TypeId: unique symbol = Symbol.for("effect-tinker/http/HttpDirect")

/**
 * A request.
 *
 * @since 0.1.0
 * @category models
 */
export interface Outgoing {
  readonly method: "GET" | "POST" | "PUT" | "DELETE"
  readonly url: string
  readonly purpose: Purpose
  /** Alternating names and values. Names are in lower case and unique. */
  readonly headers: ReadonlyArray<string>
  /** The memory may be reused after `onBodySent`. A client that needs it longer must copy it. */
  readonly body: string | Uint8Array | undefined
  /** Called once by clients that support it, when the body is no longer read. */
  readonly onBodySent?: (() => void) | undefined
}

/**
 * A response with its complete, decoded body. Redirects are not followed.
 *
 * @since 0.1.0
 * @category models
 */
export interface Incoming {
  readonly status: number
  /** Names are in lower case. */
  readonly headers: Readonly<Record<string, string | undefined>>
  /** May be a view of a larger buffer, which it keeps alive. */
  readonly body: Uint8Array
}

/**
 * The request is malformed. Nothing was sent, and a retry cannot succeed.
 *
 * @since 0.1.0
 * @category errors
 */
export class Unsendable extends Data.TaggedError("Unsendable")<{ readonly cause: unknown }> {
  /** @since 0.1.0 */
  override get message(): string {
    return `cannot be sent: ${this.cause instanceof Error ? this.cause.message : String(this.cause)}`
  }
}

/**
 * A response of any status, a failure, or a defect of the client, which is not retried.
 *
 * @since 0.1.0
 * @category models
 */
export type Outcome =
  | { readonly _tag: "Answered"; readonly answer: Incoming }
  | {
      readonly _tag: "Failed"
      readonly failure: HttpFailure | Unsendable
      /** The response whose body could not be read, if one came. */
      readonly response?: Pick<Incoming, "status" | "headers"> | undefined
    }
  | { readonly _tag: "Died"; readonly cause: Cause.Cause<never> }

/**
 * Cancels a request. A client that releases it asynchronously returns an effect that waits for that.
 *
 * @since 0.1.0
 * @category models
 */
export type Cancel = () => Effect.Effect<unknown> | void

/**
 * Sends a request. Calls `done` at most once, possibly before returning, and never after cancellation. `fiber` is the
 * caller's fiber, for its clock and context.
 *
 * @since 0.1.0
 * @category models
 */
export type Send = (
  request: Outgoing,
  done: (outcome: Outcome) => void,
  fiber: Fiber.RuntimeFiber<unknown, unknown>,
) => Cancel

/**
 * Returns the client's own implementation, if it has one.
 *
 * @since 0.1.0
 * @category accessors
 */
export const of = (client: HttpClient.HttpClient): Send | undefined =>
  (client as HttpClient.HttpClient & { readonly [TypeId]?: Send })[TypeId]

/**
 * Adds an implementation, which must be equivalent to `execute`, to a client.
 *
 * @since 0.1.0
 * @category constructors
 */
export const offer = (client: HttpClient.HttpClient, send: Send): HttpClient.HttpClient =>
  Object.assign(Object.create(client), { [TypeId]: send })
