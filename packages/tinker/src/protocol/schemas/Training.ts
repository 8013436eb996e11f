/**
 * The wire format of models and operations on their weights. All operations except `get_info` return a future.
 *
 * @since 0.1.0
 */
import * as Either from "effect/Either"
import * as Schema from "effect/Schema"
import { lazy } from "../../internal/util/Lazy.ts"
import * as Wire from "../../internal/codec/Wire.ts"
import * as Optimizer from "../../Optimizer.ts"

/**
 * The LoRA configuration of a model.
 *
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
 * The type of {@link LoraConfig}.
 *
 * @since 0.1.0
 * @category models
 */
export type LoraConfig = typeof LoraConfig.Type

/**
 * Creates a model.
 *
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
 * The id of a new model.
 *
 * @since 0.1.0
 * @category models
 */
export const CreateModelResult = lazy(() =>
  Wire.struct({ modelId: Schema.String, type: Wire.constant("create_model") }),
)

/**
 * Unloads a model.
 *
 * @since 0.1.0
 * @category models
 */
export const UnloadModelRequest = lazy(() =>
  Wire.struct({ modelId: Schema.String, type: Wire.constant("unload_model") }),
)

/**
 * The result of unloading a model.
 *
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
 * Requests information about a model.
 *
 * @since 0.1.0
 * @category models
 */
export const GetInfoRequest = lazy(() => Wire.struct({ modelId: Schema.String, type: Wire.constant("get_info") }))

/**
 * Information about a model.
 *
 * @since 0.1.0
 * @category models
 */
export const ModelInfo = lazy(() =>
  Wire.struct({
    modelId: Schema.String,
    modelData: Wire.struct({
      arch: Wire.maybe(Schema.String),
      modelName: Wire.maybe(Schema.String),
      /** May have a revision after a colon. */
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
 * The type of {@link ModelInfo}.
 *
 * @since 0.1.0
 * @category models
 */
export type ModelInfo = typeof ModelInfo.Type

/**
 * Loads a checkpoint into an existing model.
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
 * Loads a checkpoint into a new model. The response does not contain its id, which follows from the session and the
 * number.
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
 * The result of loading a checkpoint.
 *
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
 * Saves weights for training.
 *
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
 * The path of saved weights.
 *
 * @since 0.1.0
 * @category checkpoints
 */
export const SaveWeightsResult = lazy(() => Wire.struct({ path: Schema.String, type: Wire.constant("save_weights") }))

/**
 * Saves weights for sampling: either under a name (`path`) or only for a new sampling session (`samplingSessionSeqId`).
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
 * The result of saving weights for sampling: the path, or the sampling session.
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
 * The path of weights saved under a name.
 *
 * @since 0.1.0
 * @category checkpoints
 */
export const SavedForSampler = lazy(() => Wire.struct({ path: Schema.String }))

/**
 * The sampling session of weights saved without a name.
 *
 * @since 0.1.0
 * @category checkpoints
 */
export const SavedAsSamplingSession = lazy(() => Wire.struct({ samplingSessionId: Schema.String }))

/**
 * Saves weights for external use.
 *
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
 * The path and size of weights saved for external use.
 *
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
 * Applies an optimizer step. Adam uses its own key, all other optimizers use `optimizerParams`; `Optimizer.toParams`
 * chooses.
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
 * The metrics of an optimizer step.
 *
 * @since 0.1.0
 * @category training
 */
export const OptimStepResult = lazy(() => Wire.struct({ metrics: Wire.orElse(Wire.Metrics, {}) }))

/**
 * The type of {@link OptimStepResult}.
 *
 * @since 0.1.0
 * @category training
 */
export type OptimStepResult = typeof OptimStepResult.Type

/**
 * One step of a traced loss. Arguments without a JSON form are objects with one key: `ref`, `tuple`, `dict`, `slice`, …
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
 * Uploads a custom loss function.
 *
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
 * The id of an uploaded loss function.
 *
 * @since 0.1.0
 * @category custom loss
 */
export const CreateCustomLossResult = lazy(() =>
  Wire.struct({
    lossId: Schema.String,
    type: Wire.constant("create_custom_loss"),
  }),
)
