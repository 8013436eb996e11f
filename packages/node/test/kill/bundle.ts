/** Bundles a program as one JavaScript file: a process that is killed a hundred times must start fast. */
import { mkdtemp, rm } from "node:fs/promises"
import { createRequire } from "node:module"
import { tmpdir } from "node:os"
import { basename, join } from "node:path"
import { fileURLToPath } from "node:url"
import { Effect } from "effect"

interface Esbuild {
  readonly build: (options: Readonly<Record<string, unknown>>) => Promise<unknown>
}

/** The version that `tsx` uses. */
const esbuild: Esbuild = createRequire(createRequire(import.meta.url).resolve("tsx/package.json"))("esbuild")

/** A temporary directory that is removed with the scope. */
export const directory = Effect.acquireRelease(
  Effect.promise(() => mkdtemp(join(tmpdir(), "effect-tinker-"))),
  (path) => Effect.promise(() => rm(path, { recursive: true, force: true })),
)

/** Bundles programs next to this file, by name, in the current scope. */
export const bundle = (...names: ReadonlyArray<string>) =>
  Effect.gen(function* () {
    const outdir = yield* directory
    yield* Effect.promise(() =>
      esbuild.build({
        entryPoints: names.map((name) => fileURLToPath(new URL(name, import.meta.url))),
        outdir,
        outExtension: { ".js": ".mjs" },
        bundle: true,
        platform: "node",
        format: "esm",
        target: "node20",
        external: ["@hpcc-js/wasm-zstd"],
        // For CommonJS dependencies.
        banner: { js: 'import { createRequire } from "node:module"; const require = createRequire(import.meta.url);' },
      }),
    )
    return names.map((name) => join(outdir, basename(name).replace(/\.ts$/, ".mjs")))
  })
