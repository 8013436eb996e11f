/** In a file of its own: memory retained by other tests would be counted too. */
import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"
import { expect, it } from "@effect/vitest"
import { Effect, Option, Stream } from "effect"
import * as Pages from "effect-tinker/Pages"

setFlagsFromString("--expose-gc")
const collectGarbage = runInNewContext("gc") as () => void

it.live("walking 100,000 pages needs no more memory and no more work per page than walking a few", () =>
  Effect.gen(function* () {
    const pages = 100_000
    const heaps: Array<number> = []
    const keys: Array<number> = []
    let asked = 0
    const stream = Pages.byOffset({
      operation: "things",
      pageSize: 2,
      key: (item: string) => {
        asked++
        return item
      },
      fetch: ({ limit, offset }) =>
        Effect.sync(() => {
          if (offset % (2 * 10_000) === 0) {
            collectGarbage()
            heaps.push(process.memoryUsage().heapUsed)
            keys.push(asked)
          }
          const items = Array.from({ length: limit }, (_, i) => `item ${offset + i}`)
          return { items, total: Option.some(2 * pages) }
        }),
    })
    expect(yield* Stream.runCount(stream)).toBe(2 * pages)
    const [, early = 0, ...later] = heaps
    expect(later.length).toBe(8)
    // Remembering the items or their history would need ten times as much.
    expect(Math.max(...later) - early).toBeLessThan(2 * 1024 * 1024)
    expect(keys.slice(1).map((count, i) => count - (keys[i] ?? 0))).toEqual(keys.slice(1).map(() => 2 * 2 * 10_000))
  }),
)
