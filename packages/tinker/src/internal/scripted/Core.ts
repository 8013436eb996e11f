/** Implements the server: reads a request, applies faults, and answers. */
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type * as Fiber from "effect/Fiber"
import * as Record from "effect/Record"
import type * as Scope from "effect/Scope"
import { matchPath } from "../../protocol/Routing.ts"
import type * as Scripted from "../../testing/ScriptedServer.ts"
import { exitOf } from "../util/Callback.ts"
import { runBeside } from "../util/RunBeside.ts"
import { timeOf } from "../util/MonotonicClock.ts"
import * as Answers from "./Answers.ts"
import { Dropped } from "./Dropped.ts"
import { Faults } from "./Faults.ts"
import { type Call, type Fate, type Matched, modelIdOf, read, sessionOf } from "./Incoming.ts"
import { routes } from "./Routes.ts"
import { type Model, type Outcome, State, trim } from "./State.ts"
import { held, useNumber } from "./Submit.ts"

const table = Record.toEntries(routes)
/** Routes without path parameters, which most requests use. */
const fixed = new Map<string, { readonly method: string; readonly matched: Matched }>(
  table.flatMap(([operation, { endpoint }]) => {
    const { method, path } = endpoint
    return path.includes(":") ? [] : [[path, { method, matched: { operation, params: {} } }] as const]
  }),
)

const find = (method: string, path: string): Matched | undefined => {
  const known = fixed.get(path)
  if (known?.method === method) return known.matched
  for (const [operation, { endpoint }] of table) {
    const params = endpoint.method === method ? matchPath(endpoint, path) : undefined
    if (params !== undefined) return { operation, params }
  }
  return undefined
}

/** Checks the API key. A token that was issued by this server is valid until it expires, whatever the keys. */
const isAuthorized = ({ now, seen, state }: Call): boolean => {
  const key = seen.headers["x-api-key"] ?? ""
  const expires = state.tokens.get(key)
  return expires === undefined ? (state.settings.apiKeys?.includes(key) ?? true) : now < expires
}

const sessionIn = (call: Call) => {
  const id = sessionOf(call)
  return id === undefined ? undefined : call.state.sessions.get(id)
}

/** Handles a request synchronously, except for polls, which may wait. */
const answer = (call: Call): Scripted.Answer | Effect.Effect<Scripted.Answer> => {
  const { operation } = call.seen
  if (operation === undefined) return Answers.detail(404, "Not Found")
  if (!isAuthorized(call)) return Answers.detail(401, "Invalid API key")
  if (sessionIn(call)?.state === "ended") return Answers.detail(410, "Session is gone")
  return routes[operation].answer(call)
}

const outcomeOf = (failure: Extract<Scripted.Action, { readonly failFuture: unknown }>["failFuture"]): Outcome =>
  "status" in failure
    ? { _tag: "Refused", ...failure }
    : { _tag: "Failed", error: failure.error, category: failure.category }

const fateOf = (fault: Scripted.Fault): Fate => {
  if ("failFuture" in fault) return { outcome: outcomeOf(fault.failFuture) }
  if ("expireFuture" in fault) return { expires: true }
  if ("stateFor" in fault) return { pause: fault.stateFor }
  return {}
}

/** Checks whether a status rejects the request itself, so that a retry is pointless. */
const isRejection = (status: number): boolean => status >= 400 && status < 500 && ![402, 408, 409, 429].includes(status)

type AnyFiber = Fiber.RuntimeFiber<unknown, unknown>

/** Like `handle`, for callers that have the fiber: if no waiting is needed, the result is an `Exit`. */
export type Exchange = (request: Scripted.Request, fiber: AnyFiber) => Effect.Effect<Scripted.Answer, Dropped>

export interface Core {
  readonly exchange: Exchange
  readonly service: Scripted.Service
}

export const make = (options: Scripted.Options = {}): Effect.Effect<Core, never, Scope.Scope> =>
  Effect.gen(function* () {
    const scope = yield* Effect.scope
    const { faults: initial = [], ...settings } = options
    const state = new State(settings)
    const faults = new Faults()
    const log: Array<Scripted.Seen> = []
    const startedAt = yield* Clock.currentTimeMillis
    for (const fault of initial) faults.add(fault, startedAt)

    /** Starts the work of lanes that have some. */
    const begin = (fiber: AnyFiber) => {
      for (const lane of state.waiting) runBeside(fiber, lane.work, { scope, immediate: false })
      state.waiting.clear()
    }

    /** Changes the state and starts the resulting work in one synchronous step. */
    const change = (
      fiber: AnyFiber,
      done: () => Scripted.Answer | Effect.Effect<Scripted.Answer>,
    ): Effect.Effect<Scripted.Answer> => {
      const answer = done()
      if (Effect.isEffect(answer)) return answer
      begin(fiber)
      return Effect.succeed(answer)
    }

    const serve = (call: Call, fiber: AnyFiber) => change(fiber, () => answer(call))

    /** Rejects a request as scripted, which on some servers uses up its sequence number. */
    const reject = ({ body, bodyHash, seen }: Call, answer: Scripted.Answer): Scripted.Answer => {
      const model = state.models.get(modelIdOf(body))
      if (state.settings.rejectedUsesNumber && isRejection(answer.status) && model && seen.seq !== undefined)
        useNumber(state, model, seen.seq, bodyHash, answer)
      return answer
    }

    const happen = (fault: Scripted.Fault, call: Call, fiber: AnyFiber): Effect.Effect<Scripted.Answer, Dropped> => {
      if ("status" in fault)
        return change(fiber, () => reject(call, Answers.scripted(fault.status, fault.body, fault.headers)))
      if ("garbage" in fault) return Effect.succeed(Answers.scripted(200, fault.garbage))
      if ("hang" in fault) return Effect.never
      if ("endSession" in fault)
        return change(fiber, () => {
          const session = sessionIn(call)
          if (session !== undefined) state.endSession(session)
          return answer(call)
        })
      if (!("drop" in fault)) return serve(call.destined(fateOf(fault)), fiber)
      const dropped = new Dropped({ when: fault.drop })
      return fault.drop === "after" ? Effect.zipRight(serve(call, fiber), dropped) : dropped
    }

    /** Delays the outcome of an effect. */
    const late = <A, E>(effect: Effect.Effect<A, E>, delay: Duration.DurationInput | undefined) =>
      delay === undefined ? effect : Effect.flatten(Effect.zipLeft(Effect.exit(effect), Effect.sleep(delay)))

    const told = (seen: Call["seen"], answered: Effect.Effect<Scripted.Answer, Dropped>) =>
      Effect.mapBoth(answered, {
        onSuccess: (answer) => {
          seen.answered = answer.status
          return answer
        },
        onFailure: (dropped) => {
          seen.answered = dropped.when
          return dropped
        },
      })

    const exchange: Exchange = (request, fiber) => {
      const call = read(request, timeOf(fiber).clock.unsafeCurrentTimeMillis(), state, find)
      const { seen } = call
      log.push(seen)
      trim(log, state.settings.keep)
      const met = faults.meet(seen)
      const answered = met === undefined ? serve(call, fiber) : late(happen(met, call, fiber), met.delay)
      const exit = exitOf(answered)
      if (exit === undefined || Exit.isFailure(exit)) return told(seen, answered)
      seen.answered = exit.value.status
      return exit
    }

    const fault = (fault: Scripted.Fault): Effect.Effect<Scripted.FaultHandle> =>
      Effect.map(Clock.currentTimeMillis, (now) => {
        const rule = faults.add(fault, now)
        return { fired: Effect.sync(() => rule.fired), remove: Effect.sync(() => faults.remove(rule)) }
      })

    const service: Scripted.Service = {
      handle: (request) => Effect.withFiberRuntime((fiber) => exchange(request, fiber)),
      fault,
      rateLimit: ({ retryAfter, ...window }) =>
        fault({
          ...window,
          status: 429,
          body: { detail: "Too many requests" },
          headers: retryAfter === undefined ? {} : { "retry-after": String(Math.ceil(Duration.toSeconds(retryAfter))) },
        }),
      configure: (change) => Effect.sync(() => state.configure(change)),
      endSession: (id) =>
        Effect.sync(() => {
          for (const session of state.sessions.values())
            if (id === undefined || id === session.id) state.endSession(session)
        }),
      requests: Effect.sync(() => log.map((seen) => ({ ...seen }))),
      requestsTo: (operation) =>
        Effect.sync(() => log.flatMap((seen) => (seen.operation === operation ? [{ ...seen }] : []))),
      sessions: Effect.sync(() => [...state.sessions.values()].map((session) => ({ ...session }))),
      models: Effect.sync(() => [...state.models.values()].map(modelOf)),
      checkpoints: Effect.sync(() =>
        [...state.checkpoints.values()].map(({ kind, modelId, path, weights }) => ({ path, kind, modelId, weights })),
      ),
    }
    return { exchange, service }
  })

const modelOf = (model: Model): Scripted.Model => ({
  id: model.id,
  sessionId: model.sessionId,
  baseModel: model.baseModel,
  applied: [...model.applied],
  hash: model.hash,
  weights: model.weights,
  gradient: model.gradient,
  held: held(model),
})
