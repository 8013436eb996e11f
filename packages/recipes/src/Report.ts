/**
 * A report of a run: one HTML file that needs nothing else, with curves, evaluations, samples, timings, cost,
 * configuration, warnings and checkpoints. It is made from the stored events alone, so it is as good after a crash.
 * Two runs can be compared. The same page updates itself during a run: {@link live}.
 *
 * @since 0.1.0
 */
import { createHash } from "node:crypto"
import type * as HttpApp from "@effect/platform/HttpApp"
import * as HttpServerRequest from "@effect/platform/HttpServerRequest"
import * as HttpServerResponse from "@effect/platform/HttpServerResponse"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as PubSub from "effect/PubSub"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import { script, style } from "./internal/ReportScript.ts"
import * as Selection from "./internal/ReportSelection.ts"
import type { RunStoreFailed } from "./RunError.ts"
import { RunEvent } from "./RunEvent.ts"
import type * as RunLogger from "./RunLogger.ts"
import type * as RunStore from "./RunStore.ts"

/**
 * The contents of a report.
 *
 * @since 0.1.0
 * @category models
 */
export interface Run {
  readonly name: string
  readonly events: ReadonlyArray<RunEvent>
  /** The configuration as JSON. */
  readonly configuration?: unknown
}

/**
 * Options of a report.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** The title of the page. Default: the name of the run. */
  readonly title?: string | undefined
  /** A second run to compare with. */
  readonly compareWith?: Run | undefined
  /** How many samples the page contains at most; the best, the worst and the newest are kept. Default: 300. */
  readonly maxSamples?: number | undefined
}

/** JSON in a script element: nothing in it can end the element or begin a comment. */
const embedded = (value: unknown): string =>
  JSON.stringify(value).replaceAll(
    /[<>&\u2028\u2029]/g,
    (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`,
  )

const escaped = (text: string): string => text.replaceAll(/[<>&"']/g, (char) => `&#${char.charCodeAt(0)};`)

const hashOf = (text: string): string => `'sha256-${createHash("sha256").update(text).digest("base64")}'`

/** Only our own program runs, whatever else got into the page, and only our own server is asked. */
const policy = `default-src 'none'; script-src ${hashOf(script)}; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'`

const page = (
  { configuration, events, name }: Run,
  { compareWith, maxSamples = 300, title = name }: Options,
  live?: string,
): string => {
  const runs = [{ configuration, events, name }, ...(compareWith === undefined ? [] : [compareWith])].map((run) => ({
    name: run.name,
    configuration: run.configuration,
    events: Selection.select(run.events, maxSamples),
  }))
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${escaped(policy)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>${escaped(title)}</title>
<link rel="icon" href="data:,">
<style>${style}</style>
</head>
<body>
<main id="app"><noscript>This report draws its curves with JavaScript, which is turned off.</noscript></main>
<script type="application/json" id="data">${embedded({ title, runs, live })}</script>
<script>${script}</script>
</body>
</html>
`
}

/**
 * Makes the report of a run as one HTML document.
 *
 * @example
 * ```ts
 * import { Report } from "@effect-tinker/recipes"
 *
 * const html = Report.html({
 *   name: "my run",
 *   configuration: { model: "Qwen/Qwen3-8B", learningRate: 1e-4 },
 *   events: [
 *     { _tag: "Step", step: 0, metrics: { train_mean_nll: 2.25 }, at: Date.now() },
 *     { _tag: "Warning", step: 0, reason: "note", message: "</script><script>alert(1)</script>", at: Date.now() },
 *   ],
 * })
 * console.log(html.includes("alert(1)</script>")) // → false
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const html = (run: Run, options: Options = {}): string => page(run, options)

/** The names of a run's files. */
const files = { events: "events.jsonl", configuration: "config.json", report: "report.html" }

const decodeEvent = Schema.decodeUnknownEither(RunEvent)

const decodeJson = Schema.decodeUnknownEither(Schema.parseJson(Schema.Unknown))

/** A metric that JSON could not represent was stored as null, and is left out. */
const withoutNulls = (event: unknown): unknown => {
  if (typeof event !== "object" || event === null || !("metrics" in event)) return event
  const { metrics } = event
  if (typeof metrics !== "object" || metrics === null) return event
  return { ...event, metrics: Object.fromEntries(Object.entries(metrics).filter(([, value]) => value !== null)) }
}

/**
 * Decodes stored events. A line that is no event is left out and reported as a warning at the end.
 *
 * @since 0.1.0
 * @category decoding
 */
export const decodeLines = (lines: ReadonlyArray<string>): ReadonlyArray<RunEvent> => {
  const decoded = lines.map((line) => Either.flatMap(decodeJson(line), (json) => decodeEvent(withoutNulls(json))))
  const events = decoded.filter(Either.isRight).map(({ right }) => right)
  const unreadable = decoded.length - events.length
  if (unreadable === 0) return events
  const last = events.at(-1)
  const message = `${unreadable} of ${lines.length} stored events can't be read and are missing here`
  return [
    ...events,
    { _tag: "Warning", step: last?.step ?? 0, reason: "events_unreadable", message, at: last?.at ?? 0 },
  ]
}

/**
 * Reads what a report needs from the files of a run: `events.jsonl`, one event in each line, and `config.json`.
 *
 * @since 0.1.0
 * @category constructors
 */
export const fromStore = (store: RunStore.Service): Effect.Effect<Run, RunStoreFailed> =>
  Effect.gen(function* () {
    const events = decodeLines(yield* store.lines(files.events))
    const stored = Option.map(yield* store.read(files.configuration), decodeJson)
    const configuration = Option.getOrUndefined(Option.flatMap(stored, Either.getRight))
    return { name: store.name, events, configuration }
  })

/**
 * Writes the report of a run to its file `report.html`, and returns it.
 *
 * @since 0.1.0
 * @category writing
 */
export const write = (store: RunStore.Service, options: Options = {}): Effect.Effect<string, RunStoreFailed> =>
  Effect.flatMap(fromStore(store), (run) => {
    const text = html(run, options)
    return Effect.as(store.write(files.report, text), text)
  })

/**
 * A report that follows a run.
 *
 * @since 0.1.0
 * @category models
 */
export interface Live {
  /** Receives the events of the run: use it as one of the run's loggers. */
  readonly logger: RunLogger.Service
  /**
   * Serves the page at its own path, and below it the events (`events`). Serve it on the loopback interface only, or
   * behind something that checks who asks: the page shows samples and configuration.
   */
  readonly app: HttpApp.Default
}

/** Enough for any page that was just loaded; older samples are dropped from memory. */
const samplesInMemory = 600

/** Proxies close connections that are silent for long. */
const heartbeat = ": \n\n"

/**
 * Creates a report that follows a run. The run's earlier events, if it continues one, come first. A page that is loaded
 * in the middle of a run, or reconnects, misses nothing, and a slow one delays neither the run nor other pages.
 *
 * @since 0.1.0
 * @category constructors
 */
export const live = (run: Run, options: Options = {}): Effect.Effect<Live> =>
  Effect.gen(function* () {
    const log = new Selection.Log(samplesInMemory)
    for (const event of run.events) log.add(event)
    const changed = yield* PubSub.sliding<void>(1)
    const eventsAfter = (id: number): Stream.Stream<string> =>
      Stream.unwrapScoped(
        Effect.map(PubSub.subscribe(changed), (changes) =>
          Stream.concat(Stream.make(undefined), Stream.fromQueue(changes)).pipe(
            Stream.mapAccum(id, (last) => {
              const fresh = log.after(last)
              return [fresh.at(-1)?.id ?? last, fresh]
            }),
            Stream.flattenIterables,
            Stream.map(({ event, id }) => `id: ${id}\ndata: ${JSON.stringify(event)}\n\n`),
          ),
        ),
      )
    const app: HttpApp.Default = Effect.gen(function* () {
      const request = yield* HttpServerRequest.HttpServerRequest
      const url = new URL(request.url, "http://page")
      if (request.method !== "GET") return HttpServerResponse.empty({ status: 405 })
      if (!url.pathname.endsWith("/events")) {
        const all = log.after(0)
        const seen = all.at(-1)?.id ?? 0
        const text = page({ ...run, events: all.map(({ event }) => event) }, options, `events?after=${seen}`)
        return HttpServerResponse.text(text, {
          contentType: "text/html; charset=utf-8",
          headers: {
            "cache-control": "no-store",
            "x-content-type-options": "nosniff",
            "content-security-policy": policy,
          },
        })
      }
      // A browser that reconnects says what it saw last.
      const after = Number(request.headers["last-event-id"] ?? url.searchParams.get("after") ?? 0)
      const events = Stream.merge(
        eventsAfter(Number.isInteger(after) ? after : 0),
        Stream.map(Stream.tick("15 seconds"), () => heartbeat),
      )
      return HttpServerResponse.stream(Stream.encodeText(events), {
        contentType: "text/event-stream",
        headers: { "cache-control": "no-store", "x-accel-buffering": "no", "x-content-type-options": "nosniff" },
      })
    })
    return {
      logger: {
        log: (event) =>
          Effect.suspend(() => {
            log.add(event)
            return Effect.asVoid(PubSub.publish(changed, undefined))
          }),
      },
      app,
    }
  })
