/** The packages that are installed, from pnpm. */
import { spawnSync } from "node:child_process"
import { readFileSync } from "node:fs"
import { join } from "node:path"
import { Effect, Schema } from "effect"

const Listed = Schema.parseJson(
  Schema.Record({
    key: Schema.String,
    value: Schema.Array(
      Schema.Struct({
        name: Schema.String,
        versions: Schema.Array(Schema.String),
        paths: Schema.Array(Schema.String),
        license: Schema.String,
      }),
    ),
  }),
)

export interface Installed {
  readonly name: string
  readonly version: string
  readonly license: string
  readonly path: string
}

/** Runs pnpm and returns its exit code and output. */
export const pnpm = (...args: ReadonlyArray<string>) =>
  Effect.sync(() => {
    const { status, stderr, stdout } = spawnSync("pnpm", args, { encoding: "utf8", maxBuffer: 2 ** 28 })
    return { status, stdout, stderr }
  })

/** Lists every installed package, direct or not. */
export const list = Effect.gen(function* () {
  const { stdout } = yield* pnpm("licenses", "list", "--json")
  const listed = yield* Schema.decode(Listed)(stdout)
  return Object.values(listed)
    .flat()
    .flatMap(({ license, name, paths, versions }) =>
      versions.map((version, index): Installed => ({ name, version, license, path: paths[index] ?? "" })),
    )
    .toSorted((a, b) => (a.name < b.name ? -1 : 1))
})

const hooks = ["preinstall", "install", "postinstall"]

/** Whether a package would run code when it is installed. */
export const hasInstallScript = ({ path }: Installed): boolean => {
  try {
    const { scripts = {} } = JSON.parse(readFileSync(join(path, "package.json"), "utf8"))
    return hooks.some((hook) => hook in scripts)
  } catch {
    return false
  }
}
