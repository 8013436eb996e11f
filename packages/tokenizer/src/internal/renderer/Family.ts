/** Builds a renderer from a message format. A family describes the format as text; this module produces the tokens. */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as ModelInput from "effect-tinker/ModelInput"
import { InvalidInput } from "effect-tinker/TinkerError"
import { isMessage, type Message, parts, textOf, type ToolSpec } from "../../Message.ts"
import type { Delta, Example, Parsed, Parser, Renderer, Termination, TrainOn } from "../../Renderer.ts"
import { type Failure, type Reason, RendererError } from "../../RendererError.ts"
import type { Service, Tokens } from "../../Tokenizer.ts"
import * as Encoder from "./Encoder.ts"
import type { Scanner } from "./Scanner.ts"

export type Result<A> = Either.Either<A, RendererError | InvalidInput>

/** A message of an arranged conversation. */
export interface Entry {
  readonly message: Message
  /** The path used in errors. */
  readonly path: string
  /** Whether the format leaves out the reasoning of the message. */
  readonly dropsReasoning?: boolean | undefined
}

/** The position of a message in its conversation. */
export interface Place {
  readonly index: number
  readonly isLast: boolean
  readonly previous: Message | undefined
  readonly next: Message | undefined
  /** -1 if there is no user message. */
  readonly lastUserIndex: number
  /** Whether the message is part of the assistant's last turn. */
  readonly inLastTurn: boolean
  readonly path: string
  readonly dropsReasoning: boolean
}

export interface Rendered {
  /** The introduction of the message, which the model sees but does not write. */
  readonly header: string | Encoder.Segment
  /** The part that the model writes. */
  readonly output: ReadonlyArray<Encoder.Segment>
  /** The part of the stop sequence that belongs to the header of the next message. */
  readonly stopOverlap?: string | undefined
}

/** The messages up to a count, and what to train on among them. */
export type Part = readonly [count: number, trainOn: TrainOn]

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
  /** Adds, combines or reorders messages before they are rendered. */
  readonly arrange?: ((entries: ReadonlyArray<Entry>) => Result<ReadonlyArray<Entry>>) | undefined
  /** Returns where the last turn of the assistant starts. Default: after the last user message. */
  readonly turnStart?: ((messages: ReadonlyArray<Message>) => number) | undefined
  /** Splits a conversation into examples: how many messages each has, and its mode. Default: one per answer. */
  readonly split?: ((messages: ReadonlyArray<Message>, trainOn: TrainOn) => ReadonlyArray<Part>) | undefined
  /** The modes of the format, if not all; its examples end with the last answer that is trained on. */
  readonly modes?: ReadonlyArray<TrainOn> | undefined
  /** Whether an answer may be started for it. Default: true. */
  readonly prefills?: boolean | undefined
  readonly render: (message: Message, place: Place) => Result<Rendered>
  /** Returns the end of a prompt. */
  readonly suffix: (role: string, place: Place) => Result<string>
  readonly parse: (tokens: ReadonlyArray<number>) => Effect.Effect<Parsed, Failure>
  readonly scanner: () => Scanner
  /** A parser for formats that are not scanned as text. */
  readonly parser?: (() => Parser) | undefined
  readonly toolPrefix: (tools: ReadonlyArray<ToolSpec>, systemPrompt: string) => Result<ReadonlyArray<Message>>
}

export const reject = (renderer: string, reason: Reason, problem: string): Either.Either<never, RendererError> =>
  Either.left(new RendererError({ renderer, reason, problem }))

/** Checks whether a message has no parts at all, not even an empty text. */
export const hasNoParts = ({ content, toolCalls = [] }: Message): boolean =>
  typeof content !== "string" && content.length + toolCalls.length === 0

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

/** Returns the joined texts of a message without anything else. */
export const onlyTexts = (renderer: string, message: Message, path: string): Result<string> => {
  const other = parts(message).find(({ type }) => type !== "text")
  return other === undefined
    ? Either.right(textOf(message))
    : reject(renderer, "Unsupported", `${path}.content: expected texts, got a part of type ${other.type}`)
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

/** Splits off the token that ends the answer; fails if there is more than one. */
export const beforeStops = (
  renderer: string,
  tokens: ReadonlyArray<number>,
  stops: ReadonlyMap<number, Termination>,
): Either.Either<{ readonly before: ReadonlyArray<number>; readonly termination: Termination }, RendererError> => {
  const [place, more] = tokens.flatMap((token, index) => (stops.has(token) ? [index] : []))
  if (place === undefined) return Either.right({ before: tokens, termination: "malformed" })
  return more === undefined
    ? Either.right({ before: tokens.slice(0, place), termination: stops.get(tokens[place] ?? -1) ?? "malformed" })
    : reject(renderer, "WrongStop", "the answer has several stop tokens; sample with the renderer's stopSequences")
}

/** Parses answers: `restored` adds what the prompt already contains, `parse` gets the text before the stop token. */
export const parseWith =
  (
    renderer: string,
    tokenizer: Service,
    stops: ReadonlyMap<number, Termination>,
    parse: (text: string) => Message,
    restored: (tokens: ReadonlyArray<number>) => Effect.Effect<ReadonlyArray<number>, Failure> = Effect.succeed,
  ): Family["parse"] =>
  (tokens) =>
    Effect.gen(function* () {
      const { before, termination } = yield* beforeStops(renderer, yield* restored(tokens), stops)
      const text = yield* tokenizer.decode(before)
      return termination === "malformed"
        ? { message: { role: "assistant", content: text }, termination }
        : { message: parse(text), termination }
    })

/** Adds the opening of reasoning that the prompt ends with, if the answer has only the end of it. */
export const restoring =
  (tokenizer: Service, opening: string, close: number) =>
  (tokens: ReadonlyArray<number>): Effect.Effect<ReadonlyArray<number>, Failure> =>
    tokens.includes(close)
      ? Effect.map(tokenizer.encode(opening, { addSpecialTokens: false }), (first) =>
          first.every((token, index) => tokens[index] === token) ? tokens : [...first, ...tokens],
        )
      : Effect.succeed(tokens)

/** Puts a message before all others. */
export const prepended = (message: Message, entries: ReadonlyArray<Entry>): ReadonlyArray<Entry> => [
  { message, path: `the ${message.role} message that the format adds` },
  ...entries,
]

interface Piece {
  readonly segment: Encoder.Segment
  readonly weight: number
}

export const lastUser = (messages: ReadonlyArray<Message>): number =>
  messages.findLastIndex(({ role }) => role === "user")

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
  turnStart = lastUser(messages) + 1,
): Either.Either<ReadonlyArray<number>, RendererError> => {
  const from = {
    last_assistant_message: messages.length - 1,
    last_assistant_turn: turnStart,
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

const segmentOf = (header: Rendered["header"]): Encoder.Segment =>
  typeof header === "string" ? Encoder.fixed(header) : header

export const make = (family: Family, tokenizer: Service): Renderer => {
  const encoder = Encoder.make(tokenizer)
  const turnStart = family.turnStart ?? ((messages: ReadonlyArray<Message>) => lastUser(messages) + 1)

  const arranged = (messages: ReadonlyArray<Message>): Result<ReadonlyArray<Entry>> => {
    const entries = messages.map((message, index) => ({ message, path: `messages[${index}]` }))
    return family.arrange === undefined ? Either.right(entries) : family.arrange(entries)
  }

  const renderAll = (
    entries: ReadonlyArray<Entry>,
    start: number,
  ): Result<ReadonlyArray<readonly [Message, Place, Rendered]>> => {
    const lastUserIndex = lastUser(entries.map(({ message }) => message))
    return Either.all(
      entries.map(({ dropsReasoning, message, path }, index) => {
        const place: Place = {
          index,
          isLast: index === entries.length - 1,
          previous: entries[index - 1]?.message,
          next: entries[index + 1]?.message,
          lastUserIndex,
          inLastTurn: index >= start,
          path,
          dropsReasoning: dropsReasoning ?? false,
        }
        return Either.map(family.render(message, place), (rendered) => [message, place, rendered] as const)
      }),
    )
  }

  const bos: ReadonlyArray<Encoder.Segment> = family.bos === "" ? [] : [Encoder.fixed(family.bos)]

  const promptSegments = (entries: ReadonlyArray<Entry>, role: string): Result<ReadonlyArray<Encoder.Segment>> =>
    Either.gen(function* () {
      const messages = entries.map(({ message }) => message)
      const rendered = yield* renderAll(entries, turnStart(messages))
      const suffix = yield* family.suffix(role, {
        index: messages.length,
        isLast: true,
        previous: messages.at(-1),
        next: undefined,
        lastUserIndex: lastUser(messages),
        inLastTurn: true,
        path: "the answer",
        dropsReasoning: false,
      })
      return [
        ...bos,
        ...rendered.flatMap(([, , { header, output }]) => [segmentOf(header), ...output]),
        Encoder.fixed(suffix),
      ]
    })

  const pieces = (entries: ReadonlyArray<Entry>, trainOn: TrainOn): Result<ReadonlyArray<Piece>> =>
    Either.gen(function* () {
      const rendered = yield* renderAll(entries, turnStart(entries.slice(0, -1).map(({ message }) => message)))
      const headerWeight = trainOn === "all_tokens" ? 1 : 0
      const all: Array<Piece> = bos.map((segment) => ({ segment, weight: 0 }))
      for (const [message, place, { header, output, stopOverlap }] of rendered) {
        const weight = isTrained(message, place, trainOn) ? 1 : 0
        all.push({ segment: segmentOf(header), weight: headerWeight })
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

  /** Drops the messages after the last answer that is trained on, if the format requires it. */
  const trimmed = (entries: ReadonlyArray<Entry>, trainOn: TrainOn): Result<ReadonlyArray<Entry>> => {
    if (family.modes === undefined) return Either.right(entries)
    if (!family.modes.includes(trainOn)) {
      return reject(family.name, "Unsupported", `${trainOn}: expected ${family.modes.join(", ")}`)
    }
    const isTarget = ({ message }: Entry) =>
      !hasNoParts(message) && (trainOn !== "customized" || message.trainable === true)
    const other = entries.find((entry) => entry.message.trainable === true && entry.message.role !== "assistant")
    if (other !== undefined) return reject(family.name, "Unsupported", `${other.path}: only answers can be trained on`)
    const last = entries.findLastIndex((entry) => entry.message.role === "assistant" && isTarget(entry))
    return last === -1
      ? reject(family.name, "Unsupported", "the conversation has no answer to train on")
      : Either.right(entries.slice(0, last + 1))
  }

  const example = (messages: ReadonlyArray<Message>, trainOn: TrainOn, memo: Encoder.Memo) =>
    Effect.gen(function* () {
      yield* checkTrainable(messages, trainOn)
      const entries = yield* trimmed(yield* arranged(messages), trainOn)
      const weighted = yield* pieces(entries, trainOn)
      const segments = weighted.map(({ segment }) => segment)
      // The reference compares with the prompt only in conversations without images.
      const boundary = segments.some((segment) => "image" in segment)
        ? undefined
        : boundaryOf(
            entries.map(({ message }) => message),
            trainOn,
          )
      const prompt = boundary === undefined ? [] : yield* promptSegments(entries.slice(0, boundary), "assistant")
      // One call for both, because most of the prompt is also in the example.
      yield* encoder.prepare([...segments, ...prompt], memo)
      const lengths = segments.map((segment) => encoder.lengthOf(segment, memo))
      const weights = new Float32Array(lengths.reduce((sum, length) => sum + length, 0))
      let at = 0
      for (const [index, { weight }] of weighted.entries()) {
        const end = at + (lengths[index] ?? 0)
        if (weight !== 0) weights.fill(weight, at, end)
        at = end
      }
      return {
        modelInput: encoder.toInput(segments, memo),
        weights:
          boundary === undefined
            ? weights
            : yield* afterPrompt(encoder.join(segments, memo), weights, encoder.join(prompt, memo)),
      } satisfies Example
    })

  const split = (messages: ReadonlyArray<Message>, trainOn: TrainOn): Result<ReadonlyArray<Part>> => {
    if (family.split !== undefined) return Either.right(family.split(messages, trainOn))
    if (family.hasExtensionProperty) return Either.right([[messages.length, trainOn]])
    return Either.map(turnsOf(family.name, messages, trainOn, turnStart(messages)), (turns) =>
      turns.map((index) => [index + 1, "last_assistant_message"]),
    )
  }

  return {
    name: family.name,
    hasExtensionProperty: family.hasExtensionProperty,
    stopSequences: family.stopSequences,
    generationPrompt: Effect.fn("Renderer.generationPrompt")(function* (messages, options) {
      yield* checkMessages(messages)
      if (options?.prefill !== undefined && family.prefills === false) {
        return yield* reject(family.name, "Unsupported", "prefill: the format has no unfinished messages")
      }
      const memo = Encoder.memo()
      const segments = [
        ...(yield* promptSegments(yield* arranged(messages), options?.role ?? "assistant")),
        ...(options?.prefill === undefined ? [] : [{ text: options.prefill }]),
      ]
      yield* encoder.prepare(segments, memo)
      return encoder.toInput(segments, memo)
    }),
    supervisedExample: Effect.fn("Renderer.supervisedExample")(function* (messages, trainOn) {
      yield* checkMessages(messages)
      return yield* example(messages, trainOn ?? "last_assistant_message", Encoder.memo())
    }),
    supervisedExamples: Effect.fn("Renderer.supervisedExamples")(function* (messages, trainOn) {
      yield* checkMessages(messages)
      const memo = Encoder.memo()
      const given = yield* split(messages, trainOn ?? "last_assistant_turn")
      return yield* Effect.forEach(given, ([count, mode]) => example(messages.slice(0, count), mode, memo))
    }),
    parse: (tokens) => Effect.suspend(() => family.parse(numbersOf(tokens))),
    parser: family.parser ?? (() => parserOf(tokenizer, family)),
    toolPrefix: (tools, systemPrompt) => Effect.suspend(() => family.toolPrefix(tools, systemPrompt ?? "")),
  }
}
