import { readdirSync, readFileSync } from "node:fs"
import { availableParallelism } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { configDefaults, defineConfig } from "vitest/config"

const root = fileURLToPath(new URL(".", import.meta.url))

/** `test` runs every file, some of them in a short form; `test:all` runs those again, in full. */
const isFull = process.env["TINKER_TESTS"] === "all"

/** A file that has a short form asks which form is wanted. */
const hasShortForm = (file: string) => readFileSync(join(root, file), "utf8").includes('process.env["TINKER_TESTS"]')

/** Each of these needs a thread of its own: they replace a module, measure the heap, or look at what a module keeps. */
const isolated: Readonly<Record<string, ReadonlyArray<string>>> = {
  "packages/tinker": ["ChatMemory", "Lazy", "PagesMemory", "RequestBuffers"].map((name) => `test/${name}.test.ts`),
  "packages/recipes": ["LongRun", "TableMemory"].map((name) => `test/${name}.test.ts`),
}

const testsIn = (directory: string) =>
  readdirSync(join(root, directory, "test"), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".test.ts"))
    .map((name) => `test/${name}`)

const project = (name: string, directory: string, isIsolated: boolean) => {
  const alone = isolated[directory] ?? []
  const shortened = testsIn(directory).filter(
    (file) => hasShortForm(join(directory, file)) && alone.includes(file) === isIsolated,
  )
  if (isFull && shortened.length === 0) return []
  return [
    {
      test: {
        name,
        root: directory,
        include: isFull ? shortened : isIsolated ? [...alone] : ["test/**/*.test.ts"],
        exclude: [...configDefaults.exclude, ...(isIsolated ? [] : alone)],
        // Vitest asks the pool, not the project: files in forks share a process and its modules, those in threads don't.
        pool: isIsolated ? ("threads" as const) : ("forks" as const),
        setupFiles: [join(root, "test/setup.ts")],
        sequence: { concurrent: true },
        // A busy machine is no reason to fail: nothing here measures time.
        testTimeout: isFull ? 600_000 : 120_000,
      },
    },
  ]
}

export default defineConfig({
  test: {
    maxWorkers: availableParallelism(),
    poolOptions: { forks: { isolate: false }, threads: { isolate: true, minThreads: 1, maxThreads: 1 } },
    projects: [
      ...project("workspace", ".", false),
      ...project("tinker", "packages/tinker", false),
      ...project("tinker, isolated", "packages/tinker", true),
      ...project("node", "packages/node", false),
      ...project("tokenizer", "packages/tokenizer", false),
      ...project("engine", "packages/engine", false),
      ...project("server", "packages/server", false),
      ...project("recipes", "packages/recipes", false),
      ...project("recipes, isolated", "packages/recipes", true),
      ...project("cli", "packages/cli", false),
    ],
  },
})
