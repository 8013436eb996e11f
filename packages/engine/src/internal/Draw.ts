/** Draws a token from a row of logits. */
import type { Prepared } from "../Sampler.ts"
import type { Random } from "../Random.ts"

/** Returns the indices of the k largest values, largest first; equal values are ordered by index. */
export const largest = (row: Float32Array, k: number): Int32Array => {
  // A heap of the k best so far, with the worst of them on top.
  const heap = new Int32Array(k)
  let size = 0
  const worse = (a: number, b: number) => {
    const x = row[a] ?? 0
    const y = row[b] ?? 0
    return x < y || (x === y && a > b)
  }
  const sink = (from: number) => {
    let i = from
    for (;;) {
      let next = 2 * i + 1
      if (next >= size) return
      if (next + 1 < size && worse(heap[next + 1] ?? 0, heap[next] ?? 0)) next++
      const [mine = 0, other = 0] = [heap[i], heap[next]]
      if (!worse(other, mine)) return
      heap[i] = other
      heap[next] = mine
      i = next
    }
  }
  for (let token = 0; token < row.length; token++) {
    if (size < k) {
      heap[size++] = token
      if (size === k) for (let i = (k >> 1) - 1; i >= 0; i--) sink(i)
    } else if (k > 0 && worse(heap[0] ?? 0, token)) {
      heap[0] = token
      sink(0)
    }
  }
  return heap.toSorted((a, b) => (row[b] ?? 0) - (row[a] ?? 0) || a - b)
}

export const draw = (
  row: Float32Array,
  { temperature, topK, topP }: Pick<Prepared, "temperature" | "topK" | "topP">,
  random: Random,
): number => {
  if (temperature === 0 || topK === 1) return largest(row, 1)[0] ?? 0
  const all = topK === -1 || topK >= row.length
  const filtered = !all || topP < 1
  const tokens = filtered ? largest(row, all ? row.length : topK) : undefined
  const count = tokens?.length ?? row.length
  let most = -Infinity
  if (tokens === undefined) for (const value of row) most = Math.max(most, value)
  else most = row[tokens[0] ?? 0] ?? 0
  const weights = new Float64Array(count)
  let sum = 0
  for (let i = 0; i < count; i++) {
    const weight = Math.exp(((row[tokens?.[i] ?? i] ?? 0) - most) / temperature)
    weights[i] = weight
    sum += weight
  }
  let end = count
  if (topP < 1) {
    // Keeps the fewest tokens that reach probability topP together, at least one.
    let held = 0
    for (end = 0; end < count && (end === 0 || held < topP * sum); end++) held += weights[end] ?? 0
    sum = held
  }
  // Uses 48 bits; with 24, rare tokens of a large vocabulary would never be drawn.
  let left = (random() + random() / 2 ** 24) * sum
  for (let i = 0; i < end; i++) {
    left -= weights[i] ?? 0
    if (left < 0) return tokens?.[i] ?? i
  }
  return tokens?.[end - 1] ?? end - 1
}
