/** Builds the responses of the OpenAI-compatible endpoints, complete or streamedResponse. */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
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
import { openSampler } from "./Samplers.ts"
import { hourOf } from "./State.ts"

export interface Completion {
  readonly core: Core
  readonly owner: string
  readonly kind: "chat" | "text"
  /** The model name from the request. */
  readonly model: string
  readonly now: number
  readonly source: Source
  readonly request: ModelHost.SampleRequest
  readonly logprobs: boolean
  /** Whether more than one tool call of an answer is returned. */
  readonly parallelCalls: boolean
  readonly usage: boolean
}

/** Converts a model failure to a refusal. */
export const toRefusal = (error: ModelHost.HostError | Refusal): Refusal =>
  error._tag === "Refusal"
    ? error
    : new Refusal({ status: error.reason === "invalid" ? 400 : 500, detail: error.message })

const head = ({ kind, model, now }: Completion, object: string) => ({
  id: `${kind === "chat" ? "chatcmpl" : "cmpl"}-${randomUUID()}`,
  object,
  created: Math.floor(now / 1000),
  model,
})

const usageOf = ({ request }: Completion, output: ModelHost.SampleOutput) => {
  const generated = drawnIn(output)
  const prompt = request.prompt.length
  return { prompt_tokens: prompt, completion_tokens: generated, total_tokens: prompt + generated }
}

/**
 * Counts the prompt and the drawn tokens as usage of the key. An answer is not withheld because it can't be counted.
 */
const count = ({ core, owner, request, source }: Completion, drawn: number): Effect.Effect<void> =>
  Effect.flatMap(Clock.currentTimeMillis, (now) => {
    const row = { bucket: hourOf(now), owner, sessionId: "", baseModel: source.base.name }
    return core.store.count([
      { ...row, kind: "sampling_prefill", count: request.prompt.length },
      { ...row, kind: "sampling_sample", count: drawn },
    ])
  }).pipe(Effect.catchAll((error) => Effect.logError(error.message)))

const drawnIn = ({ sequences }: ModelHost.SampleOutput): number =>
  sequences.reduce((sum, { tokens }) => sum + tokens.length, 0)

/** Opens the sampler and keeps it open until the scope closes. */
const acquireSampler = ({ core, source }: Completion): Effect.Effect<string, Refusal, Scope.Scope> =>
  Effect.gen(function* () {
    const key = yield* Effect.mapError(openSampler(core, source.base.name, source.weights), toRefusal)
    const { activeCompletions } = core.state
    const add = (count: number) =>
      Effect.sync(() => activeCompletions.set(key, (activeCompletions.get(key) ?? 0) + count))
    yield* Effect.acquireRelease(add(1), () => add(-1))
    return key
  })

/** Decodes and parses an answer; cuts its text off at the first stop text. */
const parseAnswer = ({ core, kind, request, source }: Completion, tokens: Int32Array, isDone: boolean) => {
  const { name } = source.base
  const said =
    kind === "chat"
      ? core.host.readAnswer(name, tokens, isDone)
      : Effect.map(core.host.decode(name, tokens), (text) => ({ text, reasoning: "", toolCalls: [] }))
  return Effect.map(Effect.mapError(said, toRefusal), (said): ModelHost.Said => {
    const cuts = request.stopTexts.map((stop) => said.text.indexOf(stop)).filter((at) => at >= 0)
    return cuts.length === 0 ? said : { ...said, text: said.text.slice(0, Math.min(...cuts)) }
  })
}

/** Checks whether a token is content and not one that ends the sequence. */
const isContent = ({ request }: Completion, token: number): boolean => !request.stopTokens.includes(token)

const logprobsOf = (completion: Completion, tokens: ReadonlyArray<ModelHost.SampledToken>, from: number) =>
  completion.logprobs
    ? Effect.mapError(
        ChatLogprobs.encode(completion.core, completion.source.base, completion.kind, tokens, from),
        toRefusal,
      )
    : Effect.succeed({ value: null, end: from })

const callsOf = ({ parallelCalls }: Completion, { toolCalls }: ModelHost.Said) =>
  toolCalls.slice(0, parallelCalls ? undefined : 1).map(({ arguments: given, id, name }) => ({
    id: id ?? `call_${randomUUID()}`,
    type: "function",
    function: { name, arguments: given },
  }))

const finishOf = ({ stopReason }: ModelHost.Sequence, calls: ReadonlyArray<unknown>) =>
  calls.length > 0 ? "tool_calls" : stopReason

const choiceOf = (completion: Completion, sequence: ModelHost.Sequence, index: number) =>
  Effect.gen(function* () {
    const drawn = ChatLogprobs.tokensOf(sequence).filter(({ token }) => isContent(completion, token))
    const said = yield* parseAnswer(
      completion,
      Int32Array.from(drawn, ({ token }) => token),
      true,
    )
    const calls = callsOf(completion, said)
    const message = {
      role: "assistant",
      content: said.text === "" && calls.length > 0 ? null : said.text,
      ...(said.reasoning !== "" && { reasoning_content: said.reasoning }),
      ...(calls.length > 0 && { tool_calls: calls }),
    }
    return {
      index,
      ...(completion.kind === "chat" ? { message } : { text: said.text }),
      finish_reason: finishOf(sequence, calls),
      logprobs: (yield* logprobsOf(completion, drawn, 0)).value,
    }
  })

export const completeResponse = (completion: Completion): Effect.Effect<Answer, Refusal> =>
  Effect.gen(function* () {
    const key = yield* acquireSampler(completion)
    const { core, owner, request } = completion
    const output = yield* Effect.mapError(core.turns.run(owner)(core.host.sample(key, request)), toRefusal)
    yield* count(completion, drawnIn(output))
    return json({
      ...head(completion, completion.kind === "chat" ? "chat.completion" : "text_completion"),
      choices: yield* Effect.forEach(output.sequences, (sequence, index) => choiceOf(completion, sequence, index)),
      usage: usageOf(completion, output),
    })
  }).pipe(Effect.scoped)

/**
 * Returns the part of a text that can no longer change, without a partial character or a possible start of a stop text.
 */
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

/** The events of a running sample: tokens, then the complete output or a failure. */
type Progress =
  | { readonly sequence: number; readonly token: ModelHost.SampledToken }
  | { readonly output: ModelHost.SampleOutput }
  | Refusal

const progress = (completion: Completion): Stream.Stream<Progress, Refusal> =>
  Stream.unwrapScoped(
    Effect.gen(function* () {
      const key = yield* acquireSampler(completion)
      const queue = yield* Queue.unbounded<Progress>()
      let drawn = 0
      yield* completion.core.host
        .sample(key, completion.request, (sequence, token) => {
          drawn++
          return Queue.unsafeOffer(queue, { sequence, token })
        })
        .pipe(
          completion.core.turns.run(completion.owner),
          // Tokens drawn before the client left count as work, too.
          Effect.onExit((exit) => {
            if (Exit.isSuccess(exit)) return count(completion, drawnIn(exit.value))
            return Exit.isInterrupted(exit) ? count(completion, drawn) : Effect.void
          }),
          Effect.matchEffect({
            onSuccess: (output) => Queue.offer(queue, { output }),
            onFailure: (error) => Queue.offer(queue, toRefusal(error)),
          }),
          Effect.forkScoped,
        )
      return Stream.repeatEffect(Queue.take(queue)).pipe(Stream.takeUntil((one) => !("token" in one)))
    }),
  )

/** The streaming state of one sequence. */
interface Track {
  readonly tokens: Array<number>
  /** Tokens that have not been sent yet. */
  pending: Array<ModelHost.SampledToken>
  text: number
  reasoning: number
  /** The offset in the text at which the pending tokens start. */
  offset: number
}

export const streamedResponse = (completion: Completion): Answer => {
  const { kind, request } = completion
  const top = head(completion, kind === "chat" ? "chat.completion.chunk" : "text_completion")
  const tracks = Array.from({ length: request.numSamples }, (): Track => ({
    tokens: [],
    pending: [],
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

  /** Returns the next chunks of a sequence, or none if nothing can be sent yet. */
  const nextChunks = (index: number, track: Track, isDone: boolean) =>
    Effect.gen(function* () {
      const said = yield* parseAnswer(completion, Int32Array.from(track.tokens), isDone)
      const text = isDone ? said.text : settled(said.text, request.stopTexts)
      const fresh = { text: text.slice(track.text), reasoning: said.reasoning.slice(track.reasoning) }
      const isSilent = fresh.text === "" && fresh.reasoning === ""
      if (isSilent && !(isDone && completion.logprobs && track.pending.length > 0)) return { said, parts: [] }
      const logprobs = yield* logprobsOf(completion, track.pending, track.offset)
      track.offset = logprobs.end
      track.pending = []
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
        const { parts, said } = yield* nextChunks(index, track, true)
        const calls = callsOf(completion, said)
        all.push(...parts)
        for (const [at, call] of calls.entries())
          all.push(choice(index, { delta: { tool_calls: [{ index: at, ...call }] } }))
        all.push(choice(index, deltaOf({ text: "", reasoning: "" }), finishOf(sequence, calls)))
      }
      if (completion.usage) all.push(event({ ...top, choices: [], usage: usageOf(completion, output) }))
      return [...all, event("[DONE]")]
    })

  const body = progress(completion).pipe(
    Stream.mapConcatEffect((one) => {
      if (one instanceof Refusal) return Effect.fail(one)
      if ("output" in one) return end(one.output)
      const track = tracks[one.sequence]
      if (track === undefined || !isContent(completion, one.token.token)) return Effect.succeed([])
      track.tokens.push(one.token.token)
      track.pending.push(one.token)
      return Effect.map(nextChunks(one.sequence, track, false), ({ parts }) => parts)
    }),
    // The response has already started with status 200, so a failure is sent as an event.
    Stream.catchAll((refusal) => Stream.make(event(asOpenAi(refusal)))),
  )
  const first = tracks.map((_, index) => choice(index, { delta: { role: "assistant", content: "" } }))
  return events(kind === "chat" ? Stream.concat(Stream.fromIterable(first), body) : body)
}
