/** Opens and reads a large file in random order: the process that `scripts/bench/shuffle.ts` measures. */
import { NodeContext, NodeRuntime } from "@effect/platform-node"
import * as Batches from "@effect-tinker/recipes/Batches"
import * as Table from "@effect-tinker/recipes/Table"
import { Console, Effect, Schema, Stream } from "effect"
import { textOf } from "./shuffle-rows.ts"

const [path = "", rowBytes, batchLimit, memoryLimit] = process.argv.slice(2)
const Row = Schema.Struct({ id: Schema.Number, text: Schema.String })

const megabytes = () => Math.round((process.resourceUsage().maxRSS * 1024) / 1e6)
const seconds = (since: number) => ((performance.now() - since) / 1000).toFixed(1)

const program = Effect.gen(function* () {
  yield* Console.log(`started: ${megabytes()} MB`)
  const opening = performance.now()
  const table = yield* Table.jsonl(path, Row)
  yield* Console.log(`${table.size} rows opened and checked in ${seconds(opening)} s: ${megabytes()} MB`)
  const { heldOut, train } = yield* Table.split(table, { heldOut: { fraction: 0.01 }, seed: 1 })
  const batches = yield* Batches.make(train, { size: { rows: 64 }, seed: 1 })

  const reading = performance.now()
  const seen = new Uint8Array(table.size)
  const steps = Math.min(batches.steps, Number(batchLimit))
  let problems = 0
  yield* batches.from(0).pipe(
    Stream.take(steps),
    Stream.runForEach((batch) =>
      Effect.sync(() => {
        for (const { row, value } of batch.rows) {
          if (seen[value.id] !== 0 || row !== value.id + 1) problems++
          if (value.text !== textOf(value.id, Number(rowBytes))) problems++
          seen[value.id] = 1
        }
      }),
    ),
  )
  const count = seen.reduce((sum, one) => sum + one, 0)
  if (count !== Math.min(train.size, steps * 64)) problems++
  yield* Console.log(
    `${count} rows read in random order in ${seconds(reading)} s, ${heldOut.size} held out: ${megabytes()} MB`,
  )

  const seeking = performance.now()
  const middle = yield* batches.at(Math.floor(batches.steps / 2))
  yield* Console.log(`batch ${middle.step} read on its own in ${seconds(seeking)} s`)
  const peak = megabytes()
  yield* Console.log(`largest resident set ${peak} MB (limit ${memoryLimit}), ${problems} problems`)
  if (problems > 0 || peak > Number(memoryLimit)) process.exitCode = 1
})

NodeRuntime.runMain(program.pipe(Effect.scoped, Effect.provide(NodeContext.layer)))
