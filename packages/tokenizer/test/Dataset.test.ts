import { describe, expect, it } from "@effect/vitest"
import { FileSystem } from "@effect/platform"
import { NodeContext } from "@effect/platform-node"
import { Dataset, Message } from "@effect-tinker/tokenizer"
import { Chunk, Effect, FastCheck, Schema, Stream } from "effect"

const bytesOf = (text: string) => new TextEncoder().encode(text)

const pieces = (bytes: Uint8Array, size: number) => {
  const all: Array<Uint8Array> = []
  for (let at = 0; at < bytes.length; at += size) all.push(bytes.subarray(at, at + size))
  return Stream.fromIterable(all)
}

const collect = <A, E>(rows: Stream.Stream<A, E>) => Effect.map(Stream.runCollect(rows), Chunk.toReadonlyArray)

const Numbered = Schema.Struct({ n: Schema.Number })

describe("Dataset", () => {
  it.effect("Dataset.jsonl returns the same rows however the bytes are split", () =>
    Effect.gen(function* () {
      const text = FastCheck.string({ unit: "grapheme", maxLength: 8 }).filter((text) => !/[\n\r\ufeff]/.test(text))
      const ends = FastCheck.constantFrom("\n", "\r\n")
      const files = FastCheck.tuple(
        FastCheck.array(text, { maxLength: 6 }),
        ends,
        FastCheck.boolean(),
        FastCheck.boolean(),
      )
      for (const [texts, end, marked, ended] of FastCheck.sample(files, { seed: 5, numRuns: 60 })) {
        const json = texts.map((text) => JSON.stringify({ text }))
        const body = json.join(end) + (ended && json.length > 0 ? end : "")
        const bytes = bytesOf(`${marked && body !== "" ? "\ufeff" : ""}${body}`)
        for (const size of [1, 2, 3, 7, 1000]) {
          const { counts, rows } = Dataset.jsonl(pieces(bytes, size), Schema.Struct({ text: Schema.String }))
          const found = yield* collect(rows)
          expect(found.map(({ line, value }) => ({ line, value }))).toEqual(
            texts.map((text, index) => ({ line: index + 1, value: { text } })),
          )
          for (const row of found) {
            const line = new TextDecoder().decode(bytes.subarray(row.offset, row.offset + row.bytes))
            expect(JSON.parse(line)).toEqual(row.value)
          }
          expect(yield* counts).toEqual({ lines: texts.length, rows: texts.length, blank: 0, bad: 0, examples: [] })
        }
      }
    }),
  )

  const file = `{"n": 1}\n\n{"n": "two"}\n{"n": 3}\nno\n\u00ff${"x".repeat(50)}\n{"n": 4}`
  const bytes = bytesOf(file)
  bytes[bytes.indexOf(0xc3)] = 0xff

  it.effect("Dataset.jsonl fails at a bad line after emitting the rows before it", () =>
    Effect.gen(function* () {
      const { counts, rows } = Dataset.jsonl(Stream.make(bytes), Numbered)
      const seen: Array<number> = []
      const error = yield* Effect.flip(Stream.runForEach(rows, ({ line }) => Effect.sync(() => seen.push(line))))
      expect(error).toMatchObject({ _tag: "BadLine", line: 3, reason: "InvalidRow" })
      expect(error.message).toContain("line 3: ")
      expect(seen).toEqual([1])
      expect(yield* counts).toMatchObject({ lines: 3, rows: 1, blank: 1, bad: 1 })
    }),
  )

  it.effect("Dataset.jsonl with onBadLine: skip counts bad lines and continues", () =>
    Effect.gen(function* () {
      for (const size of [1, 5, 1000]) {
        const options = { onBadLine: "skip", maxLineBytes: 40, maxExamples: 2 } as const
        const { counts, rows } = Dataset.jsonl(pieces(bytes, size), Numbered, options)
        expect((yield* collect(rows)).map(({ line, value }) => [line, value.n])).toEqual([
          [1, 1],
          [4, 3],
          [7, 4],
        ])
        const { examples, ...numbers } = yield* counts
        expect(numbers).toEqual({ lines: 7, rows: 3, blank: 1, bad: 3 })
        expect(examples.map(({ line, reason }) => [line, reason])).toEqual([
          [3, "InvalidRow"],
          [5, "InvalidJson"],
        ])
        yield* collect(rows)
        expect((yield* counts).rows).toBe(3)
      }
      const whole = Dataset.jsonl(Stream.make(bytes), Numbered, { onBadLine: "skip" })
      yield* collect(whole.rows)
      expect((yield* whole.counts).examples.map(({ reason }) => reason)).toEqual([
        "InvalidRow",
        "InvalidJson",
        "InvalidUtf8",
      ])
    }),
  )

  it.effect("Dataset.lines does not buffer more than maxLineBytes", () =>
    Effect.gen(function* () {
      // An unterminated line a hundred times longer than allowed.
      const endless = Stream.range(1, 100).pipe(Stream.map(() => new Uint8Array(1000).fill(0x61)))
      const { counts, rows } = Dataset.lines(endless, { maxLineBytes: 1000, onBadLine: "skip" })
      expect(yield* collect(rows)).toEqual([])
      expect((yield* counts).examples).toMatchObject([{ line: 1, reason: "TooLong" }])
    }),
  )

  it.effect("Dataset.lines keeps empty lines", () =>
    Effect.gen(function* () {
      const { rows } = Dataset.lines(Stream.make(bytesOf("\ufeffa\r\n\r\n ü ")))
      expect((yield* collect(rows)).map(({ value }) => value)).toEqual(["a", "", " ü "])
    }),
  )

  it.scoped("Dataset.file reads conversations from disk", () =>
    Effect.gen(function* () {
      const files = yield* FileSystem.FileSystem
      const path = yield* files.makeTempFileScoped()
      const row = {
        messages: [
          {
            role: "user",
            content: null,
            reasoning_content: "r",
            tool_calls: [{ function: { name: "f", arguments: { a: 1.5 } } }],
          },
        ],
      }
      yield* files.writeFileString(path, `${JSON.stringify(row)}\n`)
      const { rows } = Dataset.jsonl(Dataset.file(path), Message.Conversation)
      const read = yield* Stream.runCollect(rows)
      const message = {
        role: "user",
        content: [Message.thinking("r")],
        toolCalls: [{ name: "f", arguments: '{"a": 1.5}' }],
      }
      expect(Chunk.toReadonlyArray(read)).toEqual([
        { line: 1, offset: 0, bytes: JSON.stringify(row).length, value: { messages: [message] } },
      ])
      const missing = yield* Effect.flip(Stream.runDrain(Dataset.lines(Dataset.file(`${path}.none`)).rows))
      expect(missing._tag).toBe("SystemError")
    }).pipe(Effect.provide(NodeContext.layer)),
  )
})
