/** Defines how a server is installed and how a fresh instance is started. */
import { Console, Effect, type Scope } from "effect"
import { createHash } from "node:crypto"
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { output, run, SetupFailed } from "./Shell.ts"

export interface Address {
  readonly baseUrl: string
  readonly apiKey: string
}

export interface Server {
  readonly name: "skyrl" | "tuft"
  readonly title: string
  readonly recipe: Recipe
  /** Starts a server. `home` contains the installation, `run` is an empty directory for this instance. */
  readonly start: (home: Home, run: string) => Effect.Effect<Address, SetupFailed, Scope.Scope>
}

export interface Recipe {
  /** The arguments of each `pip install` call. */
  readonly installs: ReadonlyArray<ReadonlyArray<string>>
  /** Replacements for lines of the installed package that do not run here. */
  readonly patches: ReadonlyArray<Patch>
}

export interface Patch {
  /** Path below the directory of installed packages. */
  readonly file: string
  readonly line: string
  readonly instead: string
}

export interface Home {
  readonly path: string
  /** The directory of the programs that pip installed. */
  readonly bin: string
}

/** The model name, and its directory below `home`: servers and clients find it without a hub. */
export const modelName = "tiny/qwen3"
export const apiKey = "tml-local-test-key"

/** Disk space for the download and the unpacked files at the same time. */
const bytesNeeded = 10e9

const digest = (data: string | Uint8Array) => createHash("sha256").update(data).digest("hex")

/** SHA-256 of the weights that the recorded losses belong to. */
const weightsDigest = "63e083a72a3d2ad09f5d9c2caeb16094add54782bc5f45c69e50be7576640404"

const applied = (site: string, { file, instead, line }: Patch): Effect.Effect<void, SetupFailed> =>
  Effect.suspend(() => {
    const path = join(site, file)
    const lines = readFileSync(path, "utf8").split("\n")
    const index = lines.findIndex((candidate) => candidate.trim() === line)
    if (index < 0)
      return new SetupFailed({ message: `${path} has no line "${line}"; the recipe is for another version` })
    const indent = /^\s*/.exec(lines[index] ?? "")?.[0] ?? ""
    lines[index] = indent + instead
    return Effect.sync(() => writeFileSync(path, lines.join("\n")))
  })

/** Installs a server unless it is already installed. A changed recipe is installed again. */
export const install = (
  server: Server,
  { freeBytes, python, work }: { readonly python: string; readonly work: string; readonly freeBytes: number },
): Effect.Effect<Home, SetupFailed> =>
  Effect.gen(function* () {
    const path = join(work, server.name)
    const home: Home = { path, bin: join(path, "venv", "bin") }
    const marker = join(path, "installed")
    const recipe = digest(JSON.stringify(server.recipe))
    if (existsSync(marker) && readFileSync(marker, "utf8") === recipe) {
      yield* Console.log(`${server.title}: already installed in ${path}`)
      return home
    }
    if (freeBytes < bytesNeeded) {
      const have = (freeBytes / 1e9).toFixed(1)
      return yield* new SetupFailed({
        message: `${work} has ${have} GB free, but ${server.title} needs ${bytesNeeded / 1e9} GB`,
      })
    }
    yield* Console.log(`${server.title}: installing into ${path} (about 7 GB, several minutes) ...`)
    mkdirSync(path, { recursive: true })
    const log = join(path, "install.log")
    const step = (command: string, ...args: ReadonlyArray<string>) => run({ command, args, cwd: path, log })
    yield* step(python, "-m", "venv", "--clear", "venv")
    for (const args of server.recipe.installs) yield* step(join(home.bin, "pip"), "install", ...args)
    const site = yield* output(join(home.bin, "python"), [
      "-c",
      "import sysconfig; print(sysconfig.get_path('purelib'))",
    ])
    for (const patch of server.recipe.patches) yield* applied(site, patch)
    yield* step(join(home.bin, "python"), fileURLToPath(new URL("tiny_model.py", import.meta.url)), modelName)
    const weights = digest(readFileSync(join(path, modelName, "model.safetensors")))
    if (weights !== weightsDigest)
      return yield* new SetupFailed({ message: `torch generated different weights than recorded: sha256 ${weights}` })
    writeFileSync(marker, recipe)
    return home
  })
