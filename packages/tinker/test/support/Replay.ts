/** Serves recordings to the clients, and converts our requests to the form of the recordings. */
import { fromBinary } from "@bufbuild/protobuf"
import { Effect, Layer, Logger, type Scope } from "effect"
import { type ServiceClient, type TinkerConfig } from "effect-tinker"
import * as Proto from "effect-tinker/protocol/Proto"
import { version } from "effect-tinker/protocol/Version"
import * as VirtualTime from "effect-tinker/testing/VirtualTime"
import * as Clients from "./Clients.ts"
import * as HttpScript from "./HttpScript.ts"
import * as Recorded from "./Recorded.ts"

export type VectorFile = Parameters<typeof Recorded.vector>[0]
export type BehaviourFile = Parameters<typeof Recorded.behaviour>[0]
export type Replies = Readonly<Record<string, ReadonlyArray<HttpScript.Reply>>>

interface RecordedAnswer extends Pick<Recorded.Behaviour["script"][number], "bodyBase64" | "delaySeconds" | "headers"> {
  readonly path: string
  readonly status?: number | undefined
  readonly body?: unknown
}

interface RecordedExchange {
  readonly request: Recorded.Vector["request"] & { readonly bodyBase64?: string }
  readonly response: Omit<RecordedAnswer, "path">
}

export const exchangesOf = (file: VectorFile): ReadonlyArray<RecordedExchange> => {
  const vector = Recorded.vector(file)
  return vector.exchanges ?? (vector.request === null ? [] : [vector])
}

const byPath = (answers: ReadonlyArray<RecordedAnswer>): Record<string, Array<HttpScript.Reply>> => {
  const replies: Record<string, Array<HttpScript.Reply>> = {}
  for (const { body, bodyBase64, delaySeconds, headers, path, status } of answers)
    (replies[path] ??= []).push({
      body: bodyBase64 === undefined ? body : Buffer.from(bodyBase64, "base64"),
      ...(status === undefined ? {} : { status }),
      ...(headers === undefined ? {} : { headers }),
      ...(delaySeconds === undefined ? {} : { delaySeconds }),
    })
  return replies
}

/** The answers in a vector, by path. */
export const answersOf = (file: VectorFile): Record<string, Array<HttpScript.Reply>> =>
  byPath(
    exchangesOf(file).map(({ request, response }) => ({
      ...response,
      path: Recorded.pathOf(`${request.method} ${request.path}`),
    })),
  )

/** The answers in a behavior, by path. */
export const scriptOf = (file: BehaviourFile): Record<string, Array<HttpScript.Reply>> =>
  byPath(Recorded.behaviour(file).script.map((answer) => ({ ...answer, path: Recorded.pathOf(answer.for) })))

export const accepted = (requestId: string): HttpScript.Reply => ({ body: { request_id: requestId } })

const session: Replies = {
  "client/config": [{ body: {} }],
  "client/dynamic_config": [{ body: {}, forever: true }],
  create_session: [{ body: { session_id: "sess-0001" } }],
  session_heartbeat: [{ body: {}, forever: true }],
  "sess-0001/finish": [{ body: {}, forever: true }],
}

const quiet = Logger.remove(Logger.defaultLogger)

/** Runs a program on these answers and the usual answers to session requests. */
export const run = <A, E>(
  program: Effect.Effect<A, E, ServiceClient.ServiceClient | HttpScript.HttpScript | Scope.Scope>,
  replies: Replies,
  values?: TinkerConfig.Values,
) => {
  const clients = Clients.clients({ sdkVersion: "0.36.0", ...values })
  const layer = Clients.on(HttpScript.layer({ ...session, ...replies }))(clients)
  return program.pipe(Effect.scoped, Effect.provide(Layer.merge(layer, quiet)), VirtualTime.run)
}

const isBackground = ({ path }: HttpScript.Seen): boolean =>
  /\/(client\/\w+|create_session|\w+_heartbeat|finish)$/.test(path)

/** The requests of an effect, and how it ends. */
export const watched = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    const { seen } = yield* HttpScript.HttpScript
    const before = seen.length
    const result = yield* Effect.either(effect)
    const requests = seen.slice(before).filter((request) => !isBackground(request))
    const start = requests[0]?.at ?? 0
    return { requests, result, times: requests.map(({ at }) => at - start) }
  })

/** Decodes with the generated reader, which is independent of our encoder. */
export const readPass = (bytes: Uint8Array): Proto.ForwardBackwardRequest =>
  fromBinary(Proto.ForwardBackwardRequestSchema, Uint8Array.from(bytes))

const isPass = (request: HttpScript.Seen): boolean => request.headers["content-type"] === "application/x-protobuf"

const bodyOf = (request: HttpScript.Seen): unknown => {
  if (isPass(request)) return readPass(request.bytes)
  return request.body === "" ? null : (JSON.parse(request.body) as unknown)
}

/** Headers with our own names, our platform and our encodings; the length was not recorded. */
const ourOwn =
  /^(user-agent|accept-encoding|content-length|x-stainless-(arch|async|os|package-version|runtime|runtime-version))$/

const placeholders: Readonly<Record<string, string>> = {
  "x-api-key": "<API_KEY>",
  "x-idempotency-key": "<stainless-python-retry-UUID4>",
  "x-tinker-create-promise-roundtrip-time": "<FLOAT_SECONDS>",
}

/** Our version in place of the reference's. */
const valueOf = (name: string, value: string): string =>
  placeholders[name] ?? (name === "x-sdk-version" && value === version ? "0.36.0" : value)

const headersOf = (headers: Readonly<Record<string, string | undefined>>) =>
  Object.fromEntries(
    Object.entries(headers).flatMap(([name, value]) =>
      ourOwn.test(name) || value === undefined ? [] : [[name, valueOf(name, value)]],
    ),
  )

/** A request in the form of a vector. */
export const asVector = (request: HttpScript.Seen) => ({
  method: request.method,
  path: request.path,
  headers: headersOf(request.headers),
  body: bodyOf(request),
})

/** The requests in a vector, in the same form. */
export const requestsOf = (file: VectorFile) =>
  exchangesOf(file).map(({ request }) => ({
    method: request.method,
    path: request.path,
    headers: headersOf(request.headers),
    body: request.bodyBase64 === undefined ? request.body : readPass(Buffer.from(request.bodyBase64, "base64")),
  }))

const trimmed = ({ data, forwardOnly, lossFn, modelId, seqId }: Proto.ForwardBackwardRequest) => ({
  model_id: modelId,
  seq_id: seqId,
  loss_fn: lossFn,
  forward_only: forwardOnly,
  datums: data.length,
})

const present = (fields: Readonly<Record<string, unknown>>) =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined && value !== null))

/** Requests in the form of a behavior. Keys are numbered by first appearance. */
export const asBehaviour = (requests: ReadonlyArray<HttpScript.Seen>) => {
  const keys = [...new Set(requests.flatMap(({ headers }) => headers["x-idempotency-key"] ?? []))]
  return requests.map((request) => {
    const { headers, method, path } = request
    const key = headers["x-idempotency-key"]
    const body = bodyOf(request)
    return present({
      request: `${method} ${path}`,
      idempotencyKey: key === undefined ? undefined : keys.indexOf(key),
      retryCount: headers["x-stainless-retry-count"],
      readTimeout: headers["x-stainless-read-timeout"],
      iteration: headers["x-tinker-request-iteration"],
      requestType: headers["x-tinker-request-type"],
      accept: headers["accept"] === "application/json" ? undefined : headers["accept"],
      hasRoundtripTimeHeader: headers["x-tinker-create-promise-roundtrip-time"] === undefined ? undefined : true,
      credential: headers["x-api-key"] === undefined ? undefined : "apiKey",
      body: isPass(request) ? trimmed(body as Proto.ForwardBackwardRequest) : body,
    })
  })
}

/** The requests in a behavior without their times. */
export const recordedBy = (file: BehaviourFile) =>
  Recorded.behaviour(file).expect.requests.map((request) => present({ ...request, t: undefined }))

/**
 * The requests in a behavior with the polls last and the keys renumbered: polling runs concurrently with submissions,
 * and its place among them depends on timing.
 */
export const submissionsFirst = (requests: ReadonlyArray<Readonly<Record<string, unknown>>>) => {
  const isPoll = ({ request }: Readonly<Record<string, unknown>>) => request === "POST /api/v1/retrieve_future"
  const sorted = [...requests.filter((request) => !isPoll(request)), ...requests.filter(isPoll)]
  const keys = [...new Set(sorted.map(({ idempotencyKey }) => idempotencyKey))]
  return sorted.map((request) => ({ ...request, idempotencyKey: keys.indexOf(request["idempotencyKey"]) }))
}

/** A recorded result in the encoded form of our result. */
export const untyped = (result: unknown): unknown =>
  JSON.parse(JSON.stringify(result), (key, value: unknown) => (key === "$type" ? undefined : value))
