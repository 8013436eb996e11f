/** Implements `tinkerfx report`. */
import * as RunReport from "@effect-tinker/recipes/Report"
import * as Effect from "effect/Effect"
import { basename, join, relative, resolve } from "node:path"
import type { Handler } from "../internal/Commands.ts"
import { Failure } from "../internal/Failure.ts"
import * as Files from "../internal/Files.ts"
import * as Output from "../internal/Output.ts"
import * as Prompt from "../internal/Prompt.ts"
import { Shell } from "../internal/Shell.ts"
import * as Words from "../internal/Words.ts"

/** Reads a run without opening it, so that a report can be made while it is going. */
const runOf = (directory: string) =>
  Effect.gen(function* () {
    const text = yield* Effect.mapError(
      Files.read(join(directory, "events.jsonl")),
      ({ cause }) =>
        new Failure({
          message: `${directory} is not the directory of a run, or nothing has happened in it yet`,
          hint: "A run has events.jsonl as soon as its first step is made.",
          cause,
        }),
    )
    const configuration = yield* Effect.option(
      Effect.flatMap(Files.read(join(directory, "config.json")), (json) =>
        Effect.try(() => JSON.parse(json) as unknown),
      ),
    )
    return {
      name: basename(directory),
      events: RunReport.decodeLines(text.split("\n").slice(0, -1)),
      ...(configuration._tag === "Some" ? { configuration: configuration.value } : {}),
    }
  })

/** The last value of each metric. */
const summaryOf = ({ events }: RunReport.Run): ReadonlyMap<string, number> =>
  new Map(
    events.flatMap((event) =>
      event._tag === "Step" || event._tag === "Evaluation" ? Object.entries(event.metrics) : [],
    ),
  )

export const report: Handler<{
  readonly directory: string
  readonly compare: string | undefined
  readonly output: string | undefined
  readonly yes: boolean
}> = (input, { format }) =>
  Effect.gen(function* () {
    const shell = yield* Shell
    const at = (path: string) => resolve(shell.directory, path)
    const directory = at(input.directory)
    const run = yield* runOf(directory)
    const compareWith = input.compare === undefined ? undefined : yield* runOf(at(input.compare))
    // The report of the run is made again each time; any other file may be one of the user's.
    const file = input.output === undefined ? join(directory, "report.html") : at(input.output)
    if (input.output !== undefined) yield* Prompt.replace(file, input.yes)
    yield* Files.write(file, RunReport.html(run, { compareWith }))
    const shown = relative(shell.directory, file)
    const metrics = [...summaryOf(run)]
    const step = run.events.reduce((most, event) => Math.max(most, event._tag === "Step" ? event.step + 1 : 0), 0)
    const others = compareWith === undefined ? undefined : summaryOf(compareWith)
    yield* Output.printRecords(format, {
      records: [{ report: shown, steps: step, metrics: Object.fromEntries(metrics) }],
      table: () => ({
        title: `${run.name}: ${Words.plural(step, "step")}`,
        columns: ["Metric", "Last value", ...(compareWith === undefined ? [] : [compareWith.name])],
        rows: metrics.map(([name, value]) => [
          Words.safe(name),
          Words.number(value),
          ...(others === undefined ? [] : [others.has(name) ? Words.number(others.get(name) ?? 0) : ""]),
        ]),
      }),
    })
    if (format === "table") yield* shell.out(`Report: ${shown}\n`)
  })
