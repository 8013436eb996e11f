/** Reads numbers of the command line. */
import * as Effect from "effect/Effect"
import { UsageError } from "./Failure.ts"

/** Reads the value of an option, if it was given. */
export const read = (
  option: string,
  text: string | undefined,
  accepts: { readonly from: number; readonly to?: number; readonly isWhole?: boolean },
): Effect.Effect<number | undefined, UsageError> => {
  if (text === undefined) return Effect.succeed(undefined)
  const { from, isWhole = false, to } = accepts
  const number = Number(text)
  const fits = Number.isFinite(number) && number >= from && (to === undefined || number <= to) && text.trim() !== ""
  const range = to === undefined ? `from ${from} on` : `from ${from} to ${to}`
  return fits && (!isWhole || Number.isInteger(number))
    ? Effect.succeed(number)
    : new UsageError({
        message: `Invalid value for '--${option}': expected ${isWhole ? "an integer" : "a number"} ${range}, got "${text}"`,
      })
}

/** Reads an integer, if it was given. */
export const whole = (option: string, text: string | undefined, from: number, to?: number) =>
  read(option, text, { from, isWhole: true, ...(to === undefined ? {} : { to }) })

/** Reads a number, if it was given. */
export const real = (option: string, text: string | undefined, from: number, to?: number) =>
  read(option, text, { from, ...(to === undefined ? {} : { to }) })
