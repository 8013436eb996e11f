/**
 * Defines what the server needs from a model: creating, training, saving and sampling adapters. The server has no other
 * access to the computation.
 *
 * A {@link Backend} is the plain form, which can run on a separate thread; a {@link Service} is the same as Effects.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"

/**
 * Describes a base model, before any training.
 *
 * @since 0.1.0
 * @category models
 */
export interface BaseModel {
  readonly name: string
  readonly arch: string
  /** Token ids are smaller than this. */
  readonly vocabSize: number
  readonly maxContextLength: number
  readonly maxRank: number
  /** The name under which clients find the tokenizer; undefined if there is none. */
  readonly tokenizerId: string | undefined
  /** Tokens that end a sequence if a request has no `stop` of its own. */
  readonly endTokens: ReadonlyArray<number>
  /** The names of the supported losses. */
  readonly losses: ReadonlyArray<string>
  /** The wire names of the supported optimizers. */
  readonly optimizers: ReadonlyArray<string>
}

/**
 * Describes how an adapter was created; stored with every checkpoint.
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
 * Holds numbers in row-major order, and their shape.
 *
 * @since 0.1.0
 * @category models
 */
export interface Tensor {
  readonly data: Float32Array | Int32Array
  readonly shape: ReadonlyArray<number>
}

/**
 * A training example: its tokens and the inputs of the loss.
 *
 * @since 0.1.0
 * @category models
 */
export interface Example {
  readonly tokens: Int32Array
  /** Keyed by wire name, e.g. `target_tokens`. */
  readonly inputs: Readonly<Record<string, Tensor>>
}

/**
 * A forward or forward-backward pass over a batch of examples.
 *
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
 * The result of a pass: named tensors for each example, and metrics.
 *
 * @since 0.1.0
 * @category models
 */
export interface PassOutput {
  readonly outputs: ReadonlyArray<Readonly<Record<string, Tensor>>>
  readonly metrics: Readonly<Record<string, number>>
}

/**
 * One optimizer step. `type` is the wire name of the optimizer.
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
 * A request to sample from a prompt.
 *
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
  /** A sequence ends after one of these tokens, which it includes. */
  readonly stopTokens: ReadonlyArray<number>
  /** A sequence ends when its text contains one of these. */
  readonly stopTexts: ReadonlyArray<string>
  readonly promptLogprobs: boolean
  readonly topkPromptLogprobs: number
  readonly topkSampleLogprobs: number
  /** Tokens whose log probabilities are requested, each at a prompt position of 1 or higher. */
  readonly targets: { readonly positions: Int32Array; readonly tokens: Int32Array } | undefined
  /** Number of tokens to draw, by temperature alone, as alternatives for each prompt token except the first. */
  readonly promptDraws: number
}

/**
 * The most likely tokens of each position, row by row; rows that were not computed hold NaN.
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
 * A sampled sequence.
 *
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
 * The result of a sample request.
 *
 * @since 0.1.0
 * @category models
 */
export interface SampleOutput {
  readonly sequences: ReadonlyArray<Sequence>
  /** One value per prompt token; NaN for the first. */
  readonly promptLogprobs: Float32Array | undefined
  readonly topkPrompt: Topk | undefined
  /** One value per target. */
  readonly targets: Float32Array | undefined
  /** One row per prompt token except the first. */
  readonly promptDraws: { readonly tokens: Int32Array; readonly logprobs: Float32Array } | undefined
}

/**
 * A file by name.
 *
 * @since 0.1.0
 * @category models
 */
export interface File {
  readonly name: string
  readonly bytes: Uint8Array
}

/**
 * A call of a tool by the model.
 *
 * @since 0.1.0
 * @category models
 */
export interface ToolCall {
  readonly id?: string | undefined
  readonly name: string
  /** JSON text, exactly as the model wrote it. */
  readonly arguments: string
}

/**
 * A message of a conversation.
 *
 * @since 0.1.0
 * @category models
 */
export interface ChatMessage {
  readonly role: string
  readonly content: string
  /** The thinking that precedes the content. */
  readonly reasoning?: string | undefined
  readonly toolCalls?: ReadonlyArray<ToolCall> | undefined
  /** For a tool result, the id of the call that it answers. */
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
 * The messages so far, and the tools that the model may call.
 *
 * @since 0.1.0
 * @category models
 */
export interface Conversation {
  readonly messages: ReadonlyArray<ChatMessage>
  readonly tools: ReadonlyArray<Tool>
}

/**
 * The parsed part of an answer that can no longer change.
 *
 * @since 0.1.0
 * @category models
 */
export interface Said {
  readonly text: string
  readonly reasoning: string
  /** Empty until the answer is complete. */
  readonly toolCalls: ReadonlyArray<ToolCall>
}

/**
 * A sampled token with its log probability.
 *
 * @since 0.1.0
 * @category models
 */
export interface SampledToken {
  readonly token: number
  readonly logprob: number
  /** The most likely tokens at this position, most likely first, if requested. */
  readonly top: { readonly tokenIds: Int32Array; readonly logprobs: Float32Array } | undefined
}

/**
 * Receives each token as it is sampled, with the index of its sequence.
 *
 * @since 0.1.0
 * @category models
 */
export type OnToken = (sequence: number, token: SampledToken) => void

/**
 * Reports a request that the model could not run; `invalid` means that the caller made a mistake. A failed request
 * changes nothing.
 *
 * @since 0.1.0
 * @category errors
 */
export class HostError extends Data.TaggedError("HostError")<{
  readonly reason: "invalid" | "internal"
  readonly message: string
}> {}

/**
 * Thrown by a {@link Backend} when the caller made a mistake.
 *
 * @since 0.1.0
 * @category errors
 */
export class Invalid extends Error {
  /** @since 0.1.0 */
  override readonly name = "Invalid"
}

/**
 * The plain form of a model host. Calls for one adapter never overlap, and a failed call changes nothing. It is
 * deterministic: the same calls give the same numbers.
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
  /**
   * Serializes an adapter in the backend's own format, optionally with the optimizer state. Gradients are not saved.
   */
  readonly save: (id: string, optimizer: boolean) => Promise<Uint8Array> | Uint8Array
  /** Restores saved weights into an adapter of the same shape. Gradients are dropped. */
  readonly restore: (id: string, weights: Uint8Array, optimizer: boolean) => Promise<void> | void
  /** Opens an immutable sampler for the base model or for a saved adapter. */
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
  /** Exports an adapter as files for other programs: `adapter_config.json`, `adapter_model.safetensors`. */
  readonly files: (config: AdapterConfig, weights: Uint8Array) => Promise<ReadonlyArray<File>> | ReadonlyArray<File>
  readonly encode: (baseModel: string, text: string) => Promise<Int32Array> | Int32Array
  readonly decode: (baseModel: string, tokens: Int32Array) => Promise<string> | string
  /** Decodes each token separately; a token that is only part of a character becomes U+FFFD. */
  readonly pieces: (baseModel: string, tokens: Int32Array) => Promise<ReadonlyArray<string>> | ReadonlyArray<string>
  /** Renders a conversation up to the start of the model's answer. Also returns the tokens that end an answer. */
  readonly renderChat: (baseModel: string, conversation: Conversation) => Promise<Prompt> | Prompt
  /** Parses an answer, given without the token that ended it. */
  readonly readAnswer: (baseModel: string, tokens: Int32Array, isDone: boolean) => Promise<Said> | Said
}

/**
 * A rendered prompt, and the tokens that end the answer.
 *
 * @since 0.1.0
 * @category models
 */
export interface Prompt {
  readonly tokens: Int32Array
  readonly stopTokens: ReadonlyArray<number>
}

/**
 * The backend methods that only take and return values.
 *
 * @since 0.1.0
 * @category models
 */
export type Method = Exclude<keyof Backend, "models" | "sample">

type Wrapped = {
  readonly [M in Method]: (...args: Parameters<Backend[M]>) => Effect.Effect<Awaited<ReturnType<Backend[M]>>, HostError>
}

/**
 * A model host as Effects.
 *
 * @since 0.1.0
 * @category models
 */
export interface Service extends Wrapped {
  readonly models: ReadonlyArray<BaseModel>
  /** Samples from an open sampler. Interruption stops the sampling. */
  readonly sample: (id: string, request: SampleRequest, onToken?: OnToken) => Effect.Effect<SampleOutput, HostError>
}

/**
 * The model host of a server.
 *
 * @since 0.1.0
 * @category tags
 */
export class ModelHost extends Context.Tag("@effect-tinker/server/ModelHost")<ModelHost, Service>() {}

/**
 * Lists the backend methods that only take and return values.
 *
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
 * Converts a thrown value to a `HostError`.
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
 * Creates a service from a function that calls backend methods and one that samples.
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
  // The loop above wraps the values as `Wrapped` wraps the types.
  return { ...(wrapped as unknown as Wrapped), models, sample }
}

/**
 * Runs a backend on the current thread, for tests and for a `TestClock`. Nothing else runs while it computes.
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
