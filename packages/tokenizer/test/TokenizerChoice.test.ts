import { describe, expect, it } from "@effect/vitest"
import { TokenizerChoice } from "@effect-tinker/tokenizer"
import { Either, Option } from "effect"
import { readFileSync } from "node:fs"

interface Case {
  readonly model: string
  readonly tokenizerId: string | null
  readonly tokenizer?: string
  readonly kwargs?: { readonly revision?: string; readonly trust_remote_code?: boolean }
  readonly error?: string
}

const recorded = (file: "behaviours/tokenizer_choice.json"): ReadonlyArray<Case> =>
  JSON.parse(readFileSync(new URL(`../../../test/wire/${file}`, import.meta.url), "utf8")).expect.cases

const cases = recorded("behaviours/tokenizer_choice.json")

describe("TokenizerChoice", () => {
  it("the recording of tokenizer choices has 13 cases", () => expect(cases.length).toBe(13))

  for (const { error, kwargs, model, tokenizer, tokenizerId } of cases) {
    it(`TokenizerChoice.choose matches the reference: ${model}${tokenizerId === null ? "" : `, server names ${tokenizerId}`}`, () => {
      const choice = TokenizerChoice.choose({ model, tokenizerId: tokenizerId ?? undefined })
      if (error === undefined) {
        expect(choice).toEqual(
          Either.right({
            repository: tokenizer,
            revision: Option.fromNullable(kwargs?.revision),
            needsCode: kwargs?.trust_remote_code === true,
            isConverted: tokenizer?.startsWith("moonshotai/Kimi-K2") ?? false,
          }),
        )
      } else {
        expect(Either.flip(choice).pipe(Either.getOrThrow)).toMatchObject({ reason: "NeedsCode", tokenizer: model })
      }
    })
  }

  it("TokenizerChoice.choose treats the server's tokenizer like a model name", () => {
    const named = (tokenizerId: string) => TokenizerChoice.choose({ model: "meta-llama/Llama-3.1-8B", tokenizerId })
    expect(named("custom/tok:abc").pipe(Either.getOrThrow).repository).toBe("custom/tok")
    expect(Either.isLeft(named("TML/x"))).toBe(true)
    expect(named("moonshotai/Kimi-K3").pipe(Either.getOrThrow).needsCode).toBe(true)
  })

  it("TokenizerChoice.choose accepts another table", () => {
    const table = { ...TokenizerChoice.table, substitutions: [{ prefix: "my/", repository: "our/tokenizer" }] }
    expect(TokenizerChoice.choose({ model: "my/model" }, table).pipe(Either.getOrThrow).repository).toBe(
      "our/tokenizer",
    )
    expect(TokenizerChoice.choose({ model: "meta-llama/Llama-3-8B" }, table).pipe(Either.getOrThrow).repository).toBe(
      "meta-llama/Llama-3-8B",
    )
  })
})
