/** How a batch is cut into requests: where the reference cuts it, so that a server sees what it is used to. */
import type { PreparedBatch, PreparedDatum } from "../../Loss.ts"

/** The limits in the server's flags. */
export interface Limits {
  /** How many datums a request may hold. */
  readonly maxLength: number
  /** How many bytes they may count together. */
  readonly maxBytes: number
}

/** A part of a batch that is one request. */
export interface Chunk extends PreparedBatch {
  /** Its size in a byte budget. */
  readonly bytes: number
}

/**
 * Fills a request until the next datum would exceed a limit; reaching one exactly is allowed. A datum that exceeds
 * a limit by itself gets its own request.
 */
export const cut = (batch: PreparedBatch, { maxBytes, maxLength }: Limits): ReadonlyArray<Chunk> => {
  const chunks: Array<Chunk> = []
  let data: Array<PreparedDatum> = []
  let bytes = 0
  for (const datum of batch.data) {
    if (data.length > 0 && (data.length >= maxLength || bytes + datum.bytes > maxBytes)) {
      chunks.push({ loss: batch.loss, data, bytes })
      data = []
      bytes = 0
    }
    data.push(datum)
    bytes += datum.bytes
  }
  if (data.length > 0) chunks.push({ loss: batch.loss, data, bytes })
  return chunks
}

/** Splits a batch into parts of almost equal numbers of datums; into fewer if it has not as many. */
export const split = (batch: PreparedBatch, parts: number): ReadonlyArray<PreparedBatch> => {
  const count = Math.min(parts, batch.data.length)
  if (count <= 1) return [batch]
  const at = (part: number) => Math.round((part * batch.data.length) / count)
  return Array.from({ length: count }, (_, part) => ({ ...batch, data: batch.data.slice(at(part), at(part + 1)) }))
}
