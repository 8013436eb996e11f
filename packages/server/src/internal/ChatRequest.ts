/**
 * Translates requests of the OpenAI-compatible endpoints into sample requests. Unsupported fields are refused by name.
 */
import * as Effect from "effect/Effect"
import type * as Wire from "effect-tinker/protocol/schemas/Chat"
import { randomInt } from "node:crypto"
import type * as ModelHost from "../ModelHost.ts"
import type { Call } from "./Call.ts"
import { baseModelOf, type Core } from "./Core.ts"
import { weightsOf } from "./Models.ts"
import * as Owned from "./Owned.ts"
import { bad, Refusal } from "./Refusal.ts"
import type { SamplerRow } from "./State.ts"

export interface Source {
  readonly base: ModelHost.BaseModel
  readonly weights: SamplerRow["weights"]
}

/** Resolves a model name: a base model, a checkpoint, or `<base model>;<checkpoint>`. */
export const sourceOf = (core: Core, call: Call, model: string): Effect.Effect<Source, Refusal> =>
  Effect.gen(function* () {
    const path = model.includes(";") ? model.slice(model.indexOf(";") + 1) : model
    const row = path.startsWith("tinker://") ? yield* Owned.checkpoint(core, call, path) : undefined
    const name = row?.config.baseModel ?? path
    const base = baseModelOf(core, name)
    if (base === undefined)
      return yield* new Refusal({
        status: 404,
        detail: `model: "${name}" is not served; available models: ${core.host.models.map(({ name }) => name).join(", ")}`,
      })
    return { base, weights: row === undefined ? undefined : weightsOf(row) }
  })

type ChatRequest = typeof Wire.ChatRequest.Type
type CompletionRequest = typeof Wire.CompletionRequest.Type

/** Returns the text of a message; refuses parts that are not text. */
const contentOf = (content: unknown, field: string): Effect.Effect<string, Refusal> => {
  if (content === null || content === undefined) return Effect.succeed("")
  if (typeof content === "string") return Effect.succeed(content)
  const parts = Array.isArray(content) ? content : []
  const unsupported = parts.findIndex(
    (part: unknown) => !(typeof part === "object" && part !== null && Reflect.get(part, "type") === "text"),
  )
  return unsupported >= 0
    ? Effect.fail(bad(`${field}[${unsupported}]`, "only text parts are supported"))
    : Effect.succeed(parts.map((part: object) => String(Reflect.get(part, "text"))).join(""))
}

const messageOf = (message: ChatRequest["messages"][number], i: number) =>
  Effect.map(contentOf(message.content, `messages[${i}].content`), (content): ModelHost.ChatMessage => {
    const { role } = message
    if (role === "tool") return { role, content, toolCallId: message.toolCallId }
    const name = message.name
    if (role !== "assistant") return { role, content, name }
    const toolCalls = message.toolCalls?.map(({ function: { arguments: given, name }, id }) => ({
      id,
      name,
      arguments: given,
    }))
    return { role, content, name, reasoning: message.reasoningContent, toolCalls }
  })

/** Returns the tools of a request. A forced tool call is refused, because the model cannot be made to call one. */
const toolsOf = ({
  toolChoice = "auto",
  tools = [],
}: ChatRequest): Effect.Effect<ReadonlyArray<ModelHost.Tool>, Refusal> =>
  toolChoice === "none"
    ? Effect.succeed([])
    : toolChoice !== "auto"
      ? Effect.fail(bad("tool_choice", `expected "auto" or "none"; this server cannot force a tool call`))
      : Effect.succeed(
          tools.map(({ function: { description = "", name, parameters = {} } }) => ({ name, description, parameters })),
        )

export const conversationOf = (input: ChatRequest): Effect.Effect<ModelHost.Conversation, Refusal> =>
  Effect.all({ messages: Effect.forEach(input.messages, messageOf), tools: toolsOf(input) })

/** Refuses parameters that would otherwise be silently ignored. */
const checkPenalties = (
  input: Pick<ChatRequest, "frequencyPenalty" | "presencePenalty">,
): Effect.Effect<void, Refusal> =>
  (input.presencePenalty ?? 0) !== 0
    ? Effect.fail(bad("presence_penalty", "is not supported; omit it"))
    : (input.frequencyPenalty ?? 0) !== 0
      ? Effect.fail(bad("frequency_penalty", "is not supported; omit it"))
      : Effect.void

export const checkChat = (input: ChatRequest): Effect.Effect<void, Refusal> =>
  Effect.gen(function* () {
    yield* checkPenalties(input)
    const { logprobs, reasoningEffort, responseFormat = { type: "text" }, topLogprobs } = input
    if (responseFormat["type"] !== "text") return yield* bad("response_format", 'only { "type": "text" } is supported')
    if (reasoningEffort !== undefined) return yield* bad("reasoning_effort", "is not supported; omit it")
    if (topLogprobs !== undefined && logprobs !== true) return yield* bad("top_logprobs", "requires logprobs: true")
  })

export const checkCompletion = (input: CompletionRequest): Effect.Effect<void, Refusal> =>
  Effect.zipRight(
    checkPenalties(input),
    input.echo === true ? Effect.fail(bad("echo", "is not supported; omit it")) : Effect.void,
  )

/** Maximum number of most likely tokens in a response. */
const maxTopLogprobs = 20

interface Asked extends Pick<CompletionRequest, "maxTokens" | "temperature" | "topP" | "n" | "seed" | "stop"> {
  /** The requested number of most likely tokens, and the name of the field that requests it. */
  readonly width: readonly [field: string, k: number | undefined]
}

export const requestOf = (
  base: ModelHost.BaseModel,
  { stopTokens, tokens: prompt }: ModelHost.Prompt,
  asked: Asked,
): Effect.Effect<ModelHost.SampleRequest, Refusal> =>
  Effect.gen(function* () {
    const room = base.maxContextLength - prompt.length
    if (prompt.length === 0) return yield* bad("prompt", "is empty")
    if (room <= 0)
      return yield* bad(
        "messages",
        `${prompt.length} tokens fill the context of ${base.name} (${base.maxContextLength})`,
      )
    const invalid = prompt.findIndex((token) => token < 0 || token >= base.vocabSize)
    if (invalid >= 0)
      return yield* bad(`prompt[${invalid}]`, `${prompt[invalid]} is not in the vocabulary of ${base.name}`)
    const { n = 1, seed, stop = [], temperature = 1, topP = 1 } = asked
    if (n > 128) return yield* bad("n", `expected at most 128, got ${n}`)
    const [field, k = 0] = asked.width
    if (k > maxTopLogprobs) return yield* bad(field, `expected at most ${maxTopLogprobs}, got ${k}`)
    return {
      prompt,
      numSamples: n,
      maxTokens: Math.min(asked.maxTokens ?? room, room),
      seed: Math.abs(seed ?? randomInt(2 ** 31 - 1)),
      temperature,
      topK: -1,
      topP,
      stopTokens,
      stopTexts: (typeof stop === "string" ? [stop] : stop).filter((text) => text !== ""),
      promptLogprobs: false,
      topkPromptLogprobs: 0,
      topkSampleLogprobs: Math.min(k, base.vocabSize),
      targets: undefined,
      promptDraws: 0,
    }
  })
