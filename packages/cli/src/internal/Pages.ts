/** Reads a list page by page up to a limit, and says how many entries it has in all. */
import * as Effect from "effect/Effect"
import type { Format } from "./Output.ts"
import * as Progress from "./Progress.ts"
import type { Shell } from "./Shell.ts"

export interface Page<A> {
  readonly items: ReadonlyArray<A>
  readonly total: number
}

/** Reads entries; a limit of zero, or less, reads all of them. */
export const read = <A, E, R>(options: {
  readonly limit: number
  readonly pageSize: number
  readonly noun: string
  readonly format: Format
  readonly fetch: (limit: number, offset: number) => Effect.Effect<Page<A>, E, R>
}): Effect.Effect<Page<A>, E, R | Shell> =>
  Effect.gen(function* () {
    const { fetch, format, limit, noun, pageSize } = options
    const first = yield* fetch(limit > 0 ? Math.min(pageSize, limit) : pageSize, 0)
    const { total } = first
    const wanted = limit > 0 ? Math.min(limit, total) : total
    const items = [...first.items]
    if (items.length >= wanted) return { items, total }
    yield* Progress.during(format, `Fetching ${limit === 0 ? "all" : wanted} ${noun}`, (bar) =>
      Effect.gen(function* () {
        yield* bar.at(items.length, wanted)
        while (items.length < wanted) {
          const size = Math.min(pageSize, wanted - items.length)
          const page = yield* fetch(size, items.length)
          items.push(...page.items)
          yield* bar.at(items.length, wanted)
          if (page.items.length < size) break
        }
      }),
    )
    return { items, total }
  })

/** The title of a list, with the number of entries that are not shown. */
export const title = (count: number, noun: string, total: number): string => {
  const more = total - count
  return `${count} ${noun}${count === 1 ? "" : "s"}${more > 0 ? ` (${more} more not shown, use --limit to see more)` : ""}`
}
