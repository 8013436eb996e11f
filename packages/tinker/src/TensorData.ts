/**
 * Represents tensors in requests and results: a flat typed array with its layout. The wire has two element types,
 * float32 and int64. An int64 tensor is stored as `Int32Array` if every element fits, and is widened during
 * serialization.
 *
 * Typed arrays of the right type are used without copying or checking; anything else is converted once.
 *
 * @since 0.1.0
 */
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as ParseResult from "effect/ParseResult"
import * as Predicate from "effect/Predicate"
import * as Schema from "effect/Schema"
import { describe, invalid, type Result } from "./internal/codec/Invalid.ts"
import { lazy } from "./internal/util/Lazy.ts"
import {
  denseAtMost,
  firstNonInt32,
  isDetached,
  isFlat,
  kinds,
  product,
  type SmallIntegers,
} from "./internal/util/TokenChecks.ts"

/**
 * The unique identifier of tensors.
 *
 * @since 0.1.0
 * @category symbols
 */
export const TypeId: unique symbol = Symbol.for("effect-tinker/TensorData")

/**
 * The type of {@link TypeId}.
 *
 * @since 0.1.0
 * @category symbols
 */
export type TypeId = typeof TypeId

/**
 * The element type of a tensor.
 *
 * @since 0.1.0
 * @category models
 */
export type Dtype = "float32" | "int64"

/**
 * The positions of the elements of a two-dimensional sparse tensor in compressed sparse row format.
 *
 * @since 0.1.0
 * @category models
 */
export interface Sparse {
  /** `rows + 1` positions: row `r` extends from `crowIndices[r]` up to but not including `crowIndices[r + 1]`. */
  readonly crowIndices: Int32Array
  /** The column of each element. */
  readonly colIndices: Int32Array
}

interface Layout {
  readonly [TypeId]: TypeId
  /** The dimensions. If undefined, none are sent; a sparse tensor always has a shape. */
  readonly shape: ReadonlyArray<number> | undefined
  readonly sparse: Sparse | undefined
}

/**
 * A tensor with float32 elements.
 *
 * @since 0.1.0
 * @category models
 */
export interface Float32Tensor extends Layout {
  readonly dtype: "float32"
  readonly data: Float32Array
}

/**
 * A tensor with int64 elements.
 *
 * @since 0.1.0
 * @category models
 */
export interface Int64Tensor extends Layout {
  readonly dtype: "int64"
  readonly data: Int32Array | BigInt64Array
}

/**
 * The tensor type for an element type.
 *
 * @since 0.1.0
 * @category models
 */
export type OfDtype<D extends Dtype> = Extract<Float32Tensor | Int64Tensor, { readonly dtype: D }>

/**
 * The accepted values for an int64 tensor. Numbers must be integers within ±(2^53 - 1); use `BigInt64Array` for larger
 * values.
 *
 * @since 0.1.0
 * @category models
 */
export type Ints = ReadonlyArray<number> | ReadonlyArray<ReadonlyArray<number>> | SmallIntegers | BigInt64Array

/**
 * The accepted values for a float32 tensor. NaN and infinities are valid, although JSON cannot represent them. A finite
 * number that overflows float32 (from about 3.4e38) is rejected.
 *
 * @since 0.1.0
 * @category models
 */
export type Floats = Exclude<Ints, BigInt64Array> | Float32Array | Float64Array

/**
 * The accepted forms of a tensor.
 *
 * @since 0.1.0
 * @category models
 */
export type Input<D extends Dtype = Dtype> = OfDtype<D> | { float32: Floats; int64: Ints }[D]

/**
 * Options of the tensor constructors.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  readonly shape?: ReadonlyArray<number>
  readonly sparse?: { readonly crowIndices: Ints; readonly colIndices: Ints }
}

interface DataOf {
  readonly float32: Float32Array
  readonly int64: Int32Array | BigInt64Array
}

/**
 * Checks whether a value is a tensor.
 *
 * @since 0.1.0
 * @category refinements
 */
export const isTensorData = (value: unknown): value is Float32Tensor | Int64Tensor =>
  Predicate.hasProperty(value, TypeId)

/**
 * Creates a float32 tensor. Doubles are rounded. Flat values have the given shape or none; nested rows define their
 * own.
 *
 * @since 0.1.0
 * @category constructors
 */
export const float32 = (values: Floats, options?: Options): Result<Float32Tensor> => make("float32", values, options)

/**
 * Creates an int64 tensor. Flat values have the given shape or none; nested rows define their own. Numbers that are not
 * integers or exceed ±(2^53 - 1) are rejected: use a `BigInt64Array` instead.
 *
 * @since 0.1.0
 * @category constructors
 */
export const int64 = (values: Ints, options?: Options): Result<Int64Tensor> => make("int64", values, options)

/**
 * Converts an accepted value to a tensor: a tensor is returned unchanged, flat values get the shape `[length]`. `path`
 * names the value in errors.
 *
 * @since 0.1.0
 * @category constructors
 */
export const from = <D extends Dtype>(dtype: D, input: Input<D>, path = "tensor"): Result<OfDtype<D>> => {
  if (!isTensorData(input)) return make(dtype, input, undefined, path, true)
  if (isDetached(input.data)) return invalid(path, "the memory of this tensor was transferred")
  return isOf(input, dtype) ? Either.right(input) : invalid(path, `expected a ${dtype} tensor, got ${input.dtype}`)
}

const isOf = <D extends Dtype>(tensor: Float32Tensor | Int64Tensor, dtype: D): tensor is OfDtype<D> =>
  tensor.dtype === dtype

const make = <D extends Dtype>(
  dtype: D,
  values: Floats | Ints,
  options?: Options,
  path = "tensor",
  shaped = false,
): Result<OfDtype<D>> => {
  const rows = rowsOf(values, path)
  if (Either.isLeft(rows)) return Either.left(rows.left)
  const data: Result<DataOf[D]> = elements[dtype](values, rows.right, path)
  if (Either.isLeft(data)) return Either.left(data.left)
  const shape = options?.shape ?? rows.right?.shape ?? (shaped ? [data.right.length] : undefined)
  if (options?.sparse === undefined) return build(dtype, data.right, shape, undefined, path)
  if (!Predicate.isRecord(options.sparse))
    return invalid(`${path}.sparse`, `expected { crowIndices, colIndices }, got ${describe(options.sparse)}`)
  const crowIndices = indices(options.sparse.crowIndices, `${path}.sparse.crowIndices`)
  if (Either.isLeft(crowIndices)) return Either.left(crowIndices.left)
  const colIndices = indices(options.sparse.colIndices, `${path}.sparse.colIndices`)
  if (Either.isLeft(colIndices)) return Either.left(colIndices.left)
  return build(dtype, data.right, shape, { crowIndices: crowIndices.right, colIndices: colIndices.right }, path)
}

/** The last step of every constructor: checks that data, shape and indices are consistent. */
const build = <D extends Dtype>(
  dtype: D,
  data: DataOf[D],
  shape: ReadonlyArray<number> | undefined,
  sparse: Sparse | undefined,
  path: string,
): Result<OfDtype<D>> => {
  const problem = layoutProblem(data.length, shape, sparse)
  return problem === undefined
    ? // The compiler cannot infer that `DataOf[D]` and `D` form an `OfDtype<D>`.
      Either.right({ [TypeId]: TypeId, dtype, data, shape, sparse } as unknown as OfDtype<D>)
    : invalid(path + problem.at, problem.says)
}

/**
 * Creates a tensor whose data and shape are known to be consistent.
 *
 * @internal
 */
export const ofRows = (data: Float32Array | DataOf["int64"], shape: ReadonlyArray<number>): TensorData => {
  const dtype = data instanceof Float32Array ? "float32" : "int64"
  return { [TypeId]: TypeId, dtype, data, shape, sparse: undefined } as TensorData
}

const layoutProblem = (
  length: number,
  shape: ReadonlyArray<number> | undefined,
  sparse: Sparse | undefined,
): { readonly at: string; readonly says: string } | undefined => {
  if (shape !== undefined) {
    if (!Array.isArray(shape) || !shape.every((size) => Number.isSafeInteger(size) && size >= 0))
      return { at: ".shape", says: "expected non-negative integers" }
    if (sparse === undefined && product(shape) !== length)
      return { at: ".shape", says: `[${shape.join(", ")}] has ${product(shape)} elements, got ${length}` }
  }
  return sparse === undefined ? undefined : sparseProblem(length, shape, sparse)
}

const sparseProblem = (length: number, shape: ReadonlyArray<number> | undefined, sparse: Sparse) => {
  const [rows, columns, ...more] = shape ?? []
  if (rows === undefined || columns === undefined || more.length > 0)
    return { at: ".shape", says: "a sparse tensor requires a two-dimensional shape" }
  const { crowIndices, colIndices } = sparse
  if (crowIndices.length !== rows + 1)
    return { at: ".sparse.crowIndices", says: `expected ${rows + 1} values (rows + 1), got ${crowIndices.length}` }
  if (colIndices.length !== length)
    return {
      at: ".sparse.colIndices",
      says: `expected one value per element (${length}), got ${colIndices.length}`,
    }
  let next = 0
  for (const [row, position] of crowIndices.entries()) {
    if (position < next || (row === 0 && position !== 0))
      return { at: `.sparse.crowIndices[${row}]`, says: "expected non-decreasing positions starting at 0" }
    for (let before = -1; next < position; next++) {
      const column = colIndices[next] ?? columns
      if (column <= before || column >= columns)
        return {
          at: `.sparse.colIndices[${next}]`,
          says: `expected increasing columns below ${columns} within a row, got ${colIndices[next]}`,
        }
      before = column
    }
  }
  return next === length
    ? undefined
    : { at: `.sparse.crowIndices[${rows}]`, says: `expected the number of elements, ${length}, got ${next}` }
}

type Flat = ArrayLike<unknown>

interface Rows {
  readonly rows: ReadonlyArray<Flat>
  readonly shape: readonly [number, number]
}

/** Returns nested values as rows of equal length, or undefined for flat values. */
const rowsOf = (values: unknown, path: string): Result<Rows | undefined> => {
  if (!Array.isArray(values)) {
    return isFlat(values)
      ? Either.right(undefined)
      : invalid(path, `expected an array of numbers or a tensor, got ${describe(values)}`)
  }
  const rows: ReadonlyArray<unknown> = values
  if (!isFlat(rows[0])) return Either.right(undefined)
  const columns = rows[0].length
  const odd = rows.findIndex((row) => !isFlat(row) || row.length !== columns)
  return odd < 0
    ? Either.right({ rows: rows.filter(isFlat), shape: [rows.length, columns] })
    : invalid(`${path}[${odd}]`, `expected a row of ${columns} numbers, like the first row`)
}

/** Returns the position and value of the first invalid element. */
const firstBad = (flat: Flat, nested: Rows | undefined, first: (row: Flat) => number) => {
  if (nested === undefined) {
    const bad = first(flat)
    return bad < 0 ? undefined : { at: `[${bad}]`, value: flat[bad] }
  }
  for (const [index, row] of nested.rows.entries()) {
    const bad = first(row)
    if (bad >= 0) return { at: `[${index}][${bad}]`, value: row[bad] }
  }
  return undefined
}

const copy = <Target extends Float32Array | Float64Array | Int32Array>(
  target: Target,
  flat: Flat,
  nested: Rows | undefined,
): Target => {
  // All elements were checked to be numbers.
  const set = (row: Flat, at: number) => target.set(row as ArrayLike<number>, at)
  if (nested === undefined) set(flat, 0)
  else for (const [index, row] of nested.rows.entries()) set(row, index * nested.shape[1])
  return target
}

const count = (flat: Flat, nested: Rows | undefined) => (nested === undefined ? flat.length : product(nested.shape))

const elements: {
  readonly [D in Dtype]: (values: Floats | Ints, nested: Rows | undefined, path: string) => Result<DataOf[D]>
} = {
  float32: (values, nested, path) => {
    if (values instanceof Float32Array) return Either.right(values)
    const bad = firstBad(values, nested, kinds.float32.first)
    return bad === undefined
      ? Either.right(copy(new Float32Array(count(values, nested)), values, nested))
      : invalid(path + bad.at, `expected ${kinds.float32.expected}, got ${describe(bad.value)}`)
  },

  int64: (values, nested, path) => {
    if (values instanceof Int32Array || values instanceof BigInt64Array) return Either.right(values)
    const length = count(values, nested)
    if (firstBad(values, nested, firstNonInt32) === undefined)
      return Either.right(copy(new Int32Array(length), values, nested))
    const bad = firstBad(values, nested, kinds.int64.first)
    return bad === undefined
      ? Either.right(BigInt64Array.from(copy(new Float64Array(length), values, nested), BigInt))
      : invalid(path + bad.at, `expected ${kinds.int64.expected}, got ${describe(bad.value)}`)
  },
}

const indices = (values: unknown, path: string): Result<Int32Array> => {
  if (!isFlat(values)) return invalid(path, `expected indices, got ${describe(values)}`)
  if (values instanceof Int32Array) return Either.right(values)
  const bad = firstNonInt32(values)
  return bad < 0
    ? Either.right(copy(new Int32Array(values.length), values, undefined))
    : invalid(`${path}[${bad}]`, `expected an index, got ${describe(values[bad])}`)
}

/**
 * Returns the number of elements, including the implicit zeros of a sparse tensor.
 *
 * @since 0.1.0
 * @category getters
 */
export const length = (self: TensorData): number =>
  self.sparse === undefined ? self.data.length : product(self.shape ?? [])

/**
 * Returns the element at a position: one index per dimension, or a single flat index. Integers beyond ±(2^53 - 1) are
 * returned as bigint, so the result is always exact.
 *
 * @since 0.1.0
 * @category getters
 */
export const at: {
  (self: Float32Tensor, ...position: ReadonlyArray<number>): Option.Option<number>
  (self: TensorData, ...position: ReadonlyArray<number>): Option.Option<number | bigint>
} = (self: TensorData, ...position: ReadonlyArray<number>): Option.Option<number> => {
  const element = flatIndex(self, position).pipe(
    Option.flatMap((index) => {
      if (self.sparse === undefined) return Option.fromNullable(self.data[index])
      const columns = self.shape?.[1] ?? 0
      const row = Math.floor(index / columns)
      const from = self.sparse.crowIndices[row] ?? 0
      const found = self.sparse.colIndices.subarray(from, self.sparse.crowIndices[row + 1]).indexOf(index % columns)
      return Option.some(found < 0 ? 0 : (self.data[from + found] ?? 0))
    }),
  )
  // The second overload includes bigint; the first one never receives an int64 tensor.
  return Option.map(element, simplest) as Option.Option<number>
}

const flatIndex = (self: TensorData, position: ReadonlyArray<number>): Option.Option<number> => {
  const sizes = position.length === 1 ? [length(self)] : self.shape
  if (sizes === undefined || sizes.length !== position.length) return Option.none()
  let index = 0
  for (const [dimension, size] of sizes.entries()) {
    const i = position[dimension] ?? -1
    if (!Number.isInteger(i) || i < 0 || i >= size) return Option.none()
    index = index * size + i
  }
  return Option.some(index)
}

const simplest = (value: number | bigint): number | bigint => {
  const number = Number(value)
  return typeof value === "bigint" && !Number.isSafeInteger(number) ? value : number
}

/**
 * Returns all elements as numbers, row by row, including the zeros of a sparse tensor. Fails for an int64 tensor with
 * an element beyond ±(2^53 - 1), which is exact only in `data`, and for a sparse tensor with more than 2^24 elements.
 * `path` names the tensor in errors.
 *
 * @since 0.1.0
 * @category conversions
 */
export const toNumbers = (self: TensorData, path = "tensor"): Result<Array<number>> =>
  Either.flatMap(heldNumbers(self.data, path), (held) => {
    if (self.sparse === undefined) return Either.right(held)
    if (length(self) > denseAtMost) return invalid(path, `too large for a dense array: ${length(self)} elements`)
    const { crowIndices, colIndices } = self.sparse
    const columns = self.shape?.[1] ?? 0
    const dense = Array.from<number>({ length: length(self) }).fill(0)
    for (const [row, from] of crowIndices.entries()) {
      for (let i = from; i < (crowIndices[row + 1] ?? 0); i++) {
        dense[row * columns + (colIndices[i] ?? 0)] = held[i] ?? 0
      }
    }
    return Either.right(dense)
  })

const heldNumbers = (data: TensorData["data"], path: string): Result<Array<number>> => {
  if (!(data instanceof BigInt64Array)) return Either.right(Array.from(data))
  const numbers = Array.from(data, Number)
  const beyond = numbers.findIndex((number) => !Number.isSafeInteger(number))
  return beyond < 0
    ? Either.right(numbers)
    : invalid(`${path}[${beyond}]`, `${data[beyond]} exceeds ±(2^53 - 1) and cannot be represented exactly as a number`)
}

/**
 * Converts a tensor to compressed sparse rows if that is smaller: two dimensions and `(rows + 1) + 2 * nonzero < rows *
 * columns`. Any other tensor is returned unchanged. Tensors become sparse only through this call.
 *
 * @since 0.1.0
 * @category conversions
 */
export const toSparse = <T extends TensorData>(self: T): T => {
  const [rows, columns, ...more] = self.shape ?? []
  if (rows === undefined || columns === undefined || more.length > 0 || self.sparse !== undefined) return self
  const kept: Array<number> = []
  for (const [index, value] of self.data.entries()) if (value !== 0 && value !== 0n) kept.push(index)
  if (rows + 1 + 2 * kept.length >= rows * columns) return self

  const crowIndices = new Int32Array(rows + 1)
  for (let row = 0, next = 0; row <= rows; row++) {
    while ((kept[next] ?? Infinity) < row * columns) next++
    crowIndices[row] = next
  }
  const colIndices = Int32Array.from(kept, (index) => index % columns)
  return { ...self, data: pick(self.data, kept), sparse: { crowIndices, colIndices } }
}

const pick = (data: TensorData["data"], positions: ReadonlyArray<number>): TensorData["data"] =>
  data instanceof BigInt64Array
    ? BigInt64Array.from(positions, (position) => data[position] ?? 0n)
    : data instanceof Int32Array
      ? Int32Array.from(positions, (position) => data[position] ?? 0)
      : Float32Array.from(positions, (position) => data[position] ?? 0)

/**
 * The JSON format of a tensor.
 *
 * @since 0.1.0
 * @category schemas
 */
export interface TensorJson {
  readonly data: ReadonlyArray<number | null>
  readonly dtype: Dtype
  readonly shape?: ReadonlyArray<number> | null
  readonly sparse_crow_indices?: ReadonlyArray<number> | null
  readonly sparse_col_indices?: ReadonlyArray<number> | null
}

/**
 * A tensor.
 *
 * @since 0.1.0
 * @category models
 */
export type TensorData = Float32Tensor | Int64Tensor

/**
 * The JSON schema of a tensor. Values are validated in one loop instead of one schema check per element. NaN is written
 * as `null`, as servers do; infinities and integers beyond ±(2^53 - 1) cannot be encoded or decoded.
 *
 * @since 0.1.0
 * @category schemas
 */
export const TensorData: Schema.Schema<TensorData, TensorJson> = lazy(() =>
  Schema.transformOrFail(
    Schema.declare((value): value is TensorJson => Predicate.isRecord(value), { identifier: "TensorJson" }),
    Schema.declare(isTensorData, {
      identifier: "TensorData",
      arbitrary: () => (fc) =>
        fc.oneof(
          fc.float32Array({ noDefaultInfinity: true }).map((data) => Either.getOrThrow(from("float32", data))),
          fc.int32Array().map((data) => Either.getOrThrow(from("int64", data))),
        ),
    }),
    {
      strict: true,
      decode: (json, _, ast) =>
        Either.mapLeft(fromJson(json), (error) => new ParseResult.Type(ast, json, error.message)),
      encode: (tensor, _, ast) =>
        Either.mapLeft(toJson(tensor), (error) => new ParseResult.Type(ast, tensor, error.message)),
    },
  ),
)

const fromJson = (json: TensorJson): Result<TensorData> => {
  if (json.dtype !== "float32" && json.dtype !== "int64")
    return invalid("dtype", `expected float32 or int64, got ${describe(json.dtype)}`)
  if (!Array.isArray(json.data)) return invalid("data", "expected an array of numbers")
  const crowIndices = json.sparse_crow_indices ?? undefined
  const colIndices = json.sparse_col_indices ?? undefined
  if ((crowIndices === undefined) !== (colIndices === undefined))
    return invalid("sparse_crow_indices", "expected both kinds of indices or neither")
  const values: ReadonlyArray<number> =
    json.dtype === "float32" && json.data.includes(null)
      ? json.data.map((value) => value ?? Number.NaN)
      : (json.data as ReadonlyArray<number>)
  const shape = json.shape ?? undefined
  return make(
    json.dtype,
    values,
    {
      ...(shape !== undefined && { shape }),
      ...(crowIndices !== undefined && colIndices !== undefined && { sparse: { crowIndices, colIndices } }),
    },
    "data",
  )
}

const toJson = (tensor: TensorData): Result<TensorJson> =>
  Either.flatMap(heldNumbers(tensor.data, "tensor"), (numbers) => {
    const data: Array<number | null> = numbers
    for (const [index, value] of numbers.entries()) {
      if (Number.isFinite(value)) continue
      if (!Number.isNaN(value)) return invalid(`tensor[${index}]`, "JSON cannot represent Infinity")
      data[index] = null
    }
    return Either.right({
      data,
      dtype: tensor.dtype,
      ...(tensor.shape !== undefined && { shape: tensor.shape }),
      ...(tensor.sparse !== undefined && {
        sparse_crow_indices: Array.from(tensor.sparse.crowIndices),
        sparse_col_indices: Array.from(tensor.sparse.colIndices),
      }),
    })
  })
