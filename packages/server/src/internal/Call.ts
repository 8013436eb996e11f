/** Defines a request during processing, and how its endpoint decodes it. */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import type * as Stream from "effect/Stream"
import type * as Endpoint from "effect-tinker/protocol/Endpoint"
import type { Answer, Request } from "effect-tinker/protocol/Exchange"
import * as Routing from "effect-tinker/protocol/Routing"
import * as Schema from "effect/Schema"
import { invalid, Refusal } from "./Refusal.ts"

export interface Call {
  readonly request: Request
  readonly owner: string
  readonly now: number
  readonly params: Readonly<Record<string, string>>
  readonly query: Readonly<Record<string, string>>
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

/** Parses the body as JSON; an empty body becomes an empty object. */
export const jsonOf = ({ request }: Pick<Call, "request">): Either.Either<unknown, Refusal> => {
  const { body, headers } = request
  const encoding = headers["content-encoding"] ?? "identity"
  if (encoding !== "identity")
    return Either.left(new Refusal({ status: 415, detail: `unsupported content-encoding: ${encoding}` }))
  if (body.length === 0) return Either.right({})
  if (isProtobuf(request))
    return Either.left(new Refusal({ status: 415, detail: "expected application/json, got application/x-protobuf" }))
  try {
    return Either.right(JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(body)))
  } catch (cause) {
    return Either.left(
      new Refusal({
        status: 422,
        detail: [{ type: "json_invalid", loc: ["body"], msg: `JSON decode error: ${String(cause)}`, input: null }],
      }),
    )
  }
}

/** Query parameters that are parsed as numbers. */
const numeric = new Set(["limit", "offset"])

const queryOf = (query: Call["query"]): Readonly<Record<string, unknown>> =>
  Object.fromEntries(
    Object.entries(query).map(([name, value]) => [name, numeric.has(name) && value !== "" ? Number(value) : value]),
  )

/** Decodes path, query and body by the schemas of an endpoint into its input. */
export const read = <I>(endpoint: Endpoint.Endpoint<I, unknown>, call: Call): Either.Either<I, Refusal> =>
  Either.gen(function* () {
    const part = (schema: Schema.Schema.AnyNoContext | undefined, value: unknown, where: "path" | "query" | "body") =>
      schema === undefined
        ? Either.right({})
        : Either.mapLeft(Routing.read<object, unknown>(schema, value, { where }), invalid)
    const params = yield* part(endpoint.params, call.params, "path")
    const query = yield* part(endpoint.query, queryOf(call.query), "query")
    const body = endpoint.body.kind === "json" ? yield* part(endpoint.body.schema, yield* jsonOf(call), "body") : {}
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
