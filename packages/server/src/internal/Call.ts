/** Defines a request during processing, and how its endpoint decodes it. */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import type * as Stream from "effect/Stream"
import type * as Endpoint from "effect-tinker/protocol/Endpoint"
import type { Answer, Request } from "effect-tinker/protocol/Exchange"
import * as Routing from "effect-tinker/protocol/Routing"
import * as Schema from "effect/Schema"
import * as JsonScan from "./JsonScan.ts"
import { invalid, Refusal } from "./Refusal.ts"

export interface Call {
  readonly request: Request
  readonly owner: string
  readonly now: number
  readonly params: Readonly<Record<string, string>>
  readonly query: Readonly<Record<string, string>>
  /** Parses the body as JSON, once. */
  readonly json: () => Either.Either<JsonBody, Refusal>
}

/** A parsed body. */
export interface JsonBody {
  readonly value: unknown
  /** Whether every problem of the body may be reported; a body with many values may have too many. */
  readonly isSmall: boolean
}

export const makeCall = (parts: Omit<Call, "json">): Call => {
  let parsed: Either.Either<JsonBody, Refusal> | undefined
  return { ...parts, json: () => (parsed ??= parseJson(parts.request)) }
}

export interface Route {
  readonly endpoint: {
    readonly method: string
    readonly path: string
    /** The prefix of the path; empty for paths outside the API. */
    readonly root: "api/v1" | "oai/api/v1" | ""
  }
  /** Whether no authentication is required. */
  readonly open?: boolean
  /** Whether the request is a pass, which is the only large one and may be protobuf. */
  readonly isPass?: boolean
  readonly answer: (call: Call) => Effect.Effect<Answer, Refusal>
}

export const json = (value: unknown, status = 200, headers: Answer["headers"] = {}): Answer => ({
  status,
  headers: { "content-type": "application/json", ...headers },
  body: JSON.stringify(value),
})

export const events = (body: Stream.Stream<Uint8Array>): Answer => ({
  status: 200,
  headers: { "content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache" },
  body,
})

export const isProtobuf = ({ headers }: Request): boolean =>
  headers["content-type"]?.startsWith("application/x-protobuf") === true

export const unreadable = (message: string): Refusal =>
  new Refusal({ status: 422, detail: [{ type: "json_invalid", loc: ["body"], msg: message, input: null }] })

const utf8 = new TextDecoder("utf-8", { fatal: true })

/** Parses JSON text. */
export const parseText = (bytes: Uint8Array): Either.Either<unknown, Refusal> => {
  try {
    return Either.right(JSON.parse(utf8.decode(bytes)))
  } catch (cause) {
    return Either.left(unreadable(`JSON decode error: ${String(cause).slice(0, 200)}`))
  }
}

/** The deepest body that is read, and the largest one apart from the data of a pass. */
export const jsonLimits: JsonScan.Limits = { depth: 64, values: 262_144, structures: 32_768 }

/** Up to this many values, every problem of a body is reported; otherwise only the first. */
const few = 4096

export const checkEncoding = ({ headers }: Request): Either.Either<void, Refusal> => {
  const encoding = headers["content-encoding"] ?? "identity"
  return encoding === "identity"
    ? Either.void
    : Either.left(new Refusal({ status: 415, detail: `unsupported content-encoding: ${encoding.slice(0, 80)}` }))
}

/** Parses the body as JSON; an empty body becomes an empty object. */
const parseJson = (request: Request): Either.Either<JsonBody, Refusal> =>
  Either.gen(function* () {
    const { body } = request
    yield* checkEncoding(request)
    if (body.length === 0) return { value: {}, isSmall: true }
    if (isProtobuf(request))
      return yield* Either.left(
        new Refusal({ status: 415, detail: "expected application/json, got application/x-protobuf" }),
      )
    return yield* parseMeasured(body)
  })

/** Parses JSON text if it is within the limits. */
export const parseMeasured = (bytes: Uint8Array): Either.Either<JsonBody, Refusal> => {
  const { problem, values } = JsonScan.measure(bytes, jsonLimits)
  return problem === undefined
    ? Either.map(parseText(bytes), (value) => ({ value, isSmall: values <= few }))
    : Either.left(unreadable(`the body has ${problem}`))
}

export const jsonOf = (call: Pick<Call, "json">): Either.Either<unknown, Refusal> =>
  Either.map(call.json(), ({ value }) => value)

/** Query parameters that are parsed as numbers. */
const numeric = new Set(["limit", "offset"])

const queryOf = (query: Call["query"]): Readonly<Record<string, unknown>> =>
  Object.fromEntries(
    Object.entries(query).map(([name, value]) => [name, numeric.has(name) && value !== "" ? Number(value) : value]),
  )

/** Decodes path, query and body by the schemas of an endpoint into its input. */
export const read = <I>(endpoint: Endpoint.Endpoint<I, unknown>, call: Call): Either.Either<I, Refusal> =>
  Either.gen(function* () {
    const part = (schema: Schema.Schema.AnyNoContext | undefined, value: unknown, options: Routing.ReadOptions) =>
      schema === undefined
        ? Either.right({})
        : Either.mapLeft(Routing.read<object, unknown>(schema, value, options), invalid)
    const params = yield* part(endpoint.params, call.params, { where: "path" })
    const query = yield* part(endpoint.query, queryOf(call.query), { where: "query" })
    if (endpoint.body.kind !== "json") return { ...params, ...query } as I
    const { isSmall, value } = yield* call.json()
    const body = yield* part(endpoint.body.schema, value, { where: "body", onlyFirst: !isSmall })
    return { ...params, ...query, ...body } as I
  })

export const write = (endpoint: Endpoint.Endpoint<never, unknown>, value: unknown): Answer =>
  endpoint.response.kind === "json" ? json(Schema.encodeSync(endpoint.response.schema)(value)) : json({})

export const route = <I, A>(
  endpoint: Endpoint.Endpoint<I, A>,
  handle: (input: I, call: Call) => Effect.Effect<A, Refusal>,
  options: { readonly open?: boolean } = {},
): Route => ({
  endpoint,
  ...options,
  answer: (call) =>
    Effect.map(
      Effect.flatMap(read(endpoint, call), (input) => handle(input, call)),
      (value) => write(endpoint, value),
    ),
})
