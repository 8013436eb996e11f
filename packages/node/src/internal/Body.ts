/** Decodes response bodies. */
import { CorruptBody, InflatedTooLarge } from "effect-tinker/http/HttpFailure"
import * as Zlib from "node:zlib"

export type Encoding = "identity" | "gzip" | "deflate"

/** Returns the encoding of a body, or undefined if it is not supported. */
export const encodingOf = (header: string | Array<string> | undefined): Encoding | undefined => {
  if (header === undefined) return "identity"
  switch (String(header).trim().toLowerCase()) {
    case "":
    case "identity":
      return "identity"
    case "gzip":
    case "x-gzip":
      return "gzip"
    case "deflate":
      return "deflate"
    default:
      return undefined
  }
}

const empty = Buffer.alloc(0)

export const join = (chunks: ReadonlyArray<Buffer>): Buffer => {
  const [first] = chunks
  if (first === undefined) return empty
  return chunks.length === 1 ? first : Buffer.concat(chunks)
}

// "deflate" means zlib in the standard but often raw deflate in practice. A zlib header has 8 in its low four bits,
// which no encoder writes at the start of raw deflate.
export const isZlib = (first: Buffer): boolean => ((first[0] ?? 0) & 0x0f) === 0x08

export const failure = (cause: Error, encoding: string, limit: number): InflatedTooLarge | CorruptBody =>
  "code" in cause && cause.code === "ERR_BUFFER_TOO_LARGE"
    ? new InflatedTooLarge({ limit })
    : new CorruptBody({ encoding, cause })

export const inflate = (
  packed: Buffer,
  encoding: "gzip" | "deflate",
  limit: number,
  done: (result: Buffer | InflatedTooLarge | CorruptBody) => void,
): void => {
  const callback = (cause: Error | null, body: Buffer) => done(cause === null ? body : failure(cause, encoding, limit))
  const options = { maxOutputLength: limit }
  if (encoding === "gzip") Zlib.gunzip(packed, options, callback)
  else if (isZlib(packed)) Zlib.inflate(packed, options, callback)
  else Zlib.inflateRaw(packed, options, callback)
}
