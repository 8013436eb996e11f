import { describe, expect, it } from "@effect/vitest"
import { Renderers } from "@effect-tinker/tokenizer"
import { Effect } from "effect"
import * as RendererGoldens from "./support/RendererGoldens.ts"

describe("Renderers", () => {
  it("Renderers.table recommends the same renderers as the reference", () => {
    expect(Renderers.table.models).toEqual(RendererGoldens.models)
    expect(Renderers.table.version).toBe("0.5.8")
  })

  it.effect("Renderers.byName creates every recommended renderer or fails with NotYet", () =>
    Effect.gen(function* () {
      const tokenizers = {
        llama3: yield* RendererGoldens.tokenizer("llama3"),
        qwen3: yield* RendererGoldens.tokenizer("qwen3"),
        gpt_oss: yield* RendererGoldens.tokenizer("gpt_oss"),
      }
      for (const [model, names] of Object.entries(RendererGoldens.models)) {
        for (const name of names) {
          const family = name.startsWith("gpt_oss") ? "gpt_oss" : name.startsWith("qwen3") ? "qwen3" : "llama3"
          const made = yield* Effect.either(Renderers.byName(name, tokenizers[family]))
          if ((Renderers.names as ReadonlyArray<string>).includes(name)) {
            expect(made).toMatchObject({ right: { name } })
          } else expect(made, `${model}: ${name}`).toMatchObject({ left: { reason: "NotYet" } })
        }
      }
      const renderer = yield* Renderers.forModel("Qwen/Qwen3-8B:tail", tokenizers.qwen3)
      expect(renderer.name).toBe("qwen3")
    }),
  )

  it.effect("Renderers reports unknown renderers and unknown models", () =>
    Effect.gen(function* () {
      const tokenizer = yield* RendererGoldens.tokenizer("qwen3")
      const unknown = yield* Effect.flip(Renderers.byName("chatml", tokenizer))
      expect(unknown.message).toContain("available renderers: role_colon, llama3")
      expect(yield* Effect.flip(Renderers.forModel("org/new", tokenizer))).toMatchObject({ reason: "Unknown" })
      expect(yield* Effect.flip(Renderers.forModel("constructor", tokenizer))).toMatchObject({ reason: "Unknown" })
      const later = yield* Effect.flip(Renderers.forModel("deepseek-ai/DeepSeek-V3.1", tokenizer))
      expect(later).toMatchObject({ reason: "NotYet", problem: expect.stringContaining("DeepSeek V3") })
    }),
  )

  it("Renderers.fits returns whether a renderer suits a model", () => {
    expect(Renderers.fits("Qwen/Qwen3-8B", "qwen3_disable_thinking")).toBe(true)
    expect(Renderers.fits("Qwen/Qwen3-8B", "llama3")).toBe(false)
    expect(Renderers.fits("openai/gpt-oss-20b", "gpt_oss_high_reasoning")).toBe(true)
    expect(Renderers.fits("org/new", "llama3")).toBeUndefined()
  })
})
