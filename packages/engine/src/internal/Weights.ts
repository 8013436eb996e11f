/** The frozen weights of a model in the kernel's memory. */
import { EngineError } from "../EngineError.ts"
import type { ModelConfig } from "../ModelConfig.ts"
import type { Safetensors, Tensor } from "../Safetensors.ts"
import type { Memory } from "./Memory.ts"

/** A frozen matrix with the layout [input, output], which the forward pass reads directly for any number of rows. */
export interface Linear {
  readonly inputs: number
  readonly outputs: number
  readonly weight: number
}

export const moduleNames = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"] as const
export type ModuleName = (typeof moduleNames)[number]

export interface Layer {
  readonly modules: Readonly<Record<ModuleName, Linear>>
  readonly inputNorm: number
  readonly postNorm: number
  readonly qNorm: number
  readonly kNorm: number
}

export interface Weights {
  /** The rows of the embedding, or 0 if it is tied; then the columns of the unembedding are used. */
  readonly embedding: number
  readonly layers: ReadonlyArray<Layer>
  readonly finalNorm: number
  readonly unembedding: Linear
  /** [positions, headDim / 2] */
  readonly cosine: number
  readonly sine: number
}

const bad = (problem: string) => new EngineError({ reason: "InvalidModel", problem })

/** Loads the weights. Throws an `EngineError`. */
export const load = (memory: Memory, config: ModelConfig, tensors: Safetensors): Weights => {
  const { headDim, heads, hiddenSize, intermediateSize, kvHeads, vocabSize } = config
  const get = (name: string, ...shape: ReadonlyArray<number>): Tensor => {
    const tensor = tensors.get(name)
    if (tensor === undefined) throw bad(`${name} is missing`)
    if (tensor.shape.join() !== shape.join()) throw bad(`${name}: expected [${shape}], got [${tensor.shape}]`)
    return tensor
  }
  const vector = (name: string, size: number) => memory.copyOf(get(name, size).data)
  const linear = (name: string, outputs: number, inputs: number): Linear => {
    const { data } = get(name, outputs, inputs)
    const weight = memory.alloc(inputs * outputs)
    memory.scope((alloc) => {
      const rows = alloc(data.length)
      memory.floats.set(data, rows)
      memory.kernel.transpose(outputs, inputs, rows, inputs, weight, outputs)
    })
    return { inputs, outputs, weight }
  }
  const layer = (index: number): Layer => {
    const at = `model.layers.${index}.`
    const mlp = `${at}mlp.`
    const attention = `${at}self_attn.`
    return {
      modules: {
        q_proj: linear(`${attention}q_proj.weight`, heads * headDim, hiddenSize),
        k_proj: linear(`${attention}k_proj.weight`, kvHeads * headDim, hiddenSize),
        v_proj: linear(`${attention}v_proj.weight`, kvHeads * headDim, hiddenSize),
        o_proj: linear(`${attention}o_proj.weight`, hiddenSize, heads * headDim),
        gate_proj: linear(`${mlp}gate_proj.weight`, intermediateSize, hiddenSize),
        up_proj: linear(`${mlp}up_proj.weight`, intermediateSize, hiddenSize),
        down_proj: linear(`${mlp}down_proj.weight`, hiddenSize, intermediateSize),
      },
      inputNorm: vector(`${at}input_layernorm.weight`, hiddenSize),
      postNorm: vector(`${at}post_attention_layernorm.weight`, hiddenSize),
      qNorm: config.qkNorm ? vector(`${attention}q_norm.weight`, headDim) : 0,
      kNorm: config.qkNorm ? vector(`${attention}k_norm.weight`, headDim) : 0,
    }
  }
  const half = headDim / 2
  const cosine = memory.alloc(config.maxPositions * half)
  const sine = memory.alloc(config.maxPositions * half)
  for (let i = 0; i < half; i++) {
    // Rounds the frequency to float32 before the multiplication, as the reference does.
    const frequency = Math.fround(1 / Math.fround(config.ropeTheta ** Math.fround((2 * i) / headDim)))
    for (let position = 0; position < config.maxPositions; position++) {
      const angle = Math.fround(position * frequency)
      memory.floats[cosine + position * half + i] = Math.cos(angle)
      memory.floats[sine + position * half + i] = Math.sin(angle)
    }
  }
  const head = config.tied ? "model.embed_tokens.weight" : "lm_head.weight"
  return {
    embedding: config.tied ? 0 : memory.copyOf(get("model.embed_tokens.weight", vocabSize, hiddenSize).data),
    layers: Array.from({ length: config.layers }, (_, index) => layer(index)),
    finalNorm: vector("model.norm.weight", hiddenSize),
    unembedding: linear(head, vocabSize, hiddenSize),
    cosine,
    sine,
  }
}
