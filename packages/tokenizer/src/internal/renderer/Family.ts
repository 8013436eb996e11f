/** Builds a renderer from a message format. A family describes the format as text; this module produces the tokens. */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as ModelInput from "effect-tinker/ModelInput"
import { InvalidInput } from "effect-tinker/TinkerError"
import { isMessage, type Message, parts, type ToolSpec } from "../../Message.ts"
import type { Delta, Example, Parsed, Parser, Renderer, TrainOn } from "../../Renderer.ts"
import { type Failure, type Reason, RendererError } from "../../RendererError.ts"
import type { Service, Tokens } from "../../Tokenizer.ts"
import * as Encoder from "./Encoder.ts"
import type { Scanner } from "./Scanner.ts"

export type Result<A> = Either.Either<A, RendererError | InvalidInput>

/** The position of a message in its conversation. */
export interface Place {
  readonly index: number
  readonly isLast: boolean
  /** -1 if there is no user message. */
  readonly lastUserIndex: number
  /** Whether the message is part of the assistant's turn after the last user message. */
  readonly inLastTurn: boolean
  /** The path used in errors. */
  readonly path: string
}

export interface Rendered {
  /** The introduction of the message, which the model sees but does not write. */
  readonly header: string
  /** The part that the model writes. */
  readonly output: ReadonlyArray<Encoder.Segment>
  /** The part of the stop sequence that belongs to the header of the next message. */
  readonly stopOverlap?: string | undefined
}

export interface Family {
  readonly name: string
  readonly hasExtensionProperty: boolean
  readonly stopSequences: Renderer["stopSequences"]
  /** Tokens that end an answer. */
  readonly stopTokens: ReadonlySet<number>
  /** Text at the very start, or empty. */
  readonly bos: string
  /** Whether the generation prompt tells the model not to reason. */
  readonly disablesThinking: boolean
  /** A message at the start of every conversation. */
  readonly prelude: Option.Option<Message>
  readonly render: (message: Message, place: Place) => Result<Rendered>
  /** Returns the end of a prompt. */
  readonly suffix: (role: string, place: Place) => Result<string>
  readonly parse: (tokens: ReadonlyArray<number>) => Effect.Effect<Parsed, Failure>
  readonly scanner: () => Scanner
  readonly toolPrefix: (tools: ReadonlyArray<ToolSpec>, systemPrompt: string) => Result<ReadonlyArray<Message>>
}

export const reject = (renderer: string, reason: Reason, problem: string): Either.Either<never, RendererError> =>
  Either.left(new RendererError({ renderer, reason, problem }))

export const invalid = (path: string, problem: string): Either.Either<never, InvalidInput> =>
  Either.left(new InvalidInput({ path, problem }))

/** Returns the only text of a message, for formats that support nothing else. */
export const onlyText = (renderer: string, { content, toolCalls = [] }: Message, path: string): Result<string> => {
  if (toolCalls.length > 0) return reject(renderer, "Unsupported", `${path}.toolCalls: not supported by ${renderer}`)
  if (typeof content === "string") return Either.right(content)
  const [first, ...more] = content
  if (first?.type === "text" && more.length === 0) return Either.right(first.text)
  const kinds = [...new Set(content.map(({ type }) => type))].join(", ")
  return reject(renderer, "Unsupported", `${path}.content: expected one text, got ${content.length} parts (${kinds})`)
}

/** Rejects messages with images. */
export const withoutImages = (renderer: string, message: Message, path: string): Result<void> =>
  parts(message).some(({ type }) => type === "image")
    ? reject(renderer, "Unsupported", `${path}.content: images are not supported`)
    : Either.void

export const noTools = (renderer: string, hint: string) => (): Result<never> =>
  reject(renderer, "Unsupported", `tools are not supported: ${hint}`)

/** Returns the id of a token that the format requires. */
export const tokenOf = (renderer: string, tokenizer: Service, token: string): Either.Either<number, RendererError> =>
  Option.match(tokenizer.tokenToId(token), {
    onSome: Either.right,
    onNone: () => reject(renderer, "WrongTokenizer", `the tokenizer ${tokenizer.name} has no token ${token}`),
  })

/** Splits off the stop token; fails if there is more than one. */
export const beforeStop = (
  renderer: string,
  tokens: ReadonlyArray<number>,
  stop: number,
): Either.Either<{ readonly before: ReadonlyArray<number>; readonly stopped: boolean }, RendererError> => {
  const place = tokens.indexOf(stop)
  if (place === -1) return Either.right({ before: tokens, stopped: false })
  return tokens.includes(stop, place + 1)
    ? reject(
        renderer,
        "WrongStop",
        `the answer contains the stop token ${stop} more than once; sample with the renderer's stopSequences`,
      )
    : Either.right({ before: tokens.slice(0, place), stopped: true })
}

interface Piece {
  readonly segment: Encoder.Segment
  readonly weight: number
}

const lastUser = (messages: ReadonlyArray<Message>): number => messages.findLastIndex(({ role }) => role === "user")

const checkMessages = (messages: ReadonlyArray<Message>): Result<void> => {
  if (!Array.isArray(messages)) return invalid("messages", "expected an array of messages")
  const bad = messages.findIndex((message) => !isMessage(message))
  return bad === -1 ? Either.void : invalid(`messages[${bad}]`, "expected a message: { role, content }")
}

const checkTrainable = (messages: ReadonlyArray<Message>, trainOn: TrainOn): Result<void> => {
  const custom = trainOn === "customized"
  const bad = messages.findIndex(({ trainable }) => (trainable !== undefined) !== custom)
  if (bad === -1) return Either.void
  return invalid(
    `messages[${bad}].trainable`,
    custom
      ? "missing; required for every message with customized"
      : `not allowed with ${trainOn}; use customized or remove it`,
  )
}

const isTrained = (message: Message, place: Place, trainOn: TrainOn): boolean => {
  const isAssistant = message.role === "assistant"
  switch (trainOn) {
    case "last_assistant_message":
      return isAssistant && place.isLast
    case "last_assistant_turn":
      return isAssistant && place.inLastTurn
    case "all_assistant_messages":
      return isAssistant
    case "all_messages":
    case "all_tokens":
      return true
    case "all_user_and_system_messages":
      return message.role === "user" || message.role === "system"
    case "customized":
      return message.trainable === true
  }
}

/** Returns the index of the first message that the model writes, if the mode has such a message. */
const boundaryOf = (messages: ReadonlyArray<Message>, trainOn: TrainOn): number | undefined => {
  const boundary =
    trainOn === "last_assistant_message"
      ? messages.length - 1
      : trainOn === "last_assistant_turn"
        ? lastUser(messages) + 1
        : -1
  return messages[boundary]?.role === "assistant" ? boundary : undefined
}

const startsWith = (tokens: Int32Array, prefix: Int32Array): boolean =>
  prefix.length <= tokens.length && prefix.every((token, index) => token === tokens[index])

/** Returns one text chunk, or no chunk for no tokens: servers reject empty chunks. */
export const toInput = (tokens: Int32Array): ModelInput.ModelInput =>
  tokens.length === 0 ? ModelInput.empty : ModelInput.make({ type: "encoded_text", tokens })

/** Returns the assistant messages that become separate examples if the extension property does not hold. */
export const turnsOf = (
  renderer: string,
  messages: ReadonlyArray<Message>,
  trainOn: TrainOn,
): Either.Either<ReadonlyArray<number>, RendererError> => {
  const from = {
    last_assistant_message: messages.length - 1,
    last_assistant_turn: lastUser(messages) + 1,
    all_assistant_messages: 0,
  }
  return trainOn in from
    ? Either.right(
        messages.flatMap(({ role }, index) =>
          role === "assistant" && index >= from[trainOn as keyof typeof from] ? [index] : [],
        ),
      )
    : reject(
        renderer,
        "Unsupported",
        `${trainOn} can't be split into one example per turn, which this renderer needs because it changes the history; use supervisedExample`,
      )
}

/** Creates a parser that emits deltas up to the stop token and parses the whole answer at the end. */
export const parserOf = (
  tokenizer: Service,
  { parse, scanner, stopTokens }: Pick<Family, "parse" | "scanner" | "stopTokens">,
): Parser => {
  const decoder = tokenizer.decoder()
  let current = scanner()
  let all: Array<number> = []
  let stopped = false
  return {
    push: (tokens) =>
      Effect.suspend(() => {
        const read: Array<number> = []
        for (const token of tokens) {
          all.push(token)
          stopped = stopped || stopTokens.has(token)
          if (!stopped) read.push(token)
        }
        return Effect.map(decoder.push(read), (text) => current.push(text))
      }),
    finish: Effect.suspend(() => {
      const tokens = all
      const scanned = current
      all = []
      stopped = false
      current = scanner()
      return Effect.gen(function* () {
        const rest = [...scanned.push(yield* decoder.finish), ...scanned.finish()]
        return [...rest, { type: "end", ...(yield* parse(tokens)) }] satisfies ReadonlyArray<Delta>
      })
    }),
  }
}

/** Converts tokens to an array; the tokenizer validates them when it decodes. */
export const numbersOf = (tokens: Tokens): ReadonlyArray<number> =>
  Array.isArray(tokens) ? tokens : Array.from(tokens)

export const make = (family: Family, tokenizer: Service): Renderer => {
  const encoder = Encoder.make(tokenizer)
  const prelude = Option.toArray(family.prelude)

  const placesOf = (messages: ReadonlyArray<Message>, turnStart: number): ReadonlyArray<Place> => {
    const lastUserIndex = lastUser(messages)
    return messages.map((_, index) => ({
      index,
      isLast: index === messages.length - 1,
      lastUserIndex,
      inLastTurn: index >= turnStart,
      path: `messages[${index - prelude.length}]`,
    }))
  }

  const renderAll = (
    messages: ReadonlyArray<Message>,
    places: ReadonlyArray<Place>,
  ): Result<ReadonlyArray<readonly [Message, Place, Rendered]>> =>
    Either.all(
      messages.flatMap((message, index) => {
        const place = places[index]
        return place === undefined
          ? []
          : [Either.map(family.render(message, place), (rendered) => [message, place, rendered] as const)]
      }),
    )

  const bos: ReadonlyArray<Encoder.Segment> = family.bos === "" ? [] : [Encoder.fixed(family.bos)]

  /** Returns the segments of a prompt; `messages` must include the prelude. */
  const promptSegments = (messages: ReadonlyArray<Message>, role: string): Result<ReadonlyArray<Encoder.Segment>> =>
    Either.gen(function* () {
      const lastUserIndex = lastUser(messages)
      const rendered = yield* renderAll(messages, placesOf(messages, lastUserIndex + 1))
      const suffix = yield* family.suffix(role, {
        index: messages.length,
        isLast: true,
        lastUserIndex,
        inLastTurn: true,
        path: "the answer",
      })
      return [
        ...bos,
        ...rendered.flatMap(([, , { header, output }]) => [Encoder.fixed(header), ...output]),
        Encoder.fixed(suffix),
      ]
    })

  const pieces = (messages: ReadonlyArray<Message>, trainOn: TrainOn): Result<ReadonlyArray<Piece>> =>
    Either.gen(function* () {
      const rendered = yield* renderAll(messages, placesOf(messages, lastUser(messages.slice(0, -1)) + 1))
      const headerWeight = trainOn === "all_tokens" ? 1 : 0
      const all: Array<Piece> = bos.map((segment) => ({ segment, weight: 0 }))
      for (const [message, place, { header, output, stopOverlap }] of rendered) {
        const weight = isTrained(message, place, trainOn) ? 1 : 0
        all.push({ segment: Encoder.fixed(header), weight: headerWeight })
        for (const segment of output) all.push({ segment, weight })
        if (place.isLast && stopOverlap !== undefined) all.push({ segment: Encoder.fixed(stopOverlap), weight })
      }
      return all
    })

  /** Sets the weights of the tokens that the prompt supplies to 0. */
  const afterPrompt = (tokens: Int32Array, weights: Float32Array, prompt: Int32Array): Result<Float32Array> => {
    if (startsWith(tokens, prompt)) return Either.right(weights.fill(0, 0, prompt.length))
    return family.disablesThinking
      ? reject(
          family.name,
          "Contradiction",
          "the prompt tells the model not to reason, but this answer contains reasoning; remove it or use the renderer with thinking",
        )
      : Either.right(weights)
  }

  const example = (messages: ReadonlyArray<Message>, trainOn: TrainOn, memo: Encoder.Memo) =>
    Effect.gen(function* () {
      yield* checkTrainable(messages, trainOn)
      const whole = [...prelude, ...messages]
      const weighted = yield* pieces(whole, trainOn)
      const boundary = boundaryOf(whole, trainOn)
      const prompt = boundary === undefined ? [] : yield* promptSegments(whole.slice(0, boundary), "assistant")
      // One call for both, because most of the prompt is also in the example.
      yield* encoder.prepare([...weighted.map(({ segment }) => segment), ...prompt], memo)
      const tokens = encoder.join(
        weighted.map(({ segment }) => segment),
        memo,
      )
      const weights = new Float32Array(tokens.length)
      let at = 0
      for (const { segment, weight } of weighted) {
        const end = at + encoder.tokens(segment, memo).length
        if (weight !== 0) weights.fill(weight, at, end)
        at = end
      }
      return {
        modelInput: toInput(tokens),
        weights: boundary === undefined ? weights : yield* afterPrompt(tokens, weights, encoder.join(prompt, memo)),
      } satisfies Example
    })

  const { name, parse } = family
  return {
    name,
    hasExtensionProperty: family.hasExtensionProperty,
    stopSequences: family.stopSequences,
    generationPrompt: Effect.fn("Renderer.generationPrompt")(function* (messages, options) {
      yield* checkMessages(messages)
      const memo = Encoder.memo()
      const segments = [
        ...(yield* promptSegments([...prelude, ...messages], options?.role ?? "assistant")),
        ...(options?.prefill === undefined ? [] : [{ text: options.prefill }]),
      ]
      yield* encoder.prepare(segments, memo)
      return toInput(encoder.join(segments, memo))
    }),
    supervisedExample: Effect.fn("Renderer.supervisedExample")(function* (messages, trainOn) {
      yield* checkMessages(messages)
      return yield* example(messages, trainOn ?? "last_assistant_message", Encoder.memo())
    }),
    supervisedExamples: Effect.fn("Renderer.supervisedExamples")(function* (messages, given) {
      yield* checkMessages(messages)
      const trainOn = given ?? "last_assistant_turn"
      const memo = Encoder.memo()
      if (family.hasExtensionProperty) return [yield* example(messages, trainOn, memo)]
      const turns = yield* turnsOf(name, messages, trainOn)
      return yield* Effect.forEach(turns, (index) =>
        example(messages.slice(0, index + 1), "last_assistant_message", memo),
      )
    }),
    parse: (tokens) => Effect.suspend(() => parse(numbersOf(tokens))),
    parser: () => parserOf(tokenizer, family),
    toolPrefix: (tools, systemPrompt) => Effect.suspend(() => family.toolPrefix(tools, systemPrompt ?? "")),
  }
}
