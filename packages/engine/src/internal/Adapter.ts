/** LoRA adapters in the kernel's memory: two low-rank matrices beside a frozen one, y = x W + scale (x A) B. */
import type { ModelConfig } from "../ModelConfig.ts"
import * as Random from "../Random.ts"
import type { Memory } from "./Memory.ts"
import { type ModuleName, moduleNames } from "./Weights.ts"

export interface Shape {
  readonly rank: number
  readonly alpha: number
  readonly seed: number
  readonly trainAttn: boolean
  readonly trainMlp: boolean
  readonly trainUnembed: boolean
}

/** The positions of both matrices within the adapter's parameters: A [inputs, rank], then B [rank, outputs]. */
export interface Pair {
  /** PEFT's name, without `.lora_A.weight`. */
  readonly name: string
  readonly inputs: number
  readonly outputs: number
  readonly a: number
  readonly b: number
  /** The random stream; it does not depend on which other matrices are trained. */
  readonly stream: number
}

export interface Layout {
  readonly pairs: ReadonlyArray<Pair>
  readonly layers: ReadonlyArray<Partial<Record<ModuleName, Pair>>>
  readonly unembedding: Pair | undefined
  readonly size: number
}

const attention = new Set<ModuleName>(["q_proj", "k_proj", "v_proj", "o_proj"])

export const layoutOf = (config: ModelConfig, shape: Shape): Layout => {
  const { headDim, heads, hiddenSize, intermediateSize, kvHeads, vocabSize } = config
  const sizes: Record<ModuleName, readonly [number, number]> = {
    q_proj: [hiddenSize, heads * headDim],
    k_proj: [hiddenSize, kvHeads * headDim],
    v_proj: [hiddenSize, kvHeads * headDim],
    o_proj: [heads * headDim, hiddenSize],
    gate_proj: [hiddenSize, intermediateSize],
    up_proj: [hiddenSize, intermediateSize],
    down_proj: [intermediateSize, hiddenSize],
  }
  const pairs: Array<Pair> = []
  let size = 0
  const pair = (name: string, stream: number, inputs: number, outputs: number): Pair => {
    const one = { name, inputs, outputs, a: size, b: size + inputs * shape.rank, stream }
    size += (inputs + outputs) * shape.rank
    pairs.push(one)
    return one
  }
  const layers = Array.from({ length: config.layers }, (_, index) => {
    const found: Partial<Record<ModuleName, Pair>> = {}
    for (const [i, name] of moduleNames.entries()) {
      if (!(attention.has(name) ? shape.trainAttn : shape.trainMlp)) continue
      const part = attention.has(name) ? "self_attn" : "mlp"
      found[name] = pair(
        `base_model.model.model.layers.${index}.${part}.${name}`,
        1 + index * moduleNames.length + i,
        ...sizes[name],
      )
    }
    return found
  })
  const unembedding = shape.trainUnembed ? pair("base_model.model.lm_head", 0, hiddenSize, vocabSize) : undefined
  // The optimizer processes four values at a time.
  return { pairs, layers, unembedding, size: Math.ceil(size / 4) * 4 }
}

export class Adapter {
  readonly shape: Shape
  readonly layout: Layout
  readonly scale: number
  readonly #memory: Memory
  readonly parameters: number
  /** The block of gradients; 0 until it is needed, like those of the moments. */
  gradients = 0
  first = 0
  second = 0
  steps = 0
  /** The optimizer of all steps, chosen by the first one. */
  optimizer: "adamw" | "dimuon" | undefined
  /** Counts the changes of the weights. */
  version = 0

  constructor(memory: Memory, config: ModelConfig, shape: Shape) {
    this.#memory = memory
    this.shape = shape
    this.layout = layoutOf(config, shape)
    this.scale = shape.alpha / shape.rank
    this.parameters = memory.zeros(this.layout.size)
  }

  /** Sets A to uniform values within 1 / sqrt(inputs) and B to zero, so that the adapter starts without effect. */
  initialize(): void {
    for (const { a, b, inputs, stream } of this.layout.pairs) {
      const random = Random.make(this.shape.seed, stream)
      const bound = 1 / Math.sqrt(inputs)
      for (let i = this.parameters + a; i < this.parameters + b; i++) {
        this.#memory.floats[i] = (2 * random() - 1) * bound
      }
    }
  }

  ensureGradients(): void {
    if (this.gradients === 0) this.gradients = this.#memory.zeros(this.layout.size)
  }

  ensureMoments(): void {
    if (this.first === 0) this.first = this.#memory.zeros(this.layout.size)
    if (this.second === 0) this.second = this.#memory.zeros(this.layout.size)
  }

  zeroGradients(): void {
    if (this.gradients !== 0) this.#memory.floats.fill(0, this.gradients, this.gradients + this.layout.size)
  }

  free(): void {
    for (const block of [this.parameters, this.gradients, this.first, this.second]) {
      if (block !== 0) this.#memory.free(block)
    }
    this.gradients = this.first = this.second = 0
  }
}
