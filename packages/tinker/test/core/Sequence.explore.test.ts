/**
 * Visits every world that small programs can reach on every kind of server. `TINKER_EXPLORE=full` explores more
 * programs with more faults, which takes minutes.
 */
import { describe, expect, it } from "@effect/vitest"
import * as Sequence from "../../src/internal/core/Sequence.js"
import { full, small } from "./Scenarios.ts"
import { explore } from "./SequenceExplorer.ts"

const isFull = process.env["TINKER_EXPLORE"] === "full"
const patience = 1_800_000

/** Lets the test runner breathe. */
const pause = () => new Promise((resolve) => setImmediate(resolve))

describe("the sequence core", () => {
  it(
    "is safe, truthful and makes progress in every world that it can reach",
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
      expect(states).toBeGreaterThan(100_000)
    },
    patience,
  )
})
