/**
 * Checks training data before a paid run and counts the problems it finds.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as ParseResult from "effect/ParseResult"
import * as Predicate from "effect/Predicate"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import * as Loss from "effect-tinker/Loss"
import * as ModelInput from "effect-tinker/ModelInput"
import type { Row } from "./Dataset.ts"
import * as Datums from "./Datums.ts"
import { Conversation, jsonKeys, type Message } from "./Message.ts"
import type { Renderer, TrainOn } from "./Renderer.ts"
import * as Renderers from "./Renderers.ts"
import type * as Tokenizer from "./Tokenizer.ts"

/**
 * The kind of problem that a finding reports:
 *
 * - `unreadable`: the row is not a conversation
 * - `unknown_key`: nothing reads this key; it may be misspelled
 * - `renderer_mismatch`: the renderer was made for other models
 * - `not_rendered`: the renderer rejects the conversation
 * - `special_token`: a message text spells out a special token
 * - `nothing_learnt`: no token has a weight
 * - `context_overflow`: the datum has more tokens than the model accepts
 * - `image_without_tokens`: an image or audio chunk does not say how many tokens it takes
 * - `bad_datum`: the loss would reject it: wrong type, shape or length, or an unknown or missing input
 *
 * @since 0.1.0
 * @category models
 */
export type Check =
  | "unreadable"
  | "unknown_key"
  | "renderer_mismatch"
  | "not_rendered"
  | "special_token"
  | "nothing_learnt"
  | "context_overflow"
  | "image_without_tokens"
  | "bad_datum"

/**
 * All problems of one kind, with a few examples.
 *
 * @since 0.1.0
 * @category models
 */
export interface Finding {
  readonly check: Check
  /** An `error` would fail on the server or waste a paid run. */
  readonly severity: "error" | "warning"
  readonly count: number
  /** The first occurrences: row number (line number or position in the data, from 1) and description. */
  readonly examples: ReadonlyArray<{ readonly row: number; readonly problem: string }>
}

/**
 * The result of a check: totals and findings.
 *
 * @since 0.1.0
 * @category models
 */
export interface Report {
  readonly rows: number
  readonly datums: number
  readonly tokens: number
  /** Tokens whose weight is not 0. */
  readonly learntTokens: number
  readonly longest: number
  /** Sorted by severity, errors first. */
  readonly findings: ReadonlyArray<Finding>
}

const warnings: ReadonlySet<Check> = new Set(["unknown_key", "special_token"])

class Tally {
  rows = 0
  datums = 0
  tokens = 0
  learntTokens = 0
  longest = 0
  private readonly found = new Map<Check, { count: number; examples: Array<{ row: number; problem: string }> }>()

  private readonly maxExamples: number
  constructor(maxExamples: number) {
    this.maxExamples = maxExamples
  }

  add(check: Check, row: number, problem: string): void {
    const known = this.found.get(check) ?? { count: 0, examples: [] }
    this.found.set(check, known)
    known.count++
    if (known.examples.length < this.maxExamples) known.examples.push({ row, problem })
  }

  report(): Report {
    const findings = [...this.found].map(([check, { count, examples }]): Finding => ({
      check,
      severity: warnings.has(check) ? "warning" : "error",
      count,
      examples,
    }))
    return {
      rows: this.rows,
      datums: this.datums,
      tokens: this.tokens,
      learntTokens: this.learntTokens,
      longest: this.longest,
      findings: findings.toSorted((one, other) => one.severity.localeCompare(other.severity)),
    }
  }
}

/**
 * Options of {@link datums}.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** The most tokens the model accepts. */
  readonly maxLength?: number | undefined
  /** The number of examples kept for each finding. Default: 5. */
  readonly maxExamples?: number | undefined
}

const isMedium = ({ type }: { readonly type: string }) => type !== "encoded_text"

const chunksOf = (datum: unknown): ReadonlyArray<ModelInput.Chunk> => {
  const input = Predicate.isRecord(datum) ? datum["modelInput"] : undefined
  return input instanceof ModelInput.ModelInput ? input.chunks : []
}

const checkDatum = (
  tally: Tally,
  loss: Loss.Loss<never>,
  datum: unknown,
  row: number,
  { maxLength }: Options,
): void => {
  tally.datums++
  const uncounted = chunksOf(datum).findIndex(
    (chunk) => isMedium(chunk) && Option.isNone(ModelInput.length({ chunks: [chunk] })),
  )
  if (uncounted !== -1) tally.add("image_without_tokens", row, `modelInput.chunks[${uncounted}] has no token count`)
  const prepared = Loss.prepareUnknown(loss, [datum])
  if (Either.isLeft(prepared)) {
    const { path, problem } = prepared.left
    tally.add("bad_datum", row, `${path.replace(/^data\[0\]\.?/, "") || "datum"}: ${problem}`)
    return
  }
  for (const { chunks, inputs } of prepared.right.data) {
    const length = Option.getOrElse(ModelInput.length({ chunks }), () => 0)
    tally.tokens += length
    tally.longest = Math.max(tally.longest, length)
    if (maxLength !== undefined && length > maxLength) {
      tally.add("context_overflow", row, `${length} tokens, ${length - maxLength} more than ${maxLength}`)
    }
    // A target contributes to the loss through its weight or its advantage.
    const counting = inputs.find(({ name }) => name === "weights") ?? inputs.find(({ name }) => name === "advantages")
    if (counting === undefined) continue
    let trained = 0
    for (const value of counting.tensor.data) if (Number(value) !== 0) trained++
    tally.learntTokens += trained
    if (trained === 0) tally.add("nothing_learnt", row, `all ${counting.key} are 0`)
  }
}

/**
 * Checks data that is ready to be sent.
 *
 * @since 0.1.0
 * @category linting
 */
export const datums = <E, R>(
  data: Stream.Stream<unknown, E, R>,
  options: Options & { readonly loss: Loss.Loss<never> },
): Effect.Effect<Report, E, R> =>
  Effect.suspend(() => {
    const tally = new Tally(options.maxExamples ?? 5)
    return Effect.map(
      Stream.runForEach(data, (datum) =>
        Effect.sync(() => checkDatum(tally, options.loss, datum, ++tally.rows, options)),
      ),
      () => tally.report(),
    )
  })

/**
 * Options of {@link conversations}.
 *
 * @since 0.1.0
 * @category models
 */
export interface ConversationOptions extends Options {
  readonly renderer: Renderer
  /** The model to be trained. */
  readonly model?: string | undefined
  /** If given, message texts are searched for special tokens. */
  readonly tokenizer?: Pick<Tokenizer.Service, "specialTokens"> | undefined
  /** Default: `all_assistant_messages`. */
  readonly trainOn?: TrainOn | undefined
}

const unknownKeys = (row: unknown): ReadonlyArray<string> => {
  const messages = Predicate.isRecord(row) ? row["messages"] : undefined
  return Array.isArray(messages)
    ? messages.flatMap((message: unknown, index) =>
        Predicate.isRecord(message)
          ? Object.keys(message).flatMap((key) => (jsonKeys.includes(key) ? [] : [`messages[${index}].${key}`]))
          : [],
      )
    : []
}

const textsOf = ({ content }: Message): ReadonlyArray<string> =>
  typeof content === "string"
    ? [content]
    : content.flatMap((part) => (part.type === "text" ? [part.text] : part.type === "thinking" ? [part.thinking] : []))

/**
 * Checks conversations as they are in a file: `Dataset.jsonl(bytes, Schema.Unknown).rows`. Renders each row, turns it
 * into datums and checks those as well; keeps none of them in memory.
 *
 * @since 0.1.0
 * @category linting
 */
export const conversations = <E, R>(
  rows: Stream.Stream<Row<unknown>, E, R>,
  options: ConversationOptions,
): Effect.Effect<Report, E, R> =>
  Effect.suspend(() => {
    const { model, renderer, tokenizer, trainOn } = options
    const tally = new Tally(options.maxExamples ?? 5)
    const special = tokenizer?.specialTokens.all.map(({ content }) => content) ?? []
    const decode = Schema.decodeUnknownEither(Conversation)
    if (model !== undefined && Renderers.fits(model, renderer.name) === false) {
      const wanted = Either.getOrElse(Renderers.recommended(model), () => []).join(", ")
      tally.add("renderer_mismatch", 0, `${renderer.name} was not made for ${model}; recommended: ${wanted}`)
    }
    const checkRow = ({ line, value }: Row<unknown>) =>
      Effect.gen(function* () {
        tally.rows++
        for (const path of unknownKeys(value)) tally.add("unknown_key", line, `unknown key ${path}`)
        const decoded = decode(value)
        if (Either.isLeft(decoded)) {
          const [issue] = ParseResult.ArrayFormatter.formatErrorSync(decoded.left)
          return tally.add("unreadable", line, `${issue?.path.map(String).join(".") ?? ""}: ${issue?.message ?? ""}`)
        }
        const { messages } = decoded.right
        for (const [index, message] of messages.entries()) {
          const token = special.find((token) => textsOf(message).some((text) => text.includes(token)))
          if (token !== undefined) tally.add("special_token", line, `messages[${index}] has ${token} in its text`)
        }
        const made = yield* Effect.either(Datums.fromConversation(renderer, messages, { trainOn }))
        if (Either.isLeft(made)) return tally.add("not_rendered", line, made.left.message)
        if (made.right.length === 0) tally.add("nothing_learnt", line, "the conversation has no assistant message")
        for (const datum of made.right) checkDatum(tally, Loss.crossEntropy, datum, line, options)
      })
    return Effect.map(Stream.runForEach(rows, checkRow), () => tally.report())
  })

/**
 * Returns whether a report has no errors; warnings are allowed.
 *
 * @since 0.1.0
 * @category getters
 */
export const isClean = ({ findings }: Report): boolean => findings.every(({ severity }) => severity !== "error")

const titles: Readonly<Record<Check, string>> = {
  unreadable: "not a conversation",
  unknown_key: "unknown keys",
  renderer_mismatch: "renderer does not fit the model",
  not_rendered: "rejected by the renderer",
  special_token: "special tokens in texts",
  nothing_learnt: "nothing to learn",
  context_overflow: "too long",
  image_without_tokens: "images without a token count",
  bad_datum: "rejected by the loss",
}

/**
 * Formats a report as plain text.
 *
 * @since 0.1.0
 * @category conversions
 */
export const format = (report: Report): string => {
  const { datums, findings, learntTokens, longest, rows, tokens } = report
  const head = `${rows} rows, ${datums} datums, ${tokens} tokens (${learntTokens} learned), longest ${longest}`
  const lines = findings.flatMap(({ check, count, examples, severity }) => [
    `${severity}: ${titles[check]}: ${count}`,
    ...examples.map(({ problem, row }) => (row === 0 ? `  ${problem}` : `  ${row}: ${problem}`)),
    ...(count > examples.length ? [`  … and ${count - examples.length} more`] : []),
  ])
  return [head, ...(findings.length === 0 ? ["no problems found"] : lines)].join("\n")
}
