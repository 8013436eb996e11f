/** Says what is wrong with a value that a schema refuses, in one line for each place in it. */
import * as ParseResult from "effect/ParseResult"

export interface Problem {
  /** E.g. `checkpoints.everySteps`; empty for the value itself. */
  readonly path: string
  readonly problem: string
}

const pattern = /^Expected (.*), actual (.*)$/s

/** The members of a union are refused one by one: their expectations become one sentence. */
const summary = (messages: ReadonlyArray<string>): string => {
  const read = messages.map((message) => pattern.exec(message))
  const expected = new Set(read.flatMap((match) => (match?.[1] === undefined ? [] : [match[1]])))
  // A setting may be left out, but this one is given.
  if (expected.size > 1) expected.delete("undefined")
  const [first = ""] = messages
  const actual = read[0]?.[2]
  if (actual === undefined) return first
  return actual === "undefined" ? "is missing" : `expected ${[...expected].join(" or ")}, got ${actual}`
}

/** Returns the problems of a value, those of the same place as one. */
export const of = (error: ParseResult.ParseError): ReadonlyArray<Problem> => {
  const isOptional = (messages: ReadonlyArray<string>) =>
    messages.every((message) => pattern.exec(message)?.[1] === "undefined")
  const byPath = new Map<string, ReadonlyArray<string>>()
  for (const { message, path } of ParseResult.ArrayFormatter.formatErrorSync(error)) {
    const place = path.map(String).join(".")
    byPath.set(place, [...(byPath.get(place) ?? []), message])
  }
  const places = [...byPath.keys()]
  return [...byPath]
    .filter(([path, messages]) => !isOptional(messages) || !places.some((place) => place.startsWith(`${path}.`)))
    .map(([path, messages]) => ({ path, problem: summary(messages) }))
}

const shown = ({ path, problem }: Problem): string => (path === "" ? problem : `${path}: ${problem}`)

/** Returns the problems as one line. */
export const text = (error: ParseResult.ParseError): string => of(error).map(shown).join("; ")
