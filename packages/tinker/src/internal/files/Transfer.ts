/**
 * Holds the state of one download: the data in the file, the properties of the complete file, and the checksums so far.
 */
import type { HttpClientResponse } from "@effect/platform/HttpClientResponse"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Encoding from "effect/Encoding"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import type { Downloaded, Progress } from "../../Download.ts"
import type { Hash, Service as Host } from "../../http/Host.ts"
import { Corrupted, type FileFailed, type RequestError, Unavailable, UnexpectedResponse } from "../../TinkerError.ts"
import * as Checksums from "./Checksums.ts"
import { type PartialFile, unknown, type Whole } from "./PartialFile.ts"
import * as Storage from "./Storage.ts"
import { uptime } from "../util/MonotonicClock.ts"

export type TransferError = RequestError | FileFailed | Corrupted

export interface Transfer {
  /** Returns the highest number of bytes present at any time. */
  readonly reached: () => number
  /** Continues from the end of the file. Succeeds when the file is complete. */
  readonly attempt: (url: URL) => Effect.Effect<void, TransferError>
  readonly finish: Effect.Effect<Omit<Downloaded, "path">, FileFailed | Corrupted>
}

export interface Dependencies {
  readonly path: string
  readonly file: PartialFile
  readonly storage: Storage.Storage
  readonly host: Host
  /** The checksum given by the caller. */
  readonly checksum: Checksums.Checksum | undefined
  readonly idleTimeout: Duration.Duration
  readonly report: (progress: Progress) => void
}

type Headers = HttpClientResponse["headers"]

const { operation } = Storage
const reportInterval = 250
const rateWindow = 10_000

const sizeOf = (text: string | undefined): number | null =>
  text !== undefined && /^\d{1,15}$/.test(text) ? Number(text) : null

/**
 * Returns the validator by which a server recognizes an unchanged file. A weak tag does not guarantee identical bytes.
 */
const validatorOf = (headers: Headers): string | null => {
  const tag = headers["etag"]
  if (headers["accept-ranges"]?.toLowerCase() === "none") return null
  return (tag !== undefined && tag.startsWith('"') ? tag : headers["last-modified"]) ?? null
}

/** Checks whether the response itself shows that the file has changed, although `If-Range` should have prevented it. */
const isOtherThan = (validator: string, headers: Headers): boolean => {
  const told = validator.startsWith('"') ? headers["etag"] : headers["last-modified"]
  return told !== undefined && told !== validator
}

const rangeOf = (headers: Headers) => {
  const [, start, size] = /^bytes (\d{1,15})-\d+\/(\d{1,15}|\*)$/.exec(headers["content-range"] ?? "") ?? []
  return start === undefined ? undefined : { start: Number(start), size: sizeOf(size) }
}

const broken = (detail: string) => new Unavailable({ operation, reason: "Disconnected", detail })

export const make = ({ checksum, file, host, idleTimeout, path, report, storage }: Dependencies) =>
  Effect.gen(function* () {
    let bytes = 0
    let reached = 0
    let whole = unknown
    let hashes: ReadonlyArray<{ readonly expected: Checksums.Checksum; readonly hash: Hash }> = []

    /** Starts the caller's checksum and the best of the server's checksums that this platform supports. */
    const startHashes = () => {
      const start = (expected: Checksums.Checksum) =>
        Option.map(Checksums.make(host, expected.algorithm), (hash) => ({ expected, hash }))
      const callers = checksum === undefined ? [] : [Checksums.normalize(checksum)]
      hashes = [...callers.map(start), Option.firstSomeOf(whole.checksums.map(start))].flatMap(Option.toArray)
    }
    const digest = (piece: Uint8Array) => {
      for (const { hash } of hashes) hash.update(piece)
    }

    const resumed = Option.getOrElse(file.found, () => ({ bytes: 0, whole: unknown }))
    whole = resumed.whole
    startHashes()
    if (resumed.bytes > 0 && hashes.length > 0) {
      yield* Stream.runForEach(file.read, (piece) => Effect.sync(() => digest(piece)))
    }
    let resumedFrom = resumed.bytes
    bytes = reached = resumed.bytes

    let samples: ReadonlyArray<{ readonly at: number; readonly bytes: number }> = []
    let reportedAt = -Infinity
    const tell = Effect.map(uptime, (now) => {
      if (now - reportedAt < reportInterval) return
      reportedAt = now
      samples = [...samples.filter(({ at }) => now - at <= rateWindow), { at: now, bytes }]
      const [oldest = { at: now, bytes }] = samples
      const rate = now === oldest.at ? 0 : (1000 * (bytes - oldest.bytes)) / (now - oldest.at)
      const total = Option.fromNullable(whole.size)
      const remaining = Option.map(
        Option.filter(total, () => rate > 0),
        (total) => Duration.seconds((total - bytes) / rate),
      )
      report({ bytes, total, rate, remaining, isDone: false })
    })

    const begin = (next: Whole) =>
      Effect.gen(function* () {
        if (bytes > 0) yield* file.clear
        bytes = resumedFrom = 0
        samples = []
        whole = next
        startHashes()
        yield* file.note(whole)
      })

    const append = (piece: Uint8Array) =>
      Effect.gen(function* () {
        // The platform treats an empty write as a full disk.
        if (piece.length === 0) return
        if (whole.size !== null && bytes + piece.length > whole.size) {
          return yield* new Corrupted({
            path,
            reason: "Length",
            expected: `${whole.size} bytes`,
            actual: "more",
          })
        }
        yield* file.write(piece)
        digest(piece)
        bytes += piece.length
        reached = Math.max(reached, bytes)
        return yield* tell
      })

    /** The data cannot be resumed: the next attempt starts from the beginning. */
    const startOver = (detail: string) => Effect.zipRight(begin(unknown), Effect.fail(broken(detail)))

    const receive = ({ redact, response }: Storage.Answered) =>
      Effect.gen(function* () {
        const silent = () =>
          new Unavailable({ operation, reason: "Timeout", detail: `no data for ${Duration.format(idleTimeout)}` })
        yield* response.stream.pipe(
          Stream.mapError((error) => Storage.fold(error, redact)),
          Stream.timeoutFail(silent, idleTimeout),
          Stream.runForEach(append),
        )
        if (whole.size !== null && bytes < whole.size) {
          return yield* broken(`the response ended after ${bytes} of ${whole.size} bytes`)
        }
      })

    /** Classifies a response before its body is read: the remaining bytes, or all of them. */
    const accept = (answered: Storage.Answered, validator: string | null) =>
      Effect.gen(function* () {
        const { headers, status } = answered.response
        const isOther = validator !== null && isOtherThan(validator, headers)
        if (validator !== null && status === 416) {
          // The file is already complete.
          if (headers["content-range"] === `bytes */${bytes}` && !isOther) return "Complete"
          return yield* startOver("the server has no data at the end of the partial file")
        }
        if (status !== 200 && (status !== 206 || validator === null)) return yield* storage.refuse(answered)
        const encoding = headers["content-encoding"] ?? "identity"
        if (encoding !== "identity" && encoding !== "") {
          return yield* new UnexpectedResponse({
            operation,
            reason: "Encoding",
            status: Option.some(status),
            detail: "the server encoded the file although identity was requested",
          })
        }
        if (status === 206) {
          const range = rangeOf(headers)
          const hasOtherSize = range?.size !== null && whole.size !== null && range?.size !== whole.size
          if (range === undefined || range.start !== bytes || hasOtherSize || isOther) {
            return yield* startOver("the server sent a different range than requested")
          }
          whole = { ...whole, size: range.size ?? whole.size }
        } else {
          yield* begin({
            validator: validatorOf(headers),
            size: sizeOf(headers["content-length"]),
            checksums: Checksums.fromHeaders(headers),
          })
        }
        return "Body"
      })

    const attempt = (url: URL): Effect.Effect<void, TransferError> =>
      Effect.gen(function* () {
        const validator = bytes > 0 ? whole.validator : null
        const answered = yield* storage.get(
          url,
          validator === null ? {} : { range: `bytes=${bytes}-`, "if-range": validator },
        )
        const letGo = Storage.letGo(answered.response)
        const accepted = yield* Effect.onError(accept(answered, validator), () => letGo)
        return yield* accepted === "Body" ? receive(answered) : letGo
      })

    const finish = Effect.gen(function* () {
      yield* file.sync
      // Detects another download that writes to the same file.
      const size = yield* file.size
      if (size !== bytes) {
        return yield* new Corrupted({ path, reason: "Length", expected: `${bytes} bytes`, actual: `${size} bytes` })
      }
      for (const { expected, hash } of hashes) {
        const actual = Encoding.encodeBase64(hash.digest())
        if (actual === expected.value) continue
        const { algorithm, value } = expected
        return yield* new Corrupted({ path, reason: "Checksum", expected: `${algorithm} ${value}`, actual })
      }
      const verified = [...new Set(hashes.map(({ expected }) => expected.algorithm))]
      return { bytes, resumedFrom, verified }
    })

    return { reached: () => reached, attempt, finish } satisfies Transfer
  })
