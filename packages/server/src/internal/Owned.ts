/** What a caller may see: its own, and nothing that tells whether there is more. */
import * as Effect from "effect/Effect"
import type { Core } from "./Core.ts"
import { found, type Refusal, refuse } from "./Refusal.ts"
import type { CheckpointRow, Future, Model, Sampler, Session } from "./State.ts"

interface Asking {
  readonly owner: string
  readonly now: number
}

const own = <A extends { readonly owner: string }>(
  { owner }: Asking,
  value: A | undefined,
  what: string,
): Effect.Effect<A, Refusal> => found(value?.owner === owner ? value : undefined, what)

/** Any session of the caller, over or not. */
export const anySession = ({ state }: Core, asking: Asking, id: string): Effect.Effect<Session, Refusal> =>
  own(asking, state.sessions.get(id), `Session ${id}`)

/** A session that is still on. That it is asked about keeps it so. */
export const session = (core: Core, asking: Asking, id: string): Effect.Effect<Session, Refusal> =>
  Effect.flatMap(anySession(core, asking, id), (session) => {
    if (session.state !== "active") return refuse(410, `Session ${id} is ${session.state}`)
    session.lastSeen = asking.now
    return Effect.succeed(session)
  })

export const model = (core: Core, asking: Asking, id: string): Effect.Effect<Model, Refusal> =>
  Effect.flatMap(own(asking, core.state.models.get(id), `Model ${id}`), (model) => {
    if (model.sessionId === "") return refuse(404, `${id} is a copy of weights, not a model that is trained`)
    return Effect.flatMap(session(core, asking, model.sessionId), () => {
      if (model.state === "gone") return refuse(404, `Model ${id} was unloaded`)
      model.lastRequest = asking.now
      return Effect.succeed(model)
    })
  })

export const anySampler = ({ state }: Core, asking: Asking, id: string): Effect.Effect<Sampler, Refusal> =>
  own(asking, state.samplers.get(id), `Sampler ${id}`)

export const sampler = (core: Core, asking: Asking, id: string): Effect.Effect<Sampler, Refusal> =>
  Effect.tap(anySampler(core, asking, id), ({ sessionId }) => session(core, asking, sessionId))

export const future = (core: Core, asking: Asking, id: string): Effect.Effect<Future, Refusal> =>
  Effect.tap(own(asking, core.state.futures.get(id), `Future ${id}`), ({ sessionId }) =>
    Effect.sync(() => {
      const session = core.state.sessions.get(sessionId)
      if (session?.state === "active") session.lastSeen = asking.now
    }),
  )

/** A checkpoint that the caller made, or that everybody may use, or that a token opens. */
export const checkpoint = (
  { state }: Core,
  { now, owner }: Asking,
  path: string,
  owners: ReadonlyArray<string | undefined> = [],
): Effect.Effect<CheckpointRow, Refusal> => {
  const found = state.checkpoints.get(path)
  const seen = found !== undefined && (found.owner === owner || found.public || owners.includes(found.owner))
  if (!seen) return refuse(404, `${path} not found`)
  if (found.expiresAt !== undefined && found.expiresAt <= now) return refuse(404, `${path} has expired`)
  return Effect.succeed(found)
}
