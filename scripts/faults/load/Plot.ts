/** Draws memory and handles over time as SVG. Pure. */
import type { Point } from "./Load.ts"

const [width, height, left, bottom, top] = [640, 180, 60, 24, 26]

const path = (points: ReadonlyArray<readonly [x: number, y: number]>, mostX: number, mostY: number): string =>
  points
    .map(([x, y]) => {
      const at = [left + (x / mostX) * (width - left - 10), height - bottom - (y / mostY) * (height - bottom - top)]
      return at.map((value) => value.toFixed(1)).join(",")
    })
    .join(" ")

const panel = (
  title: string,
  index: number,
  points: ReadonlyArray<Point>,
  valueOf: (point: Point) => number,
): string => {
  const mostX = Math.max(...points.map(({ seconds }) => seconds), 1e-9)
  const mostY = Math.max(...points.map(valueOf), 1e-9)
  return [
    `<g transform="translate(0 ${index * height})">`,
    `<text x="${left}" y="16" font-weight="600">${title}</text>`,
    `<path d="M${left} ${top}V${height - bottom}H${width - 10}" fill="none" stroke="#888"/>`,
    `<text x="${left - 6}" y="${top + 4}" text-anchor="end">${mostY.toPrecision(3)}</text>`,
    `<text x="${left - 6}" y="${height - bottom}" text-anchor="end">0</text>`,
    `<text x="${width - 10}" y="${height - 8}" text-anchor="end">${mostX.toFixed(0)} s</text>`,
    `<polyline points="${path(
      points.map((point) => [point.seconds, valueOf(point)]),
      mostX,
      mostY,
    )}" fill="none" stroke="#1f6feb" stroke-width="1.5"/>`,
    "</g>",
  ].join("\n")
}

/** Draws one panel for each measure. */
export const svg = (points: ReadonlyArray<Point>): string =>
  [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${3 * height}" width="${width}" height="${3 * height}" font-family="system-ui, sans-serif" font-size="11">`,
    `<rect width="${width}" height="${3 * height}" fill="#fff"/>`,
    panel("resident memory of the client, MiB", 0, points, ({ resident }) => resident / 2 ** 20),
    panel("heap of the client, MiB", 1, points, ({ heap }) => heap / 2 ** 20),
    panel("handles", 2, points, ({ handles }) => handles),
    "</svg>",
    "",
  ].join("\n")
