import { describe, expect, it } from "@effect/vitest"
import { Engine, type EngineError, type Losses, Safetensors } from "@effect-tinker/engine"
import { Either } from "effect"
import * as Support from "./support/Goldens.ts"

const model = "qwen3-f32-free"
const of = Support.golden(model)
const data = Support.datums(of, ["weights"])
const loss = { name: "cross_entropy" }
const { right } = Support

const rejection = (result: Either.Either<unknown, EngineError.EngineError>) =>
  Either.match(result, { onLeft: ({ problem, reason }) => `${reason}: ${problem}`, onRight: () => "accepted" })

const step = (engine: Engine.Engine, id: string, some = data) => {
  const { metrics } = right(engine.forwardBackward(id, some, loss))
  right(engine.optimStep(id, { learningRate: 1e-2 }))
  return metrics["loss:sum"]
}

describe("optimStep", () => {
  const trained = () => {
    const engine = Support.engine(model)
    right(engine.createAdapter("a", { rank: 4, seed: 1 }))
    step(engine, "a")
    right(engine.forwardBackward("a", data, loss))
    return { engine, state: () => right(engine.saveAdapter("a", { optimizer: true })) }
  }

  it("optimStep refuses values that are not finite or not positive as float32", () => {
    const { engine, state } = trained()
    const before = state()
    for (const params of [
      { learningRate: 1e39 },
      { weightDecay: 1e39 },
      { gradClipNorm: 1e39 },
      { eps: 1e39 },
      { eps: 1e-60 },
      { beta1: 1 - 1e-12 },
    ])
      expect([params, rejection(engine.optimStep("a", params))]).toEqual([
        params,
        expect.stringMatching(`^InvalidInput: ${Object.keys(params)[0]}: expected .* float32`),
      ])
    expect(state()).toEqual(before)
    expect(right(engine.optimStep("a", { learningRate: 1e-2 })).step).toBe(2)
  })

  it("an update that would not be finite changes neither weights nor moments nor the number of steps", () => {
    for (const params of [
      { learningRate: 3e38 },
      { learningRate: 1e30, weightDecay: 1e30 },
      { learningRate: 3e38, weightDecay: 3e38 },
    ]) {
      const { engine, state } = trained()
      const before = state()
      expect(rejection(engine.optimStep("a", params))).toMatch(/^NotFinite: the update is not finite/)
      expect(state()).toEqual(before)
      expect(right(engine.adapter("a")).steps).toBe(1)
      step(engine, "a")
      expect(right(engine.adapter("a")).steps).toBe(2)
    }
  })
})

describe("adapters", () => {
  it("a new adapter has no effect, and training reduces the loss", () => {
    const engine = Support.engine(model)
    const info = right(engine.createAdapter("a", { rank: 4, seed: 1 }))
    expect(info).toMatchObject({ rank: 4, alpha: 32, seed: 1, steps: 0 })
    const base = right(engine.forward(undefined, data, loss))
    expect(right(engine.forward("a", data, loss))).toEqual(base)
    const losses = Array.from({ length: 8 }, () => step(engine, "a"))
    expect(losses[0]).toBe(base.metrics["loss:sum"])
    expect(losses.at(-1)).toBeLessThan(0.7 * losses[0]!)
    expect(right(engine.forward(undefined, data, loss))).toEqual(base)
  })

  it("an adapter depends on its seed only, not on other adapters", () => {
    const run = (seed: number, others: boolean) => {
      const engine = Support.engine(model)
      if (others) {
        right(engine.createAdapter("other", { rank: 2, seed: 9, trainMlp: false }))
        step(engine, "other")
      }
      right(engine.createAdapter("a", { rank: 4, seed }))
      step(engine, "a")
      // Unused gradients must not reach another adapter.
      if (others) right(engine.forwardBackward("other", data, loss))
      if (others) right(engine.dropAdapter("other"))
      right(engine.createAdapter("b", { rank: 4, seed: seed + 50 }))
      step(engine, "b")
      step(engine, "a")
      return right(engine.saveAdapter("a", { optimizer: true }))
    }
    const one = run(1, false)
    expect(run(1, true)).toEqual(one)
    expect(run(2, false)).not.toEqual(one)
  })

  it("an adapter trains only the matrices that its flags select", () => {
    const engine = Support.engine(model)
    right(engine.createAdapter("head", { rank: 2, trainAttn: false, trainMlp: false }))
    right(engine.createAdapter("mlp", { rank: 2, trainAttn: false, trainUnembed: false }))
    right(engine.createAdapter("attention", { rank: 2, trainMlp: false, trainUnembed: false }))
    const names = (id: string) =>
      right(Safetensors.read(right(engine.saveAdapter(id)))).names.map((name) => name.split(".").at(-3))
    expect(new Set(names("head"))).toEqual(new Set(["lm_head"]))
    expect(new Set(names("mlp"))).toEqual(new Set(["gate_proj", "up_proj", "down_proj"]))
    expect(new Set(names("attention"))).toEqual(new Set(["q_proj", "k_proj", "v_proj", "o_proj"]))
    for (const id of engine.adapters()) {
      const before = step(engine, id)
      for (let i = 0; i < 4; i++) step(engine, id)
      expect(step(engine, id)).toBeLessThan(before)
    }
  })

  it("an adapter restored from a file trains on identically", () => {
    const engine = Support.engine(model)
    right(engine.createAdapter("a", { rank: 4, seed: 1 }))
    step(engine, "a")
    step(engine, "a")
    const whole = right(engine.saveAdapter("a", { optimizer: true }))
    const weights = right(engine.saveAdapter("a"))
    right(engine.loadAdapter("b", whole, { optimizer: true }))
    right(engine.loadAdapter("c", weights))
    expect(right(engine.saveAdapter("b", { optimizer: true }))).toEqual(whole)
    expect(right(engine.saveAdapter("c"))).toEqual(weights)
    for (const id of ["a", "b", "c"]) step(engine, id)
    const after = right(engine.saveAdapter("a"))
    expect(right(engine.saveAdapter("b"))).toEqual(after)
    expect(right(engine.saveAdapter("c"))).not.toEqual(after)
    right(engine.forwardBackward("a", data, loss))
    right(engine.restoreAdapter("a", whole, { optimizer: true }))
    expect(right(engine.saveAdapter("a", { optimizer: true }))).toEqual(whole)
    step(engine, "a")
    expect(right(engine.saveAdapter("a"))).toEqual(after)
  })

  it("gradients accumulate until optimStep", () => {
    const engine = Support.withAdapter(model)
    right(engine.forwardBackward("a", data, loss))
    const once = right(engine.gradients("a"))
    right(engine.optimStep("a", { learningRate: 0 }))
    for (const datum of data) right(engine.forwardBackward("a", [datum], loss))
    for (const [name, { data }] of right(engine.gradients("a"))) {
      expect(Support.apart(data, once.get(name)!.data)).toBeLessThan(1e-5)
    }
    right(engine.optimStep("a", { learningRate: 0 }))
    for (const { data } of right(engine.gradients("a")).values()) expect(data.every((value) => value === 0)).toBe(true)
  })

  it("dropAdapter frees the memory of an adapter", () => {
    const engine = Support.engine(model)
    right(engine.forward(undefined, data, loss))
    const { used } = engine.memory()
    const reserved: Array<number> = []
    for (let i = 0; i < 5; i++) {
      right(engine.createAdapter("a", { rank: 8 }))
      step(engine, "a")
      right(engine.sample("a", { prompt: [1, 2], samples: 3, maxTokens: 5 }))
      right(engine.dropAdapter("a"))
      reserved.push(engine.memory().reserved)
    }
    expect(engine.memory().used).toBe(used)
    expect(reserved[4]).toBe(reserved[0])
  })

  it("an adapter keeps its optimizer, also in a file, and dimuon trains on identically", () => {
    const train = (engine: Engine.Engine, id: string) => {
      right(engine.forwardBackward(id, data, loss))
      return engine.optimStep(id, { type: "dimuon", learningRate: 1e-2 })
    }
    const engine = Support.withAdapter(model)
    right(train(engine, "a"))
    const file = right(engine.saveAdapter("a", { optimizer: true }))
    right(engine.loadAdapter("b", file, { optimizer: true }))
    for (const id of ["a", "b"]) right(train(engine, id))
    expect(right(engine.saveAdapter("b"))).toEqual(right(engine.saveAdapter("a")))
    for (const id of ["a", "b"]) {
      expect(() => right(engine.optimStep(id, { learningRate: 1e-2 }))).toThrow(/earlier steps used dimuon, not adamw/)
    }
    right(engine.restoreAdapter("b", file))
    right(engine.optimStep("b", { learningRate: 1e-2 }))
    expect(right(engine.adapter("b")).steps).toBe(1)
  })

  it("an update of dimuon has the learning rate times the square root of the rank as its norm", () => {
    const engine = Support.withAdapter(model)
    const before = right(Support.parse(right(engine.saveAdapter("a"))))
    right(engine.forwardBackward("a", data, loss))
    right(engine.optimStep("a", { type: "dimuon", learningRate: 0.5 }))
    const after = right(Support.parse(right(engine.saveAdapter("a"))))
    const { rank } = right(engine.adapter("a"))
    expect(after.names.length).toBe(30)
    for (const name of after.names) {
      const [from, to] = [before.get(name)!.data, after.get(name)!.data]
      const norm = Math.sqrt(to.reduce((sum, value, i) => sum + (value - from[i]!) ** 2, 0))
      expect(norm).toBeCloseTo(0.5 * Math.sqrt(rank), 4)
    }
  })

  it("saveAdapter and peftConfig write the names, shapes and settings of PEFT", () => {
    const engine = Support.engine(model)
    right(engine.createAdapter("a", { rank: 4, trainUnembed: false }))
    const config = JSON.parse(right(engine.peftConfig("a", "some/model")))
    expect(config).toMatchObject({ peft_type: "LORA", r: 4, lora_alpha: 32, base_model_name_or_path: "some/model" })
    expect(config.target_modules.join(" ")).toBe("q_proj k_proj v_proj o_proj gate_proj up_proj down_proj")
    const file = right(Safetensors.read(right(engine.saveAdapter("a"))))
    const at = "base_model.model.model.layers.1.mlp.down_proj"
    expect(file.get(`${at}.lora_A.weight`)!.shape).toEqual([4, 50])
    expect(file.get(`${at}.lora_B.weight`)!.shape).toEqual([36, 4])
  })
})

describe("loss settings", () => {
  it("beta of dro defaults to 0.05, the clip thresholds to 0.8 and 1.2", () => {
    const engine = Support.withAdapter(model)
    const some = Support.datums(of, ["logprobs", "advantages"])
    const sum = (name: string, config = {}) => right(engine.forward("a", some, { name, config })).metrics["loss:sum"]
    expect(sum("dro")).toBe(sum("dro", { beta: 0.05 }))
    expect(sum("dro")).not.toBe(sum("dro", { beta: 0.06 }))
    for (const name of ["ppo", "cispo"]) {
      expect(sum(name)).toBe(sum(name, { clip_low_threshold: 0.8, clip_high_threshold: 1.2 }))
      expect(sum(name)).not.toBe(sum(name, { clip_low_threshold: 0.7, clip_high_threshold: 1.3 }))
    }
  })
})

describe("invalid input", () => {
  const engine = Support.engine(model)
  right(engine.createAdapter("a", { rank: 2, seed: 1 }))
  right(engine.forwardBackward("a", data, loss))
  /** Returns raw bytes, because comparing thousands of numbers one by one takes half a second per case. */
  const state = () =>
    [...right(engine.gradients("a")).values()]
      .map(({ data }): Uint8Array => new Uint8Array(data.buffer, data.byteOffset, data.byteLength))
      .concat(right(engine.saveAdapter("a", { optimizer: true })))
  const before = Buffer.concat(state())
  const datum = (tokens: ReadonlyArray<number>, inputs: Record<string, Losses.Tensor>) => [{ tokens, inputs }]
  /** A chunk of the wire format in place of tokens, as an untyped caller may send it. */
  const image = { type: "image", data: Uint8Array.of(1, 2), format: "png" } as never
  const good = { target_tokens: { data: [1, 2] }, weights: { data: [1, 1] } }
  const pass = (some: ReadonlyArray<Losses.Datum>, name = "cross_entropy", config = {}) =>
    rejection(engine.forwardBackward("a", some, { name, config }))

  const cases: ReadonlyArray<readonly [string, () => string, RegExp]> = [
    ["a token outside the vocabulary", () => pass(datum([1, 61], good)), /InvalidInput: data\[0\].tokens\[1\]: 61/],
    ["a negative token", () => pass(datum([-1, 1], good)), /tokens\[0\]: -1/],
    [
      "a target outside the vocabulary",
      () => pass(datum([1, 2], { ...good, target_tokens: { data: [1, 99] } })),
      /target_tokens\[1\]: 99/,
    ],
    ["targets of another length", () => pass(datum([1, 2, 3], good)), /expected shape \[3\] .*got \[2\]/],
    [
      "weights of another length",
      () => pass(datum([1, 2], { ...good, weights: { data: [1] } })),
      /weights: shape \[1\]/,
    ],
    ["weights that are NaN", () => pass(datum([1, 2], { ...good, weights: { data: [1, NaN] } })), /weights\[1\]/],
    ["missing weights", () => pass(datum([1, 2], { target_tokens: { data: [1, 2] } })), /weights: missing/],
    ["an unknown input", () => pass(datum([1, 2], { ...good, bonus: { data: [1, 1] } })), /bonus/],
    ["no datum", () => pass([]), /at least one datum/],
    [
      "a datum without tokens",
      () => pass(datum([], { target_tokens: { data: [] }, weights: { data: [] } })),
      /at least one token/,
    ],
    [
      "a datum that is too long",
      () => pass(datum(Array(97).fill(1), good)),
      /97 tokens exceed the model's context of 96/,
    ],
    ["an unknown loss", () => pass(datum([1, 2], good), "nonsense"), /InvalidInput: unknown loss "nonsense".*ppo/],
    [
      "a mask of zeros for gspo",
      () => {
        const ones = { data: [1, 1] }
        const { target_tokens } = good
        const inputs = { target_tokens, logprobs: ones, advantages: ones, sequence_ratio_mask: { data: [0, 0] } }
        return pass(datum([1, 2], inputs), "gspo")
      },
      /sequence_ratio_mask: expected at least one/,
    ],
    [
      "the loss stable_reinforce",
      () => pass(datum([1, 2], good), "stable_reinforce"),
      /Unsupported: loss stable_reinforce/,
    ],
    ["the loss custom", () => pass(datum([1, 2], good), "custom"), /Unsupported: loss custom.*linear form/],
    ["an unknown setting", () => pass(datum([1, 2], good), "cross_entropy", { beta: 1 }), /no setting beta/],
    ["an invalid second datum", () => pass([...data, ...datum([1, 99], good)]), /data\[4\].tokens\[1\]: 99/],
    [
      "a loss that is not finite",
      () =>
        pass(
          datum([1], { target_tokens: { data: [1] }, logprobs: { data: [-1e30] }, advantages: { data: [1] } }),
          "importance_sampling",
        ),
      /NotFinite/,
    ],
    ["the optimizer sgd", () => rejection(engine.optimStep("a", { type: "sgd" })), /Unsupported: optimizer sgd/],
    ["dimuon without a learning rate", () => rejection(engine.optimStep("a", { type: "dimuon" })), /learningRate/],
    ["a learning rate of NaN", () => rejection(engine.optimStep("a", { learningRate: NaN })), /learningRate/],
    ["an unknown adapter", () => rejection(engine.forward("x", data, loss)), /NotFound/],
    ["an adapter name in use", () => rejection(engine.createAdapter("a", { rank: 2 })), /already/],
    ["an adapter of rank 0", () => rejection(engine.createAdapter("b", { rank: 0 })), /rank/],
    [
      "an adapter that trains nothing",
      () => rejection(engine.createAdapter("b", { rank: 1, trainAttn: false, trainMlp: false, trainUnembed: false })),
      /at least one/,
    ],
    ["a file that is not an adapter", () => rejection(engine.restoreAdapter("a", new Uint8Array(9))), /adapter file/],
    [
      "an adapter file without optimizer state",
      () => rejection(engine.restoreAdapter("a", right(engine.saveAdapter("a")), { optimizer: true })),
      /no optimizer state/,
    ],
    [
      "an image in a prompt",
      () => rejection(engine.sample("a", { prompt: [1, image] })),
      /^Unsupported: prompt\[1\]: .*image/,
    ],
    ["an image as a prompt", () => rejection(engine.sample("a", { prompt: image })), /^Unsupported: prompt: .*image/],
    ["an image in a datum", () => pass(datum([1, image], good)), /^Unsupported: data\[0\].tokens\[1\]: .*image/],
    ["an image as a datum", () => pass([{ tokens: image, inputs: good }]), /^Unsupported: data\[0\].tokens: .*image/],
    ["an object among tokens", () => pass(datum([1, {} as never], good)), /tokens\[1\]: an object/],
    ["logits without tokens", () => rejection(engine.logits("a", [])), /InvalidInput: tokens: expected at least one/],
    ["logits of an unknown token", () => rejection(engine.logits("a", [1, 61])), /InvalidInput: tokens\[1\]: 61/],
    ["logits at an invalid position", () => rejection(engine.logits("a", [1, 2], [0, 2])), /positions\[1\]: .*got 2/],
    ["logits of an unknown adapter", () => rejection(engine.logits("x", [1])), /NotFound/],
    ["an empty prompt", () => rejection(engine.sample("a", { prompt: [] })), /prompt: expected at least one token/],
    ["a prompt outside the vocabulary", () => rejection(engine.sample("a", { prompt: [99] })), /prompt\[0\]/],
    ["a prompt that fills the context", () => rejection(engine.sample("a", { prompt: Array(96).fill(1) })), /no room/],
    ["maxTokens -1", () => rejection(engine.sample("a", { prompt: [1], maxTokens: -1 })), /maxTokens/],
    ["a cache of -1 bytes", () => rejection(Engine.make(Support.files(model), { prefixCache: -1 })), /prefixCache/],
    ["temperature -1", () => rejection(engine.sample("a", { prompt: [1], temperature: -1 })), /temperature/],
    ["topK 0", () => rejection(engine.sample("a", { prompt: [1], topK: 0 })), /topK/],
    ["topP 2", () => rejection(engine.sample("a", { prompt: [1], topP: 2 })), /topP/],
  ]
  for (const [name, attempt, wanted] of cases) {
    it(`the engine rejects ${name} and changes nothing`, () => {
      expect(attempt()).toMatch(wanted)
      expect(Buffer.concat(state()).equals(before)).toBe(true)
    })
  }

  it("Engine.make rejects files that are not a supported model", () => {
    const files = Support.files(model)
    const make = (config: object, weights = files.weights) =>
      rejection(Engine.make({ config: { ...files.config, ...config }, weights }))
    expect(make({ model_type: "gpt2" })).toMatch(/Unsupported: model_type "gpt2"/)
    expect(make({ hidden_size: 40 })).toMatch(/InvalidModel: .*expected \[.*got/)
    expect(make({ num_key_value_heads: 3 })).toMatch(/InvalidModel/)
    expect(make({ rope_parameters: { rope_type: "yarn", rope_theta: 1 } })).toMatch(/Unsupported: rope_type/)
    expect(make({ attention_bias: true })).toMatch(/Unsupported/)
    expect(make({}, [])).toMatch(/is missing/)
    expect(make({}, [files.weights[0]!.subarray(0, 5000)])).toMatch(/InvalidModel: safetensors/)
    expect(make({}, [new Uint8Array(3)])).toMatch(/no header/)
  })
})
