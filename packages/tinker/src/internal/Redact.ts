/** Credentials on their way out, and out of the way of text that reaches an error or a log. */
import * as Redacted from "effect/Redacted"

const shapes = /\b(?:tml-[\w-]+|eyJ[\w-]+(?:\.[\w-]+){0,2})/g

/**
 * Everything that looks like a Tinker credential goes, and every secret that is known. Very short secrets are left
 * alone: replacing each "a" would destroy the text and protect nothing.
 */
export const redact = (text: string, secrets: Iterable<Redacted.Redacted<string>> = []): string => {
  let result = text.replace(shapes, "<redacted>")
  for (const secret of secrets) {
    const value = Redacted.value(secret)
    if (value.length >= 4) result = result.replaceAll(value, "<redacted>")
  }
  return result
}

/** Header values as they go to the socket. */
export const reveal = (
  headers: Readonly<Record<string, string | Redacted.Redacted<string>>>,
): Readonly<Record<string, string>> =>
  Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [
      name.toLowerCase(),
      Redacted.isRedacted(value) ? Redacted.value(value) : value,
    ]),
  )
