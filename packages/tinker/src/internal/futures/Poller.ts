/**
 * Polls for results: performs the commands of `core/Poll` by callback, without a fiber of its own. Spans and the log
 * observe the commands and change nothing about them.
 */
import type * as Cause from "effect/Cause"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import type { Kind, Options, QueueState } from "../../ApiFuture.ts"
import * as Api from "../../protocol/Api.ts"
import type { RawAnswer } from "../../protocol/Endpoint.ts"
import {
  type ClientClosed,
  DeadlineExceeded,
  type FutureError,
  PromiseExpired,
  type RequestRejected,
  Stalled,
  type TinkerError,
  UnexpectedResponse,
} from "../../TinkerError.ts"
import type { Service as Transport } from "../../Transport.ts"
import * as Poll from "../core/Poll.ts"
import type { AnyFiber } from "../runtime/FiberContext.ts"
import type { Gate } from "../runtime/Gate.ts"
import { Machine } from "../runtime/Machine.ts"
import type { QueueStateLog } from "../runtime/QueueStateLog.ts"
import type { Timeouts, Timers } from "../runtime/Timeouts.ts"
import { open, type Opened } from "../runtime/Trace.ts"
import { tryExit, noop, type Stop } from "../util/Callback.ts"
import { type Time, timeOf } from "../util/MonotonicClock.ts"
import * as ResultReader from "./ResultReader.ts"

/** The parts that all polls of a client share. */
export interface Parts {
  readonly transport: Pick<Transport, "start">
  /** Admits large responses by their size. */
  readonly responses: Gate<ClientClosed>
  /** In milliseconds. */
  readonly billingPause: number
  readonly log: QueueStateLog
  readonly timers: Timers
  readonly sessionId: string
}

/** Which result to poll for. */
export interface Target<out A> {
  readonly kind: Kind<A>
  readonly requestId: string
  readonly options: Options
  /** Called at each change of the queue state. It must not throw. */
  readonly onState?: ((state: QueueState) => void) | undefined
}

/**
 * Polls in the context of the fiber. Calls `onExit` exactly once, possibly before it returns. The returned function
 * stops the poll; `onExit` is not called after that.
 */
export const start = <A>(
  parts: Parts,
  fiber: AnyFiber,
  target: Target<A>,
  onExit: (exit: Exit.Exit<A, FutureError>) => void,
): Stop => {
  const poller = new Poller(parts, fiber, target, onExit)
  poller.begin()
  return () => poller.stop()
}

/** The Effect form of `start`: interrupting it stops the poll. */
export const run = <A>(parts: Parts, target: Target<A>): Effect.Effect<A, FutureError> =>
  Effect.withFiberRuntime((fiber) =>
    Effect.async<A, FutureError>((resume) => {
      let isOver = false
      const stop = start(parts, fiber, target, (exit) => {
        isOver = true
        resume(exit)
      })
      return isOver ? undefined : Effect.suspend(stop)
    }),
  )

/** The limit without news from the server, in milliseconds. */
export const defaultStalledAfter: number = Duration.toMillis("2 hours")

export const millisOf = (input: Duration.DurationInput | undefined, otherwise: number): number => {
  if (input === undefined) return otherwise
  // The common form, and cheaper to read.
  if (typeof input === "number" && input >= 0) return input
  return Option.match(Duration.decodeUnknown(input), { onNone: () => otherwise, onSome: Duration.toMillis })
}

/** The endpoint of polls for a kind of result. It has no span: a poll is a moment of the wait, which has one. */
const endpoints = new WeakMap<Kind<unknown>, typeof Api.retrieveFuture>()
const endpointOf = (kind: Kind<unknown>): typeof Api.retrieveFuture => {
  let endpoint = endpoints.get(kind)
  if (endpoint === undefined) {
    const headers = {
      accept: Option.isSome(kind.fromProtobuf) ? "application/x-protobuf" : "application/json",
      "x-stainless-raw-response": "raw",
      "x-tinker-request-type": kind.type,
    }
    endpoint = { ...Api.retrieveFuture, headers, span: undefined }
    endpoints.set(kind, endpoint)
  }
  return endpoint
}

/** A result may take this long to arrive, as long as it keeps arriving. */
const slowestBytesPerSecond = 250_000
const timeoutFor = (bytes: number | undefined) =>
  bytes === undefined ? undefined : Duration.seconds(45 + Math.floor(bytes / slowestBytesPerSecond))

const headersOf = (iteration: number, { submittedIn }: Options): Readonly<Record<string, string>> =>
  iteration > 0 || submittedIn === undefined
    ? { "x-tinker-request-iteration": String(iteration) }
    : {
        "x-tinker-request-iteration": "0",
        "x-tinker-create-promise-roundtrip-time": String(millisOf(submittedIn, 0) / 1_000),
      }

class Poller<A> extends Machine<Poll.Event, Poll.Command> {
  private state: Poll.State
  private queue: QueueState
  /** The content of the latest response, or why there is none. */
  private latest: Exit.Exit<A, FutureError> = Exit.die("no response")
  private stopRequest: Stop = noop
  private leaveRoom: () => void = nothing
  private clearWait: () => void = nothing
  private clearDeadline: () => void = nothing
  private span: Opened | undefined = undefined
  /** Letting go of a request that was stopped. */
  private stopping: Effect.Effect<unknown> = Effect.void

  private readonly parts: Parts
  private readonly fiber: AnyFiber
  private readonly target: Target<A>
  private readonly onExit: (exit: Exit.Exit<A, FutureError>) => void
  private readonly time: Time
  private readonly timeouts: Timeouts

  constructor(parts: Parts, fiber: AnyFiber, target: Target<A>, onExit: (exit: Exit.Exit<A, FutureError>) => void) {
    super()
    const { deadline, stalledAfter } = target.options
    this.parts = parts
    this.fiber = fiber
    this.target = target
    this.onExit = onExit
    this.time = timeOf(fiber)
    this.timeouts = parts.timers.of(fiber)
    this.state = Poll.initial({
      deadline: millisOf(deadline, Number.POSITIVE_INFINITY),
      stalledAfter: millisOf(stalledAfter, defaultStalledAfter),
      billingPause: parts.billingPause,
    })
    this.queue = {
      state: this.state.queueState,
      reason: Option.none(),
      since: this.time.clock.unsafeCurrentTimeMillis(),
    }
  }

  begin(): void {
    const { kind, requestId } = this.target
    this.span = open(this.fiber, "tinker.result", "internal", {
      "tinker.session_id": this.parts.sessionId,
      "tinker.request_id": requestId,
      "tinker.request_type": kind.type,
    })
    this.send({ _tag: "Started", now: this.time.uptime() })
  }

  stop(): Effect.Effect<unknown> {
    this.send({ _tag: "Stopped" })
    return this.stopping
  }

  protected handle(event: Poll.Event): ReadonlyArray<Poll.Command> {
    const { commands, state } = Poll.handle(this.state, event)
    this.state = state
    if (event._tag === "Responded" && state.failedPolls > 0) this.annotate("tinker.failed_polls", state.failedPolls)
    return commands
  }

  protected onDefect(cause: unknown): void {
    this.latest = Exit.die(cause)
    this.send({ _tag: "Died" })
  }

  protected perform(command: Poll.Command): void {
    switch (command._tag) {
      case "Ask":
        if (command.bytes === undefined) this.announceTurn(command.iteration)
        return this.ask(command.iteration, command.bytes)
      case "StopAsking":
        this.stopping = this.stopRequest()
        return
      case "WaitForRoom":
        this.announceTurn(command.iteration)
        return this.waitForRoom(command.bytes)
      case "LeaveRoom":
        return this.leaveRoom()
      case "Wait":
        this.clearWait()
        this.clearWait = this.timeouts.after(command.millis, () =>
          this.send({ _tag: "TimerFired", now: this.time.uptime() }),
        )
        return
      case "SetDeadline":
        this.clearDeadline = this.timeouts.after(command.millis, () =>
          this.send({ _tag: "DeadlineReached", now: this.time.uptime() }),
        )
        return
      case "StopTimers":
        this.clearWait()
        this.clearDeadline()
        return
      case "Show":
        return this.show(command.state, command.reason)
      case "Log":
        return this.parts.log(
          this.span?.fiber ?? this.fiber,
          this.target.kind.type,
          command.state,
          command.reason,
          command.now,
        )
      case "Complete":
        return this.complete(command)
    }
  }

  private annotate(key: string, value: unknown): void {
    tryExit(() => this.span?.trace.attribute(key, value))
  }

  private announceTurn(iteration: number): void {
    this.annotate("tinker.polls", iteration + 1)
    this.target.options.onTurn?.(this.queue, iteration)
  }

  private ask(iteration: number, bytes: number | undefined): void {
    const { kind, options, requestId } = this.target
    this.stopRequest = this.parts.transport.start(
      this.span?.fiber ?? this.fiber,
      endpointOf(kind),
      { requestId, allowMetadataOnly: bytes === undefined },
      { timeout: timeoutFor(bytes), own: headersOf(iteration, options) },
      (exit) => this.responded(exit),
    )
  }

  private responded(exit: Exit.Exit<RawAnswer, TinkerError>): void {
    // Keeps no request alive while the result is waited for.
    this.stopRequest = noop
    const reading = tryExit(() => this.read(exit))
    if (Exit.isFailure(reading)) return this.fail(reading.cause)
    const { exit: latest, response } = reading.value
    if (latest !== undefined) this.latest = latest
    this.send({ _tag: "Responded", response, now: this.time.uptime() })
  }

  private fail(cause: Cause.Cause<FutureError>): void {
    this.latest = Exit.failCause(cause)
    this.send({ _tag: "Responded", response: { _tag: "Failed", expired: false }, now: this.time.uptime() })
  }

  private read(exit: Exit.Exit<RawAnswer, TinkerError>): ResultReader.Reading<A> {
    const { kind, requestId } = this.target
    if (Exit.isSuccess(exit)) return ResultReader.fromResponse(kind, requestId, exit.value)
    return exit.cause._tag === "Fail"
      ? ResultReader.fromError(exit.cause.error)
      : { response: { _tag: "Failed", expired: false }, exit: Exit.failCause(exit.cause) }
  }

  private waitForRoom(bytes: number): void {
    this.leaveRoom = this.parts.responses.enter(bytes, (admission) => {
      if (Exit.isFailure(admission)) return this.fail(admission.cause)
      this.send({ _tag: "RoomGranted" })
    })
  }

  private show(state: string, reason: string | undefined): void {
    const since = this.queue.state === state ? this.queue.since : this.time.clock.unsafeCurrentTimeMillis()
    this.queue = { state, reason: Option.fromNullable(reason), since }
    tryExit(() => this.span?.trace.event("tinker.queue_state", { state, reason: reason ?? "" }))
    this.target.onState?.(this.queue)
    this.target.options.onTurn?.(this.queue, this.state.iteration)
  }

  private complete(command: Extract<Poll.Command, { readonly _tag: "Complete" }>): void {
    if (command.outcome === "Stopped") {
      this.span?.trace.end(Exit.interrupt(this.fiber.id()))
      return
    }
    // The caller does not wait until an abandoned request has let go of its connection.
    if (this.stopping !== Effect.void) Effect.runFork(this.stopping)
    const exit = this.exitOf(command)
    this.span?.trace.end(exit)
    this.onExit(exit)
  }

  private exitOf({
    age,
    iterations,
    outcome,
  }: Extract<Poll.Command, { readonly _tag: "Complete" }>): Exit.Exit<A, FutureError> {
    const { kind, requestId } = this.target
    const waited = {
      requestId,
      requestType: kind.type,
      queueState: this.state.queueState,
      age: Duration.millis(age),
      iterations,
    }
    switch (outcome) {
      case "Result":
      case "Failure":
      case "Stopped":
        return this.latest
      case "Expired":
        return Exit.mapError(this.latest, (error) =>
          isGone(error) ? new PromiseExpired({ ...waited, detail: error.detail }) : error,
        )
      case "SizeTwice":
        return Exit.fail(
          new UnexpectedResponse({
            operation: kind.type,
            requestId: Option.some(requestId),
            reason: "Schema",
            detail: "the server sent the size of the result again instead of the result",
          }),
        )
      case "Stalled":
        return Exit.fail(new Stalled(waited))
      case "DeadlineExceeded":
        return Exit.fail(new DeadlineExceeded(waited))
    }
  }
}

const nothing = () => {}

const isGone = (error: FutureError): error is RequestRejected =>
  error._tag === "RequestRejected" && error.reason === "Gone"
