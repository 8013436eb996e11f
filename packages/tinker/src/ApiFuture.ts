/**
 * A result that the server is still working on. The loop that asks for it is here and nowhere else: it runs in a fiber
 * of the client, so a result is fetched once however many wait for it, and whoever waits resumes however that fiber
 * ends.
 *
 * @since 0.1.0
 */
import * as Cause from "effect/Cause"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Exit from "effect/Exit"
import type * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as ParseResult from "effect/ParseResult"
import * as Predicate from "effect/Predicate"
import type * as Schema from "effect/Schema"
import type * as Runtime from "effect/Runtime"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import * as Api from "./protocol/Api.ts"
import * as Training from "./protocol/schemas/Training.ts"
import type { RawAnswer } from "./protocol/Endpoint.ts"
import { preview } from "./internal/request/Refusal.ts"
import { shorten } from "./internal/util/Text.ts"
import * as Announcer from "./internal/runtime/QueueStateLog.ts"
import { exitOf } from "./internal/util/Begun.ts"
import * as Gate from "./internal/runtime/Gate.ts"
import * as Owner from "./internal/runtime/Owner.ts"
import { readerOf } from "./internal/request/FastJson.ts"
import { Attached, Ended, Gathered, Mapped, Telling } from "./internal/futures/Telling.ts"
import { current, type Trace, traced } from "./internal/runtime/Trace.ts"
import { type Time, timeOf } from "./internal/util/MonotonicClock.ts"
import { Watched } from "./internal/util/ObservableValue.ts"
import * as RetryPolicy from "./RetryPolicy.ts"
import * as SampleResult from "./SampleResult.ts"
import { Session } from "./Session.ts"
import * as Config from "./TinkerConfig.ts"
import {
  type BillingPaused,
  ClientClosed,
  DeadlineExceeded,
  type FutureError,
  PromiseExpired,
  RequestFailed,
  RequestRejected,
  Stalled,
  type TinkerError,
  UnexpectedResponse,
} from "./TinkerError.ts"
import * as TrainingResult from "./TrainingResult.ts"
import { Transport } from "./Transport.ts"

/**
 * Where a request stands. `state` is the server's word (`active`, `paused_rate_limit`, `paused_capacity`, …), or ours:
 * `submitted` until the server says one, `unreachable` while polls fail, `paused_billing` while billing blocks them,
 * `waiting_for_room` while a large result waits for others to be read.
 *
 * @since 0.1.0
 * @category models
 */
export interface QueueState {
  readonly state: string
  readonly reason: Option.Option<string>
  /** When it began, in milliseconds since 1970. */
  readonly since: number
}

/**
 * What it has is made when it is asked for, so a copy (`{ ...future }`) has nothing of it.
 *
 * @since 0.1.0
 * @category models
 */
export interface ApiFuture<out A> {
  /** Of the request, or of the first of several. */
  readonly requestId: string
  readonly requestIds: ReadonlyArray<string>
  /** Interrupting it leaves the result to whoever else waits. */
  readonly await: Effect.Effect<A, FutureError>
  /** The result if it is there; asks nobody. */
  readonly poll: Effect.Effect<Option.Option<A>, FutureError>
  /** Where it stands and each change, until the result is there. */
  readonly queueState: Stream.Stream<QueueState>
}

/**
 * What kind of result a request has, and how it is read.
 *
 * @since 0.1.0
 * @category models
 */
export interface Kind<out A> {
  /** By the wire's name. */
  readonly type: string
  readonly fromJson: (json: unknown) => Either.Either<A, ParseResult.ParseError>
  readonly fromProtobuf: Option.Option<(bytes: Uint8Array) => Either.Either<A, ParseResult.ParseError>>
}

/**
 * A result that is JSON, by the wire's name of it.
 *
 * @since 0.1.0
 * @category kinds
 */
export const jsonKind = <A, I>(type: string, schema: Schema.Schema<A, I>): Kind<A> => ({
  type,
  fromJson: (json) => readerOf(schema)(json),
  fromProtobuf: Option.none(),
})

const both = <A>(
  type: string,
  result: {
    readonly fromJson: Kind<A>["fromJson"]
    readonly fromProtobuf: (bytes: Uint8Array) => Either.Either<A, ParseResult.ParseError>
  },
): Kind<A> => ({ type, fromJson: result.fromJson, fromProtobuf: Option.some(result.fromProtobuf) })

/**
 * @since 0.1.0
 * @category kinds
 */
export const kinds = {
  createModel: jsonKind("CreateModel", Training.CreateModelResult),
  unloadModel: jsonKind("UnloadModel", Training.UnloadModelResult),
  loadWeights: jsonKind("LoadWeights", Training.LoadWeightsResult),
  optimStep: jsonKind("OptimStep", Training.OptimStepResult),
  saveWeights: jsonKind("SaveWeights", Training.SaveWeightsResult),
  /** Of a save with a name. */
  saveWeightsForSampler: jsonKind("SaveWeightsForSampler", Training.SavedForSampler),
  /** Of a save that only feeds a sampling session. */
  saveSamplingSession: jsonKind("SaveWeightsForSampler", Training.SavedAsSamplingSession),
  saveWeightsExternal: jsonKind("SaveWeightsExternal", Training.SaveWeightsExternalResult),
  createCustomLoss: jsonKind("CreateCustomLoss", Training.CreateCustomLossResult),
  forward: both("Forward", TrainingResult),
  forwardBackward: both("ForwardBackward", TrainingResult),
  sample: both("Sample", SampleResult),
}

/**
 * How long to wait. `Duration.infinity` is possible for both.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** For the result as a whole. Default: for ever. */
  readonly deadline?: Duration.DurationInput | undefined
  /** Without any news from the server: another state, another reason, the size of the result. Default: 2 hours. */
  readonly stalledAfter?: Duration.DurationInput | undefined
  /** How long submitting took, which the server likes to know. */
  readonly submittedIn?: Duration.DurationInput | undefined
  /** Told at once how it ended, before those who wait are. It must not throw. */
  readonly onExit?: ((exit: Exit.Exit<unknown, FutureError>) => void) | undefined
  /** Told before each poll, and at each change, where it stands and how often it was asked for. It must not throw. */
  readonly onTurn?: ((state: QueueState, polls: number) => void) | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Service {
  /** The future of a request by its id: one that was just submitted, or one from before a restart. */
  readonly attach: <A>(kind: Kind<A>, requestId: string, options?: Options) => Effect.Effect<ApiFuture<A>>
  /** The same at once, with all that this fiber has around it, or had when that was looked at. */
  readonly attachNow: <A>(
    fiber: Fiber.RuntimeFiber<unknown, unknown>,
    kind: Kind<A>,
    requestId: string,
    options: Options,
    around?: Runtime.Runtime<never>,
  ) => ApiFuture<A>
  /** The result, asked for by the fiber that wants it and not beyond its end. `onExit` is not told. */
  readonly follow: <A>(kind: Kind<A>, requestId: string, options?: Options) => Effect.Effect<A, FutureError>
  /**
   * `follow` for who has no fiber to spare: asks at once and tells the end once. Told is an `Exit` if the first answer
   * is the result; else an effect that goes on with what it brought. Gives the way to stop it. It has no span.
   */
  readonly begin: <A>(
    fiber: Fiber.RuntimeFiber<unknown, unknown>,
    kind: Kind<A>,
    requestId: string,
    options: Options,
    end: (rest: Effect.Effect<A, FutureError>) => void,
  ) => () => Effect.Effect<unknown>
  /** The same, for a client with a scope of its own: what it waits for ends with that scope. */
  readonly inScope: Effect.Effect<Service, never, Scope.Scope>
}

/**
 * @since 0.1.0
 * @category tags
 */
export class Futures extends Context.Tag("effect-tinker/ApiFuture/Futures")<Futures, Service>() {}

/** What one poll says. */
type Answer<A> =
  | { readonly _tag: "Done"; readonly value: A }
  | { readonly _tag: "Failed"; readonly error: FutureError }
  | { readonly _tag: "Pending"; readonly state: string; readonly reason: Option.Option<string> }
  | { readonly _tag: "Metadata"; readonly bytes: number }
  /** Nothing is known of the request itself. */
  | { readonly _tag: "Unreachable"; readonly error: TinkerError }
  | { readonly _tag: "Billing"; readonly error: BillingPaused }

const text = (value: unknown): Option.Option<string> =>
  typeof value === "string" && value !== "" ? Option.some(shorten(value)) : Option.none()

/** Each part by itself: what else is in the body must not cost the state. */
const pending = (body: unknown, redact: (text: string) => string): Answer<never> => {
  const told = Predicate.isRecord(body) ? body : {}
  return {
    _tag: "Pending",
    state: Option.getOrElse(Option.map(text(told["queue_state"]), redact), () => "unknown"),
    reason: Option.map(text(told["queue_state_reason"]), redact),
  }
}

const operation = "retrieve_future"

/** @internal */
export const defaultStalledAfter: number = Duration.toMillis("2 hours")

/** @internal */
export const millisOf = (input: Duration.DurationInput | undefined, otherwise: number): number => {
  if (input === undefined) return otherwise
  // As it is asked for each request.
  if (typeof input === "number" && input >= 0) return input
  return Option.match(Duration.decodeUnknown(input), { onNone: () => otherwise, onSome: Duration.toMillis })
}

/** The poll for a kind of result: what it says about itself is the same each time. */
const polls = new WeakMap<Kind<unknown>, typeof Api.retrieveFuture>()
const pollOf = (kind: Kind<unknown>): typeof Api.retrieveFuture => {
  let endpoint = polls.get(kind)
  if (endpoint === undefined) {
    const headers = {
      accept: Option.isSome(kind.fromProtobuf) ? "application/x-protobuf" : "application/json",
      "x-stainless-raw-response": "raw",
      "x-tinker-request-type": kind.type,
    }
    // A poll is a moment of the wait, which has a span.
    endpoint = { ...Api.retrieveFuture, headers, span: undefined }
    polls.set(kind, endpoint)
  }
  return endpoint
}

const utf8 = new TextDecoder()

const protobuf = "application/x-protobuf"
const isProtobuf = (contentType: string): boolean =>
  contentType === protobuf || contentType.trim().toLowerCase().startsWith(protobuf)

/** Reads what a poll brought; `requestId` and `kind` are those of the request that is waited for. */
const readAnswer = <A>(
  kind: Kind<A>,
  requestId: string,
  { body, contentType, redact, status }: RawAnswer,
): Answer<A> => {
  const fields = () => ({ operation: kind.type, status: Option.some(status), requestId: Option.some(requestId) })
  const unexpected = (reason: UnexpectedResponse["reason"], detail: string): Answer<never> => ({
    _tag: "Failed",
    error: new UnexpectedResponse({ ...fields(), reason, detail: shorten(redact(detail)) }),
  })
  const result = (decoded: Either.Either<A, ParseResult.ParseError>, reason: UnexpectedResponse["reason"]): Answer<A> =>
    Either.isRight(decoded)
      ? { _tag: "Done", value: decoded.right }
      : unexpected(reason, ParseResult.TreeFormatter.formatErrorSync(decoded.left))

  if (isProtobuf(contentType)) {
    return Option.isSome(kind.fromProtobuf)
      ? result(kind.fromProtobuf.value(body), "NotProtobuf")
      : unexpected("NotProtobuf", "protobuf, where only JSON can be")
  }
  let value: unknown
  try {
    value = JSON.parse(utf8.decode(body))
  } catch {
    return unexpected("NotJson", preview(body, redact))
  }
  if (Predicate.isRecord(value)) {
    // In this order, each key by itself: a result has none of them.
    if (value["type"] === "try_again") return pending(value, redact)
    if (value["status"] === "complete_metadata") {
      const size = Number(value["response_payload_size"])
      return { _tag: "Metadata", bytes: size > 0 && Number.isFinite(size) ? size : 0 }
    }
    if ("error" in value) return failed(value, redact, fields())
  }
  return result(kind.fromJson(value), "Schema")
}

const failed = (
  value: Readonly<Record<string, unknown>>,
  redact: (text: string) => string,
  fields: { readonly operation: string; readonly requestId: Option.Option<string> },
): Answer<never> => {
  const { category, error } = value
  const words = { ...fields, detail: shorten(redact(typeof error === "string" ? error : JSON.stringify(error))) }
  // Only the lower-case words count; every other category is as good as none.
  return {
    _tag: "Failed",
    error:
      category === "user"
        ? new RequestRejected({ ...words, reason: "UserCategory" })
        : new RequestFailed({ ...words, reason: category === "server" ? "Server" : "Unknown" }),
  }
}

const readRefusal = (error: TinkerError): Answer<never> => {
  switch (error._tag) {
    case "Unavailable":
      return error.reason === "Pending"
        ? // The body of an error is without secrets already.
          pending(Option.getOrUndefined(error.body), (text) => text)
        : { _tag: "Unreachable", error }
    case "RateLimited":
      return { _tag: "Unreachable", error }
    case "Unauthorized":
      // A credential command that stumbles once must not cost every result that is waited for.
      return error.reason === "Refused" ? { _tag: "Failed", error } : { _tag: "Unreachable", error }
    case "BillingPaused":
      return { _tag: "Billing", error }
    default:
      // Open servers tell a failed request as 400, 404, 409 or 422: the words are in the error.
      return { _tag: "Failed", error }
  }
}

/** The same where nobody would hear of what it throws: then a fiber has to read it again. */
const readNow: typeof readAnswer = (kind, requestId, raw) => {
  try {
    return readAnswer(kind, requestId, raw)
  } catch {
    return { _tag: "Pending", state: "unknown", reason: Option.none() }
  }
}

/** Where a loop stands; times in milliseconds of the uptime. */
interface Turn {
  readonly iteration: number
  /** Polls in a row that brought no answer. */
  readonly failures: number
  /** Answers in a row that came at once although there was nothing to tell. */
  readonly instants: number
  readonly billingSince: number | undefined
  /** The size of the result, once it was told: then the result itself is asked for. */
  readonly bytes: number | undefined
  /** What the server last said of the request, and when it last said something else. */
  readonly news: string
  readonly newsAt: number
}

const firstTurn = (now: number): Turn => ({
  iteration: 0,
  failures: 0,
  instants: 0,
  billingSince: undefined,
  bytes: undefined,
  news: "",
  newsAt: now,
})

/** A server that holds the poll sets the pace; one that answers at once is not hammered. */
const heldFor = 1_000
/** A result may travel slowly, as long as it travels. */
const slowestBytesPerSecond = 250_000

/** A poll that was made already: when, and what it brought. */
interface Asked {
  readonly at: number
  readonly result: Effect.Effect<RawAnswer, TinkerError>
}

const firstHeaders = ({ submittedIn }: Options): Readonly<Record<string, string>> =>
  submittedIn === undefined
    ? { "x-tinker-request-iteration": "0" }
    : {
        "x-tinker-request-iteration": "0",
        "x-tinker-create-promise-roundtrip-time": String(millisOf(submittedIn, 0) / 1_000),
      }

/** Which turn follows an answer, and after how many milliseconds. */
const nextTurn = (
  turn: Turn,
  answer: Answer<unknown>,
  took: number,
  now: number,
): { readonly turn: Turn; readonly delay: number } => {
  const next = { ...turn, iteration: turn.iteration + 1, failures: 0, instants: 0 }
  switch (answer._tag) {
    case "Unreachable": {
      const delay = Option.getOrElse(RetryPolicy.serverDelay(answer.error), () =>
        Math.min(RetryPolicy.doubling(1_000, turn.failures, answer.error), 30_000),
      )
      return { turn: { ...next, failures: turn.failures + 1 }, delay }
    }
    case "Billing":
      return { turn: { ...next, billingSince: turn.billingSince ?? now }, delay: RetryPolicy.billingInterval }
    case "Pending": {
      // Only what the server says of the request is news; that it could not be asked is not.
      const news = `${answer.state} ${Option.getOrElse(answer.reason, () => "")}`
      const told = answer.state === "unknown" || news === turn.news ? {} : { news, newsAt: now }
      const heard = { ...next, ...told, billingSince: undefined }
      return took >= heldFor
        ? { turn: heard, delay: 0 }
        : { turn: { ...heard, instants: turn.instants + 1 }, delay: Math.min(5 * 2 ** turn.instants, 1_000) }
    }
    case "Metadata":
      return { turn: { ...next, billingSince: undefined, bytes: answer.bytes, newsAt: now }, delay: 0 }
    case "Done":
    case "Failed":
      return { turn: next, delay: 0 }
  }
}

/** The queue state that an answer tells, if it tells one. */
const stateOf = (answer: Answer<unknown>): Option.Option<Omit<QueueState, "since">> => {
  switch (answer._tag) {
    case "Pending":
      return Option.some({ state: answer.state, reason: answer.reason })
    case "Unreachable":
      return Option.some({ state: "unreachable", reason: Option.some(answer.error.message) })
    case "Billing":
      return Option.some({ state: "paused_billing", reason: Option.some(answer.error.message) })
    default:
      return Option.none()
  }
}

/**
 * In the current scope, which ends every wait that is still open.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make: Effect.Effect<Service, never, Transport | Session | Config.TinkerConfig | Scope.Scope> = Effect.gen(
  function* () {
    const transport = yield* Transport
    const session = yield* Session
    const responses = yield* Gate.make({
      limit: Number.POSITIVE_INFINITY,
      budget: session.flags.inflightResponseBytesSemaphoreSize,
      closed: () => new ClientClosed({ operation }),
    })
    const billingPause = session.flags.billingExceptionMaxPauseDurationSec * 1_000
    const announce = Announcer.make(yield* Config.TinkerConfig)

    const loop = <A>(
      kind: Kind<A>,
      requestId: string,
      options: Options,
      queue: Watched<QueueState>,
      startedAt: number,
      time: Time,
      first?: Asked,
    ): Effect.Effect<A, FutureError> => {
      const stalledAfter = millisOf(options.stalledAfter, defaultStalledAfter)
      const deadline = millisOf(options.deadline, Number.POSITIVE_INFINITY)
      const waited = (turn: Turn, now: number) => ({
        requestId,
        requestType: kind.type,
        queueState: queue.current.state,
        age: Duration.millis(now - startedAt),
        iterations: turn.iteration,
      })
      const show = (shown: Omit<QueueState, "since">) => {
        const { reason, since, state } = queue.current
        if (shown.state === state && Option.getOrUndefined(shown.reason) === Option.getOrUndefined(reason)) return
        changed({ ...shown, since: shown.state === state ? since : time.clock.unsafeCurrentTimeMillis() })
      }
      let trace: Trace | undefined
      let failedPolls = 0
      const changed = (state: QueueState) => {
        queue.set(state)
        trace?.event("tinker.queue_state", { state: state.state, reason: Option.getOrElse(state.reason, () => "") })
        options.onTurn?.(state, latest.iteration)
      }
      const endpoint = pollOf(kind)

      const ask = ({ bytes, iteration }: Turn) =>
        transport.call(
          endpoint,
          { requestId, allowMetadataOnly: bytes === undefined },
          {
            timeout: bytes === undefined ? undefined : Duration.seconds(45 + Math.floor(bytes / slowestBytesPerSecond)),
            own: iteration === 0 ? firstHeaders(options) : { "x-tinker-request-iteration": String(iteration) },
          },
        )

      /** A result of known size is asked for when there is room, and holds its place only while it is being read. */
      const askInTurn = (turn: Turn) => {
        const { bytes, newsAt } = turn
        if (bytes === undefined) return ask(turn)
        const inPlace = responses.withPlace(bytes)(ask(turn))
        show({ state: "waiting_for_room", reason: Option.none() })
        return Number.isFinite(stalledAfter)
          ? Effect.timeoutFail(inPlace, {
              duration: Math.max(0, newsAt + stalledAfter - time.uptime()),
              onTimeout: () => new Stalled(waited(turn, newsAt + stalledAfter)),
            })
          : inPlace
      }

      /** Why there is no next turn, if there is none. */
      const over = (turn: Turn, answer: Answer<A>, now: number): Option.Option<FutureError> => {
        switch (answer._tag) {
          case "Billing": {
            const since = turn.billingSince ?? now
            return now - since >= billingPause ? Option.some(answer.error) : Option.none()
          }
          case "Metadata": {
            if (turn.bytes === undefined) return Option.none()
            const detail = "the size of the result again, where the result was asked for"
            const fields = { operation: kind.type, requestId: Option.some(requestId) }
            return Option.some(new UnexpectedResponse({ ...fields, reason: "Schema", detail }))
          }
          default:
            return Option.none()
        }
      }

      // Only for the error of a deadline, which comes from outside of the loop.
      let latest = firstTurn(startedAt)

      /** Polls, and comes back to itself after each pause until there is a result. */
      const take = (turn: Turn): Effect.Effect<A, FutureError> =>
        Effect.suspend(() => {
          latest = turn
          trace?.attribute("tinker.polls", turn.iteration + 1)
          options.onTurn?.(queue.current, turn.iteration)
          const asked = turn.iteration === 0 ? first : undefined
          const before = asked?.at ?? time.uptime()
          return Effect.matchEffect(asked?.result ?? askInTurn(turn), {
            onFailure: (error) =>
              error._tag === "Stalled" ? Effect.fail(error) : heard(turn, before, readRefusal(error)),
            onSuccess: (raw) => heard(turn, before, readAnswer(kind, requestId, raw)),
          })
        })

      const heard = (turn: Turn, before: number, answer: Answer<A>): Effect.Effect<A, FutureError> => {
        if (answer._tag === "Done") return Effect.succeed(answer.value)
        const now = time.uptime()
        if (answer._tag === "Failed") {
          const { error } = answer
          return Effect.fail(
            error._tag === "RequestRejected" && error.reason === "Gone"
              ? new PromiseExpired({ ...waited(turn, now), detail: error.detail })
              : error,
          )
        }
        const told = stateOf(answer)
        if (answer._tag === "Unreachable") trace?.attribute("tinker.failed_polls", ++failedPolls)
        if (Option.isSome(told)) show(told.value)
        const going = Effect.suspend(() => {
          const end = over(turn, answer, now)
          if (Option.isSome(end)) return Effect.fail(end.value)
          const next = nextTurn(turn, answer, now - before, now)
          // Billing has a limit of its own.
          const patience = answer._tag === "Billing" ? Infinity : next.turn.newsAt + stalledAfter - now
          if (patience <= 0) return Effect.fail(new Stalled(waited(next.turn, now)))
          return next.delay > 0
            ? Effect.zipRight(Effect.sleep(Math.min(next.delay, patience)), take(next.turn))
            : take(next.turn)
        })
        return Option.isSome(told) ? Effect.zipRight(announce(kind.type, told.value, now), going) : going
      }

      const whole = traced(
        (fiber) => {
          trace = current(fiber)
          return take(firstTurn(startedAt))
        },
        "tinker.result",
        { "tinker.session_id": session.id, "tinker.request_id": requestId, "tinker.request_type": kind.type },
        "internal",
      )
      return Number.isFinite(deadline)
        ? Effect.timeoutTo(whole, {
            duration: deadline,
            onSuccess: (value) => Effect.succeed(value),
            onTimeout: () => Effect.suspend(() => new DeadlineExceeded(waited(latest, time.uptime()))),
          }).pipe(Effect.flatten)
        : whole
    }

    const queueAt = ({ clock }: Time) =>
      new Watched<QueueState>({ state: "submitted", reason: Option.none(), since: clock.unsafeCurrentTimeMillis() })

    const follow: Service["follow"] = (kind, requestId, options = {}) =>
      Effect.withFiberRuntime((fiber) => {
        const time = timeOf(fiber)
        return loop(kind, requestId, options, queueAt(time), time.uptime(), time)
      })

    const begin: Service["begin"] = (fiber, kind, requestId, options, end) => {
      const time = timeOf(fiber)
      const at = time.uptime()
      const asking = { requestId, allowMetadataOnly: true }
      return transport.begin(fiber, pollOf(kind), asking, { own: firstHeaders(options) }, (result) => {
        const exit = exitOf(result)
        const answer = exit?._tag === "Success" ? readNow(kind, requestId, exit.value) : undefined
        if (answer?._tag === "Done") return end(Effect.succeed(answer.value))
        end(loop(kind, requestId, options, queueAt(time), at, time, { at, result }))
      })
    }

    const { isOn, report } = session.telemetry
    const told = (onExit: Options["onExit"]): Options["onExit"] =>
      isOn
        ? (exit) => {
            onExit?.(exit)
            if (exit._tag === "Failure") Option.map(Cause.failureOption(exit.cause), report)
          }
        : onExit

    const inScope: Effect.Effect<Service, never, Scope.Scope> = Effect.gen(function* () {
      const owner = yield* Owner.make(session.lost, operation)

      const attachNow: Service["attachNow"] = (fiber, kind, requestId, options, around) => {
        const time = timeOf(fiber)
        const queue = queueAt(time)
        const owned = owner.launch(
          fiber,
          { operation: kind.type, requestId, onExit: told(options.onExit) },
          loop(kind, requestId, options, queue, time.uptime(), time),
          around,
        )
        return new Attached(requestId, owned, queue)
      }
      const attach: Service["attach"] = (kind, requestId, options = {}) =>
        Effect.withFiberRuntime((fiber) => Effect.succeed(attachNow(fiber, kind, requestId, options)))

      return { attach, attachNow, begin, follow, inScope }
    })
    return yield* inScope
  },
)

/**
 * @since 0.1.0
 * @category layers
 */
export const layer: Layer.Layer<Futures, never, Transport | Session | Config.TinkerConfig> = Layer.fresh(
  Layer.scoped(Futures, make),
)

/**
 * @since 0.1.0
 * @category combinators
 */
export const map = <A, B>(self: ApiFuture<A>, f: (value: A) => B): ApiFuture<B> =>
  self instanceof Telling
    ? new Mapped<A, B>(self, f)
    : {
        requestId: self.requestId,
        requestIds: self.requestIds,
        await: Effect.map(self.await, f),
        poll: Effect.map(self.poll, Option.map(f)),
        queueState: self.queueState,
      }

/**
 * Of which it is known that there will be no result.
 *
 * @since 0.1.0
 * @category constructors
 */
export const fail = (error: FutureError): ApiFuture<never> => new Ended<never>(Exit.fail(error))

/**
 * Both results, when both are there; the first failure at once.
 *
 * @since 0.1.0
 * @category combinators
 */
export const zip = <A, B>(self: ApiFuture<A>, that: ApiFuture<B>): ApiFuture<readonly [A, B]> => all([self, that])

/**
 * All results, in the shape of what was given: an array or a record.
 *
 * @since 0.1.0
 * @category combinators
 */
export const all = <const T extends ReadonlyArray<ApiFuture<unknown>> | Readonly<Record<string, ApiFuture<unknown>>>>(
  futures: T,
): ApiFuture<{ -readonly [K in keyof T]: T[K] extends ApiFuture<infer A> ? A : never }> => {
  type Results = { -readonly [K in keyof T]: T[K] extends ApiFuture<infer A> ? A : never }
  const keys = Object.keys(futures)
  const parts: ReadonlyArray<ApiFuture<unknown>> = Object.values(futures)
  // The keys are those of `futures`, each with the result of its own.
  const shape = (values: ReadonlyArray<unknown>): Results =>
    (Array.isArray(futures) ? values : Object.fromEntries(keys.map((key, i) => [key, values[i]]))) as Results
  return map(gather(parts), shape)
}

const gather = (parts: ReadonlyArray<ApiFuture<unknown>>): ApiFuture<ReadonlyArray<unknown>> => {
  if (parts.every((part) => part instanceof Telling)) return new Gathered(parts)
  const requestIds = parts.flatMap(({ requestIds }) => requestIds)
  return {
    requestId: requestIds[0] ?? "",
    requestIds,
    await: Effect.all(
      parts.map((part) => part.await),
      { concurrency: "unbounded" },
    ),
    poll: Effect.map(Effect.all(parts.map(({ poll }) => poll)), Option.all),
    queueState: Stream.mergeAll(
      parts.map(({ queueState }) => queueState),
      { concurrency: "unbounded" },
    ),
  }
}
