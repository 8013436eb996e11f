// The inner loops in AssemblyScript. `node scripts/engine/kernel.mjs` compiles them into src/internal/KernelBytes.ts.
//
// All values are float32 in one memory; arguments are indices of floats, not of bytes. src/internal/PlainKernel.ts
// repeats the order of all sums in JavaScript: matrix products add the terms of an element one after another; sums over
// a row use four running sums, one per lane.

function at(index: i32): usize {
  return usize(index) << 2
}

/** C = A B, or C += A B. A has two strides, so it may be transposed; B and C are row-major. */
export function gemm(
  m: i32,
  n: i32,
  k: i32,
  a: i32,
  rowA: i32,
  columnA: i32,
  b: i32,
  rowB: i32,
  c: i32,
  rowC: i32,
  add: i32,
  panel: i32,
): void {
  const stepA = usize(columnA) << 2
  const nextA = usize(rowA) << 2
  const nextC = usize(rowC) << 2
  // Packing a narrow part of B pays off if many rows read it.
  const packs = panel != 0 && m >= 32
  let j = 0
  for (; j + 8 <= n; j += 8) {
    let fromB = at(b + j)
    let stepB = usize(rowB) << 2
    if (packs) {
      let to = at(panel)
      for (let p = 0; p < k; p++) {
        v128.store(to, v128.load(fromB))
        v128.store(to, v128.load(fromB, 16), 16)
        to += 32
        fromB += stepB
      }
      fromB = at(panel)
      stepB = 32
    }
    let i = 0
    for (; i + 4 <= m; i += 4) {
      let a0 = at(a + i * rowA)
      let a1 = a0 + nextA
      let a2 = a1 + nextA
      let a3 = a2 + nextA
      let from = fromB
      const c0 = at(c + i * rowC + j)
      const c1 = c0 + nextC
      const c2 = c1 + nextC
      const c3 = c2 + nextC
      let s00 = f32x4.splat(0)
      let s01 = s00
      let s10 = s00
      let s11 = s00
      let s20 = s00
      let s21 = s00
      let s30 = s00
      let s31 = s00
      if (add) {
        s00 = v128.load(c0)
        s01 = v128.load(c0, 16)
        s10 = v128.load(c1)
        s11 = v128.load(c1, 16)
        s20 = v128.load(c2)
        s21 = v128.load(c2, 16)
        s30 = v128.load(c3)
        s31 = v128.load(c3, 16)
      }
      for (let p = 0; p < k; p++) {
        const b0 = v128.load(from)
        const b1 = v128.load(from, 16)
        let x = v128.load_splat<f32>(a0)
        s00 = f32x4.add(s00, f32x4.mul(x, b0))
        s01 = f32x4.add(s01, f32x4.mul(x, b1))
        x = v128.load_splat<f32>(a1)
        s10 = f32x4.add(s10, f32x4.mul(x, b0))
        s11 = f32x4.add(s11, f32x4.mul(x, b1))
        x = v128.load_splat<f32>(a2)
        s20 = f32x4.add(s20, f32x4.mul(x, b0))
        s21 = f32x4.add(s21, f32x4.mul(x, b1))
        x = v128.load_splat<f32>(a3)
        s30 = f32x4.add(s30, f32x4.mul(x, b0))
        s31 = f32x4.add(s31, f32x4.mul(x, b1))
        a0 += stepA
        a1 += stepA
        a2 += stepA
        a3 += stepA
        from += stepB
      }
      v128.store(c0, s00)
      v128.store(c0, s01, 16)
      v128.store(c1, s10)
      v128.store(c1, s11, 16)
      v128.store(c2, s20)
      v128.store(c2, s21, 16)
      v128.store(c3, s30)
      v128.store(c3, s31, 16)
    }
    for (; i < m; i++) {
      let a0 = at(a + i * rowA)
      let from = fromB
      const c0 = at(c + i * rowC + j)
      let s0 = add ? v128.load(c0) : f32x4.splat(0)
      let s1 = add ? v128.load(c0, 16) : f32x4.splat(0)
      for (let p = 0; p < k; p++) {
        const x = v128.load_splat<f32>(a0)
        s0 = f32x4.add(s0, f32x4.mul(x, v128.load(from)))
        s1 = f32x4.add(s1, f32x4.mul(x, v128.load(from, 16)))
        a0 += stepA
        from += stepB
      }
      v128.store(c0, s0)
      v128.store(c0, s1, 16)
    }
  }
  if (j + 4 <= n) {
    let i = 0
    for (; i + 4 <= m; i += 4) {
      let a0 = at(a + i * rowA)
      let a1 = a0 + nextA
      let a2 = a1 + nextA
      let a3 = a2 + nextA
      let from = at(b + j)
      const c0 = at(c + i * rowC + j)
      const c1 = c0 + nextC
      const c2 = c1 + nextC
      const c3 = c2 + nextC
      let s0 = add ? v128.load(c0) : f32x4.splat(0)
      let s1 = add ? v128.load(c1) : f32x4.splat(0)
      let s2 = add ? v128.load(c2) : f32x4.splat(0)
      let s3 = add ? v128.load(c3) : f32x4.splat(0)
      for (let p = 0; p < k; p++) {
        const b0 = v128.load(from)
        s0 = f32x4.add(s0, f32x4.mul(v128.load_splat<f32>(a0), b0))
        s1 = f32x4.add(s1, f32x4.mul(v128.load_splat<f32>(a1), b0))
        s2 = f32x4.add(s2, f32x4.mul(v128.load_splat<f32>(a2), b0))
        s3 = f32x4.add(s3, f32x4.mul(v128.load_splat<f32>(a3), b0))
        a0 += stepA
        a1 += stepA
        a2 += stepA
        a3 += stepA
        from += usize(rowB) << 2
      }
      v128.store(c0, s0)
      v128.store(c1, s1)
      v128.store(c2, s2)
      v128.store(c3, s3)
    }
    for (; i < m; i++) {
      let a0 = at(a + i * rowA)
      let from = at(b + j)
      const c0 = at(c + i * rowC + j)
      let s0 = add ? v128.load(c0) : f32x4.splat(0)
      for (let p = 0; p < k; p++) {
        s0 = f32x4.add(s0, f32x4.mul(v128.load_splat<f32>(a0), v128.load(from)))
        a0 += stepA
        from += usize(rowB) << 2
      }
      v128.store(c0, s0)
    }
    j += 4
  }
  for (; j < n; j++) {
    for (let i = 0; i < m; i++) {
      let a0 = at(a + i * rowA)
      let from = at(b + j)
      const to = at(c + i * rowC + j)
      let sum: f32 = add ? load<f32>(to) : 0
      for (let p = 0; p < k; p++) {
        sum += load<f32>(a0) * load<f32>(from)
        a0 += stepA
        from += usize(rowB) << 2
      }
      store<f32>(to, sum)
    }
  }
}

export function transpose(rows: i32, columns: i32, from: i32, rowFrom: i32, to: i32, rowTo: i32): void {
  for (let r = 0; r < rows; r += 8) {
    const end = min(rows, r + 8)
    for (let c = 0; c < columns; c++) {
      for (let i = r; i < end; i++) store<f32>(at(to + c * rowTo + i), load<f32>(at(from + i * rowFrom + c)))
    }
  }
}

function sumLanes(lanes: v128): f32 {
  return (
    f32x4.extract_lane(lanes, 0) +
    f32x4.extract_lane(lanes, 1) +
    (f32x4.extract_lane(lanes, 2) + f32x4.extract_lane(lanes, 3))
  )
}

export function dot(n: i32, x: i32, y: i32): f32 {
  let lanes = f32x4.splat(0)
  let i = 0
  for (; i + 4 <= n; i += 4) lanes = f32x4.add(lanes, f32x4.mul(v128.load(at(x + i)), v128.load(at(y + i))))
  let sum = sumLanes(lanes)
  for (; i < n; i++) sum += load<f32>(at(x + i)) * load<f32>(at(y + i))
  return sum
}

/** y += x */
export function add(n: i32, x: i32, y: i32): void {
  let i = 0
  for (; i + 4 <= n; i += 4) v128.store(at(y + i), f32x4.add(v128.load(at(y + i)), v128.load(at(x + i))))
  for (; i < n; i++) store<f32>(at(y + i), load<f32>(at(y + i)) + load<f32>(at(x + i)))
}

/** x *= factor */
export function scale(n: i32, x: i32, factor: f32): void {
  const by = f32x4.splat(factor)
  let i = 0
  for (; i + 4 <= n; i += 4) v128.store(at(x + i), f32x4.mul(v128.load(at(x + i)), by))
  for (; i < n; i++) store<f32>(at(x + i), load<f32>(at(x + i)) * factor)
}

/** y = x / rms(x) * weight for each row; stores 1 / rms in `inverse`. Rows of x and y are `stride` apart. */
export function rmsNorm(rows: i32, n: i32, x: i32, y: i32, stride: i32, weight: i32, eps: f32, inverse: i32): void {
  for (let r = 0; r < rows; r++) {
    const from = x + r * stride
    const to = y + r * stride
    const inv: f32 = f32(1) / sqrt<f32>(dot(n, from, from) / f32(n) + eps)
    store<f32>(at(inverse + r), inv)
    const by = f32x4.splat(inv)
    let i = 0
    for (; i + 4 <= n; i += 4) {
      v128.store(at(to + i), f32x4.mul(f32x4.mul(v128.load(at(from + i)), by), v128.load(at(weight + i))))
    }
    for (; i < n; i++) store<f32>(at(to + i), load<f32>(at(from + i)) * inv * load<f32>(at(weight + i)))
  }
}

/** Computes dx, which may be dy, or adds to dx if `accumulate` is set: (g - x inv² mean(g x)) inv, g = dy weight. */
export function rmsNormBackward(
  rows: i32,
  n: i32,
  x: i32,
  dy: i32,
  dx: i32,
  stride: i32,
  weight: i32,
  inverse: i32,
  accumulate: i32,
): void {
  for (let r = 0; r < rows; r++) {
    const fromX = x + r * stride
    const fromD = dy + r * stride
    const to = dx + r * stride
    const inv = load<f32>(at(inverse + r))
    let lanes = f32x4.splat(0)
    let i = 0
    for (; i + 4 <= n; i += 4) {
      const g = f32x4.mul(v128.load(at(fromD + i)), v128.load(at(weight + i)))
      lanes = f32x4.add(lanes, f32x4.mul(g, v128.load(at(fromX + i))))
    }
    let sum = sumLanes(lanes)
    for (; i < n; i++) sum += load<f32>(at(fromD + i)) * load<f32>(at(weight + i)) * load<f32>(at(fromX + i))
    const mean: f32 = (sum / f32(n)) * (inv * inv)
    for (i = 0; i < n; i++) {
      const g: f32 = load<f32>(at(fromD + i)) * load<f32>(at(weight + i))
      const d: f32 = (g - load<f32>(at(fromX + i)) * mean) * inv
      store<f32>(at(to + i), accumulate ? load<f32>(at(to + i)) + d : d)
    }
  }
}

/** Rotates each head of each row by its position. With `sign` -1 it rotates back, which is the gradient. */
export function rope(
  rows: i32,
  heads: i32,
  size: i32,
  x: i32,
  cosine: i32,
  sine: i32,
  positions: i32,
  sign: f32,
): void {
  const half = size >> 1
  for (let r = 0; r < rows; r++) {
    const position = load<i32>(at(positions + r))
    const cos = cosine + position * half
    const sin = sine + position * half
    for (let h = 0; h < heads; h++) {
      const head = x + (r * heads + h) * size
      let i = 0
      for (; i + 4 <= half; i += 4) {
        const c = v128.load(at(cos + i))
        const s = f32x4.mul(v128.load(at(sin + i)), f32x4.splat(sign))
        const p = v128.load(at(head + i))
        const q = v128.load(at(head + half + i))
        v128.store(at(head + i), f32x4.sub(f32x4.mul(p, c), f32x4.mul(q, s)))
        v128.store(at(head + half + i), f32x4.add(f32x4.mul(q, c), f32x4.mul(p, s)))
      }
      for (; i < half; i++) {
        const c = load<f32>(at(cos + i))
        const s: f32 = load<f32>(at(sin + i)) * sign
        const p = load<f32>(at(head + i))
        const q = load<f32>(at(head + half + i))
        store<f32>(at(head + i), p * c - q * s)
        store<f32>(at(head + half + i), q * c + p * s)
      }
    }
  }
}

/** Computes exp(x) with a polynomial on [-ln2/2, ln2/2] and sets the exponent bits directly. */
function exp4(value: v128): v128 {
  const x = f32x4.max(f32x4.splat(-87), f32x4.min(f32x4.splat(88), value))
  const magic = f32x4.splat(12582912)
  const whole = f32x4.sub(f32x4.add(f32x4.mul(x, f32x4.splat(f32(Math.LOG2E))), magic), magic)
  let r = f32x4.sub(x, f32x4.mul(whole, f32x4.splat(0.693359375)))
  r = f32x4.sub(r, f32x4.mul(whole, f32x4.splat(-2.1219444e-4)))
  let y = f32x4.splat(1.98756915e-4)
  y = f32x4.add(f32x4.mul(y, r), f32x4.splat(1.3981999507e-3))
  y = f32x4.add(f32x4.mul(y, r), f32x4.splat(8.3334519073e-3))
  y = f32x4.add(f32x4.mul(y, r), f32x4.splat(4.1665795894e-2))
  y = f32x4.add(f32x4.mul(y, r), f32x4.splat(1.6666665459e-1))
  y = f32x4.add(f32x4.mul(y, r), f32x4.splat(5.0000001201e-1))
  y = f32x4.add(f32x4.add(f32x4.mul(f32x4.mul(y, r), r), r), f32x4.splat(1))
  return f32x4.mul(y, i32x4.shl(i32x4.add(i32x4.trunc_sat_f32x4_s(whole), i32x4.splat(127)), 23))
}

function exp1(value: f32): f32 {
  return f32x4.extract_lane(exp4(f32x4.splat(value)), 0)
}

function rowMax(n: i32, x: i32): f32 {
  let most = load<f32>(at(x))
  for (let i = 1; i < n; i++) most = max<f32>(most, load<f32>(at(x + i)))
  return most
}

/** y = exp(x - shift) for n elements; returns their sum. */
function expRow(n: i32, x: i32, y: i32, shift: f32): f32 {
  const by = f32x4.splat(shift)
  let lanes = f32x4.splat(0)
  let i = 0
  for (; i + 4 <= n; i += 4) {
    const e = exp4(f32x4.sub(v128.load(at(x + i)), by))
    v128.store(at(y + i), e)
    lanes = f32x4.add(lanes, e)
  }
  let sum = sumLanes(lanes)
  for (; i < n; i++) {
    const e = exp1(load<f32>(at(x + i)) - shift)
    store<f32>(at(y + i), e)
    sum += e
  }
  return sum
}

/** Softmax of `factor` x in place; row r has first + r elements, and the rest of it, up to `width`, is set to 0. */
export function causalSoftmax(rows: i32, width: i32, x: i32, stride: i32, first: i32, factor: f32): void {
  for (let r = 0; r < rows; r++) {
    const row = x + r * stride
    const n = first + r
    scale(n, row, factor)
    const sum = expRow(n, row, row, rowMax(n, row))
    scale(n, row, f32(1) / sum)
    for (let i = n; i < width; i++) store<f32>(at(row + i), 0)
  }
}

/** dp = p (dp - sum(p dp)) factor, in place. */
export function softmaxBackward(rows: i32, width: i32, p: i32, dp: i32, stride: i32, factor: f32): void {
  for (let r = 0; r < rows; r++) {
    const fromP = p + r * stride
    const fromD = dp + r * stride
    const mean = dot(width, fromP, fromD)
    const by = f32x4.splat(mean)
    const factors = f32x4.splat(factor)
    let i = 0
    for (; i + 4 <= width; i += 4) {
      const d = f32x4.sub(v128.load(at(fromD + i)), by)
      v128.store(at(fromD + i), f32x4.mul(f32x4.mul(v128.load(at(fromP + i)), d), factors))
    }
    for (; i < width; i++)
      store<f32>(at(fromD + i), load<f32>(at(fromP + i)) * (load<f32>(at(fromD + i)) - mean) * factor)
  }
}

/** y = silu(gate) up */
export function swiglu(n: i32, gate: i32, up: i32, y: i32): void {
  const one = f32x4.splat(1)
  let i = 0
  for (; i + 4 <= n; i += 4) {
    const g = v128.load(at(gate + i))
    const s = f32x4.div(one, f32x4.add(one, exp4(f32x4.neg(g))))
    v128.store(at(y + i), f32x4.mul(f32x4.mul(g, s), v128.load(at(up + i))))
  }
  for (; i < n; i++) {
    const g = load<f32>(at(gate + i))
    const s: f32 = f32(1) / (f32(1) + exp1(-g))
    store<f32>(at(y + i), g * s * load<f32>(at(up + i)))
  }
}

/** Replaces gate and up with their gradients. */
export function swigluBackward(n: i32, gate: i32, up: i32, dy: i32): void {
  const one = f32x4.splat(1)
  let i = 0
  for (; i + 4 <= n; i += 4) {
    const g = v128.load(at(gate + i))
    const u = v128.load(at(up + i))
    const d = v128.load(at(dy + i))
    const s = f32x4.div(one, f32x4.add(one, exp4(f32x4.neg(g))))
    const slope = f32x4.mul(s, f32x4.add(one, f32x4.mul(g, f32x4.sub(one, s))))
    v128.store(at(up + i), f32x4.mul(d, f32x4.mul(g, s)))
    v128.store(at(gate + i), f32x4.mul(f32x4.mul(d, u), slope))
  }
  for (; i < n; i++) {
    const g = load<f32>(at(gate + i))
    const u = load<f32>(at(up + i))
    const d = load<f32>(at(dy + i))
    const s: f32 = f32(1) / (f32(1) + exp1(-g))
    const slope: f32 = s * (f32(1) + g * (f32(1) - s))
    store<f32>(at(up + i), d * (g * s))
    store<f32>(at(gate + i), d * u * slope)
  }
}

/** For each row of x: y = exp(x - max), and stores max and sum in `stats`, two values per row. */
export function expRows(rows: i32, n: i32, x: i32, y: i32, stats: i32): void {
  for (let r = 0; r < rows; r++) {
    const most = rowMax(n, x + r * n)
    store<f32>(at(stats + 2 * r), most)
    store<f32>(at(stats + 2 * r + 1), expRow(n, x + r * n, y + r * n, most))
  }
}

/** One step of AdamW. `rate` includes the first bias correction; `correction` is the square root of the second. */
export function adamw(
  n: i32,
  p: i32,
  g: i32,
  m: i32,
  v: i32,
  clip: f32,
  keep: f32,
  beta1: f32,
  rest1: f32,
  beta2: f32,
  rest2: f32,
  rate: f32,
  correction: f32,
  eps: f32,
): void {
  for (let i = 0; i < n; i += 4) {
    const grad = f32x4.mul(v128.load(at(g + i)), f32x4.splat(clip))
    const first = f32x4.add(f32x4.mul(v128.load(at(m + i)), f32x4.splat(beta1)), f32x4.mul(grad, f32x4.splat(rest1)))
    const second = f32x4.add(
      f32x4.mul(v128.load(at(v + i)), f32x4.splat(beta2)),
      f32x4.mul(f32x4.mul(grad, grad), f32x4.splat(rest2)),
    )
    v128.store(at(m + i), first)
    v128.store(at(v + i), second)
    const root = f32x4.add(f32x4.div(f32x4.sqrt(second), f32x4.splat(correction)), f32x4.splat(eps))
    const kept = f32x4.mul(v128.load(at(p + i)), f32x4.splat(keep))
    v128.store(at(p + i), f32x4.sub(kept, f32x4.mul(f32x4.splat(rate), f32x4.div(first, root))))
  }
}

/** Sums the squares in double precision, one after another. */
export function sumOfSquares(n: i32, x: i32): f64 {
  let sum: f64 = 0
  for (let i = 0; i < n; i++) {
    const value = f64(load<f32>(at(x + i)))
    sum += value * value
  }
  return sum
}
