/**
 * The inner loops over one float32 memory, compiled or in JavaScript. Both give identical results
 * (test/Kernel.test.ts). Arguments are indices of floats in that memory.
 */
import { kernelBytes } from "./KernelBytes.ts"
import * as PlainKernel from "./PlainKernel.ts"

/** The functions are documented in kernel/kernel.ts. */
export interface Kernel {
  readonly gemm: (
    m: number,
    n: number,
    k: number,
    a: number,
    rowA: number,
    columnA: number,
    b: number,
    rowB: number,
    c: number,
    rowC: number,
    add: number,
    panel: number,
  ) => void
  readonly transpose: (rows: number, columns: number, from: number, rowFrom: number, to: number, rowTo: number) => void
  readonly dot: (n: number, x: number, y: number) => number
  readonly add: (n: number, x: number, y: number) => void
  readonly scale: (n: number, x: number, factor: number) => void
  readonly rmsNorm: (
    rows: number,
    n: number,
    x: number,
    y: number,
    stride: number,
    weight: number,
    eps: number,
    inverse: number,
  ) => void
  readonly rmsNormBackward: (
    rows: number,
    n: number,
    x: number,
    dy: number,
    dx: number,
    stride: number,
    weight: number,
    inverse: number,
    accumulate: number,
  ) => void
  readonly rope: (
    rows: number,
    heads: number,
    size: number,
    x: number,
    cosine: number,
    sine: number,
    positions: number,
    sign: number,
  ) => void
  readonly causalSoftmax: (
    rows: number,
    width: number,
    x: number,
    stride: number,
    first: number,
    factor: number,
  ) => void
  readonly softmaxBackward: (rows: number, width: number, p: number, dp: number, stride: number, factor: number) => void
  readonly swiglu: (n: number, gate: number, up: number, y: number) => void
  readonly swigluBackward: (n: number, gate: number, up: number, dy: number) => void
  readonly expRows: (rows: number, n: number, x: number, y: number, stats: number) => void
  /** `n` must be a multiple of 4. */
  readonly adamw: (
    n: number,
    p: number,
    g: number,
    m: number,
    v: number,
    clip: number,
    keep: number,
    beta1: number,
    rest1: number,
    beta2: number,
    rest2: number,
    rate: number,
    correction: number,
    eps: number,
  ) => void
  readonly sumOfSquares: (n: number, x: number) => number
}

/** `auto` uses SIMD if the runtime supports it. */
export type Kind = "auto" | "simd" | "plain"

/** The memory of a kernel. Growing replaces the buffer, so views must not be kept across allocations. */
export interface Linear {
  readonly kind: "simd" | "plain"
  readonly kernel: Kernel
  readonly buffer: () => ArrayBufferLike
  /** Grows to at least this many bytes; returns false if the runtime has no more. */
  readonly grow: (bytes: number) => boolean
}

const page = 65_536
/** The limit of the kernel's memory, whose indices are int32. */
const maxBytes = 4 * 1024 ** 3 - page

const simd = (): Linear => {
  const memory = new WebAssembly.Memory({ initial: 16 })
  const bytes = Uint8Array.from(atob(kernelBytes), (char) => char.charCodeAt(0))
  const instance = new WebAssembly.Instance(new WebAssembly.Module(bytes), { env: { memory } })
  return {
    kind: "simd",
    // The exports are declared in kernel/kernel.ts.
    kernel: instance.exports as unknown as Kernel,
    buffer: () => memory.buffer,
    grow: (bytes) => {
      if (bytes > maxBytes) return false
      try {
        const missing = Math.ceil((bytes - memory.buffer.byteLength) / page)
        if (missing > 0) memory.grow(missing)
        return true
      } catch {
        return false
      }
    },
  }
}

const plain = (): Linear => {
  let buffer = new ArrayBuffer(16 * page)
  return {
    kind: "plain",
    kernel: PlainKernel.make(() => buffer),
    buffer: () => buffer,
    grow: (bytes) => {
      if (bytes > maxBytes) return false
      if (bytes <= buffer.byteLength) return true
      try {
        const larger = new ArrayBuffer(Math.ceil(bytes / page) * page)
        new Uint8Array(larger).set(new Uint8Array(buffer))
        buffer = larger
        return true
      } catch {
        return false
      }
    },
  }
}

export const make = (kind: Kind): Linear | undefined => {
  if (kind === "plain") return plain()
  try {
    return simd()
  } catch {
    return kind === "auto" ? plain() : undefined
  }
}
