/** The weights that rollouts are sampled from, by the number of their updates. */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import type * as SamplingClient from "effect-tinker/SamplingClient"
import { ServiceClient } from "effect-tinker/ServiceClient"
import type { SubmitError, TrainingError } from "effect-tinker/TinkerError"
import type { Run } from "../Run.ts"
import type { RunStoreFailed } from "../RunError.ts"
import * as Saves from "./Saves.ts"
import * as Stored from "./Stored.ts"

/** The weights that rollouts are sampled from. */
export interface Policies {
  /** Returns whether weights of an earlier moment can still be sampled from. */
  readonly has: (version: number) => Effect.Effect<boolean, TrainingError | RunStoreFailed>
  /** Saves the current weights at this point of the order of requests, and does not wait until they are saved. */
  readonly place: (version: number) => Effect.Effect<void, SubmitError>
  readonly sampler: (
    version: number,
  ) => Effect.Effect<SamplingClient.Service, TrainingError | RunStoreFailed, Scope.Scope>
  /** Deletes weights that nothing samples from any more. */
  readonly release: (version: number) => Effect.Effect<void>
}

/** Samples from the current weights only. They are saved without a name when a sampler is asked for. */
export const current = ({ client }: Run): Policies => ({
  has: () => Effect.succeed(false),
  place: () => Effect.void,
  sampler: () => client.saveWeightsAndGetSamplingClient(),
  release: () => Effect.void,
})

const file = "policies.jsonl"
const Line = Schema.parseJson(Schema.Struct({ version: Schema.Int, path: Schema.String }))

/**
 * Samples from weights that were saved under a name: later updates do not wait for them, and another process finds them
 * again. `policies.jsonl` keeps their paths beyond the session.
 */
export const saved = (run: Run, ttlSeconds: number): Effect.Effect<Policies, RunStoreFailed, ServiceClient> =>
  Effect.gen(function* () {
    const { client, nextStep, saves, store } = run
    const { rest } = yield* ServiceClient
    const all = yield* Stored.lines(store, file, Line)
    // Weights from the checkpoint on that the run went back to are made again.
    const valid = all.filter(({ version }) => run._tag === "Resumed" || (run._tag === "Restored" && version < nextStep))
    const encode = Schema.encodeSync(Line)
    if (valid.length < all.length) yield* store.write(file, valid.map((line) => `${encode(line)}\n`).join(""))

    const paths = new Map<number, Effect.Effect<string, TrainingError | RunStoreFailed>>(
      valid.map(({ path, version }) => [version, Effect.succeed(path)]),
    )
    /** Keeps the path as soon as the weights are saved. */
    const add = ({ sampler, step: version }: Saves.Placed) =>
      Effect.gen(function* () {
        if (Option.isNone(sampler) || paths.has(version)) return
        const path = Effect.tap(sampler.value, (path) => store.append(file, [encode({ version, path })]))
        paths.set(version, yield* Effect.cached(path))
      })
    yield* Effect.forEach(saves, (save) => (save.purpose === "rollouts" ? add(save) : Effect.void), { discard: true })

    const sampler: Policies["sampler"] = (version) =>
      Effect.flatMap(paths.get(version) ?? Effect.dieMessage(`no weights of version ${version}`), (path) =>
        client.createSamplingClient(path),
      )
    return {
      has: (version) =>
        !paths.has(version) || run._tag === "Resumed"
          ? Effect.succeed(paths.has(version))
          : // They may have expired since the session ended.
            Effect.scoped(sampler(version)).pipe(
              Effect.as(true),
              Effect.catchTag("NotFound", () => Effect.succeed(false)),
            ),
      place: (version) =>
        paths.has(version) ? Effect.void : Effect.flatMap(Saves.place(client, "rollouts", version, ttlSeconds), add),
      sampler,
      release: (version) =>
        Effect.gen(function* () {
          const path = paths.get(version)
          if (path === undefined) return
          // Weights that can't be deleted expire.
          yield* Effect.ignore(Effect.flatMap(path, (path) => rest.deleteCheckpointByPath(path)))
        }),
    }
  })
