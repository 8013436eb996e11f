/** Checks that need no training: keys, flags and sessions, and the management of runs and checkpoints. */
import { NodeTinker } from "@effect-tinker/node"
import { Effect, Option, Redacted, Stream } from "effect"
import { Checkpoint, RetryPolicy, ServiceClient } from "effect-tinker"
import * as Api from "effect-tinker/protocol/Api"
import * as Transport from "effect-tinker/Transport"
import { type CheckFailed, expect, refused, type Report } from "./Report.ts"
import { type Address, modelName } from "./Server.ts"

/** Expected errors are not retried. */
const once = { retryPolicy: RetryPolicy.none }

/** Checks that the server is reachable and accepts the key. */
export const access = ({ check, probe }: Report, { baseUrl }: Address) =>
  Effect.gen(function* () {
    const { call } = yield* Transport.Transport
    const service = yield* ServiceClient.ServiceClient
    yield* check("healthz", call(Api.health, {}))
    yield* check(
      "get_server_capabilities offers the model",
      Effect.tap(service.getServerCapabilities, ({ supportedModels }) =>
        expect(
          supportedModels.some((model) => Option.contains(model.modelName, modelName)),
          `${modelName} is not among the ${supportedModels.length} supported models`,
        ),
      ),
    )
    const stranger = NodeTinker.layer({ baseUrl, apiKey: Redacted.make("tml-unknown-key") })
    yield* probe(
      "a wrong key is refused",
      refused(
        Effect.provide(
          Effect.flatMap(ServiceClient.ServiceClient, ({ getServerCapabilities }) => getServerCapabilities),
          stranger,
        ),
        "Unauthorized",
        "Forbidden",
      ),
    )
  })

/** Checks the session that all clients share. */
export const session = ({ check, probe }: Report) =>
  Effect.gen(function* () {
    const { call } = yield* Transport.Transport
    const service = yield* ServiceClient.ServiceClient
    const { id: sessionId } = yield* check("a session", service.session, ({ id }) => id)
    yield* probe("session_heartbeat", call(Api.heartbeat, { sessionId }))
    yield* probe("sessions/get", call(Api.getSession, { sessionId }))
    yield* probe(
      "sessions lists it",
      listed(call(Api.listSessions, {}), ({ sessions }) => sessions, sessionId),
    )
    yield* probe("sessions/search", call(Api.searchSessions, {}))
    yield* probe(
      "retrieve_future of an unknown request",
      refused(call(Api.retrieveFuture, { requestId: "987654", allowMetadataOnly: false }), "NotFound"),
    )
  })

/** Checks heartbeats; late in the run, so that there have been some. */
export const heartbeats = ({ probe }: Report) =>
  Effect.gen(function* () {
    const { heartbeats } = yield* Effect.flatMap(ServiceClient.ServiceClient, ({ session }) => session)
    const latest = yield* Stream.runHead(heartbeats)
    yield* expect(
      Option.exists(latest, ({ failure }) => Option.isNone(failure)),
      "the latest heartbeat was not answered",
    )
  }).pipe((effect) => probe("heartbeats are answered", effect))

export interface Trained {
  readonly modelId: string
  /** Path of a training checkpoint, which the last check deletes. */
  readonly statePath: string
  readonly samplerPath: string
}

/** Checks the management endpoints of runs and checkpoints. */
export const management = ({ probe }: Report, { modelId, samplerPath, statePath }: Trained) =>
  Effect.gen(function* () {
    const { call } = yield* Transport.Transport
    const run = { trainingRunId: modelId }
    yield* probe("training_runs/get", call(Api.getTrainingRun, run))
    yield* probe(
      "training_runs lists it",
      listed(
        call(Api.listTrainingRuns, {}),
        ({ trainingRuns }) => trainingRuns.map((run) => run.trainingRunId),
        modelId,
      ),
    )
    yield* probe("weights_info of training weights", call(Api.getWeightsInfo, { tinkerPath: statePath }))
    yield* probe("weights_info of sampler weights", call(Api.getWeightsInfo, { tinkerPath: samplerPath }))
    const paths = ({ checkpoints }: { readonly checkpoints: ReadonlyArray<{ readonly tinkerPath: string }> }) =>
      checkpoints.map(({ tinkerPath }) => tinkerPath)
    yield* probe("training_runs/checkpoints lists it", listed(call(Api.listCheckpoints, run), paths, statePath))
    yield* probe("checkpoints lists it", listed(call(Api.listUserCheckpoints, {}), paths, statePath))
    const { rest } = yield* ServiceClient.ServiceClient
    const { checkpointId } = yield* Checkpoint.fromServer(statePath)
    const checkpoint = { ...run, checkpointId }
    yield* probe("checkpoints/publish", call(Api.publishCheckpoint, checkpoint))
    yield* probe("checkpoints/unpublish", call(Api.unpublishCheckpoint, checkpoint, once))
    yield* probe("checkpoints/ttl", call(Api.setCheckpointTtl, { ...checkpoint, ttlSeconds: 3600 }))
    yield* probe("checkpoints/archive", rest.getCheckpointArchiveUrl(statePath, {}, once))
    yield* probe("checkpoints/delete", call(Api.deleteCheckpoint, checkpoint))
  })

const listed = <A, E, R>(
  list: Effect.Effect<A, E, R>,
  entries: (page: A) => ReadonlyArray<unknown>,
  wanted: unknown,
): Effect.Effect<A, E | CheckFailed, R> =>
  Effect.tap(list, (page) => expect(entries(page).includes(wanted), `${String(wanted)} is not in the list`))
