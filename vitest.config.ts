import { readdirSync, readFileSync } from "node:fs"
import { availableParallelism } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { configDefaults, defineConfig } from "vitest/config"
import { BaseSequencer, type TestSpecification } from "vitest/node"

const root = fileURLToPath(new URL(".", import.meta.url))

/** `test` runs every file, some of them in a short form; `test:all` runs those again, in full. */
const isFull = process.env["TINKER_TESTS"] === "all"

/** A file that has a short form asks which form is wanted. */
const hasShortForm = (file: string) => readFileSync(join(root, file), "utf8").includes('process.env["TINKER_TESTS"]')

/** Each of these needs a thread of its own: they replace a module, measure the heap, or look at what a module keeps. */
const isolated = [
  ...["ChatMemory", "Lazy", "PagesMemory", "RequestBuffers"].map((name) => `packages/tinker/test/${name}.test.ts`),
  ...["LongRun", "TableMemory"].map((name) => `packages/recipes/test/${name}.test.ts`),
]

/** These take longest. */
const slow = [
  "test/examples.test.ts",
  "packages/tinker/test/core/Sequence.explore.test.ts",
  "packages/cli/test/Kill.test.ts",
  "packages/cli/test/Serve.test.ts",
  "packages/recipes/test/RunMain.test.ts",
  "packages/node/test/Archive.test.ts",
  "packages/tokenizer/test/RendererGoldens.test.ts",
  "packages/tinker/test/core/Poll.explore.test.ts",
  "packages/recipes/test/Supervised.test.ts",
  "packages/server/test/LostResponse.test.ts",
]

/** Starts long files first, so that no core is idle while the last one runs. */
class LongestFirst extends BaseSequencer {
  override async sort(files: Array<TestSpecification>): Promise<Array<TestSpecification>> {
    const isSlow = ({ moduleId }: TestSpecification) => slow.some((name) => moduleId === join(root, name))
    // oxlint-disable-next-line unicorn/no-array-sort -- not that of an array
    const sorted = await super.sort(files)
    return [...sorted.filter(isSlow), ...sorted.filter((file) => !isSlow(file))]
  }
}

const tests = ["test", ...readdirSync(join(root, "packages")).map((name) => `packages/${name}/test`)].flatMap(
  (directory) =>
    readdirSync(join(root, directory), { recursive: true, encoding: "utf8" })
      .filter((name) => name.endsWith(".test.ts"))
      .map((name) => `${directory}/${name}`),
)

/** All packages share a project, because projects run one after the other. */
const project = (name: string, files: ReadonlyArray<string>, pool: "forks" | "threads") => ({
  test: {
    name,
    root,
    include: files.filter((file) => !isFull || hasShortForm(file)),
    exclude: [...configDefaults.exclude],
    // Vitest asks the pool, not the project: files in forks share a process and its modules, those in threads don't.
    pool,
    setupFiles: [join(root, "test/setup.ts")],
    sequence: { concurrent: true },
    // A busy machine is no reason to fail: nothing here measures time.
    testTimeout: isFull ? 600_000 : 120_000,
  },
})

export default defineConfig({
  test: {
    maxWorkers: availableParallelism(),
    poolOptions: { forks: { isolate: false }, threads: { isolate: true, minThreads: 1, maxThreads: 1 } },
    sequence: { sequencer: LongestFirst },
    projects: [
      project(
        "shared",
        tests.filter((file) => !isolated.includes(file)),
        "forks",
      ),
      project("isolated", isolated, "threads"),
    ],
  },
})
