/** Decides whether a process under load behaved. Pure. */
import type { LoadReport, LoadSettings, Point } from "./Load.ts"

const median = (values: ReadonlyArray<number>): number =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0

/** Jain's index of fairness: 1 if all have the same, 1/n if one has everything. */
export const fairness = (shares: ReadonlyArray<number>): number => {
  const sum = shares.reduce((a, b) => a + b, 0)
  const squares = shares.reduce((a, b) => a + b * b, 0)
  return squares === 0 ? 1 : sum ** 2 / (shares.length * squares)
}

/** How much more memory the last quarter needs than the second one. */
export const growth = (points: ReadonlyArray<Point>): number => {
  const quarter = Math.floor(points.length / 4)
  const heap = (part: ReadonlyArray<Point>) => median(part.map(({ heap }) => heap))
  return heap(points.slice(3 * quarter)) / Math.max(1, heap(points.slice(quarter, 2 * quarter)))
}

/** Returns what is wrong. */
export const problems = ({ count, kind }: LoadSettings, report: LoadReport): ReadonlyArray<string> => {
  const failed = Object.entries(report.errors).map(([tag, times]) => `${times} × ${tag}`)
  const expected = kind === "samples" ? count : kind === "tenants" ? 4 * count : 1
  const handles = report.handlesLeft.length
  return [
    ...(failed.length === 0 ? [] : [`errors: ${failed.join(", ")}`]),
    ...(report.done >= expected ? [] : [`only ${report.done} of ${expected} were done`]),
    ...(kind === "soak" && growth(report.points) > 1.5
      ? [`memory grew by a factor of ${growth(report.points).toFixed(2)}`]
      : []),
    ...(handles === 0 ? [] : [`handles are left: ${report.handlesLeft.join(", ")}`]),
  ]
}
