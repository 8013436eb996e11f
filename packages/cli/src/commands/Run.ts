/** Implements `tinkerfx run`. */
import type * as Management from "effect-tinker/protocol/schemas/Management"
import * as RestClient from "effect-tinker/RestClient"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Clients from "../internal/Clients.ts"
import type { Handler } from "../internal/Commands.ts"
import { UsageError } from "../internal/Failure.ts"
import * as Output from "../internal/Output.ts"
import * as Pages from "../internal/Pages.ts"
import * as Records from "../internal/Records.ts"
import * as Words from "../internal/Words.ts"

type Run = Management.TrainingRun

interface Column {
  readonly header: string
  readonly cell: (run: Run, now: number) => string
}

const columns: ReadonlyMap<string, Column> = new Map([
  ["id", { header: "Run ID", cell: (run) => run.trainingRunId }],
  ["model", { header: "Base Model", cell: (run) => run.baseModel }],
  ["owner", { header: "Owner", cell: (run) => run.modelOwner }],
  ["lora", { header: "LoRA", cell: (run) => Records.lora(run).replace(/^Yes \((.+)\)$/, "$1") }],
  ["updated", { header: "Last Update", cell: (run, now) => Words.time(run.lastRequestTime.epochMillis, now) }],
  ["status", { header: "Status", cell: (run) => (run.corrupted ? "Failed" : "OK") }],
  [
    "checkpoint",
    {
      header: "Last Checkpoint",
      cell: (run) => Option.match(run.lastCheckpoint, { onNone: () => "None", onSome: (last) => last.checkpointId }),
    },
  ],
  [
    "checkpoint_time",
    {
      header: "Checkpoint Time",
      cell: (run, now) =>
        Option.match(run.lastCheckpoint, {
          onNone: () => "N/A",
          onSome: ({ time }) => Words.time(time.epochMillis, now),
        }),
    },
  ],
] satisfies ReadonlyArray<readonly [string, Column]>)

const defaultColumns = "id,model,lora,updated,status"

const columnsOf = (text: string | undefined): Effect.Effect<ReadonlyArray<Column>, UsageError> => {
  const names = (text ?? defaultColumns).split(",").map((name) => name.trim())
  const unknown = names.filter((name) => !columns.has(name))
  return unknown.length > 0
    ? new UsageError({
        message: `Invalid value for '--columns': Unknown column(s): ${unknown.join(", ")}. Available: ${[...columns.keys()].join(", ")}`,
        usage: Option.some({ line: "tinkerfx run list [OPTIONS]", command: "tinkerfx run list" }),
      })
    : Effect.succeed(names.flatMap((name) => columns.get(name) ?? []))
}

export const list: Handler<{ readonly limit: number; readonly columns: string | undefined }> = (input, { format }) =>
  Effect.gen(function* () {
    const shown = yield* columnsOf(input.columns)
    return yield* Effect.gen(function* () {
      const rest = yield* RestClient.RestClient
      const { items, total } = yield* Pages.read({
        limit: input.limit,
        pageSize: 100,
        noun: "training runs",
        format,
        fetch: (limit, offset) =>
          Effect.map(rest.listTrainingRuns({ limit, offset }), ({ cursor, trainingRuns }) => ({
            items: trainingRuns,
            total: cursor.totalCount,
          })),
      })
      const now = yield* Clock.currentTimeMillis
      yield* Output.print(format, {
        json: () => ({ runs: items.map(Records.run) }),
        table: () => ({
          title: items.length === 0 ? "No training runs found" : Pages.title(items.length, "training run", total),
          columns: shown.map(({ header }) => header),
          rows: items.map((run) => shown.map(({ cell }) => cell(run, now))),
        }),
      })
    }).pipe(Clients.provide)
  })

const rowsOf = (run: Run, now: number): ReadonlyArray<ReadonlyArray<string>> => {
  const last = (label: string, checkpoint: Option.Option<Management.Checkpoint>) =>
    Option.match(checkpoint, {
      onNone: () => [],
      onSome: ({ checkpointId, time, tinkerPath }) => [
        [label, checkpointId],
        ["  - Time", Words.time(time.epochMillis, now)],
        ["  - Path", tinkerPath],
      ],
    })
  const metadata = Object.entries(Option.getOrElse(run.userMetadata, () => ({})))
  return [
    ["Run ID", run.trainingRunId],
    ["Base Model", run.baseModel],
    ["Owner", run.modelOwner],
    ["LoRA", Records.lora(run)],
    ["Last Update", Words.time(run.lastRequestTime.epochMillis, now)],
    ["Status", run.corrupted ? "Failed" : "OK"],
    ...last("Last Training Checkpoint", run.lastCheckpoint),
    ...last("Last Sampler Checkpoint", run.lastSamplerCheckpoint),
    ...(metadata.length > 0 ? [["Metadata", ""]] : []),
    ...metadata.map(([key, value]) => [`  - ${key}`, typeof value === "string" ? value : JSON.stringify(value)]),
  ]
}

export const info: Handler<{ readonly runId: string }> = ({ runId }, { format }) =>
  Effect.gen(function* () {
    const rest = yield* RestClient.RestClient
    const run = yield* rest.getTrainingRun(runId)
    const now = yield* Clock.currentTimeMillis
    yield* Output.print(format, {
      json: () => Records.run(run),
      table: () => ({
        title: `Training Run: ${run.trainingRunId}`,
        columns: Output.properties,
        rows: rowsOf(run, now),
      }),
    })
  }).pipe(Clients.provide)
