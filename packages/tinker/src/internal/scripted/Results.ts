/** Generates results of passes and samples: deterministic, and of the right shape. */
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import type { SampleRequest } from "../../protocol/schemas/Sampling.ts"
import type { SampleResult, Sequence, TopkLogprobs } from "../../SampleResult.ts"
import * as TensorData from "../../TensorData.ts"
import type { Sampled } from "../../testing/ScriptedServer.ts"
import type { TrainingResult } from "../../TrainingResult.ts"
import { product } from "../util/TokenChecks.ts"
import * as Hash from "../util/Hash.ts"
import { type Datum, type Pass, promptOf } from "./Pass.ts"

export { json, type Payload, samplePayload, trainingPayload } from "../../protocol/ResultMessages.ts"

/** Returns a log probability between -10 and 0, exclusive. */
const logprob = (hash: number): number => Math.fround(-10 * Hash.fraction(hash))

const logprobsOf = (seed: number, length: number): Float32Array =>
  Float32Array.from({ length }, (_, i) => logprob(Hash.mix(seed, i)))

// Training

const float32 = (data: Float32Array, shape: ReadonlyArray<number>) =>
  Either.getOrThrow(TensorData.float32(data, { shape }))

/** Returns one log probability per target, or per token if there are no targets. */
const logprobsOfDatum = (weights: number, datum: Datum): TensorData.Float32Tensor => {
  const shape = datum.inputs.get("target_tokens")?.shape ?? [datum.tokens]
  return float32(logprobsOf(Hash.mix(weights, datum.inputHash), product(shape)), shape)
}

export const training = (weights: number, pass: Pass, metrics: Readonly<Record<string, number>>): TrainingResult => {
  const logprobs = pass.data.map((datum) => logprobsOfDatum(weights, datum))
  const loss = logprobs.reduce((sum, { data }, index) => {
    const weights = pass.data[index]?.inputs.get("weights")?.values
    return data.reduce((sum, logprob, i) => sum - logprob * (weights?.[i] ?? 1), sum)
  }, 0)
  return {
    outputType: "TorchLossReturn",
    outputs: logprobs.map((logprobs) => ({ logprobs })),
    metrics: { "loss:sum": loss, ...metrics },
  }
}

// Sampling

const vocabulary = 32_000
const tokenOf = (hash: number): number => hash % vocabulary

/** Returns rows of the k most likely tokens, most likely first; the first `missing` rows are marked as not computed. */
const topkOf = (seed: number, k: number, length: number, missing: number): Option.Option<TopkLogprobs> => {
  if (k === 0 || length === 0) return Option.none()
  const tokenIds = new Int32Array(k * length)
  const logprobs = new Float32Array(k * length).fill(-99999)
  for (let row = missing; row < length; row++) {
    const cells = logprobsOf(Hash.mix(seed, row), k).toSorted().toReversed()
    for (let i = 0; i < k; i++) {
      // A different token in every cell of a row.
      tokenIds[row * k + i] = tokenOf(Hash.mix(seed, row)) + i
      logprobs[row * k + i] = cells[i] ?? 0
    }
  }
  return Option.some({ k, length, tokenIds, logprobs })
}

/** Generates the default sample. */
export const defaultSample = (weights: number, request: SampleRequest, index: number): Sampled => {
  const seed = [promptOf(request.prompt).inputHash, request.samplingParams?.seed ?? 0, index].reduce(Hash.mix, weights)
  return {
    tokens: Int32Array.from({ length: request.samplingParams?.maxTokens ?? 16 }, (_, i) => tokenOf(Hash.mix(seed, i))),
  }
}

const sequenceOf = (weights: number, request: SampleRequest, sampled: Sampled): Sequence => {
  const tokens = Int32Array.from(sampled.tokens)
  const seed = Hash.mix(weights, Hash.ofNumbers(tokens))
  return {
    tokens,
    logprobs: Option.some(
      sampled.logprobs === undefined ? logprobsOf(seed, tokens.length) : Float32Array.from(sampled.logprobs),
    ),
    stopReason: sampled.stopReason ?? "length",
    topkLogprobs: topkOf(seed, request.topkSampleLogprobs ?? 0, tokens.length, 0),
    sequenceId: Option.none(),
  }
}

/** Returns one value per prompt token: none for the first, and only for the last N if requested. */
const promptLogprobs = (seed: number, request: SampleRequest, length: number, short: boolean): Float32Array => {
  const logprobs = logprobsOf(seed, length)
  const known = Math.min(request.promptLogprobsLastN ?? length, length - 1)
  logprobs.fill(Number.NaN, 0, length - known)
  return short ? logprobs.subarray(1) : logprobs
}

export const sample = (
  weights: number,
  request: SampleRequest,
  draw: (index: number) => Sampled,
  options: { readonly promptLogprobsShort: boolean },
): SampleResult => {
  const { inputHash, tokens: length } = promptOf(request.prompt)
  const seed = Hash.mix(weights, inputHash)
  const alternatives = request.promptAltTokensK ?? 0
  const targets = request.targetPromptLogprobs
  return {
    sequences: Array.from({ length: request.numSamples ?? 1 }, (_, index) => sequenceOf(weights, request, draw(index))),
    promptLogprobs:
      request.promptLogprobs === true
        ? Option.some(promptLogprobs(seed, request, length, options.promptLogprobsShort))
        : Option.none(),
    topkPromptLogprobs: topkOf(seed, request.topkPromptLogprobs ?? 0, length, 1),
    promptCacheHitTokens: 0,
    targetPromptLogprobs: Option.map(Option.fromNullable(targets), (targets) => {
      const shape = targets.shape ?? []
      return float32(logprobsOf(Hash.mix(seed, 1), product(shape)), shape)
    }),
    promptAltTokens:
      alternatives === 0
        ? Option.none()
        : Option.some({
            tokens: Either.getOrThrow(
              TensorData.int64(
                Int32Array.from({ length: length * alternatives }, (_, i) => tokenOf(Hash.mix(seed, i))),
                { shape: [length, alternatives] },
              ),
            ),
            logprobs: float32(logprobsOf(Hash.mix(seed, 2), length * alternatives), [length, alternatives]),
          }),
  }
}
