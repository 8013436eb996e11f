/**
 * Tensors as users give them and as results hold them: a flat typed array with what it means. On the wire there are
 * two element types, float32 and int64; an int64 tensor is held narrow (`Int32Array`) where every element fits and is
 * widened while it is written.
 *
 * Typed arrays of the right type are held, not copied and not looked into; anything else is converted once.
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
 * @since 0.1.0
 * @category symbols
 */
export const TypeId: unique symbol = Symbol.for("effect-tinker/TensorData")

/**
 * @since 0.1.0
 * @category symbols
 */
export type TypeId = typeof TypeId

/**
 * @since 0.1.0
 * @category models
 */
export type Dtype = "float32" | "int64"

/**
 * Where the elements of a sparse tensor of two dimensions belong: compressed sparse rows.
 *
 * @since 0.1.0
 * @category models
 */
export interface Sparse {
  /** `rows + 1` positions: row `r` is held from `crowIndices[r]` up to `crowIndices[r + 1]`. */
  readonly crowIndices: Int32Array
  /** The column of each element. */
  readonly colIndices: Int32Array
}

interface Layout {
  readonly [TypeId]: TypeId
  /** Without a shape none is sent; a sparse tensor always has one. */
  readonly shape: ReadonlyArray<number> | undefined
  readonly sparse: Sparse | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Float32Tensor extends Layout {
  readonly dtype: "float32"
  readonly data: Float32Array
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Int64Tensor extends Layout {
  readonly dtype: "int64"
  readonly data: Int32Array | BigInt64Array
}

/**
 * @since 0.1.0
 * @category models
 */
export type OfDtype<D extends Dtype> = Extract<Float32Tensor | Int64Tensor, { readonly dtype: D }>

/**
 * What an int64 tensor can be made of. Numbers must be integers within ±(2^53 - 1); `BigInt64Array` is the exact way
 * to say more.
 *
 * @since 0.1.0
 * @category models
 */
export type Ints = ReadonlyArray<number> | ReadonlyArray<ReadonlyArray<number>> | SmallIntegers | BigInt64Array

/**
 * What a float32 tensor can be made of. NaN and infinities are numbers like any other; only JSON can't say them. A
 * finite number that a float32 would make infinite (from about 3.4e38) is refused.
 *
 * @since 0.1.0
 * @category models
 */
export type Floats = Exclude<Ints, BigInt64Array> | Float32Array | Float64Array

/**
 * What is accepted where a tensor is asked for.
 *
 * @since 0.1.0
 * @category models
 */
export type Input<D extends Dtype = Dtype> = OfDtype<D> | { float32: Floats; int64: Ints }[D]

/**
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
 * @since 0.1.0
 * @category refinements
 */
export const isTensorData = (value: unknown): value is Float32Tensor | Int64Tensor =>
  Predicate.hasProperty(value, TypeId)

/**
 * A float32 tensor. Doubles are rounded. Flat values have the shape that is given, or none; rows bring their own.
 *
 * @since 0.1.0
 * @category constructors
 */
export const float32 = (values: Floats, options?: Options): Result<Float32Tensor> => make("float32", values, options)

/**
 * An int64 tensor. Flat values have the shape that is given, or none; rows bring their own. A number that is no
 * integer, or beyond ±(2^53 - 1) where doubles skip integers, is refused: give a `BigInt64Array` instead.
 *
 * @since 0.1.0
 * @category constructors
 */
export const int64 = (values: Ints, options?: Options): Result<Int64Tensor> => make("int64", values, options)

/**
 * What was given where a tensor was asked for, as a tensor: a `TensorData` unchanged, flat values with the shape
 * `[length]`. `path` names the value in errors.
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

/** The last step of every constructor: data, shape and indices must agree. */
const build = <D extends Dtype>(
  dtype: D,
  data: DataOf[D],
  shape: ReadonlyArray<number> | undefined,
  sparse: Sparse | undefined,
  path: string,
): Result<OfDtype<D>> => {
  const problem = layoutProblem(data.length, shape, sparse)
  return problem === undefined
    ? // The compiler can't follow that `DataOf[D]` and `D` make an `OfDtype<D>`.
      Either.right({ [TypeId]: TypeId, dtype, data, shape, sparse } as unknown as OfDtype<D>)
    : invalid(path + problem.at, problem.says)
}

/**
 * For who has seen to it that they agree.
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
      return { at: ".shape", says: "expected integers that are not negative" }
    if (sparse === undefined && product(shape) !== length)
      return { at: ".shape", says: `[${shape.join(", ")}] holds ${product(shape)} elements, got ${length}` }
  }
  return sparse === undefined ? undefined : sparseProblem(length, shape, sparse)
}

const sparseProblem = (length: number, shape: ReadonlyArray<number> | undefined, sparse: Sparse) => {
  const [rows, columns, ...more] = shape ?? []
  if (rows === undefined || columns === undefined || more.length > 0)
    return { at: ".shape", says: "a sparse tensor needs a shape of two dimensions" }
  const { crowIndices, colIndices } = sparse
  if (crowIndices.length !== rows + 1)
    return { at: ".sparse.crowIndices", says: `expected ${rows + 1} (rows + 1), got ${crowIndices.length}` }
  if (colIndices.length !== length)
    return {
      at: ".sparse.colIndices",
      says: `expected one for each of the ${length} elements, got ${colIndices.length}`,
    }
  let next = 0
  for (const [row, position] of crowIndices.entries()) {
    if (position < next || (row === 0 && position !== 0))
      return { at: `.sparse.crowIndices[${row}]`, says: "expected positions that start at 0 and never fall" }
    for (let before = -1; next < position; next++) {
      const column = colIndices[next] ?? columns
      if (column <= before || column >= columns)
        return {
          at: `.sparse.colIndices[${next}]`,
          says: `expected columns below ${columns} that rise in their row, got ${colIndices[next]}`,
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

/** Nested values as rows of one length; nothing for flat ones. */
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
    : invalid(`${path}[${odd}]`, `expected a row of ${columns} numbers, as the first one`)
}

/** Where the first element is that does not fit, and what it is. */
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
  // Only numbers come here: they were checked.
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
 * How many elements the tensor has, those a sparse one leaves out included.
 *
 * @since 0.1.0
 * @category getters
 */
export const length = (self: TensorData): number =>
  self.sparse === undefined ? self.data.length : product(self.shape ?? [])

/**
 * The element at a position: one index for each dimension, or one into the flat values. An integer beyond ±(2^53 - 1)
 * comes as a bigint, so it is exact always.
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
  // The second overload tells of bigints; the first one never sees an int64 tensor.
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
 * All elements as numbers, row by row, with zeros where a sparse tensor holds nothing. Fails for an int64 tensor with
 * an element beyond ±(2^53 - 1), which no number can say (`data` holds it exactly), and for a sparse tensor of more
 * than 2^24 elements. `path` names the tensor in errors.
 *
 * @since 0.1.0
 * @category conversions
 */
export const toNumbers = (self: TensorData, path = "tensor"): Result<Array<number>> =>
  Either.flatMap(heldNumbers(self.data, path), (held) => {
    if (self.sparse === undefined) return Either.right(held)
    if (length(self) > denseAtMost) return invalid(path, `too large to be dense: ${length(self)} elements`)
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
    : invalid(`${path}[${beyond}]`, `${data[beyond]} is beyond ±(2^53 - 1), where numbers are no longer exact`)
}

/**
 * The same tensor as compressed sparse rows where that is smaller: two dimensions and
 * `(rows + 1) + 2 * nonzero < rows * columns`. Any other tensor comes back unchanged. Nothing is ever made sparse
 * without this call.
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
 * A tensor on the JSON wire.
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
 * @since 0.1.0
 * @category models
 */
export type TensorData = Float32Tensor | Int64Tensor

/**
 * The JSON form. The values are checked in one loop, not element by element through a schema. JSON has no NaN: servers
 * write `null` for it, and so do we; infinities and integers beyond ±(2^53 - 1) can't be encoded or decoded.
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
    return invalid("sparse_crow_indices", "expected both kinds of indices or none")
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
      if (!Number.isNaN(value)) return invalid(`tensor[${index}]`, "JSON can't say Infinity")
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
