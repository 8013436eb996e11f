/** The server's words: answers, and refusals in the form that its framework gives them. */
import * as Either from "effect/Either"
import * as ParseResult from "effect/ParseResult"
import * as Predicate from "effect/Predicate"
import type { Answer } from "../../testing/ScriptedServer.ts"

export const json = (value: unknown, status = 200, headers: Answer["headers"] = {}): Answer => ({
  status,
  headers: { "content-type": "application/json", ...headers },
  body: JSON.stringify(value),
})

export const detail = (status: number, detail: unknown): Answer => json({ detail }, status)

export const refuse = (status: number, words: string): Either.Either<never, Answer> =>
  Either.left(detail(status, words))

/** What a script says: text and bytes as they are, anything else as JSON. */
export const scripted = (status: number, body: unknown, headers: Answer["headers"] = {}): Answer =>
  body === undefined || typeof body === "string" || body instanceof Uint8Array
    ? { status, headers, body: body ?? "" }
    : json(body, status, headers)

const at = (value: unknown, path: ReadonlyArray<PropertyKey>): unknown =>
  path.reduce<unknown>((value, key) => (Predicate.isObject(value) ? Reflect.get(value, key) : undefined), value)

const kinds = {
  Missing: { type: "missing", msg: "Field required" },
  Unexpected: { type: "extra_forbidden", msg: "Extra inputs are not permitted" },
} as const

/** Every problem of a body, with the place where it is. */
export const invalid = (body: unknown, issue: ParseResult.ParseIssue): Answer =>
  detail(
    422,
    ParseResult.ArrayFormatter.formatIssueSync(issue).map(({ _tag, message, path }) => ({
      ...(_tag === "Missing" || _tag === "Unexpected" ? kinds[_tag] : { type: "value_error", msg: message }),
      loc: ["body", ...path],
      input: at(body, path) ?? null,
    })),
  )

export const extraField = (name: string, input: unknown): Answer =>
  detail(422, [{ ...kinds.Unexpected, loc: ["body", name], input }])
