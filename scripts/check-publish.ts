/**
 * Checks the packages as a user would install them: packs every package, runs publint on the tarballs, unpacks them
 * into an empty project, imports every public module, trains and serves with them, runs and type-checks the program in
 * README.md, and checks that internal modules cannot be imported.
 */
import { execFileSync, spawn, spawnSync } from "node:child_process"
import { once } from "node:events"
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join, relative } from "node:path"
import { createInterface } from "node:readline"
import { publint } from "publint"
import { formatMessage } from "publint/utils"
import { install, link, root } from "./published.ts"

const work = mkdtempSync(join(tmpdir(), "check-publish-"))
const modules = join(work, "node_modules")
process.on("exit", () => rmSync(work, { recursive: true, force: true }))

const fail = (problem: string): never => {
  console.error(`check-publish: ${problem}`)
  process.exit(1)
}

const files = (folder: string): Array<string> =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(folder, join(entry.parentPath, entry.name)))

/** Packages that no program shares services with. */
const allowedCopies = new Set(["@effect/sql-libsql"])

const published: Array<{ readonly name: string; readonly specifiers: ReadonlyArray<string> }> = []
for (const { folder, name } of install(modules)) {
  const { messages, pkg } = await publint({ pkgDir: folder, level: "suggestion", strict: true, pack: false })
  for (const message of messages) console.error(`${name}: ${formatMessage(message, pkg)}`)
  if (messages.length > 0) fail(`publint reports ${messages.length} problems in ${name}`)
  if (JSON.stringify(pkg).includes("workspace:") || JSON.stringify(pkg).includes("catalog:")) {
    fail(`${name} would be published with a workspace or catalog version`)
  }

  // With a version of its own a package would bring a second copy of Effect, whose services are not the program's.
  const { dependencies = {}, peerDependencies = {} } = pkg as Record<string, Record<string, string> | undefined>
  const shared = /^(effect|@effect\/.*)$/
  const own = Object.keys(dependencies).filter(
    (dependency) => shared.test(dependency) && !allowedCopies.has(dependency),
  )
  if (own.length > 0) fail(`${name} depends on ${own.join(", ")}: make it a peer, so that there is one shared copy`)
  for (const [dependency, range] of Object.entries(peerDependencies))
    if (shared.test(dependency) && !range.startsWith("^")) fail(`${name} pins its peer ${dependency} to ${range}`)

  const built = files(join(folder, "dist"))
    .filter((file) => file.endsWith(".js") && !file.startsWith("internal/"))
    .map((file) => file.slice(0, -3))
  if (built.length === 0) fail(`${name} has no dist; run build first`)
  published.push({
    name,
    specifiers: built.map((file) => (file === "index" ? name : `${name}/${file}`)),
  })
}

const specifiers = published.flatMap((one) => one.specifiers)
writeFileSync(join(work, "package.json"), JSON.stringify({ type: "module", private: true }))
writeFileSync(
  join(work, "import.js"),
  `${specifiers.map((specifier) => `await import(${JSON.stringify(specifier)})`).join("\n")}
for (const hidden of ["effect-tinker/internal/runtime/Gate", "effect-tinker/dist/index.js", "@effect-tinker/node/internal/Exchange", "@effect-tinker/tokenizer/internal/Shared", "@effect-tinker/engine/internal/Kernel", "@effect-tinker/server/internal/Core"]) {
  const reached = await import(hidden).then(() => true, () => false)
  if (reached) throw new Error(hidden + " can be imported")
}`,
)
execFileSync("node", ["import.js"], { cwd: work, stdio: "inherit" })

// The engine thread is started from a file that no import names, so this checks that it is published and trains.
writeFileSync(
  join(work, "train.js"),
  `import { LocalTinker } from "@effect-tinker/server"
import { Effect, Layer, Redacted, Stream } from "effect"
import { Loss, Optimizer, RateLimiter, ServiceClient, TinkerConfig } from "effect-tinker"
import * as Transport from "effect-tinker/Transport"

const program = Effect.gen(function* () {
  const service = yield* ServiceClient.ServiceClient
  const training = yield* service.createLoraTrainingClient({ baseModel: "effect-tinker/valley-1.5m", rank: 4, seed: 1 })
  const example = { modelInput: [10, 20, 30], inputs: { targetTokens: [20, 30, 40], weights: [1, 1, 1] } }
  const steps = yield* Stream.range(1, 8).pipe(
    Stream.map(() => [example]),
    training.trainSteps(Loss.crossEntropy, () => Optimizer.adam({ learningRate: 1e-2 })),
    Stream.runCollect,
  )
  const losses = [...steps].map(({ metrics }) => metrics["loss:sum"])
  if (!(losses.at(-1) < losses[0] / 2)) throw new Error("the loss does not fall: " + losses.join(" "))
  const sampler = yield* training.saveWeightsAndGetSamplingClient()
  const { sequences } = yield* sampler.sample({ prompt: [10], params: { maxTokens: 3, seed: 1, stop: [] } })
  if (sequences[0].tokens.length !== 3) throw new Error("no sample")
}).pipe(Effect.scoped)

const local = ServiceClient.layer().pipe(
  Layer.provide(Transport.layer),
  Layer.provide(RateLimiter.layer),
  Layer.provide(TinkerConfig.layer({ baseUrl: "http://local", apiKey: Redacted.make("tml-local") })),
  Layer.provide(LocalTinker.layer()),
)

await Effect.runPromise(Effect.provide(program, local))
`,
)
execFileSync("node", ["train.js"], { cwd: work, stdio: "inherit" })

/** Checks the installed command: it prints its URL, answers, and exits on SIGTERM. */
const serves = async (): Promise<void> => {
  const { bin } = JSON.parse(readFileSync(join(modules, "@effect-tinker/cli/package.json"), "utf8"))
  const command = join(modules, "@effect-tinker/cli", bin.tinkerfx)
  const version = spawnSync("node", [command, "version"], { cwd: work, encoding: "utf8" })
  if (!/^tinkerfx \d/.test(version.stdout)) fail(`the published command does not tell its version: ${version.stderr}`)
  const child = spawn("node", [command, "serve", "--port", "0"], { cwd: work, stdio: ["ignore", "pipe", "inherit"] })
  const ended = once(child, "exit")
  for await (const line of createInterface({ input: child.stdout })) {
    const url = /^listening on (http:\S+)$/.exec(line)?.[1]
    if (url === undefined) continue
    const answer = await fetch(`${url}/api/v1/healthz`)
    if ((await answer.text()) !== '{"status":"ok"}') fail("the published command does not answer healthz with ok")
    // The bundled client and the installed server do not share a copy of Effect.
    const env = { ...process.env, TINKER_BASE_URL: url, TINKER_API_KEY: "tml-check" }
    const models = spawnSync("node", [command, "-f", "json", "model", "list"], { cwd: work, encoding: "utf8", env })
    if (!models.stdout.includes("effect-tinker/valley-1.5m"))
      fail(`the published command does not list the models: ${models.stdout}${models.stderr}`)
    child.kill("SIGTERM")
  }
  const [code] = await ended
  if (code !== 0) fail(`the published command exited with code ${code}`)
}
await serves()

const readme = readFileSync(join(root, "README.md"), "utf8")
const program = /^```ts\n([^]*?)^```$/m.exec(readme)?.[1] ?? fail("README.md contains no TypeScript example")
link(modules, "@effect/platform-node", root)
link(modules, "@types/node", root)
writeFileSync(join(work, "program.ts"), program)

// It contains no types, so Node can run it.
writeFileSync(join(work, "program.js"), program)
const logged = execFileSync("node", ["program.js"], { cwd: work, encoding: "utf8" })
// Here the native tokenizer is not linked, which is logged.
const printed = logged.replaceAll(/^\[.*native backend.*\n/gm, "")
const stated = /^```text\n([^]*?)^```$/m.exec(readme)?.[1] ?? fail("README.md does not state what its program prints")
const [head = "", tail = ""] = stated.split("...\n")
if (!printed.startsWith(head) || !printed.endsWith(tail))
  fail(`the program in README.md prints something else than it states:\n${printed}`)

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
if (status === null) fail("failed to run tsc")
// Without skipLibCheck, third-party declarations are checked, too; only problems in our own count.
const problems = output
  .join("")
  .split("\n")
  .filter((line) => line.includes("error TS"))
const ours = problems.filter((line) => /effect-tinker\/|^\w+\.ts\(|^error/.test(line))
if (ours.length > 0) fail(`types do not resolve outside the repository:\n${ours.join("\n")}`)
console.log(
  `${published.length} packages, ${specifiers.length} modules: importable, typed, internal/ not importable; training and serving work`,
)
