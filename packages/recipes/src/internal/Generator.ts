/**
 * A seeded generator of random numbers whose output never changes: orders of data, splits and confidence intervals of a
 * run depend on it. It is xoshiro128** (32-bit arithmetic only); its four words of state are the two halves of the seed,
 * the purpose and the part (e.g. the epoch), each mixed on its own, and the first 16 numbers are discarded.
 */

/** The purposes of random numbers: the same seed gives unrelated numbers for each purpose. */
export const purposes = { shuffle: 1, split: 2, bootstrap: 3 } as const

const rotate = (word: number, by: number) => (word << by) | (word >>> (32 - by))

/** The last steps of MurmurHash3: each bit of the input affects every bit of the output. */
const mixed = (word: number): number => {
  let h = word | 0
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b)
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35)
  return h ^ (h >>> 16)
}

/** A source of random numbers. */
export class Generator {
  private a: number
  private b: number
  private c: number
  private d: number

  /** The seed is a safe integer. */
  constructor(seed: number, purpose: number, part = 0) {
    const word = (value: number, index: number) => mixed((value | 0) + Math.imul(index + 1, 0x9e3779b9))
    this.a = word(seed, 0)
    this.b = word(Math.floor(seed / 2 ** 32), 1)
    this.c = word(purpose, 2)
    this.d = word(part, 3)
    for (let discarded = 0; discarded < 16; discarded++) this.next()
  }

  /** Returns an integer from 0 to 2³² − 1. */
  next(): number {
    const result = Math.imul(rotate(Math.imul(this.b, 5), 7), 9) >>> 0
    const t = this.b << 9
    this.c ^= this.a
    this.d ^= this.b
    this.b ^= this.c
    this.a ^= this.d
    this.c ^= t
    this.d = rotate(this.d, 11)
    return result
  }

  /** Returns an integer from 0 to `limit - 1`, each equally likely. */
  below(limit: number): number {
    // Numbers beyond the last full multiple of the limit would favour small results.
    const end = 2 ** 32 - (2 ** 32 % limit)
    let number = this.next()
    while (number >= end) number = this.next()
    return number % limit
  }
}

/** Returns the numbers from 0 to `size - 1` in random order (Fisher–Yates, from the end). */
export const permutation = (size: number, generator: Generator): Uint32Array => {
  const order = new Uint32Array(size)
  for (let index = 0; index < size; index++) order[index] = index
  for (let last = size - 1; last > 0; last--) {
    const other = generator.below(last + 1)
    const value = order[last] ?? 0
    order[last] = order[other] ?? 0
    order[other] = value
  }
  return order
}
