/** Tests tasks in which the model calls tools, with a real tokenizer and the renderer of Qwen3. */
import { describe, expect, it } from "@effect/vitest"
import { Environment } from "@effect-tinker/recipes"
import { Message, Qwen3, TokenizerBackend } from "@effect-tinker/tokenizer"
import { Cause, Data, Effect, Exit, Schema, type Scope } from "effect"
import { ModelInput } from "effect-tinker"
import { readFileSync } from "node:fs"

const golden = (file: string) =>
  readFileSync(new URL(`../../tokenizer/test/goldens/renderers/${file}`, import.meta.url), "utf8")

const setUp = Effect.gen(function* () {
  const backend = yield* TokenizerBackend.TokenizerBackend
  const tokenizer = yield* backend.make({
    name: "qwen3",
    tokenizer: golden("qwen3.tokenizer.json"),
    config: golden("qwen3.config.json"),
  })
  return { tokenizer, renderer: yield* Qwen3.make(tokenizer, { mode: "instruct" }) }
}).pipe(Effect.provide(TokenizerBackend.layerPortable))

class Offline extends Data.TaggedError("Offline")<{ readonly message: string }> {}

const weather = Environment.tool({
  name: "weather",
  description: "Returns the temperature of a city.",
  parameters: Schema.Struct({ city: Schema.String }),
  run: ({ city }) =>
    city === "Atlantis" ? new Offline({ message: "no station there" }) : Effect.succeed({ city, degrees: 21 }),
})

const call = (name: string, args: string) =>
  `<tool_call>\n{"name": "${name}", "arguments": ${args}}\n</tool_call><|im_end|>`

/** Plays the part of the model: acts with texts and returns the outcomes, and the last prompt as text. */
const play = <E, E3 = never>(
  options: {
    readonly tools:
      | ReadonlyArray<Environment.Tool<E>>
      | Effect.Effect<ReadonlyArray<Environment.Tool<E>>, E3, Scope.Scope>
    readonly reward?: (answer: string, conversation: ReadonlyArray<Message.Message>) => number
  },
  answers: ReadonlyArray<string>,
) =>
  Effect.gen(function* () {
    const { renderer, tokenizer } = yield* setUp
    const task = Environment.tools<E, never, never, never, E3, never>({
      messages: [Message.system("Be brief."), Message.user("How warm is it in Bern?")],
      reward: (answer) => (answer.includes("21") ? 1 : 0),
      ...options,
      renderer,
    })
    const environment = yield* task.make
    let shown = (yield* environment.start).prompt
    const outcomes: Array<Environment.Outcome> = []
    for (const answer of answers) {
      const tokens = Int32Array.from(yield* tokenizer.encode(answer, { addSpecialTokens: false }))
      const outcome = yield* environment.act({ tokens, stopReason: "stop" })
      outcomes.push(outcome)
      if (outcome.next !== undefined) shown = outcome.next.prompt
    }
    const { chunks } = yield* ModelInput.from(shown)
    const prompt = chunks.flatMap((chunk) => (chunk.type === "encoded_text" ? [...chunk.tokens] : []))
    return { name: task.name, outcomes, prompt: yield* tokenizer.decode(prompt) }
  }).pipe(Effect.scoped)

describe("Environment.tools", () => {
  it.effect("the model sees its tools, calls one, sees the result, and its answer is rated", () =>
    Effect.gen(function* () {
      const { name, outcomes, prompt } = yield* play({ tools: [weather] }, [
        call("weather", '{"city": "Bern"}'),
        "It is 21 degrees.<|im_end|>",
      ])
      expect(name).toBe("user: How warm is it in Bern?")
      expect(outcomes.map(({ metrics, reward }) => ({ metrics, reward }))).toEqual([
        { reward: 0, metrics: { "tools/calls": 1, "tools/failed": 0 } },
        { reward: 1, metrics: undefined },
      ])
      expect(outcomes[1]?.next).toBeUndefined()
      expect(prompt).toContain("Be brief.")
      expect(prompt).toContain('"name": "weather"')
      expect(prompt).toContain('"properties": {"city": {"type": "string"}}')
      expect(prompt).not.toContain("$schema")
      expect(prompt).toContain('<tool_response>\n{"city":"Bern","degrees":21}\n</tool_response>')
    }),
  )

  it.effect.each([
    ["a tool that fails", call("weather", '{"city": "Atlantis"}'), '{"error":"no station there"}'],
    ["a tool that does not exist", call("clock", "{}"), '{"error":"there is no tool clock"}'],
    ["arguments that do not fit", call("weather", '{"town": "Bern"}'), "is missing"],
    ["a call that can't be parsed", "<tool_call>\n{city}\n</tool_call><|im_end|>", '{"error":"Invalid JSON'],
  ] as const)("%s is answered with the reason, and the rollout goes on", ([, answer, reason]) =>
    Effect.gen(function* () {
      const { outcomes, prompt } = yield* play({ tools: [weather] }, [answer])
      expect(outcomes[0]).toMatchObject({ reward: 0, metrics: { "tools/calls": 1, "tools/failed": 1 } })
      expect(outcomes[0]?.next).toBeDefined()
      expect(prompt).toContain(reason)
    }),
  )

  it.effect("several calls of one answer run in order, and each has its result", () =>
    Effect.gen(function* () {
      const both = call("weather", '{"city": "Bern"}').replace("<|im_end|>", "\n") + call("clock", "{}")
      const { outcomes, prompt } = yield* play({ tools: [weather] }, [both])
      expect(outcomes[0]?.metrics).toEqual({ "tools/calls": 2, "tools/failed": 1 })
      expect(prompt.indexOf('"degrees":21')).toBeGreaterThan(0)
      expect(prompt.indexOf("no tool clock")).toBeGreaterThan(prompt.indexOf('"degrees":21'))
    }),
  )

  it.effect("tools that are made for a rollout are released when its scope closes", () =>
    Effect.gen(function* () {
      const log: Array<string> = []
      const sandbox = Effect.acquireRelease(
        Effect.sync(() => {
          log.push("opened")
          return [weather]
        }),
        () => Effect.sync(() => log.push("closed")),
      )
      yield* play({ tools: sandbox }, [call("weather", '{"city": "Bern"}')])
      yield* play({ tools: sandbox }, [])
      expect(log).toEqual(["opened", "closed", "opened", "closed"])
    }),
  )

  it.effect("a tool that dies ends the rollout with its defect", () =>
    Effect.gen(function* () {
      const broken = { ...weather, run: () => Effect.die("broken") }
      const exit = yield* Effect.exit(play({ tools: [broken] }, [call("weather", '{"city": "Bern"}')]))
      expect(Exit.isFailure(exit) && Cause.isDie(exit.cause)).toBe(true)
    }),
  )

  it.effect("the reward function sees the whole conversation before the answer", () =>
    Effect.gen(function* () {
      const roles: Array<string> = []
      const reward = (_answer: string, conversation: ReadonlyArray<Message.Message>) => {
        roles.push(...conversation.map(({ role }) => role))
        return 0.5
      }
      const { outcomes } = yield* play({ tools: [weather], reward }, [
        call("weather", '{"city": "Bern"}'),
        "Warm.<|im_end|>",
      ])
      expect(outcomes.at(-1)?.reward).toBe(0.5)
      expect(roles).toEqual(["system", "user", "assistant", "tool"])
    }),
  )
})
