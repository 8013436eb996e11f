import {
  DataLint,
  Dataset,
  Datums,
  Generic,
  GptOss,
  Message,
  Qwen3,
  Renderer,
  Renderers,
} from "@effect-tinker/tokenizer"
import type { BadLine } from "@effect-tinker/tokenizer/Dataset"
import type { Failure, RendererError } from "@effect-tinker/tokenizer/RendererError"
import type { TemplateError } from "@effect-tinker/tokenizer/TemplateError"
import type { Service } from "@effect-tinker/tokenizer/Tokenizer"
import type { TokenizerError } from "@effect-tinker/tokenizer/TokenizerError"
import type { Effect, Either } from "effect"
import { Schema, Stream } from "effect"
import { type CustomLoss, Loss, type ModelInput } from "effect-tinker"
import type { InvalidInput } from "effect-tinker/TinkerError"
import { describe, expect, it } from "tstyche"

declare const tokenizer: Service
declare const renderer: Renderer.Renderer
declare const supervised: Datums.SupervisedDatum
declare const policy: Datums.PolicyDatum

describe("Renderer", () => {
  it("renderer methods require no services and fail with Failure", () => {
    expect<Failure>().type.toBe<RendererError | InvalidInput | TokenizerError | TemplateError>()
    expect(renderer.generationPrompt([])).type.toBe<Effect.Effect<ModelInput.ModelInput, Failure>>()
    expect(renderer.supervisedExample([])).type.toBe<Effect.Effect<Renderer.Example, Failure>>()
    expect(renderer.parse([1])).type.toBe<Effect.Effect<Renderer.Parsed, Failure>>()
    expect(Renderers.byName("qwen3", tokenizer)).type.toBe<Effect.Effect<Renderer.Renderer, RendererError>>()
    expect(Generic.make(tokenizer)).type.toBe<Effect.Effect<Renderer.Renderer, RendererError | TemplateError>>()
  })

  it("renderers accept plain messages and known options only", () => {
    expect(renderer.generationPrompt).type.toBeCallableWith([{ role: "user", content: "a" }], { prefill: "b" })
    expect(renderer.generationPrompt).type.not.toBeCallableWith([{ role: "user" }])
    expect(renderer.supervisedExample).type.not.toBeCallableWith([], "everything")
    expect(Qwen3.make).type.toBeCallableWith(tokenizer, { mode: "disabled" })
    expect(Qwen3.make).type.not.toBeCallableWith(tokenizer, { mode: "quiet" })
    expect(GptOss.make).type.not.toBeCallableWith(tokenizer, { reasoningEffort: "none" })
  })

  it("stopSequences holds strings or tokens, never both", () => {
    expect(renderer.stopSequences).type.toBe<ReadonlyArray<string> | ReadonlyArray<number>>()
  })

  it("parseStream keeps the errors and requirements of the stream", () => {
    const stream = Stream.make(1, 2) as Stream.Stream<number, "failed", "Service">
    expect(stream.pipe(Renderer.parseStream(renderer))).type.toBe<
      Stream.Stream<Renderer.Delta, "failed" | Failure, "Service">
    >()
  })
})

describe("Datums and Dataset", () => {
  it("datums have the types that losses accept", () => {
    expect(Loss.prepare(Loss.crossEntropy, [supervised])).type.toBeAssignableTo<Either.Either<unknown, InvalidInput>>()
    expect(Loss.prepare(Loss.ppo(), [policy])).type.toBeAssignableTo<Either.Either<unknown, InvalidInput>>()
    expect(Loss.prepare).type.not.toBeCallableWith(Loss.ppo(), [supervised])
    expect<Datums.SupervisedDatum["inputs"]>().type.toBeAssignableTo<CustomLoss.Inputs>()
    expect(Datums.fromConversation(renderer, [])).type.toBe<
      Effect.Effect<ReadonlyArray<Datums.SupervisedDatum>, Failure>
    >()
    expect(Datums.fromTrajectory([], 1)).type.toBe<Either.Either<ReadonlyArray<Datums.TrajectoryDatum>, InvalidInput>>()
  })

  it("Dataset and DataLint keep the errors and requirements of the bytes", () => {
    const bytes = Stream.empty as Stream.Stream<Uint8Array, "failed", "Service">
    const { rows } = Dataset.jsonl(bytes, Message.Conversation)
    expect(rows).type.toBe<Stream.Stream<Dataset.PlacedRow<Message.Conversation>, "failed" | BadLine, "Service">>()
    const linted = DataLint.conversations(Dataset.jsonl(bytes, Schema.Unknown).rows, { renderer })
    expect(linted).type.toBe<Effect.Effect<DataLint.Report, "failed" | BadLine, "Service">>()
  })
})
