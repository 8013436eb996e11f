/** Checks what is installed: `pnpm faults:supply --help`. */
import { readFileSync } from "node:fs"
import { writeFile } from "node:fs/promises"
import { fileURLToPath } from "node:url"
import * as Arguments from "./lab/Arguments.ts"
import { version } from "effect-tinker/protocol/Version"
import { Console, Effect } from "effect"
import * as Command from "./lab/Command.ts"
import * as Results from "./results/Results.ts"
import * as Packages from "./supply/Packages.ts"
import { cycloneDx } from "./supply/Sbom.ts"

const help = `Usage: pnpm faults:supply [options]

Checks that the lockfile is complete, that no package runs code when it is installed, that all licences are permissive,
and that no package has a known vulnerability.

Options:
  --sbom FILE      write a bill of materials (CycloneDX JSON)
  --record         add the results to docs/reliability.json
  -h, --help       show this help

The exit code is 1 if a check fails.`

interface Check {
  readonly name: string
  readonly promise: string
  readonly outcome: string
  readonly failed: boolean
}

const root = fileURLToPath(new URL("../../", import.meta.url))

const lockfile = Effect.map(
  Packages.pnpm("install", "--frozen-lockfile", "--prefer-offline"),
  ({ status, stderr }): Check => {
    const names = /https?:\/\/|tarball:/.test(readFileSync(`${root}pnpm-lock.yaml`, "utf8"))
    const failed = status !== 0 || names
    return {
      name: "lockfile",
      promise: "The lockfile fixes every version, and names no hosts.",
      outcome: failed ? `failed: ${names ? "it names hosts" : stderr.slice(-300)}` : "complete",
      failed,
    }
  },
)

/** Packages whose install scripts are switched off by name; all others would stop the installation. */
const refused = (): ReadonlyArray<string> => {
  const text = readFileSync(`${root}pnpm-workspace.yaml`, "utf8")
  const [, block = ""] = /^allowBuilds:\n((?: {2}.*\n)*)/m.exec(text) ?? []
  return [...block.matchAll(/^ {2}"?([^":\n]+)"?: false$/gm)].map(([, name = ""]) => name)
}

const scripts = (packages: ReadonlyArray<Packages.Installed>): Check => {
  const off = refused()
  const running = packages.filter((one) => Packages.hasInstallScript(one) && !off.includes(one.name))
  return {
    name: "install scripts",
    promise: "No package runs code when it is installed.",
    outcome:
      running.length === 0
        ? `none of ${packages.length} packages does (switched off: ${off.join(", ")})`
        : `failed: ${running.map(({ name }) => name).join(", ")}`,
    failed: running.length > 0,
  }
}

const permissive =
  /^\(?(?:MIT|MIT-0|Apache-2\.0|BSD-[23]-Clause|ISC|0BSD|CC0-1\.0|BlueOak-1\.0\.0|Unlicense|Python-2\.0)\b/

const licences = (packages: ReadonlyArray<Packages.Installed>): Check => {
  const counts = new Map<string, number>()
  for (const { license } of packages) counts.set(license, (counts.get(license) ?? 0) + 1)
  const other = packages.filter(({ license }) => !permissive.test(license))
  return {
    name: "licences",
    promise: "All licences are permissive.",
    outcome:
      other.length === 0
        ? [...counts].map(([license, count]) => `${license} ${count}`).join(", ")
        : `failed: ${other.map(({ license, name }) => `${name} (${license})`).join(", ")}`,
    failed: other.length > 0,
  }
}

const audit = Effect.map(Packages.pnpm("audit", "--json"), ({ status, stdout }): Check => {
  const isUnavailable = stdout.includes("ERR_PNPM_AUDIT")
  return {
    name: "vulnerabilities",
    promise: "No package has a known vulnerability.",
    outcome: isUnavailable
      ? "not checked: the registry has no audit endpoint"
      : status === 0
        ? "none"
        : `failed: ${stdout.slice(0, 500)}`,
    failed: !isUnavailable && status !== 0,
  }
})

const main = Effect.gen(function* () {
  const flags = yield* Arguments.parse(process.argv.slice(2), {
    sbom: { type: "string" },
    record: { type: "boolean" },
    help: { type: "boolean", short: "h" },
  })
  if (flags["help"] !== undefined) return yield* Console.log(help)
  const packages = yield* Packages.list
  const checks = [yield* lockfile, scripts(packages), licences(packages), yield* audit]
  for (const { name, outcome } of checks) yield* Console.log(`${name}: ${outcome}`)
  const sbom = Arguments.text(flags, "sbom")
  if (sbom !== undefined) yield* Effect.promise(() => writeFile(sbom, cycloneDx(packages, version)))
  if (flags["record"] !== undefined)
    yield* Effect.forEach(
      checks,
      ({ name, outcome, promise }) =>
        Results.add({
          id: `supply ${name}`,
          promise,
          tried: `${packages.length} packages`,
          outcome,
          command: "pnpm faults:supply",
        }),
      { discard: true },
    )
  if (checks.some(({ failed }) => failed)) yield* Effect.sync(() => (process.exitCode = 1))
})

Command.run(help, main)
