import { describe, expect, it } from "@effect/vitest"
import { Random } from "@effect-tinker/engine"
import { Either } from "effect"
import { draw, largest } from "../src/internal/Draw.js"
import * as Kernel from "../src/internal/Kernel.js"
import { Memory } from "../src/internal/Memory.js"
import { PrefixCache } from "../src/internal/PrefixCache.js"
import * as Support from "./support/Goldens.ts"

const { right } = Support
const model = "qwen3-f32-free"
const prompt = [4, 8, 15, 16, 23, 42]
const engine = Support.withAdapter(model)

describe("sampling", () => {
  for (const id of [undefined, "a"]) {
    it(`${id ?? "base model"}: log probabilities of prompt and samples equal those of forward`, () => {
      const { promptLogprobs, sequences } = right(
        engine.sample(id, { prompt, samples: 4, maxTokens: 30, seed: 1, promptLogprobs: true, stopTokens: [] }),
      )
      expect(sequences.length).toBe(4)
      for (const { logprobs, stopReason, tokens } of sequences) {
        expect(stopReason).toBe("length")
        expect(tokens.length).toBe(30)
        const whole = [...prompt, ...tokens]
        const { outputs } = right(
          engine.forward(
            id,
            [
              {
                tokens: whole.slice(0, -1),
                inputs: { target_tokens: { data: whole.slice(1) }, weights: { data: whole.slice(1).map(() => 1) } },
              },
            ],
            { name: "cross_entropy" },
          ),
        )
        const again = outputs[0]!.logprobs
        for (const [i, value] of logprobs.entries())
          expect(Math.abs(value - again[prompt.length - 1 + i]!)).toBeLessThan(1e-4)
        expect(promptLogprobs![0]).toBeNaN()
        expect(promptLogprobs!.length).toBe(prompt.length)
        for (let i = 1; i < prompt.length; i++) expect(promptLogprobs![i]).toBeCloseTo(again[i - 1]!, 4)
      }
    })
  }

  it("samples depend on the seed and their index only", () => {
    const run = (seed: number | undefined, samples = 3, maxTokens = 20) =>
      right(engine.sample("a", { prompt, samples, maxTokens, seed, temperature: 2, stopTokens: [] }))
    const one = run(7)
    expect(run(7)).toEqual(one)
    expect(run(8)).not.toEqual(one)
    expect(run(undefined)).not.toEqual(run(undefined))
    expect(new Set(one.sequences.map(({ tokens }) => tokens.join())).size).toBe(3)
    // More samples than are computed at once; each equals the one from the smaller request.
    const many = run(7, 40)
    expect(many.sequences.slice(0, 3)).toEqual(one.sequences)
    expect(new Set(many.sequences.map(({ tokens }) => tokens.join())).size).toBe(40)
    expect(run(7, 3, 5).sequences[1]!.tokens).toEqual(one.sequences[1]!.tokens.slice(0, 5))
  })

  it("temperature 0 takes the most likely token", () => {
    const { sequences } = right(
      engine.sample("a", { prompt, samples: 2, maxTokens: 9, temperature: 0, stopTokens: [], topkSampleLogprobs: 3 }),
    )
    expect(sequences[0]).toEqual(sequences[1])
    const { logprobs, tokens, topk } = sequences[0]!
    expect(topk!.length).toBe(9)
    for (const [i, token] of tokens.entries()) {
      expect(topk!.tokenIds[3 * i]).toBe(token)
      expect(topk!.logprobs[3 * i]).toBe(logprobs[i])
      expect(topk!.logprobs[3 * i + 1]).toBeLessThanOrEqual(topk!.logprobs[3 * i]!)
    }
  })

  it("sampling stops at stop tokens, at stop texts, or by default at the model's end token", () => {
    const free = right(engine.sample("a", { prompt, maxTokens: 20, seed: 3, stopTokens: [] })).sequences[0]!
    const stop = free.tokens[4]!
    const first = free.tokens.indexOf(stop)
    const stopped = right(engine.sample("a", { prompt, maxTokens: 20, seed: 3, stopTokens: [stop] })).sequences[0]!
    expect(stopped.stopReason).toBe("stop")
    expect(stopped.tokens).toEqual(free.tokens.slice(0, first + 1))

    const decode = (tokens: Iterable<number>) => Array.from(tokens, (token) => `<${token}>`).join("")
    const text = decode(free.tokens.slice(4, 6))
    const at = decode(free.tokens).indexOf(text)
    const until = free.tokens.findIndex((_, i) => decode(free.tokens.slice(0, i + 1)).length >= at + text.length)
    const texts = { texts: ["never", text], decode }
    const cut = right(engine.sample("a", { prompt, maxTokens: 20, seed: 3, stopTokens: [], stopTexts: texts }))
    expect(cut.sequences[0]!.stopReason).toBe("stop")
    expect(cut.sequences[0]!.tokens).toEqual(free.tokens.slice(0, until + 1))

    const ended = right(engine.sample("a", { prompt, samples: 64, maxTokens: 40, seed: 3, temperature: 3 }))
    const [eos] = engine.config.eosTokens
    const stopsAtEos = ended.sequences.filter(({ stopReason }) => stopReason === "stop")
    expect(stopsAtEos.length).toBeGreaterThan(5)
    for (const { tokens } of stopsAtEos) expect(tokens.indexOf(eos!)).toBe(tokens.length - 1)
  })

  it("topkPromptLogprobs returns the most likely tokens for each prompt token", () => {
    const { promptLogprobs, topkPrompt } = right(
      engine.sample("a", { prompt, maxTokens: 1, promptLogprobs: true, topkPromptLogprobs: 61 }),
    )
    expect(topkPrompt!.length).toBe(prompt.length)
    expect(topkPrompt!.logprobs[0]).toBe(-99_999)
    for (let i = 1; i < prompt.length; i++) {
      const row = [...topkPrompt!.tokenIds.subarray(61 * i, 61 * (i + 1))]
      expect(new Set(row).size).toBe(61)
      expect(topkPrompt!.logprobs[61 * i + row.indexOf(prompt[i]!)]).toBe(promptLogprobs![i])
      const sum = topkPrompt!.logprobs.subarray(61 * i, 61 * (i + 1)).reduce((s, v) => s + Math.exp(v), 0)
      expect(sum).toBeCloseTo(1, 5)
    }
  })

  it("promptTargets scores tokens at positions of the prompt, and promptDraws draws some", () => {
    const width = 61
    const { promptLogprobs, topkPrompt } = right(
      engine.sample("a", { prompt, maxTokens: 1, promptLogprobs: true, topkPromptLogprobs: width }),
    )
    const known = (position: number, token: number) => {
      const at = topkPrompt!.tokenIds.indexOf(token, width * position)
      return topkPrompt!.logprobs[at]!
    }
    const positions = [3, 1, 1, 5]
    const tokens = [prompt[3]!, 7, 60, 0]
    const scored = right(engine.sample("a", { prompt, maxTokens: 1, promptTargets: { positions, tokens } }))
    expect([...scored.promptTargets!]).toEqual(tokens.map((token, i) => known(positions[i]!, token)))
    expect(scored.promptTargets![0]).toBe(promptLogprobs![3])

    const run = (seed: number, temperature: number, promptDraws = 50) =>
      right(engine.sample("a", { prompt, maxTokens: 1, seed, temperature, topK: 1, promptDraws })).promptDraws!
    const drawn = run(4, 1)
    expect([drawn.tokens.length, drawn.logprobs.length]).toEqual([250, 250])
    for (const [i, token] of drawn.tokens.entries())
      expect(drawn.logprobs[i]).toBe(known(1 + Math.floor(i / 50), token))
    // Draws from the whole distribution regardless of top-k, depend on the seed, and are greedy at temperature 0.
    expect(new Set(drawn.tokens.subarray(0, 50)).size).toBeGreaterThan(3)
    expect(run(4, 1)).toEqual(drawn)
    expect(run(5, 1).tokens).not.toEqual(drawn.tokens)
    expect([...run(4, 0, 2).tokens.subarray(0, 2)]).toEqual([topkPrompt!.tokenIds[width], topkPrompt!.tokenIds[width]])
    // Sampled tokens do not depend on requests about the prompt.
    const plain = right(engine.sample("a", { prompt, maxTokens: 6, seed: 4 }))
    expect(right(engine.sample("a", { prompt, maxTokens: 6, seed: 4, promptDraws: 3 })).sequences).toEqual(
      plain.sequences,
    )

    for (const [promptTargets, words] of [
      [{ positions: [0], tokens: [1] }, "positions[0]"],
      [{ positions: [6], tokens: [1] }, "positions[0]"],
      [{ positions: [1], tokens: [999] }, "tokens[0]"],
      [{ positions: [1, 2], tokens: [1] }, "1 tokens for 2 positions"],
    ] as const)
      expect(
        Either.getOrThrow(Either.flip(engine.sample("a", { prompt, maxTokens: 1, promptTargets }))).message,
      ).toContain(words)
  })

  it("onToken receives each sampled token", () => {
    const received: Array<Array<number>> = Array.from({ length: 40 }, () => [])
    const { sequences } = right(
      engine.sample("a", {
        prompt,
        samples: 40,
        maxTokens: 5,
        seed: 3,
        topkSampleLogprobs: 2,
        onToken: (sequence, { logprob, token, top }) => received[sequence]!.push(token, logprob, ...top!.tokenIds),
      }),
    )
    expect(received).toEqual(
      sequences.map(({ logprobs, tokens, topk }) =>
        [...tokens].flatMap((token, i) => [
          token,
          expect.closeTo(logprobs[i]!, 5),
          ...topk!.tokenIds.subarray(2 * i, 2 * i + 2),
        ]),
      ),
    )
  })

  it("startSample proceeds step by step and frees its memory when closed", () => {
    const { used } = engine.memory()
    const run = right(engine.startSample("a", { prompt, maxTokens: 10, seed: 3, stopTokens: [] }))
    expect(right(run.step())).toBe(false)
    expect(engine.memory().used).toBeGreaterThan(used)
    run.close()
    expect(engine.memory().used).toBe(used)
    const other = right(engine.startSample("a", { prompt, maxTokens: 10, seed: 3, stopTokens: [] }))
    while (!right(other.step())) expect(other.result()).toBeUndefined()
    expect(other.result()).toEqual(right(engine.sample("a", { prompt, maxTokens: 10, seed: 3, stopTokens: [] })))
    expect(engine.memory().used).toBe(used)
  })
})

describe("prefix cache", () => {
  const conversation = [prompt, [...prompt, 3, 9], [...prompt, 3, 9, 27, 1, 5], [4, 8, 15, 7], [50]]

  it.each(["simd", "plain"] as const)("results are the same with and without the cache (%s kernel)", (kernel) => {
    const [cached, bare] = [undefined, 0].map((prefixCache) => Support.withAdapter(model, { kernel, prefixCache }))
    const long = Array.from({ length: 70 }, (_, i) => (7 * i) % 60)
    for (const id of [undefined, "a"]) {
      for (const start of [...conversation, long, [...long, 1, 2, 3]]) {
        const request = { prompt: start, samples: 3, maxTokens: 8, seed: 5, stopTokens: [], topkSampleLogprobs: 2 }
        const first = right(cached!.sample(id, request))
        expect(first).toEqual(right(bare!.sample(id, request)))
        expect(right(cached!.sample(id, request))).toEqual(first)
        const next = { ...request, prompt: [...start, ...first.sequences[1]!.tokens, 2, 3], promptLogprobs: id === "a" }
        expect(right(cached!.sample(id, next))).toEqual(right(bare!.sample(id, next)))
      }
    }
    expect(bare!.memory().cached).toBe(0)
    expect(cached!.memory().cached).toBeGreaterThan(0)
  })

  it("changed weights are not sampled from what was computed before", () => {
    const made = Support.withAdapter(model)
    const bare = Support.withAdapter(model, { prefixCache: 0 })
    const request = { prompt, samples: 2, maxTokens: 6, seed: 5, stopTokens: [] }
    const both = [made, bare] as const
    const same = () => {
      const [one, other] = both.map((engine) => right(engine.sample("a", request)))
      expect(one).toEqual(other)
      return one
    }
    const before = same()
    const running = both.map((engine) => right(engine.startSample("a", request)))
    for (const run of running) right(run.step())
    for (const engine of both) {
      const inputs = { target_tokens: { data: [8, 15] }, weights: { data: [1, 1] } }
      right(engine.forwardBackward("a", [{ tokens: [4, 8], inputs }], { name: "cross_entropy" }))
      right(engine.optimStep("a", { learningRate: 0.1 }))
    }
    // This run began with the old weights, so the cache does not keep it.
    for (const run of running) while (!right(run.step())) expect(run.result()).toBeUndefined()
    expect(made.memory().cached).toBe(0)
    expect(same()).not.toEqual(before)
    for (const engine of both) right(engine.restoreAdapter("a", Support.bytes(model, "adapter")))
    expect(same()).toEqual(before)
  })

  it("the cache keeps recent sequences within its limit, and nothing of a dropped adapter", () => {
    const room = 20_000
    const made = Support.withAdapter(model, { prefixCache: room })
    const { used } = made.memory()
    for (let i = 0; i < 40; i++) {
      right(made.sample("a", { prompt: [i, ...prompt], samples: 2, maxTokens: 6, seed: i, stopTokens: [] }))
      expect(made.memory().cached).toBeLessThanOrEqual(room)
      expect(made.memory().used).toBe(used)
    }
    expect(made.memory().cached).toBeGreaterThan(room / 2)
    right(made.dropAdapter("a"))
    expect(made.memory().cached).toBe(0)
  })

  it("load fills a block with the longest beginning that is known", () => {
    const memory = new Memory(Kernel.make("plain")!)
    const cache = new PrefixCache(memory, engine.config, 2 ** 20)
    const wide = engine.config.kvHeads * engine.config.headDim
    const block = (room: number, value: number) => {
      const size = engine.config.layers * room * wide
      const made = { keys: memory.alloc(size), values: memory.alloc(size), room }
      memory.floats.fill(value, made.keys, made.keys + size)
      memory.floats.fill(value, made.values, made.values + size)
      return made
    }
    cache.store(undefined, 0, Int32Array.of(1, 2, 3, 4), block(6, 1))
    cache.store(undefined, 0, Int32Array.of(1, 2, 5), block(3, 2))
    const into = block(8, 0)
    expect(cache.load(undefined, Int32Array.of(1, 2, 5, 6, 7), 4, into)).toBe(3)
    const last = (engine.config.layers * wide - 1) * 8
    expect([...memory.floats.subarray(into.keys + last, into.keys + last + 8)]).toEqual([2, 2, 2, 0, 0, 0, 0, 0])
    expect(cache.load(undefined, Int32Array.of(1, 2, 3, 4), 3, into)).toBe(3)
    expect([...memory.floats.subarray(into.keys + last, into.keys + last + 8)]).toEqual([1, 1, 1, 0, 0, 0, 0, 0])
    expect(cache.load(undefined, Int32Array.of(2, 2), 1, into)).toBe(0)
    const { bytes } = cache
    // The longer sequence replaces its beginning, and a beginning of a known one is not kept again.
    cache.store(undefined, 0, Int32Array.of(1, 2, 3, 4, 5), block(5, 3))
    cache.store(undefined, 0, Int32Array.of(1, 2), block(2, 4))
    expect(cache.bytes).toBe((bytes / 7) * 8)
  })
})

describe("max tokens", () => {
  it("0 scores the prompt and samples nothing, up to the whole context", () => {
    const scored = right(engine.sample("a", { prompt, samples: 2, maxTokens: 0, promptLogprobs: true }))
    const sampled = right(engine.sample("a", { prompt, maxTokens: 1, seed: 1, promptLogprobs: true }))
    expect(scored.promptLogprobs).toEqual(sampled.promptLogprobs)
    expect(scored.sequences).toEqual(
      Array.from({ length: 2 }, () => ({
        tokens: new Int32Array(0),
        logprobs: new Float32Array(0),
        stopReason: "length",
        topk: undefined,
      })),
    )
    const whole = Array.from({ length: engine.config.maxPositions }, (_, i) => i % 60)
    expect(right(engine.sample("a", { prompt: whole, maxTokens: 0 })).sequences[0]!.stopReason).toBe("length")
    expect(() => right(engine.sample("a", { prompt: whole, maxTokens: 1 }))).toThrow(/no room/)
  })
})

describe("draw", () => {
  const logits = Float32Array.of(1, 2.5, -1, 0.3, 2, 1.7, 0, -0.4)

  /** Compares with the distribution defined by top-k, top-p and temperature, using a chi-square test. */
  const follows = (params: { temperature: number; topK: number; topP: number }, kept: ReadonlyArray<number>) => {
    const weights = kept.map((token) => Math.exp(logits[token]! / params.temperature))
    const sum = weights.reduce((a, b) => a + b, 0)
    const random = Random.make(99)
    const counts = new Map<number, number>()
    const draws = 40_000
    for (let i = 0; i < draws; i++) {
      const token = draw(logits, params, random)
      counts.set(token, (counts.get(token) ?? 0) + 1)
    }
    expect(new Set(counts.keys())).toEqual(new Set(kept))
    const chi = kept.reduce((total, token, i) => {
      const expected = (draws * weights[i]!) / sum
      return total + (counts.get(token)! - expected) ** 2 / expected
    }, 0)
    // The 0.999 quantile for 7 degrees of freedom.
    expect(chi).toBeLessThan(24.3)
  }

  it("draw applies the temperature", () => follows({ temperature: 1.5, topK: -1, topP: 1 }, [0, 1, 2, 3, 4, 5, 6, 7]))
  it("draw applies top-k", () => follows({ temperature: 1, topK: 3, topP: 1 }, [1, 4, 5]))
  it("draw keeps the fewest tokens that reach top-p", () =>
    follows({ temperature: 1, topK: -1, topP: 0.85 }, [1, 4, 5, 0]))
  it("draw applies top-k and top-p together", () => follows({ temperature: 1, topK: 4, topP: 0.6 }, [1, 4]))
  it("draw keeps at least one token", () => follows({ temperature: 1, topK: -1, topP: 0 }, [1]))

  it("largest returns the k largest values, equal ones by index", () => {
    const random = Random.make(1)
    const row = Float32Array.from({ length: 200 }, () => Math.floor(random() * 30))
    const sorted = [...row.keys()].toSorted((a, b) => row[b]! - row[a]! || a - b)
    for (const k of [0, 1, 2, 7, 199, 200]) expect([...largest(row, k)]).toEqual(sorted.slice(0, k))
  })
})
