/**
 * Allocates blocks of floats in the kernel's memory. Freed blocks are reused, so the memory grows to the peak of what
 * was needed and stays there.
 */
import { EngineError } from "../EngineError.ts"
import type * as Kernel from "./Kernel.ts"

/** Blocks are aligned to 64 bytes, a cache line. */
const unit = 16

export class Memory {
  readonly kernel: Kernel.Kernel
  readonly kind: "simd" | "plain"
  readonly #linear: Kernel.Linear
  /** Free blocks sorted by position, neighbors merged. The first unit is never allocated: index 0 means none. */
  #free: Array<{ start: number; size: number }> = []
  readonly #sizes = new Map<number, number>()
  #end = unit
  #floats: Float32Array
  #ints: Int32Array

  constructor(linear: Kernel.Linear) {
    this.#linear = linear
    this.kernel = linear.kernel
    this.kind = linear.kind
    this.#floats = new Float32Array(linear.buffer())
    this.#ints = new Int32Array(linear.buffer())
  }

  /** A view of the whole memory. Do not keep it: allocating may replace the buffer. */
  get floats(): Float32Array {
    if (this.#floats.buffer !== this.#linear.buffer()) {
      this.#floats = new Float32Array(this.#linear.buffer())
      this.#ints = new Int32Array(this.#linear.buffer())
    }
    return this.#floats
  }

  get ints(): Int32Array {
    return this.floats.buffer === this.#ints.buffer ? this.#ints : new Int32Array(this.#linear.buffer())
  }

  /** The size of the whole memory in bytes. */
  get bytes(): number {
    return this.#linear.buffer().byteLength
  }

  /** Bytes currently in use. */
  get used(): number {
    let sum = 0
    for (const size of this.#sizes.values()) sum += size
    return sum * 4
  }

  /** Allocates a block with undefined contents (see `zeros`). Throws an `EngineError` if there is no more memory. */
  alloc(length: number): number {
    const size = Math.max(unit, Math.ceil(length / unit) * unit)
    const index = this.#free.findIndex((block) => block.size >= size)
    const block = this.#free[index]
    if (block !== undefined) {
      const { start } = block
      if (block.size === size) this.#free.splice(index, 1)
      else {
        block.start += size
        block.size -= size
      }
      this.#sizes.set(start, size)
      return start
    }
    const start = this.#end
    if (!this.#linear.grow((start + size) * 4)) {
      throw new EngineError({
        reason: "OutOfMemory",
        problem: `failed to allocate ${Math.ceil((size * 4) / 1e6)} MB in addition to ${Math.ceil(this.bytes / 1e6)} MB`,
      })
    }
    this.#end += size
    this.#sizes.set(start, size)
    return start
  }

  zeros(length: number): number {
    const start = this.alloc(length)
    this.floats.fill(0, start, start + Math.ceil(length / unit) * unit)
    return start
  }

  copyOf(values: ArrayLike<number>): number {
    const start = this.alloc(values.length)
    this.floats.set(values, start)
    return start
  }

  free(start: number): void {
    const size = this.#sizes.get(start)
    if (size === undefined) return
    this.#sizes.delete(start)
    let index = this.#free.findIndex((block) => block.start > start)
    if (index < 0) index = this.#free.length
    this.#free.splice(index, 0, { start, size })
    const next = this.#free[index + 1]
    const here = this.#free[index]
    if (here !== undefined && next !== undefined && here.start + here.size === next.start) {
      here.size += next.size
      this.#free.splice(index + 1, 1)
    }
    const before = this.#free[index - 1]
    if (here !== undefined && before !== undefined && before.start + before.size === here.start) {
      before.size += here.size
      this.#free.splice(index, 1)
    }
    const last = this.#free.at(-1)
    if (last !== undefined && last.start + last.size === this.#end) {
      this.#end = last.start
      this.#free.pop()
    }
  }

  /** Runs `body` and then frees everything that it allocated through its argument, even if it throws. */
  scope<A>(body: (alloc: (length: number) => number) => A): A {
    const taken: Array<number> = []
    try {
      return body((length) => {
        const start = this.alloc(length)
        taken.push(start)
        return start
      })
    } finally {
      for (let i = taken.length - 1; i >= 0; i--) this.free(taken[i] ?? 0)
    }
  }
}
