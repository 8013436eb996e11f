import { describe, expect, it } from "@effect/vitest"
import { DataLint } from "@effect-tinker/tokenizer"
import { Effect, Stream } from "effect"
import { Loss, ModelInput } from "effect-tinker"
import * as RendererGoldens from "./support/RendererGoldens.ts"

const user = { role: "user", content: "What is 2 + 3?" }
const answer = { role: "assistant", content: "5" }

const rowsOf = (...values: ReadonlyArray<unknown>) =>
  Stream.fromIterable(values.map((value, index) => ({ line: index + 1, value })))

const summary = ({ findings }: DataLint.Report) =>
  findings.map(({ check, count, examples, severity }) => [severity, check, count, examples.map(({ row }) => row)])

describe("DataLint", () => {
  it.effect("DataLint.conversations finds no problems in valid conversations", () =>
    Effect.gen(function* () {
      const { renderer, tokenizer } = yield* RendererGoldens.load("qwen3")
      const rows = rowsOf({ messages: [user, answer] }, { messages: [user, answer, user, answer] })
      const report = yield* DataLint.conversations(rows, {
        renderer,
        tokenizer,
        model: "Qwen/Qwen3-8B",
        maxLength: 200,
      })
      expect(report).toMatchObject({ rows: 2, datums: 3, findings: [] })
      expect(report.learntTokens).toBeGreaterThan(5)
      expect(DataLint.isClean(report)).toBe(true)
      expect(DataLint.format(report)).toMatch(
        /^2 rows, 3 datums, \d+ tokens \(\d+ learned\), longest \d+\nno problems found$/,
      )
    }),
  )

  it.effect("DataLint.conversations reports each problem with its row", () =>
    Effect.gen(function* () {
      const { renderer, tokenizer } = yield* RendererGoldens.load("llama3")
      const rows = rowsOf(
        { messages: [user, answer] },
        { messages: [user] },
        { messages: [user, { ...answer, contents: "x" }] },
        { messages: "none" },
        { messages: [user, { ...answer, content: [{ type: "thinking", thinking: "a" }] }] },
        { messages: [{ ...user, content: "a<|eot_id|>b" }, answer] },
        { messages: [user, { ...answer, content: "long ".repeat(50) }] },
        ...Array.from({ length: 6 }, () => 7),
      )
      const options = { renderer, tokenizer, model: "Qwen/Qwen3-8B", maxLength: 60, maxExamples: 3 }
      const report = yield* DataLint.conversations(rows, options)
      expect(summary(report)).toEqual([
        ["error", "renderer_mismatch", 1, [0]],
        ["error", "nothing_learnt", 1, [2]],
        ["error", "unreadable", 7, [4, 8, 9]],
        ["error", "not_rendered", 1, [5]],
        ["error", "context_overflow", 1, [7]],
        ["warning", "unknown_key", 1, [3]],
        ["warning", "special_token", 1, [6]],
      ])
      expect(DataLint.isClean(report)).toBe(false)
      const text = DataLint.format(report)
      expect(text).toContain(
        "error: renderer does not fit the model: 1\n  llama3 was not made for Qwen/Qwen3-8B; recommended: qwen3",
      )
      expect(text).toContain("warning: unknown keys: 1\n  3: unknown key messages[1].contents")
      expect(text).toContain("  … and 4 more")
    }),
  )

  it.effect("DataLint.datums reports data that the loss rejects or that has no weight", () =>
    Effect.gen(function* () {
      const good = { modelInput: [1, 2], inputs: { targetTokens: [2, 3], weights: [0, 1] } }
      const image = { type: "image", data: new Uint8Array(1), format: "png" } as const
      const inputs = (more: object) => ({ ...good, inputs: { ...good.inputs, ...more } })
      const data = Stream.make(
        good,
        inputs({ weights: [0, 0] }),
        inputs({ targetTokens: [2, 3.5] }),
        inputs({ weights: [1] }),
        inputs({ wieghts: [1, 1] }),
        { ...good, modelInput: ModelInput.make(image, { type: "encoded_text", tokens: Int32Array.of(1) }) },
        "no datum",
      )
      const report = yield* DataLint.datums(data, { loss: Loss.crossEntropy, maxLength: 1 })
      expect(summary(report)).toEqual([
        ["error", "context_overflow", 2, [1, 2]],
        ["error", "nothing_learnt", 1, [2]],
        ["error", "bad_datum", 4, [3, 4, 5, 7]],
        ["error", "image_without_tokens", 1, [6]],
      ])
      expect(report.findings[2]?.examples.map(({ problem }) => problem.split(":")[0])).toEqual([
        "inputs.targetTokens[1]",
        "inputs.weights",
        "inputs.wieghts",
        "datum",
      ])
    }),
  )
})
