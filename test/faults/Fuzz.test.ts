import { describe, expect, it } from "@effect/vitest"
import * as Coverage from "../../scripts/faults/fuzz/Coverage.ts"
import { explore } from "../../scripts/faults/fuzz/Explore.ts"
import { dice, mutate } from "../../scripts/faults/fuzz/Mutator.ts"
import { names } from "../../scripts/faults/fuzz/Names.ts"
import { targets } from "../../scripts/faults/fuzz/Targets.ts"
import { planted } from "./planted.ts"

/** Only `test:all` looks for the planted bug, which takes several seconds. */
const isFull = process.env["TINKER_TESTS"] === "all"

describe("fuzzer", () => {
  if (isFull)
    it("finds a bug behind three compared bytes within a minute", async () => {
      const coverage = Coverage.start(
        (url) => url.includes("planted"),
        () => true,
      )
      const { finding, runs } = await explore({
        run: (input) => {
          try {
            planted(input)
            return undefined
          } catch (error) {
            return String(error)
          }
        },
        corpus: [new TextEncoder().encode("nothing special")],
        coverage,
        seed: 1,
        until: performance.now() + 60_000,
      })
      coverage.stop()
      expect(finding?.problem).toBe("Error: planted")
      expect([...(finding?.input ?? [])].slice(0, 3)).toEqual([0x7b, 0xe1, 0x35])
      // Blind mutation needs millions of runs.
      expect(runs).toBeLessThan(500_000)
    })

  it("measures only the chosen modules of a bundle", () => {
    const bundle = "banner\n// node_modules/a/index.js\nlibrary()\n// packages/b/src/B.ts\nours()\n"
    const isOurs = Coverage.modulesOf(bundle, (path) => path.startsWith("packages/"))
    const chosen = ["banner", "library", "ours"].filter((word) => isOurs(bundle.indexOf(word)))
    expect(chosen).toEqual(["ours"])
  })

  it("mutations follow from their seed and respect the limit", () => {
    const inputs = (seed: number) => {
      const random = dice(seed)
      return Array.from({ length: 50 }, () => mutate(Buffer.from("abcdef"), random, [Buffer.from("xyz")], 32))
    }
    expect(inputs(1)).toEqual(inputs(1))
    expect(inputs(1)).not.toEqual(inputs(2))
    expect(inputs(3).every((input) => input.length <= 32)).toBe(true)
  })

  it("the names of the targets are those that exist", () => {
    expect(names.toSorted()).toEqual(Object.keys(targets).toSorted())
  })
})
