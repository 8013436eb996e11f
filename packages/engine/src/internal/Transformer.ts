/** The pass through all layers, forward and backward, over packed sequences. */
import type { ModelConfig } from "../ModelConfig.ts"
import type { Adapter } from "./Adapter.ts"
import * as Attention from "./Attention.ts"
import type { Memory } from "./Memory.ts"
import * as Projection from "./Projection.ts"
import type { ModuleName, Weights } from "./Weights.ts"

type Alloc = (length: number) => number

export interface Model {
  readonly memory: Memory
  readonly config: ModelConfig
  readonly weights: Weights
}

/** The tokens and positions of all rows, and the sequences; `positions` refers to int32 values in the memory. */
export interface Batch {
  readonly rows: number
  readonly tokens: Int32Array
  readonly positions: number
  readonly sequences: ReadonlyArray<Attention.Sequence>
}

/** The values of the forward pass that the backward pass of a layer needs. */
export interface Saved {
  readonly input: number
  readonly inputInverse: number
  readonly inputNormed: number
  readonly qRaw: number
  readonly q: number
  readonly qInverse: number
  readonly kRaw: number
  readonly k: number
  readonly kInverse: number
  readonly v: number
  readonly attended: number
  readonly middle: number
  readonly middleInverse: number
  readonly middleNormed: number
  readonly gate: number
  readonly up: number
}

const saved = ({ config }: Model, rows: number, alloc: Alloc): Saved => {
  const { headDim, heads, hiddenSize, intermediateSize, kvHeads, qkNorm } = config
  const queries = rows * heads * headDim
  const keys = rows * kvHeads * headDim
  const q = alloc(queries)
  const k = alloc(keys)
  return {
    input: alloc(rows * hiddenSize),
    inputInverse: alloc(rows),
    inputNormed: alloc(rows * hiddenSize),
    qRaw: qkNorm ? alloc(queries) : q,
    q,
    qInverse: qkNorm ? alloc(rows * heads) : 0,
    kRaw: qkNorm ? alloc(keys) : k,
    k,
    kInverse: qkNorm ? alloc(rows * kvHeads) : 0,
    v: alloc(keys),
    attended: alloc(queries),
    middle: alloc(rows * hiddenSize),
    middleInverse: alloc(rows),
    middleNormed: alloc(rows * hiddenSize),
    gate: alloc(rows * intermediateSize),
    up: alloc(rows * intermediateSize),
  }
}

export const embed = ({ config, memory, weights }: Model, tokens: Int32Array, to: number): void => {
  const { hiddenSize, vocabSize } = config
  const { floats } = memory
  for (const [row, token] of tokens.entries()) {
    const at = to + row * hiddenSize
    if (weights.embedding !== 0) {
      const from = weights.embedding + token * hiddenSize
      floats.copyWithin(at, from, from + hiddenSize)
    } else {
      const from = weights.unembedding.weight + token
      for (let i = 0; i < hiddenSize; i++) floats[at + i] = floats[from + i * vocabSize] ?? 0
    }
  }
}

/** Attention as supplied by the caller: over the batch, or over a cache. */
export type Attend = (layer: number, q: number, k: number, v: number, out: number) => void

/** Replaces `x` with the output of the layer. */
export const layerForward = (
  { config, memory, weights }: Model,
  adapter: Adapter | undefined,
  index: number,
  rows: number,
  positions: number,
  x: number,
  s: Saved,
  attend: Attend,
): void => {
  const { kernel } = memory
  const { headDim, heads, hiddenSize, intermediateSize, kvHeads, normEps, qkNorm } = config
  const layer = weights.layers[index]
  if (layer === undefined) return
  const pairs = adapter?.layout.layers[index]
  const project = (name: ModuleName, from: number, to: number) =>
    Projection.forward(memory, layer.modules[name], adapter, pairs?.[name], rows, from, to)
  const size = rows * hiddenSize

  memory.floats.copyWithin(s.input, x, x + size)
  kernel.rmsNorm(rows, hiddenSize, x, s.inputNormed, hiddenSize, layer.inputNorm, normEps, s.inputInverse)
  project("q_proj", s.inputNormed, s.qRaw)
  project("k_proj", s.inputNormed, s.kRaw)
  project("v_proj", s.inputNormed, s.v)
  if (qkNorm) {
    kernel.rmsNorm(rows * heads, headDim, s.qRaw, s.q, headDim, layer.qNorm, normEps, s.qInverse)
    kernel.rmsNorm(rows * kvHeads, headDim, s.kRaw, s.k, headDim, layer.kNorm, normEps, s.kInverse)
  }
  kernel.rope(rows, heads, headDim, s.q, weights.cosine, weights.sine, positions, 1)
  kernel.rope(rows, kvHeads, headDim, s.k, weights.cosine, weights.sine, positions, 1)
  attend(index, s.q, s.k, s.v, s.attended)
  project("o_proj", s.attended, s.middle)
  kernel.add(size, s.middle, x)
  memory.floats.copyWithin(s.middle, x, x + size)
  kernel.rmsNorm(rows, hiddenSize, x, s.middleNormed, hiddenSize, layer.postNorm, normEps, s.middleInverse)
  project("gate_proj", s.middleNormed, s.gate)
  project("up_proj", s.middleNormed, s.up)
  memory.scope((alloc) => {
    const active = alloc(rows * intermediateSize)
    const down = alloc(size)
    kernel.swiglu(rows * intermediateSize, s.gate, s.up, active)
    project("down_proj", active, down)
    kernel.add(size, down, x)
  })
}

/** Replaces `dx` with the gradient of the layer's input. Overwrites the saved values. */
const layerBackward = (
  { config, memory, weights }: Model,
  adapter: Adapter,
  index: number,
  batch: Batch,
  dx: number,
  s: Saved,
): void => {
  const { kernel } = memory
  const { rows } = batch
  const { headDim, heads, hiddenSize, intermediateSize, kvHeads, qkNorm } = config
  const layer = weights.layers[index]
  if (layer === undefined) return
  const pairs = adapter.layout.layers[index]
  const back = (name: ModuleName, x: number, dy: number, to: number, accumulate: boolean) =>
    Projection.backward(memory, layer.modules[name], adapter, pairs?.[name], rows, x, dy, to, accumulate)
  memory.scope((alloc) => {
    const active = alloc(rows * intermediateSize)
    const dActive = alloc(rows * intermediateSize)
    const dNormed = alloc(rows * hiddenSize)
    kernel.swiglu(rows * intermediateSize, s.gate, s.up, active)
    back("down_proj", active, dx, dActive, false)
    kernel.swigluBackward(rows * intermediateSize, s.gate, s.up, dActive)
    back("gate_proj", s.middleNormed, s.gate, dNormed, false)
    back("up_proj", s.middleNormed, s.up, dNormed, true)
    kernel.rmsNormBackward(rows, hiddenSize, s.middle, dNormed, dx, hiddenSize, layer.postNorm, s.middleInverse, 1)
  })
  memory.scope((alloc) => {
    const dAttended = alloc(rows * heads * headDim)
    const dq = alloc(rows * heads * headDim)
    const dk = alloc(rows * kvHeads * headDim)
    const dv = alloc(rows * kvHeads * headDim)
    const dNormed = alloc(rows * hiddenSize)
    back("o_proj", s.attended, dx, dAttended, false)
    Attention.backward(memory, config, batch.sequences, s.q, s.k, s.v, dAttended, dq, dk, dv)
    kernel.rope(rows, heads, headDim, dq, weights.cosine, weights.sine, batch.positions, -1)
    kernel.rope(rows, kvHeads, headDim, dk, weights.cosine, weights.sine, batch.positions, -1)
    if (qkNorm) {
      kernel.rmsNormBackward(rows * heads, headDim, s.qRaw, dq, dq, headDim, layer.qNorm, s.qInverse, 0)
      kernel.rmsNormBackward(rows * kvHeads, headDim, s.kRaw, dk, dk, headDim, layer.kNorm, s.kInverse, 0)
    }
    back("q_proj", s.inputNormed, dq, dNormed, false)
    back("k_proj", s.inputNormed, dk, dNormed, true)
    back("v_proj", s.inputNormed, dv, dNormed, true)
    kernel.rmsNormBackward(rows, hiddenSize, s.input, dNormed, dx, hiddenSize, layer.inputNorm, s.inputInverse, 1)
  })
}

/** The number of rows of logits computed at once. */
const logitsAtOnce = 64

/**
 * Receives rows of logits with exp(logit - max) in `exps`, and the max and the sum of each row in `stats`. May replace
 * `exps` with gradients and then returns true.
 */
export type Visit = (first: number, rows: number, logits: number, exps: number, stats: number) => boolean

/**
 * Runs the whole pass. Calls `visit` for all rows, or only for those in `onlyRows`, in that order. With `train`, `exps`
 * are taken as gradients of the logits if `visit` returns true.
 */
export const pass = (
  model: Model,
  adapter: Adapter | undefined,
  batch: Batch,
  options: {
    readonly visit: Visit
    readonly train: boolean
    readonly onlyRows?: Int32Array | undefined
    /** Default: attention within the sequences of the batch. */
    readonly attend?: Attend | undefined
  },
): void => {
  const { config, memory, weights } = model
  const { kernel } = memory
  const { hiddenSize, vocabSize } = config
  const { rows } = batch
  memory.scope((alloc) => {
    const x = alloc(rows * hiddenSize)
    embed(model, batch.tokens, x)
    const train = options.train && adapter !== undefined
    const layers: Array<Saved> = []
    const attend: Attend =
      options.attend ?? ((_, q, k, v, out) => Attention.forward(memory, config, batch.sequences, q, k, v, out))
    for (let index = 0; index < config.layers; index++) {
      const before = layers.at(-1)
      const s = before === undefined || train ? saved(model, rows, alloc) : before
      layers.push(s)
      layerForward(model, adapter, index, rows, batch.positions, x, s, attend)
    }
    const normed = alloc(rows * hiddenSize)
    const inverse = alloc(rows)
    kernel.rmsNorm(rows, hiddenSize, x, normed, hiddenSize, weights.finalNorm, config.normEps, inverse)
    let heads = normed
    let count = rows
    if (options.onlyRows !== undefined) {
      count = options.onlyRows.length
      heads = alloc(count * hiddenSize)
      for (const [i, row] of options.onlyRows.entries()) {
        const from = normed + row * hiddenSize
        memory.floats.copyWithin(heads + i * hiddenSize, from, from + hiddenSize)
      }
    }
    const dHeads = train ? alloc(rows * hiddenSize) : 0
    const turned = train ? alloc(hiddenSize * vocabSize) : 0
    if (train) Projection.transposed(memory, weights.unembedding, turned)
    const logits = alloc(logitsAtOnce * vocabSize)
    const exps = alloc(logitsAtOnce * vocabSize)
    const stats = alloc(2 * logitsAtOnce)
    let any = false
    for (let first = 0; first < count; first += logitsAtOnce) {
      const some = Math.min(logitsAtOnce, count - first)
      const at = heads + first * hiddenSize
      const pair = adapter?.layout.unembedding
      Projection.forward(memory, weights.unembedding, adapter, pair, some, at, logits)
      kernel.expRows(some, vocabSize, logits, exps, stats)
      const has = options.visit(first, some, logits, exps, stats)
      if (!train) continue
      any ||= has
      const to = dHeads + first * hiddenSize
      if (has) Projection.backward(memory, weights.unembedding, adapter, pair, some, at, exps, to, false, turned)
      else memory.floats.fill(0, to, to + some * hiddenSize)
    }
    if (!train || !any) return
    const dx = alloc(rows * hiddenSize)
    kernel.rmsNormBackward(rows, hiddenSize, x, dHeads, dx, hiddenSize, weights.finalNorm, inverse, 0)
    for (let index = config.layers - 1; index >= 0; index--) {
      const s = layers[index]
      if (s !== undefined) layerBackward(model, adapter, index, batch, dx, s)
    }
  })
}

/** Allocates the scratch memory of a layer, for passes of a few rows. */
export const scratch = saved
