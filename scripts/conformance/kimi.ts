/** Compares our tokenizers of Kimi and Inkling with `tiktoken`, on the texts that `kimi.py` recorded. */
import { readFileSync } from "node:fs"
import { join } from "node:path"
import { NodeContext } from "@effect/platform-node"
import { Tiktoken, TokenizerBackend, TokenizerFiles } from "@effect-tinker/tokenizer"
import { Console, Effect } from "effect"

interface Row {
  readonly text: string
  readonly plain: ReadonlyArray<number>
  readonly special: ReadonlyArray<number>
}

const directory = process.argv[2] ?? ""

const same = (one: Int32Array, other: ReadonlyArray<number>) =>
  one.length === other.length && one.every((token, index) => token === other[index])

const compare = (name: string, backend: "native" | "portable") =>
  Effect.gen(function* () {
    const path = join(directory, name)
    const files =
      name === "Inkling"
        ? yield* Tiktoken.inkling(readFileSync(join(path, "tiktoken.model"), "utf8"))
        : yield* TokenizerFiles.fromDirectory(path)
    const tokenizer = yield* (yield* TokenizerBackend.TokenizerBackend).make(files)
    const rows: ReadonlyArray<Row> = JSON.parse(readFileSync(join(path, "texts.json"), "utf8"))
    let different = 0
    for (const { plain, special, text } of rows) {
      const ours = yield* tokenizer.encode(text, { addSpecialTokens: false, splitSpecialTokens: true })
      const withSpecials = yield* tokenizer.encode(text, { addSpecialTokens: false })
      const isSame =
        same(ours, plain) && same(withSpecials, special) && (yield* tokenizer.decode(withSpecials)) === text
      if (isSame) continue
      if (different++ < 3)
        yield* Console.log(`  ${JSON.stringify(text.slice(0, 80))}: ${ours.join(" ")}; expected ${plain.join(" ")}`)
    }
    yield* Console.log(`${name}, ${backend}: ${rows.length} texts, ${different} different`)
    return different
  }).pipe(Effect.provide(backend === "native" ? TokenizerBackend.layerNative : TokenizerBackend.layerPortable))

const program = Effect.gen(function* () {
  let different = 0
  for (const name of ["Kimi-K2-Thinking", "Kimi-K2.5", "Kimi-K2.6", "Inkling"]) {
    for (const backend of ["native", "portable"] as const) different += yield* compare(name, backend)
  }
  if (different > 0) process.exitCode = 1
})

void Effect.runPromise(program.pipe(Effect.provide(NodeContext.layer)))
