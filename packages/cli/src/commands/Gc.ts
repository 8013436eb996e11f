/** Implements `tinkerfx gc`. */
import * as Cost from "effect-tinker/Cost"
import * as RestClient from "effect-tinker/RestClient"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Clients from "../internal/Clients.ts"
import type { Handler } from "../internal/Commands.ts"
import { UsageError } from "../internal/Failure.ts"
import * as Garbage from "../internal/Garbage.ts"
import * as Json from "../internal/Json.ts"
import * as Numbers from "../internal/Numbers.ts"
import * as Output from "../internal/Output.ts"
import * as Pages from "../internal/Pages.ts"
import * as Prompt from "../internal/Prompt.ts"
import * as Records from "../internal/Records.ts"
import { Shell } from "../internal/Shell.ts"
import * as Words from "../internal/Words.ts"
import { deleteAll } from "./Checkpoint.ts"

export const gc: Handler<{
  readonly olderThan: string | undefined
  readonly keep: string | undefined
  readonly runId: string | undefined
  readonly type: string | undefined
  readonly delete: boolean
  readonly yes: boolean
}> = (input, { format }) =>
  Effect.gen(function* () {
    const { olderThan = "30d", runId, type } = input
    const { out } = yield* Shell
    const span = Garbage.spanOf(olderThan)
    if (span === undefined)
      return yield* new UsageError({
        message: `Invalid value for '--older-than': expected hours, days or weeks, e.g. 12h, 30d or 4w, got "${olderThan}"`,
      })
    const keep = (yield* Numbers.whole("keep", input.keep, 0)) ?? 1
    yield* Effect.gen(function* () {
      const rest = yield* RestClient.RestClient
      const { items } =
        runId === undefined
          ? yield* Pages.read({
              limit: 0,
              pageSize: 1000,
              noun: "checkpoints",
              format: "json",
              fetch: (limit, offset) =>
                Effect.map(rest.listUserCheckpoints({ limit, offset }), ({ checkpoints, cursor }) => ({
                  items: checkpoints,
                  total: Option.match(cursor, {
                    onNone: () => checkpoints.length,
                    onSome: ({ totalCount }) => totalCount,
                  }),
                })),
            })
          : yield* Effect.map(rest.listCheckpoints(runId), ({ checkpoints }) => ({ items: checkpoints }))
      const now = yield* Clock.currentTimeMillis
      const chosen = Garbage.choose(items, { before: now - span, keep, type })
      const bytes = Garbage.bytesOf(chosen)
      const monthly = Cost.storageCost(Cost.listed, { bytes, months: 1 })
      const unknown = chosen.filter(({ sizeBytes }) => Option.isNone(sizeBytes)).length
      if (!input.delete || format === "table")
        yield* Output.printRecords(format, {
          records: [
            ...chosen.map((checkpoint) => Records.checkpoint(checkpoint)),
            {
              checkpoints: chosen.length,
              kept: items.length - chosen.length,
              size_bytes: bytes,
              usd_per_month: new Json.Fraction(Cost.toUsd(monthly)),
            },
          ],
          table: () => ({
            title: `${Words.plural(chosen.length, "checkpoint")} to delete, ${items.length - chosen.length} to keep`,
            columns: chosen.length === 0 ? [] : ["Type", "Size", "Created", "Path"],
            rows: chosen.map((checkpoint) => [
              checkpoint.checkpointType,
              Option.match(checkpoint.sizeBytes, { onNone: () => "N/A", onSome: Words.size }),
              Words.time(checkpoint.time.epochMillis, now),
              checkpoint.tinkerPath,
            ]),
          }),
        })
      const savings = `${Words.size(bytes)}, about ${Cost.format(monthly)} per month at the list price${
        unknown === 0 ? "" : `; the size of ${unknown} is unknown`
      }`
      if (chosen.length === 0) return
      if (!input.delete)
        return yield* format === "table"
          ? out(`This would save ${savings}. Nothing was deleted: add --delete to do it.\n`)
          : Effect.void
      if (format === "table") yield* out(`This saves ${savings}.\n`)
      if (!input.yes && !(yield* Prompt.confirm(`Delete ${Words.plural(chosen.length, "checkpoint")} for good?`)))
        return yield* out("Nothing was deleted.\n")
      yield* deleteAll(
        chosen.map(({ tinkerPath }) => tinkerPath),
        format,
      )
    }).pipe(Clients.provide)
  })
