/**
 * What a server of the table is: how it is installed, and how one is started that nobody used before.
 */
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
  /** `home` holds what is installed, `run` is an empty directory for this start. */
  readonly start: (home: Home, run: string) => Effect.Effect<Address, SetupFailed, Scope.Scope>
}

export interface Recipe {
  /** One call of pip each. */
  readonly installs: ReadonlyArray<ReadonlyArray<string>>
  /** Lines of the installed package that keep it from running here. */
  readonly patches: ReadonlyArray<Patch>
}

export interface Patch {
  /** Below the directory of installed packages. */
  readonly file: string
  readonly line: string
  readonly instead: string
}

export interface Home {
  readonly path: string
  /** Of the programs that pip installed. */
  readonly bin: string
}

/** The model's name, and its directory below the home: servers and clients find it without a hub. */
export const modelName = "tiny/qwen3"
export const apiKey = "tml-local-test-key"

/** What a server downloads and unpacks, with room for the moment at which both are there. */
const bytesNeeded = 10e9

const digest = (data: string | Uint8Array) => createHash("sha256").update(data).digest("hex")

/** Of the weights that the recorded losses belong to. */
const weightsDigest = "63e083a72a3d2ad09f5d9c2caeb16094add54782bc5f45c69e50be7576640404"

const applied = (site: string, { file, instead, line }: Patch): Effect.Effect<void, SetupFailed> =>
  Effect.suspend(() => {
    const path = join(site, file)
    const lines = readFileSync(path, "utf8").split("\n")
    const index = lines.findIndex((candidate) => candidate.trim() === line)
    if (index < 0)
      return new SetupFailed({ message: `${path} has no line "${line}": the recipe is for another version` })
    const indent = /^\s*/.exec(lines[index] ?? "")?.[0] ?? ""
    lines[index] = indent + instead
    return Effect.sync(() => writeFileSync(path, lines.join("\n")))
  })

/** Installs what is not there yet. A change of the recipe installs again. */
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
      yield* Console.log(`${server.title}: installed before, in ${path}`)
      return home
    }
    if (freeBytes < bytesNeeded) {
      const have = (freeBytes / 1e9).toFixed(1)
      return yield* new SetupFailed({
        message: `${work} has ${have} GB left; ${server.title} needs ${bytesNeeded / 1e9}`,
      })
    }
    yield* Console.log(`${server.title}: installing into ${path} (about 7 GB, some minutes) ...`)
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
      return yield* new SetupFailed({ message: `torch drew other weights than recorded: sha256 ${weights}` })
    writeFileSync(marker, recipe)
    return home
  })
