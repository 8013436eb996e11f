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

describe("JSON bodies", () => {
  const nested = (levels: number) => `${"[".repeat(levels)}${"]".repeat(levels)}`
  const create = (metadata: string) => `{"sdk_version":"1","user_metadata":{"a":${metadata}}}`

  it.effect("a body nested 10,000 levels deep gets 422, and one of 50 levels is accepted", () =>
    run(({ post }) =>
      Effect.gen(function* () {
        const deep = yield* post("create_session", create(nested(10_000)))
        expect([deep.status, deep.body.detail[0].msg]).toEqual([422, "the body has more than 64 levels of nesting"])
        expect((yield* post("create_session", create(nested(50)))).status).toBe(200)
        const objects = '{"a":'.repeat(10_000) + "1" + "}".repeat(10_000)
        expect((yield* post("optim_step", objects)).status).toBe(422)
        // Brackets within a string do not count.
        expect((yield* post("create_session", create(`"${"[".repeat(1000)}\\\""`))).status).toBe(200)
      }),
    ),
  )

  it.effect("a body with too many values gets 422, and at most 20 problems are listed, without large values", () =>
    run(({ post }) =>
      Effect.gen(function* () {
        const many = yield* post("create_session", create(`[${"0,".repeat(300_000)}0]`))
        expect([many.status, many.body.detail[0].msg]).toEqual([422, "the body has more than 262144 values"])
        for (const count of [1000, 100_000]) {
          const wrong = yield* post("create_session", { sdk_version: "1", tags: Array.from({ length: count }, () => 0) })
          expect(wrong.status).toBe(422)
          expect(wrong.body.detail.length).toBe(count === 1000 ? 20 : 1)
        }
        const large = yield* post("create_session", { sdk_version: Array.from({ length: 1000 }, () => "secret") })
        expect([large.status, large.body.detail[0].input]).toEqual([422, null])
        expect(JSON.stringify(large.body).length).toBeLessThan(1000)
      }),
    ),
  )
})
