/**
 * The embedded engine as a backend of the server. It computes in the thread that calls it: `EngineHost` gives it one of
 * its own.
 *
 * @since 0.1.0
 */
import * as Engine from "@effect-tinker/engine/Engine"
import type { EngineError } from "@effect-tinker/engine/EngineError"
import * as Losses from "@effect-tinker/engine/Losses"
import * as ModelFiles from "@effect-tinker/engine/ModelFiles"
import * as ChatTemplate from "@effect-tinker/tokenizer/ChatTemplate"
import type { TemplateError } from "@effect-tinker/tokenizer/TemplateError"
import type * as Tokenizer from "@effect-tinker/tokenizer/Tokenizer"
import * as TokenizerBackend from "@effect-tinker/tokenizer/TokenizerBackend"
import * as FileSystem from "@effect/platform/FileSystem"
import * as Path from "@effect/platform/Path"
import { SystemError } from "@effect/platform/Error"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Layer from "effect/Layer"
import { existsSync } from "node:fs"
import { readFile } from "node:fs/promises"
import { setImmediate } from "node:timers/promises"
import { type AdapterConfig, type Backend, type BaseModel, Invalid, type Topk } from "./ModelHost.ts"

/**
 * A directory in the layout of Hugging Face, under the name that clients ask for it. Without a directory it is the
 * model that comes with the engine.
 *
 * @since 0.1.0
 * @category models
 */
export interface ModelSource {
  readonly name: string
  readonly directory?: string | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface EngineData {
  readonly models: ReadonlyArray<ModelSource>
}

/**
 * The model that is served when none is named.
 *
 * @since 0.1.0
 * @category constants
 */
export const shipped: ModelSource = { name: ModelFiles.shippedName }

interface Loaded {
  readonly base: BaseModel
  readonly engine: Engine.Engine
  readonly tokenizer: Tokenizer.Service | undefined
  /** One that is refused is no reason not to serve its model. */
  readonly template: Either.Either<ChatTemplate.ChatTemplate, TemplateError> | undefined
}

const failed = (method: string, path: string) => (cause: unknown) =>
  new SystemError({ module: "FileSystem", method, pathOrDescriptor: path, reason: "Unknown", cause })

/** The three things that are done with files here. */
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

/** The portable tokenizer decodes at once, as the engine needs it between two tokens. */
const load = ({ directory, name }: ModelSource) =>
  Effect.gen(function* () {
    const read = yield* ModelFiles.read(directory ?? (yield* ModelFiles.shipped))
    const engine = yield* Engine.make(read)
    const backend = yield* TokenizerBackend.TokenizerBackend
    const tokenizer =
      read.tokenizer === undefined
        ? undefined
        : yield* backend.make({ name, tokenizer: read.tokenizer, config: read.tokenizerConfig })
    const base: BaseModel = {
      name,
      arch: archOf(read.config),
      vocabSize: engine.config.vocabSize,
      maxContextLength: engine.config.maxPositions,
      maxRank: 256,
      tokenizerId: name,
      endTokens: engine.config.eosTokens,
      losses: Losses.names,
      optimizers: ["adamw"],
    }
    const template = tokenizer && ChatTemplate.fromTokenizer(tokenizer)
    return { base, engine, tokenizer, template } satisfies Loaded
  })

/** The engine's own faults are the server's; all others are the caller's. */
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

const make = (loaded: ReadonlyArray<Loaded>): Backend => {
  const byName = new Map(loaded.map((one) => [one.base.name, one]))
  const homes = new Map<string, Loaded>()
  const samplers = new Map<string, { readonly home: Loaded; readonly adapter: string | undefined }>()
  const model = (name: string): Loaded => {
    const one = byName.get(name)
    if (one === undefined) throw new Invalid(`${name} is not served here`)
    return one
  }
  const home = (id: string): Engine.Engine => {
    const one = homes.get(id)
    if (one === undefined) throw new Invalid(`there is no model ${id}`)
    return one.engine
  }
  const texts = (name: string): Tokenizer.Service => {
    const { tokenizer } = model(name)
    if (tokenizer === undefined) throw new Invalid(`${name} has no tokenizer here: give token ids`)
    return tokenizer
  }

  /** Log probabilities of certain tokens at each place of a prompt, by a pass that looks at nothing else. */
  const targetsOf = (
    one: Loaded,
    adapter: string | undefined,
    prompt: Int32Array,
    targets: Int32Array,
    columns: number,
  ) => {
    // A pass tells what comes after a token; a row is about the token itself.
    const shifted = new Int32Array(prompt.length * columns)
    shifted.set(targets.subarray(columns))
    const { outputs } = value(
      one.engine.forward(
        adapter,
        [
          {
            tokens: prompt,
            inputs: {
              target_tokens: { data: shifted, shape: [prompt.length, columns] },
              weights: { data: new Float32Array(shifted.length), shape: [prompt.length, columns] },
            },
          },
        ],
        { name: "cross_entropy" },
      ),
    )
    const logprobs = new Float32Array(targets.length).fill(Number.NaN, 0, columns)
    logprobs.set((outputs[0]?.logprobs ?? new Float32Array(0)).subarray(0, targets.length - columns), columns)
    return logprobs
  }

  return {
    models: loaded.map(({ base }) => base),
    create: (id, config) => {
      const one = model(config.baseModel)
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
    openSampler: (id, baseModel, adapter) => {
      const one = model(baseModel)
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
      if (sampler === undefined) throw new Invalid(`there is no sampler ${id}`)
      const { adapter, home } = sampler
      const { engine, tokenizer } = home
      const { promptLogprobs, prompt, stopTexts, targets, topkPromptLogprobs, topkSampleLogprobs } = request
      if (stopTexts.length > 0 && tokenizer === undefined)
        throw new Invalid(`${home.base.name} has no tokenizer here: stop at token ids`)
      // The engine shows the tokens of a sequence as they are drawn to whoever decodes them.
      const rows = new Map<ReadonlyArray<number>, number>()
      const decode = (tokens: ReadonlyArray<number>): string => {
        if (onToken !== undefined) {
          const row = rows.get(tokens) ?? rows.size
          rows.set(tokens, row)
          onToken(row, tokens.at(-1) ?? 0)
        }
        return tokenizer === undefined || stopTexts.length === 0 ? "" : Effect.runSync(tokenizer.decode(tokens))
      }
      const run = value(
        engine.startSample(adapter, {
          prompt,
          samples: request.numSamples,
          maxTokens: Math.max(1, request.maxTokens),
          temperature: request.temperature,
          topK: request.topK,
          topP: request.topP,
          seed: request.seed,
          stopTokens: request.stopTokens,
          ...((stopTexts.length > 0 || onToken !== undefined) && {
            stopTexts: { texts: stopTexts.length > 0 ? stopTexts : ["\u0000"], decode },
          }),
          promptLogprobs,
          topkPromptLogprobs,
          topkSampleLogprobs,
        }),
      )
      try {
        while (!value(run.step())) {
          // Others have their turn between two tokens.
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
        targets:
          targets === undefined
            ? undefined
            : targetsOf(home, adapter, prompt, Int32Array.from(targets.data), targets.shape[1] ?? 1),
      }
    },
    files: (config, weights) => {
      const { engine } = model(config.baseModel)
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
    encode: (baseModel, text) => Effect.runPromise(texts(baseModel).encode(text, { addSpecialTokens: false })),
    decode: (baseModel, tokens) => Effect.runSync(texts(baseModel).decode(tokens, { skipSpecialTokens: true })),
    renderChat: async (baseModel, messages) => {
      const tokenizer = texts(baseModel)
      const { template } = model(baseModel)
      if (template === undefined) throw new Invalid(`${baseModel} has no tokenizer, and so no chat template`)
      const given = messages.map((message) => ({ ...message }))
      const rendered = Effect.flatMap(template, ({ render }) => render({ messages: given, addGenerationPrompt: true }))
      const text = await Effect.runPromise(Effect.either(rendered))
      if (Either.isLeft(text)) throw new Invalid(`${baseModel} can't chat: ${text.left.message}. Use completions`)
      return Effect.runPromise(tokenizer.encode(text.right, { addSpecialTokens: false }))
    },
  }
}

/**
 * Reads the models, and is ready then.
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
