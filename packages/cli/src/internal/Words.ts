/** Formats sizes, times and booleans for people. */

const units = ["KB", "MB", "GB", "TB", "PB"]

/** Formats a number of bytes, e.g. `1.0 MB`. */
export const size = (bytes: number): string => {
  if (bytes < 0) return "N/A"
  if (bytes < 1024) return `${Math.trunc(bytes)} B`
  let rest = bytes / 1024
  for (const unit of units) {
    if (rest < 1024) return `${rest.toFixed(1)} ${unit}`
    rest /= 1024
  }
  return `${rest.toFixed(1)} EB`
}

const counted = (count: number, unit: string): string => `${count} ${unit}${count > 1 ? "s" : ""}`

const [minute, hour, day] = [60, 3600, 86_400]

/** Formats a time relative to now within a month, and as a date otherwise. */
export const time = (at: number, now: number): string => {
  const seconds = Math.trunc(Math.abs(now - at) / 1000)
  const days = Math.floor(seconds / day)
  if (days > 30) return new Date(at).toISOString().slice(0, 10)
  const isFuture = at > now
  const said = (text: string) => (isFuture ? `in ${text}` : `${text} ago`)
  if (days > 7) return said(counted(Math.floor(days / 7), "week"))
  if (days > 0) return said(counted(days, "day"))
  if (seconds > hour) return said(counted(Math.floor(seconds / hour), "hour"))
  if (seconds > minute) return said(counted(Math.floor(seconds / minute), "minute"))
  return isFuture ? "in less than a minute" : "just now"
}

/** Formats a time in the JSON of the official command, e.g. `2026-01-02 03:04:05+00:00`. */
export const stamp = (at: number): string => {
  const iso = new Date(at).toISOString()
  const fraction = iso.slice(20, 23)
  return `${iso.slice(0, 10)} ${iso.slice(11, 19)}${fraction === "000" ? "" : `.${fraction}000`}+00:00`
}

/** Formats a boolean. */
export const yes = (value: boolean): string => (value ? "Yes" : "No")

/** Chooses the singular or the plural of a noun. */
export const plural = (count: number, noun: string): string => `${count} ${noun}${count === 1 ? "" : "s"}`

/** Makes text of a model or of a file safe for a terminal: control characters could move the cursor. */
export const safe = (text: string): string =>
  text.replaceAll(/[\p{Cc}\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu, (character) =>
    character === "\n" || character === "\t" ? character : "\ufffd",
  )

/** Rounds a number to four significant digits. */
export const number = (value: number): string =>
  Number.isInteger(value) || !Number.isFinite(value) ? String(value) : String(Number(value.toPrecision(4)))
