/**
 * Reuses memory for the bytes of large requests, so that a training loop does not accumulate batches that were sent but
 * not yet garbage-collected. Unused buffers are freed by the next garbage collection.
 */

interface Native {
  readonly Buffer?: { readonly allocUnsafeSlow: (size: number) => Uint8Array<ArrayBuffer> }
}

const { Buffer }: Native = globalThis as Native

/** Uses uninitialized memory if the platform supports it. */
const fresh = (size: number): Uint8Array<ArrayBuffer> =>
  Buffer === undefined ? new Uint8Array(size) : new Uint8Array(Buffer.allocUnsafeSlow(size).buffer)

/** Smaller buffers are garbage-collected quickly enough. */
const smallest = 1024 * 1024

/** The typical number of concurrent chunks of a batch. */
const most = 8

/** The buffers in use. */
const lent = new WeakSet<ArrayBufferLike>()
let spare: ReadonlyArray<WeakRef<ArrayBuffer>> = []

const lend = (bytes: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> => {
  lent.add(bytes.buffer)
  return bytes
}

/** Returns a buffer of at least this size with arbitrary content. */
export const take = (size: number): Uint8Array<ArrayBuffer> => {
  if (size < smallest) return fresh(size)
  let best: ArrayBuffer | undefined
  for (const one of spare) {
    const buffer = one.deref()
    // A small request must not occupy a large buffer that another request needs.
    if (buffer === undefined || buffer.byteLength < size || buffer.byteLength > 2 * size) continue
    if (best === undefined || buffer.byteLength < best.byteLength) best = buffer
  }
  // Sizes are rounded up, so that the next, slightly longer batch fits.
  if (best === undefined) return lend(fresh(Math.ceil(size / smallest) * smallest))
  const taken = best
  spare = spare.filter((one) => one.deref() !== taken)
  return lend(new Uint8Array(taken))
}

/** Returns a buffer for reuse; must be called by its last user. Other buffers are ignored. */
export const giveBack = ({ buffer }: Uint8Array): void => {
  if (!lent.delete(buffer)) return
  const others = spare.filter((one) => one.deref() !== undefined)
  // Lent buffers are never shared memory.
  spare = [...others.slice(1 - most), new WeakRef(buffer as ArrayBuffer)]
}
