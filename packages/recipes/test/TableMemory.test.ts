/** In a file of its own: memory retained by other tests would be counted too. */
import { NodeContext } from "@effect/platform-node"
import { Batches, Table } from "@effect-tinker/recipes"
import { expect, it } from "@effect/vitest"
import { Effect, Schema, Stream } from "effect"
import { fileOf } from "./support/Files.ts"
import { held } from "./support/Memory.ts"

it.scopedLive("a table holds the places of its rows, not the rows", () =>
  Effect.gen(function* () {
    const count = 1500
    const row = (id: number) => `${JSON.stringify({ id, text: "x".repeat(10_000) })}\n`
    // 15 MB, written in pieces and not kept.
    const path = yield* fileOf(Buffer.concat(Array.from({ length: count }, (_, id) => Buffer.from(row(id)))))
    const before = yield* held
    const table = yield* Table.jsonl(path, Schema.Struct({ id: Schema.Number, text: Schema.String }))
    const batches = yield* Batches.make(table, { size: { rows: 32 }, seed: 3 })
    const opened = yield* held
    // The index of one block, 1 MB, and what the compiler keeps.
    expect(opened - before).toBeLessThan(4e6)
    const seen = new Set<number>()
    yield* Stream.runForEach(batches.from(0), ({ rows }) =>
      Effect.sync(() => {
        for (const { value } of rows) seen.add(value.id)
      }),
    )
    expect(seen.size).toBe(count)
    expect((yield* held) - opened).toBeLessThan(4e6)
  }).pipe(Effect.provide(NodeContext.layer)),
)
