/**
 * Looks up objects of the caller. Objects of other owners are reported as not found, so their existence is not
 * disclosed.
 */
import * as Effect from "effect/Effect"
import type { Core } from "./Core.ts"
import { found, type Refusal, refuse } from "./Refusal.ts"
import type { CheckpointRow, Future, Model, Sampler, Session } from "./State.ts"
import { uptime } from "./Uptime.ts"

interface Caller {
  readonly owner: string
  readonly now: number
}

const own = <A extends { readonly owner: string }>(
  { owner }: Caller,
  value: A | undefined,
  what: string,
): Effect.Effect<A, Refusal> => found(value?.owner === owner ? value : undefined, what)

/** Finds a session of the caller, active or not. */
export const anySession = ({ state }: Core, caller: Caller, id: string): Effect.Effect<Session, Refusal> =>
  own(caller, state.sessions.get(id), `Session ${id}`)

/** Finds an active session of the caller, and keeps it alive. */
export const session = (core: Core, caller: Caller, id: string): Effect.Effect<Session, Refusal> =>
  Effect.flatMap(anySession(core, caller, id), (session) => {
    if (session.state !== "active") return refuse(410, `Session ${id} is ${session.state}`)
    return Effect.map(uptime, (now) => {
      session.lastSeen = now
      return session
    })
  })

export const model = (core: Core, caller: Caller, id: string): Effect.Effect<Model, Refusal> =>
  Effect.flatMap(own(caller, core.state.models.get(id), `Model ${id}`), (model) => {
    if (model.sessionId === "") return refuse(404, `${id} is a copy of weights, not a model in training`)
    return Effect.flatMap(session(core, caller, model.sessionId), () => {
      if (model.lostBecause !== undefined) return refuse(404, `Model ${id} was lost: ${model.lostBecause}`)
      if (model.state === "unloaded") return refuse(404, `Model ${id} was unloaded`)
      model.lastRequest = caller.now
      return Effect.succeed(model)
    })
  })

export const anySampler = ({ state }: Core, caller: Caller, id: string): Effect.Effect<Sampler, Refusal> =>
  own(caller, state.samplers.get(id), `Sampler ${id}`)

export const sampler = (core: Core, caller: Caller, id: string): Effect.Effect<Sampler, Refusal> =>
  Effect.tap(anySampler(core, caller, id), ({ sessionId }) => session(core, caller, sessionId))

export const future = (core: Core, caller: Caller, id: string): Effect.Effect<Future, Refusal> =>
  Effect.tap(own(caller, core.state.futures.get(id), `Future ${id}`), ({ sessionId }) =>
    Effect.map(uptime, (now) => {
      const session = core.state.sessions.get(sessionId)
      if (session?.state === "active") session.lastSeen = now
    }),
  )

/** Finds a checkpoint that the caller owns, that is public, or whose owner is among `owners`. */
export const checkpoint = (
  { state }: Core,
  { now, owner }: Caller,
  path: string,
  owners: ReadonlyArray<string | undefined> = [],
): Effect.Effect<CheckpointRow, Refusal> => {
  const found = state.checkpoints.get(path)
  const seen = found !== undefined && (found.owner === owner || found.public || owners.includes(found.owner))
  if (!seen) return refuse(404, `${path} not found`)
  if (found.expiresAt !== undefined && found.expiresAt <= now) return refuse(404, `${path} has expired`)
  return Effect.succeed(found)
}
