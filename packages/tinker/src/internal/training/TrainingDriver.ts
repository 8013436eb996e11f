/**
 * Performs what the sequence core decides for one model. A `Semaphore(1)` is held while an operation is submitted, and
 * each acknowledged request has a polling fiber in the client's scope. Callers are resumed however either of them ends.
 */
import * as Cause from "effect/Cause"
import * as Deferred from "effect/Deferred"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Exit from "effect/Exit"
import * as FiberId from "effect/FiberId"
import * as Option from "effect/Option"
import * as Ref from "effect/Ref"
import * as Runtime from "effect/Runtime"
import * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import type * as ApiFuture from "../../ApiFuture.ts"
import type * as Endpoint from "../../protocol/Endpoint.ts"
import type { Accepted } from "../../protocol/schemas/Futures.ts"
import type { Limiter } from "../../RateLimiter.ts"
import type { Learnt } from "../../Session.ts"
import {
  ClientClosed,
  type FutureError,
  SequenceBroken,
  type SessionLost,
  type SubmitError,
  type TinkerError,
  type TrainingError,
  Unavailable,
  UnexpectedResponse,
} from "../../TinkerError.ts"
import type * as TrainingJournal from "../../TrainingJournal.ts"
import type { CallOptions } from "../../Transport.ts"
import * as Response from "../core/Response.ts"
import * as Sequence from "../core/Sequence.ts"
import type {
  Broken,
  Command,
  Event,
  Failure,
  JournalEntry,
  OnUnknownOutcome,
  Outcome,
  State,
} from "../core/SequenceState.ts"
import type { FutureImpl } from "../futures/FutureImpl.ts"
import type { Meters } from "../runtime/Meters.ts"
import * as Traces from "../runtime/Trace.ts"
import { snakeCase } from "../codec/Wire.ts"
import { whenWritten } from "../util/WhenWritten.ts"
import { fingerprint } from "../util/Hash.ts"
import { timeOf } from "../util/MonotonicClock.ts"
import * as Polling from "./Polling.ts"
import { type Letter, type Operation, statesOf, Submission, type Ticket } from "./Submission.ts"
import * as Traits from "./Traits.ts"

export interface Probe {
  readonly seq: number
  readonly requestId: string | undefined
  readonly variant: "first" | "second"
}

export type ProbeAnswer = Pick<Extract<Event, { readonly _tag: "Probed" }>, "answer" | "requestId">

export interface Options {
  readonly limiter: Limiter
  readonly futures: ApiFuture.Service
  readonly learnt: Ref.Ref<Learnt>
  readonly journal: Option.Option<TrainingJournal.Journal>
  /** Keeps requests in the journal, so that they can be sent again after a restart. */
  readonly keepRequests: boolean
  readonly onUnknownOutcome: OnUnknownOutcome
  /** Fails if the server has ended the session. */
  readonly checkSession: Effect.Effect<void, SessionLost | ClientClosed>
  /** Sends a harmless request under a number. */
  readonly probe: (probe: Probe) => Effect.Effect<ProbeAnswer>
  /** Checks whether the server reads no protobuf. */
  readonly readsOnlyJson: Effect.Effect<boolean>
  /** How many operations may be queued before `enqueue` waits. */
  readonly capacity: number
  readonly closeGrace: Duration.Duration
  readonly meters: Meters
  /** Attributes of every span. */
  readonly attributes: Readonly<Record<string, unknown>>
  /** Reports a failed submission or result to telemetry. */
  readonly report: (error: TrainingError) => void
  /** Adds the client's log annotations. */
  readonly logged: <A, E>(effect: Effect.Effect<A, E>) => Effect.Effect<A, E>
  readonly start?: Start | undefined
}

/** Where a previous process stopped. */
export interface Start {
  readonly sequence: Parameters<typeof Sequence.initial>[1]
  readonly broken: Option.Option<SequenceBroken>
  readonly lastCheckpoint: Option.Option<string>
}

/** A request that a previous process recorded before it stopped. */
export interface Recorded {
  readonly seq: number
  /** None if the journal did not keep it: then it can't be sent again. */
  readonly letter: Option.Option<Letter>
}

type AnySubmission = Submission<unknown, unknown>
/** The parts of a submission that the queue uses, independent of its result type. */
type Queued = Pick<AnySubmission, "id" | "describe" | "refused" | "isCancelled">
type EndReason = ClientClosed | SessionLost
type AnyFiber = Traces.AnyFiber
type Restore = <A, E>(effect: Effect.Effect<A, E>) => Effect.Effect<A, E>

/** Creates a driver in the current scope. */
export const make = (options: Options): Effect.Effect<TrainingDriver, never, Scope.Scope> =>
  Effect.gen(function* () {
    const driver = new TrainingDriver(
      options,
      yield* Effect.makeSemaphore(1),
      yield* Scope.make(),
      yield* Scope.make(),
      yield* Effect.runtime<never>(),
    )
    yield* Effect.addFinalizer(() => driver.close)
    yield* driver.start
    return driver
  })

export class TrainingDriver {
  /** Printed as JSON, it is a report for bugs in the order of requests. */
  readonly state: State
  private readonly options: Options
  /** Held while an operation is submitted, and by effects that must not run during a submission. */
  private readonly turn: Effect.Semaphore
  private readonly worker: Scope.CloseableScope
  private readonly pollers: Scope.CloseableScope
  private readonly runtime: Runtime.Runtime<never>
  private readonly submissions = new Map<number, AnySubmission>()
  /** Callers of `enqueue` that wait until the queue is shorter. */
  private readonly blocked = new Map<number, () => void>()
  /** Answers to failed attempts, by piece. */
  private readonly decisions = new Map<number, Deferred.Deferred<boolean>>()
  private current: AnySubmission | undefined
  private errors: Array<TrainingError> = []
  private brokenBy: SequenceBroken | undefined
  private endedBy: EndReason | undefined
  private resultHeard: Deferred.Deferred<void> | undefined
  private wake: (() => void) | undefined
  private ids = 0
  private checkpoint: Option.Option<string>

  constructor(
    options: Options,
    turn: Effect.Semaphore,
    worker: Scope.CloseableScope,
    pollers: Scope.CloseableScope,
    runtime: Runtime.Runtime<never>,
  ) {
    this.options = options
    this.turn = turn
    this.worker = worker
    this.pollers = pollers
    this.runtime = runtime
    this.state = Sequence.initial(
      { journaled: Option.isSome(options.journal), onUnknownOutcome: options.onUnknownOutcome },
      options.start?.sequence,
    )
    this.brokenBy = Option.getOrUndefined(options.start?.broken ?? Option.none())
    this.checkpoint = options.start?.lastCheckpoint ?? Option.none()
  }

  // -------------------------------------------------------------------------------------------------------------------
  // Calls
  // -------------------------------------------------------------------------------------------------------------------

  /** Gives an operation its place in the order; waits while too many are queued. */
  enqueue<B, A>(operation: Operation<B, A>): Effect.Effect<Ticket<A>, SubmitError> {
    return this.begin(operation, (submission, restore) => {
      this.add([submission])
      return Effect.map(this.whenThereIsRoom(submission, restore), () => this.ticket(submission))
    })
  }

  /** Waits until the server has the operation. An interruption before it is sent withdraws it. */
  submit<B, A>(operation: Operation<B, A>): Effect.Effect<ApiFuture.ApiFuture<A>, SubmitError> {
    return this.added(operation, (submission) => submission.acknowledged.await)
  }

  /** Waits for the result. An interruption before the operation is sent withdraws it. */
  run<B, A>(operation: Operation<B, A>): Effect.Effect<A, TrainingError> {
    return this.added(operation, (submission) => this.resultOf(submission))
  }

  /**
   * Enqueues two operations with nothing between them. If the first is not accepted, the second is not sent and fails
   * with the same error.
   */
  enqueuePair<B1, A1, B2, A2>(
    first: Operation<B1, A1>,
    second: Operation<B2, A2>,
  ): Effect.Effect<readonly [Ticket<A1>, Ticket<A2>], SubmitError> {
    return this.begin(first, (one, restore) =>
      Effect.withFiberRuntime((fiber) => {
        const two = this.newSubmission(second, fiber)
        this.add([one, two])
        return Effect.map(this.whenThereIsRoom(one, restore), () => [this.ticket(one), this.ticket(two)] as const)
      }),
    )
  }

  /** Runs an effect in its place among the operations. */
  inOrder<A, E>(operation: Operation<never, void>, effect: Effect.Effect<A, E>): Effect.Effect<A, E | EndReason> {
    return this.begin(operation, (submission, restore) => {
      const done = Deferred.unsafeMake<A, E | EndReason>(FiberId.none)
      submission.inTurn = Effect.flatMap(Effect.exit(Traces.within(submission.trace, effect)), (exit) =>
        Effect.sync(() => {
          submission.trace?.end(exit)
          Deferred.unsafeDone(done, exit)
        }),
      )
      submission.acknowledged.listen((exit) => {
        if (Exit.isFailure(exit)) Deferred.unsafeDone(done, exit as Exit.Exit<never, EndReason>)
      })
      this.add([submission])
      return Effect.onInterrupt(restore(Deferred.await(done)), () => this.cancel(submission))
    })
  }

  /** Runs an effect between two submissions. */
  exclusively<A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> {
    return this.turn.withPermits(1)(effect)
  }

  private added<B, A, T, E>(
    operation: Operation<B, A>,
    wait: (submission: Submission<B, A>) => Effect.Effect<T, E>,
  ): Effect.Effect<T, E> {
    return this.begin(operation, (submission, restore) => {
      this.add([submission])
      // Whatever ends the wait: cancelling does nothing once the operation is sent or over.
      return Effect.catchAllCause(restore(wait(submission)), (cause) =>
        Effect.zipRight(this.cancel(submission), Effect.failCause(cause)),
      )
    })
  }

  /** Creates a submission. From then until `use` waits, the caller can't be interrupted. */
  private begin<B, A, T, E>(
    operation: Operation<B, A>,
    use: (submission: Submission<B, A>, restore: Restore) => Effect.Effect<T, E>,
  ): Effect.Effect<T, E> {
    return Effect.uninterruptibleMask((restore) =>
      Effect.withFiberRuntime((fiber) => use(this.newSubmission(operation, fiber), restore)),
    )
  }

  private newSubmission<B, A>(operation: Operation<B, A>, fiber: AnyFiber): Submission<B, A> {
    const trace = Traces.startIn(fiber, () => ({
      name: spanName(operation.kind),
      attributes: { ...this.options.attributes, "tinker.requests": operation.requests.length },
    }))
    const submission = new Submission<B, A>(this.ids++, operation, timeOf(fiber), trace)
    // The core refers to it by its id; its results are only read through its own `combine`.
    this.submissions.set(submission.id, submission as unknown as AnySubmission)
    return submission
  }

  /** Adds operations to the queue; those after the first follow the one before them. */
  private add(submissions: ReadonlyArray<Queued>): void {
    let previous: number | undefined
    for (const submission of submissions) {
      this.apply({ _tag: "Enqueued", operation: submission.describe(previous) })
      previous = submission.id
    }
    this.wake?.()
    this.wake = undefined
  }

  private ticket<B, A>(submission: Submission<B, A>): Ticket<A> {
    const { acknowledged, queueState } = submission
    return {
      acknowledged: acknowledged.await,
      await: this.resultOf(submission),
      cancel: this.cancel(submission),
      get queueState() {
        const wait = acknowledged.await
        return Stream.concat(Stream.interruptWhen(queueState.changes, Effect.exit(wait)), statesOf(wait))
      },
    }
  }

  /** Resumes once, when the result is there. */
  private resultOf<B, A>({ acknowledged }: Submission<B, A>): Effect.Effect<A, TrainingError> {
    return Effect.async<A, TrainingError>((resume) => {
      let tell: typeof resume | undefined = resume
      acknowledged.listen((exit) => {
        if (Exit.isFailure(exit)) return tell?.(Exit.failCause(exit.cause))
        futureOf(exit.value).listen((end) => tell?.(this.asBroken(end)))
      })
      // An interrupted caller is not kept in memory until the result arrives.
      return Effect.sync(() => {
        tell = undefined
      })
    })
  }

  /** Reports a conflict that broke the sequence as `SequenceBroken`. */
  private asBroken<A>(result: Effect.Effect<A, FutureError>): Effect.Effect<A, TrainingError> {
    return Effect.catchTag(result, "RequestRejected", (error): Effect.Effect<never, TrainingError> =>
      Effect.fail(Response.meaningOf(error) === "Conflict" ? (this.brokenBy ?? error) : error),
    )
  }

  /** Withdraws an operation if it was not sent yet. */
  private cancel(submission: Queued): Effect.Effect<boolean> {
    return Effect.sync(() => {
      this.apply({ _tag: "Cancelled", id: submission.id })
      return submission.isCancelled
    })
  }

  // -------------------------------------------------------------------------------------------------------------------
  // Turns
  // -------------------------------------------------------------------------------------------------------------------

  /** Starts the fiber that takes one operation after the other. */
  get start(): Effect.Effect<void> {
    return Effect.map(Effect.forkIn(Effect.interruptible(this.work()), this.worker), (fiber) => {
      // The fiber never ends by itself. If it is interrupted, callers must not wait forever.
      fiber.addObserver(() => {
        this.endedBy ??= new ClientClosed({ operation: "training" })
        this.endSubmissions()
      })
    })
  }

  /** Ends every submission. A defect, e.g. of the journal, may have kept a command of the core from being performed. */
  private endSubmissions(): void {
    this.apply({ _tag: "Closed", force: true })
    for (const id of this.submissions.keys()) this.complete(id, { _tag: "Closed" })
  }

  /** Without `Effect.forever`, which yields: the next submission goes out before the poll of the one before it. */
  private work(): Effect.Effect<never> {
    return Effect.flatMap(this.whenQueued, () =>
      Effect.flatMap(this.turn.withPermits(1)(this.takeTurn), () => this.work()),
    )
  }

  private readonly whenQueued: Effect.Effect<void> = Effect.suspend(() =>
    this.state.queue.length > 0 ? Effect.void : this.woken,
  )

  private readonly woken: Effect.Effect<void> = Effect.async<void>((resume) => {
    this.wake = () => resume(Effect.void)
    return Effect.sync(() => {
      this.wake = undefined
    })
  })

  private readonly takeTurn: Effect.Effect<void> = Effect.suspend(() => {
    const [operation] = this.state.queue
    const submission = operation && this.submissions.get(operation.id)
    if (submission === undefined) return Effect.void
    this.current = submission
    if (this.state.broken === undefined) this.errors = []
    submission.begin()
    const sending = Effect.flatMap(Ref.get(this.options.learnt), (learnt) =>
      this.feed({ _tag: "TurnStarted", traits: Traits.fromLearnt(learnt) }),
    )
    const sent = Traces.within(submission.trace, sending)
    return submission.inTurn === undefined ? sent : Effect.zipRight(sent, submission.inTurn)
  })

  private whenThereIsRoom(submission: Queued, restore: Restore): Effect.Effect<void, SubmitError> {
    if (submission.refused !== undefined) return submission.refused
    const capacity = Math.max(1, this.options.capacity)
    if (this.state.queue.length - this.blocked.size <= capacity) return Effect.void
    const room = Effect.async<void, SubmitError>((resume) => {
      this.blocked.set(submission.id, () => resume(submission.refused ?? Effect.void))
      return Effect.sync(() => this.blocked.delete(submission.id))
    })
    return Effect.onInterrupt(restore(room), () => this.cancel(submission))
  }

  private letIn(): void {
    if (this.blocked.size === 0) return
    const queued = new Set(this.state.queue.map(({ id }) => id))
    for (const [id, enter] of this.blocked) {
      if (queued.has(id) && this.state.queue.length - this.blocked.size >= this.options.capacity) return
      this.blocked.delete(id)
      enter()
    }
  }

  /** Ends what is queued and, after the grace period, what is being submitted. Only the first reason counts. */
  end(reason: EndReason, grace: Duration.Duration): Effect.Effect<void> {
    return Effect.uninterruptible(
      Effect.gen(this, function* () {
        this.endedBy ??= reason
        this.apply({ _tag: "Closed", force: false })
        yield* this.turn.withPermits(1)(Effect.void).pipe(Effect.interruptible, Effect.timeout(grace), Effect.ignore)
        yield* Scope.close(this.worker, Exit.void)
        this.endSubmissions()
      }),
    )
  }

  /** Ends everything, including the wait for results. */
  endAll(reason: EndReason, grace: Duration.Duration): Effect.Effect<void> {
    return Effect.uninterruptible(
      Effect.zipRight(
        this.end(reason, grace),
        Effect.suspend(() => Scope.close(this.pollers, Exit.void)),
      ),
    )
  }

  get close(): Effect.Effect<void> {
    return Effect.suspend(() => this.endAll(new ClientClosed({ operation: "training" }), this.options.closeGrace))
  }

  // -------------------------------------------------------------------------------------------------------------------
  // Events and commands
  // -------------------------------------------------------------------------------------------------------------------

  /** Applies an event that only completes operations. */
  private apply(event: Event): void {
    for (const command of this.decide(event))
      if (command._tag === "Complete") this.complete(command.id, command.outcome)
    this.letIn()
  }

  /** Applies an event and performs what follows, to the end. */
  private feed(event: Event): Effect.Effect<void> {
    const commands = this.decide(event)
    this.letIn()
    return this.performAll(commands)
  }

  private decide(event: Event): ReadonlyArray<Command> {
    const commands = Sequence.handle(this.state, event)
    const { broken } = this.state
    if (broken === undefined) this.brokenBy = undefined
    else this.brokenBy ??= this.sequenceBroken(broken)
    return commands
  }

  private performAll(commands: ReadonlyArray<Command>): Effect.Effect<void> {
    // Only the pieces of a parallel batch are sent together.
    if (commands[0]?._tag === "Send" && commands[1]?._tag === "Send")
      return Effect.forEach(commands, (command) => this.perform(command) ?? Effect.void, {
        concurrency: "unbounded",
        discard: true,
      })
    return this.performFrom(commands, 0)
  }

  /** Performs the commands from an index on, one after the other. */
  private performFrom(commands: ReadonlyArray<Command>, from: number): Effect.Effect<void> {
    for (let index = from; index < commands.length; index++) {
      const command = commands[index]
      const effect = command && this.perform(command)
      if (effect === undefined) continue
      const next = index + 1
      return next === commands.length ? effect : Effect.flatMap(effect, () => this.performFrom(commands, next))
    }
    return Effect.void
  }

  /** Performs a command at once, or returns the effect that does. */
  private perform(command: Command): Effect.Effect<void> | undefined {
    switch (command._tag) {
      case "Send":
        return this.send(command)
      case "Poll":
        return this.poll(command)
      case "Complete":
        this.complete(command.id, command.outcome)
        return undefined
      case "Prepare":
        this.prepareLater(command)
        return undefined
      case "Decide":
        this.answerRetry(command.piece, command.resend)
        return undefined
      case "Journal":
        return this.journal(command)
      case "Note":
        return this.note(command.entries)
      case "Delay":
        return this.delay(command)
      case "CheckEncoding":
        return Effect.flatMap(this.options.readsOnlyJson, (readsOnlyJson) =>
          this.feed({ _tag: "EncodingChecked", piece: command.piece, readsOnlyJson }),
        )
      case "AwaitResult":
        return this.awaitResult
      case "Probe":
        return Effect.flatMap(this.options.probe(command), (answer) => this.feed({ _tag: "Probed", ...answer }))
      case "Learn":
        return this.learn(Traits.toLearnt(command.traits))
    }
  }

  // -------------------------------------------------------------------------------------------------------------------
  // Sending
  // -------------------------------------------------------------------------------------------------------------------

  /** Sends the request of a piece in its place among all that is being submitted: its bytes exist only while it is. */
  private send({ encoding, piece, seq }: Extract<Command, { readonly _tag: "Send" }>): Effect.Effect<void> {
    const submission = this.current
    const request = submission?.operation.requests[piece]
    if (submission === undefined || request === undefined) return Effect.void
    const sent = Effect.suspend(() => {
      const letter = submission.letter(piece, seq, encoding)
      return Either.isLeft(letter) ? Effect.fail(letter.left) : this.sendLetter(submission, piece, letter.right)
    })
    return Effect.matchCauseEffect(this.options.limiter.training(request.bytes)(sent), {
      onSuccess: ({ requestId }) => this.feed({ _tag: "Accepted", piece, requestId }),
      onFailure: (cause) => {
        const error = Cause.failureOrCause(cause)
        if (Either.isLeft(error))
          return this.feed({ _tag: "Refused", piece, failure: this.failure(submission, piece, error.left) })
        if (Cause.isInterruptedOnly(cause)) return Effect.failCause(error.right)
        const unreadable = new UnexpectedResponse({
          operation: submission.name,
          reason: "Schema",
          cause: Cause.squash(cause),
        })
        return this.feed({ _tag: "Refused", piece, failure: this.failure(submission, piece, unreadable) })
      },
    })
  }

  private sendLetter(
    submission: AnySubmission,
    piece: number,
    letter: Letter,
  ): Effect.Effect<Accepted, TinkerError | SessionLost> {
    if (this.state.journaled) letter.retain()
    const options: CallOptions = {
      idempotencyKey: letter.idempotencyKey,
      mayRetry: (error) => {
        letter.retain()
        return this.mayRetry(submission, piece, error)
      },
      onBodySent: letter.release,
    }
    submission.sending(piece)
    return this.orSessionLost(letter.rendering.send(letter.rendered, options))
  }

  /** Reports a session that the server has ended to the first caller that notices. */
  private orSessionLost<A, E extends TrainingError>(
    effect: Effect.Effect<A, E>,
  ): Effect.Effect<A, E | SessionLost | ClientClosed> {
    return Effect.catchAll(effect, (error) =>
      Response.mayHaveEndedSession(error)
        ? Effect.zipRight(this.options.checkSession, Effect.fail(error))
        : Effect.fail(error),
    )
  }

  /** Asks the core whether a failed attempt may be repeated. */
  private mayRetry(submission: AnySubmission, piece: number, error: TinkerError): Effect.Effect<boolean> {
    return Effect.suspend(() => {
      submission.delay(error)
      const decision = Deferred.unsafeMake<boolean>(FiberId.none)
      this.decisions.set(piece, decision)
      return Effect.zipRight(
        this.feed({ _tag: "AttemptFailed", piece, failure: this.failure(submission, piece, error) }),
        Deferred.await(decision),
      )
    })
  }

  private answerRetry(piece: number, resend: boolean): void {
    const decision = this.decisions.get(piece)
    if (decision !== undefined) Deferred.unsafeDone(decision, Exit.succeed(resend))
  }

  private failure(submission: AnySubmission, piece: number, error: SubmitError): Failure {
    const meaning = Response.meaningOf(error)
    const leaner = meaning === "Rejected" && submission.dropUnknownFields(piece)
    return {
      meaning,
      error: this.errors.push(error) - 1,
      asksForRetry: Response.asksForRetry(error),
      mayDislikeEncoding: Response.mayDislikeEncoding(error),
      mayFailOnEncoding: Response.mayFailOnEncoding(error),
      leaner,
    }
  }

  /** Renders the next request when this one has been written to its connection. */
  private prepareLater({ encoding, id, seq }: Extract<Command, { readonly _tag: "Prepare" }>): void {
    const submission = this.submissions.get(id)
    if (submission === undefined) return
    whenWritten(() => {
      // An error is found again, and reported, when its turn comes.
      if (this.submissions.has(id) && this.state.active?.operation.id !== id) submission.prepare(seq, encoding)
    })
  }

  private delay({ error, millis, piece }: Extract<Command, { readonly _tag: "Delay" }>): Effect.Effect<void> {
    const known = this.errors[error]
    if (known !== undefined) this.current?.delay(known)
    return Effect.zipRight(
      Effect.sleep(millis),
      Effect.suspend(() => this.feed({ _tag: "DelayOver", piece })),
    )
  }

  private complete(id: number, outcome: Outcome): void {
    const submission = this.submissions.get(id)
    if (submission === undefined) return
    this.submissions.delete(id)
    if (outcome._tag === "Cancelled") submission.isCancelled = true
    const exit = this.exitOf(outcome)
    submission.complete(exit)
    if (Exit.isSuccess(exit)) return this.options.meters(submission.name)?.queued(submission.age)
    if (outcome._tag !== "Cancelled") Option.map(Cause.failureOption(exit.cause), this.options.report)
  }

  private exitOf(outcome: Outcome): Exit.Exit<void, SubmitError> {
    switch (outcome._tag) {
      case "Accepted":
        return Exit.void
      case "Failed":
        // Only a submission's own errors are numbered here.
        return Exit.fail(this.errors[outcome.error] as SubmitError)
      case "Broken":
        return Exit.fail(this.brokenBy ?? this.sequenceBroken(outcome.broken))
      case "Cancelled":
        return Exit.interrupt(FiberId.none)
      case "Closed":
        return Exit.fail(this.endedBy ?? new ClientClosed({ operation: "training" }))
    }
  }

  // -------------------------------------------------------------------------------------------------------------------
  // Results
  // -------------------------------------------------------------------------------------------------------------------

  private poll({
    id,
    inDoubt,
    piece,
    requestId,
    seq,
  }: Extract<Command, { readonly _tag: "Poll" }>): Effect.Effect<void> {
    const submission = this.submissions.get(id)
    if (submission === undefined) return Effect.void
    const { operation } = submission
    const kind = operation.requests[piece]?.kind ?? operation.kind
    return Effect.map(
      this.follow(
        { ...operation, kind, name: submission.name },
        { seq, requestId, inDoubt, submittedIn: submission.accepted(piece) },
        (exit) => submission.settled(exit),
      ),
      (future) => {
        submission.results[piece] = future
      },
    )
  }

  /** Starts the polling fiber of an acknowledged request. */
  follow<B>(
    operation: Pick<Operation<B, unknown>, "kind" | "conflictMeansNameTaken" | "wait" | "onSuccess"> & {
      readonly name: string
    },
    request: Polling.AcknowledgedRequest,
    onExit: (exit: Exit.Exit<unknown, FutureError>) => void = () => undefined,
  ): Effect.Effect<ApiFuture.ApiFuture<B>> {
    return Polling.start({
      follow: (kind, requestId, options) => this.orSessionLost(this.options.futures.follow(kind, requestId, options)),
      scope: this.pollers,
      kind: operation.kind,
      wait: operation.wait,
      request,
      endedBy: () => this.endedBy,
      onExit: (exit) => {
        this.settled(operation, request, exit)
        if (Exit.isSuccess(exit)) operation.onSuccess(request.seq, exit.value)
        onExit(exit)
      },
    })
  }

  private settled(
    { conflictMeansNameTaken, name }: { readonly conflictMeansNameTaken: boolean; readonly name: string },
    { inDoubt, requestId, seq }: Polling.AcknowledgedRequest,
    exit: Exit.Exit<unknown, FutureError>,
  ): void {
    const error = Exit.isFailure(exit) ? Option.getOrUndefined(Cause.failureOption(exit.cause)) : undefined
    this.apply({
      _tag: "Settled",
      operation: name,
      seq,
      requestId,
      inDoubt,
      conflictMeansNameTaken,
      result: resultKind(exit, error),
      error: error === undefined ? -1 : this.errors.push(error) - 1,
    })
    if (this.resultHeard !== undefined) Deferred.unsafeDone(this.resultHeard, Exit.void)
    this.resultHeard = undefined
    if (error !== undefined) this.options.report(error)
    // A conflict over a number that may have been sent twice shows nothing about the first request.
    const isDoubtful =
      inDoubt && !conflictMeansNameTaken && error !== undefined && Response.meaningOf(error) === "Conflict"
    if (!isDoubtful && (error === undefined || Response.isFinalResult(error)))
      this.noteLater({ _tag: "Settled", seq, succeeded: error === undefined || error._tag === "PromiseExpired" })
  }

  private get awaitResult(): Effect.Effect<void> {
    const heard = (this.resultHeard ??= Deferred.unsafeMake<void>(FiberId.none))
    return Effect.zipRight(
      Deferred.await(heard),
      Effect.suspend(() => this.feed({ _tag: "ResultHeard" })),
    )
  }

  // -------------------------------------------------------------------------------------------------------------------
  // The journal
  // -------------------------------------------------------------------------------------------------------------------

  private journal({ entries, piece }: Extract<Command, { readonly _tag: "Journal" }>): Effect.Effect<void> {
    const submission = this.current
    if (submission === undefined) return Effect.void
    return Effect.matchEffect(
      Effect.suspend(() => this.append(submission, entries)),
      {
        onSuccess: () => this.feed({ _tag: "Journaled", piece }),
        onFailure: (error) => this.feed({ _tag: "JournalFailed", piece, error: this.errors.push(error) - 1 }),
      },
    )
  }

  private append(submission: AnySubmission, entries: ReadonlyArray<JournalEntry>): Effect.Effect<void, SubmitError> {
    const { journal } = this.options
    if (Option.isNone(journal)) return Effect.void
    const written: Array<TrainingJournal.Entry> = []
    for (const entry of entries) {
      if (entry._tag !== "Intent") {
        written.push({ record: entry })
        continue
      }
      const letter = submission.letter(entry.piece, entry.seq, entry.encoding)
      if (Either.isLeft(letter)) return Effect.fail(letter.left)
      written.push(this.intent(submission, entry.piece, letter.right))
    }
    return journal.value.append(written)
  }

  private intent({ operation }: AnySubmission, chunk: number, letter: Letter): TrainingJournal.Entry {
    const { rendered, rendering, seq } = letter
    const bytes = bytesOf(rendered)
    // A secret in a request must not reach a file, so the request is not kept.
    const isKept = this.options.keepRequests && rendered.secrets.length === 0
    return {
      record: {
        _tag: "Intent",
        seq,
        operation: rendering.operation,
        kind: operation.kind.type,
        chunk,
        chunks: operation.requests.length,
        repeatable: operation.repeatable,
        idempotencyKey: letter.idempotencyKey,
        hash: fingerprint(bytes),
        tag: operation.tag,
      },
      request: isKept ? { path: rendered.path, contentType: rendered.body?.contentType ?? "", bytes } : undefined,
    }
  }

  /** Writes records that only speed up a resume. A failing journal is noticed at the next intent. */
  private note(records: ReadonlyArray<TrainingJournal.Record>): Effect.Effect<void> {
    const { journal, logged } = this.options
    if (Option.isNone(journal)) return Effect.void
    return Effect.uninterruptible(
      Effect.catchAllCause(journal.value.append(records.map((record) => ({ record }))), (cause) =>
        logged(Effect.logWarning("Tinker: the journal was not written", cause)),
      ),
    )
  }

  private noteLater(record: TrainingJournal.Record): void {
    if (Option.isSome(this.options.journal)) Runtime.runFork(this.runtime, this.note([record]))
  }

  private learn(learnt: Learnt): Effect.Effect<void> {
    return Effect.zipRight(Ref.set(this.options.learnt, learnt), this.note([{ _tag: "Learnt", ...learnt }]))
  }

  // -------------------------------------------------------------------------------------------------------------------
  // The client's state
  // -------------------------------------------------------------------------------------------------------------------

  /** Returns why nothing can be submitted any more, if that is the case. */
  get broken(): Effect.Effect<Option.Option<SequenceBroken>> {
    return Effect.sync(() => Option.fromNullable(this.brokenBy))
  }

  get lastCheckpoint(): Option.Option<string> {
    return this.checkpoint
  }

  /** Remembers a checkpoint that training can restart from. */
  saved(seq: number, path: string, withOptimizer = true): void {
    this.checkpoint = Option.some(path)
    this.noteLater({ _tag: "Checkpoint", seq, path, withOptimizer })
  }

  /** Makes a client usable again after a batch was accepted in part. */
  acceptPartial(): void {
    this.apply({ _tag: "PartialAccepted" })
  }

  private sequenceBroken({ applied, error, operation, seq }: Broken): SequenceBroken {
    const cause = this.errors[error] ?? this.unknownSinceRestart(operation)
    return new SequenceBroken({
      operation,
      seq,
      applied,
      acknowledged: this.state.newest?.seq ?? 0,
      lastCheckpoint: this.checkpoint,
      detail: cause.message,
      cause,
    })
  }

  private unknownSinceRestart(operation: string): Unavailable {
    const isKept = this.current?.isRecorded === true
    return new Unavailable({
      operation,
      reason: "Disconnected",
      detail: `it is not known whether the request was sent before the restart, and ${
        isKept ? "this server may carry it out twice" : "the journal did not keep the request"
      }`,
    })
  }

  /** Sends requests again that a previous process recorded. The caller holds the turn. */
  resend<B, A>(
    operation: Operation<B, A>,
    recorded: ReadonlyArray<Recorded>,
  ): Effect.Effect<ReadonlyArray<ApiFuture.ApiFuture<B>>, SubmitError> {
    return Effect.withFiberRuntime((fiber) => {
      const submission = this.newSubmission(operation, fiber)
      recorded.forEach(({ letter }, piece) => {
        if (Option.isSome(letter)) submission.keep(piece, letter.value)
      })
      submission.isRecorded = recorded.every(({ letter }) => Option.isSome(letter))
      const described = submission.describe(
        undefined,
        recorded.map(({ letter, seq }) => ({ seq, hasBytes: Option.isSome(letter) })),
      )
      this.apply({ _tag: "Enqueued", operation: described })
      return Effect.flatMap(Effect.zipRight(this.takeTurn, submission.acknowledged.await), () =>
        Effect.succeed(submission.results),
      )
    })
  }
}

/** `FutureImpl` is the only implementation of the interface. */
const futureOf = <A>(future: ApiFuture.ApiFuture<A>): FutureImpl<A> => future as FutureImpl<A>

/** The name of an operation's span, from the wire's name of its result. */
export const spanName = ({ type }: Pick<ApiFuture.Kind<unknown>, "type">): string =>
  `tinker.training${snakeCase(type).replace("_", ".")}`

const resultKind = (
  exit: Exit.Exit<unknown, FutureError>,
  error: FutureError | undefined,
): "Succeeded" | "Failed" | "Conflict" | "Unknown" => {
  if (Exit.isSuccess(exit)) return "Succeeded"
  if (error === undefined || !Response.isFailedResult(error)) return "Unknown"
  return Response.meaningOf(error) === "Conflict" ? "Conflict" : "Failed"
}

const bytesOf = ({ body }: Endpoint.Rendered): Uint8Array => {
  const bytes = body?.bytes ?? ""
  return typeof bytes === "string" ? new TextEncoder().encode(bytes) : bytes
}
