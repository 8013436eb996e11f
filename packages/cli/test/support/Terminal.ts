/** Runs the command in a child process: in a pipe, or on a pseudo-terminal that Python opens. */
import { execFile, spawn } from "node:child_process"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { Data, Effect } from "effect"

const build = fileURLToPath(new URL("../../build.mjs", import.meta.url))

/** Opens a terminal of the given width, runs a program on it, and copies input and output. */
const python = `
import fcntl, os, pty, select, struct, sys, termios
pid, fd = pty.fork()
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, int(sys.argv[1]), 0, 0))
    os.execvp(sys.argv[2], sys.argv[2:])
sources = [fd, 0]
while fd in sources:
    for source in select.select(sources, [], [])[0]:
        try:
            data = os.read(source, 65536)
        except OSError:
            data = b""
        if not data:
            sources.remove(source)
        elif source == fd:
            os.write(1, data)
        else:
            os.write(fd, data)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
`

export class NotRun extends Data.TaggedError("NotRun")<{ readonly message: string }> {}

/** Bundles the command into a directory, because each start of the sources takes seconds, and returns its path. */
export const bundle = (directory: string): Effect.Effect<string, NotRun> =>
  Effect.async((resume) => {
    const output = join(directory, "bundle")
    execFile(process.execPath, [build, output], (error, _, stderr) =>
      resume(
        error === null
          ? Effect.succeed(join(output, "internal", "bin.js"))
          : new NotRun({ message: `the command could not be bundled: ${stderr}` }),
      ),
    )
  })

export interface Options {
  /** The file of the command. */
  readonly bin: string
  readonly args: ReadonlyArray<string>
  readonly env: Readonly<Record<string, string>>
  /** The home directory. */
  readonly directory: string
  /** Where the command runs. */
  readonly cwd?: string
  /** Whether it uses the installed packages: their sources are TypeScript, and the bundle must be below the package. */
  readonly usesPackages?: boolean
  /** The contents of a pipe. */
  readonly input?: string
  /** The width of the terminal; without one, the output is a pipe. */
  readonly columns?: number
  /** The keys typed once the output contains a text, in this order. */
  readonly typed?: ReadonlyArray<readonly [after: string, keys: string]>
}

export interface Ended {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

/** Runs a command to its end. */
export const run = ({
  args,
  bin,
  columns,
  cwd,
  directory,
  env,
  input = "",
  typed = [],
  usesPackages = false,
}: Options): Effect.Effect<Ended, NotRun> =>
  Effect.async<Ended, NotRun>((resume) => {
    const reader = usesPackages ? ["--import", "tsx"] : []
    const command = [process.execPath, ...reader, bin, ...args]
    const [program = "", ...rest] =
      columns === undefined ? command : ["python3", "-c", python, String(columns), ...command]
    const child = spawn(program, rest, {
      env: { PATH: process.env["PATH"], HOME: directory, TERM: "xterm", ...env },
      ...(cwd === undefined ? {} : { cwd }),
    })
    let [stdout, stderr, seen] = ["", "", 0]
    const waiting = [...typed]
    child.stdout.on("data", (part) => {
      stdout += String(part)
      const next = waiting[0]
      if (next === undefined || !stdout.slice(seen).includes(next[0])) return
      seen = stdout.length
      waiting.shift()
      child.stdin.write(next[1])
    })
    child.stderr.on("data", (part) => (stderr += String(part)))
    if (columns === undefined) child.stdin.end(input)
    child.on("error", (cause) =>
      resume(new NotRun({ message: `${program} is needed to open a terminal: ${cause.message}` })),
    )
    child.on("close", (code) => resume(Effect.succeed({ code, stdout, stderr })))
    return Effect.sync(() => void child.kill("SIGKILL"))
  })
