/** From the call of an operation to its result: a place in the order, the submission in its turn, the future. */
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type * as Fiber from "effect/Fiber"
import * as FiberId from "effect/FiberId"
import * as Option from "effect/Option"
import type * as Runtime from "effect/Runtime"
import * as Stream from "effect/Stream"
import * as ApiFuture from "../../ApiFuture.ts"
import type {
  ClientClosed,
  FutureError,
  SessionLost,
  SubmitError,
  TinkerError,
  TrainingError,
} from "../../TinkerError.ts"
import type { Service as Transport } from "../../Transport.ts"
import { behind } from "../runtime/Behind.ts"
import { attempt } from "../util/Begun.ts"
import type { Meters } from "../runtime/Meters.ts"
import { OneShot } from "../runtime/OneShot.ts"
import { surroundings } from "../util/RunBeside.ts"
import type * as Sequencer from "./Sequencer.ts"
import { Telling } from "../futures/Telling.ts"
import { isTraced, opened, type Trace, within } from "../runtime/Trace.ts"
import type * as Turns from "./Turns.ts"
import { type Time, timeOf } from "../util/MonotonicClock.ts"
import { Watched } from "../util/ObservableValue.ts"
import { snakeCase } from "../codec/Wire.ts"

/** An operation that has its place in the order. */
export interface Ticket<out A, out E = never> {
  /** Waits until the server has it. Interrupting it changes nothing for the operation. */
  readonly acknowledged: Effect.Effect<ApiFuture.ApiFuture<A>, SubmitError | E>
  /** Waits for the result. */
  readonly await: Effect.Effect<A, TrainingError | E>
  /** Gives it up if it was not sent yet; tells whether that was so. */
  readonly cancel: Effect.Effect<boolean>
  /** Where it stands: `queued`, `submitting`, what delays that, and then what the server says. */
  readonly queueState: Stream.Stream<ApiFuture.QueueState>
}

/** What an operation is, before it has a number. */
export interface Operation<B, A> extends Pick<
  Sequencer.Call,
  "requests" | "parallel" | "repeatable" | "named" | "separable" | "heals" | "follows"
> {
  readonly kind: ApiFuture.Kind<B>
  readonly combine: (results: ReadonlyArray<B>) => A
  readonly tag: Option.Option<string>
  readonly wait: ApiFuture.Options
  /** Told of each result before those who wait are. */
  readonly onSuccess: (seq: number, result: B) => void
}

export interface Deps {
  readonly transport: Transport
  readonly turns: Turns.Turns<ClientClosed | SessionLost>
  readonly sequencer: Sequencer.Sequencer
  readonly futures: ApiFuture.Service
  readonly settled: Sequencer.Sequencer["settled"]
  readonly meters: Meters
  /** What the spans of its operations tell. */
  readonly attributes: Readonly<Record<string, unknown>>
  /** Told of each submission that failed. */
  readonly report: (error: SubmitError) => void
}

/** A submission under way: `run` in its turn, `giveUp` if there is none. */
interface Pending<A> {
  readonly job: {
    readonly prepare: () => void
    readonly run: Effect.Effect<Exit.Exit<void, SubmitError>>
    readonly giveUp: (error: SubmitError) => void
  }
  readonly ticket: () => Ticket<A>
  /** What is prepared while it is on its way; if this is not said, the next in the line. */
  readonly followedBy: (job: { readonly prepare: () => void }) => void
  readonly acknowledged: OneShot<ApiFuture.ApiFuture<A>, SubmitError>
  readonly cancel: Ticket<A>["cancel"]
}

const delayState = (error: TinkerError): string =>
  error._tag === "RateLimited" ? "paused_rate_limit" : error._tag === "BillingPaused" ? "paused_billing" : "unreachable"

/** What the server says of it, from when it has it; nothing if it never does. */
export const statesOf = <A, E>(
  acknowledged: Effect.Effect<ApiFuture.ApiFuture<A>, E>,
): Stream.Stream<ApiFuture.QueueState> =>
  Stream.unwrap(
    Effect.matchCause(acknowledged, { onFailure: () => Stream.empty, onSuccess: (future) => future.queueState }),
  )

/** The result of a call, however many pieces it has. */
export const future = <B, A>(
  futures: ReadonlyArray<ApiFuture.ApiFuture<B>>,
  combine: (results: ReadonlyArray<B>) => A,
): ApiFuture.ApiFuture<A> => {
  const [only] = futures
  return only !== undefined && futures.length === 1
    ? ApiFuture.map(only, (result) => combine([result]))
    : ApiFuture.map(ApiFuture.all(futures), combine)
}

/** The same of what was attached to; one that could not be is enough. */
const whole = <B, A>(
  parts: ReadonlyArray<Exit.Exit<ApiFuture.ApiFuture<B>>>,
  combine: (results: ReadonlyArray<B>) => A,
): Exit.Exit<ApiFuture.ApiFuture<A>> => {
  const futures: Array<ApiFuture.ApiFuture<B>> = []
  for (const part of parts) {
    if (Exit.isFailure(part)) return Exit.failCause(part.cause)
    futures.push(part.value)
  }
  return Exit.succeed(future(futures, combine))
}

/** Attaches to a result, so that its end is known here first. */
export const attach = <B, A>(
  { futures, settled }: Pick<Deps, "futures" | "settled">,
  operation: Pick<Operation<B, A>, "kind" | "named" | "wait" | "onSuccess">,
  acknowledged: Omit<Sequencer.Acknowledged, "submittedIn"> & Pick<ApiFuture.Options, "submittedIn">,
  fiber: Fiber.RuntimeFiber<unknown, unknown>,
  around?: Runtime.Runtime<never>,
  onExit?: (exit: Exit.Exit<unknown, unknown>) => void,
): ApiFuture.ApiFuture<B> => {
  const options: ApiFuture.Options = {
    ...operation.wait,
    submittedIn: acknowledged.submittedIn,
    onExit: (exit) => {
      settled(acknowledged, { kind: operation.kind.type, named: operation.named }, exit)
      // It is of this kind: it was decoded as such.
      if (Exit.isSuccess(exit)) operation.onSuccess(acknowledged.seq, exit.value as B)
      onExit?.(exit)
    },
  }
  return futures.attachNow(fiber, operation.kind, acknowledged.requestId, options, around)
}

const operationName = ({ requests: [first] }: Pick<Sequencer.Call, "requests">): string =>
  first?.forms[0].operation ?? ""

/** The name of an operation's span, by the wire's name of its result. */
export const spanName = ({ type }: ApiFuture.Kind<unknown>): string =>
  `tinker.training${snakeCase(type).replace("_", ".")}`

const pend = <B, A>(
  deps: Deps,
  operation: Operation<B, A>,
  { clock, uptime }: Time,
  trace: Trace | undefined,
): Pending<A> => {
  const now = clock.unsafeCurrentTimeMillis()
  const begunAt = uptime()
  const waiting = trace?.child("tinker.queue")
  const acknowledged = new OneShot<ApiFuture.ApiFuture<A>, SubmitError>()
  const state = new Watched<ApiFuture.QueueState>({ state: "queued", reason: Option.none(), since: now })
  let phase: "queued" | "cancelled" | "begun" = "queued"
  let { prepareNext } = deps.turns

  const show = (shown: string, reason: Option.Option<string>) => {
    const { current } = state
    const now = clock.unsafeCurrentTimeMillis()
    const since = current.state === shown ? current.since : now
    if (since === now || Option.getOrUndefined(reason) !== Option.getOrUndefined(current.reason))
      state.set({ state: shown, reason, since })
  }

  /** The span ends with the last of its pieces, and as the first that failed. */
  let open = operation.requests.length
  let outcome: Exit.Exit<unknown, unknown> = Exit.void
  const onExit =
    trace &&
    ((exit: Exit.Exit<unknown, unknown>) => {
      if (Exit.isSuccess(outcome) && Exit.isFailure(exit)) outcome = exit
      if (--open === 0) trace.end(outcome)
    })

  const parts: Array<Exit.Exit<ApiFuture.ApiFuture<B>>> = []
  const call: Sequencer.Call = {
    ...operation,
    kind: operation.kind.type,
    onAcknowledged: (chunk, known, fiber) => {
      const around = surroundings(fiber)
      // The server waits for the next submission, and not for the poll.
      behind(fiber, () => {
        const part = attempt(() => attach(deps, operation, known, fiber, around, onExit))
        // Its result will not be heard of, and nobody must wait for that.
        if (Exit.isFailure(part)) deps.settled(known, { kind: operation.kind.type, named: operation.named }, part)
        parts[chunk] = part
      })
    },
    onDelay: (error) =>
      Effect.sync(() => {
        trace?.event("tinker.queue_state", { state: delayState(error), reason: error.message })
        show(delayState(error), Option.some(error.message))
      }),
  }

  const run = Effect.withFiberRuntime<Exit.Exit<void, SubmitError>>((fiber) => {
    // Nobody waits for it any more, and it has no number yet.
    if (phase === "cancelled") return Effect.succeed(Exit.void)
    phase = "begun"
    waiting?.end()
    show("submitting", Option.none())
    behind(fiber, prepareNext)
    return Effect.map(Effect.exit(within(trace, deps.sequencer.submit(call))), (exit) => {
      const took = uptime() - begunAt
      behind(fiber, () => settle(exit, took))
      return exit
    })
  })

  /** Whoever waits is told first; what a tracer or a meter makes of it is its own matter. */
  const settle = (exit: Exit.Exit<void, SubmitError>, took: number) => {
    acknowledged.done(Exit.flatMap(exit, () => whole(parts, operation.combine)))
    attempt(() => {
      if (Exit.isSuccess(exit)) return deps.meters(operationName(operation))?.queued(took)
      trace?.end(exit)
      Option.map(Cause.failureOption(exit.cause), deps.report)
    })
  }

  const leave = (exit: Exit.Exit<never, SubmitError>) => {
    acknowledged.done(exit)
    waiting?.end(exit)
    trace?.end(exit)
  }

  const giveUp = (error: SubmitError) => leave(Exit.fail(error))
  // What is wrong with it is found again in its turn, and told then.
  const prepare = () => void attempt(() => deps.sequencer.prepare(operation.requests))
  const job = { prepare, run, giveUp }
  const cancel = Effect.sync(() => {
    if (phase === "queued") {
      phase = "cancelled"
      deps.turns.leave(job)
      // Whoever else waits for it must not wait for ever.
      leave(Exit.interrupt(FiberId.none))
    }
    return phase === "cancelled"
  })
  return {
    job,
    acknowledged,
    cancel,
    followedBy: ({ prepare }) => {
      prepareNext = prepare
    },
    ticket: () => {
      const wait = acknowledged.await
      return {
        acknowledged: wait,
        await: Effect.flatMap(wait, (future) => result(deps.sequencer, future.await)),
        cancel,
        get queueState() {
          return Stream.concat(Stream.interruptWhen(state.changes, Effect.exit(wait)), statesOf(wait))
        },
      }
    },
  }
}

/** A conflict over a number that broke the sequence is told as what it means. */
const result = <A>(
  { broken }: Sequencer.Sequencer,
  waiting: Effect.Effect<A, FutureError>,
): Effect.Effect<A, TrainingError> =>
  Effect.catchTag(waiting, "RequestRejected", (error) =>
    error.reason === "Conflict"
      ? Effect.flatMap(broken, (known): Effect.Effect<never, TrainingError> =>
          Effect.fail(Option.getOrElse(known, () => error)),
        )
      : Effect.fail(error),
  )

/** Takes a ticket: in the order of the calls, at once unless too many wait. */
export const enqueue = <B, A>(deps: Deps, operation: Operation<B, A>): Effect.Effect<Ticket<A>, SubmitError> =>
  begun(deps, operation, ({ job, ticket }) => Effect.map(enqueueJob(deps, operation, job), ticket))

/** The same, for who waits until the server has it. */
export const submit = <B, A>(
  deps: Deps,
  operation: Operation<B, A>,
): Effect.Effect<ApiFuture.ApiFuture<A>, SubmitError> =>
  begun(deps, operation, (pending) => joined(deps, operation, pending, (resume) => pending.acknowledged.listen(resume)))

/** The same, for who waits for the result. */
export const run = <B, A>(deps: Deps, operation: Operation<B, A>): Effect.Effect<A, TrainingError> =>
  Effect.withFiberRuntime((fiber) =>
    isTraced(fiber)
      ? // In two steps: who leaves during the second one leaves the span to the result.
        Effect.flatMap(submit(deps, operation), (future) => result(deps.sequencer, future.await))
      : // Nobody wants to know on the way that the server has it, so nobody is woken for that.
        begun(deps, operation, (pending) =>
          joined<A, TrainingError>(deps, operation, pending, (resume) =>
            pending.acknowledged.listen((exit) =>
              Exit.isSuccess(exit)
                ? listen(exit.value, (end) => resume(result(deps.sequencer, end)))
                : resume(Exit.failCause(exit.cause)),
            ),
          ),
        ),
  )

const listen = <A>(future: ApiFuture.ApiFuture<A>, tell: (end: Effect.Effect<A, FutureError>) => void): void =>
  future instanceof Telling ? future.listen(tell) : tell(future.await)

/** Puts it in the line. Nobody who was interrupted leaves its operation behind, wherever that happens. */
const joined = <A, E>(
  { sequencer, turns }: Deps,
  operation: Pick<Sequencer.Call, "heals">,
  { cancel, job }: Pick<Pending<unknown>, "cancel" | "job">,
  listen: (resume: (end: Effect.Effect<A, E>) => void) => void,
): Effect.Effect<A, E | SubmitError> =>
  Effect.uninterruptibleMask<A, E | SubmitError, never>((restore) => {
    const refusal = sequencer.obstacle(operation) ?? turns.join(job)
    if (refusal !== undefined) return Effect.fail(refusal)
    let tell: ((end: Effect.Effect<A, E>) => void) | undefined
    const told = Effect.async<A, E>((resume) => {
      tell = resume
      listen((end) => tell?.(end))
    })
    return Effect.catchAllCause(restore(told), (cause) => {
      // Who has left is not held until the end.
      tell = undefined
      return Cause.isInterrupted(cause) ? Effect.zipRight(cancel, Effect.failCause(cause)) : Effect.failCause(cause)
    })
  })

/**
 * Two operations with nothing between them. If the first is not accepted the second is not sent, and fails with the
 * same error: an update must not be made without its gradients.
 */
export const enqueuePair = <B1, A1, B2, A2>(
  deps: Deps,
  first: Operation<B1, A1>,
  second: Operation<B2, A2>,
): Effect.Effect<readonly [Ticket<A1>, Ticket<A2>], SubmitError> =>
  begun(deps, first, (one) =>
    begun(deps, { ...second, follows: true }, (two) => {
      one.followedBy(two.job)
      const run = Effect.flatMap(one.job.run, (exit) =>
        Exit.isSuccess(exit)
          ? two.job.run
          : // Its failure is typed: a defect has become one in the sequencer.
            Effect.catchAll(exit, (error) => Effect.sync(() => two.job.giveUp(error))),
      )
      const giveUp = (error: SubmitError) => {
        one.job.giveUp(error)
        two.job.giveUp(error)
      }
      return Effect.map(
        enqueueJob(deps, first, { prepare: one.job.prepare, run, giveUp }),
        () => [one.ticket(), two.ticket()] as const,
      )
    }),
  )

/** What is to be submitted, with a span and a clock of its caller's. */
const begun = <B, A, T, E>(
  deps: Deps,
  operation: Operation<B, A>,
  use: (pending: Pending<A>) => Effect.Effect<T, E>,
): Effect.Effect<T, E> =>
  opened(
    (trace, fiber) => use(pend(deps, operation, timeOf(fiber), trace)),
    () => ({
      name: spanName(operation.kind),
      attributes: { ...deps.attributes, "tinker.requests": operation.requests.length },
    }),
  )

const enqueueJob = (
  { sequencer, turns }: Deps,
  operation: Pick<Sequencer.Call, "heals">,
  job: Turns.Job<ClientClosed | SessionLost>,
): Effect.Effect<void, SubmitError> => {
  // Not only in its turn: behind a full queue one would wait for nothing.
  const obstacle = sequencer.obstacle(operation)
  return obstacle === undefined ? turns.enqueue(job) : Effect.fail(obstacle)
}
