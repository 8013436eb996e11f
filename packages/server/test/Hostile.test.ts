/** Sends requests that are valid JSON or protobuf but meant to do harm. */
import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import * as VirtualTime from "effect-tinker/testing/VirtualTime"
import type { ServerOptions } from "@effect-tinker/server"
import * as Raw from "./support/Raw.ts"

const run = <A, E>(program: (raw: Raw.Raw) => Effect.Effect<A, E>, options: ServerOptions.ServerOptions = {}) =>
  Effect.flatMap(Raw.make(options), program).pipe(Effect.scoped, VirtualTime.run)

describe("hyperparameters", () => {
  it.effect("optim_step refuses a learning rate beyond float32 and leaves the model as it is", () =>
    run(({ model, post, result, session }) =>
      Effect.gen(function* () {
        const id = yield* model(yield* session)
        yield* post("forward_backward", Raw.pass(id, 1))
        const refused = yield* post("optim_step", Raw.step(id, 2, 1e39))
        expect([refused.status, refused.body.detail]).toEqual([
          400,
          "adam_params.learning_rate: 1e+39 exceeds the range of float32",
        ])
        const done = yield* result(yield* post("optim_step", Raw.step(id, 3)))
        expect(done.body.metrics["step:unique"]).toBe(1)
      }),
    ),
  )
})
