import { describe, expect, it } from "@effect/vitest"
import type { TokenizerError, TokenizerFiles } from "@effect-tinker/tokenizer"
import { Effect, Exit, Option } from "effect"
import type { InvalidInput } from "effect-tinker/TinkerError"
import { execFile } from "node:child_process"
import { fileURLToPath } from "node:url"
import * as Goldens from "./support/Goldens.ts"

type Definition = Record<string, unknown> & { readonly added_tokens: ReadonlyArray<Record<string, unknown>> }

const definition = (shape: Goldens.Shape): Definition => JSON.parse(Goldens.files(shape).tokenizer)

const described = (json: unknown, others: Partial<TokenizerFiles.TokenizerFiles> = {}) =>
  ({ name: "test", tokenizer: JSON.stringify(json), ...others }) satisfies TokenizerFiles.TokenizerFiles

for (const backend of ["native", "portable"] as const) {
  const make = (files: TokenizerFiles.TokenizerFiles) => Effect.provide(Goldens.make(files), Goldens.backends[backend])

  describe(`the ${backend} backend`, () => {
    it.effect(`the ${backend} backend rejects and accepts the same input as the reference`, () =>
      Effect.forEach(
        Goldens.shapes,
        (shape) =>
          Effect.gen(function* () {
            const tokenizer = yield* Goldens.load(shape, backend)
            const known = yield* tokenizer.encode("hello")
            const outcomes: Record<string, Exit.Exit<unknown, InvalidInput | TokenizerError.TokenizerError>> = {
              "lone surrogate": yield* Effect.exit(tokenizer.encode("a\ud800b")),
              "id that does not exist": yield* Effect.exit(
                Effect.zipWith(
                  tokenizer.decode([...known, tokenizer.vocabSize, 4_294_967_295]),
                  tokenizer.decode(known),
                  (one, other) => one === other,
                ),
              ),
              "negative id": yield* Effect.exit(tokenizer.decode([-1])),
              "too large id": yield* Effect.exit(tokenizer.decode([4_294_967_296])),
              fraction: yield* Effect.exit(tokenizer.decode([1.5])),
              nothing: yield* Effect.exit(tokenizer.decode([])),
            }
            const recorded = Goldens.refusals[shape]
            expect(Object.keys(outcomes).toSorted()).toEqual(Object.keys(recorded).toSorted())
            for (const [name, { error, result }] of Object.entries(recorded)) {
              const outcome = outcomes[name]
              if (error === undefined) expect(outcome, `${shape}: ${name}`).toEqual(Exit.succeed(result))
              else expect(outcome, `${shape}: ${name}`).toMatchObject({ cause: { error: { _tag: "InvalidInput" } } })
            }
          }),
        { discard: true },
      ),
    )

    it.effect(`the ${backend} backend names the invalid text or token`, () =>
      Effect.gen(function* () {
        const tokenizer = yield* Goldens.load("gpt2", backend)
        const pathOf = (effect: Effect.Effect<unknown, InvalidInput | TokenizerError.TokenizerError>) =>
          Effect.map(Effect.flip(effect), (error) => (error._tag === "InvalidInput" ? error.path : error.message))
        expect(yield* pathOf(tokenizer.encodeBatch(["a", "b\udc00"]))).toBe("texts[1]")
        expect(yield* pathOf(tokenizer.decodeBatch([[1], [2, Number.NaN]]))).toBe("batch[1][1]")
        expect(yield* pathOf(tokenizer.decoder().push([0, -3]))).toBe("tokens[1]")
        expect(tokenizer.idToToken(-1)).toEqual(Option.none())
        expect(tokenizer.idToToken(0.5)).toEqual(Option.none())
        expect(tokenizer.tokenToId("\ud800")).toEqual(Option.none())
      }),
    )

    it.effect(`the ${backend} backend returns Int32Array and decodes any array of tokens`, () =>
      Effect.gen(function* () {
        const tokenizer = yield* Goldens.load("qwen", backend)
        const tokens = yield* tokenizer.encode("Hello, 🌍!")
        expect(tokens).toBeInstanceOf(Int32Array)
        expect(yield* tokenizer.decode(tokens)).toBe("Hello, 🌍!")
        expect(yield* tokenizer.decode(Uint32Array.from(tokens))).toBe("Hello, 🌍!")
        expect(yield* tokenizer.decode([...tokens])).toBe("Hello, 🌍!")
      }),
    )

    it.effect(`the ${backend} backend ignores truncation and padding in the file`, () =>
      Effect.gen(function* () {
        const json = {
          ...definition("gpt2"),
          truncation: { direction: "Right", max_length: 2, strategy: "LongestFirst", stride: 0 },
          padding: {
            strategy: { Fixed: 50 },
            direction: "Right",
            pad_to_multiple_of: null,
            pad_id: 0,
            pad_type_id: 0,
            pad_token: "!",
          },
        }
        const text = "a text that has more than two tokens"
        const plain = yield* Goldens.load("gpt2", backend)
        const tokenizer = yield* make(described(json))
        expect(yield* tokenizer.encode(text)).toEqual(yield* plain.encode(text))
      }),
    )

    it.effect(`the ${backend} backend reads special tokens and chat templates from the configuration`, () =>
      Effect.gen(function* () {
        const tokenizer = yield* make({
          ...Goldens.files("llama3"),
          config: JSON.stringify({
            bos_token: { content: "<|begin_of_text|>", lstrip: false },
            eos_token: "<|eot_id|>",
            pad_token: null,
            unk_token: "<nowhere>",
            chat_template: [
              { name: "default", template: "one" },
              { name: "tool_use", template: "two" },
            ],
          }),
          specialTokensMap: JSON.stringify({ eos_token: "<|end_of_text|>", sep_token: "<|end_header_id|>" }),
        })
        const { all, bos, cls, eos, pad, sep, unk } = tokenizer.specialTokens
        const idOf = (token: string) => Option.getOrThrow(tokenizer.tokenToId(token))
        expect(bos).toEqual(Option.some({ content: "<|begin_of_text|>", id: idOf("<|begin_of_text|>") }))
        // The special tokens map takes precedence over a configuration without a list of tokens.
        expect(Option.map(eos, ({ content }) => content)).toEqual(Option.some("<|end_of_text|>"))
        expect(Option.map(sep, ({ content }) => content)).toEqual(Option.some("<|end_header_id|>"))
        expect([pad, cls, unk]).toEqual([Option.none(), Option.none(), Option.none()])
        expect(all.length).toBe(5)
        expect(tokenizer.chat.specialTokens).toEqual({
          bos_token: "<|begin_of_text|>",
          eos_token: "<|end_of_text|>",
          sep_token: "<|end_header_id|>",
          unk_token: "<nowhere>",
        })
        expect([...tokenizer.chat.templates]).toEqual([
          ["default", "one"],
          ["tool_use", "two"],
        ])

        const withFile = yield* make({
          ...Goldens.files("llama3"),
          config: JSON.stringify({ chat_template: "configured" }),
          chatTemplate: "in a file",
        })
        expect([...withFile.chat.templates]).toEqual([["default", "in a file"]])
      }),
    )

    it.effect(`the ${backend} backend adds tokens that only the configuration lists`, () =>
      Effect.gen(function* () {
        const end = 1 + Math.max(...definition("llama3").added_tokens.map(({ id }) => Number(id)))
        const added = (id: number) =>
          make({
            ...Goldens.files("llama3"),
            config: JSON.stringify({ added_tokens_decoder: { [id]: { content: "<new>", special: true } } }),
            specialTokensMap: '{"sep_token": "<|end_header_id|>"}',
          })
        const tokenizer = yield* added(end)
        expect([...(yield* tokenizer.encode("x<new>y", { addSpecialTokens: false }))]).toEqual([87, end, 88])
        expect(yield* tokenizer.decode([87, end, 88], { skipSpecialTokens: true })).toBe("xy")
        expect(tokenizer.vocabSize).toBe(end + 1)
        // A configuration with a list of tokens takes precedence over the special tokens map.
        expect(tokenizer.specialTokens.sep).toEqual(Option.none())
        if (backend === "native") expect(yield* Effect.flip(added(end + 5))).toMatchObject({ reason: "Invalid" })
      }),
    )

    it.effect(`the ${backend} backend reports invalid files`, () =>
      Effect.gen(function* () {
        const failing = (files: TokenizerFiles.TokenizerFiles) => Effect.flip(make(files))
        expect((yield* failing({ name: "x", tokenizer: "{" })).message).toBe(
          "x: invalid tokenizer.json: not valid JSON",
        )
        for (const json of [null, {}, { model: { type: "Dice" } }, { ...definition("gpt2"), model: { type: "BPE" } }]) {
          expect(yield* failing(described(json)), JSON.stringify(json)?.slice(0, 40)).toMatchObject({
            reason: "Invalid",
          })
        }
        const badConfig = yield* failing({ ...Goldens.files("gpt2"), config: '{"bos_token": 3}' })
        expect(badConfig.problem).toContain("invalid tokenizer_config.json")
      }),
    )
  })
}

describe("differences between the backends", () => {
  const words = {
    ...definition("gpt2"),
    added_tokens: definition("gpt2").added_tokens.map((token) => ({ ...token, single_word: true })),
  }

  it.effect("the portable backend has no offsets", () =>
    Effect.gen(function* () {
      const tokenizer = yield* Goldens.load("gpt2", "portable")
      expect(yield* Effect.flip(tokenizer.encodeWithOffsets("a"))).toMatchObject({ reason: "Unsupported" })
    }),
  )

  it.effect("the portable backend rejects single_word tokens, the native one supports them", () =>
    Effect.gen(function* () {
      const make = Goldens.make(described(words))
      const rejected = yield* Effect.flip(Effect.provide(make, Goldens.backends.portable))
      expect(rejected).toMatchObject({ reason: "Unsupported" })
      const tokenizer = yield* Effect.provide(make, Goldens.backends.native)
      const end = Option.getOrThrow(tokenizer.tokenToId("<|endoftext|>"))
      expect(yield* tokenizer.encode("x<|endoftext|>")).not.toContain(end)
      expect(yield* tokenizer.encode("<|endoftext|>")).toContain(end)
    }),
  )
})

it.effect("the native backend rejects a definition that would crash the process", () =>
  Effect.gen(function* () {
    const decoder = { type: "Sequence", decoders: [{ type: "Strip", content: "e", start: 1, stop: 1 }] }
    const make = Goldens.make(described({ ...definition("llama2"), decoder }))
    const rejected = yield* Effect.flip(Effect.provide(make, Goldens.backends.native))
    expect(rejected).toMatchObject({ reason: "Unsupported" })
    const tokenizer = yield* Effect.provide(make, Goldens.backends.portable)
    const tokens = yield* tokenizer.encode("e", { addSpecialTokens: false })
    expect(yield* tokenizer.decode(tokens)).toBe("▁")
    const [e] = Option.toArray(tokenizer.tokenToId("e"))
    expect(yield* tokenizer.decode([e!, e!])).toBe("")
  }),
)

describe("fallback", () => {
  /** Runs in a separate process whose native binary is missing. */
  const run = (env: Record<string, string>) =>
    Effect.async<string>((resume) => {
      const program = fileURLToPath(new URL("support/fallback.ts", import.meta.url))
      execFile(
        globalThis.process.execPath,
        ["--import", "tsx", program],
        { env: { ...globalThis.process.env, ...env } },
        (error, stdout, stderr) => resume(error === null ? Effect.succeed(stdout) : Effect.die(stderr)),
      )
    })

  it.live("TokenizerBackend.layer falls back to the portable backend and warns once", () =>
    Effect.gen(function* () {
      const without: { backends: ReadonlyArray<string>; warnings: ReadonlyArray<string>; native: string } = JSON.parse(
        yield* run({ NAPI_RS_NATIVE_LIBRARY_PATH: "/nowhere.node" }),
      )
      expect(without.backends).toEqual(["portable", "portable"])
      expect(without.warnings.length).toBe(1)
      expect(without.warnings[0]).toContain("falling back to the portable backend")
      expect(without.native).toBe("Unsupported")
      const present = JSON.parse(yield* run({}))
      expect(present).toEqual({ backends: ["native", "native"], warnings: [], native: "native" })
    }),
  )
})
