/** Removes credentials from text for errors and logs, and reveals them for sending. */
import * as Predicate from "effect/Predicate"
import * as Redacted from "effect/Redacted"

/**
 * Matches anything that looks like a Tinker credential, up to a character that ends it in JSON, a URL or a sentence.
 */
const shapes = /(?:tml-|eyJ)[^\s"'<>\\,;&(){}[\]]+/g

/**
 * Replaces all known secrets and everything that looks like one. Secrets shorter than 4 characters are ignored:
 * replacing each "a" would destroy the text and protect nothing.
 */
export const redactor = (secrets: Iterable<Redacted.Redacted<string>>): ((text: string) => string) => {
  const known = Array.from(secrets, Redacted.value)
    .filter((secret) => secret.length >= 4)
    // Longer secrets first, because they may contain shorter ones.
    .toSorted((a, b) => b.length - a.length)
  return (text) =>
    known.reduce((rest, secret) => rest.replaceAll(secret, "<redacted>"), text).replace(shapes, "<redacted>")
}

/** Redacts every string inside a JSON value. */
export const redactJson = (value: unknown, redact: (text: string) => string): unknown => {
  if (typeof value === "string") return redact(value)
  if (Array.isArray(value)) return value.map((item) => redactJson(item, redact))
  if (!Predicate.isRecord(value)) return value
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [redact(key), redactJson(item, redact)]))
}

type Headers = Readonly<Record<string, string | Redacted.Redacted<string>>>

/** Returns header values in plain text, for sending. */
export const reveal = (headers: Headers): Readonly<Record<string, string>> =>
  Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [
      name.toLowerCase(),
      Redacted.isRedacted(value) ? Redacted.value(value) : value,
    ]),
  )

/** Returns the secret values of an object. */
export const secretsIn = (values: object): ReadonlyArray<Redacted.Redacted<string>> => {
  let found: Array<Redacted.Redacted<string>> | undefined
  // Runs for every request, and nearly all contain no secrets.
  for (const value of Object.values(values)) {
    if (typeof value === "object" && Redacted.isRedacted(value)) {
      ;(found ??= []).push(value as Redacted.Redacted<string>)
    }
  }
  return found ?? none
}

const none: ReadonlyArray<Redacted.Redacted<string>> = []
