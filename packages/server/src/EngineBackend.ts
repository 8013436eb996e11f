/**
 * Runs the embedded engine as a server backend. It computes on the calling thread; `EngineHost` runs it on a separate
 * one.
 *
 * @since 0.1.0
 */
import * as Engine from "@effect-tinker/engine/Engine"
import type { EngineError } from "@effect-tinker/engine/EngineError"
import * as Losses from "@effect-tinker/engine/Losses"
import * as ModelConfig from "@effect-tinker/engine/ModelConfig"
import * as ModelFiles from "@effect-tinker/engine/ModelFiles"
import * as ChatTemplate from "@effect-tinker/tokenizer/ChatTemplate"
import * as Message from "@effect-tinker/tokenizer/Message"
import type { Renderer } from "@effect-tinker/tokenizer/Renderer"
import type { RendererError } from "@effect-tinker/tokenizer/RendererError"
import * as Generic from "@effect-tinker/tokenizer/renderers/Generic"
import type { TemplateError } from "@effect-tinker/tokenizer/TemplateError"
import type * as Tokenizer from "@effect-tinker/tokenizer/Tokenizer"
import * as TokenizerBackend from "@effect-tinker/tokenizer/TokenizerBackend"
import * as FileSystem from "@effect/platform/FileSystem"
import * as Path from "@effect/platform/Path"
import { SystemError } from "@effect/platform/Error"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Layer from "effect/Layer"
import * as Runtime from "effect/Runtime"
import { existsSync } from "node:fs"
import { readFile } from "node:fs/promises"
import { setImmediate } from "node:timers/promises"
import type { ModelInput } from "effect-tinker/ModelInput"
import {
  type AdapterConfig,
  type Backend,
  type BaseModel,
  type ChatMessage,
  Invalid,
  type ToolCall,
  type Topk,
} from "./ModelHost.ts"

/**
 * Names a model to serve and the Hugging Face model directory to load it from. Without a directory, a model that ships
 * with the engine is loaded: the one with tools if it is named, otherwise the other.
 *
 * @since 0.1.0
 * @category models
 */
export interface ModelSource {
  readonly name: string
  readonly directory?: string | undefined
  /** Loads the model when it is first used instead of at the start. Default: false. */
  readonly isLazy?: boolean | undefined
}

/**
 * Lists the models that a backend loads.
 *
 * @since 0.1.0
 * @category models
 */
export interface EngineData {
  readonly models: ReadonlyArray<ModelSource>
}

/**
 * The model that ships with the engine.
 *
 * @since 0.1.0
 * @category constants
 */
export const shipped: ModelSource = { name: ModelFiles.shippedName }

/**
 * The model with tools that ships with the engine. It is loaded when it is first used.
 *
 * @since 0.1.0
 * @category constants
 */
export const shippedTools: ModelSource = { name: ModelFiles.shippedToolsName, isLazy: true }

interface Loaded {
  readonly base: BaseModel
  readonly open: () => Promise<Opened>
}

interface Opened {
  readonly name: string
  readonly engine: Engine.Engine
  readonly tokenizer: Tokenizer.Service | undefined
  /** A chat template that cannot be used does not prevent the model from being served. */
  readonly chat: Either.Either<Chat, RendererError | TemplateError> | undefined
}

/** How conversations are rendered for a model and its answers parsed. */
interface Chat {
  readonly renderer: Renderer
  readonly withTools: (tools: ReadonlyArray<Message.ToolSpec>) => Effect.Effect<Renderer, RendererError | TemplateError>
  /** The token that ends an answer. */
  readonly stop: number
  readonly supportsTools: boolean
  /** Whether thinking and tool calls are marked in the answers. */
  readonly isTagged: boolean
}

const failed = (method: string, path: string) => (cause: unknown) =>
  new SystemError({ module: "FileSystem", method, pathOrDescriptor: path, reason: "Unknown", cause })

/** A minimal read-only file system. */
const files = FileSystem.layerNoop({
  exists: (path) => Effect.sync(() => existsSync(path)),
  readFile: (path) => Effect.tryPromise({ try: () => readFile(path), catch: failed("readFile", path) }),
  readFileString: (path) =>
    Effect.tryPromise({ try: () => readFile(path, "utf8"), catch: failed("readFileString", path) }),
})

const archOf = (config: unknown): string => {
  const names: unknown =
    typeof config === "object" && config !== null ? Reflect.get(config, "architectures") : undefined
  return Array.isArray(names) ? String(names[0]) : "unknown"
}

/** Opens a model. The portable tokenizer decodes synchronously, which the engine needs between two tokens. */
const open = (name: string, directory: string) =>
  Effect.gen(function* () {
    const read = yield* ModelFiles.read(directory)
    const engine = yield* Engine.make(read)
    const backend = yield* TokenizerBackend.TokenizerBackend
    const tokenizer =
      read.tokenizer === undefined
        ? undefined
        : yield* backend.make({ name, tokenizer: read.tokenizer, config: read.tokenizerConfig })
    const chat = tokenizer && (yield* Effect.either(chatWith(tokenizer, engine.config.eosTokens)))
    return { name, engine, tokenizer, chat } satisfies Opened
  })

/** Reads the facts about a model, and opens it at the latest when it is first used. */
const load = (source: ModelSource) =>
  Effect.gen(function* () {
    const { isLazy = false, name } = source
    const isShippedTools = name === ModelFiles.shippedToolsName
    const directory = source.directory ?? (yield* isShippedTools ? ModelFiles.shippedTools : ModelFiles.shipped)
    const json = yield* ModelFiles.config(directory)
    const config = yield* ModelConfig.fromJson(json)
    const base: BaseModel = {
      name,
      arch: archOf(json),
      vocabSize: config.vocabSize,
      maxContextLength: config.maxPositions,
      maxRank: 256,
      tokenizerId: name,
      endTokens: config.eosTokens,
      losses: Losses.names,
      optimizers: ["adamw", "dimuon"],
    }
    const runtime = yield* Effect.runtime<FileSystem.FileSystem | Path.Path | TokenizerBackend.TokenizerBackend>()
    let opened = isLazy ? undefined : Promise.resolve(yield* open(name, directory))
    return { base, open: () => (opened ??= Runtime.runPromise(runtime, open(name, directory))) } satisfies Loaded
  })

const chatWith = (tokenizer: Tokenizer.Service, endTokens: ReadonlyArray<number>) =>
  Effect.gen(function* () {
    const template = yield* ChatTemplate.fromTokenizer(tokenizer)
    // Falls back to the model's end token if the template does not define what ends an answer.
    const end = tokenizer.specialTokens.all.find(({ id }) => id === endTokens[0])?.content
    const withTools = (tools?: ReadonlyArray<Message.ToolSpec>) =>
      Effect.catchTag(Generic.make(tokenizer, { template, tools }), "RendererError", (error) =>
        end === undefined ? error : Generic.make(tokenizer, { template, tools, stop: end }),
      )
    const renderer = yield* withTools()
    const calls = template.source.includes("<tool_call>")
    return {
      renderer,
      withTools,
      stop: Number(renderer.stopSequences[0]),
      supportsTools: calls && /\btools\b/.test(template.source),
      isTagged: calls || template.source.includes("<think>"),
    } satisfies Chat
  })

/**
 * Throws engine failures (out of memory, invalid model) as they are, and all others as `Invalid`, the caller's mistake.
 */
const value = <A>(result: Either.Either<A, EngineError>): A =>
  Either.getOrThrowWith(result, (error) =>
    error.reason === "OutOfMemory" || error.reason === "InvalidModel" ? error : new Invalid(error.message),
  )

const optionsOf = ({ rank, seed, trainAttn, trainMlp, trainUnembed }: AdapterConfig): Engine.AdapterOptions => ({
  rank,
  seed,
  trainAttn,
  trainMlp,
  trainUnembed,
})

const emptyCell = -99999

const topkOf = (
  topk: { readonly k: number; readonly tokenIds: Int32Array; readonly logprobs: Float32Array } | undefined,
): Topk | undefined =>
  topk && {
    k: topk.k,
    tokenIds: topk.tokenIds,
    logprobs: topk.logprobs.map((logprob) => (logprob === emptyCell ? Number.NaN : logprob)),
  }

const toMessage = ({ content, name, reasoning, role, toolCallId, toolCalls }: ChatMessage): Message.Message => ({
  role,
  content: reasoning === undefined ? content : [Message.thinking(reasoning), Message.text(content)],
  ...(toolCalls !== undefined && { toolCalls }),
  ...(toolCallId !== undefined && { toolCallId }),
  ...(name !== undefined && { name }),
})

const tokensOf = ({ chunks }: ModelInput): Int32Array =>
  Int32Array.from(chunks.flatMap((chunk) => (chunk.type === "encoded_text" ? [...chunk.tokens] : [])))

/** Runs an effect and throws its failure, converted by `toInvalid`. */
const run = async <A, E>(effect: Effect.Effect<A, E>, toInvalid: (error: E) => Invalid): Promise<A> => {
  const result = await Effect.runPromise(Effect.either(effect))
  if (Either.isLeft(result)) throw toInvalid(result.left)
  return result.right
}

const make = (loaded: ReadonlyArray<Loaded>): Backend => {
  const byName = new Map(loaded.map((one) => [one.base.name, one]))
  const homes = new Map<string, Opened>()
  const samplers = new Map<string, { readonly home: Opened; readonly adapter: string | undefined }>()
  const known = (name: string): Loaded => {
    const one = byName.get(name)
    if (one === undefined) throw new Invalid(`model ${name} is not served by this server`)
    return one
  }
  const model = async (name: string): Promise<Opened> => known(name).open()
  const home = (id: string): Engine.Engine => {
    const one = homes.get(id)
    if (one === undefined) throw new Invalid(`model ${id} not found`)
    return one.engine
  }
  const texts = async (name: string): Promise<Tokenizer.Service> => {
    const { tokenizer } = await model(name)
    if (tokenizer === undefined) throw new Invalid(`${name} has no tokenizer; send token ids instead of text`)
    return tokenizer
  }

  const chatOf = async (name: string): Promise<Chat> => {
    const { chat } = await model(name)
    if (chat === undefined)
      throw new Invalid(`${name} has no tokenizer and therefore no chat template; use completions with token ids`)
    if (Either.isLeft(chat))
      throw new Invalid(`${name} does not support chat: ${chat.left.message}. Use completions instead`)
    return chat.right
  }

  return {
    models: loaded.map(({ base }) => base),
    create: async (id, config) => {
      const one = await model(config.baseModel)
      value(one.engine.createAdapter(id, optionsOf(config)))
      homes.set(id, one)
    },
    drop: (id) => {
      const one = homes.get(id)
      if (one === undefined) return
      homes.delete(id)
      value(one.engine.dropAdapter(id))
    },
    pass: (id, { config, examples, forwardOnly, loss }) => {
      const engine = home(id)
      const run = forwardOnly ? engine.forward : engine.forwardBackward
      const { metrics, outputs } = value(run(id, examples, { name: loss, config }))
      return {
        outputs: outputs.map(({ columns, elementwiseLoss, logprobs }) => {
          const shape = columns === 1 ? [logprobs.length] : [logprobs.length / columns, columns]
          return {
            logprobs: { data: logprobs, shape },
            elementwise_loss: { data: elementwiseLoss, shape },
          }
        }),
        metrics,
      }
    },
    step: (id, update) => {
      const { gradNorm, step } = value(home(id).optimStep(id, update))
      return { "grad_norm:unique": gradNorm, "step:unique": step }
    },
    save: (id, optimizer) => value(home(id).saveAdapter(id, { optimizer })),
    restore: (id, weights, optimizer) => void value(home(id).restoreAdapter(id, weights, { optimizer })),
    openSampler: async (id, baseModel, adapter) => {
      const one = await model(baseModel)
      const name = adapter === undefined ? undefined : `sampler ${id}`
      if (adapter !== undefined && name !== undefined) value(one.engine.loadAdapter(name, adapter.weights))
      samplers.set(id, { home: one, adapter: name })
    },
    closeSampler: (id) => {
      const sampler = samplers.get(id)
      samplers.delete(id)
      if (sampler?.adapter !== undefined) value(sampler.home.engine.dropAdapter(sampler.adapter))
    },
    sample: async (id, request, onToken, signal) => {
      const sampler = samplers.get(id)
      if (sampler === undefined) throw new Invalid(`sampler ${id} not found`)
      const { adapter, home } = sampler
      const { engine, tokenizer } = home
      const { prompt, stopTexts } = request
      if (stopTexts.length > 0 && tokenizer === undefined)
        throw new Invalid(`${home.name} has no tokenizer; use token ids as stop sequences`)
      const run = value(
        engine.startSample(adapter, {
          prompt,
          samples: request.numSamples,
          maxTokens: request.maxTokens,
          temperature: request.temperature,
          topK: request.topK,
          topP: request.topP,
          seed: request.seed,
          stopTokens: request.stopTokens,
          ...(stopTexts.length > 0 &&
            tokenizer !== undefined && {
              stopTexts: { texts: stopTexts, decode: (tokens) => Effect.runSync(tokenizer.decode(tokens)) },
            }),
          promptLogprobs: request.promptLogprobs,
          topkPromptLogprobs: request.topkPromptLogprobs,
          topkSampleLogprobs: request.topkSampleLogprobs,
          promptTargets: request.targets,
          promptDraws: request.promptDraws,
          onToken,
        }),
      )
      try {
        while (!value(run.step())) {
          // Lets other requests run between two tokens.
          await setImmediate()
          signal.throwIfAborted()
        }
      } finally {
        run.close()
      }
      const result = run.result()
      if (result === undefined) throw new Error("the engine finished without a result")
      return {
        sequences: result.sequences.map(({ logprobs, stopReason, tokens, topk }) => ({
          tokens,
          logprobs,
          stopReason,
          topk: topkOf(topk),
        })),
        promptLogprobs: result.promptLogprobs,
        topkPrompt: topkOf(result.topkPrompt),
        targets: result.promptTargets,
        promptDraws: result.promptDraws,
      }
    },
    files: async (config, weights) => {
      const { engine } = await model(config.baseModel)
      const id = "export"
      value(engine.loadAdapter(id, weights))
      try {
        return [
          { name: "adapter_config.json", bytes: Buffer.from(value(engine.peftConfig(id, config.baseModel))) },
          { name: "adapter_model.safetensors", bytes: value(engine.saveAdapter(id)) },
        ]
      } finally {
        value(engine.dropAdapter(id))
      }
    },
    encode: async (baseModel, text) =>
      Effect.runPromise((await texts(baseModel)).encode(text, { addSpecialTokens: false })),
    decode: async (baseModel, tokens) =>
      Effect.runSync((await texts(baseModel)).decode(tokens, { skipSpecialTokens: true })),
    pieces: async (baseModel, tokens) => {
      const tokenizer = await texts(baseModel)
      return Array.from(tokens, (token) => Effect.runSync(tokenizer.decode([token])))
    },
    renderChat: async (baseModel, { messages, tools }) => {
      const chat = await chatOf(baseModel)
      const toInvalid = (error: { readonly message: string }) =>
        new Invalid(`cannot render the conversation for ${baseModel}: ${error.message}`)
      if (tools.length > 0 && !chat.supportsTools)
        throw new Invalid(`tools: the chat template of ${baseModel} does not support tools; omit them`)
      const renderer = tools.length === 0 ? chat.renderer : await run(chat.withTools(tools), toInvalid)
      const prompt = await run(renderer.generationPrompt(messages.map(toMessage)), toInvalid)
      return { tokens: tokensOf(prompt), stopTokens: [...new Set([...known(baseModel).base.endTokens, chat.stop])] }
    },
    readAnswer: async (baseModel, tokens, isDone) => {
      const chat = await chatOf(baseModel)
      if (!chat.isTagged) {
        const text = Effect.runSync((await texts(baseModel)).decode(tokens, { skipSpecialTokens: true }))
        return { text, reasoning: "", toolCalls: [] }
      }
      const parser = chat.renderer.parser()
      const failed = (error: { readonly message: string }) => new Invalid(error.message)
      const deltas = [...(await run(parser.push(isDone ? [...tokens, chat.stop] : tokens), failed))]
      if (isDone) deltas.push(...(await run(parser.finish, failed)))
      const said = { text: "", reasoning: "", toolCalls: [] as ReadonlyArray<ToolCall> }
      for (const delta of deltas) {
        if (delta.type === "text") said.text += delta.text
        else if (delta.type === "thinking") said.reasoning += delta.thinking
        else if (delta.type === "end") {
          said.toolCalls = delta.message.toolCalls ?? []
          // Tool calls that could not be parsed are returned as text.
          for (const { text } of delta.message.unparsedToolCalls ?? []) said.text += text
        }
      }
      return said
    },
  }
}

/**
 * Loads the models and creates a backend that serves them.
 *
 * @since 0.1.0
 * @category constructors
 */
export const backend = ({ models }: EngineData): Promise<Backend> =>
  Effect.runPromise(
    Effect.map(Effect.forEach(models, load), make).pipe(
      Effect.provide(Layer.mergeAll(files, Path.layer, TokenizerBackend.layerPortable)),
    ),
  )
