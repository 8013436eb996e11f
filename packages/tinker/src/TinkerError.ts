/**
 * The errors of the SDK, with one tag for each case that callers handle differently. `reason` gives the cause;
 * `operation`, `status` and `requestId` identify the request.
 *
 * @since 0.1.0
 */
import * as Duration from "effect/Duration"
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import * as Schema from "effect/Schema"

/**
 * The unique identifier shared by all errors of this module.
 *
 * @since 0.1.0
 * @category symbols
 */
export const TypeId: unique symbol = Symbol.for("effect-tinker/TinkerError")

/**
 * The type of {@link TypeId}.
 *
 * @since 0.1.0
 * @category symbols
 */
export type TypeId = typeof TypeId

const absent = <A, I>(schema: Schema.Schema<A, I>) =>
  Schema.optionalWith(schema, { as: "Option" }).pipe(Schema.withConstructorDefault(() => Option.none<A>()))

/** The fields shared by all request errors. */
const request = {
  /** The wire name of the endpoint, e.g. `optim_step`. */
  operation: Schema.String,
  status: absent(Schema.Number),
  requestId: absent(Schema.String),
  /** The message of the server, shortened and without secrets; empty if there is none. */
  detail: Schema.optionalWith(Schema.String, { default: () => "" }),
  /** The response body, parsed if it is JSON, without secrets and truncated to 64 KiB. */
  body: absent(Schema.Unknown),
  /** The server's `x-should-retry`, which overrides the classification by status. */
  shouldRetry: absent(Schema.Boolean),
  /** The delay requested by the server in `retry-after-ms` or `Retry-After`. */
  retryAfter: absent(Schema.Duration),
  /** The number of attempts and the total time until this error was reported. */
  attempts: Schema.optionalWith(Schema.Number, { default: () => 1 }),
  elapsed: Schema.optionalWith(Schema.Duration, { default: () => Duration.zero }),
  cause: Schema.optional(Schema.Defect),
}

interface RequestFacts {
  readonly operation: string
  readonly status: Option.Option<number>
  readonly requestId: Option.Option<string>
  readonly detail: string
  readonly attempts: number
  readonly elapsed: Duration.Duration
}

/** Formats a message: what happened, status and request id, number of attempts, a hint, and the server's message. */
const describe = (
  what: string,
  { attempts, detail, elapsed, operation, requestId, status }: RequestFacts,
  { hint = "", reason = "" }: { readonly hint?: string; readonly reason?: string } = {},
): string => {
  const facts = [reason, Option.match(status, { onNone: () => "", onSome: (status) => `HTTP ${status}` })]
  const code = facts.some((fact) => fact !== "") ? ` (${facts.filter((fact) => fact !== "").join(", ")})` : ""
  const id = Option.match(requestId, { onNone: () => "", onSome: (id) => ` [request ${id}]` })
  const tries = attempts > 1 ? ` after ${attempts} attempts in ${Duration.format(elapsed)}` : ""
  return `${operation}${what}${code}${id}${tries}${hint}${detail === "" ? "" : `: ${detail}`}`
}

/** Formats a failed result. Its status is that of the poll (200), which would be misleading in the message. */
const describeResult = (what: string, error: RequestFacts): string =>
  describe(what, { ...error, status: Option.none() })

/**
 * The configuration is invalid. `setting` names the variable or option; the value is never shown.
 *
 * @since 0.1.0
 * @category errors
 */
export class InvalidConfig extends Schema.TaggedError<InvalidConfig>("effect-tinker/TinkerError/InvalidConfig")(
  "InvalidConfig",
  { setting: Schema.String, problem: Schema.String, cause: Schema.optional(Schema.Defect) },
) {
  /** @since 0.1.0 */
  readonly [TypeId]: TypeId = TypeId
  /** @since 0.1.0 */
  override get message(): string {
    return `${this.setting}: ${this.problem}`
  }
}

/**
 * The input is invalid. Nothing was sent and no sequence number was used. `path` names the invalid part, e.g.
 * `data[3].inputs.weights`.
 *
 * @since 0.1.0
 * @category errors
 */
export class InvalidInput extends Schema.TaggedError<InvalidInput>("effect-tinker/TinkerError/InvalidInput")(
  "InvalidInput",
  { path: Schema.String, problem: Schema.String, cause: Schema.optional(Schema.Defect) },
) {
  /** @since 0.1.0 */
  readonly [TypeId]: TypeId = TypeId
  /** @since 0.1.0 */
  override get message(): string {
    return `${this.path}: ${this.problem}`
  }
}

/**
 * The credential was rejected, or none could be obtained.
 *
 * @since 0.1.0
 * @category errors
 */
export class Unauthorized extends Schema.TaggedError<Unauthorized>("effect-tinker/TinkerError/Unauthorized")(
  "Unauthorized",
  { ...request, reason: Schema.Literal("Refused", "CredentialCommand", "CredentialFile") },
) {
  /** @since 0.1.0 */
  readonly [TypeId]: TypeId = TypeId
  /** @since 0.1.0 */
  override get message(): string {
    return this.reason === "Refused"
      ? describe(" was not authorized", this, { hint: ": check the API key" })
      : describe(" did not provide a credential", this)
  }
}

/**
 * The credential is valid but lacks permission.
 *
 * @since 0.1.0
 * @category errors
 */
export class Forbidden extends Schema.TaggedError<Forbidden>("effect-tinker/TinkerError/Forbidden")(
  "Forbidden",
  request,
) {
  /** @since 0.1.0 */
  readonly [TypeId]: TypeId = TypeId
  /** @since 0.1.0 */
  override get message(): string {
    return describe(" is forbidden for this key", this)
  }
}

/**
 * The requested resource does not exist, or the server does not have this endpoint.
 *
 * @since 0.1.0
 * @category errors
 */
export class NotFound extends Schema.TaggedError<NotFound>("effect-tinker/TinkerError/NotFound")("NotFound", {
  ...request,
  /** The base URL, for operations that every server has: their absence indicates a wrong base URL. */
  baseUrl: absent(Schema.String),
}) {
  /** @since 0.1.0 */
  readonly [TypeId]: TypeId = TypeId
  /** @since 0.1.0 */
  override get message(): string {
    const hint = Option.match(this.baseUrl, {
      onNone: () => "",
      onSome: (url) => ` at ${url}: check the base URL`,
    })
    return describe(": not found", this, { hint })
  }
}

/**
 * The server rejected the request permanently. Only `Conflict` is retried, where no sequence number is involved.
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
  readonly [TypeId]: TypeId = TypeId
  /** @since 0.1.0 */
  override get message(): string {
    return this.reason === "UserCategory" ? describeResult(" was rejected", this) : describe(" was rejected", this)
  }
}

/**
 * The server limits the request rate (429), and the retry budget is used up.
 *
 * @since 0.1.0
 * @category errors
 */
export class RateLimited extends Schema.TaggedError<RateLimited>("effect-tinker/TinkerError/RateLimited")(
  "RateLimited",
  request,
) {
  /** @since 0.1.0 */
  readonly [TypeId]: TypeId = TypeId
  /** @since 0.1.0 */
  override get message(): string {
    return describe(" was rate limited", this)
  }
}

/**
 * Billing blocks the account (402), and the waiting budget is used up.
 *
 * @since 0.1.0
 * @category errors
 */
export class BillingPaused extends Schema.TaggedError<BillingPaused>("effect-tinker/TinkerError/BillingPaused")(
  "BillingPaused",
  request,
) {
  /** @since 0.1.0 */
  readonly [TypeId]: TypeId = TypeId
  /** @since 0.1.0 */
  override get message(): string {
    return describe(" is blocked by billing", this, { hint: ": check the account's payment status" })
  }
}

/**
 * The server could not be reached or could not answer. Only the reason `Connect` guarantees that no part of the request
 * was sent.
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
  readonly [TypeId]: TypeId = TypeId
  /** @since 0.1.0 */
  override get message(): string {
    switch (this.reason) {
      case "Connect":
        return describe(" could not connect", this)
      case "Disconnected":
        return describe(" lost its connection", this)
      case "Timeout":
        return describe(" timed out", this)
      case "Pending":
        return describe(" was not answered in time by the server", this)
      case "ServerError":
        return describe(" failed on the server", this)
      case "EmptyBadRequest":
        return describe(" received an empty response, probably from a proxy", this)
    }
  }
}

/**
 * The response violates the protocol, because of a bug in the server or in this SDK. `detail` contains its first bytes.
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
  readonly [TypeId]: TypeId = TypeId
  /** @since 0.1.0 */
  override get message(): string {
    return describe(": unexpected response", this, { reason: this.reason })
  }
}

/**
 * The client's scope is closed and nothing more is sent.
 *
 * @since 0.1.0
 * @category errors
 */
export class ClientClosed extends Schema.TaggedError<ClientClosed>("effect-tinker/TinkerError/ClientClosed")(
  "ClientClosed",
  { operation: Schema.String },
) {
  /** @since 0.1.0 */
  readonly [TypeId]: TypeId = TypeId
  /** @since 0.1.0 */
  override get message(): string {
    return `${this.operation} was canceled: the client's scope is closed`
  }
}

/**
 * The session is lost: the server has dropped it (`Gone`), or its heartbeats were not answered for the allowed time
 * (`Silent`). Its models are lost as well: start again from a checkpoint.
 *
 * @since 0.1.0
 * @category errors
 */
export class SessionLost extends Schema.TaggedError<SessionLost>("effect-tinker/TinkerError/SessionLost")(
  "SessionLost",
  {
    sessionId: Schema.String,
    reason: Schema.Literal("Gone", "Silent"),
    /** The message of the server, if any. */
    detail: Schema.optionalWith(Schema.String, { default: () => "" }),
    /** The checkpoint to continue from, if a journal recorded one. */
    lastCheckpoint: absent(Schema.String),
  },
) {
  /** @since 0.1.0 */
  readonly [TypeId]: TypeId = TypeId
  /** @since 0.1.0 */
  override get message(): string {
    const why = this.reason === "Gone" ? "no longer exists" : "is not responding"
    const from = Option.match(this.lastCheckpoint, {
      onNone: () => "",
      onSome: (path) => `; last checkpoint: ${path}`,
    })
    return `session ${this.sessionId} ${why}${this.detail === "" ? "" : `: ${this.detail}`}${from}`
  }
}

/** The fields shared by the errors of waiting for a result. */
const waiting = {
  /** Empty if the request was never accepted. */
  requestId: Schema.String,
  /** The wire name of the result type, e.g. `ForwardBackward`. */
  requestType: Schema.String,
  /** The last known queue state. */
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
 * The server accepted the request but failed to process it (`Server` or `Unknown`, the category it reported), or the
 * fiber polling for the result died (`PollerDied`, with its `cause`). The caller decides whether to retry.
 *
 * @since 0.1.0
 * @category errors
 */
export class RequestFailed extends Schema.TaggedError<RequestFailed>("effect-tinker/TinkerError/RequestFailed")(
  "RequestFailed",
  { ...request, reason: Schema.Literal("Server", "Unknown", "PollerDied") },
) {
  /** @since 0.1.0 */
  readonly [TypeId]: TypeId = TypeId
  /** @since 0.1.0 */
  override get message(): string {
    return describeResult(
      this.reason === "PollerDied" ? " failed: the fiber polling for its result died" : " failed",
      this,
    )
  }
}

/**
 * The server no longer has the result. The request was accepted; only its result is lost.
 *
 * @since 0.1.0
 * @category errors
 */
export class PromiseExpired extends Schema.TaggedError<PromiseExpired>("effect-tinker/TinkerError/PromiseExpired")(
  "PromiseExpired",
  { ...waiting, detail: Schema.optionalWith(Schema.String, { default: () => "" }) },
) {
  /** @since 0.1.0 */
  readonly [TypeId]: TypeId = TypeId
  /** @since 0.1.0 */
  override get message(): string {
    return `${describeWait("expired on the server", this)}${this.detail === "" ? "" : `: ${this.detail}`}`
  }
}

/**
 * The request made no progress for longer than allowed.
 *
 * @since 0.1.0
 * @category errors
 */
export class Stalled extends Schema.TaggedError<Stalled>("effect-tinker/TinkerError/Stalled")("Stalled", waiting) {
  /** @since 0.1.0 */
  readonly [TypeId]: TypeId = TypeId
  /** @since 0.1.0 */
  override get message(): string {
    return describeWait("made no progress", this)
  }
}

/**
 * The result was not available before the deadline.
 *
 * @since 0.1.0
 * @category errors
 */
export class DeadlineExceeded extends Schema.TaggedError<DeadlineExceeded>(
  "effect-tinker/TinkerError/DeadlineExceeded",
)("DeadlineExceeded", waiting) {
  /** @since 0.1.0 */
  readonly [TypeId]: TypeId = TypeId
  /** @since 0.1.0 */
  override get message(): string {
    return describeWait("exceeded its deadline", this)
  }
}

/**
 * The request sequence of a model cannot continue. `applied` states whether request `seq` took effect: `no`, `unknown`,
 * or `partial` if only some chunks of a batch were accepted. Requests acknowledged before still return their results.
 * Start again from `lastCheckpoint`; after `partial`, loading a checkpoint or `acceptPartial` is sufficient.
 *
 * @since 0.1.0
 * @category errors
 */
export class SequenceBroken extends Schema.TaggedError<SequenceBroken>("effect-tinker/TinkerError/SequenceBroken")(
  "SequenceBroken",
  {
    /** The operation during which the sequence broke. */
    operation: Schema.String,
    seq: Schema.Number,
    applied: Schema.Literal("no", "partial", "unknown"),
    /** The highest number acknowledged by the server; 0 if none. */
    acknowledged: Schema.Number,
    /** The latest state saved or loaded by this client. */
    lastCheckpoint: absent(Schema.String),
    detail: Schema.optionalWith(Schema.String, { default: () => "" }),
    cause: Schema.optional(Schema.Defect),
  },
) {
  /** @since 0.1.0 */
  readonly [TypeId]: TypeId = TypeId
  /** @since 0.1.0 */
  override get message(): string {
    const what = {
      no: "was not accepted and its number cannot be used",
      partial: "was accepted only partially",
      unknown: "may or may not have been applied",
    }[this.applied]
    const from = Option.match(this.lastCheckpoint, {
      onNone: () => "no checkpoint saved",
      onSome: (path) => `last checkpoint: ${path}`,
    })
    const words = this.detail === "" ? "" : `: ${this.detail}`
    return `${this.operation} (seq ${this.seq}) ${what}; ${from}${words}`
  }
}

/**
 * The journal could not be written or read. Nothing was sent.
 *
 * @since 0.1.0
 * @category errors
 */
export class JournalFailed extends Schema.TaggedError<JournalFailed>("effect-tinker/TinkerError/JournalFailed")(
  "JournalFailed",
  {
    /** `Locked`: another process has the journal open. `Corrupt`: the content is not a journal. */
    reason: Schema.Literal("Write", "Read", "Locked", "Corrupt", "Empty"),
    detail: Schema.String,
    cause: Schema.optional(Schema.Defect),
  },
) {
  /** @since 0.1.0 */
  readonly [TypeId]: TypeId = TypeId
  /** @since 0.1.0 */
  override get message(): string {
    return `journal failure (${this.reason}): ${this.detail}`
  }
}

/**
 * A local file could not be read or written.
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
  readonly [TypeId]: TypeId = TypeId
  /** @since 0.1.0 */
  override get message(): string {
    return `${this.path} (${this.reason}): ${this.detail}`
  }
}

/**
 * A download does not match the expected length or checksum. Its data was discarded.
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
  readonly [TypeId]: TypeId = TypeId
  /** @since 0.1.0 */
  override get message(): string {
    return `${this.path} is corrupt (${this.reason}): expected ${this.expected}, got ${this.actual}`
  }
}

/**
 * The errors of a single HTTP request to a Tinker server.
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
 * The errors of an API call: invalid configuration or input, a closed client, or a failed request.
 *
 * @since 0.1.0
 * @category errors
 */
export type TinkerError = InvalidConfig | InvalidInput | ClientClosed | RequestError

/**
 * The errors of waiting for a result.
 *
 * @since 0.1.0
 * @category errors
 */
export type FutureError = TinkerError | RequestFailed | PromiseExpired | Stalled | DeadlineExceeded | SessionLost

/**
 * The errors of submitting a numbered request of a model.
 *
 * @since 0.1.0
 * @category errors
 */
export type SubmitError = TinkerError | SequenceBroken | SessionLost | JournalFailed

/**
 * The errors of an operation on a model, from submission to result.
 *
 * @since 0.1.0
 * @category errors
 */
export type TrainingError = SubmitError | FutureError

/**
 * Any error of this module.
 *
 * @since 0.1.0
 * @category errors
 */
export type AnyTinkerError = TrainingError | FileFailed | Corrupted

/**
 * Checks whether a value is an error of this module.
 *
 * @example
 * ```ts
 * import { Console, Effect } from "effect"
 * import { ServiceClient, TinkerError } from "effect-tinker"
 * import { NodeTinker } from "@effect-tinker/node"
 *
 * const program = Effect.gen(function* () {
 *   const service = yield* ServiceClient.ServiceClient
 *   yield* service.createLoraTrainingClient({ baseModel: "no/such-model", rank: 8 })
 * }).pipe(
 *   Effect.scoped,
 *   Effect.provide(NodeTinker.layerConfig()),
 *   // Useful where the type of an error is unknown, e.g. at the boundary to other code.
 *   Effect.catchAll((error: unknown) =>
 *     TinkerError.isTinkerError(error) ? Console.log(error._tag) : Effect.die(error),
 *   ),
 * )
 *
 * await Effect.runPromise(program) // → RequestRejected
 * ```
 *
 * @since 0.1.0
 * @category guards
 */
export const isTinkerError = (u: unknown): u is AnyTinkerError => Predicate.hasProperty(u, TypeId)

export {
  /**
   * Checks whether retrying the same request may succeed. `x-should-retry` takes precedence.
   *
   * @since 0.1.0
   * @category classification
   */
  isRetryable,
  /**
   * Checks whether billing blocks the account. Such requests are retried with a separate budget, unless the server
   * specifies otherwise.
   *
   * @since 0.1.0
   * @category classification
   */
  isBillingStop,
  /**
   * Checks whether the caller has to change something: invalid configuration or input, any 4xx except 408, and failed
   * results of category `user`.
   *
   * @since 0.1.0
   * @category classification
   */
  isUserError,
} from "./internal/core/Response.ts"
