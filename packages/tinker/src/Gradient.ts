/**
 * Computes gradients of scalar functions over arrays of numbers by automatic differentiation, e.g. for a loss over log
 * probabilities. Write the function with the operations of this module and pass it to {@link of}.
 *
 * ```ts
 * Gradient.of(([x, y]) => Gradient.sum(Gradient.mul(x, y)), [[1, 2], [3, 4]]) // value 11, gradients [3, 4] and [1, 2]
 * ```
 *
 * All computations use double precision. Operations accept nodes, numbers, and plain or typed arrays. Scalars combine
 * with arrays of any length, arrays only with arrays of the same length. On a mismatch the operation throws an
 * `InvalidInput` at the offending line, which `of` returns as a value.
 *
 * @since 0.1.0
 */
import * as Either from "effect/Either"
import { dual } from "effect/Function"
import { type Pipeable, pipeArguments } from "effect/Pipeable"
import * as Predicate from "effect/Predicate"
import { describe } from "./internal/codec/Invalid.ts"
import { isFlat, type SmallIntegers } from "./internal/util/TokenChecks.ts"
import { InvalidInput } from "./TinkerError.ts"

/**
 * The unique identifier of {@link Node}.
 *
 * @since 0.1.0
 * @category symbols
 */
export const TypeId: unique symbol = Symbol.for("effect-tinker/Gradient")

/**
 * The type of {@link TypeId}.
 *
 * @since 0.1.0
 * @category symbols
 */
export type TypeId = typeof TypeId

/**
 * A number or an array of numbers that records how it was computed.
 *
 * @since 0.1.0
 * @category models
 */
export interface Node extends Pipeable {
  readonly [TypeId]: TypeId
  /** The numbers; a single one for a scalar. Do not modify them. */
  readonly values: Float64Array
  readonly isScalar: boolean
}

/**
 * The arrays that operations accept. They are referenced or copied, but never modified.
 *
 * @since 0.1.0
 * @category models
 */
export type Numbers = ReadonlyArray<number> | Float32Array | Float64Array | SmallIntegers

/**
 * The arguments that operations accept.
 *
 * @since 0.1.0
 * @category models
 */
export type Operand = Node | Numbers | number

/** Propagates the gradient of a node to the nodes it was computed from. */
type Pull = (gradient: Float64Array) => void

/** The nodes of one computation in creation order. In reverse, each node precedes the nodes it was computed from. */
type Tape = Array<Recorded>

/** Numbers and the distance between two elements: 0 for a scalar, which repeats for every element. */
interface Strided {
  readonly values: Float64Array
  readonly next: 0 | 1
}

class Recorded implements Node, Strided {
  readonly [TypeId]: TypeId = TypeId
  /** The accumulated gradient; present only between the first contribution and its use in the backward pass. */
  gradient: Float64Array | undefined = undefined
  readonly values: Float64Array
  readonly isScalar: boolean
  readonly next: 0 | 1
  /** Constants have no tape. */
  readonly tape: Tape | undefined
  /** Inputs have no pull function. */
  readonly pull: Pull | undefined
  constructor(values: Float64Array, isScalar: boolean, tape?: Tape, pull?: Pull) {
    this.values = values
    this.isScalar = isScalar
    this.next = isScalar ? 0 : 1
    this.tape = tape
    this.pull = pull
    tape?.push(this)
  }
  pipe() {
    return pipeArguments(this, arguments)
  }
}

const refuse = (operation: string, problem: string): never => {
  throw new InvalidInput({ path: `Gradient.${operation}`, problem })
}

const from = (operand: Operand, tape?: Tape): Recorded => {
  if (operand instanceof Recorded) return operand
  if (typeof operand === "number") return new Recorded(Float64Array.of(operand), true, tape)
  if (!isFlat(operand)) return refuse("constant", `expected numbers, got ${describe(operand)}`)
  return new Recorded(operand instanceof Float64Array ? operand : new Float64Array(operand), false, tape)
}

/** Creates a computed node. It is recorded only if a gradient is needed for one of its parents. */
const derive = (values: Float64Array, isScalar: boolean, parents: ReadonlyArray<Recorded>, pull: Pull): Node => {
  let tape: Tape | undefined
  for (const parent of parents) {
    if (parent.tape === undefined || parent.tape === tape) continue
    if (tape !== undefined)
      return refuse("of", "this node belongs to another computation: use its values or stopGradient")
    tape = parent.tape
  }
  return tape === undefined ? new Recorded(values, isScalar) : new Recorded(values, isScalar, tape, pull)
}

/** Returns the gradient to accumulate into, or undefined if the node needs none. */
const gradientOf = (node: Recorded): Float64Array | undefined =>
  node.tape === undefined ? undefined : (node.gradient ??= new Float64Array(node.values.length))

// The index is always in range, which the compiler cannot know.
const get = (values: Float64Array, index: number): number => values[index] ?? 0

const increase = (values: Float64Array, index: number, by: number): void => {
  values[index] = get(values, index) + by
}

/**
 * Adds gradient * slope. A zero gradient stays zero even through an infinite slope, so that masked elements stay
 * masked.
 */
const flow = (into: Float64Array, index: number, gradient: number, slope: number): void => {
  if (gradient !== 0) increase(into, index, gradient * slope)
}

const size = (node: Recorded): string => (node.isScalar ? "a scalar" : `an array of ${node.values.length}`)

const array = (operation: string, operand: Operand): Recorded => {
  const node = from(operand)
  return node.isScalar ? refuse(operation, "expected an array, got a scalar") : node
}

/** Returns the length of the result of combining two operands. */
const broadcast = (operation: string, a: Recorded, b: Recorded): number => {
  if (!a.isScalar && !b.isScalar && a.values.length !== b.values.length)
    refuse(operation, `${size(a)} cannot be combined with ${size(b)}`)
  return a.isScalar ? b.values.length : a.values.length
}

/**
 * An operation with one operand.
 *
 * @since 0.1.0
 * @category models
 */
export interface Unary {
  (self: Operand): Node
}

/**
 * An operation with two operands, in data-first and data-last form.
 *
 * @since 0.1.0
 * @category models
 */
export interface Binary {
  (that: Operand): (self: Operand) => Node
  (self: Operand, that: Operand): Node
}

// The loops are written out for each operation: a callback per element would box its numbers, which is several times
// slower.

/** Creates a unary operation. `compute` fills `y`; `pull` adds the gradient of `x` to `into`. */
const unary =
  (
    compute: (y: Float64Array, x: Float64Array) => void,
    pull: (into: Float64Array, gradient: Float64Array, x: Float64Array, y: Float64Array) => void,
  ): Unary =>
  (self) => {
    const a = from(self)
    const values = new Float64Array(a.values.length)
    compute(values, a.values)
    return derive(values, a.isScalar, [a], (gradient) => {
      const into = gradientOf(a)
      if (into !== undefined) pull(into, gradient, a.values, values)
    })
  }

/**
 * Creates a binary operation. `pullX` and `pullY` add the gradients of `x` and `y` to `into`, which has the stride of
 * that operand.
 */
const binary = (
  operation: string,
  compute: (z: Float64Array, x: Strided, y: Strided) => void,
  pullX: (into: Strided, gradient: Float64Array, x: Strided, y: Strided) => void,
  pullY: (into: Strided, gradient: Float64Array, x: Strided, y: Strided) => void,
): Binary =>
  dual(2, (self: Operand, that: Operand): Node => {
    const x = from(self)
    const y = from(that)
    const values = new Float64Array(broadcast(operation, x, y))
    compute(values, x, y)
    return derive(values, x.isScalar && y.isScalar, [x, y], (gradient) => {
      const [intoX, intoY] = [gradientOf(x), gradientOf(y)]
      if (intoX !== undefined) pullX({ values: intoX, next: x.next }, gradient, x, y)
      if (intoY !== undefined) pullY({ values: intoY, next: y.next }, gradient, x, y)
    })
  })

/** Propagates the gradient of a sum: unchanged, or negated. */
const pullAddend = (into: Strided, gradient: Float64Array, sign: 1 | -1): void => {
  for (let i = 0; i < gradient.length; i++) increase(into.values, i * into.next, sign * get(gradient, i))
}

/** Propagates the gradient of a product: multiplied by the other factor. */
const pullFactor = (into: Strided, gradient: Float64Array, other: Strided): void => {
  for (let i = 0; i < gradient.length; i++)
    flow(into.values, i * into.next, get(gradient, i), get(other.values, i * other.next))
}

/** Propagates the gradient of a minimum or maximum: in full where `self` was chosen, by half where both are equal. */
const pullChosen = (into: Strided, gradient: Float64Array, self: Strided, that: Strided, sign: 1 | -1): void => {
  for (let i = 0; i < gradient.length; i++) {
    const mine = sign * get(self.values, i * self.next)
    const other = sign * get(that.values, i * that.next)
    flow(into.values, i * into.next, get(gradient, i), mine > other ? 1 : mine === other ? 0.5 : 0)
  }
}

/**
 * Checks whether a value is a {@link Node}.
 *
 * @since 0.1.0
 * @category guards
 */
export const isNode = (value: unknown): value is Node => Predicate.hasProperty(value, TypeId)

/**
 * Creates a node without a gradient. Operations do this for plain numbers; use it where a `Node` is required.
 *
 * @since 0.1.0
 * @category constructors
 */
export const constant = (values: Numbers | number): Node => from(values)

/**
 * Returns the same numbers as a constant, which stops gradients from flowing through.
 *
 * @since 0.1.0
 * @category constructors
 */
export const stopGradient: Unary = (self) => {
  const { isScalar, values } = from(self)
  return new Recorded(values, isScalar)
}

/**
 * Adds element by element.
 *
 * @since 0.1.0
 * @category arithmetic
 */
export const add: Binary = binary(
  "add",
  (z, x, y) => {
    for (let i = 0; i < z.length; i++) z[i] = get(x.values, i * x.next) + get(y.values, i * y.next)
  },
  (into, gradient) => pullAddend(into, gradient, 1),
  (into, gradient) => pullAddend(into, gradient, 1),
)

/**
 * Subtracts element by element: `sub(a, b)` and `pipe(a, sub(b))` compute a - b.
 *
 * @since 0.1.0
 * @category arithmetic
 */
export const sub: Binary = binary(
  "sub",
  (z, x, y) => {
    for (let i = 0; i < z.length; i++) z[i] = get(x.values, i * x.next) - get(y.values, i * y.next)
  },
  (into, gradient) => pullAddend(into, gradient, 1),
  (into, gradient) => pullAddend(into, gradient, -1),
)

/**
 * Multiplies element by element.
 *
 * @since 0.1.0
 * @category arithmetic
 */
export const mul: Binary = binary(
  "mul",
  (z, x, y) => {
    for (let i = 0; i < z.length; i++) z[i] = get(x.values, i * x.next) * get(y.values, i * y.next)
  },
  (into, gradient, _, y) => pullFactor(into, gradient, y),
  (into, gradient, x) => pullFactor(into, gradient, x),
)

/**
 * Divides element by element: `div(a, b)` and `pipe(a, div(b))` compute a / b.
 *
 * @since 0.1.0
 * @category arithmetic
 */
export const div: Binary = binary(
  "div",
  (z, x, y) => {
    for (let i = 0; i < z.length; i++) z[i] = get(x.values, i * x.next) / get(y.values, i * y.next)
  },
  (into, gradient, _, y) => {
    for (let i = 0; i < gradient.length; i++)
      flow(into.values, i * into.next, get(gradient, i), 1 / get(y.values, i * y.next))
  },
  (into, gradient, x, y) => {
    for (let i = 0; i < gradient.length; i++) {
      const divisor = get(y.values, i * y.next)
      flow(into.values, i * into.next, get(gradient, i), -get(x.values, i * x.next) / divisor / divisor)
    }
  },
)

/**
 * Multiplies by a plain number; a typed alias of {@link mul}.
 *
 * @since 0.1.0
 * @category arithmetic
 */
export const scale: {
  (factor: number): (self: Operand) => Node
  (self: Operand, factor: number): Node
} = mul

/**
 * Negates each element.
 *
 * @since 0.1.0
 * @category arithmetic
 */
export const neg: Unary = (self) => mul(self, -1)

/**
 * Returns the smaller of two values element by element. Equal values each receive half of the gradient.
 *
 * @since 0.1.0
 * @category arithmetic
 */
export const min: Binary = binary(
  "min",
  (z, x, y) => {
    for (let i = 0; i < z.length; i++) z[i] = Math.min(get(x.values, i * x.next), get(y.values, i * y.next))
  },
  (into, gradient, x, y) => pullChosen(into, gradient, x, y, -1),
  (into, gradient, x, y) => pullChosen(into, gradient, y, x, -1),
)

/**
 * Returns the larger of two values element by element. Equal values each receive half of the gradient.
 *
 * @since 0.1.0
 * @category arithmetic
 */
export const max: Binary = binary(
  "max",
  (z, x, y) => {
    for (let i = 0; i < z.length; i++) z[i] = Math.max(get(x.values, i * x.next), get(y.values, i * y.next))
  },
  (into, gradient, x, y) => pullChosen(into, gradient, x, y, 1),
  (into, gradient, x, y) => pullChosen(into, gradient, y, x, 1),
)

/**
 * The bounds of {@link clamp}.
 *
 * @since 0.1.0
 * @category models
 */
export interface Range {
  readonly minimum: number
  readonly maximum: number
}

/**
 * Limits each element to a range. Gradients flow within the range, including its bounds, and not outside.
 *
 * @since 0.1.0
 * @category arithmetic
 */
export const clamp: {
  (range: Range): (self: Operand) => Node
  (self: Operand, range: Range): Node
} = dual(2, (self: Operand, { maximum, minimum }: Range) =>
  unary(
    (y, x) => {
      for (let i = 0; i < y.length; i++) y[i] = Math.min(Math.max(get(x, i), minimum), maximum)
    },
    (into, gradient, x) => {
      for (let i = 0; i < gradient.length; i++)
        flow(into, i, get(gradient, i), get(x, i) >= minimum && get(x, i) <= maximum ? 1 : 0)
    },
  )(self),
)

/**
 * Returns the absolute value of each element. No gradient flows at 0.
 *
 * @since 0.1.0
 * @category arithmetic
 */
export const abs: Unary = unary(
  (y, x) => {
    for (let i = 0; i < y.length; i++) y[i] = Math.abs(get(x, i))
  },
  (into, gradient, x) => {
    for (let i = 0; i < gradient.length; i++) flow(into, i, get(gradient, i), Math.sign(get(x, i)))
  },
)

/**
 * Squares each element.
 *
 * @since 0.1.0
 * @category arithmetic
 */
export const square: Unary = (self) => mul(self, self)

/**
 * Returns the square root of each element.
 *
 * @since 0.1.0
 * @category arithmetic
 */
export const sqrt: Unary = unary(
  (y, x) => {
    for (let i = 0; i < y.length; i++) y[i] = Math.sqrt(get(x, i))
  },
  (into, gradient, _, y) => {
    for (let i = 0; i < gradient.length; i++) flow(into, i, get(gradient, i), 0.5 / get(y, i))
  },
)

/**
 * Returns e to the power of each element.
 *
 * @since 0.1.0
 * @category functions
 */
export const exp: Unary = unary(
  (y, x) => {
    for (let i = 0; i < y.length; i++) y[i] = Math.exp(get(x, i))
  },
  (into, gradient, _, y) => {
    for (let i = 0; i < gradient.length; i++) flow(into, i, get(gradient, i), get(y, i))
  },
)

/**
 * Returns the natural logarithm of each element.
 *
 * @since 0.1.0
 * @category functions
 */
export const log: Unary = unary(
  (y, x) => {
    for (let i = 0; i < y.length; i++) y[i] = Math.log(get(x, i))
  },
  (into, gradient, x) => {
    for (let i = 0; i < gradient.length; i++) flow(into, i, get(gradient, i), 1 / get(x, i))
  },
)

/**
 * Returns the hyperbolic tangent of each element.
 *
 * @since 0.1.0
 * @category functions
 */
export const tanh: Unary = unary(
  (y, x) => {
    for (let i = 0; i < y.length; i++) y[i] = Math.tanh(get(x, i))
  },
  (into, gradient, _, y) => {
    for (let i = 0; i < gradient.length; i++) flow(into, i, get(gradient, i), 1 - get(y, i) ** 2)
  },
)

// Uses the form in which `exp` cannot overflow.
const logistic = (x: number) => (x >= 0 ? 1 / (1 + Math.exp(-x)) : Math.exp(x) / (1 + Math.exp(x)))

/**
 * Computes 1 / (1 + e^-x) for each element.
 *
 * @since 0.1.0
 * @category functions
 */
export const sigmoid: Unary = unary(
  (y, x) => {
    for (let i = 0; i < y.length; i++) y[i] = logistic(get(x, i))
  },
  (into, gradient, x, y) => {
    for (let i = 0; i < gradient.length; i++) flow(into, i, get(gradient, i), get(y, i) * logistic(-get(x, i)))
  },
)

const logOnePlusExp = (x: number) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)))

/**
 * Computes log(1 + e^x) for each element, exactly even where e^x overflows.
 *
 * @since 0.1.0
 * @category functions
 */
export const softplus: Unary = unary(
  (y, x) => {
    for (let i = 0; i < y.length; i++) y[i] = logOnePlusExp(get(x, i))
  },
  (into, gradient, x) => {
    for (let i = 0; i < gradient.length; i++) flow(into, i, get(gradient, i), logistic(get(x, i)))
  },
)

/**
 * Computes log(sigmoid(x)) for each element, exactly even where the sigmoid underflows to 0.
 *
 * @since 0.1.0
 * @category functions
 */
export const logSigmoid: Unary = (self) => neg(softplus(neg(self)))

/**
 * Replaces negative elements with 0. No gradient flows at 0.
 *
 * @since 0.1.0
 * @category functions
 */
export const relu: Unary = unary(
  (y, x) => {
    for (let i = 0; i < y.length; i++) y[i] = get(x, i) <= 0 ? 0 : get(x, i)
  },
  (into, gradient, x) => {
    for (let i = 0; i < gradient.length; i++) flow(into, i, get(gradient, i), get(x, i) > 0 ? 1 : 0)
  },
)

/**
 * A condition for each element. The numbers 0 and NaN count as false.
 *
 * @since 0.1.0
 * @category models
 */
export type Condition = ReadonlyArray<boolean> | Numbers

/**
 * Selects each element from the first operand where the condition holds, else from the second. Unlike multiplying by
 * zeros, elements that are not selected have no effect, even if they are NaN or infinite.
 *
 * @since 0.1.0
 * @category selection
 */
export const where = (condition: Condition, onTrue: Operand, onFalse: Operand): Node => {
  const [x, y] = [from(onTrue), from(onFalse)]
  for (const node of [x, y])
    if (!node.isScalar && node.values.length !== condition.length)
      return refuse("where", `${size(node)} cannot be combined with a condition of length ${condition.length}`)
  const values = new Float64Array(condition.length)
  for (let i = 0; i < values.length; i++) {
    const chosen = condition[i] ? x : y
    values[i] = get(chosen.values, i * chosen.next)
  }
  return derive(values, false, [x, y], (gradient) => {
    const [intoX, intoY] = [gradientOf(x), gradientOf(y)]
    for (let i = 0; i < values.length; i++) {
      const into = condition[i] ? intoX : intoY
      if (into !== undefined) increase(into, i * (condition[i] ? x : y).next, get(gradient, i))
    }
  })
}

/**
 * Replaces the elements where the condition does not hold with zero.
 *
 * @since 0.1.0
 * @category selection
 */
export const mask: {
  (condition: Condition): (self: Operand) => Node
  (self: Operand, condition: Condition): Node
} = dual(2, (self: Operand, condition: Condition) => where(condition, self, 0))

/** Returns a range of elements as a view. */
const section = (a: Recorded, start: number, end: number, isScalar: boolean): Node =>
  derive(a.values.subarray(start, end), isScalar, [a], (gradient) => {
    const into = gradientOf(a)
    if (into === undefined) return
    for (let i = 0; i < gradient.length; i++) increase(into, start + i, get(gradient, i))
  })

/**
 * Returns one element as a scalar; a negative index counts from the end.
 *
 * @since 0.1.0
 * @category selection
 */
export const at: {
  (index: number): (self: Node | Numbers) => Node
  (self: Node | Numbers, index: number): Node
} = dual(2, (self: Node | Numbers, index: number) => {
  const a = array("at", self)
  const position = index < 0 ? a.values.length + index : index
  return Number.isInteger(position) && position >= 0 && position < a.values.length
    ? section(a, position, position + 1, true)
    : refuse("at", `${size(a)} has no element ${index}`)
})

/**
 * Returns a range of elements like `Array.slice`: `end` is excluded, and negative positions count from the end.
 *
 * @since 0.1.0
 * @category selection
 */
export const slice: {
  (start: number, end?: number): (self: Node | Numbers) => Node
  (self: Node | Numbers, start: number, end?: number): Node
} = dual(
  (args) => typeof args[0] !== "number",
  (self: Node | Numbers, start: number, end?: number) => {
    const a = array("slice", self)
    const { byteOffset, length } = a.values.subarray(start, end)
    const first = (byteOffset - a.values.byteOffset) / Float64Array.BYTES_PER_ELEMENT
    return section(a, first, first + length, false)
  },
)

/**
 * Concatenates arrays; a scalar counts as one element.
 *
 * @since 0.1.0
 * @category selection
 */
export const concat = (parts: ReadonlyArray<Operand>): Node => {
  const nodes = parts.map((part) => from(part))
  const values = new Float64Array(nodes.reduce((length, node) => length + node.values.length, 0))
  let end = 0
  for (const node of nodes) {
    values.set(node.values, end)
    end += node.values.length
  }
  return derive(values, false, nodes, (gradient) => {
    let start = 0
    for (const node of nodes) {
      const into = gradientOf(node)
      if (into !== undefined) for (let i = 0; i < into.length; i++) increase(into, i, get(gradient, start + i))
      start += node.values.length
    }
  })
}

/**
 * Returns the sum of all elements.
 *
 * @since 0.1.0
 * @category reductions
 */
export const sum: Unary = (self) => {
  const a = from(self)
  let total = 0
  for (let i = 0; i < a.values.length; i++) total += get(a.values, i)
  return derive(Float64Array.of(total), true, [a], (gradient) => {
    const into = gradientOf(a)
    const g = get(gradient, 0)
    if (into !== undefined) for (let i = 0; i < into.length; i++) increase(into, i, g)
  })
}

/**
 * Returns the mean of all elements; NaN for an empty array.
 *
 * @since 0.1.0
 * @category reductions
 */
export const mean: Unary = (self) => {
  const a = from(self)
  return div(sum(a), a.values.length)
}

/**
 * Returns the sum of the products of corresponding elements.
 *
 * @since 0.1.0
 * @category reductions
 */
export const dot: Binary = dual(2, (self: Operand, that: Operand) => sum(mul(self, that)))

/**
 * Computes log(sum(exp(x))), exactly even where e^x overflows; -Infinity for an empty array.
 *
 * @since 0.1.0
 * @category reductions
 */
export const logSumExp: Unary = (self) => {
  const a = from(self)
  let largest = -Infinity
  for (let i = 0; i < a.values.length; i++) largest = Math.max(largest, get(a.values, i))
  let total = 0
  for (let i = 0; i < a.values.length; i++) total += Math.exp(get(a.values, i) - largest)
  // The difference of two infinities is undefined.
  const result = Number.isFinite(largest) ? largest + Math.log(total) : largest
  return derive(Float64Array.of(result), true, [a], (gradient) => {
    const into = gradientOf(a)
    const g = get(gradient, 0)
    if (into === undefined || g === 0 || !Number.isFinite(result)) return
    for (let i = 0; i < into.length; i++) increase(into, i, (g * Math.exp(get(a.values, i) - largest)) / total)
  })
}

/**
 * Returns the running sum.
 *
 * @since 0.1.0
 * @category reductions
 */
export const cumsum = (self: Node | Numbers): Node => {
  const a = array("cumsum", self)
  const values = new Float64Array(a.values.length)
  let total = 0
  for (let i = 0; i < values.length; i++) values[i] = total += get(a.values, i)
  return derive(values, false, [a], (gradient) => {
    const into = gradientOf(a)
    if (into === undefined) return
    let later = 0
    for (let i = into.length - 1; i >= 0; i--) increase(into, i, (later += get(gradient, i)))
  })
}

/**
 * Returns the value of a scalar node.
 *
 * @since 0.1.0
 * @category getters
 */
export const toNumber = (self: Node): number =>
  self.isScalar ? get(self.values, 0) : refuse("toNumber", `expected a scalar, got an array of ${self.values.length}`)

/**
 * The nodes passed to the function of {@link of} and {@link ofWith}: one for each input.
 *
 * @since 0.1.0
 * @category models
 */
export type Nodes<Inputs> = { readonly [K in keyof Inputs]: Node }

/**
 * The result of {@link of}.
 *
 * @since 0.1.0
 * @category models
 */
export interface Gradients<Inputs> {
  readonly value: number
  /**
   * The gradient for each input, with the length of the input. It is zero for an input that does not affect the value.
   */
  readonly gradients: { readonly [K in keyof Inputs]: Float64Array }
}

/**
 * Returns the value of a scalar function and its gradient with respect to each input.
 *
 * @since 0.1.0
 * @category differentiation
 */
export const of = <const Inputs extends ReadonlyArray<Numbers | number>>(
  f: (inputs: Nodes<Inputs>) => Node,
  inputs: Inputs,
): Either.Either<Gradients<Inputs>, InvalidInput> => ofWith((nodes) => ({ value: f(nodes) }), inputs)

/**
 * Differentiates like {@link of}, for a function that returns additional fields besides `value`; they are included in
 * the result.
 *
 * @since 0.1.0
 * @category differentiation
 */
export const ofWith = <const Inputs extends ReadonlyArray<Numbers | number>, A extends { readonly value: Node }>(
  f: (inputs: Nodes<Inputs>) => A,
  inputs: Inputs,
): Either.Either<Omit<A, "value"> & Gradients<Inputs>, InvalidInput> => {
  try {
    const tape: Tape = []
    const nodes = inputs.map((input) => from(input, tape))
    // `map` keeps the length, but the compiler loses the tuple type.
    const given = f(nodes as unknown as Nodes<Inputs>)
    const value = toNumber(given.value)
    if (given.value instanceof Recorded && given.value.tape === tape) runBackwards(tape, given.value)
    const gradients = nodes.map(({ gradient, values }) => gradient ?? new Float64Array(values.length))
    return Either.right({ ...given, value, gradients: gradients as unknown as Gradients<Inputs>["gradients"] })
  } catch (error) {
    // Catches only errors of the operations; anything else thrown by the function is passed on.
    if (error instanceof InvalidInput) return Either.left(error)
    throw error
  }
}

/** Runs the backward pass in a loop: a tape may have a million nodes, too deep for recursion. */
const runBackwards = (tape: Tape, last: Recorded): void => {
  last.gradient = Float64Array.of(1)
  // Removing nodes from the tape frees their memory during the pass.
  for (let node = tape.pop(); node !== undefined; node = tape.pop()) {
    if (node.pull === undefined || node.gradient === undefined) continue
    node.pull(node.gradient)
    node.gradient = undefined
  }
}
