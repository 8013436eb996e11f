// Runs the commands that use the installed packages, on the embedded engine: train, resume, evaluate, chat, report.
import { existsSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { describe, expect, it } from "@effect/vitest"
import { Deferred, Effect } from "effect"
import { list, type Recipe } from "../src/internal/TrainConfig.js"
import { trainSettings } from "../src/internal/TrainSettings.js"
import { notLoaded } from "../src/internal/UserModule.js"
import * as Command from "./support/Command.ts"

const lines = (values: ReadonlyArray<unknown>) => values.map((value) => `${JSON.stringify(value)}\n`).join("")

const user = (content: string) => ({ role: "user", content })
const assistant = (content: string) => ({ role: "assistant", content })

const files = {
  "chats.jsonl": lines(
    Array.from({ length: 12 }, (_, i) => ({
      messages: [user(`What is ${i % 7} + 2?`), assistant(`Ahoy! ${(i % 7) + 2}, captain.`)],
    })),
  ),
  "questions.jsonl": lines([{ messages: [user("What is 2 + 3?")], answers: ["5"] }]),
  "pairs.jsonl": lines(
    Array.from({ length: 4 }, (_, i) => ({
      prompt: [user(`What is ${i} + 2?`)],
      chosen: [assistant(`Ahoy! ${i + 2}.`)],
      rejected: [assistant("I do not know.")],
    })),
  ),
  "letter.mjs": `
    const questions = ["Tell me a story.", "Who are you?"]
    export const tasks = questions.map((content) => ({ messages: [{ role: "user", content }] }))
    export const reward = async (answer) => (answer.split("a").length - 1) / Math.max(1, answer.length)
  `,
  "broken.mjs": `
    export default { tasks: [{ messages: [{ role: "user", content: "Hi" }] }], reward: () => { throw new Error("no rules") } }
  `,
  "empty.mjs": `export const tasks = []`,
  "sft.yaml": "data: chats.jsonl\nlocal: true\nrank: 4\nbatchSize: 4\nlearningRate: 0.008\n",
}

/** A directory with the files, and the command in it. */
const setup = Effect.gen(function* () {
  const directory = yield* Command.directory
  for (const [name, text] of Object.entries(files)) writeFileSync(join(directory, name), text)
  const run = (line: string, options: Partial<Command.Options> = {}) =>
    Command.run(line.split(" "), { directory, ...options })
  return { directory, run }
})

const records = (text: string): ReadonlyArray<Record<string, unknown>> =>
  text
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line))

describe("training", () => {
  it("the help has the settings of the recipes; if not, run settings.ts", () => {
    const recipes: ReadonlyArray<Recipe> = ["sft", "rl", "dpo", "distill"]
    expect(trainSettings).toEqual(Object.fromEntries(recipes.map((recipe) => [recipe, list(recipe)])))
  })

  it.live(
    "a stopped run says what was saved, resume ends it, and its directory answers, is evaluated and reported",
    () =>
      Effect.gen(function* () {
        const { directory, run } = yield* setup
        const reached = yield* Deferred.make<void>()
        const [out, err]: [Array<string>, Array<string>] = [[], []]
        const stopped = yield* run("train sft --config sft.yaml --epochs 3 --out runs/sailor", {
          shell: {
            out: (text) => {
              out.push(text)
              return text.startsWith("step 2/9") ? Deferred.succeed(reached, undefined) : Effect.void
            },
            err: (text) => Effect.sync(() => void err.push(text)),
            stopped: Deferred.await(reached),
          },
        })
        expect([stopped.exitCode, err[0]]).toEqual([130, expect.stringContaining("Press Ctrl-C again")])
        expect(err.join("")).toMatch(
          /Stopped after \d steps\.\n {2}Saved: all of them, tinker:\/\/.*resume runs\/sailor/s,
        )

        const resumed = yield* run("resume runs/sailor")
        expect([resumed.exitCode, resumed.stderr]).toEqual([0, ""])
        expect(resumed.stdout).toMatch(
          /step 9\/9 .*Chat with it: tinkerfx chat runs\/sailor\nReport: runs\/sailor\/report\.html\n$/s,
        )
        const again = yield* run("train sft --config sft.yaml --epochs 3 --out runs/sailor")
        expect([again.exitCode, again.stdout]).toEqual([0, expect.stringContaining("complete already")])
        const other = yield* run("train sft --config sft.yaml --epochs 2 --out runs/sailor")
        expect([other.exitCode, other.stderr]).toEqual([
          1,
          expect.stringMatching(/^Error: .*epochs: 3 → 2.*\nUse another --out.*\n$/),
        ])

        const chatted = yield* run("-f json chat runs/sailor --max-tokens 8 --temperature 0", {
          input: "Hi\n/history\n/reset\n/histry\nHi\n",
        })
        const [first, history, second] = records(chatted.stdout)
        expect([chatted.exitCode, chatted.stderr]).toEqual([0, "No such command '/histry'. Did you mean '/history'?\n"])
        expect(first).toMatchObject({ role: "assistant", content: expect.any(String) })
        // Without the conversation before, the answer is the same.
        expect(second).toEqual(first)
        expect(history).toMatchObject({ messages: [user("Hi"), assistant(String(first?.["content"]))] })

        const compared = yield* run("-f json eval runs/sailor --data chats.jsonl --limit 4 --compare base")
        const results = records(compared.stdout)
        const [base, tuned] = results.filter(({ metric, model }) => metric === "nll" && model !== undefined)
        expect(Number(tuned?.["value"])).toBeLessThan(Number(base?.["value"]))
        expect(results.at(-1)).toMatchObject({ metric: "nll", verdict: expect.any(String) })

        writeFileSync(join(directory, "mine.html"), "mine")
        const declined = yield* run("report runs/sailor -o mine.html", {
          shell: { isInteractive: true, line: Effect.succeedSome("n") },
        })
        expect([declined.exitCode, readFileSync(join(directory, "mine.html"), "utf8")]).toEqual([1, "mine"])
        const reported = yield* run("-f json report runs/sailor -o mine.html -y")
        expect(records(reported.stdout)[0]).toMatchObject({ report: "mine.html", steps: 9 })
        expect(readFileSync(join(directory, "mine.html"), "utf8")).toContain("<!doctype html>")
      }).pipe(Effect.scoped),
  )

  it.live("the other recipes train from options, and events are records with --format json", () =>
    Effect.gen(function* () {
      const { directory, run } = yield* setup
      const rl = yield* run(
        "-f json train rl --local --environment letter.mjs --rank 4 --iterations 1 --groups-per-iteration 2 --group-size 2 --max-tokens 4 --learning-rate 4e-3",
      )
      expect([rl.exitCode, rl.stderr]).toEqual([0, ""])
      const step = records(rl.stdout).find(({ _tag }) => _tag === "Step")
      expect(step).toMatchObject({ metrics: { "env/all/reward/total": expect.any(Number) } })
      const dpo = yield* run("train dpo --local --data pairs.jsonl --rank 4 --batch-size 4")
      expect([dpo.exitCode, dpo.stdout]).toEqual([0, expect.stringMatching(/^step 1\/1 .*dpo_loss/)])
      const distill = yield* run(
        "train distill --local --data questions.jsonl --teacher effect-tinker/valley-1.5m --rank 4 --max-tokens 4 --learning-rate 1e-3 --group-size 2",
      )
      expect([distill.exitCode, distill.stdout]).toEqual([0, expect.stringContaining("teacher_kl")])
      expect(existsSync(join(directory, "runs/distill/report.html"))).toBe(true)
    }).pipe(Effect.scoped),
  )

  it.live("what is wrong is said before anything is trained", () =>
    Effect.gen(function* () {
      const { directory, run } = yield* setup
      const failed = (line: string) => Effect.map(run(line), ({ exitCode, stderr }) => [exitCode, stderr] as const)
      expect(yield* failed("train stf")).toEqual([2, expect.stringContaining("Did you mean 'sft'?")])
      expect(yield* failed("train sft --lerning-rate 1")).toEqual([
        2,
        expect.stringContaining("Did you mean '--learning-rate'?"),
      ])
      expect(yield* failed("train sft")).toEqual([2, "Error: data: is missing\n"])
      expect(yield* failed("train sft --data chats.jsonl")).toEqual([2, expect.stringContaining("'--model'")])
      expect(yield* failed("train sft --data chats.jsonl --epochs two")).toEqual([
        2,
        "Error: --epochs: expected a number, got two\n",
      ])
      writeFileSync(join(directory, "typo.yaml"), "data: chats.jsonl\nlocl: true\n")
      expect(yield* failed("train sft --config typo.yaml")).toEqual([2, expect.stringContaining("did you mean local?")])
      expect(yield* failed("train sft --config none.yaml")).toEqual([
        1,
        expect.stringMatching(/^Error: Cannot read none.yaml.*\nCheck the name of the file.\n$/),
      ])
      const rl = "train rl --local --iterations 1 --max-tokens 2 --learning-rate 1 --group-size 1 --environment"
      expect(yield* failed(`${rl} empty.mjs`)).toEqual([1, expect.stringContaining("neither reward nor reply")])
      const code = (code: string) => Object.assign(new Error("not found"), { code })
      expect(notLoaded("env.ts")(code("MODULE_NOT_FOUND"))).toMatchObject({
        message: expect.stringContaining("does not run TypeScript"),
        hint: expect.stringContaining("Install tsx"),
      })
      expect(notLoaded("env.mjs")(code("MODULE_NOT_FOUND")).message).toBe("Cannot load env.mjs: not found")
      expect(yield* failed(`${rl} none.mjs`)).toEqual([1, expect.stringContaining("there is no such file")])
      expect(yield* failed(`${rl} broken.mjs --out runs/broken`)).toEqual([
        1,
        expect.stringMatching(/^Error: .*no rules.*\nCorrect the environment.*\n$/),
      ])
      expect(yield* failed("resume chats.jsonl")).toEqual([1, expect.stringContaining("is not the directory of a run")])
      expect(yield* failed("report nowhere")).toEqual([1, expect.stringContaining("nothing has happened in it yet")])
      expect(yield* failed("chat")).toEqual([1, expect.stringContaining("No model was named")])
      expect(yield* failed("eval --local")).toEqual([2, expect.stringContaining("'--data' or '--environment'")])
      expect(yield* failed("sample --local --count 0")).toEqual([2, expect.stringContaining("'--count'")])
    }).pipe(Effect.scoped),
  )
})

describe("text and tokens", () => {
  it.live("text becomes tokens and back", () =>
    Effect.gen(function* () {
      const { run } = yield* setup
      const ids = yield* run("tokenize", { input: "hello there\n" })
      expect([ids.exitCode, ids.stdout]).toEqual([0, expect.stringMatching(/^\d+( \d+)+\n$/)])
      const back = yield* run("tokenize --decode", { input: ids.stdout })
      expect(back.stdout).toBe("hello there\n")
      const tokens = records((yield* run("-f json tokenize hello")).stdout)
      expect(tokens.map(({ text }) => text).join("")).toBe("hello")
      expect((yield* run("tokenize --count hello")).stdout).toBe(`${tokens.length}\n`)
      expect((yield* run("tokenize --decode x")).stderr).toContain('"x" is not the id of a token')
    }).pipe(Effect.scoped),
  )

  it.live("the weight of every token is shown: as numbers in a pipe, as colors on a terminal", () =>
    Effect.gen(function* () {
      const { run } = yield* setup
      const plain = yield* run("render chats.jsonl")
      const rows = plain.stdout
        .trimEnd()
        .split("\n")
        .map((line) => line.split("\t"))
      const learnt = rows.filter(([, weight]) => weight === "1").map(([, , text]) => text)
      expect(learnt.join("")).toContain("Ahoy! 2, captain.")
      expect(records((yield* run("-f json render chats.jsonl")).stdout)).toHaveLength(rows.length)
      const colored = yield* run("render chats.jsonl --row 2", {
        shell: { isTerminal: true, hasColors: true, width: 80 },
      })
      expect(colored.stdout).toContain("\u001b[32mA\u001b[0m")
      expect(colored.stdout).toContain("\u001b[90m")
      const prompt = yield* run("render chats.jsonl --prompt")
      expect(prompt.stdout).not.toContain("\t1\t")
      expect((yield* run("render chats.jsonl --row 99")).stderr).toContain("has only 12 rows")
    }).pipe(Effect.scoped),
  )

  it.live("lint counts what is fine, and fails for rows that would fail", () =>
    Effect.gen(function* () {
      const { directory, run } = yield* setup
      const fine = yield* run("lint chats.jsonl")
      expect([fine.exitCode, fine.stdout]).toEqual([0, expect.stringMatching(/^12 rows.*no problems found\n$/s)])
      writeFileSync(join(directory, "bad.jsonl"), `${JSON.stringify({ messages: [user("x")] })}\nnope\n`)
      const bad = yield* run("-f json lint bad.jsonl")
      expect([bad.exitCode, bad.stderr]).toEqual([1, expect.stringContaining("2 problems")])
      expect(records(bad.stdout).map(({ check }) => check)).toEqual(["totals", "unreadable", "nothing_learnt"])
      const long = yield* run("lint chats.jsonl --max-length 5")
      expect([long.exitCode, long.stdout]).toEqual([1, expect.stringContaining("12")])
    }).pipe(Effect.scoped),
  )
})
