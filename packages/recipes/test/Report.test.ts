import { HttpApp } from "@effect/platform"
import { describe, expect, it } from "@effect/vitest"
import { Effect, Option } from "effect"
import { Report, type RunEvent, RunStore } from "@effect-tinker/recipes"
import * as Events from "./support/Events.ts"

interface Data {
  readonly title: string
  readonly live?: string
  readonly runs: ReadonlyArray<{ readonly name: string; readonly events: ReadonlyArray<RunEvent.RunEvent> }>
}

/** The input of the page's program. */
const dataOf = (html: string): Data =>
  JSON.parse(/<script type="application\/json" id="data">([^<]*)<\/script>/.exec(html)?.[1] ?? "")

const evil = `</script><script>alert(1)</script><!--<script>\u2028"'&`

describe("Report", () => {
  it("Report.html contains the events and refers to nothing outside", () => {
    const html = Report.html({ name: "run", events: Events.one, configuration: { model: "m", lora: { rank: 8 } } })
    expect(dataOf(html).runs[0]?.events).toEqual(Events.one)
    expect(html.match(/(src|href)="(?!data:)[^"]*"|@import|url\(/g)).toBeNull()
    expect(html.replace("http://www.w3.org/2000/svg", "")).not.toMatch(/https?:/)
  })

  it("text of a run can't become markup", () => {
    const sample: RunEvent.RunEvent = { ...Events.one[5], prompt: evil } as RunEvent.RunEvent
    const html = Report.html({ name: evil, events: [sample], configuration: { [evil]: evil } })
    expect(html.match(/<script/g)?.length).toBe(2)
    expect(html.match(/<\/script>/g)?.length).toBe(2)
    expect(html).not.toContain("<!--")
    expect(dataOf(html).title).toBe(evil)
    // Only the script with this hash runs.
    expect(html).toContain("script-src &#39;sha256-")
  })

  it("a page has a limited number of samples: best, worst, newest, and those that show a change", () => {
    const samples = Array.from({ length: 1000 }, (_, i): RunEvent.RunEvent => ({
      _tag: "Sample",
      step: i,
      source: "rollout",
      prompt: i === 0 || i === 500 ? "again" : `prompt ${i}`,
      tokens: [{ text: String(i) }],
      reward: (i * 7919) % 1000,
      at: i,
    }))
    const [run] = dataOf(Report.html({ name: "run", events: [...samples, ...Events.one] }, { maxSamples: 40 })).runs
    const kept = run?.events.filter((event) => event._tag === "Sample") ?? []
    expect(kept.length).toBe(40)
    expect(kept.filter(({ prompt }) => prompt === "again").length).toBe(2)
    const rewards = new Set(kept.map(({ reward }) => reward))
    expect([rewards.has(999), rewards.has(0)]).toEqual([true, true])
    expect(run?.events.filter((event) => event._tag !== "Sample").length).toBe(6)
  })

  it.effect("a report is made from the stored events alone, whatever a crash left", () =>
    Effect.gen(function* () {
      const store = yield* RunStore.memory("stored")
      expect(yield* Report.fromStore(store)).toEqual({ name: "stored", events: [], configuration: undefined })
      yield* store.append("events.jsonl", [
        JSON.stringify(Events.step(0, { train_mean_nll: Number.NaN, other: 1 })),
        '{"_tag":"Step","st',
        '{"_tag":"Unknown"}',
        JSON.stringify(Events.done),
      ])
      yield* store.write("config.json", '{"model":"m"}')
      const { configuration, events } = yield* Report.fromStore(store)
      expect(configuration).toEqual({ model: "m" })
      expect(events.map(({ _tag }) => _tag)).toEqual(["Step", "Done", "Warning"])
      expect(events[0]).toMatchObject({ metrics: { other: 1 } })
      expect(events[2]).toMatchObject({ reason: "events_unreadable", step: 3 })
      const html = yield* Report.write(store)
      expect(yield* store.read("report.html")).toEqual(Option.some(html))
    }),
  )
})

describe("Report.live", () => {
  const ask = (handler: (request: Request) => Promise<Response>, path: string, headers: Record<string, string> = {}) =>
    Effect.promise(() => handler(new Request(`http://page${path}`, { headers })))

  /** Reads this many events of a response. */
  const read = (response: Response, count: number) =>
    Effect.promise(async () => {
      let text = ""
      if (response.body === null) return []
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader()
      while (text.split("data: ").length <= count) text += (await reader.read()).value ?? ""
      await reader.cancel()
      return [...text.matchAll(/id: (\d+)\ndata: (.*)\n\n/g)].map(([, id, data]) => [
        Number(id),
        JSON.parse(data ?? "")._tag,
      ])
    })

  it.live("a page gets what happened before in the page, and the rest as events", () =>
    Effect.gen(function* () {
      const { app, logger } = yield* Report.live({ name: "live", events: [Events.step(0)] })
      const handler = HttpApp.toWebHandler(app)
      yield* logger.log(Events.step(1))
      const first = yield* ask(handler, "/")
      expect(first.headers.get("content-type")).toContain("text/html")
      const { live, runs } = dataOf(yield* Effect.promise(() => first.text()))
      expect(runs[0]?.events.length).toBe(2)
      expect(live).toBe("events?after=2")
      yield* logger.log(Events.warning)
      const events = yield* ask(handler, `/${live}`)
      expect(events.headers.get("content-type")).toContain("text/event-stream")
      yield* logger.log(Events.done)
      expect(yield* read(events, 2)).toEqual([
        [3, "Warning"],
        [4, "Done"],
      ])
      // A browser that reconnects repeats the address and says what it saw last.
      const again = yield* ask(handler, `/${live}`, { "last-event-id": "3" })
      expect(yield* read(again, 1)).toEqual([[4, "Done"]])
    }),
  )

  it.live("a page that reads slowly misses nothing", () =>
    Effect.gen(function* () {
      const { app, logger } = yield* Report.live({ name: "live", events: [] })
      const response = yield* ask(HttpApp.toWebHandler(app), "/events")
      for (let i = 0; i < 2_000; i++) yield* logger.log(Events.step(i))
      const ids = (yield* read(response, 2_000)).map(([id]) => id)
      expect(ids).toEqual(Array.from({ length: 2_000 }, (_, i) => i + 1))
    }),
  )

  it.live("other methods are refused", () =>
    Effect.gen(function* () {
      const { app } = yield* Report.live({ name: "live", events: [] })
      const response = yield* Effect.promise(() =>
        HttpApp.toWebHandler(app)(new Request("http://page/", { method: "POST" })),
      )
      expect(response.status).toBe(405)
    }),
  )
})
