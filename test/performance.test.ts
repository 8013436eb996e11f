import { readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { describe, expect, it } from "@effect/vitest"
import { page, scalePlot } from "../scripts/bench/harness/Page.ts"
import { judge, type Row } from "../scripts/bench/harness/Results.ts"

const read = (file: string) => readFileSync(fileURLToPath(new URL(`../docs/${file}`, import.meta.url)), "utf8")

describe("performance page", () => {
  const results = JSON.parse(read("performance.json"))

  it("docs/performance.md matches performance.json", () => {
    expect(read("performance.md"), "run pnpm bench --docs").toBe(page(results))
    expect(read("images/scale.svg")).toBe(scalePlot(results))
  })

  it("the performance page has flame graphs", () => {
    for (const name of ["flame-w1", "flame-w2"]) {
      const picture = read(`images/${name}.svg`)
      expect(picture).toContain("effect-tinker")
      expect(picture.match(/<rect/g)?.length ?? 0).toBeGreaterThan(100)
    }
  })
})

describe("benchmark gates", () => {
  const row = (values: Partial<Row>): Row => ({
    workload: "W1-c64",
    metric: "cpu_ms_per_sample",
    better: "lower",
    peer: 6,
    ours: 1,
    limit: 1,
    ours_vs_peer: 6,
    ours_to_limit: 1,
    range: null,
    ...values,
  })
  const met = (values: Partial<Row>) => judge([row(values)]).map(({ ok }) => ok)

  it("judge misses a gate if its value is out of range or was not measured", () => {
    expect(met({})).toEqual([true])
    expect(met({ ours_vs_peer: 5.99 })).toEqual([false])
    expect(met({ ours_to_limit: 1.51 })).toEqual([false])
    expect(met({ ours_vs_peer: null })).toEqual([false])
    expect(met({ workload: "W6", metric: "kb_per_future", ours: 51 })).toEqual([false])
    const memory = { workload: "W2-list", metric: "peak_delta_mb", ours_vs_peer: null }
    expect(met({ ...memory, ours: 0 })).toEqual([true])
    expect(met({ ...memory, ours: 0, peer: null })).toEqual([false])
    expect(met({ ...memory, ours: 0, peer: 0 })).toEqual([false])
  })
})
