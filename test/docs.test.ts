import { existsSync, readdirSync, readFileSync } from "node:fs"
import { dirname, join, resolve } from "node:path"
import { describe, expect, it } from "@effect/vitest"
import ts from "typescript"
import { root, typeErrors } from "./support/TypeErrors.ts"

const pages = [
  "README.md",
  "CONTRIBUTING.md",
  "CHANGELOG.md",
  ...readdirSync(join(root, "docs"), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".md"))
    .map((name) => join("docs", name)),
]
const read = (page: string) => readFileSync(join(root, page), "utf8")

/** Every TypeScript block of a page, as a separate file next to the page. */
const examples = pages.flatMap((page) =>
  [...read(page).matchAll(/^```ts\n([^]*?)^```$/gm)].map((match, i) => ({
    name: join(root, `${page.replaceAll(/[^\w]/g, "_")}_${i}.ts`),
    text: match[1] ?? "",
  })),
)

/** Checking the types takes several seconds, so only `test:all` does it. */
const isFull = process.env["TINKER_TESTS"] === "all"

describe("documentation", () => {
  it("examples in the documentation are valid TypeScript", () => {
    const problems = examples.flatMap(({ name, text }) =>
      (ts.transpileModule(text, { fileName: name, reportDiagnostics: true }).diagnostics ?? []).map(
        ({ messageText }) => `${name}: ${ts.flattenDiagnosticMessageText(messageText, "\n")}`,
      ),
    )
    expect(examples.length).toBeGreaterThan(3)
    expect(problems).toEqual([])
  })

  if (isFull) {
    it("examples in the documentation compile", () => {
      expect(examples.length).toBeGreaterThan(3)
      expect(typeErrors(examples)).toEqual([])
    })
  }

  it("relative links in the documentation point to existing files", () => {
    const dead = pages.flatMap((page) =>
      [...read(page).matchAll(/\]\((?!https?:)([^)#]+)\)/g)]
        .map((match) => match[1] ?? "")
        .filter((link) => !existsSync(resolve(root, dirname(page), link)))
        .map((link) => `${page}: ${link}`),
    )
    expect(dead).toEqual([])
  })

  it("README.md names the demo and test commands correctly", () => {
    const { packageManager, scripts } = JSON.parse(read("package.json"))
    const blocks = [...read("README.md").matchAll(/^```sh\n([^]*?)^```$/gm)].map(([, text = ""]) =>
      text.trim().split("\n"),
    )
    expect(blocks).toContainEqual(["demo", "test"].map((command) => `npx -y ${packageManager} ${command}`))
    for (const command of ["demo", "test"]) {
      expect(scripts).toHaveProperty(command)
    }
  })
})
