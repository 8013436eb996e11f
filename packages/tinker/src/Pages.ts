/**
 * Lists that come in pages, as streams of their items. A page is asked for when somebody wants an item of it: who
 * stops early sends nothing more. Memory and the cost of a page stay the same, however long the list is.
 *
 * A list may change while it is walked. By offset nothing is lost if items are added, or if as many vanish as the
 * total tells; an item that moves is given once, unless the list moved by more than a thousand items at once.
 *
 * @since 0.1.0
 */
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import { InvalidInput, UnexpectedResponse } from "./TinkerError.ts"

/**
 * One page, and the state from which the next one is asked for; none after the last.
 *
 * @since 0.1.0
 * @category models
 */
export interface Step<out A, out S> {
  readonly items: ReadonlyArray<A>
  readonly next: Option.Option<S>
}

/**
 * Page after page, each with what the one before it said.
 *
 * @since 0.1.0
 * @category constructors
 */
export const walk = <A, S, E, R>(
  first: S,
  step: (state: S) => Effect.Effect<Step<A, S>, E, R>,
): Stream.Stream<A, E, R> =>
  Stream.paginateChunkEffect(first, (state) =>
    Effect.map(step(state), ({ items, next }) => [Chunk.unsafeFromArray(items), next] as const),
  )

/** The keys that came last: at least a thousand and at least a page of them, and at most twice as many. */
class Recent {
  private older = new Set<string>()
  private newer = new Set<string>()
  private least = 1_000

  has(key: string): boolean {
    return this.newer.has(key) || this.older.has(key)
  }

  add(keys: ReadonlyArray<string>): void {
    this.least = Math.max(this.least, keys.length)
    for (const key of keys) {
      this.newer.add(key)
      if (this.newer.size < this.least) continue
      this.older = this.newer
      this.newer = new Set()
    }
  }
}

/**
 * One page of a list that is asked for by offset and limit.
 *
 * @since 0.1.0
 * @category models
 */
export interface OffsetPage<out A> {
  readonly items: ReadonlyArray<A>
  /** How long the list is, if the server tells. */
  readonly total: Option.Option<number>
}

/**
 * @since 0.1.0
 * @category models
 */
export interface OffsetOptions<A, E, R> {
  /** For errors. */
  readonly operation: string
  readonly fetch: (at: { readonly offset: number; readonly limit: number }) => Effect.Effect<OffsetPage<A>, E, R>
  /** Tells an item from all others of the list. */
  readonly key: (item: A) => string
  readonly pageSize: number
  /** Where to begin. Default: 0. */
  readonly offset?: number | undefined
}

interface Place {
  readonly offset: number
  /** The last total; none was told if it is infinite. */
  readonly total: number
  /** Up to here a page may hold nothing but what was there before. */
  readonly known: number
  /** Pages in a row, beyond that, that did so. */
  readonly repeats: number
  /** How often the list has grown since the last new item. */
  readonly growths: number
}

/** A list can't get shorter for ever, but one whose length goes up and down could be walked for ever. */
const maxGrowths = 2

/** So many pages without anything new are a list that moved; more are a server that does not page. */
const maxRepeats = 3

/** The place that a page leaves behind, before it is decided where to go on. */
const moved = (place: Place, total: number): Place => {
  // Items that were added may have moved all others, so that as many come again.
  const added = Number.isFinite(total) ? Math.max(0, total - place.total) : 0
  return { ...place, total, known: place.known + added, growths: place.growths + (added > 0 ? 1 : 0) }
}

/**
 * The whole list, by offset and limit. How many items a page has is for the server to say: the next one begins behind
 * them. The end is where the total says, or, without one, at the first empty page.
 *
 * @since 0.1.0
 * @category constructors
 */
export const byOffset = <A, E, R>(
  options: OffsetOptions<A, E, R>,
): Stream.Stream<A, E | InvalidInput | UnexpectedResponse, R> =>
  Stream.suspend((): Stream.Stream<A, E | InvalidInput | UnexpectedResponse, R> => {
    const { fetch, key, offset: start = 0, operation, pageSize } = options
    for (const [name, value, least] of [["pageSize", pageSize, 1] as const, ["offset", start, 0] as const]) {
      if (!Number.isSafeInteger(value) || value < least) {
        const problem = `expected a whole number of at least ${least}`
        return Stream.fail(new InvalidInput({ path: `${operation}.${name}`, problem }))
      }
    }
    const seen = new Recent()

    const after = (before: Place, page: OffsetPage<A>): Either.Either<Step<A, Place>, UnexpectedResponse> => {
      const total = Option.getOrElse(page.total, () => Infinity)
      const place = moved(before, total)
      // Where items vanished, later ones took their places: they may be behind us, unseen.
      const vanished = before.total - total
      if (vanished > 0 && Number.isFinite(vanished) && before.offset > start && place.growths <= maxGrowths) {
        const offset = Math.max(start, before.offset - vanished)
        return Either.right({ items: [], next: Option.some({ ...place, offset }) })
      }
      const items = page.items.filter((item) => !seen.has(key(item)))
      seen.add(page.items.map(key))
      const offset = before.offset + page.items.length
      if (page.items.length === 0 || offset >= total) return Either.right({ items, next: Option.none() })
      const repeats = items.length === 0 && offset > place.known ? before.repeats + 1 : 0
      if (repeats < maxRepeats) {
        const known = Math.max(place.known, repeats === 0 ? offset : 0)
        const growths = items.length === 0 ? place.growths : 0
        return Either.right({ items, next: Option.some({ ...place, offset, known, repeats, growths }) })
      }
      // Without a total, who gives another number of items than was asked for gives all that there is.
      return Option.isNone(page.total) && page.items.length !== pageSize
        ? Either.right({ items, next: Option.none() })
        : Either.left(sameAgain(operation, "the same items again and again, whatever the offset"))
    }

    const first: Place = { offset: start, total: Infinity, known: start, repeats: 0, growths: 0 }
    return walk(first, (place) =>
      Effect.flatMap(fetch({ offset: place.offset, limit: pageSize }), (page) => after(place, page)),
    )
  })

const sameAgain = (operation: string, detail: string): UnexpectedResponse =>
  new UnexpectedResponse({ operation, reason: "Schema", detail })

/**
 * One page of a list that is asked for by a cursor.
 *
 * @since 0.1.0
 * @category models
 */
export interface CursorPage<out A, out C> {
  readonly items: ReadonlyArray<A>
  /** None after the last page. */
  readonly next: Option.Option<C>
}

/**
 * @since 0.1.0
 * @category models
 */
export interface CursorOptions<A, C, E, R> {
  /** For errors. */
  readonly operation: string
  /** Without a cursor: from the beginning. */
  readonly fetch: (cursor: Option.Option<C>) => Effect.Effect<CursorPage<A, C>, E, R>
  /** Tells a cursor from all others. */
  readonly key: (cursor: C) => string
  /** Where to begin. */
  readonly cursor?: C | undefined
}

/**
 * The whole list, by the cursor that each page gives. A page may be empty and yet not be the last; a cursor that comes
 * back ends the walk with an error.
 *
 * @since 0.1.0
 * @category constructors
 */
export const byCursor = <A, C, E, R>(options: CursorOptions<A, C, E, R>): Stream.Stream<A, E | UnexpectedResponse, R> =>
  Stream.suspend(() => {
    const { fetch, key, operation } = options
    const seen = new Recent()
    const step = (cursor: Option.Option<C>): Effect.Effect<Step<A, Option.Option<C>>, E | UnexpectedResponse, R> => {
      const keys = Option.toArray(Option.map(cursor, key))
      if (keys.some((key) => seen.has(key))) {
        return Effect.fail(sameAgain(operation, "a cursor that was there before"))
      }
      seen.add(keys)
      return Effect.map(fetch(cursor), ({ items, next }) => ({ items, next: Option.map(next, Option.some) }))
    }
    return walk(Option.fromNullable(options.cursor), step)
  })
