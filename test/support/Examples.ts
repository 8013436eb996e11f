/** The `@example`s in the doc comments of the packages. */
import { readdirSync, readFileSync } from "node:fs"
import { basename, join } from "node:path"
import { root, type Source } from "./TypeErrors.ts"

export interface Example extends Source {
  /** The documented export, e.g. `Loss.crossEntropy`. */
  readonly of: string
  /** The lines that the example claims to print: the texts after `// →`. */
  readonly output: ReadonlyArray<string>
}

const modules = readdirSync(join(root, "packages")).flatMap((name) => {
  const source = join(root, "packages", name, "src")
  return readdirSync(source, { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".ts"))
    .map((file) => join(source, file))
})

const comment = /^\/\*\*\n((?: \*.*\n)*?) \*\/\n(.*)$/gm
const block = /^ \* @example\n \* ```ts\n((?: \*.*\n)*?) \* ```$/gm
const exported = /^export (?:declare )?(?:abstract )?(?:const|class|interface|type|function) (\w+)/

/** Returns the examples of one module. */
export const examplesOf = (module: string, text: string): ReadonlyArray<Example> => {
  const found = [...text.matchAll(comment)].flatMap(([, lines = "", next = ""]) =>
    [...lines.matchAll(block)].map(([, code = ""]) => ({
      export: exported.exec(next)?.[1],
      text: code.replaceAll(/^ \* ?/gm, ""),
    })),
  )
  return found.map(({ export: name, text }, i) => ({
    of: `${module}.${name ?? "module"}`,
    name: join(root, ".tsbuild", "examples", `${module}_${name ?? "module"}_${i}.ts`),
    text,
    output: [...text.matchAll(/\/\/ → (.*)$/gm)].map(([, line = ""]) => line),
  }))
}

/** Every `@example` of all packages. */
export const examples: ReadonlyArray<Example> = modules.flatMap((file) =>
  examplesOf(basename(file, ".ts"), readFileSync(file, "utf8")),
)

/** Programs in the documentation that are run like examples: the code blocks of these pages. */
export const programs: ReadonlyArray<Example> = ["recipes", "checks"].flatMap((page) =>
  [...readFileSync(join(root, "docs", `${page}.md`), "utf8").matchAll(/^```ts\n([^]*?)^```$/gm)].map(
    ([, text = ""], i) => ({
      of: `docs/${page}.md (${i + 1})`,
      name: join(root, ".tsbuild", "examples", `docs_${page}_${i}.ts`),
      text,
      output: [...text.matchAll(/\/\/ → (.*)$/gm)].map(([, line = ""]) => line),
    }),
  ),
)

/** How often `@example` occurs, to notice one that is not in the expected form. */
export const tags: number = modules.reduce(
  (sum, file) => sum + [...readFileSync(file, "utf8").matchAll(/^\s*\*\s*@example\b/gm)].length,
  0,
)
