/**
 * kernel/kernel.ts in JavaScript, for runtimes without SIMD: the same operations in the same order, each rounded to
 * float32, so that the results are identical. About thirty times slower in training.
 */
import type { Kernel } from "./Kernel.ts"

const f = Math.fround

const bits = new Int32Array(1)
const float = new Float32Array(bits.buffer)

const c = [1.98756915e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1].map(f)
const [c0 = 0, c1 = 0, c2 = 0, c3 = 0, c4 = 0, c5 = 0] = c
const log2e = f(Math.LOG2E)
const ln2High = f(0.693359375)
const ln2Low = f(-2.1219444e-4)
const magic = 12_582_912

const exp = (value: number): number => {
  const x = Math.max(-87, Math.min(88, value))
  const whole = f(f(f(x * log2e) + magic) - magic)
  let r = f(x - f(whole * ln2High))
  r = f(r - f(whole * ln2Low))
  let y = f(f(c0 * r) + c1)
  y = f(f(y * r) + c2)
  y = f(f(y * r) + c3)
  y = f(f(y * r) + c4)
  y = f(f(y * r) + c5)
  y = f(f(f(f(f(y * r) * r) + r)) + 1)
  bits[0] = (whole + 127) << 23
  return f(y * (float[0] ?? 0))
}

export const make = (buffer: () => ArrayBuffer): Kernel => {
  let held = buffer()
  let floats = new Float32Array(held)
  let ints = new Int32Array(held)
  const memory = (): Float32Array => {
    if (buffer() !== held) {
      held = buffer()
      floats = new Float32Array(held)
      ints = new Int32Array(held)
    }
    return floats
  }
  const at = (index: number): number => floats[index] ?? 0

  const sumLanes = (n: number, term: (i: number) => number): number => {
    let l0 = 0
    let l1 = 0
    let l2 = 0
    let l3 = 0
    let i = 0
    for (; i + 4 <= n; i += 4) {
      l0 = f(l0 + term(i))
      l1 = f(l1 + term(i + 1))
      l2 = f(l2 + term(i + 2))
      l3 = f(l3 + term(i + 3))
    }
    let sum = f(f(l0 + l1) + f(l2 + l3))
    for (; i < n; i++) sum = f(sum + term(i))
    return sum
  }
  const dot = (n: number, x: number, y: number): number => sumLanes(n, (i) => f(at(x + i) * at(y + i)))
  const scale = (n: number, x: number, factor: number) => {
    const by = f(factor)
    for (let i = x; i < x + n; i++) floats[i] = at(i) * by
  }
  const rowMax = (n: number, x: number): number => {
    let most = at(x)
    for (let i = 1; i < n; i++) most = Math.max(most, at(x + i))
    return most
  }
  const expRow = (n: number, x: number, y: number, shift: number): number =>
    sumLanes(n, (i) => {
      const e = exp(f(at(x + i) - shift))
      floats[y + i] = e
      return e
    })

  return {
    gemm: (m, n, k, a, rowA, columnA, b, rowB, c, rowC, add) => {
      const x = memory()
      // Four columns at once share one element of A.
      for (let i = 0; i < m; i++) {
        let j = 0
        for (; j + 4 <= n; j += 4) {
          const to = c + i * rowC + j
          let s0 = add ? (x[to] ?? 0) : 0
          let s1 = add ? (x[to + 1] ?? 0) : 0
          let s2 = add ? (x[to + 2] ?? 0) : 0
          let s3 = add ? (x[to + 3] ?? 0) : 0
          let from = b + j
          let left = a + i * rowA
          for (let p = 0; p < k; p++) {
            const value = x[left] ?? 0
            s0 = f(s0 + f(value * (x[from] ?? 0)))
            s1 = f(s1 + f(value * (x[from + 1] ?? 0)))
            s2 = f(s2 + f(value * (x[from + 2] ?? 0)))
            s3 = f(s3 + f(value * (x[from + 3] ?? 0)))
            left += columnA
            from += rowB
          }
          x[to] = s0
          x[to + 1] = s1
          x[to + 2] = s2
          x[to + 3] = s3
        }
        for (; j < n; j++) {
          const to = c + i * rowC + j
          let sum = add ? (x[to] ?? 0) : 0
          for (let p = 0; p < k; p++) sum = f(sum + f(at(a + i * rowA + p * columnA) * at(b + p * rowB + j)))
          x[to] = sum
        }
      }
    },
    transpose: (rows, columns, from, rowFrom, to, rowTo) => {
      memory()
      for (let r = 0; r < rows; r++) {
        for (let c = 0; c < columns; c++) floats[to + c * rowTo + r] = at(from + r * rowFrom + c)
      }
    },
    dot: (n, x, y) => {
      memory()
      return dot(n, x, y)
    },
    add: (n, x, y) => {
      memory()
      for (let i = 0; i < n; i++) floats[y + i] = at(y + i) + at(x + i)
    },
    scale: (n, x, factor) => {
      memory()
      scale(n, x, factor)
    },
    rmsNorm: (rows, n, x, y, stride, weight, eps, inverse) => {
      memory()
      for (let r = 0; r < rows; r++) {
        const from = x + r * stride
        const to = y + r * stride
        const inv = f(1 / f(Math.sqrt(f(f(dot(n, from, from) / n) + f(eps)))))
        floats[inverse + r] = inv
        for (let i = 0; i < n; i++) floats[to + i] = f(at(from + i) * inv) * at(weight + i)
      }
    },
    rmsNormBackward: (rows, n, x, dy, dx, stride, weight, inverse, accumulate) => {
      memory()
      for (let r = 0; r < rows; r++) {
        const fromX = x + r * stride
        const fromD = dy + r * stride
        const to = dx + r * stride
        const inv = at(inverse + r)
        const sum = sumLanes(n, (i) => f(f(at(fromD + i) * at(weight + i)) * at(fromX + i)))
        const mean = f(f(sum / n) * f(inv * inv))
        for (let i = 0; i < n; i++) {
          const d = f(f(f(at(fromD + i) * at(weight + i)) - f(at(fromX + i) * mean)) * inv)
          floats[to + i] = accumulate ? at(to + i) + d : d
        }
      }
    },
    rope: (rows, heads, size, x, cosine, sine, positions, sign) => {
      memory()
      const half = size >> 1
      for (let r = 0; r < rows; r++) {
        const position = ints[positions + r] ?? 0
        for (let h = 0; h < heads; h++) {
          const head = x + (r * heads + h) * size
          for (let i = 0; i < half; i++) {
            const cos = at(cosine + position * half + i)
            const sin = f(at(sine + position * half + i) * sign)
            const p = at(head + i)
            const q = at(head + half + i)
            floats[head + i] = f(p * cos) - f(q * sin)
            floats[head + half + i] = f(q * cos) + f(p * sin)
          }
        }
      }
    },
    causalSoftmax: (rows, width, x, stride, first, factor) => {
      memory()
      for (let r = 0; r < rows; r++) {
        const row = x + r * stride
        const n = first + r
        scale(n, row, factor)
        const sum = expRow(n, row, row, rowMax(n, row))
        scale(n, row, 1 / sum)
        floats.fill(0, row + n, row + Math.max(n, width))
      }
    },
    softmaxBackward: (rows, width, p, dp, stride, factor) => {
      memory()
      const by = f(factor)
      for (let r = 0; r < rows; r++) {
        const fromP = p + r * stride
        const fromD = dp + r * stride
        const mean = dot(width, fromP, fromD)
        for (let i = 0; i < width; i++) floats[fromD + i] = f(at(fromP + i) * f(at(fromD + i) - mean)) * by
      }
    },
    swiglu: (n, gate, up, y) => {
      memory()
      for (let i = 0; i < n; i++) {
        const g = at(gate + i)
        const s = f(1 / f(1 + exp(-g)))
        floats[y + i] = f(g * s) * at(up + i)
      }
    },
    swigluBackward: (n, gate, up, dy) => {
      memory()
      for (let i = 0; i < n; i++) {
        const g = at(gate + i)
        const u = at(up + i)
        const d = at(dy + i)
        const s = f(1 / f(1 + exp(-g)))
        const slope = f(s * f(1 + f(g * f(1 - s))))
        floats[up + i] = d * f(g * s)
        floats[gate + i] = f(d * u) * slope
      }
    },
    expRows: (rows, n, x, y, stats) => {
      memory()
      for (let r = 0; r < rows; r++) {
        const most = rowMax(n, x + r * n)
        floats[stats + 2 * r] = most
        floats[stats + 2 * r + 1] = expRow(n, x + r * n, y + r * n, most)
      }
    },
    adamw: (n, p, g, m, v, clip, keep, beta1, rest1, beta2, rest2, rate, correction, eps) => {
      memory()
      const [by, kept, b1, r1, b2, r2, step, root, small] = [
        f(clip),
        f(keep),
        f(beta1),
        f(rest1),
        f(beta2),
        f(rest2),
        f(rate),
        f(correction),
        f(eps),
      ] as const
      for (let i = 0; i < n; i++) {
        const grad = f(at(g + i) * by)
        const first = f(f(at(m + i) * b1) + f(grad * r1))
        const second = f(f(at(v + i) * b2) + f(f(grad * grad) * r2))
        floats[m + i] = first
        floats[v + i] = second
        const scaled = f(f(f(Math.sqrt(second)) / root) + small)
        floats[p + i] = f(at(p + i) * kept) - f(step * f(first / scaled))
      }
    },
    sumOfSquares: (n, x) => {
      memory()
      let sum = 0
      for (let i = 0; i < n; i++) sum += at(x + i) * at(x + i)
      return sum
    },
  }
}
