/**
 * Downloads files from storage servers, such as weights behind a signed URL. Interrupted transfers are resumed, the
 * content is verified, and the file appears under its name only when complete. The storage server receives no Tinker
 * credential.
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
 * The location of a file: a URL, or an effect that returns one. The effect runs again when the storage server rejects
 * the URL, because signed URLs expire.
 *
 * @since 0.1.0
 * @category models
 */
export type Source<E = never, R = never> =
  | string
  | URL
  | Effect.Effect<string | URL | { readonly url: string | URL }, E, R>

/**
 * A supported checksum algorithm.
 *
 * @since 0.1.0
 * @category models
 */
export type Algorithm = Checksums.Algorithm

/**
 * Options of the downloads.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /**
   * Keeps partial data beside the file (`.part`, `.part.json`) when the download fails or is interrupted, so that the
   * next download to the same path resumes. Data that fails verification is never kept.
   *
   * @default true
   */
  readonly keepPartial?: boolean | undefined
  /** The expected checksum in hex or base64. Checksums sent by the server are verified in any case. */
  readonly checksum?: { readonly algorithm: Algorithm; readonly value: string } | undefined
  /**
   * Applies to consecutive attempts that make no progress.
   *
   * @default 10 retries or 300 s
   */
  readonly retryPolicy?: RetryPolicy.RetryPolicy | undefined
  /**
   * The timeout for the response headers.
   *
   * @default "60 seconds"
   */
  readonly timeout?: Duration.DurationInput | undefined
  /**
   * The maximum time between two chunks of data.
   *
   * @default "60 seconds"
   */
  readonly idleTimeout?: Duration.DurationInput | undefined
}

/**
 * The state of a running download.
 *
 * @since 0.1.0
 * @category models
 */
export interface Progress {
  /** The number of bytes present, including those of an earlier run. */
  readonly bytes: number
  readonly total: Option.Option<number>
  /** Bytes per second over the last ten seconds. */
  readonly rate: number
  /** The estimated remaining time at the current rate. */
  readonly remaining: Option.Option<Duration.Duration>
  /** `true` only for the last report, when the file is complete. */
  readonly isDone: boolean
}

/**
 * The result of a download.
 *
 * @since 0.1.0
 * @category models
 */
export interface Downloaded {
  readonly path: string
  readonly bytes: number
  /** The number of bytes that were present from an earlier run. */
  readonly resumedFrom: number
  /** The checksums that were verified. The length is also verified if the server sent one. */
  readonly verified: ReadonlyArray<Algorithm>
}

/**
 * The errors that a download can fail with.
 *
 * @since 0.1.0
 * @category errors
 */
export type DownloadError = RequestError | InvalidInput | FileFailed | Corrupted

/**
 * The services that a download requires.
 *
 * @since 0.1.0
 * @category models
 */
export type Environment = HttpClient.HttpClient | FileSystem.FileSystem | Path.Path

/**
 * Downloads into a file and creates its directory if necessary. An existing file is replaced only when the new one is
 * complete.
 *
 * @example
 * ```ts
 * import { FileSystem } from "@effect/platform"
 * import { NodeContext } from "@effect/platform-node"
 * import { Console, Effect } from "effect"
 * import { Download, RestClient, ServiceClient } from "effect-tinker"
 * import { NodeTinker } from "@effect-tinker/node"
 *
 * const program = Effect.gen(function* () {
 *   const service = yield* ServiceClient.ServiceClient
 *   const training = yield* service.createLoraTrainingClient({ baseModel: "effect-tinker/valley-1.5m", rank: 8 })
 *   const saved = yield* training.saveWeightsForSampler("final")
 *
 *   const rest = yield* RestClient.RestClient
 *   const directory = yield* (yield* FileSystem.FileSystem).makeTempDirectoryScoped()
 *   const { bytes, resumedFrom } = yield* Download.toFile(
 *     rest.getCheckpointArchiveUrl(saved.path),
 *     `${directory}/final.tar`,
 *   )
 *   yield* Console.log(bytes > 0, resumedFrom) // → true 0
 * })
 *
 * await Effect.runPromise(
 *   program.pipe(Effect.scoped, Effect.provide([NodeTinker.layerConfig(), NodeContext.layer])),
 * )
 * ```
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
 * Downloads like {@link toFile} and reports progress about four times per second and once at the end. A slow consumer
 * does not slow the download down but receives fewer reports. Closing the stream interrupts the download.
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
  if (path === "") return invalid("path", "must not be empty")
  for (const [name, duration] of Object.entries({ idleTimeout, timeout })) {
    if (duration !== undefined && Option.isNone(Duration.decodeUnknown(duration))) {
      return invalid(`options.${name}`, "expected a duration")
    }
  }
  return checksum !== undefined && Option.isNone(Checksums.make(host, checksum.algorithm))
    ? invalid("options.checksum", "cannot be computed on this platform; provide Host (@effect-tinker/node)")
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

/** The statuses with which storage servers reject an expired URL. */
const expired = new Set<number>([400, 401, 403, 410])

const mayBeExpired = (error: Transfer.TransferError): boolean =>
  "status" in error && Option.exists(error.status, (status) => expired.has(status))

const isTransient = (error: Transfer.TransferError): error is RequestError =>
  error._tag !== "FileFailed" && error._tag !== "Corrupted" && isRetryable(error)

/**
 * Runs attempts until one succeeds. An attempt that made progress resets the retry budget and allows another URL
 * renewal.
 */
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
