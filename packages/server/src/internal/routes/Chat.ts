/** The OpenAI-compatible endpoints: texts in and out, whole or as they are made. */
import * as Effect from "effect/Effect"
import * as Queue from "effect/Queue"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import * as Api from "effect-tinker/Api"
import type { Answer } from "effect-tinker/serving/Exchange"
import { randomInt, randomUUID } from "node:crypto"
import type * as ModelHost from "../../ModelHost.ts"
import { type Call, events, json, read, type Route, route } from "../Call.ts"
import { baseModelOf, type Core } from "../Core.ts"
import * as Owned from "../Owned.ts"
import { bad, Refusal } from "../Refusal.ts"
import { opened } from "../Samplers.ts"
import type { SamplerRow } from "../State.ts"

interface Source {
  readonly base: ModelHost.BaseModel
  readonly weights: SamplerRow["weights"]
}

/** A base model, a checkpoint, or `<base model>;<checkpoint>`. */
const sourceOf = (core: Core, call: Call, model: string): Effect.Effect<Source, Refusal> =>
  Effect.gen(function* () {
    const path = model.includes(";") ? model.slice(model.indexOf(";") + 1) : model
    const row = path.startsWith("tinker://") ? yield* Owned.checkpoint(core, call, path) : undefined
    const name = row?.config.baseModel ?? path
    const base = baseModelOf(core, name)
    if (base === undefined)
      return yield* new Refusal({
        status: 404,
        detail: `model: "${name}" is not served here; there is ${core.host.models.map(({ name }) => name).join(", ")}`,
      })
    return { base, weights: row === undefined ? undefined : { file: row.file, config: row.config } }
  })

interface Asked {
  readonly maxTokens?: number | undefined
  readonly temperature?: number | undefined
  readonly topP?: number | undefined
  readonly n?: number | undefined
  readonly seed?: number | undefined
  readonly stop?: string | ReadonlyArray<string> | undefined
}

const requestOf = (
  base: ModelHost.BaseModel,
  prompt: Int32Array,
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
    const strange = prompt.findIndex((token) => token < 0 || token >= base.vocabSize)
    if (strange >= 0)
      return yield* bad(`prompt[${strange}]`, `${prompt[strange]} is not in the vocabulary of ${base.name}`)
    const { n = 1, seed, stop = [], temperature = 1, topP = 1 } = asked
    if (n > 128) return yield* bad("n", `expected at most 128, got ${n}`)
    return {
      prompt,
      numSamples: n,
      maxTokens: Math.min(asked.maxTokens ?? room, room),
      seed: Math.abs(seed ?? randomInt(2 ** 31 - 1)),
      temperature,
      topK: -1,
      topP,
      stopTokens: base.endTokens,
      stopTexts: (typeof stop === "string" ? [stop] : stop).filter((text) => text !== ""),
      promptLogprobs: false,
      topkPromptLogprobs: 0,
      topkSampleLogprobs: 0,
      targets: undefined,
    }
  })

const told = (error: ModelHost.HostError | Refusal): Refusal =>
  error._tag === "Refusal"
    ? error
    : new Refusal({ status: error.reason === "invalid" ? 400 : 500, detail: error.message })

/** What a sequence says: without the token that ended it, and without the text that was to end it. */
const textOf = (
  core: Core,
  base: ModelHost.BaseModel,
  tokens: Int32Array,
  stops: ReadonlyArray<string>,
): Effect.Effect<string, Refusal> =>
  Effect.map(Effect.mapError(core.host.decode(base.name, tokens), told), (text) => {
    const cuts = stops.map((stop) => text.indexOf(stop)).filter((at) => at >= 0)
    return cuts.length === 0 ? text : text.slice(0, Math.min(...cuts))
  })

/** Held open while somebody talks. */
const talking = ({ state }: Core, key: string): Effect.Effect<void, never, Scope.Scope> => {
  const add = (count: number) => Effect.sync(() => state.talking.set(key, (state.talking.get(key) ?? 0) + count))
  return Effect.acquireRelease(add(1), () => add(-1)).pipe(Effect.asVoid)
}

type Kind = "chat" | "text"

const shape = (kind: Kind, model: string, { now }: Call) => ({
  id: `${kind === "chat" ? "chatcmpl" : "cmpl"}-${randomUUID()}`,
  created: Math.floor(now / 1000),
  model,
})

const usageOf = (prompt: number, completion: number) => ({
  prompt_tokens: prompt,
  completion_tokens: completion,
  total_tokens: prompt + completion,
})

const whole = (
  core: Core,
  call: Call,
  kind: Kind,
  model: string,
  { base, weights }: Source,
  request: ModelHost.SampleRequest,
): Effect.Effect<Answer, Refusal> =>
  Effect.gen(function* () {
    const key = yield* Effect.mapError(opened(core, base.name, weights), told)
    const { sequences } = yield* Effect.mapError(
      Effect.scoped(Effect.zipRight(talking(core, key), core.host.sample(key, request))),
      told,
    )
    const choices = yield* Effect.forEach(sequences, ({ stopReason, tokens }, index) =>
      Effect.map(textOf(core, base, tokens, request.stopTexts), (text) => ({
        index,
        ...(kind === "chat" ? { message: { role: "assistant", content: text } } : { text }),
        finish_reason: stopReason,
        logprobs: null,
      })),
    )
    return json({
      ...shape(kind, model, call),
      object: kind === "chat" ? "chat.completion" : "text_completion",
      choices,
      usage: usageOf(
        request.prompt.length,
        sequences.reduce((sum, { tokens }) => sum + tokens.length, 0),
      ),
    })
  })

/** A text as far as it can't change any more: not half of a character, nor the beginning of what would end it. */
const settled = (text: string, stops: ReadonlyArray<string>): string => {
  const whole = text.replace(/\uFFFD+$/, "")
  for (const stop of stops) {
    for (let length = Math.min(stop.length - 1, whole.length); length > 0; length--)
      if (stop.startsWith(whole.slice(-length))) return whole.slice(0, -length)
  }
  return whole
}

const encoder = new TextEncoder()
const event = (data: unknown): Uint8Array =>
  encoder.encode(`data: ${typeof data === "string" ? data : JSON.stringify(data)}\n\n`)

type Said = { readonly sequence: number; readonly token: number } | { readonly output: ModelHost.SampleOutput }

const streamed = (
  core: Core,
  call: Call,
  kind: Kind,
  model: string,
  { base, weights }: Source,
  request: ModelHost.SampleRequest,
  withUsage: boolean,
): Effect.Effect<Answer, Refusal> =>
  Effect.map(Effect.mapError(opened(core, base.name, weights), told), (key) => {
    const head = { ...shape(kind, model, call), object: kind === "chat" ? "chat.completion.chunk" : "text_completion" }
    const piece = (index: number, text: string, finish: string | null = null) =>
      event({
        ...head,
        choices: [
          {
            index,
            ...(kind === "chat" ? { delta: text === "" ? {} : { content: text } } : { text }),
            finish_reason: finish,
          },
        ],
      })
    const tokens: Array<Array<number>> = Array.from({ length: request.numSamples }, () => [])
    const sent: Array<number> = Array.from({ length: request.numSamples }, () => 0)
    /** What is new of a sequence. */
    const news = (index: number, all: ReadonlyArray<number>, done: boolean) =>
      Effect.map(textOf(core, base, Int32Array.from(all), request.stopTexts), (text) => {
        const known = done ? text : settled(text, request.stopTexts)
        const more = known.slice(sent[index] ?? 0)
        sent[index] = Math.max(sent[index] ?? 0, known.length)
        return more
      })
    const said = Stream.unwrapScoped(
      Effect.gen(function* () {
        yield* talking(core, key)
        const queue = yield* Queue.unbounded<Said | Refusal>()
        yield* core.host
          .sample(key, request, (sequence, token) => Queue.unsafeOffer(queue, { sequence, token }))
          .pipe(
            Effect.matchEffect({
              onSuccess: (output) => Queue.offer(queue, { output }),
              onFailure: (error) => Queue.offer(queue, told(error)),
            }),
            Effect.forkScoped,
          )
        return Stream.repeatEffect(Queue.take(queue)).pipe(Stream.takeUntil((one) => !("token" in one)))
      }),
    )
    const body = said.pipe(
      Stream.mapConcatEffect((one) =>
        Effect.gen(function* () {
          if (one instanceof Refusal) return [event({ error: { message: String(one.detail), code: one.status } })]
          if ("token" in one) {
            const all = tokens[one.sequence] ?? []
            all.push(one.token)
            const more = yield* news(one.sequence, all, false)
            return more === "" ? [] : [piece(one.sequence, more)]
          }
          const parts: Array<Uint8Array> = []
          for (const [index, { stopReason, tokens }] of one.output.sequences.entries()) {
            const more = yield* news(index, [...tokens], true)
            if (more !== "") parts.push(piece(index, more))
            parts.push(piece(index, "", stopReason))
          }
          const drawn = one.output.sequences.reduce((sum, { tokens }) => sum + tokens.length, 0)
          if (withUsage) parts.push(event({ ...head, choices: [], usage: usageOf(request.prompt.length, drawn) }))
          parts.push(event("[DONE]"))
          return parts
        }).pipe(
          Effect.catchAll((error) =>
            Effect.succeed([event({ error: { message: String(error.detail), code: error.status } })]),
          ),
        ),
      ),
    )
    const first =
      kind === "chat"
        ? Stream.make(
            ...Array.from({ length: request.numSamples }, (_, index) =>
              event({ ...head, choices: [{ index, delta: { role: "assistant", content: "" }, finish_reason: null }] }),
            ),
          )
        : Stream.empty
    return events(Stream.concat(first, body))
  })

/** The text of a message, whose parts may be more than text. */
const contentOf = (content: unknown, field: string): Effect.Effect<string, Refusal> => {
  if (content === null || content === undefined) return Effect.succeed("")
  if (typeof content === "string") return Effect.succeed(content)
  const parts = Array.isArray(content) ? content : []
  const strange = parts.findIndex(
    (part: unknown) => !(typeof part === "object" && part !== null && Reflect.get(part, "type") === "text"),
  )
  return strange >= 0
    ? Effect.fail(bad(`${field}[${strange}]`, "only text is read here"))
    : Effect.succeed(parts.map((part: object) => String(Reflect.get(part, "text"))).join(""))
}

const streamOf = (call: Call): { readonly stream: boolean; readonly usage: boolean } => {
  const body = Option.getOrUndefined(
    Option.liftThrowable(() => JSON.parse(new TextDecoder().decode(call.request.body)))(),
  )
  return { stream: body?.stream === true, usage: body?.stream_options?.include_usage === true }
}

const answer = (
  core: Core,
  call: Call,
  kind: Kind,
  model: string,
  source: Source,
  request: ModelHost.SampleRequest,
): Effect.Effect<Answer, Refusal> => {
  const { stream, usage } = streamOf(call)
  return stream
    ? streamed(core, call, kind, model, source, request, usage)
    : whole(core, call, kind, model, source, request)
}

export const chat = (core: Core): ReadonlyArray<Route> => [
  {
    endpoint: Api.chatCompletions,
    answer: (call) =>
      Effect.gen(function* () {
        const input = yield* read(Api.chatCompletions, call)
        if (input.tools !== undefined && input.tools.length > 0)
          return yield* bad("tools", "this server calls no tools; leave them out")
        const source = yield* sourceOf(core, call, input.model)
        const messages = yield* Effect.forEach(input.messages, ({ content, role }, i) =>
          Effect.map(contentOf(content, `messages[${i}].content`), (content) => ({ role, content })),
        )
        const prompt = yield* Effect.mapError(core.host.renderChat(source.base.name, messages), told)
        const { maxCompletionTokens, maxTokens = maxCompletionTokens } = input
        const request = yield* requestOf(source.base, prompt, { ...input, maxTokens })
        return yield* answer(core, call, "chat", input.model, source, request)
      }),
  },
  {
    endpoint: Api.completions,
    answer: (call) =>
      Effect.gen(function* () {
        const input = yield* read(Api.completions, call)
        const source = yield* sourceOf(core, call, input.model)
        const prompt =
          typeof input.prompt === "string"
            ? yield* Effect.mapError(core.host.encode(source.base.name, input.prompt), told)
            : Int32Array.from(input.prompt)
        // As the original has it: sixteen, unless more are asked for.
        const request = yield* requestOf(source.base, prompt, { ...input, maxTokens: input.maxTokens ?? 16 })
        return yield* answer(core, call, "text", input.model, source, request)
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
