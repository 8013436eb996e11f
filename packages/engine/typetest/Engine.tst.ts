import {
  type AdamW,
  Engine,
  type EngineError,
  Losses,
  ModelConfig,
  ModelFiles,
  Safetensors,
  type Sampler,
} from "@effect-tinker/engine"
import type { FileSystem, Path } from "@effect/platform"
import { Effect, type Either } from "effect"
import { describe, expect, it } from "tstyche"

declare const engine: Engine.Engine
declare const datum: Losses.Datum
declare const run: Engine.SampleRun

type Result<A> = Either.Either<A, EngineError.EngineError>

describe("Engine", () => {
  it("constructors name their errors and requirements", () => {
    expect(Engine.make({ config: {}, weights: [] })).type.toBe<Result<Engine.Engine>>()
    expect(Engine.make).type.toBeCallableWith({ config: {}, weights: [] }, { kernel: "plain" })
    expect(Engine.make).type.not.toBeCallableWith({ config: {}, weights: [] }, { kernel: "gpu" })
    expect(Engine.make).type.not.toBeCallableWith({ config: {}, weights: "model.safetensors" })
    expect(ModelFiles.engine()).type.toBe<
      Effect.Effect<Engine.Engine, EngineError.EngineError, FileSystem.FileSystem | Path.Path>
    >()
    expect(ModelFiles.shipped).type.toBe<Effect.Effect<string, EngineError.EngineError, Path.Path>>()
    expect(ModelConfig.fromJson({})).type.toBe<Result<ModelConfig.ModelConfig>>()
    expect(Safetensors.read(new Uint8Array())).type.toBe<Result<Safetensors.Safetensors>>()
  })

  it("calls return Either, which an Effect can yield", () => {
    expect(engine.createAdapter("a", { rank: 8 })).type.toBe<Result<Engine.AdapterInfo>>()
    expect(engine.dropAdapter("a")).type.toBe<Result<void>>()
    expect(engine.forward("a", [datum], { name: "ppo" })).type.toBe<Result<Engine.PassResult>>()
    expect(engine.forwardBackward("a", [datum], { name: "ppo" })).type.toBe<Result<Engine.PassResult>>()
    expect(engine.logits("a", [1, 2])).type.toBe<Result<Float32Array>>()
    expect(engine.optimStep("a", {})).type.toBe<Result<{ readonly gradNorm: number; readonly step: number }>>()
    expect(engine.sample("a", { prompt: [1] })).type.toBe<Result<Sampler.SampleResult>>()
    expect(engine.startSample("a", { prompt: [1] })).type.toBe<Result<Engine.SampleRun>>()
    expect(run.step()).type.toBe<Result<boolean>>()
    expect(engine.saveAdapter("a")).type.toBe<Result<Uint8Array>>()
    expect(engine.loadAdapter("a", new Uint8Array())).type.toBe<Result<Engine.AdapterInfo>>()
    expect(engine.peftConfig("a", "some/model")).type.toBe<Result<string>>()
    expect(engine.gradients("a")).type.toBe<Result<ReadonlyMap<string, Safetensors.Tensor>>>()
    const program = Effect.gen(function* () {
      const { metrics } = yield* engine.forwardBackward("a", [datum], { name: "cross_entropy" })
      return metrics["loss:sum"]
    })
    expect(program).type.toBe<Effect.Effect<number, EngineError.EngineError>>()
  })

  it("the base model can be used but not trained", () => {
    expect(engine.forward).type.toBeCallableWith(undefined, [datum], { name: "cross_entropy" })
    expect(engine.sample).type.toBeCallableWith(undefined, { prompt: [1] })
    expect(engine.logits).type.toBeCallableWith(undefined, Int32Array.of(1), [0])
    expect(engine.forwardBackward).type.not.toBeCallableWith(undefined, [datum], { name: "cross_entropy" })
    expect(engine.optimStep).type.not.toBeCallableWith(undefined, {})
    expect(engine.saveAdapter).type.not.toBeCallableWith(undefined)
  })

  it("tokens are plain or typed arrays of numbers, not chunks", () => {
    expect(engine.sample).type.toBeCallableWith("a", { prompt: Int32Array.of(1), stopTokens: Uint32Array.of(2) })
    expect(engine.sample).type.not.toBeCallableWith("a", { prompt: "text" })
    expect(engine.sample).type.not.toBeCallableWith("a", { prompt: [{ type: "image", data: new Uint8Array() }] })
    expect(engine.sample).type.not.toBeCallableWith("a", { prompt: [1], max_tokens: 3 })
    expect(engine.sample).type.not.toBeCallableWith("a", { prompt: [1], stopTexts: { texts: ["x"] } })
    expect<Losses.Datum>().type.toBeAssignableFrom<{
      tokens: Int32Array
      inputs: { target_tokens: { data: Int32Array }; weights: { data: Float32Array; shape: [number] } }
    }>()
    expect<Losses.Datum>().type.not.toBeAssignableFrom<{ tokens: BigInt64Array; inputs: {} }>()
  })

  it("createAdapter requires a rank, and options are checked by name", () => {
    expect(engine.createAdapter).type.not.toBeCallableWith("a", {})
    expect(engine.createAdapter).type.not.toBeCallableWith("a", { rank: 8, trainEmbed: true })
    expect(engine.optimStep).type.toBeCallableWith("a", { learningRate: 1e-3, type: "adamw" })
    expect(engine.optimStep).type.not.toBeCallableWith("a", { learning_rate: 1e-3 })
    expect<AdamW.AdamParams["gradClipNorm"]>().type.toBe<number | undefined>()
  })
})

describe("results", () => {
  it("results use typed arrays", () => {
    expect<Engine.PassResult["outputs"][number]["logprobs"]>().type.toBe<Float32Array>()
    expect<Sampler.Sequence["tokens"]>().type.toBe<Int32Array>()
    expect<Sampler.Sequence["stopReason"]>().type.toBe<"stop" | "length">()
    expect<Sampler.SampleResult["promptLogprobs"]>().type.toBe<Float32Array | undefined>()
    expect(run.result()).type.toBe<Sampler.SampleResult | undefined>()
  })

  it("EngineError has a closed list of reasons", () => {
    expect<EngineError.EngineError["reason"]>().type.toBe<
      "InvalidModel" | "InvalidInput" | "Unsupported" | "NotFound" | "NotFinite" | "OutOfMemory"
    >()
    expect(Losses.names).type.toBe<ReadonlyArray<string>>()
  })
})
