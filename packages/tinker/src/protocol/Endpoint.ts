/**
 * Represents an endpoint of the Tinker API as a value: its path, the format of request and response, and its retry
 * rules. `Api` lists all endpoints, `Transport` sends them, and servers use the same list to handle them.
 *
 * @since 0.1.0
 */
import * as Duration from "effect/Duration"
import * as Either from "effect/Either"
import * as ParseResult from "effect/ParseResult"
import type * as Redacted from "effect/Redacted"
import type * as Schema from "effect/Schema"
import { fromIssue } from "../internal/codec/Invalid.ts"
import { StructuralCache } from "../internal/util/StructuralCache.ts"
import { secretsIn } from "../internal/util/Redact.ts"
import { snakeCase } from "../internal/codec/Wire.ts"
import { InvalidInput } from "../TinkerError.ts"

/**
 * The kind of connection that a request uses, so that many requests of one kind do not delay other kinds.
 *
 * @since 0.1.0
 * @category models
 */
export type Purpose = "session" | "train" | "sample" | "retrieve" | "rest" | "telemetry"

/**
 * How a request is retried. `standard`: by the transport, which also waits while billing blocks the account. `startup`:
 * by the transport, but billing stops are reported immediately. `none`: only by the caller, in its own loop.
 *
 * @since 0.1.0
 * @category models
 */
export type RetryClass = "standard" | "startup" | "none"

/**
 * The encoding of the request body: `json` uses a schema, `bytes` a custom encoder (protobuf).
 *
 * @since 0.1.0
 * @category models
 */
export type RequestBody =
  | { readonly kind: "none" }
  | {
      readonly kind: "json"
      readonly schema: Schema.Schema.AnyNoContext
      /** The holes by input field name; see {@link Hole}. */
      readonly holes: Readonly<Record<string, Hole>>
    }
  | {
      readonly kind: "bytes"
      readonly contentType: string
      readonly encode: (input: never) => Either.Either<Uint8Array, InvalidInput>
    }

/**
 * A field that differs in each request while the others are mostly the same. The schema encodes the other fields once,
 * with this one empty; afterwards only the holes are filled. The resulting bytes are the same, only cheaper.
 *
 * @since 0.1.0
 * @category models
 */
export interface Hole<in A = never> {
  /** The placeholder passed to the schema. */
  readonly empty: unknown
  /** The encoded placeholder, including quotes, so that it cannot occur elsewhere in the body. */
  readonly mark: string
  /** Encodes a value; undefined leaves the value to the schema. */
  readonly fill: (value: A) => string | undefined
}

/**
 * The decoding of the response body. `raw` is for callers that decide by status and content type themselves.
 *
 * @since 0.1.0
 * @category models
 */
export type ResponseBody =
  | { readonly kind: "void" }
  | { readonly kind: "json"; readonly schema: Schema.Schema.AnyNoContext }
  | { readonly kind: "raw" }

/**
 * An endpoint with its input and output types.
 *
 * @since 0.1.0
 * @category models
 */
export interface Endpoint<in Input, out Output> {
  /** The wire name used in errors, spans and logs, e.g. `optim_step`. */
  readonly operation: string
  /** The name of the span; undefined if the request belongs to the span in which it is sent. */
  readonly span: string | undefined
  readonly method: "GET" | "POST" | "PUT" | "DELETE"
  /** The path between the base URL and `path`. */
  readonly root: "api/v1" | "oai/api/v1"
  /**
   * The path below the root; `:name` is replaced with the encoded parameter `name`, and `:name*` may contain slashes.
   */
  readonly path: string
  readonly purpose: Purpose
  /** `credential` sends the configured credential; `token` sends the credential or a JWT, as required by the server. */
  readonly auth: "credential" | "token"
  /** The header that carries the credential. */
  readonly scheme: "x-api-key" | "bearer"
  readonly retry: RetryClass
  /**
   * Whether the request has a sequence number. The transport does not retry it after a 409, which the caller handles.
   */
  readonly sequenced: boolean
  /** The timeout of one attempt up to the last byte of the response; undefined uses the configuration (60 s). */
  readonly timeout: Duration.Duration | undefined
  readonly headers: Readonly<Record<string, string>>
  /** `manual` returns a redirect to the caller as a response. */
  readonly redirect: "follow" | "manual"
  // Path and query take their fields from the flat input; the remaining fields go into the body.
  readonly params: Schema.Schema.AnyNoContext | undefined
  readonly query: Schema.Schema.AnyNoContext | undefined
  readonly body: RequestBody
  readonly response: ResponseBody
  /** Exists only in the type system. */
  readonly "~types"?: { readonly input: (input: Input) => void; readonly output: Output }
}

/**
 * Extracts the input type of an endpoint.
 *
 * @since 0.1.0
 * @category models
 */
export type Input<E> = E extends Endpoint<infer I, infer _> ? I : never

/**
 * Extracts the output type of an endpoint.
 *
 * @since 0.1.0
 * @category models
 */
export type Output<E> = E extends Endpoint<infer _, infer A> ? A : never

type Typed<S> = S extends Schema.Schema<infer A, infer _> ? A : unknown

interface Spec {
  readonly operation: string
  readonly path: string
  readonly purpose: Purpose
  readonly root?: "api/v1" | "oai/api/v1"
  readonly auth?: "credential" | "token"
  readonly scheme?: "x-api-key" | "bearer"
  readonly retry?: RetryClass
  readonly sequenced?: boolean
  readonly timeout?: Duration.DurationInput
  readonly headers?: Readonly<Record<string, string>>
  readonly redirect?: "follow" | "manual"
}

type Holes<S> =
  S extends Schema.Schema<infer A, infer _> ? { readonly [K in keyof A]?: Hole<Exclude<A[K], undefined>> } : never

const noHoles: Readonly<Record<string, Hole>> = {}

const jsonBody = (schema: Schema.Schema.AnyNoContext, holes: object = noHoles): RequestBody => ({
  kind: "json",
  schema,
  // `Holes` ensures that each hole matches its field.
  holes: holes as Readonly<Record<string, Hole>>,
})

/**
 * Defines an endpoint with JSON request and response. A body schema on a GET does not compile.
 *
 * @since 0.1.0
 * @category constructors
 */
export const json = <
  P extends Schema.Schema.AnyNoContext | undefined = undefined,
  Q extends Schema.Schema.AnyNoContext | undefined = undefined,
  B extends Schema.Schema.AnyNoContext | undefined = undefined,
  R extends Schema.Schema.AnyNoContext | undefined = undefined,
>(
  spec: Spec & { readonly params?: P; readonly query?: Q; readonly response?: R } & (
      | { readonly method: "GET" | "DELETE"; readonly body?: never; readonly holes?: never }
      | { readonly method: "POST" | "PUT"; readonly body?: B; readonly holes?: Holes<B> }
    ),
): Endpoint<Typed<P> & Typed<Q> & Typed<B>, R extends Schema.Schema<infer A, infer _> ? A : void> => ({
  ...complete(spec),
  method: spec.method,
  params: spec.params,
  query: spec.query,
  body: spec.body === undefined ? { kind: "none" } : jsonBody(spec.body, spec.holes),
  response: spec.response === undefined ? { kind: "void" } : { kind: "json", schema: spec.response },
})

/**
 * The response of an endpoint whose caller decodes it.
 *
 * @since 0.1.0
 * @category models
 */
export interface RawAnswer {
  readonly status: number
  readonly headers: Readonly<Record<string, string | undefined>>
  readonly contentType: string
  readonly body: Uint8Array
  /** Removes the secrets of the request from text in the response. */
  readonly redact: (text: string) => string
}

/**
 * Defines a POST of JSON, or a GET of `params`, whose response the caller decodes.
 *
 * @since 0.1.0
 * @category constructors
 */
export const raw = <A, I>(
  spec: Spec &
    (
      | { readonly body: Schema.Schema<A, I>; readonly holes?: Holes<Schema.Schema<A, I>> }
      | { readonly params: Schema.Schema<A, I> }
    ),
): Endpoint<A, RawAnswer> => ({
  ...complete(spec),
  query: undefined,
  response: { kind: "raw" },
  ...("body" in spec
    ? { method: "POST", params: undefined, body: jsonBody(spec.body, spec.holes) }
    : { method: "GET", params: spec.params, body: { kind: "none" } }),
})

/**
 * Defines a POST whose body is encoded by `encode`, e.g. as protobuf.
 *
 * @since 0.1.0
 * @category constructors
 */
export const bytes = <A, Out, I>(
  spec: Spec & {
    readonly contentType: string
    readonly encode: (input: A) => Either.Either<Uint8Array, InvalidInput>
    readonly response: Schema.Schema<Out, I>
  },
): Endpoint<A, Out> => ({
  ...complete(spec),
  method: "POST",
  params: undefined,
  query: undefined,
  body: { kind: "bytes", contentType: spec.contentType, encode: spec.encode },
  response: { kind: "json", schema: spec.response },
})

const complete = (spec: Spec) => ({
  operation: spec.operation,
  span: `tinker.${spec.operation}`,
  path: spec.path,
  purpose: spec.purpose,
  root: spec.root ?? ("api/v1" as const),
  auth: spec.auth ?? ("token" as const),
  scheme: spec.scheme ?? ("x-api-key" as const),
  retry: spec.retry ?? ("standard" as const),
  sequenced: spec.sequenced ?? false,
  timeout: spec.timeout === undefined ? undefined : Duration.decode(spec.timeout),
  headers: spec.headers ?? {},
  redirect: spec.redirect ?? ("follow" as const),
})

/**
 * A request that is ready to be sent.
 *
 * @since 0.1.0
 * @category rendering
 */
export interface Rendered {
  readonly method: Endpoint<never, unknown>["method"]
  /** The percent-encoded path below the root. */
  readonly path: string
  /** The form-encoded query without the question mark; empty if there is none. */
  readonly query: string
  readonly body: { readonly contentType: string; readonly bytes: string | Uint8Array } | undefined
  /** The secrets of the input. They are plain text in the body, and a server may repeat them in its messages. */
  readonly secrets: ReadonlyArray<Redacted.Redacted<string>>
}

/**
 * Options of {@link render}.
 *
 * @since 0.1.0
 * @category rendering
 */
export interface RenderOptions {
  /**
   * Wire names of JSON fields that the server does not support. Fields with their default value are omitted; others are
   * kept, so that the server rejects them and the caller learns why.
   */
  readonly without?: ReadonlySet<string> | undefined
}

/**
 * Renders path, query and body of a request. The same input produces the same bytes, so a resend can be byte-identical.
 *
 * @since 0.1.0
 * @category rendering
 */
export const render = <Input, Output>(
  endpoint: Endpoint<Input, Output>,
  input: Input,
  options: RenderOptions = {},
): Either.Either<Rendered, InvalidInput> => {
  const without = options.without ?? nothing
  if (endpoint.params === undefined && endpoint.query === undefined) {
    return Either.map(renderBody(endpoint, input, without), (body) =>
      rendered(endpoint, input, endpoint.path, "", body),
    )
  }
  return Either.gen(function* () {
    return rendered(
      endpoint,
      input,
      yield* renderPath(endpoint, yield* encode(endpoint.operation, endpoint.params, input)),
      renderQuery(yield* encode(endpoint.operation, endpoint.query, input)),
      yield* renderBody(endpoint, input, without),
    )
  })
}

const nothing: ReadonlySet<string> = new Set()

const rendered = (
  { method }: Endpoint<never, unknown>,
  input: unknown,
  path: string,
  query: string,
  body: Rendered["body"],
): Rendered => ({ method, path, query, body, secrets: secretsIn(Object(input)) })

/**
 * Checks whether rendering produces a different body now, e.g. without a field that the server rejected.
 *
 * @since 0.1.0
 * @category rendering
 */
export const differs = (before: Rendered, now: Either.Either<Rendered, InvalidInput>): boolean =>
  Either.isRight(now) &&
  typeof before.body?.bytes === "string" &&
  typeof now.right.body?.bytes === "string" &&
  before.body.bytes !== now.right.body.bytes

// Handles cyclic values, values nested deeper than the stack, and invalid values from untyped programs.
const guarded = <A>(
  operation: string,
  encode: () => Either.Either<A, InvalidInput>,
): Either.Either<A, InvalidInput> => {
  try {
    return encode()
  } catch (cause) {
    return Either.left(new InvalidInput({ path: operation, problem: "cannot be encoded", cause }))
  }
}

const encode = (
  operation: string,
  schema: Schema.Schema.AnyNoContext | undefined,
  input: unknown,
): Either.Either<Readonly<Record<string, unknown>>, InvalidInput> =>
  schema === undefined
    ? Either.right({})
    : guarded(operation, () =>
        Either.mapLeft(ParseResult.encodeUnknownEither(schema)(input), (issue) => fromIssue(operation, input, issue)),
      )

const renderPath = (
  { operation, path }: Endpoint<never, unknown>,
  params: Readonly<Record<string, unknown>>,
): Either.Either<string, InvalidInput> =>
  Either.map(
    Either.all(
      path.split("/").map((segment) => {
        if (!segment.startsWith(":")) return Either.right(segment)
        const spread = segment.endsWith("*")
        const name = segment.slice(1, spread ? -1 : undefined)
        const value = String(params[name])
        return Either.mapLeft(
          Either.all((spread ? value.split("/") : [value]).map(renderSegment)),
          (problem) => new InvalidInput({ path: `${operation}.${name}`, problem }),
        ).pipe(Either.map((parts) => parts.join("/")))
      }),
    ),
    (segments) => segments.join("/"),
  )

const renderSegment = (value: string): Either.Either<string, string> =>
  value === "" || value === "." || value === ".."
    ? Either.left(`"${value}" is not a valid path segment`)
    : Either.try({
        try: () => encodeURIComponent(value).replaceAll("%3A", ":"),
        catch: () => "contains an unpaired surrogate",
      })

const renderQuery = (query: Readonly<Record<string, unknown>>): string =>
  new URLSearchParams(
    Object.entries(query).flatMap(([name, value]) =>
      value === undefined || value === null ? [] : [[name, String(value)]],
    ),
  ).toString()

const renderBody = <Input>(
  { body, operation }: Endpoint<Input, unknown>,
  input: Input,
  without: ReadonlySet<string>,
): Either.Either<Rendered["body"], InvalidInput> => {
  switch (body.kind) {
    case "none":
      return Either.right(undefined)
    case "json": {
      const text = fill(operation, body, input, without)
      if (text !== undefined) return Either.right({ contentType: "application/json", bytes: text })
      return guarded(operation, () =>
        Either.map(encode(operation, body.schema, input), (encoded) => ({
          contentType: "application/json",
          bytes: JSON.stringify(without.size === 0 ? encoded : trim(operation, body.schema, input, encoded, without)),
        })),
      )
    }
    case "bytes":
      return guarded(operation, () =>
        // The constructor `bytes` ties `encode` to the endpoint's input type.
        Either.map(body.encode(input as never), (bytes) => ({ contentType: body.contentType, bytes })),
      )
  }
}

type JsonBody = Extract<RequestBody, { readonly kind: "json" }>

/** Alternates between text and the name of the hole that follows it; starts and ends with text. */
type Form = ReadonlyArray<string>

const forms = new WeakMap<JsonBody, StructuralCache<Form>>()

/** Returns the body with its holes filled, or undefined if there are no holes or the input needs the schema. */
const fill = (operation: string, body: JsonBody, input: unknown, without: ReadonlySet<string>): string | undefined => {
  const { holes } = body
  // Bodies with unsupported fields are too rare to cache.
  if (holes === noHoles || without.size > 0 || typeof input !== "object" || input === null) return undefined
  const given = input as Readonly<Record<string, unknown>>
  let known = forms.get(body)
  if (known === undefined) forms.set(body, (known = new StructuralCache(holes)))
  let form = known.find(given)
  if (form === undefined) {
    form = formOf(operation, body, given)
    if (form === undefined) return undefined
    known.keep(given, form)
  }
  let text = form[0] ?? ""
  for (let at = 1; at < form.length; at += 2) {
    const name = form[at] ?? ""
    const value = given[name]
    const filled = value === undefined ? undefined : holes[name]?.fill(value as never)
    if (filled === undefined) return undefined
    text += `${filled}${form[at + 1] ?? ""}`
  }
  return text
}

const formOf = (
  operation: string,
  { holes, schema }: JsonBody,
  given: Readonly<Record<string, unknown>>,
): Form | undefined => {
  const input: Record<string, unknown> = { ...given }
  for (const [name, { empty }] of Object.entries(holes)) input[name] = empty
  const encoded = encode(operation, schema, input)
  if (Either.isLeft(encoded)) return undefined
  const text = JSON.stringify(encoded.right)
  const found = Object.entries(holes)
    .map(([name, { mark }]) => ({ name, mark, at: text.indexOf(mark) }))
    .toSorted((a, b) => a.at - b.at)
  const form: Array<string> = []
  let from = 0
  for (const { at, mark, name } of found) {
    if (at < from) return undefined
    form.push(text.slice(from, at), name)
    from = at + mark.length
  }
  form.push(text.slice(from))
  return form
}

// Removes unsupported fields with default values: those that the body also contains if the caller does not set them.
const trim = (
  operation: string,
  schema: Schema.Schema.AnyNoContext,
  input: unknown,
  encoded: Readonly<Record<string, unknown>>,
  without: ReadonlySet<string>,
): Readonly<Record<string, unknown>> => {
  const bare = Object.fromEntries(Object.entries(input ?? {}).filter(([name]) => !without.has(snakeCase(name))))
  return Either.match(encode(operation, schema, bare), {
    onLeft: () => encoded,
    onRight: (defaults) =>
      Object.fromEntries(
        Object.entries(encoded).filter(
          ([name, value]) => !without.has(name) || JSON.stringify(defaults[name]) !== JSON.stringify(value),
        ),
      ),
  })
}
