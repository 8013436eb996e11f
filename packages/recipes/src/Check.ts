/**
 * Checks that save money, because what they find is otherwise found after a long run: whether a saved state continues as
 * if nothing had happened ({@link resume}), whether sampler and trainer compute the same numbers ({@link numerics}), and
 * whether a server elsewhere serves the weights that were trained ({@link serving}). Each one returns a report, which
 * {@link format} shows to people and {@link orFail} turns into a failure.
 *
 * @since 0.1.0
 */
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import { type NumericsReport, numericsText } from "./internal/check/Numerics.ts"
import { type ResumeReport, resumeText } from "./internal/check/Resume.ts"
import { type ServingReport, servingText } from "./internal/check/Serving.ts"
import { oneLine } from "./internal/Lines.ts"

export { type Example, resume, type ResumeOptions, type ResumeReport, type Way } from "./internal/check/Resume.ts"
export {
  type Depth,
  numerics,
  type NumericsOptions,
  type NumericsReport,
  type WorstToken,
} from "./internal/check/Numerics.ts"
export {
  type Parting,
  type ServedPrompt,
  serving,
  type ServingOptions,
  type ServingReport,
} from "./internal/check/Serving.ts"
export {
  /**
   * Reports that the server of {@link serving} was not reached, refused the request, or returned no log probabilities.
   *
   * @since 0.1.0
   * @category errors
   */
  EndpointFailed,
  /**
   * Where a model is served.
   *
   * @since 0.1.0
   * @category models
   */
  type Endpoint,
} from "./internal/ServedCompletions.ts"

/**
 * The report of any check.
 *
 * @since 0.1.0
 * @category models
 */
export type Report = ResumeReport | NumericsReport | ServingReport

/**
 * Shows a report to people.
 *
 * @since 0.1.0
 * @category formatting
 */
export const format = (report: Report): string => {
  const [title = "", ...lines] =
    report._tag === "Resume"
      ? resumeText(report)
      : report._tag === "Numerics"
        ? numericsText(report)
        : servingText(report)
  return [
    `${report.passed ? "Passed" : "Failed"}: ${title}`,
    ...report.problems.map((problem) => `  ${oneLine(problem)}`),
    ...lines,
  ].join("\n")
}

/**
 * Reports that a check has not passed.
 *
 * @since 0.1.0
 * @category errors
 */
export class CheckFailed extends Data.TaggedError("CheckFailed")<{ readonly report: Report }> {
  /** @since 0.1.0 */
  override get message(): string {
    return format(this.report)
  }
}

/**
 * Fails with {@link CheckFailed} if a check has not passed, so that a script ends with an error.
 *
 * @since 0.1.0
 * @category checks
 */
export const orFail = <A extends Report>(report: A): Effect.Effect<A, CheckFailed> =>
  report.passed ? Effect.succeed(report) : Effect.fail(new CheckFailed({ report }))
