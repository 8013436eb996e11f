import { describe, expect, it } from "@effect/vitest"
import { Effect, Stream } from "effect"
import { Loss, Optimizer, ServiceClient } from "effect-tinker"
import * as Local from "./support/Local.ts"

const adam = Optimizer.adam({ learningRate: 0.3 })

describe("LocalTinker", () => {
  it.effect("training on LocalTinker reduces the loss", () =>
    Local.run(
      Effect.gen(function* () {
        const service = yield* ServiceClient.ServiceClient
        const training = yield* service.createLoraTrainingClient({ baseModel: Local.baseModel, rank: 8 })
        const losses = yield* Stream.range(0, 9).pipe(
          Stream.map(() => Local.batch()),
          training.trainSteps(Loss.crossEntropy, () => adam),
          Stream.map(({ metrics }) => metrics["loss:sum"] ?? Number.NaN),
          Stream.runCollect,
          Effect.map((all) => [...all]),
        )
        expect(losses.length).toBe(10)
        expect(losses.at(-1)).toBeLessThan((losses[0] ?? 0) / 2)
      }),
    ),
  )
})
