import { readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { NodeContext } from "@effect/platform-node"
import { DataError, Rows } from "@effect-tinker/recipes"
import { describe, expect, it } from "@effect/vitest"
import { Chunk, Effect, Either, FastCheck, Schema, Stream } from "effect"
import * as Csv from "../src/internal/Csv.js"
import { csvOf, fileOf } from "./support/Files.ts"

const goldens = fileURLToPath(new URL("goldens/parquet/", import.meta.url))

const collect = <A, E, R>(rows: Stream.Stream<A, E, R>) => Effect.map(Stream.runCollect(rows), Chunk.toReadonlyArray)

const Person = Schema.Struct({ name: Schema.String, age: Schema.NumberFromString })
const Message = Schema.Struct({ role: Schema.Literal("user", "assistant"), content: Schema.String })
const Chat = Schema.Struct({ messages: Schema.Array(Message) })

const lines = [
  `{"messages":[{"role":"user","content":"a"}]}`,
  ``,
  `{"messages":[{"role":"user","content":"b"},{"role":"robot","content":"c"}]}`,
  `no json`,
  `{"messages":[]}`,
  `{}`,
].join("\n")

describe("Rows", () => {
  it.scoped("a bad row of JSONL is an error that names file, row and field", () =>
    Effect.gen(function* () {
      const path = yield* fileOf(lines)
      const { counts, rows } = Rows.jsonl(path, Chat)
      const seen: Array<number> = []
      const error = yield* Effect.flip(Stream.runForEach(rows, ({ row }) => Effect.sync(() => seen.push(row))))
      expect(error).toBeInstanceOf(DataError.BadRow)
      expect(error).toMatchObject({ file: path, row: 3, field: "messages.1.role", reason: "InvalidRow" })
      expect(error.message).toContain(`${path}, row 3, field messages.1.role: `)
      expect(seen).toEqual([1])
      expect(yield* counts).toMatchObject({ rows: 1, bad: 1, examples: [{ row: 3 }] })
      const broken = yield* fileOf("{}\nno json")
      expect(yield* Effect.flip(Stream.runDrain(Rows.jsonl(broken, Schema.Unknown).rows))).toMatchObject({
        _tag: "BadRow",
        row: 2,
        reason: "InvalidJson",
      })
    }).pipe(Effect.provide(NodeContext.layer)),
  )

  it.scoped("with onBadRow: skip, bad rows are counted and the first ones are kept in order", () =>
    Effect.gen(function* () {
      const path = yield* fileOf(lines)
      const { counts, rows } = Rows.jsonl(path, Chat, { onBadRow: "skip" })
      expect((yield* collect(rows)).map(({ file, row }) => [file, row])).toEqual([
        [path, 1],
        [path, 5],
      ])
      const { examples, ...numbers } = yield* counts
      expect(numbers).toEqual({ rows: 2, bad: 3 })
      expect(examples.map(({ field, reason, row }) => [row, reason, field])).toEqual([
        [3, "InvalidRow", "messages.1.role"],
        [4, "InvalidJson", undefined],
        [6, "InvalidRow", "messages"],
      ])
      const few = Rows.jsonl(path, Chat, { onBadRow: "skip", maxExamples: 1, maxRowBytes: 60 })
      expect((yield* collect(few.rows)).length).toBe(2)
      expect(yield* few.counts).toMatchObject({ bad: 3, examples: [{ row: 3, reason: "TooLarge" }] })
    }).pipe(Effect.provide(NodeContext.layer)),
  )

  it.effect("CSV records are the same however the bytes are split", () =>
    Effect.sync(() => {
      const field = FastCheck.string({
        unit: FastCheck.constantFrom("a", "ü", ",", '"', "\n", "\r", " "),
        maxLength: 6,
      })
      const tables = FastCheck.array(FastCheck.array(field, { minLength: 2, maxLength: 3 }), { maxLength: 5 })
      FastCheck.assert(
        FastCheck.property(
          tables,
          FastCheck.constantFrom("\n", "\r\n"),
          FastCheck.boolean(),
          FastCheck.integer({ min: 1, max: 9 }),
          (rows, end, ended, size) => {
            const text = csvOf(rows, ",", end) + (ended && rows.length > 0 ? end : "")
            const bytes = new TextEncoder().encode(text)
            const records = new Csv.Records(0x2c, 1000)
            const found: Array<Csv.Record> = []
            for (let at = 0; at < bytes.length; at += size) found.push(...records.push(bytes.subarray(at, at + size)))
            found.push(...records.finish())
            const fields = found.map(({ bytes: length, content, offset }) => {
              expect(content).toEqual(bytes.slice(offset, offset + length))
              return Either.getOrThrow(Csv.fields(new TextDecoder().decode(content), ","))
            })
            expect(fields).toEqual(rows)
          },
        ),
        { numRuns: 300, seed: 7 },
      )
    }),
  )

  it.scoped("CSV rows are objects by column, and count as in a spreadsheet", () =>
    Effect.gen(function* () {
      const text = `\ufeffname,age\r\n"Ada, ""the""\nfirst",36\r\n\r\nBob,x\r\nCarl\r\nD"e,1\r\n"E"e,1\r\nFay,7`
      const path = yield* fileOf(text, ".csv")
      const { counts, rows } = Rows.file(path, Person, { onBadRow: "skip" })
      expect(yield* collect(rows)).toEqual([
        { file: path, row: 2, value: { name: 'Ada, "the"\nfirst', age: 36 } },
        { file: path, row: 8, value: { name: "Fay", age: 7 } },
      ])
      const { bad, examples } = yield* counts
      expect(bad).toBe(4)
      expect(examples.map(({ field, reason, row }) => [row, reason, field])).toEqual([
        [4, "InvalidRow", "age"],
        [5, "InvalidCsv", undefined],
        [6, "InvalidCsv", undefined],
        [7, "InvalidCsv", undefined],
      ])
      const plain = yield* fileOf("Ada;36\nBob;37\n")
      const named = Rows.csv(plain, Person, { columns: ["name", "age"], delimiter: ";" })
      expect((yield* collect(named.rows)).map(({ row, value }) => [row, value.age])).toEqual([
        [1, 36],
        [2, 37],
      ])
      const twice = yield* fileOf("a,a\n1,2\n")
      const error = yield* Effect.flip(Stream.runDrain(Rows.csv(twice, Schema.Unknown, { onBadRow: "skip" }).rows))
      expect(error.message).toBe(`${twice}, row 1: the header has a twice`)
      const open = yield* fileOf(`a,b\n1,"2\n${"x".repeat(500)}`)
      expect(
        yield* Effect.flip(Stream.runDrain(Rows.csv(open, Schema.Unknown, { maxRowBytes: 100 }).rows)),
      ).toMatchObject({ row: 2, reason: "TooLarge" })
    }).pipe(Effect.provide(NodeContext.layer)),
  )

  for (const compression of ["none", "snappy", "gzip", "zstd", "brotli", "lz4"]) {
    it.scoped(`Parquet files that pyarrow wrote are read: compression ${compression}`, () =>
      Effect.gen(function* () {
        const expected: ReadonlyArray<unknown> = JSON.parse(readFileSync(`${goldens}rows.json`, "utf8"))
        const path = `${goldens}${compression}.parquet`
        const rows = yield* collect(Rows.file(path, Schema.Unknown).rows)
        expect(rows).toEqual(expected.map((value, index) => ({ file: path, row: index + 1, value })))
        const some = Rows.parquet(path, Schema.Struct({ id: Schema.Number }), { columns: ["id"] })
        expect((yield* collect(some.rows)).map(({ value }) => value.id)).toEqual(rows.map((_, index) => index))
        const narrow = Rows.parquet(path, Schema.Struct({ score: Schema.Number }), { onBadRow: "skip" })
        yield* Stream.runDrain(narrow.rows)
        const { bad, examples } = yield* narrow.counts
        expect([bad, examples[0]?.row, examples[0]?.field]).toEqual([7, 4, "score"])
      }).pipe(Effect.provide(NodeContext.layer)),
    )
  }

  it.scoped("a file that is not Parquet, has another name or does not exist is a typed error", () =>
    Effect.gen(function* () {
      const path = yield* fileOf("not parquet at all", ".parquet")
      const damaged = yield* Effect.flip(Stream.runDrain(Rows.file(path, Schema.Unknown).rows))
      expect(damaged).toMatchObject({ _tag: "UnreadableFile", file: path })
      const whole = readFileSync(`${goldens}snappy.parquet`)
      // Overwrites pages, not the footer.
      const torn = yield* fileOf(Buffer.concat([new Uint8Array(1500).fill(7), whole.subarray(1500)]), ".parquet")
      expect(yield* Effect.flip(Stream.runDrain(Rows.file(torn, Schema.Unknown).rows))).toMatchObject({
        _tag: "UnreadableFile",
      })
      const other = yield* Effect.flip(Stream.runDrain(Rows.file("rows.xlsx", Schema.Unknown).rows))
      expect(other.message).toContain("rows.xlsx: the name ends in none of .jsonl")
      const missing = yield* Effect.flip(Stream.runDrain(Rows.file(`${path}.none.parquet`, Schema.Unknown).rows))
      expect(missing._tag).toBe("SystemError")
    }).pipe(Effect.provide(NodeContext.layer)),
  )

  it.effect("values of a stream are rows with the name of the stream", () =>
    Effect.gen(function* () {
      const source = Stream.make({ name: "Ada", age: "36" }, { name: "Bob" })
      const { counts, rows } = Rows.fromStream("people", source, Person, { onBadRow: "skip" })
      expect(yield* collect(rows)).toEqual([{ file: "people", row: 1, value: { name: "Ada", age: 36 } }])
      expect(yield* counts).toMatchObject({ rows: 1, bad: 1, examples: [{ file: "people", row: 2, field: "age" }] })
    }),
  )
})
