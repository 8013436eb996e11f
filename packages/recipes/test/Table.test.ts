import { fileURLToPath } from "node:url"
import { FileSystem } from "@effect/platform"
import { NodeContext } from "@effect/platform-node"
import { Rows, Table } from "@effect-tinker/recipes"
import { describe, expect, it } from "@effect/vitest"
import { Chunk, Effect, Either, FastCheck, Option, Schema, type Scope, Stream } from "effect"
import { csvOf, fileOf } from "./support/Files.ts"

const collect = <A, E, R>(rows: Stream.Stream<A, E, R>) => Effect.map(Stream.runCollect(rows), Chunk.toReadonlyArray)

const Text = Schema.Struct({ text: Schema.String })
const all = (table: Table.Table<unknown>) => Uint32Array.from({ length: table.size }, (_, index) => index)

describe("Table", () => {
  it.scoped("rows of JSONL are read from any place as they are in the file", () =>
    Effect.gen(function* () {
      const text = FastCheck.string({ unit: "grapheme", maxLength: 20 })
      const rows = FastCheck.array(FastCheck.oneof(text, FastCheck.constant(undefined)), { maxLength: 30 })
      const ends = FastCheck.constantFrom("\n", "\r\n")
      for (const [texts, end, marked] of FastCheck.sample(FastCheck.tuple(rows, ends, FastCheck.boolean()), {
        seed: 3,
        numRuns: 40,
      })) {
        // A row that is undefined is a blank line.
        const body = texts.map((text) => (text === undefined ? "" : JSON.stringify({ text }))).join(end)
        const path = yield* fileOf(`${marked ? "\ufeff" : ""}${body}`)
        const table = yield* Table.jsonl(path, Text)
        const streamed = yield* collect(Rows.jsonl(path, Text).rows)
        expect(yield* table.read(all(table))).toEqual(streamed)
        expect(yield* collect(Table.rows(table))).toEqual(streamed)
        const backwards = all(table).toReversed()
        expect(yield* table.read([...backwards, ...backwards])).toEqual([
          ...streamed.toReversed(),
          ...streamed.toReversed(),
        ])
      }
    }).pipe(Effect.provide(NodeContext.layer)),
  )

  it.scoped("rows of CSV are read from any place, with line breaks in quotes", () =>
    Effect.gen(function* () {
      const texts = ["a", 'b "b"', "c\nc\r\nc", "", "e,e", "ü"]
      const path = yield* fileOf(csvOf([["text"], ...texts.map((text) => [text])]))
      const table = yield* Table.csv(path, Text)
      const rows = yield* table.read([2, 5, 0, 1, 4, 3])
      expect(rows.map(({ row, value }) => [row, value.text])).toEqual([
        [4, "c\nc\r\nc"],
        [7, "ü"],
        [2, "a"],
        [3, 'b "b"'],
        [6, "e,e"],
        [5, ""],
      ])
    }).pipe(Effect.provide(NodeContext.layer)),
  )

  it.scoped("Parquet files and streams are read from any place", () =>
    Effect.gen(function* () {
      const path = fileURLToPath(new URL("goldens/parquet/zstd.parquet", import.meta.url))
      const table = yield* Table.file(path, Schema.Struct({ id: Schema.Number, large: Schema.BigInt }))
      const rows = yield* table.read([49, 0, 20])
      expect(rows.map(({ file, row, value }) => [file, row, value.id, value.large - 2n ** 60n])).toEqual([
        [path, 50, 49, 49n],
        [path, 1, 0, 0n],
        [path, 21, 20, 20n],
      ])
      const stream = Stream.range(1, 5000).pipe(Stream.map((n) => ({ text: `${n}` })))
      const spooled = yield* Table.fromStream("numbers", stream, Text)
      expect((yield* spooled.read([4999, 7])).map(({ file, row, value }) => [file, row, value.text])).toEqual([
        ["numbers", 5000, "5000"],
        ["numbers", 8, "8"],
      ])
    }).pipe(Effect.provide(NodeContext.layer)),
  )

  const body = ['{"text":"one"}', "no", '{"text":"three"}', '{"text":2}', '{"text":"a long one"}'].join("\n")
  const length = (value: { readonly text: string }) =>
    value.text === "three" ? Effect.fail({ message: "not rendered" }) : Effect.succeed(value.text.length)

  it.scoped("bad, unmeasurable and overlong rows are errors or counted, and filtered rows are counted", () =>
    Effect.gen(function* () {
      const path = yield* fileOf(body)
      const fails = (options: Table.Options<{ readonly text: string }>) => Effect.flip(Table.jsonl(path, Text, options))
      expect(yield* fails({})).toMatchObject({ _tag: "BadRow", row: 2, reason: "InvalidJson" })

      const measured = yield* Table.jsonl(path, Text, { onBadRow: "skip", length, maxLength: 5 })
      expect(measured.size).toBe(1)
      expect(measured.lengths).toEqual(Option.some(Uint32Array.of(3)))
      const { examples, ...numbers } = measured.counts
      expect(numbers).toEqual({ rows: 1, bad: 4, filtered: 0 })
      expect(examples.map(({ problem, reason, row }) => [row, reason, problem])).toEqual([
        [2, "InvalidJson", "invalid JSON"],
        [3, "NotMeasured", "not rendered"],
        [4, "InvalidRow", "expected string, got 2"],
        [5, "TooLong", "its length is 10, 5 more than 5"],
      ])

      const filtered = yield* Table.jsonl(path, Text, { onBadRow: "skip", filter: ({ text }) => text !== "one" })
      expect(filtered.counts).toMatchObject({ rows: 2, bad: 2, filtered: 1 })
      expect((yield* filtered.read([1, 0])).map(({ row }) => row)).toEqual([5, 3])

      const clean = yield* fileOf('{"text":"one"}\n{"text":"three"}')
      expect(yield* Effect.flip(Table.jsonl(clean, Text, { length }))).toMatchObject({ row: 2, reason: "NotMeasured" })
      const broken = Table.jsonl(clean, Text, { length: () => Effect.succeed(Number.NaN) })
      expect(yield* Effect.flip(broken)).toMatchObject({ row: 1, reason: "NotMeasured" })
    }).pipe(Effect.provide(NodeContext.layer)),
  )

  it.scoped("the fingerprint changes with the bytes, the rows in use and their lengths, and with nothing else", () =>
    Effect.gen(function* () {
      const path = yield* fileOf('{"text":"a"}\n{"text":"b"}')
      const copy = yield* fileOf('{"text":"a"}\n{"text":"b"}')
      const other = yield* fileOf('{"text":"a"}\n{"text":"c"}')
      const prints = yield* Effect.forEach(
        [
          Table.jsonl(path, Text),
          Table.jsonl(other, Text),
          Table.jsonl(path, Text, { filter: ({ text }) => text === "a" }),
          Table.jsonl(path, Text, { length: () => Effect.succeed(1) }),
          Table.jsonl(path, Text, { length: () => Effect.succeed(2) }),
          Table.fromArray(["a", "b"]),
          Table.fromArray(["a", "c"]),
        ],
        (open: Effect.Effect<Table.Table<unknown>, unknown, FileSystem.FileSystem | Scope.Scope>) =>
          Effect.map(open, ({ fingerprint }) => fingerprint),
      )
      expect(new Set(prints).size).toBe(prints.length)
      expect((yield* Table.jsonl(copy, Text)).fingerprint).toBe(prints[0])
    }).pipe(Effect.provide(NodeContext.layer)),
  )

  it.scoped("a file that changes while it is in use is detected", () =>
    Effect.gen(function* () {
      const files = yield* FileSystem.FileSystem
      const path = yield* fileOf('{"text":"a"}\n{"text":"b"}')
      const table = yield* Table.jsonl(path, Text)
      expect((yield* table.read([1])).map(({ value }) => value.text)).toEqual(["b"])
      yield* files.writeFileString(path, '{"text":"a"}\n{"text":"b"}\n{"text":"c"}')
      const error = yield* Effect.flip(table.read([1]))
      expect(error).toMatchObject({ _tag: "DataChanged", file: path })
      expect(error.message).toContain("has changed while it was in use")
      // The same size and time, another content: the row can't be decoded any more.
      const again = yield* Table.jsonl(path, Text)
      const { mtime } = yield* files.stat(path)
      yield* files.writeFileString(path, "x".repeat(38))
      yield* files.utimes(path, Option.getOrThrow(mtime), Option.getOrThrow(mtime))
      expect(yield* Effect.flip(again.read([1]))).toMatchObject({ _tag: "DataChanged" })
    }).pipe(Effect.provide(NodeContext.layer)),
  )

  it.effect("split is deterministic, covers every row once, and keeps the order", () =>
    Effect.gen(function* () {
      for (const size of [2, 3, 10, 1000]) {
        const table = yield* Table.fromArray(Array.from({ length: size }, (_, index) => index))
        for (const heldOut of [{ count: 1 }, { fraction: 0.3 }, { fraction: 0.5 }]) {
          const parts = yield* Table.split(table, { heldOut, seed: 5 })
          const again = yield* Table.split(table, { heldOut, seed: 5 })
          const numbers = (part: Table.Table<number>) =>
            Effect.map(collect(Table.rows(part)), (rows) => rows.map(({ value }) => value))
          const [train, held] = [yield* numbers(parts.train), yield* numbers(parts.heldOut)]
          expect(held.length).toBe("count" in heldOut ? 1 : Math.round(heldOut.fraction * size))
          expect([...train, ...held].toSorted((a, b) => a - b)).toEqual(Array.from({ length: size }, (_, i) => i))
          expect(train).toEqual(train.toSorted((a, b) => a - b))
          expect(yield* numbers(again.heldOut)).toEqual(held)
          expect(again.train.fingerprint).toBe(parts.train.fingerprint)
          expect(parts.heldOut.fingerprint).not.toBe(parts.train.fingerprint)
        }
      }
      const table = yield* Table.fromArray(Array.from({ length: 1000 }, (_, index) => index))
      const chosen = (seed: number) =>
        Effect.flatMap(Table.split(table, { heldOut: { count: 100 }, seed }), ({ heldOut }) => heldOut.read([0, 1, 2]))
      expect(yield* chosen(1)).not.toEqual(yield* chosen(2))
      for (const heldOut of [{ count: 0 }, { count: 1000 }, { fraction: 2 }, { fraction: Number.NaN }]) {
        expect(Either.isLeft(Table.split(table, { heldOut }))).toBe(true)
      }
    }),
  )

  it.scoped("concat reads rows of several tables, with their files", () =>
    Effect.gen(function* () {
      const path = yield* fileOf('{"text":"a"}\n{"text":"bb"}')
      const options = { length: ({ text }: { readonly text: string }) => Effect.succeed(text.length) }
      const first = yield* Table.jsonl(path, Text, options)
      const second = yield* Table.fromArray([{ text: "ccc" }], { ...options, name: "memory" })
      const table = Table.concat([first, second, first])
      expect(table.size).toBe(5)
      expect(table.lengths).toEqual(Option.some(Uint32Array.of(1, 2, 3, 1, 2)))
      expect((yield* table.read([4, 2, 0])).map(({ file, row, value }) => [file, row, value.text])).toEqual([
        [path, 2, "bb"],
        ["memory", 1, "ccc"],
        [path, 1, "a"],
      ])
    }).pipe(Effect.provide(NodeContext.layer)),
  )
})
