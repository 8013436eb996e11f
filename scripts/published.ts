/** Installs the packages as a user would: packed, unpacked, and next to their dependencies. */
import { execFileSync } from "node:child_process"
import { mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync } from "node:fs"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"

export const root = fileURLToPath(new URL("..", import.meta.url))

interface Manifest {
  readonly name: string
  readonly dependencies?: Record<string, string>
  readonly peerDependencies?: Record<string, string>
}

/** Links a dependency as it is installed for one of our packages. */
export const link = (modules: string, name: string, from: string): void => {
  const target = join(modules, name)
  mkdirSync(dirname(target), { recursive: true })
  rmSync(target, { force: true })
  symlinkSync(join(from, "node_modules", name), target, "dir")
}

export interface Installed {
  readonly name: string
  /** The directory that the package was unpacked to. */
  readonly folder: string
}

/** Installs all packages into a `node_modules` directory. They must have been built. */
export const install = (modules: string): ReadonlyArray<Installed> =>
  readdirSync(join(root, "packages")).map((folder) => {
    const source = join(root, "packages", folder)
    const manifest: Manifest = JSON.parse(readFileSync(join(source, "package.json"), "utf8"))
    const target = join(modules, manifest.name)
    rmSync(target, { recursive: true, force: true })
    mkdirSync(target, { recursive: true })
    const tarball = join(modules, `${folder}.tgz`)
    execFileSync("pnpm", ["pack", "--out", tarball], { cwd: source, stdio: ["ignore", "ignore", "inherit"] })
    execFileSync("tar", ["-xzf", tarball, "-C", target, "--strip-components=1"])
    rmSync(tarball)
    const outside = Object.keys({ ...manifest.dependencies, ...manifest.peerDependencies })
    for (const name of outside) if (!name.includes("effect-tinker")) link(modules, name, source)
    return { name: manifest.name, folder: target }
  })
