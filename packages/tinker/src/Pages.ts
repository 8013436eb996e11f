/**
 * Streams the items of paginated lists. A page is requested only when one of its items is needed, so a consumer that
 * stops early causes no further requests. Memory and the cost per page do not depend on the length of the list.
 *
 * A list may change during iteration. With offset pagination no item is lost if items are added, or if the number of
 * removed items matches the change of the total. An item that moves is emitted once, unless the list shifts by more
 * than a thousand items at once.
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
 * One page and the state for requesting the next one; none after the last page.
 *
 * @since 0.1.0
 * @category models
 */
export interface Step<out A, out S> {
  readonly items: ReadonlyArray<A>
  readonly next: Option.Option<S>
}

/**
 * Requests page after page, passing the state from each page to the next.
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

/** Remembers recent keys: at least a thousand and at least one page, and at most twice as many. */
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
 * One page of a list with offset and limit.
 *
 * @since 0.1.0
 * @category models
 */
export interface OffsetPage<out A> {
  readonly items: ReadonlyArray<A>
  /** The length of the list, if the server reports it. */
  readonly total: Option.Option<number>
}

/**
 * Options of {@link byOffset}.
 *
 * @since 0.1.0
 * @category models
 */
export interface OffsetOptions<A, E, R> {
  /** The operation named in errors. */
  readonly operation: string
  readonly fetch: (at: { readonly offset: number; readonly limit: number }) => Effect.Effect<OffsetPage<A>, E, R>
  /** Returns a key that identifies an item within the list. */
  readonly key: (item: A) => string
  readonly pageSize: number
  /**
   * The offset of the first item.
   *
   * @default 0
   */
  readonly offset?: number | undefined
}

interface Place {
  readonly offset: number
  /** The last total, or infinity if none was reported. */
  readonly total: number
  /** Pages up to this offset may contain only items that were emitted before. */
  readonly known: number
  /** The number of consecutive pages beyond `known` without new items. */
  readonly repeats: number
  /** The number of times the list has grown since the last new item. */
  readonly growths: number
}

/** A list cannot shrink forever, but one whose length keeps going up and down could be iterated forever. */
const maxGrowths = 2

/**
 * Up to this many pages without new items are explained by a list that moved; more mean that the server does not
 * paginate.
 */
const maxRepeats = 3

/** Updates the state with the total of a page, before the next offset is chosen. */
const moved = (place: Place, total: number): Place => {
  // Added items may have shifted all others, so that as many appear again.
  const added = Number.isFinite(total) ? Math.max(0, total - place.total) : 0
  return { ...place, total, known: place.known + added, growths: place.growths + (added > 0 ? 1 : 0) }
}

/**
 * Streams a whole list by offset and limit. The server determines the number of items per page; the next page starts
 * after them. The list ends at the total or, without one, at the first empty page.
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
        const problem = `expected an integer of at least ${least}`
        return Stream.fail(new InvalidInput({ path: `${operation}.${name}`, problem }))
      }
    }
    const seen = new Recent()

    const after = (before: Place, page: OffsetPage<A>): Either.Either<Step<A, Place>, UnexpectedResponse> => {
      const total = Option.getOrElse(page.total, () => Infinity)
      const place = moved(before, total)
      // When items are removed, later ones take their places and may now lie before the current offset, not yet
      // emitted.
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
      // Without a total, a page with a different number of items than requested is assumed to be the complete list.
      return Option.isNone(page.total) && page.items.length !== pageSize
        ? Either.right({ items, next: Option.none() })
        : Either.left(sameAgain(operation, "the server returns the same items for every offset"))
    }

    const first: Place = { offset: start, total: Infinity, known: start, repeats: 0, growths: 0 }
    return walk(first, (place) =>
      Effect.flatMap(fetch({ offset: place.offset, limit: pageSize }), (page) => after(place, page)),
    )
  })

const sameAgain = (operation: string, detail: string): UnexpectedResponse =>
  new UnexpectedResponse({ operation, reason: "Schema", detail })

/**
 * One page of a list with cursors.
 *
 * @since 0.1.0
 * @category models
 */
export interface CursorPage<out A, out C> {
  readonly items: ReadonlyArray<A>
  /** The cursor of the next page; none after the last page. */
  readonly next: Option.Option<C>
}

/**
 * Options of {@link byCursor}.
 *
 * @since 0.1.0
 * @category models
 */
export interface CursorOptions<A, C, E, R> {
  /** The operation named in errors. */
  readonly operation: string
  /** Requests a page; without a cursor, the first one. */
  readonly fetch: (cursor: Option.Option<C>) => Effect.Effect<CursorPage<A, C>, E, R>
  /** Returns a key that identifies a cursor. */
  readonly key: (cursor: C) => string
  /**
   * The cursor to start from.
   *
   * @default the beginning of the list
   */
  readonly cursor?: C | undefined
}

/**
 * Streams a whole list by cursors. An empty page need not be the last one; a repeated cursor fails the stream.
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
        return Effect.fail(sameAgain(operation, "the server repeated a cursor"))
      }
      seen.add(keys)
      return Effect.map(fetch(cursor), ({ items, next }) => ({ items, next: Option.map(next, Option.some) }))
    }
    return walk(Option.fromNullable(options.cursor), step)
  })
