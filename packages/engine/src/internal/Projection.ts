/** Multiplication by a frozen matrix and an optional low-rank pair, forward and backward. */
import type { Adapter, Pair } from "./Adapter.ts"
import type { Memory } from "./Memory.ts"
import type { Linear } from "./Weights.ts"

/** Computes y = x W + scale (x A) B. */
export const forward = (
  memory: Memory,
  linear: Linear,
  adapter: Adapter | undefined,
  pair: Pair | undefined,
  rows: number,
  x: number,
  y: number,
): void => {
  const { inputs, outputs, weight } = linear
  const { kernel } = memory
  memory.scope((alloc) => {
    const panel = rows >= 32 ? alloc(8 * Math.max(inputs, adapter?.shape.rank ?? 0)) : 0
    kernel.gemm(rows, outputs, inputs, x, inputs, 1, weight, outputs, y, outputs, 0, panel)
    if (adapter === undefined || pair === undefined) return
    const { rank } = adapter.shape
    const { parameters: at } = adapter
    const thin = alloc(rows * rank)
    kernel.gemm(rows, rank, inputs, x, inputs, 1, at + pair.a, rank, thin, rank, 0, panel)
    kernel.scale(rows * rank, thin, adapter.scale)
    kernel.gemm(rows, outputs, rank, thin, rank, 1, at + pair.b, outputs, y, outputs, 1, panel)
  })
}

/** Transposes the matrix, for gradients of many rows. */
export const transposed = (memory: Memory, { inputs, outputs, weight }: Linear, to: number): void =>
  memory.kernel.transpose(inputs, outputs, weight, outputs, to, inputs)

/** Computes dx = dy Wᵀ (or adds it to dx), and adds the gradients of A and B to those of the adapter. */
export const backward = (
  memory: Memory,
  linear: Linear,
  adapter: Adapter,
  pair: Pair | undefined,
  rows: number,
  x: number,
  dy: number,
  dx: number,
  accumulate: boolean,
  turned?: number,
): void => {
  const { inputs, outputs } = linear
  const { kernel } = memory
  const { rank } = adapter.shape
  memory.scope((alloc) => {
    const panel = alloc(8 * Math.max(inputs, outputs, rows, rank))
    let matrix = turned
    if (matrix === undefined) {
      matrix = alloc(inputs * outputs)
      transposed(memory, linear, matrix)
    }
    kernel.gemm(rows, inputs, outputs, dy, outputs, 1, matrix, inputs, dx, inputs, accumulate ? 1 : 0, panel)
    if (pair === undefined) return
    const { gradients, parameters } = adapter
    const a = parameters + pair.a
    const b = parameters + pair.b
    const thin = alloc(rows * rank)
    kernel.gemm(rows, rank, inputs, x, inputs, 1, a, rank, thin, rank, 0, panel)
    kernel.scale(rows * rank, thin, adapter.scale)
    kernel.gemm(rank, outputs, rows, thin, 1, rank, dy, outputs, gradients + pair.b, outputs, 1, panel)
    const other = alloc(Math.max(inputs, outputs) * rank)
    kernel.transpose(rank, outputs, b, outputs, other, rank)
    kernel.gemm(rows, rank, outputs, dy, outputs, 1, other, rank, thin, rank, 0, panel)
    kernel.scale(rows * rank, thin, adapter.scale)
    kernel.gemm(inputs, rank, rows, x, 1, inputs, thin, rank, gradients + pair.a, rank, 1, panel)
    kernel.transpose(inputs, rank, a, rank, other, inputs)
    kernel.gemm(rows, inputs, rank, thin, rank, 1, other, inputs, dx, inputs, 1, panel)
  })
}
