/** Every reachable state of one or two samples of a client against a modelled server, limiter and clock. */
import { describe, expect, it } from "@effect/vitest"
import { Duration } from "effect"
import { TinkerError } from "effect-tinker"
import type * as Core from "../../src/internal/core/Sample.js"
import { explore, type Found, type Move, startCoverage, without } from "./Exploration.ts"

const coverage = startCoverage()
const Sample: typeof Core = await import("../../src/internal/core/Sample.js")

type Handle = (client: Core.Client, state: Core.State, event: Core.Event) => Core.Step

const failure: Core.Failure = {
  reason: "failure",
  isRateLimited: false,
  isBillingStop: false,
  isConflict: false,
  isRetryable: true,
  isMisfit: false,
  retryAfter: undefined,
}

/** Refusals of a submission that the server does not accept. */
const refusals = {
  notSent: failure,
  retryAfter: { ...failure, retryAfter: 7_000 },
  rateLimited: { ...failure, isRateLimited: true },
  rateLimitedFor: { ...failure, isRateLimited: true, retryAfter: 3_000 },
  rateLimitedForGood: { ...failure, isRateLimited: true, isRetryable: false },
  billing: { ...failure, isBillingStop: true, isRetryable: false },
  conflict: { ...failure, isConflict: true },
  misfit: { ...failure, isMisfit: true },
  rejected: { ...failure, isRetryable: false },
} as const satisfies Record<string, Core.Failure>
type Refusal = keyof typeof refusals

const otherFaults = [
  // The server accepts the sample, and the response is lost.
  "lost",
  "joinFailed",
  "denied",
  "failed",
  "expired",
  "stalled",
  "progress",
  "earlyTimer",
  "silent",
  "stopped",
  "closed",
  "died",
] as const
type Fault = Refusal | (typeof otherFaults)[number]
const allFaults: ReadonlyArray<Fault> = [...(Object.keys(refusals) as ReadonlyArray<Refusal>), ...otherFaults]

/** Faults that a sample survives. */
const survivable: ReadonlyArray<Fault> = [
  "notSent",
  "retryAfter",
  "rateLimited",
  "rateLimitedFor",
  "billing",
  "conflict",
  "lost",
  "joinFailed",
  "expired",
  "progress",
  "earlyTimer",
]

interface Program {
  readonly samples: number
  /** How many samples may be under way at once. */
  readonly places: number
  readonly isJoined: boolean
  readonly settings: Core.Settings
  readonly faults: ReadonlyArray<Fault>
  readonly maxFaults: number
}

interface One {
  readonly state: Core.State
  readonly place: "none" | "wanted" | "held"
  readonly gate: "none" | "wanted" | "held"
  readonly isJoining: boolean
  readonly sending: number | undefined
  readonly backOff: number | undefined
  readonly polling: string | undefined
  readonly timer: number | undefined
  readonly limit: number | undefined
  readonly shown: string
  readonly cancelled: ReadonlyArray<string>
  readonly completed: ReadonlyArray<Core.Outcome>
  readonly isLate: boolean
  /** The number that the next submission must have: the server may have accepted it. */
  readonly mustSend: number | undefined
  /** Numbers that the next submission must not have. */
  readonly mustNotSend: ReadonlyArray<number>
  /** The model's own counters. */
  readonly rounds: number
  readonly setbacks: number
  readonly misfits: number
  readonly reported: string
}

interface World {
  readonly client: Core.Client
  readonly clientShown: string
  readonly all: ReadonlyArray<One>
  readonly now: number
  readonly faultsLeft: number
  /** Which sample the server accepted under which number, in the order of its requests. */
  readonly accepted: ReadonlyArray<{ readonly number: number; readonly sample: number; readonly isRunning: boolean }>
  readonly billingSince: number | undefined
  readonly billingLast: number
}

const bytes = 1_000
const startOf = (settings: Core.Settings): One => ({
  state: Sample.initial(settings),
  place: "none",
  gate: "none",
  isJoining: false,
  sending: undefined,
  backOff: undefined,
  polling: undefined,
  timer: undefined,
  limit: undefined,
  shown: "queued/",
  cancelled: [],
  completed: [],
  isLate: false,
  mustSend: undefined,
  mustNotSend: [],
  rounds: 0,
  setbacks: 0,
  misfits: 0,
  reported: "",
})

const billingPause = 4_000
const base = 100
const initialOf = ({ isJoined, maxFaults, samples, settings }: Program): World => ({
  client: Sample.initialClient(isJoined ? base : undefined, billingPause),
  clientShown: "active",
  all: Array.from({ length: samples }, () => startOf(settings)),
  now: 1_000,
  faultsLeft: maxFaults,
  accepted: [],
  billingSince: undefined,
  billingLast: 0,
})

const fail = (problem: string): never => {
  throw new Error(problem)
}

const stateText = (state: string, reason: string | undefined) => `${state}/${reason ?? ""}`
const requestId = (index: number) => `request-${index}`

/** Commands that may follow the end of a sample, in the same step. */
const closing = new Set<Core.Command["_tag"]>(["LeaveGate", "Leave", "CancelOnServer"])

/** Performs a command of one sample; throws on a command that must never be issued. */
const performOne = (one: One, command: Core.Command, { accepted, now }: World, index: number): One => {
  if (one.completed.length > 0 && !closing.has(command._tag)) fail(`${command._tag} after the end`)
  const isIdle = !one.isJoining && one.sending === undefined && one.polling === undefined
  switch (command._tag) {
    case "Enter":
      return one.place === "none" ? { ...one, place: "wanted" } : fail("enters twice")
    case "Leave":
      return one.place === "none" ? fail("leaves no place") : { ...one, place: "none" }
    case "Join":
      return isIdle ? { ...one, isJoining: true } : fail("joins beside other work")
    case "StopJoining":
      return one.isJoining ? { ...one, isJoining: false } : fail("stops no join")
    case "Admit":
      if (command.bytes !== bytes) fail("asks for another size")
      return one.gate === "none" && one.place === "held" ? { ...one, gate: "wanted" } : fail("is at the gate twice")
    case "LeaveGate":
      return one.gate === "none" ? fail("leaves no gate") : { ...one, gate: "none" }
    case "Send": {
      const { number } = command
      if (!isIdle || one.gate !== "held") fail("sends without its turn")
      if (accepted.some((other) => other.number === number && other.sample !== index)) fail("takes another's number")
      if (one.mustSend !== undefined && one.mustSend !== number) fail("changes an uncertain number")
      if (one.mustNotSend.includes(number)) fail("repeats a used number")
      if (number < base) fail("sends a number before the first")
      return { ...one, sending: number }
    }
    case "StopSending":
      return one.sending === undefined ? fail("stops no submission") : { ...one, sending: undefined }
    case "BackOff":
      return one.gate === "held" ? { ...one, backOff: command.millis } : fail("backs off outside the gate")
    case "ReportAccepted": {
      const isFirst = one.state.requestIds.length === 1
      if (isFirst !== (command.queuedFor !== undefined)) fail("reports the queue time not exactly once")
      return { ...one, reported: `${one.reported} accepted ${command.requestId}` }
    }
    case "Poll":
      return isIdle ? { ...one, polling: command.requestId } : fail("polls beside other work")
    case "StopPolling":
      return one.polling === undefined ? fail("stops no poll") : { ...one, polling: undefined }
    case "Wait":
      return command.millis >= 0 ? { ...one, timer: now + command.millis } : fail("waits a negative time")
    case "SetLimit":
      return { ...one, limit: now + command.millis }
    case "StopTimers":
      return { ...one, timer: undefined, limit: undefined }
    case "Show":
      return { ...one, shown: stateText(command.state, command.reason) }
    case "ReportWait":
      return { ...one, reported: `${one.reported} waits ${command.state}` }
    case "CancelOnServer":
      return { ...one, cancelled: [...one.cancelled, command.requestId] }
    case "Complete":
      return { ...one, completed: [...one.completed, command.outcome] }
    case "ShowClient":
      return one
  }
}

/** Returns the violated invariant of a sample between two events, if any. */
const invariantOf = (one: One): string | undefined => {
  const { state } = one
  const isWorking = one.isJoining || one.sending !== undefined || one.polling !== undefined
  if (one.completed.length > 0) {
    if (one.completed.length > 1) return "ends twice"
    if (isWorking) return "work outlives the end"
    if (one.place !== "none" || one.gate !== "none") return "a place outlives the end"
    if (one.timer !== undefined || one.limit !== undefined) return "a timer outlives the end"
    return undefined
  }
  if (state.phase === "Created") return undefined
  const isWaiting = one.place === "wanted" || one.gate === "wanted" || one.timer !== undefined
  if (!isWorking && !isWaiting && one.backOff === undefined) return "stuck"
  if (one.limit === undefined && Number.isFinite(state.settings.deadline)) return "no limit"
  return one.shown === stateText(state.queueState, state.queueReason) ? undefined : "the shown state is not the state"
}

const change = (world: World, index: number, one: Partial<One>): World => ({
  ...world,
  all: world.all.map((other, i) => (i === index ? { ...other, ...one } : other)),
})

const oneOf = (world: World, index: number): One => world.all[index] ?? fail("no such sample")

/** Delays before the first, second and third submission after a failure, with the jitter in the middle. */
const retryDelays = [20, 250, 1_000, 2_000, 4_000]
const expiredDelays = [500, 1_000, 2_000]

type Check = (after: World, one: One) => string | undefined
const waitsFor =
  (millis: number | undefined, name: string): Check =>
  ({ now }, { completed, reported, timer }) => {
    if (completed.length > 0) return `ends as ${completed[0]}`
    if (!reported.endsWith(`waits ${name}`)) return `does not report ${name}`
    return timer === now + (millis ?? Number.NaN) ? undefined : `waits until ${timer}, not for ${millis}`
  }
const endsAs =
  (outcome: Core.Outcome): Check =>
  (_after, { completed }) =>
    completed[0] === outcome ? undefined : `ends as ${completed[0]}, not as ${outcome}`
const cancels =
  (ids: ReadonlyArray<string>): Check =>
  (_after, { cancelled }) =>
    cancelled.join() === ids.join() ? undefined : `cancels ${cancelled.join()}, not ${ids.join()}`
const both =
  (first: Check, second: Check): Check =>
  (after, one) =>
    first(after, one) ?? second(after, one)

const modelOf = (program: Program, handle: Handle) => {
  const { settings } = program
  const may = (world: World, fault: Fault) => world.faultsLeft > 0 && program.faults.includes(fault)
  const spend = (world: World): World => ({ ...world, faultsLeft: world.faultsLeft - 1 })

  const settle = (world: World, index: number, event: Core.Event, check: Check = () => undefined) => {
    try {
      const { client, commands, state } = handle(world.client, oneOf(world, index).state, event)
      let after: World = change({ ...world, client }, index, { state })
      for (const command of commands) {
        if (command._tag === "ShowClient") {
          if (command.state === after.clientShown) fail("shows the client's state again")
          after = { ...after, clientShown: command.state }
        }
        after = change(after, index, performOne(oneOf(after, index), command, after, index))
      }
      const one = oneOf(after, index)
      if (after.clientShown !== client.queueState) fail("the client's state is not shown")
      return { to: after, violation: check(after, one) ?? invariantOf(one) }
    } catch (error) {
      return { to: world, violation: error instanceof Error ? error.message : String(error) }
    }
  }

  /** Checks a failed submission against the model's own records. */
  const afterRefusal = (world: World, index: number, name: Refusal | "lost"): Check => {
    const one = oneOf(world, index)
    const refusal: Core.Failure = name === "lost" ? failure : refusals[name]
    if (name === "rejected" || name === "rateLimitedForGood") return endsAs("Failure")
    if (name === "rateLimited" || name === "rateLimitedFor")
      return backsOff("paused_rate_limit", refusal.retryAfter ?? 1_000)
    if (name === "billing") {
      const isOver = world.now - (world.billingSince ?? world.now) >= billingPause
      return isOver ? endsAs("Failure") : backsOff("paused_billing", 5_000)
    }
    if (!settings.mayResubmit || (name === "misfit" && one.misfits >= 3)) return endsAs("Failure")
    return waitsFor(refusal.retryAfter ?? retryDelays[one.setbacks], "unreachable")
  }
  const backsOff =
    (state: string, millis: number): Check =>
    (_after, { backOff, reported }) => {
      if (!reported.endsWith(`waits ${state}`)) return `does not report ${state}`
      return backOff === millis ? undefined : `backs off for ${backOff}, not for ${millis}`
    }

  /** Updates the model's own records after a refusal. */
  const refused = (world: World, index: number, name: Refusal | "lost", number: number): World => {
    const one = oneOf(world, index)
    const isPause = ["rateLimited", "rateLimitedFor", "billing"].includes(name)
    const isTaken = name === "conflict" && one.rounds > 1
    const isForgotten = world.now - world.billingLast > 300_000
    const billing =
      name === "billing"
        ? {
            billingSince: isForgotten ? world.now : (world.billingSince ?? world.now),
            billingLast: world.now,
          }
        : {}
    return change({ ...world, ...billing }, index, {
      sending: undefined,
      mustSend: isTaken ? undefined : number,
      mustNotSend: isTaken ? [...one.mustNotSend, number] : one.mustNotSend,
      setbacks: one.setbacks + (isPause ? 0 : 1),
      misfits: one.misfits + (name === "misfit" ? 1 : 0),
    })
  }

  const submissionMoves = (world: World, index: number, number: number): ReadonlyArray<Move<World>> => {
    const { now } = world
    const isNew = !world.accepted.some((other) => other.number === number)
    const accepted = isNew ? [...world.accepted, { number, sample: index, isRunning: true }] : world.accepted
    const at = accepted.findIndex((other) => other.number === number)
    const taken = change({ ...world, accepted, billingSince: undefined, billingLast: 0 }, index, {
      sending: undefined,
      mustSend: undefined,
    })
    const isReported: Check = (_after, { polling, reported }) =>
      polling === requestId(at) && reported.endsWith(`accepted ${requestId(at)}`) ? undefined : "does not poll"
    const moves: Array<Move<World>> = [
      { name: "accepted", ...settle(taken, index, { _tag: "Accepted", requestId: requestId(at), now }, isReported) },
    ]
    for (const [name, refusal] of Object.entries(refusals) as ReadonlyArray<[Refusal, Core.Failure]>) {
      if (!may(world, name)) continue
      const next = refused(spend(world), index, name, number)
      const event: Core.Event = { _tag: "Refused", failure: refusal, now, random: 0.5 }
      moves.push({
        name,
        ...settle(next, index, event, (after, one) =>
          afterRefusal({ ...next, all: world.all }, index, name)(after, one),
        ),
      })
    }
    if (may(world, "lost")) {
      const next = refused(spend({ ...world, accepted }), index, "lost", number)
      const event: Core.Event = { _tag: "Refused", failure, now, random: 0.5 }
      moves.push({ name: "lost", ...settle(next, index, event, afterRefusal(world, index, "lost")) })
    }
    return moves
  }

  /** Handles the server's final response to a request. */
  const finish = (world: World, index: number, id: string, more: Partial<One> = {}): World =>
    change(
      {
        ...world,
        accepted: world.accepted.map((request, i) =>
          requestId(i) === id ? { ...request, isRunning: false } : request,
        ),
      },
      index,
      { polling: undefined, ...more },
    )

  const pollMoves = (world: World, index: number, id: string): ReadonlyArray<Move<World>> => {
    const { now } = world
    const one = oneOf(world, index)
    const finished = finish(world, index, id)
    const success = both(endsAs("Result"), cancels([]))
    const moves: Array<Move<World>> = [{ name: "done", ...settle(finished, index, { _tag: "Done", now }, success) }]
    if (may(world, "failed")) {
      const event: Core.Event = { _tag: "PollFailed", isFinal: true, now }
      moves.push({ name: "failed", ...settle(spend(finished), index, event, both(endsAs("Failure"), cancels([]))) })
    }
    if (may(world, "stalled")) {
      const event: Core.Event = { _tag: "PollFailed", isFinal: false, now }
      const next = change(spend(world), index, { polling: undefined })
      moves.push({ name: "stalled", ...settle(next, index, event, both(endsAs("Failure"), cancels([id]))) })
    }
    if (may(world, "progress")) {
      const event = { _tag: "Progressed", polls: one.state.polls + 1, state: "active", reason: undefined } as const
      const shows =
        (text: string): Check =>
        (_after, { shown, state }) =>
          shown === text && state.polls === event.polls ? undefined : "does not show the progress"
      const same = { ...event, state: one.state.queueState, reason: one.state.queueReason }
      moves.push({ name: "progress", ...settle(spend(world), index, event, shows("active/")) })
      moves.push({ name: "same progress", ...settle(spend(world), index, same, shows(one.shown)) })
    }
    if (may(world, "expired")) {
      const lost = finish(spend(world), index, id, {
        setbacks: one.setbacks + 1,
        mustNotSend: [...one.mustNotSend, one.state.number ?? 0],
      })
      const event: Core.Event = { _tag: "Expired", reason: "gone", now, random: 0.5 }
      const check = settings.mayResubmit
        ? waitsFor(expiredDelays[one.setbacks], "expired")
        : both(endsAs("Failure"), cancels([]))
      moves.push({ name: "expired", ...settle(lost, index, event, check) })
    }
    return moves
  }

  const workMoves = (world: World, index: number): ReadonlyArray<Move<World>> => {
    const { now } = world
    const one = oneOf(world, index)
    const moves: Array<Move<World>> = []
    const held = world.all.filter(({ place }) => place === "held").length
    if (one.place === "wanted" && held < program.places) {
      const rounds = program.isJoined || world.client.isJoined ? 1 : 0
      moves.push({
        name: "place",
        ...settle(change(world, index, { place: "held", rounds }), index, { _tag: "PlaceGranted" }),
      })
    }
    if (one.gate === "wanted") {
      const check: Check = (_after, { sending }) => (sending === undefined ? "does not send" : undefined)
      moves.push({
        name: "admitted",
        ...settle(change(world, index, { gate: "held" }), index, { _tag: "Admitted", now }, check),
      })
    }
    if ((one.place === "wanted" || one.gate === "wanted") && may(world, "denied")) {
      moves.push({ name: "denied", ...settle(spend(world), index, { _tag: "Denied", now }, endsAs("Failure")) })
    }
    if (one.isJoining) {
      const idle = change(world, index, { isJoining: false })
      const joined = change(idle, index, { rounds: one.rounds + 1 })
      moves.push({ name: "joined", ...settle(joined, index, { _tag: "Joined", first: base }) })
      if (may(world, "joinFailed")) {
        const event: Core.Event = { _tag: "JoinFailed", failure, now, random: 0.5 }
        const check = settings.mayResubmit ? waitsFor(retryDelays[one.setbacks], "unreachable") : endsAs("Failure")
        const next = change(spend(idle), index, { setbacks: one.setbacks + 1 })
        moves.push({ name: "joinFailed", ...settle(next, index, event, check) })
      }
    }
    if (one.sending !== undefined) moves.push(...submissionMoves(world, index, one.sending))
    if (one.polling !== undefined) moves.push(...pollMoves(world, index, one.polling))
    return moves
  }

  /** Opens a window that holds back all samples, or only the refused one. */
  const backOffMoves = (world: World, index: number, millis: number): ReadonlyArray<Move<World>> => {
    const { now } = world
    const next = change(world, index, { backOff: undefined })
    const waits: Check = (_after, { gate, timer }) =>
      gate === "none" && timer === now + millis ? undefined : "does not wait by itself"
    const queues: Check = (_after, { gate }) => (gate === "wanted" ? undefined : "does not queue again")
    return [
      { name: "everyone", ...settle(next, index, { _tag: "BackedOff", everyone: true, millis, now }, queues) },
      { name: "alone", ...settle(next, index, { _tag: "BackedOff", everyone: false, millis, now }, waits) },
    ]
  }

  const timerMoves = (world: World, index: number): ReadonlyArray<Move<World>> => {
    const one = oneOf(world, index)
    const dues = world.all.flatMap(({ limit, timer }) => [limit, timer]).filter((due) => due !== undefined)
    const moves: Array<Move<World>> = []
    if (one.timer !== undefined && one.timer <= Math.min(...dues)) {
      const fired = change(world, index, { timer: undefined })
      if (may(world, "earlyTimer")) {
        const early = { ...spend(fired), now: one.timer - 1 }
        const check: Check = (_after, { timer }) => (timer === one.timer ? undefined : "does not wait on")
        moves.push({ name: "early timer", ...settle(early, index, { _tag: "TimerFired", now: early.now }, check) })
      }
      const now = Math.max(world.now, one.timer)
      const isRound = one.state.next === "Submit" && world.client.isJoined
      const next = change({ ...fired, now }, index, { rounds: one.rounds + (isRound ? 1 : 0) })
      const check: Check = (_after, { gate, isJoining }) =>
        gate === "wanted" || isJoining ? undefined : "does not go on"
      moves.push({ name: "timer", ...settle(next, index, { _tag: "TimerFired", now }, check) })
    }
    // While any other move is possible, only a silent server lets a limit pass.
    const needsFault = one.timer === undefined
    if (one.limit !== undefined && one.limit <= Math.min(...dues) && (!needsFault || may(world, "silent"))) {
      const now = Math.max(world.now, one.limit)
      const stalledAt = Math.max(one.state.startedAt, world.client.lastDone) + settings.stalledAfter
      const deadlineAt = one.state.startedAt + settings.deadline
      const running = one.polling === undefined ? [] : [one.polling]
      const isExtended = now < Math.min(stalledAt, deadlineAt)
      const check: Check = isExtended
        ? (_after, { limit }) => (limit === Math.min(stalledAt, deadlineAt) ? undefined : "does not extend the limit")
        : both(endsAs(now >= deadlineAt ? "DeadlineExceeded" : "Stalled"), cancels(running))
      const next = change({ ...(needsFault ? spend(world) : world), now }, index, { limit: undefined })
      moves.push({ name: "limit", ...settle(next, index, { _tag: "LimitReached", now }, check) })
      if (may(world, "earlyTimer") && one.limit > world.now + 1) {
        const early = { ...spend(world), all: next.all, now: one.limit - 1 }
        const stays: Check = (_after, { limit }) => (limit === undefined ? "ends early" : undefined)
        moves.push({ name: "early limit", ...settle(early, index, { _tag: "LimitReached", now: early.now }, stays) })
      }
    }
    return moves
  }

  const endMoves = (world: World, index: number): ReadonlyArray<Move<World>> => {
    const { now } = world
    const { polling } = oneOf(world, index)
    const running = polling === undefined ? [] : [polling]
    const moves: Array<Move<World>> = []
    const end = (
      fault: Fault,
      _tag: "Stopped" | "Closed" | "Died",
      outcome: Core.Outcome,
      ids: ReadonlyArray<string>,
    ) => {
      if (!may(world, fault)) return
      const next = change(spend(world), index, { backOff: undefined })
      moves.push({ name: fault, ...settle(next, index, { _tag, now }, both(endsAs(outcome), cancels(ids))) })
    }
    end("stopped", "Stopped", "Stopped", running)
    end("closed", "Closed", "Closed", [])
    end("died", "Died", "Failure", running)
    return moves
  }

  /** Late callbacks must have no effect. */
  const lateMoves = (world: World, index: number): ReadonlyArray<Move<World>> => {
    const { now } = world
    const events: ReadonlyArray<Core.Event> = [
      { _tag: "Admitted", now },
      { _tag: "Accepted", requestId: "late", now },
      { _tag: "Done", now },
      { _tag: "TimerFired", now },
      { _tag: "LimitReached", now },
      { _tag: "Stopped", now },
      { _tag: "Closed", now },
    ]
    return events.map((event) => ({
      name: `late ${event._tag}`,
      ...settle(change(world, index, { isLate: true }), index, event),
    }))
  }

  const startMoves = (world: World, index: number): ReadonlyArray<Move<World>> => {
    const check: Check = (_after, { state }) => (state.phase === "Created" ? "does not start" : undefined)
    const at = (now: number) => ({
      name: `start at ${now}`,
      ...settle({ ...world, now }, index, { _tag: "Started", now }, check),
    })
    const isIdle = world.all.every(({ completed, state }) => completed.length > 0 || state.phase === "Created")
    // Starts long after the previous samples.
    return index > 0 && isIdle && world.now < 400_000 ? [at(world.now), at(world.now + 400_000)] : [at(world.now)]
  }

  const movesOf = (world: World, index: number): ReadonlyArray<Move<World>> => {
    const one = oneOf(world, index)
    if (one.completed.length > 0) return one.isLate || program.samples > 1 ? [] : lateMoves(world, index)
    if (one.state.phase === "Created") return startMoves(world, index)
    if (one.backOff !== undefined) return [...backOffMoves(world, index, one.backOff), ...endMoves(world, index)]
    return [...workMoves(world, index), ...timerMoves(world, index), ...endMoves(world, index)]
  }

  const moves = (world: World): ReadonlyArray<Move<World>> => {
    // The window is opened in the same moment.
    const backing = world.all.findIndex(({ backOff }) => backOff !== undefined)
    if (backing >= 0) return movesOf(world, backing)
    // Samples start in their order.
    const next = world.all.findIndex(({ state }) => state.phase === "Created")
    return world.all.flatMap((_, index) => (next >= 0 && index > next ? [] : movesOf(world, index)))
  }
  return { initial: initialOf(program), moves }
}

const cap = 1_500_000
const settings: Core.Settings = { bytes, deadline: 40_000, stalledAfter: 30_000, mayResubmit: true }
const unlimited = { ...settings, deadline: Number.POSITIVE_INFINITY, stalledAfter: Number.POSITIVE_INFINITY }
const one: Program = { samples: 1, places: 1, isJoined: true, settings, faults: allFaults, maxFaults: 2 }

const programs: Readonly<Record<string, Program>> = {
  "one sample": one,
  "one sample that has to join": { ...one, isJoined: false },
  "one sample without limits": { ...one, settings: unlimited },
  "one sample that may not be repeated": { ...one, settings: { ...settings, mayResubmit: false } },
  "one sample with a short deadline": { ...one, settings: { ...settings, deadline: 10_000 } },
  "one sample with responses that do not fit": {
    ...one,
    settings: unlimited,
    faults: ["misfit", "lost"],
    maxFaults: 5,
  },
  "two samples in one place": { ...one, samples: 2, maxFaults: 1 },
  "two samples and billing": { ...one, samples: 2, faults: ["billing", "stopped"], maxFaults: 3 },
  "two samples and lost responses": { ...one, samples: 2, places: 2, faults: ["lost", "conflict", "expired"] },
  "two samples and limits": { ...one, samples: 2, places: 2, faults: ["retryAfter", "silent"] },
  "two samples": { ...one, samples: 2, places: 2 },
}

const run = (program: Program, handle: Handle = Sample.handle): Found<World> => explore(modelOf(program, handle), cap)

const outcomes = ({ ends }: Found<World>) => [
  ...new Set(ends.flatMap(({ all }) => all.flatMap(({ completed }) => completed))),
]

describe("Sample exploration", () => {
  let states = 0
  it.each(Object.entries(programs))(
    "resumes every caller exactly once and releases everything: %s",
    (name, program) => {
      const found = run(program)
      expect(found.violation).toBeUndefined()
      for (const { all } of found.ends) for (const { completed } of all) expect(completed.length).toBe(1)
      states += found.states
      console.log(`Sample, ${name}: ${found.states} states`)
    },
  )

  it("the exploration of samples visits more than 10,000 states", () => {
    console.log(`Sample: ${states} states`)
    expect(states).toBeGreaterThan(10_000)
  })

  it("a sample succeeds without faults, and after every single fault that it survives", () => {
    for (const program of Object.values(programs)) {
      expect(outcomes(run({ ...program, faults: [], maxFaults: 0 }))).toEqual(["Result"])
      if (!program.settings.mayResubmit) continue
      for (const fault of survivable) {
        const found = run({ ...program, faults: [fault], maxFaults: 1 })
        expect([fault, outcomes(found)]).toEqual([fault, ["Result"]])
      }
    }
  })

  it("Sample.failureOf converts an error to plain data", () => {
    const busy = new TinkerError.RateLimited({ operation: "asample", detail: "busy" })
    expect(Sample.failureOf(busy, 7)).toEqual({ ...failure, reason: busy.message, isRateLimited: true, retryAfter: 7 })
    const conflict = new TinkerError.RequestRejected({ operation: "asample", detail: "", reason: "Conflict" })
    expect(Sample.failureOf(conflict, undefined)).toEqual({ ...failure, reason: conflict.message, isConflict: true })
    const rejected = new TinkerError.RequestRejected({ operation: "asample", detail: "", reason: "BadRequest" })
    expect(Sample.failureOf(rejected, undefined)).toMatchObject({ isConflict: false, isRetryable: false })
    const unpaid = new TinkerError.BillingPaused({ operation: "asample", detail: "pay" })
    expect(Sample.failureOf(unpaid, undefined)).toMatchObject({ isBillingStop: true, isRetryable: false })
    const waited = { requestId: "r", requestType: "Sample", queueState: "active", age: Duration.zero, iterations: 1 }
    const expired = new TinkerError.PromiseExpired(waited)
    expect(Sample.pollFailed(expired, 1, 0.5)).toEqual({
      _tag: "Expired",
      reason: expired.message,
      now: 1,
      random: 0.5,
    })
    const stalled = new TinkerError.Stalled(waited)
    expect(Sample.pollFailed(stalled, 1, 0.5)).toEqual({ _tag: "PollFailed", isFinal: false, now: 1 })
    expect(Sample.pollFailed(rejected, 1, 0.5)).toEqual({ _tag: "PollFailed", isFinal: true, now: 1 })
  })

  it("the exploration takes every branch of the sample core", () => {
    const large = { ...failure, isRateLimited: true }
    expect(Sample.rules.rateLimitPause(large, 131_073)).toBe(5_000)
    expect(coverage.untaken("/core/Sample.ts")).toEqual([])
  })
})

describe("Sample mutants", () => {
  const using = (rules: Partial<Core.Rules>): Handle => {
    const changed = { ...Sample.rules, ...rules }
    return (client, state, event) => Sample.handle(client, state, event, changed)
  }
  const ignoring =
    (tag: Core.Event["_tag"]): Handle =>
    (client, state, event) =>
      event._tag === tag ? { client, state, commands: [] } : Sample.handle(client, state, event)
  const dropping =
    (tag: Core.Command["_tag"]): Handle =>
    (client, state, event) => {
      const step = Sample.handle(client, state, event)
      return { ...step, commands: without(step.commands, tag) }
    }

  const ruleMutants: Readonly<Record<keyof Core.Rules, Partial<Core.Rules>>> = {
    billingSince: { billingSince: (_client, now) => now },
    isBillingOver: { isBillingOver: () => false },
    rateLimitPause: { rateLimitPause: () => 1_000 },
    isPause: { isPause: ({ isRateLimited }) => isRateLimited },
    isHopeless: { isHopeless: (_state, { isRetryable }) => !isRetryable },
    isNumberTaken: { isNumberTaken: () => false },
    number: { number: ({ base, used }) => base + used },
    resubmitDelay: { resubmitDelay: (retries) => 500 * 2 ** retries },
    limitAt: { limitAt: (_client, { settings, startedAt }) => startedAt + settings.stalledAfter },
    deadlineAt: { deadlineAt: () => 0 },
    isReached: { isReached: () => true },
    cancels: { cancels: () => true },
  }
  const events: Readonly<Record<Core.Event["_tag"], true>> = {
    Started: true,
    PlaceGranted: true,
    Joined: true,
    JoinFailed: true,
    Admitted: true,
    Accepted: true,
    Refused: true,
    BackedOff: true,
    Progressed: true,
    Done: true,
    PollFailed: true,
    Expired: true,
    TimerFired: true,
    LimitReached: true,
    Denied: true,
    Stopped: true,
    Closed: true,
    Died: true,
  }
  const commands: Readonly<Record<Core.Command["_tag"], true>> = {
    Enter: true,
    Leave: true,
    Join: true,
    StopJoining: true,
    Admit: true,
    LeaveGate: true,
    Send: true,
    StopSending: true,
    BackOff: true,
    ReportAccepted: true,
    Poll: true,
    StopPolling: true,
    Wait: true,
    SetLimit: true,
    StopTimers: true,
    Show: true,
    ShowClient: true,
    ReportWait: true,
    CancelOnServer: true,
    Complete: true,
  }
  const more: ReadonlyArray<readonly [string, Handle]> = [
    ["rule billingSince, never forgotten", using({ billingSince: ({ billing }, now) => billing?.since ?? now })],
    [
      "rule isHopeless, at the first response that does not fit",
      using({ isHopeless: (_state, { isMisfit, isRetryable }) => !isRetryable || isMisfit }),
    ],
    ["rule isNumberTaken, also at the first try", using({ isNumberTaken: (_state, { isConflict }) => isConflict })],
    ["rule number, the same for all", using({ number: ({ base }) => base })],
    [
      "rule resubmitDelay, for lost results as for others",
      using({ resubmitDelay: (retries, _failure, random) => Sample.rules.resubmitDelay(retries, failure, random) }),
    ],
    [
      "rule limitAt, without the success of others",
      using({ limitAt: (client, state) => Sample.rules.limitAt({ ...client, lastDone: 0 }, state) }),
    ],
    ["rule isReached, never", using({ isReached: () => false })],
    ["rule cancels, never", using({ cancels: () => false })],
    [
      "number is kept after an expired result",
      (client, state, event) => {
        const step = Sample.handle(client, state, event)
        return event._tag === "Expired" ? { ...step, state: { ...step.state, number: state.number } } : step
      },
    ],
    [
      "billing stop is not over when a sample is accepted",
      (client, state, event) => {
        const step = Sample.handle(client, state, event)
        return event._tag === "Accepted" ? { ...step, client: { ...step.client, billing: client.billing } } : step
      },
    ],
    [
      "events after the end are handled",
      (client, state, event) =>
        Sample.handle(client, state.phase === "Ended" ? { ...state, phase: "Submitting" } : state, event),
    ],
  ]
  const mutants: ReadonlyArray<readonly [string, Handle]> = [
    ...Object.entries(ruleMutants).map(([name, rules]) => [`rule ${name}`, using(rules)] as const),
    ...(Object.keys(events) as ReadonlyArray<Core.Event["_tag"]>).map(
      (tag) => [`event ${tag} ignored`, ignoring(tag)] as const,
    ),
    ...(Object.keys(commands) as ReadonlyArray<Core.Command["_tag"]>).map(
      (tag) => [`command ${tag} dropped`, dropping(tag)] as const,
    ),
    ...more,
  ]

  it.each(mutants)("kills: %s", (_name, handle) => {
    expect(Object.values(programs).some((program) => run(program, handle).violation !== undefined)).toBe(true)
  })
})
