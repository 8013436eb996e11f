/** How input is refused: one error, the path of what is wrong, and never the value itself if it may hold a secret. */
import * as Either from "effect/Either"
import * as ParseResult from "effect/ParseResult"
import { InvalidInput } from "../../TinkerError.ts"
import { isDetached } from "../util/TokenChecks.ts"

export type Result<A> = Either.Either<A, InvalidInput>

export const invalid = (path: string, problem: string): Either.Either<never, InvalidInput> =>
  Either.left(new InvalidInput({ path, problem }))

/** Prompts, keys and images are texts and objects, so of those only the kind is told. */
export const describe = (value: unknown): string => {
  switch (typeof value) {
    case "number":
    case "boolean":
    case "undefined":
      return String(value)
    case "bigint":
      return `${value}n`
    case "object":
      if (ArrayBuffer.isView(value))
        return isDetached(value) ? "an array whose memory was transferred" : "a typed array"
      return value === null ? "null" : Array.isArray(value) ? "an array" : "an object"
    default:
      return `a ${typeof value}`
  }
}

/** The first problem that a schema has with a value, below `path`. */
export const fromIssue = (path: string, value: unknown, issue: ParseResult.ParseIssue): InvalidInput => {
  const [first] = ParseResult.ArrayFormatter.formatIssueSync(issue)
  const keys = first?.path ?? []
  const says = first?.message ?? "can't be encoded"
  // Schemas end their messages with the value.
  const problem = says.replace(/, actual [^]*$/, "")
  return new InvalidInput({
    path: keys.reduce<string>(
      (text, key) => (typeof key === "number" ? `${text}[${key}]` : `${text}.${String(key)}`),
      path,
    ),
    problem: problem === says ? problem : `${problem}, got ${describe(keys.reduce<unknown>(property, value))}`,
  })
}

const property = (value: unknown, key: PropertyKey): unknown =>
  typeof value === "object" && value !== null ? Reflect.get(value, key) : undefined
