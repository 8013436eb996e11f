/** Rows of data as training examples. */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Datums from "@effect-tinker/tokenizer/Datums"
import * as Message from "@effect-tinker/tokenizer/Message"
import type { Renderer, TrainOn } from "@effect-tinker/tokenizer/Renderer"
import { BadRow } from "../DataError.ts"
import type * as Likelihood from "../Likelihood.ts"
import type { Row } from "../Rows.ts"
import type { Failure, Table } from "../Table.ts"
import { lengthOf } from "./Recipe.ts"
import type { Policy, Sequence } from "./Usable.ts"

/** Returns all rows of a table, or of an array. */
export const rowsOf = <A>(data: Table<A> | ReadonlyArray<A>): Effect.Effect<ReadonlyArray<Row<A>>, Failure> =>
  "read" in data
    ? data.read(Uint32Array.from({ length: data.size }, (_, index) => index))
    : Effect.succeed(data.map((value, index) => ({ value, file: "the array", row: index + 1 })))

/** Returns the messages that a model is to answer: an answer at the end of the conversation is left out. */
export const promptOf = ({
  file,
  row,
  value: { messages },
}: Row<Message.Conversation>): Either.Either<ReadonlyArray<Message.Message>, BadRow> => {
  const last = messages.findLastIndex(({ role }) => role !== "assistant")
  const problem = "nothing to answer: it has no message before the assistant's"
  return last < 0
    ? Either.left(new BadRow({ file, row, field: "messages", reason: "InvalidRow", problem }))
    : Either.right(messages.slice(0, last + 1))
}

/** Renders a conversation. One without anything to predict is an error that names its row. */
export const datumsOf = (
  renderer: Renderer,
  options: Datums.ConversationOptions,
  { file, row, value }: Row<Message.Conversation>,
): Effect.Effect<ReadonlyArray<Datums.SupervisedDatum>, BadRow> => {
  const bad = (problem: string) => new BadRow({ file, row, field: "messages", reason: "InvalidRow", problem })
  const { maxLength, reduction, trainOn } = options
  return Datums.fromConversation(renderer, value.messages, { maxLength, reduction, trainOn }).pipe(
    Effect.mapError((error) => bad(error.message)),
    Effect.filterOrFail(
      (data) => data.some(({ inputs }) => inputs.weights.some((weight) => weight > 0)),
      () => bad("nothing to learn: it has no message of the assistant within the length limit"),
    ),
  )
}

/** Renders a conversation to measure it. One that has nothing to learn once it is cut is bad. */
export const sequencesOf = (
  renderer: Renderer,
  config: Policy & { readonly trainOn?: TrainOn | undefined },
  row: Row<Message.Conversation>,
): Effect.Effect<ReadonlyArray<Sequence>, BadRow> =>
  Effect.gen(function* () {
    const { maxLength = Number.POSITIVE_INFINITY, onLongRow = "truncate", trainOn } = config
    const data = yield* datumsOf(renderer, { trainOn }, row)
    // The last token of a sequence is only a target.
    const sequences = data.map((datum) => ({ field: "messages", length: lengthOf(datum) + 1 }))
    if (onLongRow === "truncate" && sequences.some(({ length }) => length > maxLength))
      yield* datumsOf(renderer, config, row)
    return sequences
  })

/** Joins data with the log probabilities of their targets. */
export const predicted = (
  data: ReadonlyArray<Pick<Datums.SupervisedDatum, "inputs">>,
  logprobs: ReadonlyArray<Float32Array>,
): ReadonlyArray<Likelihood.Predicted> =>
  data.map(({ inputs }, index) => ({ ...inputs, logprobs: logprobs[index] ?? new Float32Array() }))

/** Shows a conversation to people. */
export const textOf = (messages: ReadonlyArray<Message.Message>): string =>
  messages.map((message) => `${message.role}: ${Message.textOf(message)}`).join("\n")
