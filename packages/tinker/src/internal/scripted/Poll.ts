/** Answers polls: holds them while there is no result, and announces large results by size first. */
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import { RetrieveFutureRequest, RetrieveFuturesRequest } from "../../protocol/schemas/Futures.ts"
import type { Answer } from "../../testing/ScriptedServer.ts"
import * as Answers from "./Answers.ts"
import type { Call } from "./Incoming.ts"
import { readJson } from "./Read.ts"
import type { Future, Outcome, Sampler, State } from "./State.ts"

const tell = (state: State, outcome: Outcome, allowMetadataOnly: boolean): Answer => {
  switch (outcome._tag) {
    case "Refused":
      return Answers.detail(outcome.status, outcome.detail)
    case "Failed":
      return Answers.json({ error: outcome.error, category: outcome.category })
    case "Result": {
      const { body, contentType } = outcome.payload
      return allowMetadataOnly && body.length > state.settings.metadataAbove
        ? Answers.json({ status: "complete_metadata", response_payload_size: body.length })
        : { status: 200, headers: { "content-type": contentType }, body }
    }
  }
}

const notYet = (state: State, { id, pause }: Future, now: number): Answer => {
  const paused = pause !== undefined && now < pause.until
  return Answers.json(
    {
      type: "try_again",
      request_id: id,
      queue_state: paused ? pause.queueState : "active",
      ...(paused && pause.reason !== undefined && { queue_state_reason: pause.reason }),
    },
    state.settings.pending === "408" ? 408 : 200,
  )
}

export const poll = (call: Call): Answer | Effect.Effect<Answer> => {
  const { state } = call
  const read = readJson(call, RetrieveFutureRequest)
  if (Either.isLeft(read)) return read.left
  const { allowMetadataOnly, requestId } = read.right
  const future = state.futures.get(requestId)
  if (future === undefined) return Answers.detail(404, `Future ${requestId} not found`)
  if (future.outcome !== undefined) return tell(state, future.outcome, allowMetadataOnly)
  return Effect.flatMap(
    Effect.timeoutOption(Deferred.await(future.done), state.settings.hold),
    Option.match({
      onNone: () => Effect.map(Clock.currentTimeMillis, (now) => notYet(state, future, now)),
      onSome: (outcome) => Effect.succeed(tell(state, outcome, allowMetadataOnly)),
    }),
  )
}

/** Returns the samples that finished since the cursor, which is a count of finished samples. */
const finishedSince = ({ finished }: Sampler, cursor: number): Answer =>
  Answers.json({
    completions: finished
      .slice(cursor)
      .map(({ id, outcome }) =>
        outcome?._tag === "Result"
          ? { state: "finished", request_id: id, response_payload_uncompressed_size: outcome.payload.body.length }
          : { state: "failed", request_id: id },
      ),
    cursor: finished.length,
  })

export const pollMany = (call: Call): Answer | Effect.Effect<Answer> => {
  const { state } = call
  const read = readJson(call, RetrieveFuturesRequest)
  if (Either.isLeft(read)) return read.left
  const { prevCursor = 0, target } = read.right
  const sampler = state.samplers.get(target.samplingSessionId)
  if (sampler === undefined) return Answers.detail(404, `Sampler ${target.samplingSessionId} not found`)
  if (sampler.finished.length > prevCursor) return finishedSince(sampler, prevCursor)
  return Effect.as(Effect.timeoutOption(Deferred.await(sampler.more), state.settings.hold), sampler).pipe(
    Effect.map((sampler) => finishedSince(sampler, prevCursor)),
  )
}
