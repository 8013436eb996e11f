/**
 * Shows how far a run is: step, loss or reward, tokens per second, remaining time and cost in one line that is redrawn on
 * a terminal, and plain lines in a pipe. {@link update} and {@link format} are pure; {@link make} writes.
 *
 * @since 0.1.0
 */
import host from "node:process"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import { dollars, duration, lineOf, shortNumber } from "./internal/Lines.ts"
import type { RunEvent } from "./RunEvent.ts"
import type * as RunLogger from "./RunLogger.ts"

/**
 * The progress of a run, as far as it is known.
 *
 * @since 0.1.0
 * @category models
 */
export interface Progress {
  /** How many steps are done. */
  readonly step: number
  readonly steps: number | undefined
  /** The newest value of the metric that tells most: a loss, or the reward. */
  readonly headline: { readonly name: string; readonly value: number } | undefined
  /** Dollars spent, as the newest `cost/usd` states. */
  readonly cost: number | undefined
  readonly warnings: number
  readonly outcome: "complete" | "stopped" | undefined
  /** The times and tokens of the newest steps, oldest first. */
  readonly recent: ReadonlyArray<{ readonly at: number; readonly tokens: number }>
}

/**
 * The progress of a run that has not begun.
 *
 * @since 0.1.0
 * @category constructors
 */
export const empty: Progress = {
  step: 0,
  steps: undefined,
  headline: undefined,
  cost: undefined,
  warnings: 0,
  outcome: undefined,
  recent: [],
}

/** Speed is measured over this many steps. */
const window = 20

/** The first of these that a step has is shown. */
const headlines = ["reward/total", "env/all/reward/total", "train_mean_nll", "dpo_loss", "loss:mean", "loss:sum"]

const headlineOf = (metrics: Readonly<Record<string, number>>): Progress["headline"] => {
  const name =
    headlines.find((name) => metrics[name] !== undefined) ??
    Object.keys(metrics).find((name) => name.includes("loss") || name.includes("nll") || name.includes("reward"))
  const value = name === undefined ? undefined : metrics[name]
  return name === undefined || value === undefined ? undefined : { name, value }
}

const tokensOf = (metrics: Readonly<Record<string, number>>): number =>
  metrics["num_tokens"] ?? (metrics["total_ob_tokens"] ?? 0) + (metrics["total_ac_tokens"] ?? 0)

/**
 * Returns the progress after an event.
 *
 * @since 0.1.0
 * @category combinators
 */
export const update = (self: Progress, event: RunEvent): Progress => {
  switch (event._tag) {
    case "Step":
      return {
        ...self,
        step: event.step + 1,
        steps: event.steps ?? self.steps,
        headline: headlineOf(event.metrics) ?? self.headline,
        cost: event.metrics["cost/usd"] ?? self.cost,
        recent: [...self.recent, { at: event.at, tokens: tokensOf(event.metrics) }].slice(-window - 1),
      }
    case "Warning":
      return { ...self, warnings: self.warnings + 1 }
    case "Done":
      return { ...self, step: event.step, outcome: event.outcome }
    default:
      return self
  }
}

/**
 * Returns the tokens per second and the remaining milliseconds, as far as the newest steps tell.
 *
 * @since 0.1.0
 * @category getters
 */
export const speed = ({
  recent,
  step,
  steps,
}: Progress): { readonly tokensPerSecond: number | undefined; readonly remaining: number | undefined } => {
  const [first, last] = [recent[0], recent.at(-1)]
  const elapsed = first === undefined || last === undefined ? 0 : last.at - first.at
  if (elapsed <= 0) return { tokensPerSecond: undefined, remaining: undefined }
  // The tokens of the first were processed before the time span began.
  const tokens = recent.slice(1).reduce((sum, { tokens }) => sum + tokens, 0)
  return {
    tokensPerSecond: tokens === 0 ? undefined : (tokens / elapsed) * 1000,
    remaining: steps === undefined ? undefined : Math.max(0, steps - step) * (elapsed / (recent.length - 1)),
  }
}

/**
 * How a line of progress looks.
 *
 * @since 0.1.0
 * @category models
 */
export interface Appearance {
  /** The number of columns. The line is never longer. */
  readonly width: number
  readonly color: boolean
}

const barWidth = 10

const barOf = (fraction: number): string => {
  const filled = Math.round(Math.min(1, Math.max(0, fraction)) * barWidth)
  return "█".repeat(filled) + "░".repeat(barWidth - filled)
}

const painted = (line: string): string =>
  line.replace(/^(█*)(░*)/u, (_, done: string, rest: string) => `\u001B[32m${done}\u001B[90m${rest}\u001B[0m`)

/**
 * Formats progress as one line. What does not fit is left out, the least important part first.
 *
 * @example
 * ```ts
 * import { type RunEvent, Progress } from "@effect-tinker/recipes"
 *
 * const step = (step: number): RunEvent.RunEvent => ({
 *   _tag: "Step",
 *   step,
 *   steps: 40,
 *   metrics: { train_mean_nll: 2 / (step + 1), num_tokens: 4096, "cost/usd": 0.0016 * (step + 1) },
 *   at: step * 2_000,
 * })
 *
 * const progress = Array.from({ length: 10 }, (_, i) => step(i)).reduce(Progress.update, Progress.empty)
 * console.log(Progress.format(progress, { width: 100, color: false }))
 * // → ███░░░░░░░ 10/40  train_mean_nll 0.2  2048 tokens/s  1m 0s left  $0.0160
 * console.log(Progress.format(progress, { width: 40, color: false }))
 * // → 10/40  train_mean_nll 0.2  1m 0s left
 * ```
 *
 * @since 0.1.0
 * @category formatting
 */
export const format = (self: Progress, { color, width }: Appearance): string => {
  const { remaining, tokensPerSecond } = speed(self)
  const steps = self.steps === undefined ? `step ${self.step}` : `${self.step}/${self.steps}`
  const optional = (value: number | undefined, show: (value: number) => string) =>
    value === undefined ? [] : [show(value)]
  /** In the order of the line. The part with the lowest rank is given up first. */
  const parts: ReadonlyArray<{ readonly text: string; readonly rank: number }> = [
    ...(self.steps === undefined || self.steps <= 0 ? [] : [{ text: barOf(self.step / self.steps), rank: 1 }]),
    { text: steps, rank: 9 },
    ...(self.headline === undefined
      ? []
      : [{ text: `${self.headline.name} ${shortNumber(self.headline.value)}`, rank: 8 }]),
    ...optional(tokensPerSecond, (rate) => `${shortNumber(Math.round(rate))} tokens/s`).map((text) => ({
      text,
      rank: 2,
    })),
    ...(self.outcome === undefined ? optional(remaining, (millis) => `${duration(millis)} left`) : [self.outcome]).map(
      (text) => ({ text, rank: 7 }),
    ),
    ...optional(self.cost, dollars).map((text) => ({ text, rank: 6 })),
    ...(self.warnings === 0 ? [] : [{ text: `${self.warnings} warning${self.warnings === 1 ? "" : "s"}`, rank: 3 }]),
  ]
  const lineOf = (shown: typeof parts) =>
    shown
      .map(({ rank, text }) => (rank === 1 ? `${text} ` : `${text}  `))
      .join("")
      .trimEnd()
  let shown = parts
  while (shown.length > 1 && lineOf(shown).length > width) {
    const least = Math.min(...shown.map(({ rank }) => rank))
    shown = shown.filter(({ rank }) => rank !== least)
  }
  const line = lineOf(shown).slice(0, Math.max(0, width))
  return color && shown[0]?.rank === 1 ? painted(line) : line
}

/**
 * Where progress is written.
 *
 * @since 0.1.0
 * @category models
 */
export interface Output {
  readonly write: (text: string) => void
  /** Whether lines can be redrawn. If not, each event is a line. */
  readonly isTerminal: boolean
  /** The width of the terminal at this moment. */
  readonly columns: () => number
  readonly color: boolean
}

/**
 * Standard error, so that standard output is left to the program. Colors follow `NO_COLOR`, `FORCE_COLOR` and the kind
 * of terminal, as Node decides.
 *
 * @since 0.1.0
 * @category constructors
 */
export const standardError: Effect.Effect<Output> = Effect.sync(() => {
  const { stderr } = host
  const isTerminal = stderr.isTTY === true
  return {
    write: (text) => void stderr.write(text),
    isTerminal,
    // A terminal whose size was never set has 0 columns.
    columns: () => stderr.columns || 80,
    color: isTerminal && stderr.hasColors(),
  }
})

/** The line is redrawn at most this often, in milliseconds of the events' time. */
const redrawEvery = 100

/**
 * Creates a logger that shows progress until the scope closes. On a terminal it redraws one line, above which
 * evaluations, checkpoints, warnings and the end appear as lines that stay. Elsewhere each event is a line.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (output: Output): Effect.Effect<RunLogger.Service, never, Scope.Scope> =>
  Effect.gen(function* () {
    let progress = empty
    let drawnAt = Number.NEGATIVE_INFINITY
    let hasLine = false
    const draw = () => {
      // One column less, because some terminals wrap when the last one is written.
      output.write(`\r\u001B[K${format(progress, { width: output.columns() - 1, color: output.color })}`)
      hasLine = true
    }
    const log = (event: RunEvent) => {
      progress = update(progress, event)
      const line = lineOf(event)
      if (!output.isTerminal) {
        if (line !== undefined) output.write(`${line}\n`)
        return
      }
      if (event._tag === "Step") {
        const isLast = progress.steps === progress.step
        if (!isLast && event.at >= drawnAt && event.at - drawnAt < redrawEvery) return
        drawnAt = event.at
        draw()
        return
      }
      if (line === undefined) return
      output.write(`${hasLine ? "\r\u001B[K" : ""}${line}\n`)
      draw()
    }
    yield* Effect.addFinalizer(() =>
      Effect.sync(() => {
        if (hasLine) output.write("\n")
      }),
    )
    return { log: (event) => Effect.sync(() => log(event)) }
  })

/**
 * Creates a function that counts to a total and shows how far it is until the scope closes: one line that is redrawn on
 * a terminal, and elsewhere a line for each tenth.
 *
 * @since 0.1.0
 * @category constructors
 */
export const counter = (
  output: Output,
  total: number,
): Effect.Effect<(headline: Progress["headline"]) => Effect.Effect<void>, never, Scope.Scope> =>
  Effect.gen(function* () {
    let progress: Progress = { ...empty, steps: total, recent: [{ at: yield* Clock.currentTimeMillis, tokens: 0 }] }
    let drawnAt = Number.NEGATIVE_INFINITY
    if (output.isTerminal) yield* Effect.addFinalizer(() => Effect.sync(() => output.write("\n")))
    const show = (at: number) => {
      const { step } = progress
      const isTenth = Math.floor((10 * step) / total) > Math.floor((10 * (step - 1)) / total)
      if (output.isTerminal ? step < total && at - drawnAt < redrawEvery : !isTenth) return
      drawnAt = at
      const line = format(progress, { width: output.columns() - 1, color: output.color })
      output.write(output.isTerminal ? `\r\u001B[K${line}` : `${line}\n`)
    }
    return (headline) =>
      Effect.map(Clock.currentTimeMillis, (at) => {
        const recent = [...progress.recent, { at, tokens: 0 }].slice(-window - 1)
        progress = { ...progress, step: progress.step + 1, headline: headline ?? progress.headline, recent }
        show(at)
      })
  })
