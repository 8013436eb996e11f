/**
 * Facts about the models of the service and about the local one.
 *
 * @since 0.1.0
 */
import * as Option from "effect/Option"

/**
 * Facts about a model.
 *
 * @since 0.1.0
 * @category models
 */
export interface Facts {
  /** The renderers made for the model, the recommended one first. */
  readonly renderers: ReadonlyArray<string>
  readonly hiddenSize: number
  /** How many parameters an adapter of rank 1 has in the MLP layers. */
  readonly mlp: number
  /** How many parameters an adapter of rank 1 has in the attention layers. */
  readonly attention: number
  /** How many parameters an adapter of rank 1 has in the output layer. */
  readonly unembed: number
  /** Default: false. */
  readonly takesImages?: boolean | undefined
  /** Default: false. */
  readonly takesAudio?: boolean | undefined
  /** The context length, if it does not depend on the server. */
  readonly contextLength?: number | undefined
  /** A learning rate for LoRA that works well, for models outside of the calibrated families. */
  readonly learningRate?: number | undefined
}

/**
 * A model with everything that is known about it.
 *
 * @since 0.1.0
 * @category models
 */
export interface Model extends Facts {
  /** The name without a variant. */
  readonly name: string
  /** Whether the model was trained for conversations, in contrast to a base model. */
  readonly isChat: boolean
  /** The context length in tokens: fixed, or named by the variant. Otherwise the server knows it (`getServerCapabilities`). */
  readonly context: Option.Option<number>
  /** The learning rate for LoRA to start with. None for families without a published calibration. */
  readonly rate: Option.Option<number>
}

/**
 * The release of the reference that the facts were taken from.
 *
 * @since 0.1.0
 * @category constants
 */
export const version = "0.5.8"

/**
 * The name of the model that ships with `@effect-tinker/engine`.
 *
 * @since 0.1.0
 * @category constants
 */
export const local = "effect-tinker/valley-1.5m"

/**
 * The name of the model with tools that ships with `@effect-tinker/engine`.
 *
 * @since 0.1.0
 * @category constants
 */
export const localTools = "effect-tinker/valley-tools-1.5m"

const roleColon = ["role_colon"]
const llama3 = ["llama3"]
const qwen3 = ["qwen3", "qwen3_disable_thinking"]
const qwen3Instruct = ["qwen3_instruct"]
const gptOss = ["gpt_oss_no_sysprompt", "gpt_oss_medium_reasoning"]
const qwen3VlInstruct = ["qwen3_vl_instruct"]
const qwen35 = ["qwen3_5", "qwen3_5_disable_thinking", "qwen3_5_preserve_thinking"]
const qwen38 = [
  "qwen3_8_xhigh_reasoning",
  "qwen3_8_disable_thinking",
  "qwen3_8_medium_reasoning",
  "qwen3_8_low_reasoning",
]
const deepseekV3 = ["deepseekv3", "deepseekv3_thinking"]
const deepseekV41 = [
  "deepseekv4_1",
  "deepseekv4_1_low_reasoning",
  "deepseekv4_1_max_reasoning",
  "deepseekv4_1_disable_thinking",
  "deepseekv4_1_preserve_thinking",
]
const kimiK2 = ["kimi_k2"]
const kimiK25 = ["kimi_k25", "kimi_k25_disable_thinking"]
const kimiK26 = ["kimi_k26", "kimi_k26_disable_thinking", "kimi_k26_preserve_thinking"]
const glm53 = ["glm5_3_max_reasoning", "glm5_3_low_reasoning", "glm5_3_high_reasoning"]
const nemotron3 = ["nemotron3", "nemotron3_disable_thinking", "nemotron3_preserve_thinking"]
const nemotron3Super = [
  "nemotron3",
  "nemotron3_disable_thinking",
  "nemotron3_preserve_thinking",
  "nemotron3_low_thinking",
]
const nemotron3Ultra = [
  "nemotron3_ultra",
  "nemotron3_ultra_disable_thinking",
  "nemotron3_ultra_medium_thinking",
  "nemotron3_ultra_preserve_thinking",
]
const nemotron3Lightning = ["nemotron3_ultra", "nemotron3_ultra_disable_thinking", "nemotron3_ultra_preserve_thinking"]
const tml = ["tml_v0"]
const images = { takesImages: true }
const media = { takesImages: true, takesAudio: true }

/**
 * The facts by name.
 *
 * @since 0.1.0
 * @category models
 */
export const table: Readonly<Record<string, Facts>> = {
  "meta-llama/Llama-3.1-8B-Instruct": {
    renderers: llama3,
    hiddenSize: 4096,
    mlp: 1_769_472,
    attention: 851_968,
    unembed: 132_352,
  },
  "meta-llama/Llama-3.2-1B": {
    renderers: roleColon,
    hiddenSize: 2048,
    mlp: 491_520,
    attention: 212_992,
    unembed: 130_304,
  },
  "meta-llama/Llama-3.2-3B": {
    renderers: roleColon,
    hiddenSize: 3072,
    mlp: 946_176,
    attention: 573_440,
    unembed: 131_328,
  },
  "meta-llama/Llama-3.1-8B": {
    renderers: roleColon,
    hiddenSize: 4096,
    mlp: 1_769_472,
    attention: 851_968,
    unembed: 132_352,
  },
  "meta-llama/Llama-3.1-70B": {
    renderers: roleColon,
    hiddenSize: 8192,
    mlp: 8_847_360,
    attention: 4_096_000,
    unembed: 136_448,
  },
  "meta-llama/Llama-3.3-70B-Instruct": {
    renderers: llama3,
    hiddenSize: 8192,
    mlp: 8_847_360,
    attention: 4_096_000,
    unembed: 136_448,
  },
  "Qwen/Qwen3-VL-30B-A3B-Instruct": {
    renderers: qwen3VlInstruct,
    hiddenSize: 2048,
    mlp: 14_450_688,
    attention: 835_584,
    unembed: 153_984,
    ...images,
  },
  "Qwen/Qwen3-VL-235B-A22B-Instruct": {
    renderers: qwen3VlInstruct,
    hiddenSize: 4096,
    mlp: 56_598_528,
    attention: 3_176_448,
    unembed: 156_032,
    ...images,
  },
  "Qwen/Qwen3-8B-Base": {
    renderers: roleColon,
    hiddenSize: 4096,
    mlp: 1_769_472,
    attention: 958_464,
    unembed: 156_032,
  },
  "Qwen/Qwen3-30B-A3B-Base": {
    renderers: roleColon,
    hiddenSize: 2048,
    mlp: 14_450_688,
    attention: 835_584,
    unembed: 153_984,
  },
  "Qwen/Qwen3-8B": { renderers: qwen3, hiddenSize: 4096, mlp: 1_769_472, attention: 958_464, unembed: 156_032 },
  "Qwen/Qwen3-32B": { renderers: qwen3, hiddenSize: 5120, mlp: 5_898_240, attention: 2_490_368, unembed: 157_056 },
  "Qwen/Qwen3-30B-A3B": { renderers: qwen3, hiddenSize: 2048, mlp: 14_450_688, attention: 835_584, unembed: 153_984 },
  "Qwen/Qwen3-4B-Instruct-2507": {
    renderers: qwen3Instruct,
    hiddenSize: 2560,
    mlp: 1_327_104,
    attention: 737_280,
    unembed: 154_496,
  },
  "Qwen/Qwen3-30B-A3B-Instruct-2507": {
    renderers: qwen3Instruct,
    hiddenSize: 2048,
    mlp: 14_450_688,
    attention: 835_584,
    unembed: 153_984,
  },
  "Qwen/Qwen3-235B-A22B-Instruct-2507": {
    renderers: qwen3Instruct,
    hiddenSize: 4096,
    mlp: 56_598_528,
    attention: 3_176_448,
    unembed: 156_032,
  },
  "Qwen/Qwen3.5-4B": {
    renderers: qwen35,
    hiddenSize: 2560,
    mlp: 1_130_496,
    attention: 897_024,
    unembed: 250_880,
    ...images,
  },
  "Qwen/Qwen3.5-9B": {
    renderers: qwen35,
    hiddenSize: 4096,
    mlp: 1_572_864,
    attention: 1_130_496,
    unembed: 252_416,
    ...images,
  },
  "Qwen/Qwen3.5-9B-Base": {
    renderers: roleColon,
    hiddenSize: 4096,
    mlp: 1_572_864,
    attention: 1_130_496,
    unembed: 252_416,
    ...images,
  },
  "Qwen/Qwen3.5-27B": {
    renderers: qwen35,
    hiddenSize: 5120,
    mlp: 4_325_376,
    attention: 2_965_504,
    unembed: 253_440,
    ...images,
  },
  "Qwen/Qwen3.5-35B-A3B": {
    renderers: qwen35,
    hiddenSize: 2048,
    mlp: 16_281_600,
    attention: 1_013_760,
    unembed: 250_368,
    ...images,
  },
  "Qwen/Qwen3.5-35B-A3B-Base": {
    renderers: roleColon,
    hiddenSize: 2048,
    mlp: 16_281_600,
    attention: 1_013_760,
    unembed: 250_368,
    ...images,
  },
  "Qwen/Qwen3.5-397B-A17B": {
    renderers: qwen35,
    hiddenSize: 4096,
    mlp: 96_030_720,
    attention: 2_841_600,
    unembed: 252_416,
    ...images,
  },
  "Qwen/Qwen3.6-27B": {
    renderers: qwen35,
    hiddenSize: 5120,
    mlp: 4_325_376,
    attention: 2_965_504,
    unembed: 253_440,
    ...images,
  },
  "Qwen/Qwen3.6-35B-A3B": {
    renderers: qwen35,
    hiddenSize: 2048,
    mlp: 16_281_600,
    attention: 1_013_760,
    unembed: 250_368,
    ...images,
  },
  "Qwen/Qwen3.8-27B": {
    renderers: qwen38,
    hiddenSize: 5120,
    mlp: 4_325_376,
    attention: 2_965_504,
    unembed: 253_440,
    ...images,
  },
  "deepseek-ai/DeepSeek-V3.1": {
    renderers: deepseekV3,
    hiddenSize: 7168,
    mlp: 94_307_328,
    attention: 2_440_000,
    unembed: 136_448,
  },
  "deepseek-ai/DeepSeek-V3.1-Base": {
    renderers: roleColon,
    hiddenSize: 7168,
    mlp: 94_307_328,
    attention: 2_440_000,
    unembed: 136_448,
  },
  "deepseek-ai/DeepSeek-V4.1-Flash": {
    renderers: deepseekV41,
    hiddenSize: 5120,
    mlp: 107_673_600,
    attention: 1_013_760,
    unembed: 134_400,
  },
  "deepseek-ai/DeepSeek-V4.1-Flash-1017": {
    renderers: deepseekV41,
    hiddenSize: 5120,
    mlp: 107_673_600,
    attention: 1_013_760,
    unembed: 134_400,
  },
  "openai/gpt-oss-20b": { renderers: gptOss, hiddenSize: 2880, mlp: 6_842_880, attention: 497_664, unembed: 203_968 },
  "openai/gpt-oss-120b": { renderers: gptOss, hiddenSize: 2880, mlp: 40_124_160, attention: 746_496, unembed: 203_968 },
  "moonshotai/Kimi-K2-Thinking": {
    renderers: kimiK2,
    hiddenSize: 7168,
    mlp: 144_583_680,
    attention: 1_940_288,
    unembed: 171_008,
  },
  "moonshotai/Kimi-K2.5": {
    renderers: kimiK25,
    hiddenSize: 7168,
    mlp: 144_583_680,
    attention: 1_940_288,
    unembed: 171_008,
    ...images,
  },
  "moonshotai/Kimi-K2.6": {
    renderers: kimiK26,
    hiddenSize: 7168,
    mlp: 144_583_680,
    attention: 1_940_288,
    unembed: 171_008,
    ...images,
  },
  "zai-org/GLM-5.3": { renderers: glm53, hiddenSize: 6144, mlp: 121_356_288, attention: 2_920_320, unembed: 161_024 },
  "zai-org/GLM-5.3-Flash": {
    renderers: glm53,
    hiddenSize: 4096,
    mlp: 75_755_520,
    attention: 2_009_088,
    unembed: 158_976,
  },
  "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": {
    renderers: nemotron3,
    hiddenSize: 2688,
    mlp: 11_346_176,
    attention: 584_832,
    unembed: 133_760,
  },
  "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16": {
    renderers: nemotron3Super,
    hiddenSize: 4096,
    mlp: 111_349_760,
    attention: 1_675_264,
    unembed: 135_168,
  },
  "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16": {
    renderers: nemotron3Ultra,
    hiddenSize: 8192,
    mlp: 254_529_536,
    attention: 4_134_912,
    unembed: 139_264,
  },
  "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-BF16": {
    renderers: nemotron3Lightning,
    hiddenSize: 2688,
    mlp: 11_346_176,
    attention: 584_832,
    unembed: 133_760,
  },
  "nvidia/NVIDIA-Nemotron-3.5-Super-VL-120B-A12B-BF16": {
    renderers: nemotron3Ultra,
    hiddenSize: 4096,
    mlp: 111_349_760,
    attention: 1_675_264,
    unembed: 135_168,
    ...images,
  },
  "thinkingmachines/Inkling": {
    renderers: tml,
    hiddenSize: 6144,
    mlp: 154_705_920,
    attention: 3_424_256,
    unembed: 207_168,
    ...media,
  },
  "thinkingmachines/Inkling-Small": {
    renderers: tml,
    hiddenSize: 4096,
    mlp: 64_503_808,
    attention: 1_311_744,
    unembed: 205_120,
    ...media,
  },
  [local]: {
    renderers: ["valley"],
    hiddenSize: 160,
    mlp: 9120,
    attention: 5120,
    unembed: 1184,
    contextLength: 1024,
    learningRate: 8e-3,
  },
  [localTools]: {
    renderers: ["valley_tools"],
    hiddenSize: 160,
    mlp: 9120,
    attention: 5120,
    unembed: 1184,
    contextLength: 1024,
    learningRate: 4e-3,
  },
}

/**
 * Returns a name without the variant that the service appends, such as `:peft:262144`.
 *
 * @since 0.1.0
 * @category getters
 */
export const baseName = (model: string): string => model.split(":", 1)[0] ?? model

/** How much the learning rate falls as models get wider. */
const exponents: ReadonlyArray<readonly [family: string, exponent: number]> = [
  ["llama", 0.781],
  ["qwen", 0.0775],
]

const rateOf = (name: string, { hiddenSize, learningRate }: Facts): number | undefined => {
  const exponent = exponents.find(([family]) => name.toLowerCase().includes(family))?.[1]
  return exponent === undefined ? learningRate : 5e-4 * (2000 / hiddenSize) ** exponent
}

/**
 * Finds a model, whatever its variant.
 *
 * @example
 * ```ts
 * import { Models } from "@effect-tinker/tokenizer"
 * import { Option } from "effect"
 *
 * const model = Option.getOrThrow(Models.find("zai-org/GLM-5.3:peft:262144"))
 * console.log(model.isChat, Option.getOrNull(model.context), model.renderers[0]) // → true 262144 glm5_3_max_reasoning
 * ```
 *
 * @since 0.1.0
 * @category getters
 */
export const find = (model: string): Option.Option<Model> => {
  const name = baseName(model)
  const facts = Object.hasOwn(table, name) ? table[name] : undefined
  if (facts === undefined) return Option.none()
  const named = /:(\d+)$/.exec(model)?.[1]
  return Option.some({
    ...facts,
    name,
    isChat: !facts.renderers.includes("role_colon"),
    context: Option.fromNullable(named === undefined ? facts.contextLength : Number(named)),
    rate: Option.fromNullable(rateOf(name, facts)),
  })
}
