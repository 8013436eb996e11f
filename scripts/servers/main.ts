/**
 * Tests our SDK with open servers that implement the Tinker API: installs and starts them, trains and samples, and
 * prints the results. See `--help`.
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

Tests this SDK with open servers of the Tinker API on the CPU of this machine. Default: all servers.
The first run installs them from PyPI: about 7 GB and five minutes each. Later runs take a few minutes.

  --work <directory>   directory to install and run servers in (default: ${defaultWork})
  --python <command>   Python 3.11 or 3.12 (default: the first match of python3.11, python3.12, python3)
  --install-only       only install the servers
  --keep               keep logs and checkpoints even if all checks pass
  --help               show this help

Needs Linux (Ray uses 127.0.0.2 on the loopback interface), 10 GB of disk and 8 GB of memory. Only the installation
uses the network. Ctrl-C stops the servers. The exit code is 1 if a check failed.`

/** Finds a Python command that the servers support. */
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

/** Installs, starts and checks one server. Returns true if no check failed. */
const test = (
  server: Server,
  given: { readonly work: string; readonly python: string; readonly installOnly: boolean; readonly keep: boolean },
) =>
  Effect.gen(function* () {
    const { bavail, bsize } = statfsSync(given.work)
    const home = yield* install(server, { ...given, freeBytes: bavail * bsize })
    if (given.installOnly) return true
    const run = mkdtempSync(join(home.path, "run-"))
    yield* Console.log(`${server.title}: starting; logs are in ${run}`)
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
  if (unknown !== undefined) return yield* new SetupFailed({ message: `unknown server "${unknown}"\n\n${usage}` })
  const work = resolve(values.work ?? defaultWork)
  mkdirSync(work, { recursive: true })
  const python = yield* findPython(values.python)
  const given = { work, python, installOnly: values["install-only"] ?? false, keep: values.keep ?? false }
  const chosen = servers.filter(({ name }) => positionals.length === 0 || positionals.includes(name))
  // Sequentially: each server needs the whole machine.
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
