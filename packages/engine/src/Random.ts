/**
 * Seeded random numbers, identical on every platform.
 *
 * @since 0.1.0
 */

/**
 * Returns the next number, from 0 (inclusive) to 1 (exclusive), with 24 bits of precision.
 *
 * @since 0.1.0
 * @category models
 */
export type Random = () => number

const mix = (value: number): number => {
  let x = (value + 0x9e3779b9) | 0
  x = Math.imul(x ^ (x >>> 16), 0x21f0aaad)
  x = Math.imul(x ^ (x >>> 15), 0x735a2d97)
  return (x ^ (x >>> 15)) >>> 0
}

/**
 * Creates a generator from any integer `seed`; each `stream` of a seed is an independent sequence.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (seed: number, stream = 0): Random => {
  // xoshiro128**, initialized from the parts of the seed.
  const parts = [seed >>> 0, Math.floor(seed / 2 ** 32) >>> 0, stream >>> 0, 0x7ee7]
  let chain = 0
  const state = new Uint32Array(4)
  for (let round = 0; round < 2; round++) {
    for (const [i, part] of parts.entries()) {
      chain = mix(chain ^ part)
      state[i] = (state[i] ?? 0) ^ chain
    }
  }
  let [a = 1, b = 2, c = 3, d = 4] = state
  return () => {
    const scaled = Math.imul(b, 5)
    const result = Math.imul((scaled << 7) | (scaled >>> 25), 9)
    const shifted = b << 9
    c ^= a
    d ^= b
    b ^= c
    a ^= d
    c ^= shifted
    d = (d << 11) | (d >>> 21)
    return (result >>> 8) / 2 ** 24
  }
}

/**
 * Returns a random seed, for callers that give none.
 *
 * @since 0.1.0
 * @category constructors
 */
export const anySeed = (): number => globalThis.crypto.getRandomValues(new Uint32Array(1))[0] ?? 0
