/**
 * Mistakes that the exploration must find. Each is one replacement in the source of the core, which must contain the
 * text exactly once: a rule that changes takes its mutants along.
 */
import { readFileSync } from "node:fs"
import { createRequire } from "node:module"
import { fileURLToPath } from "node:url"
import { compileFunction } from "node:vm"
import { type Ground, grounds } from "./Scenarios.ts"
import { explore, Found, needless, type Unknowns } from "./SequenceExplorer.ts"
import type { Core } from "./SequenceModel.ts"

const source = readFileSync(fileURLToPath(new URL("../../src/internal/core/Sequence.ts", import.meta.url)), "utf8")

/** The compiler of the test runner. */
const { transformSync } = ["vitest/package.json", "vite/package.json", "esbuild"].reduce<unknown>(
  (from, name, index) => {
    const require = createRequire(index === 0 ? import.meta.url : String(from))
    return name === "esbuild" ? require(name) : require.resolve(name)
  },
  undefined,
) as {
  readonly transformSync: (text: string, options: { readonly loader: "ts"; readonly format: "cjs" }) => { code: string }
}

/** Evaluates a source of the core, which imports nothing but types. */
const evaluate = (text: string): Core => {
  const module = { exports: {} as Core }
  compileFunction(transformSync(text, { loader: "ts", format: "cjs" }).code, ["module"])(module)
  return module.exports
}

export interface Mutant {
  readonly name: string
  readonly replaced: string
  readonly by: string
  /** The scenarios in which it is found. */
  readonly ground: Ground
}

/** Creates the core with this mistake. */
export const mutate = ({ by, name, replaced }: Omit<Mutant, "ground">): Core => {
  const count = source.split(replaced).length - 1
  if (count !== 1) throw new Error(`the mutant "${name}" replaces a string that occurs ${count} times: ${replaced}`)
  return evaluate(source.replace(replaced, () => by))
}

/** Explores a ground and returns the first violation. */
export const flawOf = (core: Core, ground: Ground): string | undefined => {
  const unknowns: Unknowns = new Map()
  const commands = new Set<string>()
  try {
    for (const scenario of grounds[ground].scenarios)
      for (const command of explore(core, scenario, unknowns).commands) commands.add(command)
  } catch (error) {
    if (error instanceof Found) return error.message
    throw error
  }
  const missing = grounds[ground].commands.filter((command) => !commands.has(command))
  if (missing.length > 0) return `never commands ${missing.join()}`
  return needless(unknowns)[0]
}

const mutant = (name: string, ground: Ground, replaced: string, by: string): Mutant => ({ name, ground, replaced, by })

export const mutants: ReadonlyArray<Mutant> = [
  // Events
  mutant(
    "refuses to enqueue",
    "single",
    `  else state.queue.push(operation)`,
    `  else complete(operation, { _tag: "Closed" }, out)`,
  ),
  mutant("forgets an operation that is enqueued", "single", `  else state.queue.push(operation)`, ``),
  mutant("never resumes a cancelled caller", "users", `    else complete(operation, outcome, out)`, ``),
  mutant("cancels nothing", "users", `      cancel(state, event.id, out)\n`, ``),
  mutant(
    "cancels everything in the queue",
    "users",
    `        return undefined\n      cancelled.add`,
    `        return { _tag: "Cancelled" }\n      cancelled.add`,
  ),
  mutant(
    "sends an update whose pass was cancelled",
    "users",
    `operation.follows !== undefined && cancelled.has(operation.follows)`,
    `false`,
  ),
  mutant("never starts a turn", "single", `      startTurn(state, out)\n`, ``),
  mutant(
    "forgets what the session knows",
    "waiting",
    `      state.traits = { ...event.traits }\n`,
    `      state.traits = { ...noTraits }\n`,
  ),
  mutant("ignores results", "single", `      settle(state, event, out)\n`, ``),
  mutant(
    "never accepts a part",
    "parts",
    `      if (state.broken?.applied === "partial") state.broken = undefined\n`,
    ``,
  ),
  mutant(
    "heals whatever is broken",
    "parts",
    `if (state.broken?.applied === "partial") state.broken = undefined`,
    `state.broken = undefined`,
  ),
  mutant("ignores that it is closed", "users", `      close(state, event.force, out)\n`, ``),
  mutant("enqueues into a closed client", "users", `  state.closed = true\n`, ``),
  mutant(
    "leaves the caller waiting when it is closed by force",
    "users",
    `  complete(state.active.operation, { _tag: "Closed" }, out)\n`,
    ``,
  ),
  mutant(
    "goes on sending when it is closed by force",
    "users",
    `  state.active = undefined\n  state.probing = undefined\n}`,
    `}`,
  ),
  mutant(
    "drops the operation in progress when it is closed",
    "users",
    `  if (!force || state.active === undefined) return\n  complete`,
    `  if (state.active === undefined) return\n  complete`,
  ),
  mutant(
    "ignores the result that it waits for",
    "waiting",
    `probe(state, active, out)\n      break\n    case "Probed"`,
    `void 0\n      break\n    case "Probed"`,
  ),
  mutant(
    "ignores the answer to a probe",
    "single",
    `      if (active !== undefined) onProbed(state, active, event.answer, event.requestId, out)\n`,
    ``,
  ),
  mutant(
    "ignores that the journal is durable",
    "crash",
    `      if (active.isRecording) beginSending(state, active, out)\n      else if`,
    `      if`,
  ),
  mutant(
    "never sends a substitute that the journal has",
    "journal",
    `        send(state, active, piece, out)\n      }\n`,
    `      }\n`,
  ),
  mutant(
    "ignores that the journal failed",
    "journal",
    `      if (active.isRecording) end(state, active, { _tag: "Failed", error: event.error }, out, false)\n`,
    `      if (active.isRecording) void 0\n`,
  ),
  mutant(
    "ignores that the journal failed for a substitute",
    "journal",
    `      else\n        endPiece(\n`,
    `      else if (Number(1) > 1)\n        endPiece(\n`,
  ),
  mutant(
    "ignores a failed attempt",
    "single",
    `      piece.pending = { _tag: "Attempt", failure: event.failure }\n`,
    ``,
  ),
  mutant("ignores an acceptance", "single", `      acknowledge(state, active, piece, event.requestId, out)\n`, ``),
  mutant("ignores a refusal", "single", `      piece.pending = { _tag: "Response", failure: event.failure }\n`, ``),
  mutant(
    "takes every 500 for a matter of encoding",
    "single",
    `      piece.unreadable = event.readsOnlyJson\n`,
    `      piece.unreadable = true\n`,
  ),
  mutant("never finds a server that only reads JSON", "encoding", `      piece.unreadable = event.readsOnlyJson\n`, ``),
  mutant(
    "ignores that a delay is over",
    "single",
    `      if (piece.phase === "Delaying") dispatch(state, active, piece, piece.original, "None", out)\n`,
    ``,
  ),

  // The queue
  mutant(
    "sends something for an operation without requests",
    "waiting",
    `if (operation.pieces === 0) return`,
    `if (operation.pieces < 0) return`,
  ),
  mutant(
    "keeps sending after it broke",
    "waiting",
    `pieces === 0 || (clearsPartial && broken?.applied === "partial") ? undefined : broken`,
    `broken === undefined || pieces >= 0 ? undefined : broken`,
  ),
  mutant(
    "lets nothing clear a part",
    "parts",
    `pieces === 0 || (clearsPartial && broken?.applied === "partial") ? undefined : broken`,
    `pieces === 0 && clearsPartial ? undefined : broken`,
  ),
  mutant(
    "lets a load clear what is unknown",
    "parts",
    `(clearsPartial && broken?.applied === "partial") ?`,
    `clearsPartial ?`,
  ),
  mutant(
    "leaves the queue waiting after it broke",
    "waiting",
    `  endObstructed(state, out)\n}\n\n/** Ends everything`,
    `}\n\n/** Ends everything`,
  ),
  mutant(
    "sends in parallel where it is not certain which number is next",
    "parallelAfter",
    `parallel && pieces > 1 && isCertain`,
    `parallel && pieces > 1`,
  ),
  mutant(
    "never sends in parallel",
    "parallelThree",
    `isCertain ? "Parallel" : "Serial"`,
    `isCertain ? "Serial" : "Serial"`,
  ),
  mutant("gives all pieces the same number", "parallelStep", `?? state.next + index`, `?? state.next`),
  mutant("never takes a failed number again", "failures", `  state.next = state.retake\n`, ``),
  mutant(
    "gives an update the number of another pass",
    "failures",
    `state.retake === undefined || follows !== undefined || recorded !== undefined`,
    `state.retake === undefined`,
  ),
  mutant(
    "takes a failed number twice",
    "failures",
    `  state.failed = without(state.failed, state.retake)\n  state.retake = undefined\n`,
    ``,
  ),
  mutant("always writes protobuf", "encoding", `(state.traits.encoding ?? "protobuf")`, `"protobuf"`),

  // Sending
  mutant(
    "sends before the journal is durable",
    "crash",
    `  if (!state.journaled) return beginSending(state, active, out)\n`,
    `  beginSending(state, active, out)\n  if (!state.journaled) return\n`,
  ),
  mutant(
    "keeps no journal",
    "crash",
    `  if (!state.journaled) return beginSending(state, active, out)\n`,
    `  return beginSending(state, active, out)\n`,
  ),
  mutant(
    "sends the first piece of a parallel batch first",
    "parallel",
    `  for (const piece of later) send(state, active, piece, out)\n`,
    `  for (const piece of active.pieces) send(state, active, piece, out)\n`,
  ),
  mutant(
    "sends an operation that an earlier result broke",
    "failures",
    `  if (broken !== undefined) return abandon(state, active, piece, broken, out)\n`,
    ``,
  ),
  mutant("prepares nothing", "prepare", `  prepareNext(state, active, piece, out)\n`, ``),
  mutant(
    "prepares under the number in use",
    "prepare",
    `seq: piece.current.seq + 1, encoding: encodingOf(state, next)`,
    `seq: piece.current.seq, encoding: encodingOf(state, next)`,
  ),
  mutant(
    "prepares before it knows the encoding",
    "prepare",
    `  if (next.encoding === "choice" && state.traits.encoding === undefined) return\n`,
    ``,
  ),
  mutant(
    "sends a substitute that the journal does not have",
    "journal",
    `  if (!state.journaled || active.mode === "Recorded") return send(state, active, piece, out)\n  const isSame`,
    `  if (state.journaled) return send(state, active, piece, out)\n  if (!state.journaled || active.mode === "Recorded") return send(state, active, piece, out)\n  const isSame`,
  ),
  mutant(
    "forgets to withdraw a number that it leaves",
    "journal",
    `isMoved ? without(active.intents, ...taken) : []`,
    `[]`,
  ),
  mutant("leaves the later pieces of a batch behind", "crashMoved", `isMoved ? moveAlong(active, piece) : []`, `[]`),
  mutant(
    "forgets to note an acknowledgement",
    "crash",
    `  if (state.journaled) out.push({ _tag: "Note", entries: [{ _tag: "Acknowledged", seq, requestId }] })\n`,
    ``,
  ),
  mutant("polls nothing", "single", `  out.push({ _tag: "Poll", id, piece: index, seq, requestId, inDoubt })\n`, ``),
  mutant(
    "polls without saying that it is in doubt",
    "failures",
    `  const { inDoubt, index } = piece\n  out.push`,
    `  const { index } = piece\n  const inDoubt = false\n  out.push`,
  ),
  mutant("forgets the encoding that was accepted", "encoding", `    learn(state, { encoding }, out)\n`, `    void 0\n`),
  mutant("gives an update a number before that of its pass", "failures", `follows === undefined ? 0 : seq - 1`, `0`),
  mutant(
    "breaks over an update behind a failed number",
    "failures",
    `(follows !== undefined && failed.length > 0)`,
    `false`,
  ),
  mutant(
    "forgets that a request was rejected when the journal fails",
    "journal",
    `rejected: piece.failure?.meaning === "Rejected"`,
    `rejected: false`,
  ),
  mutant(
    "forgets which numbers the journal has",
    "journal",
    `        active.intents = active.pieces.flatMap(({ current, outcome }) => (outcome === undefined ? [current.seq] : []))\n`,
    ``,
  ),
  mutant(
    "never learns that rejections use numbers",
    "rejections",
    `  if (state.maybeUsed.length === 0) learn(state, { rejectionConsumesSeq: true }, out)\n`,
    ``,
  ),
  mutant("blames a save's number on rejections", "names", `  if (state.maybeUsed.length === 0) learn(`, `  learn(`),
  mutant(
    "goes on at its own number after a lower one was let pass",
    "failures",
    `  state.next = current.seq\n  if (current.seq < original.seq) return\n`,
    `  if (current.seq < original.seq) return\n`,
  ),
  mutant(
    "keeps rejected numbers in mind for ever",
    "parallelAfter",
    `  state.rejected = state.rejected.filter((other) => other > seq)\n`,
    ``,
  ),
  mutant(
    "does not report what it learned",
    "single",
    `  out.push({ _tag: "Learn", traits: { ...state.traits } })\n`,
    ``,
  ),

  // Failures
  mutant(
    "always gives up",
    "single",
    `const mayResend = (state: State, { repeatable }: Operation): boolean | undefined => {\n`,
    `const mayResend = (state: State, { repeatable }: Operation): boolean | undefined => {\n  if (Number(1) === 1) return false\n`,
  ),
  mutant(
    "resends without probing",
    "single",
    `  return state.onUnknownOutcome === "stop" ? false : state.traits.deduplicates\n`,
    `  return true\n`,
  ),
  mutant(
    "probes for what does no harm",
    "repeatable",
    `  if (repeatable || state.onUnknownOutcome === "resend") return true\n`,
    `  if (state.onUnknownOutcome === "resend") return true\n`,
  ),
  mutant(
    "probes although `onUnknownOutcome` is resend",
    "told",
    `  if (repeatable || state.onUnknownOutcome === "resend") return true\n`,
    `  if (repeatable) return true\n`,
  ),
  mutant(
    "probes although `onUnknownOutcome` is stop",
    "told",
    `state.onUnknownOutcome === "stop" ? false : state.traits.deduplicates`,
    `state.traits.deduplicates`,
  ),
  mutant(
    "ignores a server that asks for a retry",
    "single",
    `  if (failure.asksForRetry) return decide(state, active, piece, true, out)\n`,
    ``,
  ),
  mutant(
    "gives up where nothing was sent",
    "single",
    `  if (failure.meaning !== "Uncertain") return decide(state, active, piece, true, out)\n`,
    `  if (failure.meaning !== "Uncertain") return decide(state, active, piece, false, out)\n`,
  ),
  mutant(
    "forgets that it is in doubt",
    "single",
    `  piece.inDoubt = true\n  if (failure.asksForRetry)`,
    `  if (failure.asksForRetry)`,
  ),
  mutant(
    "has no doubt about a response that it can't read",
    "single",
    `    if (pending.failure.meaning === "Uncertain" && !piece.unreadable) piece.inDoubt = true\n`,
    ``,
  ),
  mutant(
    "never checks the encoding",
    "encoding",
    `  piece.phase = "Checking"\n  out.push({ _tag: "CheckEncoding", piece: piece.index })\n`,
    `  judged(state, active, piece, out)\n`,
  ),
  mutant(
    "trusts that JSON was the reason",
    "parallel",
    `if (!mayBeUnreadable || state.traits.encoding === "protobuf") return`,
    `if (state.traits.encoding === "json" && mayBeUnreadable) piece.unreadable = true\n  if (!mayBeUnreadable || state.traits.encoding !== undefined) return`,
  ),
  mutant(
    "decides for a piece whose encoding is being checked",
    "parallelThree",
    `pieces.filter(({ phase }) => phase === "Deciding")`,
    `pieces.filter(({ phase }) => phase === "Deciding" || phase === "Checking")`,
  ),
  mutant(
    "keeps resending after it broke",
    "failures",
    `resend: resend && obstacle(state, active.operation) === undefined`,
    `resend`,
  ),
  mutant(
    "gives up at the first conflict",
    "single",
    `      if (failure.meaning === "Conflict") return insist(state, active, piece, out)\n      if (piece.inDoubt)`,
    `      if (piece.inDoubt)`,
  ),
  mutant(
    "never writes a request in another way",
    "single",
    `      if (piece.unreadable || failure.meaning === "Rejected") return rewrite(state, active, piece, failure, out)\n`,
    ``,
  ),
  mutant(
    "never leaves out what the server does not know",
    "single",
    `  if (failure.leaner) return dispatch(state, active, piece, piece.original, "Leaner", out)\n`,
    ``,
  ),
  mutant(
    "breaks over the conflict of a leaner request",
    "single",
    `? first?.unreadable === false : isConflict`,
    `? first?.unreadable === false : false`,
  ),
  mutant(
    "stops at a conflict in the other encoding",
    "single",
    `if (isConflict && piece.substitute === "OtherEncoding")`,
    `if (isConflict && piece.substitute === "None")`,
  ),
  mutant(
    "reports the second of two refusals",
    "single",
    `? first?.unreadable === false : isConflict`,
    `? false : isConflict`,
  ),
  mutant(
    "renumbers while in doubt",
    "failures",
    `hasWaited && !piece.inDoubt && mayRenumber`,
    `hasWaited && mayRenumber`,
  ),
  mutant("renumbers at the first conflict", "rejections", `piece.delays >= delaysBeforeRenumbering`, `true`),
  mutant("renumbers a later piece", "failures", `index === 0 && mode === "Serial"`, `mode === "Serial"`),
  mutant(
    "never reuses a free number",
    "failures",
    `.filter((other) => other >= lowest && other < seq)`,
    `.filter(() => false)`,
  ),
  mutant("never passes over a rejected number", "rejections", `  return [...later, ...failed]\n`, `  return failed\n`),
  mutant(
    "never passes over the number of a save",
    "names",
    `state.rejected.includes(used) || state.maybeUsed.includes(used)`,
    `state.rejected.includes(used)`,
  ),
  mutant(
    "always reports no",
    "single",
    `      : { _tag: "Lost", applied: "unknown", error }\n`,
    `      : { _tag: "Lost", applied: "no", error }\n`,
  ),
  mutant(
    "always reports unknown",
    "conflicts",
    `!isExplained) return { _tag: "Lost", applied: "no", error }`,
    `!isExplained) return { _tag: "Lost", applied: "unknown", error }`,
  ),
  mutant(
    "breaks over a name that is taken",
    "names",
    `const isExplained = conflictMeansNameTaken || `,
    `const isExplained = `,
  ),
  mutant(
    "breaks over a name in doubt",
    "names",
    `    return isConflict && conflictMeansNameTaken\n`,
    `    return isConflict && !conflictMeansNameTaken && conflictMeansNameTaken\n`,
  ),
  mutant(
    "gives away the number of a save in doubt",
    "names",
    `    state.next = seq\n    state.maybeUsed.push(seq)\n`,
    `    state.next = seq + 1\n`,
  ),
  mutant(
    "sends a request again under the number of a probe",
    "single",
    `seq: piece.current.seq + 1, encoding: piece.current.encoding`,
    `seq: piece.current.seq, encoding: piece.current.encoding`,
  ),

  // Operations
  mutant(
    "skips numbers",
    "pair",
    `      state.next = piece.current.seq + 1\n      const following`,
    `      state.next = piece.current.seq + 2\n      const following`,
  ),
  mutant(
    "takes a part for nothing",
    "parts",
    `  const isPart = earlier.some(({ current }) => !state.failed.includes(current.seq))\n`,
    `  const isPart = false\n`,
  ),
  mutant(
    "takes failed pieces for a part",
    "failedParts",
    `  const isPart = earlier.some(({ current }) => !state.failed.includes(current.seq))\n`,
    `  const isPart = earlier.length > 0\n`,
  ),
  mutant(
    "takes a piece of a forward pass for a part",
    "repeatable",
    `operation.independentPieces ? [] : pieces.slice`,
    `pieces.slice`,
  ),
  mutant("forgets rejected numbers", "rejections", `      if (outcome.rejected) reject(state, outcome.seq)\n`, ``),
  mutant(
    "takes a number for free that a rejection used",
    "rejections",
    `  if (state.traits.rejectionConsumesSeq) state.next = seq + 1\n  else if`,
    `  if`,
  ),
  mutant(
    "sends the first piece although another was refused",
    "parallel",
    `  if (bad !== undefined) {\n`,
    `  if (bad !== undefined && first.outcome !== undefined) {\n`,
  ),
  mutant(
    "breaks although nothing of a parallel batch arrived",
    "parallel",
    `if (free.length < outcomes.length)`,
    `if (free.length <= outcomes.length)`,
  ),
  mutant(
    "reports no for a rejected first piece",
    "parallel",
    `first.outcome._tag === "Free" && !first.outcome.rejected ? "no" : "unknown"`,
    `"no"`,
  ),
  mutant(
    "counts a parallel batch as one",
    "parallelStep",
    `first.original.seq + active.pieces.length`,
    `first.original.seq + 1`,
  ),
  mutant(
    "sends recorded requests without bytes",
    "forgets",
    `active.operation.recorded?.[index]?.hasBytes !== true`,
    `false`,
  ),
  mutant(
    "sends only the first recorded piece",
    "crashParts",
    `      return resendRecorded(state, active, piece.index + 1, out)\n`,
    `      return end(state, active, { _tag: "Accepted" }, out)\n`,
  ),
  mutant(
    "has no doubt about a recorded request",
    "crash",
    `inDoubt: operation.recorded !== undefined,`,
    `inDoubt: false,`,
  ),
  mutant(
    "forgets to withdraw",
    "journal",
    `    out.push({ _tag: "Note", entries: withdrawals(active) })\n`,
    `    void 0\n`,
  ),
  mutant(
    "withdraws what may have arrived",
    "crash",
    `        return endBroken(state, active, piece.original.seq, outcome.applied, outcome.error, out, false)\n      return isPart`,
    `        return endBroken(state, active, piece.original.seq, outcome.applied, outcome.error, out, true)\n      return isPart`,
  ),
  mutant(
    "withdraws the highest number first",
    "journal",
    `intents.toSorted((a, b) => a - b)`,
    `intents.toSorted((a, b) => b - a)`,
  ),
  mutant(
    "never ends an operation",
    "single",
    `  state.active = undefined\n  state.probing = undefined\n  complete(`,
    `  state.probing = undefined\n  complete(`,
  ),
  mutant(
    "resumes no caller",
    "single",
    `  complete(active.operation, outcome, out)\n  if (outcome._tag === "Accepted") return\n`,
    `  if (outcome._tag === "Accepted") return\n`,
  ),
  mutant(
    "sends an update whose pass failed",
    "pair",
    `  if (next?.follows !== active.operation.id) return\n`,
    `  return\n`,
  ),
  mutant(
    "stays healthy in doubt",
    "single",
    `  if (state.broken === undefined || state.broken.applied === "partial") state.broken = broken\n`,
    ``,
  ),

  // Results
  mutant(
    "takes a failed number for used",
    "failures",
    `        state.failed = [...without(state.failed, seq), seq].toSorted((a, b) => a - b)\n`,
    `        void 0\n`,
  ),
  mutant(
    "ignores a conflict result",
    "failures",
    `    case "Conflict": {\n      if (event.conflictMeansNameTaken) break\n`,
    `    case "Conflict": {\n      break\n`,
  ),
  mutant("forgets a doubt over a part", "doubtAfterPart", `        breakWith(state, {`, `        state.broken ??= ({`),
  mutant(
    "jumps over numbers that may be free",
    "crashRejected",
    `  return [...later, ...failed]\n`,
    `  return [...later.slice(-1), ...failed]\n`,
  ),
  mutant(
    "forgets the numbers that were withdrawn",
    "crashRejected",
    `maybeUsed: [...start.withdrawn],`,
    `maybeUsed: [],`,
  ),
  mutant(
    "blames a probe's number on rejections",
    "crashRejected",
    `  rejected: [],\n  maybeUsed: [...start.withdrawn],`,
    `  rejected: [...start.withdrawn],\n  maybeUsed: [],`,
  ),
  mutant(
    "ignores a conflict result in doubt",
    "failures",
    `      if (event.inDoubt) {\n`,
    `      if (Number(1) > 1) {\n`,
  ),
  mutant(
    "takes a number again that was passed over",
    "failures",
    `  if (state.retake !== undefined && state.retake <= used.seq) state.retake = undefined\n`,
    ``,
  ),
  mutant(
    "forgets what succeeded",
    "waiting",
    `  if (state.proven === undefined || state.proven.seq < used.seq) state.proven = used\n`,
    ``,
  ),

  // Probes
  mutant(
    "only probes number 0",
    "single",
    `      return probeOwn(state, active, out)\n    case "Own"`,
    `      return probed(state, active, undefined, out)\n    case "Own"`,
  ),
  mutant(
    "takes a server for careless that does not count number 0",
    "single",
    `      return probeOwn(state, active, out)\n    case "Own"`,
    `      return probed(state, active, answer === "Executed" ? false : undefined, out)\n    case "Own"`,
  ),
  mutant(
    "probes number 0 although a number is used",
    "waiting",
    `  if (state.proven !== undefined) {\n`,
    `  if (Number(1) > 1 && state.proven !== undefined) {\n`,
  ),
  mutant(
    "waits for no result",
    "waiting",
    `  if (state.unsettled.some((seq) => before.some(({ current }) => seq < current.seq))) {\n`,
    `  if (Number(1) > 1) {\n`,
  ),
  mutant(
    "waits for a result that can't come",
    "parallel",
    `active.mode === "Parallel" ? [active.pieces[0]] : undecided(active)`,
    `active.pieces.map((piece) => ({ ...piece, current: { ...piece.current, seq: 9 } }))`,
  ),
  mutant(
    "takes no refusal of a used number for an answer",
    "waiting",
    `      if (refusesReuse) return probed(state, active, true, out)\n      if (answer === "Executed") return`,
    `      if (answer === "Executed") return`,
  ),
  mutant(
    "trusts a server that carries out a used number again",
    "waiting",
    `      if (answer === "Executed") return probed(state, active, false, out)\n      return probed(state, active, undefined, out)`,
    `      return probed(state, active, true, out)`,
  ),
  mutant(
    "trusts a probe without an answer",
    "waiting",
    `      if (answer === "Executed") return probed(state, active, false, out)\n      return probed(state, active, undefined, out)`,
    `      return probed(state, active, answer !== "Executed", out)`,
  ),
  mutant(
    "gives a recorded request another number",
    "crash",
    `active.mode !== "Serial" || piece === undefined`,
    `piece === undefined`,
  ),
  mutant(
    "takes the first probe of the own number for proof",
    "single",
    `    state.probing = { _tag: "Own", first: requestId }\n`,
    `    return probed(state, active, true, out)\n`,
  ),
  mutant(
    "probes with the same bytes twice",
    "single",
    `requestId, variant: "second" })`,
    `requestId, variant: "first" })`,
  ),
  mutant(
    "takes the same id for another body as proof",
    "single",
    `  if (answer !== "Conflict" || piece === undefined) return`,
    `  if (answer === "Unknown" || piece === undefined) return`,
  ),
  mutant(
    "trusts a server that carries out both probes",
    "single",
    `  if (answer === "Executed") return probed(state, active, false, out)\n  // The same id`,
    `  if (answer === "Executed") return probed(state, active, true, out)\n  // The same id`,
  ),
  mutant(
    "resends under a number that a probe used",
    "single",
    `deduplicates === true && !piece.absent`,
    `deduplicates === true`,
  ),
  mutant("goes on at the number of the probe", "single", `  state.next = piece.current.seq + 1\n  prove(`, `  prove(`),
  mutant(
    "probes once for each piece in doubt",
    "parallelThree",
    `  if (state.probing === undefined) probe(state, active, out)\n`,
    `  probe(state, active, out)\n`,
  ),
  mutant(
    "answers only one of the pieces in doubt",
    "parallelThree",
    `  for (const piece of undecided(active)) {\n`,
    `  for (const piece of undecided(active).slice(0, 1)) {\n`,
  ),
  mutant(
    "finds out and forgets",
    "single",
    `  if (deduplicates !== undefined) learn(state, { deduplicates }, out)\n`,
    ``,
  ),
]
