/**
 * What another process needs to sample from the same weights: a text that names a sampling session. It holds no
 * credential; whoever uses it brings its own. The reference SDK reads and writes the same text.
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

/** Told as null, and not read: a key that somebody put there is not for us. */
const noKey = lazy(() =>
  Schema.optionalToOptional(Schema.Unknown, Schema.Undefined, {
    decode: () => Option.none(),
    encode: () => Option.some(null),
  }),
)

/**
 * `holder` is how the client that made it reached the server. A reader uses its flags, and its `baseUrl` only to see
 * that it is the same server: where requests go and what they carry is the reader's own configuration.
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
      apiKey: noKey,
    }),
    recordStabilityInfo: Wire.orElse(Schema.Boolean, false),
  }),
)

/**
 * @since 0.1.0
 * @category models
 */
export type SamplerHandle = typeof SamplerHandle.Type

/** Headers that carry secrets, also where somebody configured them as plain text. */
const secretNames = new Set(["authorization", "proxy-authorization", "cookie", "x-api-key", "cf-access-client-secret"])

/**
 * The configured headers that another process may know: those that are no secret.
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
 * As one line of text that can be part of a URL.
 *
 * @since 0.1.0
 * @category conversions
 */
export const encode = (handle: SamplerHandle): string => {
  const text = Encoding.encodeBase64Url(JSON.stringify(Schema.encodeSync(SamplerHandle)(handle)))
  // The reference wants its padding back.
  return text.padEnd(Math.ceil(text.length / 4) * 4, "=")
}

/**
 * @since 0.1.0
 * @category conversions
 */
export const decode = (text: string): Result<SamplerHandle> => {
  if (typeof text !== "string") return invalid("handle", `expected a text, got ${describe(text)}`)
  const json = Encoding.decodeBase64UrlString(text)
  if (Either.isLeft(json)) return invalid("handle", "is not URL-safe base64")
  let value: unknown
  try {
    value = JSON.parse(json.right)
  } catch {
    return invalid("handle", "holds no JSON")
  }
  return Either.mapLeft(ParseResult.decodeUnknownEither(SamplerHandle)(value), (issue) =>
    fromIssue("handle", value, issue),
  )
}
