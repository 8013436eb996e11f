/** Chooses the rows of a table that a recipe can use, and measures them where its batches need that. */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import { InvalidInput } from "effect-tinker/TinkerError"
import { BadRow } from "../DataError.ts"
import type { Row } from "../Rows.ts"
import * as Table from "../Table.ts"
import type { Note } from "../TrainingLoop.ts"
import { Tally } from "./Reader.ts"

export interface Policy {
  readonly batchTokens?: number | undefined
  readonly maxLength?: number | undefined
  readonly onLongRow?: "truncate" | "skip" | "fail" | undefined
  readonly onBadRow?: "fail" | "skip" | undefined
}

/** A sequence of a row, before it is cut to `maxLength`. */
export interface Sequence {
  /** The field of the row that it comes from. */
  readonly field: string
  /** The number of its tokens. */
  readonly length: number
}

export interface Usable<A> {
  readonly table: Table.Table<A>
  /** The warning about rows that were left out, if there are any. */
  readonly notes: ReadonlyArray<Note>
}

/**
 * Returns the rows to train on. Rows are looked at in advance only if the policy depends on all of them; otherwise a bad
 * row fails the run when its turn comes.
 */
export const choose = <A>(
  data: Table.Table<A>,
  policy: Policy,
  sequencesOf: (row: Row<A>) => Effect.Effect<ReadonlyArray<Sequence>, BadRow>,
): Effect.Effect<Usable<A>, BadRow | InvalidInput | Table.Failure> =>
  Effect.gen(function* () {
    const { batchTokens, maxLength, onBadRow = "fail", onLongRow = "truncate" } = policy
    const { bad, examples } = data.counts
    if (data.size === 0) return yield* unusable(`${data.name} has no rows`, examples)
    if (onLongRow !== "truncate" && maxLength === undefined)
      return yield* new InvalidInput({ path: "config.onLongRow", problem: "needs maxLength, which is not given" })
    if (batchTokens === undefined && onBadRow === "fail" && onLongRow === "truncate")
      return { table: data, notes: noteOf(data.name, data.size, bad, examples) }

    const most = maxLength ?? Number.POSITIVE_INFINITY
    const indices: Array<number> = []
    const lengths: Array<number> = []
    const tally = new Tally(10)
    const measured = (row: Row<A>) =>
      Effect.flatMap(sequencesOf(row), (sequences) => {
        const long = onLongRow === "truncate" ? undefined : sequences.find(({ length }) => length > most)
        return long === undefined
          ? Either.right(sequences.reduce((sum, { length }) => sum + Math.min(length, most), 0))
          : Either.left(tooLong(row, long, most))
      })
    const isSkipped = ({ reason }: BadRow) => (reason === "TooLong" ? onLongRow === "skip" : onBadRow === "skip")
    yield* Stream.runForEach(Stream.zipWithIndex(Table.rows(data)), ([row, index]) =>
      Effect.matchEffect(measured(row), {
        onFailure: (bad) => (isSkipped(bad) ? Effect.sync(() => tally.add(bad)) : Effect.fail(bad)),
        onSuccess: (length) =>
          Effect.sync(() => {
            indices.push(index)
            lengths.push(length)
          }),
      }),
    )
    const skipped = tally.counts({ bad, examples })
    if (indices.length === 0) return yield* unusable(`no row of ${data.name} can be used`, skipped.examples)
    return {
      table: { ...Table.select(data, Uint32Array.from(indices)), lengths: Option.some(Uint32Array.from(lengths)) },
      notes: noteOf(data.name, indices.length, skipped.bad, skipped.examples),
    }
  })

const unusable = (problem: string, [example]: ReadonlyArray<BadRow>) =>
  new InvalidInput({ path: "data", problem: example === undefined ? problem : `${problem}, e.g. ${example.message}` })

const tooLong = ({ file, row }: Row<unknown>, { field, length }: Sequence, most: number) =>
  new BadRow({ file, row, field, reason: "TooLong", problem: `it has ${length} tokens, ${length - most} too many` })

/** Emitted before the first step, so that it is not repeated when the run continues. */
const noteOf = (name: string, used: number, bad: number, examples: ReadonlyArray<BadRow>): ReadonlyArray<Note> => {
  if (bad === 0) return []
  const some = examples.slice(0, 3).map(({ message }) => message)
  const message = `${bad} of ${used + bad} rows of ${name} are left out: ${some.join("; ")}${bad > some.length ? "; …" : ""}`
  return [{ _tag: "Warning", step: 0, reason: "rows_skipped", message }]
}
