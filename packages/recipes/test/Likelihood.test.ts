import { readFileSync } from "node:fs"
import { Likelihood } from "@effect-tinker/recipes"
import { TokenizerBackend } from "@effect-tinker/tokenizer"
import { describe, expect, it } from "@effect/vitest"
import { Effect, Option } from "effect"
import { expectClose, golden } from "./support/Goldens.ts"

interface Case {
  readonly tokenizer: string
  readonly special: ReadonlyArray<number>
  readonly data: ReadonlyArray<Likelihood.Predicted>
  readonly nll: number | null
  readonly bpb: number | null
}

const load = (name: string) =>
  Effect.flatMap(TokenizerBackend.TokenizerBackend, ({ make }) =>
    make({
      name,
      tokenizer: readFileSync(new URL(`../../tokenizer/test/goldens/${name}.tokenizer.json`, import.meta.url), "utf8"),
    }),
  )

describe("Likelihood", () => {
  it.effect("mean negative log-likelihood and bits per byte are those of the cookbook", () =>
    Effect.gen(function* () {
      for (const one of golden<ReadonlyArray<Case>>("likelihood")) {
        const bytes = Likelihood.bytesOf(yield* load(one.tokenizer))
        for (const token of one.special) expect(bytes.isSpecial(token)).toBe(true)
        const metrics = yield* Likelihood.trainMetrics(one.data, bytes)
        const expected = { train_mean_nll: one.nll, train_mean_bpb: one.bpb }
        const names = Object.entries(expected).flatMap(([name, value]) => (value === null ? [] : [name]))
        expect(Object.keys(metrics)).toEqual(names)
        expectClose(
          Object.values(metrics),
          Object.values(expected).filter((value) => value !== null),
        )
        const evaluated = yield* Likelihood.evaluationMetrics("test", one.data, bytes)
        expect(Object.keys(evaluated)).toEqual(one.nll === null ? [] : ["test/nll", "test/bpb"])
        expect(Object.keys(yield* Likelihood.trainMetrics(one.data))).toEqual(names.slice(0, 1))
      }
    }).pipe(Effect.provide(TokenizerBackend.layerPortable)),
  )

  it.effect("a token without weight has no influence, even if it is impossible", () =>
    Effect.gen(function* () {
      const data = [{ logprobs: [-1, -Infinity], weights: [1, 0], targetTokens: [1, 2] }]
      expect(Likelihood.meanNll(data)).toEqual(Option.some(1))
      const bytes = { isSpecial: () => false, count: (run: ReadonlyArray<number>) => Effect.succeed(run.length) }
      expect(yield* Likelihood.bitsPerByte(data, bytes)).toEqual(Option.some(1 / Math.LN2))
      expect(Likelihood.meanNll([])).toEqual(Option.none())
      expect(yield* Likelihood.bitsPerByte(data, { ...bytes, isSpecial: () => true })).toEqual(Option.none())
    }),
  )
})
