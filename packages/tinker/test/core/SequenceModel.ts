/**
 * The world around the core: a program of operations, a driver, a network that may fail, a journal and a server. A
 * world is plain data; `moves` lists everything that can happen next, and each move checks what the core commands.
 */
import * as Option from "effect/Option"
import type {
  Command,
  Encoding,
  Event,
  Failure,
  JournalEntry,
  OnUnknownOutcome,
  Operation,
  Outcome,
  Piece,
  ServerTraits,
  Start,
  State,
} from "../../src/internal/core/SequenceState.js"
import { ledger, startOf } from "../../src/internal/training/Ledger.js"
import * as TrainingJournal from "../../src/TrainingJournal.js"
import * as Server from "./ModelServer.ts"

/** The core, or a mutant of it. */
export interface Core {
  readonly initial: (
    options: { readonly journaled: boolean; readonly onUnknownOutcome: OnUnknownOutcome },
    start?: Start,
  ) => State
  readonly handle: (state: State, event: Event) => Array<Command>
  readonly noTraits: Readonly<ServerTraits>
}

/** An operation of the program that the user runs. */
export interface Step {
  readonly kind: "pass" | "optim" | "save" | "load" | "forward"
  readonly pieces: number
  readonly parallel: boolean
  /** An optimizer step that must not be sent without the pass before it. */
  readonly follows: boolean
  /** The name that a save asks for belongs to another checkpoint. */
  readonly taken: boolean
}

export interface Budget {
  readonly faults: number
  readonly crashes: number
  readonly cancels: number
  readonly closes: number
}

export interface Scenario {
  readonly program: ReadonlyArray<Step>
  readonly server: Server.Traits
  readonly journaled: boolean
  readonly onUnknownOutcome: OnUnknownOutcome
  readonly budget: Budget
  /** The faults that can happen; all of them if undefined. */
  readonly faults?: ReadonlyArray<Fault> | undefined
  /** How many operations wait in the queue; one, if undefined. */
  readonly queued?: number | undefined
  /** The journal does not keep the bytes of requests, so that they can't be sent again. */
  readonly forgetsBytes?: boolean | undefined
  /** Keeps the events that the client received, to compare worlds that look the same to it. */
  readonly traced?: boolean | undefined
}

/**
 * The faults of a request, a probe, a check of the encoding or a write of the journal.
 *
 * - `garbled`, `garbledBefore`: the response can't be read, which the transport does not retry. It comes from the server
 *   after it acted, or from something in front of it.
 * - `late`: the client hears of a lost connection, and the request arrives at any later time.
 * - `error`, `errorAfter`: a 500, before or after the server acted.
 * - `asksForRetry`, `asksAfter`: a 500 that asks for a retry. A server that deduplicates may have acted.
 * - `rejectLost`, `failLost`, `failError`: rejected, or accepted and bound to fail, and the response is lost or a 500.
 */
export type Fault =
  | "notSent"
  | "lostBefore"
  | "lostAfter"
  | "garbled"
  | "garbledBefore"
  | "late"
  | "error"
  | "errorAfter"
  | "asksForRetry"
  | "asksAfter"
  | "reject"
  | "badRequest"
  | "unknownField"
  | "conflict"
  | "fails"
  | "expires"
  | "rejectLost"
  | "failLost"
  | "failError"
  | "journalFails"
  | "checkFails"
  | "probeRetried"

/** Counts a fault that combines two as two. A late request counts twice, because it excludes others: see `moves`. */
const costOf = (fault: Fault): number => (expensive.includes(fault) ? 2 : 1)
const expensive: ReadonlyArray<Fault> = ["rejectLost", "failLost", "failError", "late"]

interface Sending {
  readonly _tag: "Send"
  readonly index: number
  readonly chunk: number
  readonly piece: number
  readonly seq: number
  readonly encoding: Encoding
  readonly leaner: boolean
  readonly tries: number
}

/** Something that the driver or the network is about to do. */
type Flight =
  | Sending
  | { readonly _tag: "Journal"; readonly piece: number }
  /** Waits for a `Decide`. */
  | { readonly _tag: "Undecided"; readonly send: Sending; readonly failure: Failure }
  | { readonly _tag: "Refuse"; readonly piece: number; readonly failure: Failure }
  | { readonly _tag: "Delay"; readonly piece: number; readonly millis: number }
  | { readonly _tag: "CheckEncoding"; readonly piece: number }
  | { readonly _tag: "AwaitResult"; readonly heard: boolean }
  | {
      readonly _tag: "Probe"
      readonly seq: number
      readonly requestId: string | undefined
      readonly variant: "first" | "second"
    }
  | {
      readonly _tag: "Poll"
      readonly index: number
      readonly chunk: number
      readonly seq: number
      readonly requestId: string
      readonly inDoubt: boolean
    }

/** A record of the journal. `group` identifies its write: 0 for a note, otherwise the piece plus 1. */
type Entry = { readonly group: number } & (
  | {
      readonly _tag: "Intent"
      readonly seq: number
      readonly index: number
      readonly chunk: number
      readonly encoding: Encoding
      readonly leaner: boolean
    }
  | { readonly _tag: "Withdrawn"; readonly seq: number }
  | { readonly _tag: "Acknowledged"; readonly seq: number; readonly requestId: string }
  | { readonly _tag: "Settled"; readonly seq: number; readonly succeeded: boolean }
  | { readonly _tag: "Learned"; readonly traits: Readonly<ServerTraits> }
)

/** A request that a previous process recorded, sent again by an operation with this id. */
interface Recorded {
  readonly index: number
  readonly seqs: ReadonlyArray<number>
  readonly chunks: ReadonlyArray<number>
  readonly encodings: ReadonlyArray<Encoding>
  readonly leaner: ReadonlyArray<boolean>
}

export interface World {
  state: State
  /** The session's knowledge about the server. */
  traits: ServerTraits
  server: Server.Server
  flights: Array<Flight>
  /** Requests on their way that the client has given up on. */
  ghosts: Array<Server.Request>
  /** Operations that are still to be enqueued. */
  todo: Array<number>
  /** How the submission of each operation ended, by its index. */
  ends: { [index: number]: string }
  results: { [what: string]: string }
  /** The number that each piece was acknowledged under. */
  numbers: { [what: string]: number }
  /** Pieces that were acknowledged under the id of another request. */
  strangers: Array<string>
  durable: Array<Entry>
  buffered: Array<Entry>
  recorded: { [id: number]: Recorded }
  prepared: { readonly index: number; readonly seq: number; readonly encoding: Encoding } | undefined
  /** Faults so far. */
  used: Array<string>
  left: { faults: number; crashes: number; cancels: number; closes: number }
  lives: number
  trace: string | undefined
}

export class Violation extends Error {}

const require = (holds: boolean, what: () => string): void => {
  if (!holds) throw new Violation(what())
}

const isHarmful = ({ kind }: Step): boolean => kind === "pass" || kind === "optim"
const isPass = ({ kind }: Step): boolean => kind === "pass" || kind === "forward"

/** Two passes after the program show whether a client that reports no problem can still train. */
export const healthChecks: ReadonlyArray<Step> = [
  { kind: "pass", pieces: 1, parallel: false, follows: false, taken: false },
  { kind: "pass", pieces: 1, parallel: false, follows: false, taken: false },
]

const stepAt = ({ program }: Scenario, index: number): Step => program[index] ?? healthChecks[index - program.length]!

const operationAt = (scenario: Scenario, index: number): Operation => {
  const step = stepAt(scenario, index)
  return {
    id: index,
    name: step.kind,
    pieces: step.pieces,
    parallel: step.parallel,
    repeatable: !isHarmful(step),
    independentPieces: step.kind === "forward",
    conflictMeansNameTaken: step.kind === "save",
    clearsPartial: step.kind === "load",
    follows: step.follows ? index - 1 : undefined,
    encoding: isPass(step) ? "choice" : "fixed",
    mayPrepare: true,
    recorded: undefined,
  }
}

/** The ids of recorded operations start here. */
const firstRecorded = 100

export const start = (core: Core, scenario: Scenario): World => ({
  state: core.initial(scenario),
  traits: { ...core.noTraits },
  server: Server.make(
    scenario.server,
    scenario.program.flatMap(({ taken }, index) => (taken ? [`${index}`] : [])),
  ),
  flights: [],
  ghosts: [],
  todo: scenario.program.map((_, index) => index),
  ends: {},
  results: {},
  numbers: {},
  strangers: [],
  durable: [],
  buffered: [],
  recorded: {},
  prepared: undefined,
  used: [],
  left: { ...scenario.budget },
  lives: 1,
  trace: scenario.traced === true ? "" : undefined,
})

/** Prints the parts in which worlds of a scenario differ. */
export const keyOf = (world: World): string => {
  const { active, journaled: _, onUnknownOutcome: __, queue, ...state } = world.state
  const { traits: ___, ...server } = world.server
  return JSON.stringify({
    ...world,
    state,
    queue: queue.map(({ id }) => id),
    active: active && { ...active, operation: active.operation.id },
    server,
  })
}

/** Copies the parts that moves change in place. */
export const clone = (world: World): World => ({
  ...world,
  state: cloneState(world.state),
  server: Server.clone(world.server),
  flights: [...world.flights],
  ghosts: [...world.ghosts],
  todo: [...world.todo],
  ends: { ...world.ends },
  results: { ...world.results },
  numbers: { ...world.numbers },
  strangers: [...world.strangers],
  durable: [...world.durable],
  buffered: [...world.buffered],
  recorded: { ...world.recorded },
  used: [...world.used],
  left: { ...world.left },
})

const cloneState = (state: State): State => ({
  ...state,
  rejected: [...state.rejected],
  maybeUsed: [...state.maybeUsed],
  failed: [...state.failed],
  unsettled: [...state.unsettled],
  queue: [...state.queue],
  active: state.active && {
    ...state.active,
    pieces: state.active.pieces.map((piece) => ({ ...piece, candidates: [...piece.candidates] })) as unknown as [Piece],
    intents: [...state.active.intents],
  },
})

export interface Move {
  readonly label: string
  /** Whether the move must happen before the world is at rest; faults and the user's actions need not. */
  readonly isDue: boolean
  readonly apply: (world: World) => void
}

const failure = (meaning: Failure["meaning"], details: Partial<Failure> = {}): Failure => ({
  meaning,
  error: meanings.indexOf(meaning),
  asksForRetry: false,
  mayDislikeEncoding: false,
  mayFailOnEncoding: false,
  leaner: false,
  ...details,
})
const errorOf = (fault: "badRequest"): number => (fault === "badRequest" ? 5 : 0)
const meanings: ReadonlyArray<Failure["meaning"]> = ["NotSent", "Rejected", "Conflict", "Uncertain"]

/** The retry policy sends a request at most this often. */
const maxTries = 2

/** The inputs of a run other than the world itself. */
export interface Run {
  readonly core: Core
  readonly scenario: Scenario
  /** Called when the client reports that it can't know what became of an operation. */
  readonly onUnknown: (world: World, index: number) => void
  readonly onCommand: (command: Command, world: World) => void
  /** Worlds that are known to be able to continue. */
  readonly healthy: Set<string>
}

// ---------------------------------------------------------------------------------------------------------------------
// The driver
// ---------------------------------------------------------------------------------------------------------------------

/** Passes an event to the core and performs its commands. */
const feed = (run: Run, world: World, event: Event): void => {
  const wasBroken = world.state.broken
  const active = world.state.active?.operation.id
  observe(world, event)
  const commands = run.core.handle(world.state, event)
  for (const command of commands) perform(run, world, command)
  world.flights.sort(byName)
  const { broken } = world.state
  if (wasBroken !== undefined || broken?.applied !== "unknown") return
  const id = event._tag === "Settled" ? whatAt(world, event.requestId) : active
  if (id !== undefined) run.onUnknown(world, indexOf(world, id))
}

/** Orders what is in flight: worlds that differ only in this order are the same. */
const byName = (a: Flight, b: Flight): number => (nameOf(a) < nameOf(b) ? -1 : 1)

const nameOf = (flight: Flight): string =>
  flight._tag === "Undecided"
    ? `Undecided ${flight.send.piece}`
    : `${flight._tag} ${"index" in flight ? `${flight.index}.${flight.chunk}` : "piece" in flight ? flight.piece : ""}`

/**
 * Adds an event to the trace, without ids. They are opaque to the client, which only sees whether two are equal, in the
 * response to a probe.
 */
const observe = (world: World, event: Event): void => {
  if (world.trace === undefined) return
  switch (event._tag) {
    case "Enqueued":
      world.trace += `+${event.operation.id};`
      break
    case "Accepted":
    case "Probed":
    case "Settled":
      world.trace += `${JSON.stringify({ ...event, requestId: undefined })};`
      break
    default:
      // The rules do not inspect errors either.
      world.trace += `${JSON.stringify(event, (key, value: unknown) => (key === "error" ? undefined : value))};`
  }
}

const whatAt = ({ server }: World, requestId: string): number =>
  Number(server.futures[Number(requestId)]?.what?.split(".")[0])

const indexOf = ({ recorded }: World, id: number): number => recorded[id]?.index ?? id

const chunkOf = ({ recorded }: World, id: number, piece: number): number => recorded[id]?.chunks[piece] ?? piece

const perform = (run: Run, world: World, command: Command): void => {
  const { state } = world
  run.onCommand(command, world)
  switch (command._tag) {
    case "Journal": {
      const id = state.active!.operation.id
      for (const entry of command.entries)
        world.buffered.push({
          group: command.piece + 1,
          ...(entry._tag === "Intent"
            ? {
                _tag: "Intent",
                seq: entry.seq,
                index: indexOf(world, id),
                chunk: chunkOf(world, id, entry.piece),
                encoding: entry.encoding,
                leaner: state.active!.pieces[entry.piece]!.substitute === "Leaner",
              }
            : entry),
        })
      world.flights.push({ _tag: "Journal", piece: command.piece })
      return
    }
    case "Note":
      require(run.scenario.journaled, () => "writes a note without a journal")
      checkWithdrawals(command.entries)
      for (const entry of command.entries) world.buffered.push({ group: 0, ...entry })
      return
    case "Send":
      return send(run, world, command)
    case "Prepare":
      world.prepared = { index: command.id, seq: command.seq, encoding: command.encoding }
      require(state.queue[0]?.id === command.id, () => "prepares an operation that is not next")
      return require(command.encoding === "fixed" || command.encoding === state.traits.encoding, () =>
        "prepares in an encoding that the server may not read")
    case "Delay":
      require(command.millis > 0, () => "delays for no time")
      world.flights.push({ _tag: "Delay", piece: command.piece, millis: command.millis })
      return
    case "CheckEncoding":
      require(world.traits.encoding !== "protobuf", () => "checks an encoding that it knows")
      world.flights.push({ _tag: "CheckEncoding", piece: command.piece })
      return
    case "AwaitResult":
      world.flights.push({ _tag: "AwaitResult", heard: false })
      return
    case "Probe":
      require(run.scenario.onUnknownOutcome === "probe", () => "probes although it must not")
      require(world.traits.deduplicates === undefined, () => "probes although it knows the answer")
      require(!world.flights.some(({ _tag }) => _tag === "Probe"), () => "probes twice at a time")
      require(state.active?.mode !== "Recorded" ||
        state.active.pieces.every(({ current }) => current.seq !== command.seq), () =>
        "uses up the number of a recorded request")
      world.flights.push({ ...command, requestId: command.requestId })
      return
    case "Decide": {
      const at = world.flights.findIndex((flight) => flight._tag === "Undecided" && flight.send.piece === command.piece)
      const [flight] = at < 0 ? [] : world.flights.splice(at, 1)
      if (flight?._tag !== "Undecided") throw new Violation("decides about a retry that was not requested")
      const { failure, send } = flight
      require(!command.resend || mayStillSend(state), () => "keeps resending after it broke")
      require(!world.flights.some((other) => other._tag === "CheckEncoding" && other.piece === command.piece), () =>
        "decides before the encoding is checked")
      world.flights.push(
        command.resend ? { ...send, tries: send.tries + 1 } : { _tag: "Refuse", piece: send.piece, failure },
      )
      return
    }
    case "Learn":
      world.traits = { ...command.traits }
      if (run.scenario.journaled) world.buffered.push({ group: 0, _tag: "Learned", traits: { ...command.traits } })
      return
    case "Poll":
      return attach(run, world, command)
    case "Complete":
      return complete(run, world, command.id, command.outcome)
  }
}

/**
 * Checks that numbers are withdrawn in ascending order: a crash keeps only the first withdrawals, and a resume must not
 * find a gap below the remaining numbers.
 */
const checkWithdrawals = (entries: ReadonlyArray<JournalEntry>): void => {
  const seqs = entries.flatMap((entry) => (entry._tag === "Withdrawn" ? [entry.seq] : []))
  require(`${seqs}` === `${seqs.toSorted((a, b) => a - b)}`, () => "withdraws the highest number first")
}

const mayStillSend = ({ active, broken }: State): boolean =>
  broken === undefined || (broken.applied === "partial" && active?.operation.clearsPartial === true)

const send = (run: Run, world: World, command: Extract<Command, { readonly _tag: "Send" }>): void => {
  const { active, closed } = world.state
  if (active === undefined) throw new Violation("sends a request that belongs to no operation")
  const { id } = active.operation
  const index = indexOf(world, id)
  const chunk = chunkOf(world, id, command.piece)
  const recorded = world.recorded[id]
  const leaner = recorded?.leaner[command.piece] ?? active.pieces[command.piece]!.substitute === "Leaner"
  const encoding = recorded?.encodings[command.piece] ?? command.encoding
  require(mayStillSend(world.state), () => "keeps sending after it broke")
  require(!closed || world.ends[index] === undefined, () => "sends an operation that has ended")
  const step = stepAt(run.scenario, index)
  if (recorded !== undefined) {
    require(run.scenario.forgetsBytes !== true, () => "sends bytes that the journal does not have")
    require(recorded.seqs[command.piece] === command.seq, () => "sends a recorded request under another number")
  } else {
    const { delays, substitute } = active.pieces[command.piece]!
    const isPlain = active.mode === "Serial" && substitute === "None" && delays === 0
    const known = world.traits.encoding
    require(!isPlain || !isPass(step) || known === undefined || known === encoding, () =>
      "writes a pass in an encoding that the server does not read")
    require(!step.follows || world.ends[index - 1] === "Accepted" || world.lives > 1, () =>
      "sends an update without its pass")
    const previous = world.numbers[step.follows ? `${index - 1}.0` : `${index}.${chunk - 1}`]
    require(active.mode !== "Serial" || previous === undefined || command.seq >= previous || world.lives > 1, () =>
      `sends ${index}.${chunk} under a number before that of what it belongs to`)
  }
  if (run.scenario.journaled) {
    const last = world.durable.findLast((entry) => "seq" in entry && entry.seq === command.seq)
    require(last?._tag === "Intent" &&
      last.index === index &&
      last.chunk === chunk &&
      last.encoding === encoding &&
      last.leaner === leaner, () => `sends ${index}.${chunk} as ${command.seq} before the journal is durable`)
  }
  const { prepared } = world
  if (prepared !== undefined && prepared.index === index && world.used.length === 0 && world.lives === 1)
    require(prepared.seq === command.seq && prepared.encoding === command.encoding, () =>
      "prepares an operation under a number or an encoding that it does not get")
  const before = world.flights.some(
    (flight) =>
      (flight._tag === "Send" && flight.piece === command.piece) ||
      (flight._tag === "Undecided" && flight.send.piece === command.piece),
  )
  require(!before, () => "sends a piece twice at a time")
  world.flights.push({ _tag: "Send", index, chunk, piece: command.piece, seq: command.seq, encoding, leaner, tries: 1 })
}

const attach = (run: Run, world: World, command: Extract<Command, { readonly _tag: "Poll" }>): void => {
  const index = indexOf(world, command.id)
  const chunk = chunkOf(world, command.id, command.piece)
  const what = `${index}.${chunk}`
  const { inDoubt, requestId, seq } = command
  const poll: Flight = { _tag: "Poll", index, chunk, seq, requestId, inDoubt }
  const accepted = world.server.futures[Number(requestId)]
  if (accepted === undefined) throw new Violation("polls an id that the server does not know")
  if (accepted.what !== what) world.strangers.push(what)
  world.numbers[what] = seq
  const isNoted = [...world.durable, ...world.buffered].some(
    (entry) => entry._tag === "Acknowledged" && entry.seq === seq && entry.requestId === requestId,
  )
  require(!run.scenario.journaled || isNoted, () => "forgets to note an acknowledgement")
  world.flights.push(poll)
}

const isTaken = ({ program }: Scenario): boolean => program.some(({ taken }) => taken)

const complete = (run: Run, world: World, id: number, outcome: Outcome): void => {
  const index = indexOf(world, id)
  require(world.ends[index] === undefined, () => `resumes the caller of ${index} twice`)
  if (outcome._tag === "Broken" && outcome.broken.applied === "partial" && isOwnBreak(run.scenario, world, index)) {
    const hears = Array.from(
      { length: stepAt(run.scenario, index).pieces },
      (_, chunk) => world.results[`${index}.${chunk}`],
    )
    const isUnheard = (_: unknown, chunk: number) => isHeard(world, index, chunk) && hears[chunk] !== "Failed"
    require(hears.some(isUnheard), () => `reports a part of ${index}, and knows that all of it failed`)
  }
  checkOutcome(run, world, id, outcome)
  world.ends[index] = outcome._tag === "Broken" ? `Broken ${outcome.broken.applied}` : outcome._tag
  if (outcome._tag === "Accepted") {
    const step = stepAt(run.scenario, index)
    const heard = Array.from({ length: step.pieces }, (_, chunk) => isHeard(world, index, chunk))
    require(heard.every((isHeard) => isHeard), () => `accepts ${index} without polling all of its pieces`)
  }
}

/** Checks the outcome of an operation against the journal and against the responses that the client received. */
const checkOutcome = ({ scenario }: Run, world: World, id: number, outcome: Outcome): void => {
  const index = indexOf(world, id)
  const step = stepAt(scenario, index)
  const isOwn = isOwnBreak(scenario, world, index) && !Object.values(world.results).includes("Conflict")
  const isLive = (entry: Entry) =>
    entry._tag === "Intent" &&
    entry.index === index &&
    [...world.durable, ...world.buffered].findLast((other) => "seq" in other && other.seq === entry.seq) === entry
  const hasIntent = world.durable.some(isLive)
  if (outcome._tag === "Failed") {
    require(!isHarmful(step) || !hasIntent, () => `forgets to withdraw ${index}`)
    const [first, second] = world.used
    const isPlain = scenario.server.reads === "both" && !scenario.server.rejectedConsumed
    if (first === `badRequest ${index}.0` && second === `reject ${index}.0` && isPlain)
      require(outcome.error === errorOf("badRequest"), () => "reports the second of two refusals")
  }
  if (outcome._tag !== "Broken") return
  const { applied } = outcome.broken
  require(applied !== "partial" || step.kind !== "load", () => "refuses a load that would clear the part")
  if (applied !== "unknown" || !isOwn) return
  require(!scenario.journaled || hasIntent, () => `withdraws ${index}, which may have arrived`)
  const isUncertain = (fault: string) => uncertain.some((kind) => fault.startsWith(`${kind} `))
  require(step.parallel || world.lives > 1 || scenario.server.reads === "json500" || world.used.some(isUncertain), () =>
    "reports unknown although every response came")
}

const uncertain: ReadonlyArray<Fault> = [
  "lostBefore",
  "lostAfter",
  "garbled",
  "garbledBefore",
  "late",
  "error",
  "errorAfter",
  "asksForRetry",
  "asksAfter",
  "rejectLost",
  "failLost",
  "failError",
]

const isHeard = (world: World, index: number, chunk: number): boolean =>
  world.results[`${index}.${chunk}`] !== undefined ||
  world.flights.some((flight) => flight._tag === "Poll" && flight.index === index && flight.chunk === chunk)

// ---------------------------------------------------------------------------------------------------------------------
// Moves
// ---------------------------------------------------------------------------------------------------------------------

export const moves = (run: Run, world: World): Array<Move> => {
  const { scenario } = run
  const { left, state } = world
  const out: Array<Move> = []
  const add = (label: string, apply: (world: World) => void, isDue = true): void => {
    out.push({ label, isDue, apply })
  }
  const withFault = (fault: Fault, what: string, apply: (world: World) => void): void => {
    if (left.faults < costOf(fault) || scenario.faults?.includes(fault) === false) return
    add(
      `${what}: ${fault}`,
      (world) => {
        world.left.faults -= costOf(fault)
        world.used.push(`${fault} ${what}`)
        apply(world)
      },
      false,
    )
  }

  for (const [at, flight] of world.flights.entries()) flightMoves(run, world, flight, at, add, withFault)
  for (const [at, ghost] of world.ghosts.entries())
    add(`late ${ghost.what} arrives`, (world) => {
      world.ghosts.splice(at, 1)
      Server.submit(world.server, ghost, "Succeeds", false)
    })
  if (world.server.lane.length > 0) add("the server works", (world) => Server.run(world.server))
  if (state.queue.length > 0 && state.active === undefined)
    add("turn", (world) => feed(run, world, { _tag: "TurnStarted", traits: { ...world.traits } }))
  if (world.todo.length > 0 && state.queue.length < (scenario.queued ?? 1)) {
    const [first, second] = world.todo
    const count = second !== undefined && stepAt(scenario, second).follows && first === second - 1 ? 2 : 1
    add(`enqueue ${first}`, (world) => {
      for (const index of world.todo.splice(0, count))
        feed(run, world, { _tag: "Enqueued", operation: operationAt(scenario, index) })
    })
  }
  if (state.broken?.applied === "partial" && state.active === undefined)
    add(
      "accept a partial batch",
      (world) => {
        feed(run, world, { _tag: "PartialAccepted" })
        require(world.state.broken === undefined, () => "never accepts a part")
      },
      false,
    )
  if (left.cancels > 0)
    for (const { id } of state.queue)
      add(
        `cancel ${id}`,
        (world) => {
          world.left.cancels--
          feed(run, world, { _tag: "Cancelled", id })
          // A turn that was under way when it was cancelled, or that comes too early, changes nothing.
          if (world.state.queue.length === 0 || world.state.active !== undefined)
            feed(run, world, { _tag: "TurnStarted", traits: { ...world.traits } })
          const isCancelled = (index: number) => world.ends[index] === "Cancelled"
          require(isCancelled(indexOf(world, id)), () => "never resumes a cancelled caller")
          for (const [index, { follows }] of scenario.program.entries())
            require(index === id || isCancelled(index) === (follows && isCancelled(index - 1)), () =>
              `cancels ${id}, and ${index} does not follow it or goes on without it`)
        },
        false,
      )
  if (left.closes > 0)
    for (const force of [false, true])
      add(
        force ? "close at once" : "close",
        (world) => {
          world.left.closes--
          // A caller that has not noticed the end may still enqueue into a closed client.
          for (const index of world.todo.splice(1)) world.ends[index] = "Never"
          const { active } = world.state
          feed(run, world, { _tag: "Closed", force })
          if (active !== undefined)
            require((world.ends[indexOf(world, active.operation.id)] === "Closed") === force, () =>
              "ends the operation in progress only when it is closed by force")
        },
        false,
      )
  if (left.crashes > 0 && scenario.journaled) crashMoves(run, world, add, withFault)
  return out
}

type Add = (label: string, apply: (world: World) => void, isDue?: boolean) => void
type WithFault = (fault: Fault, what: string, apply: (world: World) => void) => void

const flightMoves = (run: Run, world: World, flight: Flight, at: number, add: Add, withFault: WithFault): void => {
  const take = (world: World): void => void world.flights.splice(at, 1)
  const heard = (event: Event) => (world: World) => {
    take(world)
    feed(run, world, event)
  }
  switch (flight._tag) {
    case "Send":
      return sendMoves(run, flight, take, add, withFault)
    case "Undecided":
      return
    case "Refuse":
      return add(`refuse ${flight.piece}`, heard({ _tag: "Refused", piece: flight.piece, failure: flight.failure }))
    case "Delay":
      // During the longest delay, the server finishes all accepted requests and the client receives their results.
      if (flight.millis >= 2_000 && world.server.lane.length > 0) return
      if (flight.millis >= 2_000 && world.flights.some((other) => isKnown(world, other))) return
      return add(`delay ${flight.piece} over`, heard({ _tag: "DelayOver", piece: flight.piece }))
    case "Journal": {
      const { piece } = flight
      add(`journal ${piece} durable`, (world) => {
        take(world)
        const written = world.buffered.findLastIndex(({ group }) => group === piece + 1) + 1
        world.durable.push(...world.buffered.splice(0, written))
        feed(run, world, { _tag: "Journaled", piece })
      })
      return withFault("journalFails", `journal ${piece}`, (world) => {
        take(world)
        world.buffered = world.buffered.filter(({ group }) => group !== piece + 1)
        feed(run, world, { _tag: "JournalFailed", piece, error: 9 })
      })
    }
    case "CheckEncoding": {
      const { piece } = flight
      const readsOnlyJson = world.server.traits.reads !== "both"
      add(`check the encoding`, heard({ _tag: "EncodingChecked", piece, readsOnlyJson }))
      return withFault("checkFails", "check", heard({ _tag: "EncodingChecked", piece, readsOnlyJson: false }))
    }
    case "AwaitResult":
      if (flight.heard) add("a result was heard", heard({ _tag: "ResultHeard" }))
      return
    case "Probe":
      return probeMoves(run, flight, take, add, withFault)
    case "Poll": {
      const { outcome } = world.server.futures[Number(flight.requestId)]!
      if (outcome === "Pending") return
      return add(`result of ${flight.index}.${flight.chunk}`, (world) => {
        take(world)
        settle(run, world, flight, outcome)
      })
    }
  }
}

const isKnown = ({ server }: World, flight: Flight): boolean =>
  flight._tag === "Poll" && server.futures[Number(flight.requestId)]!.outcome !== "Pending"

const settle = (
  run: Run,
  world: World,
  { chunk, inDoubt, index, requestId, seq }: Extract<Flight, { readonly _tag: "Poll" }>,
  outcome: "Succeeded" | "Failed" | "Conflict" | "Expired",
): void => {
  const step = stepAt(run.scenario, index)
  world.results[`${index}.${chunk}`] = outcome
  // The journal calls an expired result a success, because the step was accepted. A conflict over a request that was
  // sent twice shows nothing about the first one.
  const isFinal = outcome !== "Conflict" || !inDoubt || step.kind === "save"
  if (run.scenario.journaled && isFinal)
    world.buffered.push({
      group: 0,
      _tag: "Settled",
      seq,
      succeeded: outcome === "Succeeded" || outcome === "Expired",
    })
  world.flights = world.flights.map((flight) =>
    flight._tag === "AwaitResult" ? { _tag: "AwaitResult", heard: true } : flight,
  )
  feed(run, world, {
    _tag: "Settled",
    operation: step.kind,
    seq,
    requestId,
    inDoubt,
    conflictMeansNameTaken: step.kind === "save",
    result: outcome === "Expired" ? "Unknown" : outcome,
    error: 8,
  })
  if (step.kind === "load" && outcome === "Succeeded") feed(run, world, { _tag: "PartialAccepted" })
}

const requestOf = (scenario: Scenario, { chunk, encoding, index, leaner, seq }: Sending): Server.Request => ({
  what: `${index}.${chunk}`,
  bytes: `${index}.${chunk} ${encoding}${leaner ? " leaner" : ""}`,
  seq,
  encoding,
  name: stepAt(scenario, index).kind === "save" ? `${index}` : undefined,
})

const sendMoves = (run: Run, flight: Sending, take: (world: World) => void, add: Add, withFault: WithFault): void => {
  const { scenario } = run
  const request = requestOf(scenario, flight)
  const what = request.what!
  const { piece } = flight
  const submit = (world: World, fate: Server.Fate = "Succeeds", rejects = false) =>
    Server.submit(world.server, request, fate, rejects)

  const refuse = (world: World, failure: Failure): void => feed(run, world, { _tag: "Refused", piece, failure })
  /** A failure that the transport retries if the core agrees and the policy has tries left. */
  const retry = (world: World, failure: Failure): void => {
    if (flight.tries >= maxTries) return refuse(world, failure)
    world.flights.push({ _tag: "Undecided", send: flight, failure })
    feed(run, world, { _tag: "AttemptFailed", piece, failure })
  }
  const answer = (world: World, answer: Server.Answer): void => {
    switch (answer._tag) {
      case "Accepted":
        return feed(run, world, { _tag: "Accepted", piece, requestId: `${answer.future}` })
      case "Conflict": {
        const knows = world.traits.rejectionConsumesSeq && scenario.server.rejectedConsumed && !isTaken(scenario)
        require(!knows || world.lives > 1 || !world.used.every((fault) => fault.startsWith("reject ")), () =>
          "tries a number that it knows to be used")
        return refuse(world, failure("Conflict"))
      }
      case "Rejected":
        return refuse(world, failure("Rejected"))
      case "BadEncoding":
        return refuse(world, failure("Rejected", { mayDislikeEncoding: true }))
      case "Error":
        return retry(world, failure("Uncertain", { mayFailOnEncoding: true }))
    }
  }
  const on = (apply: (world: World) => void) => (world: World) => {
    take(world)
    apply(world)
  }
  const lost = failure("Uncertain")
  const error = failure("Uncertain", { mayFailOnEncoding: true })

  add(
    `send ${what} as ${flight.seq} ${flight.encoding}`,
    on((world) => answer(world, submit(world))),
  )
  const fault = (fault: Fault, apply: (world: World) => void): void => withFault(fault, what, on(apply))
  fault("notSent", (world) => retry(world, failure("NotSent")))
  fault("lostBefore", (world) => retry(world, lost))
  fault("lostAfter", (world) => {
    submit(world)
    retry(world, lost)
  })
  fault("garbled", (world) => {
    submit(world)
    refuse(world, lost)
  })
  fault("garbledBefore", (world) => refuse(world, lost))
  fault("late", (world) => {
    world.ghosts.push(request)
    retry(world, lost)
  })
  fault("asksForRetry", (world) => retry(world, failure("Uncertain", { asksForRetry: true })))
  if (scenario.server.kind === "byBody" || scenario.server.kind === "byNumber")
    fault("asksAfter", (world) => {
      submit(world)
      retry(world, failure("Uncertain", { asksForRetry: true }))
    })
  fault("reject", (world) => answer(world, submit(world, "Succeeds", true)))
  fault("conflict", (world) => refuse(world, failure("Conflict")))
  fault("fails", (world) => answer(world, submit(world, "Fails")))
  fault("expires", (world) => answer(world, submit(world, "Expires")))
  fault("rejectLost", (world) => {
    submit(world, "Succeeds", true)
    retry(world, lost)
  })
  fault("failLost", (world) => {
    submit(world, "Fails")
    retry(world, lost)
  })
  if (!isPass(stepAt(scenario, flight.index))) return
  fault("error", (world) => retry(world, error))
  fault("errorAfter", (world) => {
    submit(world)
    retry(world, error)
  })
  fault("failError", (world) => {
    submit(world, "Fails")
    retry(world, error)
  })
  const rejectWith = (details: Partial<Failure>) => (world: World) => {
    const answered = submit(world, "Succeeds", true)
    if (answered._tag === "Rejected") refuse(world, failure("Rejected", details))
    else answer(world, answered)
  }
  if (flight.encoding === "protobuf")
    fault("badRequest", rejectWith({ mayDislikeEncoding: true, error: errorOf("badRequest") }))
  if (!flight.leaner) fault("unknownField", rejectWith({ leaner: true }))
}

/**
 * A probe and the wait for its result are one move: the client does nothing else meanwhile. A false conflict is not
 * among the faults of a probe: no client can be right about a server that reports conflicts that don't exist.
 */
const probeMoves = (
  run: Run,
  { requestId, seq, variant }: Extract<Flight, { readonly _tag: "Probe" }>,
  take: (world: World) => void,
  add: Add,
  withFault: WithFault,
): void => {
  type Answer = Extract<Event, { readonly _tag: "Probed" }>["answer"]
  const submit = (world: World, fate: Server.Fate = "Succeeds", rejects = false): Server.Answer => {
    const encoding = world.traits.encoding ?? "protobuf"
    const request = { what: undefined, bytes: `probe ${variant} ${encoding}`, seq, encoding, name: undefined }
    return Server.submit(world.server, request, fate, rejects)
  }
  const probed = (world: World, answer: Answer, id?: string): void => {
    take(world)
    feed(run, world, { _tag: "Probed", answer, requestId: id })
  }
  const answer = (world: World, answered: Server.Answer): void => {
    switch (answered._tag) {
      case "Accepted": {
        const id = `${answered.future}`
        if (id === requestId) return probed(world, "SameRequest", id)
        Server.runAll(world.server)
        switch (world.server.futures[answered.future]!.outcome) {
          case "Succeeded":
            return probed(world, "Executed", id)
          case "Conflict":
            return probed(world, "Conflict", id)
          default:
            return probed(world, "Unknown", id)
        }
      }
      case "Conflict":
        return probed(world, "Conflict")
      default:
        return probed(world, "Unknown")
    }
  }
  const what = `probe ${seq}`
  add(`${what} ${variant}`, (world) => answer(world, submit(world)))
  // A probe under the number in doubt, because the one under number 0 failed, and a crash before the response: three
  // faults at once. A server that compares only numbers then takes the resumed request for the probe, unnoticed.
  if (run.scenario.server.kind === "byNumber" && run.scenario.budget.crashes > 0) return
  withFault("lostBefore", what, (world) => probed(world, "Unknown"))
  withFault("lostAfter", what, (world) => {
    submit(world)
    probed(world, "Unknown")
  })
  withFault("probeRetried", what, (world) => {
    submit(world)
    answer(world, submit(world))
  })
  withFault("reject", what, (world) => answer(world, submit(world, "Succeeds", true)))
  withFault("fails", what, (world) => answer(world, submit(world, "Fails")))
}

// ---------------------------------------------------------------------------------------------------------------------
// Crash and resume
// ---------------------------------------------------------------------------------------------------------------------

/** Crashes the process: only a prefix of the journal survives, and requests in flight may or may not arrive. */
const crashMoves = (run: Run, world: World, add: Add, withFault: WithFault): void => {
  const sends = world.flights.flatMap((flight) => (flight._tag === "Send" ? [flight] : []))
  const crash = (kept: number, arrived: number, fate: Server.Fate) => (world: World) => {
    world.left.crashes--
    for (const [at, flight] of sends.entries())
      if (((arrived >> at) & 1) === 1) Server.submit(world.server, requestOf(run.scenario, flight), fate, false)
    world.durable.push(...world.buffered.splice(0, kept))
    resume(run, world)
  }
  for (let kept = 0; kept <= world.buffered.length; kept++)
    for (let arrived = 0; arrived < 2 ** sends.length; arrived++) {
      add(`crash, ${kept} notes kept, ${arrived} arrived`, crash(kept, arrived, "Succeeds"), false)
      if (arrived > 0)
        withFault("fails", `crash, ${kept} notes kept, ${arrived} arrived`, crash(kept, arrived, "Fails"))
    }
}

const resume = (run: Run, world: World): void => {
  const { core, scenario } = run
  world.buffered = []
  world.flights = []
  world.prepared = undefined
  world.recorded = {}
  world.lives++
  const found = Option.getOrThrow(
    TrainingJournal.state([opened, ...world.durable.map((entry) => entryOf(scenario, entry))]),
  )
  const { calls, free } = ledger(found.steps)
  for (const seq of free) world.durable.push({ group: 0, _tag: "Withdrawn", seq })
  world.traits = { ...core.noTraits }
  for (const entry of world.durable) if (entry._tag === "Learned") world.traits = { ...entry.traits }
  const { sequence } = startOf(found, calls, free)
  world.state = core.initial({ journaled: true, onUnknownOutcome: scenario.onUnknownOutcome }, sequence)
  if (world.trace !== undefined)
    world.trace = `${JSON.stringify(world.durable.map((entry) => ({ ...entry, requestId: undefined })))};`

  // The user starts operations again that the journal does not contain, unless they had ended.
  const known = new Set(calls.map(({ steps: [{ intent }] }) => Number(Option.getOrThrow(intent.tag))))
  const isOpen = (index: number) => world.ends[index] === undefined && !known.has(index)
  world.todo = scenario.program.map((_, index) => index).filter(isOpen)
  for (const call of calls) {
    const index = Number(Option.getOrThrow(call.steps[0].intent.tag))
    const { isWhole, stands } = call
    for (const { intent, requestId, succeeded } of call.steps)
      if (Option.isSome(requestId) && Option.isNone(succeeded))
        world.flights.push({
          _tag: "Poll",
          index,
          chunk: intent.chunk,
          seq: intent.seq,
          requestId: requestId.value,
          inDoubt: true,
        })
    if (!isWhole) world.ends[index] ??= "Broken partial"
    else if (stands !== "unsent") world.ends[index] ??= "Accepted"
  }
  for (const { stands, steps } of calls) {
    if (stands !== "unsent") continue
    const unsent = steps.filter(({ requestId }) => Option.isNone(requestId))
    const index = Number(Option.getOrThrow(steps[0].intent.tag))
    const operation = operationAt(scenario, index)
    const id = firstRecorded + index
    // The previous process may have reported an outcome, but its callers no longer exist.
    delete world.ends[index]
    world.recorded[id] = {
      index,
      seqs: unsent.map(({ intent }) => intent.seq),
      chunks: unsent.map(({ intent }) => intent.chunk),
      encodings: unsent.map(({ request }) => Option.getOrThrow(request).contentType as Encoding),
      leaner: unsent.map(({ request }) => Option.getOrThrow(request).path === "leaner"),
    }
    feed(run, world, {
      _tag: "Enqueued",
      operation: {
        ...operation,
        id,
        pieces: unsent.length,
        parallel: false,
        independentPieces: false,
        clearsPartial: false,
        follows: undefined,
        encoding: "fixed",
        mayPrepare: false,
        recorded: unsent.map(({ intent: { seq } }) => ({ seq, hasBytes: scenario.forgetsBytes !== true })),
      },
    })
  }
  world.flights.sort(byName)
}

const opened: TrainingJournal.Entry = {
  record: { _tag: "Opened", baseUrl: "", sessionId: "", modelId: "", from: Option.none(), firstStep: 0 },
}

const operationNames = {
  pass: ["forward_backward", "ForwardBackward"],
  optim: ["optim_step", "OptimStep"],
  save: ["save_weights", "SaveWeights"],
  load: ["load_weights", "LoadWeights"],
  forward: ["forward", "Forward"],
} as const

const entryOf = (scenario: Scenario, entry: Entry): TrainingJournal.Entry => {
  switch (entry._tag) {
    case "Intent": {
      const step = stepAt(scenario, entry.index)
      const [operation, kind] = operationNames[step.kind]
      return {
        record: {
          _tag: "Intent",
          seq: entry.seq,
          operation,
          kind,
          chunk: entry.chunk,
          chunks: step.pieces,
          repeatable: !isHarmful(step),
          idempotencyKey: "",
          hash: "",
          tag: Option.some(`${entry.index}`),
        },
        request: { path: entry.leaner ? "leaner" : "", contentType: entry.encoding, bytes: new Uint8Array() },
      }
    }
    case "Learned": {
      const { deduplicates, encoding, rejectionConsumesSeq } = entry.traits
      return {
        record: {
          _tag: "Learnt",
          wire: Option.fromNullable(encoding),
          refusedUsesNumber: rejectionConsumesSeq,
          guardsNumbers: Option.fromNullable(deduplicates),
        },
      }
    }
    default: {
      const { group: _, ...record } = entry
      return { record }
    }
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// Invariants
// ---------------------------------------------------------------------------------------------------------------------

/** Returns the pieces that the server will have applied after finishing all its work. */
export const applied = ({ server }: World): ReadonlyArray<string> => {
  if (server.lane.length === 0) return server.applied
  const ahead = Server.clone(server)
  Server.runAll(ahead)
  return ahead.applied
}

/** How much of an operation the server applied. */
export const truth = (scenario: Scenario, world: World, index: number): "no" | "partial" | "all" => {
  const done = applied(world)
  const { pieces } = stepAt(scenario, index)
  const count = Array.from({ length: pieces }, (_, chunk) => `${index}.${chunk}`).filter((what) => done.includes(what))
  return count.length === 0 ? "no" : count.length === pieces ? "all" : "partial"
}

/** Checks a world that may still change. */
export const checkSafety = ({ scenario }: Run, world: World): void => {
  const { broken, queue } = world.state
  const isWaiting = queue.some(({ pieces }) => pieces > 0)
  require(broken === undefined || broken.applied === "partial" || !isWaiting, () =>
    "leaves the queue waiting after it broke")
  // With `resend`, a server that does not deduplicate applies requests twice, as documented.
  if (scenario.onUnknownOutcome === "resend") return
  const { applied } = world.server
  const last = applied.at(-1)
  if (last === undefined) return
  const twice = isHarmful(stepAt(scenario, Number(last.split(".")[0]))) && applied.indexOf(last) < applied.length - 1
  require(!twice, () => `applies ${last} twice`)
}

/** Checks a world in which nothing is left to happen. */
export const checkRest = (run: Run, world: World): void => {
  const { scenario } = run
  const { state } = world
  require(world.todo.length === 0, () => "stops taking operations")
  const waiting = scenario.program.map((_, index) => index).filter((index) => world.ends[index] === undefined)
  require(waiting.length === 0, () => `never resumes the callers of ${waiting.join()}`)
  require(state.active === undefined && state.queue.length === 0, () => "never ends an operation")
  const isUndisturbed =
    world.used.length === 0 &&
    world.left.cancels === scenario.budget.cancels &&
    world.left.closes === scenario.budget.closes &&
    state.broken === undefined &&
    // A conflict that the server reports as the result of an operation is no silent loss.
    !Object.values(world.results).includes("Conflict")
  if (isUndisturbed) {
    const all = scenario.program.flatMap((step, index) =>
      isHarmful(step) ? Array.from({ length: step.pieces }, (_, chunk) => `${index}.${chunk}`) : [],
    )
    const done = applied(world).filter((what) => all.includes(what))
    // Pieces that are sent in parallel are applied in their order only by a server that holds them.
    const isOrdered = scenario.server.kind !== "anything" || scenario.program.every(({ parallel }) => !parallel)
    require(`${isOrdered ? done : done.toSorted()}` === `${all}`, () => `applies ${done} instead of ${all}`)
  }
  for (const [key, end] of Object.entries(world.ends)) checkEnd(run, world, Number(key), end)
  if (state.broken !== undefined || state.closed) return
  const key = JSON.stringify([state, world.traits, world.server, world.ghosts])
  if (run.healthy.has(key)) return
  checkHealth(run, world)
  run.healthy.add(key)
}

const checkEnd = ({ scenario }: Run, world: World, index: number, end: string): void => {
  const step = stepAt(scenario, index)
  const happened = truth(scenario, world, index)
  const hears = Array.from({ length: step.pieces }, (_, chunk) => world.results[`${index}.${chunk}`])
  if (isHarmful(step) && world.ghosts.length === 0) {
    if (end === "Failed" || end === "Cancelled")
      require(happened === "no", () => `calls ${index} ${end.toLowerCase()}, and the server applied it`)
    // Parallel pieces require a server that holds them until the first one arrives.
    const holds = !step.parallel || scenario.server.kind === "byBody" || scenario.server.kind === "byNumber"
    if (end === "Broken no" && holds && isOwnBreak(scenario, world, index))
      require(happened === "no", () => `reports that nothing of ${index} was applied, and something was`)
    if (end === "Broken partial" && isOwnBreak(scenario, world, index))
      require(happened !== "all", () => `reports a part of ${index}, and the server applied all of it`)
  }
  if (end === "Accepted")
    for (const [chunk, result] of hears.entries()) {
      const isApplied = applied(world).includes(`${index}.${chunk}`)
      if (result === "Succeeded" && !world.strangers.includes(`${index}.${chunk}`))
        require(isApplied, () => `calls ${index}.${chunk} a success, and the server never applied it`)
      require(result !== "Succeeded" || !world.strangers.includes(`${index}.${chunk}`) || !isHarmful(step), () =>
        `takes the result of another request for that of ${index}.${chunk}`)
      if ((result === "Failed" || result === "Conflict") && world.state.broken === undefined && isHarmful(step))
        require(!isApplied, () => `calls ${index}.${chunk} a failure, and the server applied it`)
    }
}

/** Later operations end with the same error as the one that broke the sequence. */
const isOwnBreak = (scenario: Scenario, world: World, index: number): boolean =>
  !scenario.program.some((_, earlier) => earlier < index && world.ends[earlier]?.startsWith("Broken") === true)

/** Checks with two more passes, without faults, that a client that reports no problem can still train. */
const checkHealth = (run: Run, before: World): void => {
  const world = clone(before)
  const { length } = run.scenario.program
  world.left = { faults: 0, crashes: 0, cancels: 0, closes: 0 }
  world.trace = undefined
  for (const [at] of healthChecks.entries()) {
    world.todo = [length + at]
    runToRest(run, world)
  }
  const results = healthChecks.map((_, at) => world.results[`${length + at}.0`])
  require(results.at(-1) === "Succeeded", () => `calls itself healthy, and a pass ends as ${results.join()}`)
}

/** Performs all required moves, in some order. */
export const runToRest = (run: Run, world: World): void => {
  for (let count = 0; count < 200; count++) {
    const move = moves(run, world).find(({ isDue }) => isDue)
    if (move === undefined) return
    move.apply(world)
    checkSafety(run, world)
  }
  throw new Violation("never comes to rest")
}
