import { describe, expect, it } from "@effect/vitest"
import { Random } from "@effect-tinker/engine"
import * as Kernel from "../src/internal/Kernel.js"
import { Memory } from "../src/internal/Memory.js"
import * as Support from "./support/Goldens.ts"

const memory = (kind: Kernel.Kind) => new Memory(Kernel.make(kind)!)

/** Fills both memories with the same numbers, runs the same call, and returns the contents of both. */
const both = (seed: number, length: number, call: (kernel: Kernel.Kernel, at: number, memory: Memory) => void) => {
  const [a, b] = (["simd", "plain"] as const).map((kind) => {
    const one = memory(kind)
    const at = one.alloc(length)
    const random = Random.make(seed)
    for (let i = 0; i < length; i++) one.floats[at + i] = 4 * random() - 2
    call(one.kernel, at, one)
    return one.floats.slice(at, at + length)
  })
  return { simd: a!, plain: b! }
}

describe("SIMD kernel and plain kernel", () => {
  const same = (name: string, length: number, call: Parameters<typeof both>[2]) =>
    it(`${name} gives identical results with both kernels`, () => {
      const { plain, simd } = both(7, length, call)
      expect(simd).toEqual(plain)
      expect(simd.every(Number.isFinite)).toBe(true)
      // Makes sure that the call changed something.
      expect(simd).not.toEqual(both(7, length, () => {}).simd)
    })

  for (const [m, n, k] of [
    [1, 1, 1],
    [4, 8, 5],
    [33, 23, 17],
    [40, 12, 9],
    [3, 6, 31],
  ] as const) {
    const b = m * k
    const c = b + k * n
    const end = c + m * n
    for (const add of [0, 1]) {
      same(`gemm ${m}x${n}x${k}${add ? " with add" : ""}`, end, (kernel, at, memory) =>
        kernel.gemm(m, n, k, at, k, 1, at + b, n, at + c, n, add, memory.alloc(8 * k)),
      )
      same(`transposed gemm ${m}x${n}x${k}${add ? " with add" : ""}`, end, (kernel, at, memory) =>
        kernel.gemm(m, n, k, at, 1, m, at + b, n, at + c, n, add, memory.alloc(8 * k)),
      )
    }
  }
  same("transpose", 600, (kernel, at) => kernel.transpose(13, 17, at, 17, at + 300, 13))
  same("add", 60, (kernel, at) => kernel.add(23, at, at + 30))
  same("scale", 60, (kernel, at) => kernel.scale(23, at, 0.3))
  same("rmsNorm", 400, (kernel, at) => kernel.rmsNorm(5, 22, at, at + 150, 22, at + 300, 1e-5, at + 350))
  for (const accumulate of [0, 1]) {
    same(`rmsNormBackward with accumulate ${accumulate}`, 600, (kernel, at) =>
      kernel.rmsNormBackward(5, 22, at, at + 110, at + 220, 22, at + 330, at + 360, accumulate),
    )
  }
  same("rope", 400, (kernel, at, memory) => {
    memory.ints.set([2, 0, 1], at + 300)
    kernel.rope(3, 4, 10, at, at + 130, at + 150, at + 300, -1)
    memory.ints.fill(0, at + 300, at + 303)
  })
  same("causalSoftmax", 300, (kernel, at) => kernel.causalSoftmax(6, 9, at, 11, 4, 0.7))
  same("softmaxBackward", 300, (kernel, at) => kernel.softmaxBackward(6, 9, at, at + 100, 11, 0.7))
  same("swiglu", 100, (kernel, at) => kernel.swiglu(30, at, at + 30, at + 60))
  same("swigluBackward", 100, (kernel, at) => kernel.swigluBackward(30, at, at + 30, at + 60))
  same("expRows", 300, (kernel, at) => kernel.expRows(4, 19, at, at + 100, at + 200))
  same("adamw", 400, (kernel, at, memory) => {
    memory.floats.set(memory.floats.slice(at + 300, at + 348).map(Math.abs), at + 300)
    kernel.adamw(48, at, at + 100, at + 200, at + 300, 0.5, 0.999, 0.9, 0.1, 0.95, 0.05, 1e-3, 0.3, 1e-12)
  })

  it("dot and sumOfSquares give identical results with both kernels", () => {
    const results = (["simd", "plain"] as const).map((kind) => {
      const one = memory(kind)
      const at = one.alloc(100)
      const random = Random.make(3)
      for (let i = 0; i < 100; i++) one.floats[at + i] = random() - 0.5
      return [one.kernel.dot(47, at, at + 50), one.kernel.sumOfSquares(99, at)]
    })
    expect(results[0]).toEqual(results[1])
  })

  it("the exponential is accurate to 2e-7", () => {
    const one = memory("simd")
    const at = one.alloc(4000)
    for (let i = 0; i < 4000; i++) one.floats[at + i] = -80 + i * 0.02
    const x = one.floats.slice(at, at + 4000)
    const out = one.alloc(4000)
    const stats = one.alloc(2)
    one.kernel.expRows(1, 4000, at, out, stats)
    const most = x.at(-1)!
    for (const [i, value] of x.entries()) {
      const wanted = Math.exp(Math.fround(value - most))
      expect(Math.abs(one.floats[out + i]! - wanted)).toBeLessThanOrEqual(2e-7 * wanted)
    }
  })
})

describe("training", () => {
  it("training and sampling give identical results with both kernels", () => {
    const of = Support.golden("qwen3-f32-free")
    const data = Support.datums(of, ["weights"])
    const [simd, plain] = (["simd", "plain"] as const).map((kernel) => {
      const engine = Support.withAdapter("qwen3-f32-free", { kernel })
      expect(engine.kernel).toBe(kernel)
      for (let i = 0; i < 2; i++) {
        Support.right(engine.forwardBackward("a", data, { name: "cross_entropy" }))
        Support.right(engine.optimStep("a", { learningRate: 1e-2, gradClipNorm: 1 }))
      }
      const samples = Support.right(engine.sample("a", { prompt: [1, 2, 3], samples: 3, maxTokens: 12, seed: 5 }))
      return { file: Support.right(engine.saveAdapter("a", { optimizer: true })), samples }
    })
    expect(simd).toEqual(plain)
  })
})

describe("Memory", () => {
  it("Memory reuses freed blocks and merges neighbors", () => {
    const one = memory("simd")
    const blocks = [100, 200, 300].map((size) => one.alloc(size))
    const { used } = one
    one.free(blocks[0]!)
    one.free(blocks[1]!)
    expect(one.alloc(310)).toBe(blocks[0])
    one.free(blocks[0]!)
    one.free(blocks[2]!)
    expect(one.used).toBe(0)
    expect(used).toBeGreaterThanOrEqual(2400)
    expect(one.alloc(10)).toBe(blocks[0])
  })

  it("Memory fails to allocate more than the limit and remains usable", () => {
    const one = memory("simd")
    expect(() => one.alloc(2 ** 31)).toThrow("failed to allocate")
    expect(one.alloc(10)).toBeGreaterThan(0)
  })
})
