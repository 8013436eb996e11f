import { describe, expect, it } from "@effect/vitest"
import { Either, FastCheck as fc, Option, Schema } from "effect"
import * as TensorData from "effect-tinker/TensorData"
import type { InvalidInput } from "effect-tinker/TinkerError"

const problem = (result: Either.Either<unknown, InvalidInput>) =>
  Either.match(result, { onLeft: ({ path, problem }) => `${path}: ${problem}`, onRight: () => "no problem" })

const decode = Schema.decodeUnknownEither(TensorData.TensorData)
const encode = Schema.encodeEither(TensorData.TensorData)
const roundTrip = (tensor: TensorData.TensorData) => Either.flatMap(encode(tensor), decode)

const float = (values: TensorData.Floats, options?: TensorData.Options) =>
  Either.getOrThrow(TensorData.float32(values, options))
const int = (values: TensorData.Ints, options?: TensorData.Options) =>
  Either.getOrThrow(TensorData.int64(values, options))

describe("TensorData", () => {
  it("TensorData keeps an array of the right type without copying it", () => {
    const floats = Float32Array.of(1, Number.NaN)
    const narrow = Int32Array.of(1, -2)
    const wide = BigInt64Array.of(2n ** 62n)
    expect(float(floats).data).toBe(floats)
    expect(int(narrow).data).toBe(narrow)
    expect(int(wide).data).toBe(wide)
  })

  it("TensorData converts other arrays once, integers to the narrowest type", () => {
    expect(float([0.1, 2]).data).toEqual(Float32Array.of(0.1, 2))
    expect(float(Float64Array.of(0.1)).data).toEqual(Float32Array.of(0.1))
    expect(float(Uint8Array.of(255)).data).toEqual(Float32Array.of(255))
    expect(int([2 ** 31 - 1, -(2 ** 31)]).data).toEqual(Int32Array.of(2 ** 31 - 1, -(2 ** 31)))
    expect(int([1, 2 ** 31]).data).toEqual(BigInt64Array.of(1n, 2n ** 31n))
    expect(int(Uint32Array.of(2 ** 32 - 1)).data).toEqual(BigInt64Array.of(2n ** 32n - 1n))
    expect(int([Number.MAX_SAFE_INTEGER, Number.MIN_SAFE_INTEGER]).data).toEqual(
      BigInt64Array.of(2n ** 53n - 1n, 1n - 2n ** 53n),
    )
  })

  it("TensorData rejects numbers that an int64 can't hold exactly and suggests an alternative", () => {
    expect(problem(TensorData.int64([1, 1.5]))).toBe(
      "tensor[1]: expected an integer within ±(2^53 - 1), or a BigInt64Array, got 1.5",
    )
    expect(problem(TensorData.int64([2 ** 53]))).toContain("tensor[0]: expected an integer within ±(2^53 - 1)")
    expect(problem(TensorData.int64([Number.NaN]))).toContain("tensor[0]")
    expect(int(BigInt64Array.of(2n ** 53n)).data).toEqual(BigInt64Array.of(2n ** 53n))
  })

  it("TensorData rejects values that are not numbers, including from untyped code", () => {
    const untyped = JSON.parse('[1, "2", null]')
    expect(problem(TensorData.float32(untyped))).toBe(
      "tensor[1]: expected a number in the range of float32, got a string",
    )
    expect(problem(TensorData.int64(untyped))).toContain("tensor[1]: expected an integer")
    expect(problem(TensorData.float32(JSON.parse("null")))).toBe(
      "tensor: expected an array of numbers or a tensor, got null",
    )
    expect(problem(TensorData.int64(JSON.parse("7")))).toContain("expected an array of numbers or a tensor, got 7")
  })

  it("TensorData rejects a number that would be infinite as a float32", () => {
    const largest = 2 ** 128 - 2 ** 104
    expect(problem(TensorData.float32([1, 1e39]))).toBe(
      "tensor[1]: expected a number in the range of float32, got 1e+39",
    )
    expect(problem(TensorData.float32(Float64Array.of(-1e39)))).toContain(
      "tensor[0]: expected a number in the range of float32",
    )
    expect(problem(TensorData.float32([[1], [1e39]]))).toContain(
      "tensor[1][0]: expected a number in the range of float32",
    )
    expect(float([largest, 3.4028235677973362e38]).data).toEqual(Float32Array.of(largest, largest))
    expect(problem(TensorData.float32([3.4028235677973366e38]))).toContain("tensor[0]")
    expect(problem(TensorData.float32([-3.4028235677973366e38]))).toContain("tensor[0]")
  })

  it("TensorData rejects invalid options from untyped code", () => {
    const sparse = (sparse: unknown) => problem(TensorData.float32([1], { shape: [1, 1], sparse: sparse as never }))
    expect(sparse(null)).toBe("tensor.sparse: expected { crowIndices, colIndices }, got null")
    expect(sparse({})).toBe("tensor.sparse.crowIndices: expected indices, got undefined")
    expect(sparse({ crowIndices: [0, 1], colIndices: { length: -1 } })).toBe(
      "tensor.sparse.colIndices: expected indices, got an object",
    )
    expect(problem(TensorData.float32([1], { shape: {} as never }))).toContain(
      "tensor.shape: expected non-negative integers",
    )
    expect(problem(TensorData.float32([new DataView(new ArrayBuffer(4))] as never))).toContain("tensor[0]: expected")
  })

  it("TensorData rejects a sparse tensor that is too large to be dense", () => {
    const huge = int([], { shape: [2, 2 ** 40], sparse: { crowIndices: [0, 0, 0], colIndices: [] } })
    expect(problem(TensorData.toNumbers(huge, "x"))).toBe("x: too large for a dense array: 2199023255552 elements")
    expect(TensorData.at(huge, 1, 2 ** 39)).toEqual(Option.some(0))
  })

  it("TensorData accepts NaN and infinities as floats", () => {
    expect(float([Number.NaN, Infinity, -Infinity]).data).toEqual(Float32Array.of(Number.NaN, Infinity, -Infinity))
  })

  it("TensorData has the shape of its rows, the given shape, or none", () => {
    const rows = int([
      [1, 2, 3],
      [4, 5, 6],
    ])
    expect(rows.shape).toEqual([2, 3])
    expect(rows.data).toEqual(Int32Array.of(1, 2, 3, 4, 5, 6))
    expect(float([1, 2, 3, 4], { shape: [2, 2] }).shape).toEqual([2, 2])
    expect(float([1, 2]).shape).toBeUndefined()
    expect(Either.getOrThrow(TensorData.from("float32", [1, 2])).shape).toEqual([2])
    expect(Either.getOrThrow(TensorData.from("float32", float([1, 2]))).shape).toBeUndefined()
  })

  it("TensorData rejects shapes that don't match the data", () => {
    expect(problem(TensorData.float32([1, 2, 3], { shape: [2, 2] }))).toBe("tensor.shape: [2, 2] has 4 elements, got 3")
    expect(problem(TensorData.float32([1], { shape: [-1] }))).toContain("tensor.shape: expected non-negative integers")
    expect(problem(TensorData.float32([1], { shape: [0.5] }))).toContain("tensor.shape: expected non-negative integers")
    expect(problem(TensorData.int64([[1, 2], [3]]))).toBe("tensor[1]: expected a row of 2 numbers, like the first row")
    expect(
      problem(
        TensorData.int64([
          [1, 2],
          [3, 0.5],
        ]),
      ),
    ).toContain("tensor[1][1]: expected an integer")
    expect(problem(TensorData.from("float32", int([1]) as never, "data[0].inputs.weights"))).toBe(
      "data[0].inputs.weights: expected a float32 tensor, got int64",
    )
  })

  it("TensorData validates compressed sparse rows", () => {
    const sparse = (crowIndices: TensorData.Ints, colIndices: TensorData.Ints, shape: ReadonlyArray<number> = [3, 8]) =>
      problem(TensorData.int64([5, 6], { shape, sparse: { crowIndices, colIndices } }))
    expect(sparse([0, 1, 1, 2], [0, 7])).toBe("no problem")
    expect(sparse([0, 1, 1, 2], [0, 7], [24])).toContain("tensor.shape: a sparse tensor requires")
    expect(sparse([0, 1, 2], [0, 7])).toContain("tensor.sparse.crowIndices: expected 4 values (rows + 1), got 3")
    expect(sparse([0, 2, 1, 2], [0, 7])).toContain("tensor.sparse.crowIndices[2]")
    expect(sparse([1, 1, 1, 2], [0, 7])).toContain("tensor.sparse.crowIndices[0]")
    expect(sparse([0, 1, 1, 1], [0, 7])).toContain("tensor.sparse.crowIndices[3]: expected the number of elements, 2")
    expect(sparse([0, 1, 1, 2], [0, 8])).toContain("tensor.sparse.colIndices[1]: expected increasing columns below 8")
    expect(sparse([0, 1, 1, 2], [-1, 7])).toContain("tensor.sparse.colIndices[0]: expected increasing columns below 8")
    expect(sparse([0, 0, 2, 2], [3, 4])).toBe("no problem")
    expect(sparse([0, 1, 2, 2], [4, 3])).toBe("no problem")
    expect(sparse([0, 0, 2, 2], [4, 3])).toContain("tensor.sparse.colIndices[1]: expected increasing columns below 8")
    expect(sparse([0, 0, 2, 2], [4, 4])).toContain("tensor.sparse.colIndices[1]")
    expect(sparse([0, 1, 1, 2], [0])).toContain("tensor.sparse.colIndices: expected one value per element")
    expect(sparse([0, 1, 1, 2], [0, 2 ** 31])).toContain("tensor.sparse.colIndices[1]: expected an index")
  })

  it("TensorData reads single elements exactly", () => {
    const dense = float([1, 2, 3, 4, 5, 6], { shape: [2, 3] })
    expect(TensorData.at(dense, 1, 2)).toEqual(Option.some(6))
    expect(TensorData.at(dense, 4)).toEqual(Option.some(5))
    expect(TensorData.at(dense, 2, 0)).toEqual(Option.none())
    expect(TensorData.at(dense, 0, 0, 0)).toEqual(Option.none())
    expect(TensorData.at(int(BigInt64Array.of(3n, 2n ** 60n)), 0)).toEqual(Option.some(3))
    expect(TensorData.at(int(BigInt64Array.of(3n, 2n ** 60n)), 1)).toEqual(Option.some(2n ** 60n))
    const sparse = int([5, 6], { shape: [3, 8], sparse: { crowIndices: [0, 1, 1, 2], colIndices: [0, 7] } })
    expect(TensorData.at(sparse, 2, 7)).toEqual(Option.some(6))
    expect(TensorData.at(sparse, 1, 7)).toEqual(Option.some(0))
    expect(TensorData.length(sparse)).toBe(24)
  })

  it("TensorData converts to plain numbers unless one would be inexact", () => {
    expect(TensorData.toNumbers(float([0.5, 1]))).toEqual(Either.right([0.5, 1]))
    expect(TensorData.toNumbers(int(BigInt64Array.of(1n, 2n)))).toEqual(Either.right([1, 2]))
    expect(problem(TensorData.toNumbers(int(BigInt64Array.of(1n, 2n ** 53n))))).toBe(
      "tensor[1]: 9007199254740992 exceeds ±(2^53 - 1) and cannot be represented exactly as a number",
    )
  })

  it("TensorData.toSparse makes a tensor sparse only where that is smaller", () => {
    const wide = float([
      [0, 0, 0, 0.5],
      [0, 0, 0, 0],
    ])
    const sparse = TensorData.toSparse(wide)
    expect(sparse.data).toEqual(Float32Array.of(0.5))
    expect(sparse.sparse).toEqual({ crowIndices: Int32Array.of(0, 1, 1), colIndices: Int32Array.of(3) })
    expect(TensorData.toSparse(sparse)).toBe(sparse)
    // (2 + 1) + 2 * 2 = 7 < 8, (2 + 1) + 2 * 3 = 9
    expect(
      TensorData.toSparse(
        int([
          [1, 0, 0, 0],
          [0, 0, 0, 1],
        ]),
      ).sparse,
    ).toBeDefined()
    expect(
      TensorData.toSparse(
        int([
          [1, 1, 0, 0],
          [0, 0, 0, 1],
        ]),
      ).sparse,
    ).toBeUndefined()
    expect(TensorData.toSparse(float([0, 0, 0, 0, 0, 0, 0, 0])).sparse).toBeUndefined()
    expect(TensorData.toSparse(float([[Number.NaN, 0, 0, 0, 0, 0, 0, 0]])).data).toEqual(Float32Array.of(Number.NaN))
  })

  it("TensorData omits missing fields from JSON", () => {
    expect(encode(int([1, 2]))).toEqual(Either.right({ data: [1, 2], dtype: "int64" }))
    expect(encode(float([[0.5]]))).toEqual(Either.right({ data: [0.5], dtype: "float32", shape: [1, 1] }))
  })

  it("TensorData reads null as NaN and writes NaN as null, the only non-finite value in JSON", () => {
    const tensor = Either.getOrThrow(decode({ data: [1, null], dtype: "float32", shape: null }))
    expect(tensor.data).toEqual(Float32Array.of(1, Number.NaN))
    expect(encode(tensor)).toEqual(Either.right({ data: [1, null], dtype: "float32" }))
    expect(Either.isLeft(encode(float([Infinity])))).toBe(true)
    expect(Either.isLeft(encode(int(BigInt64Array.of(2n ** 53n))))).toBe(true)
  })

  it("TensorData rejects malformed JSON", () => {
    const bad = [
      { data: [1], dtype: "float64" },
      { data: [2 ** 53], dtype: "int64" },
      { data: [null], dtype: "int64" },
      { data: ["1"], dtype: "float32" },
      { data: "1", dtype: "float32" },
      { data: [1], dtype: "int64", shape: [2] },
      { data: [1], dtype: "int64", shape: [1, 1], sparse_crow_indices: [0, 1] },
      { data: [], dtype: "int64", shape: [1, 1], sparse_crow_indices: { length: -1 }, sparse_col_indices: [] },
      { data: [], dtype: "int64", shape: [1, 1], sparse_crow_indices: "01", sparse_col_indices: [] },
      { data: [1e39], dtype: "float32" },
      [1],
      null,
    ]
    expect(bad.map((json) => Either.isLeft(decode(json)))).toEqual(bad.map(() => true))
  })

  const floats = fc.float32Array({ noDefaultInfinity: true }).map((values) => float(values, { shape: [values.length] }))
  const ints = fc
    .oneof(fc.array(fc.integer()), fc.array(fc.maxSafeInteger()))
    .map((values) => int(values, { shape: [values.length] }))
  const matrix = fc.tuple(fc.integer({ min: 1, max: 5 }), fc.integer({ min: 1, max: 9 })).chain(([rows, columns]) =>
    fc.array(
      fc.array(fc.oneof({ weight: 4, arbitrary: fc.constant(0) }, fc.integer()), {
        minLength: columns,
        maxLength: columns,
      }),
      { minLength: rows, maxLength: rows },
    ),
  )

  it.prop("TensorData survives a JSON round trip", { tensor: fc.oneof(floats, ints) }, ({ tensor }) => {
    expect(Either.flatMap(roundTrip(tensor), TensorData.toNumbers)).toEqual(TensorData.toNumbers(tensor))
    expect(Either.getOrThrow(roundTrip(tensor)).shape).toEqual(tensor.shape)
  })

  it.prop("a sparse tensor equals its dense matrix, in memory and through JSON", { rows: matrix }, ({ rows }) => {
    const dense = int(rows)
    const sparse = TensorData.toSparse(dense)
    expect(TensorData.toNumbers(sparse)).toEqual(Either.right(rows.flat()))
    expect(Either.flatMap(roundTrip(sparse), TensorData.toNumbers)).toEqual(Either.right(rows.flat()))
    for (const [row, values] of rows.entries())
      for (const [column, value] of values.entries())
        expect(TensorData.at(sparse, row, column)).toEqual(Option.some(value))
  })
})
