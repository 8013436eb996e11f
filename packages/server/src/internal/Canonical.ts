/** Hashes requests by their meaning: equal requests have equal hashes, however they were encoded. */
import { createHash, type Hash } from "node:crypto"
import type { Datum, PassRequest } from "effect-tinker/protocol/PassRequest"

/** Sorts keys, so that equal values have equal JSON. */
const ordered = (value: unknown): unknown => {
  if (Array.isArray(value)) return value.map(ordered)
  if (typeof value !== "object" || value === null) return value
  return Object.fromEntries(
    Object.entries(value)
      .toSorted(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, member]) => [key, ordered(member)]),
  )
}

export const ofJson = (value: unknown): string =>
  createHash("sha256")
    .update(JSON.stringify(ordered(value)))
    .digest("base64url")

const update = (hash: Hash, part: string | ArrayBufferView): void => {
  const bytes =
    typeof part === "string" ? Buffer.from(part) : new Uint8Array(part.buffer, part.byteOffset, part.byteLength)
  hash.update(`${bytes.length}:`).update(bytes)
}

/** A hash of a pass that grows with its data. */
export interface PassHash {
  readonly add: (datum: Datum) => void
  readonly digest: () => string
}

/** Hashes a pass, independent of its encoding (JSON or protobuf) and of the order of protobuf maps. */
export const ofPass = ({ config, forwardOnly, loss, modelId, seqId }: Omit<PassRequest, "data">): PassHash => {
  const hash = createHash("sha256")
  update(hash, JSON.stringify([modelId, seqId, forwardOnly, loss, ordered(config)]))
  return { add: (datum) => addDatum(hash, datum), digest: () => hash.digest("base64url") }
}

const addDatum = (hash: Hash, { input, inputs }: Datum): void => {
  for (const chunk of input.chunks) {
    update(hash, chunk.type)
    if (chunk.type === "encoded_text") update(hash, chunk.tokens)
    else if (chunk.type === "image") update(hash, chunk.data)
    else if (chunk.type === "dmel") update(hash, chunk.dmel)
    else update(hash, chunk.location)
  }
  for (const [name, tensor] of inputs) {
    update(hash, `${name} ${tensor.dtype} ${tensor.shape?.join() ?? ""}`)
    // Integers are stored in the narrowest type that fits, for both encodings.
    update(hash, tensor.data)
    if (tensor.sparse !== undefined) {
      update(hash, tensor.sparse.crowIndices)
      update(hash, tensor.sparse.colIndices)
    }
  }
}
