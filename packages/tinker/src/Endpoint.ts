/**
 * One endpoint of the Tinker API as a value: where it is, how its request and answer look, who may retry it. `Api`
 * is the table of them; `Transport` sends them; a server reads the same table from the other side.
 *
 * @since 0.1.0
 */
import * as Duration from "effect/Duration"
import type * as Schema from "effect/Schema"
import type * as Either from "effect/Either"
import type { InvalidInput } from "./TinkerError.ts"

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
  | { readonly kind: "json"; readonly schema: Schema.Schema.AnyNoContext }
  | {
      readonly kind: "bytes"
      readonly contentType: string
      readonly encode: (input: never) => Either.Either<Uint8Array, InvalidInput>
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
  readonly method: "GET" | "POST" | "PUT" | "DELETE"
  /** Below `/api/v1/`; `:name` is replaced by the encoded path parameter `name`, `:name*` may hold slashes. */
  readonly path: string
  readonly purpose: Purpose
  /** `credential` sends the configured one as it is, `token` what the server asked for: it or a JWT. */
  readonly auth: "credential" | "token"
  readonly retry: RetryClass
  /** A request with a sequence number: a 409 is the caller's business, the transport does not repeat it. */
  readonly sequenced: boolean
  /** For one attempt, up to the last byte of the answer. */
  readonly timeout: Duration.Duration
  readonly headers: Readonly<Record<string, string>>
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
  readonly auth?: "credential" | "token"
  readonly retry?: RetryClass
  readonly sequenced?: boolean
  readonly timeout?: Duration.DurationInput
  readonly headers?: Readonly<Record<string, string>>
}

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
      | { readonly method: "GET" | "DELETE"; readonly body?: never }
      | { readonly method: "POST" | "PUT"; readonly body?: B }
    ),
): Endpoint<Typed<P> & Typed<Q> & Typed<B>, R extends Schema.Schema<infer A, infer _> ? A : void> => ({
  ...complete(spec),
  method: spec.method,
  params: spec.params,
  query: spec.query,
  body: spec.body === undefined ? { kind: "none" } : { kind: "json", schema: spec.body },
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
  readonly contentType: string
  readonly body: Uint8Array
}

/**
 * A POST whose JSON request is answered by bytes that only the caller can tell apart.
 *
 * @since 0.1.0
 * @category constructors
 */
export const raw = <A, I>(spec: Spec & { readonly body: Schema.Schema<A, I> }): Endpoint<A, RawAnswer> => ({
  ...complete(spec),
  method: "POST",
  params: undefined,
  query: undefined,
  body: { kind: "json", schema: spec.body },
  response: { kind: "raw" },
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
  path: spec.path,
  purpose: spec.purpose,
  auth: spec.auth ?? ("token" as const),
  retry: spec.retry ?? ("standard" as const),
  sequenced: spec.sequenced ?? false,
  timeout: Duration.decode(spec.timeout ?? "60 seconds"),
  headers: spec.headers ?? {},
})
