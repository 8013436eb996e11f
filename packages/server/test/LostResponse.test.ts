/** Loses the response to the first pass of a run, between the real SDK and the server on a socket. */
import { spawn } from "node:child_process"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { describe, expect, it } from "@effect/vitest"
import { NodeTinker } from "@effect-tinker/node"
import { Effect, Logger, LogLevel, Redacted } from "effect"
import * as VirtualTime from "effect-tinker/testing/VirtualTime"
import * as FaultyProxy from "./support/FaultyProxy.ts"
import * as Listening from "./support/Listening.ts"
import * as Raw from "./support/Raw.ts"
import * as ThreeSteps from "./support/ThreeSteps.ts"

/** Trains through a proxy and returns the final loss. */
const lossWith = (fault: FaultyProxy.Fault | undefined) =>
  Effect.gen(function* () {
    const { url } = yield* Listening.make()
    const baseUrl = yield* FaultyProxy.make(url, "forward_backward", fault)
    return yield* Effect.flatMap(ThreeSteps.create(), ThreeSteps.run).pipe(
      Effect.scoped,
      Effect.provide(NodeTinker.layer({ baseUrl, apiKey: Redacted.make("tml-a"), attemptTimeout: "2 seconds" })),
      Logger.withMinimumLogLevel(LogLevel.None),
    )
  }).pipe(Effect.scoped)

const client = fileURLToPath(new URL("./support/JournaledClient.ts", import.meta.url))

/** Runs the client in a process of its own until it exits or is killed. */
const processOf = (baseUrl: string, journal: string) =>
  Effect.async<{ readonly code: number | null; readonly output: string }>((resume) => {
    const child = spawn(process.execPath, ["--import", "tsx", client, baseUrl, journal], {
      stdio: ["ignore", "pipe", "inherit"],
    })
    let output = ""
    child.stdout.on("data", (part) => (output += String(part)))
    child.once("close", (code) => resume(Effect.succeed({ code, output })))
    running = child
    return Effect.sync(() => void child.kill("SIGKILL"))
  })

let running: ReturnType<typeof spawn> | undefined

const directory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "tinker-lost-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true })),
)

describe("a lost response to the first forward_backward", () => {
  const faults: ReadonlyArray<readonly [string, FaultyProxy.Fault]> = [
    ["a reset", FaultyProxy.reset],
    ["a 408", FaultyProxy.status(408)],
    ["a 500", FaultyProxy.status(500)],
    ["a 502", FaultyProxy.status(502)],
    ["silence", FaultyProxy.silence],
  ]
  for (const [name, fault] of faults)
    it.live(`a run whose first forward_backward gets ${name} as response ends like a run without faults`, () =>
      Effect.gen(function* () {
        expect(yield* lossWith(fault)).toBe(yield* lossWith(undefined))
      }),
    )

  it.effect("a pass or update with number 0, which creating the model used, gets 409", () =>
    Effect.gen(function* () {
      const { model, post, session } = yield* Raw.make()
      const id = yield* model(yield* session)
      expect((yield* post("forward_backward", Raw.pass(id, 0))).status).toBe(409)
      expect((yield* post("optim_step", Raw.step(id, 0))).status).toBe(409)
      expect((yield* post("forward_backward", Raw.pass(id, 1))).status).toBe(200)
    }).pipe(Effect.scoped, VirtualTime.run),
  )

  it.live("a client that is killed during the first forward_backward resumes from its journal", () =>
    Effect.gen(function* () {
      const expected = yield* lossWith(undefined)
      const journal = join(yield* directory, "journal")
      const { url } = yield* Listening.make()
      const baseUrl = yield* FaultyProxy.make(url, "forward_backward", () => void running?.kill("SIGKILL"))
      expect((yield* processOf(baseUrl, journal)).code).toBe(null)
      const resumed = yield* processOf(baseUrl, journal)
      expect([resumed.code, Number(resumed.output)]).toEqual([0, expected])
    }).pipe(Effect.scoped),
  )
})
