import { describe, expect, it } from "@effect/vitest"
import { Datums, Message } from "@effect-tinker/tokenizer"
import { Effect, Either } from "effect"
import { Loss, ModelInput } from "effect-tinker"
import * as RendererGoldens from "./support/RendererGoldens.ts"
import type { DatumGolden, PieceGolden } from "./support/RendererGoldens.ts"

const chunkOf = (piece: PieceGolden): ModelInput.Chunk =>
  "image" in piece
    ? { type: "image", data: new TextEncoder().encode(piece.image), format: "png", expectedTokens: piece.tokens }
    : { type: "encoded_text", tokens: Int32Array.from(piece) }

/** Merges consecutive texts: the reference may split them, with empty ones in between. */
const joined = (pieces: ReadonlyArray<PieceGolden>) => {
  const all: Array<PieceGolden> = []
  for (const piece of pieces) {
    const last = all.at(-1)
    if (!("image" in piece) && last !== undefined && !("image" in last)) all[all.length - 1] = [...last, ...piece]
    else if ("image" in piece || piece.length > 0) all.push(piece)
  }
  return all
}

const piecesOf = (input: ModelInput.ModelInput): ReadonlyArray<PieceGolden> =>
  input.chunks.map((chunk) =>
    chunk.type === "encoded_text"
      ? [...chunk.tokens]
      : chunk.type === "image"
        ? { image: Buffer.from(chunk.data).toString("base64"), tokens: chunk.expectedTokens ?? -1 }
        : expect.fail(chunk.type),
  )

const dataOf = ({ inputs }: DatumGolden, key: string) => inputs[key]?.data.map(Math.fround) ?? expect.fail(key)

describe("Datums.fromExample", () => {
  it("Datums.fromExample matches the reference", () => {
    for (const { chunks, datum: expected, maxLength, reduction, weights } of RendererGoldens.datums.supervised) {
      const made = Datums.fromExample(
        { modelInput: ModelInput.fromChunks(chunks.map(chunkOf)), weights: Float32Array.from(weights) },
        { maxLength: maxLength ?? undefined, reduction: reduction === "none" ? "sum" : "mean" },
      )
      if ("error" in expected) expect(made).toMatchObject({ left: { _tag: "InvalidInput" } })
      else {
        const { inputs, modelInput } = Either.getOrThrow(made)
        expect(piecesOf(modelInput)).toEqual(joined(expected.input))
        expect([...inputs.targetTokens]).toEqual(dataOf(expected, "target_tokens"))
        expect([...inputs.weights]).toEqual(dataOf(expected, "weights"))
        expect(Loss.prepare(Loss.crossEntropy, [{ modelInput, inputs }])).toMatchObject({ _tag: "Right" })
      }
    }
    expect(RendererGoldens.datums.supervised.length).toBeGreaterThan(100)
  })

  it("Datums.fromExample requires a weight per token and the token count of images", () => {
    const text: ModelInput.Chunk = { type: "encoded_text", tokens: Int32Array.of(1, 2, 3) }
    const image: ModelInput.Chunk = { type: "image", data: new Uint8Array(1), format: "png" }
    const weights = new Float32Array(2)
    expect(Datums.fromExample({ modelInput: ModelInput.make(text), weights })).toMatchObject({
      left: { path: "weights", problem: "expected one weight per token (3), got 2" },
    })
    expect(Datums.fromExample({ modelInput: ModelInput.make(text, image), weights })).toMatchObject({
      left: { path: "modelInput.chunks[1].expectedTokens" },
    })
    expect(
      Datums.fromExample({ modelInput: ModelInput.make(text), weights: new Float32Array(3) }, { maxLength: 0.5 }),
    ).toMatchObject({ left: { path: "maxLength" } })
  })
})

describe("Datums.fromTrajectory", () => {
  it("Datums.fromTrajectory matches the reference and passes Loss.prepare", () => {
    for (const { advantage, datums: expected, steps } of RendererGoldens.datums.trajectories) {
      const made = Either.getOrThrow(
        Datums.fromTrajectory(
          steps.map(([observation, tokens, logprobs, masked]) => ({
            observation: ModelInput.fromChunks(observation.map(chunkOf)),
            tokens,
            logprobs,
            masked,
          })),
          advantage,
        ),
      )
      if ("error" in expected) return expect.fail(expected.error)
      expect(made.length).toBe(expected.length)
      for (const [index, { datum, mask }] of made.entries()) {
        const golden = expected[index] ?? expect.fail()
        expect(piecesOf(datum.modelInput)).toEqual(joined(golden.input))
        expect([...datum.inputs.targetTokens]).toEqual(dataOf(golden, "target_tokens"))
        expect([...datum.inputs.logprobs]).toEqual(dataOf(golden, "logprobs"))
        expect([...datum.inputs.advantages]).toEqual(dataOf(golden, "advantages"))
        expect([...mask]).toEqual(dataOf(golden, "mask"))
        expect(Loss.prepare(Loss.importanceSampling, [datum])).toMatchObject({ _tag: "Right" })
      }
    }
  })

  it("Datums.fromTrajectory names the invalid step", () => {
    const step = { observation: [1, 2], tokens: [3], logprobs: [-1] }
    expect(Datums.fromTrajectory([step, { ...step, logprobs: [] }], 1)).toMatchObject({
      left: { path: "transitions[1].logprobs" },
    })
    expect(Datums.fromTrajectory([{ ...step, observation: [-1] }], 1)).toMatchObject({
      left: { path: "transitions[0].observation[0]" },
    })
    expect(Datums.fromTrajectory([step], Number.NaN)).toMatchObject({ left: { path: "advantage" } })
  })
})

describe("Datums from conversations", () => {
  const talk = [Message.user("a"), Message.assistant("b"), Message.user("c"), Message.assistant("d")]

  it.effect("Datums.fromConversation returns one datum if the history is stable, otherwise one per answer", () =>
    Effect.gen(function* () {
      const { renderer: llama } = yield* RendererGoldens.load("llama3")
      const { renderer: qwen } = yield* RendererGoldens.load("qwen3")
      expect(yield* Datums.fromConversation(llama, talk)).toHaveLength(1)
      expect(yield* Datums.fromConversation(qwen, talk)).toHaveLength(2)
      expect(yield* Datums.fromConversation(qwen, talk, { trainOn: "all_tokens" })).toHaveLength(1)
      const [datum] = yield* Datums.fromConversation(llama, talk, { reduction: "mean" })
      expect(datum?.inputs.weights.reduce((sum, weight) => sum + weight, 0)).toBeCloseTo(1, 5)
    }),
  )

  it.effect("Datums.fromPreference returns the chosen and the rejected datum", () =>
    Effect.gen(function* () {
      const { renderer, tokenizer } = yield* RendererGoldens.load("qwen3_instruct")
      const [answer] = [Message.assistant("good")]
      const pair = { prompt: [Message.user("a")], chosen: [answer], rejected: [Message.assistant("bad")] }
      const { chosen, rejected } = yield* Datums.fromPreference(renderer, pair)
      const trained = ({ inputs }: Datums.SupervisedDatum) =>
        tokenizer.decode(inputs.targetTokens.filter((_, index) => inputs.weights[index] === 1))
      expect([yield* trained(chosen), yield* trained(rejected)]).toEqual(["good<|im_end|>", "bad<|im_end|>"])
      const wrong = yield* Effect.flip(Datums.fromPreference(renderer, { ...pair, rejected: [] }))
      expect(wrong).toMatchObject({ _tag: "InvalidInput", path: "rejected" })
    }),
  )
})
