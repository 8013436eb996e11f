/**
 * Sampling sessions and samples.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"
import * as Wire from "../internal/Wire.ts"
import { ModelInput } from "../ModelInput.ts"
import { SamplingParams } from "../SamplingParams.ts"
import { TensorData } from "../TensorData.ts"

/**
 * Of a base model, or of weights that were saved.
 *
 * @since 0.1.0
 * @category sessions
 */
export const CreateSamplingSessionRequest = Wire.struct({
  sessionId: Schema.String,
  samplingSessionSeqId: Schema.NonNegativeInt,
  baseModel: Wire.omitted(Schema.String),
  modelPath: Wire.omitted(Schema.String),
  type: Wire.constant("create_sampling_session"),
})

/**
 * @since 0.1.0
 * @category sessions
 */
export const CreateSamplingSessionResponse = Wire.struct({
  samplingSessionId: Schema.String,
  type: Wire.constant("create_sampling_session"),
})

/**
 * @since 0.1.0
 * @category sessions
 */
export const JoinSamplingSessionRequest = Wire.struct({
  samplingSessionId: Schema.String,
  type: Wire.constant("join_sampling_session"),
})

/**
 * @since 0.1.0
 * @category sessions
 */
export const JoinSamplingSessionResponse = Wire.struct({
  clientCounter: Schema.Finite,
  type: Wire.constant("join_sampling_session"),
})

const Targets = TensorData.pipe(
  Schema.filter((tensor) =>
    tensor.dtype === "int64" && tensor.shape?.length === 2
      ? undefined
      : "Expected an int64 tensor of token ids with two dimensions",
  ),
)

// That of a clone is a random multiple of 1e9: whole, but possibly beyond the integers that a double tells apart.
const SampleSeqId = Schema.NonNegative.pipe(
  Schema.filter((value) => Number.isInteger(value), {
    identifier: "SampleSeqId",
    arbitrary: () => (fc) => fc.nat(),
  }),
)

/**
 * A prompt and how often to continue it. `promptLogprobs: false` is told, not left out.
 *
 * @since 0.1.0
 * @category samples
 */
export const SampleRequest = Wire.struct({
  samplingSessionId: Schema.String,
  seqId: SampleSeqId,
  prompt: ModelInput,
  samplingParams: Wire.withDefault(SamplingParams, {}),
  numSamples: Wire.withDefault(Schema.Int.pipe(Schema.positive()), 1),
  promptLogprobs: Wire.withDefault(Schema.Boolean, false),
  topkPromptLogprobs: Wire.withDefault(Schema.NonNegativeInt, 0),
  topkSampleLogprobs: Wire.withDefault(Schema.NonNegativeInt, 0),
  promptAltTokensK: Wire.withDefault(Schema.NonNegativeInt, 0),
  /** Token ids, one row for each position of the prompt. */
  targetPromptLogprobs: Wire.omitted(Targets),
  promptLogprobsLastN: Wire.omitted(Schema.Int.pipe(Schema.positive())),
  recordStabilityInfo: Wire.withDefault(Schema.Boolean, false),
  type: Wire.constant("sample"),
})

/**
 * @since 0.1.0
 * @category samples
 */
export type SampleRequest = typeof SampleRequest.Type
