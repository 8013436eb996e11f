import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { describe, expect, it } from "@effect/vitest"
import * as Version from "effect-tinker/protocol/Version"

const root = fileURLToPath(new URL("..", import.meta.url))
const packages = readdirSync(join(root, "packages"))
/** The modules of a package without their doc comments, whose examples are programs of users. */
const sources = (name: string) =>
  readdirSync(join(root, "packages", name, "src"), { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".ts"))
    .map((file) => {
      const text = readFileSync(join(root, "packages", name, "src", file), "utf8")
      return { file, text: text.replaceAll(/^ \*.*$/gm, "") }
    })

describe("workspace", () => {
  it("all packages have the same version", () => {
    for (const name of packages) {
      const { version } = JSON.parse(readFileSync(join(root, "packages", name, "package.json"), "utf8"))
      expect(version, name).toBe(Version.version)
    }
  })

  it("the SDK does not import Node modules, and only TinkerConfig and the shell of the command read the environment", () => {
    const core = sources("tinker")
    const importsNode = core.filter(({ text }) => /from "(node:|undici|@effect\/platform-node)/.test(text))
    expect(importsNode.map(({ file }) => file)).toEqual([])
    const readsEnvironment = packages.flatMap((name) =>
      sources(name)
        .filter(({ text }) =>
          /process\.env|\{ env\b.*\} = process|from "effect\/Config"|Config\.(string|redacted)\(/.test(text),
        )
        .map(({ file }) => `${name}/${file}`),
    )
    expect(readsEnvironment).toEqual(["cli/internal/Shell.ts", "tinker/TinkerConfig.ts"])
  })

  it("library code imports modules, not barrels", () => {
    const barrels = packages.flatMap((name) =>
      sources(name)
        .filter(({ text }) => /from "(effect|@effect\/platform|effect-tinker)"/.test(text))
        .map(({ file }) => `${name}/${file}`),
    )
    expect(barrels).toEqual([])
  })

  it("every public module is exported from the index of its package, except those that few programs import", () => {
    const byPathOnly = new Map([
      ["tinker", ["Credentials.ts", "Pages.ts", "SamplerHandle.ts", "Session.ts", "Telemetry.ts", "Transport.ts"]],
    ])
    for (const name of packages) {
      const [index, modules] = [sources(name).find(({ file }) => file === "index.ts")?.text ?? "", sources(name)]
      const missing = modules
        .map(({ file }) => file)
        .filter((file) => !file.includes("/") && file !== "index.ts")
        .filter((file) => !index.includes(`"./${file}"`))
      expect(missing.toSorted(), name).toEqual(byPathOnly.get(name) ?? [])
    }
  })

  it("every test runs, and tests with a short form also run in full", () => {
    const { scripts } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"))
    expect(scripts).toMatchObject({ test: "vitest run", "test:all": "TINKER_TESTS=all vitest run" })
    const steps = readFileSync(join(root, ".ci/run"), "utf8").matchAll(/^step pnpm (\S+)$/gm)
    expect([...steps].map(([, step]) => step)).toEqual(expect.arrayContaining(["test", "test:all"]))
    // `test:all` finds the files by this; it does not look into what they import.
    const helpers = ["test", ...packages.map((name) => `packages/${name}/test`)].flatMap((folder) =>
      readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
        .filter((file) => file.endsWith(".ts") && !file.endsWith(".test.ts"))
        .filter((file) => readFileSync(join(root, folder, file), "utf8").includes("TINKER_TESTS"))
        .map((file) => `${folder}/${file}`),
    )
    expect(helpers).toEqual([])
  })
})
