/**
 * The numbers of one model's requests. It sends one call at a time and knows, whatever happens, whether a number is
 * used, free, or in doubt; in doubt it stops rather than guess. The rules are in `docs/sequence-numbers.md`.
 */
import * as Cause from "effect/Cause"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Exit from "effect/Exit"
import type * as Fiber from "effect/Fiber"
import * as FiberId from "effect/FiberId"
import * as Option from "effect/Option"
import * as Ref from "effect/Ref"
import type { Accepted } from "../../protocol/schemas/Futures.ts"
import * as Endpoint from "../../protocol/Endpoint.ts"
import type { Limiter } from "../../RateLimiter.ts"
import type { Learnt } from "../../Session.ts"
import {
  type FutureError,
  type InvalidInput,
  type RequestRejected,
  SequenceBroken,
  type SubmitError,
  type TinkerError,
  type TrainingError,
  Unavailable,
  UnexpectedResponse,
} from "../../TinkerError.ts"
import type * as TrainingJournal from "../../TrainingJournal.ts"
import type { CallOptions, Service as Transport } from "../../Transport.ts"
import { attempt, awaited, exitOf, type Stop } from "../util/Begun.ts"
import { fingerprint } from "../util/Hash.ts"
import { idempotencyKey } from "../request/IdempotencyKey.ts"
import * as RequestMemory from "../codec/RequestBuffers.ts"
import { isTraced } from "../runtime/Trace.ts"
import { timeOf } from "../util/MonotonicClock.ts"

/** One way to say a request; a pass has two. */
export interface Form {
  readonly operation: string
  /** Set where it is not known in advance whether the server reads this form. */
  readonly wire: "protobuf" | "json" | undefined
  readonly render: (seq: number) => Either.Either<Endpoint.Rendered, InvalidInput>
  /** Finds what `render` would complain of, for less if that can be. */
  readonly check: () => Either.Either<unknown, InvalidInput>
  readonly send: (rendered: Endpoint.Rendered, options: CallOptions) => Effect.Effect<Accepted, TinkerError>
  /** The same at once and without a span, if nothing has to be done before: see `begin` of the transport. */
  readonly dispatch?:
    | ((
        fiber: Fiber.RuntimeFiber<unknown, unknown>,
        rendered: Endpoint.Rendered,
        options: CallOptions,
        end: (result: Effect.Effect<Accepted, TinkerError>) => void,
      ) => Stop)
    | undefined
}

export const form = <I>(
  transport: Transport,
  endpoint: Endpoint.Endpoint<I, Accepted>,
  input: (seq: number) => I,
  pass?: { readonly wire: "protobuf" | "json"; readonly check?: Form["check"] },
): Form => ({
  operation: endpoint.operation,
  wire: pass?.wire,
  render: (seq) => transport.render(endpoint, input(seq)),
  check: pass?.check ?? (() => transport.render(endpoint, input(1))),
  send: (rendered, options) => transport.send(endpoint, rendered, options),
  dispatch: (fiber, rendered, options, end) => transport.dispatch(fiber, endpoint, rendered, options, end),
})

/** One request: it takes one number. */
export interface Request {
  /** In the order of preference. */
  readonly forms: readonly [Form, ...ReadonlyArray<Form>]
  /** What it counts for the budget of bytes being submitted. */
  readonly bytes: number
}

/** One operation of a user: a request, or as many as its batch has pieces. */
export interface Call {
  /** What kind of result it has, by the wire's name. */
  readonly kind: string
  readonly requests: ReadonlyArray<Request>
  /** Later pieces first, all at once; the server holds them until the first has come. */
  readonly parallel: boolean
  /** May it be done twice without harm? */
  readonly repeatable: boolean
  /** May a conflict be about something else than the number, e.g. a name that is taken? Then it is only a refusal. */
  readonly named: boolean
  /** Are the pieces worth something without the others? Of a batch whose gradients add up they are not. */
  readonly separable: boolean
  /** Does it put an end to a batch that was accepted in part? */
  readonly heals: boolean
  /** Does it belong to the call before it, and so take the number after that one's, whatever is heard in between? */
  readonly follows: boolean
  readonly tag: Option.Option<string>
  /** Told of each piece as soon as the server has it, in the fiber that sends. */
  readonly onAcknowledged: (
    chunk: number,
    acknowledged: Acknowledged,
    fiber: Fiber.RuntimeFiber<unknown, unknown>,
  ) => void
  /** Told of what keeps it waiting. */
  readonly onDelay: (error: TinkerError) => Effect.Effect<void>
}

export interface Acknowledged {
  readonly seq: number
  readonly requestId: string
  /** Milliseconds. */
  readonly submittedIn: number
  /** Was it sent before, without an answer? */
  readonly doubtful: boolean
}

/** What became of one request. */
type Outcome =
  | { readonly _tag: "Acknowledged"; readonly acknowledged: Acknowledged }
  /** The number is free. `refused`: the server saw it and said no. */
  | { readonly _tag: "Free"; readonly seq: number; readonly error: SubmitError; readonly refused: boolean }
  /** It was done, and how it went is lost: its own first sending has taken the name that it asks for. */
  | { readonly _tag: "Used"; readonly error: SubmitError }
  | { readonly _tag: "Lost"; readonly applied: "no" | "unknown"; readonly error: SubmitError }

/** What to do when an answer is lost and a request that must not be done twice would have to be sent again. */
export type WhenUnknown = "probe" | "resend" | "stop"

export interface Options {
  readonly transport: Transport
  readonly limiter: Limiter
  readonly learnt: Ref.Ref<Learnt>
  readonly journal: Option.Option<TrainingJournal.Journal>
  /** Are requests kept in the journal, so that they can be sent again after a restart? */
  readonly keepRequests: boolean
  readonly whenUnknown: WhenUnknown
  /** Does the server see that this number, whose request had this id, was used before? None: it could not be found out. */
  readonly probe: (used: {
    readonly seq: number
    readonly requestId: Option.Option<string>
  }) => Effect.Effect<Option.Option<boolean>>
  /** Is it a server that reads no protobuf? */
  readonly readsOnlyJson: Effect.Effect<boolean>
  /** From a journal. */
  readonly start?: Start | undefined
}

/** Where an earlier life of the client ended. */
export interface Start {
  readonly next: number
  readonly acknowledged: Option.Option<Pick<Acknowledged, "seq" | "requestId">>
  /** The last one whose result was good. */
  readonly succeeded: Option.Option<Pick<Acknowledged, "seq" | "requestId">>
  /** A number that was given back: the server may think otherwise. */
  readonly withdrawn: Option.Option<number>
  /** Numbers whose results failed, and after which none succeeded. */
  readonly failed: ReadonlyArray<number>
  /** Why nothing can be submitted, if that is so. */
  readonly broken: Option.Option<SequenceBroken>
  readonly lastCheckpoint: Option.Option<string>
}

export interface Sequencer {
  /** To be called by one fiber at a time, in the order of the users' calls. */
  readonly submit: (call: Call) => Effect.Effect<void, SubmitError>
  /**
   * Writes the request that will probably be submitted next while the one before it is on its way. Nothing is lost if
   * it is another one, or if it gets another number or form: then it is written again.
   */
  readonly prepare: (requests: Call["requests"]) => void
  /** Sends again what an earlier life of the client may or may not have sent. */
  readonly resend: (
    call: Call,
    letters: ReadonlyArray<{
      readonly seq: number
      readonly idempotencyKey: string
      /** None if it was not kept: then nothing is known, and nothing can be done. */
      readonly rendered: Option.Option<Endpoint.Rendered>
    }>,
  ) => Effect.Effect<void, SubmitError>
  /** Why nothing can be submitted any more, if that is so. */
  readonly broken: Effect.Effect<Option.Option<SequenceBroken>>
  /** Why this call can't be, now. */
  readonly obstacle: (call: Pick<Call, "heals">) => SequenceBroken | undefined
  /** How the result of an acknowledged request turned out. */
  readonly settled: (
    request: Pick<Acknowledged, "seq" | "requestId" | "doubtful">,
    call: Pick<Call, "kind" | "named">,
    exit: Exit.Exit<unknown, FutureError>,
  ) => void
  readonly lastCheckpoint: () => Option.Option<string>
  readonly saved: (path: string) => void
  /** Makes a client whose batch was accepted in part usable again. */
  readonly heal: () => void
}

/** Did the server perhaps get it? Then only it knows what it did with it. */
const isUncertain = (error: FutureError | SubmitError): boolean =>
  (error._tag === "Unavailable" && error.reason !== "Connect") || error._tag === "UnexpectedResponse"

export const isConflict = (error: FutureError | SubmitError): error is RequestRejected =>
  error._tag === "RequestRejected" && error.reason === "Conflict"

/** Did the server see it and refuse it? What only waits or never left says nothing about numbers. */
const isRefusal = (error: FutureError | SubmitError): boolean => {
  switch (error._tag) {
    case "RequestRejected":
    case "Forbidden":
    case "NotFound":
      return true
    case "Unauthorized":
      return error.reason === "Refused"
    default:
      return false
  }
}

/** Could the server dislike the form rather than what it says? */
const isDislikedForm = (error: SubmitError): boolean =>
  error._tag === "RequestRejected" &&
  (error.reason === "UnsupportedMediaType" || error.reason === "BadRequest" || error.reason === "Unprocessable")

/** In bytes: a request that is written ahead is not in the budget yet. */
const mostAhead = 1024 * 1024

const conflictDelays = [500, 1_000, 2_000]

const bytesOf = (rendered: Endpoint.Rendered): Uint8Array => {
  const bytes = rendered.body?.bytes ?? ""
  return typeof bytes === "string" ? new TextEncoder().encode(bytes) : bytes
}

/** To be called by the server's word that it has the request, and by the HTTP client's that nobody reads it any more. */
const releasing = ({ body }: Endpoint.Rendered): (() => void) => {
  let holders = 2
  return () => {
    if (--holders === 0 && body !== undefined && typeof body.bytes !== "string") RequestMemory.giveBack(body.bytes)
  }
}

/** A request with its number, ready to go. */
interface Letter {
  readonly seq: number
  readonly form: Form
  readonly rendered: Endpoint.Rendered
  readonly idempotencyKey: string
}

export const make = (options: Options): Sequencer => {
  const { journal, learnt, limiter } = options
  let next = options.start?.next ?? 1
  let newest: Pick<Acknowledged, "seq" | "requestId"> | undefined = Option.getOrUndefined(
    options.start?.acknowledged ?? Option.none(),
  )
  /** Refused, and given to later requests again. */
  const reused = new Set(Option.toArray(options.start?.withdrawn ?? Option.none<number>()))
  /** Numbers whose results failed, and after which none succeeded. */
  let failed: ReadonlyArray<number> = options.start?.failed ?? []
  /** The one of those that the next call takes again. */
  let retake: number | undefined
  /** The highest number that was certainly used: its result was good. */
  let proven = Option.getOrUndefined(options.start?.succeeded ?? Option.none())
  /** Acknowledged, and their results not known. */
  const open = new Set<number>()
  /** Made by who waits for it. */
  let heard: Deferred.Deferred<void> | undefined
  let broken = Option.getOrUndefined(options.start?.broken ?? Option.none<SequenceBroken>())
  let lastCheckpoint = options.start?.lastCheckpoint ?? Option.none<string>()

  const breakAt = (operation: string, seq: number, applied: SequenceBroken["applied"], error: TrainingError) => {
    broken = new SequenceBroken({
      operation,
      seq,
      applied,
      acknowledged: newest?.seq ?? 0,
      lastCheckpoint,
      detail: error.message,
      cause: error,
    })
    return broken
  }

  const write = (entries: ReadonlyArray<TrainingJournal.Entry>) =>
    Option.match(journal, { onNone: () => Effect.void, onSome: (journal) => journal.append(entries) })
  /** Of what only shortens a resume: a journal that fails is noticed at the next intent. */
  const note = (record: TrainingJournal.Record) =>
    Effect.catchAll(write([{ record }]), (error) => Effect.logWarning(`Tinker: ${error.message}`))

  const learn = (change: Partial<Learnt>) =>
    Effect.flatMap(
      Ref.updateAndGet(learnt, (known) => ({ ...known, ...change })),
      (known) => note({ _tag: "Learnt", ...known }),
    )

  const entryOf = (call: Call, chunk: number, letter: Letter): TrainingJournal.Entry => {
    const bytes = bytesOf(letter.rendered)
    // A secret in a request must not reach a file, and so neither must the request.
    const kept = options.keepRequests && letter.rendered.secrets.length === 0
    return {
      record: {
        _tag: "Intent",
        seq: letter.seq,
        operation: letter.form.operation,
        kind: call.kind,
        chunk,
        chunks: call.requests.length,
        repeatable: call.repeatable,
        idempotencyKey: letter.idempotencyKey,
        hash: fingerprint(bytes),
        tag: call.tag,
      },
      request: kept
        ? { path: letter.rendered.path, contentType: letter.rendered.body?.contentType ?? "", bytes }
        : undefined,
    }
  }

  const letterOf = (form: Form, seq: number): Either.Either<Letter, InvalidInput> =>
    Either.map(form.render(seq), (rendered) => ({
      seq,
      form,
      rendered,
      idempotencyKey: idempotencyKey(),
    }))

  /** The number after the one that is on its way, if that waits for nothing but the server's word and comes alone. */
  let following: number | undefined
  /** Written ahead. */
  let ahead: { readonly request: Request; readonly letter: Letter } | undefined
  /** The form of passes that the server is known to read. */
  let spoken: Form["wire"]
  const prepare: Sequencer["prepare"] = ([request, ...more]) => {
    ahead = undefined
    // What is big is written when the budget has room for it; what comes in pieces is so.
    if (following === undefined || request === undefined || more.length > 0 || request.bytes > mostAhead) return
    const form = request.forms.find(({ wire }) => wire === undefined || wire === spoken)
    const letter = form && letterOf(form, following)
    if (letter !== undefined && Either.isRight(letter)) ahead = { request, letter: letter.right }
  }
  const writtenAhead = (request: Request): Letter | undefined => {
    const letter = ahead?.request === request ? ahead.letter : undefined
    ahead = undefined
    return letter
  }

  const asking = Effect.unsafeMakeSemaphore(1)
  /** Until there is a good result, or none can come any more. */
  const whenProven: Effect.Effect<void> = Effect.suspend(() =>
    proven !== undefined || open.size === 0
      ? Effect.void
      : Effect.zipRight(Deferred.await((heard ??= Deferred.unsafeMake<void>(FiberId.none))), whenProven),
  )
  /** Found out once, however many pieces of a batch are in doubt. */
  const guardsNumbers: Effect.Effect<boolean> = asking.withPermits(1)(
    Effect.gen(function* () {
      const known = (yield* Ref.get(learnt)).guardsNumbers
      if (Option.isSome(known)) return known.value
      yield* whenProven
      const used = proven
      // 0 is the number of the creation, but not every server counts it: there only a refusal says something.
      const found = yield* options.probe({
        seq: used?.seq ?? 0,
        requestId: Option.map(Option.fromNullable(used), ({ requestId }) => requestId),
      })
      if (Option.isSome(found) && (found.value || used !== undefined)) yield* learn({ guardsNumbers: found })
      return Option.getOrElse(found, () => false)
    }),
  )

  /** May something be sent again of which it is not known whether it arrived? */
  const mayResend = (call: Call): Effect.Effect<boolean> => {
    if (call.repeatable || options.whenUnknown === "resend") return Effect.succeed(true)
    return options.whenUnknown === "stop" ? Effect.succeed(false) : guardsNumbers
  }

  /**
   * A server that reads JSON only may stumble over its own refusal of protobuf and answer 500. Then nothing was done,
   * and there is no doubt.
   */
  const isStumbling = (letter: Letter, error: SubmitError): Effect.Effect<boolean> =>
    letter.form.wire === "protobuf" && error._tag === "Unavailable" && error.reason === "ServerError"
      ? Effect.flatMap(
          Ref.get(learnt),
          // Another piece may have found it out by now.
          ({ wire }) =>
            Option.match(wire, {
              onNone: () => options.readsOnlyJson,
              onSome: (wire) => Effect.succeed(wire === "json"),
            }),
        )
      : Effect.succeed(false)

  /** A letter on its way, again and again within the budget. Afterwards it is known whether its fate is. */
  const mailing = (call: Call, letter: Letter, doubtful: boolean): Mailing => {
    let inDoubt = doubtful
    let unread = false
    const mayRetry = (error: TinkerError) =>
      Effect.gen(function* () {
        yield* call.onDelay(error)
        if (!isUncertain(error)) return true
        unread = !inDoubt && (yield* isStumbling(letter, error))
        if (unread) return false
        inDoubt = true
        const asked = "shouldRetry" in error && Option.contains(error.shouldRetry, true)
        return asked || (yield* mayResend(call))
      })
    return {
      options: { idempotencyKey: letter.idempotencyKey, mayRetry },
      accepted: ({ requestId }, took) => ({
        seq: letter.seq,
        requestId,
        submittedIn: took,
        doubtful: inDoubt,
      }),
      refused: (error) =>
        // Where nothing is retried it was not asked about.
        Effect.map(inDoubt || unread ? Effect.succeed(unread) : isStumbling(letter, error), (unread) => ({
          error,
          unread,
          inDoubt: !unread && (inDoubt || isUncertain(error)),
        })),
    }
  }

  const arrival = (
    { accepted, refused }: Mailing,
    sent: Effect.Effect<Accepted, TinkerError>,
    took: () => number,
  ): Effect.Effect<Either.Either<Acknowledged, Failure>> =>
    Effect.matchEffect(sent, {
      onSuccess: (answer) => Effect.succeed(Either.right(accepted(answer, took()))),
      onFailure: (error) => Effect.map(refused(error), Either.left),
    })

  const post = (call: Call, letter: Letter, doubtful: boolean): Effect.Effect<Either.Either<Acknowledged, Failure>> =>
    Effect.withFiberRuntime((fiber) => {
      const took = stopwatch(fiber)
      const mail = mailing(call, letter, doubtful)
      return arrival(mail, letter.form.send(letter.rendered, mail.options), took)
    })

  const conclude = (call: Call, seq: number, { error, inDoubt }: Failure): Outcome => {
    if (inDoubt) {
      return call.named && isConflict(error) ? { _tag: "Used", error } : { _tag: "Lost", applied: "unknown", error }
    }
    return isConflict(error) && !call.named
      ? { _tag: "Lost", applied: "no", error }
      : { _tag: "Free", seq, error, refused: isRefusal(error) }
  }

  const outcomeOf = (call: Call, seq: number, result: Either.Either<Acknowledged, Failure>): Outcome =>
    Either.match(result, {
      onRight: (acknowledged): Outcome => ({ _tag: "Acknowledged", acknowledged }),
      onLeft: (failure) => conclude(call, seq, failure),
    })

  /** Another letter in place of one that was refused: another form, or another number. */
  const instead = (
    call: Call,
    chunk: number,
    refused: Letter,
    form: Form,
    seq: number,
  ): Effect.Effect<Either.Either<Acknowledged, Failure>> =>
    Effect.gen(function* () {
      const letter = yield* letterOf(form, seq)
      yield* exchange(call, chunk, refused, letter)
      const result = yield* post(call, letter, false)
      // What was refused may be sent once more: then it must be in the journal again.
      if (Either.isLeft(result) && !result.left.inDoubt) yield* exchange(call, chunk, letter, refused)
      return result
    }).pipe(Effect.catchAll((error) => Effect.succeed(Either.left<Failure>({ error, unread: false, inDoubt: false }))))

  /** In the journal, one letter takes the place of another. */
  const exchange = (call: Call, chunk: number, old: Letter, now: Letter): Effect.Effect<void, SubmitError> =>
    Option.isNone(journal)
      ? Effect.void
      : write([
          ...(old.seq === now.seq ? [] : [{ record: { _tag: "Withdrawn", seq: old.seq } as const }]),
          entryOf(call, chunk, now),
        ])

  /**
   * A conflict over a number that nobody else should have. Two kinds of server explain it: one on which a refused
   * request uses its number, and one on which a failed one does not.
   */
  const renumber = (call: Call, chunk: number, letter: Letter): Effect.Effect<Option.Option<Outcome>> =>
    Effect.gen(function* () {
      const [firstFailed] = failed
      let unrefused = letter.seq
      while (reused.has(unrefused)) unrefused++
      const candidates = [
        ...(unrefused > letter.seq ? [unrefused] : []),
        ...(firstFailed !== undefined && firstFailed < letter.seq ? [firstFailed] : []),
      ]
      for (const seq of candidates) {
        const result = yield* instead(call, chunk, letter, letter.form, seq)
        const conflict = Either.isLeft(result) && isConflict(result.left.error) && !result.left.inDoubt
        if (conflict) continue
        // Whatever it says of the request, it has let the number pass.
        if (seq > letter.seq) yield* learn({ refusedUsesNumber: true })
        if (Either.isRight(result)) {
          failed = failed.filter((other) => other !== seq)
          retake = undefined
        }
        return Option.some(outcomeOf(call, seq, result))
      }
      return Option.none()
    })

  /**
   * The same letter three times more: a server may need a moment, to forget a connection that was lost or to come to an
   * end with a request that goes before.
   */
  const insist = (
    call: Call,
    chunk: number,
    letter: Letter,
    failure: Failure,
    mayRenumber: boolean,
    [delay, ...delays]: ReadonlyArray<number> = conflictDelays,
  ): Effect.Effect<Outcome> =>
    Effect.gen(function* () {
      if (mayRenumber && !failure.inDoubt) {
        const renumbered = yield* renumber(call, chunk, letter)
        if (Option.isSome(renumbered)) return renumbered.value
      }
      if (delay === undefined) return conclude(call, letter.seq, failure)
      if (isConflict(failure.error)) yield* call.onDelay(failure.error)
      const result = yield* Effect.delay(post(call, letter, failure.inDoubt), delay)
      return Either.isLeft(result) && isConflict(result.left.error)
        ? yield* insist(call, chunk, letter, result.left, mayRenumber, delays)
        : outcomeOf(call, letter.seq, result)
    })

  /** A form that the server reads, if it does not read this one. */
  const reword = (call: Call, chunk: number, letter: Letter, { error, unread }: Failure) =>
    Effect.gen(function* () {
      const leaner = letter.form.render(letter.seq)
      if (Endpoint.differs(letter.rendered, leaner))
        return Option.some(yield* instead(call, chunk, letter, letter.form, letter.seq))
      const { wire } = yield* Ref.get(learnt)
      const other = call.requests[chunk]?.forms.find((form) =>
        Option.match(wire, { onNone: () => form.wire === "json", onSome: (wire) => form.wire === wire }),
      )
      if (other === undefined || other.wire === letter.form.wire || !(unread || isDislikedForm(error)))
        return Option.none()
      const result = yield* instead(call, chunk, letter, other, letter.seq)
      // Refused both ways: then it was not the form, and the first answer is the one that tells why.
      if (Either.isLeft(result) && !result.left.inDoubt && !unread) return Option.none()
      if (Either.isRight(result) && Option.isNone(wire)) yield* learn({ wire: Option.fromNullable(other.wire) })
      return Option.some(result)
    })

  /** One request, to the end of all that can be tried. */
  const deliver = (
    call: Call,
    chunk: number,
    letter: Letter,
    how: { readonly doubtful: boolean; readonly mayRenumber: boolean },
    sent = post(call, letter, how.doubtful),
  ): Effect.Effect<Outcome> =>
    Effect.gen(function* () {
      const result = yield* sent
      if (Either.isRight(result)) {
        const { wire } = letter.form
        if (wire !== undefined && Option.isNone((yield* Ref.get(learnt)).wire))
          yield* learn({ wire: Option.some(wire) })
        return outcomeOf(call, letter.seq, result)
      }
      const failure = result.left
      if (isConflict(failure.error)) return yield* insist(call, chunk, letter, failure, how.mayRenumber)
      if (failure.inDoubt) return conclude(call, letter.seq, failure)
      const reworded =
        failure.unread || isRefusal(failure.error) ? yield* reword(call, chunk, letter, failure) : Option.none()
      return outcomeOf(
        call,
        letter.seq,
        Option.getOrElse(reworded, () => result),
      )
    })

  const formIn = (request: Request, wire: Learnt["wire"]): Form =>
    Option.isNone(wire)
      ? request.forms[0]
      : (request.forms.find((form) => form.wire === wire.value) ?? request.forms[0])

  const formFor = (request: Request): Effect.Effect<Form> =>
    Effect.map(Ref.get(learnt), ({ wire }) => formIn(request, wire))

  /** In its place among all that is being submitted: its bytes exist only while it is. */
  const submitChunk = (
    call: Call,
    chunk: number,
    seq: number,
    prepared: Letter | undefined,
    mayRenumber: boolean,
  ): Effect.Effect<Outcome> =>
    Effect.suspend(() => {
      const request = call.requests[chunk]
      if (request === undefined) return Effect.dieMessage(`no chunk ${chunk}`)
      const sent = Effect.flatMap(Ref.get(learnt), (known): Effect.Effect<Outcome, SubmitError> => {
        const form = formIn(request, known.wire)
        const written = prepared ?? writtenAhead(request)
        const isCurrent = written !== undefined && written.seq === seq && written.form.wire === form.wire
        const letter = isCurrent ? Either.right(written) : letterOf(form, seq)
        if (Either.isLeft(letter)) return Effect.fail(letter.left)
        const isLearnt = form.wire === undefined || Option.isSome(known.wire)
        spoken = Option.getOrUndefined(known.wire)
        // An earlier piece has changed its number, or found out what the server reads.
        return prepared === undefined || isCurrent
          ? sendLetter(call, chunk, letter.right, mayRenumber, isLearnt)
          : Effect.zipRight(
              write([entryOf(call, chunk, letter.right)]),
              sendLetter(call, chunk, letter.right, mayRenumber, isLearnt),
            )
      })
      return Effect.catchAll(limiter.training(request.bytes)(sent), (error) =>
        Effect.succeed<Outcome>({ _tag: "Free", seq, error, refused: false }),
      )
    })

  /** Of the common one, which is accepted at once and teaches nothing, only the waiting is left to a fiber. */
  const sendLetter = (
    call: Call,
    chunk: number,
    letter: Letter,
    mayRenumber: boolean,
    isLearnt: boolean,
  ): Effect.Effect<Outcome> => {
    const how = { doubtful: false, mayRenumber }
    const settled = (delivered: Effect.Effect<Outcome>) =>
      Effect.flatMap(delivered, (outcome): Effect.Effect<Outcome> =>
        outcome._tag === "Acknowledged"
          ? Effect.as(acknowledge(call, chunk, outcome.acknowledged), outcome)
          : Effect.succeed(outcome),
      )
    return Effect.withFiberRuntime((fiber) => {
      const { dispatch } = letter.form
      if (dispatch === undefined || isTraced(fiber) || !isLearnt || Option.isSome(journal))
        return settled(deliver(call, chunk, letter, how))
      const took = stopwatch(fiber)
      const mail = mailing(call, letter, false)
      const release = releasing(letter.rendered)
      following = call.requests.length === 1 ? letter.seq + 1 : undefined
      return awaited<Outcome, never>((end) =>
        dispatch(fiber, letter.rendered, { ...mail.options, onBodySent: release }, (result) => {
          following = undefined
          const exit = exitOf(result)
          if (exit === undefined || Exit.isFailure(exit)) {
            // What is learnt from it the next one has to know.
            ahead = undefined
            return end(settled(deliver(call, chunk, letter, how, arrival(mail, result, took))))
          }
          release()
          const acknowledged = mail.accepted(exit.value, took())
          end(
            // What goes wrong with it is the matter of who waits, not of who brought the answer.
            attempt(() => {
              remember(call, chunk, acknowledged, fiber)
              return { _tag: "Acknowledged", acknowledged }
            }),
          )
        }),
      )
    })
  }

  const remember = (
    call: Call,
    chunk: number,
    acknowledged: Acknowledged,
    fiber: Fiber.RuntimeFiber<unknown, unknown>,
  ): void => {
    const { seq } = acknowledged
    if (newest === undefined || newest.seq < seq) newest = acknowledged
    open.add(seq)
    for (const other of reused) if (other <= seq) reused.delete(other)
    call.onAcknowledged(chunk, acknowledged, fiber)
  }

  const acknowledge = (call: Call, chunk: number, acknowledged: Acknowledged): Effect.Effect<void> =>
    // The server has it: what follows must not be left out.
    Effect.uninterruptible(
      Effect.withFiberRuntime((fiber) => {
        remember(call, chunk, acknowledged, fiber)
        return note({ _tag: "Acknowledged", seq: acknowledged.seq, requestId: acknowledged.requestId })
      }),
    )

  const refuse = (seq: number) =>
    Effect.map(Ref.get(learnt), ({ refusedUsesNumber }) => {
      if (refusedUsesNumber) next = seq + 1
      else reused.add(seq)
    })

  /** One piece after the other, from this one on. */
  const serially = (
    call: Call,
    letters: ReadonlyArray<Letter> | undefined,
    chunk = 0,
  ): Effect.Effect<void, SubmitError> => {
    if (chunk === call.requests.length) return withdrawFrom(next, letters)
    const seq = next
    return Effect.flatMap(submitChunk(call, chunk, seq, letters?.[chunk], chunk === 0), (outcome) => {
      const inPart = chunk > 0 && !call.separable
      switch (outcome._tag) {
        case "Acknowledged":
          next = outcome.acknowledged.seq + 1
          return serially(call, letters, chunk + 1)
        case "Free":
          return Effect.zipRight(
            Effect.zipRight(withdrawFrom(next, letters), outcome.refused ? refuse(outcome.seq) : Effect.void),
            Effect.suspend(() =>
              Effect.fail(inPart ? breakAt(operationOf(call), seq, "partial", outcome.error) : outcome.error),
            ),
          )
        case "Used":
          next = seq + 1
          return Effect.fail(outcome.error)
        case "Lost": {
          const applied = inPart && outcome.applied === "no" ? "partial" : outcome.applied
          return Effect.fail(breakAt(operationOf(call), seq, applied, outcome.error))
        }
      }
    })
  }

  /** The first piece last: until it has come, the server does nothing with the others. */
  const inParallel = (call: Call, letters: ReadonlyArray<Letter> | undefined): Effect.Effect<void, SubmitError> =>
    Effect.gen(function* () {
      const first = next
      const later = yield* Effect.forEach(
        call.requests.slice(1),
        (_, index) => submitChunk(call, index + 1, first + index + 1, letters?.[index + 1], false),
        { concurrency: "unbounded" },
      )
      const bad = later.find((outcome) => outcome._tag !== "Acknowledged")
      if (bad !== undefined) {
        const free = later.flatMap((outcome) => (outcome._tag === "Free" ? [outcome] : []))
        if (free.length < later.length) return yield* Effect.fail(breakAt(operationOf(call), first, "no", bad.error))
        // Nothing has arrived at all: all numbers are free.
        yield* withdrawFrom(first, letters)
        for (const { refused, seq } of free) if (refused) reused.add(seq)
        return yield* Effect.fail(bad.error)
      }
      const outcome = yield* submitChunk(call, 0, first, letters?.[0], false)
      if (outcome._tag === "Acknowledged") next = first + call.requests.length
      else
        return yield* Effect.fail(
          breakAt(operationOf(call), first, outcome._tag === "Lost" ? outcome.applied : "no", outcome.error),
        )
    })

  /** Numbers that were written down for pieces and are not used by them. */
  const withdrawFrom = (first: number, letters: ReadonlyArray<Letter> | undefined) =>
    letters === undefined
      ? Effect.void
      : Effect.forEach(
          letters.filter(({ seq }) => seq >= first),
          ({ seq }) => note({ _tag: "Withdrawn", seq }),
          { discard: true },
        )

  /** A piece that can't be written must be found before another one is sent. */
  const checkAll = (call: Call): Effect.Effect<undefined, SubmitError> =>
    call.requests.length === 1
      ? Effect.succeed(undefined)
      : Effect.as(
          Effect.forEach(call.requests, (request) => Effect.flatMap(formFor(request), ({ check }) => check()), {
            discard: true,
          }),
          undefined,
        )

  /** With a journal, all pieces are written down before the first is sent. */
  const writeDown = (call: Call): Effect.Effect<ReadonlyArray<Letter> | undefined, SubmitError> =>
    Option.isNone(journal)
      ? checkAll(call)
      : Effect.gen(function* () {
          const letters = yield* Effect.forEach(call.requests, (request, chunk) =>
            Effect.flatMap(formFor(request), (form) => letterOf(form, next + chunk)),
          )
          yield* write(letters.map((letter, chunk) => entryOf(call, chunk, letter)))
          return letters
        })

  const chooseNext = ({ follows }: Call) => {
    if (retake === undefined || follows) return
    next = retake
    failed = failed.filter((other) => other !== next)
    retake = undefined
  }

  /** A result that the server could not give. */
  const fail = (
    error: FutureError,
    { doubtful, kind, named, seq }: { doubtful: boolean; kind: string; named: boolean; seq: number },
  ) => {
    if (!isConflict(error)) {
      if (proven === undefined || proven.seq < seq) failed = [...failed, seq].toSorted((a, b) => a - b)
      return
    }
    if (named) return
    // Some servers notice only when they come to it. Of what was sent twice the first one may have been applied.
    if (doubtful) broken ??= breakAt(kind, seq, "unknown", error)
    // Nothing since the one that failed has counted: the next call takes its number again.
    else if (failed[0] !== undefined && failed[0] < seq) retake = failed[0]
  }

  const heal = () => {
    if (broken?.applied === "partial") broken = undefined
  }

  const obstacle = ({ heals }: Pick<Call, "heals">): SequenceBroken | undefined =>
    heals && broken?.applied === "partial" ? undefined : broken

  const guarded = (call: Call, submission: () => Effect.Effect<void, SubmitError>): Effect.Effect<void, SubmitError> =>
    Effect.catchAllDefect(
      Effect.suspend(() => {
        const broken = obstacle(call)
        return broken === undefined ? submission() : Effect.fail(broken)
      }),
      (defect) => {
        // Of its words nothing is told: they may hold anything.
        const error = new UnexpectedResponse({ operation: operationOf(call), reason: "Schema", cause: defect })
        return Effect.fail(breakAt(operationOf(call), next, "unknown", error))
      },
    )

  return {
    submit: (call) =>
      guarded(call, () => {
        chooseNext(call)
        // Where it is not certain which number is next, one piece after the other finds out.
        const isCertain = reused.size === 0 && failed.length === 0
        const send = call.parallel && call.requests.length > 1 && isCertain ? inParallel : serially
        return Option.isNone(journal) && call.requests.length === 1
          ? send(call, undefined)
          : Effect.flatMap(writeDown(call), (letters) => send(call, letters))
      }),
    resend: (call, letters) =>
      guarded(call, () =>
        Effect.gen(function* () {
          for (const [chunk, { idempotencyKey, rendered, seq }] of letters.entries()) {
            const form = call.requests[chunk]?.forms[0]
            if (form === undefined) return
            const outcome: Outcome =
              Option.isSome(rendered) && (yield* mayResend(call))
                ? yield* deliver(
                    call,
                    chunk,
                    { seq, idempotencyKey, form, rendered: rendered.value },
                    { doubtful: true, mayRenumber: false },
                  )
                : { _tag: "Lost", applied: "unknown", error: neverKnown(form.operation, Option.isSome(rendered)) }
            if (outcome._tag === "Used") return yield* Effect.fail(outcome.error)
            if (outcome._tag !== "Acknowledged") {
              const applied = outcome._tag === "Lost" ? outcome.applied : "unknown"
              return yield* Effect.fail(breakAt(form.operation, seq, applied, outcome.error))
            }
            yield* acknowledge(call, chunk, { ...outcome.acknowledged, doubtful: true })
          }
        }),
      ),
    prepare,
    broken: Effect.sync(() => Option.fromNullable(broken)),
    obstacle,
    settled: ({ doubtful, requestId, seq }, { kind, named }, exit) => {
      open.delete(seq)
      if (Exit.isSuccess(exit)) {
        if (proven === undefined || proven.seq < seq) proven = { seq, requestId }
        failed = failed.filter((other) => other > seq)
      } else {
        const error = Option.getOrUndefined(Cause.failureOption(exit.cause))
        if (error !== undefined && isFailedResult(error)) fail(error, { doubtful, kind, named, seq })
      }
      if (heard !== undefined) Deferred.unsafeDone(heard, Exit.void)
      heard = undefined
    },
    lastCheckpoint: () => lastCheckpoint,
    saved: (path) => {
      lastCheckpoint = Option.some(path)
    },
    heal,
  }
}

/** What the sending of a letter has to know, and what comes of it. */
interface Mailing {
  readonly options: CallOptions
  readonly accepted: (answer: Accepted, took: number) => Acknowledged
  readonly refused: (error: SubmitError) => Effect.Effect<Failure>
}

const stopwatch = (fiber: Fiber.RuntimeFiber<unknown, unknown>): (() => number) => {
  const { uptime } = timeOf(fiber)
  const before = uptime()
  return () => uptime() - before
}

interface Failure {
  readonly error: SubmitError
  /** The server can't read this form at all. */
  readonly unread: boolean
  readonly inDoubt: boolean
}

/** Why what was about to be sent before a restart is not sent again. */
const neverKnown = (operation: string, kept: boolean) =>
  new Unavailable({
    operation,
    reason: "Disconnected",
    detail: `it is not known whether it was sent before the restart, and ${
      kept ? "this server may do it twice" : "the request was not kept"
    }`,
  })

const operationOf = (call: Call): string => call.requests[0]?.forms[0].operation ?? call.kind

/** Did the server try and fail? That its result was not waited for says nothing. */
const isFailedResult = (error: FutureError): boolean =>
  isRefusal(error) || (error._tag === "RequestFailed" && error.reason !== "PollerDied")
