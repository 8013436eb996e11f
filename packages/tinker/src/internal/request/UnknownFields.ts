/**
 * Fields of ours that a server refuses because it is older than they are. Learnt once from its 422, by the rule of
 * `Endpoint.render`: what only carries its default is left out from then on, what says something stays.
 */
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import type { Endpoint } from "../../protocol/Endpoint.ts"
import type { TinkerError } from "../../TinkerError.ts"

export interface UnknownFields {
  readonly of: (endpoint: Endpoint<never, unknown>) => ReadonlySet<string>
  /** Does the error name fields? Others may have learnt of them in the meantime. */
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

/** The fields that `{ detail: [{ type: "extra_forbidden", loc: ["body", name] }] }` names. */
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
