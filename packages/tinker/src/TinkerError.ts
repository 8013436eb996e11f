/**
 * The errors of the SDK: as few tags as a caller handles differently. `reason` says why, `operation`, `status` and
 * `requestId` say where.
 *
 * @since 0.1.0
 */
import * as Duration from "effect/Duration"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"

const absent = <A, I>(schema: Schema.Schema<A, I>) =>
  Schema.optionalWith(schema, { as: "Option" }).pipe(Schema.withConstructorDefault(() => Option.none<A>()))

/** Fields of every error that a request can end with. */
const request = {
  /** The endpoint's name on the wire, e.g. `optim_step`. */
  operation: Schema.String,
  status: absent(Schema.Number),
  requestId: absent(Schema.String),
  /** The server's own words, shortened and without secrets; empty when it said nothing. */
  detail: Schema.optionalWith(Schema.String, { default: () => "" }),
  /** What the server sent, parsed if it is JSON; without secrets and cut to 64 KiB. */
  body: absent(Schema.Unknown),
  /** The server's `x-should-retry`, which overrules the classification by status. */
  shouldRetry: absent(Schema.Boolean),
  /** The server's wish when to come back, from `retry-after-ms` or `Retry-After`. */
  retryAfter: absent(Schema.Duration),
  /** How often the request was sent, and for how long, until this error was given to the caller. */
  attempts: Schema.optionalWith(Schema.Number, { default: () => 1 }),
  elapsed: Schema.optionalWith(Schema.Duration, { default: () => Duration.zero }),
  cause: Schema.optional(Schema.Defect),
}

const describe = (
  what: string,
  error: {
    readonly operation: string
    readonly status: Option.Option<number>
    readonly requestId: Option.Option<string>
    readonly detail: string
    readonly attempts: number
    readonly elapsed: Duration.Duration
  },
): string => {
  const status = Option.match(error.status, { onNone: () => "", onSome: (status) => ` (HTTP ${status})` })
  const id = Option.match(error.requestId, { onNone: () => "", onSome: (id) => ` [request ${id}]` })
  const tries = error.attempts > 1 ? ` after ${error.attempts} attempts in ${Duration.format(error.elapsed)}` : ""
  const words = error.detail === "" ? "" : `: ${error.detail}`
  return `${error.operation} ${what}${status}${id}${tries}${words}`
}

/**
 * The configuration can't be used. `setting` names the variable or option; the value is never shown.
 *
 * @since 0.1.0
 * @category errors
 */
export class InvalidConfig extends Schema.TaggedError<InvalidConfig>("effect-tinker/TinkerError/InvalidConfig")(
  "InvalidConfig",
  { setting: Schema.String, problem: Schema.String, cause: Schema.optional(Schema.Defect) },
) {
  /** @since 0.1.0 */
  override get message(): string {
    return `${this.setting}: ${this.problem}`
  }
}

/**
 * A request that must not be sent as it is. Nothing was sent and no sequence number was used. `path` names the
 * offending part, e.g. `data[3].inputs.weights`.
 *
 * @since 0.1.0
 * @category errors
 */
export class InvalidInput extends Schema.TaggedError<InvalidInput>("effect-tinker/TinkerError/InvalidInput")(
  "InvalidInput",
  { path: Schema.String, problem: Schema.String, cause: Schema.optional(Schema.Defect) },
) {
  /** @since 0.1.0 */
  override get message(): string {
    return `${this.path}: ${this.problem}`
  }
}

/**
 * The credential was refused, or none could be obtained.
 *
 * @since 0.1.0
 * @category errors
 */
export class Unauthorized extends Schema.TaggedError<Unauthorized>("effect-tinker/TinkerError/Unauthorized")(
  "Unauthorized",
  { ...request, reason: Schema.Literal("Refused", "CredentialCommand", "CredentialFile") },
) {
  /** @since 0.1.0 */
  override get message(): string {
    return describe(this.reason === "Refused" ? "was not authorized: check the API key" : "has no credential", this)
  }
}

/**
 * The credential is known but may not do this.
 *
 * @since 0.1.0
 * @category errors
 */
export class Forbidden extends Schema.TaggedError<Forbidden>("effect-tinker/TinkerError/Forbidden")(
  "Forbidden",
  request,
) {
  /** @since 0.1.0 */
  override get message(): string {
    return describe("is forbidden for this key", this)
  }
}

/**
 * What was named does not exist, or this server has no such endpoint.
 *
 * @since 0.1.0
 * @category errors
 */
export class NotFound extends Schema.TaggedError<NotFound>("effect-tinker/TinkerError/NotFound")("NotFound", request) {
  /** @since 0.1.0 */
  override get message(): string {
    return describe("found nothing", this)
  }
}

/**
 * The server will not do this, however often it is asked. `Conflict` is the one exception: it is retried where no
 * sequence number is involved.
 *
 * @since 0.1.0
 * @category errors
 */
export class RequestRejected extends Schema.TaggedError<RequestRejected>("effect-tinker/TinkerError/RequestRejected")(
  "RequestRejected",
  {
    ...request,
    reason: Schema.Literal(
      "BadRequest",
      "Conflict",
      "Gone",
      "TooLarge",
      "UnsupportedMediaType",
      "Unprocessable",
      "OtherStatus",
      "UserCategory",
    ),
  },
) {
  /** @since 0.1.0 */
  override get message(): string {
    return describe("was rejected", this)
  }
}

/**
 * Too many requests (429), and the budget for waiting is used up.
 *
 * @since 0.1.0
 * @category errors
 */
export class RateLimited extends Schema.TaggedError<RateLimited>("effect-tinker/TinkerError/RateLimited")(
  "RateLimited",
  request,
) {
  /** @since 0.1.0 */
  override get message(): string {
    return describe("was rate limited", this)
  }
}

/**
 * Billing blocks the account (402), and the budget for waiting is used up.
 *
 * @since 0.1.0
 * @category errors
 */
export class BillingPaused extends Schema.TaggedError<BillingPaused>("effect-tinker/TinkerError/BillingPaused")(
  "BillingPaused",
  request,
) {
  /** @since 0.1.0 */
  override get message(): string {
    return describe("is paused by billing: check the account's payment status", this)
  }
}

/**
 * The server could not be reached or could not answer. Only with reason `Connect` is it certain that no byte of the
 * request left this machine.
 *
 * @since 0.1.0
 * @category errors
 */
export class Unavailable extends Schema.TaggedError<Unavailable>("effect-tinker/TinkerError/Unavailable")(
  "Unavailable",
  {
    ...request,
    reason: Schema.Literal("Connect", "Disconnected", "Timeout", "Pending", "ServerError", "EmptyBadRequest"),
  },
) {
  /** @since 0.1.0 */
  override get message(): string {
    switch (this.reason) {
      case "Connect":
        return describe("could not connect", this)
      case "Disconnected":
        return describe("lost its connection", this)
      case "Timeout":
        return describe("timed out", this)
      case "Pending":
        return describe("was not answered in time by the server", this)
      case "ServerError":
        return describe("failed on the server", this)
      case "EmptyBadRequest":
        return describe("got an empty 400, which only a proxy sends", this)
    }
  }
}

/**
 * The answer is not what the protocol says: a bug here or there. `detail` holds the first bytes.
 *
 * @since 0.1.0
 * @category errors
 */
export class UnexpectedResponse extends Schema.TaggedError<UnexpectedResponse>(
  "effect-tinker/TinkerError/UnexpectedResponse",
)("UnexpectedResponse", {
  ...request,
  reason: Schema.Literal("Schema", "NotJson", "NotProtobuf", "Empty", "TooLarge", "Encoding", "Redirect"),
}) {
  /** @since 0.1.0 */
  override get message(): string {
    return describe(`got an answer it can't read [${this.reason}]`, this)
  }
}

/**
 * The scope that the client lived in is closed; nothing more will be sent.
 *
 * @since 0.1.0
 * @category errors
 */
export class ClientClosed extends Schema.TaggedError<ClientClosed>("effect-tinker/TinkerError/ClientClosed")(
  "ClientClosed",
  { operation: Schema.String },
) {
  /** @since 0.1.0 */
  override get message(): string {
    return `${this.operation} was given up: the client's scope is closed`
  }
}

/**
 * The server knows the session no longer (`Gone`), or has not answered its heartbeats for as long as was allowed
 * (`Silent`). Its models are lost with it: start anew from a checkpoint.
 *
 * @since 0.1.0
 * @category errors
 */
export class SessionLost extends Schema.TaggedError<SessionLost>("effect-tinker/TinkerError/SessionLost")(
  "SessionLost",
  {
    sessionId: Schema.String,
    reason: Schema.Literal("Gone", "Silent"),
    /** The server's own words, if it had any. */
    detail: Schema.optionalWith(Schema.String, { default: () => "" }),
    /** Where to go on from, if a journal tells. */
    lastCheckpoint: absent(Schema.String),
  },
) {
  /** @since 0.1.0 */
  override get message(): string {
    const why = this.reason === "Gone" ? "is gone" : "does not answer any more"
    const from = Option.match(this.lastCheckpoint, {
      onNone: () => "",
      onSome: (path) => `; the last checkpoint is ${path}`,
    })
    return `session ${this.sessionId} ${why}${this.detail === "" ? "" : `: ${this.detail}`}${from}`
  }
}

/** Fields of every error that tells how long a result was waited for. */
const waiting = {
  /** Empty if it was never accepted. */
  requestId: Schema.String,
  /** What was asked for, by the wire's name of its result, e.g. `ForwardBackward`. */
  requestType: Schema.String,
  /** The last thing that is known of its place in the queue. */
  queueState: Schema.String,
  age: Schema.Duration,
  iterations: Schema.Number,
}

const describeWait = (
  what: string,
  wait: {
    readonly requestId: string
    readonly requestType: string
    readonly queueState: string
    readonly age: Duration.Duration
    readonly iterations: number
  },
): string =>
  `${wait.requestType}${wait.requestId === "" ? "" : ` [request ${wait.requestId}]`} ${what} after ${Duration.format(wait.age)} and ${wait.iterations} polls; last queue state: ${wait.queueState}`

/**
 * The server accepted the request and could not do it (`Server`, `Unknown`: the category it gave), or the fiber that
 * waited for the result died (`PollerDied`, with the `cause`). Whether to ask again is the caller's decision.
 *
 * @since 0.1.0
 * @category errors
 */
export class RequestFailed extends Schema.TaggedError<RequestFailed>("effect-tinker/TinkerError/RequestFailed")(
  "RequestFailed",
  { ...request, reason: Schema.Literal("Server", "Unknown", "PollerDied") },
) {
  /** @since 0.1.0 */
  override get message(): string {
    return describe(this.reason === "PollerDied" ? "lost the fiber that waited for its result" : "failed", this)
  }
}

/**
 * The server no longer knows the promise of this result. What was asked for was accepted; only its result is lost.
 *
 * @since 0.1.0
 * @category errors
 */
export class PromiseExpired extends Schema.TaggedError<PromiseExpired>("effect-tinker/TinkerError/PromiseExpired")(
  "PromiseExpired",
  { ...waiting, detail: Schema.optionalWith(Schema.String, { default: () => "" }) },
) {
  /** @since 0.1.0 */
  override get message(): string {
    return `${describeWait("was forgotten by the server", this)}${this.detail === "" ? "" : `: ${this.detail}`}`
  }
}

/**
 * Nothing changed for longer than was allowed.
 *
 * @since 0.1.0
 * @category errors
 */
export class Stalled extends Schema.TaggedError<Stalled>("effect-tinker/TinkerError/Stalled")("Stalled", waiting) {
  /** @since 0.1.0 */
  override get message(): string {
    return describeWait("made no progress", this)
  }
}

/**
 * The result was not there in the time that was set for it.
 *
 * @since 0.1.0
 * @category errors
 */
export class DeadlineExceeded extends Schema.TaggedError<DeadlineExceeded>(
  "effect-tinker/TinkerError/DeadlineExceeded",
)("DeadlineExceeded", waiting) {
  /** @since 0.1.0 */
  override get message(): string {
    return describeWait("was not done in time", this)
  }
}

/**
 * The numbers of a model's requests can't go on. `applied` tells what became of request `seq`: `no`, `unknown`, or
 * `partial` if only some pieces of a batch were accepted. Requests that were acknowledged before still give their
 * results. Start anew from `lastCheckpoint`; after `partial`, loading a checkpoint or `acceptPartial` is enough.
 *
 * @since 0.1.0
 * @category errors
 */
export class SequenceBroken extends Schema.TaggedError<SequenceBroken>("effect-tinker/TinkerError/SequenceBroken")(
  "SequenceBroken",
  {
    /** What was being sent when it broke. */
    operation: Schema.String,
    seq: Schema.Number,
    applied: Schema.Literal("no", "partial", "unknown"),
    /** The highest number that the server acknowledged; 0 if none. */
    acknowledged: Schema.Number,
    /** The newest state that was saved or loaded by this client. */
    lastCheckpoint: absent(Schema.String),
    detail: Schema.optionalWith(Schema.String, { default: () => "" }),
    cause: Schema.optional(Schema.Defect),
  },
) {
  /** @since 0.1.0 */
  override get message(): string {
    const what = {
      no: "was not accepted, and its number can't be used",
      partial: "was accepted only in part",
      unknown: "may have been applied or not",
    }[this.applied]
    const from = Option.match(this.lastCheckpoint, {
      onNone: () => "no checkpoint was saved",
      onSome: (path) => `the last checkpoint is ${path}`,
    })
    const words = this.detail === "" ? "" : `: ${this.detail}`
    return `${this.operation} with number ${this.seq} ${what}; ${from}${words}`
  }
}

/**
 * What must survive the process could not be written down or read. Nothing was sent.
 *
 * @since 0.1.0
 * @category errors
 */
export class JournalFailed extends Schema.TaggedError<JournalFailed>("effect-tinker/TinkerError/JournalFailed")(
  "JournalFailed",
  {
    /** `Locked`: another process has it open. `Corrupt`: what is there can't be a journal. */
    reason: Schema.Literal("Write", "Read", "Locked", "Corrupt", "Empty"),
    detail: Schema.String,
    cause: Schema.optional(Schema.Defect),
  },
) {
  /** @since 0.1.0 */
  override get message(): string {
    return `the journal failed [${this.reason}]: ${this.detail}`
  }
}

/**
 * A file could not be read or written. Nothing is wrong with the server.
 *
 * @since 0.1.0
 * @category errors
 */
export class FileFailed extends Schema.TaggedError<FileFailed>("effect-tinker/TinkerError/FileFailed")("FileFailed", {
  reason: Schema.Literal("DiskFull", "PermissionDenied", "NotFound", "Other"),
  path: Schema.String,
  detail: Schema.String,
  cause: Schema.optional(Schema.Defect),
}) {
  /** @since 0.1.0 */
  override get message(): string {
    return `${this.path} [${this.reason}]: ${this.detail}`
  }
}

/**
 * What was downloaded is not the file: it has another length, or another checksum. Nothing of it is kept.
 *
 * @since 0.1.0
 * @category errors
 */
export class Corrupted extends Schema.TaggedError<Corrupted>("effect-tinker/TinkerError/Corrupted")("Corrupted", {
  path: Schema.String,
  reason: Schema.Literal("Length", "Checksum"),
  expected: Schema.String,
  actual: Schema.String,
}) {
  /** @since 0.1.0 */
  override get message(): string {
    return `${this.path} is corrupt [${this.reason}]: expected ${this.expected}, got ${this.actual}`
  }
}

/**
 * Everything that one HTTP request to a Tinker server can end with.
 *
 * @since 0.1.0
 * @category errors
 */
export type RequestError =
  | Unauthorized
  | Forbidden
  | NotFound
  | RequestRejected
  | RateLimited
  | BillingPaused
  | Unavailable
  | UnexpectedResponse

/**
 * @since 0.1.0
 * @category errors
 */
export type TinkerError = InvalidConfig | InvalidInput | ClientClosed | RequestError

/**
 * Everything that waiting for a result can end with.
 *
 * @since 0.1.0
 * @category errors
 */
export type FutureError = TinkerError | RequestFailed | PromiseExpired | Stalled | DeadlineExceeded | SessionLost

/**
 * Everything that submitting a numbered request of a model can end with.
 *
 * @since 0.1.0
 * @category errors
 */
export type SubmitError = TinkerError | SequenceBroken | SessionLost | JournalFailed

/**
 * Everything that an operation on a model can end with, from its submission to its result.
 *
 * @since 0.1.0
 * @category errors
 */
export type TrainingError = SubmitError | FutureError

export {
  /**
   * Checks whether sending the same request again may get another response. `x-should-retry` decides first.
   *
   * @since 0.1.0
   * @category classification
   */
  isRetryable,
  /**
   * Checks whether billing blocks the account. Waiting helps, on a budget of its own, unless the server says whether
   * to retry.
   *
   * @since 0.1.0
   * @category classification
   */
  isBillingStop,
  /**
   * Checks whether the caller has to change something: bad configuration or input, any 4xx but 408, and failed results
   * of category `user`.
   *
   * @since 0.1.0
   * @category classification
   */
  isUserError,
} from "./internal/core/Response.ts"
