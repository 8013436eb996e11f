/** Draws SVG images: line charts with a logarithmic axis, loss curves, and flame graphs. */

const escape = (text: string): string =>
  text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;")

const document = (width: number, height: number, parts: ReadonlyArray<string>): string =>
  [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" font-family="system-ui, sans-serif" font-size="11">`,
    `<rect width="${width}" height="${height}" fill="#fff"/>`,
    ...parts,
    "</svg>",
    "",
  ].join("\n")

const text = (x: number, y: number, value: string, more = ""): string =>
  `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" ${more}>${escape(value)}</text>`

export interface Line {
  readonly title: string
  readonly unit: string
  readonly points: ReadonlyArray<{ readonly n: number; readonly value: number }>
}

/** Draws one panel per line, with values from zero, so that flat lines look flat. */
export const lines = (all: ReadonlyArray<Line>): string => {
  const [width, height, columns] = [330, 190, 2]
  const panels = all.map(({ points, title, unit }, index) => {
    const [left, top] = [(index % columns) * width, Math.floor(index / columns) * height]
    const [x0, x1, y0, y1] = [left + 55, left + width - 25, top + height - 35, top + 35]
    const ns = points.map(({ n }) => Math.log10(n))
    const [from, to] = [Math.min(...ns), Math.max(...ns)]
    const most = Math.max(...points.map(({ value }) => value), 1e-9) * 1.25
    const at = ({ n, value }: { readonly n: number; readonly value: number }) =>
      [
        x0 + ((Math.log10(n) - from) / (to - from || 1)) * (x1 - x0),
        y0 - (Math.max(0, value) / most) * (y0 - y1),
      ] as const
    const path = points
      .map((point) =>
        at(point)
          .map((value) => value.toFixed(1))
          .join(","),
      )
      .join(" ")
    return [
      text(left + 12, top + 18, title, 'font-weight="600"'),
      `<path d="M${x0} ${y1}V${y0}H${x1}" fill="none" stroke="#888"/>`,
      text(x0 - 6, y0 + 4, "0", 'text-anchor="end" fill="#555"'),
      text(x0 - 6, y1 + 4, (most / 1.25).toPrecision(3), 'text-anchor="end" fill="#555"'),
      text(x0 + 4, y1 - 4, unit, 'fill="#555"'),
      ...points.map((point) =>
        text(at(point)[0], y0 + 16, point.n.toLocaleString("en-GB"), 'text-anchor="middle" fill="#555"'),
      ),
      `<polyline points="${path}" fill="none" stroke="#1f6feb" stroke-width="2"/>`,
      ...points.map(
        (point) => `<circle cx="${at(point)[0].toFixed(1)}" cy="${at(point)[1].toFixed(1)}" r="3" fill="#1f6feb"/>`,
      ),
    ].join("\n")
  })
  return document(columns * width, Math.ceil(all.length / columns) * height, panels)
}

export interface Curve {
  readonly name: string
  readonly values: ReadonlyArray<number>
  /** The step of each value. Default: 1, 2, 3 and so on. */
  readonly steps?: ReadonlyArray<number>
}

export interface Curves {
  readonly title: string
  /** The unit of the values. Default: loss per token. */
  readonly unit?: string
  /** Later lines are drawn over earlier ones, which are wider if all have values for the same steps. */
  readonly lines: ReadonlyArray<Curve>
}

/** Draws one panel per chart, from zero or the lowest value below it. */
export const curves = (all: ReadonlyArray<Curves>): string => {
  const [width, height] = [430, 260]
  const strokes = ["#1f6feb", "#f59f00"]
  const parts = [0, 0.25, 0.5, 0.75, 1]
  const stepsOf = ({ steps, values }: Curve) => steps ?? values.map((_, n) => n + 1)
  const panels = all.map(({ lines, title, unit = "loss per token" }, index) => {
    const left = index * width
    const [x0, x1, y0, y1] = [left + 45, left + width - 20, height - 35, 40]
    const [values, steps] = [lines.flatMap(({ values }) => values), lines.flatMap(stepsOf)]
    const [least, most] = [Math.min(0, ...values), Math.max(1e-9, ...values)]
    const first = Math.min(...steps)
    const last = Math.max(first + 1, ...steps)
    const px = (step: number) => x0 + ((step - first) / (last - first)) * (x1 - x0)
    const py = (value: number) => y0 - ((value - least) / (most - least)) * (y0 - y1)
    const digits = most - least >= 4 ? 1 : most - least >= 0.4 ? 2 : 3
    const labels =
      last - first <= 10
        ? Array.from({ length: last - first + 1 }, (_, n) => first + n)
        : parts.map((part) => Math.round(first + part * (last - first)))
    return [
      text(left + 12, 18, title, 'font-weight="600"'),
      `<path d="M${x0} ${y1}V${y0}H${x1}" fill="none" stroke="#888"/>`,
      text(x0 + 4, y1 - 6, unit, 'fill="#555"'),
      ...parts
        .map((part) => least + part * (most - least))
        .map((value) => text(x0 - 6, py(value) + 4, value.toFixed(digits), 'text-anchor="end" fill="#555"')),
      ...labels.map((step) => text(px(step), y0 + 16, String(step), 'text-anchor="middle" fill="#555"')),
      text((x0 + x1) / 2, y0 + 30, "step", 'text-anchor="middle" fill="#555"'),
      ...lines.flatMap((line, i) => {
        const over = lines.length - 1 - i
        const stroke = strokes[over % strokes.length]
        const wide = line.steps === undefined ? 1.5 + 3 * over : 2
        const points = stepsOf(line).map(
          (step, n) => [px(step).toFixed(1), py(line.values[n] ?? 0).toFixed(1)] as const,
        )
        return [
          `<polyline points="${points.map((point) => point.join(",")).join(" ")}" fill="none" stroke="${stroke}" stroke-width="${wide}" stroke-linejoin="round"/>`,
          // A few values are single measurements, and seen as such.
          ...(points.length > 12
            ? []
            : points.map(([x, y]) => `<circle cx="${x}" cy="${y}" r="3.5" fill="${stroke}"/>`)),
          ...(lines.length === 1
            ? []
            : [
                `<rect x="${x1 - 70}" y="${y1 + 6 + i * 16}" width="10" height="10" fill="${stroke}"/>`,
                text(x1 - 55, y1 + 15 + i * 16, line.name),
              ]),
        ]
      }),
    ].join("\n")
  })
  return document(all.length * width, height, panels)
}

/** A profile as written by `--cpu-prof`. */
export interface CpuProfile {
  readonly nodes: ReadonlyArray<{
    readonly id: number
    readonly callFrame: { readonly functionName: string; readonly url: string; readonly lineNumber: number }
    readonly children?: ReadonlyArray<number>
  }>
  readonly samples: ReadonlyArray<number>
  readonly timeDeltas: ReadonlyArray<number>
}

interface Frame {
  readonly name: string
  readonly owner: string
  time: number
  readonly children: Map<string, Frame>
}

const colours: Readonly<Record<string, string>> = {
  "effect-tinker": "#e8590c",
  "@effect-tinker/node": "#f59f00",
  effect: "#7950f2",
  "@effect/platform": "#9775fa",
  undici: "#1c7ed6",
  node: "#74b816",
  driver: "#868e96",
  native: "#ced4da",
}

const ownerOf = (url: string): string => {
  const inside = url.split("/node_modules/")
  if (inside.length > 1) return /^(@[^/]+\/[^/]+|[^/]+)/.exec(inside.at(-1) ?? "")?.[1] ?? "native"
  if (url.startsWith("node:")) return "node"
  return url === "" ? "native" : "driver"
}

/** Draws a flame graph from the first sample of the work on, without module loading. */
export const flame = (profile: CpuProfile, title: string): string => {
  const nodes = new Map(profile.nodes.map((node) => [node.id, node]))
  const parents = new Map(profile.nodes.flatMap(({ children = [], id }) => children.map((child) => [child, id])))
  const root: Frame = { name: "all", owner: "native", time: 0, children: new Map() }
  const isLoading = (path: ReadonlyArray<string>) =>
    path.some((name) => /ModuleJob|node:internal\/modules|bootstrap/.test(name))
  for (const [index, sample] of profile.samples.entries()) {
    const path: Array<{ readonly name: string; readonly owner: string; readonly key: string }> = []
    for (let id: number | undefined = sample; id !== undefined; id = parents.get(id)) {
      const frame = nodes.get(id)?.callFrame
      if (frame === undefined || frame.functionName === "(root)") continue
      const owner = ownerOf(frame.url)
      const name = frame.functionName || "(anonymous)"
      path.unshift({ name, owner, key: `${name} ${frame.url}:${frame.lineNumber}` })
    }
    const first = path[0]?.name
    if (first === "(idle)" || first === "(program)" || isLoading(path.map(({ key }) => key))) continue
    const time = profile.timeDeltas[index] ?? 0
    root.time += time
    let at = root
    for (const { key, name, owner } of path) {
      let child = at.children.get(key)
      if (child === undefined) {
        child = { name, owner, time: 0, children: new Map() }
        at.children.set(key, child)
      }
      child.time += time
      at = child
    }
  }
  const [width, row, top] = [1200, 15, 56]
  const parts: Array<string> = []
  let depth = 0
  const self = new Map<string, number>()
  const draw = (frame: Frame, x: number, level: number) => {
    const wide = (frame.time / root.time) * width
    const inner = [...frame.children.values()].reduce((sum, { time }) => sum + time, 0)
    self.set(frame.owner, (self.get(frame.owner) ?? 0) + frame.time - inner)
    if (wide >= 0.6) {
      depth = Math.max(depth, level)
      const share = `${((100 * frame.time) / root.time).toFixed(1)} %`
      const y = top + level * row
      parts.push(
        `<g><title>${escape(`${frame.name} (${frame.owner}) ${share}`)}</title><rect x="${x.toFixed(1)}" y="${y}" width="${wide.toFixed(1)}" height="${row - 1}" fill="${colours[frame.owner] ?? "#adb5bd"}" rx="1"/>`,
        wide > 45 ? text(x + 3, y + 11, frame.name.slice(0, Math.floor(wide / 6.5)), 'fill="#fff" font-size="10"') : "",
        "</g>",
      )
    }
    let left = x
    for (const child of [...frame.children.values()].toSorted((a, b) => b.time - a.time)) {
      draw(child, left, level + 1)
      left += (child.time / root.time) * width
    }
  }
  draw(root, 0, 0)
  let left = 10
  const shares = [...self]
    .toSorted((a, b) => b[1] - a[1])
    .slice(0, 8)
    .map(([owner, time]) => {
      const label = `${owner} ${((100 * time) / root.time).toFixed(0)} %`
      const part = `<rect x="${left}" y="30" width="10" height="10" fill="${colours[owner] ?? "#adb5bd"}"/>${text(left + 14, 39, label)}`
      left += 40 + label.length * 6
      return part
    })
  return document(width, top + (depth + 1) * row + 8, [
    text(10, 18, title, 'font-weight="600"'),
    ...shares,
    ...parts.filter((part) => part !== ""),
  ])
}
