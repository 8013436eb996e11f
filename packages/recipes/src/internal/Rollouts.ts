/** Rollouts: a policy acts in an environment until that ends. Finished ones are kept, so that a crash loses none. */
import * as Cause from "effect/Cause"
import * as Data from "effect/Data"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import * as Schema from "effect/Schema"
import * as ModelInput from "effect-tinker/ModelInput"
import type * as SamplingClient from "effect-tinker/SamplingClient"
import type { FutureError } from "effect-tinker/TinkerError"
import type { Task } from "../Environment.ts"
import type { RunStoreFailed } from "../RunError.ts"
import { AnyNumber, Metrics } from "../RunEvent.ts"
import type { Service as Store } from "../RunStore.ts"
import * as Stored from "./Stored.ts"

/** One action of a rollout, with what the model saw. */
const Turn = Schema.Struct({
  prompt: Schema.Array(Schema.Int),
  tokens: Schema.Array(Schema.Int),
  logprobs: Schema.Array(AnyNumber),
  masked: Schema.optional(Schema.Boolean),
  metrics: Schema.optional(Metrics),
})

/** A finished rollout. */
export const Rollout = Schema.Struct({
  /** How many updates its policy had. */
  version: Schema.Int,
  /** The iteration that trains on it. */
  iteration: Schema.Int,
  group: Schema.Int,
  member: Schema.Int,
  reward: Schema.Number,
  turns: Schema.Array(Turn),
  /** Why it is left out of its group. */
  failed: Schema.optional(Schema.String),
})

export type Rollout = typeof Rollout.Type

/** Why a rollout has no result. */
export class RolloutFailed extends Data.TaggedError("RolloutFailed")<{
  readonly task: string
  readonly group: number
  readonly member: number
  readonly detail: string
  readonly cause?: unknown
}> {
  override get message(): string {
    return `rollout ${this.member} of group ${this.group} failed: ${this.detail}; the task is ${JSON.stringify(this.task.slice(0, 200))}`
  }
}

const file = "rollouts.jsonl"
const Line = Schema.parseJson(Rollout)
const encode = Schema.encodeSync(Line)
/** Lines of older runs have no iteration: they came from the weights before its first update. */
const OldLine = Schema.parseJson(Schema.Struct({ ...Rollout.fields, iteration: Schema.optional(Schema.Int) }))

/** Keeps a finished rollout. */
export const keep = (store: Store, rollout: Rollout): Effect.Effect<void, RunStoreFailed> =>
  store.append(file, [encode(rollout)])

/** Names the place of a rollout in its iteration. */
export const placeOf = ({ group, member }: Pick<Rollout, "group" | "member">): string => `${group} ${member}`

/** Returns the rollouts that were kept, by iteration and place, from an iteration on. */
export const kept = (
  store: Store,
  updatesPerIteration: number,
  from = 0,
): Effect.Effect<ReadonlyMap<number, ReadonlyMap<string, Rollout>>, RunStoreFailed> =>
  Effect.map(Stored.lines(store, file, OldLine), (lines) => {
    const all = new Map<number, Map<string, Rollout>>()
    for (const found of lines) {
      const { iteration = Math.floor(found.version / updatesPerIteration) } = found
      if (iteration < from) continue
      const known = all.get(iteration) ?? new Map<string, Rollout>()
      // The last one counts: a run that went back to a checkpoint has made it again.
      known.set(placeOf(found), { ...found, iteration })
      all.set(iteration, known)
    }
    return all
  })

/** Drops rollouts that no longer belong to the run, and returns how many. */
export const retain = (
  store: Store,
  updatesPerIteration: number,
  isValid: (rollout: Rollout) => boolean,
): Effect.Effect<number, RunStoreFailed> =>
  Effect.gen(function* () {
    const all = yield* kept(store, updatesPerIteration)
    const rollouts = [...all.values()].flatMap((places) => [...places.values()])
    const left = rollouts.filter(isValid)
    const dropped = rollouts.length - left.length
    if (dropped > 0) yield* store.write(file, left.map((rollout) => `${encode(rollout)}\n`).join(""))
    return dropped
  })

export interface Limits {
  readonly maxTokens: number
  readonly temperature: number
  readonly maxTurns: number
  readonly timeout: Duration.DurationInput
}

/** Mixes numbers into a seed, the same one whenever a rollout is repeated. */
export const seedOf = (...parts: ReadonlyArray<number>): number => {
  let hash = 0x811c9dc5
  for (const part of parts) hash = Math.imul(hash ^ (part + 0x9e3779b9), 0x01000193) >>> 0
  return hash >>> 1
}

/** An error about one request, e.g. that a prompt is longer than the context. Another one may succeed. */
const ofRequest: ReadonlySet<string> = new Set(["InvalidInput", "RequestRejected", "RequestFailed"])

const shownReward = (reward: unknown): string =>
  typeof reward === "number" || reward === undefined
    ? String(reward)
    : `a ${Predicate.isPromiseLike(reward) ? "promise" : typeof reward}`

/**
 * Runs one rollout in an environment of its own. Whatever goes wrong in the environment, or with a request of this rollout
 * alone, is `RolloutFailed`.
 */
export const roll = <E, R>(
  sampler: SamplingClient.Service,
  task: Task<E, R>,
  at: Pick<Rollout, "version" | "iteration" | "group" | "member"> & {
    /** Decides what is sampled, together with the number of the turn. */
    readonly seeds: ReadonlyArray<number>
  },
  { maxTokens, maxTurns, temperature, timeout }: Limits,
): Effect.Effect<Rollout, RolloutFailed | FutureError, R> => {
  const { group, iteration, member, version } = at
  const failed = (detail: string, cause?: unknown) =>
    new RolloutFailed({ task: task.name, group, member, detail, cause })
  const guarded = <A, E2, R2>(effect: Effect.Effect<A, E2, R2>): Effect.Effect<A, RolloutFailed, R2> =>
    Effect.catchAllCause(effect, (cause) =>
      Cause.isInterruptedOnly(cause)
        ? Effect.failCause(cause as Cause.Cause<never>)
        : Effect.fail(failed(Cause.pretty(cause).split("\n")[0] ?? "", cause)),
    )
  return Effect.scoped(
    Effect.gen(function* () {
      const environment = yield* guarded(task.make)
      const turns: Array<typeof Turn.Type> = []
      let reward = 0
      let observation = yield* guarded(environment.start)
      for (let turn = 0; ; turn++) {
        const { stop } = observation
        const prompt = yield* Either.mapLeft(ModelInput.from(observation.prompt), ({ message }) => failed(message))
        const params = { maxTokens, temperature, stop, seed: seedOf(...at.seeds, turn) }
        const { sequences } = yield* Effect.mapError(sampler.sample({ prompt, params }), (error) =>
          ofRequest.has(error._tag) ? failed(error.message, error) : error,
        )
        const sequence = sequences[0]
        const logprobs = sequence && Option.getOrUndefined(sequence.logprobs)
        if (sequence === undefined || logprobs === undefined)
          return yield* failed("the server returned no log probabilities")
        const tokens = Int32Array.from(sequence.tokens)
        const outcome = yield* guarded(environment.act({ tokens, stopReason: sequence.stopReason }))
        if (!Number.isFinite(outcome.reward))
          return yield* failed(`expected a finite number as reward, got ${shownReward(outcome.reward)}`)
        reward += outcome.reward
        turns.push({
          prompt: yield* textOnly(prompt, failed),
          tokens: [...tokens],
          logprobs: [...logprobs],
          ...(outcome.masked === true ? { masked: true } : {}),
          ...(outcome.metrics === undefined ? {} : { metrics: outcome.metrics }),
        })
        if (outcome.next === undefined || turn + 1 >= maxTurns)
          return { version, iteration, group, member, reward, turns }
        observation = outcome.next
      }
    }),
  ).pipe(
    // The error of closing the environment.
    Effect.catchAllDefect((defect) =>
      Effect.fail(failed(defect instanceof Error ? defect.message : String(defect), defect)),
    ),
    Effect.timeoutFail({ duration: timeout, onTimeout: () => failed(`no end after ${Duration.format(timeout)}`) }),
  )
}

const textOnly = (
  { chunks }: ModelInput.ModelInput,
  failed: (detail: string) => RolloutFailed,
): Effect.Effect<ReadonlyArray<number>, RolloutFailed> =>
  chunks.every((chunk) => chunk.type === "encoded_text")
    ? Effect.succeed(chunks.flatMap((chunk) => (chunk.type === "encoded_text" ? [...chunk.tokens] : [])))
    : Effect.fail(failed("prompts with images or audio are not supported yet"))
