/**
 * Every command with its arguments and options. What a command does is in `../commands`, which is loaded when the
 * command runs: help and errors about arguments load none of it.
 *
 * To add a command, describe it here and export a function with its name from a module of `../commands`.
 */
import * as Args from "@effect/cli/Args"
import * as CliConfig from "@effect/cli/CliConfig"
import * as Command from "@effect/cli/Command"
import * as CommandDescriptor from "@effect/cli/CommandDescriptor"
import * as Options from "@effect/cli/Options"
import * as Effect from "effect/Effect"
import * as HashSet from "effect/HashSet"
import * as Option from "effect/Option"
import type { Node } from "./Arguments.ts"
import * as Help from "./Help.ts"
import type * as Installed from "./Installed.ts"
import type { Settings } from "./Output.ts"
import type { Shell } from "./Shell.ts"
import type { Listed, Recipe } from "./TrainConfig.ts"
import { trainSettings } from "./TrainSettings.ts"

export const name = "tinkerfx"

const program = Command.make(name, {
  format: Options.choice("format", ["table", "json"]).pipe(
    Options.withAlias("f"),
    Options.withDefault("table"),
    Options.withDescription("Output format (default: table)"),
  ),
  verbose: Options.boolean("verbose").pipe(Options.withDescription("Show the cause of an error, and log requests")),
})

/** A function that performs a command. */
export type Handler<Input> = (input: Input, settings: Settings) => Effect.Effect<void, unknown, Shell>

/** Performs a command with a function whose module is loaded now. */
const lazily =
  <Module, Input>(load: () => Promise<Module>, handlerOf: (module: Module) => Handler<Input>) =>
  (input: Input) =>
    Effect.gen(function* () {
      const settings = yield* program
      const module = yield* Effect.promise(load)
      yield* handlerOf(module)(input, settings)
    })

/** Performs a command outside of the bundle, with the installed packages. */
const outside = <Name extends Installed.Name>(name: Name) =>
  lazily(
    () => import("./Border.ts"),
    ({ perform }) => perform(name),
  )

const text = (name: string, description: string) =>
  Options.text(name).pipe(Options.withDescription(description), Options.optional, Options.map(Option.getOrUndefined))

const flag = (name: string, description: string) => Options.boolean(name).pipe(Options.withDescription(description))

const agreed = flag("yes", "Skip confirmation prompt").pipe(Options.withAlias("y"))

const argument = (name: string, description: string) => Args.text({ name }).pipe(Args.withDescription(description))

// Only the command that runs is built: building all of them would take a large part of the start.

/** A command or a group of commands as the program knows it, before its options are built. */
interface Entry {
  readonly name: string
  readonly description: string
  readonly make: () => Made
}

interface Made {
  readonly command: AnyCommand
  readonly children: ReadonlyArray<AnyCommand>
}

// Commands of all kinds in one list: the parser does not need their types here.
// oxlint-disable-next-line typescript/no-explicit-any
type AnyCommand = Command.Command<any, Shell | Command.Command.Context<typeof name>, unknown, any>

const group = (
  name: string,
  description: string,
  commands: () => readonly [AnyCommand, ...ReadonlyArray<AnyCommand>],
) => ({
  name,
  description,
  make: () => {
    const children = commands()
    return {
      command: Command.make(name).pipe(Command.withDescription(description), Command.withSubcommands(children)),
      children,
    }
  },
})

const single = (name: string, description: string, command: () => AnyCommand) => ({
  name,
  description,
  make: () => ({ command: Command.withDescription(command(), description), children: [] }),
})

// auth

const authModule = () => import("../commands/Auth.ts")

const authCommands = () =>
  [
    Command.make(
      "login",
      {},
      lazily(authModule, ({ login }) => login),
    ).pipe(
      Command.withDescription(
        "Store an API key for this command and the SDK. The key is asked for, or read from the standard input.",
      ),
    ),
    Command.make(
      "logout",
      {},
      lazily(authModule, ({ logout }) => logout),
    ).pipe(Command.withDescription("Remove the stored API key.")),
    Command.make(
      "status",
      {},
      lazily(authModule, ({ status }) => status),
    ).pipe(Command.withDescription("Check whether there are credentials, and whether the server accepts them.")),
    Command.make(
      "whoami",
      {},
      lazily(authModule, ({ whoami }) => whoami),
    ).pipe(Command.withDescription("Show the user and organization of the active credential.")),
  ] as const

// billing

const billingModule = () => import("../commands/Billing.ts")

const csv = (what: string) => text("csv", `Write ${what} as CSV to this file instead of table or JSON ('-': stdout)`)

const billingCommands = () =>
  [
    Command.make(
      "usage",
      {
        csv: csv("usage rows"),
        sessionsCsv: text(
          "sessions-csv",
          "Also write the table of sessions (session_id, user_metadata) as CSV to this file ('-': stdout)",
        ),
        yes: agreed,
        startingOn: argument("starting_on", "RFC 3339 time on a UTC hour, e.g. 2026-07-13T00:00:00Z"),
        endingBefore: argument("ending_before", "RFC 3339 time on a UTC hour, at most 14 days later"),
      },
      lazily(billingModule, ({ usage }) => usage),
    ).pipe(
      Command.withDescription(
        "Show hourly billing usage for your organization: one row per hour, type of usage, base model, session and user. Costs are gross estimates, not invoice amounts; a cost that is not known yet is null.",
      ),
    ),
    Command.make(
      "checkpoint-storage",
      { projectId: text("project-id", "Only show storage in this project"), csv: csv("storage rows"), yes: agreed },
      lazily(billingModule, ({ checkpointStorage }) => checkpointStorage),
    ).pipe(
      Command.withDescription("Show current checkpoint storage and its projected monthly cost, by project and owner."),
    ),
  ] as const

// checkpoint

const checkpointModule = () => import("../commands/Checkpoint.ts")
const downloadModule = () => import("../commands/CheckpointDownload.ts")
const pushModule = () => import("../commands/CheckpointPush.ts")

const path = argument("checkpoint_path", "A tinker path, e.g. tinker://run-id/weights/0001")
const files = argument(
  "checkpoint_path",
  "Training weights (tinker://run-id/weights/name) or external weights (tinker://run-id/external_weights/name)",
)

const limit = (noun: string) =>
  Options.integer("limit").pipe(
    Options.withDefault(20),
    Options.withDescription(`Maximum number of ${noun} (default: 20, 0 for all)`),
  )

const checkpointCommands = () =>
  [
    Command.make(
      "list",
      { runId: text("run-id", "Training run ID"), limit: limit("checkpoints when listing those of all runs") },
      lazily(checkpointModule, ({ list }) => list),
    ).pipe(Command.withDescription("List the checkpoints of one run, or of all runs.")),
    Command.make(
      "info",
      { path },
      lazily(checkpointModule, ({ info }) => info),
    ).pipe(Command.withDescription("Show details of a specific checkpoint.")),
    Command.make(
      "publish",
      { path },
      lazily(checkpointModule, ({ publish }) => publish),
    ).pipe(Command.withDescription("Make a checkpoint publicly accessible. Only the owner of its run can do that.")),
    Command.make(
      "unpublish",
      { path },
      lazily(checkpointModule, ({ unpublish }) => unpublish),
    ).pipe(Command.withDescription("Make a checkpoint private again. Only the owner of its run can do that.")),
    Command.make(
      "set-ttl",
      {
        path,
        ttl: Options.integer("ttl").pipe(
          Options.withDescription("Lifetime in seconds (1 hour to 10 years)"),
          Options.optional,
          Options.map(Option.getOrUndefined),
        ),
        remove: flag("remove", "Remove the expiration from the checkpoint"),
      },
      lazily(checkpointModule, ({ setTtl }) => setTtl),
    ).pipe(Command.withDescription("Set or remove the lifetime of a checkpoint.")),
    Command.make(
      "delete",
      {
        paths: Args.repeated(argument("checkpoint_paths", "Tinker paths, e.g. tinker://run-id/weights/0001")),
        runId: text("run-id", "Delete all checkpoints of a training run"),
        type: text("type", "Only of this type: weights, sampler_weights or external_weights"),
        before: text("before", "Only created before this UTC time (ISO 8601, e.g. 2024-01-01, 2024-01-01T08:00:00Z)"),
        after: text("after", "Only created after this UTC time (ISO 8601, e.g. 2024-01-01, 2024-01-01T08:00:00Z)"),
        yes: agreed,
      },
      lazily(checkpointModule, ({ remove }) => remove),
    ).pipe(
      Command.withDescription(
        "Delete checkpoints permanently: those with the given paths, or those of a run that match the filters.",
      ),
    ),
    Command.make(
      "download",
      {
        path: files,
        output: text("output", "Parent directory of the downloaded directory (default: current directory)").pipe(
          Options.withAlias("o"),
        ),
        force: flag("force", "Overwrite existing directory if it exists"),
        yes: agreed,
      },
      lazily(downloadModule, ({ download }) => download),
    ).pipe(
      Command.withDescription(
        "Download a checkpoint into a directory of its own, e.g. ./run-123_weights_final. Training weights are exported first, which starts a training session on their base model.",
      ),
    ),
    Command.make(
      "push-hf",
      {
        path: files,
        repo: text("repo", "Repository, e.g. username/my-lora-adapter (default: named after the run)").pipe(
          Options.withAlias("r"),
        ),
        public: flag("public", "Create or upload to a public repo (default: private)"),
        revision: text("revision", "Branch to upload to"),
        commitMessage: text("commit-message", "Message of the commit"),
        createPr: flag("create-pr", "Create a pull request instead of a commit on the branch"),
        allowPattern: Options.text("allow-pattern").pipe(
          Options.withDescription("Only upload files that match this pattern (can be repeated)"),
          Options.repeated,
        ),
        ignorePattern: Options.text("ignore-pattern").pipe(
          Options.withDescription("Skip files that match this pattern (can be repeated)"),
          Options.repeated,
        ),
        noModelCard: flag("no-model-card", "Do not create a README.md if there is none"),
      },
      lazily(pushModule, ({ pushHf }) => pushHf),
    ).pipe(
      Command.withDescription(
        "Upload a checkpoint to the Hugging Face Hub as a PEFT adapter. The token is that of 'hf auth login', or HF_TOKEN.",
      ),
    ),
  ] as const

// model, run, session

const modelCommands = () =>
  [
    Command.make(
      "list",
      {
        substring: argument("substring", "Only models whose name contains this, ignoring case").pipe(
          Args.optional,
          Args.map(Option.getOrUndefined),
        ),
      },
      lazily(
        () => import("../commands/Model.ts"),
        ({ list }) => list,
      ),
    ).pipe(Command.withDescription("List the models your organization can use.")),
  ] as const

const runModule = () => import("../commands/Run.ts")

const runCommands = () =>
  [
    Command.make(
      "list",
      {
        limit: limit("runs"),
        columns: text(
          "columns",
          "Columns, separated by commas: id, model, owner, lora, updated, status, checkpoint, checkpoint_time (default: id,model,lora,updated,status)",
        ).pipe(Options.withAlias("c")),
      },
      lazily(runModule, ({ list }) => list),
    ).pipe(Command.withDescription("List all training runs.")),
    Command.make(
      "info",
      { runId: argument("run_id", "Training run ID") },
      lazily(runModule, ({ info }) => info),
    ).pipe(Command.withDescription("Show details of a specific run.")),
  ] as const

const sessionCommands = () =>
  [
    Command.make(
      "export-trace",
      {
        sessionId: argument("session_id", "Session ID"),
        output: text("output", "Output file (default: ./<session-id>.pftrace)").pipe(Options.withAlias("o")),
        urlOnly: flag("url-only", "Print the signed download URL instead of downloading the trace"),
        yes: agreed,
      },
      lazily(
        () => import("../commands/Session.ts"),
        ({ exportTrace }) => exportTrace,
      ),
    ).pipe(
      Command.withDescription("Export a session's timeline as a Perfetto trace, which https://ui.perfetto.dev shows."),
    ),
  ] as const

// train

/** `everySteps` is written `every-steps` on the command line. */
const optionOf = (setting: string) => setting.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)

/** A setting is read as text: the recipe checks it. */
const settingOption = (
  { description, type }: Listed,
  option: string,
): Options.Options<string | boolean | undefined> => {
  if (type === "boolean") return flag(option, description)
  const choices = type.split("|")
  return /number|string|json/.test(type)
    ? Options.text(option).pipe(
        Options.withPseudoName(type.replace("|null", "")),
        Options.withDescription(description),
        Options.optional,
        Options.map(Option.getOrUndefined),
      )
    : Options.choice(option, choices).pipe(
        Options.withDescription(description),
        Options.optional,
        Options.map(Option.getOrUndefined),
      )
}

/** The options of a recipe: its settings, and one that turns off what a file turns on. */
const settingsOf = (recipe: Recipe): Record<string, Options.Options<string | boolean | undefined>> =>
  Object.fromEntries(
    trainSettings[recipe].flatMap((setting) => {
      const option = optionOf(setting.name)
      const given = [option, settingOption(setting, option)] as const
      const no = `no-${option}`
      return setting.type === "boolean"
        ? [given, [no, flag(no, `Turns --${option} of the file off`)] as const]
        : [given]
    }),
  )

const training = (recipe: Recipe, description: string) =>
  Command.make(
    recipe,
    {
      config: text("config", "Read settings from this .json, .yaml or .yml file; options replace them"),
      settings: settingsOf(recipe),
    },
    (input) => outside("train")({ ...input, recipe }),
  ).pipe(Command.withDescription(description))

const trainCommands = () =>
  [
    training("sft", "Train a model on conversations (supervised fine-tuning)."),
    training("rl", "Train a model on answers that a function of yours rates (reinforcement learning)."),
    training("dpo", "Train a model on pairs of a better and a worse answer (direct preference optimization)."),
    training("distill", "Train a model on what another model finds likely (on-policy distillation)."),
  ] as const

const resume = single("resume", "Continue a run where it stopped, with the settings that it was started with.", () =>
  Command.make(
    "resume",
    {
      directory: argument("directory", "The directory of a run, e.g. runs/sft"),
      budget: text("budget", "Stop the run before it spends more than so many USD in all, instead of its own budget"),
    },
    outside("resume"),
  ),
)

// models and data

const optional = (name: string, description: string) =>
  argument(name, description).pipe(Args.optional, Args.map(Option.getOrUndefined))

const target = optional(
  "target",
  "The directory of a run, whose newest checkpoint is used, a tinker:// path, or a base model",
)

const place = {
  local: flag("local", "Use the embedded engine: without a server and without a key"),
  localModel: text(
    "local-model",
    "NAME=DIR: use the model in DIR (config.json, *.safetensors, tokenizer.json) on the embedded engine",
  ),
}

const sampling = {
  maxTokens: text("max-tokens", "The most tokens of an answer (default: 512)"),
  temperature: text("temperature", "The temperature of sampling; 0 takes the likeliest token (default: 1)"),
  seed: text("seed", "Sample the same answers each time"),
}

const format = {
  model: text("model", "The base model (default: the one that ships with the engine)"),
  tokenizer: text("tokenizer", "A directory or a repository of the Hugging Face Hub (default: that of the model)"),
  renderer: text("renderer", "The name of a renderer, or template for the model's own (default: that of the model)"),
}

const trainOn = Options.choice("train-on", [
  "all_assistant_messages",
  "last_assistant_message",
  "last_assistant_turn",
  "all_tokens",
]).pipe(
  Options.withDefault("all_assistant_messages"),
  Options.withDescription("Which messages are learnt (default: all_assistant_messages)"),
)

const chat = single(
  "chat",
  "Chat with a model. Answers are streamed; /reset forgets the conversation, /save keeps it. In a pipe, each line is a message.",
  () =>
    Command.make(
      "chat",
      {
        target,
        ...place,
        system: text("system", "The system message"),
        ...sampling,
        topP: text("top-p", "Sample only from the likeliest tokens with this probability in all"),
      },
      outside("chat"),
    ),
)

const sample = single("sample", "Sample answers to one prompt.", () =>
  Command.make(
    "sample",
    {
      target,
      ...place,
      prompt: text("prompt", "The prompt (default, or -: the input)").pipe(Options.withAlias("p")),
      file: text("file", "Read the prompt from this file"),
      system: text("system", "The system message"),
      count: text("count", "How many answers are sampled (default: 1)").pipe(Options.withAlias("n")),
      raw: flag("raw", "Continue the prompt as it is, instead of answering it in a chat"),
      ...sampling,
      topP: text("top-p", "Sample only from the likeliest tokens with this probability in all"),
    },
    outside("sample"),
  ),
)

const evaluate = single(
  "eval",
  "Evaluate a model on questions, with confidence intervals, or compare two models.",
  () =>
    Command.make(
      "eval",
      {
        target,
        ...place,
        data: text(
          "data",
          "The questions: a file with messages in each row. Rows with answers are compared with them, others are measured by their likelihood",
        ),
        environment: text("environment", "The module with the tasks and the reward, as for 'train rl'"),
        compare: text("compare", "Compare with this model on the same server: base, a base model or a tinker:// path"),
        limit: text("limit", "Ask only so many questions"),
        ...sampling,
        renderer: format.renderer,
        tokenizer: format.tokenizer,
      },
      outside("eval"),
    ),
)

const report = single("report", "Write the report of a run as one HTML file, and show its last metrics.", () =>
  Command.make(
    "report",
    {
      directory: argument("directory", "The directory of a run, e.g. runs/sft; the run may be going"),
      compare: text("compare", "The directory of a second run to compare with"),
      output: text("output", "The file to write (default: report.html of the run)").pipe(Options.withAlias("o")),
      yes: agreed,
    },
    outside("report"),
  ),
)

const tokenize = single("tokenize", "Show the tokens of a text.", () =>
  Command.make(
    "tokenize",
    {
      text: optional("text", "The text (default, or -: the input)"),
      model: format.model,
      tokenizer: format.tokenizer,
      decode: flag("decode", "Turn ids of tokens into text"),
      count: flag("count", "Print only the number of tokens"),
    },
    (input) => outside("tokenize")({ ...input, renderer: undefined }),
  ),
)

const rows = argument("file", "A file with messages in each row (.jsonl, .csv or .parquet)")

const render = single(
  "render",
  "Show a conversation as the tokens that a model is trained on: learnt ones are green, others grey. In a pipe, each token is a line with id, weight and text.",
  () =>
    Command.make(
      "render",
      {
        file: rows,
        ...format,
        row: text("row", "The number of the row, from 1 (default: 1)"),
        trainOn,
        prompt: flag("prompt", "Show the prompt for the next answer instead of the training example"),
      },
      outside("render"),
    ),
)

const lint = single(
  "lint",
  "Check the data of a training run before it is paid for. Exits with 1 if a row would fail.",
  () =>
    Command.make(
      "lint",
      {
        file: rows,
        ...format,
        maxLength: text("max-length", "The most tokens that the model accepts"),
        trainOn,
      },
      outside("lint"),
    ),
)

// projects and upkeep

const init = single(
  "init",
  "Create a project: a program, data, a configuration and a passing test. It needs no key.",
  () =>
    Command.make(
      "init",
      { directory: optional("directory", "Where to create it (default: this directory)"), yes: agreed },
      lazily(
        () => import("../commands/Init.ts"),
        ({ init }) => init,
      ),
    ),
)

const doctor = single(
  "doctor",
  "Check key, server, versions, clock, network and disk, and say what to do. Exits with 1 if a check failed.",
  () =>
    Command.make(
      "doctor",
      {},
      lazily(
        () => import("../commands/Doctor.ts"),
        ({ doctor }) => doctor,
      ),
    ),
)

const gc = single(
  "gc",
  "List old checkpoints that can be deleted, with the savings. Published ones and the newest of each run are kept.",
  () =>
    Command.make(
      "gc",
      {
        olderThan: text(
          "older-than",
          "Only checkpoints older than this: hours, days or weeks, e.g. 12h, 30d, 4w (default: 30d)",
        ),
        keep: text("keep", "Keep so many of the newest checkpoints of each run and type (default: 1)"),
        runId: text("run-id", "Only checkpoints of this training run"),
        type: Options.choice("type", ["training", "sampler", "external"]).pipe(
          Options.withDescription("Only checkpoints of this type"),
          Options.optional,
          Options.map(Option.getOrUndefined),
        ),
        delete: flag("delete", "Delete them. Without it, nothing is changed"),
        yes: agreed,
      },
      lazily(
        () => import("../commands/Gc.ts"),
        ({ gc }) => gc,
      ),
    ),
)

const costModule = () => import("../commands/Cost.ts")

const runDirectory = argument("directory", "The directory of a run, e.g. runs/sft")

const costCommands = () =>
  [
    Command.make(
      "estimate",
      {
        recipe: Args.choice(
          [
            ["sft", "sft"],
            ["rl", "rl"],
            ["dpo", "dpo"],
            ["distill", "distill"],
          ],
          { name: "recipe" },
        ),
        model: text("model", "The base model"),
        prices: text("prices", "A price list as JSON (default: the list prices of the service)"),
        tokens: text("tokens", "sft, dpo: the tokens of the data, which 'tinkerfx lint' counts"),
        epochs: text("epochs", "sft, dpo: how often each row is used (default: 1)"),
        steps: text("steps", "rl, distill: how many iterations are made"),
        groups: text("groups", "rl, distill: how many tasks an iteration has"),
        groupSize: text("group-size", "rl, distill: how many rollouts a task has"),
        promptTokens: text("prompt-tokens", "rl, distill: the tokens of a prompt"),
        answerTokens: text("answer-tokens", "rl, distill: the tokens of an answer"),
        turns: text("turns", "rl, distill: how many answers a rollout has (default: 1)"),
        teacher: text("teacher", "distill: the model of the teacher (default: the base model)"),
      },
      lazily(costModule, ({ estimate }) => estimate),
    ).pipe(Command.withDescription("Estimate what a run will cost.")),
    Command.make(
      "meter",
      { directory: runDirectory },
      lazily(costModule, ({ meter }) => meter),
    ).pipe(Command.withDescription("Show what a run has spent so far.")),
    Command.make(
      "reconcile",
      { directory: runDirectory },
      lazily(costModule, ({ reconcile }) => reconcile),
    ).pipe(Command.withDescription("Compare what a run has counted with the bill.")),
  ] as const

// The rest

const version = single("version", "Show version information.", () =>
  Command.make(
    "version",
    {},
    lazily(
      () => import("../commands/Version.ts"),
      ({ version }) => version,
    ),
  ),
)

const repeatedText = (name: string, description: string) =>
  Options.text(name).pipe(Options.withDescription(description), Options.repeated)

const serve = single(
  "serve",
  'Serve the Tinker API on this machine, with a small real model that trains and samples on the CPU. Prints "listening on http://HOST:PORT" when it is ready; point any client at it with TINKER_BASE_URL and a TINKER_API_KEY such as tml-anything.',
  () =>
    Command.make(
      "serve",
      {
        host: text(
          "host",
          "Address to listen on (default: 127.0.0.1, reachable only from this machine). For any other address clients need a key: a new one is generated and printed unless one is given",
        ),
        port: text("port", "Port to listen on (default: 8000); 0 picks a free port"),
        apiKeyFile: repeatedText(
          "api-key-file",
          "Accept the API keys in this file, one per line; repeatable. Each key sees only its own data. Default: any key is accepted on a loopback address",
        ),
        apiKey: repeatedText(
          "api-key",
          "Accept this API key; repeatable. Other users of this machine can see it in the list of processes: prefer --api-key-file",
        ),
        allowedHost: repeatedText(
          "allowed-host",
          "Host name under which clients reach the server; repeatable. Addresses, localhost and the name of this machine are always accepted",
        ),
        corsOrigin: repeatedText(
          "cors-origin",
          "Let web pages of this origin, e.g. http://localhost:3000, use the server; repeatable",
        ),
        dataDir: text(
          "data-dir",
          "Store runs, checkpoints and unfinished work in this directory, and resume from it after a restart. Default: everything is lost when the process exits",
        ),
        model: repeatedText(
          "model",
          "NAME=DIR: serve the model in DIR (config.json, *.safetensors, tokenizer.json) under NAME; repeatable. Default: the models that ship with the engine",
        ),
        jwt: flag("jwt", "Make clients exchange their key for a token that is valid for one hour"),
        sessionTimeout: text(
          "session-timeout",
          "Expire sessions after this many seconds without a heartbeat (default: 300)",
        ),
      },
      outside("serve"),
    ),
)

const completions = single("completions", "Print a completion script for bash, zsh or fish.", () =>
  Command.make(
    "completions",
    {
      shell: Args.choice(
        [
          ["bash", "bash"],
          ["zsh", "zsh"],
          ["fish", "fish"],
        ],
        { name: "shell" },
      ),
    },
    lazily(
      () => import("../commands/Completions.ts"),
      ({ completions }) => completions,
    ),
  ),
)

// The program

const entries: ReadonlyArray<Entry> = [
  group("auth", "Manage authentication credentials.", authCommands),
  group("billing", "View billing usage.", billingCommands),
  group("checkpoint", "Manage checkpoints.", checkpointCommands),
  group("model", "List available models.", modelCommands),
  group("run", "Manage training runs.", runCommands),
  group("session", "Manage sessions.", sessionCommands),
  init,
  group("train", "Train a model.", trainCommands),
  resume,
  evaluate,
  report,
  chat,
  sample,
  tokenize,
  render,
  lint,
  doctor,
  gc,
  group("cost", "Estimate, show and check the cost of runs.", costCommands),
  serve,
  completions,
  version,
]

const description = "Tinker management CLI."

const described = program.pipe(Command.withDescription(description))

/** The program with one of its commands, with none of them, or with all. */
export const root = (
  which: { readonly only: string | undefined } | "all",
  // oxlint-disable-next-line typescript/no-explicit-any
): Command.Command<typeof name, Shell, unknown, any> => {
  const chosen = which === "all" ? entries : entries.filter(({ name }) => name === which.only)
  const [first, ...rest] = chosen.map(({ make }) => make().command)
  return first === undefined ? described : described.pipe(Command.withSubcommands([first, ...rest]))
}

const helpConfig = CliConfig.make({ showBuiltIns: false })

/** Computes a value when it is first needed. */
const memoized = <A>(compute: () => A): (() => A) => {
  let made: { readonly value: A } | undefined
  return () => (made ??= { value: compute() }).value
}

const nodeOf = (
  name: string,
  description: string,
  make: () => { readonly command: AnyCommand; readonly children: ReadonlyArray<Node> },
): Node => {
  const made = memoized(make)
  return {
    name,
    description,
    get usage() {
      return CommandDescriptor.getUsage(made().command.descriptor)
    },
    get help() {
      return CommandDescriptor.getHelp(made().command.descriptor, helpConfig)
    },
    get children() {
      return made().children
    },
  }
}

const nameOf = ({ descriptor }: AnyCommand): string =>
  HashSet.values(CommandDescriptor.getNames(descriptor)).next().value ?? ""

/** The names and the syntax of all commands. */
export const tree: Node = nodeOf(name, description, () => ({
  command: described,
  children: entries.map((entry) =>
    nodeOf(entry.name, entry.description, () => {
      const { children, command } = entry.make()
      return {
        command,
        children: children.map((child) =>
          nodeOf(nameOf(child), Help.descriptionOf(CommandDescriptor.getHelp(child.descriptor, helpConfig)), () => ({
            command: child,
            children: [],
          })),
        ),
      }
    }),
  ),
}))
