/**
 * Forgets sessions that ended: first their results, later everything else but their checkpoints. Without it, memory and
 * database would grow with every session that ever was.
 */
import * as Effect from "effect/Effect"
import type { Core } from "./Core.ts"
import { modelRow } from "./Models.ts"
import type { Model, Session } from "./State.ts"

const isOver = ({ endedAt }: Session, now: number, after: number): boolean =>
  endedAt !== undefined && now - endedAt > after

/** Deletes the futures of a session from the store and from everything that refers to them. */
const forgetResults = (core: Core, session: Session): Effect.Effect<void> =>
  Effect.gen(function* () {
    session.resultsDropped = true
    yield* Effect.ignore(core.store.dropFutures(session.id))
    for (const future of core.state.futures.values())
      if (future.sessionId === session.id) core.state.futures.delete(future.id)
    for (const { lane } of session.models.values()) lane.taken.clear()
    for (const sampler of session.samplers.values()) {
      sampler.taken.clear()
      sampler.finished.length = 0
    }
    forgetCached(core, session.id)
  })

const forgetCached = ({ state }: Core, sessionId: string): void => {
  const kept = state.cachedResults.filter((future) => future.sessionId !== sessionId)
  state.cachedBytes = kept.reduce((sum, { size }) => sum + size, 0)
  state.cachedResults.splice(0, state.cachedResults.length, ...kept)
}

/** Returns the runs that are needed neither by a session nor to look up their checkpoints. */
const unneededRuns = ({ state }: Core): ReadonlyArray<Model> => {
  const saved = new Set([...state.checkpoints.values()].map(({ trainingRunId }) => trainingRunId))
  // Copied weights have a run without a session.
  return [...state.models.values()].filter(
    ({ id, sessionId }) => sessionId !== "" && !state.sessions.has(sessionId) && !saved.has(id),
  )
}

/** Notes the project of a session in its runs, which may outlive it. */
const keepProject = (core: Core, { models, projectId }: Session): Effect.Effect<void> =>
  projectId === undefined
    ? Effect.void
    : Effect.forEach(
        models.values(),
        (model) => {
          model.projectId = projectId
          return Effect.ignore(core.store.put("model", model.id, modelRow(model)))
        },
        { discard: true },
      )

const forgetSession = (core: Core, session: Session): Effect.Effect<void> =>
  Effect.gen(function* () {
    yield* keepProject(core, session)
    yield* Effect.ignore(core.store.dropSession(session.id, [...session.models.keys()], [...session.samplers.keys()]))
    for (const id of session.samplers.keys()) core.state.samplers.delete(id)
    core.state.sessions.delete(session.id)
  })

const forgetRun = (core: Core, model: Model): Effect.Effect<void> =>
  Effect.zipRight(
    Effect.ignore(core.store.remove("model", model.id)),
    Effect.sync(() => core.state.models.delete(model.id)),
  )

/** Forgets what has been over for long enough. */
export const forget = (core: Core, now: number): Effect.Effect<void> =>
  Effect.gen(function* () {
    const { resultRetention, sessionRetention } = core.settings
    for (const session of core.state.sessions.values()) {
      if (!session.resultsDropped && isOver(session, now, Math.min(resultRetention, sessionRetention)))
        yield* forgetResults(core, session)
      if (isOver(session, now, sessionRetention)) yield* forgetSession(core, session)
    }
    for (const model of unneededRuns(core)) yield* forgetRun(core, model)
    for (const [owner, count] of core.state.sampling) if (count === 0) core.state.sampling.delete(owner)
  })
