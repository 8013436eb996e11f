/**
 * Matches requests against the endpoints in `Api` and decodes them. For authors of servers.
 *
 * @since 0.1.0
 */
import * as Either from "effect/Either"
import * as Encoding from "effect/Encoding"
import * as ParseResult from "effect/ParseResult"
import * as Predicate from "effect/Predicate"
import type * as Schema from "effect/Schema"
import type { Endpoint } from "./Endpoint.ts"

/**
 * Returns the path parameters, or undefined if the path belongs to another endpoint. A parameter with a star takes all
 * segments that the others leave.
 *
 * @since 0.1.0
 * @category routing
 */
export const matchPath = (
  endpoint: Pick<Endpoint<never, unknown>, "path">,
  path: string,
): Readonly<Record<string, string>> | undefined => {
  const names = endpoint.path.split("/")
  const segments = path.split("/")
  const star = names.findIndex((name) => name.endsWith("*"))
  const spread = star < 0 ? 0 : segments.length - names.length
  if (star < 0 ? names.length !== segments.length : spread < 0) return undefined
  const params: Record<string, string> = {}
  for (const [i, name] of names.entries()) {
    const from = star >= 0 && i > star ? i + spread : i
    const text = segments.slice(from, from + (i === star ? spread : 0) + 1).join("/")
    if (!name.startsWith(":")) {
      if (name !== text) return undefined
    } else if (text === "") return undefined
    else
      params[i === star ? name.slice(1, -1) : name.slice(1)] = Either.getOrElse(
        Encoding.decodeUriComponent(text),
        () => text,
      )
  }
  return params
}

/**
 * A problem with a part of a request, in the format that servers of this API use.
 *
 * @since 0.1.0
 * @category refusals
 */
export interface Problem {
  readonly type: string
  readonly msg: string
  readonly loc: ReadonlyArray<PropertyKey>
  readonly input: unknown
}

const kinds = {
  Missing: { type: "missing", msg: "Field required" },
  Unexpected: { type: "extra_forbidden", msg: "Extra inputs are not permitted" },
} as const

const at = (value: unknown, path: ReadonlyArray<PropertyKey>): unknown =>
  path.reduce<unknown>((value, key) => (Predicate.isObject(value) ? Reflect.get(value, key) : undefined), value)

/** The number of problems that are reported, and the size of a value that is repeated in one. */
const maxProblems = 20
const maxEcho = 64
const maxText = 500

/** Counts the values within a value, up to a limit. */
const sizeOf = (value: unknown, limit: number): number => {
  if (typeof value === "string") return value.length > maxText ? limit : 1
  if (!Predicate.isObject(value)) return 1
  let size = 1
  for (const key in value) if ((size += sizeOf(Reflect.get(value, key), limit - size)) >= limit) return limit
  return size
}

/** Returns the value, or null if it is too large to be repeated in a response. */
const echo = (value: unknown): unknown => (sizeOf(value, maxEcho) < maxEcho ? (value ?? null) : null)

/**
 * Returns the first problems that a schema reports for a value, at most 20. Large values are not repeated.
 *
 * @since 0.1.0
 * @category refusals
 */
export const problems = (value: unknown, issue: ParseResult.ParseIssue, where = "body"): ReadonlyArray<Problem> =>
  ParseResult.ArrayFormatter.formatIssueSync(issue)
    .slice(0, maxProblems)
    .map(({ _tag, message, path }) => ({
      ...(_tag === "Missing" || _tag === "Unexpected"
        ? kinds[_tag]
        : { type: "value_error", msg: message.slice(0, maxText) }),
      loc: [where, ...path],
      input: echo(at(value, path)),
    }))

/**
 * Creates the problem for a field that the server does not support.
 *
 * @since 0.1.0
 * @category refusals
 */
export const unexpected = (name: string, input: unknown): Problem => ({
  ...kinds.Unexpected,
  loc: ["body", name],
  input,
})

/**
 * Options of {@link read}.
 *
 * @since 0.1.0
 * @category reading
 */
export interface ReadOptions {
  /**
   * The part of the request that contains the value.
   *
   * @default "body"
   */
  readonly where?: "body" | "path" | "query" | undefined
  /** Whether to reject fields that the schema does not define. */
  readonly strict?: boolean | undefined
  /** Whether to stop at the first problem, which bounds the work for a large value. */
  readonly onlyFirst?: boolean | undefined
}

/**
 * Decodes a part of a request with a schema.
 *
 * @since 0.1.0
 * @category reading
 */
export const read = <A, I>(
  schema: Schema.Schema<A, I>,
  value: unknown,
  options: ReadOptions = {},
): Either.Either<A, ReadonlyArray<Problem>> =>
  Either.mapLeft(
    ParseResult.decodeUnknownEither(schema, {
      errors: options.onlyFirst === true ? "first" : "all",
      onExcessProperty: options.strict === true ? "error" : "ignore",
    })(value),
    (issue) => problems(value, issue, options.where),
  )
