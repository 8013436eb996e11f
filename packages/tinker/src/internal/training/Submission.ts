/** An operation that is being submitted: its requests, its observers, and the resumption of its caller. */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import * as ApiFuture from "../../ApiFuture.ts"
import * as Endpoint from "../../protocol/Endpoint.ts"
import type { InvalidInput, SubmitError, TrainingError } from "../../TinkerError.ts"
import * as RequestBuffers from "../codec/RequestBuffers.ts"
import * as Response from "../core/Response.ts"
import type * as Sequence from "../core/SequenceState.ts"
import { Completion } from "../runtime/Completion.ts"
import type { Trace } from "../runtime/Trace.ts"
import { tryExit } from "../util/Callback.ts"
import type { Time } from "../util/MonotonicClock.ts"
import { ObservableValue } from "../util/ObservableValue.ts"
import { idempotencyKey } from "../request/IdempotencyKey.ts"
import { type Rendering, renderingFor, type Request } from "./Request.ts"

/** An operation before it has a number. */
export interface Operation<B, A> extends Pick<
  Sequence.Operation,
  "parallel" | "repeatable" | "independentPieces" | "conflictMeansNameTaken" | "clearsPartial"
> {
  readonly kind: ApiFuture.Kind<B>
  readonly requests: ReadonlyArray<Request<B>>
  readonly combine: (results: ReadonlyArray<B>) => A
  /** The user's name for the operation, which the journal keeps. */
  readonly tag: Option.Option<string>
  readonly wait: ApiFuture.Options
  /** Called with each result before waiting callers are resumed. */
  readonly onSuccess: (seq: number, result: B) => void
}

/** A request with its number and its bytes. */
export class Letter {
  readonly seq: number
  readonly rendering: Rendering
  readonly rendered: Endpoint.Rendered
  readonly idempotencyKey: string
  /** The readers of the bytes: the HTTP client, and the server until it has acknowledged them. */
  private readers = 2

  constructor(seq: number, rendering: Rendering, rendered: Endpoint.Rendered, key = idempotencyKey()) {
    this.seq = seq
    this.rendering = rendering
    this.rendered = rendered
    this.idempotencyKey = key
  }

  /** Reuses the memory once neither reads the bytes any more. */
  readonly release = (): void => {
    const bytes = this.rendered.body?.bytes
    if (--this.readers === 0 && bytes !== undefined && typeof bytes !== "string") RequestBuffers.giveBack(bytes)
  }

  /** Leaves the memory to the garbage collector: a journal or a second tryExit may read the bytes. */
  retain(): void {
    this.readers = Number.POSITIVE_INFINITY
  }
}

/** Requests above this size are not rendered ahead: they would be in memory outside of the byte budget. */
const maxPreparedBytes = 1024 * 1024

export class Submission<B, A> {
  readonly id: number
  readonly operation: Operation<B, A>
  readonly trace: Trace | undefined
  readonly acknowledged = new Completion<ApiFuture.ApiFuture<A>, SubmitError>()
  readonly queueState: ObservableValue<ApiFuture.QueueState>
  readonly results: Array<ApiFuture.ApiFuture<B>> = []
  /** Runs in the operation's turn, after its requests. */
  inTurn: Effect.Effect<void> | undefined
  isCancelled = false
  /** Its requests are those that a previous process recorded. */
  isRecorded = false
  /** Why it was not acknowledged, once that is known. */
  refused: Exit.Exit<never, SubmitError> | undefined
  private readonly sentAt: Array<number> = []
  private readonly letters: Array<Letter | undefined> = []
  private readonly time: Time
  private readonly startedAt: number
  private readonly queueTrace: Trace | undefined
  private unsettled: number
  private firstFailure: Exit.Exit<unknown, unknown> = Exit.void

  constructor(id: number, operation: Operation<B, A>, time: Time, trace: Trace | undefined) {
    this.id = id
    this.operation = operation
    this.time = time
    this.trace = trace
    this.startedAt = time.uptime()
    this.unsettled = operation.requests.length
    this.queueTrace = trace?.child("tinker.queue")
    this.queueState = new ObservableValue<ApiFuture.QueueState>({
      state: "queued",
      reason: Option.none(),
      since: time.clock.unsafeCurrentTimeMillis(),
    })
  }

  /** Describes the operation to the core. */
  describe(follows: number | undefined, recorded?: Sequence.Operation["recorded"]): Sequence.Operation {
    const { clearsPartial, conflictMeansNameTaken, independentPieces, parallel, repeatable, requests } = this.operation
    const [first] = requests
    return {
      id: this.id,
      name: this.name,
      pieces: requests.length,
      parallel,
      repeatable,
      independentPieces,
      conflictMeansNameTaken,
      clearsPartial,
      follows,
      encoding: first !== undefined && first.renderings[0].encoding !== "fixed" ? "choice" : "fixed",
      mayPrepare: requests.length === 1 && (first?.bytes ?? 0) <= maxPreparedBytes,
      recorded,
    }
  }

  /** The wire's name of what is sent. */
  get name(): string {
    return this.operation.requests[0]?.renderings[0].operation ?? this.operation.kind.type
  }

  /** Milliseconds since the operation was called. */
  get age(): number {
    return this.time.uptime() - this.startedAt
  }

  begin(): void {
    this.queueTrace?.end()
    this.show("submitting", Option.none())
  }

  /** Shows why the submission is delayed. */
  delay(error: TrainingError): void {
    const state = Response.queueStateOf(error)
    this.trace?.event("tinker.queue_state", { state, reason: error.message })
    this.show(state, Option.some(error.message))
  }

  private show(state: string, reason: Option.Option<string>): void {
    const { current } = this.queueState
    const now = this.time.clock.unsafeCurrentTimeMillis()
    const since = current.state === state ? current.since : now
    if (since === now || Option.getOrUndefined(reason) !== Option.getOrUndefined(current.reason))
      this.queueState.set({ state, reason, since })
  }

  /** Returns the request of a piece, rendered once for each number and encoding so that a resend has the same bytes. */
  letter(piece: number, seq: number, encoding: Sequence.Encoding): Either.Either<Letter, InvalidInput> {
    const known = this.letters[piece]
    if (known !== undefined && known.seq === seq && (this.isRecorded || known.rendering.encoding === encoding))
      return Either.right(known)
    const request = this.operation.requests[piece]
    if (request === undefined) throw new Error(`no piece ${piece}`)
    const rendering = renderingFor(request, encoding)
    return Either.map(rendering.render(seq), (rendered) => this.keep(piece, new Letter(seq, rendering, rendered)))
  }

  keep(piece: number, letter: Letter): Letter {
    this.letters[piece] = letter
    return letter
  }

  /** Renders the only request ahead of its turn. What is wrong with it is reported in its turn. */
  prepare(seq: number, encoding: Sequence.Encoding): void {
    tryExit(() => this.letter(0, seq, encoding))
  }

  /** Drops a rejected request if it can be written without fields that the server does not know. */
  dropUnknownFields(piece: number): boolean {
    const letter = this.letters[piece]
    if (letter === undefined || !Endpoint.differs(letter.rendered, letter.rendering.render(letter.seq))) return false
    this.letters[piece] = undefined
    return true
  }

  /** The request of a piece leaves. */
  sending(piece: number): void {
    this.sentAt[piece] = this.time.uptime()
  }

  /** The server has a piece: its bytes are dropped. Returns how long that took, in milliseconds. */
  accepted(piece: number): number {
    this.letters[piece]?.release()
    this.letters[piece] = undefined
    return this.time.uptime() - (this.sentAt[piece] ?? this.startedAt)
  }

  /** Resumes all waiters for the acknowledgement. */
  complete(exit: Exit.Exit<void, SubmitError>): void {
    if (Exit.isFailure(exit)) this.refused = Exit.failCause(exit.cause)
    this.acknowledged.done(Exit.flatMap(exit, () => tryExit(() => this.future)))
    if (Exit.isSuccess(exit)) return
    this.queueTrace?.end(exit)
    this.trace?.end(exit)
  }

  private get future(): ApiFuture.ApiFuture<A> {
    return combined(this.results, this.operation.combine)
  }

  /** Ends the span with the last piece, and with the first failure. */
  settled(exit: Exit.Exit<unknown, unknown>): void {
    if (this.trace === undefined) return
    if (Exit.isSuccess(this.firstFailure) && Exit.isFailure(exit)) this.firstFailure = exit
    if (--this.unsettled === 0) this.trace.end(this.firstFailure)
  }
}

/** Returns the result of an operation, however many pieces it has. */
export const combined = <B, A>(
  results: ReadonlyArray<ApiFuture.ApiFuture<B>>,
  combine: (results: ReadonlyArray<B>) => A,
): ApiFuture.ApiFuture<A> => {
  const [only] = results
  return only !== undefined && results.length === 1
    ? ApiFuture.map(only, (result) => combine([result]))
    : ApiFuture.map(ApiFuture.all(results), combine)
}

/** An operation that has its place in the order. */
export interface Ticket<out A, out E = never> {
  /** Waits until the server has the operation. Interrupting the wait does not affect the operation. */
  readonly acknowledged: Effect.Effect<ApiFuture.ApiFuture<A>, SubmitError | E>
  /** Waits for the result. */
  readonly await: Effect.Effect<A, TrainingError | E>
  /** Gives the operation up if it was not sent yet; returns whether that was so. */
  readonly cancel: Effect.Effect<boolean>
  /** The operation's state: `queued`, `submitting`, what delays it, and then what the server reports. */
  readonly queueState: Stream.Stream<ApiFuture.QueueState>
}

/** Returns the states that the server reports once it has the operation; none if it never does. */
export const statesOf = <A, E>(
  acknowledged: Effect.Effect<ApiFuture.ApiFuture<A>, E>,
): Stream.Stream<ApiFuture.QueueState> =>
  Stream.unwrap(
    Effect.matchCause(acknowledged, { onFailure: () => Stream.empty, onSuccess: (future) => future.queueState }),
  )
