/**
 * Drives samples from the caller to the server and back: performs the commands of `core/Sample` by callback, without a
 * fiber of its own. Spans, metrics, queue states and logs observe the commands and change nothing about them.
 */
import * as Cause from "effect/Cause"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as Random from "effect/Random"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import * as ApiFuture from "../../ApiFuture.ts"
import * as ModelInput from "../../ModelInput.ts"
import * as Api from "../../protocol/Api.ts"
import type { Accepted } from "../../protocol/schemas/Futures.ts"
import type { SampleRequest } from "../../protocol/schemas/Sampling.ts"
import * as RateLimiter from "../../RateLimiter.ts"
import * as RetryPolicy from "../../RetryPolicy.ts"
import type { SampleResult } from "../../SampleResult.ts"
import type * as Session from "../../Session.ts"
import * as Config from "../../TinkerConfig.ts"
import { ClientClosed, DeadlineExceeded, type FutureError, Stalled, type TinkerError } from "../../TinkerError.ts"
import { Transport } from "../../Transport.ts"
import * as Sample from "../core/Sample.ts"
import { PendingFuture } from "../futures/FutureImpl.ts"
import { defaultStalledAfter, millisOf } from "../futures/Poller.ts"
import { Completion } from "../runtime/Completion.ts"
import { type AnyFiber, snapshot } from "../runtime/FiberContext.ts"
import * as Gate from "../runtime/Gate.ts"
import { Machine } from "../runtime/Machine.ts"
import * as Meters from "../runtime/Meters.ts"
import { Outbox } from "../runtime/Outbox.ts"
import * as QueueStateLog from "../runtime/QueueStateLog.ts"
import * as Tasks from "../runtime/Tasks.ts"
import * as Timeouts from "../runtime/Timeouts.ts"
import { exitOf, noop, type Stop } from "../util/Callback.ts"
import { type Time, timeBy } from "../util/MonotonicClock.ts"
import { ObservableValue } from "../util/ObservableValue.ts"
import { runBeside } from "../util/RunBeside.ts"
import { checkResult, tokensIn } from "./CheckResult.ts"
import { SampleSpans } from "./SampleSpans.ts"
import * as ServerCancels from "./ServerCancels.ts"

/** A request without what the client adds: its session and the sequence number. */
export type Input = Omit<SampleRequest, "samplingSessionId" | "seqId">

export interface Options {
  /** Whether the parent fiber waits until the sample ends. */
  readonly isAwaited: boolean
  readonly deadline?: Duration.DurationInput | undefined
  readonly stalledAfter?: Duration.DurationInput | undefined
  /** Whether a sample may be submitted again after a failure. */
  readonly mayResubmit: boolean
}

/** A sample that has been started. Its starter stops it, or waits for its result. */
export interface Running {
  /** Waits until the server has accepted the sample for the first time. */
  readonly accepted: Effect.Effect<void, FutureError>
  /** Every accepted request, the latest last. */
  readonly requestIds: ReadonlyArray<string>
  readonly await: Effect.Effect<SampleResult, FutureError>
  readonly future: ApiFuture.ApiFuture<SampleResult>
  /** Stops the sample and waits until it has released everything. */
  readonly stop: Effect.Effect<void>
}

export interface SampleDriver {
  /** Starts a sample in the context of the parent fiber. */
  readonly start: (parent: AnyFiber, input: Input, options: Options) => Running
  /** The state of submissions and its changes, until the client is closed. */
  readonly queueState: Stream.Stream<ApiFuture.QueueState>
}

export interface Parts {
  readonly samplingSessionId: string
  readonly session: Pick<Session.Service, "id" | "flags" | "dynamic" | "lost" | "telemetry">
  readonly futures: ApiFuture.Service
  /** The number of the first sample. */
  readonly first: Effect.Effect<number, TinkerError>
}

const { operation } = Api.sample
const kind = ApiFuture.kinds.sample

/** The parts that all samples of a client share. */
interface Shared extends Parts {
  readonly transport: Transport["Type"]
  /** Limits the number of concurrent samples. */
  readonly places: Gate.Gate<ClientClosed>
  readonly limiter: RateLimiter.Limiter
  readonly tasks: Tasks.Tasks
  readonly timeouts: Timeouts.Timeouts
  readonly time: Time
  readonly cancelOnServer: (requestId: string) => void
  readonly log: QueueStateLog.QueueStateLog
  readonly meter: Meters.Meter | undefined
  readonly queue: ObservableValue<ApiFuture.QueueState>
  readonly outbox: Outbox
  /** The limit without a successful sample unless the caller sets one, in milliseconds. */
  readonly stalledAfter: number
  readonly attributes: Readonly<Record<string, unknown>>
  client: Sample.Client
}

const queueStateAt = ({ clock }: Time, state: string, reason?: string): ApiFuture.QueueState => ({
  state,
  reason: Option.fromNullable(reason),
  since: clock.unsafeCurrentTimeMillis(),
})

/** Creates a driver in the current scope, which ends all samples that are still running. */
export const make = (
  parts: Parts,
): Effect.Effect<SampleDriver, never, Transport | RateLimiter.RateLimiter | Config.TinkerConfig | Scope.Scope> =>
  Effect.gen(function* () {
    const { first, samplingSessionId, session } = parts
    const { flags } = session
    const config = yield* Config.TinkerConfig
    const transport = yield* Transport
    const limiter = yield* (yield* RateLimiter.RateLimiter).limiter(RateLimiter.keyOf(config))
    yield* limiter.configure({ sampleBytes: flags.sampleDispatchBytesSemaphoreSize })
    const timeouts = yield* Timeouts.make
    const tasks = yield* Tasks.make(session.lost, operation)
    const places = yield* Gate.make({
      limit: Math.max(1, flags.sampleMaxConcurrentRequests),
      budget: Number.POSITIVE_INFINITY,
      closed: () => new ClientClosed({ operation }),
    })
    const time = timeBy(yield* Effect.clock)
    const known = exitOf(first)
    const shared: Shared = {
      ...parts,
      transport,
      limiter,
      timeouts,
      tasks,
      places,
      time,
      cancelOnServer: ServerCancels.make({
        call: transport.call,
        dynamic: session.dynamic,
        runtime: yield* Effect.runtime<never>(),
        scope: tasks.scope,
        logged: Config.logged(config),
      }),
      log: QueueStateLog.make(config),
      meter: Meters.make(config)(operation),
      queue: new ObservableValue(queueStateAt(time, "active")),
      outbox: new Outbox(),
      stalledAfter: flags.sampleEnableStuckDetection ? defaultStalledAfter : Number.POSITIVE_INFINITY,
      attributes: { "tinker.session_id": session.id, "tinker.sampling_session_id": samplingSessionId },
      client: Sample.initialClient(
        known?._tag === "Success" ? known.value : undefined,
        flags.billingExceptionMaxPauseDurationSec * 1_000,
      ),
    }
    return {
      start: (parent, input, options) => new RunningSample(shared, parent, input, options),
      queueState: Stream.interruptWhen(shared.queue.changes, Effect.exit(tasks.over)),
    }
  })

const settingsOf = (shared: Shared, input: Input, options: Options): Sample.Settings => ({
  bytes: ModelInput.samplingBytes(input.prompt),
  deadline: millisOf(options.deadline, Number.POSITIVE_INFINITY),
  stalledAfter: millisOf(options.stalledAfter, shared.stalledAfter),
  mayResubmit: options.mayResubmit,
})

class RunningSample extends Machine<Sample.Event, Sample.Command> implements Running {
  private state: Sample.State
  private firstAccepted: Completion<void, FutureError> | undefined = undefined
  /** The latest request that the server accepted. */
  private response: Accepted | undefined = undefined
  /** The outcome in the latest event: the result, or why the sample failed. */
  private latest: Exit.Exit<SampleResult, FutureError> = Exit.die("no result")
  private isGivenUp = false
  /** Stops the current request, poll or fiber. */
  private stopWork: Stop = noop
  private stopping: Effect.Effect<unknown> = Effect.void
  private leavePlace: () => void = nothing
  private leaveGate: () => void = nothing
  private clearWait: () => void = nothing
  private clearLimit: () => void = nothing
  private end: (exit: Exit.Exit<SampleResult, FutureError>) => void = nothing

  private readonly task: Tasks.Task<SampleResult>
  private readonly queue: ObservableValue<ApiFuture.QueueState>
  private readonly spans: SampleSpans | undefined
  /** Carries the caller's context to requests and logs. */
  private readonly fiber: AnyFiber
  private readonly shared: Shared
  private readonly input: Input
  private readonly options: Options

  constructor(shared: Shared, parent: AnyFiber, input: Input, options: Options) {
    super()
    this.shared = shared
    this.input = input
    this.options = options
    this.state = Sample.initial(settingsOf(shared, input, options))
    this.queue = new ObservableValue(queueStateAt(shared.time, this.state.queueState))
    this.spans = SampleSpans.open(parent, shared.attributes)
    // The context of a parent that waits stays as it is.
    this.fiber = this.spans?.fiber ?? (options.isAwaited ? parent : snapshot(parent))
    const about = { operation, onExit: (exit: Exit.Exit<unknown, FutureError>) => this.onExit(exit) }
    this.task = shared.tasks.start<SampleResult>(about, (end) => this.begin(end))
  }

  /** Begins the sample for its task; returns the way to stop it. */
  private begin(end: (exit: Exit.Exit<SampleResult, FutureError>) => void): Tasks.StopWork {
    this.end = end
    this.send({ _tag: "Started", now: this.now() })
    return (reason) => {
      this.send({ _tag: reason, now: this.now() })
      return this.stopping
    }
  }

  get await(): Effect.Effect<SampleResult, FutureError> {
    return this.task.await
  }

  get requestIds(): ReadonlyArray<string> {
    return this.state.requestIds
  }

  get future(): ApiFuture.ApiFuture<SampleResult> {
    return new PendingFuture(this, this.task, this.queue)
  }

  get accepted(): Effect.Effect<void, FutureError> {
    return Effect.suspend(() => {
      if (this.requestIds.length > 0) return Effect.void
      if (this.task.isDone) return Effect.asVoid(this.await)
      this.firstAccepted ??= new Completion()
      return this.firstAccepted.await
    })
  }

  get stop(): Effect.Effect<void> {
    return Effect.suspend(() => {
      this.isGivenUp = true
      return this.task.stop
    })
  }

  protected handle(event: Sample.Event): ReadonlyArray<Sample.Command> {
    const { client, commands, state } = Sample.handle(this.shared.client, this.state, event)
    this.shared.client = client
    this.state = state
    return commands
  }

  protected onDefect(cause: unknown): void {
    this.fail(Cause.die(cause), { _tag: "Died", now: this.now() })
  }

  protected perform(command: Sample.Command): void {
    switch (command._tag) {
      case "Enter":
        this.leavePlace = this.shared.places.enter(0, (admission) => this.admitted(admission, { _tag: "PlaceGranted" }))
        return
      case "Leave":
        return this.leavePlace()
      case "Join":
        return this.join()
      case "Admit":
        return this.admit(command.bytes)
      case "LeaveGate":
        return this.leaveGate()
      case "Send":
        return this.submit(command.number)
      case "StopJoining":
      case "StopSending":
      case "StopPolling":
        this.stopping = this.stopWork()
        return
      case "BackOff":
        return this.backOff(command.millis)
      case "ReportAccepted":
        return this.reportAccepted(command)
      case "Poll":
        return this.shared.outbox.add(this.fiber, () => this.poll(command))
      case "Wait":
        this.clearWait = this.after(command.millis, "TimerFired")
        return
      case "SetLimit":
        this.clearLimit = this.after(command.millis, "LimitReached")
        return
      case "StopTimers":
        this.clearWait()
        this.clearLimit()
        return
      case "Show":
        return this.queue.set(queueStateAt(this.shared.time, command.state, command.reason))
      case "ShowClient":
        return this.shared.queue.set(queueStateAt(this.shared.time, command.state, command.reason))
      case "ReportWait":
        this.spans?.waiting(command.state, command.reason)
        return this.shared.log(this.fiber, kind.type, command.state, command.reason, command.now)
      case "CancelOnServer":
        return this.shared.cancelOnServer(command.requestId)
      case "Complete":
        return this.complete(command)
    }
  }

  private now(): number {
    return this.shared.time.uptime()
  }

  private after(millis: number, event: "TimerFired" | "LimitReached"): () => void {
    return this.shared.timeouts.after(millis, () => this.send({ _tag: event, now: this.now() }))
  }

  private random(): number {
    const drawn = runBeside(this.fiber, Random.next).unsafePoll()
    return drawn?._tag === "Success" ? drawn.value : 0.5
  }

  /** Delivers the event of a failure and keeps its cause. */
  private fail(cause: Cause.Cause<FutureError>, event: Sample.Event): void {
    this.latest = Exit.failCause(cause)
    this.send(event)
  }

  private admitted(admission: Exit.Exit<void, ClientClosed>, event: Sample.Event): void {
    if (Exit.isSuccess(admission)) this.send(event)
    else this.fail(admission.cause, { _tag: "Denied", now: this.now() })
  }

  /** The number is taken when the sample is sent, so that numbers are in order on the wire. */
  private admit(bytes: number): void {
    this.leaveGate = this.shared.limiter.samplingGate.enter(bytes, (admission) =>
      this.shared.outbox.add(this.fiber, () => this.admitted(admission, { _tag: "Admitted", now: this.now() })),
    )
  }

  private join(): void {
    const fiber = runBeside(this.fiber, this.shared.first)
    fiber.addObserver((exit) => {
      this.stopWork = noop
      if (Exit.isSuccess(exit)) this.send({ _tag: "Joined", first: exit.value })
      else this.refused(exit.cause, "JoinFailed")
    })
    this.stopWork = () => Fiber.interrupt(fiber)
  }

  private refused(cause: Cause.Cause<TinkerError>, event: "JoinFailed" | "Refused"): void {
    const now = this.now()
    if (cause._tag !== "Fail") return this.fail(cause, { _tag: "Died", now })
    const failure = Sample.failureOf(cause.error, Option.getOrUndefined(RetryPolicy.serverDelay(cause.error)))
    // The transport has repeated a join already whose responses do not fit.
    const isRetryable = failure.isRetryable && !(failure.isMisfit && event === "JoinFailed")
    this.fail(cause, { _tag: event, failure: { ...failure, isRetryable }, now, random: this.random() })
  }

  private submit(number: number): void {
    const { samplingSessionId, transport } = this.shared
    const request = { ...this.input, samplingSessionId, seqId: number }
    const fiber = this.spans?.sending() ?? this.fiber
    this.stopWork = transport.start(fiber, Api.sample, request, undefined, (exit) => this.replied(exit))
  }

  private replied(exit: Exit.Exit<Accepted, TinkerError>): void {
    this.shared.outbox.onResponse()
    // Keeps nothing of the request alive while its result is waited for.
    this.stopWork = noop
    this.spans?.replied(exit)
    if (Exit.isFailure(exit)) return this.refused(exit.cause, "Refused")
    this.response = exit.value
    this.send({ _tag: "Accepted", requestId: exit.value.requestId, now: this.now() })
  }

  private backOff(millis: number): void {
    const everyone = this.shared.limiter.samplingGate.backOff(millis)
    this.send({ _tag: "BackedOff", everyone, millis, now: this.now() })
  }

  private reportAccepted({ queuedFor, requestId }: Extract<Sample.Command, { _tag: "ReportAccepted" }>): void {
    if (queuedFor !== undefined) this.shared.meter?.queued(queuedFor)
    this.spans?.accepted(requestId)
    this.firstAccepted?.done(Exit.void)
  }

  private poll({ requestId, submittedIn }: Extract<Sample.Command, { _tag: "Poll" }>): void {
    // It may have ended meanwhile.
    if (this.state.running !== requestId) return
    const { stalledAfter } = this.options
    try {
      this.stopWork = this.shared.futures.start(
        this.fiber,
        kind,
        requestId,
        { stalledAfter, submittedIn, onTurn: (state, polls) => this.progressed(state, polls) },
        (exit) => this.polled(exit),
      )
    } catch (cause) {
      this.onDefect(cause)
    }
  }

  private progressed({ reason, state }: ApiFuture.QueueState, polls: number): void {
    // The first poll changes nothing.
    if (polls === this.state.polls && state === this.state.queueState && Option.isNone(reason)) return
    this.send({ _tag: "Progressed", polls, state, reason: Option.getOrUndefined(reason) })
  }

  private polled(exit: Exit.Exit<SampleResult, FutureError>): void {
    this.shared.outbox.onResponse()
    this.stopWork = noop
    const checked = this.check(exit)
    const now = this.now()
    this.latest = checked
    if (Exit.isSuccess(checked)) return this.send({ _tag: "Done", now })
    this.send(
      checked.cause._tag === "Fail"
        ? Sample.pollFailed(checked.cause.error, now, this.random())
        : { _tag: "PollFailed", isFinal: false, now },
    )
  }

  private check(exit: Exit.Exit<SampleResult, FutureError>): Exit.Exit<SampleResult, FutureError> {
    if (Exit.isFailure(exit) || this.response === undefined) return exit
    const checked = checkResult(this.input, this.response, exit.value)
    if (Either.isLeft(checked)) return Exit.fail(checked.left)
    this.shared.meter?.sampled(tokensIn(checked.right))
    return Exit.succeed(checked.right)
  }

  private complete({ age, outcome }: Extract<Sample.Command, { _tag: "Complete" }>): void {
    const isOver = outcome === "Stopped" || outcome === "Closed"
    // Only the caller that stops the sample waits for that.
    if (!isOver && this.stopping !== Effect.void) Effect.runFork(this.stopping)
    const exit = this.exitOf(outcome, age)
    this.spans?.end(exit)
    this.end(exit)
  }

  private exitOf(outcome: Sample.Outcome, age: number): Exit.Exit<SampleResult, FutureError> {
    switch (outcome) {
      case "Result":
      case "Failure":
        return this.latest
      case "Stalled":
        return Exit.fail(new Stalled(this.waited(age)))
      case "DeadlineExceeded":
        return Exit.fail(new DeadlineExceeded(this.waited(age)))
      case "Stopped":
      case "Closed":
        return Exit.interrupt(this.fiber.id())
    }
  }

  private waited(age: number) {
    return {
      requestId: this.requestIds.at(-1) ?? "",
      requestType: kind.type,
      queueState: this.state.queueState,
      age: Duration.millis(age),
      iterations: this.state.polls,
    }
  }

  private onExit(exit: Exit.Exit<unknown, FutureError>): void {
    this.spans?.end(exit)
    if (Exit.isSuccess(exit)) return
    this.firstAccepted?.done(Exit.failCause(exit.cause))
    // A sample that its caller gave up is not an error.
    if (!this.isGivenUp) Option.map(Cause.failureOption(exit.cause), this.shared.session.telemetry.report)
  }
}

const nothing = () => {}
