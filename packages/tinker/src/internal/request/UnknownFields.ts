/**
 * Remembers the fields that an older server does not know. They are learnt from its 422. From then on
 * `Endpoint.render` leaves them out where they only carry their default.
 */
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import type { Endpoint } from "../../protocol/Endpoint.ts"
import type { TinkerError } from "../../TinkerError.ts"

export interface UnknownFields {
  /** Returns the fields that the server is known to refuse. */
  readonly of: (endpoint: Endpoint<never, unknown>) => ReadonlySet<string>
  /** Remembers the fields that an error names. Returns whether it names any, known or not. */
  readonly learn: (endpoint: Endpoint<never, unknown>, error: TinkerError) => boolean
}

const none: ReadonlySet<string> = new Set()

export const make = (): UnknownFields => {
  const known = new Map<string, ReadonlySet<string>>()
  return {
    of: ({ operation }) => known.get(operation) ?? none,
    learn: ({ operation }, error) => {
      if (error._tag !== "RequestRejected" || error.reason !== "Unprocessable") return false
      const named = forbidden(Option.getOrUndefined(error.body))
      if (named.length > 0) known.set(operation, new Set([...(known.get(operation) ?? none), ...named]))
      return named.length > 0
    },
  }
}

/** Returns the fields that `{ detail: [{ type: "extra_forbidden", loc: ["body", name] }] }` names. */
const forbidden = (body: unknown): ReadonlyArray<string> => {
  const detail = Predicate.isRecord(body) ? body["detail"] : undefined
  if (!Array.isArray(detail)) return []
  return detail.flatMap((issue: unknown) => {
    if (!Predicate.isRecord(issue) || issue["type"] !== "extra_forbidden") return []
    const { loc } = issue
    const path: ReadonlyArray<unknown> = Array.isArray(loc) ? loc.filter((part) => part !== "body") : []
    const [name] = path
    return path.length === 1 && typeof name === "string" ? [name] : []
  })
}
