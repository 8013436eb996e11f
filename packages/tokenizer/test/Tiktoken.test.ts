import { describe, expect, it } from "@effect/vitest"
import { NodeContext } from "@effect/platform-node"
import { Tiktoken, TokenizerFiles } from "@effect-tinker/tokenizer"
import { Effect, Either } from "effect"
import { mkdtempSync, readFileSync, rmSync, writeFileSync, mkdirSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as Goldens from "./support/Goldens.ts"

interface Golden {
  readonly ranks: string
  readonly config: string
  readonly texts: ReadonlyArray<string>
  readonly plain: ReadonlyArray<string>
  readonly special: ReadonlyArray<string>
}

const golden: Golden = JSON.parse(readFileSync(new URL("goldens/tiktoken.golden.json", import.meta.url), "utf8"))

const make = (backend: Goldens.Backend) =>
  Effect.flatMap(Tiktoken.kimi("Kimi-K2", golden.ranks, golden.config), (files) =>
    Effect.provide(Goldens.make(files), Goldens.backends[backend]),
  )

describe("Tiktoken", () => {
  for (const backend of ["native", "portable"] as const) {
    it.effect(`a converted tokenizer gives the same tokens as tiktoken (${backend})`, () =>
      Effect.gen(function* () {
        const tokenizer = yield* make(backend)
        for (const [index, text] of golden.texts.entries()) {
          const plain = yield* tokenizer.encode(text, { addSpecialTokens: false, splitSpecialTokens: true })
          expect([...plain], text).toEqual(Goldens.unpack(golden.plain[index] ?? ""))
          const special = yield* tokenizer.encode(text, { addSpecialTokens: false })
          expect([...special], text).toEqual(Goldens.unpack(golden.special[index] ?? ""))
          expect(yield* tokenizer.decode(special)).toBe(text)
        }
        expect(golden.texts.length).toBeGreaterThan(100)
      }),
    )
  }

  it.effect("a directory with Kimi's files is converted, and other programs are rejected", () =>
    Effect.gen(function* () {
      const root = mkdtempSync(join(tmpdir(), "kimi-"))
      const write = (name: string) => {
        const directory = join(root, name)
        mkdirSync(directory)
        writeFileSync(join(directory, "tiktoken.model"), golden.ranks)
        writeFileSync(
          join(directory, "tokenizer_config.json"),
          JSON.stringify({ ...JSON.parse(golden.config), auto_map: {} }),
        )
        return directory
      }
      const files = yield* TokenizerFiles.fromDirectory(write("Kimi-K2.5"))
      const tokenizer = yield* Effect.provide(Goldens.make(files), Goldens.backends.native)
      expect(tokenizer.specialTokens.all.length).toBe(256)
      const rejected = yield* Effect.flip(TokenizerFiles.fromDirectory(write("Kimi-K9")))
      expect(rejected).toMatchObject({ reason: "NeedsCode" })
      rmSync(root, { recursive: true })
    }).pipe(Effect.provide(NodeContext.layer)),
  )

  it("files in another format are rejected", () => {
    const rejected = { left: { reason: "Invalid" } }
    expect(Tiktoken.kimi("k", "no ranks", golden.config)).toMatchObject(rejected)
    expect(Tiktoken.kimi("k", golden.ranks, "{}")).toMatchObject(rejected)
    expect(Either.isLeft(Tiktoken.inkling(""))).toBe(true)
  })
})
