/** Waits for URLs that the server has to prepare first: a session trace or a checkpoint archive. */
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
import { isUnreadable, maxMisfitRetries } from "../core/Response.ts"
import * as RetryPolicy from "../../RetryPolicy.ts"
import type * as Transport from "../../Transport.ts"
import { requestId } from "../request/Refusal.ts"
import { shorten } from "../util/Text.ts"
import { lazy } from "../util/Lazy.ts"
import { redactor } from "../util/Redact.ts"
import { uptime } from "../util/MonotonicClock.ts"

type Call = Transport.Service["call"]

/** The state of a wait, reported when the deadline is exceeded. */
interface Known {
  readonly polls: number
  readonly state: string
}

/** Limits work to a deadline and reports its last state. */
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

/** An unknown status counts as pending; the deadline limits the wait. */
const isSettled = ({ status }: TraceExport): boolean => status === "ready" || status === "failed"

/** Returns the URL of a session trace when it is ready. */
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
          Effect.fail(new UnexpectedResponse({ operation, reason: "Schema", detail: "status ready without a URL" })),
        onSome: Effect.succeed,
      })
    }),
    Effect.withSpan("tinker.export_session_trace", { captureStackTrace: false }),
  )
}

/** The server returns 503 while an archive is being built. Each round has a few quick retries for other reasons. */
const archiveRetries = RetryPolicy.make({ maxRetries: 10 })
const archiveRounds = Schedule.intersect(Schedule.spaced("30 seconds"), Schedule.recurs(5))

/** The response is a redirect or JSON, which only `locate` can tell apart from a proxy's page. */
const unreadableRetries = Schedule.intersect(Schedule.exponential("250 millis"), Schedule.recurs(maxMisfitRetries))

const isBeingBuilt = (error: TinkerError): boolean => error._tag === "Unavailable" && Option.contains(error.status, 503)

/** The minimum lifetime of a signed URL if the server does not report one. */
const signedFor = Duration.minutes(15)

const ArchiveText = lazy(() => Schema.parseJson(CheckpointArchive))

interface Found {
  readonly url: string
  readonly expires: Option.Option<DateTime.Utc>
}

/** Extracts the URL from a response. Errors never contain the URL, which is signed. */
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
      unexpected("Schema", "expected JSON with a URL"),
    )
  }
  const location = headers["location"]
  if (location === undefined || !URL.canParse(location, baseUrl)) return unexpected("Redirect", "invalid redirect")
  const url = new URL(location, baseUrl)
  return url.protocol === "https:" || url.protocol === "http:"
    ? Either.right({ url: URL.canParse(location) ? location : url.href, expires: httpDate(headers["expires"]) })
    : unexpected("Redirect", `redirect to unsupported scheme ${url.protocol}`)
}

/** Values such as `0`, which only prevent caching, are not dates. */
const httpDate = (text: string | undefined): Option.Option<DateTime.Utc> =>
  text !== undefined && text.endsWith("GMT") ? DateTime.make(new Date(text)) : Option.none()

export interface Archive {
  readonly url: string
  readonly expires: DateTime.Utc
}

/** Returns the URL of a checkpoint archive when it is ready. */
export const archive = (
  call: Call,
  path: Checkpoint.Path,
  baseUrl: string,
  deadline: Duration.Duration,
  options: Transport.CallOptions | undefined,
): Effect.Effect<Archive, TinkerError | DeadlineExceeded> => {
  // Servers with the short form know such a checkpoint by its bare name, only in this endpoint.
  const checkpointId = path.form === "short" ? path.name : path.checkpointId
  return within(deadline, "CheckpointArchive", (known) =>
    call(
      Api.getCheckpointArchive,
      { trainingRunId: path.trainingRunId, checkpointId },
      { retryPolicy: archiveRetries, ...options },
    ).pipe(
      Effect.flatMap((answer) => locate(answer, `${baseUrl}/`)),
      Effect.retry({ while: isUnreadable, schedule: unreadableRetries }),
      Effect.tapError(() => Ref.update(known, ({ polls }) => ({ polls: polls + 1, state: "building" }))),
      Effect.retry({ while: isBeingBuilt, schedule: archiveRounds }),
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
