/**
 * Which connections a request should use, told to the `HttpClient` through the context so that any client works: one
 * that knows pools (`@effect-tinker/node`) picks by it, the others ignore it.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import type { Purpose } from "../protocol/Endpoint.ts"

/**
 * `rest` unless provided.
 *
 * @since 0.1.0
 * @category references
 */
export class HttpPurpose extends Context.Reference<HttpPurpose>()("effect-tinker/http/HttpPurpose", {
  defaultValue: (): Purpose => "rest",
}) {}
