/** Credentials on their way out, and out of the way of text that reaches an error or a log. */
import * as Predicate from "effect/Predicate"
import * as Redacted from "effect/Redacted"

/** Everything that reads like a Tinker credential, up to what can't be part of one in JSON, a URL or a sentence. */
const shapes = /(?:tml-|eyJ)[^\s"'<>\\,;&(){}[\]]+/g

/**
 * Takes out every secret that is known, then everything of their shape. Very short secrets are left alone: replacing
 * each "a" would destroy the text and protect nothing.
 */
export const redactor = (secrets: Iterable<Redacted.Redacted<string>>): ((text: string) => string) => {
  const known = Array.from(secrets, Redacted.value)
    .filter((secret) => secret.length >= 4)
    // A longer one first: it may hold a shorter one.
    .toSorted((a, b) => b.length - a.length)
  return (text) =>
    known.reduce((rest, secret) => rest.replaceAll(secret, "<redacted>"), text).replace(shapes, "<redacted>")
}

/** The same for every text inside a JSON value. */
export const redactJson = (value: unknown, redact: (text: string) => string): unknown => {
  if (typeof value === "string") return redact(value)
  if (Array.isArray(value)) return value.map((item) => redactJson(item, redact))
  if (!Predicate.isRecord(value)) return value
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [redact(key), redactJson(item, redact)]))
}

type Headers = Readonly<Record<string, string | Redacted.Redacted<string>>>

/** Header values as they go to the socket. */
export const reveal = (headers: Headers): Readonly<Record<string, string>> =>
  Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [
      name.toLowerCase(),
      Redacted.isRedacted(value) ? Redacted.value(value) : value,
    ]),
  )

/** Of some values, those that were given as secrets. */
export const secretsIn = (values: object): ReadonlyArray<Redacted.Redacted<string>> => {
  let found: Array<Redacted.Redacted<string>> | undefined
  // Every request comes by here, and nearly all have none.
  for (const value of Object.values(values)) {
    if (typeof value === "object" && Redacted.isRedacted(value)) {
      ;(found ??= []).push(value as Redacted.Redacted<string>)
    }
  }
  return found ?? none
}

const none: ReadonlyArray<Redacted.Redacted<string>> = []
