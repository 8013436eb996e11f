/** Manages samplers, which hold immutable weights, and runs samples on them. */
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as FiberId from "effect/FiberId"
import * as Option from "effect/Option"
import type { SampleRequest } from "effect-tinker/protocol/schemas/Sampling"
import * as ResultMessages from "effect-tinker/protocol/ResultMessages"
import * as TensorData from "effect-tinker/TensorData"
import type { TopkLogprobs } from "effect-tinker/SampleResult"
import { createHash } from "node:crypto"
import type * as ModelHost from "../ModelHost.ts"
import { tokensOf } from "./CheckPass.ts"
import { baseModelOf, type Core } from "./Core.ts"
import { storageFailure, readWeights } from "./Models.ts"
import { bad, type Refusal } from "./Refusal.ts"
import type { Counted, Job, Payload, Sampler, SamplerRow } from "./State.ts"

export const unsafeSampler = (row: SamplerRow): Sampler => ({
  ...row,
  taken: new Map(),
  finished: [],
  more: Deferred.unsafeMake(FiberId.none),
})

export const samplerRow = ({ finished: _finished, more: _more, taken: _taken, ...row }: Sampler): SamplerRow => row

export const makeSampler = (core: Core, row: SamplerRow): Effect.Effect<Sampler, Refusal> =>
  Effect.gen(function* () {
    yield* Effect.mapError(core.store.put("sampler", row.id, row), storageFailure)
    const sampler = unsafeSampler(row)
    core.state.samplers.set(row.id, sampler)
    core.state.sessions.get(row.sessionId)?.samplers.set(row.id, sampler)
    return sampler
  })

/** Opens a sampler on first use. A failure is not cached, so the next call tries again. */
export const openSampler = (
  core: Core,
  baseModel: string,
  weights: SamplerRow["weights"],
): Effect.Effect<string, ModelHost.HostError | Refusal> =>
  Effect.gen(function* () {
    const key = weights?.file ?? baseModel
    const known = core.state.openSamplers.get(key)
    if (known !== undefined) return yield* Effect.as(known, key)
    const open = yield* Effect.cached(
      Effect.gen(function* () {
        const adapter =
          weights === undefined
            ? undefined
            : { config: weights.config, weights: yield* readWeights(core, weights, weights.of ?? weights.file) }
        yield* core.host.openSampler(key, baseModel, adapter)
      }).pipe(Effect.tapError(() => Effect.sync(() => core.state.openSamplers.delete(key)))),
    )
    core.state.openSamplers.set(key, open)
    return yield* Effect.as(open, key)
  })

const seedOf = (...parts: ReadonlyArray<string | number>): number =>
  createHash("sha256").update(parts.join(" ")).digest().readUInt32LE() & 0x7fffffff

const topkOf = (topk: ModelHost.Topk | undefined, k: number): Option.Option<TopkLogprobs> => {
  if (topk === undefined || k === 0) return Option.none()
  const length = topk.tokenIds.length / topk.k
  const tokenIds = new Int32Array(k * length)
  const logprobs = new Float32Array(k * length).fill(-99999)
  for (let row = 0; row < length; row++)
    for (let i = 0; i < Math.min(k, topk.k); i++) {
      const logprob = topk.logprobs[row * topk.k + i] ?? Number.NaN
      if (Number.isNaN(logprob)) continue
      tokenIds[row * k + i] = topk.tokenIds[row * topk.k + i] ?? 0
      logprobs[row * k + i] = logprob
    }
  return Option.some({ k, length, tokenIds, logprobs })
}

/** Clears the first rows, which were not requested. */
const withoutFirst = (topk: ModelHost.Topk, rows: number): ModelHost.Topk => ({
  ...topk,
  logprobs: topk.logprobs.slice().fill(Number.NaN, 0, Math.max(0, rows) * topk.k),
})

const drawsOf = ({ promptDraws }: ModelHost.SampleOutput, k: number) =>
  Option.map(Option.fromNullable(promptDraws), ({ logprobs, tokens }) => {
    const shape = [tokens.length / k, k]
    return {
      tokens: Either.getOrThrow(TensorData.int64(tokens, { shape })),
      logprobs: Either.getOrThrow(TensorData.float32(logprobs, { shape })),
    }
  })

/** Encodes the target log probabilities in the shape and layout of the request; cells without a target are 0. */
const encodeTargets = ({ targets }: ModelHost.SampleOutput, asked: SampleRequest["targetPromptLogprobs"]) =>
  Option.map(
    Option.all([Option.fromNullable(targets), Option.fromNullable(asked)]),
    ([logprobs, { data, shape, sparse }]) => {
      let next = 0
      const cells = Float32Array.from(data as ArrayLike<number | bigint>, (token) =>
        token < 0 ? 0 : (logprobs[next++] ?? 0),
      )
      return Either.getOrThrow(
        TensorData.float32(cells, { shape: shape ?? [], ...(sparse !== undefined && { sparse }) }),
      )
    },
  )

const payloadOf = (output: ModelHost.SampleOutput, request: SampleRequest, length: number): Payload => {
  const hidden = request.promptLogprobsLastN === undefined ? 0 : length - request.promptLogprobsLastN
  return ResultMessages.samplePayload(
    {
      sequences: output.sequences.map(({ logprobs, stopReason, tokens, topk }) => ({
        tokens,
        logprobs: Option.some(logprobs),
        stopReason,
        topkLogprobs: topkOf(topk, request.topkSampleLogprobs ?? 0),
        sequenceId: Option.none(),
      })),
      promptLogprobs: Option.map(Option.fromNullable(output.promptLogprobs), (logprobs) =>
        logprobs.slice().fill(Number.NaN, 0, hidden),
      ),
      topkPromptLogprobs: topkOf(
        output.topkPrompt && withoutFirst(output.topkPrompt, hidden),
        request.topkPromptLogprobs ?? 0,
      ),
      promptCacheHitTokens: 0,
      targetPromptLogprobs: encodeTargets(output, request.targetPromptLogprobs),
      promptAltTokens: drawsOf(output, request.promptAltTokensK ?? 0),
    },
    "protobuf",
  )
}

/** Returns the requested targets: row i of the request refers to prompt token i + 1, and -1 means no target. */
const targetsOf = (request: SampleRequest, base: ModelHost.BaseModel, length: number) =>
  Either.gen(function* () {
    const asked = request.targetPromptLogprobs
    if (asked === undefined) return undefined
    const field = "target_prompt_logprobs"
    const [rows = 0, columns = 0] = asked.shape ?? []
    if (rows !== length - 1)
      return yield* Either.left(
        bad(field, `expected a row for each of the ${length - 1} tokens after the first, got ${rows}`),
      )
    const positions: Array<number> = []
    const tokens: Array<number> = []
    let row = 0
    for (const [i, value] of asked.data.entries()) {
      const token = Number(value)
      if (asked.sparse === undefined) row = Math.floor(i / columns)
      else while (i >= (asked.sparse.crowIndices[row + 1] ?? Infinity)) row++
      if (token === -1) continue
      if (token < 0 || token >= base.vocabSize)
        return yield* Either.left(
          bad(
            `${field}[${i}]`,
            `${token} is neither -1 nor in the vocabulary of ${base.name} (0 to ${base.vocabSize - 1})`,
          ),
        )
      positions.push(row + 1)
      tokens.push(token)
    }
    return tokens.length === 0
      ? yield* Either.left(bad(field, "contains no token"))
      : { positions: Int32Array.from(positions), tokens: Int32Array.from(tokens) }
  })

/** Checks that at most as many tokens are requested per position as the vocabulary has. */
const checkWidths = (request: SampleRequest, base: ModelHost.BaseModel) =>
  Either.all(
    (
      [
        ["topk_prompt_logprobs", request.topkPromptLogprobs],
        ["topk_sample_logprobs", request.topkSampleLogprobs],
        ["prompt_alt_tokens_k", request.promptAltTokensK],
      ] as const
    ).map(([field, k = 0]) =>
      k > base.vocabSize ? Either.left(bad(field, `expected at most ${base.vocabSize}, got ${k}`)) : Either.void,
    ),
  )

const stopsOf = (stop: NonNullable<SampleRequest["samplingParams"]>["stop"], base: ModelHost.BaseModel) => {
  const texts: Array<string> = []
  const tokens: Array<number> = []
  for (const one of typeof stop === "string" ? [stop] : (stop ?? []))
    if (typeof one === "string") texts.push(one)
    else tokens.push(one)
  const none = Array.isArray(stop) && stop.length === 0
  return {
    stopTexts: texts.filter((text) => text !== ""),
    stopTokens: none || tokens.length > 0 ? tokens : base.endTokens,
  }
}

/** Validates a sample request and creates its job. */
export const sampleJob = (
  core: Core,
  sampler: Pick<Sampler, "id" | "baseModel" | "weights">,
  request: SampleRequest,
): Effect.Effect<Job, Refusal> =>
  Effect.gen(function* () {
    const base = baseModelOf(core, sampler.baseModel)
    if (base === undefined) return yield* bad("sampling_session_id", `${sampler.baseModel} is no longer served`)
    const prompt = yield* tokensOf(request.prompt, base, "prompt")
    const room = base.maxContextLength - prompt.length
    const { maxTokens, seed, stop, temperature = 1, topK = -1, topP = 1 } = request.samplingParams ?? {}
    const only = request.promptLogprobs === true || request.targetPromptLogprobs !== undefined
    if (room <= 0 && !only)
      return yield* bad(
        "prompt",
        `fills the context of ${base.name} (${base.maxContextLength} tokens), which leaves no room for new tokens`,
      )
    const numSamples = request.numSamples ?? 1
    if (numSamples > 1024) return yield* bad("num_samples", `expected at most 1024, got ${numSamples}`)
    yield* checkWidths(request, base)
    const last = request.promptLogprobsLastN
    if (last !== undefined && last > prompt.length - 1)
      return yield* bad(
        "prompt_logprobs_last_n",
        `expected at most ${prompt.length - 1}, the number of tokens after the first, got ${last}`,
      )
    const asked: ModelHost.SampleRequest = {
      prompt,
      numSamples,
      maxTokens: Math.max(0, Math.min(maxTokens ?? room, room)),
      seed: seed ?? seedOf(sampler.id, request.seqId),
      temperature,
      topK,
      topP,
      ...stopsOf(stop, base),
      promptLogprobs: request.promptLogprobs === true,
      topkPromptLogprobs: request.topkPromptLogprobs ?? 0,
      topkSampleLogprobs: request.topkSampleLogprobs ?? 0,
      targets: yield* targetsOf(request, base, prompt.length),
      promptDraws: request.promptAltTokensK ?? 0,
    }
    const counts: Array<Counted> = [{ kind: "sampling_prefill", count: prompt.length }]
    return {
      run: Effect.flatMap(openSampler(core, sampler.baseModel, sampler.weights), (key) =>
        Effect.map(core.host.sample(key, asked), (output) => {
          const drawn = output.sequences.reduce((sum, { tokens }) => sum + tokens.length, 0)
          counts.push({ kind: "sampling_sample", count: drawn })
          return payloadOf(output, request, prompt.length)
        }),
      ),
      changes: false,
      baseModel: base.name,
      counts,
    }
  })
