/**
 * Checks that every recording is covered by a test. A test claims a recording by naming it in a string that starts with
 * `vectors/<file>.json` (or behaviours, vectors-0.25.0), in any `*.test.ts` of the repository. Comments do not count.
 *
 * Recordings that are not covered yet are listed in `wire/pending.json`, by file: `"<work>"` if no test names the
 * recording yet, `"<work>: <what is left>"` if tests replay a part of it. A file is done when it is claimed and not
 * pending, and the list can only get shorter.
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

/** Lower these numbers as the list gets shorter; never raise them. */
const untouched = 1
const partial = 3

const works = ["clients", "management", "cli", "tokenizer", "custom loss"]
const isPartial = (reason: string) => reason.includes(": ")

describe("recorded wire material", () => {
  it("every recording is claimed by a test or pending", () => {
    expect(recorded.filter((file) => !claimed.has(file) && !(file in pending))).toEqual([])
  })

  it("claimed recordings are pending only in part", () => {
    const wrong = Object.entries(pending).filter(([file, reason]) => claimed.has(file) !== isPartial(reason))
    expect(wrong).toEqual([])
  })

  it("every claimed or pending recording exists", () => {
    expect([...claimed, ...Object.keys(pending)].filter((file) => !recorded.includes(file))).toEqual([])
  })

  it("pending recordings name a known work area, and their number does not grow", () => {
    const reasons = Object.values(pending)
    expect(reasons.filter((reason) => !works.includes(reason.replace(/: .*/, "")))).toEqual([])
    expect(reasons.filter((reason) => !isPartial(reason)).length).toBe(untouched)
    expect(reasons.filter(isPartial).length).toBe(partial)
  })

  it("recordings are claimed by strings, not by comments", () => {
    const source = [
      '// "vectors/a.json"',
      '/* "vectors/b.json" */',
      'const url = "https://x//vectors/c.json"',
      'run("vectors/d.json: it", `behaviours/e.json`)',
    ]
    expect(claims(source.join("\n"))).toEqual(["vectors/d.json", "behaviours/e.json"])
  })
})
