/**
 * How a sample gets from the caller to the server and its result back: a place among those that may be under way, the
 * gate of the account, the submission, the polls; and anew if the server or the network lost it.
 */
import * as Cause from "effect/Cause"
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Exit from "effect/Exit"
import type * as Fiber from "effect/Fiber"
import * as FiberId from "effect/FiberId"
import * as Option from "effect/Option"
import * as Random from "effect/Random"
import type * as Scope from "effect/Scope"
import * as Runtime from "effect/Runtime"
import * as Stream from "effect/Stream"
import * as Api from "../../protocol/Api.ts"
import type { Accepted } from "../../protocol/schemas/Futures.ts"
import type { SampleRequest } from "../../protocol/schemas/Sampling.ts"
import * as ApiFuture from "../../ApiFuture.ts"
import * as ModelInput from "../../ModelInput.ts"
import * as RateLimiter from "../../RateLimiter.ts"
import * as RetryPolicy from "../../RetryPolicy.ts"
import * as SampleResult from "../../SampleResult.ts"
import type * as Session from "../../Session.ts"
import * as Config from "../../TinkerConfig.ts"
import {
  ClientClosed,
  DeadlineExceeded,
  type FutureError,
  isBillingStop,
  isRetryable,
  Stalled,
  type TinkerError,
  UnexpectedResponse,
} from "../../TinkerError.ts"
import { Transport } from "../../Transport.ts"
import { doubling } from "../core/Delays.ts"
import * as Poller from "../futures/Poller.ts"
import * as Announcer from "../runtime/QueueStateLog.ts"
import { behind } from "../runtime/Behind.ts"
import { exitOf, nothingLeft, type Stop } from "../util/Begun.ts"
import * as Gate from "../runtime/Gate.ts"
import * as Meters from "../runtime/Meters.ts"
import { OneShot } from "../runtime/OneShot.ts"
import * as Owner from "../runtime/Owner.ts"
import * as SampleCancels from "./SampleCancels.ts"
import * as SampleDeadlines from "./SampleDeadlines.ts"
import { annotated, current, isTraced, type Trace, traced } from "../runtime/Trace.ts"
import { timeBy } from "../util/MonotonicClock.ts"
import { Watched } from "../util/ObservableValue.ts"

/** What is asked for; which client asks for it, and under which number, is known here. */
export type Input = Omit<SampleRequest, "samplingSessionId" | "seqId">

export interface Options {
  /** Does the parent wait until it is over? */
  readonly isAwaited: boolean
  readonly deadline?: Duration.DurationInput | undefined
  readonly stalledAfter?: Duration.DurationInput | undefined
  /** May it be submitted anew when it got lost? */
  readonly mayResubmit: boolean
}

/** A sample under way. */
export interface Running extends Pick<Owner.Owned<SampleResult.SampleResult>, "await" | "poll" | "stop"> {
  /** Waits until the server has accepted it for the first time. */
  readonly accepted: Effect.Effect<void, FutureError>
  /** Of all that were accepted for it, the newest last. */
  readonly requestIds: ReadonlyArray<string>
  readonly queueState: Stream.Stream<ApiFuture.QueueState>
}

export interface SampleFlow {
  /** At once, with all that the parent has around it; whoever starts a sample sees to its end. */
  readonly start: (parent: Fiber.RuntimeFiber<unknown, unknown>, input: Input, options: Options) => Running
  /** How samples fare on their way to the server, until the client is over. */
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

/** Is the client over, and with it all that it does? */
const isEnd = ({ _tag }: FutureError): boolean => _tag === "ClientClosed" || _tag === "SessionLost"

/** How long nobody may submit after a 429 that names no time: longer if the prompt is large. */
const rateLimitPause = (bytes: number): number => (bytes > 131_072 ? 5_000 : 1_000)
/** After so long without a refusal for billing the next one counts as the first of another stop. */
const billingForgottenAfter = 300_000

/** Before a sample is submitted anew: from half a second to ten, a quarter more or less. */
const resubmitDelay = (retries: number, error: FutureError): Effect.Effect<number> =>
  Effect.map(Random.next, (random) => {
    // Of what was lost on the server it is known that it was there.
    const delay =
      error._tag === "PromiseExpired" ? 500 * 2 ** retries : doubling(500, retries, error._tag === "RateLimited")
    return Math.min(Math.round(Math.min(delay, 10_000) * (0.75 + 0.5 * random)), 10_000)
  })

/** One sample on its way. */
interface Ticket {
  readonly input: Input
  readonly bytes: number
  readonly options: Options
  readonly startedAt: number
  readonly queue: Watched<ApiFuture.QueueState>
  readonly requestIds: Array<string>
  /** For who waits for it. */
  accepted: Deferred.Deferred<void, FutureError> | undefined
  /** Under which it is submitted; kept until the server has lost what it accepted, so that nothing is done twice. */
  number: number | undefined
  tries: number
  /** The request that the server is working on. */
  running: string | undefined
  /** Has the server said the last word about it? */
  isKnown: boolean
  polls: number
  /** What the short way left to do. */
  begun: Begun | undefined
  trace: Trace | undefined
  /** The span of its wait for its turn. */
  waiting: Trace | undefined
}

interface Submitted {
  readonly _tag: "Submitted"
  readonly accepted: Accepted
  readonly took: number
}

/**
 * What the short way brought that is not the result itself: the answer to a submission, whose place at the gate is still
 * held, or one that was accepted, and the answer to its first poll.
 */
type Begun =
  | {
      readonly _tag: "Submission"
      readonly at: number
      readonly answer: Effect.Effect<Accepted, TinkerError>
      readonly leave: () => void
    }
  | {
      readonly _tag: "Polled"
      readonly submitted: Submitted
      readonly rest: Effect.Effect<SampleResult.SampleResult, FutureError>
    }

/** The server wants to see the same sample later. */
interface Later {
  readonly _tag: "Later"
  readonly state: string
  readonly error: TinkerError
  /** In milliseconds, if it is the only one that has to wait. */
  readonly wait: number
}

/** Why a sample did not come about, and whether another submission can help. */
interface Setback {
  readonly error: FutureError
  readonly again: boolean
  /** When the server wants to see it, in milliseconds. */
  readonly after: Option.Option<number>
}

/** What a result must hold because it was asked for, and what it must not. */
const check = (
  { prompt, promptAltTokensK = 0, promptLogprobsLastN }: Input,
  { requestId, sampleSequenceIds }: Accepted,
  answer: SampleResult.SampleResult,
): Either.Either<SampleResult.SampleResult, UnexpectedResponse> => {
  const unexpected = (detail: string) =>
    Either.left(
      new UnexpectedResponse({ operation: kind.type, requestId: Option.some(requestId), reason: "Schema", detail }),
    )
  const result = Option.match(ModelInput.length(prompt), {
    onNone: () => answer,
    onSome: (length) => SampleResult.alignPromptLogprobs(answer, length),
  })
  if (promptAltTokensK > 0 && Option.isNone(result.promptAltTokens)) {
    return unexpected("no promptAltTokens, which were asked for; the server may be older than they are")
  }
  if (promptLogprobsLastN !== undefined && Option.isSome(result.promptLogprobs)) {
    const before = result.promptLogprobs.value.subarray(0, -promptLogprobsLastN)
    const early = before.findIndex((value) => !Number.isNaN(value))
    if (early >= 0) {
      return unexpected(`a log probability at ${early}, before the last ${promptLogprobsLastN} of the prompt`)
    }
  }
  return Either.right(
    Option.match(sampleSequenceIds, {
      onNone: () => result,
      onSome: (ids) => SampleResult.withSequenceIds(result, ids),
    }),
  )
}

interface Place {
  readonly admitted: Effect.Effect<void, ClientClosed> | undefined
  readonly leave: () => void
}

const enter = (gate: Gate.Gate<ClientClosed>): Place => {
  const admission = new OneShot<void, ClientClosed>()
  let isAdmitted = false
  const leave = gate.enter(0, (exit) => {
    isAdmitted = Exit.isSuccess(exit)
    admission.done(exit)
  })
  return { admitted: isAdmitted ? undefined : admission.await, leave }
}

/** In the current scope. */
export const make = ({
  first,
  futures,
  samplingSessionId,
  session,
}: Parts): Effect.Effect<SampleFlow, never, Transport | RateLimiter.RateLimiter | Config.TinkerConfig | Scope.Scope> =>
  Effect.gen(function* () {
    const { flags } = session
    const config = yield* Config.TinkerConfig
    const announce = Announcer.make(config)
    const meter = Meters.make(config)(operation)
    const transport = yield* Transport
    const { clock, uptime } = timeBy(yield* Effect.clock)
    const runtime = yield* Effect.runtime<never>()

    const limiter = yield* (yield* RateLimiter.RateLimiter).limiter(RateLimiter.keyOf(config))
    yield* limiter.configure({ sampleBytes: flags.sampleDispatchBytesSemaphoreSize })
    const owner = yield* Owner.make(session.lost, operation)
    const deadlines = yield* SampleDeadlines.make
    const places = yield* Gate.make({
      limit: Math.max(1, flags.sampleMaxConcurrentRequests),
      budget: Number.POSITIVE_INFINITY,
      closed: () => new ClientClosed({ operation }),
    })
    const cancel = SampleCancels.make({
      call: transport.call,
      dynamic: session.dynamic,
      scope: owner.scope,
      logged: Config.logged(config),
    })

    const stateNow = (state: string, reason: Option.Option<string> = Option.none()): ApiFuture.QueueState => ({
      state,
      reason,
      since: clock.unsafeCurrentTimeMillis(),
    })
    const standing = new Watched(stateNow("active"))
    const stand = (state: string, reason?: Option.Option<string>) => {
      if (standing.current.state !== state) standing.set(stateNow(state, reason))
    }
    /** Shows why a sample waits: to whoever watches it or the client, and now and then in the log. */
    const showWait = (ticket: Ticket, state: string, error: FutureError) =>
      Effect.suspend(() => {
        const shown = stateNow(state, Option.some(error.message))
        ticket.queue.set(shown)
        ticket.trace?.event("tinker.queue_state", { state, reason: error.message })
        ticket.waiting ??= ticket.trace?.child("tinker.queue")
        // What became of one sample says nothing of the way to the server.
        if (error._tag !== "PromiseExpired") stand(shown.state, shown.reason)
        return Effect.withFiberRuntime((fiber) =>
          Effect.sync(() => announce(fiber, kind.type, state, error.message, uptime())),
        )
      })

    const begins = exitOf(first)
    /** Where the numbers begin, once that is known. */
    let base = begins?._tag === "Success" ? begins.value : undefined
    let taken = 0
    let lastDone = Number.NEGATIVE_INFINITY
    let billing: { readonly since: number; readonly last: number } | undefined
    const defaultPatience = flags.sampleEnableStuckDetection ? Poller.defaultStalledAfter : Number.POSITIVE_INFINITY
    const billingPause = flags.billingExceptionMaxPauseDurationSec * 1_000

    /** How long nobody may submit after this refusal, if it is one that time may heal. */
    const pauseAfter = (
      error: TinkerError,
      bytes: number,
    ): { readonly state: string; readonly millis: number } | undefined => {
      if (isBillingStop(error)) {
        const now = uptime()
        const since = billing === undefined || now - billing.last > billingForgottenAfter ? now : billing.since
        billing = { since, last: now }
        return now - since < billingPause ? { state: "paused_billing", millis: RetryPolicy.billingInterval } : undefined
      }
      if (error._tag !== "RateLimited" || !isRetryable(error)) return undefined
      return {
        state: "paused_rate_limit",
        millis: Option.getOrElse(RetryPolicy.serverDelay(error), () => rateLimitPause(bytes)),
      }
    }

    const stopWaiting = (ticket: Ticket) => {
      ticket.waiting?.end()
      ticket.waiting = undefined
    }

    /** What the server said to a submission that was sent at this time. */
    const answered = (
      ticket: Ticket,
      at: number,
      answer: Effect.Effect<Accepted, TinkerError>,
    ): Effect.Effect<Submitted | Later, TinkerError> =>
      Effect.matchEffect(answer, {
        onSuccess: (accepted) => Effect.succeed({ _tag: "Submitted" as const, accepted, took: uptime() - at }),
        onFailure: (error) => {
          const pause = pauseAfter(error, ticket.bytes)
          if (pause === undefined) return Effect.fail(error)
          const { millis, state } = pause
          return Effect.map(limiter.backOff(millis), (all) => ({
            _tag: "Later" as const,
            state,
            error,
            // If all wait, it waits among them for its turn.
            wait: all ? 0 : millis,
          }))
        },
      })

    const requestOf = (ticket: Ticket, first: number) => {
      ticket.queue.set(stateNow("submitting"))
      stopWaiting(ticket)
      // Taken when it is sent, so that the numbers are in order on the wire.
      ticket.number ??= first + taken++
      return { ...ticket.input, samplingSessionId, seqId: ticket.number }
    }

    /** One try. The place at the gate is held until it is answered, and a refusal closes the gate before it is left. */
    const send = (ticket: Ticket, first: number): Effect.Effect<Submitted | Later, TinkerError> => {
      const { begun } = ticket
      if (begun?._tag === "Submission") {
        ticket.begun = undefined
        return Effect.ensuring(answered(ticket, begun.at, begun.answer), Effect.sync(begun.leave))
      }
      return limiter.sampling(ticket.bytes)(
        Effect.suspend(() => answered(ticket, uptime(), transport.call(Api.sample, requestOf(ticket, first)))),
      )
    }

    const accept = (ticket: Ticket, { requestId }: Accepted) => {
      billing = undefined
      stand("active")
      ticket.running = requestId
      ticket.isKnown = false
      if (ticket.requestIds.length === 0) meter?.queued(uptime() - ticket.startedAt)
      ticket.requestIds.push(requestId)
      ticket.queue.set(stateNow("submitted"))
      if (ticket.accepted !== undefined) Deferred.unsafeDone(ticket.accepted, Exit.void)
    }

    /** Under one number, as often as the server asks to come back later. */
    const submit = (ticket: Ticket, first: number): Effect.Effect<Submitted, TinkerError> =>
      Effect.flatMap(send(ticket, first), (answer) => {
        if (answer._tag === "Later") {
          return showWait(ticket, answer.state, answer.error).pipe(
            Effect.zipRight(answer.wait > 0 ? Effect.sleep(answer.wait) : Effect.void),
            Effect.zipRight(Effect.suspend(() => submit(ticket, first))),
          )
        }
        accept(ticket, answer.accepted)
        return Effect.succeed(answer)
      })

    const following = (ticket: Ticket, { took }: Submitted): ApiFuture.Options => ({
      stalledAfter: ticket.options.stalledAfter,
      submittedIn: took,
      onTurn: (state, polls) => {
        ticket.polls = polls
        const { current } = ticket.queue
        if (state.state !== current.state || state.reason !== current.reason) ticket.queue.set(state)
      },
    })

    /** It did not get there, or nobody knows: the same number again, which a server does only once. */
    const notSubmitted = (ticket: Ticket, error: TinkerError): Setback => {
      const isTaken = error._tag === "RequestRejected" && error.reason === "Conflict" && ticket.tries > 1
      if (isTaken) ticket.number = undefined
      return { error, again: isTaken || isRetryable(error), after: RetryPolicy.serverDelay(error) }
    }

    /** What the server accepted and lost is asked for anew, under another number. */
    const notDone = (ticket: Ticket, error: FutureError): Setback => {
      ticket.number = undefined
      ticket.isKnown = error._tag !== "Stalled"
      return { error, again: error._tag === "PromiseExpired", after: Option.none() }
    }

    const submission = (ticket: Ticket): Effect.Effect<Submitted, TinkerError> =>
      Effect.flatMap(first, (first) => {
        base = first
        if (ticket.begun === undefined) ticket.tries++
        return submit(ticket, first)
      })

    const read = (ticket: Ticket, { accepted }: Submitted, answer: SampleResult.SampleResult) => {
      const checked = check(ticket.input, accepted, answer)
      if (meter !== undefined && Either.isRight(checked)) {
        meter.sampled(checked.right.sequences.reduce((sum, { tokens }) => sum + tokens.length, 0))
      }
      return checked
    }

    const result = (
      ticket: Ticket,
      submitted: Submitted,
      rest: Effect.Effect<SampleResult.SampleResult, FutureError>,
    ) =>
      annotated(
        "tinker.request_id",
        submitted.accepted.requestId,
        Effect.matchEffect(rest, {
          onFailure: (error) => Effect.fail(notDone(ticket, error)),
          onSuccess: (answer) =>
            Either.match(read(ticket, submitted, answer), {
              onLeft: (error) => Effect.fail(notDone(ticket, error)),
              onRight: Effect.succeed,
            }),
        }),
      )

    /** From the gate to the result. */
    const round = (ticket: Ticket): Effect.Effect<SampleResult.SampleResult, Setback> => {
      const { begun } = ticket
      if (begun?._tag === "Polled") {
        ticket.begun = undefined
        return result(ticket, begun.submitted, begun.rest)
      }
      return Effect.matchEffect(submission(ticket), {
        onFailure: (error) => Effect.fail(notSubmitted(ticket, error)),
        onSuccess: (submitted) =>
          result(ticket, submitted, futures.follow(kind, submitted.accepted.requestId, following(ticket, submitted))),
      })
    }

    /**
     * The first submission and the first poll without a fiber of their own, which is all there is to most samples. What
     * else they bring goes on in a fiber, as if that had sent them.
     */
    const sendShort = (
      parent: Fiber.RuntimeFiber<unknown, unknown>,
      ticket: Ticket,
      first: number,
      leave: () => void,
      end: (rest: Effect.Effect<SampleResult.SampleResult, FutureError>) => void,
    ): Stop => {
      // Nobody else cares for what is thrown there, and the caller would wait for ever.
      const safely =
        <A extends ReadonlyArray<unknown>>(task: (...args: A) => void) =>
        (...args: A) => {
          try {
            task(...args)
          } catch (cause) {
            end(Effect.die(cause))
          }
        }
      let isStopped = false
      let stop: Stop = nothingLeft
      /** Results that have come meanwhile go first: somebody waits for each of them. */
      const begin = (task: () => void) =>
        behind(
          parent,
          safely(() => {
            if (!isStopped) task()
          }),
        )
      const polled = (submitted: Submitted) => (rest: Effect.Effect<SampleResult.SampleResult, FutureError>) => {
        const exit = exitOf(rest)
        const result = exit?._tag === "Success" ? read(ticket, submitted, exit.value) : undefined
        if (result !== undefined && Either.isRight(result)) return end(Effect.succeed(result.right))
        ticket.begun = { _tag: "Polled", submitted, rest }
        end(produce(ticket))
      }
      const acknowledged = (at: number) => (answer: Effect.Effect<Accepted, TinkerError>) => {
        const exit = exitOf(answer)
        if (exit?._tag !== "Success") {
          ticket.begun = { _tag: "Submission", at, answer, leave }
          return end(produce(ticket))
        }
        leave()
        const submitted: Submitted = { _tag: "Submitted", accepted: exit.value, took: uptime() - at }
        accept(ticket, exit.value)
        // What was sent is not kept while its result is waited for.
        stop = nothingLeft
        begin(() => {
          const { requestId } = submitted.accepted
          stop = futures.begin(parent, kind, requestId, following(ticket, submitted), safely(polled(submitted)))
        })
      }
      begin(() => {
        ticket.tries++
        const request = requestOf(ticket, first)
        stop = transport.begin(parent, Api.sample, request, undefined, safely(acknowledged(uptime())))
      })
      return () => {
        isStopped = true
        return stop()
      }
    }

    /** What goes wrong on the way to the server is tried again, and what was lost there is submitted anew. */
    const produce = (ticket: Ticket, retries = 0): Effect.Effect<SampleResult.SampleResult, FutureError> =>
      Effect.matchCauseEffect(round(ticket), {
        onSuccess: Effect.succeed,
        onFailure: (cause) => {
          const failure = Cause.failureOrCause(cause)
          if (Either.isRight(failure)) return Effect.failCause(failure.right)
          const { after, again, error } = failure.left
          if (!again || !ticket.options.mayResubmit) {
            return Effect.fail(error)
          }
          ticket.running = undefined
          return showWait(ticket, error._tag === "PromiseExpired" ? "expired" : "unreachable", error).pipe(
            Effect.zipRight(
              Option.match(after, { onNone: () => resubmitDelay(retries, error), onSome: Effect.succeed }),
            ),
            Effect.flatMap((delay) => Effect.sleep(delay)),
            Effect.zipRight(Effect.suspend(() => produce(ticket, retries + 1))),
          )
        },
      })

    const watch = (ticket: Ticket, fail: (error: FutureError) => void): SampleDeadlines.Entry => {
      const { deadline: overall, stalledAfter } = ticket.options
      const deadline = ticket.startedAt + Poller.millisOf(overall, Number.POSITIVE_INFINITY)
      const patience = Poller.millisOf(stalledAfter, defaultPatience)
      return {
        due: () => Math.min(deadline, Math.max(ticket.startedAt, lastDone) + patience),
        expire: (now) => {
          const waited = {
            requestId: ticket.requestIds.at(-1) ?? "",
            requestType: kind.type,
            queueState: ticket.queue.current.state,
            age: Duration.millis(now - ticket.startedAt),
            iterations: ticket.polls,
          }
          fail(now >= deadline ? new DeadlineExceeded(waited) : new Stalled(waited))
        },
      }
    }

    /** All of it, in a fiber. */
    const work = (ticket: Ticket, { admitted }: Place) =>
      traced(
        (fiber) => {
          ticket.trace = current(fiber)
          ticket.waiting = ticket.trace?.child("tinker.queue")
          return admitted === undefined ? produce(ticket) : Effect.flatMap(admitted, () => produce(ticket))
        },
        "tinker.sample",
        attributes,
      )

    const attributes = { "tinker.session_id": session.id, "tinker.sampling_session_id": samplingSessionId }
    const start: SampleFlow["start"] = (parent, input, options) => {
      const ticket: Ticket = {
        input,
        bytes: ModelInput.samplingBytes(input.prompt),
        options,
        startedAt: uptime(),
        queue: new Watched(stateNow("queued")),
        requestIds: [],
        accepted: undefined,
        number: undefined,
        tries: 0,
        running: undefined,
        isKnown: false,
        polls: 0,
        begun: undefined,
        trace: undefined,
        waiting: undefined,
      }
      let owned: Owner.Owned<SampleResult.SampleResult> | undefined
      let isGivenUp = false
      const entry = watch(ticket, (error) => owned?.fail(error))
      deadlines.add(entry)
      const place = enter(places)
      // If somebody looks at it there are spans to make, which belong to fibers.
      const isShort = options.isAwaited && place.admitted === undefined && base !== undefined && !isTraced(parent)
      const leave = isShort ? limiter.samplingNow(ticket.bytes) : undefined
      const onExit = (exit: Exit.Exit<unknown, FutureError>) => {
        leave?.()
        place.leave()
        deadlines.remove(entry)
        stopWaiting(ticket)
        if (Exit.isSuccess(exit)) {
          lastDone = uptime()
          return
        }
        const failure = Cause.failureOption(exit.cause)
        // What its caller gave up is no error of anybody's.
        if (!isGivenUp) Option.map(failure, session.telemetry.report)
        if (ticket.accepted !== undefined) Deferred.unsafeDone(ticket.accepted, Exit.failCause(exit.cause))
        // Nobody will ask for it any more, and the server may still be at it. If all is over it finds out by itself.
        if (ticket.running === undefined || ticket.isKnown || Option.exists(failure, isEnd)) return
        Runtime.runFork(runtime, cancel(ticket.running))
      }
      const about = { operation, onExit }
      const number = base
      const started =
        leave !== undefined && number !== undefined
          ? owner.begin<SampleResult.SampleResult>(parent, about, (end) =>
              sendShort(parent, ticket, number, leave, end),
            )
          : owner.launch(parent, about, work(ticket, place))
      owned = started
      // Each is made for who asks for it, which is mostly nobody.
      return {
        get accepted() {
          return Effect.suspend(() => {
            if (ticket.requestIds.length > 0) return Effect.void
            ticket.accepted ??= Deferred.unsafeMake(FiberId.none)
            // It may be over already.
            return Effect.raceFirst(Deferred.await(ticket.accepted), Effect.asVoid(started.await))
          })
        },
        requestIds: ticket.requestIds,
        get queueState() {
          return Stream.interruptWhen(ticket.queue.changes, Effect.exit(started.await))
        },
        get await() {
          return started.await
        },
        get poll() {
          return started.poll
        },
        get stop() {
          return Effect.suspend(() => {
            isGivenUp = true
            return started.stop
          })
        },
      }
    }

    return { start, queueState: Stream.interruptWhen(standing.changes, Effect.exit(owner.over)) }
  })
