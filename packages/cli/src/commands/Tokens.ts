/** Implements `tinkerfx tokenize`, `tinkerfx render` and `tinkerfx lint`. */
import * as NodeContext from "@effect/platform-node/NodeContext"
import * as Rows from "@effect-tinker/recipes/Rows"
import * as DataLint from "@effect-tinker/tokenizer/DataLint"
import * as Message from "@effect-tinker/tokenizer/Message"
import * as ModelInput from "effect-tinker/ModelInput"
import type * as Tokenizer from "@effect-tinker/tokenizer/Tokenizer"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import { resolve } from "node:path"
import type { Handler } from "../internal/Commands.ts"
import { Failure } from "../internal/Failure.ts"
import * as Input from "../internal/Input.ts"
import * as Json from "../internal/Json.ts"
import * as Numbers from "../internal/Numbers.ts"
import * as Output from "../internal/Output.ts"
import * as Rendering from "../internal/Rendering.ts"
import { Shell } from "../internal/Shell.ts"
import * as Words from "../internal/Words.ts"

/** The options that choose a tokenizer and a renderer. */
export interface Choice {
  readonly model: string | undefined
  readonly tokenizer: string | undefined
  readonly renderer: string | undefined
}

const choiceOf = ({ model = Rendering.localModel, ...rest }: Choice): Rendering.Choice => ({ ...rest, model })

/** Text of a token on one line: line breaks and tabs are visible. */
const visible = (text: string): string => Words.safe(text).replaceAll("\n", "\\n").replaceAll("\t", "\\t")

interface Token {
  readonly id: number
  readonly text: string
}

const textsOf = (tokenizer: Tokenizer.Service, ids: ArrayLike<number>) =>
  Effect.forEach(Array.from(ids), (id) => Effect.map(tokenizer.decode([id]), (text): Token => ({ id, text })))

const idsOf = (text: string): Effect.Effect<ReadonlyArray<number>, Failure> => {
  const parts = text.split(/[\s,[\]]+/).filter((part) => part !== "")
  const wrong = parts.find((part) => !/^\d+$/.test(part))
  return wrong === undefined
    ? Effect.succeed(parts.map(Number))
    : new Failure({
        message: `"${wrong}" is not the id of a token`,
        hint: "--decode takes ids: numbers with spaces between.",
      })
}

export const tokenize: Handler<
  Choice & { readonly text: string | undefined; readonly decode: boolean; readonly count: boolean }
> = (input, { format }) =>
  Effect.gen(function* () {
    const { isTerminal, out } = yield* Shell
    const text = input.text === undefined || input.text === "-" ? yield* Input.all : input.text
    yield* Rendering.withTokenizer(choiceOf(input), (tokenizer) =>
      Effect.gen(function* () {
        if (input.decode) {
          const decoded = yield* tokenizer.decode(yield* idsOf(text))
          return yield* out(format === "json" ? `${Json.compact({ text: decoded })}\n` : `${Words.safe(decoded)}\n`)
        }
        const ids = yield* tokenizer.encode(text)
        if (input.count)
          return yield* out(format === "json" ? `${Json.compact({ tokens: ids.length })}\n` : `${ids.length}\n`)
        const tokens = yield* textsOf(tokenizer, ids)
        if (format === "table" && !isTerminal) return yield* out(`${tokens.map(({ id }) => id).join(" ")}\n`)
        yield* Output.printRecords(format, {
          records: tokens.map(({ id, text }) => ({ id, text })),
          table: () => ({
            title: `${Words.plural(tokens.length, "token")} of ${tokenizer.name}`,
            columns: ["Id", "Text"],
            rows: tokens.map(({ id, text }) => [String(id), visible(text)]),
          }),
        })
      }),
    )
  })

/** A token and how much it counts in training. */
interface Weighted extends Token {
  readonly weight: number
}

/** Green tokens are learnt, grey ones are not; in between, a token counts less. */
const painted = ({ text, weight }: Weighted): string => {
  const code = weight === 0 ? "90" : weight >= 1 ? "32" : "33"
  return Words.safe(text)
    .split("\n")
    .map((line) => (line === "" ? "" : `\u001b[${code}m${line}\u001b[0m`))
    .join("\n")
}

/** Returns the tokens of an example with their weights. An image is one entry without an id. */
const weighted = (
  tokenizer: Tokenizer.Service,
  { chunks }: ModelInput.ModelInput,
  weights: ArrayLike<number> | undefined,
) =>
  Effect.gen(function* () {
    const all: Array<Weighted> = []
    let at = 0
    for (const chunk of chunks) {
      if (chunk.type === "encoded_text")
        for (const token of yield* textsOf(tokenizer, chunk.tokens))
          all.push({ ...token, weight: weights?.[at++] ?? 0 })
      else {
        const length = Option.getOrElse(ModelInput.length(ModelInput.make(chunk)), () => 1)
        all.push({ id: -1, text: `[${chunk.type}, ${Words.plural(length, "token")}]`, weight: weights?.[at] ?? 0 })
        at += length
      }
    }
    return all
  })

const trainOns = ["last_assistant_message", "last_assistant_turn", "all_assistant_messages", "all_tokens"] as const

export const render: Handler<
  Choice & {
    readonly file: string
    readonly row: string | undefined
    readonly trainOn: string
    readonly prompt: boolean
  }
> = (input, { format }) =>
  Effect.gen(function* () {
    const { directory, hasColors, out } = yield* Shell
    const wanted = (yield* Numbers.whole("row", input.row, 1)) ?? 1
    const rows = yield* Rows.file(resolve(directory, input.file), Message.Conversation).rows.pipe(
      Stream.take(wanted),
      Stream.runCollect,
      Effect.map((rows) => [...rows]),
      Effect.scoped,
      Effect.provide(NodeContext.layer),
    )
    const row = rows[wanted - 1]
    if (row === undefined)
      return yield* new Failure({
        message: `${input.file} has only ${Words.plural(rows.length, "row")}`,
        hint: "Choose one of them with --row.",
      })
    const trainOn = trainOns.find((name) => name === input.trainOn) ?? "all_assistant_messages"
    const { messages } = row.value
    yield* Rendering.withRenderer(choiceOf(input), (renderer, tokenizer) =>
      Effect.gen(function* () {
        const examples = input.prompt
          ? [{ modelInput: yield* renderer.generationPrompt(messages), weights: undefined }]
          : yield* renderer.supervisedExamples(messages, trainOn)
        for (const [index, { modelInput, weights }] of examples.entries()) {
          const tokens = yield* weighted(tokenizer, modelInput, weights)
          if (format === "json") {
            yield* out(
              tokens.map(({ id, text, weight }) => `${Json.compact({ example: index, id, text, weight })}\n`).join(""),
            )
            continue
          }
          if (hasColors) {
            const title = examples.length === 1 ? "" : `--- example ${index + 1} of ${examples.length}\n`
            yield* out(`${title}${tokens.map(painted).join("")}\n`)
            const learnt = tokens.filter(({ weight }) => weight !== 0).length
            yield* out(
              `\n${Words.plural(tokens.length, "token")}, \u001b[32m${learnt} learnt\u001b[0m, renderer ${renderer.name}\n`,
            )
            continue
          }
          if (index > 0) yield* out("\n")
          yield* out(
            tokens.map(({ id, text, weight }) => `${id}\t${Words.number(weight)}\t${visible(text)}\n`).join(""),
          )
        }
      }),
    )
  })

export const lint: Handler<
  Choice & { readonly file: string; readonly maxLength: string | undefined; readonly trainOn: string }
> = (input, { format }) =>
  Effect.gen(function* () {
    const { directory, out } = yield* Shell
    const maxLength = yield* Numbers.whole("max-length", input.maxLength, 1)
    const choice = choiceOf(input)
    const trainOn = trainOns.find((name) => name === input.trainOn) ?? "all_assistant_messages"
    const { counts, rows } = Rows.file(resolve(directory, input.file), Schema.Unknown, { onBadRow: "skip" })
    const report = yield* Rendering.withRenderer(choice, (renderer, tokenizer) =>
      DataLint.conversations(
        Stream.map(rows, ({ row, value }) => ({ line: row, value })),
        { renderer, tokenizer, model: choice.model, maxLength, trainOn },
      ),
    ).pipe(Effect.scoped, Effect.provide(NodeContext.layer))
    const { bad, examples } = yield* counts
    const { findings, ...totals } = report
    const unreadable = examples.map(({ problem, row }) => ({ row: row ?? 0, problem }))
    const all = [
      ...(bad === 0 ? [] : [{ check: "unreadable", severity: "error", count: bad, examples: unreadable }]),
      ...findings,
    ]
    if (format === "json")
      yield* out(
        [{ check: "totals", severity: "none", ...totals }, ...all]
          .map((record) => `${Json.compact(Json.fromUnknown(record))}\n`)
          .join(""),
      )
    else {
      yield* out(`${Words.safe(DataLint.format(report))}\n`)
      if (bad > 0)
        yield* out(
          `error unreadable: ${Words.plural(bad, "row")}\n${unreadable
            .map(({ problem, row }) => `  row ${row}: ${Words.safe(problem)}\n`)
            .join("")}`,
        )
    }
    const errors = all.filter(({ severity }) => severity === "error")
    const count = errors.reduce((sum, { count }) => sum + count, 0)
    if (count > 0)
      return yield* new Failure({
        message: `${input.file} has ${Words.plural(count, "problem")} that would fail or waste a run`,
        hint: "Correct the rows above, or leave them out with --on-bad-row skip of 'tinkerfx train'.",
      })
    if (totals.rows === 0)
      return yield* new Failure({ message: `${input.file} has no rows`, hint: "Check the name of the file." })
  })
