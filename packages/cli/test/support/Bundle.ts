/** Bundles the command with the server and the engine, because loading all their modules takes seconds. */
import { mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { createRequire } from "node:module"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"
import { build, type Plugin } from "esbuild"

const packages = fileURLToPath(new URL("../../../", import.meta.url))

/** Leaves packages with native code or data where they are installed. */
const installed: Plugin = {
  name: "installed",
  setup: ({ onResolve }) =>
    onResolve({ filter: /^(libsql|tokenizers|@hpcc-js\/wasm-zstd)$/ }, ({ importer, path }) => ({
      path: createRequire(importer).resolve(path),
      external: true,
    })),
}

const make = async (): Promise<string> => {
  const directory = mkdtempSync(join(tmpdir(), "tinkerfx-bundle-"))
  process.once("exit", () => rmSync(directory, { recursive: true, force: true }))
  const outdir = join(directory, "dist")
  mkdirSync(outdir)
  writeFileSync(join(directory, "package.json"), '{ "type": "module" }\n')
  // The engine finds its models by their place relative to its own.
  for (const name of readdirSync(join(packages, "engine")))
    if (name.startsWith("model")) symlinkSync(join(packages, "engine", name), join(directory, name))
  await build({
    entryPoints: {
      tinkerfx: join(packages, "cli/src/internal/bin.ts"),
      DieAt: join(dirname(fileURLToPath(import.meta.url)), "DieAt.ts"),
      // The server starts these two on a thread, by their places relative to its own.
      EngineBackend: join(packages, "server/src/EngineBackend.ts"),
      "internal/WorkerMain": join(packages, "server/src/internal/WorkerMain.ts"),
    },
    outdir,
    bundle: true,
    platform: "node",
    format: "esm",
    target: "node20",
    logLevel: "warning",
    plugins: [installed],
    // For CommonJS dependencies.
    banner: {
      js: 'import { createRequire as requireFrom } from "node:module"; const require = requireFrom(import.meta.url);',
    },
  })
  return outdir
}

let made: Promise<string> | undefined

/** Returns the directory of the bundle, which is built once per test process. */
export const directory = (): Promise<string> => (made ??= make())
