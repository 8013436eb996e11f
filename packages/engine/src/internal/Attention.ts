/** Causal attention with grouped queries over packed sequences without padding. */
import type { ModelConfig } from "../ModelConfig.ts"
import type { Memory } from "./Memory.ts"

/** The number of rows of scores held at once. */
const block = 64

export interface Sequence {
  readonly start: number
  readonly length: number
}

/** Some query rows of one head and the first `width` keys and values, which they attend to. */
interface Block {
  readonly length: number
  readonly row: number
  readonly rows: number
  readonly width: number
  /** Offsets in the matrices of queries, and of keys and values. */
  readonly query: number
  readonly key: number
}

/** Visits block after block. Calls `begin` once for all heads that share keys and values. */
const walk = (
  { headDim, heads, kvHeads }: ModelConfig,
  sequences: ReadonlyArray<Sequence>,
  begin: (key: number, length: number) => void,
  visit: (some: Block) => void,
): void => {
  const group = heads / kvHeads
  for (const { length, start } of sequences) {
    for (let kv = 0; kv < kvHeads; kv++) {
      const key = (start * kvHeads + kv) * headDim
      begin(key, length)
      for (let head = kv * group; head < (kv + 1) * group; head++) {
        for (let row = 0; row < length; row += block) {
          const rows = Math.min(block, length - row)
          const query = ((start + row) * heads + head) * headDim
          visit({ length, row, rows, width: row + rows, query, key })
        }
      }
    }
  }
}

const longestOf = (sequences: ReadonlyArray<Sequence>) =>
  sequences.reduce((most, { length }) => Math.max(most, length), 0)

/** Computes attention of `q`, `k` and `v`, [rows, heads x headDim], into `out`. */
export const forward = (
  memory: Memory,
  config: ModelConfig,
  sequences: ReadonlyArray<Sequence>,
  q: number,
  k: number,
  v: number,
  out: number,
): void => {
  const { kernel } = memory
  const { headDim } = config
  const queries = config.heads * headDim
  const keys = config.kvHeads * headDim
  const factor = 1 / Math.sqrt(headDim)
  const longest = longestOf(sequences)
  memory.scope((alloc) => {
    const turned = alloc(headDim * longest)
    const scores = alloc(block * longest)
    const panel = alloc(8 * Math.max(headDim, longest))
    walk(
      config,
      sequences,
      (key, length) => kernel.transpose(length, headDim, k + key, keys, turned, length),
      ({ key, length, query, row, rows, width }) => {
        kernel.gemm(rows, width, headDim, q + query, queries, 1, turned, length, scores, length, 0, panel)
        kernel.causalSoftmax(rows, width, scores, length, row + 1, factor)
        kernel.gemm(rows, headDim, width, scores, length, 1, v + key, keys, out + query, queries, 0, panel)
      },
    )
  })
}

/**
 * Computes attention of `rows` queries that follow `start` positions, over `start + rows` cached ones of a layer: keys
 * [kvHead][headDim][room] and values [room][kvHeads x headDim].
 */
export const overCache = (
  memory: Memory,
  config: ModelConfig,
  { keys, room, values }: { readonly keys: number; readonly values: number; readonly room: number },
  start: number,
  rows: number,
  q: number,
  out: number,
): void => {
  const { kernel } = memory
  const { headDim, heads, kvHeads } = config
  const queries = heads * headDim
  const keysWide = kvHeads * headDim
  const factor = 1 / Math.sqrt(headDim)
  memory.scope((alloc) => {
    const scores = alloc(block * room)
    const panel = alloc(8 * Math.max(headDim, room))
    for (let head = 0; head < heads; head++) {
      const kv = Math.floor((head * kvHeads) / heads)
      const key = keys + kv * headDim * room
      for (let row = 0; row < rows; row += block) {
        const some = Math.min(block, rows - row)
        const width = start + row + some
        const query = (row * heads + head) * headDim
        kernel.gemm(some, width, headDim, q + query, queries, 1, key, room, scores, room, 0, panel)
        kernel.causalSoftmax(some, width, scores, room, start + row + 1, factor)
        kernel.gemm(
          some,
          headDim,
          width,
          scores,
          room,
          1,
          values + kv * headDim,
          keysWide,
          out + query,
          queries,
          0,
          panel,
        )
      }
    }
  })
}

/**
 * Computes dq, dk and dv from `dOut`. Recomputes the scores, because storing them takes memory quadratic in the length.
 */
export const backward = (
  memory: Memory,
  config: ModelConfig,
  sequences: ReadonlyArray<Sequence>,
  q: number,
  k: number,
  v: number,
  dOut: number,
  dq: number,
  dk: number,
  dv: number,
): void => {
  const { kernel } = memory
  const { headDim } = config
  const queries = config.heads * headDim
  const keys = config.kvHeads * headDim
  const factor = 1 / Math.sqrt(headDim)
  const longest = longestOf(sequences)
  for (const { length, start } of sequences) {
    memory.floats.fill(0, dk + start * keys, dk + (start + length) * keys)
    memory.floats.fill(0, dv + start * keys, dv + (start + length) * keys)
  }
  memory.scope((alloc) => {
    const turnedK = alloc(headDim * longest)
    const turnedV = alloc(headDim * longest)
    const scores = alloc(block * longest)
    const dScores = alloc(block * longest)
    const panel = alloc(8 * Math.max(headDim, longest, block))
    walk(
      config,
      sequences,
      (key, length) => {
        kernel.transpose(length, headDim, k + key, keys, turnedK, length)
        kernel.transpose(length, headDim, v + key, keys, turnedV, length)
      },
      ({ key, length, query, row, rows, width }) => {
        kernel.gemm(rows, width, headDim, q + query, queries, 1, turnedK, length, scores, length, 0, panel)
        kernel.causalSoftmax(rows, width, scores, length, row + 1, factor)
        kernel.gemm(rows, width, headDim, dOut + query, queries, 1, turnedV, length, dScores, length, 0, panel)
        kernel.gemm(width, headDim, rows, scores, 1, length, dOut + query, queries, dv + key, keys, 1, panel)
        kernel.softmaxBackward(rows, width, scores, dScores, length, factor)
        kernel.gemm(rows, headDim, width, dScores, length, 1, k + key, keys, dq + query, queries, 0, panel)
        kernel.gemm(width, headDim, rows, dScores, 1, length, q + query, queries, dk + key, keys, 1, panel)
      },
    )
  })
}
