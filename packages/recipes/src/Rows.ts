/**
 * Streams the rows of a file or of any stream, decoded by a schema, each with its file and its number. A bad row is an
 * error that names file, row and field, or is counted and skipped.
 *
 * @since 0.1.0
 */
import type { PlatformError } from "@effect/platform/Error"
import type * as FileSystem from "@effect/platform/FileSystem"
import * as Dataset from "@effect-tinker/tokenizer/Dataset"
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import type * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import type { BadRow, UnreadableFile } from "./DataError.ts"
import { byEnding } from "./internal/FileFormat.ts"
import * as Parquet from "./internal/Parquet.ts"
import * as Reader from "./internal/Reader.ts"

/**
 * A decoded row, with the name of its file or stream and its number, from 1. The number finds the row in an editor or a
 * spreadsheet: see `BadRow`.
 *
 * @since 0.1.0
 * @category models
 */
export interface Row<out A> {
  readonly value: A
  readonly file: string
  readonly row: number
}

/**
 * Options of all sources of rows.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** Whether a bad row is an error (`fail`) or is counted and left out (`skip`). Default: `fail`. */
  readonly onBadRow?: "fail" | "skip" | undefined
  /** The number of bad rows kept as examples. Default: 10. */
  readonly maxExamples?: number | undefined
  /** Longer lines or records are bad rows, and are not kept in memory. Default: 16 MiB. */
  readonly maxRowBytes?: number | undefined
}

/**
 * Options of {@link csv}.
 *
 * @since 0.1.0
 * @category models
 */
export interface CsvOptions extends Options {
  /** The names of the columns of a file without a header. By default they are the first record. */
  readonly columns?: ReadonlyArray<string> | undefined
  /** The character between fields. Default: a comma. */
  readonly delimiter?: "," | ";" | "\t" | "|" | undefined
}

/**
 * Options of {@link parquet}.
 *
 * @since 0.1.0
 * @category models
 */
export interface ParquetOptions extends Options {
  /** The columns to read. By default all of them. */
  readonly columns?: ReadonlyArray<string> | undefined
}

/**
 * How many rows were read, and what became of them.
 *
 * @since 0.1.0
 * @category models
 */
export interface Counts {
  /** Rows that were passed on. */
  readonly rows: number
  /** Bad rows, which were left out. */
  readonly bad: number
  /** The first bad rows. */
  readonly examples: ReadonlyArray<BadRow>
}

/**
 * A stream of rows, with counts of what was read.
 *
 * @since 0.1.0
 * @category models
 */
export interface Rows<out A, out E = never, out R = never> {
  readonly rows: Stream.Stream<Row<A>, E | BadRow, R>
  /** The counts so far of the most recently started run of `rows`. */
  readonly counts: Effect.Effect<Counts>
}

/** @internal */
export const readerOptions = ({ maxExamples = 10, maxRowBytes = 16 * 1024 * 1024, onBadRow }: Options) => ({
  skip: onBadRow === "skip",
  maxRowBytes,
  maxExamples,
})

const make = <A, I, E, R>(
  file: string,
  reading: Reader.Reading<E, R>,
  schema: Schema.Schema<A, I>,
  options: Options,
): Rows<A, E, R> => {
  const { maxExamples, skip } = readerOptions(options)
  const decode = Reader.decoder(file, schema)
  let tally = new Reader.Tally(maxExamples)
  const rows = Stream.suspend(() => {
    const own = new Reader.Tally(maxExamples)
    tally = own
    return reading.rows.pipe(
      Stream.chunks,
      Stream.flatMap((found): Stream.Stream<Row<A>, BadRow> => {
        const all: Array<Row<A>> = []
        for (const raw of found) {
          const decoded = Either.flatMap(raw, ({ row, value }) =>
            Either.map(decode(value, row), (value): Row<A> => ({ value, file, row })),
          )
          if (Either.isRight(decoded)) {
            own.rows++
            all.push(decoded.right)
            continue
          }
          own.add(decoded.left)
          // Emits the rows before a bad row before that row fails the stream.
          if (!skip) return Stream.concat(Stream.fromChunk(Chunk.unsafeFromArray(all)), Stream.fail(decoded.left))
        }
        return Stream.fromChunk(Chunk.unsafeFromArray(all))
      }),
    )
  })
  return {
    rows,
    counts: Effect.map(reading.skips, (skips) => {
      const { bad, examples, rows } = tally.counts(skips)
      return { rows, bad, examples }
    }),
  }
}

/**
 * Reads a file with one JSON value per line.
 *
 * @since 0.1.0
 * @category constructors
 */
export const jsonl = <A, I>(
  path: string,
  schema: Schema.Schema<A, I>,
  options: Options = {},
): Rows<A, PlatformError, FileSystem.FileSystem> =>
  make(path, Reader.jsonl(path).read(Dataset.file(path), readerOptions(options)), schema, options)

/**
 * Reads a file of comma-separated values (RFC 4180). Rows are objects of strings by column, so the schema converts
 * numbers, e.g. with `Schema.NumberFromString`. Blank lines are ignored.
 *
 * @since 0.1.0
 * @category constructors
 */
export const csv = <A, I>(
  path: string,
  schema: Schema.Schema<A, I>,
  options: CsvOptions = {},
): Rows<A, PlatformError, FileSystem.FileSystem> =>
  make(path, csvFormat(path, options).read(Dataset.file(path), readerOptions(options)), schema, options)

/** @internal */
export const csvFormat = (path: string, { columns, delimiter = "," }: CsvOptions): Reader.Format =>
  Reader.csv(path, { columns, delimiter })

/**
 * Reads a Parquet file, one row group at a time. Values are as in JSON: integers beyond 2⁵³ are strings of digits, dates
 * and times are ISO 8601 strings, and bytes that are not text are Base64.
 *
 * @since 0.1.0
 * @category constructors
 */
export const parquet = <A, I>(
  path: string,
  schema: Schema.Schema<A, I>,
  options: ParquetOptions = {},
): Rows<A, PlatformError | UnreadableFile, FileSystem.FileSystem> =>
  make(path, Reader.values(Parquet.read(path, options.columns)), schema, options)

/**
 * Reads the values of any stream. The name stands for the file in errors.
 *
 * @since 0.1.0
 * @category constructors
 */
export const fromStream = <A, I, E, R>(
  name: string,
  values: Stream.Stream<unknown, E, R>,
  schema: Schema.Schema<A, I>,
  options: Omit<Options, "maxRowBytes"> = {},
): Rows<A, E, R> => make(name, Reader.values(values), schema, options)

/**
 * Reads a file by the ending of its name: `.jsonl` or `.ndjson`, `.csv`, `.tsv`, or `.parquet`.
 *
 * @since 0.1.0
 * @category constructors
 */
export const file = <A, I>(
  path: string,
  schema: Schema.Schema<A, I>,
  options: Options = {},
): Rows<A, PlatformError | UnreadableFile, FileSystem.FileSystem> =>
  byEnding<Rows<A, PlatformError | UnreadableFile, FileSystem.FileSystem>>(path, {
    jsonl: () => jsonl(path, schema, options),
    csv: (delimiter) => csv(path, schema, { ...options, delimiter }),
    parquet: () => parquet(path, schema, options),
    unknown: (error) => fromStream(path, Stream.fail(error), schema, options),
  })
