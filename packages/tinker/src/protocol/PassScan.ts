/**
 * Measures a protobuf pass before anything is built from it, and finds its data, so that they can be decoded one by
 * one. For authors of servers: a few megabytes of empty messages would otherwise become gigabytes of objects.
 *
 * @since 0.1.0
 */
import { type DescField, type DescMessage, ScalarType } from "@bufbuild/protobuf"
import * as Either from "effect/Either"
import { ForwardBackwardRequestSchema } from "../internal/codec/proto/tinker_public_pb.ts"

/**
 * The limits of a pass. Every field that occurs in the message is an element, and so is every byte of a packed list.
 *
 * @since 0.1.0
 * @category models
 */
export interface Limits {
  readonly data: number
  readonly elements: number
  readonly datumElements: number
  readonly datumBytes: number
}

/**
 * The parts of a pass: the message without its data, and the bytes of each datum.
 *
 * @since 0.1.0
 * @category models
 */
export interface Parts {
  readonly header: Uint8Array
  readonly data: ReadonlyArray<Uint8Array>
}

/** The field number of the data. */
const dataNumber = 3

/** The contents of a field: the fields of a message, or numbers. Other fields contain nothing to count. */
type Contents = Shape | "numbers"
interface Shape extends ReadonlyMap<number, Contents> {}

const shapeOf = (message: DescMessage): Shape =>
  new Map(
    message.fields.flatMap((field) => {
      const contents = contentsOf(field)
      return contents === undefined ? [] : [[field.number, contents] as const]
    }),
  )

const contentsOf = (field: DescField): Contents | undefined => {
  // A map is a list of messages with a key and a value.
  if (field.fieldKind === "map") return new Map(field.mapKind === "message" ? [[2, shapeOf(field.message)]] : [])
  if (field.message !== undefined) return shapeOf(field.message)
  const isNumeric =
    field.fieldKind === "list" && field.scalar !== ScalarType.STRING && field.scalar !== ScalarType.BYTES
  return isNumeric ? "numbers" : undefined
}

/** Walks over the fields of a message without decoding them. */
class Walk {
  readonly bytes: Uint8Array
  at = 0
  elements = 0
  problem: string | undefined

  constructor(bytes: Uint8Array) {
    this.bytes = bytes
  }

  fail(problem: string): number {
    this.problem ??= problem
    return 0
  }

  varint(): number {
    let value = 0
    for (let i = 0; i < 10; i++) {
      const byte = this.bytes[this.at++]
      if (byte === undefined) return this.fail("the message is cut off")
      value += (byte & 0x7f) * 2 ** (7 * i)
      if (byte < 0x80) return value
    }
    return this.fail("a number is too long")
  }

  /** Skips a value; returns its length if it has one, and leaves `at` behind it. */
  skip(wireType: number, to: number): number | undefined {
    let length: number | undefined
    if (wireType === 0) this.varint()
    else if (wireType === 1) this.at += 8
    else if (wireType === 5) this.at += 4
    else if (wireType === 2) {
      length = this.varint()
      this.at += length
    } else this.fail(`unknown wire type ${wireType}`)
    if (this.at > to) this.fail("the message is cut off")
    return length
  }

  /** Counts the elements of the message that ends at `to`. */
  count(shape: Shape, to: number, limit: number): void {
    while (this.at < to && this.problem === undefined) {
      if (++this.elements > limit) return void this.fail("too many elements")
      const tag = this.varint()
      const length = this.skip(tag % 8, to)
      const contents = shape.get(Math.floor(tag / 8))
      if (length !== undefined && contents !== undefined && this.problem === undefined)
        this.inside(contents, length, limit)
    }
  }

  /** Counts the elements within a value of the given length that ends at `at`. */
  inside(contents: Contents, length: number, limit: number): void {
    const end = this.at
    if (contents === "numbers") return void (this.elements += length)
    this.at = end - length
    this.count(contents, end, limit)
    this.at = end
  }
}

/**
 * Splits a pass into its parts, or returns why it is refused.
 *
 * @since 0.1.0
 * @category scanning
 */
export const scan = (bytes: Uint8Array, limits: Limits): Either.Either<Parts, string> => {
  const walk = new Walk(bytes)
  const shape = shapeOf(ForwardBackwardRequestSchema)
  const header: Array<Uint8Array> = []
  const data: Array<Uint8Array> = []
  while (walk.at < bytes.length && walk.problem === undefined) {
    if (++walk.elements > limits.elements) walk.fail(`more than ${limits.elements} elements`)
    const from = walk.at
    const tag = walk.varint()
    const number = Math.floor(tag / 8)
    const contents = shape.get(number)
    const length = walk.skip(tag % 8, bytes.length)
    if (walk.problem !== undefined) break
    if (number === dataNumber && length !== undefined) {
      data.push(bytes.subarray(walk.at - length, walk.at))
      if (data.length > limits.data) walk.fail(`more than ${limits.data} data`)
      if (length > limits.datumBytes) walk.fail(`data[${data.length - 1}] has more than ${limits.datumBytes} bytes`)
    } else header.push(bytes.subarray(from, walk.at))
    if (contents === undefined || length === undefined || walk.problem !== undefined) continue
    const before = walk.elements
    walk.inside(contents, length, before + limits.datumElements)
    if (walk.elements - before > limits.datumElements)
      walk.problem = `data[${data.length - 1}] has more than ${limits.datumElements} elements`
  }
  return walk.problem === undefined ? Either.right({ header: joined(header), data }) : Either.left(walk.problem)
}

const joined = (parts: ReadonlyArray<Uint8Array>): Uint8Array => {
  const all = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0))
  let at = 0
  for (const part of parts) {
    all.set(part, at)
    at += part.length
  }
  return all
}
