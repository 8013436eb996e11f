/** Runs a sampling request: processes the prompt once, then one token per sequence in every step. */
import * as Random from "../Random.ts"
import type { Prepared, SampleResult, Sequence, Topk } from "../Sampler.ts"
import type { Adapter } from "./Adapter.ts"
import * as Attention from "./Attention.ts"
import { draw, largest } from "./Draw.ts"
import type { PrefixCache } from "./PrefixCache.ts"
import * as Projection from "./Projection.ts"
import * as Transformer from "./Transformer.ts"

/** The number of sequences computed together, which bounds the memory. */
const maxRows = 32

const emptyCell = -99_999

/** The random stream of draws within the prompt; no sequence uses it. */
const promptStream = -1

interface Row {
  readonly index: number
  readonly random: Random.Random
  readonly tokens: Array<number>
  readonly logprobs: Array<number>
  readonly topk: Array<{ readonly tokenIds: Int32Array; readonly logprobs: Float32Array }>
  /** Keys [layer][kvHead][headDim][room] and values [layer][room][kvHeads x headDim]; 0 when freed. */
  keys: number
  values: number
  stopped: Sequence["stopReason"] | undefined
}

const table = (rows: ReadonlyArray<Row["topk"][number] | undefined>, k: number): Topk => {
  const tokenIds = new Int32Array(rows.length * k)
  const logprobs = new Float32Array(rows.length * k).fill(emptyCell)
  for (const [i, row] of rows.entries()) {
    if (row === undefined) continue
    tokenIds.set(row.tokenIds, i * k)
    logprobs.set(row.logprobs, i * k)
  }
  return { k, length: rows.length, tokenIds, logprobs }
}

/** Samples step by step and returns the result. Frees all memory at the end, also if it is closed early. */
export function* sample(
  model: Transformer.Model,
  cache: PrefixCache,
  adapter: Adapter | undefined,
  request: Prepared,
): Generator<{ readonly done: number; readonly tokens: number }, SampleResult, void> {
  const { config, memory, weights } = model
  const { headDim, heads, hiddenSize, kvHeads, layers, vocabSize } = config
  const keysWide = kvHeads * headDim
  const { prompt } = request
  const { length } = prompt
  const room = length + request.maxTokens
  const cacheSize = layers * room * keysWide
  const version = adapter?.version ?? 0
  const promptKeys = memory.alloc(cacheSize)
  const promptValues = memory.alloc(cacheSize)
  const held = new Set([promptKeys, promptValues])
  const sequences: Array<Sequence> = []
  const promptLogprobs = request.promptLogprobs ? new Float32Array(length).fill(Number.NaN) : undefined
  const promptTop: Array<Row["topk"][number] | undefined> = [undefined]
  const last = new Float32Array(vocabSize)
  let lastLse = 0
  const targets = request.promptTargets
  const targetLogprobs = targets && new Float32Array(targets.tokens.length)
  const targetsAt = new Map<number, Array<number>>()
  targets?.positions.forEach((position, i) => {
    const cells = targetsAt.get(position) ?? []
    cells.push(i)
    targetsAt.set(position, cells)
  })
  const draws = request.promptDraws
  const drawn = draws === 0 ? undefined : new Int32Array((length - 1) * draws)
  const drawnLogprobs = new Float32Array(drawn?.length ?? 0)
  const promptRandom = Random.make(request.seed, promptStream)
  const all = promptLogprobs !== undefined || request.topkPrompt > 0 || targets !== undefined || draws > 0

  const topOf = (row: Float32Array, lse: number, k: number) => {
    const tokenIds = largest(row, k)
    return { tokenIds, logprobs: Float32Array.from(tokenIds, (id) => (row[id] ?? 0) - lse) }
  }
  /** Records what was requested for a prompt token, given the logits before it. */
  const score = (at: number, row: Float32Array, lse: number) => {
    if (promptLogprobs !== undefined) promptLogprobs[at] = (row[prompt[at] ?? 0] ?? 0) - lse
    if (request.topkPrompt > 0) promptTop.push(topOf(row, lse, request.topkPrompt))
    if (targets !== undefined && targetLogprobs !== undefined)
      for (const cell of targetsAt.get(at) ?? []) targetLogprobs[cell] = (row[targets.tokens[cell] ?? 0] ?? 0) - lse
    if (drawn === undefined) return
    for (let i = (at - 1) * draws; i < at * draws; i++) {
      const token = draw(row, { temperature: request.temperature, topK: -1, topP: 1 }, promptRandom)
      drawn[i] = token
      drawnLogprobs[i] = (row[token] ?? 0) - lse
    }
  }
  const store = (keys: number, values: number, layer: number, from: number, count: number, k: number, v: number) => {
    // Keys are transposed: all positions of one coordinate are adjacent, as the product with queries reads them.
    const base = keys + layer * room * keysWide
    memory.kernel.transpose(count, keysWide, k, keysWide, base + from, room)
    const at = values + (layer * room + from) * keysWide
    memory.floats.copyWithin(at, v, v + count * keysWide)
  }
  const accept = (row: Row, logits: Float32Array, lse: number) => {
    const token = draw(logits, request, row.random)
    const logprob = (logits[token] ?? 0) - lse
    const top = request.topkSample > 0 ? topOf(logits, lse, request.topkSample) : undefined
    row.tokens.push(token)
    row.logprobs.push(logprob)
    if (top !== undefined) row.topk.push(top)
    request.onToken?.(row.index, { token, logprob, top })
    if (request.stopTokens.has(token)) row.stopped = "stop"
    else if (request.stopTexts !== undefined && request.stopTexts.texts.length > 0) {
      const text = request.stopTexts.decode(row.tokens)
      if (request.stopTexts.texts.some((stop) => text.includes(stop))) row.stopped = "stop"
    }
    if (row.stopped === undefined && row.tokens.length >= request.maxTokens) row.stopped = "length"
  }

  try {
    const block = { keys: promptKeys, values: promptValues, room }
    // The logits of a prompt token need its own row, the first token to sample that of the last one.
    const known = all ? 0 : cache.load(adapter, prompt, length - 1, block)
    const fresh = length - known
    memory.scope((alloc) => {
      const positions = alloc(fresh)
      for (let p = 0; p < fresh; p++) memory.ints[positions + p] = known + p
      const batch = { rows: fresh, tokens: prompt.subarray(known), positions, sequences: [{ start: 0, length: fresh }] }
      Transformer.pass(model, adapter, batch, {
        train: false,
        onlyRows: all ? undefined : Int32Array.of(fresh - 1),
        attend: (layer, q, k, v, out) => {
          store(promptKeys, promptValues, layer, known, fresh, k, v)
          const at = layer * room * keysWide
          const cached = { keys: promptKeys + at, values: promptValues + at, room }
          Attention.overCache(memory, config, cached, known, fresh, q, out)
        },
        visit: (first, some, logits, _, stats) => {
          for (let r = 0; r < some; r++) {
            const { floats } = memory
            const row = floats.subarray(logits + r * vocabSize, logits + (r + 1) * vocabSize)
            const lse = (floats[stats + 2 * r] ?? 0) + Math.log(floats[stats + 2 * r + 1] ?? 0)
            const next = all ? first + r + 1 : length
            if (next < length) score(next, row, lse)
            else {
              last.set(row)
              lastLse = lse
            }
          }
          return false
        },
      })
    })
    cache.store(adapter, version, prompt, block)

    for (let begin = 0; begin < request.samples; begin += maxRows) {
      const rows = Array.from({ length: Math.min(maxRows, request.samples - begin) }, (_, i): Row => {
        const keys = memory.alloc(cacheSize)
        const values = memory.alloc(cacheSize)
        held.add(keys).add(values)
        memory.floats.copyWithin(keys, promptKeys, promptKeys + cacheSize)
        memory.floats.copyWithin(values, promptValues, promptValues + cacheSize)
        const random = Random.make(request.seed, begin + i)
        return { index: begin + i, random, tokens: [], logprobs: [], topk: [], keys, values, stopped: undefined }
      })
      for (const row of rows) {
        if (request.maxTokens === 0) row.stopped = "length"
        else accept(row, last, lastLse)
      }
      for (;;) {
        const active = rows.filter(({ stopped }) => stopped === undefined)
        if (active.length === 0) break
        memory.scope((alloc) => decode(active, alloc))
        yield { done: sequences.length, tokens: rows.reduce((sum, { tokens }) => sum + tokens.length, 0) }
      }
      for (const row of rows) {
        // The last token has no keys and values yet.
        const seen = Int32Array.of(...prompt, ...row.tokens.slice(0, -1))
        cache.store(adapter, version, seen, { keys: row.keys, values: row.values, room })
        for (const block of [row.keys, row.values]) {
          memory.free(block)
          held.delete(block)
        }
        sequences.push({
          tokens: Int32Array.from(row.tokens),
          logprobs: Float32Array.from(row.logprobs),
          stopReason: row.stopped ?? "length",
          topk: request.topkSample > 0 ? table(row.topk, request.topkSample) : undefined,
        })
      }
    }
    return {
      sequences,
      promptLogprobs,
      topkPrompt: request.topkPrompt > 0 ? table(promptTop, request.topkPrompt) : undefined,
      promptTargets: targetLogprobs,
      promptDraws: drawn && { tokens: drawn, logprobs: drawnLogprobs },
    }
  } finally {
    for (const block of held) memory.free(block)
  }

  function decode(active: ReadonlyArray<Row>, alloc: (length: number) => number): void {
    const { kernel } = memory
    const count = active.length
    const x = alloc(count * hiddenSize)
    const s = Transformer.scratch(model, count, alloc)
    const positions = alloc(count)
    const scores = alloc(heads * room)
    const group = heads / kvHeads
    const factor = 1 / Math.sqrt(headDim)
    const tokens = Int32Array.from(active, ({ tokens }) => tokens.at(-1) ?? 0)
    for (const [i, row] of active.entries()) memory.ints[positions + i] = length + row.tokens.length - 1
    Transformer.embed(model, tokens, x)
    for (let layer = 0; layer < layers; layer++) {
      Transformer.layerForward(model, adapter, layer, count, positions, x, s, (_, q, k, v, out) => {
        for (const [i, row] of active.entries()) {
          const at = length + row.tokens.length - 1
          store(row.keys, row.values, layer, at, 1, k + i * keysWide, v + i * keysWide)
          const seen = at + 1
          const values = row.values + layer * room * keysWide
          for (let kv = 0; kv < kvHeads; kv++) {
            const keys = row.keys + (layer * keysWide + kv * headDim) * room
            const query = i * heads * headDim + kv * group * headDim
            kernel.gemm(group, seen, headDim, q + query, headDim, 1, keys, room, scores, room, 0, 0)
            for (let g = 0; g < group; g++) kernel.causalSoftmax(1, seen, scores + g * room, room, seen, factor)
            const value = values + kv * headDim
            kernel.gemm(group, headDim, seen, scores, room, 1, value, keysWide, out + query, headDim, 0, 0)
          }
        }
      })
    }
    const normed = alloc(count * hiddenSize)
    const inverse = alloc(count)
    kernel.rmsNorm(count, hiddenSize, x, normed, hiddenSize, weights.finalNorm, config.normEps, inverse)
    const logits = alloc(count * vocabSize)
    const exps = alloc(count * vocabSize)
    const stats = alloc(2 * count)
    const pair = adapter?.layout.unembedding
    Projection.forward(memory, weights.unembedding, adapter, pair, count, normed, logits)
    kernel.expRows(count, vocabSize, logits, exps, stats)
    for (const [i, row] of active.entries()) {
      const { floats } = memory
      const lse = (floats[stats + 2 * i] ?? 0) + Math.log(floats[stats + 2 * i + 1] ?? 0)
      accept(row, floats.subarray(logits + i * vocabSize, logits + (i + 1) * vocabSize), lse)
    }
  }
}
