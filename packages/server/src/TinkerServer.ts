/**
 * Implements the Tinker API as a function from request to response, without a transport. `NodeTinkerServer` serves it
 * on a socket, `LocalTinker` as an `HttpClient`.
 *
 * @since 0.1.0
 */
import * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Layer from "effect/Layer"
import * as Schedule from "effect/Schedule"
import type * as Scope from "effect/Scope"
import type { Answer, Request } from "effect-tinker/protocol/Exchange"
import { matchPath } from "effect-tinker/protocol/Routing"
import { randomBytes } from "node:crypto"
import { join } from "node:path"
import * as CheckpointFiles from "./CheckpointFiles.ts"
import * as Auth from "./internal/Auth.ts"
import * as BodyRules from "./internal/BodyRules.ts"
import { type Call, json, makeCall, type Route } from "./internal/Call.ts"
import type { Core } from "./internal/Core.ts"
import { forget } from "./internal/Forgetting.ts"
import * as Models from "./internal/Models.ts"
import { recover } from "./internal/Recovery.ts"
import { asOpenAi, Refusal } from "./internal/Refusal.ts"
import { chat } from "./internal/routes/Chat.ts"
import { management } from "./internal/routes/Management.ts"
import { sampling } from "./internal/routes/Sampling.ts"
import { sessions } from "./internal/routes/Sessions.ts"
import { training } from "./internal/routes/Training.ts"
import { emptyState } from "./internal/State.ts"
import * as Turns from "./internal/Turns.ts"
import { ModelHost } from "./ModelHost.ts"
import { type ServerOptions, settings } from "./ServerOptions.ts"
import * as Store from "./Store.ts"
import { uptime } from "./internal/Uptime.ts"

/**
 * A request before its body.
 *
 * @since 0.1.0
 * @category models
 */
export type Head = Omit<Request, "body">

/**
 * The decision about a request, made before its body is read.
 *
 * @since 0.1.0
 * @category models
 */
export type Admission =
  | { readonly _tag: "Refused"; readonly answer: Answer }
  | {
      readonly _tag: "Admitted"
      /** The size up to which the body is worth reading; a larger one is answered with 413. */
      readonly maxBodyBytes: number
      readonly answer: (body: Uint8Array) => Effect.Effect<Answer>
    }

/**
 * A Tinker server.
 *
 * @since 0.1.0
 * @category models
 */
export interface Service {
  /** Whether clients need an API key. */
  readonly requiresKey: boolean
  /** Checks path, key, content type and length of a request, so that the body of a refused one need not be read. */
  readonly admit: (head: Head) => Effect.Effect<Admission>
  /** Answers a request. Failures and defects become error responses. */
  readonly handle: (request: Request) => Effect.Effect<Answer>
}

/**
 * The Tinker server.
 *
 * @since 0.1.0
 * @category tags
 */
export class TinkerServer extends Context.Tag("@effect-tinker/server/TinkerServer")<TinkerServer, Service>() {}

const rootOf = (path: string): { readonly root: Route["endpoint"]["root"]; readonly below: string } => {
  const openai = path.indexOf("/oai/api/v1/")
  if (openai >= 0) return { root: "oai/api/v1", below: path.slice(openai + "/oai/api/v1/".length) }
  const api = path.indexOf("/api/v1/")
  if (api >= 0) return { root: "api/v1", below: path.slice(api + "/api/v1/".length) }
  const file = path.indexOf("/files/")
  return { root: "", below: file >= 0 ? path.slice(file + 1) : path.slice(1) }
}

const find = (
  routes: ReadonlyArray<Route>,
  method: string,
  path: string,
): Either.Either<{ readonly route: Route; readonly params: Call["params"] }, Refusal> => {
  const { below, root } = rootOf(path)
  let other = false
  for (const route of routes) {
    const params = route.endpoint.root === root ? matchPath(route.endpoint, below) : undefined
    if (params === undefined) continue
    if (route.endpoint.method === method) return Either.right({ route, params })
    other = true
  }
  return Either.left(
    new Refusal(
      other ? { status: 405, detail: `${method} is not allowed for this path` } : { status: 404, detail: "Not Found" },
    ),
  )
}

const refused = (refusal: Refusal, root: Route["endpoint"]["root"]): Answer =>
  json(root === "oai/api/v1" ? asOpenAi(refusal) : { detail: refusal.detail }, refusal.status, refusal.headers)

const reportDefect = ({ method, path }: Head, defect: unknown): Effect.Effect<Answer> =>
  Effect.as(
    Effect.logError(`${method} ${path.split("?")[0]} failed with a defect`, Cause.die(defect)),
    json({ detail: "Internal error" }, 500),
  )

/** Converts failures and defects to responses. */
const guard =
  (head: Head, root: Route["endpoint"]["root"]) =>
  (answer: Effect.Effect<Answer, Refusal>): Effect.Effect<Answer> =>
    answer.pipe(
      Effect.catchTag("Refusal", (refusal) => Effect.succeed(refused(refusal, root))),
      Effect.catchAllDefect((defect) => reportDefect(head, defect)),
    )

/** Expires inactive sessions and checkpoints, and forgets sessions that ended long ago. */
const sweep = (core: Core): Effect.Effect<void> =>
  Effect.gen(function* () {
    const now = yield* Clock.currentTimeMillis
    const up = yield* uptime
    for (const session of core.state.sessions.values())
      if (session.state === "active" && up - session.lastSeen > core.settings.sessionTimeout)
        yield* Models.endSession(core, session, { state: "expired", reason: undefined, detail: undefined })
    for (const row of core.state.checkpoints.values())
      if (row.expiresAt !== undefined && row.expiresAt <= now)
        yield* Effect.ignore(Models.removeCheckpoint(core, row, "checkpoint_expired"))
    yield* forget(core, now)
  })

/** Loads the secret from which the signing keys are derived; created together with the data. */
const secretOf = (store: Store.Service): Effect.Effect<Uint8Array, Store.StoreError> =>
  Effect.gen(function* () {
    const [known] = (yield* store.all("meta")) as ReadonlyArray<{ readonly secret: string }>
    if (known !== undefined) return Buffer.from(known.secret, "base64url")
    const secret = randomBytes(32)
    yield* store.put("meta", "secret", { secret: secret.toString("base64url") })
    return secret
  })

/**
 * Creates a server. With a data directory, it restores the models and resumes unfinished work. Background work stops
 * when the scope closes.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (
  options: ServerOptions = {},
): Effect.Effect<Service, Store.StoreError | CheckpointFiles.FileError, ModelHost | Scope.Scope> =>
  Effect.gen(function* () {
    const { dataDirectory } = options
    const store = yield* Store.open(dataDirectory)
    const all = settings(options)
    const core: Core = {
      settings: all,
      state: emptyState(),
      store,
      files:
        dataDirectory === undefined
          ? CheckpointFiles.memory()
          : yield* CheckpointFiles.directory(join(dataDirectory, "files")),
      host: yield* ModelHost,
      turns: Turns.make(all.maxRunningSamples),
      scope: yield* Effect.scope,
      secrets: Auth.secretsOf(yield* secretOf(store)),
      keyHashes: Auth.hashesOf(all.apiKeys),
    }
    yield* recover(core)
    yield* Effect.forkScoped(Effect.repeat(sweep(core), Schedule.spaced("5 seconds")))
    const routes = [...sessions(core), ...training(core), ...sampling(core), ...management(core), ...chat(core)]

    const admit: Service["admit"] = (head) => {
      const [path = "", search = ""] = head.path.split("?")
      const guarded = guard(head, rootOf(path).root)
      return Effect.gen(function* () {
        const { params, route } = yield* find(routes, head.method, path)
        const now = yield* Clock.currentTimeMillis
        const owner = route.open === true ? Auth.sharedOwner : yield* Auth.authorize(core, head.headers, now)
        const maxBodyBytes = yield* BodyRules.check(head, route)
        const query = Object.fromEntries(new URLSearchParams(search))
        const answer = (body: Uint8Array) =>
          guarded(
            Effect.flatMap(BodyRules.checkSize(body.length, maxBodyBytes), () =>
              route.answer(makeCall({ request: { ...head, body }, owner, now, params, query })),
            ),
          )
        return { _tag: "Admitted", maxBodyBytes, answer } satisfies Admission
      }).pipe(
        Effect.catchTag("Refusal", (refusal) => Effect.fail(refused(refusal, rootOf(path).root))),
        Effect.catchAllDefect((defect) => Effect.flatMap(reportDefect(head, defect), Effect.fail)),
        Effect.catchAll((answer) => Effect.succeed<Admission>({ _tag: "Refused", answer })),
      )
    }

    const handle: Service["handle"] = (request) =>
      Effect.flatMap(admit(BodyRules.headOf(request)), (admission) =>
        admission._tag === "Refused" ? Effect.succeed(admission.answer) : admission.answer(request.body),
      )
    return { requiresKey: core.keyHashes.length > 0, admit, handle }
  })

/**
 * Provides a server.
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = (
  options: ServerOptions = {},
): Layer.Layer<TinkerServer, Store.StoreError | CheckpointFiles.FileError, ModelHost> =>
  Layer.scoped(TinkerServer, make(options))
