import { fromBinary } from "@bufbuild/protobuf"
import { describe, expect, it } from "@effect/vitest"
import { Cause, Context, Effect, Either, Exit, FastCheck as fc, Fiber, Schema } from "effect"
import * as CustomLoss from "effect-tinker/CustomLoss"
import type { Datum } from "effect-tinker/Datum"
import * as ForwardBackward from "effect-tinker/protocol/ForwardBackward"
import * as Gradient from "effect-tinker/Gradient"
import type * as Loss from "effect-tinker/Loss"
import * as Proto from "effect-tinker/protocol/Proto"
import * as TensorData from "effect-tinker/TensorData"
import { InvalidInput, UnexpectedResponse } from "effect-tinker/TinkerError"
import * as TrainingResult from "effect-tinker/TrainingResult"
import { vector } from "./support/Recorded.ts"

interface Body {
  readonly bodyBase64?: string
}

const bytesOf = ({ bodyBase64 = "" }: Body) => new Uint8Array(Buffer.from(bodyBase64, "base64"))

const recording = (file: Parameters<typeof vector>[0]) => {
  const { exchanges, result } = vector(file)
  const [forward, forwardResult, backward, backwardResult] = exchanges
  return {
    forward: fromBinary(Proto.ForwardBackwardRequestSchema, bytesOf(forward!.request as Body)),
    forwardResult: Either.getOrThrow(TrainingResult.fromProtobuf(bytesOf(forwardResult!.response as Body))),
    backward: fromBinary(Proto.ForwardBackwardRequestSchema, bytesOf(backward!.request as Body)),
    backwardResult: Either.getOrThrow(TrainingResult.fromProtobuf(bytesOf(backwardResult!.response as Body))),
    // In the encoded form of our result.
    result: JSON.parse(JSON.stringify(result), (key, value: unknown) =>
      key === "$type" ? undefined : value,
    ) as typeof TrainingResult.TrainingResult.Encoded,
  }
}

/** The batch as the recorded request would send it, decoded independently of our encoder. */
const sent = (batch: Loss.PreparedBatch, { forwardOnly, modelId, seqId }: Proto.ForwardBackwardRequest) =>
  fromBinary(
    Proto.ForwardBackwardRequestSchema,
    Either.getOrThrow(ForwardBackward.toProtobuf({ modelId, seqId, batch, forwardOnly })),
  )

/** Runs both passes against the recorded responses. */
const replay = <I extends CustomLoss.Inputs, E>(
  file: Parameters<typeof vector>[0],
  data: ReadonlyArray<Datum<I>>,
  loss: CustomLoss.CustomLoss<I, E>,
) =>
  Effect.gen(function* () {
    const recorded = recording(file)
    const prepared = yield* CustomLoss.prepare(data)
    expect(sent(prepared.forward, recorded.forward)).toEqual(recorded.forward)
    const linearized = yield* CustomLoss.linearize(loss, prepared, recorded.forwardResult)
    expect(sent(linearized.backward, recorded.backward)).toEqual(recorded.backward)
    const result = CustomLoss.finish(linearized, recorded.backwardResult)
    const { metrics, ...ours } = yield* Schema.encode(TrainingResult.TrainingResult)(result)
    const { metrics: theirs, ...reference } = recorded.result
    expect(ours).toEqual(reference)
    return { ours: metrics ?? {}, theirs: theirs ?? {} }
  })

const modelInput = [1, 2, 3]
const targetTokens = [2, 3, 4]
interface Mine extends CustomLoss.Inputs {
  readonly mine?: string
}
const two: ReadonlyArray<Datum<Mine>> = [
  { modelInput, inputs: { targetTokens, weights: [0, 1, 1], mine: "stays here" } },
  { modelInput, inputs: { targetTokens } },
]

const squares = (data: ReadonlyArray<CustomLoss.Scored>): CustomLoss.Evaluation => ({
  loss: data.reduce((sum, { logprobs }) => logprobs.reduce((sum, x) => sum + x * x, sum), 0),
  gradients: data.map(({ logprobs }) => logprobs.map((x) => 2 * x)),
  metrics: { my_metric: data.length },
})

const total = (parts: ReadonlyArray<Gradient.Node>) => Gradient.sum(Gradient.concat(parts))

/** A server's response with these log probabilities. */
const answering = (...logprobs: ReadonlyArray<ReadonlyArray<number>>): TrainingResult.TrainingResult => ({
  outputType: "TorchLossReturn",
  outputs: logprobs.map((values) => ({ logprobs: Either.getOrThrow(TensorData.from("float32", values)) })),
  metrics: { "loss:sum": 0 },
})

/** The weights of a batch, dense. */
const weightsOf = (batch: Loss.PreparedBatch) =>
  batch.data.map(({ inputs }) => Array.from(inputs.find(({ name }) => name === "weights")!.tensor.data, Number))

const linearize = <I extends CustomLoss.Inputs, E, R>(
  loss: CustomLoss.CustomLoss<I, E, R>,
  data: ReadonlyArray<Datum<I>>,
  answer: TrainingResult.TrainingResult,
) => Effect.flatMap(CustomLoss.prepare(data), (prepared) => CustomLoss.linearize(loss, prepared, answer))

/** The error of an effect. A batch returned by mistake is not worth printing. */
const failing = <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.flip(Effect.asVoid(effect))

const evaluating = (evaluation: unknown) => CustomLoss.analytic(() => evaluation as CustomLoss.Evaluation)

const one = { modelInput, inputs: { targetTokens } }

describe("CustomLoss", () => {
  describe("replays of the reference's two passes", () => {
    const forms = {
      "CustomLoss.analytic": CustomLoss.analytic(squares),
      "CustomLoss.effect": CustomLoss.effect((data) => Effect.map(Effect.yieldNow(), () => squares(data))),
      "CustomLoss.fromGradient": CustomLoss.fromGradient((data) => ({
        loss: total(data.map(({ logprobs }) => Gradient.sum(Gradient.square(logprobs)))),
        metrics: { my_metric: data.length },
      })),
    }
    for (const [form, loss] of Object.entries<CustomLoss.CustomLoss<CustomLoss.Inputs, InvalidInput>>(forms))
      it.effect(`${form} matches the reference in both passes: vectors/forward_backward_custom.json`, () =>
        Effect.gen(function* () {
          const { ours, theirs } = yield* replay("vectors/forward_backward_custom.json", two, loss)
          expect(ours).toEqual(theirs)
        }),
      )

    it.effect(
      "a custom loss with per-datum metrics matches the reference: vectors/forward_backward_custom_handle_client_side.json",
      () =>
        Effect.gen(function* () {
          interface Weighted extends CustomLoss.Inputs {
            readonly weights: ReadonlyArray<number>
          }
          const weighted = { modelInput, inputs: { targetTokens, weights: [0, 1, 1] } }
          const loss = CustomLoss.fromGradient<Weighted>((data) => {
            const loss = Gradient.neg(
              total(data.map(({ datum, logprobs }) => Gradient.dot(logprobs, datum.inputs.weights))),
            )
            const means = data.map(({ logprobs }) => Gradient.mean(Gradient.exp(logprobs)))
            return {
              loss,
              metrics: { "custom/neg_ll:sum": loss, "custom/m:mean": Gradient.mean(Gradient.concat(means)) },
            }
          })
          const file = "vectors/forward_backward_custom_handle_client_side.json"
          const { ours, theirs } = yield* replay(file, [weighted, weighted], loss)
          // The reference computes in float32.
          const rounded = (metrics: typeof ours) => ({
            ...metrics,
            "custom/m:mean": metrics["custom/m:mean"]?.toFixed(7),
          })
          expect(rounded(ours)).toEqual(rounded(theirs))
        }),
    )
  })

  describe("CustomLoss.prepare", () => {
    it("the forward pass sends only the targets, whatever else the datums carry", () => {
      const { forward } = Either.getOrThrow(CustomLoss.prepare(two))
      expect(forward.loss).toEqual({ name: "cross_entropy", config: {} })
      expect(forward.data.map(({ inputs }) => inputs.map(({ name }) => name))).toEqual([
        ["target_tokens", "weights"],
        ["target_tokens", "weights"],
      ])
      expect(weightsOf(forward)).toEqual([
        [0, 1, 1],
        [0, 0, 0],
      ])
      // 4 bytes per token, 8 per target, 4 per weight.
      expect(forward.data.map(({ bytes }) => bytes)).toEqual([48, 48])
    })

    it("the forward pass has the shape of the targets, including two-dimensional targets and tensors without a shape", () => {
      const rows = [
        [2, 3],
        [3, 4],
        [4, 5],
      ]
      const shapeless = Either.getOrThrow(TensorData.int64(targetTokens))
      const { forward } = Either.getOrThrow(
        CustomLoss.prepare<CustomLoss.Inputs>([
          { modelInput, inputs: { targetTokens: rows } },
          { modelInput, inputs: { targetTokens: shapeless } },
        ]),
      )
      expect(forward.data.map(({ inputs }) => inputs.map(({ tensor }) => tensor.shape))).toEqual([
        [
          [3, 2],
          [3, 2],
        ],
        [undefined, undefined],
      ])
    })

    it.each<readonly [string, unknown]>([
      ["data: expected at least one datum", []],
      ["data: expected at least one datum", undefined],
      ["data[1]: expected a datum, { modelInput, inputs }, got null", [one, null]],
      [
        "data[0].inputs: expected an object: cross_entropy takes targetTokens (int64); optional: weights (float32)",
        [{ modelInput }],
      ],
      [
        "data[0].inputs.targetTokens: missing: cross_entropy takes targetTokens (int64); optional: weights (float32)",
        [{ modelInput, inputs: {} }],
      ],
      [
        "data[0].inputs.targetTokens: expected one value per token of the model input (3), got 2",
        [{ modelInput, inputs: { targetTokens: [1, 2] } }],
      ],
      [
        "data[1].inputs.weights: expected one value per element of targetTokens (3), got 1",
        [one, { modelInput, inputs: { targetTokens, weights: [1] } }],
      ],
      [
        "data[0].inputs.weights[1]: expected a number in the range of float32, got a string",
        [{ modelInput, inputs: { targetTokens, weights: [1, "1", 1] } }],
      ],
      [
        "data[0].modelInput[0]: expected a token id, an integer from 0 to 2^31 - 1, got -1",
        [{ modelInput: [-1, 2, 3], inputs: { targetTokens } }],
      ],
    ])("CustomLoss.prepare rejects invalid data: %s", (message, data) => {
      const result = CustomLoss.prepare(data as ReadonlyArray<Datum<CustomLoss.Inputs>>)
      expect(Either.isLeft(result) && result.left.message).toBe(message)
    })

    it("CustomLoss.prepare rejects sparse targets because the gradient is dense", () => {
      const sparse = { crowIndices: [0, 1, 1, 2], colIndices: [0, 7] }
      const targets = Either.getOrThrow(TensorData.int64([5, 6], { shape: [3, 8], sparse }))
      const result = CustomLoss.prepare<CustomLoss.Inputs>([one, { modelInput, inputs: { targetTokens: targets } }])
      expect(Either.isLeft(result) && result.left.message).toBe(
        "data[1].inputs.targetTokens: a custom loss requires dense targets",
      )
    })
  })

  describe("forward results", () => {
    it.effect("the loss function gets the server's log probabilities uncopied, each with its datum", () =>
      Effect.gen(function* () {
        const answer = answering([-1, -2, -3], [-4, -5, -6])
        const seen: Array<CustomLoss.Scored> = []
        const loss = CustomLoss.analytic((data) => {
          seen.push(...data)
          return squares(data)
        })
        yield* linearize(loss, two, answer)
        expect(seen.map(({ datum }) => datum)).toEqual(two)
        for (const [index, { datum, logprobs }] of seen.entries()) {
          expect(datum).toBe(two[index])
          expect(logprobs).toBe(answer.outputs[index]?.["logprobs"]?.data)
        }
      }),
    )

    const int64 = { logprobs: Either.getOrThrow(TensorData.int64([1, 2, 3])) }
    const csr = { shape: [1, 3], sparse: { crowIndices: [0, 3], colIndices: [0, 1, 2] } }
    const sparse = { logprobs: Either.getOrThrow(TensorData.float32([1, 2, 3], csr)) }

    it.effect.each<readonly [string, TrainingResult.TrainingResult]>([
      ["expected outputs for 1 datums, got 0", answering()],
      ["expected outputs for 1 datums, got 2", answering([1, 2, 3], [1, 2, 3])],
      ["outputs[0].logprobs: missing", { ...answering(), outputs: [{}] }],
      ["outputs[0].logprobs: expected one value per target (3), got 2", answering([-1, -2])],
      ["outputs[0].logprobs: expected dense float32", { ...answering(), outputs: [int64] }],
      ["outputs[0].logprobs: expected dense float32", { ...answering(), outputs: [sparse] }],
    ])("an invalid forward result is reported as UnexpectedResponse: %s", ([detail, answer]) =>
      Effect.gen(function* () {
        let asked = false
        const loss = CustomLoss.analytic((data) => {
          asked = true
          return squares(data)
        })
        const error = yield* failing(linearize(loss, [one], answer))
        expect(error).toBeInstanceOf(UnexpectedResponse)
        expect(error).toMatchObject({ operation: "forward", reason: "Schema", detail })
        expect(asked).toBe(false)
      }),
    )
  })

  describe("the loss function", () => {
    const answer = answering([-1, -2, -3])
    const gradients = [[1, 2, 3]]

    it.effect.each<readonly [string, unknown]>([
      ["loss: expected { loss, gradients, metrics }, got undefined", undefined],
      ["loss.loss: expected a finite number, got NaN", { loss: Number.NaN, gradients }],
      ["loss.loss: expected a finite number, got -Infinity", { loss: -Infinity, gradients }],
      ["loss.loss: expected a finite number, got undefined", { gradients }],
      ["loss.gradients: expected one array per datum (1), got 0", { loss: 1, gradients: [] }],
      ["loss.gradients: expected one array per datum (1), got undefined", { loss: 1 }],
      ["loss.gradients[0]: expected one value per target (3), got 2", { loss: 1, gradients: [[1, 2]] }],
      ["loss.gradients[0]: expected an array of numbers, got null", { loss: 1, gradients: [null] }],
      [
        "loss.gradients[0][1]: expected a number in the range of float32, got NaN",
        { loss: 1, gradients: [[1, Number.NaN, 3]] },
      ],
      [
        "loss.gradients[0][2]: expected a number in the range of float32, got Infinity",
        { loss: 1, gradients: [Float32Array.of(1, 2, Infinity)] },
      ],
      [
        "loss.gradients[0][0]: expected a number in the range of float32, got 1e+39",
        { loss: 1, gradients: [[1e39, 2, 3]] },
      ],
      [
        "loss.gradients[0][0]: expected a number in the range of float32, got a string",
        { loss: 1, gradients: [["1", 2, 3]] },
      ],
      [
        "loss.gradients[0][0]: expected a number in the range of float32, got 1n",
        { loss: 1, gradients: [BigInt64Array.of(1n, 2n, 3n)] },
      ],
      ["loss.metrics: expected an object, got null", { loss: 1, gradients, metrics: null }],
      ["loss.metrics.mine: expected a number, got a string", { loss: 1, gradients, metrics: { mine: "1" } }],
    ])("an invalid loss evaluation is rejected: %s", ([message, evaluation]) =>
      Effect.gen(function* () {
        const error = yield* failing(linearize(evaluating(evaluation), [one], answer))
        expect(error).toBeInstanceOf(InvalidInput)
        expect(error.message).toBe(message)
      }),
    )

    it.effect("a loss function may return any numeric array as a gradient and NaN as a metric", () =>
      Effect.gen(function* () {
        const gradients = [[1, 0, -3], Float32Array.of(1, 0, -3), Float64Array.of(1, 0, -3), Int8Array.of(1, 0, -3)]
        const loss = evaluating({ loss: 1, gradients, metrics: { empty: Number.NaN } })
        const answer = answering(...gradients.map(() => [-1, -2, -3]))
        const { backward, metrics } = yield* linearize(loss, [one, one, one, one], answer)
        // Not -0, which has different bits on the wire.
        expect(weightsOf(backward)).toEqual(gradients.map(() => [-1, 0, 3]))
        expect(metrics).toEqual({ empty: Number.NaN })
      }),
    )

    const mine = new RangeError("no such token")
    const thrown = {
      "analytic throws": CustomLoss.analytic(() => {
        throw mine
      }),
      "fromGradient throws": CustomLoss.fromGradient(() => {
        throw mine
      }),
      "effect throws": CustomLoss.effect((): Effect.Effect<CustomLoss.Evaluation> => {
        throw mine
      }),
      "effect dies": CustomLoss.effect(() => Effect.die(mine)),
    }
    for (const [name, loss] of Object.entries<CustomLoss.CustomLoss<CustomLoss.Inputs, InvalidInput>>(thrown))
      it.effect(`${name}: a typed error carries the cause`, () =>
        Effect.gen(function* () {
          const error = yield* failing(linearize(loss, [one], answer))
          expect(error).toBeInstanceOf(InvalidInput)
          expect(error.message).toBe("loss: the loss function threw: no such token")
          expect(error.cause).toBe(mine)
        }),
      )

    it.effect("a custom loss effect fails with its own errors", () =>
      Effect.gen(function* () {
        const loss = CustomLoss.effect(() => Effect.fail("mine" as const))
        expect(yield* failing(linearize(loss, [one], answer))).toBe("mine")
      }),
    )

    it.effect("a custom loss effect can use a service", () =>
      Effect.gen(function* () {
        class Factor extends Context.Tag("Factor")<Factor, number>() {}
        const loss = CustomLoss.effect(() => Effect.map(Factor, (loss) => ({ loss, gradients })))
        const linearized = yield* Effect.provideService(linearize(loss, [one], answer), Factor, 7)
        expect(linearized.loss).toBe(7)
      }),
    )

    it.effect("a custom loss effect can be interrupted", () =>
      Effect.gen(function* () {
        const fiber = yield* Effect.fork(
          linearize(
            CustomLoss.effect(() => Effect.never),
            [one],
            answer,
          ),
        )
        yield* Effect.yieldNow()
        const exit = yield* Fiber.interrupt(fiber)
        expect(Exit.isFailure(exit) && Cause.isInterruptedOnly(exit.cause)).toBe(true)
      }),
    )

    it.effect("an invalid Gradient computation is reported with its location", () =>
      Effect.gen(function* () {
        const mismatch = CustomLoss.fromGradient(([one]) => ({ loss: Gradient.dot(one!.logprobs, [1, 2]) }))
        expect((yield* failing(linearize(mismatch, [one], answer))).message).toBe(
          "Gradient.mul: an array of 3 cannot be combined with an array of 2",
        )
        const many = CustomLoss.fromGradient(([one]) => ({ loss: one!.logprobs }))
        expect((yield* failing(linearize(many, [one], answer))).message).toBe(
          "Gradient.toNumber: expected a scalar, got an array of 3",
        )
        const steep = CustomLoss.fromGradient(([one]) => ({
          loss: Gradient.sum(Gradient.sqrt(Gradient.sub(one!.logprobs, [-1, -3, -4]))),
        }))
        expect((yield* failing(linearize(steep, [one], answer))).message).toBe(
          "loss.gradients[0][0]: expected a number in the range of float32, got Infinity",
        )
      }),
    )

    it.effect("a loss function need not use every datum", () =>
      Effect.gen(function* () {
        const loss = CustomLoss.fromGradient(([, second]) => ({ loss: Gradient.sum(second!.logprobs) }))
        const { backward, metrics } = yield* linearize(loss, two, answering([-1, -2, -3], [-4, -5, -6]))
        expect(weightsOf(backward)).toEqual([
          [0, 0, 0],
          [-1, -1, -1],
        ])
        expect(metrics).toEqual({})
      }),
    )
  })

  describe("the backward pass", () => {
    it.effect("the weights of the backward pass have the shape of the targets", () =>
      Effect.gen(function* () {
        const rows = [
          [2, 3],
          [3, 4],
          [4, 5],
        ]
        const loss = evaluating({ loss: 1, gradients: [[1, 2, 3, 4, 5, 6]] })
        const answer = answering([0, 0, 0, 0, 0, 0])
        const { backward } = yield* linearize(loss, [{ modelInput, inputs: { targetTokens: rows } }], answer)
        expect(weightsOf(backward)).toEqual([[-1, -2, -3, -4, -5, -6]])
        expect(backward.data[0]?.inputs.map(({ tensor }) => tensor.shape)).toEqual([
          [3, 2],
          [3, 2],
        ])
        // 4 bytes per token, 8 per target, 4 per weight.
        expect(backward.data[0]?.bytes).toBe(12 + 48 + 24)
      }),
    )
  })

  describe("CustomLoss.finish", () => {
    const linearized = (metrics: Readonly<Record<string, number>>): CustomLoss.Linearized => ({
      loss: 7,
      metrics,
      backward: { loss: { name: "cross_entropy", config: {} }, data: [] },
    })
    const result = { ...answering([-1]), metrics: { "loss:sum": 3, "tokens:sum": 10, mine: 1 } }

    it("CustomLoss.finish reports the custom loss as the loss and the server's loss as surrogate_loss", () => {
      expect(CustomLoss.finish(linearized({ mine: 2 }), result)).toEqual({
        ...result,
        metrics: { "loss:sum": 7, "surrogate_loss:sum": 3, "tokens:sum": 10, mine: 2 },
      })
    })

    it("CustomLoss.finish works without a server loss", () => {
      expect(CustomLoss.finish(linearized({}), { ...result, metrics: {} }).metrics).toEqual({ "loss:sum": 7 })
    })

    it("custom metrics cannot override the loss and the surrogate loss", () => {
      const metrics = { "loss:sum": 100, "surrogate_loss:sum": 100 }
      expect(CustomLoss.finish(linearized(metrics), result).metrics).toMatchObject({
        "loss:sum": 7,
        "surrogate_loss:sum": 3,
      })
    })
  })

  describe("direct preference optimization over pairs of datums", () => {
    interface Preference extends CustomLoss.Inputs {
      /** 1 for the tokens of the answer, 0 for those of the prompt. */
      readonly weights: Float32Array
      /** The log probability of the answer under the initial model. */
      readonly reference: number
    }
    const beta = 0.5

    const pairs = <L>(data: ReadonlyArray<CustomLoss.Scored<Preference, L>>) =>
      Array.from({ length: data.length / 2 }, (_, i) => [data[2 * i]!, data[2 * i + 1]!] as const)

    const byGradient = CustomLoss.fromGradient<Preference>((data) => {
      const reward = ({ datum: { inputs }, logprobs }: (typeof data)[number]) =>
        Gradient.dot(logprobs, inputs.weights).pipe(Gradient.sub(inputs.reference), Gradient.scale(beta))
      const margins = Gradient.concat(
        pairs(data).map(([chosen, rejected]) => Gradient.sub(reward(chosen), reward(rejected))),
      )
      return {
        loss: Gradient.neg(Gradient.mean(Gradient.logSigmoid(margins))),
        metrics: { "margin:mean": Gradient.mean(margins) },
      }
    })

    const reward = ({ datum: { inputs }, logprobs }: CustomLoss.Scored<Preference>) =>
      beta * (logprobs.reduce((sum, x, i) => sum + x * inputs.weights[i]!, 0) - inputs.reference)

    const byFormula = CustomLoss.analytic<Preference>((data) => {
      const margins = pairs(data).map(([chosen, rejected]) => reward(chosen) - reward(rejected))
      const slopes = margins.map((margin) => -beta / (1 + Math.exp(margin)) / margins.length)
      return {
        loss: margins.reduce((sum, margin) => sum + Math.log1p(Math.exp(-margin)), 0) / margins.length,
        gradients: data.map(({ datum: { inputs } }, index) => {
          const slope = slopes[Math.floor(index / 2)]! * (index % 2 === 0 ? 1 : -1)
          return Float64Array.from(inputs.weights, (weight) => weight * slope)
        }),
        metrics: { "margin:mean": margins.reduce((sum, margin) => sum + margin, 0) / margins.length },
      }
    })

    const example = fc.integer({ min: 1, max: 6 }).chain((length) => {
      const exactly = { minLength: length, maxLength: length }
      return fc.record({
        datum: fc
          .record({
            weights: fc.array(fc.constantFrom(0, 1), exactly),
            reference: fc.double({ min: -10, max: 0, noNaN: true }),
          })
          .map(({ reference, weights }): Datum<Preference> => ({
            modelInput: weights.map((_, i) => i),
            inputs: { targetTokens: weights.map((_, i) => i + 1), weights: Float32Array.from(weights), reference },
          })),
        logprobs: fc.array(fc.float({ min: -5, max: 0, noNaN: true }), exactly),
      })
    })
    const examples = fc
      .array(fc.tuple(example, example), { minLength: 1, maxLength: 4 })
      .map((pairs) => pairs.flatMap((pair) => pair))

    const run = <E>(
      loss: CustomLoss.CustomLoss<Preference, E>,
      data: typeof examples extends fc.Arbitrary<infer A> ? A : never,
    ) =>
      Effect.runSync(
        linearize(
          loss,
          data.map(({ datum }) => datum),
          answering(...data.map(({ logprobs }) => logprobs)),
        ),
      )

    it.prop(
      "the DPO loss agrees between Gradient and the closed formula to float32 precision",
      { examples },
      ({ examples }) => {
        const [left, right] = [run(byGradient, examples), run(byFormula, examples)]
        expect(left.loss).toBeCloseTo(right.loss, 12)
        expect(left.metrics["margin:mean"]).toBeCloseTo(right.metrics["margin:mean"]!, 12)
        const expected = weightsOf(right.backward)
        for (const [index, weights] of weightsOf(left.backward).entries())
          for (const [i, weight] of weights.entries()) expect(weight).toBeCloseTo(expected[index]![i]!, 7)
      },
    )

    it.prop("the gradient of the DPO loss agrees with finite differences", { examples }, ({ examples }) => {
      const { backward } = run(byGradient, examples)
      for (const [index, weights] of weightsOf(backward).entries())
        for (const [i, weight] of weights.entries()) {
          const step = 1 / 128
          const lossAt = (move: number) =>
            run(
              byGradient,
              examples.with(index, {
                ...examples[index]!,
                logprobs: examples[index]!.logprobs.with(i, examples[index]!.logprobs[i]! + move),
              }),
            ).loss
          // Log probabilities are sent as float32, so the step can't be small.
          expect(-weight).toBeCloseTo((lossAt(step) - lossAt(-step)) / (2 * step), 4)
        }
    })
  })
})
