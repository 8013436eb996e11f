/** Answers of the OpenAI-compatible endpoints: whole, or as they are made. */
import * as Effect from "effect/Effect"
import * as Queue from "effect/Queue"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import type { Answer } from "effect-tinker/protocol/Exchange"
import { randomUUID } from "node:crypto"
import type * as ModelHost from "../ModelHost.ts"
import { events, json } from "./Call.ts"
import * as ChatLogprobs from "./ChatLogprobs.ts"
import type { Source } from "./ChatRequest.ts"
import type { Core } from "./Core.ts"
import { asOpenAi, Refusal } from "./Refusal.ts"
import { opened } from "./Samplers.ts"

export interface Talk {
  readonly core: Core
  readonly kind: "chat" | "text"
  /** As it was asked for. */
  readonly model: string
  readonly now: number
  readonly source: Source
  readonly request: ModelHost.SampleRequest
  readonly logprobs: boolean
  /** Is more than one tool call of an answer told? */
  readonly parallelCalls: boolean
  readonly usage: boolean
}

/** What goes wrong with the model, as an answer. */
export const told = (error: ModelHost.HostError | Refusal): Refusal =>
  error._tag === "Refusal"
    ? error
    : new Refusal({ status: error.reason === "invalid" ? 400 : 500, detail: error.message })

const head = ({ kind, model, now }: Talk, object: string) => ({
  id: `${kind === "chat" ? "chatcmpl" : "cmpl"}-${randomUUID()}`,
  object,
  created: Math.floor(now / 1000),
  model,
})

const usageOf = ({ request }: Talk, { sequences }: ModelHost.SampleOutput) => {
  const completion = sequences.reduce((sum, { tokens }) => sum + tokens.length, 0)
  const prompt = request.prompt.length
  return { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion }
}

/** Held open while somebody talks. */
const talking = ({ core, source }: Talk): Effect.Effect<string, Refusal, Scope.Scope> =>
  Effect.gen(function* () {
    const key = yield* Effect.mapError(opened(core, source.base.name, source.weights), told)
    const { talking } = core.state
    const add = (count: number) => Effect.sync(() => talking.set(key, (talking.get(key) ?? 0) + count))
    yield* Effect.acquireRelease(add(1), () => add(-1))
    return key
  })

/** What tokens say: without the text that was to end it. */
const saidBy = ({ core, kind, request, source }: Talk, tokens: Int32Array, isDone: boolean) => {
  const { name } = source.base
  const said =
    kind === "chat"
      ? core.host.readAnswer(name, tokens, isDone)
      : Effect.map(core.host.decode(name, tokens), (text) => ({ text, reasoning: "", toolCalls: [] }))
  return Effect.map(Effect.mapError(said, told), (said): ModelHost.Said => {
    const cuts = request.stopTexts.map((stop) => said.text.indexOf(stop)).filter((at) => at >= 0)
    return cuts.length === 0 ? said : { ...said, text: said.text.slice(0, Math.min(...cuts)) }
  })
}

/** The token that ended a sequence says nothing. */
const isSaid = ({ request }: Talk, token: number): boolean => !request.stopTokens.includes(token)

const logprobsOf = (talk: Talk, tokens: ReadonlyArray<ModelHost.SampledToken>, from: number) =>
  talk.logprobs
    ? Effect.mapError(ChatLogprobs.told(talk.core, talk.source.base, talk.kind, tokens, from), told)
    : Effect.succeed({ value: null, end: from })

const callsOf = ({ parallelCalls }: Talk, { toolCalls }: ModelHost.Said) =>
  toolCalls.slice(0, parallelCalls ? undefined : 1).map(({ arguments: given, id, name }) => ({
    id: id ?? `call_${randomUUID()}`,
    type: "function",
    function: { name, arguments: given },
  }))

const finishOf = ({ stopReason }: ModelHost.Sequence, calls: ReadonlyArray<unknown>) =>
  calls.length > 0 ? "tool_calls" : stopReason

const choiceOf = (talk: Talk, sequence: ModelHost.Sequence, index: number) =>
  Effect.gen(function* () {
    const drawn = ChatLogprobs.tokensOf(sequence).filter(({ token }) => isSaid(talk, token))
    const said = yield* saidBy(
      talk,
      Int32Array.from(drawn, ({ token }) => token),
      true,
    )
    const calls = callsOf(talk, said)
    const message = {
      role: "assistant",
      content: said.text === "" && calls.length > 0 ? null : said.text,
      ...(said.reasoning !== "" && { reasoning_content: said.reasoning }),
      ...(calls.length > 0 && { tool_calls: calls }),
    }
    return {
      index,
      ...(talk.kind === "chat" ? { message } : { text: said.text }),
      finish_reason: finishOf(sequence, calls),
      logprobs: (yield* logprobsOf(talk, drawn, 0)).value,
    }
  })

export const whole = (talk: Talk): Effect.Effect<Answer, Refusal> =>
  Effect.gen(function* () {
    const key = yield* talking(talk)
    const output = yield* Effect.mapError(talk.core.host.sample(key, talk.request), told)
    return json({
      ...head(talk, talk.kind === "chat" ? "chat.completion" : "text_completion"),
      choices: yield* Effect.forEach(output.sequences, (sequence, index) => choiceOf(talk, sequence, index)),
      usage: usageOf(talk, output),
    })
  }).pipe(Effect.scoped)

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

/** What comes of the model: tokens, then all of it or an end that was not meant. */
type News =
  | { readonly sequence: number; readonly token: ModelHost.SampledToken }
  | { readonly output: ModelHost.SampleOutput }
  | Refusal

const news = (talk: Talk): Stream.Stream<News, Refusal> =>
  Stream.unwrapScoped(
    Effect.gen(function* () {
      const key = yield* talking(talk)
      const queue = yield* Queue.unbounded<News>()
      yield* talk.core.host
        .sample(key, talk.request, (sequence, token) => Queue.unsafeOffer(queue, { sequence, token }))
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

/** One sequence on its way out. */
interface Track {
  readonly tokens: Array<number>
  /** Not told of yet. */
  untold: Array<ModelHost.SampledToken>
  text: number
  reasoning: number
  /** Where in the text the untold tokens begin. */
  offset: number
}

export const streamed = (talk: Talk): Answer => {
  const { kind, request } = talk
  const top = head(talk, kind === "chat" ? "chat.completion.chunk" : "text_completion")
  const tracks = Array.from({ length: request.numSamples }, (): Track => ({
    tokens: [],
    untold: [],
    text: 0,
    reasoning: 0,
    offset: 0,
  }))
  const choice = (index: number, said: object, finish: string | null = null, logprobs: object | null = null) =>
    event({ ...top, choices: [{ index, ...said, finish_reason: finish, logprobs }] })
  const deltaOf = (said: { readonly text: string; readonly reasoning: string }) =>
    kind === "text"
      ? { text: said.text }
      : {
          delta: {
            ...(said.text !== "" && { content: said.text }),
            ...(said.reasoning !== "" && { reasoning_content: said.reasoning }),
          },
        }

  /** What is new of a sequence, if anything can be said of it yet. */
  const more = (index: number, track: Track, isDone: boolean) =>
    Effect.gen(function* () {
      const said = yield* saidBy(talk, Int32Array.from(track.tokens), isDone)
      const text = isDone ? said.text : settled(said.text, request.stopTexts)
      const fresh = { text: text.slice(track.text), reasoning: said.reasoning.slice(track.reasoning) }
      const isSilent = fresh.text === "" && fresh.reasoning === ""
      if (isSilent && !(isDone && talk.logprobs && track.untold.length > 0)) return { said, parts: [] }
      const logprobs = yield* logprobsOf(talk, track.untold, track.offset)
      track.offset = logprobs.end
      track.untold = []
      track.text = Math.max(track.text, text.length)
      track.reasoning = Math.max(track.reasoning, said.reasoning.length)
      return { said, parts: [choice(index, deltaOf(fresh), null, logprobs.value)] }
    })

  const end = (output: ModelHost.SampleOutput) =>
    Effect.gen(function* () {
      const all: Array<Uint8Array> = []
      for (const [index, sequence] of output.sequences.entries()) {
        const track = tracks[index]
        if (track === undefined) continue
        const { parts, said } = yield* more(index, track, true)
        const calls = callsOf(talk, said)
        all.push(...parts)
        for (const [at, call] of calls.entries())
          all.push(choice(index, { delta: { tool_calls: [{ index: at, ...call }] } }))
        all.push(choice(index, deltaOf({ text: "", reasoning: "" }), finishOf(sequence, calls)))
      }
      if (talk.usage) all.push(event({ ...top, choices: [], usage: usageOf(talk, output) }))
      return [...all, event("[DONE]")]
    })

  const body = news(talk).pipe(
    Stream.mapConcatEffect((one) => {
      if (one instanceof Refusal) return Effect.fail(one)
      if ("output" in one) return end(one.output)
      const track = tracks[one.sequence]
      if (track === undefined || !isSaid(talk, one.token.token)) return Effect.succeed([])
      track.tokens.push(one.token.token)
      track.untold.push(one.token)
      return Effect.map(more(one.sequence, track, false), ({ parts }) => parts)
    }),
    // The answer has begun with 200: what goes wrong now is an event.
    Stream.catchAll((refusal) => Stream.make(event(asOpenAi(refusal)))),
  )
  const first = tracks.map((_, index) => choice(index, { delta: { role: "assistant", content: "" } }))
  return events(kind === "chat" ? Stream.concat(Stream.fromIterable(first), body) : body)
}
