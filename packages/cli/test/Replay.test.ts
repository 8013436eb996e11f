// Runs every recorded command line of the official command with ours: same requests, output and exit code. What differs
// on purpose is in docs/decisions/differences.md and stated here by its own test.
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import * as Command from "./support/Command.ts"
import * as Recording from "./support/Recording.ts"

const key = "tml-recorded"

/** The program's name is the one word that a script has to change. */
const renamed = (text: string) => text.replaceAll(/\btinker (auth|model|run|checkpoint|session)\b/g, "tinkerfx $1")

interface Setup {
  readonly input?: string
  /** The credentials file before the command runs; without it, the key is in the environment. */
  readonly stored?: object
}

const manual = (name: string) => ({
  version: 1,
  default: "42",
  keys: {
    "42": {
      type: "manual",
      key: "tml-pasted",
      name,
      note: "",
      details: { org_details: { name: "Org" }, user_details: { email: "u@example.invalid" } },
    },
  },
})

const generated = {
  version: 1,
  default: "7",
  keys: {
    "7": {
      type: "generated",
      key: "tml-generated",
      name: "gen",
      details: { org_details: { name: "Org" }, user_details: { email: "u@example.invalid" } },
    },
  },
}

const credentials = (directory: string) => join(directory, "home", ".tinker", "credentials.json")

/** Runs the recorded command line against its recorded answers. */
const replayed = (file: string, { input, stored }: Setup = {}) =>
  Effect.gen(function* () {
    const recording = Recording.read(file)
    const server = yield* Recording.serve(recording)
    const directory = yield* Command.directory
    if (stored !== undefined) {
      mkdirSync(join(directory, "home", ".tinker"))
      writeFileSync(credentials(directory), JSON.stringify(stored))
    }
    const result = yield* Command.run(recording.call.argv.slice(1), {
      directory,
      env: { TINKER_BASE_URL: server.url, ...(stored === undefined ? { TINKER_API_KEY: key } : {}) },
      ...(input === undefined ? {} : { input }),
    })
    const plain = (text: string) =>
      text.replaceAll(directory, "<CWD>").replaceAll(encodeURIComponent("<HOST>"), "<HOST>").replaceAll("\r\n", "\n")
    return { recording, server, directory, result, stdout: plain(result.stdout), stderr: plain(result.stderr) }
  })

/** States that output, exit code and requests are the recorded ones. */
const same = (file: string, setup?: Setup) =>
  it.live(`${file}: prints and sends what was recorded`, () =>
    Effect.gen(function* () {
      const { recording, result, server, stderr, stdout } = yield* replayed(file, setup)
      expect([result.exitCode, stdout, stderr]).toEqual([
        recording.result.exitCode,
        renamed(recording.result.stdout),
        renamed(recording.result.stderr),
      ])
      expect(server.requests()).toEqual(Recording.requestsOf(recording))
      expect(result.stdout + result.stderr).not.toContain(key)
    }).pipe(Effect.scoped),
  )

describe("commands that print what the official command prints", () => {
  same("vectors/cli_auth_login_twice.json", { stored: manual("tinker-cli-host") })
  same("vectors/cli_auth_logout_generated.json", { stored: generated })
  same("vectors/cli_auth_status.json")
  same("vectors/cli_auth_whoami.json")
  same("vectors/cli_auth_whoami_json.json")
  same("vectors/cli_billing_checkpoint_storage.json")
  same("vectors/cli_billing_usage.json")
  same("vectors/cli_billing_usage_csv.json")
  same("vectors/cli_billing_usage_json.json")
  same("vectors/cli_checkpoint_delete.json")
  same("vectors/cli_checkpoint_delete_declined.json", { input: "n\n" })
  same("vectors/cli_checkpoint_delete_json.json")
  same("vectors/cli_checkpoint_delete_run_filtered.json", { input: "y\n" })
  same("vectors/cli_checkpoint_download_external.json")
  same("vectors/cli_checkpoint_download_sampler.json")
  same("vectors/cli_checkpoint_info.json")
  same("vectors/cli_checkpoint_list_run.json")
  same("vectors/cli_checkpoint_publish.json")
  same("vectors/cli_checkpoint_set_ttl.json")
  same("vectors/cli_checkpoint_set_ttl_neither.json")
  same("vectors/cli_checkpoint_unpublish.json")
  same("vectors/cli_model_list.json")
  same("vectors/cli_model_list_filter_json.json")
  same("vectors/cli_run_info.json")
  same("vectors/cli_run_list.json")
  same("vectors/cli_run_list_columns.json")
  same("vectors/cli_run_list_stored_credential.json", { stored: manual("tinker-cli-host") })
  same("vectors/cli_session_export_trace.json")
  same("vectors/cli_session_export_trace_url.json")
  same("vectors/cli_usage_error.json")
})

// oxlint-disable-next-line no-control-regex
const links = /\u001b\]8;;[^\u001b]*\u001b\\/g

describe("commands that differ on purpose", () => {
  it.live("vectors/cli_auth_login.json: stores the key as recorded, and prints no escape codes into a pipe", () =>
    Effect.gen(function* () {
      const { directory, recording, result, server, stderr, stdout } = yield* replayed("vectors/cli_auth_login.json", {
        input: "tml-pasted\n",
        stored: { version: 1, keys: {} },
      })
      expect([result.exitCode, stdout, stderr]).toEqual([0, recording.result.stdout.replaceAll(links, ""), ""])
      expect(server.requests()).toEqual(Recording.requestsOf(recording))
      expect(server.keys()).toEqual(["tml-pasted"])
      const path = credentials(directory)
      expect(JSON.parse(readFileSync(path, "utf8"))).toEqual(recording.result.credentialsFile)
      expect(`0o${(statSync(path).mode & 0o777).toString(8)}`).toBe(recording.result.credentialsFileMode)
      expect(readdirSync(join(path, ".."))).toEqual(["credentials.json"])
    }).pipe(Effect.scoped),
  )

  it.live("vectors/cli_auth_logout.json: removes the key, and prints no escape codes into a pipe", () =>
    Effect.gen(function* () {
      const { directory, recording, result, stderr, stdout } = yield* replayed("vectors/cli_auth_logout.json", {
        stored: manual("tinker-cli-host"),
      })
      expect([result.exitCode, stdout, stderr]).toEqual([0, recording.result.stdout.replaceAll(links, ""), ""])
      expect(JSON.parse(readFileSync(credentials(directory), "utf8"))).toEqual({ version: 1, keys: {} })
    }).pipe(Effect.scoped),
  )

  it.live("vectors/cli_checkpoint_download_training.json: names this command as the creator of the run", () =>
    Effect.gen(function* () {
      const { directory, recording, result, server, stderr, stdout } = yield* replayed(
        "vectors/cli_checkpoint_download_training.json",
      )
      expect([result.exitCode, stdout, stderr]).toEqual([0, recording.result.stdout, recording.result.stderr])
      const text = JSON.stringify(server.requests()).replace(
        "tinkerfx checkpoint download",
        "tinker checkpoint download",
      )
      const versions = /"sdk_version":"[^"]+"/g
      expect(JSON.parse(text.replaceAll(versions, '"sdk_version":""'))).toEqual(
        JSON.parse(JSON.stringify(Recording.requestsOf(recording)).replaceAll(versions, '"sdk_version":""')),
      )
      expect(readdirSync(join(directory, "run-1_weights_final"))).toEqual([
        "adapter_config.json",
        "adapter_model.safetensors",
      ])
    }).pipe(Effect.scoped),
  )

  for (const [file, words] of [
    ["vectors/cli_error_403.json", "forbidden"],
    ["vectors/cli_error_404.json", "no such run"],
  ] as const)
    it.live(`${file}: says what happened and what to do in two lines, without Python's notation`, () =>
      Effect.gen(function* () {
        const { recording, result, server, stderr, stdout } = yield* replayed(file)
        expect([result.exitCode, stdout]).toEqual([recording.result.exitCode, ""])
        const [happened = "", todo = "", ...rest] = stderr.split("\n")
        expect(happened).toBe(`${recording.result.stderr.split("\n")[0]}: ${words}`)
        expect([todo.length > 20, rest]).toEqual([true, [""]])
        expect(server.requests()).toEqual(Recording.requestsOf(recording))
      }).pipe(Effect.scoped),
    )

  it.live("vectors/cli_help.json: contains every recorded option and group in its recorded words", () =>
    Effect.gen(function* () {
      const { recording, result } = yield* replayed("vectors/cli_help.json")
      const entries = (text: string) => text.replaceAll(/ {2,}/g, "  ").split("\n")
      const expected = entries(recording.result.stdout.replace("Usage: tinker ", "Usage: tinkerfx "))
      expect(expected.filter((line) => !entries(result.stdout).includes(line))).toEqual([])
      expect([result.exitCode, result.stderr]).toEqual([0, ""])
    }).pipe(Effect.scoped),
  )

  it.live("vectors/cli_version.json: names this command and its version", () =>
    Effect.gen(function* () {
      const { recording, result } = yield* replayed("vectors/cli_version.json")
      expect(recording.result.stdout).toBe("tinker 0.36.0\n")
      expect(result).toEqual({ exitCode: 0, stdout: "tinkerfx 0.1.0\n", stderr: "" })
    }).pipe(Effect.scoped),
  )
})
