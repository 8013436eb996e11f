/**
 * Lists the available renderers and chooses one for a model.
 *
 * @since 0.1.0
 */
import type * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import type { Renderer } from "./Renderer.ts"
import { RendererError } from "./RendererError.ts"
import * as GptOss from "./renderers/GptOss.ts"
import * as Llama3 from "./renderers/Llama3.ts"
import * as Qwen3 from "./renderers/Qwen3.ts"
import * as RoleColon from "./renderers/RoleColon.ts"
import type * as Tokenizer from "./Tokenizer.ts"

/**
 * The data behind the choice. Pass your own table to support models that are newer than this package.
 *
 * @since 0.1.0
 * @category models
 */
export interface Table {
  /** The release of the reference implementation that the table was taken from. */
  readonly version: string
  /** The renderers made for each model, the recommended one first. */
  readonly models: Readonly<Record<string, ReadonlyArray<string>>>
  /** Renderers of the reference that are missing here: name prefix to family name. */
  readonly later: Readonly<Record<string, string>>
}

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

/**
 * The default table.
 *
 * @since 0.1.0
 * @category models
 */
export const table: Table = {
  version: "0.5.8",
  models: {
    "meta-llama/Llama-3.1-8B-Instruct": llama3,
    "meta-llama/Llama-3.2-1B": roleColon,
    "meta-llama/Llama-3.2-3B": roleColon,
    "meta-llama/Llama-3.1-8B": roleColon,
    "meta-llama/Llama-3.1-70B": roleColon,
    "meta-llama/Llama-3.3-70B-Instruct": llama3,
    "Qwen/Qwen3-VL-30B-A3B-Instruct": qwen3VlInstruct,
    "Qwen/Qwen3-VL-235B-A22B-Instruct": qwen3VlInstruct,
    "Qwen/Qwen3-8B-Base": roleColon,
    "Qwen/Qwen3-30B-A3B-Base": roleColon,
    "Qwen/Qwen3-8B": qwen3,
    "Qwen/Qwen3-32B": qwen3,
    "Qwen/Qwen3-30B-A3B": qwen3,
    "Qwen/Qwen3-4B-Instruct-2507": qwen3Instruct,
    "Qwen/Qwen3-30B-A3B-Instruct-2507": qwen3Instruct,
    "Qwen/Qwen3-235B-A22B-Instruct-2507": qwen3Instruct,
    "Qwen/Qwen3.5-4B": qwen35,
    "Qwen/Qwen3.5-9B": qwen35,
    "Qwen/Qwen3.5-9B-Base": roleColon,
    "Qwen/Qwen3.5-27B": qwen35,
    "Qwen/Qwen3.5-35B-A3B": qwen35,
    "Qwen/Qwen3.5-35B-A3B-Base": roleColon,
    "Qwen/Qwen3.5-397B-A17B": qwen35,
    "Qwen/Qwen3.6-27B": qwen35,
    "Qwen/Qwen3.6-35B-A3B": qwen35,
    "Qwen/Qwen3.8-27B": qwen38,
    "deepseek-ai/DeepSeek-V3.1": deepseekV3,
    "deepseek-ai/DeepSeek-V3.1-Base": roleColon,
    "deepseek-ai/DeepSeek-V4.1-Flash": deepseekV41,
    "deepseek-ai/DeepSeek-V4.1-Flash-1017": deepseekV41,
    "openai/gpt-oss-20b": gptOss,
    "openai/gpt-oss-120b": gptOss,
    "moonshotai/Kimi-K2-Thinking": kimiK2,
    "moonshotai/Kimi-K2.5": kimiK25,
    "moonshotai/Kimi-K2.6": kimiK26,
    "zai-org/GLM-5.3": glm53,
    "zai-org/GLM-5.3-Flash": glm53,
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": nemotron3,
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16": nemotron3Super,
    "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16": nemotron3Ultra,
    "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-BF16": nemotron3Lightning,
    "nvidia/NVIDIA-Nemotron-3.5-Super-VL-120B-A12B-BF16": nemotron3Ultra,
    "thinkingmachines/Inkling": tml,
    "thinkingmachines/Inkling-Small": tml,
  },
  later: {
    qwen3_vl: "Qwen3-VL",
    qwen3_5: "Qwen3.5",
    qwen3_8: "Qwen3.8",
    deepseekv3: "DeepSeek V3",
    deepseekv4_1: "DeepSeek V4.1",
    glm5_3: "GLM-5.3",
    kimi_k2: "Kimi K2",
    nemotron3: "Nemotron 3",
    tml_v0: "TML",
  },
}

type Make = (tokenizer: Tokenizer.Service) => Effect.Effect<Renderer, RendererError>

const makers = {
  role_colon: RoleColon.make,
  llama3: Llama3.make,
  qwen3: (tokenizer) => Qwen3.make(tokenizer),
  qwen3_disable_thinking: (tokenizer) => Qwen3.make(tokenizer, { mode: "disabled" }),
  qwen3_instruct: (tokenizer) => Qwen3.make(tokenizer, { mode: "instruct" }),
  gpt_oss_no_sysprompt: (tokenizer) => GptOss.make(tokenizer),
  gpt_oss_low_reasoning: (tokenizer) => GptOss.make(tokenizer, { reasoningEffort: "low" }),
  gpt_oss_medium_reasoning: (tokenizer) => GptOss.make(tokenizer, { reasoningEffort: "medium" }),
  gpt_oss_high_reasoning: (tokenizer) => GptOss.make(tokenizer, { reasoningEffort: "high" }),
} satisfies Record<string, Make>

/**
 * The name of an available renderer.
 *
 * @since 0.1.0
 * @category models
 */
export type Name = keyof typeof makers

/**
 * The names of all available renderers.
 *
 * @since 0.1.0
 * @category models
 */
export const names: ReadonlyArray<Name> = Object.keys(makers) as ReadonlyArray<Name>

const isName = (name: string): name is Name => Object.hasOwn(makers, name)

const check = (name: string, by: Table): Either.Either<Name, RendererError> => {
  if (isName(name)) return Either.right(name)
  const family = Object.entries(by.later).find(([prefix]) => name.startsWith(prefix))?.[1]
  return Either.left(
    family === undefined
      ? new RendererError({
          reason: "Unknown",
          renderer: name,
          problem: `unknown renderer; available renderers: ${names.join(", ")}`,
        })
      : new RendererError({
          reason: "NotYet",
          renderer: name,
          problem: `renderers for ${family} are not implemented yet; try one built from the model's chat template (renderers/Generic)`,
        }),
  )
}

/** Removes the suffix after a colon, which is not part of the model's name. */
const cut = (model: string) => model.split(":", 1)[0] ?? ""

/**
 * Returns the names of the renderers made for a model, the recommended one first. Some may not be implemented yet.
 *
 * @example
 * ```ts
 * import { Renderers } from "@effect-tinker/tokenizer"
 * import { Either } from "effect"
 *
 * console.log(Either.getOrThrow(Renderers.recommended("Qwen/Qwen3-8B"))) // → [ 'qwen3', 'qwen3_disable_thinking' ]
 * ```
 *
 * @since 0.1.0
 * @category getters
 */
export const recommended = (model: string, by: Table = table): Either.Either<ReadonlyArray<string>, RendererError> => {
  const name = cut(model)
  const known = Object.hasOwn(by.models, name) ? by.models[name] : undefined
  return known === undefined
    ? Either.left(
        new RendererError({
          reason: "Unknown",
          renderer: model,
          problem: "no known renderer for this model; choose one by name or build one from its chat template",
        }),
      )
    : Either.right(known)
}

/**
 * Returns whether a renderer was made for a model, or `undefined` if the model is unknown.
 *
 * @since 0.1.0
 * @category getters
 */
export const fits = (model: string, name: string, by: Table = table): boolean | undefined =>
  Either.match(recommended(model, by), {
    onLeft: () => undefined,
    onRight: (known) =>
      known.includes(name) ||
      // All reasoning efforts suit the same models, whichever is recommended.
      (name.startsWith("gpt_oss_") && known.some((one) => one.startsWith("gpt_oss_"))),
  })

/**
 * Creates a renderer by name.
 *
 * @example
 * ```ts
 * import { ModelFiles } from "@effect-tinker/engine"
 * import { Message, Renderers, TokenizerBackend, TokenizerFiles } from "@effect-tinker/tokenizer"
 * import { NodeContext } from "@effect/platform-node"
 * import { Console, Effect, Layer } from "effect"
 *
 * const program = Effect.gen(function* () {
 *   // The tokenizer of the model that ships with the engine. `Tokenizers.forModel` downloads that of any other model.
 *   const backend = yield* TokenizerBackend.TokenizerBackend
 *   const tokenizer = yield* backend.make(yield* TokenizerFiles.fromDirectory(yield* ModelFiles.shipped))
 *
 *   const renderer = yield* Renderers.byName("role_colon", tokenizer)
 *   const prompt = yield* renderer.generationPrompt([Message.user("What is 2 + 3?")])
 *   for (const chunk of prompt.chunks) {
 *     if (chunk.type === "encoded_text") yield* Console.log(JSON.stringify(yield* tokenizer.decode(chunk.tokens)))
 *     // → "User: What is 2 + 3?\n\nAssistant:"
 *   }
 * })
 *
 * const layer = Layer.merge(TokenizerBackend.layer, NodeContext.layer)
 *
 * await Effect.runPromise(program.pipe(Effect.scoped, Effect.provide(layer)))
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const byName = (
  name: Name | (string & {}),
  tokenizer: Tokenizer.Service,
  by: Table = table,
): Effect.Effect<Renderer, RendererError> =>
  Either.match(check(name, by), { onLeft: (error) => error, onRight: (known) => makers[known](tokenizer) })

/**
 * Creates the recommended renderer of a model. Fails with `NotYet` if its family is not implemented yet.
 *
 * @since 0.1.0
 * @category constructors
 */
export const forModel = (
  model: string,
  tokenizer: Tokenizer.Service,
  by: Table = table,
): Effect.Effect<Renderer, RendererError> =>
  Either.match(recommended(model, by), {
    onLeft: (error) => error,
    onRight: ([first = ""]) => byName(first, tokenizer, by),
  })
