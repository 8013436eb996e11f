/** Shows results and comparisons to people. */
import type * as Bootstrap from "../../Bootstrap.ts"
import { oneLine, shortNumber } from "../Lines.ts"
import type { Comparison } from "./Comparison.ts"
import type { Result } from "./Scores.ts"

const percent = (share: number): string => `${shortNumber(100 * share)}%`

const intervalText = ({ confidence, high, low }: Bootstrap.Interval): string =>
  `${percent(confidence)} confidence: ${shortNumber(low)} to ${shortNumber(high)}`

const countText = (count: number): string => `${count} question${count === 1 ? "" : "s"}`

const resultText = ({ failed, intervals, metrics, name, outcomes }: Result<unknown>): string =>
  [
    `${oneLine(name)}: ${countText(outcomes.length)}${failed === 0 ? "" : `, ${failed} failed`}`,
    ...Object.entries(metrics).flatMap(([metric, value]) => {
      const interval = intervals[metric]
      if (metric === "failed") return []
      return [
        `  ${oneLine(metric)} ${shortNumber(value)}${interval === undefined ? "" : ` (${intervalText(interval)})`}`,
      ]
    }),
  ].join("\n")

const verdictText = { improved: "The model improved", worse: "The model got worse", undecided: "Undecided" }

const comparisonText = (comparison: Comparison<unknown>): string => {
  const { base, changed, difference, metric, name, pairs, probability, tuned, verdict } = comparison
  const value = (result: Result<unknown>) => shortNumber(result.metrics[metric.name] ?? Number.NaN)
  const failed = base.failed + tuned.failed
  const hint =
    verdict === "undecided" && 2 * 0.5 ** changed > 1 - difference.confidence
      ? `  Only ${changed} of ${countText(pairs)} got another score, which is too few to decide. Ask more questions.`
      : verdict === "undecided"
        ? "  Ask more questions, or accept that the difference is small."
        : undefined
  return [
    `${verdictText[verdict]}: ${oneLine(name)}, ${countText(pairs)}${failed === 0 ? "" : `, ${failed} answers failed`}`,
    `  ${oneLine(metric.name)} ${value(base)} → ${value(tuned)} (${metric.better} is best)`,
    `  difference ${shortNumber(difference.estimate)} (${intervalText(difference)})`,
    `  probability of being better: ${percent(probability)}`,
    ...(hint === undefined ? [] : [hint]),
  ].join("\n")
}

/**
 * Shows a result or a comparison to people.
 *
 * @since 0.1.0
 * @category formatting
 */
export const format = (self: Result<unknown> | Comparison<unknown>): string =>
  "verdict" in self ? comparisonText(self) : resultText(self)
