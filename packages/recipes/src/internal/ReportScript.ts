/**
 * The program of the report page. It builds the page from the data in it, and goes on with events from a server if the
 * data name one. All text of runs enters the page as text nodes or attributes, never as markup.
 */
export const script = String.raw`"use strict"
{
const data = JSON.parse(document.getElementById("data").textContent)
const app = document.getElementById("app")

// Elements

const el = (name, attributes, ...children) => {
  const one = document.createElement(name)
  for (const [key, value] of Object.entries(attributes || {})) if (value !== undefined) one.setAttribute(key, value)
  one.append(...children)
  return one
}
const svg = (name, attributes, text) => {
  const one = document.createElementNS("http://www.w3.org/2000/svg", name)
  for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value)
  if (text !== undefined) one.textContent = text
  return one
}

// Numbers

const isNumber = (value) => typeof value === "number" && Number.isFinite(value)
const short = (value) => {
  if (!isNumber(value)) return "–"
  const size = Math.abs(value)
  if (size !== 0 && (size >= 1e6 || size < 1e-3)) return value.toExponential(2).replace("e+", "e").replace(/\.?0+e/, "e")
  return String(size >= 1000 ? Math.round(value) : Number(value.toPrecision(4)))
}
const integer = (value) => Math.round(value).toLocaleString("en-US")
const dollars = (usd) => !isNumber(usd) ? "–" : "$" + (usd >= 100 ? usd.toFixed(0) : usd >= 1 ? usd.toFixed(2) : usd.toFixed(4))
const duration = (millis) => {
  const seconds = Math.max(0, Math.round(millis / 1000))
  const [d, h, m] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60]
  return d > 0 ? d + " d " + h + " h" : h > 0 ? h + " h " + m + " min" : m > 0 ? m + " min " + (seconds % 60) + " s" : seconds + " s"
}
const time = (at) => new Date(at).toISOString().replace("T", " ").slice(0, 19) + " UTC"
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length
const quantile = (sorted, q) => sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))]
const tokensOf = (metrics) => metrics.num_tokens ?? (metrics.total_ob_tokens || 0) + (metrics.total_ac_tokens || 0)

// The model of a run, from its events alone. Applying an event twice changes nothing.

const newRun = ({ name, configuration }) => ({
  name, configuration, steps: new Map(), total: undefined, evaluations: new Map(), samples: new Map(),
  checkpoints: new Map(), warnings: new Map(), done: undefined, first: undefined, last: undefined, newest: -1,
})

const apply = (run, event) => {
  if (isNumber(event.at)) {
    run.first = Math.min(run.first ?? event.at, event.at)
    run.last = Math.max(run.last ?? event.at, event.at)
  }
  switch (event._tag) {
    case "Step":
      // A run that went back to a checkpoint repeats steps; what it had after them is void.
      if (event.step < run.newest) for (const step of [...run.steps.keys()]) if (step > event.step) run.steps.delete(step)
      run.newest = event.step
      run.steps.set(event.step, event)
      if (event.steps !== undefined) run.total = event.steps
      run.done = undefined
      break
    case "Evaluation": run.evaluations.set(event.name + "\n" + event.step, event); break
    case "Sample":
      run.samples.set(JSON.stringify([event.source, event.step, event.group, event.prompt, event.tokens.map((token) => token.text)]), event)
      break
    case "Checkpoint": run.checkpoints.set(event.name + "\n" + event.step, event); break
    case "Warning": run.warnings.set(JSON.stringify([event.step, event.reason, event.message]), event); break
    case "Done": run.done = event; break
  }
}

const runs = data.runs.map((one) => {
  const run = newRun(one)
  for (const event of one.events) apply(run, event)
  return run
})
const [main, other] = runs
const stepsOf = (run) => [...run.steps.values()].sort((a, b) => a.step - b.step)

// Charts

const W = 360, H = 150, left = 46, right = 8, top = 8, bottom = 20

/** At most 400 points: the lowest and the highest of each bucket, so that no spike is lost. */
const thinned = (points) => {
  if (points.length <= 400) return points
  const size = Math.ceil(points.length / 200)
  const kept = []
  for (let i = 0; i < points.length; i += size) {
    const bucket = points.slice(i, i + size)
    const low = bucket.reduce((a, b) => (b[1] < a[1] ? b : a))
    const high = bucket.reduce((a, b) => (b[1] > a[1] ? b : a))
    kept.push(...(low[0] < high[0] ? [low, high] : low === high ? [low] : [high, low]))
  }
  return kept
}
/** The mean over a window around each point. */
const smoothed = (points) => {
  const sums = [0]
  for (const [, y] of points) sums.push(sums.at(-1) + y)
  const widest = Math.max(2, Math.round(points.length / 30))
  return points.map(([x], i) => {
    const [from, to] = [Math.max(0, i - widest), Math.min(points.length, i + widest + 1)]
    return [x, (sums[to] - sums[from]) / (to - from)]
  })
}
/** Whether a curve jumps so much that its course is hard to see. */
const isNoisy = (points, range) =>
  points.length > 40 && points.slice(1).reduce((sum, [, y], i) => sum + Math.abs(y - points[i][1]), 0) / points.length > 0.02 * range
const ticks = (low, high) => {
  const raw = (high - low) / 4
  const unit = 10 ** Math.floor(Math.log10(raw))
  const step = [1, 2, 2.5, 5, 10].map((n) => n * unit).find((n) => n >= raw) ?? raw
  const all = []
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) all.push(Math.abs(value) < step * 1e-9 ? 0 : value)
  return all
}

/** Draws series of points [x, y, low?, high?] into a figure. */
const chart = (title, series, options = {}) => {
  const shown = series.filter(({ points }) => points.length > 0)
  const all = shown.flatMap(({ points }) => points)
  const figure = el("figure", { class: "chart" })
  const value = el("span", { class: "value" })
  figure.append(el("figcaption", {}, el("span", { class: "name", title }, title), value))
  const xs = all.map((point) => point[0])
  const ys = all.flatMap(([, y, low, high]) => [y, low, high].filter(isNumber))
  let [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), ys.reduce((a, b) => Math.min(a, b), Infinity), ys.reduce((a, b) => Math.max(a, b), -Infinity)]
  if (x0 === x1) { x0 -= 1; x1 += 1 }
  // Values that differ by rounding only are drawn as constant.
  const pad = y1 - y0 <= 1e-5 * Math.max(Math.abs(y0), Math.abs(y1)) ? Math.abs(y0) * 0.1 || 1 : (y1 - y0) * 0.06
  y0 -= pad
  y1 += pad
  const px = (x) => left + ((x - x0) / (x1 - x0)) * (W - left - right)
  const py = (y) => top + (1 - (y - y0) / (y1 - y0)) * (H - top - bottom)
  const root = svg("svg", { viewBox: "0 0 " + W + " " + H, role: "img", "aria-label": title })
  for (const y of ticks(y0, y1)) {
    root.append(svg("line", { x1: left, x2: W - right, y1: py(y), y2: py(y), class: "grid" }))
    root.append(svg("text", { x: left - 6, y: py(y) + 3.5, class: "tick end" }, short(y)))
  }
  const xTicks = ticks(x0, x1).filter((x) => Number.isInteger(x) && px(x) >= left && px(x) <= W - right)
  for (const x of xTicks) root.append(svg("text", { x: px(x), y: H - 6, class: "tick " + (px(x) > W - 24 ? "end" : "middle") }, short(x)))
  const pathOf = (points) => points.map(([x, y], i) => (i === 0 ? "M" : "L") + px(x).toFixed(1) + " " + py(y).toFixed(1)).join("")
  for (const { points, index } of shown) {
    const color = "run" + index
    const noisy = !options.marks && isNoisy(points, y1 - y0)
    if (options.marks)
      for (const [x, y, low, high] of points) {
        if (isNumber(low) && isNumber(high)) root.append(svg("line", { x1: px(x), x2: px(x), y1: py(low), y2: py(high), class: "error " + color }))
        root.append(svg("circle", { cx: px(x), cy: py(y), r: 3, class: "dot " + color }))
      }
    root.append(svg("path", { d: pathOf(thinned(points)), class: "curve " + color + (noisy ? " faint" : "") }))
    if (noisy) root.append(svg("path", { d: pathOf(thinned(smoothed(points))), class: "curve " + color }))
    if (points.length === 1) root.append(svg("circle", { cx: px(points[0][0]), cy: py(points[0][1]), r: 3, class: "dot " + color }))
  }
  const cursor = svg("line", { y1: top, y2: H - bottom, class: "cursor", visibility: "hidden" })
  root.append(cursor)
  const lastValues = () => {
    value.replaceChildren(...shown.map(({ points, index }) => el("b", { class: "text" + index }, short(points.at(-1)[1]))))
  }
  const at = (clientX) => {
    const box = root.getBoundingClientRect()
    const x = x0 + (((clientX - box.left) / box.width) * W - left) / (W - left - right) * (x1 - x0)
    const nearest = (points) => points.reduce((a, b) => (Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a))
    const point = nearest(shown[0].points)
    cursor.setAttribute("x1", px(point[0]))
    cursor.setAttribute("x2", px(point[0]))
    cursor.setAttribute("visibility", "visible")
    value.replaceChildren("step " + point[0] + "  ", ...shown.map(({ points, index }) => el("b", { class: "text" + index }, short(nearest(points)[1]))))
  }
  root.addEventListener("pointermove", (event) => at(event.clientX))
  root.addEventListener("pointerleave", () => { cursor.setAttribute("visibility", "hidden"); lastValues() })
  lastValues()
  figure.append(root)
  return figure
}

/** All series of metrics by name. Numbers that can't be drawn are left out. */
const seriesOf = (rows) => {
  const series = new Map()
  for (const { step, metrics } of rows)
    for (const [name, value] of Object.entries(metrics)) {
      if (!isNumber(value)) continue
      if (!series.has(name)) series.set(name, [])
      series.get(name).push([step, value])
    }
  return series
}
const groupOf = (name) => (name.includes("/") ? name.slice(0, name.indexOf("/")) : "training")
/** The sections that people look at first come first. */
const rank = (name) => {
  const order = ["reward/total", "env/all/reward/total", "train_mean_nll", "dpo_loss", "loss", "reward", "nll", "accuracy", "margin", "kl", "learning_rate", "lr"]
  const found = order.findIndex((word) => name.includes(word))
  return found < 0 ? order.length : found
}
const byRank = (a, b) => rank(a) - rank(b) || a.length - b.length || (a < b ? -1 : 1)

// Sections

const sections = {}
const section = (id, title, controls) => {
  const body = el("div", { class: "body" })
  const head = el("div", { class: "head" }, el("h2", {}, title), ...(controls || []))
  const whole = el("section", { id }, head, body)
  sections[id] = { whole, body }
  app.append(whole)
  return body
}
const show = (id, ...children) => {
  sections[id].whole.hidden = children.length === 0
  sections[id].body.replaceChildren(...children)
}
const table = (head, rows, kind) =>
  el("div", { class: "scroll" }, el("table", { class: kind },
    el("thead", {}, el("tr", {}, ...head.map((cell) => el("th", {}, cell)))),
    el("tbody", {}, ...rows.map((row) => el("tr", { class: row.class }, ...row.cells.map((cell) =>
      el("td", { class: /^[-–$]?[\d.,e-]*( \([^)]*\))?%?$/.test(String(cell)) ? "number" : undefined }, cell instanceof Node ? cell : String(cell))))))))
const select = (label, choices) => {
  const one = el("select", { "aria-label": label }, ...choices.map(([value, text]) => el("option", { value }, text)))
  one.addEventListener("change", () => { samplesDirty = true; render() })
  return one
}

let samplesDirty = true
let limit = 24
const whose = select("Run", runs.map(({ name }, index) => [String(index), name]))
whose.hidden = other === undefined
const order = select("Order", [["best", "best first"], ["worst", "worst first"], ["newest", "newest first"]])
const coloring = select("Color", [["advantage", "color: advantage"], ["logprob", "color: log probability"], ["none", "no color"]])

document.title = data.title
const status = el("p", { class: "status", role: "status" })
const tiles = el("div", { class: "tiles" })
app.append(el("header", {}, el("h1", {}, data.title), status, tiles))
if (other !== undefined)
  app.append(el("p", { class: "legend" }, ...runs.map(({ name }, index) => el("span", {}, el("i", { class: "swatch bg" + index }), name))))
section("warnings", "Warnings")
section("curves", "Curves")
section("evaluations", "Evaluations")
section("compared", "Before and after")
section("rollouts", "Rollouts", [order, coloring])
// Answers of both runs side by side would be hard to tell apart: one control shows those of either.
sections.compared.whole.querySelector(".head").append(whose)
section("timings", "Timings")
section("cost", "Cost")
section("checkpoints", "Checkpoints")
section("configuration", "Configuration")

let connection = data.live === undefined ? undefined : "connecting"

const countOf = (run) => run.done?.step ?? (run.steps.size === 0 ? 0 : stepsOf(run).at(-1).step + 1)

const renderHead = () => {
  const state = main.done !== undefined
    ? main.done.outcome + (main.done.message === undefined ? "" : ": " + main.done.message)
    : connection === "live" ? "running"
    : connection === "lost" ? "connection lost, trying again"
    : connection === "connecting" ? "connecting"
    : "no end recorded: the run is still going, or was cut off"
  status.className = "status " + (main.done?.outcome ?? (connection === "live" ? "running" : "open"))
  status.replaceChildren(el("i", { class: "lamp" }), state, el("span", { class: "quiet" }, main.last === undefined ? "no events yet" : "last event " + time(main.last)))
  const summaries = runs.map(summaryOf)
  const names = [...new Set(summaries.flatMap((one) => [...one.keys()]))]
  tiles.replaceChildren(...names.map((name) => el("div", { class: "tile" }, el("span", {}, name), ...summaries.map((one, index) =>
    el("b", other === undefined ? {} : { class: "text" + index, title: runs[index].name }, one.get(name) ?? "–")))))
}

/** The totals of a run, by name. */
const summaryOf = (run) => {
  const steps = stepsOf(run)
  const last = steps.at(-1)
  const count = countOf(run)
  // Not every step has every metric: with several updates in an iteration, only the first one has the reward.
  const series = seriesOf(steps)
  const headline = [...series.keys()].sort(byRank).find((name) => rank(name) < 7)
  const tokens = steps.reduce((sum, { metrics }) => sum + (tokensOf(metrics) || 0), 0)
  const elapsed = steps.length > 1 ? last.at - steps[0].at : 0
  const remaining = run.total !== undefined && run.done === undefined && elapsed > 0 ? (run.total - count) * (elapsed / (steps.length - 1)) : undefined
  const cost = last?.metrics["cost/usd"]
  return new Map([
    ["step", run.total === undefined ? integer(count) : integer(count) + " / " + integer(run.total)],
    ...(headline === undefined ? [] : [[headline, short(series.get(headline).at(-1)[1])]]),
    ...(tokens > 0 ? [["tokens", integer(tokens)]] : []),
    ...(tokens > 0 && elapsed > 0 ? [["tokens/s", integer((tokens / elapsed) * 1000)]] : []),
    ...(run.first === undefined ? [] : [["time", duration(run.last - run.first)]]),
    ...(remaining === undefined ? [] : [["remaining", duration(remaining)]]),
    ...(isNumber(cost) ? [["cost", dollars(cost)]] : []),
  ])
}

const opened = new Map()
const renderCurves = () => {
  const series = runs.map((run) => seriesOf(stepsOf(run)))
  const names = [...new Set(series.flatMap((one) => [...one.keys()]))].sort(byRank)
  const groups = new Map()
  const sizes = new Map()
  for (const name of names) sizes.set(groupOf(name), (sizes.get(groupOf(name)) || 0) + 1)
  for (const name of names) {
    // A group of one would only take room.
    const group = sizes.get(groupOf(name)) === 1 && groupOf(name) !== "cost" ? "training" : groupOf(name)
    if (group === "cost") continue
    groups.set(group, [...(groups.get(group) || []), name])
  }
  const first = (group) => Math.min(...groups.get(group).map(rank)) + (group === "time" ? 100 : 0)
  const sorted = [...groups.keys()].sort((a, b) => first(a) - first(b) || (a < b ? -1 : 1))
  show("curves", ...sorted.map((group, i) => {
    const details = el("details", (opened.get(group) ?? i < 4) ? { open: "" } : {}, el("summary", {}, group, el("span", { class: "quiet" }, groups.get(group).length + (groups.get(group).length === 1 ? " metric" : " metrics"))))
    details.addEventListener("toggle", () => opened.set(group, details.open))
    details.append(el("div", { class: "grid" }, ...groups.get(group).map((name) => chart(name, series.map((one, index) => ({ index, points: one.get(name) || [] }))))))
    return details
  }))
}

const bounds = [[":low", ":high"], ["_low", "_high"], ["/low", "/high"], ["/ci_low", "/ci_high"], ["_ci_low", "_ci_high"]]
const intervalOf = (metrics, name) => {
  for (const [low, high] of bounds) if (isNumber(metrics[name + low]) && isNumber(metrics[name + high])) return [metrics[name + low], metrics[name + high]]
  return undefined
}
const isBound = (metrics, name) => bounds.some(([low, high]) => [low, high].some((end) => name.endsWith(end) && metrics[name.slice(0, -end.length)] !== undefined))
const withInterval = (metrics, name) => {
  const interval = intervalOf(metrics, name)
  return short(metrics[name]) + (interval === undefined ? "" : " (" + short(interval[0]) + " to " + short(interval[1]) + ")")
}
const renderEvaluations = () => {
  const all = runs.map((run) => [...run.evaluations.values()].sort((a, b) => a.step - b.step))
  const names = [...new Set(all.flat().map(({ name }) => name))]
  show("evaluations", ...names.flatMap((name) => {
    const own = all.map((evaluations) => evaluations.filter((one) => one.name === name))
    const metrics = [...new Set(own.flat().flatMap((one) => Object.keys(one.metrics).filter((metric) => !isBound(one.metrics, metric))))]
    const rows = own.flatMap((evaluations, index) => evaluations.map((one) => ({
      cells: [...(other === undefined ? [] : [runs[index].name]), one.step, ...metrics.map((metric) => withInterval(one.metrics, metric))],
    })))
    return [
      el("h3", {}, name),
      el("div", { class: "grid" }, ...metrics.map((metric) => chart(metric, own.map((evaluations, index) => ({
        index,
        points: evaluations.filter((one) => isNumber(one.metrics[metric])).map((one) => [one.step, one.metrics[metric], ...(intervalOf(one.metrics, metric) || [])]),
      })), { marks: true }))),
      table([...(other === undefined ? [] : ["run"]), "step", ...metrics], rows),
    ]
  }))
}

// Samples

const tokenElements = (tokens, mode, most) => {
  const values = tokens.map((token) => token[mode])
  return tokens.map((token, i) => {
    const value = values[i]
    const title = [isNumber(token.advantage) ? "advantage " + short(token.advantage) : "", isNumber(token.logprob) ? "log probability " + short(token.logprob) + " (" + (100 * Math.exp(token.logprob)).toFixed(1) + " %)" : ""].filter((text) => text !== "").join("\n")
    const one = el("span", { class: "token", title: title === "" ? undefined : title }, token.text)
    if (isNumber(value)) {
      // A token that was certain is plain; the less likely one was, the stronger its color.
      const strength = mode === "advantage" ? Math.abs(value) / most : Math.min(1, -value / 5)
      one.style.setProperty("--strength", (strength * 100).toFixed(0) + "%")
      one.classList.add(mode === "logprob" ? "unlikely" : value < 0 ? "bad" : "good")
    }
    return one
  })
}
const sampleElement = (sample, mode, most, label) => el("article", { class: "sample" },
  el("div", { class: "meta" },
    ...(label === undefined ? [] : [el("b", {}, label)]),
    ...(isNumber(sample.reward) ? [el("b", { class: "reward" }, "reward " + short(sample.reward))] : []),
    el("span", {}, "step " + sample.step),
    ...(sample.group === undefined ? [] : [el("span", {}, "group " + sample.group)]),
    el("span", {}, sample.tokens.length + " tokens"),
    el("span", {}, sample.source)),
  el("div", { class: "prompt" }, sample.prompt),
  el("div", { class: "answer" }, ...tokenElements(sample.tokens, mode, most)))

const renderSamples = () => {
  if (!samplesDirty) return
  samplesDirty = false
  const all = [...runs[Number(whose.value)].samples.values()]
  const mode = coloring.value
  const rewarded = all.filter(({ reward }) => isNumber(reward))
  const sorted = { best: (a, b) => b.reward - a.reward, worst: (a, b) => a.reward - b.reward, newest: (a, b) => b.step - a.step || b.at - a.at }[order.value]
  rewarded.sort(sorted)
  const most = rewarded.reduce((most, { tokens }) => tokens.reduce((most, { advantage }) => (isNumber(advantage) ? Math.max(most, Math.abs(advantage)) : most), most), 1e-9)
  const more = el("button", { type: "button" }, "show more (" + (rewarded.length - limit) + ")")
  more.addEventListener("click", () => { limit += 24; samplesDirty = true; render() })
  show("rollouts", ...(rewarded.length === 0 ? [] : [el("div", { class: "samples" }, ...rewarded.slice(0, limit).map((sample) => sampleElement(sample, mode, most)))]), ...(rewarded.length > limit ? [more] : []))
  const prompts = new Map()
  for (const sample of all) {
    const key = JSON.stringify([sample.source, sample.prompt])
    prompts.set(key, [...(prompts.get(key) || []), sample])
  }
  const pairs = [...prompts.values()].map((samples) => samples.sort((a, b) => a.step - b.step)).filter((samples) => samples[0].step < samples.at(-1).step)
  show("compared", ...pairs.slice(0, 20).map((samples) => el("div", { class: "pair" }, sampleElement(samples[0], "none", 1, "before"), sampleElement(samples.at(-1), "none", 1, "after"))))
}

/** A table of rows of each run; the name of the run comes first if there are two. */
const tableOfRuns = (head, rowsOf, kind) => {
  const rows = runs.flatMap((run) => rowsOf(run).map((cells) => ({ cells: [...(other === undefined ? [] : [run.name]), ...cells] })))
  return rows.length === 0 ? [] : [table([...(other === undefined ? [] : ["run"]), ...head], rows, kind)]
}

const timingsOf = (run) => {
  const steps = stepsOf(run)
  const gaps = steps.slice(1).map((step, i) => (step.at - steps[i].at) / 1000)
  const timed = [["between steps", gaps], ...[...seriesOf(steps)].filter(([name]) => name.startsWith("time/")).map(([name, points]) => [name, points.map((point) => point[1])])]
  return timed.filter(([, values]) => values.length > 0).map(([name, values]) => {
    const sorted = [...values].sort((a, b) => a - b)
    return [name, short(mean(values)), short(quantile(sorted, 0.5)), short(quantile(sorted, 0.95)), short(sorted.at(-1)), short(values.reduce((a, b) => a + b, 0))]
  })
}

const spendingOf = (run) => {
  const usd = seriesOf(stepsOf(run)).get("cost/usd")
  if (usd === undefined || usd.length < 2) return []
  const perStep = (usd.at(-1)[1] - usd[0][1]) / (usd.at(-1)[0] - usd[0][0])
  const end = run.total === undefined || run.done !== undefined ? "" : ", about " + dollars(usd.at(-1)[1] + perStep * (run.total - 1 - usd.at(-1)[0])) + " in the end"
  return [el("p", {}, (other === undefined ? "" : run.name + ": ") + dollars(usd.at(-1)[1]) + " so far, " + dollars(perStep) + " per step" + end)]
}

const warningsOf = (run) => {
  const warnings = new Map()
  for (const one of run.warnings.values()) warnings.set(one.reason, [...(warnings.get(one.reason) || []), one])
  return [...warnings].map(([reason, all]) => [reason, all.length, all.at(-1).step, all.at(-1).message])
}

const renderTables = () => {
  show("timings", ...tableOfRuns(["seconds", "mean", "median", "95 %", "most", "sum"], timingsOf))
  const costs = runs.map((run) => seriesOf(stepsOf(run)))
  const costNames = [...new Set(costs.flatMap((one) => [...one.keys()]))].filter((name) => name.startsWith("cost/"))
  show("cost", ...(costNames.length === 0 ? [] : [
    ...runs.flatMap(spendingOf),
    el("div", { class: "grid" }, ...costNames.map((name) => chart(name, costs.map((one, index) => ({ index, points: one.get(name) || [] }))))),
  ]))
  show("checkpoints", ...tableOfRuns(["step", "name", "kind", "training state", "sampler weights", "saved"], (run) =>
    [...run.checkpoints.values()].map((one) => [one.step, one.name, one.kind, one.statePath ?? "–", one.samplerPath ?? "–", time(one.at)]), "paths"))
  show("warnings", ...tableOfRuns(["warning", "times", "last step", "message"], warningsOf, "messages"))
}

const flattened = (value, path, into) => {
  if (value !== null && typeof value === "object" && Object.keys(value).length > 0)
    for (const [key, inner] of Object.entries(value)) flattened(inner, path === "" ? key : path + "." + key, into)
  else into.set(path, JSON.stringify(value))
  return into
}
const renderConfiguration = () => {
  const all = runs.map(({ configuration }) => (configuration === undefined ? new Map() : flattened(configuration, "", new Map())))
  const names = [...new Set(all.flatMap((one) => [...one.keys()]))]
  show("configuration", ...(names.length === 0 ? [] : [table(["setting", ...(other === undefined ? ["value"] : runs.map(({ name }) => name))], names.map((name) => ({
    class: new Set(all.map((one) => one.get(name))).size > 1 ? "different" : undefined,
    cells: [name === "" ? "value" : name, ...all.map((one) => one.get(name) ?? "–")],
  })), "settings")]))
}

const render = () => {
  renderHead()
  renderCurves()
  renderEvaluations()
  renderSamples()
  renderTables()
}
renderConfiguration()
render()
document.documentElement.dataset.ready = "true"

// Live

if (data.live !== undefined && main.done === undefined) {
  let waiting = false
  const later = () => {
    if (waiting) return
    waiting = true
    setTimeout(() => { waiting = false; render() }, 250)
  }
  const source = new EventSource(data.live)
  source.addEventListener("open", () => { connection = "live"; later() })
  source.addEventListener("error", () => { connection = "lost"; later() })
  source.addEventListener("message", ({ data }) => {
    const event = JSON.parse(data)
    apply(main, event)
    if (event._tag === "Sample") samplesDirty = true
    if (event._tag === "Done") source.close()
    later()
  })
}
}
`

export const style = `
:root { color-scheme: light dark; --bg: #f7f7f5; --card: #fff; --ink: #1c1e21; --quiet: #6a7078; --line: #e2e3e0; --run0: #2563c9; --run1: #c2610c; --good: #15803d; --bad: #c02626; --warm: #b45309; }
@media (prefers-color-scheme: dark) { :root { --bg: #131517; --card: #1c1f22; --ink: #e6e7e9; --quiet: #949ba4; --line: #2e3338; --run0: #6ea8ff; --run1: #ff9f5a; --good: #4ade80; --bad: #ff7b7b; --warm: #fbbf24; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--bg); color: var(--ink); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
#app { max-width: 1240px; margin: 0 auto; padding: 20px 16px 64px; }
h1 { font-size: 22px; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 0; }
h3 { font-size: 14px; margin: 14px 0 6px; }
p { margin: 4px 0 10px; }
.quiet, .status .quiet { color: var(--quiet); font-weight: 400; font-size: 13px; }
.status { display: flex; flex-wrap: wrap; gap: 4px 10px; align-items: center; font-weight: 600; }
.lamp { width: 10px; height: 10px; border-radius: 50%; background: var(--quiet); }
.complete .lamp, .running .lamp { background: var(--good); }
.stopped .lamp { background: var(--warm); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(118px, 1fr)); gap: 8px; margin-top: 12px; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 8px 12px; min-width: 0; }
.tile span { display: block; color: var(--quiet); font-size: 12px; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.tile b { display: block; font-size: 17px; font-variant-numeric: tabular-nums; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; margin-top: 12px; }
.legend span { overflow-wrap: anywhere; }
.swatch { display: inline-block; width: 18px; height: 4px; border-radius: 2px; margin-right: 6px; vertical-align: middle; }
.bg0 { background: var(--run0); } .bg1 { background: var(--run1); }
section { margin-top: 26px; }
.head { display: flex; flex-wrap: wrap; gap: 8px; align-items: center; margin-bottom: 8px; }
.head h2 { margin-right: auto; }
select, button { max-width: 100%; font: inherit; font-size: 13px; color: inherit; background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: 5px 8px; }
button { margin-top: 10px; cursor: pointer; }
details { margin-bottom: 8px; }
summary { cursor: pointer; font-weight: 600; padding: 4px 0; }
summary .quiet { margin-left: 8px; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(300px, 100%), 1fr)); gap: 10px; }
.chart { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 8px 8px 2px; min-width: 0; }
.chart figcaption { display: flex; gap: 8px; font-size: 13px; }
.chart .name { flex: 1; min-width: 0; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.chart .value { white-space: pre; color: var(--quiet); font-variant-numeric: tabular-nums; }
.chart .value b + b { margin-left: 8px; }
.chart svg { display: block; width: 100%; height: auto; touch-action: pan-y; }
line.grid { stroke: var(--line); } .cursor { stroke: var(--quiet); stroke-dasharray: 2 3; }
.tick { fill: var(--quiet); font-size: 10px; } .middle { text-anchor: middle; } .end { text-anchor: end; }
.curve { fill: none; stroke-width: 1.7; stroke-linejoin: round; } .faint { opacity: .3; stroke-width: 1; } .error { stroke-width: 1.5; opacity: .6; }
.run0 { stroke: var(--run0); } .run1 { stroke: var(--run1); } .dot.run0 { fill: var(--run0); } .dot.run1 { fill: var(--run1); }
.text0 { color: var(--run0); } .text1 { color: var(--run1); }
.scroll { overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: 8px; margin-top: 8px; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th, td { text-align: left; padding: 5px 10px; border-top: 1px solid var(--line); vertical-align: top; overflow-wrap: break-word; }
thead th { border-top: 0; color: var(--quiet); font-weight: 600; white-space: nowrap; }
.number { font-variant-numeric: tabular-nums; white-space: nowrap; }
.paths td { white-space: nowrap; } .messages td:last-child { min-width: 220px; }
@media (max-width: 600px) { .settings { table-layout: fixed; } .settings td { overflow-wrap: anywhere; } }
.different td { background: color-mix(in srgb, var(--warm) 16%, transparent); }
.samples { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(420px, 100%), 1fr)); gap: 10px; align-items: start; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(320px, 100%), 1fr)); gap: 10px; margin-bottom: 10px; }
.sample { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 8px 12px; min-width: 0; }
.meta { display: flex; flex-wrap: wrap; gap: 2px 12px; color: var(--quiet); font-size: 12px; }
.meta b { color: var(--ink); }
td { max-width: 640px; } td:last-child { min-width: 90px; }
.prompt, .answer { white-space: pre-wrap; overflow-wrap: anywhere; font: 13px/1.55 ui-monospace, "SF Mono", Menlo, Consolas, monospace; max-height: 260px; overflow-y: auto; }
.prompt { color: var(--quiet); border-bottom: 1px dashed var(--line); margin: 4px 0; padding-bottom: 4px; }
.token { border-radius: 3px; }
.good { background: color-mix(in srgb, var(--good) calc(var(--strength) * .45), transparent); }
.bad { background: color-mix(in srgb, var(--bad) calc(var(--strength) * .45), transparent); }
.unlikely { background: color-mix(in srgb, var(--warm) calc(var(--strength) * .6), transparent); }
[hidden] { display: none; }
@media print { .body { break-inside: auto; } select, button { display: none; } }
`
