/**
 * Advantages of rollouts: how much better each one is than the others of its group, which attempted the same task.
 *
 * @since 0.1.0
 */
import * as Either from "effect/Either"
import * as Schema from "effect/Schema"

/**
 * Reports a reward that is NaN or infinite. Groups and members are counted from 0.
 *
 * @since 0.1.0
 * @category errors
 */
export class BadReward extends Schema.TaggedError<BadReward>("@effect-tinker/recipes/BadReward")("BadReward", {
  group: Schema.Number,
  member: Schema.Number,
  reward: Schema.Number,
}) {
  /** @since 0.1.0 */
  override get message(): string {
    return `the reward of member ${this.member} of group ${this.group} is ${this.reward}; expected a finite number`
  }
}

/**
 * How advantages are computed from rewards.
 *
 * @since 0.1.0
 * @category models
 */
export interface Formula {
  /** The baseline of a reward: the mean of the group, or of all others in it. Default: `group`. */
  readonly baseline?: "group" | "others" | undefined
  /** Whether to divide by the standard deviation of the group (sample, n − 1). Default: false. */
  readonly normalize?: boolean | undefined
  /** Added to the standard deviation, so that small differences are not blown up. Default: 1e-6. */
  readonly epsilon?: number | undefined
}

const meanOf = (values: ArrayLike<number>): number => {
  let sum = 0
  for (let at = 0; at < values.length; at++) sum += values[at] ?? 0
  return values.length === 0 ? 0 : sum / values.length
}

/**
 * Computes the advantages of one group. The only member of a group has the advantage 0. Rewards have to be finite.
 *
 * @since 0.1.0
 * @category computing
 */
export const ofGroup = (rewards: ArrayLike<number>, formula: Formula = {}): Float64Array => {
  const { baseline = "group", epsilon = 1e-6, normalize = false } = formula
  const count = rewards.length
  const mean = meanOf(rewards)
  const advantages = Float64Array.from(rewards, (reward) => reward - mean)
  if (count < 2) return advantages
  let squares = 0
  for (const advantage of advantages) squares += advantage * advantage
  // Without the member itself, the distance to the mean grows by n / (n − 1).
  const factor = baseline === "others" ? count / (count - 1) : 1
  const scale = normalize ? factor / (Math.sqrt(squares / (count - 1)) + epsilon) : factor
  return advantages.map((advantage) => advantage * scale)
}

/**
 * Returns whether all rewards of a group are the same, so that all advantages are 0 and there is nothing to learn.
 *
 * @since 0.1.0
 * @category computing
 */
export const isConstant = (rewards: ArrayLike<number>): boolean => {
  for (let at = 1; at < rewards.length; at++) if (rewards[at] !== rewards[0]) return false
  return true
}

/**
 * A rollout, as far as advantages are concerned.
 *
 * @since 0.1.0
 * @category models
 */
export interface Rated {
  readonly reward: number
}

/**
 * Options of {@link compute}.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options extends Formula {
  /** Whether to leave out groups in which all rewards are the same. Default: false. */
  readonly dropConstant?: boolean | undefined
  /** The groups that remain if `dropConstant` leaves out all of them. Default: `first`. */
  readonly whenAllConstant?: "first" | "none" | "all" | undefined
  /** Whether NaN or an infinite reward is an error, or its rollout is counted and left out. Default: `fail`. */
  readonly onBadReward?: "fail" | "skip" | undefined
  /** The number of bad rewards kept as examples. Default: 10. */
  readonly maxExamples?: number | undefined
}

/**
 * A group with the advantage of each member.
 *
 * @since 0.1.0
 * @category models
 */
export interface Group<out T> {
  /** The position of the group in the input. */
  readonly index: number
  readonly members: ReadonlyArray<T>
  readonly advantages: Float64Array
}

/**
 * The groups that are left to train on, and what was left out.
 *
 * @since 0.1.0
 * @category models
 */
export interface Computed<out T> {
  readonly groups: ReadonlyArray<Group<T>>
  /** How many groups had the same reward throughout, whether or not they were left out. */
  readonly constant: number
  /** How many rollouts were left out because of their reward. */
  readonly bad: number
  /** The first bad rewards. */
  readonly examples: ReadonlyArray<BadReward>
}

/**
 * Computes the advantages of groups of rollouts. Groups that have lost all members are left out.
 *
 * @example
 * ```ts
 * import { Advantages } from "@effect-tinker/recipes"
 * import { Console, Effect } from "effect"
 *
 * const groups = [
 *   [{ reward: 1 }, { reward: 0 }, { reward: 0.5 }],
 *   [{ reward: 1 }, { reward: 1 }, { reward: 1 }],
 * ]
 *
 * const program = Effect.gen(function* () {
 *   const computed = yield* Advantages.compute(groups, { dropConstant: true })
 *   for (const { advantages, index } of computed.groups) yield* Console.log(index, ...advantages) // → 0 0.5 -0.5 0
 * })
 *
 * await Effect.runPromise(program)
 * ```
 *
 * @since 0.1.0
 * @category computing
 */
export const compute = <T extends Rated>(
  groups: ReadonlyArray<ReadonlyArray<T>>,
  options: Options = {},
): Either.Either<Computed<T>, BadReward> => {
  const { dropConstant = false, maxExamples = 10, onBadReward = "fail", whenAllConstant = "first" } = options
  const all: Array<Group<T> & { readonly isConstant: boolean }> = []
  const examples: Array<BadReward> = []
  let bad = 0
  for (const [index, group] of groups.entries()) {
    const members: Array<T> = []
    for (const [member, rated] of group.entries()) {
      if (Number.isFinite(rated.reward)) {
        members.push(rated)
        continue
      }
      const problem = new BadReward({ group: index, member, reward: rated.reward })
      if (onBadReward === "fail") return Either.left(problem)
      bad++
      if (examples.length < maxExamples) examples.push(problem)
    }
    if (members.length === 0) continue
    const rewards = Float64Array.from(members, ({ reward }) => reward)
    all.push({ index, members, advantages: ofGroup(rewards, options), isConstant: isConstant(rewards) })
  }
  const varied = all.filter(({ isConstant }) => !isConstant)
  const left = { first: all.slice(0, 1), none: [], all }[whenAllConstant]
  const kept = !dropConstant ? all : varied.length > 0 ? varied : left
  return Either.right({
    groups: kept.map(({ advantages, index, members }) => ({ index, members, advantages })),
    constant: all.length - varied.length,
    bad,
    examples,
  })
}
