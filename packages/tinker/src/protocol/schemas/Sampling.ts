/**
 * Sampling sessions and samples.
 *
 * @since 0.1.0
 */
import * as Either from "effect/Either"
import * as Schema from "effect/Schema"
import { lazy } from "../../internal/util/Lazy.ts"
import * as Wire from "../../internal/codec/Wire.ts"
import { ModelInput } from "../../ModelInput.ts"
import { SamplingParams } from "../../SamplingParams.ts"
import { int64, TensorData } from "../../TensorData.ts"

/**
 * Of a base model, or of weights that were saved.
 *
 * @since 0.1.0
 * @category sessions
 */
export const CreateSamplingSessionRequest = lazy(() =>
  Wire.struct({
    sessionId: Schema.String,
    samplingSessionSeqId: Schema.NonNegativeInt,
    baseModel: Wire.omitted(Schema.String),
    modelPath: Wire.omitted(Schema.String),
    type: Wire.constant("create_sampling_session"),
  }).pipe(Wire.exactlyOne("baseModel", "modelPath")),
)

/**
 * @since 0.1.0
 * @category sessions
 */
export const CreateSamplingSessionResponse = lazy(() =>
  Wire.struct({
    samplingSessionId: Schema.String,
    type: Wire.constant("create_sampling_session"),
  }),
)

/**
 * @since 0.1.0
 * @category sessions
 */
export const JoinSamplingSessionRequest = lazy(() =>
  Wire.struct({
    samplingSessionId: Schema.String,
    type: Wire.constant("join_sampling_session"),
  }),
)

/**
 * Each client of a sampling session numbers its samples in a block of 1e9 numbers. In this one they all still fit
 * below 2^53; beyond, two of them could be the same number.
 *
 * @since 0.1.0
 * @category sessions
 */
export const lastBlock: number = 9_007_198

/**
 * @since 0.1.0
 * @category sessions
 */
export const JoinSamplingSessionResponse = lazy(() =>
  Wire.struct({
    /** The client's block. */
    clientCounter: Schema.Int.pipe(Schema.between(0, lastBlock)),
    type: Wire.constant("join_sampling_session"),
  }),
)

const Targets = lazy(() =>
  TensorData.pipe(
    Schema.filter(
      (tensor) =>
        (tensor.dtype === "int64" && tensor.shape?.length === 2) ||
        "Expected an int64 tensor of token ids with two dimensions",
      {
        arbitrary: () => (fc) =>
          fc.array(fc.tuple(fc.nat(), fc.nat()), { minLength: 1 }).map((rows) => Either.getOrThrow(int64(rows))),
      },
    ),
  ),
)

/**
 * A prompt and how often to continue it. `promptLogprobs: false` is told, not left out.
 *
 * @since 0.1.0
 * @category samples
 */
export const SampleRequest = lazy(() =>
  Wire.struct({
    samplingSessionId: Schema.String,
    /** Counted from 0; a clone counts from the start of another block. */
    seqId: Schema.NonNegativeInt,
    prompt: ModelInput,
    samplingParams: Wire.withDefault(SamplingParams, {}),
    numSamples: Wire.withDefault(Schema.Int.pipe(Schema.positive()), 1),
    promptLogprobs: Wire.withDefault(Schema.Boolean, false),
    topkPromptLogprobs: Wire.withDefault(Schema.NonNegativeInt, 0),
    topkSampleLogprobs: Wire.withDefault(Schema.NonNegativeInt, 0),
    promptAltTokensK: Wire.withDefault(Schema.NonNegativeInt, 0),
    /** Token ids, one row for each token of the prompt but the first; -1 asks for nothing. */
    targetPromptLogprobs: Wire.omitted(Targets),
    /** Only together with `promptLogprobs`. */
    promptLogprobsLastN: Wire.omitted(Schema.Int.pipe(Schema.positive())),
    recordStabilityInfo: Wire.withDefault(Schema.Boolean, false),
    type: Wire.constant("sample"),
  }).pipe(
    Schema.filter(({ promptLogprobs, promptLogprobsLastN }) =>
      promptLogprobsLastN === undefined || promptLogprobs === true
        ? undefined
        : { path: ["promptLogprobsLastN"], message: "needs promptLogprobs: true" },
    ),
  ),
)

/**
 * @since 0.1.0
 * @category samples
 */
export type SampleRequest = typeof SampleRequest.Type
