/** Decides whether an experiment kept its promises. Pure: the same observation always gives the same violations. */
import { isDeepStrictEqual } from "node:util"
import type { Entry } from "../program/Report.ts"
import type { Class } from "../proxy/Draw.ts"
import { isLie, isTampering } from "../proxy/Fault.ts"
import type { Observation } from "./Observation.ts"
import * as Truth from "./Truth.ts"

/** The promises, by the name under which violations are reported. */
export const promises = {
  equal: "results and weights are those of a run without faults, byte for byte",
  survived: "the program survives the faults",
  typed: "every failure is a typed error of the SDK",
  truthful: "an error states truthfully what the server did, and nothing is done twice or out of order",
  bounded: "every caller resumes within the retry budget of five minutes and one more attempt",
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
export const bound = 340_000

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
    ...(isTampered || isLied ? [] : Truth.check(entries, record.accepted)).map((detail) =>
      violation("truthful", detail),
    ),
    ...(kind === "recoverable" ? survived(entries, expected) : []),
  ]
}
