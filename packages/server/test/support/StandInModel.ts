/**
 * Replaces the engine in server tests with a bigram model: the log probability of a token after another is a softmax
 * over a table that is trained directly. No LoRA and no transformer, but exact gradients, a falling loss, and samples
 * that follow from their seed. Each token is a character.
 */
import type {
  AdapterConfig,
  Backend,
  Pass,
  PassOutput,
  SampleRequest,
  Sequence,
  Update,
} from "@effect-tinker/server/ModelHost"

export const vocabSize = 128
export const name = "stand-in/bigram"
const context = 256
const size = vocabSize * vocabSize

interface Adapter {
  readonly config: AdapterConfig
  readonly table: Float32Array
  readonly first: Float32Array
  readonly second: Float32Array
  readonly gradient: Float32Array
  steps: number
}

class Invalid extends Error {
  override readonly name = "Invalid"
}

/** Creates a random number generator from a seed. */
const random = (seed: number) => {
  let state = seed | 0
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296
  }
}

/** The base model is slight noise; the seed of an adapter adds much smaller noise. */
const base = (() => {
  const next = random(7)
  return Float32Array.from({ length: size }, () => next() - 0.5)
})()

const newAdapter = (config: AdapterConfig): Adapter => {
  const next = random(config.seed)
  return {
    config,
    table: Float32Array.from(base, (value) => value + 1e-3 * (next() - 0.5)),
    first: new Float32Array(size),
    second: new Float32Array(size),
    gradient: new Float32Array(size),
    steps: 0,
  }
}

const logSoftmax = (table: Float32Array, row: number, out: Float64Array): void => {
  const from = row * vocabSize
  let max = -Infinity
  for (let i = 0; i < vocabSize; i++) max = Math.max(max, table[from + i]!)
  let sum = 0
  for (let i = 0; i < vocabSize; i++) sum += Math.exp(table[from + i]! - max)
  const log = max + Math.log(sum)
  for (let i = 0; i < vocabSize; i++) out[i] = table[from + i]! - log
}

const runPass = (adapter: Adapter, { config, examples, forwardOnly, loss }: Pass): PassOutput => {
  const row = new Float64Array(vocabSize)
  const added = new Float32Array(size)
  let total = 0
  const outputs = examples.map(({ inputs, tokens }) => {
    const targets = inputs["target_tokens"]!.data
    const ones = new Float32Array(targets.length).fill(1)
    const weights = inputs["weights"]?.data ?? ones
    const old = inputs["logprobs"]?.data
    const advantages = inputs["advantages"]?.data
    const logprobs = new Float32Array(targets.length)
    for (let i = 0; i < tokens.length; i++) {
      logSoftmax(adapter.table, tokens[i]!, row)
      const logprob = row[targets[i]!]!
      logprobs[i] = logprob
      let slope = weights[i]!
      if (loss === "cross_entropy") total -= logprob * weights[i]!
      else {
        const ratio = Math.exp(logprob - old![i]!)
        const low = Number(config["clip_low_threshold"] ?? 0.8)
        const high = Number(config["clip_high_threshold"] ?? 1.2)
        const clipped = loss === "ppo" && (ratio < low || ratio > high)
        slope = clipped ? 0 : ratio * advantages![i]! * (inputs["weights"]?.data[i] ?? 1)
        total -= ratio * advantages![i]!
      }
      if (!forwardOnly && slope !== 0) {
        const from = tokens[i]! * vocabSize
        for (let j = 0; j < vocabSize; j++) added[from + j]! += slope * Math.exp(row[j]!)
        added[from + targets[i]!]! -= slope
      }
    }
    return { logprobs: { data: logprobs, shape: [logprobs.length] } }
  })
  if (!Number.isFinite(total)) throw new Invalid("the loss is not finite")
  if (!forwardOnly) for (let i = 0; i < size; i++) adapter.gradient[i]! += added[i]!
  return { outputs, metrics: { "loss:sum": total } }
}

const runStep = (adapter: Adapter, update: Update) => {
  const { beta1, beta2, eps, gradClipNorm, learningRate, weightDecay } = update
  const norm = Math.sqrt(adapter.gradient.reduce((sum, value) => sum + value * value, 0))
  const scale = gradClipNorm > 0 && norm > gradClipNorm ? gradClipNorm / norm : 1
  adapter.steps++
  for (let i = 0; i < size; i++) {
    const slope = adapter.gradient[i]! * scale
    adapter.first[i] = beta1 * adapter.first[i]! + (1 - beta1) * slope
    adapter.second[i] = beta2 * adapter.second[i]! + (1 - beta2) * slope * slope
    const first = adapter.first[i]! / (1 - beta1 ** adapter.steps)
    const second = adapter.second[i]! / (1 - beta2 ** adapter.steps)
    adapter.table[i]! -= learningRate * (first / (Math.sqrt(second) + eps) + weightDecay * adapter.table[i]!)
  }
  adapter.gradient.fill(0)
  return { "grad_norm:unique": norm, "step:unique": adapter.steps }
}

const draw = (table: Float32Array, request: SampleRequest, index: number, last: number) => {
  const next = random(request.seed + index * 7919)
  const row = new Float64Array(vocabSize)
  const tokens: Array<number> = []
  const logprobs: Array<number> = []
  let text = ""
  let at = last
  let stopReason: Sequence["stopReason"] = "length"
  while (tokens.length < request.maxTokens) {
    logSoftmax(table, at, row)
    const order = [...row.keys()].toSorted((a, b) => row[b]! - row[a]!)
    const kept = request.topK > 0 ? order.slice(0, request.topK) : order
    const weights = kept.map((token) =>
      request.temperature === 0 ? Number(token === order[0]) : Math.exp(row[token]! / request.temperature),
    )
    const sum = weights.reduce((a, b) => a + b, 0)
    let left = next() * sum
    let chosen = kept.at(-1)!
    for (const [i, token] of kept.entries()) {
      left -= weights[i]!
      if (left <= 0) {
        chosen = token
        break
      }
    }
    tokens.push(chosen)
    logprobs.push(row[chosen]!)
    text += String.fromCharCode(chosen)
    at = chosen
    if (request.stopTokens.includes(chosen) || request.stopTexts.some((stop) => text.includes(stop))) {
      stopReason = "stop"
      break
    }
  }
  return { tokens, logprobs, stopReason }
}

const topkOf = (rows: ReadonlyArray<Float64Array | undefined>, k: number) => {
  if (k === 0) return undefined
  const tokenIds = new Int32Array(rows.length * k)
  const logprobs = new Float32Array(rows.length * k).fill(Number.NaN)
  rows.forEach((row, at) => {
    if (row === undefined) return
    const order = [...row.keys()].toSorted((a, b) => row[b]! - row[a]!).slice(0, k)
    order.forEach((token, i) => {
      tokenIds[at * k + i] = token
      logprobs[at * k + i] = row[token]!
    })
  })
  return { k, tokenIds, logprobs }
}

const draws = (rows: ReadonlyArray<Float64Array | undefined>, { promptDraws, seed, temperature }: SampleRequest) => {
  const next = random(seed - 1)
  const drawn = rows.flatMap((row) =>
    Array.from({ length: promptDraws }, () => {
      let left = next()
      const token = row!.findIndex((logprob) => (left -= Math.exp(logprob / temperature)) <= 0)
      return [token, row!.at(token)!] as const
    }),
  )
  return {
    tokens: Int32Array.from(drawn, ([token]) => token),
    logprobs: Float32Array.from(drawn, ([, logprob]) => logprob),
  }
}

export const make = (options: { readonly delay?: () => Promise<void> } = {}): Backend => {
  const adapters = new Map<string, Adapter>()
  const samplers = new Map<string, Float32Array>()
  const get = (id: string) => {
    const adapter = adapters.get(id)
    if (adapter === undefined) throw new Invalid(`adapter ${id} not found`)
    return adapter
  }
  return {
    models: [
      {
        name,
        arch: "bigram",
        vocabSize,
        maxContextLength: context,
        maxRank: 64,
        tokenizerId: undefined,
        endTokens: [0],
        losses: ["cross_entropy", "importance_sampling", "ppo"],
        optimizers: ["adamw"],
      },
    ],
    create: (id, config) => void adapters.set(id, newAdapter(config)),
    drop: (id) => void adapters.delete(id),
    pass: async (id, pass) => {
      await options.delay?.()
      return runPass(get(id), pass)
    },
    step: (id, update) => runStep(get(id), update),
    save: (id, optimizer) => {
      const { first, second, steps, table } = get(id)
      const parts = optimizer ? [table, first, second, Float32Array.of(steps)] : [table]
      return Uint8Array.from(parts.flatMap((part) => [...new Uint8Array(part.buffer)]))
    },
    restore: (id, weights, optimizer) => {
      const adapter = get(id)
      const all = new Float32Array(Uint8Array.from(weights).buffer)
      adapter.table.set(all.subarray(0, size))
      adapter.gradient.fill(0)
      const has = optimizer && all.length > size
      adapter.first.set(has ? all.subarray(size, 2 * size) : new Float32Array(size))
      adapter.second.set(has ? all.subarray(2 * size, 3 * size) : new Float32Array(size))
      adapter.steps = has ? all[3 * size]! : 0
    },
    openSampler: (id, _, adapter) =>
      void samplers.set(
        id,
        adapter === undefined ? base : new Float32Array(Uint8Array.from(adapter.weights).buffer).slice(0, size),
      ),
    closeSampler: (id) => void samplers.delete(id),
    sample: async (id, request, onToken, signal) => {
      await options.delay?.()
      signal.throwIfAborted()
      const table = samplers.get(id)
      if (table === undefined) throw new Invalid(`sampler ${id} not found`)
      const rows = [...request.prompt].map((_, i) => {
        if (i === 0) return undefined
        const row = new Float64Array(vocabSize)
        logSoftmax(table, request.prompt[i - 1]!, row)
        return row
      })
      return {
        sequences: Array.from({ length: request.numSamples }, (_, index) => {
          const { logprobs, stopReason, tokens } = draw(table, request, index, request.prompt.at(-1)!)
          const drawn = tokens.map((_, i) => {
            const row = new Float64Array(vocabSize)
            logSoftmax(table, i === 0 ? request.prompt.at(-1)! : tokens[i - 1]!, row)
            return row
          })
          const topk = topkOf(drawn, request.topkSampleLogprobs)
          for (const [i, token] of tokens.entries())
            onToken?.(index, {
              token,
              logprob: logprobs[i]!,
              top: topk && {
                tokenIds: topk.tokenIds.slice(i * topk.k, (i + 1) * topk.k),
                logprobs: topk.logprobs.slice(i * topk.k, (i + 1) * topk.k),
              },
            })
          return { tokens: Int32Array.from(tokens), logprobs: Float32Array.from(logprobs), stopReason, topk }
        }),
        promptLogprobs: request.promptLogprobs
          ? Float32Array.from(rows, (row, i) => row?.[request.prompt[i]!] ?? Number.NaN)
          : undefined,
        topkPrompt: topkOf(rows, request.topkPromptLogprobs),
        targets:
          request.targets &&
          Float32Array.from(request.targets.tokens, (token, i) => rows[request.targets!.positions[i]!]![token]!),
        promptDraws: request.promptDraws === 0 ? undefined : draws(rows.slice(1), request),
      }
    },
    files: (config, weights) => [
      { name: "adapter_config.json", bytes: new TextEncoder().encode(JSON.stringify(config)) },
      { name: "adapter_model.safetensors", bytes: weights },
    ],
    encode: (_, text) => Int32Array.from(text, (char) => char.charCodeAt(0) % vocabSize),
    decode: (_, tokens) => String.fromCharCode(...tokens),
    pieces: (_, tokens) => Array.from(tokens, (token) => String.fromCharCode(token)),
    renderChat: (_, { messages, tools }) => ({
      tokens: Int32Array.from(
        tools.map(({ name }) => `tool ${name}\n`).join("") +
          messages.map(({ content, role }) => `${role}: ${content}\n`).join("") +
          "assistant: ",
        (char) => char.charCodeAt(0) % vocabSize,
      ),
      stopTokens: [0],
    }),
    readAnswer: (_, tokens) => ({ text: String.fromCharCode(...tokens), reasoning: "", toolCalls: [] }),
  }
}
