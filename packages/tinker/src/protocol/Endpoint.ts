/**
 * One endpoint of the Tinker API as a value: where it is, how its request and answer look, who may retry it. `Api`
 * is the table of them; `Transport` sends them; a server reads the same table from the other side.
 *
 * @since 0.1.0
 */
import * as Duration from "effect/Duration"
import * as Either from "effect/Either"
import * as ParseResult from "effect/ParseResult"
import type * as Redacted from "effect/Redacted"
import type * as Schema from "effect/Schema"
import { fromIssue } from "../internal/codec/Invalid.ts"
import { Remembered } from "../internal/util/StructuralCache.ts"
import { secretsIn } from "../internal/util/Redact.ts"
import { snakeCase } from "../internal/codec/Wire.ts"
import { InvalidInput } from "../TinkerError.ts"

/**
 * Which connections a request uses, so that a crowd of one kind never keeps another kind waiting.
 *
 * @since 0.1.0
 * @category models
 */
export type Purpose = "session" | "train" | "sample" | "retrieve" | "rest" | "telemetry"

/**
 * Who retries: `standard` the transport, which also waits out a billing pause; `startup` the transport, but a billing
 * stop is told at once; `none` nobody here: the caller has a loop of its own.
 *
 * @since 0.1.0
 * @category models
 */
export type RetryClass = "standard" | "startup" | "none"

/**
 * How the request's body is written. `json` goes through a schema; `bytes` is written by hand (protobuf).
 *
 * @since 0.1.0
 * @category models
 */
export type RequestBody =
  | { readonly kind: "none" }
  | {
      readonly kind: "json"
      readonly schema: Schema.Schema.AnyNoContext
      /** By the names of the input's fields; {@link Hole}. */
      readonly holes: Readonly<Record<string, Hole>>
    }
  | {
      readonly kind: "bytes"
      readonly contentType: string
      readonly encode: (input: never) => Either.Either<Uint8Array, InvalidInput>
    }

/**
 * A field that is another one in each request, while the others are mostly the same: the schema writes those once,
 * with this one empty, and then only the holes are filled. Which changes nothing about the bytes, only what they cost.
 *
 * @since 0.1.0
 * @category models
 */
export interface Hole<in A = never> {
  /** What the schema sees in its place. */
  readonly empty: unknown
  /** How that stands in the body: quotes included, so that it can be nowhere else. */
  readonly mark: string
  /** What stands there for a value; nothing, if the schema should have a look at it. */
  readonly fill: (value: A) => string | undefined
}

/**
 * How the answer's body is read. `raw` is for callers that decide by status and content type themselves.
 *
 * @since 0.1.0
 * @category models
 */
export type ResponseBody =
  | { readonly kind: "void" }
  | { readonly kind: "json"; readonly schema: Schema.Schema.AnyNoContext }
  | { readonly kind: "raw" }

/**
 * @since 0.1.0
 * @category models
 */
export interface Endpoint<in Input, out Output> {
  /** The name used in errors, spans and logs: the wire's own, e.g. `optim_step`. */
  readonly operation: string
  /** The name of its span; none if it is a part of the span that it is sent in. */
  readonly span: string | undefined
  readonly method: "GET" | "POST" | "PUT" | "DELETE"
  /** Between the base URL and `path`. */
  readonly root: "api/v1" | "oai/api/v1"
  /** Below the root; `:name` is replaced by the encoded path parameter `name`, `:name*` may hold slashes. */
  readonly path: string
  readonly purpose: Purpose
  /** `credential` sends the configured one as it is, `token` what the server asked for: it or a JWT. */
  readonly auth: "credential" | "token"
  /** In which header it goes. */
  readonly scheme: "x-api-key" | "bearer"
  readonly retry: RetryClass
  /** A request with a sequence number: a 409 is the caller's business, the transport does not repeat it. */
  readonly sequenced: boolean
  /** For one attempt, up to the last byte of the answer; undefined leaves it to the configuration (60 s). */
  readonly timeout: Duration.Duration | undefined
  readonly headers: Readonly<Record<string, string>>
  /** `manual` gives a redirect to the caller as the answer that it is. */
  readonly redirect: "follow" | "manual"
  // Path and query take what they need from the one flat input; what they don't name is left to the body.
  readonly params: Schema.Schema.AnyNoContext | undefined
  readonly query: Schema.Schema.AnyNoContext | undefined
  readonly body: RequestBody
  readonly response: ResponseBody
  /** Types only. */
  readonly "~types"?: { readonly input: (input: Input) => void; readonly output: Output }
}

/**
 * What an endpoint takes.
 *
 * @since 0.1.0
 * @category models
 */
export type Input<E> = E extends Endpoint<infer I, infer _> ? I : never

/**
 * What an endpoint gives.
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
  // `Holes` ties each to the field whose values it gets.
  holes: holes as Readonly<Record<string, Hole>>,
})

/**
 * An endpoint whose request and answer are JSON. A body schema on a GET is a mistake that does not compile.
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
 * What a caller gets from an endpoint that leaves reading to it.
 *
 * @since 0.1.0
 * @category models
 */
export interface RawAnswer {
  readonly status: number
  readonly headers: Readonly<Record<string, string | undefined>>
  readonly contentType: string
  readonly body: Uint8Array
  /** Takes the secrets of the request out of words that the answer holds. */
  readonly redact: (text: string) => string
}

/**
 * A POST of JSON, or a GET of what `params` names, answered by something that only the caller can tell apart.
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
 * A POST whose request is bytes made by `encode`, e.g. protobuf.
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
 * An endpoint and its input, ready to be sent.
 *
 * @since 0.1.0
 * @category rendering
 */
export interface Rendered {
  readonly method: Endpoint<never, unknown>["method"]
  /** Below the root, percent-encoded. */
  readonly path: string
  /** Form-encoded, without the question mark; empty when there is nothing to ask. */
  readonly query: string
  readonly body: { readonly contentType: string; readonly bytes: string | Uint8Array } | undefined
  /** Those of the input, which stand open in the body: a server may repeat them in its words. */
  readonly secrets: ReadonlyArray<Redacted.Redacted<string>>
}

/**
 * @since 0.1.0
 * @category rendering
 */
export interface RenderOptions {
  /**
   * Names on the wire of fields of a JSON body that the server does not know. Those that only carry their default are
   * left out; one that says something stays, so that the server refuses it and the caller learns why.
   */
  readonly without?: ReadonlySet<string> | undefined
}

/**
 * Path, query and body of a request. Pure: the same input gives the same bytes, so a resend can be bit-identical.
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
 * Would it be another body now, e.g. without a field that the server has just refused?
 *
 * @since 0.1.0
 * @category rendering
 */
export const differs = (before: Rendered, now: Either.Either<Rendered, InvalidInput>): boolean =>
  Either.isRight(now) &&
  typeof before.body?.bytes === "string" &&
  typeof now.right.body?.bytes === "string" &&
  before.body.bytes !== now.right.body.bytes

// Values that hold themselves, are deeper than the stack, or come from a program without types.
const guarded = <A>(
  operation: string,
  encode: () => Either.Either<A, InvalidInput>,
): Either.Either<A, InvalidInput> => {
  try {
    return encode()
  } catch (cause) {
    return Either.left(new InvalidInput({ path: operation, problem: "can't be encoded", cause }))
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
    ? Either.left(`"${value}" can't be a part of a path`)
    : Either.try({
        try: () => encodeURIComponent(value).replaceAll("%3A", ":"),
        catch: () => "holds half of a surrogate pair",
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
        // The constructor `bytes` ties `encode` to the endpoint's own input type.
        Either.map(body.encode(input as never), (bytes) => ({ contentType: body.contentType, bytes })),
      )
  }
}

type JsonBody = Extract<RequestBody, { readonly kind: "json" }>

/** Text, then the name of the hole that follows it, and so on; the last is text. */
type Form = ReadonlyArray<string>

const forms = new WeakMap<JsonBody, Remembered<Form>>()

/** The body with its holes filled, if it has any and nothing about this input is out of the ordinary. */
const fill = (operation: string, body: JsonBody, input: unknown, without: ReadonlySet<string>): string | undefined => {
  const { holes } = body
  // What a server does not know is rare enough not to be remembered.
  if (holes === noHoles || without.size > 0 || typeof input !== "object" || input === null) return undefined
  const given = input as Readonly<Record<string, unknown>>
  let known = forms.get(body)
  if (known === undefined) forms.set(body, (known = new Remembered(holes)))
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

// A field carries its default when the body says the same without the caller having said anything.
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
