/** Routes for client startup and sessions. */
import * as Duration from "effect/Duration"
import * as Either from "effect/Either"
import * as Encoding from "effect/Encoding"
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import * as Record from "effect/Record"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import * as Api from "../../protocol/Api.ts"
import { HeartbeatResponse } from "../../protocol/schemas/Session.ts"
import * as Answers from "./Answers.ts"
import type { Call } from "./Incoming.ts"
import { plain, route, sessionOf } from "./Route.ts"
import type { Session, State } from "./State.ts"

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

const beat = (session: Session, now: number) => {
  session.heartbeats++
  session.lastHeartbeat = now
  return {}
}

const anyHeartbeat = route(Api.heartbeat, ({ sessionId }, { now, state }) =>
  Either.map(sessionOf(state, sessionId), (session) => beat(session, now)),
)

/** Returns the session of a heartbeat that has exactly the expected fields. */
const plainHeartbeat = ({ body, state }: Call): Session | undefined => {
  if (body._tag !== "Json" || !Predicate.isRecord(body.value) || state.settings.unknownFields.length > 0)
    return undefined
  const { session_id: id, type, ...rest } = body.value
  return type === "session_heartbeat" && typeof id === "string" && Record.isEmptyRecord(rest)
    ? state.sessions.get(id)
    : undefined
}

const alive = Answers.json(Schema.encodeSync(HeartbeatResponse)({}))

/** Nine of ten requests in a long run are heartbeats, so only unusual ones are decoded by their schema. */
export const heartbeat = plain(Api.heartbeat, (call) => {
  const session = plainHeartbeat(call)
  if (session === undefined) return anyHeartbeat.answer(call)
  beat(session, call.now)
  return alive
})

export const finishSession = route(Api.finishSession, ({ reason, sessionId }, { state }) =>
  Either.map(sessionOf(state, sessionId), (session) => {
    session.state = reason.type
  }),
)

export const capabilities = plain(Api.getServerCapabilities, ({ state }) =>
  Answers.json({ supported_models: state.settings.supportedModels }),
)

export const health = route(Api.health, () => Either.right({ status: "ok" }))

/** Always accepted and ignored: clients resend rejected telemetry. */
export const telemetry = plain(Api.telemetry, () => Answers.json({ status: "accepted" }))
