/**
 * A deterministic sequence of batches that can be entered at any step. The batches from step n on are the same whether
 * or not the ones before were read, so a run that was interrupted continues with the data it would have seen.
 *
 * The order depends only on the seed, the epoch and the number of rows, and never changes from version to version:
 * xoshiro128** seeded with `(seed, epoch)` drives a Fisher–Yates shuffle of the indices.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import { InvalidInput } from "effect-tinker/TinkerError"
import { createHash } from "node:crypto"
import { Generator, permutation, purposes } from "./internal/Generator.ts"
import type { Row } from "./Rows.ts"
import type { Failure, Table } from "./Table.ts"

/**
 * The rows of one training step.
 *
 * @since 0.1.0
 * @category models
 */
export interface Batch<out A> {
  /** The number of the batch in all epochs, from 0. */
  readonly step: number
  /** The number of the epoch, from 0. */
  readonly epoch: number
  /** The number of the batch in its epoch, from 0. */
  readonly index: number
  readonly rows: ReadonlyArray<Row<A>>
}

/**
 * How large a batch is: a number of rows, or at most a number of tokens. By tokens, a batch takes the next rows for as
 * long as their lengths fit; a row that is longer than the limit is a batch of its own.
 *
 * @since 0.1.0
 * @category models
 */
export type Size = { readonly rows: number } | { readonly tokens: number }

/**
 * Options of {@link make}.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  readonly size: Size
  /** How often each row is used; `Infinity` is allowed for batches by rows. Default: 1. */
  readonly epochs?: number | undefined
  /** Whether each epoch has a random order of its own or the order of the table. Default: true. */
  readonly shuffle?: boolean | undefined
  /** The seed of the order. Default: 0. */
  readonly seed?: number | undefined
  /** Whether the last batch of an epoch is used if it has fewer rows than the others. Default: `keep`. */
  readonly lastBatch?: "keep" | "drop" | undefined
  /** How many batches {@link Batches.from} reads ahead. Default: 2. */
  readonly readAhead?: number | undefined
}

/**
 * A sequence of batches.
 *
 * @since 0.1.0
 * @category models
 */
export interface Batches<out A> {
  /** The number of batches in all epochs. */
  readonly steps: number
  /** Identifies the sequence: the data and the options that determine it. */
  readonly fingerprint: string
  /** Returns the epoch of a step, and the number of the step in it, without reading anything. */
  readonly locate: (step: number) => Either.Either<{ readonly epoch: number; readonly index: number }, InvalidInput>
  /** Reads one batch. */
  readonly at: (step: number) => Effect.Effect<Batch<A>, InvalidInput | Failure>
  /** Streams the batches from a step on: those before it are not read. */
  readonly from: (step: number) => Stream.Stream<Batch<A>, InvalidInput | Failure>
}

const invalid = (path: string, problem: string) => Either.left(new InvalidInput({ path, problem }))

const isPositive = (value: number) => Number.isSafeInteger(value) && value > 0

/** The rows of each batch of an epoch: those from `starts[index]` to `starts[index + 1]` of its order. */
interface Plan {
  readonly order: Uint32Array
  readonly starts: Uint32Array
}

const startsByRows = (count: number, rows: number, keepsLast: boolean): Uint32Array => {
  const batches = keepsLast ? Math.ceil(count / rows) : Math.floor(count / rows)
  return Uint32Array.from({ length: batches + 1 }, (_, index) => Math.min(count, index * rows))
}

const startsByTokens = (order: Uint32Array, lengths: Uint32Array, tokens: number, keepsLast: boolean): Uint32Array => {
  const starts = [0]
  let sum = 0
  for (let at = 0; at < order.length; at++) {
    const length = lengths[order[at] ?? 0] ?? 0
    if (at > (starts.at(-1) ?? 0) && sum + length > tokens) {
      starts.push(at)
      sum = 0
    }
    sum += length
  }
  // The last batch is complete only if it has no room for any other row, which no later row shows.
  if (order.length > 0 && (keepsLast || sum >= tokens)) starts.push(order.length)
  return Uint32Array.from(starts)
}

/**
 * Plans the batches of a table. Nothing is read before {@link Batches.at} or {@link Batches.from} is used.
 *
 * @example
 * ```ts
 * import { Batches, Table } from "@effect-tinker/recipes"
 * import { Console, Effect, Stream } from "effect"
 *
 * const program = Effect.gen(function* () {
 *   const table = yield* Table.fromArray(["a", "b", "c", "d", "e"])
 *   const batches = yield* Batches.make(table, { size: { rows: 2 }, epochs: 2, seed: 7 })
 *   // Continues at step 4, as if steps 0 to 3 had been read.
 *   yield* Stream.runForEach(batches.from(4), ({ epoch, rows, step }) =>
 *     Console.log(step, epoch, rows.map(({ value }) => value).join(" ")),
 *   )
 * })
 *
 * await Effect.runPromise(program)
 * // → 4 1 b c
 * // → 5 1 d
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = <A>(table: Table<A>, options: Options): Either.Either<Batches<A>, InvalidInput> =>
  Either.gen(function* () {
    const { epochs = 1, lastBatch = "keep", readAhead = 2, seed = 0, shuffle = true, size } = options
    const limit = "rows" in size ? size.rows : size.tokens
    const unit = "rows" in size ? "size.rows" : "size.tokens"
    const lengths = "rows" in size ? undefined : Option.getOrUndefined(table.lengths)
    if (!isPositive(limit)) return yield* invalid(unit, `expected a positive integer, got ${limit}`)
    if (!isPositive(epochs) && epochs !== Infinity) {
      return yield* invalid("epochs", `expected a positive integer or Infinity, got ${epochs}`)
    }
    if (!Number.isSafeInteger(seed)) return yield* invalid("seed", `expected an integer, got ${seed}`)
    if (!Number.isSafeInteger(readAhead) || readAhead < 0) {
      return yield* invalid("readAhead", `expected a non-negative integer, got ${readAhead}`)
    }
    if ("tokens" in size && lengths === undefined) {
      return yield* invalid(unit, "the rows of the table are not measured; open it with a length function")
    }
    if ("tokens" in size && epochs === Infinity) {
      return yield* invalid("epochs", "expected a number: batches by tokens are planned in advance")
    }

    const keepsLast = lastBatch === "keep"
    const plain = Uint32Array.from({ length: shuffle ? 0 : table.size }, (_, index) => index)
    const planOf = (epoch: number): Plan => {
      const order = shuffle ? permutation(table.size, new Generator(seed, purposes.shuffle, epoch)) : plain
      const starts =
        lengths === undefined
          ? startsByRows(table.size, limit, keepsLast)
          : startsByTokens(order, lengths, limit, keepsLast)
      return { order, starts }
    }

    // Only the plan of the current epoch is kept; the others are made again from the seed.
    let current: { readonly epoch: number; readonly plan: Plan } | undefined
    const planned = (epoch: number): Plan => {
      if (current?.epoch !== epoch) current = { epoch, plan: planOf(epoch) }
      return current.plan
    }

    // By rows, and without shuffling, all epochs have the same number of batches.
    const isRegular = lengths === undefined || !shuffle
    const perEpoch = isRegular ? planned(0).starts.length - 1 : 0
    const firsts = [0]
    if (!isRegular) {
      for (let epoch = 0; epoch < epochs; epoch++) firsts.push((firsts[epoch] ?? 0) + planOf(epoch).starts.length - 1)
    }
    const steps = isRegular ? (perEpoch === 0 ? 0 : perEpoch * epochs) : (firsts.at(-1) ?? 0)
    if (steps === 0) {
      return yield* invalid(unit, `makes no batch of ${table.size} rows`)
    }

    const locate: Batches<A>["locate"] = (step) => {
      if (!Number.isSafeInteger(step) || step < 0 || step >= steps) {
        return invalid("step", `expected an integer from 0 to ${steps - 1}, got ${step}`)
      }
      if (isRegular) return Either.right({ epoch: Math.floor(step / perEpoch), index: step % perEpoch })
      const epoch = firsts.findLastIndex((first) => first <= step)
      return Either.right({ epoch, index: step - (firsts[epoch] ?? 0) })
    }

    const at: Batches<A>["at"] = (step) =>
      Effect.gen(function* () {
        const { epoch, index } = yield* locate(step)
        const { order, starts } = planned(epoch)
        const rows = yield* table.read(order.subarray(starts[index], starts[index + 1]))
        return { step, epoch, index, rows }
      })

    return {
      steps,
      fingerprint: createHash("sha256")
        .update(
          JSON.stringify([table.fingerprint, unit, limit, String(epochs), lastBatch, shuffle, shuffle ? seed : 0]),
        )
        .digest("hex"),
      locate,
      at,
      from: (first) => {
        if (first === steps) return Stream.empty
        const batches = Stream.unwrap(
          Effect.map(locate(first), () =>
            Stream.mapEffect(
              Stream.iterate(first, (step) => step + 1).pipe(Stream.takeWhile((step) => step < steps)),
              at,
            ),
          ),
        )
        return readAhead === 0 ? batches : Stream.buffer(batches, { capacity: readAhead })
      },
    }
  })
