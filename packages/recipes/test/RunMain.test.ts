/** Real processes, in a pipe and on a real terminal, which the command `script` of Linux (bsdutils, util-linux) provides. */
import { spawn } from "node:child_process"
import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { describe, expect, it } from "@effect/vitest"

/** Starts a process for each way to stop, instead of one on a terminal and one in a pipe. */
const isFull = process.env["TINKER_TESTS"] === "all"

const root = fileURLToPath(new URL("../../..", import.meta.url))
const program = fileURLToPath(new URL("./support/main.ts", import.meta.url))

/** Returns the text that a person sees: without escape sequences and without what was overwritten. */
const visible = (output: string) =>
  output
    // oxlint-disable-next-line no-control-regex
    .replaceAll(/\u001B\[[0-9;]*[A-Za-z]/g, "")
    // The terminal shows the key.
    .replaceAll("^C", "")
    .split(/\r?\n/)
    .map((line) => line.slice(line.lastIndexOf("\r") + 1))
    .join("\n")

interface Ended {
  readonly output: string
  readonly code: number | null
}

interface Settings {
  readonly steps: number
  /** From which step on the server never answers. */
  readonly hangsAt?: number
  /** Continues a run. */
  readonly directory?: string
}

/**
 * Runs the program and interrupts it each time when the next of the texts appears; if there are several, again and again
 * after the last one, because a signal that comes too soon does not count.
 */
const run = (
  where: "pipe" | "terminal",
  { directory, hangsAt = Infinity, steps }: Settings,
  interrupt: "SIGINT" | "SIGTERM" | "SIGHUP",
  texts: ReadonlyArray<string>,
): Promise<Ended> =>
  new Promise((resolve, reject) => {
    const own = directory ?? mkdtempSync(join(tmpdir(), "effect-tinker-main-"))
    const words = [process.execPath, "--import", "tsx", program, own, String(steps), String(hangsAt)]
    const [command = "", ...rest] =
      where === "pipe"
        ? words
        : ["script", "-qec", `stty cols 90; exec ${words.map((word) => `'${word}'`).join(" ")}`, "/dev/null"]
    const child = spawn(command, rest, {
      cwd: root,
      env: { PATH: process.env["PATH"], TERM: "xterm-256color", SHELL: "/bin/sh" },
    })
    const waiting = [...texts]
    const press = () => {
      if (where === "pipe") child.kill(interrupt)
      else if (interrupt === "SIGINT") child.stdin.write("\u0003")
      else process.kill(Number(readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, "utf8")), interrupt)
    }
    let pressing: NodeJS.Timeout | undefined
    let output = ""
    let read = 0
    const onText = (text: string) => {
      output += text
      const [next] = waiting
      const at = next === undefined ? -1 : output.indexOf(next, read)
      if (next === undefined || at < 0) return
      waiting.shift()
      read = at + next.length
      press()
      // As launchers do.
      if (texts.length === 1 && where === "pipe") child.kill("SIGINT")
      if (texts.length > 1 && waiting.length === 0 && interrupt !== "SIGHUP") pressing = setInterval(press, 100)
    }
    child.stdout.setEncoding("utf8").on("data", onText)
    child.stderr.setEncoding("utf8").on("data", onText)
    child.stdin.on("error", () => undefined)
    child.on("exit", () => clearInterval(pressing))
    child.on("error", reject).on("close", (code) => {
      if (directory === undefined) rmSync(own, { recursive: true, force: true })
      resolve({ output, code })
    })
  })

const saved = (name: string) => `tinker://sess-0001:train:0/weights/${name}`

describe("RunMain", () => {
  it("Ctrl-C on a terminal completes the steps on their way, saves them, says so, and ends with 130", async () => {
    const { code, output } = await run("terminal", { steps: 1_000 }, "SIGINT", ["checkpoint 000004"])
    const shown = visible(output).trimEnd().split("\n")
    expect(shown).toContain(
      "Stopping: steps on their way are completed and a checkpoint is saved. Press Ctrl-C again to stop at once.",
    )
    const [, steps = ""] = /^Stopped after (\d+) steps\.$/.exec(shown.at(-4) ?? "") ?? []
    expect(Number(steps)).toBeGreaterThanOrEqual(4)
    expect(shown.at(-3)).toMatch(/^ {2}Saved: all of them, tinker:\/\/sess-0001:train:0\/weights\/(rolling-)?0\d+$/)
    expect(shown.slice(-2)).toEqual(["  Not saved: nothing.", "The same command continues the run."])
    expect(code).toBe(130)
  })

  if (isFull)
    it("Ctrl-C twice on a terminal ends at once with 130 and says what was not saved", async () => {
      const { code, output } = await run("terminal", { steps: 9, hangsAt: 4 }, "SIGINT", [
        "checkpoint 000004",
        "Stopping",
      ])
      const shown = visible(output).trimEnd().split("\n")
      expect(shown.slice(-4)).toEqual([
        "Stopped at once after 4 steps.",
        `  Saved by this process: the first 4, ${saved("000004")}.`,
        "  Not saved: steps on their way, which the server has until it ends the session.",
        "The same command continues the run.",
      ])
      expect(code).toBe(130)
    })

  if (isFull)
    it("a run whose terminal is closed saves its steps, however many signals arrive", async () => {
      const texts = ["checkpoint 000004", "Stopping"]
      const { code, output } = await run("terminal", { steps: 1_000 }, "SIGHUP", texts)
      expect(visible(output)).toMatch(/\nStopped after \d+ steps\.\n {2}Saved: all of them/)
      expect(code).toBe(130)
    })

  if (isFull)
    it("a signal that the launcher of the program repeats counts once, and no line in a pipe is empty", async () => {
      const { code, output } = await run("pipe", { steps: 1_000 }, "SIGTERM", ["step 3/1000"])
      expect(output).toBe(visible(output))
      const lines = output.trimEnd().split("\n")
      expect(lines).not.toContain("")
      expect(lines.at(-5)).toMatch(/^stopped after \d+ steps$/)
      expect(lines.at(-4)).toMatch(/^Stopped after \d+ steps\.$/)
      expect(code).toBe(130)
    })

  it("SIGTERM twice in a pipe ends at once with 130", async () => {
    const { code, output } = await run("pipe", { steps: 9, hangsAt: 6 }, "SIGTERM", ["step 6/9", "Stopping"])
    expect(output.trimEnd().split("\n").slice(-4)).toEqual([
      "Stopped at once after 6 steps.",
      `  Saved by this process: the first 4, ${saved("000004")}.`,
      "  Not saved: 2 steps after that and those on their way, which the server has until it ends the session.",
      "The same command continues the run.",
    ])
    expect(code).toBe(130)
  })

  if (isFull)
    it("a run ends with 0, and a run that is complete does nothing", async () => {
      const directory = mkdtempSync(join(tmpdir(), "effect-tinker-main-"))
      const first = await run("pipe", { steps: 2, directory }, "SIGINT", [])
      expect(first.output.trimEnd().split("\n").at(-1)).toBe("complete after 2 steps")
      const second = await run("pipe", { steps: 2, directory }, "SIGINT", [])
      expect(second.output).toBe("The run was complete already; nothing to do.\n")
      expect([first.code, second.code]).toEqual([0, 0])
      rmSync(directory, { recursive: true, force: true })
    })
})
