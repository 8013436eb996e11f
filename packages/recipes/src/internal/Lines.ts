/** Events and numbers as short plain text. */
import type { RunEvent } from "../RunEvent.ts"

/** Rounds to four significant digits; large numbers keep all digits before the point. */
export const shortNumber = (value: number): string => {
  if (!Number.isFinite(value)) return String(value)
  if (value === 0) return "0"
  const size = Math.abs(value)
  if (size >= 1e6 || size < 1e-3)
    return value
      .toExponential(2)
      .replace("e+", "e")
      .replace(/\.?0+e/, "e")
  return String(size >= 1000 ? Math.round(value) : Number(value.toPrecision(4)))
}

/** Shows money with enough digits to see it grow. */
export const dollars = (usd: number): string =>
  `$${usd >= 100 ? usd.toFixed(0) : usd >= 1 ? usd.toFixed(2) : usd.toFixed(4)}`

/** Shows a time span by its two largest units. */
export const duration = (millis: number): string => {
  const seconds = Math.max(0, Math.round(millis / 1000))
  const [days, hours, minutes] = [
    Math.floor(seconds / 86_400),
    Math.floor(seconds / 3600) % 24,
    Math.floor(seconds / 60) % 60,
  ]
  if (days > 0) return `${days}d ${hours}h`
  if (hours > 0) return `${hours}h ${minutes}m`
  return minutes > 0 ? `${minutes}m ${seconds % 60}s` : `${seconds}s`
}

/** Makes text safe for a terminal: control characters, which could move the cursor, become spaces. */
export const oneLine = (text: string): string =>
  text.replaceAll(/[\p{Cc}\p{Zl}\p{Zp}\u200e\u200f\u202a-\u202e\u2066-\u2069]+/gu, " ").trim()

const metricsText = (metrics: Readonly<Record<string, number>>): string =>
  Object.entries(metrics)
    .map(([name, value]) => `${oneLine(name)} ${shortNumber(value)}`)
    .join("  ")

/** One line for an event, or undefined if it is left to the report. */
export const lineOf = (event: RunEvent): string | undefined => {
  switch (event._tag) {
    case "Step":
      return `step ${event.step + 1}${event.steps === undefined ? "" : `/${event.steps}`}  ${metricsText(event.metrics)}`
    case "Evaluation":
      return `evaluation ${oneLine(event.name)} after ${event.step} steps  ${metricsText(event.metrics)}`
    case "Checkpoint": {
      const path = event.statePath ?? event.samplerPath
      return `checkpoint ${oneLine(event.name)} (${event.kind}) after ${event.step} steps${path === undefined ? "" : `  ${oneLine(path)}`}`
    }
    case "Warning":
      return `warning ${oneLine(event.reason)} at step ${event.step}: ${oneLine(event.message)}`
    case "Done": {
      const text = `${event.outcome} after ${event.step} steps`
      return event.message === undefined ? text : `${text}: ${oneLine(event.message)}`
    }
    case "Sample":
      return undefined
  }
}
