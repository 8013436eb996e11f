/**
 * Trains with client-side loss functions over the log probabilities of the target tokens. A forward pass returns the
 * log probabilities, the loss function computes a value and its gradient, and the server then trains on a cross entropy
 * with the same gradient. A custom loss therefore costs two passes and works on every server.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Predicate from "effect/Predicate"
import type { Datum } from "./Datum.ts"
import * as Gradient from "./Gradient.ts"
import { describe, invalid, type Result } from "./internal/codec/Invalid.ts"
import { isFlat, kinds } from "./internal/util/TokenChecks.ts"
import * as Loss from "./Loss.ts"
import * as TensorData from "./TensorData.ts"
import { InvalidInput, UnexpectedResponse } from "./TinkerError.ts"
import { logprobs as logprobsOf, type TrainingResult } from "./TrainingResult.ts"

/**
 * The inputs required by every custom loss. Additional inputs may have any name and type: they are passed to the loss
 * function and never sent.
 *
 * @since 0.1.0
 * @category models
 */
export interface Inputs {
  readonly targetTokens: TensorData.Input<"int64">
  readonly weights?: TensorData.Input<"float32"> | undefined
}

/**
 * A datum with the model's log probabilities.
 *
 * @since 0.1.0
 * @category models
 */
export interface Scored<out I extends Inputs = Inputs, out Logprobs = Float32Array> {
  readonly datum: Datum<I>
  /** The log probability of each target token in order; row by row if the targets have two dimensions. */
  readonly logprobs: Logprobs
}

/**
 * The result of a loss function.
 *
 * @since 0.1.0
 * @category models
 */
export interface Evaluation {
  readonly loss: number
  /** For each datum, the derivative of the loss with respect to each log probability. */
  readonly gradients: ReadonlyArray<Gradient.Numbers>
  /** Reported together with the server's metrics. */
  readonly metrics?: Readonly<Record<string, number>> | undefined
}

/**
 * A loss function over a whole batch. `I` is the type of inputs that each datum must have.
 *
 * @since 0.1.0
 * @category models
 */
export interface CustomLoss<in I extends Inputs = Inputs, out E = never, out R = never> {
  readonly evaluate: (data: ReadonlyArray<Scored<I>>) => Effect.Effect<Evaluation, E, R>
}

/**
 * Creates a loss from a function that computes the gradient itself, by formula or with a differentiation library.
 *
 * @since 0.1.0
 * @category constructors
 */
export const analytic = <I extends Inputs>(
  evaluate: (data: ReadonlyArray<Scored<I>>) => Evaluation,
): CustomLoss<I> => ({ evaluate: (data) => Effect.sync(() => evaluate(data)) })

/**
 * Creates a loss like {@link analytic}, from an effectful function.
 *
 * @since 0.1.0
 * @category constructors
 */
export const effect = <I extends Inputs, E, R>(
  evaluate: (data: ReadonlyArray<Scored<I>>) => Effect.Effect<Evaluation, E, R>,
): CustomLoss<I, E, R> => ({ evaluate })

/**
 * Creates a loss from a function built from `Gradient` operations; the gradient is derived automatically.
 *
 * @example
 * ```ts
 * import { Console, Effect } from "effect"
 * import { CustomLoss, Gradient, Optimizer, ServiceClient } from "effect-tinker"
 * import { NodeTinker } from "@effect-tinker/node"
 *
 * interface Rated extends CustomLoss.Inputs {
 *   readonly advantages: Float32Array
 * }
 *
 * const reinforce = CustomLoss.fromGradient<Rated>((data) => {
 *   const terms = data.map(({ datum, logprobs }) => Gradient.dot(logprobs, datum.inputs.advantages))
 *   return { loss: Gradient.neg(Gradient.sum(Gradient.concat(terms))) }
 * })
 *
 * const data = [
 *   { modelInput: [10, 20], inputs: { targetTokens: [20, 30], advantages: Float32Array.of(1, 0.5) } },
 *   { modelInput: [10, 40], inputs: { targetTokens: [40, 50], advantages: Float32Array.of(0.5, 1) } },
 * ]
 *
 * const program = Effect.gen(function* () {
 *   const service = yield* ServiceClient.ServiceClient
 *   const training = yield* service.createLoraTrainingClient({ baseModel: "effect-tinker/valley-1.5m", rank: 8 })
 *   const optimizer = Optimizer.adam({ learningRate: 1e-2 })
 *   const first = yield* training.trainStep(data, reinforce, optimizer)
 *   const second = yield* training.trainStep(data, reinforce, optimizer)
 *   yield* Console.log(Number(second.metrics["loss:sum"]) < Number(first.metrics["loss:sum"])) // → true
 * })
 *
 * await Effect.runPromise(program.pipe(Effect.scoped, Effect.provide(NodeTinker.layerConfig())))
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const fromGradient = <I extends Inputs>(
  evaluate: (data: ReadonlyArray<Scored<I, Gradient.Node>>) => {
    readonly loss: Gradient.Node
    readonly metrics?: Readonly<Record<string, Gradient.Node | number>> | undefined
  },
): CustomLoss<I, InvalidInput> => ({
  evaluate: (data) =>
    Effect.suspend(() =>
      Either.map(
        Gradient.ofWith(
          (nodes) => {
            const { loss, metrics = {} } = evaluate(
              data.map(({ datum }, index) => ({ datum, logprobs: nodes[index] ?? Gradient.constant([]) })),
            )
            const numbers = Object.entries(metrics).map(([name, metric]): readonly [string, number] => [
              name,
              Gradient.isNode(metric) ? Gradient.toNumber(metric) : metric,
            ])
            return { value: loss, metrics: Object.fromEntries(numbers) }
          },
          data.map(({ logprobs }) => logprobs),
        ),
        ({ gradients, metrics, value }) => ({ loss: value, gradients, metrics }),
      ),
    ),
})

/**
 * Validated data and the batch for the forward pass. Arrays are referenced, not copied: do not modify them until the
 * second pass has been sent.
 *
 * @since 0.1.0
 * @category passes
 */
export interface Prepared<out I extends Inputs = Inputs> {
  readonly data: ReadonlyArray<Datum<I>>
  readonly forward: Loss.PreparedBatch
}

/**
 * Prepares the first (forward) pass: cross entropy on the targets alone. Missing weights are filled with zeros; they
 * affect only the metrics of this pass, which are discarded.
 *
 * @since 0.1.0
 * @category passes
 */
export const prepare = <I extends Inputs>(data: ReadonlyArray<Datum<I>>): Either.Either<Prepared<I>, InvalidInput> =>
  Either.gen(function* () {
    const checked = yield* Loss.prepareUnknown(
      optionalWeights,
      weighted(data, ({ weights }) => weights),
    )
    const zeros = new Map<number, TensorData.TensorData>()
    for (const datum of checked.data) {
      const { length, shape, sparse } = targetsOf(datum)
      if (sparse)
        return yield* invalid(`data[${datum.index}].inputs.targetTokens`, "a custom loss requires dense targets")
      if (datum.inputs.every(({ key }) => key !== "weights"))
        zeros.set(datum.index, yield* TensorData.float32(new Float32Array(length), shape))
    }
    if (zeros.size === 0) return { data, forward: checked }
    const forward = yield* Loss.prepareUnknown(
      Loss.crossEntropy,
      weighted(data, ({ weights }, index) => zeros.get(index) ?? weights),
    )
    return { data, forward }
  })

/** Cross entropy with optional weights, used before missing weights are filled in. */
const optionalWeights = Loss.make({
  ...Loss.crossEntropy,
  inputs: { targetTokens: "int64", weights: "float32?" },
})

/**
 * Copies the data with only the targets and the given weights. Invalid values are passed through for `Loss` to reject.
 */
const weighted = (
  data: unknown,
  weights: (inputs: Readonly<Record<string, unknown>>, index: number) => unknown,
): unknown =>
  Array.isArray(data)
    ? data.map((datum: unknown, index) =>
        Predicate.isRecord(datum) && Predicate.isRecord(datum["inputs"])
          ? {
              ...datum,
              inputs: { targetTokens: datum["inputs"]["targetTokens"], weights: weights(datum["inputs"], index) },
            }
          : datum,
      )
    : data

const targetsOf = ({ inputs }: Loss.PreparedDatum) => {
  const tensor = inputs.find(({ key }) => key === "targetTokens")?.tensor
  return {
    length: tensor?.data.length ?? 0,
    shape: tensor?.shape === undefined ? {} : { shape: tensor.shape },
    sparse: tensor?.sparse !== undefined,
  }
}

/**
 * The validated result of the loss function and the batch whose cross entropy has the same gradient.
 *
 * @since 0.1.0
 * @category passes
 */
export interface Linearized {
  readonly loss: number
  readonly metrics: Readonly<Record<string, number>>
  readonly backward: Loss.PreparedBatch
}

/**
 * Evaluates the loss function on the result of the forward pass. Nothing may be sent if this fails: with
 * `UnexpectedResponse` when log probabilities are missing, with the error of the loss function, or with `InvalidInput`
 * when the function throws or returns values that are not finite or have the wrong size.
 *
 * @since 0.1.0
 * @category passes
 */
export const linearize = <I extends Inputs, E, R>(
  loss: CustomLoss<I, E, R>,
  prepared: Prepared<I>,
  forward: TrainingResult,
): Effect.Effect<Linearized, E | InvalidInput | UnexpectedResponse, R> =>
  Effect.gen(function* () {
    const data = yield* score(prepared, forward)
    const evaluation = yield* Effect.suspend(() => loss.evaluate(data)).pipe(
      Effect.catchAllDefect((cause) => {
        const why = cause instanceof Error && cause.message !== "" ? `: ${cause.message}` : ""
        return Effect.fail(new InvalidInput({ path: "loss", problem: `the loss function threw${why}`, cause }))
      }),
    )
    const { metrics, value } = yield* checkNumbers(evaluation)
    const weights = yield* toWeights(prepared, evaluation.gradients)
    const backward = yield* Loss.prepareUnknown(
      Loss.crossEntropy,
      weighted(prepared.data, (_, index) => weights[index]),
    )
    return { loss: value, metrics, backward }
  })

const score = <I extends Inputs>(
  { data, forward }: Prepared<I>,
  result: TrainingResult,
): Either.Either<ReadonlyArray<Scored<I>>, UnexpectedResponse> =>
  Either.flatMap(logprobsOf(result), (logprobs) => {
    const unexpected = (detail: string) =>
      Either.left(new UnexpectedResponse({ operation: "forward", reason: "Schema", detail }))
    if (logprobs.length !== data.length)
      return unexpected(`expected outputs for ${data.length} datums, got ${logprobs.length}`)
    const scored: Array<Scored<I>> = []
    for (const [index, datum] of data.entries()) {
      const targets = forward.data[index]
      const expected = targets === undefined ? 0 : targetsOf(targets).length
      const values = logprobs[index] ?? new Float32Array()
      if (values.length !== expected)
        return unexpected(
          `outputs[${index}].logprobs: expected one value per target (${expected}), got ${values.length}`,
        )
      scored.push({ datum, logprobs: values })
    }
    return Either.right(scored)
  })

const checkNumbers = (evaluation: Evaluation): Result<{ value: number; metrics: Record<string, number> }> => {
  if (!Predicate.isRecord(evaluation))
    return invalid("loss", `expected { loss, gradients, metrics }, got ${describe(evaluation)}`)
  const { loss: value, metrics = {} } = evaluation
  if (!Number.isFinite(value)) return invalid("loss.loss", `expected a finite number, got ${describe(value)}`)
  if (!Predicate.isRecord(metrics)) return invalid("loss.metrics", `expected an object, got ${describe(metrics)}`)
  for (const [name, metric] of Object.entries(metrics))
    if (typeof metric !== "number") return invalid(`loss.metrics.${name}`, `expected a number, got ${describe(metric)}`)
  return Either.right({ value, metrics })
}

/**
 * Converts gradients to weights. The server's loss is the sum of -weight * logprob, so its gradient is the negative
 * weights.
 */
const toWeights = (
  { forward }: Prepared,
  gradients: Evaluation["gradients"],
): Result<ReadonlyArray<TensorData.Float32Tensor>> =>
  Either.gen(function* () {
    if (!Array.isArray(gradients) || gradients.length !== forward.data.length) {
      const got = Array.isArray(gradients) ? gradients.length : describe(gradients)
      return yield* invalid("loss.gradients", `expected one array per datum (${forward.data.length}), got ${got}`)
    }
    const weights: Array<TensorData.Float32Tensor> = []
    for (const [index, datum] of forward.data.entries()) {
      const path = `loss.gradients[${index}]`
      const gradient: unknown = gradients[index]
      const { length, shape } = targetsOf(datum)
      if (!isFlat(gradient)) return yield* invalid(path, `expected an array of numbers, got ${describe(gradient)}`)
      if (gradient.length !== length)
        return yield* invalid(path, `expected one value per target (${length}), got ${gradient.length}`)
      const values = new Float32Array(length)
      for (let i = 0; i < length; i++) {
        const slope = gradient[i]
        // `-slope` would turn 0 into -0.
        values[i] = typeof slope === "number" ? 0 - slope : Number.NaN
        if (!Number.isFinite(values[i]))
          return yield* invalid(`${path}[${i}]`, `expected ${kinds.float32.expected}, got ${describe(slope)}`)
      }
      weights.push(yield* TensorData.float32(values, shape))
    }
    return weights
  })

/**
 * Completes the result of the second pass: reports the custom loss as `loss:sum` and the server's loss as
 * `surrogate_loss:sum`, because only the gradient of the latter is meaningful.
 *
 * @since 0.1.0
 * @category passes
 */
export const finish = ({ loss, metrics }: Linearized, result: TrainingResult): TrainingResult => {
  const surrogate = result.metrics["loss:sum"]
  return {
    ...result,
    metrics: {
      ...result.metrics,
      ...metrics,
      "loss:sum": loss,
      ...(surrogate !== undefined && { "surrogate_loss:sum": surrogate }),
    },
  }
}
