/**
 * Shuffles and reads a large JSONL file, and measures how much memory that takes.
 *
 *   pnpm exec tsx scripts/bench/shuffle.ts [gigabytes] [bytes per row] [batches]
 *
 * Writes the file (2 GB by default) to the temporary directory. Another process opens it, holds out 1% and reads batches
 * of 64 rows in random order: the whole epoch, or as many batches as the last argument says. Exits with 1 if a row is
 * missing, occurs twice or is not what was written, or if that process, Node.js included, ever took more than 300 MB of
 * memory (its largest resident set).
 */
import { spawnSync } from "node:child_process"
import { closeSync, mkdtempSync, openSync, rmSync, writeSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { textOf } from "./harness/drivers/shuffle-rows.ts"
import { bundle } from "./harness/Prepare.ts"

const [gigabytes = 2, rowBytes = 1000, batchLimit = Infinity] = process.argv.slice(2).map(Number)
const memoryLimit = 300

const write = (path: string) => {
  const file = openSync(path, "w")
  let written = 0
  let id = 0
  while (written < gigabytes * 1e9) {
    let piece = ""
    while (piece.length < 1e6) piece += `${JSON.stringify({ id, text: textOf(id++, rowBytes) })}\n`
    written += writeSync(file, piece)
  }
  closeSync(file)
}

const directory = mkdtempSync(join(tmpdir(), "shuffle-"))
try {
  // Compiling the program as it runs would count as well.
  const program = join(directory, "shuffle.mjs")
  bundle(fileURLToPath(new URL("harness/drivers/shuffle.ts", import.meta.url)), program)
  const rows = join(directory, "rows.jsonl")
  write(rows)
  const settings = [rowBytes, batchLimit, memoryLimit].map(String)
  const { status } = spawnSync(process.execPath, [program, rows, ...settings], { stdio: "inherit" })
  process.exitCode = status ?? 1
} finally {
  rmSync(directory, { recursive: true })
}
