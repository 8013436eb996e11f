import * as Either from "effect/Either"
import * as Encoding from "effect/Encoding"
import * as ParseResult from "effect/ParseResult"
import * as Schema from "effect/Schema"
import { isDetached } from "./TokenChecks.ts"

interface Native {
  readonly Buffer?: {
    readonly from: (
      memory: ArrayBufferLike,
      offset: number,
      length: number,
    ) => { readonly toString: (encoding: "base64") => string }
  }
}

const { Buffer }: Native = globalThis as Native

/**
 * Encodes bytes as base64. The engine's encoder takes milliseconds for a large image, a JavaScript loop most of a
 * second.
 */
export const toBase64 = (bytes: Uint8Array & { readonly toBase64?: () => string }): string =>
  Buffer !== undefined
    ? Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("base64")
    : (bytes.toBase64?.() ?? Encoding.encodeBase64(bytes))

/** Bytes that are base64 in JSON. */
export const Bytes: Schema.Schema<Uint8Array, string> = Schema.transformOrFail(
  Schema.String,
  Schema.Uint8ArrayFromSelf.annotations({ identifier: "a Uint8Array" }).pipe(
    Schema.filter((bytes) => !isDetached(bytes) || "Expected bytes whose memory was not transferred"),
  ),
  {
    strict: true,
    decode: (text, _, ast) =>
      Either.mapLeft(Encoding.decodeBase64(text), ({ message }) => new ParseResult.Type(ast, text, message)),
    encode: (bytes) => Either.right(toBase64(bytes)),
  },
)
