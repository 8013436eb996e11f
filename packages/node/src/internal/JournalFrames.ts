/**
 * Encodes journal entries as consecutive frames, each with its length and checksum, so that incomplete ones are
 * detected.
 */
import { crc32 } from "node:zlib"
import * as Either from "effect/Either"
import * as Schema from "effect/Schema"
import * as TrainingJournal from "effect-tinker/TrainingJournal"

/** The start of every journal file. */
export const preamble = Buffer.from("effect-tinker journal 1\n")

/** The start of every frame, used to find further frames after an unreadable one. */
const marker = Buffer.from([0x1e, 0x45, 0x54, 0x4a])
/** Marker, record length, request length, checksum of both, and checksum of the preceding header fields. */
const headerLength = 20

const encodeRecord = Schema.encodeSync(Schema.parseJson(TrainingJournal.Record))
const decodeRecord = Schema.decodeUnknownEither(Schema.parseJson(TrainingJournal.Record))
const RequestHead = Schema.Struct({ path: Schema.String, contentType: Schema.String })
const encodeRequestHead = Schema.encodeSync(Schema.parseJson(RequestHead))
const decodeRequestHead = Schema.decodeUnknownEither(Schema.parseJson(RequestHead))

const newline = 0x0a

/** The bytes of a frame, in parts that need not be concatenated. */
export type Frame = ReadonlyArray<Uint8Array>

export const lengthOf = (frame: Frame): number => frame.reduce((sum, { length }) => sum + length, 0)

const frame = (record: Uint8Array, request: Frame): Frame => {
  const header = Buffer.alloc(headerLength)
  header.set(marker)
  header.writeUInt32LE(record.length, 4)
  header.writeUInt32LE(lengthOf(request), 8)
  header.writeUInt32LE(
    request.reduce((sum, part) => crc32(part, sum), crc32(record)),
    12,
  )
  header.writeUInt32LE(crc32(header.subarray(0, 16)), 16)
  return [Buffer.concat([header, record]), ...request]
}

export const encode = ({ record, request }: TrainingJournal.Entry): Frame =>
  frame(
    Buffer.from(encodeRecord(record)),
    request === undefined ? [] : [Buffer.from(`${encodeRequestHead(request)}\n`), request.bytes],
  )

/** A complete frame and its position. */
export interface Place {
  readonly offset: number
  readonly end: number
  readonly record: Buffer
  /** Empty if the entry has no request. */
  readonly request: Buffer
}

export const whole = ({ record, request }: Place): Frame => frame(record, request.length === 0 ? [] : [request])

/** Encodes the frame without its request. */
export const withoutRequest = ({ record }: Place): Frame => frame(record, [])

const placeAt = (bytes: Buffer, offset: number): Place | undefined => {
  const begin = offset + headerLength
  if (begin > bytes.length || !bytes.subarray(offset, offset + marker.length).equals(marker)) return undefined
  if (crc32(bytes.subarray(offset, offset + 16)) !== bytes.readUInt32LE(offset + 16)) return undefined
  const between = begin + bytes.readUInt32LE(offset + 4)
  const end = between + bytes.readUInt32LE(offset + 8)
  if (end > bytes.length || crc32(bytes.subarray(begin, end)) !== bytes.readUInt32LE(offset + 12)) return undefined
  return { offset, end, record: bytes.subarray(begin, between), request: bytes.subarray(between, end) }
}

const isFollowed = (bytes: Buffer, offset: number): boolean => {
  for (let next = bytes.indexOf(marker, offset); next >= 0; next = bytes.indexOf(marker, next + 1))
    if (placeAt(bytes, next) !== undefined) return true
  return false
}

/** The position and description of unreadable data. */
export interface Damage {
  readonly offset: number
  readonly problem: string
}

export interface Contents {
  readonly places: ReadonlyArray<Place>
  /** The end of the last complete frame. */
  readonly end: number
}

/**
 * Reads all frames. An incomplete frame at the end was being written when the process or machine died, and is ignored.
 * An unreadable frame with others after it is damage.
 */
export const read = (bytes: Buffer): Either.Either<Contents, Damage> => {
  const known = Math.min(bytes.length, preamble.length)
  if (!bytes.subarray(0, known).equals(preamble.subarray(0, known)))
    return Either.left({ offset: 0, problem: "not a journal file" })
  if (bytes.length < preamble.length) return Either.right({ places: [], end: 0 })
  const places: Array<Place> = []
  let end = preamble.length
  while (end < bytes.length) {
    const place = placeAt(bytes, end)
    if (place === undefined) {
      if (isFollowed(bytes, end + 1)) return Either.left({ offset: end, problem: "damaged record" })
      break
    }
    places.push(place)
    end = place.end
  }
  return Either.right({ places, end })
}

export const decode = ({ offset, record, request }: Place): Either.Either<TrainingJournal.Entry, Damage> =>
  Either.gen(function* () {
    const known = yield* Either.mapLeft(decodeRecord(record.toString()), () => ({
      offset,
      problem: "record of an unknown kind; it may be from a newer version",
    }))
    if (request.length === 0) return { record: known }
    const split = request.indexOf(newline)
    const head = yield* Either.mapLeft(decodeRequestHead(request.subarray(0, split).toString()), () => ({
      offset,
      problem: "unreadable request",
    }))
    // Copied, so that it does not keep the whole file in memory.
    return { record: known, request: { ...head, bytes: Uint8Array.from(request.subarray(split + 1)) } }
  })
