import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import type { Accepted } from "../../scripts/faults/lab/Record.ts"
import type { Entry, ErrorReport } from "../../scripts/faults/program/Report.ts"
import { operations } from "../../scripts/faults/program/Tour.ts"
import * as Draw from "../../scripts/faults/proxy/Draw.ts"
import * as Invariants from "../../scripts/faults/seeds/Invariants.ts"
import type { Observation } from "../../scripts/faults/seeds/Observation.ts"
import * as Truth from "../../scripts/faults/seeds/Truth.ts"

const key = "tml-0123456789"
const all = Object.values(operations).flat()

const accepted = (names: ReadonlyArray<string>): ReadonlyArray<Accepted> =>
  names.map((operation, index) => ({ seq: index + 1, operation, state: "result" }))

const entries: ReadonlyArray<Entry> = Object.keys(operations).map((name) => ({ name, millis: 1, value: name }))

const good: Observation = {
  plan: { seed: 1, parallel: false, jwt: false, faults: [] },
  injected: [],
  report: {
    entries,
    modelId: "m",
    leftovers: { fibers: 0, permits: 0, descriptors: [], handles: [] },
    peakMemory: 0,
  },
  end: 0,
  record: { accepted: accepted(all), weights: { "save first": "hash" } },
  texts: { client: "log", server: "log" },
  log: [],
  millis: 1,
}

const broken = (change: (observation: Observation) => Observation, kind: Draw.Class = "recoverable") =>
  Invariants.check(kind, change(good), good, key).map(({ promise }) => promise)

const withReport = (change: Partial<NonNullable<Observation["report"]>>) => (observation: Observation) => ({
  ...observation,
  report: observation.report && { ...observation.report, ...change },
})

const error = (fields: Partial<ErrorReport>): ErrorReport => ({ tag: "X", message: "", isTyped: true, ...fields })

/** The program as it looks when one of its parts failed. */
const failedAt = (name: string, errors: Readonly<Record<string, ErrorReport>>): ReadonlyArray<Entry> => [
  ...entries.slice(0, Object.keys(operations).indexOf(name)),
  { name, millis: 1, errors },
]

describe("invariants of an experiment", () => {
  it("an experiment without deviation breaks no promise", () => {
    expect(broken((same) => same)).toEqual([])
  })

  it("each deviation breaks the promise that it belongs to", () => {
    expect(
      broken(withReport({ entries: entries.map((entry, i) => (i === 2 ? { ...entry, value: 0 } : entry)) })),
    ).toEqual(["equal"])
    expect(broken((same) => ({ ...same, record: { ...same.record, weights: { "save first": "other" } } }))).toEqual([
      "equal",
    ])
    expect(broken((same) => ({ ...same, end: undefined }))).toEqual(["exits"])
    expect(broken((same) => ({ ...same, texts: { file: `x${key}x` } }))).toEqual(["secret"])
    const token = "eyJhbGciOiJI.eyJleHAiOjQx.c2lnbmF0dXJl"
    expect(broken((same) => ({ ...same, texts: { file: `x ${token}` } }))).toEqual(["secret"])
    expect(broken(withReport({ leftovers: { fibers: 1, permits: 0, descriptors: [], handles: [] } }))).toEqual([
      "released",
    ])
    expect(broken(withReport({ leftovers: { fibers: 0, permits: 1, descriptors: [], handles: [] } }))).toEqual([
      "released",
    ])
    expect(broken(withReport({ entries: entries.map((entry) => ({ ...entry, millis: 1e6 })) }))).toContain("bounded")
    expect(broken((same) => ({ ...same, report: undefined }))).toEqual(["bounded"])
    expect(
      broken((same) => ({ ...same, record: { ...same.record, accepted: accepted([...all, "optim_step"]) } })),
    ).toEqual(["truthful"])
  })

  it("an error breaks a promise of recoverable faults, and of hostile ones only if it is not typed", () => {
    const failed = (isTyped: boolean) => (same: Observation) =>
      withReport({ entries: failedAt("save first", { error: error({ isTyped }) }) })({
        ...same,
        record: { ...same.record, accepted: accepted(all.slice(0, 12)) },
      })
    expect(broken(failed(true))).toEqual(["survived"])
    expect(broken(failed(true), "hostile")).toEqual([])
    expect(broken(failed(false), "hostile")).toEqual(["typed"])
  })
})

describe("truth of errors", () => {
  const check = (name: string, errors: Readonly<Record<string, ErrorReport>>, done: ReadonlyArray<string>) =>
    Truth.check(failedAt(name, errors), accepted(done)).length === 0
  const brokenSequence = (applied: string) => ({ error: error({ tag: "SequenceBroken", applied }) })

  it("a request that is called not applied must not be in the server's record", () => {
    expect(check("step 1", brokenSequence("no"), all.slice(0, 4))).toBe(true)
    expect(check("step 1", brokenSequence("no"), all.slice(0, 5))).toBe(false)
    const rejected = { error: error({ tag: "RequestRejected", operation: "save_weights" }) }
    expect(check("save first", rejected, all.slice(0, 12))).toBe(true)
    expect(check("save first", rejected, all.slice(0, 13))).toBe(false)
  })

  it("a request whose outcome is called unknown may be in the record, but nothing after it", () => {
    expect(check("step 1", brokenSequence("unknown"), all.slice(0, 4))).toBe(true)
    expect(check("step 1", brokenSequence("unknown"), all.slice(0, 8))).toBe(true)
    expect(check("step 1", brokenSequence("unknown"), all.slice(0, 9))).toBe(false)
  })

  it("a batch that is called partly applied must be so in the record", () => {
    expect(check("step 1", brokenSequence("partial"), all.slice(0, 4))).toBe(false)
    expect(check("step 1", brokenSequence("partial"), all.slice(0, 6))).toBe(true)
    expect(check("step 1", brokenSequence("partial"), all.slice(0, 8))).toBe(false)
  })

  it("a rejected update is missing, while the step after it may be on its way", () => {
    const rejected = { update: error({ tag: "RequestRejected", operation: "optim_step" }) }
    expect(check("step 0", rejected, [...all.slice(0, 3), ...all.slice(4, 8)])).toBe(true)
    expect(check("step 0", rejected, all.slice(0, 8))).toBe(false)
  })

  it("requests that are done twice or out of order are noticed", () => {
    expect(Truth.check(entries, accepted(["forward_backward", ...all]))).not.toEqual([])
    expect(Truth.check(entries, accepted(all.toReversed()))).not.toEqual([])
    expect(Truth.check(entries, accepted(all.slice(0, -1)))).not.toEqual([])
    expect(Truth.check(entries, accepted(all))).toEqual([])
  })
})

describe("plans", () => {
  it.effect("a plan follows from its class and seed", () =>
    Effect.gen(function* () {
      for (const kind of ["recoverable", "hostile"] as const) {
        const once = yield* Effect.forEach([1, 2, 3], (seed) => Draw.plan(kind, seed))
        const again = yield* Effect.forEach([1, 2, 3], (seed) => Draw.plan(kind, seed))
        expect(once).toEqual(again)
        expect(once[0]).not.toEqual(once[1])
      }
    }),
  )

  it.effect("every kind of fault is drawn", () =>
    Effect.gen(function* () {
      const kindsOf = (kind: Draw.Class) =>
        Effect.map(
          Effect.forEach(
            Array.from({ length: 400 }, (_, i) => i),
            (seed) => Draw.plan(kind, seed),
          ),
          (plans) => new Set(plans.flatMap(({ faults }) => faults.map(({ fault }) => fault._tag))),
        )
      const common = [
        "Reset",
        "Delay",
        "Truncate",
        "Duplicate",
        "Reorder",
        "Stall",
        "Status",
        "Unreadable",
        "TryAgain",
        "Restart",
      ]
      expect([...(yield* kindsOf("recoverable"))].toSorted()).toEqual(common.toSorted())
      expect([...(yield* kindsOf("hostile"))].toSorted()).toEqual([...common, "Corrupt", "Bomb", "Expired"].toSorted())
    }),
  )
})
