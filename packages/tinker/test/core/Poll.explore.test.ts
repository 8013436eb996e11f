/** Every reachable state of a poll against a modelled server, room and clock. */
import { describe, expect, it } from "@effect/vitest"
import type * as Core from "../../src/internal/core/Poll.js"
import type { PollResponse } from "../../src/internal/core/PollResponse.js"
import { explore, type Found, type Move, startCoverage, without } from "./Exploration.ts"

const coverage = startCoverage()
const Poll: typeof Core = await import("../../src/internal/core/Poll.js")

type Handle = (state: Core.State, event: Core.Event) => Core.Step

/** The faults, each of which may happen once. */
const faults = {
  unreachable: { _tag: "Unreachable", reason: "503", isRateLimited: false, retryAfter: undefined },
  rateLimited: { _tag: "Unreachable", reason: "429", isRateLimited: true, retryAfter: undefined },
  retryAfter: { _tag: "Unreachable", reason: "503", isRateLimited: false, retryAfter: 7_000 },
  unreadable: { _tag: "Unreadable", reason: "html", isMisfit: false },
  misfit: { _tag: "Unreadable", reason: "schema", isMisfit: true },
  billing: { _tag: "BillingPaused", reason: "402" },
  unknown: { _tag: "Pending", state: "unknown", reason: undefined },
  failed: { _tag: "Failed", expired: false },
  expired: { _tag: "Failed", expired: true },
} as const satisfies Record<string, PollResponse>
type Fault = keyof typeof faults | "earlyTimer" | "earlyDeadline" | "sizeTwice" | "stopped" | "died" | "silent"

/** Faults that a poll survives. */
const survivable = [
  "unreachable",
  "rateLimited",
  "retryAfter",
  "unreadable",
  "misfit",
  "billing",
  "unknown",
  "earlyTimer",
] as const

interface Program {
  readonly settings: Core.Settings
  readonly faults: ReadonlyArray<Fault>
  readonly maxFaults: number
  /** How many `Pending` responses the server sends at most. */
  readonly pendings?: number
}

interface World {
  readonly poll: Core.State
  readonly now: number
  readonly faultsLeft: number
  /** `Pending` responses that the server may still send. */
  readonly pendings: number
  readonly isAsked: boolean
  readonly askedAt: number
  readonly room: "none" | "wanted" | "held"
  readonly timer: number | undefined
  readonly deadline: number | undefined
  readonly shown: string
  readonly completed: ReadonlyArray<Core.Outcome>
  /** Whether it received an event after its end. */
  readonly isLate: boolean
  /** The model's own records: the last state that the server reported, when it changed, and since when billing blocks. */
  readonly news: string
  readonly newsAt: number
  readonly billingSince: number | undefined
  readonly failures: number
  /** The latest unreadable responses: when they arrived, and whether they were misfits. */
  readonly unreadable: ReadonlyArray<{ readonly at: number; readonly isMisfit: boolean }>
  readonly instants: number
  readonly size: number | undefined
  readonly last: string
}

const initialOf = ({ maxFaults, pendings = 3, settings }: Program): World => ({
  poll: Poll.initial(settings),
  now: 1_000,
  faultsLeft: maxFaults,
  pendings,
  isAsked: false,
  askedAt: 0,
  room: "none",
  timer: undefined,
  deadline: undefined,
  shown: "submitted/",
  completed: [],
  isLate: false,
  news: "",
  newsAt: 1_000,
  billingSince: undefined,
  failures: 0,
  unreadable: [],
  instants: 0,
  size: undefined,
  last: "",
})

const stateText = (state: string, reason: string | undefined) => `${state}/${reason ?? ""}`

/** Performs the commands on the modelled world; throws on a command that must never be issued. */
const perform = (world: World, command: Core.Command): World => {
  const fail = (problem: string): never => {
    throw new Error(problem)
  }
  if (world.completed.length > 0) fail(`${command._tag} after the end`)
  switch (command._tag) {
    case "Ask":
      if (world.isAsked) fail("two polls at once")
      if (command.bytes !== world.size) fail("a poll for another size")
      if ((world.room === "held") !== (command.bytes !== undefined)) fail("a large poll without room")
      return { ...world, isAsked: true, askedAt: command.bytes === undefined ? world.now : world.askedAt }
    case "StopAsking":
      return world.isAsked ? { ...world, isAsked: false } : fail("stops no poll")
    case "WaitForRoom":
      return world.room === "none" ? { ...world, room: "wanted", askedAt: world.now } : fail("room twice")
    case "LeaveRoom":
      return world.room === "none" ? fail("leaves no room") : { ...world, room: "none" }
    case "Wait":
      return command.millis >= 0 ? { ...world, timer: world.now + command.millis } : fail("waits a negative time")
    case "SetDeadline":
      return { ...world, deadline: world.now + command.millis }
    case "StopTimers":
      return { ...world, timer: undefined, deadline: undefined }
    case "Show": {
      const shown = stateText(command.state, command.reason)
      return shown === world.shown ? fail("shows a state again") : { ...world, shown }
    }
    case "Log":
      return { ...world, last: `${world.last} logged ${command.state}` }
    case "Complete":
      return { ...world, completed: [...world.completed, command.outcome] }
  }
}

/** Returns the violated invariant between two events, if any. */
const invariant = ({ completed, deadline, isAsked, poll, room, shown, timer }: World): string | undefined => {
  if (completed.length > 0) {
    if (isAsked) return "a poll outlives the end"
    if (room !== "none") return "room outlives the end"
    if (timer !== undefined || deadline !== undefined) return "a timer outlives the end"
  } else {
    if (!isAsked && room !== "wanted" && timer === undefined && poll.phase !== "Created") return "stuck"
    if (Number.isFinite(poll.settings.deadline) && deadline === undefined && poll.phase !== "Created")
      return "no deadline"
  }
  return shown === stateText(poll.queueState, poll.queueReason) ? undefined : "the shown state is not the state"
}

const retryDelays = [20, 250, 2_000, 4_000, 8_000, 16_000, ...Array.from({ length: 20 }, () => 30_000)]
const rateLimitDelays = [1_000, 2_000, 4_000]
const pendingDelays = [5, 10, 20, 40, 80, 160]

/** The pause that must follow a response; 0 for none. */
const pauseAfter = (world: World, response: PollResponse): number | undefined => {
  switch (response._tag) {
    case "Unreachable":
      return response.retryAfter ?? (response.isRateLimited ? rateLimitDelays : retryDelays)[world.failures]
    case "Unreadable":
      return retryDelays[world.failures]
    case "BillingPaused":
      return 5_000
    case "Pending":
      return world.now - world.askedAt >= 1_000 ? 0 : pendingDelays[world.instants]
    default:
      return 0
  }
}

/** Updates the model's own records. */
const learn = (world: World, response: PollResponse): World => {
  const base = { ...world, failures: 0, unreadable: [], instants: 0, last: response._tag }
  switch (response._tag) {
    case "Unreachable":
      return { ...base, failures: world.failures + 1, unreadable: world.unreadable }
    case "Unreadable":
      return {
        ...base,
        failures: world.failures + 1,
        unreadable: [...world.unreadable, { at: world.now, isMisfit: response.isMisfit }],
      }
    case "BillingPaused":
      return { ...base, billingSince: world.billingSince ?? world.now }
    case "Size":
      return { ...base, size: response.bytes, newsAt: world.now, billingSince: undefined }
    case "Pending": {
      const words = `${response.state}/${response.reason ?? ""}`
      const isNews = response.state !== "unknown" && words !== world.news
      const isHeld = world.now - world.askedAt >= 1_000
      return {
        ...base,
        billingSince: undefined,
        instants: isHeld ? 0 : world.instants + 1,
        ...(isNews ? { news: words, newsAt: world.now } : {}),
      }
    }
    default:
      return base
  }
}

/** The outcome that must follow a response, if it must end the poll. */
const outcomeAfter = (before: World, after: World, response: PollResponse): Core.Outcome | undefined => {
  const { billingPause, stalledAfter } = after.poll.settings
  switch (response._tag) {
    case "Done":
      return "Result"
    case "Failed":
      return response.expired ? "Expired" : "Failure"
    case "Size":
      return before.size === undefined ? undefined : "SizeTwice"
    case "Unreadable": {
      const since = after.unreadable[0]?.at ?? after.now
      const isOver = after.unreadable.filter(({ isMisfit }) => isMisfit).length > 3 || after.now - since >= 300_000
      return isOver ? "Failure" : after.now - after.newsAt >= stalledAfter ? "Stalled" : undefined
    }
    case "BillingPaused":
      return after.now - (after.billingSince ?? after.now) >= billingPause ? "Failure" : undefined
    default:
      return after.now - after.newsAt >= stalledAfter ? "Stalled" : undefined
  }
}

/** The state that a caller must see after a response that does not end the poll. */
const shownAfter = (response: PollResponse): string | undefined => {
  switch (response._tag) {
    case "Unreachable":
      return stateText(response.isRateLimited ? "paused_rate_limit" : "unreachable", response.reason)
    case "Unreadable":
      return stateText("unreachable", response.reason)
    case "BillingPaused":
      return stateText("paused_billing", response.reason)
    case "Pending":
      return stateText(response.state, response.reason)
    default:
      return undefined
  }
}

const checkResponse = (before: World, after: World, response: PollResponse): string | undefined => {
  const expected = outcomeAfter(before, after, response)
  if (after.completed[0] !== expected) return `ends as ${after.completed[0]} and not as ${expected}`
  const isLogged = after.last.includes("logged")
  const isGivenUp = response._tag === "Unreadable" && expected === "Failure"
  const isWaiting = ["Pending", "Unreachable", "Unreadable", "BillingPaused"].includes(response._tag) && !isGivenUp
  if (isLogged !== isWaiting) return "a state is not logged"
  if (expected !== undefined || response._tag === "Size") return undefined
  const { stalledAfter } = after.poll.settings
  const patience =
    response._tag === "BillingPaused" ? Number.POSITIVE_INFINITY : after.newsAt + stalledAfter - after.now
  const pause = Math.min(pauseAfter(before, response) ?? Number.NaN, patience)
  const shown = shownAfter(response)
  // A large result waits for room, which is shown instead.
  if (shown !== undefined && after.room === "none" && after.shown !== shown) return `shows ${after.shown}, not ${shown}`
  if (pause === 0) return after.isAsked || after.room !== "none" ? undefined : "does not poll at once"
  return after.timer === after.now + pause ? undefined : `waits until ${after.timer}, not for ${pause}`
}

const modelOf = (program: Program, handle: Handle) => {
  const settle = (world: World, event: Core.Event, check: (after: World) => string | undefined = () => undefined) => {
    try {
      const { commands, state } = handle(world.poll, event)
      const after = commands.reduce(perform, { ...world, poll: state })
      return { to: after, violation: check(after) ?? invariant(after) }
    } catch (error) {
      return { to: world, violation: error instanceof Error ? error.message : String(error) }
    }
  }
  const may = (world: World, fault: Fault) => world.faultsLeft > 0 && program.faults.includes(fault)
  const spend = (world: World): World => ({ ...world, faultsLeft: world.faultsLeft - 1 })

  const respond = (name: string, before: World, took: number, response: PollResponse): Move<World> => {
    const now = Math.max(before.now, before.askedAt + took)
    const heard = { ...before, now }
    const learned = { ...learn(heard, response), isAsked: false }
    return {
      name,
      ...settle(learned, { _tag: "Responded", response, now }, (after) => checkResponse(heard, after, response)),
    }
  }

  const responses = (world: World): ReadonlyArray<Move<World>> => {
    const moves = [respond("done", world, 0, { _tag: "Done" })]
    if (world.pendings > 0) {
      const active = { _tag: "Pending", state: "active", reason: undefined } as const
      const waiting = { ...world, pendings: world.pendings - 1 }
      moves.push(respond("pending", waiting, 0, active), respond("held", waiting, 1_000, active))
      moves.push(respond("news", waiting, 1_000, { ...active, reason: `place ${world.pendings}` }))
      if (world.size === undefined) moves.push(respond("size", waiting, 0, { _tag: "Size", bytes: 100 }))
    }
    for (const [fault, response] of Object.entries(faults)) {
      if (may(world, fault as Fault)) moves.push(respond(fault, spend(world), 0, response))
    }
    if (world.size !== undefined && may(world, "sizeTwice")) {
      moves.push(respond("sizeTwice", spend(world), 0, { _tag: "Size", bytes: 100 }))
    }
    return moves
  }

  /** Fires the timer that is due first, possibly too early. */
  const timers = (world: World): ReadonlyArray<Move<World>> => {
    const { deadline = Number.POSITIVE_INFINITY, timer = Number.POSITIVE_INFINITY } = world
    const isDeadline = deadline <= timer
    const due = Math.min(deadline, timer)
    // A server that answers polls does not let a limit pass, unless that is the fault.
    const isLimit = isDeadline || world.poll.phase !== "Pausing"
    if (!Number.isFinite(due)) return []
    const _tag = isDeadline ? ("DeadlineReached" as const) : ("TimerFired" as const)
    const moves: Array<Move<World>> = []
    if (may(world, isDeadline ? "earlyDeadline" : "earlyTimer") && due > world.now + 1) {
      const early = { ...spend(world), now: due - 1, ...(isDeadline ? { deadline: undefined } : { timer: undefined }) }
      const event = { _tag, now: early.now }
      const check = (after: World) => (after.completed.length > 0 ? "ends early" : undefined)
      moves.push({ name: "early timer", ...settle(early, event, check) })
    }
    const needsFault = isLimit && (world.isAsked || world.room !== "none")
    if (needsFault && !may(world, "silent")) return moves
    const late = {
      ...(needsFault ? spend(world) : world),
      now: Math.max(world.now, due),
      ...(isDeadline ? { deadline: undefined } : { timer: undefined }),
    }
    const expected = isDeadline ? "DeadlineExceeded" : isLimit ? "Stalled" : undefined
    const check = (after: World) => (after.completed[0] === expected ? undefined : `ends as ${after.completed[0]}`)
    moves.push({ name: isLimit ? "limit" : "timer", ...settle(late, { _tag, now: late.now }, check) })
    return moves
  }

  const endings = (world: World): ReadonlyArray<Move<World>> =>
    (["stopped", "died"] as const)
      .filter((fault) => may(world, fault))
      .map((fault) => ({
        name: fault,
        ...settle(spend(world), { _tag: fault === "stopped" ? "Stopped" : "Died" }, (after) =>
          after.completed[0] === (fault === "stopped" ? "Stopped" : "Failure") ? undefined : "does not end",
        ),
      }))

  /** Late callbacks must have no effect. */
  const lateEvents = (world: World): ReadonlyArray<Move<World>> => {
    const { now } = world
    const events: ReadonlyArray<Core.Event> = [
      { _tag: "Responded", response: { _tag: "Done" }, now },
      { _tag: "RoomGranted" },
      { _tag: "TimerFired", now },
      { _tag: "DeadlineReached", now },
      { _tag: "Stopped" },
      { _tag: "Died" },
    ]
    return events.map((event) => ({ name: `late ${event._tag}`, ...settle({ ...world, isLate: true }, event) }))
  }

  const moves = (world: World): ReadonlyArray<Move<World>> => {
    if (world.completed.length > 0) return world.isLate ? [] : lateEvents(world)
    if (world.poll.phase === "Created") {
      const started = { ...world, askedAt: world.now }
      const check = (after: World) => (after.poll.phase === "Created" ? "does not start" : undefined)
      return [{ name: "start", ...settle(started, { _tag: "Started", now: world.now }, check) }]
    }
    const room =
      world.room === "wanted" ? [{ name: "room", ...settle({ ...world, room: "held" }, { _tag: "RoomGranted" }) }] : []
    // A closed gate answers like a failed response.
    const closed =
      world.room === "wanted" && may(world, "failed") ? [respond("gate closed", spend(world), 0, faults.failed)] : []
    return [...(world.isAsked ? responses(world) : []), ...room, ...closed, ...timers(world), ...endings(world)]
  }
  return { initial: initialOf(program), moves }
}

const cap = 400_000
const limited: Core.Settings = { deadline: 40_000, stalledAfter: 3_000, billingPause: 5_000 }
const unlimited: Core.Settings = {
  deadline: Number.POSITIVE_INFINITY,
  stalledAfter: Number.POSITIVE_INFINITY,
  billingPause: 5_000,
}
const patient: Core.Settings = { deadline: 1_000_000, stalledAfter: 60_000, billingPause: 60_000 }
const all: ReadonlyArray<Fault> = [
  ...(Object.keys(faults) as ReadonlyArray<keyof typeof faults>),
  "earlyTimer",
  "earlyDeadline",
  "sizeTwice",
  "stopped",
  "died",
  "silent",
]

const run = (program: Program, handle: Handle = Poll.handle): Found<World> => explore(modelOf(program, handle), cap)

const outcomes = ({ ends }: Found<World>) => [...new Set(ends.flatMap(({ completed }) => completed))].toSorted()

const programs: ReadonlyArray<Program> = [
  ...[limited, unlimited].map((settings) => ({ settings, faults: all, maxFaults: 2 })),
  { settings: unlimited, faults: ["unreachable", "unreadable", "misfit"], maxFaults: 6, pendings: 1 },
  { settings: unlimited, faults: ["unreadable"], maxFaults: 20, pendings: 0 },
]

describe("Poll exploration", () => {
  it("a poll resumes its caller exactly once and releases everything, with up to two faults", () => {
    let states = 0
    for (const program of programs) {
      const found = run(program)
      expect(found.violation).toBeUndefined()
      for (const { completed } of found.ends) expect(completed.length).toBe(1)
      states += found.states
    }
    console.log(`Poll: ${states} states`)
    expect(states).toBeGreaterThan(1_000)
  })

  it("a poll succeeds without faults, and after every single fault that it survives", () => {
    for (const settings of [patient, unlimited]) {
      expect(outcomes(run({ settings, faults: [], maxFaults: 0 }))).toEqual(["Result"])
      for (const fault of survivable) {
        expect([fault, outcomes(run({ settings, faults: [fault], maxFaults: 1 }))]).toEqual([fault, ["Result"]])
      }
    }
  })

  it("the exploration takes every branch of the poll core", () => {
    expect(coverage.untaken("/core/Poll.ts")).toEqual([])
  })
})

describe("Poll mutants", () => {
  const using = (rules: Partial<Core.Rules>): Handle => {
    const changed = { ...Poll.rules, ...rules }
    return (state, event) => Poll.handle(state, event, changed)
  }
  const ignoring =
    (tag: Core.Event["_tag"]): Handle =>
    (state, event) =>
      event._tag === tag ? { state, commands: [] } : Poll.handle(state, event)
  const dropping =
    (tag: Core.Command["_tag"]): Handle =>
    (state, event) => {
      const step = Poll.handle(state, event)
      return { state: step.state, commands: without(step.commands, tag) }
    }

  const ruleMutants: Readonly<Record<keyof Core.Rules, Partial<Core.Rules>>> = {
    retryDelay: { retryDelay: () => 20 },
    queueState: { queueState: () => "unreachable" },
    isUnreadableOver: { isUnreadableOver: () => false },
    pendingDelay: { pendingDelay: (_took, instants) => 5 * 2 ** instants },
    isNews: { isNews: () => true },
    isBillingOver: { isBillingOver: () => false },
    patience: { patience: () => Number.POSITIVE_INFINITY },
    isSizeTwice: { isSizeTwice: () => false },
    failure: { failure: () => "Failure" },
    isReached: { isReached: () => true },
  }
  const eventMutants: ReadonlyArray<Core.Event["_tag"]> = [
    "Started",
    "Responded",
    "RoomGranted",
    "TimerFired",
    "DeadlineReached",
    "Stopped",
    "Died",
  ]
  const commandMutants: ReadonlyArray<Core.Command["_tag"]> = [
    "Ask",
    "StopAsking",
    "WaitForRoom",
    "LeaveRoom",
    "Wait",
    "SetDeadline",
    "StopTimers",
    "Show",
    "Log",
    "Complete",
  ]
  const more: ReadonlyArray<readonly [string, Handle]> = [
    [
      "rule retryDelay, without the server's delay",
      using({
        retryDelay: (response, failures) => Poll.rules.retryDelay({ ...response, retryAfter: undefined }, failures),
      }),
    ],
    ["rule queueState, always throttled", using({ queueState: () => "paused_rate_limit" })],
    ["rule isUnreadableOver, at once", using({ isUnreadableOver: () => true })],
    ["rule isUnreadableOver, without a limit in time", using({ isUnreadableOver: ({ misfits }) => misfits > 3 })],
    [
      "rule isUnreadableOver, misfits for as long as other responses",
      using({ isUnreadableOver: (unreadable, now) => Poll.rules.isUnreadableOver({ ...unreadable, misfits: 0 }, now) }),
    ],
    ["rule pendingDelay, always at once", using({ pendingDelay: () => 0 })],
    [
      "rule isNews, also from an unknown state",
      using({ isNews: ({ news }, { reason = "", state }) => `${state} ${reason}` !== news }),
    ],
    ["rule isBillingOver, at once", using({ isBillingOver: () => true })],
    ["rule isReached, never", using({ isReached: () => false })],
    [
      "rule: handles events after the end",
      (state, event) => Poll.handle(state.phase === "Ended" ? { ...state, phase: "Asking" } : state, event),
    ],
  ]
  const mutants: ReadonlyArray<readonly [string, Handle]> = [
    ...Object.entries(ruleMutants).map(([name, rules]) => [`rule ${name}`, using(rules)] as const),
    ...eventMutants.map((tag) => [`event ${tag} ignored`, ignoring(tag)] as const),
    ...commandMutants.map((tag) => [`command ${tag} dropped`, dropping(tag)] as const),
    ...more,
  ]

  it.each(mutants)("kills: %s", (_name, handle) => {
    // The last program has the fewest states by far.
    expect([...programs.slice(-1), ...programs].some((program) => run(program, handle).violation !== undefined)).toBe(
      true,
    )
  })
})
