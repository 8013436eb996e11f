/** The OpenAI-compatible endpoints. */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as Api from "effect-tinker/protocol/Api"
import type { Answer } from "effect-tinker/protocol/Exchange"
import { type Call, jsonOf, read, type Route, route } from "../Call.ts"
import { streamedResponse, type Completion, toRefusal, completeResponse } from "../ChatReply.ts"
import { checkChat, checkCompletion, conversationOf, requestOf, sourceOf } from "../ChatRequest.ts"
import type { Core } from "../Core.ts"
import type { Refusal } from "../Refusal.ts"
import { openSampler } from "../Samplers.ts"

const property = (value: unknown, key: string): unknown =>
  typeof value === "object" && value !== null ? Reflect.get(value, key) : undefined

/**
 * Answers with a complete or streamed response, as the body requests. A model that cannot be opened is reported before
 * the response starts.
 */
const answer = (
  call: Call,
  completion: Omit<Completion, "usage" | "now" | "owner">,
): Effect.Effect<Answer, Refusal> => {
  const body = Either.getOrElse(jsonOf(call), () => undefined)
  const all: Completion = {
    ...completion,
    owner: call.owner,
    now: call.now,
    usage: property(property(body, "stream_options"), "include_usage") === true,
  }
  if (property(body, "stream") !== true) return completeResponse(all)
  const { core, source } = completion
  return Effect.as(
    Effect.mapError(openSampler(core, source.base.name, source.weights), toRefusal),
    streamedResponse(all),
  )
}

export const chat = (core: Core): ReadonlyArray<Route> => [
  {
    endpoint: Api.chatCompletions,
    answer: (call) =>
      Effect.gen(function* () {
        const input = yield* read(Api.chatCompletions, call)
        yield* checkChat(input)
        const source = yield* sourceOf(core, call, input.model)
        const conversation = yield* conversationOf(input)
        const prompt = yield* Effect.mapError(core.host.renderChat(source.base.name, conversation), toRefusal)
        const { logprobs = false, maxCompletionTokens, maxTokens = maxCompletionTokens, topLogprobs } = input
        const request = yield* requestOf(source.base, prompt, {
          ...input,
          maxTokens,
          width: ["top_logprobs", topLogprobs],
        })
        const parallelCalls = input.parallelToolCalls !== false
        return yield* answer(call, { core, kind: "chat", model: input.model, source, request, logprobs, parallelCalls })
      }),
  },
  {
    endpoint: Api.completions,
    answer: (call) =>
      Effect.gen(function* () {
        const input = yield* read(Api.completions, call)
        yield* checkCompletion(input)
        const source = yield* sourceOf(core, call, input.model)
        const tokens =
          typeof input.prompt === "string"
            ? yield* Effect.mapError(core.host.encode(source.base.name, input.prompt), toRefusal)
            : Int32Array.from(input.prompt)
        const request = yield* requestOf(
          source.base,
          { tokens, stopTokens: source.base.endTokens },
          // The default of the OpenAI API.
          { ...input, maxTokens: input.maxTokens ?? 16, width: ["logprobs", input.logprobs] },
        )
        const logprobs = input.logprobs !== undefined
        return yield* answer(call, {
          core,
          kind: "text",
          model: input.model,
          source,
          request,
          logprobs,
          parallelCalls: true,
        })
      }),
  },
  route(Api.listModels, (_, { now, owner }) =>
    Effect.succeed({
      data: [
        ...core.host.models.map(({ name }) => ({
          id: name,
          created: Option.some(0),
          ownedBy: Option.some("effect-tinker"),
          parent: Option.none<string>(),
        })),
        ...[...core.state.checkpoints.values()]
          .filter(
            (row) =>
              row.owner === owner && row.kind === "sampler" && (row.expiresAt === undefined || row.expiresAt > now),
          )
          .map((row) => ({
            id: row.path,
            created: Option.some(Math.floor(row.createdAt / 1000)),
            ownedBy: Option.some(row.owner),
            parent: Option.some(row.config.baseModel),
          })),
      ],
    }),
  ),
]
