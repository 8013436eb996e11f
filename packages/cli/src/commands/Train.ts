/** Implements `tinkerfx train` and `tinkerfx resume`. */
import type { FileSystem } from "@effect/platform/FileSystem"
import * as NodeContext from "@effect/platform-node/NodeContext"
import * as Distillation from "@effect-tinker/recipes/Distillation"
import * as Interruption from "@effect-tinker/recipes/Interruption"
import * as Preference from "@effect-tinker/recipes/Preference"
import * as Report from "@effect-tinker/recipes/Report"
import * as Rl from "@effect-tinker/recipes/Rl"
import * as RunConfig from "@effect-tinker/recipes/RunConfig"
import * as RunDirectory from "@effect-tinker/recipes/RunDirectory"
import { RunEvent } from "@effect-tinker/recipes/RunEvent"
import * as RunLogger from "@effect-tinker/recipes/RunLogger"
import { RunStore } from "@effect-tinker/recipes/RunStore"
import * as RunProgress from "@effect-tinker/recipes/Progress"
import * as Supervised from "@effect-tinker/recipes/Supervised"
import * as Table from "@effect-tinker/recipes/Table"
import { RunStopped } from "@effect-tinker/recipes/TrainingLoop"
import * as Message from "@effect-tinker/tokenizer/Message"
import type { Renderer } from "@effect-tinker/tokenizer/Renderer"
import type * as Tokenizer from "@effect-tinker/tokenizer/Tokenizer"
import * as Cost from "effect-tinker/Cost"
import type { ServiceClient } from "effect-tinker/ServiceClient"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import { basename, extname, join, relative, resolve } from "node:path"
import type { Handler } from "../internal/Commands.ts"
import { Failure, Stopped, UsageError } from "../internal/Failure.ts"
import * as Json from "../internal/Json.ts"
import type { Format } from "../internal/Output.ts"
import * as Places from "../internal/Places.ts"
import * as Rendering from "../internal/Rendering.ts"
import * as PriceList from "../internal/PriceList.ts"
import * as RunFile from "../internal/RunFile.ts"
import { Shell } from "../internal/Shell.ts"
import { paths, type Recipe, recipes } from "../internal/TrainConfig.ts"
import * as UserModule from "../internal/UserModule.ts"

/** The settings that all recipes share. */
interface Common {
  readonly renderer: Renderer
  readonly tokenizer: Tokenizer.Service
  readonly stop: Effect.Effect<void>
  readonly cost: Effect.Effect.Success<ReturnType<typeof costOf>>
}

type Values = Readonly<Record<string, unknown>>

/** A file of rows. The settings were checked, so that it is a text. */
const tableOf = <A, I>(values: Values, schema: Schema.Schema<A, I>) => Table.file(String(values["data"]), schema)

/** Returns the text of tokens, for samples that people read. */
const decodeWith = (tokenizer: Tokenizer.Service) => (tokens: Int32Array) =>
  Effect.orElseSucceed(tokenizer.decode(tokens), () => "")

/** Starts a recipe. The settings were checked. */
type Start = (
  config: Values,
  common: Common,
  values: Values,
) => Effect.Effect<Stream.Stream<RunEvent, unknown, RunStore | ServiceClient>, unknown, FileSystem | Scope.Scope>

const starts: Readonly<Record<Recipe, Start>> = {
  sft: (config, common, values) =>
    Effect.map(tableOf(values, Message.Conversation), (data) =>
      Supervised.train({ ...common, config: config as Supervised.Input, data }),
    ),
  dpo: (config, common, values) =>
    Effect.map(tableOf(values, Preference.Pair), (data) =>
      Preference.train({ ...common, config: config as Preference.Input, data }),
    ),
  distill: (config, common, values) =>
    Effect.map(tableOf(values, Message.Conversation), (data) =>
      Distillation.train({
        ...common,
        config: config as Distillation.Input,
        data,
        decode: decodeWith(common.tokenizer),
      }),
    ),
  rl: (config, { renderer, tokenizer, ...common }, values) =>
    Effect.gen(function* () {
      const data = values["data"] === undefined ? undefined : String(values["data"])
      const loaded = yield* UserModule.open(String(values["environment"]), data)
      const tasks = UserModule.tasksOf(loaded, renderer)
      const [first] = tasks
      return Rl.train({
        ...common,
        config: config as Rl.Input,
        // The list is not empty.
        task: (index) => tasks[index % tasks.length] ?? (first as NonNullable<typeof first>),
        tasks: loaded.fingerprint,
        decode: decodeWith(tokenizer),
      })
    }),
}

/** The settings that the recipe does not know. */
const own = ["data", "environment", "out", "local", "localModel", "renderer", "tokenizer", "budget", "prices"]

const without = (values: Values, names: ReadonlyArray<string>): Values =>
  Object.fromEntries(Object.entries(values).filter(([name]) => !names.includes(name)))

const costOf = ({ budget, prices: given }: Values, model: string, isLocal: boolean) =>
  Effect.gen(function* () {
    if (isLocal) return undefined
    const prices = yield* PriceList.read(given === undefined ? undefined : String(given))
    const limit = typeof budget === "number" ? Cost.usd(budget) : undefined
    const needed = { prefill: 1, cachedPrefill: 1, sampled: 1, trained: 1 }
    const isPriced = Either.isRight(Cost.costOf(prices, model, needed))
    // A model without a list price is trained without counting, unless there is a budget.
    return isPriced || limit !== undefined || given !== undefined ? { prices, budget: limit } : undefined
  })

const encodeEvent = Schema.encodeSync(RunEvent)

/** Shows events: a line that is redrawn on a terminal, a line for each event in a pipe, or records. */
const loggerOf = (format: Format) =>
  Effect.gen(function* () {
    const shell = yield* Shell
    if (format === "json")
      return {
        log: (event: RunEvent) => shell.out(`${Json.compact(Json.fromUnknown(encodeEvent(event)))}\n`),
      } satisfies RunLogger.Service
    const runtime = yield* Effect.runtime<never>()
    const write = (to: (text: string) => Effect.Effect<void>) => (text: string) =>
      void Effect.runFork(Effect.provide(to(text), runtime))
    const { hasColors: color, hasProgress: isTerminal, width } = shell
    return yield* RunProgress.make({
      write: write(isTerminal ? shell.err : shell.out),
      isTerminal,
      columns: () => width,
      color,
    })
  })

const budgetHint = "Continue it with 'tinkerfx resume' and a larger --budget."

/** Trains from checked settings, whose paths are absolute. */
const perform = (recipe: Recipe, settings: Values, format: Format) =>
  Effect.gen(function* () {
    const shell = yield* Shell
    const out = String(settings["out"])
    const shown = relative(shell.directory, out) || "."
    const options = {
      local: settings["local"] === true,
      localModel: settings["localModel"] === undefined ? undefined : String(settings["localModel"]),
    }
    const place = yield* Places.ofRun(options, shell.directory, out)
    const model = settings["model"] === undefined ? place.model : String(settings["model"])
    if (model === undefined)
      return yield* new UsageError({ message: "Missing option '--model', or --local for the embedded engine." })
    const choice = {
      model,
      tokenizer: settings["tokenizer"] === undefined ? place.tokenizer : String(settings["tokenizer"]),
      renderer: settings["renderer"] === undefined ? undefined : String(settings["renderer"]),
    }
    const kept = {
      ...settings,
      model,
      out: undefined,
      ...Object.fromEntries(
        (["data", "environment", "prices"] as const).flatMap((name) =>
          settings[name] === undefined || settings[name] === "free"
            ? []
            : [[name, relative(out, String(settings[name]))]],
        ),
      ),
    }
    if (!RunFile.exists(out)) yield* RunFile.write(out, recipe, kept)

    let seen = Interruption.nothing
    let hasEvents = false
    let checkpoint: string | undefined
    const stopping = yield* Deferred.make<void>()
    yield* shell.stopped.pipe(
      Effect.zipRight(shell.err(`${shell.hasProgress ? "\n" : ""}${Interruption.stopping}\n`)),
      Effect.zipRight(Deferred.succeed(stopping, undefined)),
      Effect.forkScoped,
    )
    const logger = yield* loggerOf(format)
    const note = (event: RunEvent) =>
      Effect.gen(function* () {
        // The settings have been accepted: from now on, they are those of the run.
        if (!hasEvents) yield* RunFile.write(out, recipe, kept)
        hasEvents = true
        seen = Interruption.see(seen, event)
        if (event._tag === "Checkpoint") checkpoint = event.samplerPath ?? checkpoint
      })
    const train = (renderer: Renderer, tokenizer: Tokenizer.Service) =>
      Effect.gen(function* () {
        const cost = yield* costOf(settings, model, place.isLocal)
        const common = { renderer, tokenizer, stop: Deferred.await(stopping), cost }
        const config = { ...without(settings, own), model }
        const events = yield* starts[recipe](config, common, settings)
        yield* events.pipe(
          Stream.tap(note),
          RunLogger.tap(logger),
          Stream.runDrain,
          Effect.onInterrupt(() => shell.err(`${Interruption.stoppedAtOnce(seen)}\n`)),
        )
        const store = yield* RunStore
        yield* Report.write(store)
      })
    yield* Rendering.withRenderer(choice, train).pipe(
      Effect.provide([RunDirectory.layer(out), place.clients, NodeContext.layer]),
      Effect.scoped,
      Effect.catchIf(
        (error) => error instanceof RunStopped,
        ({ checkpoint, evaluations, message, reason, step }): Effect.Effect<never, Stopped | Failure> =>
          reason === undefined
            ? new Stopped({
                message: Interruption.stopped(step, checkpoint, evaluations).replace(
                  "The same command continues",
                  `The same command, or 'tinkerfx resume ${shown}', continues`,
                ),
              })
            : new Failure({ message, hint: budgetHint }),
      ),
    )
    if (format === "json") return
    yield* shell.out(
      [
        ...(hasEvents ? [] : ["The run was complete already; nothing to do."]),
        ...(checkpoint === undefined ? [] : [`Checkpoint: ${checkpoint}`, `Chat with it: tinkerfx chat ${shown}`]),
        `Report: ${join(shown, "report.html")}`,
        "",
      ].join("\n"),
    )
  }).pipe(Effect.scoped)

/** Makes the paths of settings absolute. */
const absolute = (values: Values, directory: string): Values => ({
  ...values,
  ...Object.fromEntries(
    paths.flatMap((name) =>
      typeof values[name] === "string" && values[name] !== "free" ? [[name, resolve(directory, values[name])]] : [],
    ),
  ),
})

const flagOf = (name: string) => `--${name}`

/** The flags as `RunConfig` reads them. */
const argumentsOf = (settings: Readonly<Record<string, string | boolean | undefined>>): ReadonlyArray<string> =>
  Object.entries(settings).flatMap(([name, value]) =>
    value === undefined || value === false ? [] : value === true ? [flagOf(name)] : [`${flagOf(name)}=${value}`],
  )

export const train: Handler<{
  readonly recipe: Recipe
  readonly config: string | undefined
  /** By the names of the options. */
  readonly settings: Readonly<Record<string, string | boolean | undefined>>
}> = ({ config, recipe, settings }, { format }) =>
  Effect.gen(function* () {
    const { directory } = yield* Shell
    const file = config === undefined ? [] : ["--config", resolve(directory, config)]
    const schema: Schema.Schema.AnyNoContext = recipes[recipe]
    const loaded = yield* RunConfig.load(schema, [...file, ...argumentsOf(settings)]).pipe(
      Effect.provide(NodeContext.layer),
      Effect.catchTag(
        "InvalidInput",
        ({ path, problem }) => new UsageError({ message: path === "flags" ? problem : `${path}: ${problem}` }),
      ),
      Effect.catchTag(
        "SystemError",
        (cause) =>
          new Failure({
            message: `Cannot read ${config}: ${cause.message}`,
            hint: "Check the name of the file.",
            cause,
          }),
      ),
    )
    const values: Values = loaded._tag === "Config" ? (loaded.config as Values) : {}
    const name = config === undefined ? recipe : basename(config, extname(config))
    yield* perform(recipe, absolute({ out: join("runs", name), ...values }, directory), format)
  })

export const resume: Handler<{ readonly directory: string; readonly budget: string | undefined }> = (
  { budget, directory },
  { format },
) =>
  Effect.gen(function* () {
    const out = resolve((yield* Shell).directory, directory)
    const { recipe, settings } = yield* RunFile.read(out)
    const limit = budget === undefined ? undefined : Number(budget)
    if (limit !== undefined && !(limit > 0))
      return yield* new UsageError({
        message: `Invalid value for '--budget': expected an amount in USD, got ${budget}`,
      })
    const values = { ...settings, ...(limit === undefined ? {} : { budget: limit }) }
    const defined = Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined))
    yield* perform(recipe, { ...absolute(defined, out), out }, format)
  })
