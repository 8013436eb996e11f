/** Makes matrices approximately orthogonal with the iteration of Muon. */
import type { Memory } from "./Memory.ts"

const [linear, cubic, quintic] = [3.4445, -4.775, 2.0315]
const iterations = 5
const eps = 1e-7

/**
 * Adds to a matrix the orthogonal factor of another one of its shape, [rows, columns], with the given Frobenius norm.
 * A matrix of zeros has none.
 */
export const addFactor = (
  memory: Memory,
  { columns, rows }: { readonly rows: number; readonly columns: number },
  from: number,
  to: number,
  norm: number,
): void => {
  const { kernel } = memory
  const size = rows * columns
  const [small, large] = rows < columns ? [rows, columns] : [columns, rows]
  memory.scope((alloc) => {
    let x = alloc(size)
    let next = alloc(size)
    const turned = alloc(size)
    const square = alloc(small * small)
    const fourth = alloc(small * small)
    const panel = alloc(8 * Math.max(small, large))
    if (rows === small) memory.floats.copyWithin(x, from, from + size)
    else kernel.transpose(rows, columns, from, columns, x, rows)
    kernel.scale(size, x, 1 / (Math.sqrt(kernel.sumOfSquares(size, x)) + eps))
    for (let i = 0; i < iterations; i++) {
      kernel.transpose(small, large, x, large, turned, small)
      kernel.gemm(small, small, large, x, large, 1, turned, small, square, small, 0, panel)
      kernel.gemm(small, small, small, square, small, 1, square, small, fourth, small, 0, panel)
      kernel.scale(small * small, square, cubic)
      kernel.scale(small * small, fourth, quintic)
      kernel.add(small * small, fourth, square)
      memory.floats.copyWithin(next, x, x + size)
      kernel.scale(size, next, linear)
      kernel.gemm(small, large, small, square, small, 1, x, large, next, large, 1, panel)
      ;[x, next] = [next, x]
    }
    const length = Math.sqrt(kernel.sumOfSquares(size, x))
    if (length === 0) return
    kernel.scale(size, x, norm / length)
    if (rows !== small) kernel.transpose(small, large, x, large, next, small)
    kernel.add(size, rows === small ? x : next, to)
  })
}
