/**
 * Installs the packed packages with npm next to the oldest Effect that they allow, and checks that the program and all
 * packages share one copy of Effect, that the command runs on it, and that a project of `tinkerfx init` works.
 */
import { execFileSync, spawnSync } from "node:child_process"
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join, relative } from "node:path"
import { root } from "./published.ts"

const work = mkdtempSync(join(tmpdir(), "check-install-"))
process.on("exit", () => rmSync(work, { recursive: true, force: true }))

const fail = (problem: string): never => {
  console.error(`check-install: ${problem}`)
  process.exit(1)
}

const folders = readdirSync(join(root, "packages"))
const { peerDependencies } = JSON.parse(readFileSync(join(root, "packages/tinker/package.json"), "utf8"))
const oldest = String(peerDependencies.effect).slice(1)

const tarballs = folders.map((folder) => {
  const out = join(work, `${folder}.tgz`)
  execFileSync("pnpm", ["pack", "--out", out], {
    cwd: join(root, "packages", folder),
    stdio: ["ignore", "ignore", "inherit"],
  })
  return `./${folder}.tgz`
})
writeFileSync(join(work, "package.json"), JSON.stringify({ type: "module", private: true }))
execFileSync("npm", ["install", "--no-audit", "--no-fund", "--loglevel=error", `effect@${oldest}`, ...tarballs], {
  cwd: work,
  stdio: "inherit",
})

const copies = readdirSync(join(work, "node_modules"), { recursive: true, withFileTypes: true })
  .filter(({ name, parentPath }) => name === "package.json" && /node_modules[/\\]effect$/.test(parentPath))
  .map(({ name, parentPath }) => join(parentPath, name))
if (copies.length !== 1)
  fail(`${copies.length} copies of effect: ${copies.map((copy) => relative(work, copy)).join(", ")}`)
const { version } = JSON.parse(readFileSync(copies[0] ?? "", "utf8"))
if (version !== oldest) fail(`effect ${version} was installed instead of ${oldest}`)

const help = execFileSync(join(work, "node_modules/.bin/tinkerfx"), ["--help"], { encoding: "utf8" })
if (!help.includes("serve")) fail(`tinkerfx --help does not mention serve: ${help}`)
const script = execFileSync(join(work, "node_modules/.bin/tinkerfx"), ["completions", "bash"], { encoding: "utf8" })
if (!script.includes("checkpoint")) fail("tinkerfx completions bash does not complete checkpoint")

// A new project, in an empty directory: what `tinkerfx init` prints is followed. Our packages are not published yet, so
// that `npm install` gets the packed ones.
const run = (command: string, args: ReadonlyArray<string>, cwd: string) =>
  execFileSync(command, args, { cwd, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] })
const empty = mkdtempSync(join(tmpdir(), "check-init-"))
process.on("exit", () => rmSync(empty, { recursive: true, force: true }))
run(join(work, "node_modules/.bin/tinkerfx"), ["init", "sailor"], empty)
const project = join(empty, "sailor")
const packed = tarballs.map((tarball) => join(work, tarball))
run("npm", ["install", "--no-audit", "--no-fund", "--loglevel=error", ...packed], project)
run("npm", ["run", "check"], project)
run("npm", ["test"], project)
const trained = run("npm", ["run", "train"], project)
if (!trained.includes("complete after")) fail(`npm run train does not complete: ${trained}`)
const chatted = spawnSync("npm", ["run", "--silent", "chat"], {
  cwd: project,
  input: "What is 2 + 2?\n",
  encoding: "utf8",
})
if (chatted.status !== 0 || chatted.stdout.trim() === "") fail(`npm run chat does not answer: ${chatted.stderr}`)
const started = spawnSync("npm", ["start"], { cwd: project, encoding: "utf8" })
if (started.status !== 0) fail(`npm start fails: ${started.stderr}`)
console.log(`${folders.length} packages share effect ${version}`)
