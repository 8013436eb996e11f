/**
 * Memory for the bytes of big requests. What was given back is used again, so that a training loop does not fill the
 * process with batches that were sent and not yet collected; what nobody takes goes with the next collection.
 */

interface Native {
  readonly Buffer?: { readonly allocUnsafeSlow: (size: number) => Uint8Array<ArrayBuffer> }
}

const { Buffer }: Native = globalThis as Native

/** Where the engine offers memory that was not zeroed we take that. */
const fresh = (size: number): Uint8Array<ArrayBuffer> =>
  Buffer === undefined ? new Uint8Array(size) : new Uint8Array(Buffer.allocUnsafeSlow(size).buffer)

/** Smaller ones are collected before they are a burden. */
const smallest = 1024 * 1024

/** As many as a batch has pieces under way at once, on most days. */
const most = 8

/** Those that are in use. */
const lent = new WeakSet<ArrayBufferLike>()
let spare: ReadonlyArray<WeakRef<ArrayBuffer>> = []

const lend = (bytes: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> => {
  lent.add(bytes.buffer)
  return bytes
}

/** At least as much as asked for, with anything in it. */
export const take = (size: number): Uint8Array<ArrayBuffer> => {
  if (size < smallest) return fresh(size)
  let best: ArrayBuffer | undefined
  for (const one of spare) {
    const buffer = one.deref()
    // A small request is not to keep a big one from the memory that it needs.
    if (buffer === undefined || buffer.byteLength < size || buffer.byteLength > 2 * size) continue
    if (best === undefined || buffer.byteLength < best.byteLength) best = buffer
  }
  // In whole steps, so that the next batch, which is a little longer, finds it big enough.
  if (best === undefined) return lend(fresh(Math.ceil(size / smallest) * smallest))
  const taken = best
  spare = spare.filter((one) => one.deref() !== taken)
  return lend(new Uint8Array(taken))
}

/** For who is the last to know these bytes. Those that were not taken here are left alone. */
export const giveBack = ({ buffer }: Uint8Array): void => {
  if (!lent.delete(buffer)) return
  const others = spare.filter((one) => one.deref() !== undefined)
  // Only memory of ours is lent, which is no shared one.
  spare = [...others.slice(1 - most), new WeakRef(buffer as ArrayBuffer)]
}
