/** From the bytes of an answer as they came to its body. */
import { CorruptBody, InflatedTooLarge } from "effect-tinker/http/HttpFailure"
import * as Zlib from "node:zlib"

export type Encoding = "identity" | "gzip" | "deflate"

/** Undefined if it is one that nobody asked for. */
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

// "deflate" is zlib by the standard and bare deflate by habit: a zlib header has 8 in its low four bits, which no
// encoder writes at the start of a bare one.
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
  const told = (cause: Error | null, body: Buffer) => done(cause === null ? body : failure(cause, encoding, limit))
  const options = { maxOutputLength: limit }
  if (encoding === "gzip") Zlib.gunzip(packed, options, told)
  else if (isZlib(packed)) Zlib.inflate(packed, options, told)
  else Zlib.inflateRaw(packed, options, told)
}
