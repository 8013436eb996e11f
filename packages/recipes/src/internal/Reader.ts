/** Finds the rows in bytes, with their places, before any schema is applied. */
import * as Dataset from "@effect-tinker/tokenizer/Dataset"
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import { BadRow, type Reason } from "../DataError.ts"
import * as Csv from "./Csv.ts"
import * as Problems from "./Problems.ts"

/** A row that is not decoded yet, and its place in the bytes. */
export interface Placed {
  readonly row: number
  readonly offset: number
  readonly bytes: number
  readonly value: unknown
}

/** Bad rows that were left out. */
export interface Skips {
  readonly bad: number
  readonly examples: ReadonlyArray<BadRow>
}

/** The rows of some bytes. */
export interface Reading<out E, out R> {
  /** A bad row is an element if it is up to the caller what to do about it. */
  readonly rows: Stream.Stream<Either.Either<Placed, BadRow>, E | BadRow, R>
  /** The bad rows that are not elements of `rows`. */
  readonly skips: Effect.Effect<Skips>
}

/** Options of the readers. */
export interface Options {
  readonly skip: boolean
  readonly maxRowBytes: number
  readonly maxExamples: number
}

/** A way to write rows into bytes. */
export interface Format {
  /** Finds the rows in the bytes of a file. */
  readonly read: <E, R>(bytes: Stream.Stream<Uint8Array, E, R>, options: Options) => Reading<E, R>
  /** Parses the bytes of a row that `read` has found at this place. */
  readonly parse: (bytes: Uint8Array, offset: number) => Either.Either<unknown, string>
}

const none: Effect.Effect<Skips> = Effect.succeed({ bad: 0, examples: [] })

const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

const decode = (bytes: Uint8Array): Either.Either<string, string> =>
  Either.try({ try: () => strict.decode(bytes), catch: () => "invalid UTF-8" })

const carriageReturn = 0x0d
const byteOrderMark = /^\ufeff/

const textAt = (bytes: Uint8Array, offset: number) =>
  Either.map(decode(bytes), (text) => (offset === 0 ? text.replace(byteOrderMark, "") : text))

const reasons: Readonly<Record<Dataset.BadLine["reason"], Reason>> = {
  TooLong: "TooLarge",
  InvalidUtf8: "InvalidUtf8",
  InvalidJson: "InvalidJson",
  InvalidRow: "InvalidRow",
}

/** One JSON value per line. */
export const jsonl = (file: string): Format => {
  const bad = ({ line, problem, reason }: Dataset.BadLine) =>
    new BadRow({ file, row: line, reason: reasons[reason], problem: problem.replace("maxLineBytes", "maxRowBytes") })
  return {
    read: (bytes, { maxExamples, maxRowBytes, skip }) => {
      const lines = Dataset.jsonl(bytes, Schema.Unknown, {
        onBadLine: skip ? "skip" : "stop",
        maxLineBytes: maxRowBytes,
        maxExamples,
      })
      return {
        rows: lines.rows.pipe(
          Stream.map(({ bytes, line, offset, value }) => Either.right({ row: line, offset, bytes, value })),
          Stream.catchAll((error) =>
            error instanceof Dataset.BadLine ? Stream.succeed(Either.left(bad(error))) : Stream.fail(error),
          ),
        ),
        skips: skip
          ? Effect.map(lines.counts, (counts) => ({ bad: counts.bad, examples: counts.examples.map(bad) }))
          : none,
      }
    },
    parse: (bytes, offset) =>
      Either.flatMap(textAt(bytes, offset), (text) =>
        Either.try({ try: (): unknown => JSON.parse(text), catch: () => "invalid JSON" }),
      ),
  }
}

/** Records of comma-separated values: each row is an object of strings. */
export const csv = (
  file: string,
  { columns, delimiter }: { readonly columns: ReadonlyArray<string> | undefined; readonly delimiter: string },
): Format => {
  let header = columns
  const parse = (bytes: Uint8Array, offset: number): Either.Either<ReadonlyArray<string>, string> =>
    Either.flatMap(textAt(bytes, offset), (text) => Csv.fields(text, delimiter))
  const named = (names: ReadonlyArray<string>, values: ReadonlyArray<string>): Either.Either<unknown, string> =>
    names.length === values.length
      ? Either.right(Object.fromEntries(names.map((name, index) => [name, values[index]])))
      : Either.left(`expected ${names.length} fields as in the header, got ${values.length}`)
  return {
    read: (pieces, { maxRowBytes }) => ({
      rows: Stream.suspend(() => {
        const records = new Csv.Records(delimiter.charCodeAt(0), maxRowBytes)
        let row = 0
        header = columns
        const rowsOf = (found: ReadonlyArray<Csv.Record>): Stream.Stream<Either.Either<Placed, BadRow>, BadRow> => {
          const all: Array<Either.Either<Placed, BadRow>> = []
          for (const { bytes, content, offset } of found) {
            row++
            const bad = (reason: Reason, problem: string) => new BadRow({ file, row, reason, problem })
            if (content === undefined) {
              const problem = `longer than ${maxRowBytes} bytes; look for a quote without its counterpart, or raise maxRowBytes`
              all.push(Either.left(bad("TooLarge", problem)))
              continue
            }
            if (content.length === 0 || (content.length === 1 && content[0] === carriageReturn)) continue
            const values = parse(content, offset)
            if (Either.isLeft(values)) {
              all.push(Either.left(bad(values.left === "invalid UTF-8" ? "InvalidUtf8" : "InvalidCsv", values.left)))
              continue
            }
            if (header === undefined) {
              const twice = values.right.find((name, index) => values.right.indexOf(name) !== index)
              if (twice !== undefined) return Stream.fail(bad("InvalidCsv", `the header has ${twice} twice`))
              header = values.right
              continue
            }
            const value = named(header, values.right)
            all.push(
              Either.mapBoth(value, {
                onLeft: (problem) => bad("InvalidCsv", problem),
                onRight: (value) => ({ row, offset, bytes, value }),
              }),
            )
          }
          return Stream.fromChunk(Chunk.unsafeFromArray(all))
        }
        return pieces.pipe(
          Stream.flatMap((piece) => rowsOf(records.push(piece))),
          Stream.concat(Stream.suspend(() => rowsOf(records.finish()))),
        )
      }),
      skips: none,
    }),
    parse: (bytes, offset) => Either.flatMap(parse(bytes, offset), (values) => named(header ?? [], values)),
  }
}

/** Values that are rows already. */
export const values = <E, R>(all: Stream.Stream<unknown, E, R>): Reading<E, R> => ({
  rows: Stream.suspend(() => {
    let row = 0
    return Stream.map(all, (value) => Either.right({ row: ++row, offset: 0, bytes: 0, value }))
  }),
  skips: none,
})

const short = (text: string) => (text.length > 400 ? `${text.slice(0, 400)}…` : text)

/** Decodes rows by a schema; a bad row names the first field that is wrong. */
export const decoder = <A, I>(file: string, schema: Schema.Schema<A, I>) => {
  const decode = Schema.decodeUnknownEither(schema)
  return (value: unknown, row: number): Either.Either<A, BadRow> =>
    Either.mapLeft(decode(value), (error) => {
      const { path = "", problem = error.message } = Problems.of(error)[0] ?? {}
      const field = path === "" ? undefined : path
      return new BadRow({ file, row, field, reason: "InvalidRow", problem: short(problem) })
    })
}

/** Counts rows, and keeps the first bad ones as examples. */
export class Tally {
  rows = 0
  filtered = 0
  bad = 0
  private readonly examples: Array<BadRow> = []
  private readonly maxExamples: number

  constructor(maxExamples: number) {
    this.maxExamples = maxExamples
  }

  add(row: BadRow): void {
    this.bad++
    if (this.examples.length < this.maxExamples) this.examples.push(row)
  }

  /** Returns the counts, with the bad rows that the reader itself has left out. */
  counts(skips: Skips) {
    return {
      rows: this.rows,
      filtered: this.filtered,
      bad: this.bad + skips.bad,
      examples: [...this.examples, ...skips.examples]
        .toSorted((one, other) => one.row - other.row)
        .slice(0, this.maxExamples),
    }
  }
}
