/** Compares what the errors of the program say about its requests with the server's own record. Pure. */
import { isDeepStrictEqual } from "node:util"
import type { Accepted } from "../lab/Record.ts"
import type { Entry, ErrorReport } from "../program/Report.ts"
import { operations } from "../program/Tour.ts"

/** A part of the program and its place in the sequence of operations. */
interface Part {
  readonly name: string
  readonly from: number
  readonly to: number
}

const parts: ReadonlyArray<Part> = (() => {
  let at = 0
  return Object.entries(operations).map(([name, all]) => {
    const part = { name, from: at, to: at + all.length }
    at = part.to
    return part
  })
})()

const sequence = Object.values(operations).flat()

/** The steps that are sent one ahead of the other, and how many requests a step consists of. */
const ahead = new Set(["step 0", "step 1", "step 2"])
const stepLength = 4

/** Whether an error says that its request was refused before any work. */
const isRefusal = ({ operation, reason, tag }: ErrorReport): boolean => {
  // The error of a poll says nothing about the request that is polled for.
  if (operation?.startsWith("retrieve_future") === true) return false
  switch (tag) {
    case "Unavailable":
      return reason === "Connect"
    case "InvalidInput":
    case "RequestRejected":
    case "Unauthorized":
    case "Forbidden":
    case "NotFound":
    case "RateLimited":
    case "BillingPaused":
      return true
    default:
      return false
  }
}

/** What an error allows the server to have done. */
interface Allowance {
  readonly said: string
  /** The requests that the server has not done, by their places in the sequence. */
  readonly missing: readonly [from: number, to: number]
  readonly least: number
  readonly most: number
}

const allowance = (part: Part, half: string, error: ErrorReport): Allowance => {
  const from = half === "update" ? part.to - 1 : part.from
  const said = `${part.name}, ${half}: ${error.tag} (${error.applied ?? error.reason ?? ""})`
  const nothing = [0, 0] as const
  if (error.tag === "SequenceBroken") {
    if (error.applied === "no") return { said, missing: nothing, least: 0, most: from }
    return error.applied === "partial"
      ? { said, missing: nothing, least: from + 1, most: part.to - 1 }
      : { said, missing: nothing, least: from, most: part.to }
  }
  // A forward pass changes nothing: it may be refused after some of its pieces were accepted.
  if (part.name === "forward" || !isRefusal(error))
    return { said, missing: nothing, least: 0, most: Number.POSITIVE_INFINITY }
  // The update of a refused pass is not sent. The step after it may be on its way.
  return { said, missing: [from, part.to], least: from, most: from + (ahead.has(part.name) ? stepLength : 0) }
}

const allowances = (entries: ReadonlyArray<Entry>): ReadonlyArray<Allowance> =>
  entries.flatMap(({ errors = {}, name }) => {
    const part = parts.find((one) => one.name === name)
    return part === undefined ? [] : Object.entries(errors).map(([half, error]) => allowance(part, half, error))
  })

/** Checks the number that an error calls the last acknowledged one. */
const acknowledgments = (entries: ReadonlyArray<Entry>, accepted: ReadonlyArray<Accepted>) =>
  entries.flatMap(({ errors = {}, name }) =>
    Object.values(errors).flatMap(({ acknowledged = 0 }) =>
      acknowledged > 0 && !accepted.some(({ seq }) => seq === acknowledged)
        ? [`${name}: number ${acknowledged} is called acknowledged, but the server has not accepted it`]
        : [],
    ),
  )

/** Returns what is untrue: the server did something twice, out of order, or contrary to an error. */
export const check = (entries: ReadonlyArray<Entry>, accepted: ReadonlyArray<Accepted>): ReadonlyArray<string> => {
  const done = accepted.flatMap(({ operation, state }) => (state === "result" ? [operation] : []))
  const allowed = allowances(entries)
  const isMissing = (_: string, at: number) => allowed.some(({ missing: [from, to] }) => at >= from && at < to)
  const expected = sequence.filter((operation, at) => !isMissing(operation, at)).slice(0, done.length)
  const succeeded = parts.filter(({ name }) =>
    entries.some((entry) => entry.name === name && entry.errors === undefined),
  )
  const confirmed = succeeded.at(-1)?.to ?? 0
  return [
    ...(isDeepStrictEqual(done, expected) ? [] : [`the server did ${done.join(" ")}; expected ${expected.join(" ")}`]),
    ...(done.length < confirmed
      ? [`the program knows of ${confirmed} finished requests, the server of ${done.length}`]
      : []),
    ...allowed.flatMap(({ least, most, said }) =>
      done.length < least || done.length > most
        ? [`${said} allows ${least} to ${most} finished requests, the server has ${done.length}`]
        : [],
    ),
    ...acknowledgments(entries, accepted),
  ]
}
