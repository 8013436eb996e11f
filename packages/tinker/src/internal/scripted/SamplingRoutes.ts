/** Routes for samplers and samples. */
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as FiberId from "effect/FiberId"
import * as Option from "effect/Option"
import * as Api from "../../protocol/Api.ts"
import type { Accepted } from "../../protocol/schemas/Futures.ts"
import type * as Endpoint from "../../protocol/Endpoint.ts"
import { refuse } from "./Answers.ts"
import * as Hash from "../util/Hash.ts"
import type { Reply } from "./Read.ts"
import * as Results from "./Results.ts"
import { checkpointOf, found, route, samplerOf, sessionOf } from "./Route.ts"
import { failed, type Sampler, settle, type State } from "./State.ts"
import { once, start } from "./Submit.ts"

export const newSampler = (
  state: State,
  sessionId: string,
  number: number,
  madeBy: string,
  source: Pick<Sampler, "baseModel" | "modelPath" | "weights">,
): Sampler => {
  const sampler: Sampler = {
    ...source,
    madeBy,
    id: `${sessionId}:sample:${number}`,
    sessionId,
    submitted: new Map(),
    finished: [],
    more: Deferred.unsafeMake(FiberId.none),
    clients: 0,
  }
  state.samplers.set(sampler.id, sampler)
  return sampler
}

/** Resolves what a new sampler samples from: a base model or saved weights. */
const samplerSource = (
  state: State,
  { baseModel, modelPath }: Endpoint.Input<typeof Api.createSamplingSession>,
): Reply<Pick<Sampler, "baseModel" | "modelPath" | "weights">> =>
  modelPath === undefined
    ? Either.right({
        baseModel: baseModel ?? "",
        modelPath: Option.none(),
        weights: { value: Hash.ofText(baseModel ?? ""), steps: 0 },
      })
    : Either.map(checkpointOf(state, modelPath), ({ making, path, weights }) => ({
        baseModel: making.baseModel,
        modelPath: Option.some(path),
        weights,
      }))

/** Returns the same sampler for a repeated request. */
export const createSamplingSession = route(Api.createSamplingSession, (input, { bodyHash, state }) =>
  Either.gen(function* () {
    yield* sessionOf(state, input.sessionId)
    const number = input.samplingSessionSeqId
    const known = state.samplers.get(`${input.sessionId}:sample:${number}`)
    if (known !== undefined && known.madeBy !== bodyHash) return yield* refuse(409, `${known.id} exists already`)
    const sampler = known ?? newSampler(state, input.sessionId, number, bodyHash, yield* samplerSource(state, input))
    return { samplingSessionId: sampler.id }
  }),
)

export const joinSamplingSession = route(Api.joinSamplingSession, ({ samplingSessionId }, { state }) =>
  Either.map(samplerOf(state, samplingSessionId), (sampler) => ({ clientCounter: ++sampler.clients })),
)

export const getSampler = route(Api.getSampler, ({ samplerId }, { state }) =>
  Either.map(samplerOf(state, samplerId), ({ baseModel, modelPath }) => ({ samplerId, baseModel, modelPath })),
)

export const sample = route(Api.sample, (request, call) =>
  Either.flatMap(samplerOf(call.state, request.samplingSessionId), (sampler) => {
    const { bodyHash, state } = call
    const { mode, promptLogprobsShort, results, sampleSequenceIds } = state.settings
    const { value } = sampler.weights
    const accept = (): Reply<Accepted> => {
      const accepted = start(
        call,
        sampler.sessionId,
        () => {
          const draw = state.settings.sample ?? ((request, index) => Results.defaultSample(value, request, index))
          const result = Results.sample(value, request, (index) => draw(request, index), { promptLogprobsShort })
          return Either.right(Results.samplePayload(result, results))
        },
        {
          onEnd: (future) => {
            sampler.finished.push(future)
            Deferred.unsafeDone(sampler.more, Effect.void)
            sampler.more = Deferred.unsafeMake(FiberId.none)
          },
        },
      )
      const named = {
        ...accepted,
        sampleSequenceIds: sampleSequenceIds
          ? Option.some(Array.from({ length: request.numSamples ?? 1 }, () => state.nextSequenceId()))
          : Option.none(),
      }
      sampler.submitted.set(request.seqId, { hash: bodyHash, accepted: named })
      return Either.right(named)
    }
    return mode === "dedupe" ? once(sampler.submitted, request.seqId, bodyHash, accept) : accept()
  }),
)

export const cancelFuture = route(Api.cancelFuture, ({ requestId }, { state }) =>
  Either.map(found(state.futures.get(requestId), `Future ${requestId}`), (future) => {
    if (future.operation === "asample") settle(future, failed("cancelled"))
  }),
)
