import { describe, expect, it } from "@effect/vitest"
import { Chunk, Effect, FastCheck, Option, Stream } from "effect"
import * as Pages from "effect-tinker/Pages"

type At = Parameters<Pages.OffsetOptions<string, never, never>["fetch"]>[0]

interface List {
  /** Changed by tests during a walk. */
  items: Array<string>
  readonly asked: Array<At>
}

const listOf = (length: number): List => ({ items: Array.from({ length }, (_, i) => `item ${i}`), asked: [] })

interface Server {
  /** `first`: only the first page has a total. */
  readonly total?: boolean | "first"
  /** How the server interprets the request. */
  readonly interpret?: (at: At) => At
  /** Runs before each answer. */
  readonly before?: (list: List) => void
}

const walk = (list: List, { before, interpret = (at) => at, total = true }: Server = {}, pageSize = 20, offset = 0) =>
  Pages.byOffset({
    operation: "things",
    pageSize,
    offset,
    key: (item: string) => item,
    fetch: (asked) =>
      Effect.suspend(() => {
        list.asked.push(asked)
        if (list.asked.length > 1000) return Effect.dieMessage("the walk does not end")
        before?.(list)
        const at = interpret(asked)
        return Effect.succeed({
          items: list.items.slice(at.offset, at.offset + at.limit),
          total:
            total === true || (total === "first" && list.asked.length === 1)
              ? Option.some(list.items.length)
              : Option.none(),
        })
      }),
  })

const all = <A, E>(stream: Stream.Stream<A, E>) => Effect.map(Stream.runCollect(stream), Chunk.toReadonlyArray)

const offsets = ({ asked }: List) => asked.map(({ offset }) => offset)

describe("Pages.byOffset", () => {
  it.effect("Pages.byOffset gives all items in order, with one request per page", () =>
    Effect.gen(function* () {
      const list = listOf(50)
      expect(yield* all(walk(list))).toEqual(list.items)
      expect(list.asked).toEqual([0, 20, 40].map((offset) => ({ offset, limit: 20 })))
    }),
  )

  it.effect("Pages.byOffset can start at an offset", () =>
    Effect.gen(function* () {
      const list = listOf(50)
      expect(yield* all(walk(list, {}, 20, 45))).toEqual(list.items.slice(45))
      expect(yield* all(walk(listOf(5), {}, 20, 45))).toEqual([])
    }),
  )

  it.effect("Pages.byOffset sends one request for an empty list", () =>
    Effect.gen(function* () {
      const list = listOf(0)
      expect(yield* all(walk(list))).toEqual([])
      expect(list.asked.length).toBe(1)
    }),
  )

  it.effect("Pages.byOffset without a total stops at the first empty page", () =>
    Effect.gen(function* () {
      const list = listOf(50)
      expect(yield* all(walk(list, { total: false }))).toEqual(list.items)
      expect(offsets(list)).toEqual([0, 20, 40, 50])
    }),
  )

  it.effect("Pages.byOffset continues after a page shorter than requested", () =>
    Effect.gen(function* () {
      for (const total of [true, false, "first"] as const) {
        const list = listOf(50)
        const interpret = ({ limit, offset }: At) => ({ offset, limit: Math.min(limit, 7) })
        expect(yield* all(walk(list, { interpret, total }))).toEqual(list.items)
      }
    }),
  )

  it.effect("Pages.byOffset takes all items of a page longer than requested", () =>
    Effect.gen(function* () {
      for (const total of [true, false]) {
        const list = listOf(50)
        expect(yield* all(walk(list, { interpret: ({ offset }) => ({ offset, limit: 33 }), total }))).toEqual(
          list.items,
        )
        expect(offsets(list)).toEqual(total ? [0, 33] : [0, 33, 50])
      }
    }),
  )

  it.effect("Pages.byOffset accepts a server that always returns the whole list", () =>
    Effect.gen(function* () {
      for (const total of [true, false]) {
        for (const length of [5, 50, 5000]) {
          const list = listOf(length)
          expect(yield* all(walk(list, { interpret: () => ({ offset: 0, limit: Infinity }), total }))).toEqual(
            list.items,
          )
          expect(list.asked.length).toBe(total ? 1 : 4)
        }
      }
    }),
  )

  it.effect("Pages.byOffset fails if the server ignores the offset", () =>
    Effect.gen(function* () {
      for (const total of [true, false, "first"] as const) {
        const list = listOf(500)
        const error = yield* Effect.flip(all(walk(list, { interpret: ({ limit }) => ({ offset: 0, limit }), total })))
        expect(error).toMatchObject({ _tag: "UnexpectedResponse", operation: "things" })
        expect(list.asked.length).toBe(4)
      }
    }),
  )

  it.effect("items added in front during a walk cause no duplicates and no losses", () =>
    Effect.gen(function* () {
      for (const total of [true, false]) {
        for (const added of [1, 20, 40]) {
          const list = listOf(100)
          const { items } = list
          const before = (list: List) => {
            if (list.asked.length !== 3) return
            list.items = [...Array.from({ length: added }, (_, i) => `new ${i}`), ...list.items]
          }
          expect(yield* all(walk(list, { before, total })), `${added} ${total}`).toEqual(items)
        }
      }
    }),
  )

  it.effect("many items added in front at once are detected by the total", () =>
    Effect.gen(function* () {
      const list = listOf(100)
      const { items } = list
      const before = (list: List) => {
        if (list.asked.length === 3) list.items = [...Array.from({ length: 300 }, (_, i) => `new ${i}`), ...list.items]
      }
      expect(yield* all(walk(list, { before }))).toEqual([
        ...items.slice(0, 40),
        // The items that moved into the third page.
        ...Array.from({ length: 260 }, (_, i) => `new ${i + 40}`),
        ...items.slice(40),
      ])
    }),
  )

  it.effect("pages with only known items are accepted while a growing total explains them", () =>
    Effect.gen(function* () {
      const list = listOf(400)
      const { items } = list
      const before = (list: List) => {
        if (list.asked.length === 11) list.items = [...Array.from({ length: 100 }, (_, i) => `new ${i}`), ...items]
      }
      expect(yield* all(walk(list, { before }))).toEqual(items)
      expect(list.asked.length).toBe(25)
    }),
  )

  it.effect("deleting each item as it is received loses no items", () =>
    Effect.gen(function* () {
      const list = listOf(95)
      const { items } = list
      const given = yield* all(
        Stream.tap(walk(list), (item) =>
          Effect.sync(() => {
            list.items = list.items.filter((other) => other !== item)
          }),
        ),
      )
      expect(given).toEqual(items)
      expect(list.items).toEqual([])
    }),
  )

  it.effect("items removed before or after the current page cause no duplicates and no losses", () =>
    Effect.gen(function* () {
      for (const gone of [(i: number) => i < 5, (i: number) => i >= 90, (i: number) => i % 3 === 0, () => true]) {
        const list = listOf(100)
        const { items } = list
        const before = (list: List) => {
          if (list.asked.length === 4) list.items = list.items.filter((_, i) => !gone(i))
        }
        const given = yield* all(walk(list, { before }))
        expect(given).toEqual(items.filter((item, i) => i < 60 || list.items.includes(item)))
      }
    }),
  )

  it.effect("items that are added and removed again cause no duplicates and no losses", () =>
    Effect.gen(function* () {
      const list = listOf(200)
      const { items } = list
      const fresh = Array.from({ length: 10 }, (_, i) => `new ${i}`)
      const before = (list: List) => {
        if (list.asked.length === 3) list.items = [...fresh, ...items]
        if (list.asked.length === 5) list.items = [...fresh.slice(5), ...items]
      }
      const given = yield* all(walk(list, { before }))
      expect(new Set(given).size).toBe(given.length)
      expect(given).toEqual(expect.arrayContaining(items))
    }),
  )

  it.effect("a walk ends even if the length keeps alternating", () =>
    Effect.gen(function* () {
      const list = listOf(100)
      const { items } = list
      const before = (list: List) => {
        list.items = list.asked.length % 2 === 0 ? items.slice(0, 50) : items
      }
      const given = yield* all(walk(list, { before }))
      expect(new Set(given).size).toBe(given.length)
      expect(list.asked.length).toBeLessThan(20)
    }),
  )

  it.effect("a list that grows and then shrinks repeatedly loses no items", () =>
    Effect.gen(function* () {
      const list = listOf(3)
      const { items } = list
      const before = (list: List) => {
        if (list.asked.length === 2) list.items = [..."abcd", ...list.items]
        if ([3, 4, 6].includes(list.asked.length)) list.items = list.items.slice(1)
      }
      const given = yield* all(walk(list, { before }, 2))
      expect(new Set(given).size).toBe(given.length)
      expect(given).toEqual(expect.arrayContaining(items))
    }),
  )

  it.effect("under any changes a walk ends, has no duplicates, and includes every item that stays in the list", () =>
    Effect.promise(() =>
      FastCheck.assert(
        FastCheck.asyncProperty(
          FastCheck.integer({ min: 0, max: 60 }),
          FastCheck.integer({ min: 1, max: 9 }),
          // For each request, the indices to remove before it, or the number of items to add in front.
          FastCheck.array(
            FastCheck.oneof(FastCheck.uniqueArray(FastCheck.nat(60), { maxLength: 6 }), FastCheck.nat(6)),
            { maxLength: 12 },
          ),
          async (length, pageSize, changes) => {
            const list = listOf(length)
            const initial = new Set(list.items)
            // A list may grow this many times without new items before a walk stops compensating for removals.
            let growths = 0
            const before = (list: List) => {
              const change = changes[list.asked.length - 1] ?? []
              if (typeof change === "number") {
                if (++growths > 2) return
                const fresh = Array.from({ length: change }, (_, i) => `new ${list.asked.length} ${i}`)
                list.items = [...fresh, ...list.items]
              } else list.items = list.items.filter((_, i) => !change.includes(i))
            }
            const given = await Effect.runPromise(all(walk(list, { before }, pageSize)))
            expect(new Set(given).size).toBe(given.length)
            expect(given).toEqual(expect.arrayContaining(list.items.filter((item) => initial.has(item))))
          },
        ),
      ),
    ),
  )

  it.effect("a Pages.byOffset stream that is stopped early sends no more requests", () =>
    Effect.gen(function* () {
      for (const [wanted, requests] of [
        [0, 0],
        [1, 1],
        [20, 1],
        [21, 2],
        [40, 2],
      ] as const) {
        const list = listOf(1000)
        expect((yield* all(Stream.take(walk(list), wanted))).length).toBe(wanted)
        expect(list.asked.length, `for ${wanted}`).toBe(requests)
      }
      const list = listOf(1000)
      expect(yield* Stream.runHead(Stream.filter(walk(list), (item) => item === "item 25"))).toEqual(
        Option.some("item 25"),
      )
      expect(list.asked.length).toBe(2)
    }),
  )

  it.effect("a Pages.byOffset stream starts over on each run", () =>
    Effect.gen(function* () {
      const list = listOf(30)
      const stream = walk(list)
      expect(yield* all(stream)).toEqual(yield* all(stream))
      expect(offsets(list)).toEqual([0, 20, 0, 20])
    }),
  )

  it.effect("Pages.byOffset rejects an invalid page size or offset before sending a request", () =>
    Effect.gen(function* () {
      for (const [pageSize, offset] of [
        [0, 0],
        [-1, 0],
        [1.5, 0],
        [Number.NaN, 0],
        [1, -1],
      ] as const) {
        const list = listOf(5)
        const error = yield* Effect.flip(all(walk(list, {}, pageSize, offset)))
        expect(error).toMatchObject({
          _tag: "InvalidInput",
          path: offset < 0 ? "things.offset" : "things.pageSize",
        })
        expect(list.asked).toEqual([])
      }
    }),
  )
})

describe("Pages.byCursor", () => {
  const pages: ReadonlyArray<ReadonlyArray<string>> = [["a", "b"], [], ["c"]]
  const walkCursor = (next: (cursor: number) => Option.Option<number>, asked: Array<number>, cursor?: number) =>
    Pages.byCursor({
      operation: "things",
      key: String,
      cursor,
      fetch: (cursor) =>
        Effect.sync(() => {
          const at = Option.getOrElse(cursor, () => 0)
          asked.push(at)
          return { items: pages[at] ?? [], next: next(at) }
        }),
    })
  const following = (cursor: number) => (cursor < 2 ? Option.some(cursor + 1) : Option.none())

  it.effect("Pages.byCursor gives all items and continues after an empty page", () =>
    Effect.gen(function* () {
      const asked: Array<number> = []
      expect(yield* all(walkCursor(following, asked))).toEqual(["a", "b", "c"])
      expect(asked).toEqual([0, 1, 2])
      expect(yield* all(walkCursor(following, asked, 1))).toEqual(["c"])
    }),
  )

  it.effect("a Pages.byCursor stream that is stopped early sends no more requests", () =>
    Effect.gen(function* () {
      const asked: Array<number> = []
      expect(yield* all(Stream.take(walkCursor(following, asked), 2))).toEqual(["a", "b"])
      expect(asked).toEqual([0])
    }),
  )

  it.effect("Pages.byCursor fails if a cursor repeats", () =>
    Effect.gen(function* () {
      for (const circle of [1, 3]) {
        const asked: Array<number> = []
        const error = yield* Effect.flip(all(walkCursor((cursor) => Option.some(1 + (cursor % circle)), asked)))
        expect(error).toMatchObject({ _tag: "UnexpectedResponse", operation: "things" })
        expect(asked.length).toBe(circle + 1)
      }
    }),
  )
})
