/** Shows the progress of generated events on this process's own terminal. It imports single modules to start fast. */
import * as Effect from "effect/Effect"
import * as Progress from "@effect-tinker/recipes/Progress"
import * as Events from "./Events.ts"

const events = [
  ...Array.from({ length: 3 }, (_, i) =>
    Events.step(i, { train_mean_nll: 2 / (i + 1), num_tokens: 4096, "cost/usd": 0.01 * (i + 1) }, { steps: 3 }),
  ),
  Events.done,
]

await Effect.runPromise(
  Effect.scoped(
    Effect.gen(function* () {
      const { log } = yield* Progress.make(yield* Progress.standardError)
      yield* Effect.forEach(events, log)
    }),
  ),
)
