/**
 * Models and what is done to their weights. Every operation here but `get_info` answers with a future.
 *
 * @since 0.1.0
 */
import * as Either from "effect/Either"
import * as Schema from "effect/Schema"
import { lazy } from "../../internal/util/Lazy.ts"
import * as Wire from "../../internal/codec/Wire.ts"
import * as Optimizer from "../../Optimizer.ts"

/**
 * @since 0.1.0
 * @category models
 */
export const LoraConfig = lazy(() =>
  Wire.struct({
    rank: Wire.withDefault(Schema.Int.pipe(Schema.positive()), 32),
    seed: Wire.omitted(Schema.Int),
    trainUnembed: Wire.withDefault(Schema.Boolean, true),
    trainMlp: Wire.withDefault(Schema.Boolean, true),
    trainAttn: Wire.withDefault(Schema.Boolean, true),
  }),
)

/**
 * @since 0.1.0
 * @category models
 */
export type LoraConfig = typeof LoraConfig.Type

/**
 * @since 0.1.0
 * @category models
 */
export const CreateModelRequest = lazy(() =>
  Wire.struct({
    sessionId: Schema.String,
    modelSeqId: Schema.NonNegativeInt,
    baseModel: Schema.String,
    userMetadata: Wire.omitted(Wire.JsonObject),
    loraConfig: Wire.withDefault(LoraConfig, {}),
    optimizerConfig: Wire.withDefault(Optimizer.OptimizerConfig, Optimizer.adamw),
    type: Wire.constant("create_model"),
  }),
)

/**
 * @since 0.1.0
 * @category models
 */
export const CreateModelResult = lazy(() =>
  Wire.struct({ modelId: Schema.String, type: Wire.constant("create_model") }),
)

/**
 * @since 0.1.0
 * @category models
 */
export const UnloadModelRequest = lazy(() =>
  Wire.struct({ modelId: Schema.String, type: Wire.constant("unload_model") }),
)

/**
 * @since 0.1.0
 * @category models
 */
export const UnloadModelResult = lazy(() =>
  Wire.struct({
    modelId: Wire.maybe(Schema.String),
    status: Wire.maybe(Schema.String),
    type: Wire.constant("unload_model"),
  }),
)

/**
 * @since 0.1.0
 * @category models
 */
export const GetInfoRequest = lazy(() => Wire.struct({ modelId: Schema.String, type: Wire.constant("get_info") }))

/**
 * @since 0.1.0
 * @category models
 */
export const ModelInfo = lazy(() =>
  Wire.struct({
    modelId: Schema.String,
    modelData: Wire.struct({
      arch: Wire.maybe(Schema.String),
      modelName: Wire.maybe(Schema.String),
      /** May carry a revision after a colon. */
      tokenizerId: Wire.maybe(Schema.String),
    }),
    isLora: Wire.maybe(Schema.Boolean),
    loraRank: Wire.maybe(Schema.Finite),
    modelName: Wire.maybe(Schema.String),
    optimizerConfig: Wire.orElse(Optimizer.OptimizerConfig, Optimizer.adamw),
    type: Wire.constant("get_info"),
  }),
)

/**
 * @since 0.1.0
 * @category models
 */
export type ModelInfo = typeof ModelInfo.Type

/**
 * Into a model that exists.
 *
 * @since 0.1.0
 * @category checkpoints
 */
export const LoadWeightsRequest = lazy(() =>
  Wire.struct({
    modelId: Schema.String,
    seqId: Schema.NonNegativeInt,
    path: Schema.String,
    optimizer: Schema.Boolean,
    weightsAccessToken: Wire.omitted(Schema.Redacted(Schema.String)),
    type: Wire.constant("load_weights"),
  }),
)

/**
 * Into a model that is made for it. Its id is not in the answer: it follows from session and number.
 *
 * @since 0.1.0
 * @category checkpoints
 */
export const LoadWeightsAsModelRequest = lazy(() =>
  Wire.struct({
    sessionId: Schema.String,
    modelSeqId: Schema.NonNegativeInt,
    path: Schema.String,
    optimizer: Schema.Boolean,
    baseModel: Wire.omitted(Schema.String),
    userMetadata: Wire.omitted(Wire.JsonObject),
    optimizerConfig: Wire.omitted(Optimizer.OptimizerConfig),
    weightsAccessToken: Wire.omitted(Schema.Redacted(Schema.String)),
    type: Wire.constant("load_weights"),
  }),
)

/**
 * @since 0.1.0
 * @category checkpoints
 */
export const LoadWeightsResult = lazy(() =>
  Wire.struct({
    path: Wire.maybe(Schema.String),
    modelId: Wire.maybe(Schema.String),
    type: Wire.constant("load_weights"),
  }),
)

/**
 * @since 0.1.0
 * @category checkpoints
 */
export const SaveWeightsRequest = lazy(() =>
  Wire.struct({
    modelId: Schema.String,
    path: Schema.String,
    seqId: Schema.NonNegativeInt,
    overwrite: Wire.withDefault(Schema.Boolean, false),
    ttlSeconds: Wire.omitted(Schema.NonNegativeInt),
    userMetadata: Wire.omitted(Wire.JsonObject),
    type: Wire.constant("save_weights"),
  }),
)

/**
 * @since 0.1.0
 * @category checkpoints
 */
export const SaveWeightsResult = lazy(() => Wire.struct({ path: Schema.String, type: Wire.constant("save_weights") }))

/**
 * Either a named save (`path`) or one that only feeds a new sampling session (`samplingSessionSeqId`).
 *
 * @since 0.1.0
 * @category checkpoints
 */
export const SaveWeightsForSamplerRequest = lazy(() =>
  Wire.struct({
    modelId: Schema.String,
    path: Wire.omitted(Schema.String),
    samplingSessionSeqId: Wire.omitted(Schema.NonNegativeInt),
    seqId: Schema.NonNegativeInt,
    ttlSeconds: Wire.omitted(Schema.NonNegativeInt),
    userMetadata: Wire.omitted(Wire.JsonObject),
    type: Wire.constant("save_weights_for_sampler"),
  }).pipe(Wire.exactlyOne("path", "samplingSessionSeqId")),
)

/**
 * A named save tells the path, the other kind the session.
 *
 * @since 0.1.0
 * @category checkpoints
 */
export const SaveWeightsForSamplerResult = lazy(() =>
  Wire.struct({
    path: Wire.maybe(Schema.String),
    samplingSessionId: Wire.maybe(Schema.String),
    type: Wire.constant("save_weights_for_sampler"),
  }),
)

/**
 * @since 0.1.0
 * @category checkpoints
 */
export const SavedForSampler = lazy(() => Wire.struct({ path: Schema.String }))

/**
 * @since 0.1.0
 * @category checkpoints
 */
export const SavedAsSamplingSession = lazy(() => Wire.struct({ samplingSessionId: Schema.String }))

/**
 * @since 0.1.0
 * @category checkpoints
 */
export const SaveWeightsExternalRequest = lazy(() =>
  Wire.struct({
    modelId: Schema.String,
    path: Schema.String,
    seqId: Schema.NonNegativeInt,
    ttlSeconds: Wire.omitted(Schema.NonNegativeInt),
    ageEncryptionRecipients: Wire.omitted(Schema.Array(Schema.String)),
    type: Wire.constant("save_weights_external"),
  }),
)

/**
 * @since 0.1.0
 * @category checkpoints
 */
export const SaveWeightsExternalResult = lazy(() =>
  Wire.struct({
    path: Schema.String,
    sizeBytes: Wire.maybe(Schema.Finite),
    type: Wire.constant("save_weights_external"),
  }),
)

const sensible = <A extends Optimizer.Optimizer, I>(schema: Schema.Schema<A, I>) =>
  schema.pipe(
    Schema.filter((optimizer) =>
      Either.match(Optimizer.validate(optimizer), {
        onLeft: ({ path, problem }) => ({ path: [path.replace("optimizer.", "")], message: problem }),
        onRight: () => undefined,
      }),
    ),
  )

/**
 * Adam has a key of its own; every other optimizer uses the second. `Optimizer.toParams` chooses.
 *
 * @since 0.1.0
 * @category training
 */
export const OptimStepRequest = lazy(() =>
  Wire.struct({
    modelId: Schema.String,
    seqId: Schema.NonNegativeInt,
    adamParams: Wire.omitted(sensible(Optimizer.Adam)),
    optimizerParams: Wire.omitted(sensible(Optimizer.Dimuon)),
    type: Wire.constant("optim_step"),
  }).pipe(Wire.exactlyOne("adamParams", "optimizerParams")),
)

/**
 * @since 0.1.0
 * @category training
 */
export const OptimStepResult = lazy(() => Wire.struct({ metrics: Wire.orElse(Wire.Metrics, {}) }))

/**
 * @since 0.1.0
 * @category training
 */
export type OptimStepResult = typeof OptimStepResult.Type

/**
 * One step of a traced loss. Arguments that JSON has no word for are objects with one key: `ref`, `tuple`, `dict`,
 * `slice`, …
 *
 * @since 0.1.0
 * @category custom loss
 */
export const CustomLossNode = lazy(() =>
  Wire.struct({
    op: Schema.String,
    name: Schema.String,
    target: Schema.String,
    args: Schema.Array(Wire.Json),
    kwargs: Wire.JsonObject,
  }),
)

/**
 * @since 0.1.0
 * @category custom loss
 */
export const CreateCustomLossRequest = lazy(() =>
  Wire.struct({
    sessionId: Schema.String,
    customLossSeqId: Schema.NonNegativeInt,
    name: Schema.String,
    inputs: Schema.Array(Wire.struct({ name: Schema.String, rank: Schema.Literal(0, 1, 2) })),
    graph: Wire.struct({ format: Wire.constant(1), nodes: Schema.Array(CustomLossNode) }),
    type: Wire.constant("create_custom_loss"),
  }),
)

/**
 * @since 0.1.0
 * @category custom loss
 */
export const CreateCustomLossResult = lazy(() =>
  Wire.struct({
    lossId: Schema.String,
    type: Wire.constant("create_custom_loss"),
  }),
)
