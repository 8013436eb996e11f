/** Chooses checkpoints that can be deleted. */
import type * as Management from "effect-tinker/protocol/schemas/Management"
import * as Option from "effect/Option"

export interface Rule {
  /** Only checkpoints made before this time. */
  readonly before: number
  /** How many of the newest checkpoints of each run and type are kept, however old they are. */
  readonly keep: number
  readonly type: string | undefined
}

const groupOf = ({ checkpointType, tinkerPath }: Management.Checkpoint): string =>
  `${checkpointType} ${tinkerPath.split("/")[2] ?? ""}`

/**
 * Returns the checkpoints that a rule allows to delete, the oldest first. Published ones stay, because others may use
 * them.
 */
export const choose = (
  checkpoints: ReadonlyArray<Management.Checkpoint>,
  { before, keep, type }: Rule,
): ReadonlyArray<Management.Checkpoint> => {
  const newer = new Map<string, number>()
  return checkpoints
    .toSorted((a, b) => b.time.epochMillis - a.time.epochMillis)
    .filter((checkpoint) => {
      const group = groupOf(checkpoint)
      const count = newer.get(group) ?? 0
      newer.set(group, count + 1)
      return (
        count >= keep &&
        checkpoint.time.epochMillis < before &&
        !checkpoint.public &&
        (type === undefined || checkpoint.checkpointType === type)
      )
    })
    .toReversed()
}

/** The bytes of checkpoints, as far as they are known. */
export const bytesOf = (checkpoints: ReadonlyArray<Management.Checkpoint>): number =>
  checkpoints.reduce((sum, { sizeBytes }) => sum + Option.getOrElse(sizeBytes, () => 0), 0)

const spans: Readonly<Record<string, number>> = { h: 3_600_000, d: 86_400_000, w: 604_800_000 }

/** Reads a time span such as `12h`, `30d` or `4w`; undefined if it is none. */
export const spanOf = (text: string): number | undefined => {
  const [, count, unit = ""] = /^(\d+)([hdw])$/.exec(text) ?? []
  const span = spans[unit]
  return count === undefined || span === undefined ? undefined : Number(count) * span
}
