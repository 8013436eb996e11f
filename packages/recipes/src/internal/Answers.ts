/** The answers of a teacher, sampled once and kept with the run. */
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import * as Message from "@effect-tinker/tokenizer/Message"
import * as Renderer from "@effect-tinker/tokenizer/Renderer"
import type { Failure as RendererFailure } from "@effect-tinker/tokenizer/RendererError"
import type * as ModelInput from "effect-tinker/ModelInput"
import type * as SamplingClient from "effect-tinker/SamplingClient"
import { type FutureError, UnexpectedResponse } from "effect-tinker/TinkerError"
import { createHash } from "node:crypto"
import { BadRow } from "../DataError.ts"
import type { Row } from "../Rows.ts"
import type { RunStoreFailed } from "../RunError.ts"
import type { Service as Store } from "../RunStore.ts"
import * as Stored from "./Stored.ts"
import * as Table from "../Table.ts"
import { promptOf } from "./Conversations.ts"

/** How a teacher answers. */
export interface Teacher {
  /** A base model, or the path of a checkpoint. */
  readonly name: string
  readonly renderer: Renderer.Renderer
  /** The prompt that only the teacher sees. */
  readonly systemPrompt: string
  readonly maxTokens: number
  readonly temperature: number
  readonly seed: number
}

const file = "answers.jsonl"

const Line = Schema.parseJson(
  Schema.Struct({
    key: Schema.String,
    message: Message.FromJson,
    /** Whether the answer ended by itself. */
    isWhole: Schema.Boolean,
  }),
)
type Answer = typeof Line.Type
const encode = Schema.encodeSync(Line)

/** Returns the question of a row as the teacher sees it. */
const taught = (messages: ReadonlyArray<Message.Message>, systemPrompt: string): ReadonlyArray<Message.Message> => {
  const [first, ...rest] = messages
  return first?.role === "system"
    ? [Message.system(`${systemPrompt}\n\n${Message.textOf(first)}`), ...rest]
    : [Message.system(systemPrompt), ...messages]
}

/** Names everything that decides an answer, so that an answer to something else is never used. */
const keyOf = ({ maxTokens, name, seed, temperature }: Teacher, { chunks }: ModelInput.ModelInput): Buffer => {
  const hash = createHash("sha256").update(JSON.stringify([name, maxTokens, temperature, seed]))
  for (const chunk of chunks)
    hash.update(JSON.stringify(chunk.type === "encoded_text" ? Array.from(chunk.tokens) : chunk))
  return hash.digest().subarray(0, 16)
}

const unusable = ({ file, row }: Row<unknown>, problem: string) =>
  new BadRow({ file, row, field: "messages", reason: "InvalidRow", problem })

/** Returns the reason why a row of the result of {@link table} has no answer, if it has none. */
export const check = (row: Row<Message.Conversation>, { maxTokens }: Pick<Teacher, "maxTokens">) =>
  Either.flatMap(promptOf(row), () =>
    row.value.messages.at(-1)?.role === "assistant"
      ? Either.void
      : Either.left(unusable(row, `the teacher's answer has no end within ${maxTokens} tokens`)),
  )

/**
 * Samples the answers that the run does not have yet, and returns the questions with their answers. A row whose answer was
 * cut off has none.
 */
export const table = (
  store: Store,
  sampler: SamplingClient.Service,
  data: Table.Table<Message.Conversation>,
  teacher: Teacher,
  { concurrency, onBadRow }: { readonly concurrency: number; readonly onBadRow: "fail" | "skip" },
): Effect.Effect<
  Table.Table<Message.Conversation>,
  BadRow | RunStoreFailed | RendererFailure | FutureError | Table.Failure
> =>
  Effect.gen(function* () {
    const answers = yield* kept(store)
    const reused = answers.size
    const started = new Set<string>()
    const { maxTokens, renderer, seed, systemPrompt, temperature } = teacher

    /** Returns the key of a row's answer, which exists when the effect completes unless another row makes it. */
    const answer = (row: Row<Message.Conversation>) =>
      Effect.gen(function* () {
        const question = yield* promptOf(row)
        const prompt = yield* Effect.mapError(
          renderer.generationPrompt(taught(question, systemPrompt)),
          ({ message }) => unusable(row, message),
        )
        const digest = keyOf(teacher, prompt)
        const key = digest.toString("base64url")
        if (answers.has(key) || started.has(key)) return key
        started.add(key)
        const { sequences } = yield* sampler.sample({
          prompt,
          params: { maxTokens, temperature, stop: renderer.stopSequences, seed: (seed ^ digest.readInt32LE()) >>> 1 },
        })
        const [sequence] = sequences
        if (sequence === undefined)
          return yield* new UnexpectedResponse({ operation: "sample", reason: "Schema", detail: "expected an answer" })
        const parsed = yield* renderer.parse(sequence.tokens)
        const made: Answer = { key, message: parsed.message, isWhole: Renderer.isClean(parsed) }
        yield* store.append(file, [encode(made)])
        answers.set(key, made)
        return key
      })

    const keys = Chunk.toReadonlyArray(
      yield* Table.rows(data).pipe(
        Stream.mapEffect(
          (row) =>
            onBadRow === "fail" ? answer(row) : Effect.catchTag(answer(row), "BadRow", () => Effect.succeed("")),
          { concurrency },
        ),
        Stream.runCollect,
      ),
    )
    yield* Effect.logInfo(`${reused} answers of the teacher are reused, ${started.size} sampled`)
    const answered: Table.Table<Message.Conversation> = {
      ...data,
      read: (indices) =>
        Effect.map(data.read(indices), (rows) =>
          rows.map((row, at) => {
            const messages = Either.getOrElse(promptOf(row), () => [])
            const found = answers.get(keys[indices[at] ?? 0] ?? "")
            return { ...row, value: { messages: found?.isWhole === true ? [...messages, found.message] : messages } }
          }),
        ),
    }
    if (onBadRow === "fail") yield* Stream.runForEach(Table.rows(answered), (row) => check(row, teacher))
    return answered
  })

const kept = (store: Store): Effect.Effect<Map<string, Answer>, RunStoreFailed> =>
  Effect.map(Stored.lines(store, file, Line), (answers) => new Map(answers.map((answer) => [answer.key, answer])))
