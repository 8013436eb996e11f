/**
 * Rows with random access. Opening a file checks every row once and keeps only where the rows are, so a table of a file
 * takes 12 to 20 bytes of memory per row, however long the rows are.
 *
 * @since 0.1.0
 */
import type { PlatformError } from "@effect/platform/Error"
import * as FileSystem from "@effect/platform/FileSystem"
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import type * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import { InvalidInput } from "effect-tinker/TinkerError"
import { createHash, type Hash } from "node:crypto"
import { BadRow, DataChanged, type UnreadableFile } from "./DataError.ts"
import { byEnding } from "./internal/FileFormat.ts"
import { Generator, permutation, purposes } from "./internal/Generator.ts"
import * as Parquet from "./internal/Parquet.ts"
import * as RandomAccess from "./internal/RandomAccess.ts"
import * as Reader from "./internal/Reader.ts"
import { RowIndex } from "./internal/RowIndex.ts"
import * as Rows from "./Rows.ts"

/**
 * The result of opening a table.
 *
 * @since 0.1.0
 * @category models
 */
export interface Counts extends Rows.Counts {
  /** Rows that `filter` left out. */
  readonly filtered: number
}

/**
 * Why rows of a table can't be read.
 *
 * @since 0.1.0
 * @category errors
 */
export type Failure = DataChanged | PlatformError

/**
 * Rows with random access. Indices are counted from 0, over the rows that are left after bad and filtered rows.
 *
 * @since 0.1.0
 * @category models
 */
export interface Table<out A> {
  /** The name of the file, stream or array. */
  readonly name: string
  /** The number of rows. */
  readonly size: number
  /**
   * Identifies the content: the bytes of the file, which rows are used, and their lengths. A run keeps it in its
   * configuration, so that it can't continue with other data.
   */
  readonly fingerprint: string
  /** The result of opening the table. */
  readonly counts: Counts
  /** The length of each row, if the table was opened with a `length`. */
  readonly lengths: Option.Option<Uint32Array>
  /** Reads rows, in the order of the indices. */
  readonly read: (indices: ArrayLike<number>) => Effect.Effect<ReadonlyArray<Rows.Row<A>>, Failure>
}

/**
 * Options of all tables.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options<in out A> extends Rows.Options {
  /** Keeps only the rows for which this is true. */
  readonly filter?: ((value: A) => boolean) | undefined
  /**
   * Measures each row once, when the table is opened: usually the number of its tokens. Needed for `maxLength` and for
   * batches by tokens. A row for which it fails is a bad row.
   */
  readonly length?: ((value: A) => Effect.Effect<number, { readonly message: string }>) | undefined
  /** Longer rows are bad rows. */
  readonly maxLength?: number | undefined
}

const update = (hash: Hash, parts: Iterable<Uint8Array>) => {
  for (const part of parts) hash.update(part)
}

const bytesOf = (numbers: Uint32Array) => new Uint8Array(numbers.buffer, numbers.byteOffset, numbers.byteLength)

/** Decides which rows are used, and counts the others. */
class Intake<A> {
  readonly tally: Reader.Tally
  readonly lengths: Array<Uint32Array> = []
  private measured = 0
  private readonly file: string
  private readonly options: Options<A>
  private readonly skip: boolean

  constructor(file: string, options: Options<A>) {
    const { maxExamples, skip } = Rows.readerOptions(options)
    this.file = file
    this.options = options
    this.skip = skip
    this.tally = new Reader.Tally(maxExamples)
  }

  private reject(bad: BadRow): Either.Either<boolean, BadRow> {
    this.tally.add(bad)
    return this.skip ? Either.right(false) : Either.left(bad)
  }

  private measure(row: number, length: number): Either.Either<boolean, BadRow> {
    const { file, options } = this
    const bad = (reason: "NotMeasured" | "TooLong", problem: string) =>
      this.reject(new BadRow({ file, row, reason, problem }))
    if (!Number.isSafeInteger(length) || length < 0 || length > 0xffff_ffff) {
      return bad("NotMeasured", `expected a length, a non-negative integer, got ${length}`)
    }
    const { maxLength = Infinity } = options
    if (length > maxLength) {
      return bad("TooLong", `its length is ${length}, ${length - maxLength} more than ${maxLength}`)
    }
    if (this.measured % 65_536 === 0) this.lengths.push(new Uint32Array(65_536))
    const block = this.lengths.at(-1)
    if (block !== undefined) block[this.measured % 65_536] = length
    this.measured++
    this.tally.rows++
    return Either.right(true)
  }

  /** Returns whether a row is used, but for its length. */
  admit(decoded: Either.Either<A, BadRow>): Either.Either<boolean, BadRow> {
    if (Either.isLeft(decoded)) return this.reject(decoded.left)
    const { filter, length } = this.options
    if (filter !== undefined && !filter(decoded.right)) {
      this.tally.filtered++
      return Either.right(false)
    }
    if (length === undefined) this.tally.rows++
    return Either.right(true)
  }

  /** Returns whether a row is used. */
  take(decoded: Either.Either<A, BadRow>, row: number): Effect.Effect<boolean, BadRow> {
    const { length } = this.options
    const admitted = this.admit(decoded)
    if (length === undefined || Either.isLeft(decoded) || !Either.getOrElse(admitted, () => false)) return admitted
    return Effect.matchEffect(
      Effect.suspend(() => length(decoded.right)),
      {
        onFailure: ({ message }) =>
          this.reject(new BadRow({ file: this.file, row, reason: "NotMeasured", problem: message })),
        onSuccess: (found) => this.measure(row, found),
      },
    )
  }

  /** Returns the lengths in one array. */
  finish(): Option.Option<Uint32Array> {
    if (this.options.length === undefined) return Option.none()
    const all = new Uint32Array(this.measured)
    for (const [index, block] of this.lengths.entries()) {
      const at = index * 65_536
      all.set(block.subarray(0, Math.min(block.length, this.measured - at)), at)
    }
    return Option.some(all)
  }
}

/** Rows that are this close to each other are read at once. */
const maxGap = 16 * 1024
const maxRead = 4 * 1024 * 1024

const openFile = <A, I>(
  path: string,
  name: string,
  format: Reader.Format,
  schema: Schema.Schema<A, I>,
  options: Options<A>,
): Effect.Effect<Table<A>, BadRow | Failure, FileSystem.FileSystem | Scope.Scope> =>
  Effect.gen(function* () {
    const files = yield* FileSystem.FileSystem
    const decode = Reader.decoder(name, schema)
    const index = new RowIndex()
    const intake = new Intake(name, options)
    const content = createHash("sha256")

    const file = yield* RandomAccess.open(path)
    const state = yield* file.state
    const bytes = files.stream(path, { chunkSize: 256 * 1024 }).pipe(
      Stream.tap((piece) =>
        Effect.sync(() => {
          content.update(piece)
        }),
      ),
    )
    const reading = format.read(bytes, Rows.readerOptions(options))
    const decoded = (raw: Either.Either<Reader.Placed, BadRow>) =>
      Either.flatMap(raw, ({ row, value }) => decode(value, row))
    const place = (raw: Either.Either<Reader.Placed, BadRow>) => {
      if (Either.isRight(raw)) index.add(raw.right.row, raw.right.offset, raw.right.bytes)
    }
    // Files have millions of rows: only rows that are measured need an effect each.
    const addNow = (found: Chunk.Chunk<Either.Either<Reader.Placed, BadRow>>): Effect.Effect<void, BadRow> => {
      for (const raw of found) {
        const used = intake.admit(decoded(raw))
        if (Either.isLeft(used)) return used
        if (used.right) place(raw)
      }
      return Effect.void
    }
    const addMeasured = (raw: Either.Either<Reader.Placed, BadRow>) =>
      Effect.map(
        intake.take(decoded(raw), Either.match(raw, { onLeft: ({ row }) => row, onRight: ({ row }) => row })),
        (used) => {
          if (used) place(raw)
        },
      )
    yield* options.length === undefined
      ? Stream.runForEachChunk(reading.rows, addNow)
      : Stream.runForEach(reading.rows, addMeasured)
    const skips = yield* reading.skips

    const lengths = intake.finish()
    const hash = createHash("sha256").update(content.digest())
    update(hash, index.rowBytes())
    if (Option.isSome(lengths)) hash.update(bytesOf(lengths.value))

    const changed = (problem: string) => new DataChanged({ file: name, problem })
    const unchanged = Effect.flatMap(file.state, (now) =>
      now === state ? Effect.void : changed(`it had ${state}; now it has ${now}`),
    )
    yield* unchanged

    const rowAt = (at: number, part: Uint8Array): Either.Either<Rows.Row<A>, DataChanged> => {
      const row = index.rowOf(at)
      const value = Either.flatMap(format.parse(part, index.offsetOf(at)), (raw) =>
        Either.mapLeft(decode(raw, row), ({ problem }) => problem),
      )
      return Either.mapBoth(value, {
        onLeft: (problem) => changed(`row ${row} is not what it was: ${problem}`),
        onRight: (value) => ({ value, file: name, row }),
      })
    }
    const read: Table<A>["read"] = (indices) =>
      Effect.gen(function* () {
        yield* unchanged
        const order = Uint32Array.from(indices, (_, at) => at).toSorted(
          (one, other) => index.offsetOf(indices[one] ?? 0) - index.offsetOf(indices[other] ?? 0),
        )
        const rows = Array.from<Rows.Row<A>>({ length: indices.length })
        const end = (at: number) => index.offsetOf(at) + index.bytesOf(at)
        for (let from = 0; from < order.length;) {
          const start = index.offsetOf(indices[order[from] ?? 0] ?? 0)
          let stop = start
          let to = from
          for (; to < order.length; to++) {
            const at = indices[order[to] ?? 0] ?? 0
            if (to > from && (index.offsetOf(at) - stop > maxGap || end(at) - start > maxRead)) break
            stop = Math.max(stop, end(at))
          }
          const found = yield* file.read(start, stop - start)
          for (; from < to; from++) {
            const position = order[from] ?? 0
            const at = indices[position] ?? 0
            rows[position] = yield* rowAt(at, found.subarray(index.offsetOf(at) - start, end(at) - start))
          }
        }
        return rows
      })
    return {
      name,
      size: index.size,
      fingerprint: hash.digest("hex"),
      counts: intake.tally.counts(skips),
      lengths,
      read: (indices) => Effect.zipRight(checkIndices(index.size, indices), read(indices)),
    }
  })

/** An index that does not exist is a mistake of the program, like an index of an array. */
const checkIndices = (size: number, indices: ArrayLike<number>): Effect.Effect<void> => {
  for (let at = 0; at < indices.length; at++) {
    const index = indices[at]
    if (index === undefined || !Number.isInteger(index) || index < 0 || index >= size) {
      return Effect.dieMessage(`row ${index} does not exist: the table has ${size} rows`)
    }
  }
  return Effect.void
}

/**
 * Opens a file with one JSON value per line. The file stays open until the scope closes.
 *
 * @since 0.1.0
 * @category constructors
 */
export const jsonl = <A, I>(
  path: string,
  schema: Schema.Schema<A, I>,
  options: Options<A> = {},
): Effect.Effect<Table<A>, BadRow | Failure, FileSystem.FileSystem | Scope.Scope> =>
  openFile(path, path, Reader.jsonl(path), schema, options)

/**
 * Opens a file of comma-separated values, which {@link Rows.csv} describes.
 *
 * @since 0.1.0
 * @category constructors
 */
export const csv = <A, I>(
  path: string,
  schema: Schema.Schema<A, I>,
  options: Options<A> & Rows.CsvOptions = {},
): Effect.Effect<Table<A>, BadRow | Failure, FileSystem.FileSystem | Scope.Scope> =>
  openFile(path, path, Rows.csvFormat(path, options), schema, options)

const lineFeed = new Uint8Array([0x0a])

/**
 * Opens the values of any stream: runs it once and keeps the values in a temporary file, as JSON, until the scope
 * closes. The name stands for the file in errors.
 *
 * @since 0.1.0
 * @category constructors
 */
export const fromStream = <A, I, E, R>(
  name: string,
  values: Stream.Stream<unknown, E, R>,
  schema: Schema.Schema<A, I>,
  options: Options<A> = {},
): Effect.Effect<Table<A>, E | BadRow | Failure, FileSystem.FileSystem | Scope.Scope | R> =>
  Effect.gen(function* () {
    const files = yield* FileSystem.FileSystem
    const path = yield* files.makeTempFileScoped({ prefix: "effect-tinker-rows-" })
    const encoder = new TextEncoder()
    const lines = values.pipe(
      Stream.chunks,
      Stream.map((chunk) => {
        const text = Chunk.toReadonlyArray(chunk).map((value) => JSON.stringify(Parquet.toJson(value) ?? null))
        return encoder.encode(text.map((line) => `${line}\n`).join(""))
      }),
    )
    yield* Stream.run(lines, files.sink(path))
    return yield* openFile(path, name, Reader.jsonl(name), schema, options)
  })

/**
 * Opens a Parquet file, which {@link Rows.parquet} describes. Its rows are kept in a temporary file, as JSON, because
 * single rows of a Parquet file can't be read without the many rows around them.
 *
 * @since 0.1.0
 * @category constructors
 */
export const parquet = <A, I>(
  path: string,
  schema: Schema.Schema<A, I>,
  options: Options<A> & Rows.ParquetOptions = {},
): Effect.Effect<Table<A>, BadRow | Failure | UnreadableFile, FileSystem.FileSystem | Scope.Scope> =>
  fromStream(path, Parquet.read(path, options.columns), schema, options)

/**
 * Opens a file by the ending of its name: `.jsonl` or `.ndjson`, `.csv`, `.tsv`, or `.parquet`.
 *
 * @since 0.1.0
 * @category constructors
 */
export const file = <A, I>(
  path: string,
  schema: Schema.Schema<A, I>,
  options: Options<A> = {},
): Effect.Effect<Table<A>, BadRow | Failure | UnreadableFile, FileSystem.FileSystem | Scope.Scope> =>
  byEnding<Effect.Effect<Table<A>, BadRow | Failure | UnreadableFile, FileSystem.FileSystem | Scope.Scope>>(path, {
    jsonl: () => jsonl(path, schema, options),
    csv: (delimiter) => csv(path, schema, { ...options, delimiter }),
    parquet: () => parquet(path, schema, options),
    unknown: Effect.fail,
  })

/**
 * Makes a table of values in memory. Its fingerprint is that of the values as JSON.
 *
 * @since 0.1.0
 * @category constructors
 */
export const fromArray = <A>(
  values: ReadonlyArray<A>,
  options: Omit<Options<A>, "maxRowBytes"> & { readonly name?: string | undefined } = {},
): Effect.Effect<Table<A>, BadRow> =>
  Effect.gen(function* () {
    const name = options.name ?? "the array"
    const intake = new Intake<A>(name, options)
    const hash = createHash("sha256")
    const used: Array<number> = []
    for (const [at, value] of values.entries()) {
      if (yield* intake.take(Either.right(value), at + 1)) used.push(at)
    }
    for (const at of used) {
      const text = yield* Effect.try({
        try: () => JSON.stringify(Parquet.toJson(values[at]) ?? null),
        catch: (cause) =>
          new BadRow({ file: name, row: at + 1, reason: "InvalidJson", problem: `not JSON: ${String(cause)}` }),
      })
      hash.update(text).update(lineFeed)
    }
    const lengths = intake.finish()
    if (Option.isSome(lengths)) hash.update(bytesOf(lengths.value))
    return {
      name,
      size: used.length,
      fingerprint: hash.digest("hex"),
      counts: intake.tally.counts({ bad: 0, examples: [] }),
      lengths,
      read: (indices) =>
        Effect.zipRight(
          checkIndices(used.length, indices),
          Effect.sync(() =>
            Array.from(indices, (index): Rows.Row<A> => {
              const at = used[index] ?? 0
              return { value: values[at] as A, file: name, row: at + 1 }
            }),
          ),
        ),
    }
  })

/**
 * Keeps some rows of a table, in the order of the indices.
 *
 * @since 0.1.0
 * @category combinators
 */
export const select = <A>(table: Table<A>, indices: Uint32Array): Table<A> => ({
  ...table,
  size: indices.length,
  fingerprint: createHash("sha256").update(table.fingerprint).update(bytesOf(indices)).digest("hex"),
  lengths: Option.map(table.lengths, (lengths) => indices.map((index) => lengths[index] ?? 0)),
  read: (chosen) =>
    Effect.zipRight(
      checkIndices(indices.length, chosen),
      table.read(Uint32Array.from(chosen, (at) => indices[at] ?? 0)),
    ),
})

/**
 * Joins tables into one, e.g. the files of a directory. Rows keep the names of their files. The result has lengths if
 * all tables have them.
 *
 * @since 0.1.0
 * @category combinators
 */
export const concat = <A>(tables: ReadonlyArray<Table<A>>): Table<A> => {
  const starts: Array<number> = []
  let size = 0
  const hash = createHash("sha256")
  for (const table of tables) {
    starts.push(size)
    size += table.size
    hash.update(table.fingerprint)
  }
  const lengths = Option.map(Option.all(tables.map((table) => table.lengths)), (all) => {
    const joined = new Uint32Array(size)
    for (const [at, part] of all.entries()) joined.set(part, starts[at] ?? 0)
    return joined
  })
  return {
    name: tables.map(({ name }) => name).join(", "),
    size,
    fingerprint: hash.digest("hex"),
    counts: {
      rows: tables.reduce((sum, { counts }) => sum + counts.rows, 0),
      bad: tables.reduce((sum, { counts }) => sum + counts.bad, 0),
      filtered: tables.reduce((sum, { counts }) => sum + counts.filtered, 0),
      examples: tables.flatMap(({ counts }) => counts.examples),
    },
    lengths,
    read: (indices) =>
      Effect.gen(function* () {
        yield* checkIndices(size, indices)
        const rows = Array.from<Rows.Row<A>>({ length: indices.length })
        for (const [which, table] of tables.entries()) {
          const start = starts[which] ?? 0
          const places: Array<number> = []
          for (let at = 0; at < indices.length; at++) {
            const index = indices[at] ?? 0
            if (index >= start && index < start + table.size) places.push(at)
          }
          if (places.length === 0) continue
          const found = yield* table.read(places.map((at) => (indices[at] ?? 0) - start))
          for (const [at, row] of found.entries()) rows[places[at] ?? 0] = row
        }
        return rows
      }),
  }
}

/**
 * How many rows are held out: a fraction of all, rounded to a whole number, or a count.
 *
 * @since 0.1.0
 * @category models
 */
export type HeldOut = { readonly fraction: number } | { readonly count: number }

/**
 * Splits a table into rows to train on and rows that are held out, e.g. for evaluation. Which rows these are depends
 * only on the seed and the number of rows; both parts keep the order of the table.
 *
 * @since 0.1.0
 * @category combinators
 */
export const split = <A>(
  table: Table<A>,
  { heldOut, seed = 0 }: { readonly heldOut: HeldOut; readonly seed?: number | undefined },
): Either.Either<{ readonly train: Table<A>; readonly heldOut: Table<A> }, InvalidInput> => {
  const { size } = table
  const wanted = "count" in heldOut ? heldOut.count : Math.round(heldOut.fraction * size)
  const path = "count" in heldOut ? "heldOut.count" : "heldOut.fraction"
  if (!Number.isSafeInteger(seed)) {
    return Either.left(new InvalidInput({ path: "seed", problem: `expected an integer, got ${seed}` }))
  }
  if (!Number.isInteger(wanted) || wanted < 1 || wanted >= size) {
    const problem = `holds out ${wanted} of ${size} rows; expected at least one row in both parts`
    return Either.left(new InvalidInput({ path, problem }))
  }
  const isHeldOut = new Uint8Array(size)
  const order = permutation(size, new Generator(seed, purposes.split))
  for (const index of order.subarray(0, wanted)) isHeldOut[index] = 1
  const indices = [new Uint32Array(size - wanted), new Uint32Array(wanted)] as const
  const filled = [0, 0] as [number, number]
  for (let index = 0; index < size; index++) {
    const part = isHeldOut[index] === 1 ? 1 : 0
    indices[part][filled[part]++] = index
  }
  return Either.right({ train: select(table, indices[0]), heldOut: select(table, indices[1]) })
}

const pageSize = 256

/**
 * Streams all rows in order.
 *
 * @since 0.1.0
 * @category conversions
 */
export const rows = <A>(table: Table<A>): Stream.Stream<Rows.Row<A>, Failure> =>
  Stream.paginateChunkEffect(0, (from) => {
    const to = Math.min(from + pageSize, table.size)
    return Effect.map(table.read(Uint32Array.from({ length: to - from }, (_, at) => from + at)), (found) => [
      Chunk.unsafeFromArray(found),
      to < table.size ? Option.some(to) : Option.none(),
    ])
  })
