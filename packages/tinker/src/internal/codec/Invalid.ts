/** Creates errors for invalid input. They contain the path of the invalid part and never a value that may be secret. */
import * as Either from "effect/Either"
import * as ParseResult from "effect/ParseResult"
import { InvalidInput } from "../../TinkerError.ts"
import { isDetached } from "../util/TokenChecks.ts"

export type Result<A> = Either.Either<A, InvalidInput>

export const invalid = (path: string, problem: string): Either.Either<never, InvalidInput> =>
  Either.left(new InvalidInput({ path, problem }))

/** Describes a value for an error. Strings and objects may be prompts, keys or images, so only their type is shown. */
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

/** Converts the first issue reported by a schema to an error with a path below `path`. */
export const fromIssue = (path: string, value: unknown, issue: ParseResult.ParseIssue): InvalidInput => {
  const [first] = ParseResult.ArrayFormatter.formatIssueSync(issue)
  const keys = first?.path ?? []
  const says = first?.message ?? "cannot be encoded"
  // Schema messages end with the value, which may be secret.
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
