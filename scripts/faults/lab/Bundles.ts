/** Bundles the programs of the lab, so that the hundreds of processes that it starts and kills are ready quickly. */
import { mkdir, realpath, symlink, writeFile } from "node:fs/promises"
import { createRequire } from "node:module"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"
import { Effect } from "effect"
import { directory } from "./Directory.ts"

interface Esbuild {
  readonly build: (options: Readonly<Record<string, unknown>>) => Promise<unknown>
}

/** The version that `tsx` uses. */
const esbuild: Esbuild = createRequire(createRequire(import.meta.url).resolve("tsx/package.json"))("esbuild")

const root = fileURLToPath(new URL("../../../", import.meta.url))

/** Packages with native code, and the package that depends on each. */
const natives = { libsql: "packages/server/node_modules/@libsql/client", tokenizers: "packages/tokenizer" }

const packageOf = (name: keyof typeof natives): Effect.Effect<string> =>
  Effect.promise(async () => {
    const from = await realpath(join(root, natives[name]))
    return dirname(createRequire(join(from, "package.json")).resolve(name))
  })

const link = (outdir: string) => (name: keyof typeof natives) =>
  Effect.flatMap(packageOf(name), (path) => Effect.promise(() => symlink(path, join(outdir, "node_modules", name))))

export interface Bundles {
  readonly client: string
  readonly recipe: string
  readonly server: string
  readonly load: string
  readonly fuzz: string
}

/** The directory of the model that ships with the engine. */
export const model = join(root, "packages/engine/model")

const entryPoints = {
  client: join(root, "scripts/faults/program/client.ts"),
  recipe: join(root, "scripts/faults/recipes/client.ts"),
  server: join(root, "scripts/faults/program/server.ts"),
  load: join(root, "scripts/faults/load/client.ts"),
  fuzz: join(root, "scripts/faults/fuzz/worker.ts"),
  // The server starts these two on a thread, by their places relative to its own.
  EngineBackend: join(root, "packages/server/src/EngineBackend.ts"),
  "internal/WorkerMain": join(root, "packages/server/src/internal/WorkerMain.ts"),
}

/** Bundles all programs in the current scope. */
export const make = Effect.gen(function* () {
  const outdir = yield* directory
  yield* Effect.promise(() => mkdir(join(outdir, "node_modules")))
  yield* Effect.promise(() => writeFile(join(outdir, "package.json"), '{ "type": "module" }\n'))
  yield* Effect.forEach(["libsql", "tokenizers"] as const, link(outdir), { discard: true })
  yield* Effect.promise(() =>
    esbuild.build({
      entryPoints,
      outdir,
      bundle: true,
      platform: "node",
      format: "esm",
      target: "node20",
      external: [...Object.keys(natives), "@hpcc-js/wasm-zstd"],
      // For CommonJS dependencies.
      banner: {
        js: 'import { createRequire as requireFrom } from "node:module"; const require = requireFrom(import.meta.url);',
      },
    }),
  )
  const bundles: Bundles = {
    client: join(outdir, "client.js"),
    recipe: join(outdir, "recipe.js"),
    server: join(outdir, "server.js"),
    load: join(outdir, "load.js"),
    fuzz: join(outdir, "fuzz.js"),
  }
  return bundles
})
