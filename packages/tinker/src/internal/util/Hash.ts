/** Small deterministic hashes: fingerprints of requests, and the numbers of the scripted server. Not for secrets. */

/** Mixes another number into a hash; the result is an integer from 0 to 2^32 - 1. */
export const mix = (hash: number, value: number): number => {
  let h = Math.imul((hash ^ value) | 0, 0x85ebca6b)
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35)
  return (h ^ (h >>> 16)) >>> 0
}

export const ofBytes = (bytes: Uint8Array, seed = 0): number => {
  let h = 0x811c9dc5 ^ seed
  for (let i = 0; i < bytes.length; i++) h = Math.imul(h ^ (bytes[i] as number), 0x01000193)
  return mix(h, bytes.length)
}

const encoder = new TextEncoder()

export const ofText = (text: string, seed = 0): number => ofBytes(encoder.encode(text), seed)

/** Hashes numbers independently of their array type. */
export const ofNumbers = (values: ArrayLike<number>, seed = 0): number =>
  ofBytes(new Uint8Array(Float64Array.from(values).buffer), seed)

/** Returns a fingerprint to compare bodies. */
export const fingerprint = (bytes: Uint8Array): string =>
  [0, 0x9e3779b9].map((seed) => ofBytes(bytes, seed).toString(16).padStart(8, "0")).join("")

/** Converts a hash to a number strictly between 0 and 1. */
export const fraction = (hash: number): number => (hash + 0.5) / 2 ** 32
