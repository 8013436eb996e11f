import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { NodeFileSystem } from "@effect/platform-node"
import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import { TensorBoard } from "@effect-tinker/recipes"
import * as Events from "./support/Events.ts"

const hex = (bytes: Uint8Array | undefined) => Buffer.from(bytes ?? []).toString("hex")

/** The lengths and data of all frames. */
const frames = (bytes: Uint8Array): ReadonlyArray<string> => {
  const all: Array<string> = []
  for (let at = 0; at < bytes.length;) {
    const length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(at, true)
    all.push(hex(bytes.subarray(at, at + length + 16)))
    at += length + 16
  }
  return all
}

const directory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "tensorboard-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true })),
)

describe("TensorBoard", () => {
  // The bytes are what Python's tensorboard 2.21 writes for the same messages.
  it("records have the bytes that Python's tensorboard writes", () => {
    expect(hex(TensorBoard.header(1_500))).toBe(
      "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c",
    )
    expect(hex(TensorBoard.encode({ _tag: "Step", step: 300, metrics: { loss: 0.25 }, at: 1_500 }))).toBe(
      "1b000000000000001a0d9e1309000000000000f83f10ac022a0d0a0b0a046c6f7373150000803e9908deed",
    )
    expect(hex(TensorBoard.encode({ _tag: "Warning", step: 2, reason: "w", message: "hé", at: 1_500 }))).toBe(
      "3500000000000000d6c55de609000000000000f83f10022a280a260a097761726e696e672f77420d0807120412020801420368c3a94a0a0a060a047465787420026db8fbb7",
    )
    expect(hex(TensorBoard.restart(1_500, 3))).toBe("0f000000000000006d532b0909000000000000f83f10033a020801ec8612fc")
  })

  it.effect("each process has a file of its own, and one that continues says where", () =>
    Effect.gen(function* () {
      const path = join(yield* directory, "run", "events")
      const write = (events: typeof Events.one) =>
        Effect.scoped(Effect.flatMap(TensorBoard.make({ directory: path }), ({ log }) => Effect.forEach(events, log)))
      yield* write([Events.step(0), Events.done])
      yield* write([Events.step(1), Events.sample, Events.checkpoint, Events.evaluation])
      const files = readdirSync(path).toSorted()
      expect(files).toEqual([
        "events.out.tfevents.0000000000.effect-tinker.0",
        "events.out.tfevents.0000000000.effect-tinker.1",
      ])
      const [first, second] = files.map((file) => frames(readFileSync(join(path, file))))
      expect(first).toEqual([hex(TensorBoard.header(0)), hex(TensorBoard.encode(Events.step(0)))])
      expect(second?.[1]).toBe(hex(TensorBoard.restart(Events.step(1).at, 1)))
      expect(second?.length).toBe(6)
    }).pipe(Effect.scoped, Effect.provide(NodeFileSystem.layer)),
  )

  it.effect("a directory that can't be created is a RunStoreFailed", () =>
    Effect.gen(function* () {
      const error = yield* Effect.flip(TensorBoard.make({ directory: "/dev/null/events" }))
      expect(error).toMatchObject({ _tag: "RunStoreFailed", reason: "Write", run: "/dev/null/events" })
    }).pipe(Effect.scoped, Effect.provide(NodeFileSystem.layer)),
  )
})
