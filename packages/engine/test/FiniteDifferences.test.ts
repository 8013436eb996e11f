import { describe, expect, it } from "@effect/vitest"
import { Random, Safetensors } from "@effect-tinker/engine"
import * as Attention from "../src/internal/Attention.js"
import * as Kernel from "../src/internal/Kernel.js"
import { Memory } from "../src/internal/Memory.js"
import * as Support from "./support/Goldens.ts"

/**
 * Compares the gradient of an operation with finite differences: weights the output with random numbers and moves every
 * input a little in both directions.
 */
const check = (options: {
  readonly inputs: ReadonlyArray<number>
  readonly outputs: number
  readonly forward: (memory: Memory, inputs: ReadonlyArray<number>, output: number) => void
  /** Returns gradients of the leading inputs, in their order. */
  readonly backward: (memory: Memory, inputs: ReadonlyArray<number>, dOut: number) => ReadonlyArray<Float32Array>
}) => {
  const memory = new Memory(Kernel.make("simd")!)
  const random = Random.make(11)
  const inputs = options.inputs.map((size) => {
    const at = memory.alloc(size)
    for (let i = 0; i < size; i++) memory.floats[at + i] = 2 * random() - 1
    return at
  })
  const output = memory.alloc(options.outputs)
  const weights = Float32Array.from({ length: options.outputs }, () => 2 * random() - 1)
  const value = () => {
    options.forward(memory, inputs, output)
    return weights.reduce((sum, weight, i) => sum + weight * memory.floats[output + i]!, 0)
  }
  const numeric = inputs.map((at, which) =>
    Float32Array.from({ length: options.inputs[which]! }, (_, i) => {
      const before = memory.floats[at + i]!
      const by = 1e-2
      memory.floats[at + i] = before + by
      const up = value()
      memory.floats[at + i] = before - by
      const down = value()
      memory.floats[at + i] = before
      return (up - down) / (2 * by)
    }),
  )
  options.forward(memory, inputs, output)
  const dOut = memory.copyOf(weights)
  const exact = options.backward(memory, inputs, dOut)
  expect(exact.length).toBeGreaterThan(0)
  for (const [which, gradient] of exact.entries()) {
    expect(Math.max(...gradient.map(Math.abs))).toBeGreaterThan(0.05)
    expect(Support.apart(gradient, numeric[which]!)).toBeLessThan(1e-3)
  }
}

const take = (memory: Memory, at: number, size: number) => memory.floats.slice(at, at + size)

describe("finite differences", () => {
  it("the gradient of rmsNorm matches finite differences", () =>
    check({
      inputs: [30, 10],
      outputs: 30,
      forward: (m, [x, w], y) =>
        m.kernel.rmsNorm(
          3,
          10,
          x!,
          y,
          10,
          w!,
          1e-5,
          m.scope((alloc) => alloc(3)),
        ),
      backward: (m, [x, w], dy) => {
        const inverse = m.alloc(3)
        m.kernel.rmsNorm(3, 10, x!, m.alloc(30), 10, w!, 1e-5, inverse)
        const dx = m.alloc(30)
        m.kernel.rmsNormBackward(3, 10, x!, dy, dx, 10, w!, inverse, 0)
        return [take(m, dx, 30)]
      },
    }))

  it("the gradient of swiglu matches finite differences", () =>
    check({
      inputs: [23, 23],
      outputs: 23,
      forward: (m, [gate, up], y) => m.kernel.swiglu(23, gate!, up!, y),
      backward: (m, [gate, up], dy) => {
        m.kernel.swigluBackward(23, gate!, up!, dy)
        return [take(m, gate!, 23), take(m, up!, 23)]
      },
    }))

  it("the gradient of rope matches finite differences", () =>
    check({
      inputs: [24],
      outputs: 24,
      forward: (m, [x], y) => {
        m.floats.copyWithin(y, x!, x! + 24)
        rotate(m, y, 1)
      },
      backward: (m, _, dy) => {
        rotate(m, dy, -1)
        return [take(m, dy, 24)]
      },
    }))

  it("the gradient of softmax matches finite differences", () =>
    check({
      inputs: [28],
      outputs: 28,
      forward: (m, [x], y) => {
        m.floats.copyWithin(y, x!, x! + 28)
        m.kernel.causalSoftmax(4, 7, y, 7, 4, 0.6)
      },
      backward: (m, [x], dy) => {
        m.kernel.causalSoftmax(4, 7, x!, 7, 4, 0.6)
        m.kernel.softmaxBackward(4, 7, x!, dy, 7, 0.6)
        return [take(m, dy, 28)]
      },
    }))

  it("the gradient of attention with grouped queries matches finite differences", () => {
    const config = { ...Support.engine("qwen3-f32-free").config, headDim: 6, heads: 4, kvHeads: 2 }
    const sequences = [
      { start: 0, length: 3 },
      { start: 3, length: 4 },
    ]
    check({
      inputs: [7 * 24, 7 * 12, 7 * 12],
      outputs: 7 * 24,
      forward: (m, [q, k, v], out) => Attention.forward(m, config, sequences, q!, k!, v!, out),
      backward: (m, [q, k, v], dOut) => {
        const [dq, dk, dv] = [m.alloc(7 * 24), m.alloc(7 * 12), m.alloc(7 * 12)] as const
        Attention.backward(m, config, sequences, q!, k!, v!, dOut, dq, dk, dv)
        return [take(m, dq, 7 * 24), take(m, dk, 7 * 12), take(m, dv, 7 * 12)]
      },
    })
  })

  for (const model of ["llama-f32-free-sharded", "qwen3-f32-free"]) {
    for (const loss of ["cross_entropy", "importance_sampling", "cispo", "dro"]) {
      it(`${model}: the adapter gradient of ${loss} matches finite differences in twelve directions`, () => {
        const of = Support.golden(model)
        const engine = Support.withAdapter(model)
        const data = Support.datums(of, of.losses[loss]!.inputs).slice(0, 1)
        const config = of.losses[loss]!.config
        Support.right(engine.forwardBackward("a", data, { name: loss, config }))
        const gradients = Support.right(engine.gradients("a"))
        const file = Support.right(Safetensors.read(Support.bytes(model, "adapter")))
        const random = Random.make(5)
        // cispo holds its clipped ratio fixed, so the linear form with fixed weights is used.
        const frozen =
          loss === "cispo"
            ? data.map((datum) => {
                const { outputs } = Support.right(engine.forward("a", [datum], { name: loss, config }))
                const { elementwiseLoss, logprobs } = outputs[0]!
                const weights = { data: elementwiseLoss.map((value, i) => -value / logprobs[i]!) }
                return { tokens: datum.tokens, inputs: { target_tokens: datum.inputs["target_tokens"]!, weights } }
              })
            : data
        const value = (moved: Uint8Array) => {
          Support.right(engine.loadAdapter("moved", moved))
          const name = loss === "cispo" ? "cross_entropy" : loss
          const { metrics } = Support.right(
            engine.forward("moved", frozen, { name, config: loss === "cispo" ? {} : config }),
          )
          Support.right(engine.dropAdapter("moved"))
          return metrics["loss:sum"]
        }
        for (let direction = 0; direction < 12; direction++) {
          const along = new Map(
            file.names.map((name) => [name, file.get(name)!.data.map(() => 2 * random() - 1)] as const),
          )
          const moved = (by: number) =>
            Safetensors.write(
              Object.fromEntries(
                file.names.map((name) => {
                  const { data, shape } = file.get(name)!
                  return [name, { shape, data: data.map((x, i) => x + by * along.get(name)![i]!) }]
                }),
              ),
              file.metadata,
            )
          const by = 2e-4
          const numeric = (value(moved(by)) - value(moved(-by))) / (2 * by)
          let exact = 0
          let size = 0
          for (const [name, { data }] of gradients) {
            exact += data.reduce((sum, g, i) => sum + g * along.get(name)![i]!, 0)
            size += data.reduce((sum, g) => sum + g * g, 0)
          }
          expect(Math.abs(exact - numeric)).toBeLessThan(0.02 * Math.sqrt(size))
        }
      })
    }
  }
})

const rotate = (memory: Memory, x: number, sign: number) =>
  memory.scope((alloc) => {
    const [cosine, sine, positions] = [alloc(16), alloc(16), alloc(2)] as const
    for (let i = 0; i < 16; i++) {
      memory.floats[cosine + i] = Math.cos(i)
      memory.floats[sine + i] = Math.sin(i)
    }
    memory.ints.set([3, 1], positions)
    memory.kernel.rope(2, 2, 6, x, cosine, sine, positions, sign)
  })
