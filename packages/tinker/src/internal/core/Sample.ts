/**
 * Decides the life of one sample: its place among the samples of the client, its turn at the limiter, the submission,
 * the poll, and submissions after a failure. Deterministic and free of effects: time and randomness arrive in events,
 * and everything to be done leaves as commands. A driver performs the commands of one event in their order before it
 * delivers the next event.
 */
import type { FutureError, TinkerError } from "../../TinkerError.ts"
import { billingInterval, doubling } from "./Delays.ts"
import { isBillingStop, isMisfit, isRetryable, maxMisfitRetries, meaningOf } from "./Response.ts"

/** The state that all samples of a client share. */
export interface Client {
  /** Whether `base` is known. */
  readonly isJoined: boolean
  /** The first sequence number. */
  readonly base: number
  /** How many numbers were used. */
  readonly used: number
  /** When a sample last succeeded; 0 before that. */
  readonly lastDone: number
  /** When the current billing stop began, and when the server last confirmed it. */
  readonly billing: { readonly since: number; readonly last: number } | undefined
  /** Limits a billing stop, in milliseconds. */
  readonly billingPause: number
  /** How submissions fare. */
  readonly queueState: string
}

export interface Settings {
  /** The estimated size of the prompt. */
  readonly bytes: number
  /** Limits the whole sample, in milliseconds; maybe infinite. */
  readonly deadline: number
  /** Limits the time in which no sample of the client succeeds, in milliseconds; maybe infinite. */
  readonly stalledAfter: number
  /** Whether a sample may be submitted again after a failure. */
  readonly mayResubmit: boolean
}

/** Plain data: `JSON.stringify` prints everything that is known about a sample. Times are milliseconds of one clock. */
export interface State {
  readonly phase: "Created" | "Queued" | "Joining" | "Admitting" | "Submitting" | "Polling" | "Waiting" | "Ended"
  readonly settings: Settings
  readonly startedAt: number
  /** The sequence number; kept until the server loses what it accepted, so that nothing is done twice. */
  readonly number: number | undefined
  /** Submissions, without those that a 429 or 402 sent back to the gate. */
  readonly tries: number
  /** Submissions after a failure. */
  readonly retries: number
  /** Responses that do not fit. */
  readonly misfits: number
  /** When the latest submission was sent. */
  readonly sentAt: number
  /** Every accepted request, the latest last. */
  readonly requestIds: ReadonlyArray<string>
  /** The request on which the server still works, as far as is known. */
  readonly running: string | undefined
  readonly polls: number
  /** Holds or waits for a place among the samples of the client. */
  readonly hasPlace: boolean
  /** Holds or waits for a place at the limiter. */
  readonly isAtGate: boolean
  /** When `Waiting` ends, and what follows. */
  readonly until: number
  readonly next: "Admit" | "Submit"
  readonly queueState: string
  readonly queueReason: string | undefined
}

/** Why a submission failed, as far as it matters here. */
export interface Failure {
  readonly reason: string
  readonly isRateLimited: boolean
  readonly isBillingStop: boolean
  readonly isConflict: boolean
  readonly isRetryable: boolean
  /** The response is well-formed and not what the API describes. */
  readonly isMisfit: boolean
  /** The delay that the server asks for, in milliseconds. */
  readonly retryAfter: number | undefined
}

export type Event =
  | { readonly _tag: "Started"; readonly now: number }
  | { readonly _tag: "PlaceGranted" }
  | { readonly _tag: "Joined"; readonly first: number }
  | { readonly _tag: "JoinFailed"; readonly failure: Failure; readonly now: number; readonly random: number }
  | { readonly _tag: "Admitted"; readonly now: number }
  | { readonly _tag: "Accepted"; readonly requestId: string; readonly now: number }
  | { readonly _tag: "Refused"; readonly failure: Failure; readonly now: number; readonly random: number }
  /** The limiter has opened a window; `everyone` if it holds back all samples, not only this one. */
  | { readonly _tag: "BackedOff"; readonly everyone: boolean; readonly millis: number; readonly now: number }
  | { readonly _tag: "Progressed"; readonly polls: number; readonly state: string; readonly reason: string | undefined }
  | { readonly _tag: "Done"; readonly now: number }
  /** The poll failed. `isFinal` unless the server may still work on the request. */
  | { readonly _tag: "PollFailed"; readonly isFinal: boolean; readonly now: number }
  /** The server accepted the request and dropped its result. */
  | { readonly _tag: "Expired"; readonly reason: string; readonly now: number; readonly random: number }
  | { readonly _tag: "TimerFired"; readonly now: number }
  | { readonly _tag: "LimitReached"; readonly now: number }
  /** A gate was closed. */
  | { readonly _tag: "Denied"; readonly now: number }
  /** The caller no longer wants the sample. */
  | { readonly _tag: "Stopped"; readonly now: number }
  /** The client was closed, or its session is lost. */
  | { readonly _tag: "Closed"; readonly now: number }
  /** The driver failed to perform a command. */
  | { readonly _tag: "Died"; readonly now: number }

/** `Failure` is the error that came with the latest event. */
export type Outcome = "Result" | "Failure" | "Stalled" | "DeadlineExceeded" | "Stopped" | "Closed"

export type Command =
  /** Asks for a place among the samples of the client; leads to `PlaceGranted` or `Denied`. */
  | { readonly _tag: "Enter" }
  | { readonly _tag: "Leave" }
  /** Asks for the first sequence number; leads to `Joined` or `JoinFailed`. */
  | { readonly _tag: "Join" }
  | { readonly _tag: "StopJoining" }
  /** Asks for a place at the limiter; leads to `Admitted` or `Denied`. */
  | { readonly _tag: "Admit"; readonly bytes: number }
  | { readonly _tag: "LeaveGate" }
  /** Submits the sample; leads to `Accepted` or `Refused`. */
  | { readonly _tag: "Send"; readonly number: number }
  | { readonly _tag: "StopSending" }
  /** Opens the limiter's window; leads to `BackedOff`. */
  | { readonly _tag: "BackOff"; readonly millis: number }
  /** Reports an accepted request. `queuedFor`, in milliseconds, comes with the first one. */
  | { readonly _tag: "ReportAccepted"; readonly requestId: string; readonly queuedFor: number | undefined }
  /** Polls for the result; leads to `Done`, `PollFailed` or `Expired`, and before that to `Progressed`. */
  | { readonly _tag: "Poll"; readonly requestId: string; readonly submittedIn: number }
  | { readonly _tag: "StopPolling" }
  /** Leads to `TimerFired`. */
  | { readonly _tag: "Wait"; readonly millis: number }
  /** Leads to `LimitReached`; replaces an earlier one. */
  | { readonly _tag: "SetLimit"; readonly millis: number }
  | { readonly _tag: "StopTimers" }
  | { readonly _tag: "Show"; readonly state: string; readonly reason: string | undefined }
  | { readonly _tag: "ShowClient"; readonly state: string; readonly reason: string | undefined }
  /** Reports that the sample waits because of an error. */
  | { readonly _tag: "ReportWait"; readonly state: string; readonly reason: string; readonly now: number }
  | { readonly _tag: "CancelOnServer"; readonly requestId: string }
  /** Ends the sample. `age` is in milliseconds. */
  | { readonly _tag: "Complete"; readonly outcome: Outcome; readonly age: number }

export interface Step {
  readonly client: Client
  readonly state: State
  readonly commands: ReadonlyArray<Command>
}

/** Decisions that tests replace one by one. */
export interface Rules {
  /** Checks whether a billing stop has lasted too long. */
  readonly isBillingOver: (client: Client, since: number, now: number) => boolean
  /** Returns when the billing stop began that a refusal belongs to. */
  readonly billingSince: (client: Client, now: number) => number
  /** Returns how long nothing may be submitted after a 429. */
  readonly rateLimitPause: (failure: Failure, bytes: number) => number
  /** Checks whether a refusal only asks to come back later. */
  readonly isPause: (failure: Failure) => boolean
  /** Checks whether further tries are unlikely to get another response. */
  readonly isHopeless: (state: State, failure: Failure) => boolean
  /** Checks whether another sample, or an earlier try of this one, has used the number. */
  readonly isNumberTaken: (state: State, failure: Failure) => boolean
  /** Returns the number for a submission. */
  readonly number: (client: Client, state: State) => number
  /** Returns the delay before a submission after a failure, in milliseconds. */
  readonly resubmitDelay: (retries: number, failure: Failure | undefined, random: number) => number
  /** Returns when the sample has taken too long; infinite without a limit. */
  readonly limitAt: (client: Client, state: State) => number
  /** Returns when the deadline passes; infinite without one. */
  readonly deadlineAt: (state: State) => number
  /** Checks whether this moment has been reached; timers may fire early. */
  readonly isReached: (moment: number, now: number) => boolean
  /** Checks whether to cancel the request on the server because its result is no longer wanted. */
  readonly cancels: (outcome: Outcome) => boolean
}

/** After this long without a refusal for billing, in milliseconds, the next one begins another stop. */
const billingForgottenAfter = 300_000

export const rules: Rules = {
  billingSince: ({ billing }, now) =>
    billing === undefined || now - billing.last > billingForgottenAfter ? now : billing.since,
  isBillingOver: ({ billingPause }, since, now) => now - since >= billingPause,
  // Longer if the prompt is large.
  rateLimitPause: ({ retryAfter }, bytes) => retryAfter ?? (bytes > 131_072 ? 5_000 : 1_000),
  isPause: ({ isRateLimited, isRetryable }) => isRateLimited && isRetryable,
  isHopeless: ({ misfits }, { isRetryable }) => !isRetryable || misfits > maxMisfitRetries,
  isNumberTaken: ({ tries }, { isConflict }) => isConflict && tries > 1,
  number: ({ base, used }, { number }) => number ?? base + used,
  resubmitDelay: (retries, failure, random) => {
    // A request that the server has lost did reach it: no quick first retry.
    const delay = failure === undefined ? 500 * 2 ** retries : doubling(500, retries, failure.isRateLimited)
    return Math.min(Math.round(Math.min(delay, 10_000) * (0.75 + 0.5 * random)), 10_000)
  },
  limitAt: ({ lastDone }, state) =>
    Math.min(rules.deadlineAt(state), Math.max(state.startedAt, lastDone) + state.settings.stalledAfter),
  deadlineAt: ({ settings, startedAt }) => startedAt + settings.deadline,
  isReached: (moment, now) => now >= moment,
  cancels: (outcome) => outcome !== "Closed",
}

/** Returns what matters about a submission that failed. `retryAfter` is in milliseconds. */
export const failureOf = (error: TinkerError, retryAfter: number | undefined): Failure => ({
  reason: error.message,
  isRateLimited: meaningOf(error) === "Throttled",
  isBillingStop: isBillingStop(error),
  isConflict: meaningOf(error) === "Conflict",
  isRetryable: isRetryable(error),
  isMisfit: isMisfit(error),
  retryAfter,
})

/** Returns the event for a poll that failed. Every error but `Stalled` is the server's last word. */
export const pollFailed = (error: FutureError, now: number, random: number): Event =>
  error._tag === "PromiseExpired"
    ? { _tag: "Expired", reason: error.message, now, random }
    : { _tag: "PollFailed", isFinal: error._tag !== "Stalled", now }

/** `base` is the first sequence number if it is known already. */
export const initialClient = (base: number | undefined, billingPause: number): Client => ({
  isJoined: base !== undefined,
  base: base ?? 0,
  used: 0,
  lastDone: 0,
  billing: undefined,
  billingPause,
  queueState: "active",
})

export const initial = (settings: Settings): State => ({
  phase: "Created",
  settings,
  startedAt: 0,
  number: undefined,
  tries: 0,
  retries: 0,
  misfits: 0,
  sentAt: 0,
  requestIds: [],
  running: undefined,
  polls: 0,
  hasPlace: false,
  isAtGate: false,
  until: 0,
  next: "Submit",
  queueState: "queued",
  queueReason: undefined,
})

const nothing: ReadonlyArray<Command> = []

/** Puts commands before those of a step. */
const after = (commands: ReadonlyArray<Command>, step: Step): Step => ({
  client: step.client,
  state: step.state,
  commands: [...commands, ...step.commands],
})

/** Work that must be stopped when the sample ends in a phase. */
const stops: Partial<Record<State["phase"], Command>> = {
  Joining: { _tag: "StopJoining" },
  Submitting: { _tag: "StopSending" },
  Polling: { _tag: "StopPolling" },
}

/** Ends the sample. The caller is resumed before places are freed, which lets the next samples go. */
const end = (rules: Rules, client: Client, state: State, outcome: Outcome, now: number): Step => {
  const commands: Array<Command> = []
  const stop = stops[state.phase]
  if (stop !== undefined) commands.push(stop)
  commands.push({ _tag: "StopTimers" }, { _tag: "Complete", outcome, age: now - state.startedAt })
  if (state.isAtGate) commands.push({ _tag: "LeaveGate" })
  if (state.hasPlace) commands.push({ _tag: "Leave" })
  if (state.running !== undefined && rules.cancels(outcome)) {
    commands.push({ _tag: "CancelOnServer", requestId: state.running })
  }
  return {
    client: outcome === "Result" ? { ...client, lastDone: now } : client,
    state: { ...state, phase: "Ended", running: undefined, hasPlace: false, isAtGate: false },
    commands,
  }
}

/** Leaves the limiter; the request that held the place there has ended. */
const leaveGate = (client: Client, state: State, phase: State["phase"]): Step => ({
  client,
  state: { ...state, phase, isAtGate: false },
  commands: [{ _tag: "LeaveGate" }],
})

const admit = (client: Client, state: State, tries = state.tries): Step => ({
  client,
  state: { ...state, phase: "Admitting", isAtGate: true, tries },
  commands: [{ _tag: "Admit", bytes: state.settings.bytes }],
})

/** Begins a submission: with the first number, if that is not known yet. */
const submit = (client: Client, state: State): Step =>
  client.isJoined
    ? admit(client, state, state.tries + 1)
    : { client, state: { ...state, phase: "Joining" }, commands: [{ _tag: "Join" }] }

const wait = (client: Client, state: State, millis: number, next: State["next"], now: number): Step => ({
  client,
  state: { ...state, phase: "Waiting", until: now + millis, next },
  commands: [{ _tag: "Wait", millis }],
})

/** Shows why a sample waits. The state of a sample after its acceptance does not affect that of the client. */
const showWait = (client: Client, state: State, queueState: string, reason: string, now: number): Step => {
  const isOfClient = queueState !== "expired" && client.queueState !== queueState
  return {
    client: isOfClient ? { ...client, queueState } : client,
    state: { ...state, queueState, queueReason: reason },
    commands: [
      { _tag: "Show", state: queueState, reason },
      { _tag: "ReportWait", state: queueState, reason, now },
      ...(isOfClient ? [{ _tag: "ShowClient" as const, state: queueState, reason }] : nothing),
    ],
  }
}

/** Applies a step, then another one to what it leaves. */
const then = (step: Step, next: (client: Client, state: State) => Step): Step =>
  after(step.commands, next(step.client, step.state))

/** Submits again after a failure, later. */
const resubmit = (client: Client, state: State, queueState: string, reason: string, delay: number, now: number): Step =>
  then(showWait(client, state, queueState, reason, now), (client, state) =>
    wait(client, { ...state, retries: state.retries + 1 }, delay, "Submit", now),
  )

/** A submission failed: the server does one number only once, so the same number is safe, unless it is taken. */
const onSetback = (
  rules: Rules,
  client: Client,
  before: State,
  failure: Failure,
  { now, random }: { readonly now: number; readonly random: number },
): Step => {
  const isTaken = rules.isNumberTaken(before, failure)
  const misfits = before.misfits + (failure.isMisfit ? 1 : 0)
  const state = { ...before, misfits, number: isTaken ? undefined : before.number }
  if ((!isTaken && rules.isHopeless(state, failure)) || !state.settings.mayResubmit)
    return end(rules, client, state, "Failure", now)
  const delay = failure.retryAfter ?? rules.resubmitDelay(state.retries, failure, random)
  return resubmit(client, state, "unreachable", failure.reason, delay, now)
}

/** The gate is closed before it is left, so the place is still held. */
const pause = (client: Client, state: State, queueState: string, failure: Failure, millis: number, now: number): Step =>
  then(showWait(client, state, queueState, failure.reason, now), (client, state) => ({
    client,
    state: { ...state, phase: "Waiting" },
    commands: [{ _tag: "BackOff", millis }],
  }))

type On<T extends Event["_tag"]> = (
  rules: Rules,
  client: Client,
  state: State,
  event: Extract<Event, { readonly _tag: T }>,
) => Step

const onStarted: On<"Started"> = (rules, client, before, { now }) => {
  const state: State = { ...before, phase: "Queued", startedAt: now, hasPlace: true }
  const millis = rules.limitAt(client, state) - now
  const enter: Command = { _tag: "Enter" }
  return { client, state, commands: Number.isFinite(millis) ? [{ _tag: "SetLimit", millis }, enter] : [enter] }
}

const onJoined: On<"Joined"> = (_rules, client, state, { first }) =>
  submit({ ...client, isJoined: true, base: first }, state)

const onAdmitted: On<"Admitted"> = (rules, client, state, { now }) => {
  const number = rules.number(client, state)
  return {
    client: state.number === undefined ? { ...client, used: client.used + 1 } : client,
    state: { ...state, phase: "Submitting", number, sentAt: now, queueState: "submitting", queueReason: undefined },
    commands: [
      { _tag: "Show", state: "submitting", reason: undefined },
      { _tag: "Send", number },
    ],
  }
}

/** A submission that the server accepts ends a billing stop and whatever else the client was waiting for. */
const reached = (client: Client, commands: Array<Command>): Client => {
  if (client.queueState === "active" && client.billing === undefined) return client
  if (client.queueState !== "active") commands.push({ _tag: "ShowClient", state: "active", reason: undefined })
  return { ...client, billing: undefined, queueState: "active" }
}

const onAccepted: On<"Accepted"> = (_rules, before, state, { now, requestId }) => {
  const commands: Array<Command> = []
  const client = reached(before, commands)
  const queuedFor = state.requestIds.length === 0 ? now - state.startedAt : undefined
  commands.push(
    { _tag: "Show", state: "submitted", reason: undefined },
    { _tag: "ReportAccepted", requestId, queuedFor },
    { _tag: "LeaveGate" },
    { _tag: "Poll", requestId, submittedIn: now - state.sentAt },
  )
  return {
    client,
    state: {
      ...state,
      phase: "Polling",
      isAtGate: false,
      requestIds: [...state.requestIds, requestId],
      running: requestId,
      queueState: "submitted",
      queueReason: undefined,
    },
    commands,
  }
}

const onRefused: On<"Refused"> = (rules, before, state, event) => {
  const { failure, now } = event
  let client = before
  if (failure.isBillingStop) {
    const since = rules.billingSince(before, now)
    client = { ...before, billing: { since, last: now } }
    if (!rules.isBillingOver(client, since, now)) {
      return pause(client, state, "paused_billing", failure, billingInterval, now)
    }
  } else if (rules.isPause(failure)) {
    return pause(client, state, "paused_rate_limit", failure, rules.rateLimitPause(failure, state.settings.bytes), now)
  }
  return then(leaveGate(client, state, "Waiting"), (client, state) => onSetback(rules, client, state, failure, event))
}

/** Waits for the open window: at the gate if it holds back all samples, otherwise on a timer of this sample. */
const onBackedOff: On<"BackedOff"> = (_rules, client, state, { everyone, millis, now }) =>
  then(leaveGate(client, state, "Waiting"), (client, state) =>
    everyone ? admit(client, state) : wait(client, state, millis, "Admit", now),
  )

const onProgressed: On<"Progressed"> = (_rules, client, state, { polls, reason, state: queueState }) => ({
  client,
  state: { ...state, polls, queueState, queueReason: reason },
  commands:
    queueState === state.queueState && reason === state.queueReason
      ? nothing
      : [{ _tag: "Show", state: queueState, reason }],
})

/** The server has spoken about the request: it is no longer running. */
const settled = (state: State): State => ({ ...state, phase: "Waiting", running: undefined })

const onPollFailed: On<"PollFailed"> = (rules, client, state, { isFinal, now }) =>
  end(rules, client, isFinal ? settled(state) : { ...state, phase: "Waiting" }, "Failure", now)

/** The server lost what it accepted. It may have done it, so the next submission has another number. */
const onExpired: On<"Expired"> = (rules, client, before, { now, random, reason }) => {
  const state: State = { ...settled(before), number: undefined }
  if (!state.settings.mayResubmit) return end(rules, client, state, "Failure", now)
  return resubmit(client, state, "expired", reason, rules.resubmitDelay(state.retries, undefined, random), now)
}

const onTimer: On<"TimerFired"> = (rules, client, state, { now }) => {
  const { until } = state
  if (!rules.isReached(until, now)) return { client, state, commands: [{ _tag: "Wait", millis: until - now }] }
  return state.next === "Admit" ? admit(client, state) : submit(client, state)
}

/** Other samples that succeeded meanwhile extend the time without success. */
const onLimit: On<"LimitReached"> = (rules, client, state, { now }) => {
  const limit = rules.limitAt(client, state)
  if (!rules.isReached(limit, now)) return { client, state, commands: [{ _tag: "SetLimit", millis: limit - now }] }
  const isDeadline = rules.isReached(rules.deadlineAt(state), now)
  return end(rules, client, state, isDeadline ? "DeadlineExceeded" : "Stalled", now)
}

/** Returns the next state and what to do about an event. */
export const handle = (client: Client, state: State, event: Event, using: Rules = rules): Step => {
  if (state.phase === "Ended") return { client, state, commands: nothing }
  switch (event._tag) {
    case "Started":
      return onStarted(using, client, state, event)
    case "PlaceGranted":
      return submit(client, state)
    case "Joined":
      return onJoined(using, client, state, event)
    case "JoinFailed":
      return onSetback(using, client, { ...state, phase: "Waiting" }, event.failure, event)
    case "Admitted":
      return onAdmitted(using, client, state, event)
    case "Accepted":
      return onAccepted(using, client, state, event)
    case "Refused":
      return onRefused(using, client, state, event)
    case "BackedOff":
      return onBackedOff(using, client, state, event)
    case "Progressed":
      return onProgressed(using, client, state, event)
    case "Done":
      return end(using, client, settled(state), "Result", event.now)
    case "PollFailed":
      return onPollFailed(using, client, state, event)
    case "Expired":
      return onExpired(using, client, state, event)
    case "TimerFired":
      return onTimer(using, client, state, event)
    case "LimitReached":
      return onLimit(using, client, state, event)
    case "Denied":
    case "Died":
      return end(using, client, state, "Failure", event.now)
    case "Stopped":
      return end(using, client, state, "Stopped", event.now)
    case "Closed":
      return end(using, client, state, "Closed", event.now)
  }
}
