/**
 * Visits every world that small programs can reach on every kind of server. `test:all` explores more programs with more
 * faults, which takes minutes.
 */
import { describe, expect, it } from "@effect/vitest"
import * as BranchCoverage from "./BranchCoverage.ts"
import { full, small, traced, tracedFull } from "./Scenarios.ts"
import { explore, needless, type Unknowns } from "./SequenceExplorer.ts"
import { flawOf, mutants, mutate } from "./SequenceMutants.ts"

// Imports the same module as the driver, after counting of its branches has started.
BranchCoverage.start()
const Sequence = await import("../../src/internal/core/Sequence.js")

const isFull = process.env["TINKER_TESTS"] === "all"
const patience = 1_800_000

/** Yields to the test runner. */
const pause = () => new Promise((resolve) => setImmediate(resolve))

describe.sequential("the sequence core", () => {
  it(
    "the sequence core is safe, truthful and makes progress in every reachable world",
    async () => {
      let states = 0
      let transitions = 0
      for (const scenario of isFull ? full : small) {
        await pause()
        const explored = explore(Sequence, scenario)
        states += explored.states
        transitions += explored.transitions
      }
      console.log(`explored ${states} states and ${transitions} transitions`)
      expect(states).toBeGreaterThan(isFull ? 1_000_000 : 100_000)
    },
    patience,
  )

  it("the exploration takes every branch of the sequence core", () => {
    expect(BranchCoverage.unreached("internal/core/Sequence.ts")).toEqual([])
  })

  it(
    "the sequence core reports unknown only where two histories look the same to it",
    async () => {
      const unknowns: Unknowns = new Map()
      let states = 0
      for (const scenario of isFull ? tracedFull : traced) {
        await pause()
        states += explore(Sequence, scenario, unknowns).states
      }
      console.log(`compared ${states} states, of which ${unknowns.size} look different when they end in doubt`)
      expect(unknowns.size).toBeGreaterThan(50)
      expect(needless(unknowns)).toEqual([])
    },
    patience,
  )

  it(
    "the exploration finds every mutant of the sequence core",
    async () => {
      const survivors: Array<string> = []
      for (const mutant of mutants) {
        await pause()
        if (flawOf(mutate(mutant), mutant.ground) === undefined) survivors.push(mutant.name)
      }
      console.log(`killed ${mutants.length - survivors.length} of ${mutants.length} mutants`)
      expect(survivors).toEqual([])
      expect(new Set(mutants.map(({ name }) => name)).size).toBe(mutants.length)
    },
    patience,
  )
})
