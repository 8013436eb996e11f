import { describe, expect, it } from "@effect/vitest"
import { Either, FastCheck as fc, Schema } from "effect"
import * as TrainingResult from "effect-tinker/TrainingResult"
// The package does not export this module, and the compiler refuses to rewrite a `.ts` import into another project.
import { combine, hashUnordered } from "../src/internal/training/CombineResults.js"
import { behaviour, vector } from "./support/Recorded.ts"

interface Answer {
  readonly bodyBase64?: string
}

const results = (answers: ReadonlyArray<Answer>) =>
  answers.flatMap(({ bodyBase64 }) =>
    bodyBase64 === undefined
      ? []
      : [Either.getOrThrow(TrainingResult.fromProtobuf(new Uint8Array(Buffer.from(bodyBase64, "base64"))))],
  )

/** The recorded result of the reference, in the shape of our result. */
const withoutTypes = (result: unknown): unknown =>
  JSON.parse(JSON.stringify(result), (key, value: unknown) => (key === "$type" ? undefined : value))

/** A chunk with the given number of outputs. */
const chunk = (outputs: number, metrics: Readonly<Record<string, number>>): TrainingResult.TrainingResult => ({
  outputType: "T",
  outputs: Array.from({ length: outputs }, () => ({})),
  metrics,
})

const metrics = (...chunks: ReadonlyArray<TrainingResult.TrainingResult>) => combine(chunks).metrics

describe("CombineResults", () => {
  it("results are combined as by the reference: behaviours/metrics_reduction.json", () => {
    const { expect: recorded, script } = behaviour("behaviours/metrics_reduction.json")
    const chunks = results(script)
    expect(chunks.length).toBe(2)
    const { metrics, ...ours } = Schema.encodeSync(TrainingResult.TrainingResult)(combine(chunks))
    const { metrics: theirs, ...reference } = withoutTypes(
      recorded.result,
    ) as typeof TrainingResult.TrainingResult.Encoded
    expect(ours).toEqual(reference)
    // The reference drops metrics it has no rule for; we keep the first value.
    expect(metrics).toEqual({ ...theirs, "z:newkind": 1 })
  })

  it("a metric name without a colon is accepted, where the reference fails: behaviours/metrics_without_suffix.json", () => {
    const { expect: recorded, script } = behaviour("behaviours/metrics_without_suffix.json")
    expect(recorded.error?.$error).toBe("ValueError")
    const [only, ...more] = results(script)
    expect(more).toEqual([])
    expect(combine([only!])).toBe(only)
    expect(only?.metrics).toEqual({ loss: 1 })
    expect(metrics(only!, { ...only!, metrics: { loss: 2 } })).toEqual({ loss: 1 })
  })

  it("hash_unordered matches Python: vectors-0.25.0/metrics_hash_unordered.json", () => {
    const { exchanges, result } = vector("vectors-0.25.0/metrics_hash_unordered.json")
    const [only] = results(exchanges.map(({ response }) => response as Answer))
    const { metrics: recorded } = result as { readonly metrics: Readonly<Record<string, number>> }
    expect(hashUnordered([only!.metrics["h:hash_unordered"]!])).toBe(recorded["h:hash_unordered"])
    // For a single chunk we keep the server's own value.
    expect(combine([only!]).metrics).toEqual({ ...recorded, "h:hash_unordered": 7 })
  })

  it.each([
    [[], 5740354900026072187n],
    [[3, 1, 2], 529344067295497451n],
    [[5, -1, 0], -3211696414420712927n],
    [[-2], 8078679518589016365n],
    [[-1.9], 8078679518589016365n],
    [[2 ** 53, 2 ** 61, -(2 ** 61), 2 ** 63, 2 ** 64, 123456789012345680, 2 ** 61 - 256], -36241765850734402n],
  ])("hash_unordered of %j matches CPython 3.11", (values, hash) => {
    expect(hashUnordered(values)).toBe(Number(hash))
  })

  it("a single chunk is returned unchanged, whatever its metrics", () => {
    const only = chunk(0, { "a:mean": 1, b: 2, "c:d:e": 3, "f:hash2": -5, "g:hash_unordered": 7, "h:news": 4 })
    expect(combine([only])).toBe(only)
  })

  it("combining no chunks gives an empty result", () => {
    expect(combine([])).toEqual({ outputType: "", outputs: [], metrics: {} })
  })

  it("combining keeps the output type of the first chunk and all outputs in order", () => {
    const first = Either.getOrThrow(
      TrainingResult.fromJson({ loss_fn_output_type: "A", loss_fn_outputs: [{ x: { data: [1], dtype: "int64" } }] }),
    )
    const second = { ...chunk(2, {}), outputType: "B" }
    expect(combine([first, second])).toEqual({ outputType: "A", outputs: [first.outputs[0], {}, {}], metrics: {} })
  })

  it("a metric without a known reduction takes the first available value", () => {
    expect(metrics(chunk(1, { "a:news": 1 }), chunk(1, { "a:news": 2, b: 3, "c:d:mean": 4, ":": 5 }))).toEqual({
      "a:news": 1,
      b: 3,
      "c:d:mean": 4,
      ":": 5,
    })
    expect(metrics(chunk(0, { "a:mean": 1, "b:slack": 2 }), chunk(0, { "a:mean": 5, "b:slack": 6 }))).toEqual({
      "a:mean": 1,
      "b:slack": 2,
    })
    const odd = { "h:hash2": Number.NaN, "u:hash_unordered": Infinity, "s:sum": Number.NaN }
    expect(metrics(chunk(1, odd), chunk(1, { "h:hash2": 1, "u:hash_unordered": 2, "s:sum": 3 }))).toEqual(odd)
  })

  it("a metric with a known reduction is dropped unless every chunk has it", () => {
    expect(metrics(chunk(1, { "a:sum": 1, "u:unique": 1 }), chunk(1, { "b:max": 1 }), chunk(1, {}))).toEqual({})
  })

  it("means are weighted by the number of outputs, and a chunk without outputs has no weight", () => {
    const means = [chunk(3, { "a:mean": 1, "b:slack": 1 }), chunk(1, { "a:mean": 5, "b:slack": 5 })]
    expect(metrics(...means)).toEqual({ "a:mean": 2, "b:slack": 3 })
    expect(metrics(...means, chunk(0, { "a:mean": 100, "b:slack": 0 }))).toEqual({ "a:mean": 2, "b:slack": 3 })
  })

  it("hash sums wrap at 64 bits", () => {
    const hashes = (...values: ReadonlyArray<number>) =>
      metrics(...values.map((value) => chunk(1, { "h:hash2": value })))["h:hash2"]
    expect(hashes(2 ** 63, 2 ** 63)).toBe(0)
    expect(hashes(-1, 3.9)).toBe(2)
    expect(hashes(-(2 ** 60), 0)).toBe(Number(2n ** 64n - 2n ** 60n))
    expect(hashes(2 ** 70, 2 ** 53)).toBe(2 ** 53)
  })

  it("metric names that exist on Object.prototype are handled like any other", () => {
    const named = JSON.parse('{ "__proto__": 1, "constructor": 2, "toString:sum": 3 }') as Record<string, number>
    const { metrics } = combine([chunk(1, named), chunk(1, { "toString:sum": 4 })])
    expect(JSON.stringify(metrics)).toBe('{"__proto__":1,"constructor":2,"toString:sum":7}')
    expect(JSON.stringify(combine([chunk(1, {}), chunk(1, { "x:toString": 1, constructor: 2 })]).metrics)).toBe(
      '{"x:toString":1,"constructor":2}',
    )
  })

  const suffix = fc.constantFrom(
    "",
    ":mean",
    ":slack",
    ":sum",
    ":min",
    ":max",
    ":hash2",
    ":hash_unordered",
    ":unique",
    ":x",
    ":a:b",
  )
  const name = fc.tuple(fc.constantFrom("a", "b", ""), suffix).map((parts) => parts.join(""))
  const anyChunk = fc
    .tuple(fc.nat(3), fc.dictionary(name, fc.double()))
    .map(([outputs, metrics]) => chunk(outputs, metrics))

  it.prop(
    "combining never fails and adds no metric names",
    { chunks: fc.array(anyChunk, { maxLength: 5 }) },
    ({ chunks }) => {
      const result = combine(chunks)
      expect(result.outputs.length).toBe(chunks.reduce((sum, { outputs }) => sum + outputs.length, 0))
      for (const [name, value] of Object.entries(result.metrics)) {
        expect(typeof value).toBe("number")
        expect(chunks.some(({ metrics }) => name.replace(/(?<=:unique)_\d+$/, "") in metrics)).toBe(true)
      }
    },
  )
})
