/**
 * What the server needs of a model: adapters that are made, trained, saved and sampled from. The server knows nothing
 * else about where the numbers come from.
 *
 * A {@link Backend} is the plain form, which can live on a thread of its own; a {@link Service} is the same as Effects.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"

/**
 * A model that is there before anybody trains.
 *
 * @since 0.1.0
 * @category models
 */
export interface BaseModel {
  readonly name: string
  readonly arch: string
  /** Token ids are below it. */
  readonly vocabSize: number
  readonly maxContextLength: number
  readonly maxRank: number
  /** Where clients find the tokenizer; undefined if there is none. */
  readonly tokenizerId: string | undefined
  /** Tokens that end a sequence unless `stop` says otherwise. */
  readonly endTokens: ReadonlyArray<number>
  /** The losses that it knows. */
  readonly losses: ReadonlyArray<string>
  /** The optimizers that it knows, by the names of the wire. */
  readonly optimizers: ReadonlyArray<string>
}

/**
 * What an adapter is made as. A checkpoint remembers it.
 *
 * @since 0.1.0
 * @category models
 */
export interface AdapterConfig {
  readonly baseModel: string
  readonly rank: number
  readonly seed: number
  readonly trainUnembed: boolean
  readonly trainMlp: boolean
  readonly trainAttn: boolean
  readonly optimizer: string
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Tensor {
  readonly data: Float32Array | Int32Array
  readonly shape: ReadonlyArray<number>
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Example {
  readonly tokens: Int32Array
  /** By the names of the wire, e.g. `target_tokens`. */
  readonly inputs: Readonly<Record<string, Tensor>>
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Pass {
  readonly forwardOnly: boolean
  readonly loss: string
  readonly config: Readonly<Record<string, number | string>>
  readonly examples: ReadonlyArray<Example>
}

/**
 * @since 0.1.0
 * @category models
 */
export interface PassOutput {
  readonly outputs: ReadonlyArray<Readonly<Record<string, Tensor>>>
  readonly metrics: Readonly<Record<string, number>>
}

/**
 * One update. `type` is the optimizer's name on the wire.
 *
 * @since 0.1.0
 * @category models
 */
export interface Update {
  readonly type: string
  readonly learningRate: number
  readonly beta1: number
  readonly beta2: number
  readonly eps: number
  readonly weightDecay: number
  readonly gradClipNorm: number
}

/**
 * @since 0.1.0
 * @category models
 */
export interface SampleRequest {
  readonly prompt: Int32Array
  readonly numSamples: number
  readonly maxTokens: number
  readonly seed: number
  readonly temperature: number
  readonly topK: number
  readonly topP: number
  /** A sequence ends with one of these, which is part of it. */
  readonly stopTokens: ReadonlyArray<number>
  /** A sequence ends when its text holds one of these. */
  readonly stopTexts: ReadonlyArray<string>
  readonly promptLogprobs: boolean
  readonly topkPromptLogprobs: number
  readonly topkSampleLogprobs: number
  /** Tokens whose log probabilities are asked for, each at a position of the prompt from 1 on. */
  readonly targets: { readonly positions: Int32Array; readonly tokens: Int32Array } | undefined
  /** So many tokens are drawn, by the temperature alone, in place of each token of the prompt but the first. */
  readonly promptDraws: number
}

/**
 * The likeliest tokens of each position, row by row; rows that were not computed hold NaN.
 *
 * @since 0.1.0
 * @category models
 */
export interface Topk {
  readonly k: number
  readonly tokenIds: Int32Array
  readonly logprobs: Float32Array
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Sequence {
  readonly tokens: Int32Array
  readonly logprobs: Float32Array
  readonly stopReason: "stop" | "length"
  readonly topk: Topk | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface SampleOutput {
  readonly sequences: ReadonlyArray<Sequence>
  /** One for each token of the prompt; NaN for the first. */
  readonly promptLogprobs: Float32Array | undefined
  readonly topkPrompt: Topk | undefined
  /** One for each target. */
  readonly targets: Float32Array | undefined
  /** A row for each token of the prompt but the first. */
  readonly promptDraws: { readonly tokens: Int32Array; readonly logprobs: Float32Array } | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface File {
  readonly name: string
  readonly bytes: Uint8Array
}

/**
 * @since 0.1.0
 * @category models
 */
export interface ToolCall {
  readonly id?: string | undefined
  readonly name: string
  /** JSON, as it was written. */
  readonly arguments: string
}

/**
 * @since 0.1.0
 * @category models
 */
export interface ChatMessage {
  readonly role: string
  readonly content: string
  /** What the model thought before it. */
  readonly reasoning?: string | undefined
  readonly toolCalls?: ReadonlyArray<ToolCall> | undefined
  /** Of a result: which call it answers. */
  readonly toolCallId?: string | undefined
  readonly name?: string | undefined
}

/**
 * A function that the model may call. `parameters` is a JSON schema.
 *
 * @since 0.1.0
 * @category models
 */
export interface Tool {
  readonly name: string
  readonly description: string
  readonly parameters: Readonly<Record<string, unknown>>
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Conversation {
  readonly messages: ReadonlyArray<ChatMessage>
  readonly tools: ReadonlyArray<Tool>
}

/**
 * What a model said, as far as it is certain.
 *
 * @since 0.1.0
 * @category models
 */
export interface Said {
  readonly text: string
  readonly reasoning: string
  /** Known when all is said. */
  readonly toolCalls: ReadonlyArray<ToolCall>
}

/**
 * A token that was drawn.
 *
 * @since 0.1.0
 * @category models
 */
export interface SampledToken {
  readonly token: number
  readonly logprob: number
  /** The likeliest in its place, likeliest first, if they were asked for. */
  readonly top: { readonly tokenIds: Int32Array; readonly logprobs: Float32Array } | undefined
}

/**
 * Hears of a token as it is drawn: of which sequence, and what it is.
 *
 * @since 0.1.0
 * @category models
 */
export type OnToken = (sequence: number, token: SampledToken) => void

/**
 * A request that the model can't do: `invalid` if it is the caller's mistake. Nothing was changed by it.
 *
 * @since 0.1.0
 * @category errors
 */
export class HostError extends Data.TaggedError("HostError")<{
  readonly reason: "invalid" | "internal"
  readonly message: string
}> {}

/**
 * Thrown by a {@link Backend} when it is the caller's mistake.
 *
 * @since 0.1.0
 * @category errors
 */
export class Invalid extends Error {
  /** @since 0.1.0 */
  override readonly name = "Invalid"
}

/**
 * The plain form. It is called by one caller at a time for each adapter; a call that fails has changed nothing.
 * Everything follows from what it was told: the same calls give the same numbers.
 *
 * @since 0.1.0
 * @category models
 */
export interface Backend {
  readonly models: ReadonlyArray<BaseModel>
  readonly create: (id: string, config: AdapterConfig) => Promise<void> | void
  readonly drop: (id: string) => Promise<void> | void
  readonly pass: (id: string, pass: Pass) => Promise<PassOutput> | PassOutput
  readonly step: (
    id: string,
    update: Update,
  ) => Promise<Readonly<Record<string, number>>> | Readonly<Record<string, number>>
  /** The adapter as bytes of the backend's own, with or without what the optimizer remembers. No gradients. */
  readonly save: (id: string, optimizer: boolean) => Promise<Uint8Array> | Uint8Array
  /** What was saved, into an adapter of the same shape. Gradients are dropped. */
  readonly restore: (id: string, weights: Uint8Array, optimizer: boolean) => Promise<void> | void
  /** A sampler that never changes: of the base model, or of an adapter that was saved. */
  readonly openSampler: (
    id: string,
    baseModel: string,
    adapter: { readonly config: AdapterConfig; readonly weights: Uint8Array } | undefined,
  ) => Promise<void> | void
  readonly closeSampler: (id: string) => Promise<void> | void
  readonly sample: (
    id: string,
    request: SampleRequest,
    onToken: OnToken | undefined,
    signal: AbortSignal,
  ) => Promise<SampleOutput>
  /** The adapter as files that other programs read: `adapter_config.json`, `adapter_model.safetensors`. */
  readonly files: (config: AdapterConfig, weights: Uint8Array) => Promise<ReadonlyArray<File>> | ReadonlyArray<File>
  readonly encode: (baseModel: string, text: string) => Promise<Int32Array> | Int32Array
  readonly decode: (baseModel: string, tokens: Int32Array) => Promise<string> | string
  /** The text of each token by itself; of half a character there is none, but U+FFFD. */
  readonly pieces: (baseModel: string, tokens: Int32Array) => Promise<ReadonlyArray<string>> | ReadonlyArray<string>
  /** The tokens of a conversation, up to where the model's answer begins, and those that end an answer. */
  readonly renderChat: (baseModel: string, conversation: Conversation) => Promise<Prompt> | Prompt
  /** What an answer says, without the token that ended it. */
  readonly readAnswer: (baseModel: string, tokens: Int32Array, isDone: boolean) => Promise<Said> | Said
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Prompt {
  readonly tokens: Int32Array
  readonly stopTokens: ReadonlyArray<number>
}

/**
 * The methods of a backend that are called, without the ones that need more than a value.
 *
 * @since 0.1.0
 * @category models
 */
export type Method = Exclude<keyof Backend, "models" | "sample">

type Wrapped = {
  readonly [M in Method]: (...args: Parameters<Backend[M]>) => Effect.Effect<Awaited<ReturnType<Backend[M]>>, HostError>
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Service extends Wrapped {
  readonly models: ReadonlyArray<BaseModel>
  /** Interrupting it stops the sampling. */
  readonly sample: (id: string, request: SampleRequest, onToken?: OnToken) => Effect.Effect<SampleOutput, HostError>
}

/**
 * @since 0.1.0
 * @category tags
 */
export class ModelHost extends Context.Tag("@effect-tinker/server/ModelHost")<ModelHost, Service>() {}

/**
 * @since 0.1.0
 * @category constants
 */
export const methods: ReadonlyArray<Method> = [
  "create",
  "drop",
  "pass",
  "step",
  "save",
  "restore",
  "openSampler",
  "closeSampler",
  "files",
  "encode",
  "decode",
  "pieces",
  "renderChat",
  "readAnswer",
]

/**
 * What was thrown, as an error.
 *
 * @since 0.1.0
 * @category errors
 */
export const hostError = (cause: unknown): HostError =>
  new HostError({
    reason: cause instanceof Error && cause.name === "Invalid" ? "invalid" : "internal",
    message: cause instanceof Error ? cause.message : String(cause),
  })

/**
 * Effects from two ways to call.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (
  models: ReadonlyArray<BaseModel>,
  call: (method: Method, args: ReadonlyArray<unknown>) => Effect.Effect<unknown, HostError>,
  sample: Service["sample"],
): Service => {
  const wrapped = Object.fromEntries(
    methods.map((method) => [method, (...args: ReadonlyArray<unknown>) => call(method, args)]),
  )
  // The loop does to the values what `Wrapped` does to the types.
  return { ...(wrapped as unknown as Wrapped), models, sample }
}

/**
 * A backend in this thread: for tests and for time that is not real. While it computes, nothing else runs.
 *
 * @since 0.1.0
 * @category constructors
 */
export const inline = (backend: Backend): Service =>
  make(
    backend.models,
    (method, args) =>
      Effect.tryPromise({
        try: async () => (backend[method] as (...args: ReadonlyArray<unknown>) => unknown)(...args),
        catch: hostError,
      }),
    (id, request, onToken) =>
      Effect.tryPromise({ try: (signal) => backend.sample(id, request, onToken, signal), catch: hostError }),
  )
