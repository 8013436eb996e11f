import { execFile, execFileSync } from "node:child_process"
import { fileURLToPath } from "node:url"
import { promisify } from "node:util"
import { describe, expect, it } from "@effect/vitest"
import { Effect, FastCheck as fc } from "effect"
import { Progress, type RunEvent } from "@effect-tinker/recipes"
import * as Events from "./support/Events.ts"

const after = (...events: ReadonlyArray<RunEvent.RunEvent>) => events.reduce(Progress.update, Progress.empty)

const rows = (count: number, steps?: number) =>
  Array.from({ length: count }, (_, i) =>
    Events.step(
      i,
      { train_mean_nll: 1 / (i + 1), num_tokens: 1000, "cost/usd": (i + 1) / 100 },
      steps === undefined ? {} : { steps },
    ),
  )

/** Returns the text that a person sees: without escape sequences. */
// oxlint-disable-next-line no-control-regex
const visible = (text: string) => text.replaceAll(/\u001B\[[0-9;]*[A-Za-z]/g, "")

const shown = (events: ReadonlyArray<RunEvent.RunEvent>, output: Partial<Progress.Output>) =>
  Effect.gen(function* () {
    const written: Array<string> = []
    yield* Effect.scoped(
      Effect.flatMap(
        Progress.make({
          write: (text) => void written.push(text),
          isTerminal: true,
          columns: () => 80,
          color: false,
          ...output,
        }),
        ({ log }) => Effect.forEach(events, log),
      ),
    )
    return written
  })

describe("Progress", () => {
  it("Progress.format shows step, loss, speed, remaining time and cost", () => {
    expect(Progress.format(after(...rows(10, 40)), { width: 100, color: false })).toBe(
      "███░░░░░░░ 10/40  train_mean_nll 0.1  500 tokens/s  1m 0s left  $0.1000",
    )
  })

  it("Progress.format manages without a total, without metrics, and after the end", () => {
    expect(Progress.format(Progress.empty, { width: 80, color: false })).toBe("step 0")
    expect(Progress.format(after(...rows(2)), { width: 80, color: false })).toBe(
      "step 2  train_mean_nll 0.5  500 tokens/s  $0.0200",
    )
    expect(Progress.format(after(...rows(3, 3), Events.warning, Events.done), { width: 100, color: false })).toBe(
      "██████████ 3/3  train_mean_nll 0.3333  500 tokens/s  complete  $0.0300  1 warning",
    )
  })

  it("colors are escape sequences around the same text", () => {
    const progress = after(...rows(10, 40))
    const colored = Progress.format(progress, { width: 100, color: true })
    expect(colored).not.toBe(visible(colored))
    expect(visible(colored)).toBe(Progress.format(progress, { width: 100, color: false }))
  })

  it("speed covers the newest steps only", () => {
    const slow = rows(30, 60)
    const fast = Array.from({ length: 21 }, (_, i) =>
      Events.step(30 + i, { num_tokens: 1000 }, { steps: 60, at: Events.start + 60_000 + i * 100 }),
    )
    expect(Progress.speed(after(...slow, ...fast))).toEqual({ tokensPerSecond: 10_000, remaining: 900 })
    expect(Progress.speed(after(Events.step(0)))).toEqual({ tokensPerSecond: undefined, remaining: undefined })
  })

  it("a line is never wider than the terminal, whatever the numbers", () => {
    const metrics = fc.dictionary(
      fc.constantFrom("train_mean_nll", "num_tokens", "cost/usd", "reward/total"),
      fc.double(),
    )
    const events = fc.array(
      fc.record({ step: fc.nat(1e6), steps: fc.option(fc.nat(1e6), { nil: undefined }), metrics, at: fc.nat(1e9) }),
    )
    fc.assert(
      fc.property(events, fc.integer({ min: 1, max: 120 }), (steps, width) => {
        const progress = after(...steps.map((one) => ({ _tag: "Step" as const, ...one })))
        expect([...Progress.format(progress, { width, color: false })].length).toBeLessThanOrEqual(width)
      }),
    )
  })

  it.effect("a pipe gets one line per event", () =>
    Effect.gen(function* () {
      const written = yield* shown(Events.one, { isTerminal: false })
      expect(written.length).toBe(6)
      expect(written.every((line) => line.endsWith("\n") && line === visible(line) && !line.includes("\r"))).toBe(true)
    }),
  )

  it.effect("a terminal gets one line that is redrawn at most ten times a second, and lines that stay", () =>
    Effect.gen(function* () {
      const steps = Array.from({ length: 100 }, (_, i) => Events.step(i, {}, { steps: 100, at: Events.start + i * 10 }))
      const written = yield* shown([...steps, Events.warning, Events.done], {})
      expect(written.slice(0, -1).every((text) => text.startsWith("\r\u001B[K"))).toBe(true)
      expect(written.filter((text) => text.includes("/100")).length).toBe(13)
      expect(written.filter((text) => text.endsWith("\n")).map((text) => visible(text).trim())).toEqual([
        "warning rows_skipped at step 1: 3 rows of data.jsonl are too long [2J",
        "complete after 3 steps",
        "",
      ])
    }),
  )

  describe("on a real terminal", () => {
    const program = fileURLToPath(new URL("./support/terminal.ts", import.meta.url))
    const script = () => {
      try {
        execFileSync("script", ["--version"])
      } catch {
        throw new Error("this test needs the command `script` (package bsdutils or util-linux)")
      }
    }
    const inTerminal = async (columns: number, environment: string) => {
      script()
      const command = `stty cols ${columns}; ${environment} exec ${process.execPath} --import tsx ${program}`
      const root = fileURLToPath(new URL("../../..", import.meta.url))
      const { stdout } = await promisify(execFile)("script", ["-qec", command, "/dev/null"], {
        cwd: root,
        env: { PATH: process.env["PATH"], TERM: "xterm-256color", SHELL: "/bin/sh" },
      })
      return stdout
    }

    it("progress fits the terminal, is colored, and respects NO_COLOR", async () => {
      const linesOf = (output: string) =>
        visible(output)
          .split(/[\r\n]+/)
          .filter((line) => line !== "")
      // The second one is a terminal whose size was never set.
      const [narrow, wide] = await Promise.all([inTerminal(44, "NO_COLOR=1"), inTerminal(0, "")])
      expect(wide).toContain("\u001B[32m")
      expect(linesOf(wide).at(-1)).toBe("██████████ 3/3  train_mean_nll 0.6667  2048 tokens/s  complete  $0.0300")
      expect(linesOf(narrow).at(-1)).toBe("3/3  train_mean_nll 0.6667  complete")
      expect(linesOf(narrow).every((line) => line.length < 44)).toBe(true)
      expect(narrow).toContain("\u001B[K")
      expect(visible(narrow.replaceAll("\u001B[K", ""))).toBe(narrow.replaceAll("\u001B[K", ""))
    })
  })
})
