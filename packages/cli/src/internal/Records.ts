/** The records that the commands print as JSON, with the fields of the official command in their order. */
import type * as Management from "effect-tinker/protocol/schemas/Management"
import type * as DateTime from "effect/DateTime"
import * as Option from "effect/Option"
import * as Json from "./Json.ts"
import * as Words from "./Words.ts"

/** Writes an absent value as null. */
export const nullable = <A>(value: Option.Option<A>, write: (value: A) => Json.Value = Json.fromUnknown): Json.Value =>
  Option.match(value, { onNone: () => null, onSome: write })

const stamp = (time: DateTime.Utc): string => Words.stamp(time.epochMillis)

/** A checkpoint. */
export const checkpoint = (checkpoint: Management.Checkpoint): Json.Record => ({
  checkpoint_id: checkpoint.checkpointId,
  checkpoint_type: checkpoint.checkpointType,
  time: stamp(checkpoint.time),
  tinker_path: checkpoint.tinkerPath,
  size_bytes: nullable(checkpoint.sizeBytes),
  public: checkpoint.public,
  user_metadata: nullable(checkpoint.userMetadata),
  expires_at: nullable(checkpoint.expiresAt, stamp),
})

/** A training run. */
export const run = (run: Management.TrainingRun): Json.Record => ({
  training_run_id: run.trainingRunId,
  base_model: run.baseModel,
  model_owner: run.modelOwner,
  is_lora: run.isLora,
  corrupted: run.corrupted,
  lora_rank: nullable(run.loraRank),
  last_request_time: stamp(run.lastRequestTime),
  last_checkpoint: nullable(run.lastCheckpoint, checkpoint),
  last_sampler_checkpoint: nullable(run.lastSamplerCheckpoint, checkpoint),
  user_metadata: nullable(run.userMetadata),
})

/** Says whether a run trains an adapter, and of which rank. */
export const lora = ({ isLora, loraRank }: Pick<Management.TrainingRun, "isLora" | "loraRank">): string =>
  isLora
    ? Option.match(loraRank, { onNone: () => "Yes", onSome: (rank) => (rank > 0 ? `Yes (Rank ${rank})` : "Yes") })
    : "No"
