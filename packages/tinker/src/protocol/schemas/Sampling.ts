/**
 * The wire format of sampling sessions and samples.
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
 * Creates a sampling session for a base model or saved weights.
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
 * The id of the new sampling session.
 *
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
 * Joins a sampling session.
 *
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
 * The last usable block. Each client of a sampling session numbers its samples in a block of 1e9 numbers; beyond this
 * block, numbers exceed 2^53 and are no longer exact.
 *
 * @since 0.1.0
 * @category sessions
 */
export const lastBlock: number = 9_007_198

/**
 * The block assigned to a client that joins.
 *
 * @since 0.1.0
 * @category sessions
 */
export const JoinSamplingSessionResponse = lazy(() =>
  Wire.struct({
    /** The number of the client's block. */
    clientCounter: Schema.Int.pipe(Schema.between(0, lastBlock)),
    type: Wire.constant("join_sampling_session"),
  }),
)

const Targets = lazy(() =>
  TensorData.pipe(
    Schema.filter(
      (tensor) =>
        (tensor.dtype === "int64" && tensor.shape?.length === 2) ||
        "Expected a two-dimensional int64 tensor of token ids",
      {
        arbitrary: () => (fc) =>
          fc.array(fc.tuple(fc.nat(), fc.nat()), { minLength: 1 }).map((rows) => Either.getOrThrow(int64(rows))),
      },
    ),
  ),
)

/**
 * A prompt and the number of sequences to generate. `promptLogprobs: false` is sent explicitly.
 *
 * @since 0.1.0
 * @category samples
 */
export const SampleRequest = lazy(() =>
  Wire.struct({
    samplingSessionId: Schema.String,
    /** Starts at 0; for a clone, at the start of its block. */
    seqId: Schema.NonNegativeInt,
    prompt: ModelInput,
    samplingParams: Wire.withDefault(SamplingParams, {}),
    numSamples: Wire.withDefault(Schema.Int.pipe(Schema.positive()), 1),
    promptLogprobs: Wire.withDefault(Schema.Boolean, false),
    topkPromptLogprobs: Wire.withDefault(Schema.NonNegativeInt, 0),
    topkSampleLogprobs: Wire.withDefault(Schema.NonNegativeInt, 0),
    promptAltTokensK: Wire.withDefault(Schema.NonNegativeInt, 0),
    /** Token ids, one row for each prompt token except the first; -1 requests nothing. */
    targetPromptLogprobs: Wire.omitted(Targets),
    /** Requires `promptLogprobs`. */
    promptLogprobsLastN: Wire.omitted(Schema.Int.pipe(Schema.positive())),
    recordStabilityInfo: Wire.withDefault(Schema.Boolean, false),
    type: Wire.constant("sample"),
  }).pipe(
    Schema.filter(({ promptLogprobs, promptLogprobsLastN }) =>
      promptLogprobsLastN === undefined || promptLogprobs === true
        ? undefined
        : { path: ["promptLogprobsLastN"], message: "requires promptLogprobs: true" },
    ),
  ),
)

/**
 * The type of {@link SampleRequest}.
 *
 * @since 0.1.0
 * @category samples
 */
export type SampleRequest = typeof SampleRequest.Type
