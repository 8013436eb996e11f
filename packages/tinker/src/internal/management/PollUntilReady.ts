/** What a server has to prepare before it can tell where it is: a session's trace, the archive of a checkpoint. */
import * as DateTime from "effect/DateTime"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as Ref from "effect/Ref"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import * as Api from "../../protocol/Api.ts"
import { CheckpointArchive, type TraceExport } from "../../protocol/schemas/Management.ts"
import type * as Checkpoint from "../../Checkpoint.ts"
import type { RawAnswer } from "../../protocol/Endpoint.ts"
import { DeadlineExceeded, RequestFailed, type TinkerError, UnexpectedResponse } from "../../TinkerError.ts"
import type * as Transport from "../../Transport.ts"
import { requestId } from "../request/Refusal.ts"
import { shorten } from "../util/Text.ts"
import { lazy } from "../util/Lazy.ts"
import { redactor } from "../util/Redact.ts"
import { uptime } from "../util/MonotonicClock.ts"

type Call = Transport.Service["call"]

/** What is known of a wait when its time is over. */
interface Known {
  readonly polls: number
  readonly state: string
}

/** At most this long; what was known by then is told. */
const within = <A, E>(
  deadline: Duration.Duration,
  requestType: string,
  work: (known: Ref.Ref<Known>) => Effect.Effect<A, E>,
): Effect.Effect<A, E | DeadlineExceeded> =>
  Effect.gen(function* () {
    const startedAt = yield* uptime
    const known = yield* Ref.make<Known>({ polls: 0, state: "unknown" })
    if (!Duration.isFinite(deadline)) return yield* work(known)
    const done = yield* Effect.timeoutOption(work(known), deadline)
    if (Option.isSome(done)) return done.value
    const { polls, state } = yield* Ref.get(known)
    return yield* new DeadlineExceeded({
      requestId: "",
      requestType,
      queueState: state,
      age: Duration.millis((yield* uptime) - startedAt),
      iterations: polls,
    })
  })

const traceInterval = Duration.seconds(5)

/** A word that is not known is taken for one of waiting: the deadline has the last. */
const isSettled = ({ status }: TraceExport): boolean => status === "ready" || status === "failed"

/** The address of a session's trace, once the server has it. */
export const trace = (
  call: Call,
  sessionId: string,
  deadline: Duration.Duration,
  options: Transport.CallOptions | undefined,
): Effect.Effect<string, TinkerError | RequestFailed | DeadlineExceeded> => {
  const { operation } = Api.exportSessionTrace
  return within(deadline, "TraceExport", (known) =>
    call(Api.exportSessionTrace, { sessionId }, options).pipe(
      Effect.tap(({ status }) => Ref.update(known, ({ polls }) => ({ polls: polls + 1, state: status }))),
      Effect.repeat(
        Schedule.zipRight(
          Schedule.spaced(traceInterval),
          Schedule.recurUntil((trace: TraceExport) => isSettled(trace)),
        ),
      ),
    ),
  ).pipe(
    Effect.flatMap(({ error, status, url }): Effect.Effect<string, RequestFailed | UnexpectedResponse> => {
      if (status === "failed") {
        const detail = shorten(redactor([])(Option.getOrElse(error, () => "")))
        return Effect.fail(new RequestFailed({ operation, reason: "Server", detail }))
      }
      return Option.match(url, {
        onNone: () =>
          Effect.fail(new UnexpectedResponse({ operation, reason: "Schema", detail: "ready, but nowhere" })),
        onSome: Effect.succeed,
      })
    }),
    Effect.withSpan("tinker.export_session_trace", { captureStackTrace: false }),
  )
}

/** While an archive is being built the server says 503; the transport has asked some times already by then. */
const archiveRounds = Schedule.intersect(Schedule.spaced("30 seconds"), Schedule.recurs(5))

const isBeingBuilt = (error: TinkerError): boolean => error._tag === "Unavailable" && Option.contains(error.status, 503)

/** How long a signed address is good for at least, where the server does not say. */
const signedFor = Duration.minutes(15)

const ArchiveText = lazy(() => Schema.parseJson(CheckpointArchive))

interface Found {
  readonly url: string
  readonly expires: Option.Option<DateTime.Utc>
}

/** Where the answer leads; the address itself, which is signed, stands in no error. */
const locate = (
  { body, headers, redact, status }: RawAnswer,
  baseUrl: string,
): Either.Either<Found, UnexpectedResponse> => {
  const unexpected = (reason: UnexpectedResponse["reason"], detail: string) =>
    Either.left(
      new UnexpectedResponse({
        operation: Api.getCheckpointArchive.operation,
        reason,
        detail,
        status: Option.some(status),
        requestId: requestId(headers, redact),
      }),
    )
  if (status < 300) {
    return Either.orElse(Schema.decodeUnknownEither(ArchiveText)(new TextDecoder().decode(body)), () =>
      unexpected("Schema", "it is not the JSON that tells an address"),
    )
  }
  const location = headers["location"]
  if (location === undefined || !URL.canParse(location, baseUrl)) return unexpected("Redirect", "it leads nowhere")
  const url = new URL(location, baseUrl)
  return url.protocol === "https:" || url.protocol === "http:"
    ? Either.right({ url: URL.canParse(location) ? location : url.href, expires: httpDate(headers["expires"]) })
    : unexpected("Redirect", `it leads to ${url.protocol}, from where nothing can be fetched`)
}

/** `0` and the like, which only keep caches away, are no date. */
const httpDate = (text: string | undefined): Option.Option<DateTime.Utc> =>
  text !== undefined && text.endsWith("GMT") ? DateTime.make(new Date(text)) : Option.none()

export interface Archive {
  readonly url: string
  readonly expires: DateTime.Utc
}

/** The address of a checkpoint as one file, once the server has built it. */
export const archive = (
  call: Call,
  path: Checkpoint.Path,
  baseUrl: string,
  deadline: Duration.Duration,
  options: Transport.CallOptions | undefined,
): Effect.Effect<Archive, TinkerError | DeadlineExceeded> => {
  // Servers with the short form know such a checkpoint by its bare name, here only.
  const checkpointId = path.form === "short" ? path.name : path.checkpointId
  return within(deadline, "CheckpointArchive", (known) =>
    call(Api.getCheckpointArchive, { trainingRunId: path.trainingRunId, checkpointId }, options).pipe(
      Effect.tapError(() => Ref.update(known, ({ polls }) => ({ polls: polls + 1, state: "building" }))),
      Effect.retry({ while: isBeingBuilt, schedule: archiveRounds }),
      Effect.flatMap((answer) => locate(answer, `${baseUrl}/`)),
    ),
  ).pipe(
    Effect.flatMap(({ expires, url }) =>
      Effect.map(DateTime.now, (now) => ({
        url,
        expires: Option.getOrElse(expires, () => DateTime.addDuration(now, signedFor)),
      })),
    ),
    Effect.withSpan("tinker.get_checkpoint_archive_url", { captureStackTrace: false }),
  )
}
