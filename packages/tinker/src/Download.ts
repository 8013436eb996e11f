/**
 * A file from a storage server, such as the weights behind a signed URL: gone on with where the connection broke,
 * checked, and under its name only when it is whole. The storage server sees no Tinker credential.
 *
 * @since 0.1.0
 */
import type * as FileSystem from "@effect/platform/FileSystem"
import * as HttpClient from "@effect/platform/HttpClient"
import type * as Path from "@effect/platform/Path"
import * as Cause from "effect/Cause"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Exit from "effect/Exit"
import * as Mailbox from "effect/Mailbox"
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import * as Schedule from "effect/Schedule"
import * as Stream from "effect/Stream"
import * as Host from "./http/Host.ts"
import * as Checksums from "./internal/files/Checksums.ts"
import * as PartialFile from "./internal/files/PartialFile.ts"
import * as Storage from "./internal/files/Storage.ts"
import * as Transfer from "./internal/files/Transfer.ts"
import { uptime } from "./internal/util/MonotonicClock.ts"
import * as RetryPolicy from "./RetryPolicy.ts"
import {
  type Corrupted,
  type FileFailed,
  InvalidInput,
  isRetryable,
  type RequestError,
  Unavailable,
} from "./TinkerError.ts"

/**
 * Where a file is: its address, or a way to get an address. That way is gone again when the storage server refuses
 * the address, because signed ones expire.
 *
 * @since 0.1.0
 * @category models
 */
export type Source<E = never, R = never> =
  | string
  | URL
  | Effect.Effect<string | URL | { readonly url: string | URL }, E, R>

/**
 * @since 0.1.0
 * @category models
 */
export type Algorithm = Checksums.Algorithm

/**
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /**
   * Is what came so far kept beside the file (`.part`, `.part.json`) when the download fails or is interrupted, so that
   * the next one to the same path goes on with it? Default: yes. What turns out to be wrong is never kept.
   */
  readonly keepPartial?: boolean | undefined
  /** What the file must be, in hex or base64. What the server tells about it is checked in any case. */
  readonly checksum?: { readonly algorithm: Algorithm; readonly value: string } | undefined
  /** For attempts in a row that bring nothing new. Default: 10 retries or 300 s. */
  readonly retryPolicy?: RetryPolicy.RetryPolicy | undefined
  /** For the head of an answer. Default: 60 seconds. */
  readonly timeout?: Duration.DurationInput | undefined
  /** How long nothing may come. Default: 60 seconds. */
  readonly idleTimeout?: Duration.DurationInput | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Progress {
  /** That are there, including those of an earlier run. */
  readonly bytes: number
  readonly total: Option.Option<number>
  /** Bytes a second, over the last ten seconds. */
  readonly rate: number
  /** At this rate. */
  readonly remaining: Option.Option<Duration.Duration>
  /** Only of the last: the file is there. */
  readonly isDone: boolean
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Downloaded {
  readonly path: string
  readonly bytes: number
  /** How many of them were there from an earlier run. */
  readonly resumedFrom: number
  /** By which checksums it was checked; its length was, if the server told it. */
  readonly verified: ReadonlyArray<Algorithm>
}

/**
 * @since 0.1.0
 * @category errors
 */
export type DownloadError = RequestError | InvalidInput | FileFailed | Corrupted

/**
 * @since 0.1.0
 * @category models
 */
export type Environment = HttpClient.HttpClient | FileSystem.FileSystem | Path.Path

/**
 * Downloads into a file, whose directory is made if it is missing. A file of that name is replaced when the new one is
 * whole, and not before.
 *
 * @since 0.1.0
 * @category downloads
 */
export const toFile = <E = never, R = never>(
  source: Source<E, R>,
  path: string,
  options: Options = {},
): Effect.Effect<Downloaded, DownloadError | E, Environment | R> =>
  Effect.withSpan(
    download(source, path, options, () => {}),
    "tinker.download",
    { captureStackTrace: false },
  )

/**
 * The same, told as it goes on: about four times a second, and once at the end. A slow reader does not slow it down but
 * sees less. Leaving the stream interrupts the download.
 *
 * @since 0.1.0
 * @category downloads
 */
export const withProgress = <E = never, R = never>(
  source: Source<E, R>,
  path: string,
  options: Options = {},
): Stream.Stream<Progress, DownloadError | E, Environment | R> =>
  Stream.unwrapScoped(
    Effect.gen(function* () {
      const reports = yield* Mailbox.make<Progress, DownloadError | E>({ capacity: 16, strategy: "sliding" })
      yield* download(source, path, options, (progress) => void reports.unsafeOffer(progress)).pipe(
        Effect.withSpan("tinker.download", { captureStackTrace: false }),
        Effect.exit,
        Effect.flatMap((exit) => reports.done(Exit.asVoid(exit))),
        Effect.forkScoped,
      )
      return Mailbox.toStream(reports)
    }),
  )

interface Locator<E, R> {
  readonly url: Effect.Effect<URL, InvalidInput | E, R>
  readonly canRenew: boolean
}

const locator = <E, R>(source: Source<E, R>): Either.Either<Locator<E, R>, InvalidInput> => {
  if (!Effect.isEffect(source)) {
    return Either.map(Storage.parseUrl(source), (url) => ({ url: Effect.succeed(url), canRenew: false }))
  }
  const url = Effect.flatMap(source, (given) =>
    Storage.parseUrl(typeof given === "string" || given instanceof URL ? given : given.url),
  )
  return Either.right({ url, canRenew: true })
}

const problemWith = (path: string, { checksum, idleTimeout, timeout }: Options, host: Host.Service) => {
  const invalid = (where: string, problem: string) =>
    Option.some(new InvalidInput({ path: `${Storage.operation}.${where}`, problem }))
  if (path === "") return invalid("path", "is empty")
  for (const [name, duration] of Object.entries({ idleTimeout, timeout })) {
    if (duration !== undefined && Option.isNone(Duration.decodeUnknown(duration))) {
      return invalid(`options.${name}`, "is not a duration")
    }
  }
  return checksum !== undefined && Option.isNone(Checksums.make(host, checksum.algorithm))
    ? invalid("options.checksum", "can't be computed here; provide Host (@effect-tinker/node)")
    : Option.none()
}

const download = <E, R>(
  source: Source<E, R>,
  path: string,
  options: Options,
  report: (progress: Progress) => void,
): Effect.Effect<Downloaded, DownloadError | E, Environment | R> =>
  Effect.gen(function* () {
    const host = yield* Host.Host
    const problem = problemWith(path, options, host)
    if (Option.isSome(problem)) return yield* problem.value
    const address = yield* locator(source)
    const storage = Storage.make(yield* HttpClient.HttpClient, Duration.decode(options.timeout ?? "60 seconds"))
    const place = yield* PartialFile.at(path)

    const transferred = Effect.scoped(
      Effect.gen(function* () {
        const transfer = yield* Transfer.make({
          path,
          file: yield* place.open,
          storage,
          host,
          checksum: options.checksum,
          idleTimeout: Duration.decode(options.idleTimeout ?? "60 seconds"),
          report,
        })
        yield* persist(transfer, address, options.retryPolicy ?? RetryPolicy.make())
        return yield* transfer.finish
      }),
    )
    const left = (cause: Cause.Cause<DownloadError | E>) =>
      (options.keepPartial ?? true) && !Option.exists(Cause.failureOption(cause), Predicate.isTagged("Corrupted"))
        ? place.leave
        : place.discard
    const done = yield* transferred.pipe(Effect.zipLeft(place.publish), Effect.onError(left))
    report({ bytes: done.bytes, total: Option.some(done.bytes), rate: 0, remaining: Option.none(), isDone: true })
    return { path, ...done }
  })

/** The answers of storage servers to an address that has expired. */
const expired = new Set<number>([400, 401, 403, 410])

const mayBeExpired = (error: Transfer.TransferError): boolean =>
  "status" in error && Option.exists(error.status, (status) => expired.has(status))

const isTransient = (error: Transfer.TransferError): error is RequestError =>
  error._tag !== "FileFailed" && error._tag !== "Corrupted" && isRetryable(error)

/** Attempt after attempt. One that brought something new starts the budget again, and may ask for a new address. */
const persist = <E, R>(
  transfer: Transfer.Transfer,
  { canRenew, url }: Locator<E, R>,
  policy: RetryPolicy.RetryPolicy,
): Effect.Effect<void, DownloadError | E, R> =>
  Effect.gen(function* () {
    const startedAt = yield* uptime
    const budget = yield* Schedule.driver(policy)
    let address = yield* url
    let mayRenew = canRenew
    for (let attempts = 1; ; attempts++) {
      const before = transfer.reached()
      const ended = yield* Effect.either(transfer.attempt(address))
      if (Either.isRight(ended)) return
      const error = ended.left
      if (transfer.reached() > before) {
        yield* budget.reset
        mayRenew = canRenew
      }
      const elapsed = Duration.millis((yield* uptime) - startedAt)
      const told = error._tag === "Unavailable" ? new Unavailable({ ...fieldsOf(error), attempts, elapsed }) : error
      if (mayRenew && mayBeExpired(error)) {
        mayRenew = false
        address = yield* url
      } else if (isTransient(error)) {
        yield* Effect.logWarning(`Tinker: ${told.message}`)
        yield* Effect.mapError(budget.next(error), () => told)
      } else {
        return yield* Effect.fail(told)
      }
    }
  })

const fieldsOf = ({ body, detail, operation, reason, requestId, retryAfter, shouldRetry, status }: Unavailable) => ({
  body,
  detail,
  operation,
  reason,
  requestId,
  retryAfter,
  shouldRetry,
  status,
})
