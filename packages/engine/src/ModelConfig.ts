/**
 * Reads the shape of a Llama or Qwen3 model from a Hugging Face `config.json`.
 *
 * @since 0.1.0
 */
import * as Either from "effect/Either"
import { EngineError } from "./EngineError.ts"

/**
 * The shape of a model.
 *
 * @since 0.1.0
 * @category models
 */
export interface ModelConfig {
  readonly vocabSize: number
  readonly hiddenSize: number
  readonly intermediateSize: number
  readonly layers: number
  readonly heads: number
  readonly kvHeads: number
  readonly headDim: number
  readonly maxPositions: number
  readonly ropeTheta: number
  readonly normEps: number
  /** Whether the unembedding is the same matrix as the embedding. */
  readonly tied: boolean
  /** Whether each head of queries and keys is normalized (Qwen3). */
  readonly qkNorm: boolean
  /** The default stop tokens of sampling. */
  readonly eosTokens: ReadonlyArray<number>
}

const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value)

const invalid = (problem: string) => Either.left(new EngineError({ reason: "InvalidModel", problem }))
const unsupported = (problem: string) => Either.left(new EngineError({ reason: "Unsupported", problem }))

/**
 * Reads a parsed `config.json`. Rejects settings under which the model would compute something this engine does not.
 *
 * @since 0.1.0
 * @category constructors
 */
export const fromJson = (json: unknown): Either.Either<ModelConfig, EngineError> => {
  if (!isRecord(json)) return invalid("config.json is not an object")
  const type = json["model_type"]
  if (type !== "llama" && type !== "qwen3") {
    return unsupported(`model_type ${JSON.stringify(type)}: only llama and qwen3 are supported`)
  }
  const rope = isRecord(json["rope_parameters"]) ? json["rope_parameters"] : json
  const scaling = isRecord(json["rope_scaling"]) ? json["rope_scaling"] : rope
  const ropeType = scaling["rope_type"] ?? scaling["type"] ?? "default"
  if (ropeType !== "default") return unsupported(`rope_type ${JSON.stringify(ropeType)}: only default is supported`)
  for (const key of ["attention_bias", "mlp_bias", "use_sliding_window"]) {
    if (json[key] === true) return unsupported(`${key} is not supported`)
  }
  if ((json["hidden_act"] ?? "silu") !== "silu")
    return unsupported(`hidden_act ${JSON.stringify(json["hidden_act"])}: only silu is supported`)

  const problems: Array<string> = []
  const count = (key: string, otherwise?: number): number => {
    const value = json[key] ?? otherwise
    if (typeof value === "number" && Number.isSafeInteger(value) && value > 0) return value
    problems.push(`${key}: expected a positive integer, got ${JSON.stringify(value)}`)
    return 1
  }
  const positive = (value: unknown, key: string): number => {
    if (typeof value === "number" && value > 0 && Number.isFinite(value)) return value
    problems.push(`${key}: expected a positive number, got ${JSON.stringify(value)}`)
    return 1
  }
  const heads = count("num_attention_heads")
  const hiddenSize = count("hidden_size")
  const eos = json["eos_token_id"]
  const config: ModelConfig = {
    vocabSize: count("vocab_size"),
    hiddenSize,
    intermediateSize: count("intermediate_size"),
    layers: count("num_hidden_layers"),
    heads,
    kvHeads: count("num_key_value_heads", heads),
    headDim: count("head_dim", hiddenSize / heads),
    maxPositions: count("max_position_embeddings", 2048),
    ropeTheta: positive(rope["rope_theta"] ?? json["rope_theta"] ?? 10_000, "rope_theta"),
    normEps: positive(json["rms_norm_eps"] ?? 1e-6, "rms_norm_eps"),
    tied: json["tie_word_embeddings"] === true,
    qkNorm: type === "qwen3",
    eosTokens: (Array.isArray(eos) ? eos : [eos]).filter((id): id is number => Number.isSafeInteger(id)),
  }
  if (config.heads % config.kvHeads !== 0) problems.push("num_key_value_heads does not divide num_attention_heads")
  if (config.headDim % 2 !== 0) problems.push("head_dim is odd")
  return problems.length > 0 ? invalid(`config.json: ${problems.join("; ")}`) : Either.right(config)
}
