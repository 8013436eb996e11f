/**
 * Accepts requests that have a future: which sequence number is allowed, what counts as a repetition, and when they
 * run.
 */
import * as Duration from "effect/Duration"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import type { Accepted } from "../../protocol/schemas/Futures.ts"
import type { Answer, Operation } from "../../testing/ScriptedServer.ts"
import { refuse } from "./Answers.ts"
import * as Hash from "../util/Hash.ts"
import type { Call } from "./Incoming.ts"
import { Lane } from "./Lane.ts"
import type { Payload } from "./Results.ts"
import { failed, type Future, gone, type Model, type Outcome, settle, type State, trim } from "./State.ts"

/** The result of running a request; the left side is why it failed. */
export type Done = Either.Either<Payload, string>

const accepted = (future: Future): Accepted => ({
  requestId: future.id,
  modelId: Option.none(),
  sampleSequenceIds: Option.none(),
})

const futureFor = ({ fate: { pause }, now, seen, state }: Call, sessionId: string): Future =>
  state.future(
    seen.operation,
    sessionId,
    pause === undefined
      ? undefined
      : {
          queueState: pause.queueState,
          ...(pause.reason !== undefined && { reason: pause.reason }),
          until: now + Duration.toMillis(pause.duration),
        },
  )

/**
 * Adds the work on a request to a lane; `finish` runs it, unless a fault or the end of the session settled it already.
 */
const schedule = (call: Call, lane: Lane, future: Future, finish: () => Outcome): void => {
  const { fate, now, seen, state } = call
  const { work } = state.settings
  const needsWork = lane.add(
    {
      notBefore: future.pause?.until ?? now,
      takes: Duration.toMillis(typeof work === "function" ? work(seen) : work),
      run: () => {
        if (future.outcome !== undefined) return
        const outcome = finish()
        settle(future, fate.expires === true && outcome._tag === "Result" ? gone : outcome)
      },
    },
    now,
  )
  if (needsWork) state.waiting.add(lane)
}

/**
 * Returns the scripted outcome, or runs the request. Exceptions of user-supplied functions are reported as failures.
 */
const outcomeOf = (call: Call, done: () => Done): Outcome => {
  if (call.fate.outcome !== undefined) return call.fate.outcome
  try {
    return Either.match(done(), {
      onLeft: (problem) => failed(problem),
      onRight: (payload): Outcome => ({ _tag: "Result", payload }),
    })
  } catch (cause) {
    return failed(`the script of this server threw: ${String(cause)}`, "server")
  }
}

/** Starts a request without a sequence number, in its own lane unless it has to wait for others. */
export const start = (
  call: Call,
  sessionId: string,
  done: () => Done,
  options: { readonly lane?: Lane; readonly onEnd?: (future: Future, outcome: Outcome) => void } = {},
): Accepted => {
  const future = futureFor(call, sessionId)
  schedule(call, options.lane ?? new Lane(), future, () => {
    const outcome = outcomeOf(call, done)
    options.onEnd?.(future, outcome)
    return outcome
  })
  return accepted(future)
}

/** Creates an object once for repeated requests; a different request for the same object is a conflict. */
export const once = <A>(
  known: { get: (key: A) => { readonly hash: string; readonly accepted: Accepted } | undefined },
  key: A,
  hash: string,
  make: () => Either.Either<Accepted, Answer>,
): Either.Either<Accepted, Answer> => {
  const before = known.get(key)
  if (before === undefined) return make()
  return before.hash === hash ? Either.right(before.accepted) : refuse(409, `${String(key)} is another request already`)
}

const conflict = (expected: number, seq: number) => `Sequence conflict: expected ${expected}, got ${seq}`

/** Returns the only number that a `nextOnly` server accepts. */
const due = (model: Model): number => model.next + model.running + model.skipped.size

const advance = (model: Model): void => {
  model.next++
  while (model.skipped.delete(model.next)) model.next++
}

/** Submits a request with a sequence number, which is applied to the model in order. */
export const submit = (
  call: Call,
  model: Model,
  seq: number,
  operation: Operation,
  done: () => Done,
): Either.Either<Accepted, Answer> => {
  const { bodyHash, state } = call
  const { mode } = state.settings
  if (mode === "dedupe") {
    if (seq < 1) return refuse(409, conflict(1, seq))
    const before = model.submitted.get(seq)
    if (before !== undefined) {
      if (before.hash !== bodyHash) return refuse(409, `Sequence conflict: ${seq} is another request already`)
      return "rejected" in before ? Either.left(before.rejected) : Either.right(before.accepted)
    }
  }
  if (mode === "nextOnly" && seq !== due(model)) return refuse(409, conflict(due(model), seq))

  const future = futureFor(call, model.sessionId)
  const apply = (): Outcome => {
    const outcome = outcomeOf(call, done)
    if (outcome._tag === "Result") record(state, model, { seq, operation, bodyHash, requestId: future.id })
    return outcome
  }
  switch (mode) {
    case "dedupe":
      model.submitted.set(seq, {
        hash: bodyHash,
        accepted: accepted(future),
        begin: () => schedule(call, model.lane, future, apply),
      })
      release(model)
      break
    case "nextOnly":
      model.running++
      schedule(call, model.lane, future, () => {
        model.running--
        // An earlier request has failed in the meantime.
        if (seq !== model.next) return { _tag: "Refused", status: 409, detail: conflict(model.next, seq) }
        const outcome = apply()
        if (outcome._tag === "Result") advance(model)
        else model.skipped.clear()
        return outcome
      })
      break
    case "anything":
      schedule(call, model.lane, future, apply)
  }
  return Either.right(accepted(future))
}

const record = ({ settings }: State, model: Model, applied: Model["applied"][number]): void => {
  model.applied.push(applied)
  trim(model.applied, settings.keep)
  model.submitted.delete(applied.seq - settings.keep)
  model.hash = Hash.fingerprint(new TextEncoder().encode(`${model.hash} ${applied.operation} ${applied.bodyHash}`))
}

/** Starts every request up to the first missing number. */
const release = (model: Model): void => {
  for (let next = model.submitted.get(model.next); next !== undefined; next = model.submitted.get(model.next)) {
    model.next++
    if ("begin" in next) next.begin()
  }
}

/** Returns the numbers that arrived and wait for an earlier one. */
export const held = (model: Model): ReadonlyArray<number> =>
  [...model.submitted.keys()].filter((seq) => seq >= model.next).toSorted((a, b) => a - b)

/** Uses up the number of a rejected request. */
export const useNumber = (state: State, model: Model, seq: number, hash: string, rejected: Answer): void => {
  if (state.settings.mode === "dedupe" && !model.submitted.has(seq)) {
    model.submitted.set(seq, { hash, rejected })
    release(model)
  }
  if (state.settings.mode === "nextOnly" && seq === due(model)) {
    if (model.running === 0) advance(model)
    else model.skipped.add(seq)
  }
}
