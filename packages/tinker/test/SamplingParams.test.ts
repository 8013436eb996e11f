import { describe, expect, it } from "@effect/vitest"
import { Either, Schema } from "effect"
import { SamplingParams } from "effect-tinker/SamplingParams"
import { readFileSync } from "node:fs"

const cases: ReadonlyArray<{ readonly file: string; readonly input: SamplingParams }> = [
  { file: "vectors/sample_defaults.json", input: {} },
  {
    file: "vectors/sample_all_params.json",
    input: { maxTokens: 16, seed: 42, stop: ["\n", "END"], temperature: 0.7, topK: 50, topP: 0.9 },
  },
  { file: "vectors/sample_stop_string.json", input: { maxTokens: 4, stop: "\n" } },
  { file: "vectors/sample_stop_tokens.json", input: { maxTokens: 4, stop: [198, 2] } },
  { file: "vectors/sample_stop_empty.json", input: { maxTokens: 4, stop: [] } },
]

const defaults = { temperature: 1, topK: -1, topP: 1 }

const encode = Schema.encodeSync(SamplingParams)
const decode = Schema.decodeUnknownEither(SamplingParams)

describe("SamplingParams", () => {
  it.each(cases)("SamplingParams encodes what the reference encodes: $file", ({ file, input }) => {
    const vector = JSON.parse(readFileSync(new URL(`../../../test/wire/${file}`, import.meta.url), "utf8"))
    const json = encode(input)
    expect(json).toStrictEqual(vector.request.body.sampling_params)
    expect(decode(json)).toEqual(Either.right({ ...defaults, ...input }))
  })

  it("an explicit undefined in SamplingParams counts as not given", () => {
    expect(encode({ maxTokens: undefined, temperature: undefined })).toStrictEqual(encode({}))
  })

  it("decoding SamplingParams fills in defaults for missing and null fields", () => {
    expect(decode({ max_tokens: null, stop: null })).toEqual(Either.right(defaults))
  })

  it("SamplingParams rejects values that no sampler supports", () => {
    const validate = Schema.validateEither(SamplingParams)
    for (const input of [
      { temperature: -1 },
      { temperature: Infinity },
      { topP: 1.5 },
      { maxTokens: 1.5 },
      { maxTokens: -1 },
      { topK: 0 },
      { topK: -2 },
      { stop: [1, "a"] as never },
    ])
      expect(Either.isLeft(validate(input))).toBe(true)
    for (const input of [
      { maxTokens: 0 },
      { maxTokens: 1 },
      { topK: 1 },
      { topK: -1 },
      { temperature: 0 },
      { topP: 0 },
    ])
      expect(Either.isRight(validate(input))).toBe(true)
  })
})
