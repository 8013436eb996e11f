/**
 * Encodes a sampling session as a string, so that another process can sample from the same weights. The string contains
 * no credential; the reader uses its own. The reference SDK reads and writes the same format.
 *
 * @since 0.1.0
 */
import * as Either from "effect/Either"
import * as Encoding from "effect/Encoding"
import * as Option from "effect/Option"
import * as ParseResult from "effect/ParseResult"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { ClientConfig, DynamicConfig } from "./protocol/schemas/Session.ts"
import { describe, fromIssue, invalid, type Result } from "./internal/codec/Invalid.ts"
import { lazy } from "./internal/util/Lazy.ts"
import { redactor } from "./internal/util/Redact.ts"
import * as Wire from "./internal/codec/Wire.ts"
import type * as TinkerConfig from "./TinkerConfig.ts"

/** Written as null and ignored when read, because a key from another program must not be used. */
const noKey = () =>
  Schema.optionalToOptional(Schema.Unknown, Schema.Undefined, {
    decode: () => Option.none(),
    encode: () => Option.some(null),
  })

/**
 * The content of a handle. `holder` describes how its creator reached the server. A reader uses the flags, and
 * `baseUrl` only to verify that the server is the same; requests use the reader's own configuration.
 *
 * @since 0.1.0
 * @category models
 */
export const SamplerHandle = lazy(() =>
  Wire.struct({
    sessionId: Schema.String,
    samplingSessionId: Schema.String,
    holder: Wire.struct({
      baseUrl: Schema.String,
      defaultHeadersOverrides: Wire.orElse(Schema.Record({ key: Schema.String, value: Schema.String }), {}),
      clientConfig: Wire.orElse(ClientConfig, Schema.decodeSync(ClientConfig)({})),
      clientDynamicConfig: Wire.orElse(DynamicConfig, Schema.decodeSync(DynamicConfig)({})),
      apiKey: noKey(),
    }),
    recordStabilityInfo: Wire.orElse(Schema.Boolean, false),
  }),
)

/**
 * The type of {@link SamplerHandle}.
 *
 * @since 0.1.0
 * @category models
 */
export type SamplerHandle = typeof SamplerHandle.Type

/** Headers that contain secrets even if they are configured as plain text. */
const secretNames = new Set(["authorization", "proxy-authorization", "cookie", "x-api-key", "cf-access-client-secret"])

/**
 * Returns the configured headers without secrets.
 *
 * @since 0.1.0
 * @category getters
 */
export const publicHeaders = (headers: TinkerConfig.Service["headers"]): Readonly<Record<string, string>> => {
  const clean = redactor([])
  return Object.fromEntries(
    Object.entries(headers).flatMap(([name, value]) =>
      Redacted.isRedacted(value) || secretNames.has(name.toLowerCase()) || clean(value) !== value
        ? []
        : [[name, value] as const],
    ),
  )
}

/**
 * Encodes a handle as a URL-safe string.
 *
 * @since 0.1.0
 * @category conversions
 */
export const encode = (handle: SamplerHandle): string => {
  const text = Encoding.encodeBase64Url(JSON.stringify(Schema.encodeSync(SamplerHandle)(handle)))
  // The reference requires base64 padding.
  return text.padEnd(Math.ceil(text.length / 4) * 4, "=")
}

/**
 * Decodes a handle.
 *
 * @since 0.1.0
 * @category conversions
 */
export const decode = (text: string): Result<SamplerHandle> => {
  if (typeof text !== "string") return invalid("handle", `expected a string, got ${describe(text)}`)
  const json = Encoding.decodeBase64UrlString(text)
  if (Either.isLeft(json)) return invalid("handle", "expected URL-safe base64")
  let value: unknown
  try {
    value = JSON.parse(json.right)
  } catch {
    return invalid("handle", "expected JSON")
  }
  return Either.mapLeft(ParseResult.decodeUnknownEither(SamplerHandle)(value), (issue) =>
    fromIssue("handle", value, issue),
  )
}
