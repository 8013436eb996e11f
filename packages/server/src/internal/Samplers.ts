/** Samplers: weights that never change, and the samples that are drawn from them. */
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as FiberId from "effect/FiberId"
import * as Option from "effect/Option"
import type { SampleRequest } from "effect-tinker/api/Sampling"
import * as ResultMessages from "effect-tinker/serving/ResultMessages"
import * as TensorData from "effect-tinker/TensorData"
import type { TopkLogprobs } from "effect-tinker/SampleResult"
import { createHash } from "node:crypto"
import type * as ModelHost from "../ModelHost.ts"
import { tokensOf } from "./CheckPass.ts"
import { baseModelOf, type Core } from "./Core.ts"
import { broken, readWeights } from "./Models.ts"
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
    yield* Effect.mapError(core.store.put("sampler", row.id, row), broken)
    const sampler = unsafeSampler(row)
    core.state.samplers.set(row.id, sampler)
    core.state.sessions.get(row.sessionId)?.samplers.set(row.id, sampler)
    return sampler
  })

/** Opened by the first who samples; a failure is tried again by the next. */
export const opened = (
  core: Core,
  baseModel: string,
  weights: SamplerRow["weights"],
): Effect.Effect<string, ModelHost.HostError | Refusal> =>
  Effect.gen(function* () {
    const key = weights?.file ?? baseModel
    const known = core.state.opened.get(key)
    if (known !== undefined) return yield* Effect.as(known, key)
    const open = yield* Effect.cached(
      Effect.gen(function* () {
        const adapter =
          weights === undefined
            ? undefined
            : { config: weights.config, weights: yield* readWeights(core, weights.file) }
        yield* core.host.openSampler(key, baseModel, adapter)
      }).pipe(Effect.tapError(() => Effect.sync(() => core.state.opened.delete(key)))),
    )
    core.state.opened.set(key, open)
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

const alternatives = (topk: ModelHost.Topk | undefined, k: number) =>
  Option.map(topkOf(topk, k), ({ length, logprobs, tokenIds }) => ({
    tokens: Either.getOrThrow(TensorData.int64(tokenIds, { shape: [length, k] })),
    logprobs: Either.getOrThrow(TensorData.float32(logprobs, { shape: [length, k] })),
  }))

/** Only the last ones, where so asked; the others are not told. */
const lastOnly = (logprobs: Float32Array, last: number | undefined): Float32Array =>
  last === undefined ? logprobs : logprobs.fill(Number.NaN, 0, Math.max(0, logprobs.length - last))

const payloadOf = (output: ModelHost.SampleOutput, request: SampleRequest): Payload =>
  ResultMessages.samplePayload(
    {
      sequences: output.sequences.map(({ logprobs, stopReason, tokens, topk }) => ({
        tokens,
        logprobs: Option.some(logprobs),
        stopReason,
        topkLogprobs: topkOf(topk, request.topkSampleLogprobs ?? 0),
        sequenceId: Option.none(),
      })),
      promptLogprobs: Option.map(Option.fromNullable(output.promptLogprobs), (logprobs) =>
        lastOnly(logprobs, request.promptLogprobsLastN),
      ),
      topkPromptLogprobs: topkOf(output.topkPrompt, request.topkPromptLogprobs ?? 0),
      promptCacheHitTokens: 0,
      targetPromptLogprobs: Option.map(Option.fromNullable(output.targets), (targets) =>
        Either.getOrThrow(TensorData.float32(targets, { shape: request.targetPromptLogprobs?.shape ?? [] })),
      ),
      promptAltTokens: alternatives(output.topkPrompt, request.promptAltTokensK ?? 0),
    },
    "protobuf",
  )

const targetsOf = (request: SampleRequest, base: ModelHost.BaseModel, length: number) =>
  Either.gen(function* () {
    const targets = request.targetPromptLogprobs
    if (targets === undefined) return undefined
    const values = yield* Either.mapLeft(TensorData.toNumbers(targets, "target_prompt_logprobs"), ({ message }) =>
      bad("target_prompt_logprobs", message),
    )
    if (targets.shape?.[0] !== length)
      return yield* Either.left(
        bad(
          "target_prompt_logprobs",
          `expected a row for each of the ${length} tokens, got ${targets.shape?.[0] ?? 0}`,
        ),
      )
    const strange = values.findIndex((token) => token < 0 || token >= base.vocabSize)
    if (strange >= 0)
      return yield* Either.left(
        bad(`target_prompt_logprobs[${strange}]`, `${values[strange]} is not in the vocabulary of ${base.name}`),
      )
    return { data: Int32Array.from(values), shape: targets.shape }
  })

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

/** The job of a sample, checked. */
export const sampleJob = (
  core: Core,
  sampler: Pick<Sampler, "id" | "baseModel" | "weights">,
  request: SampleRequest,
): Effect.Effect<Job, Refusal> =>
  Effect.gen(function* () {
    const base = baseModelOf(core, sampler.baseModel)
    if (base === undefined) return yield* bad("sampling_session_id", `${sampler.baseModel} is not served any more`)
    const prompt = yield* tokensOf(request.prompt, base, "prompt")
    const room = base.maxContextLength - prompt.length
    const { maxTokens, seed, stop, temperature = 1, topK = -1, topP = 1 } = request.samplingParams ?? {}
    const only = request.promptLogprobs === true || request.targetPromptLogprobs !== undefined
    if (room <= 0 && !only)
      return yield* bad("prompt", `fills the context of ${base.name} (${base.maxContextLength}): nothing can follow`)
    const numSamples = request.numSamples ?? 1
    if (numSamples > 1024) return yield* bad("num_samples", `expected at most 1024, got ${numSamples}`)
    const k = Math.max(request.topkPromptLogprobs ?? 0, request.promptAltTokensK ?? 0)
    if (Math.max(k, request.topkSampleLogprobs ?? 0) > base.vocabSize)
      return yield* bad("topk_prompt_logprobs", `expected at most ${base.vocabSize}`)
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
      topkPromptLogprobs: k,
      topkSampleLogprobs: request.topkSampleLogprobs ?? 0,
      targets: yield* targetsOf(request, base, prompt.length),
    }
    const counts: Array<Counted> = [{ kind: "sampling_prefill", count: prompt.length }]
    return {
      run: Effect.flatMap(opened(core, sampler.baseModel, sampler.weights), (key) =>
        Effect.map(core.host.sample(key, asked), (output) => {
          const drawn = output.sequences.reduce((sum, { tokens }) => sum + tokens.length, 0)
          counts.push({ kind: "sampling_sample", count: drawn })
          return payloadOf(output, request)
        }),
      ),
      changes: false,
      baseModel: base.name,
      counts,
    }
  })
