import { describe, expect, it } from "@effect/vitest"
import { CheckpointPolicy } from "@effect-tinker/recipes"
import { Schema } from "effect"

const policy = Schema.decodeSync(CheckpointPolicy.CheckpointPolicy)
const minute = 60_000

/** Returns what is due after each of ten updates with 30 tokens that take two minutes each. */
const plan = (settings: typeof CheckpointPolicy.CheckpointPolicy.Encoded) => {
  let last: CheckpointPolicy.Progress = { step: 0, tokens: 0, at: 0 }
  return Array.from({ length: 10 }, (_, index) => {
    const now = { step: index + 1, tokens: 30 * (index + 1), at: 2 * minute * (index + 1) }
    const due = CheckpointPolicy.due(policy(settings), last, now)
    if (due === "periodic") last = now
    return due === undefined ? "-" : due.slice(0, 1)
  }).join("")
}

describe("CheckpointPolicy", () => {
  it("periodic checkpoints come after steps, tokens or minutes, whichever is first", () => {
    expect(plan({ everySteps: 4 })).toBe("---p---p--")
    expect(plan({ everySteps: 0, everyTokens: 100 })).toBe("---p---p--")
    expect(plan({ everySteps: 0, everyTokens: 90 })).toBe("--p--p--p-")
    expect(plan({ everySteps: 0, everyMinutes: 5 })).toBe("--p--p--p-")
    expect(plan({ everySteps: 5, everyTokens: 120 })).toBe("---pp---pp")
    expect(plan({ everySteps: 0 })).toBe("----------")
  })

  it("a periodic checkpoint replaces a rolling one at the same step", () => {
    expect(plan({ everySteps: 4, rollingEverySteps: 2 })).toBe("-r-p-r-p-r")
  })

  it("a result is better only if it is a number", () => {
    const best = (direction: "lowest" | "highest") => ({ metric: "x", direction })
    expect(CheckpointPolicy.isBetter(best("lowest"), undefined, 3)).toBe(true)
    expect(CheckpointPolicy.isBetter(best("lowest"), 3, 2)).toBe(true)
    expect(CheckpointPolicy.isBetter(best("lowest"), 3, 3)).toBe(false)
    expect(CheckpointPolicy.isBetter(best("highest"), 3, 4)).toBe(true)
    expect(CheckpointPolicy.isBetter(best("highest"), 3, Number.NaN)).toBe(false)
    expect(CheckpointPolicy.isBetter(best("lowest"), undefined, Number.POSITIVE_INFINITY)).toBe(false)
  })
})
