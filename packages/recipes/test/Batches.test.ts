import { readFileSync } from "node:fs"
import { Batches, Table } from "@effect-tinker/recipes"
import { describe, expect, it } from "@effect/vitest"
import { Chunk, Effect, Either, FastCheck, Stream } from "effect"
import { Generator, permutation } from "../src/internal/Generator.js"

interface Golden {
  readonly seed: number
  readonly size: number
  readonly numbers: ReadonlyArray<number>
  readonly epochs: ReadonlyArray<ReadonlyArray<number>>
  readonly heldOut: ReadonlyArray<number>
}

/** Made by another implementation of the generator, in Python. */
const goldens: ReadonlyArray<Golden> = JSON.parse(
  readFileSync(new URL("goldens/shuffle.json", import.meta.url), "utf8"),
)

const collect = <A, E, R>(rows: Stream.Stream<A, E, R>) => Effect.map(Stream.runCollect(rows), Chunk.toReadonlyArray)

const tableOf = (size: number) =>
  Table.fromArray(
    Array.from({ length: size }, (_, index) => index),
    // Lengths from 1 to 9.
    { length: (index) => Effect.succeed(1 + ((index * 7) % 9)) },
  )

const values = (batch: Batches.Batch<number>) => batch.rows.map(({ value }) => value)

describe("Batches", () => {
  it.effect("the batches from step n on are the tail of all batches", () =>
    Effect.gen(function* () {
      const cases = FastCheck.record({
        count: FastCheck.integer({ min: 1, max: 40 }),
        epochs: FastCheck.integer({ min: 1, max: 4 }),
        shuffle: FastCheck.boolean(),
        seed: FastCheck.maxSafeInteger(),
        lastBatch: FastCheck.constantFrom("keep" as const, "drop" as const),
        readAhead: FastCheck.integer({ min: 0, max: 3 }),
        size: FastCheck.oneof(
          FastCheck.record({ rows: FastCheck.integer({ min: 1, max: 12 }) }),
          FastCheck.record({ tokens: FastCheck.integer({ min: 1, max: 40 }) }),
        ),
      })
      for (const { count, ...options } of FastCheck.sample(cases, { seed: 11, numRuns: 60 })) {
        const made = Batches.make(yield* tableOf(count), options)
        if (Either.isLeft(made)) {
          expect(options.lastBatch).toBe("drop")
          continue
        }
        const batches = made.right
        const all = yield* collect(batches.from(0))
        expect(all.length).toBe(batches.steps)
        expect(all.map(({ step }) => step)).toEqual(all.map((_, index) => index))
        for (const step of [1, 2, Math.floor(all.length / 2), all.length - 1, all.length]) {
          if (step <= all.length) expect(yield* collect(batches.from(step))).toEqual(all.slice(step))
        }
        for (const batch of all) expect(yield* batches.at(batch.step)).toEqual(batch)
        for (let epoch = 0; epoch < options.epochs; epoch++) {
          const own = all.filter((batch) => batch.epoch === epoch)
          expect(own.map(({ index }) => index)).toEqual(own.map((_, index) => index))
          const used = own.flatMap(values)
          expect(new Set(used).size).toBe(used.length)
          if (options.lastBatch === "keep") expect(used.length).toBe(count)
          if (!options.shuffle) expect(used).toEqual(used.map((_, index) => index))
        }
        for (const batch of all) {
          const sum = values(batch).reduce((sum, index) => sum + 1 + ((index * 7) % 9), 0)
          if ("tokens" in options.size) expect(batch.rows.length === 1 || sum <= options.size.tokens).toBe(true)
          else if (options.lastBatch === "drop") expect(batch.rows.length).toBe(options.size.rows)
          else expect(batch.rows.length).toBeLessThanOrEqual(options.size.rows)
        }
      }
    }),
  )

  it.effect("nothing before the step is read, and no more than readAhead after it", () =>
    Effect.gen(function* () {
      const table = yield* tableOf(1000)
      const read: Array<number> = []
      const counted: Table.Table<number> = {
        ...table,
        read: (indices) =>
          Effect.zipRight(
            Effect.sync(() => read.push(...Array.from(indices))),
            table.read(indices),
          ),
      }
      const batches = yield* Batches.make(counted, { size: { rows: 10 }, seed: 1, readAhead: 2 })
      const [first] = yield* collect(batches.from(90).pipe(Stream.take(1)))
      expect(first?.step).toBe(90)
      // The batch itself, two in the buffer, and one that waits for room.
      expect(read.length).toBeLessThanOrEqual(40)
      expect(read.slice(0, 10)).toEqual(first === undefined ? [] : values(first))
    }),
  )

  it.effect("the order of a seed never changes", () =>
    Effect.gen(function* () {
      for (const { epochs, heldOut, numbers, seed, size } of goldens) {
        const generator = new Generator(seed, 1, 0)
        expect(numbers.map(() => generator.next())).toEqual(numbers)
        const table = yield* tableOf(size)
        const batches = yield* Batches.make(table, { size: { rows: size }, epochs: epochs.length, seed })
        expect((yield* collect(batches.from(0))).map(values)).toEqual(epochs)
        const parts = yield* Table.split(table, { heldOut: { count: heldOut.length }, seed })
        expect((yield* collect(Table.rows(parts.heldOut))).map(({ value }) => value)).toEqual(heldOut)
      }
    }),
  )

  it.effect("every order is equally likely", () =>
    Effect.sync(() => {
      const counts = new Map<string, number>()
      for (let seed = 0; seed < 24_000; seed++) {
        const order = permutation(4, new Generator(seed, 1, 0)).join("")
        counts.set(order, (counts.get(order) ?? 0) + 1)
      }
      const chi = [...counts.values()].reduce((sum, count) => sum + (count - 1000) ** 2 / 1000, 0)
      expect(counts.size).toBe(24)
      // 23 degrees of freedom: beyond 49.7 in one of a thousand cases.
      expect(chi).toBeLessThan(49.7)
    }),
  )

  it.effect("the fingerprint changes with what determines the batches", () =>
    Effect.gen(function* () {
      const table = yield* tableOf(10)
      const size = { rows: 2 }
      const options: ReadonlyArray<Batches.Options> = [
        { size },
        { size: { rows: 3 } },
        { size: { tokens: 10 } },
        { size, seed: 1 },
        { size, epochs: 2 },
        { size, shuffle: false },
        { size, lastBatch: "drop" },
      ]
      const prints = options.map((one) => Either.getOrThrow(Batches.make(table, one)).fingerprint)
      expect(new Set(prints).size).toBe(prints.length)
      expect(Either.getOrThrow(Batches.make(table, { size, readAhead: 9 })).fingerprint).toBe(prints[0])
      const other = yield* tableOf(11)
      expect(Either.getOrThrow(Batches.make(other, { size })).fingerprint).not.toBe(prints[0])
    }),
  )

  it.effect("endless epochs, and what is refused", () =>
    Effect.gen(function* () {
      const table = yield* tableOf(10)
      const endless = yield* Batches.make(table, { size: { rows: 4 }, epochs: Infinity })
      expect(endless.steps).toBe(Infinity)
      expect(yield* endless.at(3_000_000)).toMatchObject({ epoch: 1_000_000, index: 0 })
      const unmeasured = yield* Table.fromArray([1, 2, 3])
      const empty = yield* Table.fromArray<number>([])
      const refused: ReadonlyArray<readonly [Table.Table<number>, Batches.Options, string]> = [
        [table, { size: { rows: 0 } }, "size.rows"],
        [table, { size: { rows: 1 }, epochs: 0.5 }, "epochs"],
        [table, { size: { tokens: 9 }, epochs: Infinity }, "epochs"],
        [table, { size: { rows: 1 }, seed: 0.5 }, "seed"],
        [table, { size: { rows: 1 }, readAhead: -1 }, "readAhead"],
        [table, { size: { rows: 11 }, lastBatch: "drop" }, "size.rows"],
        [unmeasured, { size: { tokens: 9 } }, "size.tokens"],
        [empty, { size: { rows: 1 } }, "size.rows"],
      ]
      for (const [table, options, path] of refused) {
        expect(Either.flip(Batches.make(table, options)).pipe(Either.getOrThrow)).toMatchObject({ path })
      }
      const batches = yield* Batches.make(table, { size: { rows: 4 } })
      expect(yield* collect(batches.from(3))).toEqual([])
      for (const step of [-1, 4, 0.5, Number.NaN]) {
        expect(yield* Effect.flip(Stream.runDrain(batches.from(step)))).toMatchObject({ _tag: "InvalidInput" })
      }
    }),
  )
})
