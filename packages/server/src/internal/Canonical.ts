/** The same request gives the same hash, however it was written. */
import { createHash, type Hash } from "node:crypto"
import type { PassRequest } from "effect-tinker/protocol/PassRequest"

/** Keys in order, so that equal values have equal texts. */
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

/** The same for both wires, and for every order of a protobuf map. */
export const ofPass = ({ config, data, forwardOnly, loss, modelId, seqId }: PassRequest): string => {
  const hash = createHash("sha256")
  update(hash, JSON.stringify([modelId, seqId, forwardOnly, loss, ordered(config)]))
  for (const { input, inputs } of data) {
    for (const chunk of input.chunks) {
      update(hash, chunk.type)
      if (chunk.type === "encoded_text") update(hash, chunk.tokens)
      else if (chunk.type === "image") update(hash, chunk.data)
      else if (chunk.type === "dmel") update(hash, chunk.dmel)
      else update(hash, chunk.location)
    }
    for (const [name, tensor] of inputs) {
      update(hash, `${name} ${tensor.dtype} ${tensor.shape?.join() ?? ""}`)
      // Integers are held narrow where they fit, whichever wire they came by.
      update(hash, tensor.data)
      if (tensor.sparse !== undefined) {
        update(hash, tensor.sparse.crowIndices)
        update(hash, tensor.sparse.colIndices)
      }
    }
  }
  return hash.digest("base64url")
}
