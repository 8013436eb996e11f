import { describe, expect, it } from "@effect/vitest"
import { Effect, FastCheck as fc, Option, Schema } from "effect"
import { TrainingJournal } from "effect-tinker"
// The package does not export this module, and the compiler refuses to rewrite a `.ts` import into another project.
import { ledger } from "../src/internal/training/Ledger.js"

type Record = TrainingJournal.Record

const opened: Record = {
  _tag: "Opened",
  baseUrl: "http://a",
  sessionId: "s",
  modelId: "m",
  from: Option.none(),
  firstStep: 0,
}

const intent = (seq: number, chunk = 0, chunks = 1, kind = "ForwardBackward"): Record => ({
  _tag: "Intent",
  seq,
  operation: kind === "ForwardBackward" ? "forward_backward" : "optim_step",
  kind,
  chunk,
  chunks,
  repeatable: false,
  idempotencyKey: `key-${seq}`,
  hash: `hash-${seq}`,
  tag: Option.none(),
})
const acknowledged = (seq: number): Record => ({ _tag: "Acknowledged", seq, requestId: `r${seq}` })
const withdrawn = (seq: number): Record => ({ _tag: "Withdrawn", seq })
const settled = (seq: number, succeeded = true): Record => ({ _tag: "Settled", seq, succeeded })

const request = (text: string): TrainingJournal.StoredRequest => ({
  path: "optim_step",
  contentType: "application/json",
  bytes: new TextEncoder().encode(text),
})

const stateOf = (...records: ReadonlyArray<Record>) =>
  Option.getOrThrow(TrainingJournal.state([opened, ...records].map((record) => ({ record }))))

const callsOf = (...records: ReadonlyArray<Record>) => {
  const { calls, free } = ledger(stateOf(...records).steps)
  return { calls: calls.map(({ steps, stands }) => [stands, ...steps.map(({ intent }) => intent.seq)]), free }
}

describe("TrainingJournal.state", () => {
  it("the journal state is none if no client was opened", () => {
    expect(TrainingJournal.state([])).toEqual(Option.none())
    expect(TrainingJournal.state([{ record: { _tag: "Resumed" } }])).toEqual(Option.none())
  })

  it("the journal state counts processes and keeps the last learned behavior and the last checkpoint", () => {
    const learnt = (refusedUsesNumber: boolean): Record => ({
      _tag: "Learnt",
      wire: Option.none(),
      refusedUsesNumber,
      guardsNumbers: Option.none(),
    })
    const state = stateOf(
      learnt(false),
      { _tag: "Resumed" },
      { _tag: "Checkpoint", seq: 1, path: "a", withOptimizer: true },
      { _tag: "Resumed" },
      learnt(true),
      { _tag: "Checkpoint", seq: 2, path: "b", withOptimizer: true },
    )
    expect(state.resumes).toBe(2)
    expect(Option.map(state.learnt, ({ refusedUsesNumber }) => refusedUsesNumber)).toEqual(Option.some(true))
    expect(Option.map(state.lastCheckpoint, ({ path }) => path)).toEqual(Option.some("b"))
  })

  it("the journal state has the outcome of each number", () => {
    const { steps, withdrawn: free } = stateOf(
      intent(1),
      acknowledged(1),
      settled(1),
      intent(2),
      withdrawn(2),
      intent(2, 0, 1, "OptimStep"),
      acknowledged(2),
      settled(2, false),
      intent(3),
      withdrawn(3),
    )
    expect(steps.map(({ intent, requestId, succeeded }) => [intent.seq, intent.kind, requestId, succeeded])).toEqual([
      [1, "ForwardBackward", Option.some("r1"), Option.some(true)],
      [2, "OptimStep", Option.some("r2"), Option.some(false)],
    ])
    expect([...free]).toEqual([3])
  })

  it("the journal state belongs to the client that was opened last", () => {
    const state = stateOf(
      intent(1),
      acknowledged(1),
      intent(2),
      { _tag: "Checkpoint", seq: 1, path: "a", withOptimizer: true },
      { _tag: "Resumed" },
      { ...opened, modelId: "m2" },
      intent(1),
    )
    expect(state.opened).toEqual({ ...opened, modelId: "m2" })
    expect(state.resumes).toBe(0)
    expect(state.lastCheckpoint).toEqual(Option.none())
    expect(state.steps.map(({ requestId }) => requestId)).toEqual([Option.none()])
  })
})

describe("calls in a journal", () => {
  it("journaled calls are settled, acknowledged or in doubt", () => {
    expect(callsOf(intent(1), acknowledged(1), settled(1), intent(2), acknowledged(2), intent(3))).toEqual({
      calls: [
        ["settled", 1],
        ["acknowledged", 2],
        ["unsent", 3],
      ],
      free: [],
    })
  })

  it("a journaled call has all its chunks", () => {
    expect(
      callsOf(intent(1, 0, 2), intent(2, 1, 2), acknowledged(1), acknowledged(2), settled(2), intent(3, 0, 1)),
    ).toEqual({
      calls: [
        ["acknowledged", 1, 2],
        ["unsent", 3],
      ],
      free: [],
    })
    // Two calls of equal size are two calls.
    expect(callsOf(intent(1, 0, 2), intent(2, 1, 2), intent(3, 0, 2), intent(4, 1, 2)).calls).toEqual([
      ["unsent", 1, 2],
      ["unsent", 3, 4],
    ])
  })

  it("the first chunk of a parallel call may be acknowledged last", () => {
    expect(callsOf(intent(1, 0, 3), intent(2, 1, 3), intent(3, 2, 3), acknowledged(3)).calls).toEqual([
      ["unsent", 1, 2, 3],
    ])
  })

  it("a call whose chunks were not all journaled was not sent", () => {
    expect(callsOf(intent(1), acknowledged(1), intent(2, 0, 3), intent(3, 1, 3))).toEqual({
      calls: [["acknowledged", 1]],
      free: [2, 3],
    })
  })

  it("a call is partial if a later chunk was rejected", () => {
    const records = [intent(1, 0, 4), intent(2, 1, 4), intent(3, 2, 4), intent(4, 3, 4), acknowledged(1), withdrawn(2)]
    const { calls, free } = ledger(stateOf(...records).steps)
    expect(calls.map(({ isWhole, stands, steps }) => [isWhole, stands, steps.length])).toEqual([
      [false, "acknowledged", 1],
    ])
    // Nothing after the rejected chunk was sent, whether or not that was journaled.
    expect(free).toEqual([3, 4])
  })

  it("a call is not mixed with unsent chunks of an earlier process", () => {
    expect(callsOf(intent(1, 0, 3), intent(2, 1, 3), intent(1, 0, 1), acknowledged(1))).toEqual({
      calls: [["acknowledged", 1]],
      free: [2],
    })
  })

  it("a call with a known result counts as accepted, even without an acknowledgment", () => {
    expect(callsOf(intent(1), settled(1)).calls).toEqual([["settled", 1]])
  })
})

/** The calls of a client as the journal records them: consecutive, each with an outcome. */
interface History {
  readonly records: ReadonlyArray<Record>
  /** The number of records after which the server may have each number. */
  readonly sentFrom: ReadonlyMap<number, number>
}

type Fate = "settled" | "acknowledged" | "refused" | "refused later"

const histories = fc
  .array(
    fc.record({
      chunks: fc.integer({ min: 1, max: 4 }),
      parallel: fc.boolean(),
      fate: fc.constantFrom<Fate>("settled", "acknowledged", "refused", "refused later"),
    }),
    { maxLength: 6 },
  )
  .map((calls): History => {
    const records: Array<Record> = [opened]
    const sentFrom = new Map<number, number>()
    let next = 1
    for (const { chunks, fate, parallel } of calls) {
      const seqs = Array.from({ length: chunks }, (_, chunk) => next + chunk)
      records.push(...seqs.map((seq, chunk) => intent(seq, chunk, chunks)))
      const order = parallel && chunks > 1 && fate !== "refused later" ? [...seqs.slice(1), seqs[0]!] : seqs
      const refusedAt = fate === "refused" ? 0 : fate === "refused later" && chunks > 1 ? chunks - 1 : chunks
      for (const seq of order.slice(0, refusedAt)) {
        sentFrom.set(seq, records.length)
        records.push(acknowledged(seq))
        if (fate === "settled") records.push(settled(seq))
      }
      for (const seq of order.slice(refusedAt)) {
        sentFrom.delete(seq)
        records.push(withdrawn(seq))
      }
      next += refusedAt
      // A partial gradient: the client stops.
      if (refusedAt > 0 && refusedAt < chunks) break
    }
    return { records, sentFrom }
  })

it("a journal truncated anywhere reports what the server may have, and nothing it can't have", () => {
  fc.assert(
    fc.property(histories, fc.nat(), ({ records, sentFrom }, at) => {
      const length = 1 + (at % records.length)
      const kept = records.slice(0, length)
      const state = Option.getOrThrow(TrainingJournal.state(kept.map((record) => ({ record }))))
      const { calls, free } = ledger(state.steps)
      const reported = calls.flatMap(({ steps }) => steps.map(({ intent }) => intent.seq))
      const sent = [...sentFrom].flatMap(([seq, from]) => (from <= length ? [seq] : []))
      const confirmed = kept.flatMap((record) => (record._tag === "Acknowledged" ? [record.seq] : []))

      // Consecutive from 1, so that the next number follows them.
      expect(reported).toEqual(reported.map((_, i) => i + 1))
      // Everything sent is reported, and everything acknowledged is reported as acknowledged.
      expect(reported).toEqual(expect.arrayContaining(sent))
      expect(free.filter((seq) => sent.includes(seq))).toEqual([])
      for (const seq of confirmed)
        expect(state.steps.find(({ intent }) => intent.seq === seq)?.requestId).toEqual(Option.some(`r${seq}`))
      // A call that would be resent has all its chunks.
      for (const { isWhole, stands } of calls) expect(stands === "unsent" && !isWhole).toBe(false)
    }),
    { numRuns: 1_000 },
  )
})

it("every journal record survives a round trip", () => {
  const written = Schema.parseJson(TrainingJournal.Record)
  fc.assert(
    fc.property(histories, ({ records }) => {
      for (const record of records)
        expect(Schema.decodeSync(written)(Schema.encodeSync(written)(record))).toEqual(record)
    }),
    { numRuns: 20 },
  )
})

describe("TrainingJournal.memory", () => {
  const after = (...entries: ReadonlyArray<TrainingJournal.Entry>) =>
    Effect.gen(function* () {
      const journal = yield* TrainingJournal.memory
      for (const entry of entries) yield* journal.append([entry])
      return (yield* journal.read).map(({ record, request }) => [
        record._tag,
        request === undefined ? undefined : new TextDecoder().decode(request.bytes),
      ])
    })

  it.effect("TrainingJournal.memory keeps requests until they are acknowledged or withdrawn", () =>
    Effect.gen(function* () {
      expect(
        yield* after(
          { record: intent(1), request: request("one") },
          { record: intent(2), request: request("two") },
          { record: intent(3), request: request("three") },
          { record: acknowledged(1) },
          { record: withdrawn(3) },
        ),
      ).toEqual([
        ["Intent", undefined],
        ["Intent", "two"],
        ["Intent", undefined],
        ["Acknowledged", undefined],
        ["Withdrawn", undefined],
      ])
    }),
  )

  it.effect("TrainingJournal.memory never returns a request for another one with the same number", () =>
    Effect.gen(function* () {
      const again = yield* after(
        { record: intent(1), request: request("one") },
        // For example with a secret, which is not stored.
        { record: intent(1) },
      )
      expect(again.at(-1)).toEqual(["Intent", undefined])
      const reopened = yield* after({ record: intent(1), request: request("one") }, { record: opened })
      expect(reopened[0]).toEqual(["Intent", undefined])
    }),
  )
})
