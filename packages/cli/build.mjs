/**
 * Bundles the command: loading hundreds of small modules would take most of a second. What a command needs is in chunks
 * that are loaded when it runs. Commands that use the installed packages, threads and native code are not part of it.
 *
 * Usage: node build.mjs [directory] (default: dist)
 */
import { readFileSync, rmSync } from "node:fs"
import { join, resolve } from "node:path"
import { argv } from "node:process"
import { fileURLToPath } from "node:url"
import { build } from "esbuild"

const at = (path) => fileURLToPath(new URL(path, import.meta.url))
const { dependencies, peerDependencies } = JSON.parse(readFileSync(at("package.json"), "utf8"))
const installed = Object.keys({ ...dependencies, ...peerDependencies })

const outdir = resolve(argv[2] ?? at("dist"))

for (const chunks of ["chunks", "installed"]) rmSync(join(outdir, "internal", chunks), { recursive: true, force: true })

const common = {
  bundle: true,
  platform: "node",
  format: "esm",
  target: "node20.19",
  outdir,
  outbase: at("src"),
  logLevel: "warning",
}

/** Leaves the commands that use the installed packages to another build. All modules that import them are chunks. */
const apart = {
  name: "apart",
  setup: ({ onResolve }) =>
    onResolve({ filter: /\/Installed\.ts$/ }, () => ({ path: "../Installed.js", external: true })),
}

await build({
  ...common,
  entryPoints: [at("src/index.ts"), at("src/internal/bin.ts")],
  plugins: [apart],
  splitting: true,
  chunkNames: "internal/chunks/[name]-[hash]",
  minify: true,
  external: ["@huggingface/hub"],
  // Some bundled packages are CommonJS.
  banner: {
    js: 'import{createRequire as $$createRequire}from"node:module";const require=$$createRequire(import.meta.url);',
  },
})

await build({
  ...common,
  entryPoints: [at("src/internal/Installed.ts")],
  splitting: true,
  chunkNames: "internal/installed/[name]-[hash]",
  external: installed.flatMap((name) => [name, `${name}/*`]),
})
