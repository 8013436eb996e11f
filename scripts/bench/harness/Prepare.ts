/** Prepares everything that the drivers need, and rebuilds only what changed. */
import { execFileSync, spawnSync } from "node:child_process"
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { createRequire } from "node:module"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { install, link, root } from "../../published.ts"
import type { Driver } from "./Workloads.ts"

const here = fileURLToPath(new URL(".", import.meta.url))

/** Output directory, ignored by git: results, profiles, and builds. */
export const output: string = join(root, "bench")
const work = join(output, "work")

interface Esbuild {
  readonly buildSync: (options: Readonly<Record<string, unknown>>) => unknown
}

/** Bundles a program into one file, like services and command-line tools that must start fast. */
export const bundle = (from: string, to: string): void => {
  // The version that `tsx` uses.
  const { buildSync }: Esbuild = createRequire(createRequire(import.meta.url).resolve("tsx/package.json"))("esbuild")
  buildSync({
    entryPoints: [from],
    outfile: to,
    bundle: true,
    minify: true,
    platform: "node",
    format: "esm",
    logLevel: "error",
    // CommonJS dependencies need `require`.
    banner: { js: 'import{createRequire}from"node:module";const require=createRequire(import.meta.url);' },
  })
}

export interface Prepared {
  readonly server: string
  /** The directory in which the packages are installed. */
  readonly app: string
  readonly drivers: Readonly<Record<Driver, ReadonlyArray<string>>>
  readonly versions: Readonly<Record<string, string>>
}

/** A problem that only the user can fix. */
export class Missing extends Error {}

const answer = (command: string, args: ReadonlyArray<string>): string | undefined => {
  const { error, status, stdout } = spawnSync(command, args, { encoding: "utf8" })
  return error === undefined && status === 0 ? stdout.trim() : undefined
}

const needGo = (): string => {
  const version = answer("go", ["env", "GOVERSION"])
  const [major = 0, minor = 0] = (/^go(\d+)\.(\d+)/.exec(version ?? "") ?? []).slice(1).map(Number)
  if (version === undefined || major < 1 || (major === 1 && minor < 24)) {
    throw new Missing(
      `the mock server needs Go 1.24 or newer, but ${version === undefined ? "`go` was not found" : `found ${version}`}: ` +
        "install it from https://go.dev/dl and put it on the PATH",
    )
  }
  return version.slice(2)
}

const pythons = ["python3.11", "python3", "python"]
const needPython = (): { readonly command: string; readonly version: string } => {
  for (const command of pythons) {
    const version = answer(command, ["-c", "import platform, venv; print(platform.python_version())"])
    if (version?.startsWith("3.11.") === true) return { command, version }
  }
  throw new Missing(
    "the official SDK needs Python 3.11 with venv, which was not found: " +
      `install it (e.g. \`uv python install 3.11\`, or your system's python3.11 and python3.11-venv) as one of ${pythons.join(", ")}`,
  )
}

/** Builds a directory unless it was already built for the same key. */
const once = (folder: string, key: string, make: () => void) => {
  const stamp = join(work, `${folder}.stamp`)
  if (existsSync(stamp) && existsSync(join(work, folder)) && readFileSync(stamp, "utf8") === key) return
  rmSync(join(work, folder), { recursive: true, force: true })
  make()
  writeFileSync(stamp, key)
}

const versionOf = (folder: string): string =>
  JSON.parse(readFileSync(join(folder, "package.json"), "utf8")).version as string

export const prepare = (tell: (doing: string) => void): Prepared => {
  const go = needGo()
  const python = needPython()
  mkdirSync(work, { recursive: true })

  tell("building the mock server")
  const server = join(work, "mockserver")
  execFileSync("go", ["build", "-o", server, "."], {
    cwd: join(here, "mockserver"),
    env: { ...process.env, CGO_ENABLED: "0" },
    stdio: ["ignore", "inherit", "inherit"],
  })

  const requirements = join(here, "drivers/requirements.txt")
  const venv = join(work, "venv")
  const peer = join(venv, "bin/python")
  once("venv", `${python.version}\n${readFileSync(requirements, "utf8")}`, () => {
    tell("installing the official SDK into a virtual environment")
    execFileSync(python.command, ["-m", "venv", venv])
    execFileSync(peer, ["-m", "pip", "install", "--quiet", "--requirement", requirements], { stdio: "inherit" })
  })

  tell("building and packing this SDK")
  execFileSync("pnpm", ["build"], { cwd: root, stdio: ["ignore", "ignore", "inherit"] })
  const app = join(work, "app")
  const modules = join(app, "node_modules")
  rmSync(app, { recursive: true, force: true })
  mkdirSync(modules, { recursive: true })
  install(modules)
  link(modules, "undici", join(root, "packages/node"))
  writeFileSync(join(app, "package.json"), JSON.stringify({ private: true, type: "module" }))
  const drivers = join(here, "drivers")
  for (const file of readdirSync(drivers)) copyFileSync(join(drivers, file), join(app, file))
  bundle(join(app, "ours.mjs"), join(app, "ours.bundled.mjs"))

  const pip = JSON.parse(answer(peer, ["-m", "pip", "list", "--format=json"]) ?? "[]") as ReadonlyArray<{
    readonly name: string
    readonly version: string
  }>
  const peerVersions = Object.fromEntries(pip.map(({ name, version }) => [name, version]))
  const node = [process.execPath, "--expose-gc"]
  return {
    server,
    app,
    drivers: {
      peer: [peer, join(app, "peer.py")],
      ours: [...node, join(app, "ours.mjs")],
      limit: [...node, join(app, "limit.mjs")],
    },
    versions: {
      "effect-tinker": versionOf(join(modules, "effect-tinker")),
      effect: versionOf(join(modules, "effect")),
      undici: versionOf(join(modules, "undici")),
      Node: process.versions.node,
      "tinker (Python)": peerVersions["tinker"] ?? "?",
      pyqwest: peerVersions["pyqwest"] ?? "?",
      httpx: peerVersions["httpx"] ?? "?",
      pydantic: peerVersions["pydantic"] ?? "?",
      protobuf: peerVersions["protobuf"] ?? "?",
      numpy: peerVersions["numpy"] ?? "?",
      Python: python.version,
      Go: go,
    },
  }
}
