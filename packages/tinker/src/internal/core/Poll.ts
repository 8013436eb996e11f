/**
 * Decides how the result of one request is polled: when to ask again, when to give up, and what to show meanwhile.
 * Deterministic and free of effects: time arrives in events, and everything to be done leaves as commands. A driver
 * performs the commands of one event in their order before it delivers the next event.
 */
import { billingInterval, doubling } from "./Delays.ts"
import type { PollResponse } from "./PollResponse.ts"
import { maxMisfitRetries } from "./Response.ts"

export interface Settings {
  /** Limits the whole poll, in milliseconds; maybe infinite. */
  readonly deadline: number
  /** Limits the time without news from the server, in milliseconds; maybe infinite. */
  readonly stalledAfter: number
  /** Limits the time for which billing may block the account, in milliseconds. */
  readonly billingPause: number
}

/** Plain data: `JSON.stringify` prints everything that is known about a poll. Times are milliseconds of one clock. */
export interface State {
  readonly phase: "Created" | "Asking" | "Pausing" | "WaitingForRoom" | "Ended"
  readonly settings: Settings
  readonly startedAt: number
  /** The index of the current or latest poll. */
  readonly iteration: number
  /** When that poll began. */
  readonly askedAt: number
  /** Consecutive polls without a usable response. */
  readonly failures: number
  /** All polls without a usable response. */
  readonly failedPolls: number
  /** Consecutive `Pending` responses that the server did not delay. */
  readonly instants: number
  readonly billingSince: number | undefined
  /** When the first of several unreadable responses arrived, and how many of them were misfits. */
  readonly unreadable: { readonly since: number; readonly misfits: number } | undefined
  /** The size of the result once the server has announced it. From then on polls request the result itself. */
  readonly bytes: number | undefined
  /** Holds or waits for room for a large response. */
  readonly hasRoom: boolean
  /** The last state that the server reported for the request, and when it last changed. */
  readonly news: string
  readonly newsAt: number
  /** When the pause ends, or the wait for a large response. */
  readonly until: number
  readonly queueState: string
  readonly queueReason: string | undefined
}

export type Event =
  | { readonly _tag: "Started"; readonly now: number }
  | { readonly _tag: "Responded"; readonly response: PollResponse; readonly now: number }
  | { readonly _tag: "RoomGranted" }
  | { readonly _tag: "TimerFired"; readonly now: number }
  | { readonly _tag: "DeadlineReached"; readonly now: number }
  /** The caller no longer wants the result. */
  | { readonly _tag: "Stopped" }
  /** The driver failed to perform a command. */
  | { readonly _tag: "Died" }

/**
 * - `Result`: the result of the latest response.
 * - `Failure`: the error of the latest response.
 * - `Expired`: the error of the latest response, converted to one that reports a lost result.
 * - `SizeTwice`: the server announced the size of the result when it was asked for the result.
 */
export type Outcome = "Result" | "Failure" | "Expired" | "SizeTwice" | "Stalled" | "DeadlineExceeded" | "Stopped"

export type Command =
  /** Sends a poll: for the state or a small result, or for a result of known size. */
  | { readonly _tag: "Ask"; readonly iteration: number; readonly bytes: number | undefined }
  | { readonly _tag: "StopAsking" }
  /** Asks for room for a large response; leads to `RoomGranted`. */
  | { readonly _tag: "WaitForRoom"; readonly iteration: number; readonly bytes: number }
  /** Returns the room, or withdraws the request for it. */
  | { readonly _tag: "LeaveRoom" }
  /** Leads to `TimerFired`; replaces an earlier `Wait`. */
  | { readonly _tag: "Wait"; readonly millis: number }
  /** Leads to `DeadlineReached`; replaces an earlier `SetDeadline`. */
  | { readonly _tag: "SetDeadline"; readonly millis: number }
  | { readonly _tag: "StopTimers" }
  | { readonly _tag: "Show"; readonly state: string; readonly reason: string | undefined }
  | { readonly _tag: "Log"; readonly state: string; readonly reason: string | undefined; readonly now: number }
  /** Ends the poll. `age` is in milliseconds. */
  | { readonly _tag: "Complete"; readonly outcome: Outcome; readonly age: number; readonly iterations: number }

export interface Step {
  readonly state: State
  readonly commands: ReadonlyArray<Command>
}

/** Decisions that tests replace one by one. */
export interface Rules {
  /** Returns how long to wait after a poll without a usable response. */
  readonly retryDelay: (response: Extract<PollResponse, { _tag: "Unreachable" }>, failures: number) => number
  /** Returns the state to show after a poll without a usable response. */
  readonly queueState: (response: Extract<PollResponse, { _tag: "Unreachable" }>) => "paused_rate_limit" | "unreachable"
  /** Checks whether responses have been unreadable for too long. */
  readonly isUnreadableOver: (unreadable: NonNullable<State["unreadable"]>, now: number) => boolean
  /** Returns how long to wait after a `Pending` response: a server that holds polls sets the pace itself. */
  readonly pendingDelay: (took: number, instants: number) => number
  /** Checks whether the server reported a new state of the request. */
  readonly isNews: (state: State, response: Extract<PollResponse, { _tag: "Pending" }>) => boolean
  /** Checks whether billing has blocked the account for too long. */
  readonly isBillingOver: (state: State, since: number, now: number) => boolean
  /** Returns how much longer the server may stay silent, in milliseconds. */
  readonly patience: (state: State, now: number) => number
  /** Checks whether the size was announced although the result was requested. */
  readonly isSizeTwice: (state: State) => boolean
  /** Returns what a final response without a result means. */
  readonly failure: (expired: boolean) => Outcome
  /** Checks whether this moment has been reached; timers may fire early. */
  readonly isReached: (moment: number, now: number) => boolean
}

/** A server that holds a poll at least this long sets the pace itself. */
const heldFor = 1_000

/** As long as the retry policy repeats other requests. */
const unreadableLimit = 300_000

export const rules: Rules = {
  retryDelay: ({ isRateLimited, retryAfter }, failures) =>
    retryAfter ?? Math.min(doubling(1_000, failures, isRateLimited), 30_000),
  queueState: ({ isRateLimited }) => (isRateLimited ? "paused_rate_limit" : "unreachable"),
  isUnreadableOver: ({ misfits, since }, now) => misfits > maxMisfitRetries || now - since >= unreadableLimit,
  pendingDelay: (took, instants) => (took >= heldFor ? 0 : Math.min(5 * 2 ** instants, 1_000)),
  isNews: (state, response) => response.state !== "unknown" && newsOf(response) !== state.news,
  isBillingOver: ({ settings }, since, now) => now - since >= settings.billingPause,
  patience: ({ newsAt, settings }, now) => newsAt + settings.stalledAfter - now,
  isSizeTwice: ({ bytes }) => bytes !== undefined,
  failure: (expired) => (expired ? "Expired" : "Failure"),
  isReached: (moment, now) => now >= moment,
}

const newsOf = ({ reason = "", state }: Extract<PollResponse, { _tag: "Pending" }>): string => `${state} ${reason}`

export const initial = (settings: Settings): State => ({
  phase: "Created",
  settings,
  startedAt: 0,
  iteration: 0,
  askedAt: 0,
  failures: 0,
  failedPolls: 0,
  instants: 0,
  billingSince: undefined,
  unreadable: undefined,
  bytes: undefined,
  hasRoom: false,
  news: "",
  newsAt: 0,
  until: 0,
  queueState: "submitted",
  queueReason: undefined,
})

const nothing: ReadonlyArray<Command> = []

const end = (state: State, outcome: Outcome, now: number, iterations: number, isAsking: boolean): Step => {
  const commands: Array<Command> = []
  if (isAsking) commands.push({ _tag: "StopAsking" })
  if (state.hasRoom) commands.push({ _tag: "LeaveRoom" })
  commands.push({ _tag: "StopTimers" })
  commands.push({ _tag: "Complete", outcome, age: now - state.startedAt, iterations })
  return { state: { ...state, phase: "Ended", hasRoom: false }, commands }
}

/** Ends a poll that may be in flight. */
const giveUp = (state: State, outcome: Outcome, now: number): Step =>
  end(state, outcome, now, state.iteration, state.phase === "Asking")

/** Puts commands before those of a step. */
const after = (commands: ReadonlyArray<Command>, step: Step): Step =>
  commands.length === 0 ? step : { state: step.state, commands: [...commands, ...step.commands] }

/** Begins the poll with this index. */
const ask = (rules: Rules, state: State, iteration: number, now: number): Step => {
  const { bytes } = state
  if (bytes === undefined) {
    return {
      state: { ...state, phase: "Asking", iteration, askedAt: now },
      commands: [{ _tag: "Ask", iteration, bytes }],
    }
  }
  // The time without news also covers the transfer of a large result.
  const patience = Math.max(0, rules.patience(state, now))
  const isLimited = Number.isFinite(patience)
  return {
    state: {
      ...state,
      phase: "WaitingForRoom",
      iteration,
      askedAt: now,
      hasRoom: true,
      until: now + patience,
      queueState: "waiting_for_room",
      queueReason: undefined,
    },
    commands: [
      { _tag: "WaitForRoom", iteration, bytes },
      ...show(state, "waiting_for_room", undefined),
      ...(isLimited ? [{ _tag: "Wait" as const, millis: patience }] : nothing),
    ],
  }
}

const show = (state: State, queueState: string, reason: string | undefined): ReadonlyArray<Command> =>
  state.queueState === queueState && state.queueReason === reason
    ? nothing
    : [{ _tag: "Show", state: queueState, reason }]

/** Applies the queue state that a response brings. */
const shown = (state: State, queueState: string, reason: string | undefined, now: number): Step => ({
  state: { ...state, queueState, queueReason: reason },
  commands: [...show(state, queueState, reason), { _tag: "Log", state: queueState, reason, now }],
})

/** Waits before the next poll, but not longer than the server may stay silent. */
const pause = (rules: Rules, state: State, delay: number, patience: number, now: number): Step => {
  if (patience <= 0) return end(state, "Stalled", now, state.iteration + 1, false)
  if (delay <= 0) return ask(rules, state, state.iteration + 1, now)
  const millis = Math.min(delay, patience)
  return { state: { ...state, phase: "Pausing", until: now + millis }, commands: [{ _tag: "Wait", millis }] }
}

type Handled<T extends PollResponse["_tag"]> = (
  rules: Rules,
  state: State,
  response: Extract<PollResponse, { readonly _tag: T }>,
  now: number,
) => Step

const onPending: Handled<"Pending"> = (rules, before, response, now) => {
  const { commands, state } = shown(before, response.state, response.reason, now)
  const delay = rules.pendingDelay(now - state.askedAt, state.instants)
  const next: State = {
    ...state,
    ...(rules.isNews(state, response) ? { news: newsOf(response), newsAt: now } : {}),
    failures: 0,
    instants: delay === 0 ? 0 : state.instants + 1,
    billingSince: undefined,
    unreadable: undefined,
  }
  return after(commands, pause(rules, next, delay, rules.patience(next, now), now))
}

const onUnreachable: Handled<"Unreachable"> = (rules, before, response, now) => {
  const { commands, state } = shown(before, rules.queueState(response), response.reason, now)
  const delay = rules.retryDelay(response, state.failures)
  const next: State = {
    ...state,
    failures: state.failures + 1,
    failedPolls: state.failedPolls + 1,
    instants: 0,
  }
  return after(commands, pause(rules, next, delay, rules.patience(next, now), now))
}

/** The server may have the result and send it again. */
const onUnreadable: Handled<"Unreadable"> = (rules, before, { isMisfit, reason }, now) => {
  const { misfits, since } = before.unreadable ?? { misfits: 0, since: now }
  const unreadable = { since, misfits: misfits + (isMisfit ? 1 : 0) }
  if (rules.isUnreadableOver(unreadable, now)) return end(before, "Failure", now, before.iteration, false)
  const unreachable = { _tag: "Unreachable", reason, isRateLimited: false, retryAfter: undefined } as const
  return onUnreachable(rules, { ...before, unreadable }, unreachable, now)
}

const onBillingPaused: Handled<"BillingPaused"> = (rules, before, { reason }, now) => {
  const { commands, state } = shown(before, "paused_billing", reason, now)
  const billingSince = state.billingSince ?? now
  if (rules.isBillingOver(state, billingSince, now))
    return after(commands, end(state, "Failure", now, state.iteration, false))
  const next: State = { ...state, failures: 0, instants: 0, billingSince, unreadable: undefined }
  // The billing limit replaces the limit on silence.
  return after(commands, pause(rules, next, billingInterval, Number.POSITIVE_INFINITY, now))
}

const onSize: Handled<"Size"> = (rules, state, { bytes }, now) => {
  if (rules.isSizeTwice(state)) return end(state, "SizeTwice", now, state.iteration, false)
  const next: State = {
    ...state,
    failures: 0,
    instants: 0,
    billingSince: undefined,
    unreadable: undefined,
    bytes,
    newsAt: now,
  }
  return ask(rules, next, state.iteration + 1, now)
}

const onResponse = (
  rules: Rules,
  state: State,
  response: Exclude<PollResponse, { readonly _tag: "Done" | "Failed" }>,
  now: number,
): Step => {
  switch (response._tag) {
    case "Pending":
      return onPending(rules, state, response, now)
    case "Size":
      return onSize(rules, state, response, now)
    case "Unreachable":
      return onUnreachable(rules, state, response, now)
    case "Unreadable":
      return onUnreadable(rules, state, response, now)
    case "BillingPaused":
      return onBillingPaused(rules, state, response, now)
  }
}

const onStarted = (rules: Rules, state: State, now: number): Step => {
  const { deadline } = state.settings
  const limit: ReadonlyArray<Command> = Number.isFinite(deadline)
    ? [{ _tag: "SetDeadline", millis: deadline }]
    : nothing
  return after(limit, ask(rules, { ...state, startedAt: now, newsAt: now }, 0, now))
}

const onResponded = (rules: Rules, state: State, response: PollResponse, now: number): Step => {
  if (response._tag === "Done") return end(state, "Result", now, state.iteration, false)
  if (response._tag === "Failed") return end(state, rules.failure(response.expired), now, state.iteration, false)
  // Room is held only while a response is transferred.
  const idle: State = { ...state, phase: "Pausing", hasRoom: false }
  return after(state.hasRoom ? [{ _tag: "LeaveRoom" }] : nothing, onResponse(rules, idle, response, now))
}

const onTimer = (rules: Rules, state: State, now: number): Step => {
  const { phase, until } = state
  if (!rules.isReached(until, now)) return { state, commands: [{ _tag: "Wait", millis: until - now }] }
  return phase === "Pausing" ? ask(rules, state, state.iteration + 1, now) : giveUp(state, "Stalled", until)
}

const onDeadline = (rules: Rules, state: State, now: number): Step => {
  const deadline = state.startedAt + state.settings.deadline
  return rules.isReached(deadline, now)
    ? giveUp(state, "DeadlineExceeded", now)
    : { state, commands: [{ _tag: "SetDeadline", millis: deadline - now }] }
}

/** Returns the next state and what to do about an event. */
export const handle = (state: State, event: Event, using: Rules = rules): Step => {
  if (state.phase === "Ended") return { state, commands: nothing }
  switch (event._tag) {
    case "Started":
      return onStarted(using, state, event.now)
    case "Responded":
      return onResponded(using, state, event.response, event.now)
    case "RoomGranted":
      return {
        state: { ...state, phase: "Asking" },
        commands: [{ _tag: "Ask", iteration: state.iteration, bytes: state.bytes }],
      }
    case "TimerFired":
      return onTimer(using, state, event.now)
    case "DeadlineReached":
      return onDeadline(using, state, event.now)
    case "Stopped":
      return giveUp(state, "Stopped", state.askedAt)
    case "Died":
      return giveUp(state, "Failure", state.askedAt)
  }
}
