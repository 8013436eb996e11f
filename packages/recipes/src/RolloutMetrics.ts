/**
 * Describes rollouts in numbers: rewards, lengths, and how many groups there is something to learn from. The names
 * are those of the official cookbook, e.g. `env/all/reward/total`.
 *
 * @since 0.1.0
 */
import { isConstant } from "./Advantages.ts"
import type { Metrics } from "./RunEvent.ts"

/**
 * One turn of a rollout: what the model saw, and what it answered.
 *
 * @since 0.1.0
 * @category models
 */
export interface Turn {
  readonly observationTokens: number
  readonly actionTokens: number
  /** Numbers that the environment reports for this turn. */
  readonly metrics?: Metrics | undefined
}

/**
 * A rollout, as far as its metrics are concerned.
 *
 * @since 0.1.0
 * @category models
 */
export interface Rollout {
  /** The sum of all rewards of the rollout. */
  readonly reward: number
  readonly turns: ReadonlyArray<Turn>
  /** Numbers that the environment reports for the whole rollout. */
  readonly metrics?: Metrics | undefined
}

/**
 * Rollouts of the same task.
 *
 * @since 0.1.0
 * @category models
 */
export interface Group {
  readonly members: ReadonlyArray<Rollout>
  /** Kinds of tasks that this one belongs to. */
  readonly tags?: ReadonlyArray<string> | undefined
}

/** A group in which all rewards are the same counts as good from this reward on. */
const goodReward = 0.5

const mean = (values: ReadonlyArray<number>) =>
  values.length === 0 ? 0 : values.reduce((sum, value) => sum + value, 0) / values.length

const ratio = (part: number, whole: number) => (whole === 0 ? 0 : part / whole)

const meansByName = (all: ReadonlyArray<Metrics>): Metrics => {
  const values = new Map<string, Array<number>>()
  for (const metrics of all) {
    for (const [name, value] of Object.entries(metrics)) {
      const known = values.get(name) ?? []
      known.push(value)
      values.set(name, known)
    }
  }
  return Object.fromEntries([...values].map(([name, known]) => [name, mean(known)]))
}

const metricsOf = (groups: ReadonlyArray<Group>): Metrics => {
  const rollouts = groups.flatMap(({ members }) => members)
  const turns = rollouts.flatMap(({ turns }) => turns)
  const actionTokens = turns.reduce((sum, turn) => sum + turn.actionTokens, 0)
  const observationTokens = turns.reduce((sum, turn) => sum + turn.observationTokens, 0)
  let mixed = 0
  let good = 0
  for (const { members } of groups) {
    if (!isConstant(members.map(({ reward }) => reward))) mixed++
    else if ((members[0]?.reward ?? 0) >= goodReward) good++
  }
  return {
    ac_tokens_per_turn: ratio(actionTokens, turns.length),
    ob_tokens_per_turn: ratio(observationTokens, turns.length),
    turns_per_episode: ratio(turns.length, rollouts.length),
    total_episodes: rollouts.length,
    total_turns: turns.length,
    total_ac_tokens: actionTokens,
    total_ob_tokens: observationTokens,
    "reward/total": mean(rollouts.map(({ reward }) => reward)),
    // A number may be reported for turns by one environment and for rollouts by another: all of them count.
    ...meansByName([...turns, ...rollouts].flatMap(({ metrics }) => (metrics === undefined ? [] : [metrics]))),
    "by_group/frac_mixed": ratio(mixed, groups.length),
    "by_group/frac_all_good": ratio(good, groups.length),
    "by_group/frac_all_bad": ratio(groups.length - mixed - good, groups.length),
  }
}

const prefixed = (tag: string, metrics: Metrics): Metrics =>
  Object.fromEntries(Object.entries(metrics).map(([name, value]) => [`env/${tag}/${name}`, value]))

/**
 * Computes the metrics of all groups, `env/all/…`, and those of each tag, `env/<tag>/…`, if a tag is on some of the groups
 * only.
 *
 * @since 0.1.0
 * @category metrics
 */
export const compute = (groups: ReadonlyArray<Group>): Metrics => {
  const byTag = new Map<string, Array<Group>>()
  for (const group of groups) {
    for (const tag of group.tags ?? []) {
      const known = byTag.get(tag) ?? []
      known.push(group)
      byTag.set(tag, known)
    }
  }
  const tagsMatter = [...byTag.values()].some((tagged) => tagged.length < groups.length)
  return {
    ...(tagsMatter ? Object.assign({}, ...[...byTag].map(([tag, tagged]) => prefixed(tag, metricsOf(tagged)))) : {}),
    ...prefixed("all", metricsOf(groups)),
  }
}
