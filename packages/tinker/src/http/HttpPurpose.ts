/**
 * Tells the `HttpClient` which connections a request should use. It is part of the context, so that it works with any
 * client: one with pools (`@effect-tinker/node`) uses it, others ignore it.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import type { Purpose } from "../protocol/Endpoint.ts"

/**
 * The purpose of the current request.
 *
 * @default "rest"
 * @since 0.1.0
 * @category references
 */
export class HttpPurpose extends Context.Reference<HttpPurpose>()("effect-tinker/http/HttpPurpose", {
  defaultValue: (): Purpose => "rest",
}) {}
