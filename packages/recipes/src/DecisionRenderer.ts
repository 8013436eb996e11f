/**
 * Renders decisions for a model: the prompt names each choice with an id of one token, and the answer is one of these
 * tokens.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Schema from "effect/Schema"
import * as Message from "@effect-tinker/tokenizer/Message"
import type { Renderer } from "@effect-tinker/tokenizer/Renderer"
import type { Failure as RendererFailure } from "@effect-tinker/tokenizer/RendererError"
import * as ModelInput from "effect-tinker/ModelInput"
import { InvalidInput } from "effect-tinker/TinkerError"

/**
 * One of the possible answers. A text is a label without a description.
 *
 * @since 0.1.0
 * @category models
 */
export const Choice = Schema.Union(
  Schema.NonEmptyString,
  Schema.Struct({
    label: Schema.NonEmptyString,
    /** Tells the model what the label means. */
    description: Schema.optional(Schema.String),
    /** The model's answer for this choice. Not given: A, B, C, … in the order of the choices. */
    id: Schema.optional(Schema.NonEmptyString),
  }),
)

/**
 * The type of {@link Choice}.
 *
 * @since 0.1.0
 * @category models
 */
export type Choice = typeof Choice.Type

/**
 * A question and its choices, at least two with different labels.
 *
 * @since 0.1.0
 * @category models
 */
export interface Decision {
  readonly question: string
  readonly choices: ReadonlyArray<Choice>
}

/**
 * The text that the model writes before the id of a choice, unless another prefix is given.
 *
 * @since 0.1.0
 * @category models
 */
export const defaultPrefix = "choice#"

/**
 * A decision as tokens, up to the place of the answer.
 *
 * @since 0.1.0
 * @category models
 */
export interface Rendered {
  /** The prompt. Its last token is the place of the answer; which token stands there does not matter. */
  readonly prompt: ModelInput.ModelInput
  /** The number of tokens of the prompt. */
  readonly length: number
  readonly labels: ReadonlyArray<string>
  /** The token that stands for each label. */
  readonly tokens: Int32Array
}

/**
 * Renders decisions for one model.
 *
 * @since 0.1.0
 * @category models
 */
export interface Service {
  readonly name: string
  readonly render: (decision: Decision) => Effect.Effect<Rendered, InvalidInput | RendererFailure>
}

const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

interface Named {
  readonly label: string
  readonly id: string
  readonly description: string | undefined
}

const named = (choices: ReadonlyArray<Choice>): Either.Either<ReadonlyArray<Named>, InvalidInput> => {
  const refuse = (problem: string) => Either.left(new InvalidInput({ path: "choices", problem }))
  if (choices.length < 2) return refuse(`expected at least 2, got ${choices.length}`)
  const all = choices.map((choice, at): Partial<Named> & { readonly label: string } => {
    const {
      description,
      id = letters[at],
      label,
    } = typeof choice === "string" ? { label: choice, description: undefined } : { id: undefined, ...choice }
    return { label, description, ...(id === undefined ? {} : { id }) }
  })
  const known: Array<Named> = []
  for (const { description, id, label } of all) {
    if (id === undefined) return refuse(`expected at most ${letters.length} without an id, got ${choices.length}`)
    if (known.some((other) => other.label === label)) return refuse(`the label ${JSON.stringify(label)} occurs twice`)
    if (known.some((other) => other.id === id)) return refuse(`the id ${JSON.stringify(id)} occurs twice`)
    known.push({ label, id, description })
  }
  return Either.right(known)
}

/** Returns the messages that ask for a decision. */
const asked = (question: string, choices: ReadonlyArray<Named>, prefix: string): ReadonlyArray<Message.Message> => {
  const lines = choices.map(({ description, id, label }) => {
    const name = id === label ? `${prefix}${id}` : `${prefix}${id} = ${label}`
    return description === undefined || description === "" ? name : `${name}: ${description}`
  })
  const instruction = `Choose one of the answers below. Write only its name, e.g. ${prefix}${choices[0]?.id ?? ""}.`
  return [Message.system(instruction), Message.user(`${question}\n\n${lines.join("\n")}`)]
}

/**
 * Creates the renderer of decisions of a model. Each id must be one token after the prefix, which is checked with the
 * tokens themselves when a set of choices is rendered for the first time.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (
  renderer: Renderer,
  { prefix = defaultPrefix }: { readonly prefix?: string | undefined } = {},
): Service => {
  const known = new Map<string, Places>()
  const placesOf = (ids: ReadonlyArray<string>) =>
    Effect.gen(function* () {
      const key = JSON.stringify(ids)
      const found = known.get(key)
      if (found !== undefined) return found
      const sequences = yield* Effect.forEach(ids, (id) =>
        Effect.flatMap(
          renderer.supervisedExample([Message.user("?"), Message.assistant(prefix + id)]),
          ({ modelInput }) => lastText(modelInput),
        ),
      )
      const made = yield* compare(sequences, ids, prefix)
      known.set(key, made)
      return made
    })
  return {
    name: renderer.name,
    render: ({ choices, question }) =>
      Effect.gen(function* () {
        const all = yield* named(choices)
        const { after, tokens } = yield* placesOf(all.map(({ id }) => id))
        const answer = Message.assistant(`${prefix}${all[0]?.id ?? ""}`)
        const { modelInput } = yield* renderer.supervisedExample([...asked(question, all, prefix), answer])
        const last = yield* lastText(modelInput)
        const end = last.length - after
        if (last[end - 1] !== tokens[0])
          return yield* new InvalidInput({
            path: "renderer",
            problem: `${renderer.name} renders the answer differently after a longer prompt`,
          })
        const prompt = ModelInput.fromChunks([
          ...modelInput.chunks.slice(0, -1),
          { type: "encoded_text", tokens: last.subarray(0, end) },
        ])
        const length = yield* Effect.orDieWith(ModelInput.length(prompt), () => "text has a length")
        return { prompt, length, labels: all.map(({ label }) => label), tokens }
      }),
  }
}

/** Where the answer stands in a conversation: the token of each id, and how many tokens follow it. */
interface Places {
  readonly tokens: Int32Array
  readonly after: number
}

const lastText = ({ chunks }: ModelInput.ModelInput): Either.Either<Int32Array, InvalidInput> => {
  const last = chunks.at(-1)
  return last?.type === "encoded_text"
    ? Either.right(last.tokens)
    : Either.left(new InvalidInput({ path: "renderer", problem: "expected the answer as text" }))
}

/** Finds the one token in which conversations that end with different ids differ. */
const compare = (
  sequences: ReadonlyArray<Int32Array>,
  ids: ReadonlyArray<string>,
  prefix: string,
): Either.Either<Places, InvalidInput> => {
  const [first = new Int32Array(), second = new Int32Array()] = sequences
  const at = first.findIndex((token, index) => token !== second[index])
  const tokens = Int32Array.from(sequences, (sequence) => sequence[at] ?? -1)
  const odd = sequences.findIndex(
    (sequence) => sequence.length !== first.length || sequence.some((token, i) => i !== at && token !== first[i]),
  )
  const problem =
    odd >= 0
      ? `${JSON.stringify(prefix + (ids[odd] ?? ""))} and ${JSON.stringify(prefix + (ids[0] ?? ""))} differ in more than one token; choose other ids, or another prefix`
      : at < 0 || new Set(tokens).size < tokens.length
        ? `two of the ids ${JSON.stringify(ids)} are the same token after ${JSON.stringify(prefix)}`
        : undefined
  return problem === undefined
    ? Either.right({ tokens, after: first.length - at - 1 })
    : Either.left(new InvalidInput({ path: "choices", problem }))
}
