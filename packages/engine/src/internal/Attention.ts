/** Causal attention with grouped queries over sequences that lie one after another, no padding between them. */
import type { ModelConfig } from "../ModelConfig.ts"
import type { Memory } from "./Memory.ts"

/** So many rows of scores are held at once. */
const block = 64

export interface Sequence {
  readonly start: number
  readonly length: number
}

/** `out` gets what `q`, `k` and `v`, [rows, heads x headDim], attend to. */
export const forward = (
  memory: Memory,
  { headDim, heads, kvHeads }: ModelConfig,
  sequences: ReadonlyArray<Sequence>,
  q: number,
  k: number,
  v: number,
  out: number,
): void => {
  const { kernel } = memory
  const queries = heads * headDim
  const keys = kvHeads * headDim
  const group = heads / kvHeads
  const factor = 1 / Math.sqrt(headDim)
  const longest = sequences.reduce((most, { length }) => Math.max(most, length), 0)
  memory.scope((alloc) => {
    const turned = alloc(headDim * longest)
    const scores = alloc(block * longest)
    const panel = alloc(8 * Math.max(headDim, longest))
    for (const { length, start } of sequences) {
      for (let kv = 0; kv < kvHeads; kv++) {
        const key = k + start * keys + kv * headDim
        const value = v + start * keys + kv * headDim
        kernel.transpose(length, headDim, key, keys, turned, length)
        for (let head = kv * group; head < (kv + 1) * group; head++) {
          for (let row = 0; row < length; row += block) {
            const rows = Math.min(block, length - row)
            const width = row + rows
            const at = (start + row) * queries + head * headDim
            kernel.gemm(rows, width, headDim, q + at, queries, 1, turned, length, scores, length, 0, panel)
            kernel.causalSoftmax(rows, width, scores, length, row + 1, factor)
            kernel.gemm(rows, headDim, width, scores, length, 1, value, keys, out + at, queries, 0, panel)
          }
        }
      }
    }
  })
}

/** From `dOut`: dq, dk and dv. The scores are computed again: holding them would cost the square of the length. */
export const backward = (
  memory: Memory,
  { headDim, heads, kvHeads }: ModelConfig,
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
  const queries = heads * headDim
  const keys = kvHeads * headDim
  const group = heads / kvHeads
  const factor = 1 / Math.sqrt(headDim)
  const longest = sequences.reduce((most, { length }) => Math.max(most, length), 0)
  memory.scope((alloc) => {
    const turnedK = alloc(headDim * longest)
    const turnedV = alloc(headDim * longest)
    const scores = alloc(block * longest)
    const dScores = alloc(block * longest)
    const panel = alloc(8 * Math.max(headDim, longest, block))
    for (const { length, start } of sequences) {
      memory.floats.fill(0, dk + start * keys, dk + (start + length) * keys)
      memory.floats.fill(0, dv + start * keys, dv + (start + length) * keys)
      for (let kv = 0; kv < kvHeads; kv++) {
        const at = start * keys + kv * headDim
        kernel.transpose(length, headDim, k + at, keys, turnedK, length)
        kernel.transpose(length, headDim, v + at, keys, turnedV, length)
        for (let head = kv * group; head < (kv + 1) * group; head++) {
          for (let row = 0; row < length; row += block) {
            const rows = Math.min(block, length - row)
            const width = row + rows
            const mine = (start + row) * queries + head * headDim
            kernel.gemm(rows, width, headDim, q + mine, queries, 1, turnedK, length, scores, length, 0, panel)
            kernel.causalSoftmax(rows, width, scores, length, row + 1, factor)
            kernel.gemm(rows, width, headDim, dOut + mine, queries, 1, turnedV, length, dScores, length, 0, panel)
            kernel.gemm(width, headDim, rows, scores, 1, length, dOut + mine, queries, dv + at, keys, 1, panel)
            kernel.softmaxBackward(rows, width, scores, dScores, length, factor)
            kernel.gemm(rows, headDim, width, dScores, length, 1, k + at, keys, dq + mine, queries, 0, panel)
            kernel.gemm(width, headDim, rows, dScores, 1, length, q + mine, queries, dk + at, keys, 1, panel)
          }
        }
      }
    }
  })
}
