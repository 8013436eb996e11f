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
import type { Settings } from "./Output.ts"
import type { Shell } from "./Shell.ts"

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

const text = (name: string, description: string) =>
  Options.text(name).pipe(Options.withDescription(description), Options.optional, Options.map(Option.getOrUndefined))

const flag = (name: string, description: string) => Options.boolean(name).pipe(Options.withDescription(description))

const agreed = flag("yes", "Skip confirmation prompt").pipe(Options.withAlias("y"))

const argument = (name: string, description: string) => Args.text({ name }).pipe(Args.withDescription(description))

// auth

const authModule = () => import("../commands/Auth.ts")

const authCommands = [
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

const billingCommands = [
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

const checkpointCommands = [
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

const modelCommands = [
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

const runCommands = [
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

const sessionCommands = [
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

// The rest

const version = Command.make(
  "version",
  {},
  lazily(
    () => import("../commands/Version.ts"),
    ({ version }) => version,
  ),
).pipe(Command.withDescription("Show version information."))

const repeatedText = (name: string, description: string) =>
  Options.text(name).pipe(Options.withDescription(description), Options.repeated)

const serve = Command.make(
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
  lazily(
    () => import("../commands/Serve.ts"),
    ({ serve }) => serve,
  ),
).pipe(
  Command.withDescription(
    'Serve the Tinker API on this machine, with a small real model that trains and samples on the CPU. Prints "listening on http://HOST:PORT" when it is ready; point any client at it with TINKER_BASE_URL and a TINKER_API_KEY such as tml-anything.',
  ),
)

const completions = Command.make(
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
).pipe(Command.withDescription("Print a completion script for bash, zsh or fish."))

// The groups

const auth = Command.make("auth").pipe(
  Command.withDescription("Manage authentication credentials."),
  Command.withSubcommands(authCommands),
)

const billing = Command.make("billing").pipe(
  Command.withDescription("View billing usage."),
  Command.withSubcommands(billingCommands),
)

const checkpoint = Command.make("checkpoint").pipe(
  Command.withDescription("Manage checkpoints."),
  Command.withSubcommands(checkpointCommands),
)

const model = Command.make("model").pipe(
  Command.withDescription("List available models."),
  Command.withSubcommands(modelCommands),
)

const run = Command.make("run").pipe(
  Command.withDescription("Manage training runs."),
  Command.withSubcommands(runCommands),
)

const session = Command.make("session").pipe(
  Command.withDescription("Manage sessions."),
  Command.withSubcommands(sessionCommands),
)

/** The whole command. */
export const root = program.pipe(
  Command.withDescription("Tinker management CLI."),
  Command.withSubcommands([auth, billing, checkpoint, model, run, session, serve, completions, version]),
)

const helpConfig = CliConfig.make({ showBuiltIns: false })

const nodeOf = (
  { descriptor }: { readonly descriptor: CommandDescriptor.Command<unknown> },
  children: ReadonlyArray<Node> = [],
): Node => ({
  name: HashSet.values(CommandDescriptor.getNames(descriptor)).next().value ?? "",
  usage: CommandDescriptor.getUsage(descriptor),
  help: CommandDescriptor.getHelp(descriptor, helpConfig),
  children,
})

/** The names and the syntax of all commands. */
export const tree: Node = nodeOf(root, [
  nodeOf(
    auth,
    authCommands.map((command) => nodeOf(command)),
  ),
  nodeOf(
    billing,
    billingCommands.map((command) => nodeOf(command)),
  ),
  nodeOf(
    checkpoint,
    checkpointCommands.map((command) => nodeOf(command)),
  ),
  nodeOf(
    model,
    modelCommands.map((command) => nodeOf(command)),
  ),
  nodeOf(
    run,
    runCommands.map((command) => nodeOf(command)),
  ),
  nodeOf(
    session,
    sessionCommands.map((command) => nodeOf(command)),
  ),
  nodeOf(serve),
  nodeOf(completions),
  nodeOf(version),
])
