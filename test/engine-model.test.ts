import { NodeContext } from "@effect/platform-node"
import { ModelFiles } from "@effect-tinker/engine"
import { TokenizerBackend, TokenizerFiles } from "@effect-tinker/tokenizer"
import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import { readFileSync } from "node:fs"

const questions: Record<string, ReadonlyArray<readonly [asked: string, wanted: string]>> = JSON.parse(
  readFileSync(new URL("../packages/engine/test/goldens/questions.json", import.meta.url), "utf8"),
)

const world = Effect.gen(function* () {
  const engine = yield* ModelFiles.engine()
  const files = yield* TokenizerFiles.fromDirectory(yield* ModelFiles.shipped)
  const backend = yield* TokenizerBackend.TokenizerBackend
  const tokenizer = yield* backend.make(files)
  const prompt = (asked: string) => tokenizer.encode(`<|turn|>user\n${asked}<|end|>\n<|turn|>assistant\n`)
  const ask = (asked: string, adapter?: string) =>
    Effect.gen(function* () {
      const { sequences } = yield* engine.sample(adapter, {
        prompt: yield* prompt(asked),
        temperature: 0,
        maxTokens: 64,
      })
      const { stopReason, tokens } = sequences[0]!
      return { text: yield* tokenizer.decode(tokens, { skipSpecialTokens: true }), stopReason }
    })
  return { engine, tokenizer, prompt, ask }
}).pipe(Effect.provide([TokenizerBackend.layerPortable, NodeContext.layer]))

/** Only `test:all` trains the model, which takes several seconds. */
const isFull = process.env["TINKER_TESTS"] === "all"

describe("shipped engine model", () => {
  for (const [kind, least] of Object.entries({ copy: 0.9, count: 0.95, add: 0.9, world: 0.95, talk: 0.95 })) {
    it.effect(`the shipped model answers questions: ${kind}`, () =>
      Effect.gen(function* () {
        const { ask } = yield* world
        const answers = yield* Effect.forEach(questions[kind]!, ([asked]) => ask(asked))
        const right = answers.filter(
          ({ stopReason, text }, i) => stopReason === "stop" && text === questions[kind]![i]![1],
        )
        expect(answers.length).toBe(40)
        expect(right.length / answers.length).toBeGreaterThanOrEqual(least)
      }),
    )
  }

  if (isFull)
    it.effect(
      "an adapter of the shipped model learns a style from two dozen examples without changing the base model",
      () =>
        Effect.gen(function* () {
          const { ask, engine, prompt, tokenizer } = yield* world
          yield* engine.createAdapter("pirate", { rank: 8, seed: 1 })
          const before = yield* ask("Where does Rosa live?", "pirate")
          const examples = questions["world"]!.filter(([asked]) => !asked.includes("Rosa")).slice(0, 24)
          const data = yield* Effect.forEach(examples, ([asked, answer]) =>
            Effect.gen(function* () {
              const start = yield* prompt(asked)
              const end = yield* tokenizer.encode(`Arr! ${answer}<|end|>`)
              const whole = [...start, ...end]
              const weights = whole.slice(1).map((_, i) => (i + 1 >= start.length ? 1 : 0))
              const inputs = { target_tokens: { data: whole.slice(1) }, weights: { data: weights } }
              return { tokens: whole.slice(0, -1), inputs }
            }),
          )
          const losses: Array<number> = []
          for (let step = 0; step < 16; step++) {
            const { metrics } = yield* engine.forwardBackward("pirate", data, { name: "cross_entropy" })
            losses.push(metrics["loss:sum"])
            yield* engine.optimStep("pirate", { learningRate: 1e-3 })
          }
          expect(losses.at(-1)).toBeLessThan(losses[0]! / 3)
          const after = yield* ask("Where does Rosa live?", "pirate")
          expect(before.text).toBe("Rosa lives in Arlen.")
          expect(after.text).toMatch(/^Arr! Rosa lives in/)
          expect(yield* ask("Where does Rosa live?")).toEqual(before)
        }),
    )
})
