/**
 * Parses command-line arguments strictly: unknown flags are errors.
 *
 * @since 0.1.0
 */
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import { parseArgs } from "node:util"

/**
 * Reports an invalid command line; the exit code is 2.
 *
 * @since 0.1.0
 * @category errors
 */
export class UsageError extends Data.TaggedError("UsageError")<{ readonly message: string }> {}

/**
 * Describes a flag: with or without a value, single or repeatable.
 *
 * @since 0.1.0
 * @category models
 */
export interface Flag {
  readonly type: "string" | "boolean"
  readonly multiple?: boolean
  readonly short?: string
}

/**
 * The values of flags by name, each as a list because a flag may be repeated.
 *
 * @since 0.1.0
 * @category models
 */
export type Flags = Readonly<Record<string, ReadonlyArray<string | boolean> | undefined>>

/**
 * Parses arguments by their flag definitions.
 *
 * @since 0.1.0
 * @category parsing
 */
export const parse = (
  args: ReadonlyArray<string>,
  options: Readonly<Record<string, Flag>>,
): Effect.Effect<Flags, UsageError> =>
  Effect.try({
    try: () => {
      const { values } = parseArgs({ args: [...args], options, strict: true, allowPositionals: false })
      return Object.fromEntries(
        Object.entries(values).map(([name, value]) => [name, Array.isArray(value) ? value : [value ?? true]]),
      )
    },
    catch: (cause) => new UsageError({ message: cause instanceof Error ? cause.message : String(cause) }),
  })

/**
 * Returns the last value of a flag.
 *
 * @since 0.1.0
 * @category getters
 */
export const text = (flags: Flags, name: string): string | undefined => {
  const value = flags[name]?.at(-1)
  return typeof value === "string" ? value : undefined
}

/**
 * Returns all values of a flag, in order.
 *
 * @since 0.1.0
 * @category getters
 */
export const texts = (flags: Flags, name: string): ReadonlyArray<string> =>
  (flags[name] ?? []).filter((value) => typeof value === "string")

/**
 * Returns the value of a flag as an integer within bounds.
 *
 * @since 0.1.0
 * @category getters
 */
export const integer = (
  flags: Flags,
  name: string,
  bounds: { readonly from: number; readonly to: number },
): Effect.Effect<number | undefined, UsageError> => {
  const value = text(flags, name)
  if (value === undefined) return Effect.succeed(undefined)
  const number = Number(value)
  return Number.isInteger(number) && number >= bounds.from && number <= bounds.to && value.trim() !== ""
    ? Effect.succeed(number)
    : new UsageError({ message: `--${name}: expected an integer from ${bounds.from} to ${bounds.to}, got "${value}"` })
}
