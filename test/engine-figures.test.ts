import { readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { describe, expect, it } from "@effect/vitest"
import { curves, type EngineFigures, inPage } from "../scripts/bench/harness/EnginePage.ts"

const read = (file: string) => readFileSync(fileURLToPath(new URL(`../docs/${file}`, import.meta.url)), "utf8")

describe("engine figures", () => {
  const figures: EngineFigures = JSON.parse(read("engine.json"))

  it("docs/engine.md matches engine.json", () => {
    expect(read("engine.md"), "run scripts/bench/engine.ts --docs").toBe(inPage(read("engine.md"), figures))
    expect(read("images/engine-loss.svg")).toBe(curves(figures))
  })

  it("engine and torch learn with the same losses", () => {
    const { demo, scratch } = figures
    for (const losses of [demo.losses, scratch.losses, scratch.torch])
      expect(losses.at(-1)).toBeLessThan(losses[0]! / 20)
    expect(scratch.losses.length).toBe(scratch.torch.length)
    for (const [i, loss] of scratch.losses.entries()) expect(Math.abs(loss - scratch.torch[i]!)).toBeLessThan(1e-3)
  })

  it("inPage requires markers in the page", () => {
    expect(() => inPage("# A page without markers", figures)).toThrow(/no markers/)
  })
})
