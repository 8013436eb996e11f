/** Start-up and sessions. */
import * as Duration from "effect/Duration"
import * as Either from "effect/Either"
import * as Encoding from "effect/Encoding"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Api from "../../Api.ts"
import * as Answers from "./Answers.ts"
import { plain, route, sessionOf } from "./Route.ts"
import type { State } from "./State.ts"

export const clientConfig = plain(Api.clientConfig, ({ state }) => Answers.json(state.settings.flags))

export const dynamicConfig = plain(Api.dynamicConfig, ({ state: { settings } }) =>
  settings.dynamicFlags === "missing" ? Answers.detail(404, "Not Found") : Answers.json(settings.dynamicFlags),
)

const issueToken = (state: State, now: number): string => {
  const exp = Math.floor(now / 1000 + Duration.toSeconds(state.settings.tokenLife))
  const claims = { sub: "tml:user:1", org_id: "1", email: "user@example.com", exp, jti: state.tokens.size }
  const part = (value: object) => Encoding.encodeBase64Url(JSON.stringify(value))
  const token = `${part({ alg: "none", typ: "JWT" })}.${part(claims)}.scripted`
  state.tokens.set(token, exp * 1000)
  return token
}

export const authToken = route(Api.authToken, (_, { now, state }) =>
  Either.right({ jwt: Redacted.make(issueToken(state, now)) }),
)

export const createSession = route(Api.createSession, (_, { now, state }) => {
  const id = `sess-${String(state.sessions.size + 1).padStart(4, "0")}`
  state.sessions.set(id, { id, heartbeats: 0, lastHeartbeat: now, state: "active" })
  const { error, info, warning } = state.settings.messages
  return Either.right({
    sessionId: id,
    infoMessage: Option.fromNullable(info),
    warningMessage: Option.fromNullable(warning),
    errorMessage: Option.fromNullable(error),
  })
})

export const heartbeat = route(Api.heartbeat, ({ sessionId }, { now, state }) =>
  Either.map(sessionOf(state, sessionId), (session) => {
    session.heartbeats++
    session.lastHeartbeat = now
    return {}
  }),
)

export const finishSession = route(Api.finishSession, ({ reason, sessionId }, { state }) =>
  Either.map(sessionOf(state, sessionId), (session) => {
    session.state = reason.type
  }),
)

export const capabilities = plain(Api.getServerCapabilities, ({ state }) =>
  Answers.json({ supported_models: state.settings.supportedModels }),
)

export const health = route(Api.health, () => Either.right({ status: "ok" }))

/** Not looked into: whatever is not accepted comes again. */
export const telemetry = plain(Api.telemetry, () => Answers.json({ status: "accepted" }))
