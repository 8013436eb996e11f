/** Implements `tinkerfx cost`. */
import * as AdminClient from "effect-tinker/AdminClient"
import * as Cost from "effect-tinker/Cost"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Predicate from "effect/Predicate"
import * as Schema from "effect/Schema"
import { join, resolve } from "node:path"
import * as Clients from "../internal/Clients.ts"
import type { Handler } from "../internal/Commands.ts"
import { Failure, UsageError } from "../internal/Failure.ts"
import * as Files from "../internal/Files.ts"
import * as Json from "../internal/Json.ts"
import * as Numbers from "../internal/Numbers.ts"
import * as Output from "../internal/Output.ts"
import * as PriceList from "../internal/PriceList.ts"
import { Shell } from "../internal/Shell.ts"
import * as Words from "../internal/Words.ts"

const dollars = (money: Cost.Money): Json.Fraction => new Json.Fraction(Cost.toUsd(money))

const labels = {
  prefill: "prompt tokens",
  cachedPrefill: "cached prompt tokens",
  sampled: "sampled tokens",
  trained: "trained tokens",
} as const

const kinds = ["prefill", "cachedPrefill", "sampled", "trained"] as const

const missing = (options: ReadonlyArray<string>) =>
  new UsageError({
    message: `Missing option${options.length > 1 ? "s" : ""} ${options.map((name) => `'--${name}'`).join(", ")}.`,
  })

export const estimate: Handler<{
  readonly recipe: string
  readonly model: string | undefined
  readonly prices: string | undefined
  readonly tokens: string | undefined
  readonly epochs: string | undefined
  readonly steps: string | undefined
  readonly groups: string | undefined
  readonly groupSize: string | undefined
  readonly promptTokens: string | undefined
  readonly answerTokens: string | undefined
  readonly turns: string | undefined
  readonly teacher: string | undefined
}> = (input, { format }) =>
  Effect.gen(function* () {
    const { model, recipe } = input
    const whole = (option: string, text: string | undefined) => Numbers.whole(option, text, 1)
    const given = {
      tokens: yield* whole("tokens", input.tokens),
      steps: yield* whole("steps", input.steps),
      groups: yield* whole("groups", input.groups),
      "group-size": yield* whole("group-size", input.groupSize),
      "prompt-tokens": yield* whole("prompt-tokens", input.promptTokens),
      "answer-tokens": yield* whole("answer-tokens", input.answerTokens),
    }
    const hasData = recipe === "sft" || recipe === "dpo"
    const needed = hasData
      ? (["tokens"] as const)
      : (["steps", "groups", "group-size", "prompt-tokens", "answer-tokens"] as const)
    const absent = [...(model === undefined ? ["model"] : []), ...needed.filter((name) => given[name] === undefined)]
    if (model === undefined || absent.length > 0) return yield* missing(absent)
    const prices = yield* PriceList.read(input.prices)
    const found = hasData
      ? Cost.estimateSupervised(prices, {
          model,
          tokens: given.tokens ?? 0,
          epochs: yield* whole("epochs", input.epochs),
          reference: recipe === "dpo",
        })
      : Cost.estimateRl(prices, {
          model,
          steps: given.steps ?? 0,
          groupsPerStep: given.groups ?? 0,
          rolloutsPerGroup: given["group-size"] ?? 0,
          promptTokens: given["prompt-tokens"] ?? 0,
          answerTokens: given["answer-tokens"] ?? 0,
          turns: yield* whole("turns", input.turns),
          reference: recipe === "distill" && (input.teacher ?? true),
        })
    if (Either.isLeft(found))
      return yield* new Failure({
        message: found.left.message,
        hint: "Name a price list with --prices; 'tinkerfx billing usage' shows what you pay.",
        cause: found.left,
      })
    const { parts, tokens, total } = found.right
    const used = kinds.filter((kind) => tokens[kind] > 0)
    yield* Output.printRecords(format, {
      records: [
        ...used.map((kind) => ({ model, kind, tokens: tokens[kind], usd: dollars(parts[kind]) })),
        { model, kind: "total", usd: dollars(total), prices_of: found.right.pricesOf },
      ],
      table: () => ({
        title: `${model}: ${Cost.format(total)} with the prices of ${found.right.pricesOf}`,
        columns: ["Kind", "Tokens", "Cost"],
        rows: used.map((kind) => [labels[kind], String(tokens[kind]), Cost.format(parts[kind])]),
      }),
    })
  })

const Tokens = Schema.Struct({
  prefill: Schema.Number,
  cachedPrefill: Schema.Number,
  sampled: Schema.Number,
  trained: Schema.Number,
})

const Spent = Schema.parseJson(Schema.Struct({ spent: Schema.BigInt, step: Schema.Number, tokens: Tokens }))

/** The counts of a run, and when and where it ran. */
const runOf = (given: string) =>
  Effect.gen(function* () {
    const directory = resolve((yield* Shell).directory, given)
    const notCounted = (cause: unknown) =>
      new Failure({
        message: `${given} has not counted what it spends`,
        hint: "A run counts if its model has a list price, or with --prices; --local runs cost nothing.",
        cause,
      })
    const text = yield* Effect.mapError(Files.read(join(directory, "spending.json")), notCounted)
    const spent = yield* Effect.mapError(Schema.decode(Spent)(text), notCounted)
    const config = yield* Files.read(join(directory, "config.json")).pipe(
      Effect.flatMap((json) => Effect.try(() => JSON.parse(json) as unknown)),
      Effect.orElseSucceed(() => undefined),
    )
    const model = Predicate.isRecord(config) && typeof config["model"] === "string" ? config["model"] : "unknown"
    return { directory, model, spent }
  })

export const meter: Handler<{ readonly directory: string }> = ({ directory }, { format }) =>
  Effect.gen(function* () {
    const { model, spent } = yield* runOf(directory)
    yield* Output.printRecords(format, {
      records: [{ model, steps: spent.step + 1, usd: dollars(spent.spent), ...spent.tokens }],
      table: () => ({
        title: `${directory}: ${Cost.format(spent.spent)} after ${Words.plural(spent.step + 1, "step")}`,
        columns: ["Kind", "Tokens"],
        rows: kinds.map((kind) => [labels[kind], String(spent.tokens[kind])]),
      }),
    })
  })

const hour = 3_600_000
const longest = 14 * 24 * hour

/** The time of a run and its sessions, which the ids of its training runs begin with. */
const spanOf = (directory: string) =>
  Effect.map(Files.read(join(directory, "events.jsonl")), (text) => {
    const times = [...text.matchAll(/"at":(\d+)/g)].map(([, at]) => Number(at))
    const sessions = [...text.matchAll(/tinker:\/\/([^/"]+?):train:\d+\//g)].map(([, id = ""]) => id)
    return { first: Math.min(...times), last: Math.max(...times), sessionIds: [...new Set(sessions)] }
  })

export const reconcile: Handler<{ readonly directory: string }> = (input, { format }) =>
  Effect.gen(function* () {
    const { directory, model, spent } = yield* runOf(input.directory)
    const { first, last, sessionIds } = yield* spanOf(directory)
    if (sessionIds.length === 0)
      return yield* new Failure({
        message: `${input.directory} has no checkpoint, from which its sessions follow`,
        hint: "Wait until the run has saved one.",
      })
    const now = yield* Clock.currentTimeMillis
    const start = Math.floor(first / hour) * hour
    const end = Math.min(Math.ceil((last + hour) / hour) * hour, Math.ceil(now / hour) * hour, start + longest)
    const usage = yield* Effect.flatMap(AdminClient.AdminClient, ({ getBillingUsage }) =>
      getBillingUsage({ startingOn: new Date(start), endingBefore: new Date(end) }),
    ).pipe(Clients.provide)
    const spending = { spent: spent.spent, unconfirmed: 0n, inFlight: 0n, tokens: { [model]: spent.tokens } }
    const { billed, isExact, metered, rows } = Cost.reconcile(spending, usage, { sessionIds })
    yield* Output.printRecords(format, {
      records: [
        ...rows.map((row) => ({ model: row.model, kind: row.kind, metered: row.metered, billed: row.billed })),
        { kind: "total", metered_usd: dollars(metered), billed_usd: dollars(billed), is_exact: isExact },
      ],
      table: () => ({
        title: `${input.directory}: counted ${Cost.format(metered)}, billed ${Cost.format(billed)}`,
        columns: ["Kind", "Counted", "Billed", "Difference", "Model"],
        rows: rows.map((row) => [
          labels[row.kind],
          String(row.metered),
          String(row.billed),
          String(row.billed - row.metered),
          row.model,
        ]),
      }),
    })
    const { out } = yield* Shell
    if (format === "table")
      yield* out(
        isExact
          ? "The bill agrees with the run.\n"
          : "The bill differs from the run. Rows of the last hours may be missing, and evaluations by other commands count as well.\n",
      )
  })
