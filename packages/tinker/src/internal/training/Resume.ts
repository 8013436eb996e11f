/** Takes up what a previous process of a client left unfinished. */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as ApiFuture from "../../ApiFuture.ts"
import * as Api from "../../protocol/Api.ts"
import type * as Endpoint from "../../protocol/Endpoint.ts"
import { type OptimStepResult, SaveWeightsForSamplerResult } from "../../protocol/schemas/Training.ts"
import { type FutureError, RequestFailed, type SubmitError } from "../../TinkerError.ts"
import type { Step, StoredRequest } from "../../TrainingJournal.ts"
import type { TrainingResult } from "../../TrainingResult.ts"
import type { Service as Transport } from "../../Transport.ts"
import { invalid } from "../codec/Invalid.ts"
import { combine } from "./CombineResults.ts"
import { describe, type JournaledCall, type LedgerCall, outcome } from "./Ledger.ts"
import type { Rendering } from "./Request.ts"
import { combined, Letter, type Operation } from "./Submission.ts"
import type { Recorded, TrainingDriver } from "./TrainingDriver.ts"

/** A call whose result was not known when the journal ended. */
export type Pending = JournaledCall &
  (
    | { readonly kind: "pass"; readonly future: ApiFuture.ApiFuture<TrainingResult> }
    | { readonly kind: "update"; readonly future: ApiFuture.ApiFuture<OptimStepResult> }
    | { readonly kind: "other"; readonly future: ApiFuture.ApiFuture<unknown> }
  )

/** A call whose results had arrived. `result` asks the server for them again, if it still has them. */
export type Completed = JournaledCall & { readonly succeeded: boolean } & (
    | { readonly kind: "pass"; readonly result: Effect.Effect<TrainingResult, FutureError> }
    | { readonly kind: "update"; readonly result: Effect.Effect<OptimStepResult, FutureError> }
    | { readonly kind: "other"; readonly result: Effect.Effect<unknown, FutureError> }
  )

export interface Options {
  readonly driver: TrainingDriver
  readonly transport: Transport
  readonly onSaved: (seq: number, path: string, withOptimizer?: boolean) => void
}

/**
 * Polls for what was acknowledged and sends again what may not have been sent. All pollers start first: a resend may
 * have to wait for a result.
 */
export const reattach = (
  options: Options,
  calls: ReadonlyArray<LedgerCall>,
): Effect.Effect<ReadonlyArray<Pending>, SubmitError> =>
  Effect.flatMap(
    Effect.forEach(calls, (call) => Effect.map(pollAcknowledged(options, call), (futures) => ({ call, futures }))),
    (polled) => Effect.forEach(polled, ({ call, futures }) => complete(options, call, futures)),
  )

type Futures = ReadonlyMap<number, ApiFuture.ApiFuture<unknown>>

const pollAcknowledged = ({ driver, onSaved }: Options, { steps }: LedgerCall): Effect.Effect<Futures> =>
  Effect.map(
    Effect.forEach(
      steps.flatMap(({ intent, requestId }) => (Option.isSome(requestId) ? [{ intent, id: requestId.value }] : [])),
      ({ id, intent }) =>
        Effect.map(
          driver.follow(operationOf(driver, onSaved, steps[0]), { seq: intent.seq, requestId: id, inDoubt: true }),
          (future) => [intent.seq, future] as const,
        ),
    ),
    (futures) => new Map(futures),
  )

const complete = (
  options: Options,
  { stands, steps }: LedgerCall,
  polled: Futures,
): Effect.Effect<Pending, SubmitError> =>
  Effect.gen(function* () {
    const unsent = stands === "unsent" ? steps.filter(({ intent }) => !polled.has(intent.seq)) : []
    const futures = new Map(polled)
    if (unsent.length > 0) {
      const sent = yield* Effect.either(resend(options, unsent))
      if (Either.isLeft(sent)) {
        // The name may have been taken by the first attempt of the same save; repeating a save does no harm.
        if (sent.left._tag !== "RequestRejected") return yield* Effect.fail(sent.left)
        return { ...describe(steps), kind: "other", future: ApiFuture.fail(sent.left) }
      }
      unsent.forEach(({ intent }, index) => {
        const future = sent.right[index]
        if (future !== undefined) futures.set(intent.seq, future)
      })
    }
    const results = [...futures].toSorted(([a], [b]) => a - b).map(([, future]) => future)
    return pending(steps, results)
  })

/** Describes a completed call. Its results are polled for like any other, and the client's state does not change. */
export const completed = (follow: ApiFuture.Service["follow"], call: LedgerCall): Completed => {
  const { steps } = call
  const described = { ...describe(steps), succeeded: outcome(call).succeeded !== false }
  const results = <A>(kind: ApiFuture.Kind<A>): Effect.Effect<ReadonlyArray<A>, FutureError> =>
    Effect.forEach(steps, ({ intent, requestId }) =>
      Option.match(requestId, {
        onNone: () => Effect.fail(unrecorded(intent)),
        onSome: (requestId) => follow(kind, requestId),
      }),
    )
  switch (steps[0].intent.kind) {
    case "Forward":
      return { ...described, kind: "pass", result: Effect.map(results(ApiFuture.kinds.forward), combine) }
    case "ForwardBackward":
      return { ...described, kind: "pass", result: Effect.map(results(ApiFuture.kinds.forwardBackward), combine) }
    case "OptimStep":
      return {
        ...described,
        kind: "update",
        result: Effect.map(results(ApiFuture.kinds.optimStep), ([result]) => result ?? { metrics: {} }),
      }
    default: {
      const kind = ApiFuture.jsonKind(steps[0].intent.kind, Schema.Unknown)
      return { ...described, kind: "other", result: Effect.map(results(kind), ([result]) => result) }
    }
  }
}

const unrecorded = ({ operation }: Step["intent"]): FutureError =>
  new RequestFailed({ operation, reason: "Unknown", detail: "the journal did not record the id of the request" })

/** Finds the type of the results by the kind in the journal. */
const pending = (steps: LedgerCall["steps"], results: ReadonlyArray<ApiFuture.ApiFuture<unknown>>): Pending => {
  const described = describe(steps)
  switch (steps[0].intent.kind) {
    case "Forward":
    case "ForwardBackward": {
      const parts = results as ReadonlyArray<ApiFuture.ApiFuture<TrainingResult>>
      return { ...described, kind: "pass", future: combined(parts, combine) }
    }
    case "OptimStep": {
      const parts = results as ReadonlyArray<ApiFuture.ApiFuture<OptimStepResult>>
      return { ...described, kind: "update", future: combined(parts, ([result]) => result ?? { metrics: {} }) }
    }
    default:
      return { ...described, kind: "other", future: combined<unknown, unknown>(results, ([result]) => result) }
  }
}

const resend = ({ driver, onSaved, transport }: Options, unsent: ReadonlyArray<Step>) => {
  const [first] = unsent
  if (first === undefined) return Effect.succeed([])
  const stored = storedRendering(transport, first.intent.operation)
  const known = operationOf(driver, onSaved, first)
  const operation: Operation<unknown, unknown> = {
    ...known,
    requests: unsent.map(() => ({ kind: known.kind, renderings: [stored] as const, bytes: 0 })),
    parallel: false,
    repeatable: first.intent.repeatable,
    independentPieces: false,
    clearsPartial: false,
    combine: (results) => results,
    tag: first.intent.tag,
  }
  const recorded = unsent.map(({ intent, request }): Recorded => ({
    seq: intent.seq,
    letter: Option.map(request, (bytes) => new Letter(intent.seq, stored, rendered(bytes), intent.idempotencyKey)),
  }))
  return driver.resend(operation, recorded)
}

const operationOf = (driver: TrainingDriver, onSaved: Options["onSaved"], { intent }: Pick<Step, "intent">) => ({
  ...kindOf(driver, onSaved, intent.kind),
  name: intent.operation,
  conflictMeansNameTaken: intent.kind.startsWith("SaveWeights"),
  wait: {},
})

interface KnownKind {
  readonly kind: ApiFuture.Kind<unknown>
  readonly onSuccess: (seq: number, result: unknown) => void
}

const known = <B>(
  kind: ApiFuture.Kind<B>,
  onSuccess: (seq: number, result: B) => void = () => undefined,
): KnownKind => ({
  kind,
  // Its result was decoded as this kind.
  onSuccess: (seq, result) => onSuccess(seq, result as B),
})

const kindOf = (driver: TrainingDriver, onSaved: Options["onSaved"], type: string): KnownKind => {
  const { kinds } = ApiFuture
  switch (type) {
    case "Forward":
      return known(kinds.forward)
    case "ForwardBackward":
      return known(kinds.forwardBackward)
    case "OptimStep":
      return known(kinds.optimStep)
    case "SaveWeights":
      return known(kinds.saveWeights, (seq, { path }) => onSaved(seq, path))
    case "LoadWeights":
      return known(kinds.loadWeights, (seq, { path }) => {
        if (Option.isSome(path)) onSaved(seq, path.value)
        driver.acceptPartial()
      })
    case "SaveWeightsForSampler":
      // The journal does not record whether the save had a name.
      return known(ApiFuture.jsonKind(type, SaveWeightsForSamplerResult))
    case "SaveWeightsExternal":
      return known(kinds.saveWeightsExternal)
    default:
      return known(ApiFuture.jsonKind(type, Schema.Unknown))
  }
}

/** All training requests are answered in the same way. A recorded request is not rendered again. */
const storedRendering = (transport: Transport, operation: string): Rendering => ({
  operation,
  encoding: "fixed",
  render: () => invalid(operation, "can only be sent as it was recorded"),
  check: () => Either.void,
  send: (rendered, options) => transport.send({ ...Api.optimStep, operation }, rendered, options),
})

const rendered = ({ bytes, contentType, path }: StoredRequest): Endpoint.Rendered => ({
  method: "POST",
  path,
  query: "",
  body: { contentType, bytes },
  secrets: [],
})
