/** Runs the bundled model with tools in a loop: it calls tools, reads their results, and answers. */
import { describe, expect, it } from "@effect/vitest"
import { NodeContext } from "@effect/platform-node"
import { ModelFiles } from "@effect-tinker/engine"
import { Evaluate } from "@effect-tinker/recipes"
import { LocalTinker } from "@effect-tinker/server"
import { Message, Renderers, TokenizerBackend } from "@effect-tinker/tokenizer"
import { Effect, Layer } from "effect"
import { ModelInput, ServiceClient } from "effect-tinker"
import * as Agent from "../scripts/engine/Agent.ts"

/** `test:all` solves all 200 tasks instead of the first 40, also with reasoning. */
const isFull = process.env["TINKER_TESTS"] === "all"
const count = isFull ? 200 : 40

const local = Layer.mergeAll(LocalTinker.layerTinker(), NodeContext.layer, TokenizerBackend.layer)

const renderer = Effect.map(Renderers.localTools, ({ renderer }) => renderer)

const solvedBy = (options: Omit<Parameters<typeof Agent.evaluation>[1], "count">) =>
  Effect.gen(function* () {
    const service = yield* ServiceClient.ServiceClient
    const sampler = yield* service.createSamplingClient({ baseModel: ModelFiles.shippedToolsName })
    const result = yield* Evaluate.run(sampler, Agent.evaluation(yield* renderer, { count, ...options }))
    return { result, solved: result.metrics["solved"] ?? Number.NaN }
  }).pipe(Effect.scoped)

describe("agent", () => {
  it.live("the model with tools solves most held-out tasks greedily, and leaves some to learn", () =>
    Effect.gen(function* () {
      const { result, solved } = yield* solvedBy({})
      expect(result.outcomes).toHaveLength(count)
      expect(solved).toBeGreaterThanOrEqual(0.7)
      expect(solved).toBeLessThanOrEqual(0.9)
    }).pipe(Effect.provide(local)),
  )

  if (isFull)
    it.live("with the instruction to think, the model reasons and solves tasks of two steps as well", () =>
      Effect.gen(function* () {
        const { solved } = yield* solvedBy({ instructions: Agent.think })
        expect(solved).toBeGreaterThanOrEqual(0.9)
        const made = yield* renderer
        const { task } = Agent.make(made, 0, { heldOut: true, instructions: Agent.think })
        const { prompt, stop } = yield* Effect.flatMap(task.make, ({ start }) => start)
        const service = yield* ServiceClient.ServiceClient
        const sampler = yield* service.createSamplingClient({ baseModel: ModelFiles.shippedToolsName })
        const { sequences } = yield* sampler.sample({ prompt, params: { maxTokens: 96, temperature: 0, stop } })
        const { message } = yield* made.parse(sequences[0]!.tokens)
        expect(Message.thinkingOf(message)).toMatch(/^I use \w+ for /)
        expect(message.toolCalls).toHaveLength(1)
      }).pipe(Effect.scoped, Effect.provide(local)),
    )

  it.effect("held-out tasks are fixed, differ from the tasks to train on, and offer two or three tools", () =>
    Effect.gen(function* () {
      const made = yield* renderer
      const all = (heldOut: boolean) => Array.from({ length: 400 }, (_, index) => Agent.make(made, index, { heldOut }))
      const [tests, training] = [all(true), all(false)]
      expect(tests.every(({ question }) => Agent.isHeldOut(question))).toBe(true)
      expect(training.some(({ question }) => Agent.isHeldOut(question))).toBe(false)
      expect(new Set([...tests, ...training].map(({ tools }) => tools.length))).toEqual(new Set([2, 3]))
      expect(new Set(tests.map(({ kind }) => kind)).size).toBe(11)
      const again = all(true)
      expect(again.map(({ answer, question }) => [question, answer])).toEqual(
        tests.map(({ answer, question }) => [question, answer]),
      )
    }).pipe(Effect.provide(TokenizerBackend.layer)),
  )

  it.effect("a task pays for the right answer after the right calls, and for nothing else", () =>
    Effect.gen(function* () {
      const { renderer, tokenizer } = yield* Renderers.localTools
      const act = (environment: Agent.Played, text: string) =>
        Effect.flatMap(tokenizer.encode(`${text}<|end|>`, { addSpecialTokens: false }), (tokens) =>
          environment.act({ tokens: Int32Array.from(tokens), stopReason: "stop" }),
        )
      const made = Array.from({ length: 100 }, (_, index) => Agent.make(renderer, index, { heldOut: true }))
      const found = made.find(({ kind }) => kind === "add")!
      const [a, b] = found.question.match(/\d+/g)!
      const tool = found.tools.find(({ description }) => description === "Adds two numbers.")!
      const [x, y] = Object.keys(tool.parameters["properties"] as object)
      const environment = yield* found.task.make
      const called = yield* act(
        environment,
        `<tool_call>\n{"name": "${tool.name}", "arguments": {"${x}": ${a}, "${y}": ${b}}}\n</tool_call>`,
      )
      expect(called).toMatchObject({ reward: 0, metrics: { "tools/calls": 1, "tools/failed": 0 } })
      const { chunks } = yield* ModelInput.from(called.next!.prompt)
      const shown = yield* tokenizer.decode(
        chunks.flatMap((chunk) => (chunk.type === "encoded_text" ? [...chunk.tokens] : [])),
      )
      expect(shown).toContain(`<tool_response>\n${Number(a) + Number(b)}\n</tool_response>`)
      expect(yield* act(environment, found.answer)).toEqual({ reward: 1 })
      expect(yield* act(yield* found.task.make, "I do not know.")).toEqual({ reward: 0 })
    }).pipe(Effect.scoped, Effect.provide(TokenizerBackend.layer)),
  )
})
