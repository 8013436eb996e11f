/** Implements `tinkerfx billing`. */
import * as AdminClient from "effect-tinker/AdminClient"
import type * as Billing from "effect-tinker/protocol/schemas/Billing"
import * as DateTime from "effect/DateTime"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { writeFile } from "node:fs/promises"
import { resolve } from "node:path"
import * as Clients from "../internal/Clients.ts"
import type { Handler } from "../internal/Commands.ts"
import * as Csv from "../internal/Csv.ts"
import { Failure } from "../internal/Failure.ts"
import * as Json from "../internal/Json.ts"
import * as Output from "../internal/Output.ts"
import * as Prompt from "../internal/Prompt.ts"
import { nullable } from "../internal/Records.ts"
import { Shell } from "../internal/Shell.ts"

const fraction = (value: Option.Option<number>): Json.Value => nullable(value, (value) => new Json.Fraction(value))

const stamp = (time: DateTime.Utc): string => DateTime.formatIso(time).replace(".000Z", "Z")

const snake = (name: string): string => name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)

const infoOf = (info: Billing.UsageInfo): Json.Record =>
  info.type === "unknown"
    ? Object.fromEntries(Object.entries(info.value).map(([name, value]) => [name, Json.fromUnknown(value)]))
    : Object.fromEntries(
        Object.entries(info).map(([name, value]) => [
          snake(name),
          name === "gigabyteHours" && typeof value === "number" ? new Json.Fraction(value) : Json.fromUnknown(value),
        ]),
      )

const eventOf = (event: Billing.UsageEvent): Json.Record => ({
  bucket_start: stamp(event.bucketStart),
  bucket_end: stamp(event.bucketEnd),
  base_model: nullable(event.baseModel),
  user_id: nullable(event.userId),
  user_name: nullable(event.userName),
  session_id: nullable(event.sessionId),
  project_id: nullable(event.projectId),
  estimated_cost_usd: fraction(event.estimatedCostUsd),
  effective_rate_usd_per_million_tokens: fraction(event.effectiveRateUsdPerMillionTokens),
  effective_rate_usd_per_gigabyte_month: fraction(event.effectiveRateUsdPerGigabyteMonth),
  event_info: infoOf(event.eventInfo),
})

const isRecord = (value: Json.Value | undefined): value is Json.Record =>
  typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Json.Fraction)

/** An event as one row: the fields of its info follow its own. */
const flat = ({ event_info: info, ...event }: Json.Record): Json.Record => ({
  ...event,
  ...(isRecord(info) ? info : {}),
})

const tokens = new Set<Json.Value | undefined>(["training", "sampling_prefill", "sampling_sample"])

/** Shows a cost that applies but is not known as null, unlike one that does not apply. */
const withNulls = (row: Json.Record): Json.Record => {
  const type = row["type"]
  if (!tokens.has(type) && type !== "storage") return row
  const rate = tokens.has(type) ? "effective_rate_usd_per_million_tokens" : "effective_rate_usd_per_gigabyte_month"
  return { ...row, estimated_cost_usd: row["estimated_cost_usd"] ?? "null", [rate]: row[rate] ?? "null" }
}

const columnsOf = (rows: ReadonlyArray<Json.Record>): ReadonlyArray<string> => [
  ...new Set(rows.flatMap((row) => Object.keys(row))),
]

const cell = (value: Json.Value | undefined): string => {
  if (value === null || value === undefined) return ""
  if (typeof value === "boolean") return value ? "True" : "False"
  return typeof value === "object" && !(value instanceof Json.Fraction) ? Json.compact(value) : String(value)
}

const cellsOf = (rows: ReadonlyArray<Json.Record>) => {
  const columns = columnsOf(rows)
  return { columns, rows: rows.map((row) => columns.map((column) => cell(row[column]))) }
}

const writeCsv = (rows: ReadonlyArray<Json.Record>, path: string, isAgreed: boolean) =>
  Effect.gen(function* () {
    const { directory, err, out } = yield* Shell
    const { columns, rows: cells } = cellsOf(rows)
    const text = Csv.render(columns, cells)
    if (path === "-") return yield* out(text)
    yield* Prompt.replace(resolve(directory, path), isAgreed)
    yield* Effect.tryPromise({
      try: () => writeFile(resolve(directory, path), text),
      catch: (cause) =>
        new Failure({
          message: `Cannot write ${path}: ${cause instanceof Error ? cause.message : String(cause)}`,
          hint: "Check that the directory exists and can be written.",
          cause,
        }),
    })
    yield* err(`Wrote ${rows.length} row(s) to ${path}\n`)
  })

/** Reads a time. One without a zone would mean another hour on each machine. */
const momentOf = (name: string, text: string): Effect.Effect<DateTime.DateTime, Failure> => {
  const isComplete = /^\d{4}-\d{2}-\d{2}([T ].*(Z|[+-]\d{2}:\d{2}))?$/i.test(text.trim())
  return Option.match(isComplete ? DateTime.make(text.trim().replace(" ", "T")) : Option.none(), {
    onNone: () =>
      new Failure({
        message: `Invalid ${name}: ${text}`,
        hint: "Use an RFC 3339 time on a UTC hour, e.g. 2026-07-13T00:00:00Z",
      }),
    onSome: Effect.succeed,
  })
}

export const usage: Handler<{
  readonly startingOn: string
  readonly endingBefore: string
  readonly csv: string | undefined
  readonly sessionsCsv: string | undefined
  readonly yes: boolean
}> = ({ csv, endingBefore, sessionsCsv, startingOn, yes }, { format }) =>
  Effect.gen(function* () {
    const span = {
      startingOn: yield* momentOf("STARTING_ON", startingOn),
      endingBefore: yield* momentOf("ENDING_BEFORE", endingBefore),
    }
    const { costDataThrough, data, sessions } = yield* Effect.flatMap(AdminClient.AdminClient, (admin) =>
      admin.getBillingUsage(span),
    ).pipe(Clients.provide)
    const events = data.map(eventOf)
    if (sessionsCsv !== undefined)
      yield* writeCsv(
        Object.entries(sessions).map(([id, { userMetadata }]) => ({
          session_id: id,
          user_metadata: nullable(userMetadata, (metadata) => Json.compact(Json.fromUnknown(metadata))),
        })),
        sessionsCsv,
        yes,
      )
    if (csv !== undefined) yield* writeCsv(events.map(flat), csv, yes)
    if (csv !== undefined || sessionsCsv !== undefined) return
    yield* Output.print(format, {
      json: () => ({
        data: events,
        sessions: Object.fromEntries(
          Object.entries(sessions).map(([id, { userMetadata }]) => [id, { user_metadata: nullable(userMetadata) }]),
        ),
        cost_data_through: nullable(costDataThrough, stamp),
      }),
      table: () => ({
        title: events.length === 0 ? "No billing usage in this window" : `${events.length} hourly usage row(s)`,
        ...cellsOf(events.map((event) => withNulls(flat(event)))),
      }),
    })
  })

export const checkpointStorage: Handler<{
  readonly projectId: string | undefined
  readonly csv: string | undefined
  readonly yes: boolean
}> = ({ csv, projectId, yes }, { format }) =>
  Effect.gen(function* () {
    const response = yield* Effect.flatMap(AdminClient.AdminClient, (admin) =>
      admin.getCheckpointStorageUsage({ projectId }),
    ).pipe(Clients.provide)
    const rate = { effective_rate_usd_per_gigabyte_month: fraction(response.effectiveRateUsdPerGigabyteMonth) }
    const data = response.data.map((entry): Json.Record => ({
      project_id: nullable(entry.projectId),
      org_user_urn: nullable(entry.orgUserUrn),
      user_email: nullable(entry.userEmail),
      user_name: nullable(entry.userName),
      checkpoint_count: entry.checkpointCount,
      size_bytes: entry.sizeBytes,
      size_gigabytes: new Json.Fraction(entry.sizeGigabytes),
      estimated_monthly_cost_usd: fraction(entry.estimatedMonthlyCostUsd),
    }))
    const rows = data.map((entry) => ({ ...rate, ...entry }))
    if (csv !== undefined) return yield* writeCsv(rows, csv, yes)
    yield* Output.print(format, {
      json: () => ({ ...rate, data }),
      table: () => ({
        title: data.length === 0 ? "No active checkpoint storage" : "Current checkpoint storage",
        ...cellsOf(rows),
      }),
    })
  })
