import { describe, expect, it } from "@effect/vitest"
import * as Support from "./support/Goldens.ts"

const all = ["llama-f32-free-sharded", "llama-f16-tied", "qwen3-bf16-tied", "qwen3-f32-free"]
const trained = ["llama-f32-free-sharded", "qwen3-f32-free"]

/** Requests every log probability by making every token a target. */
const everything = (tokens: ReadonlyArray<number>, vocabSize: number) => ({
  tokens,
  inputs: {
    target_tokens: {
      data: tokens.flatMap(() => Array.from({ length: vocabSize }, (_, id) => id)),
      shape: [tokens.length, vocabSize],
    },
    weights: { data: tokens.map(() => 0) },
  },
})

const furthest = (a: Float32Array, b: Float32Array): number => {
  expect(a.length).toBe(b.length)
  return a.reduce((worst, value, i) => Math.max(worst, Math.abs(value - b[i]!)), 0)
}

describe("goldens of transformers", () => {
  for (const name of all) {
    const engine = Support.engine(name)
    const { vocabSize } = engine.config
    const { tokens } = Support.golden(name)
    const file = Support.tensors(name, "logits")
    const logits = tokens.map((_, i) => file.get(`logits.${i}`)!.data)

    it(`${name}: logits match transformers`, () => {
      expect(tokens.map(({ length }) => length)).toEqual([5, 70, 1, 18])
      for (const [i, ids] of tokens.entries()) {
        expect(furthest(Support.right(engine.logits(undefined, ids)), logits[i]!)).toBeLessThan(1e-4)
      }
    })

    it(`${name}: log probabilities of packed sequences match transformers`, () => {
      const data = tokens.map((ids) => everything(ids, vocabSize))
      const { outputs } = Support.right(engine.forward(undefined, data, { name: "cross_entropy" }))
      expect(outputs.length).toBe(4)
      for (const [i, { logprobs }] of outputs.entries()) {
        const wanted = logits[i]!.slice()
        for (let row = 0; row < wanted.length; row += vocabSize) {
          const some = wanted.subarray(row, row + vocabSize)
          const lse = Math.log(some.reduce((sum, value) => sum + Math.exp(value), 0))
          for (const [k, value] of some.entries()) some[k] = value - lse
        }
        expect(furthest(logprobs, wanted)).toBeLessThan(1e-4)
      }
    })
  }

  it("logits at some positions equal rows of all logits, and an adapter changes them", () => {
    const engine = Support.withAdapter("qwen3-f32-free")
    const { vocabSize } = engine.config
    const tokens = Support.golden("qwen3-f32-free").tokens[1]!
    const whole = Support.right(engine.logits("a", tokens))
    const some = Support.right(engine.logits("a", tokens, [69, 0, 69]))
    const row = (at: number) => Array.from(whole.subarray(at * vocabSize, (at + 1) * vocabSize))
    expect(Array.from(some)).toEqual([...row(69), ...row(0), ...row(69)])
    expect(furthest(Support.right(engine.logits(undefined, tokens)), whole)).toBeGreaterThan(0.1)
  })
})

describe("goldens of torch", () => {
  for (const name of trained) {
    const of = Support.golden(name)
    const gradients = Support.tensors(name, "gradients")

    const compare = (key: string, engine: ReturnType<typeof Support.withAdapter>, sum: number) => {
      expect(Math.abs(sum - of.losses[key]!.sum)).toBeLessThan(1e-4)
      const found = Support.right(engine.gradients("a"))
      expect(found.size).toBe(30)
      for (const [path, { data }] of found) {
        expect(Support.apart(data, gradients.get(`${key}/${path}`)!.data), path).toBeLessThan(3e-5)
      }
    }

    for (const key of ["cross_entropy", "importance_sampling", "ppo", "cispo", "gspo", "dro"]) {
      it(`${name}: loss and gradients of ${key} match torch`, () => {
        const engine = Support.withAdapter(name)
        const { config, inputs } = of.losses[key]!
        const data = Support.datums(of, inputs)
        const { metrics } = Support.right(engine.forwardBackward("a", data, { name: key, config }))
        compare(key, engine, metrics["loss:sum"])
      })
    }

    it(`${name}: targets of shape [N, K], dense and sparse, match torch`, () => {
      const wide = of.wide.map((datum, i) => ({
        tokens: of.tokens[i]!,
        inputs: {
          target_tokens: Support.matrix(datum["target_tokens"]!),
          weights: Support.matrix(datum["weights"]!),
        },
      }))
      const engine = Support.withAdapter(name)
      const { metrics } = Support.right(engine.forwardBackward("a", wide, { name: "cross_entropy" }))
      compare("cross_entropy_nk", engine, metrics["loss:sum"])

      const sparse = wide.map((datum) => {
        const { data, shape } = datum.inputs.weights
        const rows = Array.from({ length: shape![0]! + 1 }, (_, row) => row * 3)
        const columns = Array.from(data, (_, i) => i % 3)
        const weights = { data, shape, sparse: { crowIndices: rows, colIndices: columns } }
        return { ...datum, inputs: { ...datum.inputs, weights } }
      })
      const other = Support.withAdapter(name)
      Support.right(other.forwardBackward("a", sparse, { name: "cross_entropy" }))
      expect(other.gradients("a")).toEqual(engine.gradients("a"))
    })

    it(`${name}: a custom loss in linear form matches torch`, () => {
      const engine = Support.withAdapter(name)
      const data = Support.datums(of, ["weights"])
      const { outputs } = Support.right(engine.forward("a", data, { name: "cross_entropy" }))
      // For the loss 0.1 logprob², the weights are minus its derivative.
      const linear = data.map((datum, i) => ({
        ...datum,
        inputs: { ...datum.inputs, weights: { data: outputs[i]!.logprobs.map((value) => -0.2 * value) } },
      }))
      Support.right(engine.forwardBackward("a", linear, { name: "cross_entropy" }))
      const sum = outputs.reduce((sum, { logprobs }) => logprobs.reduce((s, v) => s + 0.1 * v * v, sum), 0)
      compare("custom", engine, sum)
    })

    it.each([
      ["AdamW with decay and clipping", of.adamw, { weightDecay: 0.1 }, "trained"],
      ["Dimuon with clipping", of.dimuon, { type: "dimuon" }, "dimuon"],
    ] as const)(`${name}: six steps of %s match torch`, (_, steps, settings, file_) => {
      const engine = Support.withAdapter(name)
      const data = Support.datums(of, ["weights"])
      expect(steps.length).toBe(6)
      for (const { loss, norm } of steps) {
        const { metrics } = Support.right(engine.forwardBackward("a", data, { name: "cross_entropy" }))
        expect(Math.abs(metrics["loss:sum"] / loss - 1)).toBeLessThan(2e-4)
        const step = Support.right(engine.optimStep("a", { learningRate: 1e-2, gradClipNorm: 20, ...settings }))
        expect(Math.abs(step.gradNorm / norm - 1)).toBeLessThan(2e-3)
      }
      const file = Support.right(engine.saveAdapter("a"))
      const wanted = Support.tensors(name, file_)
      const got = Support.right(Support.parse(file))
      expect(got.names.length).toBe(30)
      for (const path of got.names) {
        expect(Support.apart(got.get(path)!.data, wanted.get(path)!.data), path).toBeLessThan(5e-3)
      }
    })
  }
})
