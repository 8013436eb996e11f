/** What is known about the models of the service: facts, not choices. */

/** The width of a model, and how many parameters an adapter of rank 1 has in each kind of layer. */
export interface Model {
  readonly hiddenSize: number
  readonly mlp: number
  readonly attention: number
  readonly unembed: number
}

/** As of version 0.5.8 of the official cookbook. */
const models: Readonly<Record<string, Model>> = {
  "deepseek-ai/DeepSeek-V3.1": { hiddenSize: 7168, mlp: 94_307_328, attention: 2_440_000, unembed: 136_448 },
  "deepseek-ai/DeepSeek-V3.1-Base": { hiddenSize: 7168, mlp: 94_307_328, attention: 2_440_000, unembed: 136_448 },
  "deepseek-ai/DeepSeek-V4.1-Flash": { hiddenSize: 5120, mlp: 107_673_600, attention: 1_013_760, unembed: 134_400 },
  "deepseek-ai/DeepSeek-V4.1-Flash-1017": {
    hiddenSize: 5120,
    mlp: 107_673_600,
    attention: 1_013_760,
    unembed: 134_400,
  },
  "meta-llama/Llama-3.1-70B": { hiddenSize: 8192, mlp: 8_847_360, attention: 4_096_000, unembed: 136_448 },
  "meta-llama/Llama-3.1-8B": { hiddenSize: 4096, mlp: 1_769_472, attention: 851_968, unembed: 132_352 },
  "meta-llama/Llama-3.1-8B-Instruct": { hiddenSize: 4096, mlp: 1_769_472, attention: 851_968, unembed: 132_352 },
  "meta-llama/Llama-3.2-1B": { hiddenSize: 2048, mlp: 491_520, attention: 212_992, unembed: 130_304 },
  "meta-llama/Llama-3.2-3B": { hiddenSize: 3072, mlp: 946_176, attention: 573_440, unembed: 131_328 },
  "meta-llama/Llama-3.3-70B-Instruct": { hiddenSize: 8192, mlp: 8_847_360, attention: 4_096_000, unembed: 136_448 },
  "moonshotai/Kimi-K2-Thinking": { hiddenSize: 7168, mlp: 144_583_680, attention: 1_940_288, unembed: 171_008 },
  "moonshotai/Kimi-K2.5": { hiddenSize: 7168, mlp: 144_583_680, attention: 1_940_288, unembed: 171_008 },
  "moonshotai/Kimi-K2.6": { hiddenSize: 7168, mlp: 144_583_680, attention: 1_940_288, unembed: 171_008 },
  "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": {
    hiddenSize: 2688,
    mlp: 11_346_176,
    attention: 584_832,
    unembed: 133_760,
  },
  "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16": {
    hiddenSize: 4096,
    mlp: 111_349_760,
    attention: 1_675_264,
    unembed: 135_168,
  },
  "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16": {
    hiddenSize: 8192,
    mlp: 254_529_536,
    attention: 4_134_912,
    unembed: 139_264,
  },
  "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-BF16": {
    hiddenSize: 2688,
    mlp: 11_346_176,
    attention: 584_832,
    unembed: 133_760,
  },
  "nvidia/NVIDIA-Nemotron-3.5-Super-VL-120B-A12B-BF16": {
    hiddenSize: 4096,
    mlp: 111_349_760,
    attention: 1_675_264,
    unembed: 135_168,
  },
  "openai/gpt-oss-120b": { hiddenSize: 2880, mlp: 40_124_160, attention: 746_496, unembed: 203_968 },
  "openai/gpt-oss-20b": { hiddenSize: 2880, mlp: 6_842_880, attention: 497_664, unembed: 203_968 },
  "Qwen/Qwen3-235B-A22B-Instruct-2507": { hiddenSize: 4096, mlp: 56_598_528, attention: 3_176_448, unembed: 156_032 },
  "Qwen/Qwen3-30B-A3B": { hiddenSize: 2048, mlp: 14_450_688, attention: 835_584, unembed: 153_984 },
  "Qwen/Qwen3-30B-A3B-Base": { hiddenSize: 2048, mlp: 14_450_688, attention: 835_584, unembed: 153_984 },
  "Qwen/Qwen3-30B-A3B-Instruct-2507": { hiddenSize: 2048, mlp: 14_450_688, attention: 835_584, unembed: 153_984 },
  "Qwen/Qwen3-32B": { hiddenSize: 5120, mlp: 5_898_240, attention: 2_490_368, unembed: 157_056 },
  "Qwen/Qwen3-4B-Instruct-2507": { hiddenSize: 2560, mlp: 1_327_104, attention: 737_280, unembed: 154_496 },
  "Qwen/Qwen3-8B": { hiddenSize: 4096, mlp: 1_769_472, attention: 958_464, unembed: 156_032 },
  "Qwen/Qwen3-8B-Base": { hiddenSize: 4096, mlp: 1_769_472, attention: 958_464, unembed: 156_032 },
  "Qwen/Qwen3-VL-235B-A22B-Instruct": { hiddenSize: 4096, mlp: 56_598_528, attention: 3_176_448, unembed: 156_032 },
  "Qwen/Qwen3-VL-30B-A3B-Instruct": { hiddenSize: 2048, mlp: 14_450_688, attention: 835_584, unembed: 153_984 },
  "Qwen/Qwen3.5-27B": { hiddenSize: 5120, mlp: 4_325_376, attention: 2_965_504, unembed: 253_440 },
  "Qwen/Qwen3.5-35B-A3B": { hiddenSize: 2048, mlp: 16_281_600, attention: 1_013_760, unembed: 250_368 },
  "Qwen/Qwen3.5-35B-A3B-Base": { hiddenSize: 2048, mlp: 16_281_600, attention: 1_013_760, unembed: 250_368 },
  "Qwen/Qwen3.5-397B-A17B": { hiddenSize: 4096, mlp: 96_030_720, attention: 2_841_600, unembed: 252_416 },
  "Qwen/Qwen3.5-4B": { hiddenSize: 2560, mlp: 1_130_496, attention: 897_024, unembed: 250_880 },
  "Qwen/Qwen3.5-9B": { hiddenSize: 4096, mlp: 1_572_864, attention: 1_130_496, unembed: 252_416 },
  "Qwen/Qwen3.5-9B-Base": { hiddenSize: 4096, mlp: 1_572_864, attention: 1_130_496, unembed: 252_416 },
  "Qwen/Qwen3.6-27B": { hiddenSize: 5120, mlp: 4_325_376, attention: 2_965_504, unembed: 253_440 },
  "Qwen/Qwen3.6-35B-A3B": { hiddenSize: 2048, mlp: 16_281_600, attention: 1_013_760, unembed: 250_368 },
  "Qwen/Qwen3.8-27B": { hiddenSize: 5120, mlp: 4_325_376, attention: 2_965_504, unembed: 253_440 },
  "thinkingmachines/Inkling": { hiddenSize: 6144, mlp: 154_705_920, attention: 3_424_256, unembed: 207_168 },
  "thinkingmachines/Inkling-Small": { hiddenSize: 4096, mlp: 64_503_808, attention: 1_311_744, unembed: 205_120 },
  "zai-org/GLM-5.3": { hiddenSize: 6144, mlp: 121_356_288, attention: 2_920_320, unembed: 161_024 },
  "zai-org/GLM-5.3-Flash": { hiddenSize: 4096, mlp: 75_755_520, attention: 2_009_088, unembed: 158_976 },
}

/** The names of the models. */
export const names: ReadonlyArray<string> = Object.keys(models)

/** Returns a name without the variant that the service appends, e.g. `:peft:262144`. */
export const baseName = (model: string): string => model.split(":", 1)[0] ?? model

/** Returns what is known about a model, whatever its variant. */
export const find = (model: string): Model | undefined => {
  const name = baseName(model)
  return Object.hasOwn(models, name) ? models[name] : undefined
}
