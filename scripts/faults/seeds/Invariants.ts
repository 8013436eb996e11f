/** Decides whether an experiment kept its promises. Pure: the same observation always gives the same violations. */
import { isDeepStrictEqual } from "node:util"
import type { Accepted } from "../lab/Record.ts"
import type { Entry, ErrorReport } from "../program/Report.ts"
import { operations } from "../program/Tour.ts"
import type { Class } from "../proxy/Draw.ts"
import { isLie, isTampering } from "../proxy/Fault.ts"
import type { Observation } from "./Observation.ts"

/** The promises, by the name under which violations are reported. */
export const promises = {
  equal: "results and weights are those of a run without faults, byte for byte",
  survived: "the program survives the faults",
  typed: "every failure is a typed error of the SDK",
  truthful: "an error states truthfully what the server did, and nothing is done twice or out of order",
  bounded: "every caller resumes within two minutes",
  released: "no fiber, socket, file, handle or permit is left",
  exits: "the process exits by itself",
  secret: "no key and no token is in any output or file",
} as const

export type Promised = keyof typeof promises

export interface Violation {
  readonly promise: Promised
  readonly detail: string
}

/** The longest time that a part of the program may take, in milliseconds. */
export const bound = 120_000

const violation = (promise: Promised, detail: string): Violation => ({ promise, detail })

const short = (value: unknown): string => (JSON.stringify(value) ?? "nothing").slice(0, 300)

/** Compares the values that the program got. */
const comparedValues = (entries: ReadonlyArray<Entry>, reference: ReadonlyArray<Entry>) =>
  entries.flatMap(({ errors, name, value }) => {
    if (errors !== undefined) return []
    const expected = reference.find((entry) => entry.name === name)?.value
    return isDeepStrictEqual(value, expected)
      ? []
      : [violation("equal", `${name}: expected ${short(expected)}, got ${short(value)}`)]
  })

/** Compares the weights on the server's disk that the program knows to be saved. */
const comparedWeights = ({ record, report }: Observation, reference: Observation) =>
  (report?.entries ?? []).flatMap(({ errors, value }) => {
    if (errors !== undefined || typeof value !== "string" || !(value in reference.record.weights)) return []
    return record.weights[value] === reference.record.weights[value]
      ? []
      : [violation("equal", `the weights of ${value} differ on the server's disk`)]
  })

/** The operations of the sequence that each part of the program consists of, and where they begin. */
const layout = (() => {
  let at = 0
  return Object.entries(operations).map(([name, all]) => {
    const part = { name, from: at, to: at + all.length }
    at = part.to
    return part
  })
})()

const sequence = Object.values(operations).flat()

/** Whether an error says that its request was not carried out. */
const deniesWork = ({ applied, operation, reason, tag }: ErrorReport): boolean => {
  // The error of a poll says nothing about the request that is polled for.
  if (operation?.startsWith("retrieve_future") === true) return false
  switch (tag) {
    case "SequenceBroken":
      return applied === "no"
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

const isDone = ({ state }: Accepted) => state === "result"

/** Checks the claims of the errors of one part against the server's record. */
const claims = ({ errors = {}, name }: Entry, accepted: ReadonlyArray<Accepted>): ReadonlyArray<Violation> => {
  const part = layout.find((one) => one.name === name)
  if (part === undefined) return []
  const done = accepted.filter(isDone).length
  return Object.entries(errors).flatMap(([half, error]) => {
    const from = half === "update" ? part.to - 1 : part.from
    const said = `${name}, ${half}: ${error.tag} (${error.applied ?? error.reason ?? ""})`
    if (deniesWork(error) && done > from)
      return [violation("truthful", `${said} denies work that the server has done: ${done} requests, expected ${from}`)]
    if (error.tag === "SequenceBroken" && error.applied === "partial" && (done <= from || done >= part.to))
      return [violation("truthful", `${said}, but the server has done ${done - from} of ${part.to - from} requests`)]
    if (error.tag === "SequenceBroken" && done > part.to)
      return [violation("truthful", `${said}, but the server has done ${done - part.to} later requests`)]
    const acknowledged = error.acknowledged ?? 0
    return acknowledged > 0 && !accepted.some(({ seq }) => seq === acknowledged)
      ? [violation("truthful", `${said} says that number ${acknowledged} was acknowledged; the server has none`)]
      : []
  })
}

/** Checks that the server did what the program knows to be done, in order, once, and nothing else. */
const orderly = (entries: ReadonlyArray<Entry>, accepted: ReadonlyArray<Accepted>): ReadonlyArray<Violation> => {
  const done = accepted.filter(isDone).map(({ operation }) => operation)
  const known = layout.filter(({ name }) => entries.some((entry) => entry.name === name && entry.errors === undefined))
  const confirmed = known.at(-1)?.to ?? 0
  const expected = sequence.slice(0, done.length)
  return [
    ...(isDeepStrictEqual(done, expected)
      ? []
      : [violation("truthful", `the server did ${done.join(" ")}; expected ${expected.join(" ")}`)]),
    ...(done.length < confirmed
      ? [violation("truthful", `the program knows of ${confirmed} finished requests, the server of ${done.length}`)]
      : []),
  ]
}

const typed = (entries: ReadonlyArray<Entry>) =>
  entries.flatMap(({ errors = {}, name }) =>
    Object.values(errors).flatMap((error) =>
      error.isTyped ? [] : [violation("typed", `${name}: ${error.tag}: ${error.message.slice(0, 500)}`)],
    ),
  )

const survived = (entries: ReadonlyArray<Entry>, reference: ReadonlyArray<Entry>) => {
  const failed = entries.flatMap(({ errors = {}, name }) =>
    Object.values(errors).map(({ message, tag }) => violation("survived", `${name}: ${tag}: ${message.slice(0, 300)}`)),
  )
  return failed.length === 0 && entries.length < reference.length
    ? [violation("survived", `only ${entries.length} of ${reference.length} parts were run`)]
    : failed
}

const bounded = (entries: ReadonlyArray<Entry>) =>
  entries.flatMap(({ millis, name }) => (millis > bound ? [violation("bounded", `${name} took ${millis} ms`)] : []))

const released = ({ report }: Observation) => {
  if (report === undefined) return []
  const { descriptors, fibers, handles, permits } = report.leftovers
  return fibers + permits + descriptors.length + handles.length === 0
    ? []
    : [violation("released", short(report.leftovers))]
}

const jwt = /eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,}/

const secret = ({ texts }: Observation, key: string) =>
  Object.entries(texts).flatMap(([name, text]) => {
    if (text.includes(key)) return [violation("secret", `${name} contains the API key`)]
    return jwt.test(text) ? [violation("secret", `${name} contains a token`)] : []
  })

/** Returns the promises that an experiment broke. */
export const check = (
  kind: Class,
  observation: Observation,
  reference: Observation,
  key: string,
): ReadonlyArray<Violation> => {
  const { end, injected, record, report, texts } = observation
  if (report === undefined)
    return [
      violation("bounded", `the client did not report: ${end ?? "killed"}; ${texts["client"]?.slice(-500)}`),
      ...secret(observation, key),
    ]
  const { entries } = report
  const isTampered = injected.some(({ fault }) => isTampering(fault))
  const isLied = injected.some(({ fault }) => isLie(fault))
  const expected = reference.report?.entries ?? []
  return [
    ...typed(entries),
    ...bounded(entries),
    ...released(observation),
    ...(end === 0 ? [] : [violation("exits", `the client ended with ${end ?? "a kill"}`)]),
    ...secret(observation, key),
    // Nothing can be said about bytes that were changed on their way: that is for TLS to prevent.
    ...(isTampered ? [] : comparedValues(entries, expected)),
    ...(isTampered ? [] : comparedWeights(observation, reference)),
    ...(isTampered ? [] : orderly(entries, record.accepted)),
    ...(isTampered || isLied ? [] : entries.flatMap((entry) => claims(entry, record.accepted))),
    ...(kind === "recoverable" ? survived(entries, expected) : []),
  ]
}
