/**
 * Lists the available renderers and chooses one for a model.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import type * as Scope from "effect/Scope"
import type { InvalidInput } from "effect-tinker/TinkerError"
import * as Models from "./Models.ts"
import type { Renderer } from "./Renderer.ts"
import { RendererError } from "./RendererError.ts"
import * as DeepSeekV3 from "./renderers/DeepSeekV3.ts"
import * as DeepSeekV41 from "./renderers/DeepSeekV41.ts"
import * as Glm53 from "./renderers/Glm53.ts"
import * as GptOss from "./renderers/GptOss.ts"
import * as Kimi from "./renderers/Kimi.ts"
import * as Llama3 from "./renderers/Llama3.ts"
import * as Nemotron3 from "./renderers/Nemotron3.ts"
import * as Qwen3 from "./renderers/Qwen3.ts"
import * as Qwen35 from "./renderers/Qwen35.ts"
import * as Qwen38 from "./renderers/Qwen38.ts"
import * as Qwen3Vl from "./renderers/Qwen3Vl.ts"
import * as RoleColon from "./renderers/RoleColon.ts"
import * as Tml from "./renderers/Tml.ts"
import * as Valley from "./renderers/Valley.ts"
import * as ValleyTools from "./renderers/ValleyTools.ts"
import type * as Tokenizer from "./Tokenizer.ts"
import { TokenizerBackend } from "./TokenizerBackend.ts"
import type { TokenizerError } from "./TokenizerError.ts"
import * as TokenizerFiles from "./TokenizerFiles.ts"
import { Tokenizers } from "./Tokenizers.ts"

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

/**
 * The default table.
 *
 * @since 0.1.0
 * @category models
 */
export const table: Table = {
  version: Models.version,
  models: Object.fromEntries(Object.entries(Models.table).map(([name, { renderers }]) => [name, renderers])),
  later: {},
}

type Make = (tokenizer: Tokenizer.Service) => Effect.Effect<Renderer, RendererError>

const makers = {
  role_colon: RoleColon.make,
  llama3: Llama3.make,
  qwen3: (tokenizer) => Qwen3.make(tokenizer),
  qwen3_disable_thinking: (tokenizer) => Qwen3.make(tokenizer, { mode: "disabled" }),
  qwen3_instruct: (tokenizer) => Qwen3.make(tokenizer, { mode: "instruct" }),
  qwen3_vl: (tokenizer) => Qwen3Vl.make(tokenizer),
  qwen3_vl_instruct: (tokenizer) => Qwen3Vl.make(tokenizer, { instruct: true }),
  qwen3_5: (tokenizer) => Qwen35.make(tokenizer),
  qwen3_5_disable_thinking: (tokenizer) => Qwen35.make(tokenizer, { mode: "disabled" }),
  qwen3_5_preserve_thinking: (tokenizer) => Qwen35.make(tokenizer, { mode: "preserved" }),
  qwen3_8_xhigh_reasoning: (tokenizer) => Qwen38.make(tokenizer),
  qwen3_8_medium_reasoning: (tokenizer) => Qwen38.make(tokenizer, { effort: "medium" }),
  qwen3_8_low_reasoning: (tokenizer) => Qwen38.make(tokenizer, { effort: "low" }),
  qwen3_8_disable_thinking: (tokenizer) => Qwen38.make(tokenizer, { effort: "disabled" }),
  nemotron3: (tokenizer) => Nemotron3.make(tokenizer),
  nemotron3_low_thinking: (tokenizer) => Nemotron3.make(tokenizer, { mode: "reduced" }),
  nemotron3_disable_thinking: (tokenizer) => Nemotron3.make(tokenizer, { mode: "disabled" }),
  nemotron3_preserve_thinking: (tokenizer) => Nemotron3.make(tokenizer, { mode: "preserved" }),
  nemotron3_ultra: (tokenizer) => Nemotron3.make(tokenizer, { ultra: true }),
  nemotron3_ultra_disable_thinking: (tokenizer) => Nemotron3.make(tokenizer, { ultra: true, mode: "disabled" }),
  nemotron3_ultra_medium_thinking: (tokenizer) => Nemotron3.make(tokenizer, { ultra: true, mode: "reduced" }),
  nemotron3_ultra_preserve_thinking: (tokenizer) => Nemotron3.make(tokenizer, { ultra: true, mode: "preserved" }),
  deepseekv3: (tokenizer) => DeepSeekV3.make(tokenizer),
  deepseekv3_disable_thinking: (tokenizer) => DeepSeekV3.make(tokenizer, { name: "deepseekv3_disable_thinking" }),
  deepseekv3_thinking: (tokenizer) => DeepSeekV3.make(tokenizer, { thinking: true }),
  deepseekv4_1: (tokenizer) => DeepSeekV41.make(tokenizer),
  deepseekv4_1_low_reasoning: (tokenizer) => DeepSeekV41.make(tokenizer, { mode: "low" }),
  deepseekv4_1_max_reasoning: (tokenizer) => DeepSeekV41.make(tokenizer, { mode: "max" }),
  deepseekv4_1_disable_thinking: (tokenizer) => DeepSeekV41.make(tokenizer, { mode: "disabled" }),
  deepseekv4_1_preserve_thinking: (tokenizer) => DeepSeekV41.make(tokenizer, { mode: "preserved" }),
  glm5_3_max_reasoning: (tokenizer) => Glm53.make(tokenizer),
  glm5_3_low_reasoning: (tokenizer) => Glm53.make(tokenizer, { effort: "low" }),
  glm5_3_high_reasoning: (tokenizer) => Glm53.make(tokenizer, { effort: "high" }),
  kimi_k2: (tokenizer) => Kimi.make(tokenizer, { version: "k2" }),
  kimi_k25: (tokenizer) => Kimi.make(tokenizer, { version: "k25" }),
  kimi_k25_disable_thinking: (tokenizer) => Kimi.make(tokenizer, { version: "k25", mode: "disabled" }),
  kimi_k26: (tokenizer) => Kimi.make(tokenizer, { version: "k26" }),
  kimi_k26_disable_thinking: (tokenizer) => Kimi.make(tokenizer, { version: "k26", mode: "disabled" }),
  kimi_k26_preserve_thinking: (tokenizer) => Kimi.make(tokenizer, { version: "k26", mode: "preserved" }),
  gpt_oss_no_sysprompt: (tokenizer) => GptOss.make(tokenizer),
  gpt_oss_low_reasoning: (tokenizer) => GptOss.make(tokenizer, { reasoningEffort: "low" }),
  gpt_oss_medium_reasoning: (tokenizer) => GptOss.make(tokenizer, { reasoningEffort: "medium" }),
  gpt_oss_high_reasoning: (tokenizer) => GptOss.make(tokenizer, { reasoningEffort: "high" }),
  tml_v0: (tokenizer) => Tml.make(tokenizer),
  valley: (tokenizer) => Valley.make(tokenizer),
  valley_tools: (tokenizer) => ValleyTools.make(tokenizer),
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
  const name = Models.baseName(model)
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

/**
 * A model with its tokenizer and its recommended renderer.
 *
 * @since 0.1.0
 * @category models
 */
export interface Loaded {
  readonly model: Models.Model
  readonly tokenizer: Tokenizer.Service
  readonly renderer: Renderer
}

const found = (model: string): Either.Either<Models.Model, RendererError> =>
  Either.fromOption(
    Models.find(model),
    () =>
      new RendererError({
        reason: "Unknown",
        renderer: model,
        problem: "the model is not in the table; load its tokenizer and choose a renderer by name",
      }),
  )

/**
 * Loads the tokenizer of a model and creates its recommended renderer.
 *
 * @since 0.1.0
 * @category constructors
 */
export const load = (
  model: string,
): Effect.Effect<Loaded, RendererError | InvalidInput | TokenizerError, Tokenizers | Scope.Scope> =>
  Effect.gen(function* () {
    const known = yield* found(model)
    const tokenizer = yield* (yield* Tokenizers).forModel({ model })
    return { model: known, tokenizer, renderer: yield* forModel(model, tokenizer) }
  })

function shipped(name: string, files: TokenizerFiles.TokenizerFiles) {
  return Effect.gen(function* () {
    const tokenizer = yield* (yield* TokenizerBackend).make(files)
    return { model: yield* found(name), tokenizer, renderer: yield* forModel(name, tokenizer) } satisfies Loaded
  })
}

/**
 * Loads the model that ships with `@effect-tinker/engine`: its facts, its tokenizer and its renderer. Needs no files and
 * no network.
 *
 * @example
 * ```ts
 * import { Message, Renderers, TokenizerBackend } from "@effect-tinker/tokenizer"
 * import { Console, Effect } from "effect"
 *
 * const program = Effect.gen(function* () {
 *   const { model, renderer, tokenizer } = yield* Renderers.local
 *   const prompt = yield* renderer.generationPrompt([Message.user("What is 2 + 3?")])
 *   for (const chunk of prompt.chunks) {
 *     if (chunk.type === "encoded_text") yield* Console.log(JSON.stringify(yield* tokenizer.decode(chunk.tokens)))
 *     // → "<|turn|>user\nWhat is 2 + 3?<|end|>\n<|turn|>assistant\n"
 *   }
 *   yield* Console.log(model.name, model.contextLength) // → effect-tinker/valley-1.5m 1024
 * })
 *
 * await Effect.runPromise(program.pipe(Effect.provide(TokenizerBackend.layer)))
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const local: Effect.Effect<Loaded, RendererError | TokenizerError, TokenizerBackend> = shipped(
  Models.local,
  TokenizerFiles.local,
)

/**
 * Loads the model with tools that ships with `@effect-tinker/engine`, as {@link local}.
 *
 * @since 0.1.0
 * @category constructors
 */
export const localTools: Effect.Effect<Loaded, RendererError | TokenizerError, TokenizerBackend> = shipped(
  Models.localTools,
  TokenizerFiles.localTools,
)
