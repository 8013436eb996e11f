/**
 * A server in miniature: it accepts numbered requests, carries them out and remembers what it applied. It answers every
 * request, including probes, from that memory. It is plain data, so that a world that contains a server can be copied.
 */

/**
 * - `byBody`: the same number with the same bytes is the same request, with other bytes a conflict. Later numbers wait
 *   until earlier ones have arrived.
 * - `byNumber`: the same number is the same request, whatever its bytes. Later numbers wait here too.
 * - `nextOnly`: accepts only the next number, which counts as used when its request succeeds.
 * - `atWork`: like `nextOnly`, but looks at the number only when it carries the request out.
 * - `anything`: ignores numbers.
 */
export type Kind = "byBody" | "byNumber" | "nextOnly" | "atWork" | "anything"

export interface Traits {
  readonly kind: Kind
  readonly rejectedConsumed: boolean
  readonly failedConsumed: boolean
  /** The treatment of number 0: it belongs to the creation of the model, is invalid, or is carried out. */
  readonly zero: "Conflict" | "Rejected" | "Executed"
  /** The encodings of passes that it reads and, if it reads only JSON, its response to protobuf. */
  readonly reads: "both" | "json415" | "json500"
}

export interface Request {
  /** The operation and its piece, e.g. `0.1`; undefined for a probe, which changes nothing. */
  readonly what: string | undefined
  readonly bytes: string
  readonly seq: number
  readonly encoding: "protobuf" | "json" | "fixed"
  /** The name that a save takes. */
  readonly name: string | undefined
}

/** The effect of a fault on a request that was accepted. */
export type Fate = "Succeeds" | "Fails" | "Expires"

interface Future {
  readonly what: string | undefined
  readonly seq: number
  readonly fate: Fate
  outcome: "Pending" | "Succeeded" | "Failed" | "Conflict" | "Expired"
}

export interface Server {
  readonly traits: Traits
  /** The first number that has not arrived or, where only the next number is accepted, has not succeeded. */
  next: number
  /** Numbers of rejected requests, used while earlier requests were still running. */
  skipped: Array<number>
  /** Numbers that arrived: their bytes and their future, or -1 if rejected. Free ones belong to failed requests. */
  seen: Array<{ readonly seq: number; readonly bytes: string; readonly future: number; free: boolean }>
  /** Futures that are accepted but not carried out yet. */
  lane: Array<number>
  futures: Array<Future>
  applied: Array<string>
  names: Array<string>
}

export type Answer =
  | { readonly _tag: "Accepted"; readonly future: number }
  | { readonly _tag: "Conflict" }
  | { readonly _tag: "Rejected" }
  | { readonly _tag: "BadEncoding" }
  | { readonly _tag: "Error" }

export const make = (traits: Traits, names: ReadonlyArray<string>): Server => ({
  traits,
  next: 1,
  skipped: [],
  seen: [],
  lane: [],
  futures: [],
  applied: [],
  names: [...names],
})

export const clone = (server: Server): Server => ({
  ...server,
  skipped: [...server.skipped],
  seen: server.seen.map((entry) => ({ ...entry })),
  lane: [...server.lane],
  futures: server.futures.map((future) => ({ ...future })),
  applied: [...server.applied],
  names: [...server.names],
})

const holds = ({ traits: { kind } }: Server): boolean => kind === "byBody" || kind === "byNumber"

/** Whether a number counts as used only when its request succeeds. */
const counts = (kind: Kind): boolean => kind === "nextOnly" || kind === "atWork"

/**
 * Returns whether the client can notice when the server carries out an accepted request. That changes the responses to
 * later requests only where just the next number is accepted, and where a failure frees a number. Elsewhere requests
 * are carried out at once, because a result that was not polled for yet looks the same as a missing one.
 */
export const isLazy = ({ traits: { failedConsumed, kind } }: Server): boolean =>
  counts(kind) || (kind !== "anything" && !failedConsumed)

const due = ({ lane, next, skipped }: Server): number => next + lane.length + skipped.length

const advance = (server: Server): void => {
  server.next++
  while (server.skipped.includes(server.next)) {
    server.skipped = server.skipped.filter((seq) => seq !== server.next)
    server.next++
  }
}

const future = (server: Server, { seq, what }: Request, fate: Fate): number =>
  server.futures.push({ what, seq, fate, outcome: "Pending" }) - 1

/** Handles a request; `rejects` is a fault that makes the server reject it, whatever it is. */
export const submit = (server: Server, request: Request, fate: Fate, rejects: boolean): Answer => {
  const { traits } = server
  const { bytes, encoding, name, seq } = request
  if (encoding === "protobuf" && traits.reads !== "both")
    return { _tag: traits.reads === "json415" ? "BadEncoding" : "Error" }
  if (rejects) {
    consumeRejected(server, request)
    return { _tag: "Rejected" }
  }
  if (seq === 0) return atZero(server, request)
  if (holds(server)) {
    const before = server.seen.findLast(
      (other) => other.seq === seq && (traits.kind === "byBody" ? other.bytes === bytes || !other.free : !other.free),
    )
    if (before !== undefined) {
      if (traits.kind === "byBody" && before.bytes !== bytes) return { _tag: "Conflict" }
      // A rejected request has no id, so a server that compares only numbers has none to return.
      if (before.future < 0) return { _tag: traits.kind === "byBody" && name === undefined ? "Rejected" : "Conflict" }
      return { _tag: "Accepted", future: before.future }
    }
  }
  if (traits.kind === "nextOnly" && seq !== due(server)) return { _tag: "Conflict" }
  if (name !== undefined) {
    if (server.names.includes(name)) {
      consumeRejected(server, request)
      return { _tag: "Conflict" }
    }
    if (fate !== "Fails") server.names.push(name)
  }
  const id = future(server, request, fate)
  if (holds(server)) {
    server.seen.push({ seq, bytes, future: id, free: false })
    if (seq < server.next) server.lane.push(id)
    release(server)
  } else server.lane.push(id)
  if (!isLazy(server)) runAll(server)
  return { _tag: "Accepted", future: id }
}

const atZero = (server: Server, request: Request): Answer => {
  switch (server.traits.zero) {
    case "Conflict":
    case "Rejected":
      return { _tag: server.traits.zero }
    case "Executed": {
      const id = future(server, request, "Succeeds")
      server.futures[id]!.outcome = "Succeeded"
      return { _tag: "Accepted", future: id }
    }
  }
}

const consumeRejected = (server: Server, { bytes, seq }: Request): void => {
  if (!server.traits.rejectedConsumed) return
  if (holds(server) && !server.seen.some((other) => other.seq === seq && !other.free)) {
    server.seen.push({ seq, bytes, future: -1, free: false })
    release(server)
    if (!isLazy(server)) runAll(server)
  }
  if (counts(server.traits.kind) && seq === due(server)) {
    if (server.lane.length === 0) advance(server)
    else server.skipped.push(seq)
  }
}

/** Begins every number up to the first one that has not arrived. */
const release = (server: Server): void => {
  for (;;) {
    const entry = server.seen.find(({ seq }) => seq === server.next)
    if (entry === undefined) return
    server.next++
    if (entry.future >= 0) server.lane.push(entry.future)
  }
}

/** Carries out the next request in the lane. */
export const run = (server: Server): void => {
  const { failedConsumed, kind } = server.traits
  const id = server.lane.shift()
  const job = id === undefined ? undefined : server.futures[id]
  if (job === undefined) return
  if (counts(kind) && job.seq !== server.next) {
    job.outcome = "Conflict"
    return
  }
  if (job.fate === "Fails") {
    job.outcome = "Failed"
    if (counts(kind)) {
      if (failedConsumed) advance(server)
      else server.skipped = []
    } else if (!failedConsumed) for (const entry of server.seen) if (entry.future === id) entry.free = true
    return
  }
  job.outcome = job.fate === "Expires" ? "Expired" : "Succeeded"
  if (job.what !== undefined) server.applied.push(job.what)
  if (counts(kind)) advance(server)
}

export const runAll = (server: Server): void => {
  while (server.lane.length > 0) run(server)
}
