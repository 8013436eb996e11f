/**
 * Our SDK against the open servers that speak the Tinker API: installs them, starts them, trains and samples, and
 * prints what worked. `--help` tells the rest.
 */
import { Runtime } from "@effect/platform"
import { NodeRuntime } from "@effect/platform-node"
import { Console, Effect, Exit, Option } from "effect"
import { mkdirSync, mkdtempSync, rmSync, statfsSync } from "node:fs"
import { tmpdir } from "node:os"
import { join, resolve } from "node:path"
import { parseArgs } from "node:util"
import { checks } from "./Checks.ts"
import { install, type Server } from "./Server.ts"
import { output, SetupFailed } from "./Shell.ts"
import { skyrl } from "./Skyrl.ts"
import { tuft } from "./Tuft.ts"

const servers: ReadonlyArray<Server> = [skyrl, tuft]
const defaultWork = join(tmpdir(), "effect-tinker-servers")

const usage = `Usage: pnpm test:servers [${servers.map(({ name }) => name).join("|")} ...] [options]

Runs this SDK against open servers of the Tinker API on this machine's CPU; without a name against all of them.
The first run installs them from PyPI: about 7 GB and five minutes each. Later runs take a few minutes.

  --work <directory>   where servers are installed and run (default: ${defaultWork})
  --python <command>   Python 3.11 or 3.12 (default: the first of python3.11, python3.12, python3 that is one)
  --install-only       install, and start nothing
  --keep               keep the logs and checkpoints of the run also if all went well
  --help               this text

Needs Linux (Ray wants 127.0.0.2 on the loopback interface), 10 GB of disk and 8 GB of memory. Nothing but the
installation uses the network. Ctrl-C stops the servers. The exit code is 1 if a check failed.`

/** The command of a Python that the servers run on. */
const findPython = (asked: string | undefined): Effect.Effect<string, SetupFailed> => {
  const candidates = asked === undefined ? ["python3.11", "python3.12", "python3"] : [asked]
  return Effect.findFirst(candidates, (command) =>
    output(command, ["-c", "import venv, sys; print('%d.%d' % sys.version_info[:2])"]).pipe(
      Effect.map((version) => version === "3.11" || version === "3.12"),
      Effect.orElseSucceed(() => false),
    ),
  ).pipe(
    Effect.flatMap(
      Option.match({
        onSome: Effect.succeed,
        onNone: () =>
          new SetupFailed({
            message: `none of ${candidates.join(", ")} is a Python 3.11 or 3.12 with its venv module`,
          }),
      }),
    ),
  )
}

/** The exit code after Ctrl-C. */
const interrupted = 130

const options = Effect.try({
  try: () =>
    parseArgs({
      allowPositionals: true,
      options: {
        work: { type: "string" },
        python: { type: "string" },
        "install-only": { type: "boolean" },
        keep: { type: "boolean" },
        help: { type: "boolean" },
      },
    }),
  catch: (error) => new SetupFailed({ message: `${error instanceof Error ? error.message : error}\n\n${usage}` }),
})

/** One server from nothing to its table. True if no check failed. */
const test = (
  server: Server,
  given: { readonly work: string; readonly python: string; readonly installOnly: boolean; readonly keep: boolean },
) =>
  Effect.gen(function* () {
    const { bavail, bsize } = statfsSync(given.work)
    const home = yield* install(server, { ...given, freeBytes: bavail * bsize })
    if (given.installOnly) return true
    const run = mkdtempSync(join(home.path, "run-"))
    yield* Console.log(`${server.title}: starting; its logs are in ${run}`)
    const passed = yield* Effect.scoped(
      Effect.flatMap(server.start(home, run), (address) => checks(server.name, address)),
    )
    if (passed && !given.keep) rmSync(run, { recursive: true, force: true })
    return passed
  }).pipe(
    Effect.catchTag("SetupFailed", ({ message }) => Effect.as(Console.error(`${server.title}: ${message}`), false)),
  )

const program = Effect.gen(function* () {
  const { positionals, values } = yield* options
  if (values.help === true) return yield* Console.log(usage)
  const unknown = positionals.find((name) => !servers.some((server) => server.name === name))
  if (unknown !== undefined) return yield* new SetupFailed({ message: `there is no server "${unknown}"\n\n${usage}` })
  const work = resolve(values.work ?? defaultWork)
  mkdirSync(work, { recursive: true })
  const python = yield* findPython(values.python)
  const given = { work, python, installOnly: values["install-only"] ?? false, keep: values.keep ?? false }
  const chosen = servers.filter(({ name }) => positionals.length === 0 || positionals.includes(name))
  // One after the other: each wants the whole machine.
  const passed = yield* Effect.forEach(chosen, (server) => test(server, given))
  if (passed.includes(false)) process.exitCode = 1
}).pipe(
  Effect.catchTag("SetupFailed", ({ message }) =>
    Effect.zipRight(
      Console.error(message),
      Effect.sync(() => {
        process.exitCode = 1
      }),
    ),
  ),
)

NodeRuntime.runMain(program, {
  teardown: (exit, onExit) =>
    Runtime.defaultTeardown(exit, (code) => onExit(Exit.isInterrupted(exit) ? interrupted : code)),
})
