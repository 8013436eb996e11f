/** Implements `tinkerfx eval`. */
import * as NodeContext from "@effect/platform-node/NodeContext"
import * as Evaluate from "@effect-tinker/recipes/Evaluate"
import type * as RunProgress from "@effect-tinker/recipes/Progress"
import * as Rows from "@effect-tinker/recipes/Rows"
import * as Message from "@effect-tinker/tokenizer/Message"
import type { Renderer } from "@effect-tinker/tokenizer/Renderer"
import type * as Tokenizer from "@effect-tinker/tokenizer/Tokenizer"
import * as ServiceClient from "effect-tinker/ServiceClient"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import { resolve } from "node:path"
import type { Handler } from "../internal/Commands.ts"
import { UsageError } from "../internal/Failure.ts"
import * as Json from "../internal/Json.ts"
import * as Numbers from "../internal/Numbers.ts"
import * as Output from "../internal/Output.ts"
import * as Places from "../internal/Places.ts"
import * as Rendering from "../internal/Rendering.ts"
import { Shell } from "../internal/Shell.ts"
import * as UserModule from "../internal/UserModule.ts"
import * as Words from "../internal/Words.ts"

export interface Input extends Places.Options {
  readonly target: string | undefined
  readonly data: string | undefined
  readonly environment: string | undefined
  readonly compare: string | undefined
  readonly limit: string | undefined
  readonly maxTokens: string | undefined
  readonly temperature: string | undefined
  readonly seed: string | undefined
  readonly renderer: string | undefined
  readonly tokenizer: string | undefined
}

const Row = Schema.Struct({
  messages: Schema.Array(Message.FromJson),
  answers: Schema.optional(Schema.Array(Schema.String)),
})

interface Sampled {
  readonly maxTokens: number
  readonly temperature: number | undefined
}

/** Questions with right answers are compared with them; other conversations are measured by their likelihood. */
const ofRows = (
  rows: ReadonlyArray<typeof Row.Type>,
  renderer: Renderer,
  tokenizer: Tokenizer.Service,
  sampled: Sampled,
): Evaluate.Evaluation<unknown, unknown> => {
  const asked = rows.flatMap(({ answers, messages }) => (answers === undefined ? [] : [{ answers, messages }]))
  const evaluation =
    asked.length === rows.length
      ? Evaluate.exactMatch({ ...sampled, renderer, questions: asked })
      : Evaluate.likelihood({ renderer, tokenizer, data: rows })
  return evaluation as unknown as Evaluate.Evaluation<unknown, unknown>
}

/** The mean reward of one answer to each task. */
const ofEnvironment = (
  { environment, tasks }: UserModule.Loaded,
  renderer: Renderer,
  sampled: Sampled,
  limit: number | undefined,
): Evaluate.Evaluation<unknown, unknown> =>
  Evaluate.judge({
    ...sampled,
    name: "environment",
    metric: "reward",
    renderer,
    questions: tasks.slice(0, limit),
    score: ({ message, text }, task) =>
      Effect.map(UserModule.rate(environment, text, task, [...task.messages, message]), ({ reward }) => reward),
  }) as unknown as Evaluate.Evaluation<unknown, unknown>

const rowsOf = (file: string, limit: number | undefined) =>
  Rows.file(file, Row).rows.pipe(
    Stream.take(limit ?? Number.MAX_SAFE_INTEGER),
    Stream.map(({ value }) => value),
    Stream.runCollect,
    Effect.map((rows) => [...rows]),
    Effect.scoped,
    Effect.provide(NodeContext.layer),
  )

const samplerOf = (model: string) =>
  Effect.flatMap(ServiceClient.ServiceClient, ({ createSamplingClient }) =>
    createSamplingClient(model.startsWith("tinker://") ? { modelPath: model } : { baseModel: model }),
  )

const progressOf = (format: Output.Format) =>
  Effect.gen(function* () {
    const { err, hasColors, hasProgress, width } = yield* Shell
    const runtime = yield* Effect.runtime<never>()
    if (format === "json" || !hasProgress) return undefined
    return {
      write: (text: string) => void Effect.runFork(Effect.provide(err(text), runtime)),
      isTerminal: true,
      columns: () => width,
      color: hasColors,
    } satisfies RunProgress.Output
  })

const recordsOf = ({ intervals, metrics, name }: Evaluate.Result<unknown>, model: string): ReadonlyArray<Json.Record> =>
  Object.entries(metrics).map(([metric, value]) => {
    const interval = intervals[metric]
    return {
      model,
      evaluation: name,
      metric,
      value,
      low: interval?.low ?? null,
      high: interval?.high ?? null,
    }
  })

const print = (
  results: ReadonlyArray<readonly [model: string, result: Evaluate.Result<unknown>]>,
  format: Output.Format,
) =>
  Effect.suspend(() => {
    const records = results.flatMap(([model, result]) => recordsOf(result, model))
    const cell = (value: Json.Value | undefined) => (typeof value === "number" ? Words.number(value) : "")
    const [first] = results
    return Output.printRecords(format, {
      records,
      table: () => ({
        title: first === undefined ? "" : `${first[1].name}: ${Words.plural(first[1].outcomes.length, "question")}`,
        columns: ["Metric", "Value", "95% from", "to", "Model"],
        rows: records.map((record) => [
          String(record["metric"]),
          cell(record["value"]),
          cell(record["low"]),
          cell(record["high"]),
          String(record["model"]),
        ]),
      }),
    })
  })

export const evaluate: Handler<Input> = (input, { format }) =>
  Effect.gen(function* () {
    const { directory, out } = yield* Shell
    if (input.data === undefined && input.environment === undefined)
      return yield* new UsageError({ message: "Missing option '--data' or '--environment'." })
    const limit = yield* Numbers.whole("limit", input.limit, 1)
    const seed = yield* Numbers.whole("seed", input.seed, 0)
    const sampled = {
      maxTokens: (yield* Numbers.whole("max-tokens", input.maxTokens, 1)) ?? 512,
      temperature: yield* Numbers.real("temperature", input.temperature, 0),
    }
    const data = input.data === undefined ? undefined : resolve(directory, input.data)
    const target = yield* Places.find(input.target, input)
    const choice = {
      model: target.baseModel,
      tokenizer: input.tokenizer ?? target.tokenizer,
      renderer: input.renderer ?? target.renderer,
    }
    yield* Rendering.withRenderer(choice, (renderer, tokenizer) =>
      Effect.gen(function* () {
        const evaluation =
          input.environment === undefined
            ? ofRows(yield* rowsOf(data ?? "", limit), renderer, tokenizer, sampled)
            : ofEnvironment(
                yield* UserModule.open(resolve(directory, input.environment), data),
                renderer,
                sampled,
                limit,
              )
        const options = { seed, progress: yield* progressOf(format) }
        if (input.compare === undefined) {
          const result = yield* Evaluate.run(yield* samplerOf(target.model), evaluation, options)
          return yield* print([[target.model, result]], format)
        }
        const base = input.compare === "base" ? target.baseModel : input.compare
        const comparison = yield* Evaluate.compare(
          yield* samplerOf(base),
          yield* samplerOf(target.model),
          evaluation,
          options,
        )
        yield* print(
          [
            [base, comparison.base],
            [target.model, comparison.tuned],
          ],
          format,
        )
        const { difference, metric, probability, verdict } = comparison
        yield* out(
          format === "json"
            ? `${Json.compact({ verdict, metric: metric.name, difference: difference.estimate, low: difference.low, high: difference.high, probability })}\n`
            : `${Evaluate.format(comparison)}\n`,
        )
      }).pipe(Effect.scoped),
    ).pipe(Effect.provide(target.clients))
  })
