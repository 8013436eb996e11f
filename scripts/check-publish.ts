/**
 * What would be published, checked as a stranger would use it: packs every package, runs publint on the tarballs,
 * unpacks them into an empty project, imports every public module, type-checks a program, and tries to reach inside.
 */
import { execFileSync, spawnSync } from "node:child_process"
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join, relative } from "node:path"
import { fileURLToPath } from "node:url"
import { publint } from "publint"
import { formatMessage } from "publint/utils"

const root = fileURLToPath(new URL("..", import.meta.url))
const work = mkdtempSync(join(tmpdir(), "check-publish-"))
const modules = join(work, "node_modules")
process.on("exit", () => rmSync(work, { recursive: true, force: true }))

interface Manifest {
  readonly name: string
  readonly dependencies?: Record<string, string>
  readonly peerDependencies?: Record<string, string>
}

const fail = (problem: string): never => {
  console.error(`check-publish: ${problem}`)
  process.exit(1)
}

const files = (folder: string): Array<string> =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(folder, join(entry.parentPath, entry.name)))

const link = (name: string, from: string) => {
  const target = join(modules, name)
  mkdirSync(dirname(target), { recursive: true })
  rmSync(target, { force: true })
  symlinkSync(join(from, "node_modules", name), target, "dir")
}

const published: Array<{ readonly name: string; readonly specifiers: ReadonlyArray<string> }> = []
for (const folder of readdirSync(join(root, "packages"))) {
  const source = join(root, "packages", folder)
  const tarball = join(work, `${folder}.tgz`)
  execFileSync("pnpm", ["pack", "--out", tarball], { cwd: source, stdio: ["ignore", "ignore", "inherit"] })
  const manifest: Manifest = JSON.parse(readFileSync(join(source, "package.json"), "utf8"))
  const target = join(modules, manifest.name)
  mkdirSync(target, { recursive: true })
  execFileSync("tar", ["-xzf", tarball, "-C", target, "--strip-components=1"])

  const { messages, pkg } = await publint({ pkgDir: target, level: "suggestion", strict: true, pack: false })
  for (const message of messages) console.error(`${manifest.name}: ${formatMessage(message, pkg)}`)
  if (messages.length > 0) fail(`publint has ${messages.length} complaints about ${manifest.name}`)
  if (JSON.stringify(pkg).includes("workspace:") || JSON.stringify(pkg).includes("catalog:")) {
    fail(`${manifest.name} would be published with a workspace or catalog version`)
  }

  const outside = { ...manifest.dependencies, ...manifest.peerDependencies }
  for (const name of Object.keys(outside)) if (!name.includes("effect-tinker")) link(name, source)
  const built = files(join(target, "dist"))
    .filter((file) => file.endsWith(".js") && !file.startsWith("internal/"))
    .map((file) => file.slice(0, -3))
  if (built.length === 0) fail(`${manifest.name} has no dist; run build first`)
  published.push({
    name: manifest.name,
    specifiers: built.map((file) => (file === "index" ? manifest.name : `${manifest.name}/${file}`)),
  })
}

const specifiers = published.flatMap((one) => one.specifiers)
writeFileSync(join(work, "package.json"), JSON.stringify({ type: "module", private: true }))
writeFileSync(
  join(work, "import.js"),
  `${specifiers.map((specifier) => `await import(${JSON.stringify(specifier)})`).join("\n")}
for (const hidden of ["effect-tinker/internal/Gate", "effect-tinker/dist/index.js", "@effect-tinker/node/internal/Exchange", "@effect-tinker/tokenizer/internal/Shared", "@effect-tinker/engine/internal/Kernel", "@effect-tinker/server/internal/Core"]) {
  const reached = await import(hidden).then(() => true, () => false)
  if (reached) throw new Error(hidden + " can be reached")
}`,
)
execFileSync("node", ["import.js"], { cwd: work, stdio: "inherit" })

const readme = readFileSync(join(root, "README.md"), "utf8")
const program = /^```ts\n([^]*?)^```$/m.exec(readme)?.[1] ?? fail("the README has no program")
link("@effect/platform-node", root)
link("@types/node", root)
writeFileSync(join(work, "program.ts"), program)
writeFileSync(
  join(work, "all.ts"),
  specifiers.map((name, i) => `import * as M${i} from "${name}"\nvoid M${i}`).join("\n"),
)
writeFileSync(
  join(work, "tsconfig.json"),
  JSON.stringify({
    compilerOptions: {
      module: "NodeNext",
      target: "ES2022",
      strict: true,
      exactOptionalPropertyTypes: true,
      noEmit: true,
      skipLibCheck: false,
      types: ["node"],
      lib: ["ES2023", "DOM", "DOM.Iterable", "ESNext.Disposable"],
      preserveSymlinks: false,
    },
    include: ["*.ts"],
  }),
)
const { output, status } = spawnSync("tsc", ["-p", work, "--pretty", "false"], { cwd: work, encoding: "utf8" })
if (status === null) fail("tsc could not be run")
// Declarations of third parties are checked, too, when skipLibCheck is off; theirs are not ours to mend.
const complaints = output
  .join("")
  .split("\n")
  .filter((line) => line.includes("error TS"))
const ours = complaints.filter((line) => /effect-tinker\/|^\w+\.ts\(|^error/.test(line))
if (ours.length > 0) fail(`types do not resolve for a stranger:\n${ours.join("\n")}`)
console.log(`${published.length} packages, ${specifiers.length} modules: importable, typed, internal/ out of reach`)
