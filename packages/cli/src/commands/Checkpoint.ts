/** Implements `tinkerfx checkpoint`, except for downloads and uploads. */
import type * as Management from "effect-tinker/protocol/schemas/Management"
import * as Checkpoints from "effect-tinker/Checkpoint"
import * as RestClient from "effect-tinker/RestClient"
import * as Clock from "effect/Clock"
import * as DateTime from "effect/DateTime"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as Clients from "../internal/Clients.ts"
import type { Handler } from "../internal/Commands.ts"
import { Failure } from "../internal/Failure.ts"
import * as Json from "../internal/Json.ts"
import * as Output from "../internal/Output.ts"
import * as Pages from "../internal/Pages.ts"
import * as Progress from "../internal/Progress.ts"
import * as Prompt from "../internal/Prompt.ts"
import * as Records from "../internal/Records.ts"
import { Shell } from "../internal/Shell.ts"
import * as Words from "../internal/Words.ts"

type Checkpoint = Management.Checkpoint

const sizeOf = ({ sizeBytes }: Checkpoint): string =>
  Option.match(sizeBytes, { onNone: () => "N/A", onSome: Words.size })

const expiryOf = ({ expiresAt }: Checkpoint, now: number): string =>
  Option.match(expiresAt, { onNone: () => "Never", onSome: ({ epochMillis }) => Words.time(epochMillis, now) })

const badPath = (path: string) =>
  new Failure({
    message: `Invalid checkpoint path: ${path}`,
    hint: "Checkpoint path must be in the format: tinker://run-id/weights/0001",
  })

const parsed = (path: string): Effect.Effect<Checkpoints.Path, Failure> =>
  Either.match(Checkpoints.parse(path), { onLeft: () => badPath(path), onRight: Effect.succeed })

export const list: Handler<{ readonly runId: string | undefined; readonly limit: number }> = (
  { limit, runId },
  { format },
) =>
  Effect.gen(function* () {
    const rest = yield* RestClient.RestClient
    const page =
      runId === undefined
        ? yield* Pages.read({
            limit,
            // The query is slow, so few large pages.
            pageSize: 1000,
            noun: "checkpoints",
            format,
            fetch: (limit, offset) =>
              Effect.map(rest.listUserCheckpoints({ limit, offset }), ({ checkpoints, cursor }) => ({
                items: checkpoints,
                total: Option.match(cursor, {
                  onNone: () => checkpoints.length,
                  onSome: ({ totalCount }) => totalCount,
                }),
              })),
          })
        : yield* Effect.map(rest.listCheckpoints(runId), ({ checkpoints }) => ({
            items: checkpoints,
            total: checkpoints.length,
          }))
    const of = runId === undefined ? "" : ` for run ${runId}`
    const { items, total } = page
    const now = yield* Clock.currentTimeMillis
    yield* Output.print(format, {
      json: () => ({
        ...(runId === undefined ? {} : { run_id: runId }),
        checkpoints: items.map(Records.checkpoint),
      }),
      table: () => ({
        title:
          items.length === 0
            ? `No checkpoints found${of}`
            : runId === undefined
              ? Pages.title(items.length, "checkpoint", total)
              : `${Words.plural(items.length, "checkpoint")}${of}`,
        columns: ["Checkpoint ID", "Type", "Size", "Public", "Created", "Expires", "Path"],
        rows: items.map((checkpoint) => [
          checkpoint.checkpointId,
          checkpoint.checkpointType,
          sizeOf(checkpoint),
          Words.yes(checkpoint.public),
          Words.time(checkpoint.time.epochMillis, now),
          expiryOf(checkpoint, now),
          checkpoint.tinkerPath,
        ]),
      }),
    })
  }).pipe(Clients.provide)

export const info: Handler<{ readonly path: string }> = ({ path }, { format }) =>
  Effect.gen(function* () {
    const { trainingRunId } = yield* parsed(path)
    yield* Effect.gen(function* () {
      const rest = yield* RestClient.RestClient
      const { checkpoints } = yield* rest.listCheckpoints(trainingRunId)
      const checkpoint = checkpoints.find(({ tinkerPath }) => tinkerPath === path)
      if (checkpoint === undefined)
        return yield* new Failure({
          message: `Checkpoint not found: ${path}`,
          hint: `Run 'tinkerfx checkpoint list --run-id ${trainingRunId}' to see the checkpoints of this run.`,
        })
      const run = yield* rest.getTrainingRun(trainingRunId)
      const now = yield* Clock.currentTimeMillis
      yield* Output.print(format, {
        json: () => ({
          ...Records.checkpoint(checkpoint),
          is_lora: run.isLora,
          lora_rank: Records.nullable(run.loraRank),
        }),
        table: () => ({
          title: `Checkpoint: ${checkpoint.checkpointId}`,
          columns: Output.properties,
          rows: [
            ["Checkpoint ID", checkpoint.checkpointId],
            ["Type", checkpoint.checkpointType],
            ["Tinker Path", checkpoint.tinkerPath],
            ...(Option.isSome(checkpoint.sizeBytes) ? [["Size", sizeOf(checkpoint)]] : []),
            ["Public", Words.yes(checkpoint.public)],
            ["Created", Words.time(checkpoint.time.epochMillis, now)],
            ["Expires", expiryOf(checkpoint, now)],
            ["Training Run ID", trainingRunId],
            ["LoRA", Records.lora(run)],
          ],
        }),
      })
    }).pipe(Clients.provide)
  })

/** A command about one checkpoint that prints nothing. */
const about =
  (call: (rest: RestClient.Service, path: Checkpoints.Path) => Effect.Effect<void, unknown>) => (path: string) =>
    Effect.gen(function* () {
      const checkpoint = yield* parsed(path)
      yield* Effect.flatMap(RestClient.RestClient, (rest) => call(rest, checkpoint)).pipe(Clients.provide)
    })

const publishing = about((rest, path) => rest.publishCheckpoint(path))
const unpublishing = about((rest, path) => rest.unpublishCheckpoint(path))

export const publish: Handler<{ readonly path: string }> = ({ path }) => publishing(path)

export const unpublish: Handler<{ readonly path: string }> = ({ path }) => unpublishing(path)

export const setTtl: Handler<{
  readonly path: string
  readonly ttl: number | undefined
  readonly remove: boolean
}> = ({ path, remove, ttl }) =>
  Effect.gen(function* () {
    yield* parsed(path)
    const hint = "Use --ttl to set an expiration or --remove to clear it"
    if (ttl === undefined && !remove)
      return yield* new Failure({ message: "Must specify either --ttl <seconds> or --remove", hint })
    if (ttl !== undefined && remove)
      return yield* new Failure({ message: "Cannot specify both --ttl and --remove", hint })
    const lifetime = ttl === undefined ? null : Duration.seconds(ttl)
    yield* about((rest, checkpoint) => rest.setCheckpointTtl(checkpoint, lifetime))(path)
  })

const types: Readonly<Record<string, string>> = {
  weights: "training",
  sampler_weights: "sampler",
  external_weights: "external",
  training: "training",
  sampler: "sampler",
  external: "external",
}

/** Reads a date or a time; without a zone it is UTC. */
const timeOf = (text: string | undefined): Effect.Effect<number | undefined, Failure> => {
  if (text === undefined) return Effect.succeed(undefined)
  const trimmed = text.trim()
  const hasZone = /(Z|[+-]\d{2}:?\d{2})$/.test(trimmed.slice(10))
  const isTime = /^\d{4}-\d{2}-\d{2}([T ]\d{2}(:\d{2}){1,2}(\.\d+)?(Z|[+-]\d{2}:?\d{2})?)?$/.test(trimmed)
  const zoned = trimmed.length > 10 && !hasZone ? `${trimmed}Z` : trimmed
  const time = isTime ? DateTime.make(zoned.replace(" ", "T")) : Option.none()
  return Option.match(time, {
    onNone: () =>
      new Failure({
        message: `Invalid date: ${trimmed}`,
        hint: "Use ISO 8601 format: 2024-01-01, 2024-01-01T12:00:00Z",
      }),
    onSome: ({ epochMillis }) => Effect.succeed(epochMillis),
  })
}

interface Removal {
  readonly paths: ReadonlyArray<string>
  readonly runId: string | undefined
  readonly type: string | undefined
  readonly before: string | undefined
  readonly after: string | undefined
  readonly yes: boolean
}

/** Finds what is wrong with a combination of arguments. */
const problemWith = ({ after, before, paths, runId, type }: Removal): Failure | undefined => {
  if (paths.length === 0 && runId === undefined)
    return new Failure({
      message: "Must specify checkpoint paths or --run-id",
      hint: [
        "Examples:",
        "  tinkerfx checkpoint delete tinker://run-id/weights/0001",
        "  tinkerfx checkpoint delete --run-id <run-id>",
        "  tinkerfx checkpoint delete --run-id <run-id> --type weights --before 2024-06-01",
      ].join("\n"),
    })
  if (paths.length > 0 && runId !== undefined)
    return new Failure({
      message: "Cannot specify both checkpoint paths and --run-id",
      hint: "Use either explicit paths or --run-id with optional filters",
    })
  if (runId === undefined && (type ?? before ?? after) !== undefined)
    return new Failure({
      message: "--type, --before, and --after require --run-id",
      hint: "Example: tinkerfx checkpoint delete --run-id <run-id> --type weights --before 2024-06-01",
    })
  if (type !== undefined && !Object.hasOwn(types, type))
    return new Failure({
      message: `Invalid checkpoint type: ${type}`,
      hint: "Valid types: weights, sampler_weights, external_weights",
    })
  return undefined
}

const warning = "WARNING: This action is permanent and cannot be undone.\n"

const summary = (checkpoints: ReadonlyArray<Checkpoint>, now: number): string => {
  const total = checkpoints.reduce((sum, { sizeBytes }) => sum + Option.getOrElse(sizeBytes, () => 0), 0)
  const lines = checkpoints.map(
    (checkpoint) =>
      `  - ${checkpoint.tinkerPath} (${sizeOf(checkpoint)}, created ${Words.time(checkpoint.time.epochMillis, now)})\n`,
  )
  return `Will delete ${checkpoints.length} checkpoint(s):\n${lines.join("")}\nTotal size: ${Words.size(total)}\n${warning}`
}

const listOf = (paths: ReadonlyArray<string>): string =>
  `Will delete ${paths.length} checkpoint(s):\n${paths.map((path) => `  - ${path}\n`).join("")}\n${warning}`

/** Deletes and reports; an interruption says how far it came. */
export const deleteAll = (paths: ReadonlyArray<string>, format: Output.Format) =>
  Effect.gen(function* () {
    const rest = yield* RestClient.RestClient
    const shell = yield* Shell
    const failed: Array<{ readonly path: string; readonly error: string }> = []
    let deleted = 0
    yield* Progress.during(format, "Deleting checkpoints", (bar) =>
      Effect.forEach(
        paths,
        (path) =>
          Effect.matchEffect(rest.deleteCheckpointByPath(path), {
            onFailure: (error) => Effect.sync(() => void failed.push({ path, error: error.message })),
            onSuccess: () => Effect.sync(() => void deleted++),
          }).pipe(Effect.zipRight(Effect.suspend(() => bar.at(deleted + failed.length, paths.length)))),
        { concurrency: 32, discard: true },
      ),
    ).pipe(Effect.onInterrupt(() => shell.err(`Deleted ${deleted} of ${paths.length} checkpoint(s).\n`)))
    const text =
      format === "json"
        ? `${Json.compact({
            deleted_count: deleted,
            failed: failed.map(({ error, path }) => ({ tinker_path: path, error })),
          })}\n`
        : `Deleted ${deleted} checkpoint(s)\n${
            failed.length === 0
              ? ""
              : `Failed to delete ${failed.length} checkpoint(s):\n${failed
                  .map(({ error, path }) => `  - ${path}: ${error}\n`)
                  .join("")}`
          }`
    yield* shell.out(text)
    if (failed.length > 0)
      return yield* new Failure({
        message: `${failed.length} of ${paths.length} checkpoint(s) could not be deleted`,
        hint: "Run the command again for those that are left.",
      })
  })

export const remove: Handler<Removal> = (input, { format }) =>
  Effect.gen(function* () {
    const { paths, runId, type, yes } = input
    const problem = problemWith(input)
    if (problem !== undefined) return yield* problem
    const [before, after] = [yield* timeOf(input.before), yield* timeOf(input.after)]
    yield* Effect.forEach(paths, parsed)
    const { out } = yield* Shell
    yield* Effect.gen(function* () {
      const ask = (text: string, count: number) =>
        Effect.gen(function* () {
          if (yes) return true
          yield* out(text)
          const agreed = yield* Prompt.confirm(`Are you sure you want to delete ${count} checkpoint(s)?`)
          if (!agreed) yield* out("Deletion cancelled.\n")
          return agreed
        })
      if (runId === undefined) {
        if (yield* ask(listOf(paths), paths.length)) yield* deleteAll(paths, format)
        return
      }
      const rest = yield* RestClient.RestClient
      const { checkpoints } = yield* rest.listCheckpoints(runId)
      const chosen = checkpoints.filter(
        ({ checkpointType, time: { epochMillis } }) =>
          (type === undefined || checkpointType === types[type]) &&
          (before === undefined || epochMillis < before) &&
          (after === undefined || epochMillis > after),
      )
      if (chosen.length === 0) return yield* out(`No checkpoints found for run ${runId} matching filters\n`)
      const now = yield* Clock.currentTimeMillis
      if (yield* ask(summary(chosen, now), chosen.length))
        yield* deleteAll(
          chosen.map(({ tinkerPath }) => tinkerPath),
          format,
        )
    }).pipe(Clients.provide)
  })
