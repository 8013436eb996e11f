// Tests behavior that the recordings don't show: questions, refusals, interruptions, secrets, terminals.
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { describe, expect, it } from "@effect/vitest"
import { Deferred, Effect } from "effect"
import * as Command from "./support/Command.ts"
import * as Recording from "./support/Recording.ts"

const key = "tml-very-secret"

const terminal = { isTerminal: true, isInteractive: true, width: 80 } as const

/** A server with the given answers, and a command that uses it. */
const setup = (answers: Readonly<Record<string, { readonly status?: number; readonly body: unknown }>>) =>
  Effect.gen(function* () {
    const exchanges = Object.entries(answers).map(([at, { body, status = 200 }]) => {
      const [method = "", path = ""] = at.split(" ")
      return { request: { method, path, query: [], headers: {}, body: null }, response: { status, body } }
    })
    const recording = { call: { argv: [] }, exchanges, result: { exitCode: 0, stdout: "", stderr: "" } }
    const server = yield* Recording.serve(recording)
    const directory = yield* Command.directory
    const run = (line: string, options: Partial<Command.Options> = {}) =>
      Command.run(line.split(" "), {
        directory,
        ...options,
        env: { TINKER_BASE_URL: server.url, TINKER_API_KEY: key, ...options.env },
      })
    return { server, directory, run }
  })

const files = {
  "GET /api/v1/training_runs/run-1/checkpoints/external_weights/final/external_weights_urls": {
    body: { urls: { "adapter_config.json": "http://127.0.0.1:PORT/files/a" }, expires: "2099-01-01T00:00:00Z" },
  },
  "GET /files/a": { body: "content" },
}

const external = "tinker://run-1/external_weights/final"

describe("questions", () => {
  it.live("an existing directory is overwritten only after a yes, with --force or with -y", () =>
    Effect.gen(function* () {
      const { directory, run } = yield* setup(files)
      const target = join(directory, "run-1_external_weights_final")
      mkdirSync(target)
      writeFileSync(join(target, "mine"), "")
      const refused = yield* run(`checkpoint download ${external}`)
      expect([refused.exitCode, refused.stderr]).toEqual([
        1,
        `Error: Target directory already exists: ${target}\nUse --force to overwrite or choose a different output directory.\n`,
      ])
      const declined = yield* run(`checkpoint download ${external}`, {
        shell: { ...terminal, line: Effect.succeedSome("n") },
      })
      expect([declined.exitCode, declined.stdout, declined.stderr]).toEqual([
        1,
        `${target} exists. Overwrite it? [y/N]: `,
        "Aborted!\n",
      ])
      expect(readdirSync(target)).toEqual(["mine"])
      const agreed = yield* run(`checkpoint download ${external} -y`)
      expect([agreed.exitCode, readdirSync(target)]).toEqual([0, ["adapter_config.json"]])
      expect(existsSync(`${target}.part`)).toBe(false)
    }).pipe(Effect.scoped),
  )

  it.live("nothing is deleted when the input ends before the answer, and a strange answer is asked again", () =>
    Effect.gen(function* () {
      const { run, server } = yield* setup({})
      const ended = yield* run("checkpoint delete tinker://a/weights/b")
      expect([ended.exitCode, ended.stderr, server.requests()]).toEqual([1, "Aborted!\n", []])
      const strange = yield* run("checkpoint delete tinker://a/weights/b", { input: "maybe\nNo\n" })
      expect([strange.exitCode, server.requests()]).toEqual([0, []])
      expect(strange.stdout).toMatch(/\[y\/N\]: Error: invalid input\n.* \[y\/N\]: Deletion cancelled\.\n$/)
    }).pipe(Effect.scoped),
  )

  it.live("a checkpoint that cannot be deleted is named, and the exit code is 1", () =>
    Effect.gen(function* () {
      const { run } = yield* setup({
        "DELETE /api/v1/training_runs/a/checkpoints/weights/x": { status: 404, body: { detail: "gone" } },
      })
      const { exitCode, stderr, stdout } = yield* run("checkpoint delete tinker://a/weights/x tinker://a/weights/y -y")
      expect([exitCode, stdout]).toEqual([
        1,
        expect.stringMatching(
          /Deleted 1 checkpoint\(s\)\nFailed to delete 1 checkpoint\(s\):\n {2}- tinker:\/\/a\/weights\/x: .*gone/,
        ),
      ])
      expect(stderr).toContain("1 of 2 checkpoint(s) could not be deleted")
    }).pipe(Effect.scoped),
  )

  it.live("a file is overwritten by a script, and by a person only after a yes", () =>
    Effect.gen(function* () {
      const answers = { "GET /api/v1/billing/usage/checkpoints/current": { body: { data: [] } } }
      const { directory, run } = yield* setup(answers)
      writeFileSync(join(directory, "out.csv"), "old")
      const declined = yield* run("billing checkpoint-storage --csv out.csv", {
        shell: { ...terminal, line: Effect.succeedSome("") },
      })
      expect([declined.exitCode, readFileSync(join(directory, "out.csv"), "utf8")]).toEqual([1, "old"])
      const again = yield* setup(answers)
      writeFileSync(join(again.directory, "out.csv"), "old")
      const script = yield* again.run("billing checkpoint-storage --csv out.csv")
      expect([script.exitCode, script.stderr]).toEqual([0, "Wrote 0 row(s) to out.csv\n"])
      expect(readFileSync(join(again.directory, "out.csv"), "utf8")).toBe("\r\n")
    }).pipe(Effect.scoped),
  )
})

describe("errors", () => {
  it.live("every failure is one line about what happened and one about what to do, and --verbose adds the cause", () =>
    Effect.gen(function* () {
      const { run } = yield* setup({
        "GET /api/v1/training_runs/a": { status: 422, body: { detail: "bad id" } },
        "GET /api/v1/training_runs/b": { status: 401, body: { detail: "unknown key" } },
      })
      const rejected = yield* run("run info a")
      expect([rejected.exitCode, rejected.stderr]).toEqual([
        1,
        "Error: Invalid data provided: bad id\nCheck the arguments.\n",
      ])
      const unknown = yield* run("--verbose run info b")
      const lines = unknown.stderr.split("\n").filter((line) => !line.startsWith("timestamp="))
      expect(lines.slice(0, 2)).toEqual([
        "Error: Authentication failed: unknown key",
        "Please check your API key or authentication credentials.",
      ])
      expect(lines[2]).toContain("Cause: Unauthorized: training_runs")
      expect(unknown.stderr).not.toContain(key)
    }).pipe(Effect.scoped),
  )

  it.live("without credentials a command says where they are missing, and auth status says no", () =>
    Effect.gen(function* () {
      const { run } = yield* setup({})
      const env = { TINKER_API_KEY: "" }
      const missing = yield* run("run list", { env })
      expect([missing.exitCode, missing.stderr]).toEqual([
        1,
        expect.stringMatching(/^Error: Configuration error: TINKER_API_KEY: not set.*\n.*auth status.*\n$/),
      ])
      expect(yield* run("auth status", { env })).toEqual({
        exitCode: 1,
        stdout: "Credentials available: no\n",
        stderr:
          "Error: No Tinker credentials are available\nRun 'tinkerfx auth login' or configure a Tinker credential.\n",
      })
    }).pipe(Effect.scoped),
  )

  it.live("auth status and auth login say no when the server refuses the key, and store nothing", () =>
    Effect.gen(function* () {
      const refusal = { status: 401, body: { detail: "unknown key" } }
      const { directory, run } = yield* setup({
        "GET /api/v1/get_server_capabilities": refusal,
        "GET /api/v1/auth/apikey/me": refusal,
      })
      const status = yield* run("auth status")
      expect([status.exitCode, status.stdout]).toEqual([1, "Credentials available: yes\nTinker accessible: no\n"])
      const login = yield* run("auth login", { input: `${key}\n` })
      expect([login.exitCode, login.stderr]).toEqual([
        1,
        expect.stringMatching(/^Error: Could not validate the API key: .*unknown key\n/),
      ])
      expect(login.stdout + login.stderr).not.toContain(key)
      expect(readdirSync(join(directory, "home"))).toEqual([])
    }).pipe(Effect.scoped),
  )

  it.live("a substring that no model contains is an error that names the organization", () =>
    Effect.gen(function* () {
      const { run } = yield* setup({
        "GET /api/v1/get_server_capabilities": { body: { supported_models: [{ model_name: "Qwen/Qwen3-8B" }] } },
        "POST /api/v1/client/config": { body: { pjwt_auth_enabled: true } },
        "POST /api/v1/auth/token": { body: { jwt: "<JWT>" } },
      })
      const { exitCode, stderr } = yield* run("model list llama")
      expect([exitCode, stderr]).toEqual([
        1,
        "Error: No model name contains 'llama' for organization tml:organization:org-1\nRun 'tinkerfx model list' to see every model this organization can use.\n",
      ])
    }).pipe(Effect.scoped),
  )

  it.live("unknown columns and unsafe file names are refused", () =>
    Effect.gen(function* () {
      const { directory, run } = yield* setup({
        ...files,
        "GET /api/v1/training_runs/run-1/checkpoints/external_weights/final/external_weights_urls": {
          body: { urls: { "../evil": "http://127.0.0.1:PORT/files/a" }, expires: "2099-01-01T00:00:00Z" },
        },
      })
      const columns = yield* run("run list --columns id,nope")
      expect([columns.exitCode, columns.stderr]).toEqual([2, expect.stringContaining("Unknown column(s): nope.")])
      const unsafe = yield* run(`checkpoint download ${external}`)
      expect([unsafe.exitCode, unsafe.stderr]).toEqual([
        1,
        expect.stringContaining("Unsafe file path in checkpoint: ../evil"),
      ])
      expect(existsSync(join(directory, "evil"))).toBe(false)
    }).pipe(Effect.scoped),
  )
})

describe("lists", () => {
  const run = (id: number) => ({
    training_run_id: `run-${id}`,
    base_model: "m",
    model_owner: "o",
    is_lora: false,
    last_request_time: "2026-02-28T22:00:00Z",
  })

  it.live("long lists are read page by page, and say how many entries are not shown", () =>
    Effect.gen(function* () {
      const page = (count: number) => ({
        body: {
          training_runs: Array.from({ length: count }, (_, id) => run(id)),
          cursor: { offset: 0, limit: 0, total_count: 250 },
        },
      })
      const { run: command, server } = yield* setup({ "GET /api/v1/training_runs": page(2) })
      const few = yield* command("run list --limit 2")
      expect(few.stdout.replaceAll(/\s+/g, " ")).toContain(
        "2 training runs (248 more not shown, use --limit to see more)",
      )
      expect(few.stdout).toContain("2 hours ago")
      expect(server.requests().map(({ query }) => query[0])).toEqual([["limit", "2"]])
    }).pipe(Effect.scoped),
  )
})

describe("interruptions", () => {
  it.live("an interrupted download says what is kept, exits with 130, and continues there", () =>
    Effect.gen(function* () {
      const two = {
        ...files,
        "GET /api/v1/training_runs/run-1/checkpoints/external_weights/final/external_weights_urls": {
          body: {
            urls: { a: "http://127.0.0.1:PORT/files/a", b: "http://127.0.0.1:PORT/files/b" },
            expires: "2099-01-01T00:00:00Z",
          },
        },
        "GET /files/b": { body: "more" },
      }
      const first = yield* setup(two)
      const reached = yield* Deferred.make<void>()
      const seen: Array<string> = []
      // Stops where the label of the second file is printed.
      const stopped = yield* first.run(`checkpoint download ${external}`, {
        shell: {
          out: (text) =>
            text === "b\n" ? Effect.zipRight(Deferred.succeed(reached, undefined), Effect.never) : Effect.void,
          err: (text) => Effect.sync(() => void seen.push(text)),
          stopped: Deferred.await(reached),
        },
      })
      expect(stopped.exitCode).toBe(130)
      const target = join(first.directory, "run-1_external_weights_final")
      expect(seen).toEqual([
        `Saved 1 of 2 files in ${target}.part; the same command continues there.\n`,
        "Interrupted.\n",
      ])
      expect([existsSync(target), readdirSync(`${target}.part`)]).toEqual([false, ["a"]])
      const second = yield* setup(two)
      const again = yield* Command.run(["checkpoint", "download", external], {
        directory: first.directory,
        env: { TINKER_BASE_URL: second.server.url, TINKER_API_KEY: key },
      })
      expect([again.exitCode, readdirSync(target)]).toEqual([0, ["a", "b"]])
      expect(second.server.requests().map(({ path }) => path)).not.toContain("/files/a")
    }).pipe(Effect.scoped),
  )
})

describe("terminals", () => {
  it.live("tables have colors", () =>
    Effect.gen(function* () {
      const { run } = yield* setup({
        "GET /api/v1/get_server_capabilities": { body: { supported_models: [{ model_name: "Qwen/Qwen3-8B" }] } },
      })
      const colored = yield* run("model list", { shell: { ...terminal, hasColors: true } })
      expect(colored.stdout).toContain("\u001b[96mQwen/Qwen3-8B")
    }).pipe(Effect.scoped),
  )

  it.live("an empty key and the end of the input are refused", () =>
    Effect.gen(function* () {
      const { run } = yield* setup({})
      const empty = yield* run("auth login", { input: " \n" })
      expect([empty.exitCode, empty.stderr.split("\n")[0]]).toEqual([1, "Error: The API key must not be empty"])
      const ended = yield* run("auth login")
      expect([ended.exitCode, ended.stderr]).toEqual([1, "Aborted!\n"])
    }).pipe(Effect.scoped),
  )
})
