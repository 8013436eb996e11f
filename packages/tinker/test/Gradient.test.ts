import { describe, expect, it } from "@effect/vitest"
import { Either, FastCheck as fc, pipe } from "effect"
import * as Gradient from "effect-tinker/Gradient"
import { InvalidInput } from "effect-tinker/TinkerError"

type Vectors = ReadonlyArray<Float64Array>
type Computation = (inputs: ReadonlyArray<Gradient.Node>) => Gradient.Node

const gradientsOf = (f: Computation, inputs: Vectors) => Either.getOrThrow(Gradient.of(f, inputs))

/** Central differences: the expected gradients, computed without any of the tested rules. */
const differences = (f: Computation, inputs: Vectors): ReadonlyArray<ReadonlyArray<number>> => {
  const valueAt = (moved: Vectors) => gradientsOf(f, moved).value
  return inputs.map((input, which) =>
    Array.from(input, (x, i) => {
      const step = 1e-5 * Math.max(1, Math.abs(x))
      const at = (x: number) => valueAt(inputs.with(which, input.with(i, x)))
      return (at(x + step) - at(x - step)) / (2 * step)
    }),
  )
}

const expectClose = (actual: number, expected: number, tolerance = 1e-6) =>
  expect(Math.abs(actual - expected), `${actual} for ${expected}`).toBeLessThanOrEqual(
    tolerance * Math.max(1, Math.abs(expected)),
  )

const expectGradients = (f: Computation, inputs: Vectors) => {
  const { gradients } = gradientsOf(f, inputs)
  const expected = differences(f, inputs)
  expect(gradients.map(({ length }) => length)).toEqual(inputs.map(({ length }) => length))
  for (const [which, gradient] of gradients.entries())
    for (const [i, slope] of gradient.entries()) expectClose(slope, expected[which]![i]!)
}

const between = (min: number, max: number) => fc.double({ min, max, noNaN: true })
const anywhere = between(-3, 3)
const positive = between(0.2, 3)
/** Keeps away from points where the operation is not differentiable. */
const awayFrom = (...corners: ReadonlyArray<number>) =>
  anywhere.filter((x) => corners.every((corner) => Math.abs(x - corner) > 1e-3))

const vector = (element: fc.Arbitrary<number>, length: number) =>
  fc.array(element, { minLength: length, maxLength: length }).map((values) => Float64Array.from(values))

const unary: Readonly<Record<string, readonly [Gradient.Unary, fc.Arbitrary<number>]>> = {
  neg: [Gradient.neg, anywhere],
  exp: [Gradient.exp, anywhere],
  log: [Gradient.log, positive],
  sqrt: [Gradient.sqrt, positive],
  square: [Gradient.square, anywhere],
  abs: [Gradient.abs, awayFrom(0)],
  sigmoid: [Gradient.sigmoid, between(-30, 30)],
  logSigmoid: [Gradient.logSigmoid, between(-30, 30)],
  softplus: [Gradient.softplus, between(-30, 30)],
  tanh: [Gradient.tanh, anywhere],
  relu: [Gradient.relu, awayFrom(0)],
  clamp: [Gradient.clamp({ minimum: -1, maximum: 2 }), awayFrom(-1, 2)],
  scale: [Gradient.scale(-2.5), anywhere],
  sum: [Gradient.sum, anywhere],
  mean: [Gradient.mean, anywhere],
  logSumExp: [Gradient.logSumExp, anywhere],
  cumsum: [(x) => Gradient.cumsum(Gradient.concat([x])), anywhere],
  at: [(x) => Gradient.add(Gradient.at(Gradient.concat([x]), 0), Gradient.at(Gradient.concat([x]), -1)), anywhere],
  slice: [(x) => Gradient.slice(Gradient.concat([x]), -2), anywhere],
  "concat, with itself": [(x) => Gradient.square(Gradient.concat([x, 5, x])), anywhere],
}

const binary: Readonly<Record<string, readonly [Gradient.Binary, fc.Arbitrary<number>, fc.Arbitrary<number>]>> = {
  add: [Gradient.add, anywhere, anywhere],
  sub: [Gradient.sub, anywhere, anywhere],
  mul: [Gradient.mul, anywhere, anywhere],
  div: [Gradient.div, anywhere, positive],
  // The two halves of a grid, which never coincide.
  min: [Gradient.min, fc.integer({ min: -20, max: 20 }), fc.integer({ min: -20, max: 20 }).map((n) => n + 0.5)],
  max: [Gradient.max, fc.integer({ min: -20, max: 20 }), fc.integer({ min: -20, max: 20 }).map((n) => n + 0.5)],
  dot: [Gradient.dot, anywhere, anywhere],
}

/** Reduces any result to a scalar whose slopes all differ. */
const weigh = (node: Gradient.Node) =>
  Gradient.dot(
    node,
    Array.from(node.values, (_, i) => Math.cos(i) + 0.3),
  )

const length = 4
/** The input as an array, or as a scalar made of its first element. */
const shaped = (asScalar: boolean, node: Gradient.Node | undefined) => (asScalar ? Gradient.at(node!, 0) : node!)

describe("Gradient", () => {
  describe("agreement with finite differences", () => {
    for (const [name, [operation, element]] of Object.entries(unary))
      it.prop(
        `the gradient of ${name} agrees with finite differences`,
        { x: vector(element, length), scalar: fc.boolean() },
        ({ x, scalar }) => {
          expectGradients(([x]) => weigh(operation(shaped(scalar, x))), [x])
        },
      )

    for (const [name, [operation, left, right]] of Object.entries(binary))
      it.prop(
        `the gradient of ${name} agrees with finite differences, for arrays and scalars`,
        { x: vector(left, length), y: vector(right, length), scalars: fc.tuple(fc.boolean(), fc.boolean()) },
        ({ x, y, scalars }) => {
          expectGradients(([x, y]) => weigh(operation(shaped(scalars[0], x), shaped(scalars[1], y))), [x, y])
        },
      )

    const conditions = fc.array(fc.boolean(), { minLength: length, maxLength: length })

    it.prop(
      "the gradients of where and mask agree with finite differences",
      {
        x: vector(anywhere, length),
        y: vector(anywhere, length),
        condition: conditions,
        scalars: fc.tuple(fc.boolean(), fc.boolean()),
      },
      ({ x, y, condition, scalars }) => {
        const squares = ([x, y]: ReadonlyArray<Gradient.Node>) =>
          [Gradient.square(shaped(scalars[0], x)), Gradient.square(shaped(scalars[1], y))] as const
        expectGradients((inputs) => weigh(Gradient.where(condition, ...squares(inputs))), [x, y])
        expectGradients((inputs) => weigh(Gradient.mask(squares(inputs)[0], condition)), [x, y])
      },
    )

    const operations: ReadonlyArray<(a: Gradient.Node, b: Gradient.Node) => Gradient.Node> = [
      Gradient.add,
      Gradient.sub,
      Gradient.mul,
      (a, b) => Gradient.div(a, Gradient.add(Gradient.square(b), 1)),
      (a, b) => Gradient.mul(Gradient.tanh(a), Gradient.sigmoid(b)),
      (a, b) => Gradient.add(Gradient.logSumExp(a), Gradient.mean(b)),
      (a, b) => Gradient.softplus(Gradient.sub(a, Gradient.sum(b))),
    ]
    // Each step combines two existing nodes, so nodes are shared, left unused, or used twice by one step.
    const step = fc.record({
      operation: fc.constantFrom(...operations),
      left: fc.nat(100),
      right: fc.nat(100),
    })

    it.prop(
      "gradients of random computations agree with finite differences",
      {
        x: vector(between(-1, 1), 3),
        y: vector(between(-1, 1), 3),
        steps: fc.array(step, { minLength: 1, maxLength: 8 }),
      },
      ({ x, y, steps }) => {
        const computation = (inputs: ReadonlyArray<Gradient.Node>) => {
          const nodes = [...inputs]
          for (const { left, operation, right } of steps)
            // Bounded, because eight squarings would give numbers too large for finite differences.
            nodes.push(Gradient.tanh(operation(nodes[left % nodes.length]!, nodes[right % nodes.length]!)))
          return weigh(nodes.at(-1)!)
        }
        expectGradients(computation, [x, y])
      },
    )
  })

  it("Gradient.of returns the value and the gradients", () => {
    const result = Gradient.of(
      ([x, y]) => Gradient.sum(Gradient.mul(x, y)),
      [
        [1, 2],
        [3, 4],
      ],
    )
    expect(result).toEqual(Either.right({ value: 11, gradients: [Float64Array.of(3, 4), Float64Array.of(1, 2)] }))
  })

  it("Gradient.of accepts every kind of numeric array", () => {
    const inputs = [2, [2], Float32Array.of(2), Float64Array.of(2), Int32Array.of(2), Uint8Array.of(2)] as const
    const { gradients, value } = Either.getOrThrow(Gradient.of((x) => Gradient.sum(Gradient.concat(x)), inputs))
    expect(value).toBe(12)
    expect(gradients).toEqual(inputs.map(() => Float64Array.of(1)))
  })

  it("Gradient computes in doubles, even with float32 inputs", () => {
    const third = Float32Array.of(1 / 3)
    const { value } = Either.getOrThrow(Gradient.of(([x]) => Gradient.sum(Gradient.div(x, 3)), [third]))
    expect(value).toBe(third[0]! / 3)
  })

  it("Gradient does not modify its inputs", () => {
    const [x, y] = [Float64Array.of(1, 2), Float64Array.of(3, 4)]
    const { gradients } = gradientsOf(([x]) => Gradient.dot(Gradient.cumsum(x!), y), [x])
    expect(gradients).toEqual([Float64Array.of(7, 4)])
    expect([x, y]).toEqual([Float64Array.of(1, 2), Float64Array.of(3, 4)])
  })

  it("Gradient operations work in a pipe, with the piped value as the first operand", () => {
    const x = Gradient.constant([8, 2])
    expect(pipe(x, Gradient.sub(1)).values).toEqual(Float64Array.of(7, 1))
    expect(x.pipe(Gradient.div([2, 4]), Gradient.max(1), Gradient.sum, Gradient.toNumber)).toBe(5)
    expect(x.pipe(Gradient.at(-1), Gradient.toNumber)).toBe(2)
    expect(pipe([1, 2, 3, 4], Gradient.slice(1, -1)).values).toEqual(Float64Array.of(2, 3))
    expect(Gradient.slice([1, 2, 3, 4], 2).values).toEqual(Float64Array.of(3, 4))
    expect(pipe([1, 2], Gradient.mask([true, false])).values).toEqual(Float64Array.of(1, 0))
  })

  it("an unused input has a zero gradient", () => {
    const { gradients } = gradientsOf(([x]) => Gradient.sum(x!), [Float64Array.of(1, 2), new Float64Array(3)])
    expect(gradients).toEqual([Float64Array.of(1, 1), new Float64Array(3)])
    const constant = Gradient.of(() => Gradient.constant(7), [[1, 2]])
    expect(constant).toEqual(Either.right({ value: 7, gradients: [new Float64Array(2)] }))
  })

  it("an input that is also the result has gradient 1", () => {
    expect(Gradient.of(([x]) => x, [3])).toEqual(Either.right({ value: 3, gradients: [Float64Array.of(1)] }))
  })

  it("the gradient of a scalar is summed over all its uses", () => {
    const { gradients } = Either.getOrThrow(Gradient.of(([s, x]) => Gradient.dot(s, x), [2, [1, 2, 3]]))
    expect(gradients).toEqual([Float64Array.of(6), Float64Array.of(2, 2, 2)])
  })

  it("stopGradient stops the gradient", () => {
    const f: Computation = ([x]) => Gradient.sum(Gradient.mul(x!, Gradient.stopGradient(Gradient.exp(x!))))
    const { gradients, value } = gradientsOf(f, [Float64Array.of(0, 1)])
    expect(value).toBe(Math.E)
    expect(gradients).toEqual([Float64Array.of(1, Math.E)])
  })

  it("a mask blocks all values and gradients, including NaN and infinities", () => {
    const x = Float64Array.of(4, 0, -1, -Infinity, Number.NaN)
    const first = [true, false, false, false, false]
    const { gradients, value } = gradientsOf(([x]) => Gradient.sum(Gradient.mask(Gradient.log(x!), first)), [x])
    expect(value).toBe(Math.log(4))
    expect(gradients).toEqual([Float64Array.of(0.25, 0, 0, 0, 0)])
    const ratio: Computation = ([x]) => Gradient.sum(Gradient.mask(Gradient.div(1, x!), first))
    expect(gradientsOf(ratio, [x]).gradients).toEqual([Float64Array.of(-1 / 16, 0, 0, 0, 0)])
  })

  it("gradients are defined where an operation is not differentiable", () => {
    const slopes = (f: Computation, ...x: ReadonlyArray<number>) =>
      Array.from(gradientsOf((inputs) => Gradient.sum(f(inputs)), [Float64Array.from(x)]).gradients[0]!)
    expect(slopes(([x]) => Gradient.abs(x!), 0)).toEqual([0])
    expect(slopes(([x]) => Gradient.relu(x!), 0)).toEqual([0])
    expect(slopes(([x]) => Gradient.clamp(x!, { minimum: -1, maximum: 1 }), -1, 1, 1.1)).toEqual([1, 1, 0])
    expect(slopes(([x]) => Gradient.min(x!, 1), 1)).toEqual([0.5])
    expect(slopes(([x]) => Gradient.max(1, x!), 1)).toEqual([0.5])
    expect(slopes(([x]) => Gradient.min(x!, x!), 1)).toEqual([1])
  })

  it("values and gradients stay exact where a naive formula overflows", () => {
    const at = (operation: Gradient.Unary, x: number) => {
      const { gradients, value } = Either.getOrThrow(Gradient.of(([x]) => operation(x), [x]))
      return [value, gradients[0][0]]
    }
    expect(at(Gradient.logSigmoid, -1000)).toEqual([-1000, 1])
    expect(at(Gradient.logSigmoid, 1000)).toEqual([-0, 0])
    expect(at(Gradient.softplus, 1000)).toEqual([1000, 1])
    expect(at(Gradient.softplus, -1000)).toEqual([0, 0])
    expect(at(Gradient.sigmoid, -1000)).toEqual([0, 0])
    expect(at(Gradient.sigmoid, 1000)).toEqual([1, 0])
    const sums = Either.getOrThrow(Gradient.of(([x]) => Gradient.logSumExp(x), [[1000, 1000]]))
    expect(sums).toEqual({ value: 1000 + Math.LN2, gradients: [Float64Array.of(0.5, 0.5)] })
    const lost = Either.getOrThrow(Gradient.of(([x]) => Gradient.logSumExp(x), [[-Infinity, -Infinity]]))
    expect(lost).toEqual({ value: -Infinity, gradients: [Float64Array.of(0, 0)] })
  })

  it("reductions of empty arrays have defined values", () => {
    expect(Gradient.toNumber(Gradient.sum([]))).toBe(0)
    expect(Gradient.toNumber(Gradient.mean([]))).toBeNaN()
    expect(Gradient.toNumber(Gradient.logSumExp([]))).toBe(-Infinity)
    expect(Gradient.concat([]).values).toEqual(new Float64Array(0))
    expect(Gradient.of(([x]) => Gradient.sum(x), [[]])).toEqual(
      Either.right({ value: 0, gradients: [new Float64Array(0)] }),
    )
  })

  it("Gradient.ofWith returns the extra fields of the function's result", () => {
    const result = Gradient.ofWith(([x]) => ({ value: Gradient.sum(x), note: "besides" }), [[1, 2]])
    expect(result).toEqual(Either.right({ value: 3, note: "besides", gradients: [Float64Array.of(1, 1)] }))
  })

  it.each<readonly [string, () => Gradient.Node]>([
    ["Gradient.add: an array of 2 cannot be combined with an array of 3", () => Gradient.add([1, 2], [1, 2, 3])],
    ["Gradient.mul: an array of 1 cannot be combined with an array of 3", () => Gradient.mul([1], [1, 2, 3])],
    [
      "Gradient.where: an array of 3 cannot be combined with a condition of length 1",
      () => Gradient.where([true], [1, 2, 3], 0),
    ],
    ["Gradient.at: an array of 2 has no element 2", () => Gradient.at([1, 2], 2)],
    ["Gradient.at: an array of 2 has no element -3", () => Gradient.at([1, 2], -3)],
    ["Gradient.at: an array of 2 has no element 0.5", () => Gradient.at([1, 2], 0.5)],
    ["Gradient.slice: expected an array, got a scalar", () => Gradient.slice(Gradient.constant(1), 0)],
    ["Gradient.cumsum: expected an array, got a scalar", () => Gradient.cumsum(Gradient.constant(1))],
    ["Gradient.toNumber: expected a scalar, got an array of 2", () => Gradient.constant([1, 2])],
    ["Gradient.constant: expected numbers, got undefined", () => Gradient.exp(undefined as never)],
  ])("Gradient rejects invalid operands: %s", (message, f) => {
    const result = Gradient.of(f, [])
    expect(Either.isLeft(result) && result.left).toBeInstanceOf(InvalidInput)
    expect(Either.isLeft(result) && result.left.message).toBe(message)
  })

  it("Gradient.of rethrows exceptions from the computation", () => {
    const mine = new RangeError("mine")
    expect(() =>
      Gradient.of(() => {
        throw mine
      }, []),
    ).toThrow(mine)
  })

  it("nodes of one computation cannot be used in another", () => {
    const nested = (f: (outer: Gradient.Node, inner: Gradient.Node) => Gradient.Node) =>
      Gradient.of(
        ([outer]) => {
          const inner = Either.getOrThrowWith(
            Gradient.of(([inner]) => f(outer, inner), [10]),
            (error) => error,
          )
          return Gradient.mul(outer, inner.gradients[0][0]!)
        },
        [3],
      )
    const byValue = nested((outer, inner) => Gradient.mul(Gradient.stopGradient(outer), Gradient.square(inner)))
    expect(byValue).toEqual(Either.right({ value: 180, gradients: [Float64Array.of(60)] }))
    expect(nested((outer) => outer)).toEqual(Either.right({ value: 0, gradients: [Float64Array.of(0)] }))
    const mixed = nested(Gradient.mul)
    expect(Either.isLeft(mixed) && mixed.left.message).toContain("belongs to another computation")
  })

  it("Gradient.of handles computations a million nodes deep", () => {
    const depth = 1_000_000
    const { gradients, value } = Either.getOrThrow(
      Gradient.of(
        ([x]) => {
          let node = x
          for (let i = 0; i < depth; i++) node = Gradient.add(node, x)
          return node
        },
        [2],
      ),
    )
    expect(value).toBe(2 * (depth + 1))
    expect(gradients).toEqual([Float64Array.of(depth + 1)])
  })
})
