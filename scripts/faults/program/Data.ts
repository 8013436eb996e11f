/** The data that the programs of the lab train on, and digests of what they receive. */
import { createHash } from "node:crypto"
import { Optimizer, type SampleResult, type TrainingClient, type TrainingResult } from "effect-tinker"

/** The number of examples in a batch, each of which is a request of its own. */
export const pieces = 3

const length = 12

/** A batch that differs from step to step. */
export const batch = (step: number) =>
  Array.from({ length: pieces }, (_, i) => {
    const tokens = Array.from({ length: length + 1 }, (_, at) => 10 + 7 * step + i + at)
    return {
      modelInput: tokens.slice(0, -1),
      inputs: { targetTokens: tokens.slice(1), weights: tokens.slice(1).map((_, at) => (at === 0 ? 0 : 1)) },
    }
  })

export const optimizer = (step: number) => Optimizer.adam({ learningRate: 1e-2 / (step + 1) })

export const sha256 = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex")

export const passDigest = ({ metrics, outputs }: TrainingResult.TrainingResult) => ({
  metrics,
  logprobs: outputs.map((output) => Array.from(output["logprobs"]?.data ?? [], Number)),
})

export const stepDigest = ({ pass, update }: TrainingClient.Step) => ({
  ...passDigest(pass),
  update: update.metrics,
})

export const sampleDigest = ({ sequences }: SampleResult.SampleResult) =>
  sequences.map(({ logprobs, stopReason, tokens }) => ({
    tokens: Array.from(tokens ?? [], Number),
    logprobs: Array.from(logprobs ?? [], Number),
    stopReason,
  }))
