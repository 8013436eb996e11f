import { existsSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import { exitCodes } from "../src/internal/Failure.js"
import * as Template from "../src/internal/Template.js"
import * as Command from "./support/Command.ts"
import { leaves } from "./support/Leaves.ts"

const page = readFileSync(new URL("../../../docs/cli.md", import.meta.url), "utf8")
const manifest = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8"))

describe("docs/cli.md", () => {
  it("names every command and every exit code", () => {
    expect(leaves.filter((name) => !page.includes(`\`${name}`))).toEqual([])
    const codes = [...page.matchAll(/^\| (\d+) +\|/gm)].map(([, code]) => Number(code))
    expect(codes).toEqual(Object.values(exitCodes))
  })
})

describe("init", () => {
  it("a project uses the versions that the packages accept", () => {
    expect(manifest.peerDependencies).toMatchObject(Template.versions)
    expect(["My Project", ".x", "@@"].map(Template.nameOf)).toEqual(["my-project", "x", "project"])
  })

  it.live("files are written once, and replaced only after a yes", () =>
    Effect.gen(function* () {
      const directory = yield* Command.directory
      const run = (line: string, shell: Command.Options["shell"] = {}) =>
        Command.run(line.split(" "), { directory, shell })
      const first = yield* run("init sailor")
      expect([first.exitCode, first.stdout]).toEqual([0, expect.stringMatching(/cd sailor\n {2}npm install/)])
      for (const file of Template.files("sailor", "0.1.0").keys())
        expect([file, existsSync(join(directory, "sailor", file))]).toEqual([file, true])
      const config = join(directory, "sailor", "sft.yaml")
      writeFileSync(config, "mine")
      const again = yield* run("init sailor")
      expect([again.exitCode, again.stderr]).toEqual([1, expect.stringContaining("-y to overwrite")])
      const declined = yield* run("init sailor", { isInteractive: true, line: Effect.succeedSome("n") })
      expect([declined.exitCode, readFileSync(config, "utf8")]).toEqual([1, "mine"])
      expect((yield* run("-f json init sailor -y")).stdout.split("\n")[0]).toBe('{"file": "sailor/package.json"}')
      expect(readFileSync(config, "utf8")).toContain("data/train.jsonl")
    }).pipe(Effect.scoped),
  )
})
