// Compiles packages/engine/kernel/kernel.ts to packages/engine/src/internal/KernelBytes.ts. With --check, nothing is
// written; exits with 1 if the committed kernel differs.
import { execFileSync } from "node:child_process"
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"

const engine = fileURLToPath(new URL("../../packages/engine", import.meta.url))
const target = join(engine, "src/internal/KernelBytes.ts")
const work = mkdtempSync(join(tmpdir(), "kernel-"))
try {
  const wasm = join(work, "kernel.wasm")
  const flags = ["-O3", "--noAssert", "--runtime", "stub", "--enable", "simd", "--importMemory"]
  const asc = join(engine, "node_modules/.bin/asc")
  execFileSync(asc, ["kernel/kernel.ts", "-o", wasm, ...flags], { cwd: engine, stdio: "inherit" })
  const text = `// Made of kernel/kernel.ts by scripts/engine/kernel.mjs: do not edit.
export const kernelBytes =
  "${readFileSync(wasm).toString("base64")}"
`
  if (!process.argv.includes("--check")) writeFileSync(target, text)
  else if (readFileSync(target, "utf8") !== text) {
    console.error("the compiled kernel differs from the committed one; run `node scripts/engine/kernel.mjs`")
    process.exitCode = 1
  }
} finally {
  rmSync(work, { recursive: true, force: true })
}
