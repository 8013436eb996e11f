/**
 * Streams rows from files with one row per line. Only one line at a time is held in memory, whatever the file size.
 *
 * @since 0.1.0
 */
import type { PlatformError } from "@effect/platform/Error"
import * as FileSystem from "@effect/platform/FileSystem"
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as ParseResult from "effect/ParseResult"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"

/**
 * Why a line was rejected:
 *
 * - `TooLong`: the line is longer than `maxLineBytes`
 * - `InvalidUtf8`: the line is not valid UTF-8
 * - `InvalidJson`: the line is not valid JSON
 * - `InvalidRow`: the JSON does not match the schema
 *
 * @since 0.1.0
 * @category models
 */
export const Reason = Schema.Literal("TooLong", "InvalidUtf8", "InvalidJson", "InvalidRow")

/**
 * A line that could not be read as a row. Lines are counted from 1.
 *
 * @since 0.1.0
 * @category errors
 */
export class BadLine extends Schema.TaggedError<BadLine>("@effect-tinker/tokenizer/BadLine")("BadLine", {
  line: Schema.Number,
  reason: Reason,
  problem: Schema.String,
}) {
  /** @since 0.1.0 */
  override get message(): string {
    return `line ${this.line}: ${this.problem}`
  }
}

/**
 * Options of {@link jsonl} and {@link lines}.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** Whether the stream fails at a bad line (`stop`) or counts it and continues (`skip`). Default: `stop`. */
  readonly onBadLine?: "stop" | "skip" | undefined
  /** Default: 16 MiB. */
  readonly maxLineBytes?: number | undefined
  /** The number of bad lines kept as examples. Default: 10. */
  readonly maxExamples?: number | undefined
}

/**
 * A decoded row and the number of its line, from 1.
 *
 * @since 0.1.0
 * @category models
 */
export interface Row<out A> {
  readonly line: number
  readonly value: A
}

/**
 * A row and the place of its line in the bytes.
 *
 * @since 0.1.0
 * @category models
 */
export interface PlacedRow<out A> extends Row<A> {
  /** The number of bytes before its line, including a byte order mark. */
  readonly offset: number
  /** The number of bytes of its line without the line feed. */
  readonly bytes: number
}

/**
 * How many lines were read, and what became of them.
 *
 * @since 0.1.0
 * @category models
 */
export interface Counts {
  readonly lines: number
  readonly rows: number
  readonly blank: number
  readonly bad: number
  /** The first bad lines. */
  readonly examples: ReadonlyArray<BadLine>
}

/**
 * A stream of rows, with counts of what was read.
 *
 * @since 0.1.0
 * @category models
 */
export interface Dataset<out A, out E = never, out R = never> {
  readonly rows: Stream.Stream<PlacedRow<A>, E | BadLine, R>
  /** The counts so far of the most recently started run of `rows`. */
  readonly counts: Effect.Effect<Counts>
}

const newline = 0x0a
const byteOrderMark = [0xef, 0xbb, 0xbf]

/** A line of text, or why there is none, and its place. */
interface Line {
  readonly offset: number
  readonly bytes: number
  readonly text: Either.Either<string, BadLine>
}

/** Splits bytes into lines. */
class Lines {
  private pending: Array<Uint8Array> = []
  private size = 0
  private offset = 0
  private consumed = 0
  private tooLong = false
  private started = false
  line = 0

  private readonly maxBytes: number
  constructor(maxBytes: number) {
    this.maxBytes = maxBytes
  }

  private keep(bytes: Uint8Array): void {
    if (this.tooLong || bytes.length === 0) return
    this.size += bytes.length
    // A byte order mark at the start of the file does not count towards the length of the first line.
    if (this.size > this.maxBytes + (this.started ? 0 : byteOrderMark.length)) {
      this.tooLong = true
      this.pending = []
    } else this.pending.push(bytes)
  }

  private end(): Either.Either<string, BadLine> {
    const parts = this.pending
    const size = this.size
    const tooLong = this.tooLong
    this.pending = []
    this.size = 0
    this.tooLong = false
    const line = ++this.line
    if (tooLong) {
      const problem = `longer than ${this.maxBytes} bytes; raise maxLineBytes to allow longer lines`
      return Either.left(new BadLine({ line, reason: "TooLong", problem }))
    }
    let bytes = parts.length === 1 ? (parts[0] ?? new Uint8Array()) : new Uint8Array(size)
    if (parts.length > 1) {
      let at = 0
      for (const part of parts) {
        bytes.set(part, at)
        at += part.length
      }
    }
    if (!this.started) {
      this.started = true
      if (byteOrderMark.every((byte, index) => bytes[index] === byte)) bytes = bytes.subarray(byteOrderMark.length)
    }
    if (bytes[bytes.length - 1] === 0x0d) bytes = bytes.subarray(0, -1)
    return Either.mapLeft(
      Either.try(() => new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes)),
      () => new BadLine({ line, reason: "InvalidUtf8", problem: "invalid UTF-8" }),
    )
  }

  push(bytes: Uint8Array): ReadonlyArray<Line> {
    const lines: Array<Line> = []
    let from = 0
    for (let at = bytes.indexOf(newline); at !== -1; at = bytes.indexOf(newline, from)) {
      this.keep(bytes.subarray(from, at))
      lines.push({ offset: this.offset, bytes: this.consumed + at - this.offset, text: this.end() })
      from = at + 1
      this.offset = this.consumed + from
    }
    // Copies the bytes because the producer may reuse its buffer.
    this.keep(bytes.slice(from))
    this.consumed += bytes.length
    return lines
  }

  /** Returns the last line if it has no line break. */
  finish(): ReadonlyArray<Line> {
    return this.size === 0 ? [] : [{ offset: this.offset, bytes: this.consumed - this.offset, text: this.end() }]
  }
}

const read = <A, E, R>(
  bytes: Stream.Stream<Uint8Array, E, R>,
  decode: (text: string, line: number) => Either.Either<A, BadLine>,
  keepsBlank: boolean,
  options: Options,
): Dataset<A, E, R> => {
  const { maxExamples = 10, maxLineBytes = 16 * 1024 * 1024, onBadLine = "stop" } = options
  const none = () => ({ lines: 0, rows: 0, blank: 0, bad: 0, examples: [] as Array<BadLine> })
  let counts = none()
  const rows = Stream.suspend(() => {
    const lines = new Lines(maxLineBytes)
    counts = none()
    const own = counts
    const rowsOf = (found: ReadonlyArray<Line>): Stream.Stream<PlacedRow<A>, BadLine> => {
      const all: Array<PlacedRow<A>> = []
      for (const { bytes, offset, text } of found) {
        const line = ++own.lines
        if (Either.isRight(text) && !keepsBlank && text.right.trim() === "") {
          own.blank++
          continue
        }
        const row = Either.flatMap(text, (text) => decode(text, line))
        if (Either.isRight(row)) {
          own.rows++
          all.push({ line, offset, bytes, value: row.right })
          continue
        }
        own.bad++
        if (own.examples.length < maxExamples) own.examples.push(row.left)
        // Emits the rows before a bad line before that line fails the stream.
        if (onBadLine === "stop")
          return Stream.concat(Stream.fromChunk(Chunk.unsafeFromArray(all)), Stream.fail(row.left))
      }
      return Stream.fromChunk(Chunk.unsafeFromArray(all))
    }
    return bytes.pipe(
      Stream.flatMap((piece) => rowsOf(lines.push(piece))),
      Stream.concat(Stream.suspend(() => rowsOf(lines.finish()))),
    )
  })
  return { rows, counts: Effect.sync(() => ({ ...counts, examples: [...counts.examples] })) }
}

const short = (text: string) => (text.length > 400 ? `${text.slice(0, 400)}…` : text)

/**
 * Reads one JSON value per line and decodes each. Counts and skips blank lines, ignores a byte order mark at the start,
 * and accepts both `\n` and `\r\n`.
 *
 * @since 0.1.0
 * @category constructors
 */
export const jsonl = <A, I, E = never, R = never>(
  bytes: Stream.Stream<Uint8Array, E, R>,
  schema: Schema.Schema<A, I>,
  options: Options = {},
): Dataset<A, E, R> => {
  const decodeRow = Schema.decodeUnknownEither(schema)
  return read(
    bytes,
    (text, line) =>
      Either.flatMap(
        Either.try({
          try: (): unknown => JSON.parse(text),
          catch: () => new BadLine({ line, reason: "InvalidJson", problem: "invalid JSON" }),
        }),
        (value) =>
          Either.mapLeft(decodeRow(value), (error) => {
            const problem = short(ParseResult.TreeFormatter.formatErrorSync(error))
            return new BadLine({ line, reason: "InvalidRow", problem })
          }),
      ),
    false,
    options,
  )
}

/**
 * Reads each line as a string, including empty lines.
 *
 * @since 0.1.0
 * @category constructors
 */
export const lines = <E = never, R = never>(
  bytes: Stream.Stream<Uint8Array, E, R>,
  options: Options = {},
): Dataset<string, E, R> => read(bytes, (text) => Either.right(text), true, options)

/**
 * Streams the bytes of a file.
 *
 * @since 0.1.0
 * @category constructors
 */
export const file = (path: string): Stream.Stream<Uint8Array, PlatformError, FileSystem.FileSystem> =>
  Stream.unwrap(Effect.map(FileSystem.FileSystem, (files) => files.stream(path)))
