/** Shows progress: a bar on a terminal, the label in a pipe, nothing with `--format json`. */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import type { Format } from "./Output.ts"
import { type Service, Shell } from "./Shell.ts"
import { lengthOf } from "./Table.ts"

export interface Bar {
  /** Reports how much is done in all. */
  readonly at: (done: number, total?: number) => Effect.Effect<void>
}

/** Draws a bar that fits the width. */
export const draw = (
  { done, elapsed, label, total }: { label: string; done: number; total: number; elapsed: number },
  width: number,
): string => {
  const part = total > 0 ? Math.min(1, done / total) : 0
  const left = part > 0 && part < 1 ? `  ${clock((elapsed / part) * (1 - part))}` : ""
  const after = `${String(Math.floor(part * 100)).padStart(3)}%  ${done}/${total}${left}`
  const room = width - lengthOf(label) - after.length - 7
  const size = Math.max(0, Math.min(36, room))
  const full = Math.round(size * part)
  const bar = size < 4 ? "" : `[${"#".repeat(full)}${"-".repeat(size - full)}]  `
  return `${label}  ${bar}${after}`.slice(0, Math.max(0, width - 1))
}

const clock = (milliseconds: number): string => {
  const seconds = Math.round(milliseconds / 1000)
  return new Date(seconds * 1000).toISOString().slice(11, 19)
}

const onTerminal = (shell: Service, label: string, start: number): { bar: Bar; end: Effect.Effect<void> } => {
  let [last, total] = [0, 0]
  let drawn = -Infinity
  const paint = (now: number) =>
    shell.err(`\r\u001b[2K${draw({ label, done: last, total, elapsed: now - start }, shell.width)}`)
  return {
    bar: {
      at: (done, of) =>
        Effect.flatMap(Clock.currentTimeMillis, (now) => {
          last = done
          total = of ?? total
          if (now - drawn < 100 && done < total) return Effect.void
          drawn = now
          return paint(now)
        }),
    },
    end: Effect.flatMap(Clock.currentTimeMillis, (now) => Effect.zipRight(paint(now), shell.err("\n"))),
  }
}

/** Runs an effect that reports its progress. */
export const during = <A, E, R>(
  format: Format,
  label: string,
  run: (bar: Bar) => Effect.Effect<A, E, R>,
): Effect.Effect<A, E, R | Shell> =>
  Effect.gen(function* () {
    const shell = yield* Shell
    const silent: Bar = { at: () => Effect.void }
    if (format === "json") return yield* run(silent)
    if (!shell.hasProgress) {
      yield* shell.out(`${label}\n`)
      return yield* run(silent)
    }
    const { bar, end } = onTerminal(shell, label, yield* Clock.currentTimeMillis)
    return yield* Effect.ensuring(run(bar), end)
  })
