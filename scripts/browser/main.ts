/**
 * Tests the report page in headless Chromium: `test:browser [--screenshots DIRECTORY]`. Needs Chromium, whose path may be
 * given as CHROMIUM.
 */
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { createServer } from "node:http"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { pathToFileURL } from "node:url"
import { HttpServer } from "@effect/platform"
import { NodeHttpServer } from "@effect/platform-node"
import { Effect, Layer } from "effect"
import { Report, type RunEvent, RunStore } from "@effect-tinker/recipes"
import { type Browser, chromium, type Page } from "playwright-core"
import * as Events from "./Events.ts"

const places = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"]
const executablePath = process.env["CHROMIUM"] ?? places.find((path) => existsSync(path))
if (executablePath === undefined) {
  console.error("Chromium is missing: install the Debian package chromium, or set CHROMIUM to the path of one.")
  process.exit(1)
}

const asked = process.argv.indexOf("--screenshots")
const screenshots = asked < 0 ? undefined : process.argv[asked + 1]
if (screenshots !== undefined) mkdirSync(screenshots, { recursive: true })

let failures = 0
const check = (what: string, got: unknown, wanted: unknown) => {
  const isEqual = JSON.stringify(got) === JSON.stringify(wanted)
  console.log(isEqual ? `ok   ${what}` : `FAIL ${what}: got ${JSON.stringify(got)}, wanted ${JSON.stringify(wanted)}`)
  if (!isEqual) failures++
}

const work = mkdtempSync(join(tmpdir(), "report-"))

interface Opened {
  readonly page: Page
  /** What must not happen: errors of the page, requests, dialogs. */
  readonly problems: ReadonlyArray<string>
}

const open = async (
  browser: Browser,
  url: string,
  { dark = false, height = 900, width = 1280 }: { dark?: boolean; height?: number; width?: number } = {},
): Promise<Opened> => {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: dark ? "dark" : "light" })
  const page = await context.newPage()
  const problems: Array<string> = []
  page.on("pageerror", (error) => problems.push(error.message))
  page.on("console", (message) => {
    if (message.type() === "error") problems.push(message.text())
  })
  page.on("dialog", (dialog) => {
    problems.push(`dialog ${dialog.message()}`)
    void dialog.dismiss()
  })
  page.on("request", (request) => {
    if (!request.url().startsWith(new URL(".", url).href) && !request.url().startsWith("data:"))
      problems.push(`request ${request.url()}`)
  })
  await page.goto(url)
  await page.waitForSelector("html[data-ready]", { timeout: 20_000 })
  return { page, problems }
}

const file = (name: string, html: string): string => {
  writeFileSync(join(work, name), html)
  return pathToFileURL(join(work, name)).href
}

const count = (page: Page, selector: string) => page.locator(selector).count()
const text = (page: Page, selector: string) => page.locator(selector).first().innerText()
/** How many pixels the page is wider than the window. */
const overflow = (page: Page) =>
  page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth)
const shoot = async (page: Page, name: string) => {
  if (screenshots !== undefined) await page.screenshot({ path: join(screenshots, `${name}.png`), fullPage: true })
}

const run: Report.Run = { name: "arithmetic", events: Events.realistic(), configuration: Events.configuration() }

const whole = async (browser: Browser) => {
  const url = file("whole.html", Report.html(run))
  for (const [width, dark] of [
    [1280, false],
    [390, false],
    [1280, true],
    [390, true],
  ] as const) {
    const where = `at ${width} px${dark ? ", dark" : ""}`
    const { page, problems } = await open(browser, url, { width, dark })
    check(`the page has no errors ${where}`, problems, [])
    check(`nothing is wider than the window ${where}`, await overflow(page), 0)
    await shoot(page, `report-${width}${dark ? "-dark" : ""}`)
    if (width === 390 || dark) continue
    check("status", (await text(page, ".status")).startsWith("complete"), true)
    check("tiles", (await text(page, ".tile")).replace("\n", " "), "step 200 / 200")
    check("curves", await count(page, "#curves figure"), 11)
    check("evaluations", await count(page, "#evaluations tbody tr"), 4)
    check("confidence intervals", await count(page, "#evaluations .error"), 4)
    check("rollouts", await count(page, "#rollouts .sample"), 24)
    check("pairs", await count(page, "#compared .pair"), 6)
    check("checkpoints", await count(page, "#checkpoints tbody tr"), 3)
    check("warnings", await text(page, "#warnings tbody td:nth-child(2)"), "3")
    check("cost", (await text(page, "#cost p")).startsWith("$3.74 so far"), true)
    check("settings", await count(page, "#configuration tbody tr"), 15)
    const first = () => text(page, "#rollouts .reward")
    check("best first", await first(), "reward 1")
    await page.getByLabel("Order").selectOption("worst")
    check("worst first", Number((await first()).split(" ")[1]) < 0.1, true)
    check("colored by advantage", (await count(page, "#rollouts .bad")) > 0, true)
    await page.getByLabel("Color").selectOption("logprob")
    check(
      "colored by log probability",
      [await count(page, "#rollouts .bad"), (await count(page, "#rollouts .unlikely")) > 0],
      [0, true],
    )
    await page
      .locator("#curves svg")
      .first()
      .hover({ position: { x: 200, y: 60 } })
    check("a curve shows its value under the pointer", (await text(page, "#curves .value")).startsWith("step "), true)
  }
}

const compared = async (browser: Browser) => {
  const baseline = { name: "lower rate", events: Events.realistic(7), configuration: Events.configuration(1e-5) }
  const url = file("compared.html", Report.html(run, { title: "two runs", compareWith: baseline }))
  for (const width of [1280, 390]) {
    const { page, problems } = await open(browser, url, { width })
    check(`two runs: no errors at ${width} px`, problems, [])
    check(`two runs: nothing is wider than the window at ${width} px`, await overflow(page), 0)
    check("two runs: both curves are drawn", (await count(page, "#curves figure:first-child path.run1")) > 0, true)
    check(
      "two runs: what differs in the configuration is marked",
      await text(page, "tr.different td"),
      "optimizer.learningRate",
    )
    const tile = page.locator(".tile").filter({ hasText: "reward/total" })
    check("two runs: a tile has a value of each", await tile.locator("b").count(), 2)
    const namesIn = async (id: string) => new Set(await page.locator(`#${id} tbody td:first-child`).allInnerTexts())
    for (const id of ["warnings", "timings", "checkpoints"])
      check(`two runs: ${id} are those of both`, [...(await namesIn(id))], ["arithmetic", "lower rate"])
    check(
      "two runs: both costs are stated",
      (await page.locator("#cost p").allInnerTexts()).map((line) => line.split(":")[0]),
      ["arithmetic", "lower rate"],
    )
    check(
      "two runs: the values of both runs are in the window",
      await page
        .locator("#configuration tr.different td:last-child")
        .first()
        .evaluate((cell) => cell.getBoundingClientRect().right <= window.innerWidth),
      true,
    )
    await shoot(page, `compared-${width}`)
    const answers = () => page.locator("#compared .answer, #rollouts .answer").allInnerTexts()
    const before = await answers()
    await page.getByLabel("Run").selectOption("lower rate")
    const after = await answers()
    check(
      "two runs: the answers of either can be shown",
      [after.length > 0, before.join() === after.join()],
      [true, false],
    )
  }
}

/** Metrics that real runs have: one that is not in every step, and one that only rounding changes. */
const uneven = async (browser: Browser) => {
  const events = Array.from({ length: 8 }, (_, step): RunEvent.RunEvent => ({
    _tag: "Step",
    step,
    metrics: { num_loss_tokens: 4 + step * 1e-7, ...(step % 2 === 0 ? { "env/all/reward/total": step } : {}) },
    at: step * 1_000,
  }))
  const { page } = await open(browser, file("uneven.html", Report.html({ name: "uneven", events })))
  const reward = page.locator(".tile").filter({ hasText: "reward/total" })
  check(
    "a metric that the last step does not have is shown with its last value",
    await reward.locator("b").innerText(),
    "6",
  )
  const constant = page.locator("#curves figure").filter({ hasText: "num_loss_tokens" })
  check("rounding is not drawn as a change", await constant.locator(".tick.end").allTextContents(), [
    "3.75",
    "4",
    "4.25",
  ])
}

const hostile = async (browser: Browser) => {
  const evil = `</script><script>window.hacked=1;alert(1)</script><img src=x onerror="window.hacked=2"><!--<script>`
  const events: ReadonlyArray<RunEvent.RunEvent> = [
    { _tag: "Step", step: 0, metrics: { [evil]: 1, [`${evil}/x`]: 2, __proto__: 3 } as Record<string, number>, at: 1 },
    { _tag: "Evaluation", step: 1, name: evil, metrics: { [evil]: 1 }, at: 1 },
    {
      _tag: "Sample",
      step: 0,
      source: evil,
      group: evil,
      prompt: evil,
      tokens: [{ text: evil, advantage: 1 }],
      reward: 1,
      at: 1,
    },
    { _tag: "Sample", step: 1, source: evil, prompt: evil, tokens: [{ text: evil }], at: 1 },
    {
      _tag: "Checkpoint",
      step: 1,
      name: evil,
      kind: "final",
      statePath: evil,
      samplerPath: `javascript:alert(1)`,
      at: 1,
    },
    { _tag: "Warning", step: 1, reason: evil, message: evil, at: 1 },
    { _tag: "Done", step: 1, outcome: "stopped", message: evil, at: 1 },
  ]
  const other = { name: `${evil}2`, events, configuration: { [evil]: evil } }
  const url = file("hostile.html", Report.html({ name: evil, events, configuration: evil }, { compareWith: other }))
  for (const width of [1280, 390]) {
    const { page, problems } = await open(browser, url, { width })
    check("hostile text: no script, request or dialog", problems, [])
    check(
      "hostile text did not run",
      await page.evaluate(() => (globalThis as { hacked?: number }).hacked ?? null),
      null,
    )
    check("hostile text is shown as it is", await text(page, "#rollouts .answer"), evil)
    check("hostile text: nothing is wider than the window", await overflow(page), 0)
    // Even markup that gets into the page does not run.
    await page.evaluate(() => {
      const script = document.createElement("script")
      script.textContent = "window.hacked = 3"
      document.body.append(script)
    })
    check(
      "a foreign script in the page does not run",
      await page.evaluate(() => (globalThis as { hacked?: number }).hacked ?? null),
      null,
    )
  }
}

/** A run that was killed: the last line is cut off, and the steps after the checkpoint were repeated. */
const crashed = async (browser: Browser) => {
  const store = await Effect.runPromise(RunStore.memory("crashed"))
  const events = Events.realistic().slice(0, 150)
  const steps = events.filter(({ _tag }) => _tag === "Step").length
  const again = events.filter((event) => event._tag === "Step" && event.step >= 100 && event.step < 110)
  const lines = [...events, ...again].map((event) => JSON.stringify(event))
  const html = await Effect.runPromise(
    store
      .append("events.jsonl", [...lines, '{"_tag":"St'])
      .pipe(
        Effect.zipRight(store.write("config.json", JSON.stringify(Events.configuration()))),
        Effect.zipRight(Report.write(store)),
      ),
  )
  const { page, problems } = await open(browser, file("crashed.html", html))
  check("crashed run: no errors", problems, [])
  check("crashed run: more steps were stored than are valid", steps > 110, true)
  check("crashed run: the step is that of the last event", await text(page, ".tile b"), "110 / 200")
  check("crashed run: no end is claimed", (await text(page, ".status")).startsWith("no end recorded"), true)
  check("crashed run: the damage is reported", (await text(page, "#warnings")).includes("1 of"), true)
}

const live = (browser: Browser) =>
  Effect.gen(function* () {
    const events = Events.realistic()
    const [before, during, after] = [events.slice(0, 60), events.slice(60, 120), events.slice(120)]
    const { app, logger } = yield* Report.live({ ...run, events: before })
    yield* HttpServer.serveEffect(app)
    const url = yield* HttpServer.addressFormattedWith((address) => Effect.succeed(`${address}/`))
    const { page, problems } = yield* Effect.promise(() => open(browser, url.replace("0.0.0.0", "127.0.0.1")))
    const stepsIn = (events: ReadonlyArray<RunEvent.RunEvent>) => events.filter(({ _tag }) => _tag === "Step").length
    const shows = (step: number) =>
      Effect.promise(() =>
        page.waitForFunction((wanted) => document.querySelector(".tile b")?.textContent === wanted, `${step} / 200`),
      )
    yield* shows(stepsIn(before))
    yield* Effect.forEach(during, logger.log)
    yield* shows(stepsIn([...before, ...during]))
    check(
      "live: the page follows the run",
      (yield* Effect.promise(() => text(page, ".status"))).startsWith("running"),
      true,
    )
    const second = yield* Effect.promise(() => open(browser, url, { width: 390 }))
    yield* Effect.forEach(after, logger.log)
    yield* shows(200)
    yield* Effect.promise(() => second.page.waitForFunction(() => document.querySelector(".status.complete") !== null))
    check(
      "live: a page that came later has all rollouts",
      yield* Effect.promise(() => count(second.page, "#rollouts .sample")),
      24,
    )
    check("live: no errors", [...problems, ...second.problems], [])
    yield* Effect.promise(() => shoot(second.page, "live-390"))
  }).pipe(
    Effect.scoped,
    Effect.provide(Layer.fresh(NodeHttpServer.layer(createServer, { host: "127.0.0.1", port: 0 }))),
    Effect.runPromise,
  )

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] })
try {
  await whole(browser)
  await compared(browser)
  await uneven(browser)
  await hostile(browser)
  await crashed(browser)
  await live(browser)
} finally {
  await browser.close()
  rmSync(work, { recursive: true })
}
console.log(failures === 0 ? "all checks passed" : `${failures} checks failed`)
process.exit(failures === 0 ? 0 : 1)
