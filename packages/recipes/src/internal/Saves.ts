/** The saves of a run: their names, and how they are found again in the journal after a crash. */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { FutureError, SubmitError, TrainingError } from "effect-tinker/TinkerError"
import type * as TrainingClient from "effect-tinker/TrainingClient"

/**
 * The purpose of a save. `evaluation`: weights to sample from, deleted afterwards unless they are the best. `rollouts`:
 * weights to sample rollouts from, deleted afterwards.
 */
export type Purpose = "periodic" | "rolling" | "final" | "evaluation" | "rollouts"

/** Purposes that need no state to continue from. */
const samplerOnly: ReadonlySet<Purpose> = new Set(["evaluation", "rollouts"])

/** A save that has its place in the order of requests. */
export interface Placed {
  readonly purpose: Purpose
  /** How many updates it contains. */
  readonly step: number
  readonly name: string
  readonly state: Option.Option<Effect.Effect<string, TrainingError>>
  readonly sampler: Option.Option<Effect.Effect<string, TrainingError>>
}

const nameOf = (purpose: Purpose, step: number): string => {
  const padded = String(step).padStart(6, "0")
  return purpose === "periodic" ? padded : purpose === "final" ? "final" : `${purpose}-${padded}`
}

const tagOf = (purpose: Purpose, step: number): string => `save ${purpose} ${step}`

const fromTag = (tag: Option.Option<string>): { readonly purpose: Purpose; readonly step: number } | undefined => {
  const [, purpose, step] =
    /^save (periodic|rolling|final|evaluation|rollouts) (\d+)$/.exec(Option.getOrElse(tag, () => "")) ?? []
  return purpose === undefined ? undefined : { purpose: purpose as Purpose, step: Number(step) }
}

/** Enqueues the requests of a save: the weights contain exactly the updates that were enqueued before. */
export const place = (
  client: Pick<TrainingClient.Service, "enqueue">,
  purpose: Purpose,
  step: number,
  ttlSeconds: number | null | undefined,
): Effect.Effect<Placed, SubmitError> =>
  complete(
    client,
    { purpose, step, name: nameOf(purpose, step), state: Option.none(), sampler: Option.none() },
    ttlSeconds,
  )

/** Enqueues the requests of a save that are missing. */
export const complete = (
  { enqueue }: Pick<TrainingClient.Service, "enqueue">,
  placed: Placed,
  ttlSeconds: number | null | undefined,
): Effect.Effect<Placed, SubmitError> =>
  Effect.gen(function* () {
    const { name, purpose, step } = placed
    const hasExpiry = purpose !== "final" && ttlSeconds !== null && ttlSeconds !== undefined
    const options = { tag: tagOf(purpose, step), ...(hasExpiry ? { ttl: ttlSeconds * 1_000 } : {}) }
    const state =
      samplerOnly.has(purpose) || Option.isSome(placed.state)
        ? placed.state
        : Option.some(path(yield* enqueue.saveState(name, { ...options, overwrite: true })))
    const sampler =
      purpose === "rolling" || Option.isSome(placed.sampler)
        ? placed.sampler
        : Option.some(path(yield* enqueue.saveWeightsForSampler(name, options)))
    return { ...placed, state, sampler }
  })

const path = <E>({ await: saved }: TrainingClient.Ticket<{ readonly path: string }, E>) =>
  Effect.map(saved, ({ path }) => path)

/** Returns the saves that a previous process has placed, in order. */
export const journaled = (
  calls: ReadonlyArray<TrainingClient.Completed | TrainingClient.Pending>,
): ReadonlyArray<Placed> => {
  const found = new Map<string, Placed>()
  for (const call of calls) {
    const tag = fromTag(call.tag)
    // One that failed is placed again.
    if (tag === undefined || ("succeeded" in call && !call.succeeded)) continue
    const { purpose, step } = tag
    const key = `${purpose} ${step}`
    const known = found.get(key) ?? {
      ...tag,
      name: nameOf(purpose, step),
      state: Option.none(),
      sampler: Option.none(),
    }
    const saved = Option.some(pathOf("future" in call ? call.future.await : call.result))
    found.set(key, call.operation === "save_weights" ? { ...known, state: saved } : { ...known, sampler: saved })
  }
  return [...found.values()]
}

/** Reads the path from the result of either kind of save. */
const pathOf = (result: Effect.Effect<unknown, FutureError>): Effect.Effect<string, FutureError> =>
  Effect.flatMap(result, (saved) => {
    const path = typeof saved === "object" && saved !== null && "path" in saved ? saved.path : undefined
    if (typeof path === "string") return Effect.succeed(path)
    return Option.isOption(path) && Option.isSome(path) && typeof path.value === "string"
      ? Effect.succeed(path.value)
      : Effect.dieMessage("the result of a save has no path")
  })
