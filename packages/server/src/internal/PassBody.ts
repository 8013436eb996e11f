/**
 * Opens the body of a pass: reads everything but the data, which are then decoded one by one. Neither a body of many
 * tiny parts nor a large one builds more than its data need, or keeps others waiting.
 */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import type { Request } from "effect-tinker/protocol/Exchange"
import * as PassRequest from "effect-tinker/protocol/PassRequest"
import * as PassScan from "effect-tinker/protocol/PassScan"
import * as Routing from "effect-tinker/protocol/Routing"
import { checkEncoding, isProtobuf, parseMeasured, parseText, unreadable } from "./Call.ts"
import { slices } from "./EventLoop.ts"
import { JsonScan, type Limits, type Range } from "./JsonScan.ts"
import { invalid, Refusal } from "./Refusal.ts"

export interface PassBody {
  readonly header: Omit<PassRequest.PassRequest, "data">
  /** The number of data. */
  readonly count: number
  /** The number of bytes of a datum. */
  readonly size: (index: number) => number
  readonly datum: (index: number) => Either.Either<PassRequest.Datum, Refusal>
}

/** The limits of a pass. Clients cut their batches at 1024 data and 5 MB. */
const maxData = 8192
const maxDatumBytes = 8 * 2 ** 20

const protobufLimits: PassScan.Limits = {
  data: maxData,
  elements: 524_288,
  datumElements: 8192,
  datumBytes: maxDatumBytes,
}

const jsonLimits: Limits = {
  depth: 64,
  values: Infinity,
  structures: 524_288,
  elements: { count: maxData, bytes: maxDatumBytes, structures: 8192 },
}

const unprocessable = (problem: string): Refusal => new Refusal({ status: 422, detail: problem })

const openProtobuf = (bytes: Uint8Array): Either.Either<PassBody, Refusal> =>
  Either.gen(function* () {
    const { data, header } = yield* PassScan.scan(bytes, protobufLimits)
    const { data: _none, ...rest } = yield* PassRequest.fromMessage(yield* PassRequest.message(header))
    return {
      header: rest,
      count: data.length,
      size: (index: number) => data[index]?.length ?? 0,
      datum: (index: number) =>
        Either.mapLeft(PassRequest.datumFromProtobuf(data[index] ?? new Uint8Array(0)), (problem) =>
          unprocessable(`data[${index}].${problem}`),
        ),
    }
  }).pipe(Either.mapLeft(unprocessable))

/** The number of bytes that are scanned between two looks at the clock. */
const step = 2 ** 18

/** Finds the data of a JSON body. */
const scanJson = (bytes: Uint8Array, input: string): Effect.Effect<JsonScan, Refusal> =>
  Effect.gen(function* () {
    const scan = new JsonScan(bytes, jsonLimits, { objects: [input], array: "data" })
    const pause = slices(bytes.length)
    while (!scan.advance(step)) yield* pause
    return scan.problem === undefined ? scan : yield* unreadable(`the body has ${scan.problem}`)
  })

const isBlank = (bytes: Uint8Array): boolean => bytes.every((byte) => byte <= 0x20)

/** Returns the text with an empty array in place of the data. */
const withoutData = (bytes: Uint8Array, { from, to }: Range): Uint8Array =>
  Buffer.concat([bytes.subarray(0, from), Buffer.from("[]"), bytes.subarray(to)])

const jsonHeader = (bytes: Uint8Array, path: "forward" | "forward_backward") =>
  Either.gen(function* () {
    const { isSmall, value } = yield* parseMeasured(bytes)
    const options = { onlyFirst: !isSmall }
    const { data, ...header } = PassRequest.fromBody(
      path === "forward"
        ? yield* Either.mapLeft(Routing.read(PassRequest.ForwardBody, value, options), invalid)
        : yield* Either.mapLeft(Routing.read(PassRequest.ForwardBackwardBody, value, options), invalid),
    )
    // The scan finds no key that is written with escapes.
    return data.length === 0 ? header : yield* Either.left(unreadable('"data" must be written without escapes'))
  })

const openJson = (bytes: Uint8Array, path: "forward" | "forward_backward"): Effect.Effect<PassBody, Refusal> =>
  Effect.gen(function* () {
    const input = `${path}_input`
    const { array, elements } = yield* scanJson(bytes, input)
    const parts = elements.map(({ from, to }) => bytes.subarray(from, to))
    const data = parts.length === 1 && parts.every(isBlank) ? [] : parts
    const header = yield* jsonHeader(array === undefined ? bytes : withoutData(bytes, array), path)
    return {
      header,
      count: data.length,
      size: (index: number) => data[index]?.length ?? 0,
      datum: (index: number) =>
        Either.gen(function* () {
          const value = yield* parseText(data[index] ?? new Uint8Array(0))
          const datum = yield* Either.mapLeft(
            Routing.read(PassRequest.DatumBody, value, { onlyFirst: true }),
            (problems) =>
              invalid(problems.map((one) => ({ ...one, loc: ["body", input, "data", index, ...one.loc.slice(1)] }))),
          )
          return PassRequest.fromDatumBody(datum)
        }),
    }
  })

export const open = (request: Request, path: "forward" | "forward_backward"): Effect.Effect<PassBody, Refusal> =>
  Effect.flatMap(checkEncoding(request), () =>
    isProtobuf(request) ? openProtobuf(request.body) : openJson(request.body, path),
  )
