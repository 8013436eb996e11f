/** Visits every world that a scenario can reach. */
import type { Command } from "../../src/internal/core/SequenceState.js"
import {
  checkRest,
  checkSafety,
  clone,
  type Core,
  type Fault,
  keyOf,
  type Move,
  moves,
  type Run,
  type Scenario,
  start,
  truth,
  Violation,
  type World,
} from "./SequenceModel.ts"

/** The maximum number of worlds of a scenario. Reaching it fails the test, because the exploration is incomplete. */
export const maxStates = 400_000

export interface Exploration {
  readonly states: number
  readonly transitions: number
  /** The tags of commands and outcomes that were seen. */
  readonly commands: ReadonlySet<string>
  readonly unknowns: Unknowns
}

/**
 * Maps each trace of events that ends with "unknown" to the facts in all worlds with this trace, and to one of the
 * worlds with the most unused faults.
 */
export type Unknowns = Map<string, { readonly truths: Set<string>; spared: number; example: string }>

export class Found extends Error {}

export const describe = ({ budget, journaled, onUnknownOutcome, program, server }: Scenario): string =>
  JSON.stringify({
    program: program.map(({ follows, kind, parallel, pieces, taken }) =>
      [follows ? "then" : "", kind, pieces > 1 ? pieces : "", parallel ? "parallel" : "", taken ? "taken" : ""]
        .filter((word) => word !== "")
        .join(" "),
    ),
    server: Object.values(server).join(" "),
    journaled,
    onUnknownOutcome,
    budget,
  })

export const explore = (core: Core, scenario: Scenario, unknowns: Unknowns = new Map()): Exploration => {
  const commands = new Set<string>()
  const onCommand = (command: Command, { flights, used }: World): void => {
    commands.add(command._tag === "Complete" ? command.outcome._tag : command._tag)
    if (command._tag === "Learn") {
      const { deduplicates, encoding, rejectionConsumesSeq } = command.traits
      if (encoding !== undefined) commands.add(`Learn that it reads ${encoding}`)
      if (deduplicates !== undefined) commands.add(`Learn that it ${deduplicates ? "deduplicates" : "repeats"}`)
      if (rejectionConsumesSeq) commands.add("Learn that rejections use numbers")
    }
    const isSecond = command._tag === "Send" && flights.some((flight) => flight._tag === "Send")
    if (isSecond) commands.add(`Send in parallel${used[0]?.startsWith("reject") === true ? " after a rejection" : ""}`)
  }
  const onUnknown = (world: World, index: number): void => {
    if (world.trace === undefined) return
    const known = unknowns.get(world.trace) ?? { truths: new Set(), spared: -1, example: "" }
    known.truths.add(world.ghosts.length > 0 ? "undecided" : truth(scenario, world, index))
    if (world.left.faults > known.spared) {
      known.spared = world.left.faults
      known.example = `${world.used.join(", ")} ${describe(scenario)}\n  ${world.trace}`
    }
    unknowns.set(world.trace, known)
  }
  const run: Run = { core, scenario, onUnknown, onCommand, healthy: new Set() }
  const seen = new Set<string>()
  const path: { readonly parents: Array<number>; readonly labels: Array<string> } = { parents: [], labels: [] }
  const stack: Array<readonly [World, number]> = []
  let transitions = 0

  const fail = (error: unknown, parent: number, label: string, world: World): never => {
    const labels = [label]
    for (let at = parent; at >= 0; at = path.parents[at]!) labels.unshift(path.labels[at]!)
    const reason = error instanceof Violation ? error.message : String(error instanceof Error ? error.stack : error)
    throw new Found(`${reason}\n  ${describe(scenario)}\n  ${labels.join("\n  ")}\n  ${JSON.stringify(world)}`)
  }
  const visit = (world: World, parent: number, label: string): boolean => {
    const key = keyOf(world)
    if (seen.has(key)) return false
    seen.add(key)
    path.parents.push(parent)
    path.labels.push(label)
    stack.push([world, seen.size - 1])
    return true
  }

  visit(start(core, scenario), -1, "start")
  for (let next = stack.pop(); next !== undefined; next = stack.pop()) {
    const [world, at] = next
    const possible: ReadonlyArray<Move> = moves(run, world)
    if (!possible.some(({ isDue }) => isDue)) {
      try {
        checkRest(run, world)
        checkProgress(scenario, world)
      } catch (error) {
        fail(error, at, "at rest", world)
      }
    }
    for (const move of possible) {
      const after = clone(world)
      transitions++
      try {
        move.apply(after)
        checkSafety(run, after)
      } catch (error) {
        fail(error, at, move.label, world)
      }
      const isNew = visit(after, at, move.label)
      if (!isNew && move.isDue && keyOf(after) === keyOf(world))
        fail(new Violation(`${move.label} changes nothing`), at, move.label, world)
    }
    if (seen.size > maxStates) throw new Found(`reaches the cap of ${maxStates} states\n  ${describe(scenario)}`)
  }
  return { states: seen.size, transitions, commands, unknowns }
}

/**
 * Finds unnecessary reports of "unknown": all worlds that look the same to the client agree on what happened. Worlds
 * that disagree may need one more fault, so only traces with an unused fault count.
 */
export const needless = (unknowns: Unknowns): ReadonlyArray<string> =>
  [...unknowns.values()].flatMap(({ example, spared, truths }) =>
    spared > 0 && truths.size === 1 ? [`${[...truths].join()} is certain: ${example}`] : [],
  )

// ---------------------------------------------------------------------------------------------------------------------
// Progress
// ---------------------------------------------------------------------------------------------------------------------

type Expected = "all succeed" | "goes on" | "may break"

/**
 * The required outcome of a single fault. `all succeed`: it has no visible effect. `goes on`: the affected operation may
 * fail, the others succeed. `may break`: the client may stop with an unknown outcome.
 */
const expected = (scenario: Scenario, fault: Fault, what: string): Expected => {
  const { program, server } = scenario
  const [index, piece] = what.split(".").map(Number)
  const step = program[index!]
  if (step === undefined) return "may break"
  // Whether a rejected request has used its number is not known until the next one is accepted.
  if (program.slice(0, index).some(({ taken }) => taken)) return "may break"
  const harmful = step.kind === "pass" || step.kind === "optim"
  const isPart = step.pieces > 1
  const { kind, reads, rejectedConsumed, zero } = server
  /** Whether the client can know that the server deduplicates: from number 0, or from an earlier success. */
  const isProven = index! > 0 || (piece! > 0 && !step.parallel)
  const guardsNumbers = kind === "byNumber" && (zero === "Conflict" || isProven)
  switch (fault) {
    case "notSent":
      return "all succeed"
    case "asksForRetry":
      // A pass in doubt does not change its encoding.
      return reads === "both" ? "all succeed" : "may break"
    case "conflict":
      return step.kind === "save" && step.taken ? "goes on" : "all succeed"
    case "lostBefore":
    case "error":
      if (!harmful) return "all succeed"
      // A probe is sent as protobuf until the server has accepted a pass, so this server can't be probed before that.
      if (reads !== "both" || scenario.onUnknownOutcome === "stop" || step.parallel) return "may break"
      return kind === "byBody" || kind === "nextOnly" || kind === "atWork" || guardsNumbers
        ? "all succeed"
        : "may break"
    case "lostAfter":
    case "errorAfter":
      if (reads !== "both" || (harmful && scenario.onUnknownOutcome === "stop")) return "may break"
      if (!harmful && kind === "anything") return step.kind === "save" ? "goes on" : "all succeed"
      if (step.kind === "save" && step.taken) return "may break"
      if (!harmful) return kind === "byBody" || kind === "byNumber" ? "all succeed" : "may break"
      if (step.parallel) return "may break"
      return kind === "byBody" || guardsNumbers ? "all succeed" : "may break"
    case "badRequest":
    case "unknownField":
      // The server reads an encoding that it has read before: only the first pass may change its encoding.
      if (
        fault === "badRequest" &&
        (piece! > 0 || program.findIndex(({ kind }) => kind === "pass" || kind === "forward") < index!)
      )
        return isPart && harmful ? "may break" : "goes on"
      if (step.parallel) return "may break"
      // The same request is sent as JSON, under the next number if necessary.
      if (fault === "badRequest" && !isPart) return "all succeed"
      if (reads !== "both") return "goes on"
      if (!rejectedConsumed) return "all succeed"
      return isPart && piece! > 0 && harmful ? "may break" : "goes on"
    case "reject":
      // If no piece of a batch arrived, its numbers are free.
      if (step.parallel) return step.pieces === 2 && piece === 1 ? "goes on" : "may break"
      return isPart && piece! > 0 && harmful ? "may break" : "goes on"
    case "fails":
      // Until its result arrives, a failed piece counts as accepted.
      return isPart && (kind === "nextOnly" || kind === "atWork") ? "may break" : "goes on"
    case "expires":
      return "goes on"
    default:
      return "may break"
  }
}

/** Checks that a client at rest made the required progress, without faults and after a single one. */
const checkProgress = (scenario: Scenario, world: World): void => {
  const { budget, program } = scenario
  const { left, used } = world
  if (left.cancels < budget.cancels || left.closes < budget.closes) return
  if (left.crashes < budget.crashes) {
    // The next process knows that sending again is safe, so it completes the operation.
    const { kind, reads, zero } = scenario.server
    const isKnown =
      zero === "Conflict" && scenario.forgetsBytes !== true && reads === "both" && !program.some((step) => step.taken)
    const guards = (kind === "byBody" || kind === "byNumber") && isKnown
    if (used.length === 0 && guards && world.state.broken !== undefined)
      throw new Violation("breaks after a crash, on a server that is known to deduplicate")
    return
  }
  if (used.length > 1) return
  const [fault, what] = (used[0]?.split(" ") ?? []) as [Fault?, string?]
  const expectation = fault === undefined || what === undefined ? "all succeed" : expected(scenario, fault, what)
  if (expectation === "may break") return
  for (const [index, step] of program.entries()) {
    if (step.taken) continue
    const isHit = what?.split(".")[0] === `${index}`
    const follows = step.follows && what?.split(".")[0] === `${index - 1}`
    if (expectation === "goes on" && (isHit || follows)) {
      if (world.ends[index]?.startsWith("Broken") === true) throw new Violation(`breaks after ${used.join()}`)
      continue
    }
    const isVictimsUpdate = step.follows && world.results[`${index - 1}.0`] === "Conflict"
    if (isVictimsUpdate && world.ends[index] === "Failed") continue
    const results = Array.from({ length: step.pieces }, (_, chunk) => world.results[`${index}.${chunk}`])
    const counts = scenario.server.kind === "nextOnly" || scenario.server.kind === "atWork"
    // A server that only accepts the next number may fail requests that were accepted behind a failed one.
    const isVictim = fault === "fails" && counts && !scenario.server.failedConsumed
    if (isVictim && step.pieces > 1) continue
    const isFine = results.every((result) => result === "Succeeded" || (isVictim && result === "Conflict"))
    if (world.ends[index] !== "Accepted" || !isFine)
      throw new Violation(`ends ${index} as ${world.ends[index]} ${results.join()} after ${used.join() || "no fault"}`)
  }
}
