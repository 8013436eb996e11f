/** Endpoints that create samplers, sample, and retrieve results. */
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Fiber from "effect/Fiber"
import * as FiberId from "effect/FiberId"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Api from "effect-tinker/protocol/Api"
import * as SampleResult from "effect-tinker/SampleResult"
import type { Answer } from "effect-tinker/protocol/Exchange"
import * as TensorData from "effect-tinker/TensorData"
import * as TrainingResult from "effect-tinker/TrainingResult"
import { randomUUID } from "node:crypto"
import type { SampleRequest } from "effect-tinker/protocol/schemas/Sampling"
import { type Call, json, read, type Route, route } from "../Call.ts"
import * as Canonical from "../Canonical.ts"
import { baseModelOf, type Core } from "../Core.ts"
import * as Futures from "../Futures.ts"
import { storageFailure, weightsOf } from "../Models.ts"
import * as Owned from "../Owned.ts"
import { bad, Refusal, refuse } from "../Refusal.ts"
import { makeSampler, sampleJob, samplerRow } from "../Samplers.ts"
import type { Future, Outcome, Sampler, SamplerRow } from "../State.ts"

// Samplers

const sourceOf = (
  core: Core,
  call: Call,
  { baseModel, modelPath }: { readonly baseModel?: string | undefined; readonly modelPath?: string | undefined },
): Effect.Effect<Pick<SamplerRow, "baseModel" | "modelPath" | "weights">, Refusal> =>
  Effect.gen(function* () {
    if (modelPath === undefined) {
      const base = baseModelOf(core, baseModel ?? "")
      if (base === undefined)
        return yield* bad(
          "base_model",
          `"${baseModel}" is not served; available models: ${core.host.models.map(({ name }) => name).join(", ")}`,
        )
      return { baseModel: base.name, modelPath: undefined, weights: undefined }
    }
    const row = yield* Owned.checkpoint(core, call, modelPath)
    return { baseModel: row.config.baseModel, modelPath: row.path, weights: weightsOf(row) }
  })

const createSampler = (core: Core) =>
  route(Api.createSamplingSession, (input, call) =>
    Effect.gen(function* () {
      const session = yield* Owned.session(core, call, input.sessionId)
      const id = `${session.id}:sample:${input.samplingSessionSeqId}`
      const hash = Canonical.ofJson(input)
      const known = core.state.samplers.get(id)
      if (known !== undefined)
        return known.hash === hash
          ? { samplingSessionId: id }
          : yield* refuse(
              409,
              `sampling_session_seq_id ${input.samplingSessionSeqId} is already used by another request`,
            )
      const source = yield* sourceOf(core, call, input)
      yield* makeSampler(core, { ...source, id, owner: call.owner, sessionId: session.id, hash, clients: 0 })
      return { samplingSessionId: id }
    }),
  )

const recordFinished = (sampler: Sampler, future: Future): Effect.Effect<void> =>
  Effect.suspend(() => {
    sampler.finished.push(future)
    const { more } = sampler
    sampler.more = Deferred.unsafeMake(FiberId.none)
    return Deferred.succeed(more, undefined)
  })

/** Starts a sample. Samples run in any order, and `cancel_future` can stop them. */
export const startSample = (core: Core, sampler: Sampler, future: Future): Effect.Effect<void> =>
  Effect.suspend(() => {
    const { sampling } = core.state
    sampling.set(sampler.owner, (sampling.get(sampler.owner) ?? 0) + 1)
    const turn = core.turns.run(sampler.owner)(Futures.runJob(core, future))
    return Effect.forkIn(Effect.interruptible(turn), core.scope).pipe(
      Effect.tap((fiber) =>
        Effect.forkIn(
          Effect.interruptible(Deferred.await(future.done)).pipe(
            Effect.zipRight(Fiber.interruptFork(fiber)),
            Effect.ensuring(Effect.sync(() => sampling.set(sampler.owner, (sampling.get(sampler.owner) ?? 1) - 1))),
            Effect.zipRight(recordFinished(sampler, future)),
          ),
          core.scope,
        ),
      ),
      Effect.asVoid,
    )
  })

const sample = (core: Core) =>
  route(Api.sample, (input, call) =>
    Effect.gen(function* () {
      const sampler = yield* Owned.sampler(core, call, input.samplingSessionId)
      // Hashes the decoded input, because null means absent and clients differ in which fields they send.
      const hash = Canonical.ofJson(samplePlain(input))
      const known = sampler.taken.get(input.seqId)
      if (known !== undefined) return yield* Futures.acknowledgeRepeat(known, hash, `seq_id ${input.seqId}`)
      const { maxQueuedSamples } = core.settings
      if ((core.state.sampling.get(call.owner) ?? 0) >= maxQueuedSamples)
        return yield* new Refusal({
          status: 429,
          detail: `too many queued samples (limit ${maxQueuedSamples}); retry later`,
          headers: { "retry-after": "1" },
        })
      const job = yield* sampleJob(core, sampler, input)
      const future = yield* Futures.accept(
        core,
        {
          owner: call.owner,
          sessionId: sampler.sessionId,
          lane: sampler.id,
          seq: input.seqId,
          operation: "asample",
          hash,
          contentType: "application/json",
          body: call.request.body,
          job,
          sampleSequenceIds: Array.from({ length: input.numSamples ?? 1 }, () => randomUUID()),
        },
        {
          reserve: (future) => sampler.taken.set(input.seqId, future),
          release: () => sampler.taken.delete(input.seqId),
        },
      )
      yield* startSample(core, sampler, future)
      return future.accepted
    }).pipe(Effect.uninterruptible),
  )

const encodeTensor = Schema.encodeSync(TensorData.TensorData)

const samplePlain = (input: SampleRequest): unknown => ({
  ...input,
  prompt: input.prompt.chunks.map((chunk) => (chunk.type === "encoded_text" ? [...chunk.tokens] : chunk.type)),
  targetPromptLogprobs: input.targetPromptLogprobs === undefined ? null : encodeTensor(input.targetPromptLogprobs),
})

// Results

/** Converts a protobuf result to JSON, for clients that accept only JSON. */
const toJson = (future: Future, body: Uint8Array): Option.Option<unknown> =>
  future.operation === "asample"
    ? Option.map(Either.getRight(SampleResult.fromProtobuf(body)), Schema.encodeSync(SampleResult.SampleResult))
    : Option.map(Either.getRight(TrainingResult.fromProtobuf(body)), Schema.encodeSync(TrainingResult.TrainingResult))

const readsProtobuf = (accept: string | undefined): boolean =>
  accept === undefined || /application\/x-protobuf|\*\/\*/.test(accept)

const resultResponse = (
  core: Core,
  call: Call,
  future: Future,
  outcome: Outcome,
  allowMetadataOnly: boolean,
): Answer => {
  switch (outcome._tag) {
    case "Refused":
      return json({ detail: outcome.detail }, outcome.status)
    case "Failed":
      return json({ error: outcome.error, category: outcome.category })
    case "Result": {
      const { body, contentType } = outcome.payload
      if (allowMetadataOnly && body.length > core.settings.metadataAbove)
        return json({ status: "complete_metadata", response_payload_size: body.length })
      if (contentType === "application/x-protobuf" && !readsProtobuf(call.request.headers["accept"])) {
        const value = toJson(future, Futures.bytesOf(body))
        if (Option.isSome(value)) return json(value.value)
      }
      return { status: 200, headers: { "content-type": contentType }, body }
    }
  }
}

/** Above this number of held polls, clients have more to poll for than connections. */
const manyPolls = 1000

/**
 * Returns how long to hold a poll. Further polls of a client whose connections are all held wait for one of them, also
 * those for results that are there, so that each is held for a shorter time.
 */
export const holdFor = (hold: number, held: number): number => (held > manyPolls ? Math.min(hold, 5000) : hold)

/** Waits for a result, as long as a poll is held. */
const awaited = ({ settings, state }: Core, future: Future): Effect.Effect<Option.Option<void>> =>
  Effect.acquireUseRelease(
    Effect.sync(() => ++state.heldPolls),
    (held) => Effect.timeoutOption(Deferred.await(future.done), holdFor(settings.hold, held)),
    () => Effect.sync(() => --state.heldPolls),
  )

const poll = (core: Core, call: Call): Effect.Effect<Answer, Refusal> =>
  Effect.gen(function* () {
    const { allowMetadataOnly, requestId } = yield* read(Api.retrieveFuture, call)
    const future = yield* Owned.future(core, call, requestId)
    const done = yield* awaited(core, future)
    if (Option.isNone(done)) {
      const reason = future.waitsFor
      return json(
        {
          type: "try_again",
          request_id: requestId,
          queue_state: future.status === "running" ? "active" : reason === undefined ? "paused_capacity" : "active",
          ...(reason !== undefined && future.status === "waiting" && { queue_state_reason: reason }),
        },
        408,
      )
    }
    const outcome =
      future.outcome ??
      (yield* Effect.flatMap(Effect.mapError(core.store.result(requestId), storageFailure), (row) =>
        row === undefined
          ? refuse(410, `The result of ${requestId} is no longer available`)
          : Effect.succeed(Futures.outcomeOf(row)),
      ))
    return resultResponse(core, call, future, outcome, allowMetadataOnly)
  })

/** Each client of a sampler has its own block of sequence numbers. */
const block = 1_000_000_000

const pollMany = (core: Core) =>
  route(Api.retrieveFutures, ({ prevCursor = 0, target, timeout }, call) =>
    Effect.gen(function* () {
      const sampler = yield* Owned.sampler(core, call, target.samplingSessionId)
      // The cursor is an index into the finished futures, so that none is skipped or returned twice.
      const since = () =>
        sampler.finished.slice(prevCursor).filter(({ seq = 0 }) => Math.floor(seq / block) === target.clonedSamplerId)
      const until = (yield* Clock.currentTimeMillis) + Math.min(core.settings.hold, (timeout ?? 30) * 1000)
      while (since().length === 0) {
        const left = until - (yield* Clock.currentTimeMillis)
        if (left <= 0) break
        yield* Effect.timeoutOption(Deferred.await(sampler.more), left)
      }
      const completions = since()
      return {
        completions: completions.map(({ failed, id, size }) => ({
          state: failed ? "failed" : "finished",
          requestId: id,
          responsePayloadUncompressedSize: failed ? Option.none() : Option.some(size),
        })),
        cursor: sampler.finished.length,
      }
    }),
  )

export const sampling = (core: Core): ReadonlyArray<Route> => [
  createSampler(core),
  route(Api.joinSamplingSession, ({ samplingSessionId }, call) =>
    Effect.flatMap(Owned.sampler(core, call, samplingSessionId), (sampler) => {
      sampler.clients++
      return Effect.as(Effect.mapError(core.store.put("sampler", sampler.id, samplerRow(sampler)), storageFailure), {
        clientCounter: sampler.clients,
      })
    }),
  ),
  route(Api.getSampler, ({ samplerId }, call) =>
    Effect.map(Owned.anySampler(core, call, samplerId), ({ baseModel, modelPath }) => ({
      samplerId,
      baseModel,
      modelPath: Option.fromNullable(modelPath),
    })),
  ),
  sample(core),
  { endpoint: Api.retrieveFuture, answer: (call) => poll(core, call) },
  pollMany(core),
  route(Api.cancelFuture, ({ requestId }, call) =>
    Effect.flatMap(Owned.future(core, call, requestId), (future) =>
      future.operation === "asample"
        ? Futures.settle(core, future, { _tag: "Failed", error: "cancelled", category: "user" })
        : Effect.void,
    ),
  ),
]
