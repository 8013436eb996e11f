/**
 * Fuzzes one target: `fuzz.js <settings as JSON>`. Writes each input to a file before it runs, so that the input of a
 * crash or an endless loop is known, and prints progress and findings as lines of JSON.
 */
import { ftruncateSync, openSync, readFileSync, writeSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { getHeapStatistics } from "node:v8"
import { Cause, Effect, Exit } from "effect"
import * as Coverage from "./Coverage.ts"
import { explore, type Run } from "./Explore.ts"
import type { Line, Settings } from "./Protocol.ts"
import { targets } from "./Targets.ts"

const settings: Settings = JSON.parse(process.argv[2] ?? "{}")
const target = targets[settings.target]

const file = openSync(settings.inputFile, "w")

const print = (line: Line) => process.stdout.write(`${JSON.stringify(line)}\n`)

/** The memory that a run may use: a multiple of its input, and what any run may need. */
const allowed = (length: number) => 256 * length + 48 * 2 ** 20

/** Does not ask the operating system, unlike `process.memoryUsage`, which takes longer than most decoders. */
const used = () => {
  const { external_memory, used_heap_size } = getHeapStatistics()
  return external_memory + used_heap_size
}

/** The longest time of one run, in milliseconds. */
const slow = 2000

let [runs, shownAt] = [0, 0]

/** Prints a line now and then, also while a batch of slow inputs runs. */
const showLife = () => {
  runs++
  if (performance.now() - shownAt < 500) return
  shownAt = performance.now()
  print({ _tag: "Progress", runs })
}

const run: Run = async (input) => {
  if (target === undefined) return `there is no target ${settings.target}`
  showLife()
  ftruncateSync(file, 0)
  writeSync(file, input, 0, input.length, 0)
  const [memory, startedAt] = [used(), performance.now()]
  const exit = await Effect.runPromiseExit(target.decode(input))
  const [grown, millis] = [used() - memory, performance.now() - startedAt]
  if (Exit.isFailure(exit) && !Cause.isFailure(exit.cause)) return Cause.pretty(exit.cause)
  if (grown > allowed(input.length)) return `used ${Math.round(grown / 2 ** 20)} MiB for ${input.length} bytes`
  return millis > slow ? `took ${Math.round(millis)} ms` : undefined
}

/** Everything but the runtime of Effect: schemas and protobuf decode on our behalf. */
const isDecoder = Coverage.modulesOf(
  readFileSync(fileURLToPath(import.meta.url), "utf8"),
  (path) => !/node_modules\/effect\/.*\/internal\//.test(path),
)
const coverage = Coverage.start((url) => url === import.meta.url, isDecoder)
const { corpus, finding } = await explore({
  run,
  corpus: [...(target?.seeds ?? []), ...settings.corpus.map((text) => Buffer.from(text, "base64"))],
  coverage,
  seed: settings.seed,
  until: performance.now() + 1000 * settings.seconds,
})
print({
  _tag: "End",
  runs,
  corpus: corpus.map((input) => Buffer.from(input).toString("base64")),
  ...(finding !== undefined && { problem: finding.problem, input: Buffer.from(finding.input).toString("base64") }),
})
process.exit(0)
