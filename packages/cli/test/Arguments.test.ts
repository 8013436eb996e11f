import { describe, expect, it } from "@effect/vitest"
import { Either } from "effect"
import * as Arguments from "../src/internal/Arguments.js"
import * as Commands from "../src/internal/Commands.js"
import * as Failure from "../src/internal/Failure.js"

const normalized = (line: string) => {
  const result = Arguments.normalize(Commands.tree, line.split(" "))
  return Either.isRight(result) ? result.right.args.join(" ") : Failure.report(result.left).text
}

const path = "tinker://run/weights/a"

describe("Arguments", () => {
  it("options may stand before, between and after arguments, in every notation", () => {
    const expected = `checkpoint download --output dir --force -- ${path}`
    for (const line of [
      `checkpoint download ${path} -o dir --force`,
      `checkpoint download -o dir ${path} --force`,
      `checkpoint download --output=dir --force ${path}`,
      `checkpoint download -odir --force -- ${path}`,
    ])
      expect(normalized(line)).toBe(expected)
  })

  it("options of the program may stand anywhere, also together with others", () => {
    for (const line of ["-f json run list --limit 3", "run -f json list --limit 3", "run list --limit 3 --format=json"])
      expect(normalized(line)).toBe("--format json run list --limit 3")
    expect(normalized("--verbose checkpoint delete a -y")).toBe("--verbose checkpoint delete --yes -- a")
  })

  it("what follows a double dash is an argument", () => {
    expect(normalized("run info -- --strange")).toBe("run info -- --strange")
  })

  it("a mistyped command or option is answered with the nearest known one", () => {
    expect(normalized("chekpoint list")).toContain("No such command 'chekpoint'. Did you mean 'checkpoint'?")
    expect(normalized("checkpoint lsit")).toContain("No such command 'lsit'. Did you mean 'list'?")
    expect(normalized("run list --limti 3")).toContain("No such option '--limti'. Did you mean '--limit'?")
    expect(normalized("run frobnicate")).toMatch(/No such command 'frobnicate'\.\n$/)
  })

  it("missing, superfluous and unsuitable values are refused with the usage of their command", () => {
    const usage = (line: string) =>
      `Usage: tinkerfx ${line}\nTry 'tinkerfx ${line.replace(/ \[.*/, "")} --help' for help.\n\n`
    expect(normalized("run info")).toBe(`${usage("run info [OPTIONS] RUN_ID")}Error: Missing argument 'RUN_ID'.\n`)
    expect(normalized("run info a b c")).toBe(
      `${usage("run info [OPTIONS] RUN_ID")}Error: Got unexpected extra arguments (b c)\n`,
    )
    expect(normalized("run list --limit x")).toBe(
      `${usage("run list [OPTIONS]")}Error: Invalid value for '--limit': 'x' is not a valid integer.\n`,
    )
    expect(normalized("-f xml run list")).toContain(
      "Error: Invalid value for '--format' / '-f': 'xml' is not one of 'table', 'json'.\n",
    )
    expect(normalized("run list --limit")).toBe("Error: Option '--limit' requires an argument.\n")
    expect(normalized(`checkpoint download ${path} --force=yes`)).toContain("Option '--force' does not take a value.")
  })
})
