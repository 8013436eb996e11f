/**
 * Compares the speed of the tokenizers with the Python reference library in the same run.
 *
 *   pnpm exec tsx scripts/bench/tokenizers.ts [rounds] [python]
 *
 * `python` must have the package `tokenizers`; without it, the backends are compared with each other. Rounds are
 * interleaved and the best of each counts: use the ratios, not the times.
 */
import { TokenizerBackend } from "@effect-tinker/tokenizer"
import type { Service } from "@effect-tinker/tokenizer/Tokenizer"
import { Effect, type Layer } from "effect"
import { spawnSync } from "node:child_process"
import { readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"

const [rounds = 5] = process.argv.slice(2, 3).map(Number)
const python = process.argv[3]
const shape = "llama3"
const goldens = fileURLToPath(new URL("../../packages/tokenizer/test/goldens/", import.meta.url))
const files = { name: shape, tokenizer: readFileSync(`${goldens}${shape}.tokenizer.json`, "utf8") }
const texts: ReadonlyArray<string> = JSON.parse(readFileSync(`${goldens}texts.json`, "utf8"))
const long = texts.join("\n").repeat(4)

const works = ["one long text", "many texts, one by one", "many texts, as a batch", "decode the long text"] as const
type Times = Record<(typeof works)[number], number>

const measure = (run: Effect.Effect<unknown, unknown>) =>
  Effect.gen(function* () {
    const start = performance.now()
    yield* run
    return performance.now() - start
  })

const timesOf = (tokenizer: Service) =>
  Effect.gen(function* () {
    const tokens = yield* tokenizer.encode(long)
    return {
      "one long text": yield* measure(tokenizer.encode(long)),
      "many texts, one by one": yield* measure(Effect.forEach(texts, (text) => tokenizer.encode(text))),
      "many texts, as a batch": yield* measure(tokenizer.encodeBatch(texts)),
      "decode the long text": yield* measure(tokenizer.decode(tokens)),
    } satisfies Times
  })

/** The same work in Python, in the same order. */
const reference = `
import json, sys, time
from tokenizers import Tokenizer
folder, shape = sys.argv[1:]
tokenizer = Tokenizer.from_file(f"{folder}{shape}.tokenizer.json")
texts = json.load(open(f"{folder}texts.json", encoding="utf-8"))
long = "\\n".join(texts) * 4
tokens = tokenizer.encode(long).ids
def measure(run):
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) * 1000
print(json.dumps({
    "one long text": measure(lambda: tokenizer.encode(long).ids),
    "many texts, one by one": measure(lambda: [tokenizer.encode(text).ids for text in texts]),
    "many texts, as a batch": measure(lambda: [one.ids for one in tokenizer.encode_batch(texts)]),
    "decode the long text": measure(lambda: tokenizer.decode(tokens, skip_special_tokens=False)),
}))
`

const timesOfPython = (command: string) =>
  Effect.sync((): Times => {
    const { status, stderr, stdout } = spawnSync(command, ["-c", reference, goldens, shape], { encoding: "utf8" })
    if (status !== 0) throw new Error(stderr)
    return JSON.parse(stdout)
  })

const load = (layer: Layer.Layer<TokenizerBackend.TokenizerBackend>) =>
  Effect.provide(
    Effect.flatMap(TokenizerBackend.TokenizerBackend, ({ make }) => make(files)),
    layer,
  )

const best = (all: ReadonlyArray<Times>, work: keyof Times) => Math.min(...all.map((times) => times[work]))

const program = Effect.gen(function* () {
  const native = yield* load(TokenizerBackend.layerNative)
  const portable = yield* load(TokenizerBackend.layerPortable)
  const measured: Record<string, Array<Times>> = { native: [], portable: [], python: [] }
  for (let round = 0; round < rounds; round++) {
    measured["native"]?.push(yield* timesOf(native))
    measured["portable"]?.push(yield* timesOf(portable))
    if (python !== undefined) measured["python"]?.push(yield* timesOfPython(python))
  }
  const base = python === undefined ? "native" : "python"
  console.log(
    `speed against ${base} (above 1 is faster), best of ${rounds}; ${long.length} characters, ${texts.length} texts`,
  )
  for (const work of works) {
    const of = (who: string) => (best(measured[base] ?? [], work) / best(measured[who] ?? [], work)).toFixed(2)
    console.log(`${work.padEnd(24)} native ${of("native")}  portable ${of("portable")}`)
  }
})

await Effect.runPromise(program)
