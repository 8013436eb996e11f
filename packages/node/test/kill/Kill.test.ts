// Kills the process of a training run repeatedly, at random moments, for every kind of server. `TINKER_KILLS` sets the
// number of kills per kind (default: 6 in `test:all`, otherwise 2), `TINKER_KILL_SEED` repeats a choice of moments.
import { type ChildProcess, spawn } from "node:child_process"
import { readdir } from "node:fs/promises"
import { join } from "node:path"
import { createInterface } from "node:readline"
import { describe, expect, it } from "@effect/vitest"
import { Effect, Option, Random, Schedule } from "effect"
import { bundle, directory } from "./bundle.ts"
import type { Done, Ending, Plan } from "./control.ts"

const kills = Number(process.env["TINKER_KILLS"] ?? (process.env["TINKER_TESTS"] === "all" ? 6 : 2))
const seed = process.env["TINKER_KILL_SEED"] ?? String(Date.now())
/** More steps than the killed processes complete. */
const steps = 4 * kills
const modes = ["dedupe", "nextOnly", "anything"] as const

const exited = (child: ChildProcess) =>
  Effect.async<NodeJS.Signals | number | null>((resume) => {
    const end = () => resume(Effect.succeed(child.signalCode ?? child.exitCode))
    if (child.signalCode !== null || child.exitCode !== null) end()
    else child.once("close", end)
  })

const running = (program: string, args: ReadonlyArray<string>) =>
  Effect.acquireRelease(
    Effect.sync(() => spawn(process.execPath, [program, ...args], { stdio: ["ignore", "pipe", "pipe"] })),
    (child) =>
      Effect.zipRight(
        Effect.sync(() => child.kill("SIGKILL")),
        exited(child),
      ),
  )

const outputOf = (stream: NodeJS.ReadableStream | null) => {
  let text = ""
  stream?.on("data", (part) => (text += String(part)))
  return () => text
}

/** Starts the server and returns functions that control it. */
const serve = (program: string) =>
  Effect.gen(function* () {
    const child = yield* running(program, [])
    const port = yield* Effect.promise(
      async () => (await createInterface({ input: child.stdout })[Symbol.asyncIterator]().next()).value,
    )
    const url = `http://127.0.0.1:${port}`
    const tell = (path: string, body?: unknown) =>
      Effect.promise(async () => {
        const answer = await fetch(`${url}/control/${path}`, {
          method: "POST",
          body: body === undefined ? "" : JSON.stringify(body),
        })
        return await answer.json()
      })
    return {
      url,
      reset: (mode: (typeof modes)[number]) => tell("reset", mode),
      plan: (plan: Plan | undefined) => tell("plan", plan),
      done: Effect.map(tell("done"), (done): Done => done),
    }
  })

type Server = Effect.Effect.Success<ReturnType<typeof serve>>

/** Runs one client process; returns how it ended, or `killed`. */
const life = (server: Server, program: string, journal: string, plan: Option.Option<(pid: number) => Plan>) =>
  Effect.scoped(
    Effect.gen(function* () {
      const child = yield* running(program, [server.url, journal, String(steps)])
      const [output, complaints] = [outputOf(child.stdout), outputOf(child.stderr)]
      if (Option.isSome(plan)) yield* server.plan(plan.value(child.pid ?? 0))
      const end = yield* exited(child)
      yield* server.plan(undefined)
      if (end === "SIGKILL") return "killed"
      expect(complaints()).toBe("")
      expect(end).toBe(0)
      const ending: Ending = JSON.parse(output())
      return ending
    }),
  )

const anyPlan = Effect.gen(function* () {
  const requests = yield* Random.nextIntBetween(1, 17)
  const when = yield* Random.choice(["before", "after", "answered", "soon"] as const)
  const delay = yield* Random.nextIntBetween(0, 8)
  return (pid: number): Plan => ({ pid, requests, when, delay })
})

/** Runs clients until the run ends, and returns how it ended. */
const run = (
  server: Server,
  program: string,
  mode: (typeof modes)[number],
  nextPlan: Effect.Effect<Option.Option<(pid: number) => Plan>>,
) =>
  Effect.scoped(
    Effect.gen(function* () {
      const home = yield* directory
      yield* server.reset(mode)
      let deaths = 0
      for (;;) {
        const ending = yield* life(server, program, join(home, "journal"), yield* nextPlan)
        if (ending !== "killed") {
          expect(yield* Effect.promise(() => readdir(home))).toEqual(["journal"])
          return { ending, deaths }
        }
        deaths++
      }
    }),
  )

/** Waits for the server to finish accepted work, which a client that ended does not wait for. */
const eventually = (server: Server, isThere: (done: Done) => boolean): Effect.Effect<Done> =>
  Effect.repeat(server.done, {
    until: isThere,
    schedule: Schedule.intersect(Schedule.spaced("20 millis"), Schedule.recurs(500)),
  }).pipe(Effect.zipRight(server.done))

describe.sequential("killed training process", () => {
  it.live(
    "a killed training run applies every request once and in order, or reports an unknown outcome",
    () =>
      Effect.gen(function* () {
        console.log(`TINKER_KILL_SEED=${seed}`)
        const [serverProgram = "", client = ""] = yield* bundle("server.ts", "client.ts")
        const server = yield* serve(serverProgram)

        const peace = yield* run(server, client, "dedupe", Effect.succeedNone)
        expect(peace).toEqual({ ending: { end: "done" }, deaths: 0 })
        const whole = yield* server.done
        expect(whole.numbers).toEqual(Array.from({ length: 2 * steps }, (_, i) => i + 1))

        for (const mode of modes) {
          let left = kills
          const count = { kills: 0, done: 0, unknown: 0 }
          while (left > 0) {
            const { deaths, ending } = yield* run(
              server,
              client,
              mode,
              Effect.suspend(() => (left-- > 0 ? Effect.asSome(anyPlan) : Effect.succeedNone)),
            )
            count.kills += deaths
            left = kills - count.kills
            if (ending.end === "done") {
              count.done++
              expect(yield* server.done).toEqual(whole)
            } else {
              count.unknown++
              expect(mode).not.toBe("dedupe")
              expect(ending.applied).toBe("unknown")
              // Only this request may or may not be applied; all before it were applied once, and none after it.
              const { applied, models, numbers } = yield* eventually(
                server,
                ({ applied }) => applied.length >= ending.seq - 1,
              )
              expect(models).toBe(1)
              expect([ending.seq - 1, ending.seq]).toContain(applied.length)
              expect(applied).toEqual(whole.applied.slice(0, applied.length))
              expect(numbers).toEqual(whole.numbers.slice(0, applied.length))
            }
          }
          console.log(`${mode}: ${JSON.stringify(count)}`)
          expect(count.kills).toBeGreaterThanOrEqual(kills)
        }
      }).pipe(Effect.withRandom(Random.make(seed)), Effect.scoped),
    1_800_000,
  )
})
