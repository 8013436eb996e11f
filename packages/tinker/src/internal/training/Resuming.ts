/** What an earlier life of a client left undone. */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Api from "../../protocol/Api.ts"
import { SaveWeightsForSamplerResult } from "../../protocol/schemas/Training.ts"
import * as ApiFuture from "../../ApiFuture.ts"
import type * as Endpoint from "../../protocol/Endpoint.ts"
import { SequenceBroken, type SubmitError } from "../../TinkerError.ts"
import type { Earlier, Pending } from "../../TrainingClient.ts"
import type { State, Step, StoredRequest } from "../../TrainingJournal.ts"
import { combine } from "./CombineResults.ts"
import { invalid } from "../codec/Invalid.ts"
import type { JournalCall } from "./Ledger.ts"
import type * as Sequencer from "./Sequencer.ts"
import * as Tickets from "./Tickets.ts"

export const describe = (steps: JournalCall["steps"]): Earlier => ({
  operation: steps[0].intent.operation,
  seqs: steps.map(({ intent }) => intent.seq),
  tag: steps[0].intent.tag,
})

/** Where the numbers stand. */
export const startOf = (
  { lastCheckpoint, withdrawn }: Pick<State, "lastCheckpoint" | "withdrawn">,
  calls: ReadonlyArray<JournalCall>,
): Sequencer.Start => {
  const steps = calls.flatMap(({ steps }) => steps)
  const next = (steps.at(-1)?.intent.seq ?? 0) + 1
  const acknowledged = steps.findLast(({ requestId }) => Option.isSome(requestId))
  const succeeded = steps.findLast(
    ({ requestId, succeeded }) => Option.isSome(requestId) && Option.contains(succeeded, true),
  )
  const known = (step: Step | undefined) =>
    Option.flatMap(Option.fromNullable(step), ({ intent: { seq }, requestId }) =>
      Option.map(requestId, (requestId) => ({ seq, requestId })),
    )
  const lastSuccess = steps.findLastIndex(({ succeeded }) => Option.contains(succeeded, true))
  return {
    next,
    acknowledged: known(acknowledged),
    succeeded: known(succeeded),
    withdrawn: withdrawn.has(next) ? Option.some(next) : Option.none(),
    failed: steps
      .slice(lastSuccess + 1)
      .flatMap(({ intent, succeeded }) => (Option.contains(succeeded, false) ? [intent.seq] : [])),
    broken: Option.map(
      Option.filter(Option.fromNullable(calls.findLast((call) => !isUselessLoad(call))), isPartial),
      ({ steps: [{ intent }] }) =>
        new SequenceBroken({
          operation: intent.operation,
          seq: next,
          applied: "partial",
          acknowledged: acknowledged?.intent.seq ?? 0,
          lastCheckpoint,
          detail: "before the restart",
        }),
    ),
    lastCheckpoint,
  }
}

/** Gradients of a part of a batch are there. Who did something after it wanted them, or put an end to them. */
const isPartial = ({ isWhole, steps: [{ intent }] }: JournalCall): boolean => !isWhole && !intent.repeatable

/** A load that did not succeed has put an end to nothing. */
const isUselessLoad = (call: JournalCall): boolean =>
  call.steps[0].intent.operation === Api.loadWeights.operation && !isLoaded(call)

export const isLoaded = (call: JournalCall): boolean =>
  call.steps[0].intent.operation === Api.loadWeights.operation && outcome(call).succeeded === true

/** What is known of its results; undefined while nothing is. */
export const outcome = ({ steps }: JournalCall): Earlier & { readonly succeeded: boolean | undefined } => ({
  ...describe(steps),
  succeeded: steps.some(({ succeeded }) => Option.contains(succeeded, false))
    ? false
    : steps.every(({ succeeded }) => Option.isSome(succeeded)) || undefined,
})

/** Sends what may not have been sent, and waits for what was. `saved` is told of checkpoints. */
export const reattach = (
  deps: Tickets.Deps,
  { stands, steps }: JournalCall,
  saved: (seq: number, path: string) => void,
): Effect.Effect<Pending, SubmitError> =>
  Effect.gen(function* () {
    const ids = new Map(
      steps.flatMap(({ intent, requestId }) =>
        Option.isSome(requestId) ? [[intent.seq, requestId.value] as const] : [],
      ),
    )
    const unsent = stands === "unsent" ? steps.filter(({ intent }) => !ids.has(intent.seq)) : []
    if (unsent.length > 0) {
      const sent = yield* Effect.either(resend(deps, steps[0], unsent, ids))
      if (Either.isLeft(sent)) {
        // Its name is taken, by itself as far as can be known: a save harms nothing.
        if (sent.left._tag !== "RequestRejected") return yield* Effect.fail(sent.left)
        return { ...describe(steps), kind: "other", future: ApiFuture.fail(sent.left) }
      }
    }
    const attach = <B>(kind: ApiFuture.Kind<B>, onSuccess: (seq: number, result: B) => void = () => undefined) =>
      // By number: those that were sent again have come last.
      Effect.forEach(
        [...ids].toSorted(([a], [b]) => a - b),
        ([seq, requestId]) =>
          Effect.withFiberRuntime<ApiFuture.ApiFuture<B>>((fiber) =>
            Effect.succeed(
              Tickets.attach(
                deps,
                { kind, named: isNamed(steps[0]), wait: {}, onSuccess },
                { seq, requestId, doubtful: unsent.some(({ intent }) => intent.seq === seq) },
                fiber,
              ),
            ),
          ),
      )
    const other = (kind: string): Effect.Effect<ReadonlyArray<ApiFuture.ApiFuture<unknown>>> => {
      switch (kind) {
        case "SaveWeights":
          return attach(ApiFuture.kinds.saveWeights, (seq, { path }) => saved(seq, path))
        case "LoadWeights":
          return attach(ApiFuture.kinds.loadWeights, (seq, { path }) => {
            if (Option.isSome(path)) saved(seq, path.value)
            deps.sequencer.heal()
          })
        case "SaveWeightsForSampler":
          // With a name or without: the journal does not tell.
          return attach(ApiFuture.jsonKind(kind, SaveWeightsForSamplerResult))
        case "SaveWeightsExternal":
          return attach(ApiFuture.kinds.saveWeightsExternal)
        default:
          return attach(ApiFuture.jsonKind(kind, Schema.Unknown))
      }
    }

    const described = describe(steps)
    const { kind } = steps[0].intent
    switch (kind) {
      case "Forward":
      case "ForwardBackward": {
        const parts = yield* attach(kind === "Forward" ? ApiFuture.kinds.forward : ApiFuture.kinds.forwardBackward)
        return { ...described, kind: "pass", future: Tickets.future(parts, combine) }
      }
      case "OptimStep": {
        const parts = yield* attach(ApiFuture.kinds.optimStep)
        return { ...described, kind: "update", future: Tickets.future(parts, ([result]) => result ?? { metrics: {} }) }
      }
      default: {
        const parts = yield* other(kind)
        return { ...described, kind: "other", future: Tickets.future<unknown, unknown>(parts, ([result]) => result) }
      }
    }
  })

/** May a conflict be about its name? */
const isNamed = ({ intent }: Pick<Step, "intent">): boolean => intent.kind.startsWith("SaveWeights")

const resend = (deps: Tickets.Deps, { intent }: Step, unsent: ReadonlyArray<Step>, ids: Map<number, string>) => {
  const call: Sequencer.Call = {
    kind: intent.kind,
    requests: unsent.map(({ intent }) => ({ forms: [stored(deps, intent.operation)], bytes: 0 })),
    parallel: false,
    repeatable: intent.repeatable,
    named: isNamed({ intent }),
    separable: false,
    heals: false,
    follows: false,
    tag: intent.tag,
    onAcknowledged: (_, { requestId, seq }) => ids.set(seq, requestId),
    onDelay: () => Effect.void,
  }
  return deps.sequencer.resend(
    call,
    unsent.map(({ intent, request }) => ({
      seq: intent.seq,
      idempotencyKey: intent.idempotencyKey,
      rendered: Option.map(request, rendered),
    })),
  )
}

/** All that training sends is answered in the same way. What was written down is not written anew. */
const stored = ({ transport }: Tickets.Deps, operation: string): Sequencer.Form => ({
  operation,
  wire: undefined,
  render: () => invalid(operation, "can only be sent as it was written down"),
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
