/**
 * Decisions: a question with a fixed set of choices, and a model that gives the probability of each of them. One request
 * is enough, however long the labels are: the prompt names each choice with an id of one token, and the model is asked for
 * the probability of every id at the place of the answer. Nothing is generated.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import * as Datums from "@effect-tinker/tokenizer/Datums"
import * as Message from "@effect-tinker/tokenizer/Message"
import type { Renderer } from "@effect-tinker/tokenizer/Renderer"
import type { Failure as RendererFailure } from "@effect-tinker/tokenizer/RendererError"
import * as ModelInput from "effect-tinker/ModelInput"
import type * as SamplingClient from "effect-tinker/SamplingClient"
import type { ServiceClient } from "effect-tinker/ServiceClient"
import * as TensorData from "effect-tinker/TensorData"
import { type FutureError, InvalidInput, UnexpectedResponse } from "effect-tinker/TinkerError"
import { BadRow } from "./DataError.ts"
import type * as Evaluate from "./Evaluate.ts"
import { rowsOf } from "./internal/Conversations.ts"
import * as Examples from "./internal/Examples.ts"
import { batchingOf, decodeConfig } from "./internal/Recipe.ts"
import type { Row } from "./Rows.ts"
import type { Metrics, RunEvent } from "./RunEvent.ts"
import type { RunStore } from "./RunStore.ts"
import * as Supervised from "./Supervised.ts"
import type * as Table from "./Table.ts"
import type * as TrainingLoop from "./TrainingLoop.ts"

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
    /** What the model answers for this choice. Not given: A, B, C, … in the order of the choices. */
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
 * A row of a file of decisions: the right label of a question.
 *
 * @since 0.1.0
 * @category models
 */
export const Example = Schema.Struct({
  question: Schema.String,
  label: Schema.String,
  /** Not given: the choices of the configuration. */
  choices: Schema.optional(Schema.Array(Choice)),
})

/**
 * The type of {@link Example}.
 *
 * @since 0.1.0
 * @category models
 */
export type Example = typeof Example.Type

const { onLongRow: _, trainOn: __, ...supervisedFields } = Supervised.Config.fields

/**
 * The configuration of a decision model: that of supervised fine-tuning, and the choices. It can be read from JSON.
 *
 * @since 0.1.0
 * @category models
 */
export const Config = Schema.Struct({
  ...supervisedFields,
  /** The choices of rows that have none of their own. */
  choices: Schema.optional(Schema.Array(Choice)).annotations({
    description: "The choices of rows that have none of their own.",
  }),
  /**
   * What the model writes before the id of a choice. It keeps the id a token of its own, and an answer apart from a
   * sentence that begins with the same letter.
   *
   * @default choice#
   */
  prefix: Schema.optionalWith(Schema.String, { default: () => defaultPrefix }).annotations({
    description: "What the model writes before the id of a choice.",
  }),
  /**
   * What happens to a row with more than `maxLength` tokens: it ends the run before the first step, or is counted and left
   * out. It is never cut, because the answer is its end.
   *
   * @default fail
   */
  onLongRow: Schema.optionalWith(Schema.Literal("fail", "skip"), { default: () => "fail" as const }).annotations({
    description:
      "What happens to a row with more than maxLength tokens: it ends the run before the first step, or is counted and left out.",
  }),
})

const defaultPrefix = "choice#"

/**
 * The type of {@link Config}.
 *
 * @since 0.1.0
 * @category models
 */
export type Config = typeof Config.Type

/**
 * A configuration in which settings with a default may be missing.
 *
 * @since 0.1.0
 * @category models
 */
export type Input = typeof Config.Encoded

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
export interface DecisionRenderer {
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
export const renderer = (
  renderer: Renderer,
  { prefix = defaultPrefix }: { readonly prefix?: string | undefined } = {},
): DecisionRenderer => {
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

/**
 * The probability of a label among all labels of its decision.
 *
 * @since 0.1.0
 * @category models
 */
export interface Probability {
  readonly label: string
  readonly probability: number
}

/**
 * Returns the probability of each label, in the order of the choices, from one request. The probabilities are those of the
 * ids among each other, so that they add up to 1.
 *
 * @since 0.1.0
 * @category computing
 */
export const probabilities = (
  sampler: SamplingClient.Service,
  { labels, length, prompt, tokens }: Rendered,
): Effect.Effect<ReadonlyArray<Probability>, FutureError> =>
  Effect.gen(function* () {
    // One row for each token after the first; only the last one, the place of the answer, has targets.
    const targets = yield* TensorData.int64(tokens, {
      shape: [length - 1, tokens.length],
      sparse: {
        crowIndices: Int32Array.from({ length }, (_, row) => (row === length - 1 ? tokens.length : 0)),
        colIndices: Int32Array.from(tokens, (_, column) => column),
      },
    })
    const { targetPromptLogprobs } = yield* sampler.sample({
      prompt,
      params: { maxTokens: 1 },
      targetPromptLogprobs: targets,
    })
    const logprobs = Option.match(targetPromptLogprobs, {
      onNone: () => [],
      onSome: ({ data }) => Array.from(data, Number).slice(-tokens.length),
    })
    if (logprobs.length !== tokens.length)
      return yield* new UnexpectedResponse({
        operation: "sample",
        reason: "Schema",
        detail: `expected the log probabilities of ${tokens.length} tokens, got ${logprobs.length}`,
      })
    return softmax(logprobs).map((probability, at) => ({ label: labels[at] ?? "", probability }))
  })

/**
 * Returns probabilities that are proportional to the given ones and add up to 1.
 *
 * @since 0.1.0
 * @category computing
 */
export const softmax = (logprobs: ReadonlyArray<number>): ReadonlyArray<number> => {
  const largest = Math.max(...logprobs)
  const weights = logprobs.map((logprob) => Math.exp(logprob - largest))
  const total = weights.reduce((sum, weight) => sum + weight, 0)
  return weights.map((weight) => weight / total)
}

/**
 * What a model decided.
 *
 * @since 0.1.0
 * @category models
 */
export interface Decided {
  readonly probabilities: ReadonlyArray<Probability>
  /** The right label. */
  readonly label: string
}

/** Returns the likeliest label, the first one of several. */
const best = (all: ReadonlyArray<Probability>): Probability =>
  all.reduce((best, one) => (one.probability > best.probability ? one : best), all[0] ?? { label: "", probability: 0 })

/**
 * Returns the scores of a decision: `accuracy`, 1 if the likeliest label is right; `log_loss`, the negative logarithm of
 * the probability of the right label; and `brier`, the sum of the squared errors of all probabilities.
 *
 * @since 0.1.0
 * @category metrics
 */
export const scores = ({ label, probabilities }: Decided): Metrics => {
  const right = probabilities.find((one) => one.label === label)?.probability ?? 0
  return {
    accuracy: best(probabilities).label === label ? 1 : 0,
    log_loss: -Math.log(right),
    brier: probabilities.reduce((sum, one) => sum + (one.probability - (one.label === label ? 1 : 0)) ** 2, 0),
  }
}

/**
 * Returns the expected calibration error: decisions are put into bins by the probability of their likeliest label, and the
 * distance between the mean probability and the share of right decisions is averaged over the bins by size. 0 if a label
 * with a probability of p is right in a share p of all cases.
 *
 * @since 0.1.0
 * @category metrics
 */
export const calibrationError = (decided: ReadonlyArray<Decided>, bins = 10): number => {
  const sums = Array.from({ length: bins }, () => ({ probability: 0, right: 0 }))
  for (const { label, probabilities } of decided) {
    const { label: chosen, probability } = best(probabilities)
    const bin = sums[Math.min(bins - 1, Math.floor(probability * bins))]
    if (bin === undefined) continue
    bin.probability += probability
    bin.right += chosen === label ? 1 : 0
  }
  return sums.reduce((sum, { probability, right }) => sum + Math.abs(probability - right), 0) / decided.length
}

/**
 * Options of {@link evaluation}.
 *
 * @since 0.1.0
 * @category models
 */
export interface EvaluationOptions {
  /**
   * The name of the evaluation.
   *
   * @default decisions
   */
  readonly name?: string | undefined
  readonly renderer: DecisionRenderer
  readonly data: Table.Table<Example> | ReadonlyArray<Example>
  /** The choices of rows that have none of their own. */
  readonly choices?: ReadonlyArray<Choice> | undefined
}

/**
 * Measures how well a model decides: `accuracy`, `log_loss` and `brier` ({@link scores}), and `calibration_error`
 * ({@link calibrationError}).
 *
 * @since 0.1.0
 * @category evaluations
 */
export const evaluation = (options: EvaluationOptions): Evaluate.Evaluation<Decided, BadRow | Table.Failure> => ({
  name: options.name ?? "decisions",
  metrics: [
    { name: "accuracy", better: "highest" },
    { name: "log_loss", better: "lowest" },
    { name: "brier", better: "lowest" },
  ],
  questions: Effect.flatMap(
    rowsOf(options.data),
    Effect.forEach((row) =>
      Effect.map(rendered(options.renderer, options.choices, row), (decision) => ({
        name: row.value.question,
        ask: (sampler: SamplingClient.Service) =>
          Effect.map(probabilities(sampler, decision), (probabilities) => {
            const answer = { probabilities, label: row.value.label }
            return { scores: scores(answer), answer }
          }),
      })),
    ),
  ),
  summarize: (answers) => ({ calibration_error: calibrationError(answers.map(({ answer }) => answer)) }),
  show: ({ probabilities }) =>
    probabilities.map(({ label, probability }) => `${label} ${(100 * probability).toFixed(1)}%`).join(", "),
})

/** Renders a row. A label that is not among its choices is an error that names the row. */
const rendered = (
  renderer: DecisionRenderer,
  fallback: ReadonlyArray<Choice> | undefined,
  { file, row, value: { choices = fallback, label, question } }: Row<Example>,
): Effect.Effect<Rendered, BadRow> => {
  const bad = (field: string, problem: string) => new BadRow({ file, row, field, reason: "InvalidRow", problem })
  if (choices === undefined) return Effect.fail(bad("choices", "it has no choices, and neither has the configuration"))
  return renderer.render({ question, choices }).pipe(
    Effect.mapError(({ message }) => bad("choices", message)),
    Effect.filterOrFail(
      ({ labels }) => labels.includes(label),
      ({ labels }) => bad("label", `expected one of ${JSON.stringify(labels)}, got ${JSON.stringify(label)}`),
    ),
  )
}

/**
 * Options of {@link train}.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options<out E = never, out R = never> extends TrainingLoop.Control {
  readonly config: Input
  readonly renderer: Renderer
  readonly data: Table.Table<Example>
  /** Evaluations beside that of the held-out decisions. */
  readonly evaluations?: ReadonlyArray<TrainingLoop.Evaluation<E, R>> | undefined
}

/**
 * The errors of {@link train}, apart from those of evaluations.
 *
 * @since 0.1.0
 * @category errors
 */
export type TrainError = Supervised.TrainError

/**
 * Starts the run in the current store, or continues it, and emits its new events. Trains on the id of the right label with
 * cross-entropy over all tokens, so that the model learns to answer with an id, and with which. The metrics of held-out
 * decisions are those of {@link evaluation}, with the name `test`.
 *
 * @since 0.1.0
 * @category running
 */
export const train = <E = never, R = never>(
  options: Options<E, R>,
): Stream.Stream<RunEvent, TrainError | E, RunStore | ServiceClient | R> =>
  Stream.unwrapScoped(
    Effect.gen(function* () {
      const config = yield* batchingOf(yield* decodeConfig(Config, options.config), 128)
      const { choices, maxLength, onLongRow } = config
      const decisions = renderer(options.renderer, config)
      // Wrong choices are found before anything is sent.
      if (choices !== undefined)
        yield* Effect.mapError(decisions.render({ question: "", choices }), (error) =>
          error._tag === "InvalidInput" ? new InvalidInput({ path: "config.choices", problem: error.problem }) : error,
        )
      const render = (row: Row<Example>) => rendered(decisions, choices, row)
      return yield* Examples.train({
        ...options,
        recipe: "decisions",
        config: { ...config, onLongRow: maxLength === undefined ? undefined : onLongRow },
        configuration: (learningRate) => Schema.encodeSync(Config)({ ...config, learningRate }),
        datums: (row) =>
          Effect.flatMap(render(row), (decision) =>
            Effect.mapBoth(datumOf(decision, row.value.label), {
              onFailure: ({ message: problem }) =>
                new BadRow({ file: row.file, row: row.row, field: "question", reason: "InvalidRow", problem }),
              onSuccess: (datum) => [datum],
            }),
          ),
        sequences: (row) => Effect.map(render(row), ({ length }) => [{ field: "question", length }]),
        heldOut: (test) => evaluation({ name: "test", renderer: decisions, data: test, choices }),
      })
    }),
  )

/** Returns the datum of a decision: only the id of its label counts. */
const datumOf = ({ labels, length, prompt, tokens }: Rendered, label: string) => {
  const weights = new Float32Array(length)
  weights[length - 1] = 1
  const chunks = prompt.chunks.map((chunk, at) => {
    if (chunk.type !== "encoded_text" || at < prompt.chunks.length - 1) return chunk
    const answered = chunk.tokens.slice()
    answered[answered.length - 1] = tokens[labels.indexOf(label)] ?? 0
    return { ...chunk, tokens: answered }
  })
  return Datums.fromExample({ modelInput: ModelInput.fromChunks(chunks), weights })
}
