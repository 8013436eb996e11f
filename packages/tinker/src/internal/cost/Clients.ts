/** Clients whose operations a meter counts. */
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import type * as ApiFuture from "../../ApiFuture.ts"
import type * as Checkpoint from "../../Checkpoint.ts"
import type * as CustomLoss from "../../CustomLoss.ts"
import type { Datum } from "../../Datum.ts"
import type * as Loss from "../../Loss.ts"
import type * as ModelInput from "../../ModelInput.ts"
import type * as Optimizer from "../../Optimizer.ts"
import type { SampleResult } from "../../SampleResult.ts"
import type * as SamplingClient from "../../SamplingClient.ts"
import type { FutureError, SubmitError, TinkerError, TrainingError } from "../../TinkerError.ts"
import type * as TrainingClient from "../../TrainingClient.ts"
import type { TrainingResult } from "../../TrainingResult.ts"
import { interruptibleAdmission, settleExit } from "./Admission.ts"
import type { Account, Reservation, Service } from "./Meter.ts"
import type { PriceUnknown } from "./Prices.ts"
import { type Tokens, tokensIn } from "./Tokens.ts"

/**
 * A sampling client whose samples are counted, and begun only within the budget.
 *
 * @since 0.1.0
 * @category clients
 */
export interface Sampling<E> extends Omit<SamplingClient.Service, "sample" | "computeLogprobs" | "submit"> {
  readonly sample: (
    request: SamplingClient.Request,
    options?: SamplingClient.SampleOptions,
  ) => Effect.Effect<SampleResult, FutureError | E>
  readonly computeLogprobs: (
    prompt: ModelInput.Input,
    options?: SamplingClient.SampleOptions & { readonly lastN?: number | undefined },
  ) => Effect.Effect<Float32Array, FutureError | E>
  readonly submit: {
    readonly sample: (
      request: SamplingClient.Request,
      options?: SamplingClient.SampleOptions,
    ) => Effect.Effect<ApiFuture.ApiFuture<SampleResult>, FutureError | E>
  }
}

/** The most that a sample can take. Without a limit of its length nothing is known of the answer. */
const most = ({ numSamples = 1, params, prompt }: SamplingClient.Request): Partial<Tokens> => ({
  prefill: tokensIn(prompt),
  sampled: numSamples * (params?.maxTokens ?? 0),
})

/** Callers without types may pass anything. A request that the client is going to refuse counts as nothing. */
const mostOf = (request: SamplingClient.Request): Partial<Tokens> =>
  Option.getOrElse(Option.liftThrowable(most)(request), () => ({}))

const sampledTokens = (
  prompt: ModelInput.Input,
  { promptCacheHitTokens, sequences }: SampleResult,
): Partial<Tokens> => {
  const length = tokensIn(prompt)
  const cachedPrefill = Math.min(length, promptCacheHitTokens)
  return {
    prefill: length - cachedPrefill,
    cachedPrefill,
    sampled: sequences.reduce((sum, { tokens }) => sum + tokens.length, 0),
  }
}

const meteredSampling = <E>(
  { scope }: Service<E>,
  client: SamplingClient.Service,
  account: Account<E>,
): Sampling<E> => ({
  ...client,
  sample: (request, options) =>
    account.spend(mostOf(request), client.sample(request, options), (result) => sampledTokens(request.prompt, result)),
  computeLogprobs: (prompt, options) => {
    // The server samples one token, because it can't sample none.
    const most = mostOf({ prompt, params: { maxTokens: 1 } })
    return account.spend(most, client.computeLogprobs(prompt, options), () => most)
  },
  submit: {
    sample: (request, options) =>
      observed(account, mostOf(request), scope, client.submit.sample(request, options), (result: SampleResult) =>
        sampledTokens(request.prompt, result),
      ),
  },
})

/** Submits an operation. A fiber observes its result, because the caller may not await it. */
const observed = <H extends { readonly await: Effect.Effect<A, unknown> }, A, E, E2, R>(
  account: Account<E>,
  most: Partial<Tokens>,
  scope: Scope.Scope,
  submit: Effect.Effect<H, E2, R>,
  tokensOf: (result: A) => Partial<Tokens>,
  isExact = false,
): Effect.Effect<H, E | E2, R> =>
  Effect.uninterruptibleMask((restore) =>
    Effect.flatMap(interruptibleAdmission(restore, account.reserve(most, { isExact })), (reservation) =>
      Effect.matchCauseEffect(restore(submit), {
        onFailure: (cause) =>
          Effect.zipRight(settleExit(reservation, Exit.failCause(cause), tokensOf), Effect.failCause(cause)),
        onSuccess: (handle) =>
          Effect.interruptible(handle.await).pipe(
            Effect.onExit((exit) => settleExit(reservation, exit, tokensOf)),
            Effect.ignore,
            Effect.forkIn(scope),
            Effect.as(handle),
          ),
      }),
    ),
  )

/**
 * Counts the samples of a client. `model` is the base model of its weights.
 *
 * @since 0.1.0
 * @category clients
 */
export const sampling = <E>(
  meter: Service<E>,
  client: SamplingClient.Service,
  model: string,
): Effect.Effect<Sampling<E>, PriceUnknown> =>
  Effect.map(meter.account(model, "sampling"), (account) => meteredSampling(meter, client, account))

type Passes = "forward" | "forwardBackward" | "forwardBackwardCustom"

/**
 * A training client whose passes are counted, and begun only within the budget. Passes have no `submit` form; its
 * sampling clients are counted as well.
 *
 * @since 0.1.0
 * @category clients
 */
export interface Training<E> extends Omit<
  TrainingClient.Service,
  | Passes
  | "trainStep"
  | "trainSteps"
  | "enqueue"
  | "submit"
  | "createSamplingClient"
  | "saveWeightsAndGetSamplingClient"
> {
  readonly forward: <Inputs, D extends Datum<NoInfer<Inputs>>>(
    data: TrainingClient.Data<Inputs, D>,
    loss: Loss.Loss<Inputs>,
    options?: TrainingClient.RequestOptions,
  ) => Effect.Effect<TrainingResult, TrainingError | E>
  readonly forwardBackward: Training<E>["forward"]
  readonly forwardBackwardCustom: <I extends CustomLoss.Inputs, E2, R>(
    data: ReadonlyArray<Datum<I>>,
    loss: CustomLoss.CustomLoss<I, E2, R>,
    options?: TrainingClient.RequestOptions,
  ) => Effect.Effect<TrainingResult, TrainingError | E | E2, R>
  readonly trainStep: {
    <Inputs, D extends Datum<NoInfer<Inputs>>>(
      data: TrainingClient.Data<Inputs, D>,
      loss: Loss.Loss<Inputs>,
      optimizer: Optimizer.Optimizer,
      options?: TrainingClient.RequestOptions,
    ): Effect.Effect<TrainingClient.Step, TrainingError | TrainingClient.StepFailed | E>
    <I extends CustomLoss.Inputs, E2, R>(
      data: ReadonlyArray<Datum<I>>,
      loss: CustomLoss.CustomLoss<I, E2, R>,
      optimizer: Optimizer.Optimizer,
      options?: TrainingClient.RequestOptions,
    ): Effect.Effect<TrainingClient.Step, TrainingError | TrainingClient.StepFailed | E | E2, R>
  }
  readonly trainSteps: {
    <Inputs, P = void, E2 = never, R2 = never>(
      loss: Loss.Loss<Inputs>,
      optimizer: Optimizer.Optimizer | Optimizer.Schedule<Optimizer.Optimizer>,
      options?: TrainingClient.StepsOptions<P, E2, R2>,
    ): <D extends Datum<NoInfer<Inputs>>, E3, R>(
      batches: Stream.Stream<TrainingClient.Data<Inputs, D>, E3, R>,
    ) => Stream.Stream<TrainingClient.PlacedStep<P>, E | E2 | E3 | TrainingError | TrainingClient.StepFailed, R | R2>
    <I extends CustomLoss.Inputs, E1, R1, P = void, E2 = never, R2 = never>(
      loss: CustomLoss.CustomLoss<I, E1, R1>,
      optimizer: Optimizer.Optimizer | Optimizer.Schedule<Optimizer.Optimizer>,
      options?: TrainingClient.StepsOptions<P, E2, R2>,
    ): <E3, R>(
      batches: Stream.Stream<ReadonlyArray<Datum<I>>, E3, R>,
    ) => Stream.Stream<
      TrainingClient.PlacedStep<P>,
      E | E1 | E2 | E3 | TrainingError | TrainingClient.StepFailed,
      R | R1 | R2
    >
  }
  readonly enqueue: Omit<TrainingClient.Calls<"enqueue">, Passes> & {
    readonly forward: <Inputs, D extends Datum<NoInfer<Inputs>>>(
      data: TrainingClient.Data<Inputs, D>,
      loss: Loss.Loss<Inputs>,
      options?: TrainingClient.RequestOptions,
    ) => Effect.Effect<TrainingClient.Ticket<TrainingResult>, SubmitError | E>
    readonly forwardBackward: Training<E>["enqueue"]["forward"]
  }
  readonly submit: Omit<TrainingClient.Calls<"submit">, Passes>
  readonly createSamplingClient: (
    modelPath: Checkpoint.Input,
    options?: SamplingClient.Options,
  ) => Effect.Effect<Sampling<E>, TinkerError | PriceUnknown, Scope.Scope>
  readonly saveWeightsAndGetSamplingClient: (
    options?: SamplingClient.Options,
  ) => Effect.Effect<Sampling<E>, TrainingError | PriceUnknown, Scope.Scope>
}

/** How often each token of a step is computed: a custom loss needs a forward pass before the other. */
const passesOf = (loss: object): number => ("evaluate" in loss ? 2 : 1)

/**
 * Counts the passes of a training client. `model` is its base model. Forward passes count like those with gradients.
 *
 * @since 0.1.0
 * @category clients
 */
export const training = <E>(
  meter: Service<E>,
  client: TrainingClient.Service,
  model: string,
): Effect.Effect<Training<E>, PriceUnknown> =>
  Effect.map(meter.account(model, "training"), (account) => {
    const counted = <A, E2, R>(
      data: unknown,
      passes: number,
      effect: Effect.Effect<A, E2, R>,
    ): Effect.Effect<A, E | E2, R> => {
      const trained = passes * countOf(data)
      return Effect.uninterruptibleMask((restore) =>
        Effect.flatMap(
          interruptibleAdmission(restore, account.reserve({ trained }, { isExact: true })),
          (reservation) => Effect.onExit(restore(effect), (exit) => settleExit(reservation, exit, () => ({ trained }))),
        ),
      )
    }
    type AnyPass<A> = (data: unknown, loss: object, options: unknown) => Effect.Effect<A>
    // The types of a pass relate its data to its loss; to count, its data suffice.
    const pass =
      (form: Passes, passes: number): AnyPass<TrainingResult> =>
      (data, loss, options) =>
        counted(
          data,
          passes,
          (client[form] as unknown as AnyPass<TrainingResult>)(data, loss, options),
        ) as Effect.Effect<TrainingResult>
    const enqueued =
      (form: "forward" | "forwardBackward"): AnyPass<TrainingClient.Ticket<TrainingResult>> =>
      (data, loss, options) => {
        const trained = countOf(data)
        const enqueue = client.enqueue[form] as unknown as AnyPass<TrainingClient.Ticket<TrainingResult>>
        return observed(
          account,
          { trained },
          meter.scope,
          enqueue(data, loss, options),
          () => ({ trained }),
          true,
        ) as Effect.Effect<TrainingClient.Ticket<TrainingResult>>
      }
    type AnyStep = (data: unknown, loss: object, ...rest: ReadonlyArray<unknown>) => Effect.Effect<TrainingClient.Step>
    type AnySteps = (
      loss: object,
      ...rest: ReadonlyArray<unknown>
    ) => (batches: Stream.Stream<unknown, E>) => Stream.Stream<TrainingClient.PlacedStep<unknown>, E>
    // The overloads of a client differ in their types only.
    const trainStep = client.trainStep as unknown as AnyStep
    const trainSteps = client.trainSteps as unknown as AnySteps
    const meteredStep: AnyStep = (data, loss, ...rest) =>
      counted(data, passesOf(loss), trainStep(data, loss, ...rest)) as Effect.Effect<TrainingClient.Step>
    const meteredSteps: AnySteps =
      (loss, ...rest) =>
      (batches) =>
        Stream.suspend(() => {
          /** The reservations of the steps under way, oldest first. */
          const open: Array<{ readonly reservation: Reservation; readonly trained: number }> = []
          const admitted = Stream.mapEffect(batches, (batch) => {
            const trained = passesOf(loss) * countOf(batch)
            return Effect.uninterruptibleMask((restore) =>
              Effect.map(
                interruptibleAdmission(restore, account.reserve({ trained }, { isExact: true })),
                (reservation) => {
                  open.push({ reservation, trained })
                  return batch
                },
              ),
            )
          })
          return trainSteps(
            loss,
            ...rest,
          )(admitted).pipe(
            Stream.tap(() =>
              Effect.suspend(() => {
                const oldest = open.shift()
                return oldest?.reservation.settle({ trained: oldest.trained }) ?? Effect.void
              }),
            ),
            Stream.ensuring(
              Effect.suspend(() => Effect.forEach(open.splice(0), ({ reservation }) => reservation.abandon)),
            ),
          )
        })
    const sampler = (made: SamplingClient.Service) => sampling(meter, made, model)
    return {
      ...client,
      forward: pass("forward", 1) as unknown as Training<E>["forward"],
      forwardBackward: pass("forwardBackward", 1) as unknown as Training<E>["forwardBackward"],
      forwardBackwardCustom: pass("forwardBackwardCustom", 2) as unknown as Training<E>["forwardBackwardCustom"],
      trainStep: meteredStep as unknown as Training<E>["trainStep"],
      trainSteps: meteredSteps as unknown as Training<E>["trainSteps"],
      enqueue: {
        ...client.enqueue,
        forward: enqueued("forward") as unknown as Training<E>["enqueue"]["forward"],
        forwardBackward: enqueued("forwardBackward") as unknown as Training<E>["enqueue"]["forward"],
      },
      createSamplingClient: (path, options) => Effect.flatMap(client.createSamplingClient(path, options), sampler),
      saveWeightsAndGetSamplingClient: (options) =>
        Effect.flatMap(client.saveWeightsAndGetSamplingClient(options), sampler),
    }
  })

const tokensOf = (data: ReadonlyArray<{ readonly modelInput: ModelInput.Input }>): number =>
  data.reduce((sum, { modelInput }) => sum + tokensIn(modelInput), 0)

/** Callers without types may pass anything. Data that the client is going to refuse count as nothing. */
const countOf = (data: unknown): number =>
  Option.getOrElse(Option.liftThrowable(tokensOf)(data as ReadonlyArray<Datum<unknown>>), () => 0)
