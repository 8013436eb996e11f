/**
 * The rules for numbering, resending and giving up on the requests of one model, as a pure state machine: `handle`
 * takes an event and returns the commands that follow from it. The state is plain data; printed, it is a bug report.
 * `docs/sequence-numbers.md` states the rules in words, and `test/core/Sequence.explore.test.ts` visits every state
 * that small programs can reach.
 */
import type {
  Acknowledgement,
  Active,
  Broken,
  Command,
  Encoding,
  Event,
  Failure,
  JournalEntry,
  JournalNote,
  OnUnknownOutcome,
  Operation,
  Outcome,
  Piece,
  PieceOutcome,
  Probing,
  Request,
  ServerTraits,
  Start,
  State,
  Substitute,
} from "./SequenceState.ts"

export const noTraits: Readonly<ServerTraits> = {
  encoding: undefined,
  rejectionConsumesSeq: false,
  deduplicates: undefined,
}

const fresh: Start = {
  next: 1,
  newest: undefined,
  proven: undefined,
  withdrawn: [],
  failed: [],
  unsettled: [],
  broken: undefined,
}

export const initial = (
  options: { readonly journaled: boolean; readonly onUnknownOutcome: OnUnknownOutcome },
  start: Start = fresh,
): State => ({
  next: start.next,
  retake: undefined,
  rejected: [],
  maybeUsed: [...start.withdrawn],
  failed: [...start.failed],
  unsettled: [...start.unsettled],
  proven: start.proven,
  newest: start.newest,
  traits: { ...noTraits },
  probing: undefined,
  broken: start.broken,
  queue: [],
  active: undefined,
  closed: false,
  journaled: options.journaled,
  onUnknownOutcome: options.onUnknownOutcome,
})

/** How long to wait before the same request is sent again after a conflict, in milliseconds. */
export const conflictDelays: ReadonlyArray<number> = [500, 1_000, 2_000]

/**
 * How many delays pass before another number is tried. Under a higher number, a server that only needed a moment would
 * wait for the lower one for ever.
 */
const delaysBeforeRenumbering = 2

/** Applies an event to the state and returns the commands to perform, in order. */
export const handle = (state: State, event: Event): Array<Command> => {
  const out: Array<Command> = []
  const { active } = state
  switch (event._tag) {
    case "Enqueued":
      enqueue(state, event.operation, out)
      break
    case "Cancelled":
      cancel(state, event.id, out)
      break
    case "TurnStarted":
      state.traits = { ...event.traits }
      startTurn(state, out)
      break
    case "Settled":
      settle(state, event, out)
      break
    case "PartialAccepted":
      if (state.broken?.applied === "partial") state.broken = undefined
      break
    case "Closed":
      close(state, event.force, out)
      break
    case "ResultHeard":
      if (active !== undefined && state.probing?._tag === "AwaitingResult") probe(state, active, out)
      break
    case "Probed":
      if (active !== undefined) onProbed(state, active, event.answer, event.requestId, out)
      break
    default: {
      const piece = active?.pieces[event.piece]
      if (active !== undefined && piece !== undefined) onPieceEvent(state, active, piece, event, out)
    }
  }
  return out
}

type PieceEvent = Extract<Event, { readonly piece: number }>

const onPieceEvent = (state: State, active: Active, piece: Piece, event: PieceEvent, out: Array<Command>): void => {
  switch (event._tag) {
    case "Journaled":
      if (active.isRecording) beginSending(state, active, out)
      else if (piece.phase === "Journaling") {
        active.intents = active.pieces.flatMap(({ current, outcome }) => (outcome === undefined ? [current.seq] : []))
        send(state, active, piece, out)
      }
      break
    case "JournalFailed":
      if (active.isRecording) end(state, active, { _tag: "Failed", error: event.error }, out, false)
      else
        endPiece(
          state,
          active,
          piece,
          {
            _tag: "Free",
            seq: piece.original.seq,
            rejected: piece.failure?.meaning === "Rejected",
            error: event.error,
          },
          out,
        )
      break
    case "AttemptFailed":
      piece.pending = { _tag: "Attempt", failure: event.failure }
      judge(state, active, piece, event.failure, out)
      break
    case "Accepted":
      acknowledge(state, active, piece, event.requestId, out)
      break
    case "Refused":
      piece.pending = { _tag: "Response", failure: event.failure }
      judge(state, active, piece, event.failure, out)
      break
    case "EncodingChecked":
      piece.unreadable = event.readsOnlyJson
      judged(state, active, piece, out)
      break
    case "DelayOver":
      if (piece.phase === "Delaying") dispatch(state, active, piece, piece.original, "None", out)
      break
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// The queue
// ---------------------------------------------------------------------------------------------------------------------

/** Returns why an operation can't be submitted, if it can't. One without requests only waits for its turn. */
const obstacle = ({ broken }: State, { clearsPartial, pieces }: Operation): Broken | undefined =>
  pieces === 0 || (clearsPartial && broken?.applied === "partial") ? undefined : broken

const enqueue = (state: State, operation: Operation, out: Array<Command>): void => {
  const broken = obstacle(state, operation)
  if (state.closed) complete(operation, { _tag: "Closed" }, out)
  else if (broken !== undefined) complete(operation, { _tag: "Broken", broken }, out)
  else state.queue.push(operation)
}

const complete = ({ id }: Operation, outcome: Outcome, out: Array<Command>): void => {
  out.push({ _tag: "Complete", id, outcome })
}

/** Ends queued operations that match; the rest keeps its order. */
const endQueued = (state: State, ends: (operation: Operation) => Outcome | undefined, out: Array<Command>): void => {
  const { queue } = state
  state.queue = []
  for (const operation of queue) {
    const outcome = ends(operation)
    if (outcome === undefined) state.queue.push(operation)
    else complete(operation, outcome, out)
  }
}

/** Gives up an operation that is still queued, and those that must not be sent without it. */
const cancel = (state: State, id: number, out: Array<Command>): void => {
  const cancelled = new Set<number>()
  endQueued(
    state,
    (operation) => {
      if (operation.id !== id && !(operation.follows !== undefined && cancelled.has(operation.follows)))
        return undefined
      cancelled.add(operation.id)
      return { _tag: "Cancelled" }
    },
    out,
  )
}

const close = (state: State, force: boolean, out: Array<Command>): void => {
  state.closed = true
  endQueued(state, () => ({ _tag: "Closed" }), out)
  if (!force || state.active === undefined) return
  complete(state.active.operation, { _tag: "Closed" }, out)
  state.active = undefined
  state.probing = undefined
}

const startTurn = (state: State, out: Array<Command>): void => {
  const operation = state.active === undefined ? state.queue.shift() : undefined
  if (operation === undefined) return
  // An operation without requests only waits for its turn.
  if (operation.pieces === 0) return complete(operation, { _tag: "Accepted" }, out)
  chooseNext(state, operation)
  const later = Array.from({ length: operation.pieces - 1 }, (_, index) => newPiece(state, operation, index + 1))
  const pieces: Active["pieces"] = [newPiece(state, operation, 0), ...later]
  const active: Active = {
    operation,
    mode: modeOf(state, operation),
    pieces,
    isRecording: false,
    intents: state.journaled ? pieces.map(({ current }) => current.seq) : [],
  }
  state.active = active
  if (active.mode === "Recorded") return resendRecorded(state, active, 0, out)
  if (!state.journaled) return beginSending(state, active, out)
  // All pieces are in the journal before the first is sent.
  active.isRecording = true
  out.push({ _tag: "Journal", piece: 0, entries: pieces.map(({ current, index }) => intentOf(index, current)) })
}

/** Pieces go out in parallel only where it is certain which numbers come next. */
const modeOf = (state: State, { parallel, pieces, recorded }: Operation): Active["mode"] => {
  if (recorded !== undefined) return "Recorded"
  const isCertain = state.rejected.length === 0 && state.failed.length === 0 && state.maybeUsed.length === 0
  return parallel && pieces > 1 && isCertain ? "Parallel" : "Serial"
}

const newPiece = (state: State, operation: Operation, index: number): Piece => {
  const original: Request = {
    seq: operation.recorded?.[index]?.seq ?? state.next + index,
    encoding: encodingOf(state, operation),
  }
  return {
    index,
    original,
    current: original,
    substitute: "None",
    phase: "Waiting",
    inDoubt: operation.recorded !== undefined,
    unreadable: false,
    absent: false,
    delays: 0,
    candidates: [],
    failure: undefined,
    pending: undefined,
    outcome: undefined,
  }
}

/** Where failed requests do not use their numbers, the next operation takes the first of them again. */
const chooseNext = (state: State, { follows, recorded }: Operation): void => {
  if (state.retake === undefined || follows !== undefined || recorded !== undefined) return
  state.next = state.retake
  state.failed = without(state.failed, state.retake)
  state.retake = undefined
}

const without = (numbers: ReadonlyArray<number>, ...seqs: ReadonlyArray<number>): Array<number> =>
  numbers.filter((other) => !seqs.includes(other))

const encodingOf = (state: State, { encoding }: Operation): Encoding =>
  encoding === "fixed" ? "fixed" : (state.traits.encoding ?? "protobuf")

const intentOf = (piece: number, { encoding, seq }: Request): JournalEntry => ({
  _tag: "Intent",
  piece,
  seq,
  encoding,
})

// ---------------------------------------------------------------------------------------------------------------------
// Sending
// ---------------------------------------------------------------------------------------------------------------------

const beginSending = (state: State, active: Active, out: Array<Command>): void => {
  active.isRecording = false
  const [first, ...later] = active.pieces
  const broken = obstacle(state, active.operation)
  if (broken !== undefined) return abandon(state, active, first, broken, out)
  if (active.mode === "Serial") return send(state, active, first, out)
  for (const piece of later) send(state, active, piece, out)
}

/** Sends the current request of a piece. If there is a journal, it has the request. */
const send = (state: State, active: Active, piece: Piece, out: Array<Command>): void => {
  const broken = obstacle(state, active.operation)
  if (broken !== undefined) return abandon(state, active, piece, broken, out)
  piece.phase = "Sending"
  const { encoding, seq } = piece.current
  prepareNext(state, active, piece, out)
  out.push({ _tag: "Send", piece: piece.index, seq, encoding })
}

/** Ends an operation because the result of an earlier one broke the sequence while it was being submitted. */
const abandon = (state: State, active: Active, piece: Piece, broken: Broken, out: Array<Command>): void => {
  const mayHaveArrived = active.pieces.some((other) => other.inDoubt || (other !== piece && other.phase === "Sending"))
  end(state, active, { _tag: "Broken", broken }, out, !mayHaveArrived)
}

const prepareNext = (state: State, active: Active, piece: Piece, out: Array<Command>): void => {
  const [next] = state.queue
  if (next === undefined || next.pieces !== 1 || !next.mayPrepare || next.recorded !== undefined) return
  if (active.operation.pieces !== 1 || piece.substitute !== "None" || piece.delays > 0) return
  if (next.encoding === "choice" && state.traits.encoding === undefined) return
  out.push({ _tag: "Prepare", id: next.id, seq: piece.current.seq + 1, encoding: encodingOf(state, next) })
}

/** Sends a request for a piece, after the journal has it in place of the one that it replaces. */
const dispatch = (
  state: State,
  active: Active,
  piece: Piece,
  request: Request,
  substitute: Substitute,
  out: Array<Command>,
): void => {
  const replaced = piece.current
  piece.current = request
  piece.substitute = substitute
  piece.unreadable = false
  if (!state.journaled || active.mode === "Recorded") return send(state, active, piece, out)
  const isSame = replaced.seq === request.seq && replaced.encoding === request.encoding && substitute !== "Leaner"
  if (isSame && active.intents.includes(request.seq)) return send(state, active, piece, out)
  const isMoved = replaced.seq !== request.seq
  const rewritten = [piece, ...(isMoved ? moveAlong(active, piece) : [])]
  const taken = rewritten.map(({ current }) => current.seq)
  const withdrawn = isMoved ? without(active.intents, ...taken) : []
  piece.phase = "Journaling"
  out.push({
    _tag: "Journal",
    piece: piece.index,
    entries: [
      ...withdrawn.map((seq) => ({ _tag: "Withdrawn" as const, seq })),
      ...rewritten.map(({ current, index }) => intentOf(index, current)),
    ],
  })
}

/** Gives the pieces after this one the numbers after its own: a journal that lacks one of them takes all for unsent. */
const moveAlong = ({ pieces }: Active, { current, index }: Piece): Array<Piece> => {
  const later = pieces.slice(index + 1)
  for (const piece of later) piece.current = { ...piece.current, seq: current.seq + piece.index - index }
  return later
}

const acknowledge = (state: State, active: Active, piece: Piece, requestId: string, out: Array<Command>): void => {
  const { encoding, seq } = piece.current
  if (encoding !== "fixed" && active.operation.encoding === "choice" && state.traits.encoding === undefined)
    learn(state, { encoding }, out)
  if (piece.substitute === "OtherNumber") {
    letPass(state, piece, out)
    state.failed = without(state.failed, seq)
    state.retake = undefined
  }
  if (state.newest === undefined || state.newest.seq < seq) state.newest = { seq, requestId }
  state.unsettled.push(seq)
  state.rejected = state.rejected.filter((other) => other > seq)
  state.maybeUsed = state.maybeUsed.filter((other) => other > seq)
  active.intents = without(active.intents, seq)
  if (state.journaled) out.push({ _tag: "Note", entries: [{ _tag: "Acknowledged", seq, requestId }] })
  const { id } = active.operation
  const { inDoubt, index } = piece
  out.push({ _tag: "Poll", id, piece: index, seq, requestId, inDoubt })
  endPiece(state, active, piece, { _tag: "Acknowledged" }, out)
}

/**
 * Draws the conclusion from a response that is not a conflict: the server expects this number. If it is a later one,
 * the rejected request before it has used its own, unless something else may have used that.
 */
const letPass = (state: State, { current, original }: Piece, out: Array<Command>): void => {
  state.next = current.seq
  if (current.seq < original.seq) return
  if (state.maybeUsed.length === 0) learn(state, { rejectionConsumesSeq: true }, out)
}

const learn = (state: State, change: Partial<ServerTraits>, out: Array<Command>): void => {
  state.traits = { ...state.traits, ...change }
  out.push({ _tag: "Learn", traits: { ...state.traits } })
}

// ---------------------------------------------------------------------------------------------------------------------
// Failures
// ---------------------------------------------------------------------------------------------------------------------

/** First finds out whether the server only failed to read the encoding: then it did nothing. */
const judge = (state: State, active: Active, piece: Piece, failure: Failure, out: Array<Command>): void => {
  const mayBeUnreadable =
    failure.mayFailOnEncoding && piece.current.encoding === "protobuf" && !piece.inDoubt && !piece.unreadable
  // A server that accepted JSON after it rejected protobuf may read both: its objection may have been another one.
  if (!mayBeUnreadable || state.traits.encoding === "protobuf") return judged(state, active, piece, out)
  piece.phase = "Checking"
  out.push({ _tag: "CheckEncoding", piece: piece.index })
}

const judged = (state: State, active: Active, piece: Piece, out: Array<Command>): void => {
  const { pending } = piece
  piece.phase = "Sending"
  if (pending?._tag === "Attempt") return judgeAttempt(state, active, piece, pending.failure, out)
  piece.pending = undefined
  if (pending !== undefined) {
    if (pending.failure.meaning === "Uncertain" && !piece.unreadable) piece.inDoubt = true
    fail(state, active, piece, pending.failure, out)
  }
}

const judgeAttempt = (state: State, active: Active, piece: Piece, failure: Failure, out: Array<Command>): void => {
  if (failure.meaning !== "Uncertain") return decide(state, active, piece, true, out)
  if (piece.unreadable) return decide(state, active, piece, false, out)
  piece.inDoubt = true
  if (failure.asksForRetry) return decide(state, active, piece, true, out)
  decideResend(state, active, piece, out)
}

const decide = (state: State, active: Active, piece: Piece, resend: boolean, out: Array<Command>): void => {
  piece.pending = undefined
  piece.phase = "Sending"
  out.push({ _tag: "Decide", piece: piece.index, resend: resend && obstacle(state, active.operation) === undefined })
}

/** Whether a request that may have arrived can be sent again; undefined if that has to be found out. */
const mayResend = (state: State, { repeatable }: Operation): boolean | undefined => {
  if (repeatable || state.onUnknownOutcome === "resend") return true
  return state.onUnknownOutcome === "stop" ? false : state.traits.deduplicates
}

const decideResend = (state: State, active: Active, piece: Piece, out: Array<Command>): void => {
  const allowed = mayResend(state, active.operation)
  if (allowed !== undefined) return resendDecided(state, active, piece, allowed, out)
  piece.phase = "Deciding"
  if (state.probing === undefined) probe(state, active, out)
}

const resendDecided = (state: State, active: Active, piece: Piece, allowed: boolean, out: Array<Command>): void => {
  if (piece.pending !== undefined) return decide(state, active, piece, allowed, out)
  // A recorded request that this process has not sent yet.
  if (allowed) return send(state, active, piece, out)
  endPiece(state, active, piece, { _tag: "Lost", applied: "unknown", error: -1 }, out)
}

/** Decides what follows the final failure of the current request. */
const fail = (state: State, active: Active, piece: Piece, failure: Failure, out: Array<Command>): void => {
  if (piece.absent && failure.meaning === "Uncertain") return sendUnderNextNumber(state, active, piece, out)
  switch (piece.substitute) {
    case "None":
      if (failure.meaning !== "Conflict" || piece.failure === undefined)
        piece.failure = { ...failure, unreadable: piece.unreadable }
      if (failure.meaning === "Conflict") return insist(state, active, piece, out)
      if (piece.inDoubt) return conclude(state, active, piece, failure, out)
      if (piece.unreadable || failure.meaning === "Rejected") return rewrite(state, active, piece, failure, out)
      return conclude(state, active, piece, failure, out)
    case "Leaner":
    case "OtherEncoding": {
      const { failure: first } = piece
      const isConflict = failure.meaning === "Conflict" && !piece.inDoubt
      if (isConflict && piece.substitute === "OtherEncoding") return insistRewritten(state, active, piece, failure, out)
      // Refused in both encodings: the encoding was not the reason, and the first response contains it. A conflict only
      // shows that the first request used the number.
      const isFirstThatCounts = piece.substitute === "OtherEncoding" ? first?.unreadable === false : isConflict
      return conclude(
        state,
        active,
        piece,
        first !== undefined && isFirstThatCounts && !piece.inDoubt ? first : failure,
        out,
      )
    }
    case "OtherNumber":
      if (failure.meaning === "Conflict" && !piece.inDoubt) return insist(state, active, piece, out)
      if (failure.meaning === "Rejected") letPass(state, piece, out)
      return conclude(state, active, piece, failure, out)
  }
}

/** Writes a rejected request in another way, if there is one that the server may accept. */
const rewrite = (state: State, active: Active, piece: Piece, failure: Failure, out: Array<Command>): void => {
  const { seq } = piece.original
  if (failure.leaner) return dispatch(state, active, piece, piece.original, "Leaner", out)
  const other = state.traits.encoding ?? "json"
  const isAnother = active.operation.encoding === "choice" && other !== piece.current.encoding
  if (isAnother && (piece.unreadable || failure.mayDislikeEncoding))
    return dispatch(state, active, piece, { seq, encoding: other }, "OtherEncoding", out)
  conclude(state, active, piece, failure, out)
}

/** From here on the request in its other encoding is the original: its first form may have used the number. */
const insistRewritten = (state: State, active: Active, piece: Piece, failure: Failure, out: Array<Command>): void => {
  const { seq } = piece.current
  piece.original = piece.current
  piece.substitute = "None"
  piece.delays = 0
  if (piece.failure?.unreadable === true) piece.failure = { ...failure, unreadable: false }
  else if (!state.rejected.includes(seq)) state.rejected.push(seq)
  insist(state, active, piece, out)
}

/**
 * Handles a conflict over a number that no other request should have. A server may need a moment to finish what came
 * before, so the same request is sent up to three more times. A conflict that does not pass has two explanations: a
 * server where a rejected request uses its number, and one where a failed request does not. Then both are tried.
 */
const insist = (state: State, active: Active, piece: Piece, out: Array<Command>): void => {
  const hasWaited = piece.delays >= delaysBeforeRenumbering
  if (piece.substitute === "None" && hasWaited && !piece.inDoubt && mayRenumber(active, piece))
    piece.candidates = candidatesOf(state, active.operation, piece)
  const seq = piece.candidates.shift()
  if (seq !== undefined)
    return dispatch(state, active, piece, { seq, encoding: piece.original.encoding }, "OtherNumber", out)
  const millis = conflictDelays[piece.delays]
  const { failure } = piece
  if (millis === undefined && failure !== undefined) return conclude(state, active, piece, failure, out)
  if (millis !== undefined && failure !== undefined) {
    piece.delays++
    piece.phase = "Delaying"
    out.push({ _tag: "Delay", piece: piece.index, millis, error: failure.error })
  }
}

const mayRenumber = ({ mode }: Active, { index }: Piece): boolean => index === 0 && mode === "Serial"

const candidatesOf = (state: State, { follows }: Operation, { original: { seq } }: Piece): Array<number> => {
  const later: Array<number> = []
  for (let used = seq; state.rejected.includes(used) || state.maybeUsed.includes(used); used++) later.push(used + 1)
  // An update takes no number before that of its pass, which may be the failed one.
  const lowest = follows === undefined ? 0 : seq - 1
  const failed = state.failed.slice(0, 1).filter((other) => other >= lowest && other < seq)
  return [...later, ...failed]
}

/** Ends a piece according to its last failure. */
const conclude = (state: State, active: Active, piece: Piece, failure: Failure, out: Array<Command>): void =>
  endPiece(state, active, piece, outcomeOf(state, active.operation, piece, failure), out)

const outcomeOf = (
  { failed }: State,
  { conflictMeansNameTaken, follows }: Operation,
  piece: Piece,
  { error, meaning }: Failure,
): PieceOutcome => {
  const isConflict = meaning === "Conflict"
  if (piece.inDoubt)
    return isConflict && conflictMeansNameTaken
      ? { _tag: "NameTaken", error }
      : { _tag: "Lost", applied: "unknown", error }
  // Behind a failed number an operation fails that must not take it. The next one does.
  const isExplained = conflictMeansNameTaken || (follows !== undefined && failed.length > 0)
  if (isConflict && !isExplained) return { _tag: "Lost", applied: "no", error }
  const seq = isConflict ? piece.original.seq : piece.current.seq
  return { _tag: "Free", seq, rejected: (isConflict && conflictMeansNameTaken) || meaning === "Rejected", error }
}

/** The probe that showed that the request never arrived has used its number. */
const sendUnderNextNumber = (state: State, active: Active, piece: Piece, out: Array<Command>): void => {
  piece.absent = false
  piece.inDoubt = false
  const request: Request = { seq: piece.current.seq + 1, encoding: piece.current.encoding }
  piece.original = request
  dispatch(state, active, piece, request, "None", out)
}

// ---------------------------------------------------------------------------------------------------------------------
// Operations
// ---------------------------------------------------------------------------------------------------------------------

const endPiece = (state: State, active: Active, piece: Piece, outcome: PieceOutcome, out: Array<Command>): void => {
  piece.phase = "Done"
  piece.outcome = outcome
  switch (active.mode) {
    case "Serial":
      return onSerialPiece(state, active, piece, outcome, out)
    case "Parallel":
      return onParallelPiece(state, active, out)
    case "Recorded":
      return onRecordedPiece(state, active, piece, outcome, out)
  }
}

const onSerialPiece = (
  state: State,
  active: Active,
  piece: Piece,
  outcome: PieceOutcome,
  out: Array<Command>,
): void => {
  const { operation, pieces } = active
  const earlier = operation.independentPieces ? [] : pieces.slice(0, piece.index)
  const isPart = earlier.some(({ current }) => !state.failed.includes(current.seq))
  switch (outcome._tag) {
    case "Acknowledged": {
      state.next = piece.current.seq + 1
      const following = pieces[piece.index + 1]
      if (following === undefined) return end(state, active, { _tag: "Accepted" }, out)
      // An earlier piece may have changed its number, or found out how the server reads it.
      following.original = { seq: state.next, encoding: encodingOf(state, operation) }
      return dispatch(state, active, following, following.original, "None", out)
    }
    case "Free":
      if (outcome.rejected) reject(state, outcome.seq)
      return isPart
        ? endBroken(state, active, piece.original.seq, "partial", outcome.error, out, true)
        : end(state, active, { _tag: "Failed", error: outcome.error }, out)
    case "NameTaken":
      return endNameTaken(state, active, piece, outcome.error, out)
    case "Lost": {
      if (outcome.applied === "unknown" || piece.index === 0)
        return endBroken(state, active, piece.original.seq, outcome.applied, outcome.error, out, false)
      return isPart
        ? endBroken(state, active, piece.original.seq, "partial", outcome.error, out, false)
        : end(state, active, { _tag: "Failed", error: outcome.error }, out)
    }
  }
}

/** The next operation tries the number of a save whose name is taken. The journal keeps its intent until then. */
const endNameTaken = (
  state: State,
  active: Active,
  { current: { seq } }: Piece,
  error: number,
  out: Array<Command>,
): void => {
  if (seq >= state.next - 1) {
    state.next = seq
    state.maybeUsed.push(seq)
  }
  end(state, active, { _tag: "Failed", error }, out, false)
}

/** The first piece goes last: until it arrives the server does nothing with the others. */
const onParallelPiece = (state: State, active: Active, out: Array<Command>): void => {
  const [first, ...later] = active.pieces
  const outcomes = later.flatMap(({ outcome }) => outcome ?? [])
  if (outcomes.length < later.length) return
  const bad = outcomes.find((outcome) => outcome._tag !== "Acknowledged")
  if (bad !== undefined) {
    const free = outcomes.flatMap((outcome) => (outcome._tag === "Free" ? [outcome] : []))
    if (free.length < outcomes.length) return endBroken(state, active, first.original.seq, "no", bad.error, out, false)
    // Nothing arrived at all: every number is free.
    for (const { rejected, seq } of free) if (rejected && !state.rejected.includes(seq)) state.rejected.push(seq)
    return end(state, active, { _tag: "Failed", error: bad.error }, out)
  }
  if (first.outcome === undefined) return send(state, active, first, out)
  if (first.outcome._tag === "Acknowledged") {
    state.next = first.original.seq + active.pieces.length
    return end(state, active, { _tag: "Accepted" }, out)
  }
  // If the server has used the number of the first piece, it carries out the others.
  const applied = first.outcome._tag === "Free" && !first.outcome.rejected ? "no" : "unknown"
  endBroken(state, active, first.original.seq, applied, first.outcome.error, out, false)
}

const resendRecorded = (state: State, active: Active, index: number, out: Array<Command>): void => {
  const piece = active.pieces[index]
  if (piece === undefined) return end(state, active, { _tag: "Accepted" }, out)
  if (active.operation.recorded?.[index]?.hasBytes !== true)
    return endPiece(state, active, piece, { _tag: "Lost", applied: "unknown", error: -1 }, out)
  decideResend(state, active, piece, out)
}

const onRecordedPiece = (
  state: State,
  active: Active,
  piece: Piece,
  outcome: PieceOutcome,
  out: Array<Command>,
): void => {
  switch (outcome._tag) {
    case "Acknowledged":
      return resendRecorded(state, active, piece.index + 1, out)
    case "NameTaken":
      return endNameTaken(state, active, piece, outcome.error, out)
    default:
      // The previous process may have sent it, so no refusal shows that it had no effect.
      return endBroken(state, active, piece.original.seq, "unknown", outcome.error, out, false)
  }
}

/** Presumes the number of a rejected request free, unless this server is known to consume it. */
const reject = (state: State, seq: number): void => {
  if (state.traits.rejectionConsumesSeq) state.next = seq + 1
  else if (!state.rejected.includes(seq)) state.rejected.push(seq)
}

/** The lowest number comes first: from there a resume counts on, should it not find the rest. */
const withdrawals = ({ intents }: Active): Array<JournalNote> =>
  intents.toSorted((a, b) => a - b).map((seq) => ({ _tag: "Withdrawn", seq }))

const end = (state: State, active: Active, outcome: Outcome, out: Array<Command>, withdraws = true): void => {
  if (withdraws && state.journaled && active.intents.length > 0)
    out.push({ _tag: "Note", entries: withdrawals(active) })
  state.active = undefined
  state.probing = undefined
  complete(active.operation, outcome, out)
  if (outcome._tag === "Accepted") return
  const [next] = state.queue
  if (next?.follows !== active.operation.id) return
  state.queue.shift()
  complete(next, outcome, out)
}

/** A broken sequence stays broken, except after a partial batch, which can be accepted or cleared. */
const breakWith = (state: State, broken: Broken): void => {
  if (state.broken === undefined || state.broken.applied === "partial") state.broken = broken
}

const endBroken = (
  state: State,
  active: Active,
  seq: number,
  applied: Broken["applied"],
  error: number,
  out: Array<Command>,
  withdraws: boolean,
): void => {
  const broken: Broken = { operation: active.operation.name, seq, applied, error }
  breakWith(state, broken)
  end(state, active, { _tag: "Broken", broken }, out, withdraws)
  endObstructed(state, out)
}

/** Ends everything that is queued, unless it clears what a partly accepted batch left behind. */
const endObstructed = (state: State, out: Array<Command>): void =>
  endQueued(
    state,
    (operation) => {
      const obstructs = obstacle(state, operation)
      return obstructs && { _tag: "Broken", broken: obstructs }
    },
    out,
  )

// ---------------------------------------------------------------------------------------------------------------------
// Results
// ---------------------------------------------------------------------------------------------------------------------

/** Remembers that a number is certainly used. Failed numbers below it have been passed over. */
const prove = (state: State, used: Acknowledgement): void => {
  if (state.proven === undefined || state.proven.seq < used.seq) state.proven = used
  state.failed = state.failed.filter((other) => other > used.seq)
  if (state.retake !== undefined && state.retake <= used.seq) state.retake = undefined
}

const settle = (state: State, event: Extract<Event, { readonly _tag: "Settled" }>, out: Array<Command>): void => {
  const { requestId, result, seq } = event
  state.unsettled = without(state.unsettled, seq)
  switch (result) {
    case "Succeeded":
      prove(state, { seq, requestId })
      break
    case "Failed":
      if (state.proven === undefined || state.proven.seq < seq)
        state.failed = [...without(state.failed, seq), seq].toSorted((a, b) => a - b)
      break
    case "Conflict": {
      if (event.conflictMeansNameTaken) break
      const [firstFailed] = state.failed
      // Some servers notice only when they carry a request out. If it was sent twice, the first may have been applied.
      if (event.inDoubt) {
        breakWith(state, { operation: event.operation, seq, applied: "unknown", error: event.error })
        endObstructed(state, out)
      }
      // Nothing since the failed request has counted, so the next operation takes its number again.
      else if (firstFailed !== undefined && firstFailed < seq) state.retake = firstFailed
      break
    }
    case "Unknown":
      break
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// Finding out whether the server deduplicates
// ---------------------------------------------------------------------------------------------------------------------

const undecided = ({ pieces }: Active): Array<Piece> => pieces.filter(({ phase }) => phase === "Deciding")

/** Asks with a number that is certainly used, or waits for one. Finds out once, however many pieces are in doubt. */
const probe = (state: State, active: Active, out: Array<Command>): void => {
  if (state.proven !== undefined) {
    const { requestId, seq } = state.proven
    state.probing = { _tag: "Used", seq }
    out.push({ _tag: "Probe", seq, requestId, variant: "first" })
    return
  }
  // Parallel pieces have no results before the first piece is sent.
  const before = active.mode === "Parallel" ? [active.pieces[0]] : undecided(active)
  if (state.unsettled.some((seq) => before.some(({ current }) => seq < current.seq))) {
    state.probing = { _tag: "AwaitingResult" }
    out.push({ _tag: "AwaitResult" })
    return
  }
  state.probing = { _tag: "Zero" }
  out.push({ _tag: "Probe", seq: 0, requestId: undefined, variant: "first" })
}

const onProbed = (
  state: State,
  active: Active,
  answer: Extract<Event, { readonly _tag: "Probed" }>["answer"],
  requestId: string | undefined,
  out: Array<Command>,
): void => {
  const { probing } = state
  const refusesReuse = answer === "Conflict" || answer === "SameRequest"
  switch (probing?._tag) {
    case "Used":
      if (refusesReuse) return probed(state, active, true, out)
      if (answer === "Executed") return probed(state, active, false, out)
      return probed(state, active, undefined, out)
    case "Zero":
      // Not every server counts the creation of the model: only a refusal is conclusive.
      if (refusesReuse) return probed(state, active, true, out)
      return probeOwn(state, active, out)
    case "Own":
      return onOwnProbed(state, active, probing, answer, requestId, out)
  }
}

/** Sends a harmless request under the number in doubt: refused, the number is taken; carried out, it was free. */
const probeOwn = (state: State, active: Active, out: Array<Command>): void => {
  const [piece] = undecided(active)
  // A recorded request can't change its number, and parallel pieces would have to change all of theirs.
  if (active.mode !== "Serial" || piece === undefined) return probed(state, active, undefined, out)
  state.probing = { _tag: "Own", first: undefined }
  out.push({ _tag: "Probe", seq: piece.current.seq, requestId: undefined, variant: "first" })
}

const onOwnProbed = (
  state: State,
  active: Active,
  probing: Extract<Probing, { readonly _tag: "Own" }>,
  answer: Extract<Event, { readonly _tag: "Probed" }>["answer"],
  requestId: string | undefined,
  out: Array<Command>,
): void => {
  const [piece] = undecided(active)
  if (probing.first === undefined) {
    if (answer === "Conflict") return probed(state, active, true, out)
    if (answer !== "Executed" || requestId === undefined || piece === undefined)
      return probed(state, active, undefined, out)
    state.probing = { _tag: "Own", first: requestId }
    // With other bytes: a server that compares bodies would take the same ones for the same request.
    out.push({ _tag: "Probe", seq: piece.current.seq, requestId, variant: "second" })
    return
  }
  if (answer === "Executed") return probed(state, active, false, out)
  // The same id for another body: the first answer may have been for the lost request.
  if (answer !== "Conflict" || piece === undefined) return probed(state, active, undefined, out)
  piece.absent = true
  state.next = piece.current.seq + 1
  prove(state, { seq: piece.current.seq, requestId: probing.first })
  probed(state, active, true, out)
}

const probed = (state: State, active: Active, deduplicates: boolean | undefined, out: Array<Command>): void => {
  state.probing = undefined
  if (deduplicates !== undefined) learn(state, { deduplicates }, out)
  for (const piece of undecided(active)) {
    // A number that a probe used is not resent: its final failure moves the request to the next number.
    resendDecided(state, active, piece, deduplicates === true && !piece.absent, out)
  }
}
