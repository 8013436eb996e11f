import { describe, expect, it } from "@effect/vitest"
import { Chunk, Deferred, Duration, Effect, FastCheck, Fiber, Option, Stream } from "effect"
import * as Sse from "effect-tinker/http/Sse"

const encode = (text: string): Uint8Array => new TextEncoder().encode(text)

const message = (data: string, fields: Partial<Sse.Event> = {}): Sse.Event => ({
  event: "message",
  data,
  id: "",
  retry: Option.none(),
  ...fields,
})

const bom = "\uFEFF"

/** The rules of the standard, each in our own words. */
const examples: ReadonlyArray<readonly [what: string, text: string, events: ReadonlyArray<Sse.Event>]> = [
  ["one event", "data: hello\n\n", [message("hello")]],
  ["data lines are joined", "data: YHOO\ndata: +2\ndata: 10\n\n", [message("YHOO\n+2\n10")]],
  ["comments are ignored", ": test stream\n\ndata: first\n:\ndata: second\n\n", [message("first\nsecond")]],
  [
    "one space after the colon is removed",
    "data:a\n\ndata: a\n\ndata:  a\n\n",
    ["a", "a", " a"].map((d) => message(d)),
  ],
  ["only a space is removed, not a tab", "data:\ta\n\n", [message("\ta")]],
  ["a field without a colon is empty", "data\n\ndata\ndata\n\ndata:", [message(""), message("\n")]],
  ["an event without data is dropped", "event: x\nid: 1\n\ndata: a\n\n", [message("a", { id: "1" })]],
  [
    "event names last for one event",
    "event: add\ndata: 1\n\ndata: 2\n\n",
    [message("1", { event: "add" }), message("2")],
  ],
  ["the last event name wins", "event: a\nevent: b\ndata: 1\n\n", [message("1", { event: "b" })]],
  ["an empty event name counts as none", "event: a\nevent\ndata: 1\n\n", [message("1")]],
  [
    "ids persist until they change",
    "id: 1\ndata: a\n\ndata: b\n\nid\ndata: c\n\n",
    [message("a", { id: "1" }), message("b", { id: "1" }), message("c")],
  ],
  [
    "an id with NUL is ignored",
    "id: 1\ndata: a\n\nid: 2\0\ndata: b\n\n",
    [message("a", { id: "1" }), message("b", { id: "1" })],
  ],
  [
    "retry accepts only digits",
    "retry: 15\ndata: a\n\nretry: 1.5\nretry: x\nretry:\nretry: -3\ndata: b\n\n",
    [
      message("a", { retry: Option.some(Duration.millis(15)) }),
      message("b", { retry: Option.some(Duration.millis(15)) }),
    ],
  ],
  [
    "unknown fields are ignored, and field names are matched exactly",
    "foo: 1\n data: a\nData: b\ndata: c\n\n",
    [message("c")],
  ],
  ["carriage returns", "data: a\rdata: b\r\rdata: c\r\r", [message("a\nb"), message("c")]],
  ["both", "event: x\r\ndata: a\r\ndata: b\r\n\r\ndata: c\r\n\r\n", [message("a\nb", { event: "x" }), message("c")]],
  ["mixed", "data: a\r\n\ndata: b\r\r\ndata: c\n\r", [message("a"), message("b"), message("c")]],
  ["an unfinished event is dropped", "data: a\n\ndata: b\n", [message("a")]],
  ["an unfinished line is dropped", "data: a\n\ndata: b", [message("a")]],
  [
    "a byte order mark at the start is removed once",
    `${bom}data: a\n\n${bom}data: b\n\ndata: ${bom}c\n\n`,
    [message("a"), message(`${bom}c`)],
  ],
  ["only one of two byte order marks is removed", `${bom}${bom}data: a\n\ndata: b\n\n`, [message("b")]],
  ["a byte order mark alone", `${bom}\ndata: a\n\n`, [message("a")]],
  [
    "characters of every UTF-8 length",
    "data: aé€😀\nevent: ü\n\ndata: 語\u2028\u0085語\n\n",
    [message("aé€😀", { event: "ü" }), message("語\u2028\u0085語")],
  ],
  ["colons in data", 'data: {"a":1}\n\n:data: b\n\n', [message('{"a":1}')]],
  ["nothing", "", []],
  ["empty lines", "\n\r\n\r\n\n", []],
]

const cut = (bytes: Uint8Array, ...at: ReadonlyArray<number>): Array<Uint8Array> => {
  const ends = [...new Set(at)].toSorted((a, b) => a - b)
  return [0, ...ends].map((start, i) => bytes.subarray(start, ends[i] ?? bytes.length))
}

const decode = (pieces: ReadonlyArray<Uint8Array>, options?: Sse.Options) =>
  // Each piece is a separate chunk, as from a socket.
  Stream.fromIterable(pieces).pipe(
    Stream.rechunk(1),
    Sse.decode(options),
    Stream.runCollect,
    Effect.map(Chunk.toReadonlyArray),
  )

/** The standard taken literally, for the whole text at once. */
const reference = (bytes: Uint8Array): ReadonlyArray<Sse.Event> => {
  const events: Array<Sse.Event> = []
  let [data, event, id, retry] = ["", "", "", Option.none<Duration.Duration>()]
  for (const line of new TextDecoder()
    .decode(bytes)
    .split(/\r\n|\r|\n/)
    .slice(0, -1)) {
    if (line === "") {
      if (data !== "") events.push({ event: event || "message", data: data.slice(0, -1), id, retry })
      ;[data, event] = ["", ""]
    }
    const [, name, value = ""] = /^([^:]*)(?:: ?([^]*))?$/.exec(line) ?? []
    if (name === "data" && line !== "") data += `${value}\n`
    if (name === "event") event = value
    if (name === "id" && !value.includes("\0")) id = value
    if (name === "retry" && /^\d+$/.test(value)) retry = Option.some(Duration.millis(Number(value)))
  }
  return events
}

const word = FastCheck.constantFrom(
  "data",
  "event",
  "id",
  "retry",
  ":",
  ": ",
  " ",
  "\n",
  "\r",
  "\r\n",
  "\n\n",
  "a",
  "é",
  "😀",
  "7",
  "\0",
  bom,
)
const bytes = FastCheck.oneof(
  FastCheck.array(word, { maxLength: 60 }).map((words) => encode(words.join(""))),
  // Includes bytes that are not UTF-8.
  FastCheck.array(FastCheck.oneof(word.map(encode), FastCheck.uint8Array({ maxLength: 3 })), { maxLength: 40 }).map(
    (parts) => Uint8Array.from(parts.flatMap((part) => [...part])),
  ),
)

describe("Sse", () => {
  it.effect.each(examples)("Sse decodes correctly when split at any byte: %s", ([, text, events]) =>
    Effect.gen(function* () {
      const all = encode(text)
      expect(reference(all)).toEqual(events)
      expect(yield* decode([all])).toEqual(events)
      for (let at = 0; at <= all.length; at++) {
        expect(yield* decode(cut(all, at)), `split at ${at}`).toEqual(events)
      }
      expect(yield* decode([...all].map((byte) => Uint8Array.of(byte)))).toEqual(events)
    }),
  )

  it.effect.prop(
    "Sse agrees with the standard for any bytes and any chunks",
    [bytes, FastCheck.array(FastCheck.nat(10_000), { maxLength: 8 })],
    ([all, cuts]) =>
      Effect.gen(function* () {
        const pieces = cut(all, ...cuts.map((at) => at % (all.length + 1)))
        expect(yield* decode(pieces)).toEqual(reference(all))
      }),
    { fastCheck: { numRuns: process.env["TINKER_TESTS"] === "all" ? 500 : 100 } },
  )

  it.effect("an SSE event is emitted as soon as its empty line arrives, even if that is a carriage return", () =>
    Effect.gen(function* () {
      for (const text of ["data: a\n\n", "data: a\r\n\r", "data: a\r\r"]) {
        const first = yield* Deferred.make<Sse.Event>()
        const fiber = yield* Stream.concat(Stream.make(encode(text)), Stream.never).pipe(
          Sse.decode(),
          Stream.runForEach((event) => Deferred.succeed(first, event)),
          Effect.fork,
        )
        expect(yield* Deferred.await(first)).toEqual(message("a"))
        yield* Fiber.interrupt(fiber)
      }
    }),
  )

  it.effect("an SSE event that is too large is an error after the events before it", () =>
    Effect.gen(function* () {
      const limit = new Sse.SseError({ reason: "EventTooLarge", limit: 20 })
      const run = (text: string, maxEventBytes = 20) =>
        Effect.gen(function* () {
          const events: Array<string> = []
          const ended = yield* Stream.make(encode(text)).pipe(
            Sse.decode({ maxEventBytes }),
            Stream.runForEach(({ data }) => Effect.sync(() => events.push(data))),
            Effect.either,
          )
          return [events, ended._tag === "Left" ? ended.left : "done"]
        })
      expect(yield* run("data: a\n\ndata: 12345678901234\n\n")).toEqual([["a", "12345678901234"], "done"])
      expect(yield* run("data: a\n\ndata: 123456789012345\n\n")).toEqual([["a"], limit])
      // The data lines together, a line that never ends, and a comment that never ends.
      expect(yield* run("data: a\n\ndata: 1234\ndata: 1234\ndata: 1\n\n")).toEqual([["a"], limit])
      expect(yield* run(`data: a\n\n${"x".repeat(21)}`)).toEqual([["a"], limit])
      expect(yield* run(`data: a\n\n:${"x".repeat(20)}`)).toEqual([["a"], limit])
      // Keep-alive comments don't count.
      expect(yield* run(`data: a\n${": ping\n".repeat(100)}\n`)).toEqual([["a"], "done"])
      expect(yield* run("data: a\n\n", Number.NaN)).toMatchObject([[], { _tag: "SseError" }])
    }),
  )

  it.effect("a failure of the byte stream is passed on after the events before it", () =>
    Effect.gen(function* () {
      const events: Array<string> = []
      const error = yield* Stream.concat(Stream.make(encode("data: a\n\ndata: b\n")), Stream.fail("cut")).pipe(
        Sse.decode(),
        Stream.runForEach(({ data }) => Effect.sync(() => events.push(data))),
        Effect.flip,
      )
      expect([events, error]).toEqual([["a"], "cut"])
    }),
  )

  it.effect("one Sse decoder can decode many streams concurrently", () =>
    Effect.gen(function* () {
      const decoder = Sse.decode()
      const of = (text: string) =>
        Stream.fromIterable(encode(text)).pipe(
          Stream.map((byte) => Uint8Array.of(byte)),
          Stream.rechunk(1),
          decoder,
          Stream.runCollect,
          Effect.map((events) => Chunk.toReadonlyArray(events).map(({ data }) => data)),
        )
      const both = Effect.all([of("data: a\n\ndata: b\n\n"), of("data: c\n\ndata: d\n\n")], { concurrency: 2 })
      expect(yield* both).toEqual([
        ["a", "b"],
        ["c", "d"],
      ])
    }),
  )

  it.effect("a long line that arrives byte by byte takes linear time", () =>
    Effect.gen(function* () {
      // Doubling the buffer copies each byte about once; copying the line for each byte would take 10^12 steps here.
      const size = 1_000_000
      const byte = encode("x")
      const events = yield* Stream.concat(
        Stream.make(encode("data:")),
        Stream.concat(Stream.range(1, size).pipe(Stream.map(() => byte)), Stream.make(encode("\n\n"))),
      ).pipe(Sse.decode(), Stream.runCollect)
      expect(Chunk.toReadonlyArray(events).map(({ data }) => data.length)).toEqual([size])
    }),
  )
})
