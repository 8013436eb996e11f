/** Endpoints for client startup, sessions and server capabilities. */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Api from "effect-tinker/protocol/Api"
import { randomUUID } from "node:crypto"
import * as Auth from "../Auth.ts"
import { json, read, type Route, route } from "../Call.ts"
import type { Core } from "../Core.ts"
import { storeUnavailable } from "../Futures.ts"
import { endSession, sessionRow } from "../Models.ts"
import * as Owned from "../Owned.ts"
import type { Session } from "../State.ts"
import { uptime } from "../Uptime.ts"

/** Client flags. Chunks may arrive in any order; all other flags have the defaults of the official SDK. */
const flagsOf = ({ settings }: Core) => ({
  parallel_fwdbwd_chunks: true,
  sample_join_sampling_session: true,
  pjwt_auth_enabled: settings.jwt !== undefined,
  ...settings.flags,
})

/**
 * Returns the same response for a repeated idempotency key: a client that missed the response must not get a second
 * session.
 */
export const once = <A, E>(
  { state }: Core,
  key: string | undefined,
  make: Effect.Effect<A, E>,
): Effect.Effect<A, E> => {
  if (key === undefined) return make
  const known = state.responses.get(key)
  if (known !== undefined) return Effect.succeed(known as A)
  return Effect.tap(make, (value) =>
    Effect.sync(() => {
      state.responses.set(key, value)
      const oldest = state.responses.keys().next()
      if (state.responses.size > 10_000 && oldest.done !== true) state.responses.delete(oldest.value)
    }),
  )
}

export const sessions = (core: Core): ReadonlyArray<Route> => [
  {
    endpoint: Api.clientConfig,
    answer: (call) => Effect.map(read(Api.clientConfig, call), () => json(flagsOf(core))),
  },
  route(Api.dynamicConfig, () =>
    Effect.succeed({ refreshIntervalSec: 300, sampleCancelEnabled: true, sampleCancelMaxBatchSize: 64 }),
  ),
  route(Api.authToken, (_, { now, owner }) =>
    Effect.succeed({
      jwt: Redacted.make(Auth.issueToken(core, owner, now + (core.settings.jwt ?? 3_600_000), randomUUID())),
    }),
  ),
  route(Api.createSession, (input, { now, owner, request }) => {
    const key = request.headers["x-idempotency-key"]
    return once(
      core,
      key === undefined ? undefined : `${owner} create_session ${key}`,
      Effect.gen(function* () {
        const session: Session = {
          id: `session-${randomUUID()}`,
          owner,
          createdAt: now,
          tags: input.tags ?? [],
          userMetadata: input.userMetadata ?? {},
          displayName: input.displayName,
          sdkVersion: input.sdkVersion,
          projectId: input.projectId,
          state: "active",
          reason: undefined,
          detail: undefined,
          endedAt: undefined,
          lastSeen: yield* uptime,
          resultsDropped: false,
          models: new Map(),
          samplers: new Map(),
        }
        yield* Effect.mapError(core.store.put("session", session.id, sessionRow(session)), storeUnavailable)
        core.state.sessions.set(session.id, session)
        return {
          sessionId: session.id,
          infoMessage: Option.none(),
          warningMessage: Option.none(),
          errorMessage: Option.none(),
        }
      }),
    )
  }),
  route(Api.heartbeat, ({ sessionId }, call) => Effect.as(Owned.session(core, call, sessionId), {})),
  route(Api.finishSession, ({ detail, reason, sessionId }, call) =>
    Effect.flatMap(Owned.anySession(core, call, sessionId), (session) =>
      endSession(core, session, { state: "finished", reason: reason.type, detail: detail ?? undefined }),
    ),
  ),
  route(Api.getServerCapabilities, () =>
    Effect.succeed({
      supportedModels: core.host.models.map(({ maxContextLength, name }) => ({
        modelName: Option.some(name),
        maxContextLength: Option.some(maxContextLength),
        trainable: Option.some(true),
        sampleable: Option.some(true),
      })),
    }),
  ),
  route(Api.health, () => Effect.succeed({ status: "ok" }), { open: true }),
  // Always accepted and ignored: clients resend rejected telemetry every second, forever.
  { endpoint: Api.telemetry, answer: () => Effect.succeed(json({ status: "accepted" })) },
]
