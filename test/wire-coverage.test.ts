/**
 * Nothing that was recorded may be forgotten. A test claims a recording by naming it in its code: a string that
 * begins with `vectors/<file>.json` (or behaviours, vectors-0.25.0), in any `*.test.ts` of the repository. What a
 * comment says claims nothing.
 *
 * What waits for later work is in `wire/pending.json`, by file: `"<work>"` when no test names the recording yet,
 * `"<work>: <what is left>"` when tests replay a part of it. So a file is done when it is named and not pending, and
 * the list can only become shorter.
 */
import { readdirSync, readFileSync } from "node:fs"
import ts from "typescript"
import { describe, expect, it } from "vitest"

const root = new URL("../", import.meta.url)
const read = (path: string) => readFileSync(new URL(path, root), "utf8")
const list = (folder: string) => readdirSync(new URL(folder, root), { recursive: true, encoding: "utf8" })

const recorded = ["vectors", "behaviours", "vectors-0.25.0"].flatMap((folder) =>
  list(`test/wire/${folder}`).map((name) => `${folder}/${name}`),
)

const tests = ["test", ...readdirSync(new URL("packages", root)).map((name) => `packages/${name}/test`)].flatMap(
  (folder) =>
    list(folder)
      .filter((name) => name.endsWith(".test.ts") && name !== "wire-coverage.test.ts")
      .map((name) => `${folder}/${name}`),
)

const claims = (source: string): ReadonlyArray<string> => {
  const texts: Array<string> = []
  const visit = (node: ts.Node): void => {
    if (ts.isStringLiteralLike(node)) texts.push(node.text)
    ts.forEachChild(node, visit)
  }
  visit(ts.createSourceFile("test.ts", source, ts.ScriptTarget.Latest))
  return texts.flatMap((text) => /^(?:vectors|behaviours|vectors-0\.25\.0)\/[\w.-]+\.json\b/.exec(text) ?? [])
}

const claimed = new Set(tests.flatMap((path) => claims(read(path))))

const pending: Readonly<Record<string, string>> = JSON.parse(read("test/wire/pending.json"))

/** Lower these as the list gets shorter; never raise them. */
const untouched = 34
const partial = 7

const works = ["clients", "management", "cli", "tokenizer", "custom loss"]
const isPartial = (reason: string) => reason.includes(": ")

describe("recorded wire material", () => {
  it("is all claimed by a test, or waits for work that is named", () => {
    expect(recorded.filter((file) => !claimed.has(file) && !(file in pending))).toEqual([])
  })

  it("is not said to wait when it is claimed, unless for what is left of it", () => {
    const wrong = Object.entries(pending).filter(([file, reason]) => claimed.has(file) !== isPartial(reason))
    expect(wrong).toEqual([])
  })

  it("exists where it is claimed or waits", () => {
    expect([...claimed, ...Object.keys(pending)].filter((file) => !recorded.includes(file))).toEqual([])
  })

  it("waits for work that we know, and for less and less", () => {
    const reasons = Object.values(pending)
    expect(reasons.filter((reason) => !works.includes(reason.replace(/: .*/, "")))).toEqual([])
    expect(reasons.filter((reason) => !isPartial(reason)).length).toBe(untouched)
    expect(reasons.filter(isPartial).length).toBe(partial)
  })

  it("is claimed by code, not by comments", () => {
    const source = [
      '// "vectors/a.json"',
      '/* "vectors/b.json" */',
      'const url = "https://x//vectors/c.json"',
      'run("vectors/d.json: it", `behaviours/e.json`)',
    ]
    expect(claims(source.join("\n"))).toEqual(["vectors/d.json", "behaviours/e.json"])
  })
})
