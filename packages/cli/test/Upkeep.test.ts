// doctor, gc and cost: what they decide, and what they do on a server.
import { chmodSync, mkdirSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { describe, expect, it } from "@effect/vitest"
import { DateTime, Effect, Option } from "effect"
import type * as Management from "effect-tinker/protocol/schemas/Management"
import * as Diagnosis from "../src/internal/Diagnosis.js"
import * as Garbage from "../src/internal/Garbage.js"
import * as Command from "./support/Command.ts"
import * as Recording from "./support/Recording.ts"

const day = 86_400_000

const records = (text: string): ReadonlyArray<Record<string, unknown>> =>
  text
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line))

type Answers = Readonly<Record<string, { readonly status?: number; readonly body: unknown }>>

/** A server that gives each answer so many times, and a command that uses it. */
const setup = (answers: Answers, times = 1) =>
  Effect.gen(function* () {
    const exchanges = Object.entries(answers).map(([at, { body, status = 200 }]) => {
      const [method = "", path = ""] = at.split(" ")
      return { request: { method, path, query: [], headers: {}, body: null }, response: { status, body } }
    })
    const server = yield* Recording.serve({
      call: { argv: [] },
      exchanges: Array.from({ length: times }, () => exchanges).flat(),
      result: { exitCode: 0, stdout: "", stderr: "" },
    })
    const directory = yield* Command.directory
    const run = (line: string, options: Partial<Command.Options> = {}) =>
      Command.run(line.split(" "), {
        directory,
        ...options,
        env: { TINKER_BASE_URL: server.url, HF_ENDPOINT: server.url, TINKER_API_KEY: "tml-upkeep", ...options.env },
      })
    return { server, directory, run }
  })

describe("doctor", () => {
  it("what was found is a problem or not", () => {
    expect(Diagnosis.node("20.18.3").status).toBe("failed")
    expect([Diagnosis.node("20.19.0").status, Diagnosis.node("24.0.0").status]).toEqual(["ok", "ok"])
    expect(Diagnosis.clock(1_000_000, 1_004_000).status).toBe("ok")
    expect(Diagnosis.clock(1_000_000, 1_030_000)).toMatchObject({
      status: "warning",
      detail: "The clock is 30 seconds ahead of the server's",
    })
    expect(Diagnosis.clock(1_000_000, 900_000)).toMatchObject({
      status: "failed",
      detail: "The clock is 100 seconds behind the server's",
    })
    expect(Diagnosis.clock(undefined, 0).status).toBe("warning")
    expect(Diagnosis.disk("x", 5e8, undefined).status).toBe("warning")
    expect(Diagnosis.disk("x", 5e9, undefined).status).toBe("ok")
    expect(Diagnosis.disk("x", undefined, "read-only").status).toBe("failed")
    expect([Diagnosis.permissions("f", 0o100600).status, Diagnosis.permissions("f", 0o100644).status]).toEqual([
      "ok",
      "warning",
    ])
  })

  it.live("doctor says what works, what does not and what to do, and prints no key", () =>
    Effect.gen(function* () {
      const capabilities = { body: { supported_models: [{ model_name: "Qwen/Qwen3-8B" }] } }
      const { directory, run } = yield* setup({ "GET /api/v1/get_server_capabilities": capabilities }, 2)
      mkdirSync(join(directory, "home", ".tinker"))
      writeFileSync(join(directory, "home", ".tinker", "credentials.json"), "{}")
      chmodSync(join(directory, "home", ".tinker", "credentials.json"), 0o644)
      const found = yield* run("-f json doctor")
      const status = Object.fromEntries(records(found.stdout).map(({ check, status }) => [check, status]))
      // The tests take place at a time that is not that of the server.
      expect(status).toEqual({
        tinkerfx: "ok",
        node: "ok",
        key: "ok",
        server: "ok",
        "stored keys": "warning",
        network: "ok",
        clock: "failed",
        hub: "ok",
        disk: "ok",
      })
      expect([found.exitCode, found.stderr]).toEqual([1, expect.stringContaining("1 check failed: clock")])
      const shown = yield* run("doctor")
      expect(shown.stdout).toMatch(/What to do:\n {2}stored keys: Run: chmod 600 .*\n {2}clock: Set the clock/)
      expect(shown.stdout + found.stdout).not.toContain("tml-upkeep")
    }).pipe(Effect.scoped),
  )

  it.live("doctor works without a key and without a server", () =>
    Effect.gen(function* () {
      const { run } = yield* setup({})
      const found = yield* run("-f json doctor", { env: { TINKER_API_KEY: "", TINKER_BASE_URL: "http://127.0.0.1:9" } })
      const failed = records(found.stdout).filter(({ status }) => status === "failed")
      expect(failed.map(({ check }) => check)).toEqual(["key", "network"])
      for (const { hint } of failed) expect(hint).toEqual(expect.stringMatching(/\w/))
    }).pipe(Effect.scoped),
  )
})

const checkpoint = (run: string, days: number, more: Partial<Management.Checkpoint> = {}): Management.Checkpoint => ({
  checkpointId: `weights/${days}`,
  checkpointType: "training",
  time: DateTime.unsafeMake(Command.now - days * day),
  tinkerPath: `tinker://${run}/weights/${days}`,
  sizeBytes: Option.some(1000),
  public: false,
  userMetadata: Option.none(),
  expiresAt: Option.none(),
  ...more,
})

const wire = (run: string, days: number) => ({
  checkpoint_id: `weights/${days}`,
  checkpoint_type: "training",
  time: new Date(Command.now - days * day).toISOString(),
  tinker_path: `tinker://${run}/weights/${days}`,
  size_bytes: 5_000_000_000,
  public: false,
})

describe("gc", () => {
  it("old checkpoints are chosen, except for the newest of a run and published ones", () => {
    const all = [
      checkpoint("a", 90),
      checkpoint("a", 60),
      checkpoint("a", 1),
      checkpoint("b", 90),
      checkpoint("c", 80, { public: true }),
      checkpoint("c", 70),
      checkpoint("c", 60, { checkpointType: "sampler" }),
    ]
    const chosen = (rule: Partial<Garbage.Rule>) =>
      Garbage.choose(all, { before: Command.now - 30 * day, keep: 1, type: undefined, ...rule }).map(({ tinkerPath }) =>
        tinkerPath.slice("tinker://".length),
      )
    expect(chosen({})).toEqual(["a/weights/90", "a/weights/60"])
    expect(chosen({ keep: 2 })).toEqual(["a/weights/90"])
    expect(chosen({ keep: 0, type: "sampler" })).toEqual(["c/weights/60"])
    expect(chosen({ keep: 0, before: Command.now - 75 * day })).toEqual(["b/weights/90", "a/weights/90"])
    expect(Garbage.bytesOf(all)).toBe(7000)
    expect(["12h", "2d", "1w", "3x", "d", ""].map(Garbage.spanOf)).toEqual([
      day / 2,
      2 * day,
      7 * day,
      undefined,
      undefined,
      undefined,
    ])
  })

  it.live("gc deletes nothing without the option, and asks first", () =>
    Effect.gen(function* () {
      const list = {
        checkpoints: [wire("a", 90), wire("a", 60), wire("a", 1)],
        cursor: { offset: 0, limit: 1000, total_count: 3 },
      }
      const { run, server } = yield* setup(
        {
          "GET /api/v1/checkpoints": { body: list },
          "DELETE /api/v1/training_runs/a/checkpoints/weights/90": { body: {} },
          "DELETE /api/v1/training_runs/a/checkpoints/weights/60": { body: {} },
        },
        3,
      )
      const deletions = () => server.requests().filter(({ method }) => method === "DELETE").length
      const dry = yield* run("gc")
      expect([dry.exitCode, dry.stdout]).toEqual([
        0,
        expect.stringMatching(/2 checkpoints to delete, 1 to keep.*save 9.3 GB, about \$1\.00 per month.*--delete/s),
      ])
      const declined = yield* run("gc --delete", { input: "n\n" })
      expect([declined.stdout, deletions()]).toEqual([expect.stringMatching(/Nothing was deleted\.\n$/), 0])
      const deleted = yield* run("gc --delete -y")
      expect([deleted.exitCode, deleted.stdout, deletions()]).toEqual([
        0,
        expect.stringContaining("Deleted 2 checkpoint(s)"),
        2,
      ])
      const wrong = yield* run("gc --older-than soon")
      expect([wrong.exitCode, wrong.stderr]).toEqual([2, expect.stringContaining("'--older-than'")])
    }).pipe(Effect.scoped),
  )
})

describe("cost", () => {
  it.live("an estimate names its prices, and a missing price says what to do", () =>
    Effect.gen(function* () {
      const { directory, run } = yield* setup({})
      const sft = yield* run("-f json cost estimate sft --model Qwen/Qwen3-8B --tokens 1000000 --epochs 2")
      expect(records(sft.stdout).at(-1)).toMatchObject({ kind: "total", usd: 0.88 })
      const rl = "cost estimate rl --steps 10 --groups 2 --group-size 2 --prompt-tokens 10 --answer-tokens 10"
      const unknown = yield* run(`${rl} --model my/model`)
      expect([unknown.exitCode, unknown.stderr]).toEqual([1, expect.stringMatching(/my\/model.*\n.*--prices/)])
      const prices = { prefill: 1, cachedPrefill: 1, sample: 1, train: 1 }
      const list = { date: "2026-01-01", source: "mine", models: { "*": prices }, storagePerGigabyteMonth: 0 }
      writeFileSync(join(directory, "prices.json"), JSON.stringify(list))
      const own = yield* run(`-f json ${rl} --model my/model --prices prices.json`)
      expect(records(own.stdout).at(-1)).toMatchObject({ kind: "total", prices_of: "2026-01-01" })
      const pairs = yield* run(
        "-f json cost estimate dpo --model my/model --prices prices.json --tokens 1000000 --epochs 2",
      )
      // Two epochs, and one pass of the reference.
      expect(records(pairs.stdout).at(-1)).toMatchObject({ kind: "total", usd: 3 })
      const dear = { prefill: 1000, cachedPrefill: 1000, sample: 1000, train: 1000 }
      writeFileSync(
        join(directory, "prices.json"),
        JSON.stringify({ ...list, models: { "*": prices, "my/teacher": dear } }),
      )
      const distill = `-f json ${rl.replace("rl", "distill")} --model my/model --prices prices.json`
      // 400 tokens of prompts, 400 of answers, 800 trained, and 800 that the teacher reads.
      expect(records((yield* run(distill)).stdout).at(-1)).toMatchObject({ kind: "total", usd: 0.0024 })
      const taught = yield* run(`${distill} --teacher my/teacher`)
      expect(records(taught.stdout).at(-1)).toMatchObject({ kind: "total", usd: 0.8016 })
      const absent = yield* run("cost estimate sft")
      expect([absent.exitCode, absent.stderr]).toEqual([2, "Error: Missing options '--model', '--tokens'.\n"])
    }).pipe(Effect.scoped),
  )

  it.live("what a run has counted is shown, and compared with the bill of its sessions", () =>
    Effect.gen(function* () {
      const tokens = { prefill: 0, cachedPrefill: 0, sampled: 0, trained: 1000 }
      const row = (session: string, count: number) => ({
        bucket_start: "2026-02-28T00:00:00Z",
        bucket_end: "2026-02-28T01:00:00Z",
        base_model: "m",
        session_id: session,
        estimated_cost_usd: 0.5,
        event_info: { type: "training", token_count: count },
      })
      const { directory, run } = yield* setup({
        "GET /api/v1/billing/usage/events": { body: { data: [row("s-1", 1000), row("s-2", 7)] } },
      })
      const files = {
        "spending.json": JSON.stringify({ spent: String(5e11), step: 3, tokens }),
        "config.json": JSON.stringify({ model: "m" }),
        "events.jsonl": `{"_tag":"Checkpoint","statePath":"tinker://s-1:train:0/weights/final","at":${Command.now - day}}\n`,
      }
      for (const [name, text] of Object.entries(files)) writeFileSync(join(directory, name), text)
      const metered = yield* run("-f json cost meter .")
      expect(records(metered.stdout)).toEqual([{ model: "m", steps: 4, usd: 0.5, ...tokens }])
      const compared = yield* run("cost reconcile .")
      expect([compared.exitCode, compared.stderr]).toEqual([0, ""])
      expect(compared.stdout).toContain("The bill agrees with the run.")
      expect((yield* run("cost meter home")).stderr).toContain("has not counted what it spends")
    }).pipe(Effect.scoped),
  )
})
