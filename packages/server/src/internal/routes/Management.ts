/** Endpoints that list and change runs, checkpoints and sessions, and the weight files behind URLs that expire. */
import * as DateTime from "effect/DateTime"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Api from "effect-tinker/protocol/Api"
import type * as Wire from "effect-tinker/protocol/schemas/Management"
import type * as Checkpoint from "effect-tinker/Checkpoint"
import type { OptimizerConfig } from "effect-tinker/Optimizer"
import type * as Endpoint from "effect-tinker/protocol/Endpoint"
import type { Answer } from "effect-tinker/protocol/Exchange"
import { randomUUID } from "node:crypto"
import type { File } from "../../ModelHost.ts"
import * as Auth from "../Auth.ts"
import { type Call, json, read, type Route, route } from "../Call.ts"
import type { Core } from "../Core.ts"
import type { JsonObject } from "../Json.ts"
import * as Models from "../Models.ts"
import * as Owned from "../Owned.ts"
import { bad, found, type Refusal, refuse } from "../Refusal.ts"
import { type CheckpointRow, hour, type Model, type Session } from "../State.ts"
import { tar } from "../TarWriter.ts"
import { once } from "./Sessions.ts"

/** The end of the year 9999, the last that a timestamp on the wire can represent. */
const lastTime = 253_402_300_799_999

/** Converts a stored time; one that is out of range becomes the nearest that is not, so that it can be listed. */
const time = (millis: number): DateTime.Utc =>
  DateTime.unsafeMake(Number.isFinite(millis) ? Math.max(0, Math.min(lastTime, millis)) : lastTime)

const newestFirst = <A extends { readonly createdAt: number }>(all: Iterable<A>): Array<A> =>
  [...all].toReversed().toSorted((a, b) => b.createdAt - a.createdAt)

const page = <A>(all: ReadonlyArray<A>, offset: number, limit: number): ReadonlyArray<A> =>
  all.slice(offset, offset + limit)

// Checkpoints

const checkpointId = ({ kind, name }: CheckpointRow): string =>
  `${{ training: "weights", sampler: "sampler_weights", external: "external_weights" }[kind]}/${name}`

const checkpointOf = (row: CheckpointRow): Wire.Checkpoint => ({
  checkpointId: checkpointId(row),
  checkpointType: row.kind,
  time: time(row.createdAt),
  tinkerPath: row.path,
  sizeBytes: Option.some(row.size),
  public: row.public,
  expiresAt: Option.map(Option.fromNullable(row.expiresAt), time),
  userMetadata: Option.fromNullable(row.userMetadata),
})

const isAlive = ({ expiresAt }: CheckpointRow, now: number): boolean => expiresAt === undefined || expiresAt > now

const checkpointsOf = ({ state }: Core, { now, owner }: Call, runId?: string): Array<CheckpointRow> =>
  newestFirst(
    [...state.checkpoints.values()].filter(
      (row) => row.owner === owner && isAlive(row, now) && (runId === undefined || row.trainingRunId === runId),
    ),
  )

/**
 * Builds a checkpoint path from a run and an id such as `weights/0001`; some clients omit the folder for sampler
 * weights.
 */
const pathOf = (trainingRunId: string, id: string): string =>
  `tinker://${trainingRunId}/${id.includes("/") ? id : `sampler_weights/${id}`}`

const ownCheckpoint = (core: Core, call: Call, runId: string, id: string): Effect.Effect<CheckpointRow, Refusal> =>
  Effect.filterOrElse(
    Owned.checkpoint(core, call, pathOf(runId, id)),
    ({ owner }) => owner === call.owner,
    () => refuse(403, `${pathOf(runId, id)} belongs to another user`),
  )

const change = (core: Core, row: CheckpointRow, event: string): Effect.Effect<void, Refusal> =>
  Effect.zipRight(
    Effect.mapError(core.store.put("checkpoint", row.path, row, { flushed: true }), Models.storageFailure),
    Models.record(core, row, event),
  )

// Runs

const runOf = (core: Core, call: Call, model: Model): Wire.TrainingRun => {
  const checkpoints = checkpointsOf(core, { ...call, owner: model.owner }, model.id)
  const last = (kind: Checkpoint.Kind) =>
    Option.map(Option.fromNullable(checkpoints.find((row) => row.kind === kind)), checkpointOf)
  return {
    trainingRunId: model.id,
    baseModel: model.config.baseModel,
    modelOwner: model.owner,
    isLora: true,
    corrupted: false,
    loraRank: Option.some(model.config.rank),
    lastRequestTime: time(model.lastRequest),
    lastCheckpoint: last("training"),
    lastSamplerCheckpoint: last("sampler"),
    userMetadata: Option.fromNullable(model.userMetadata),
  }
}

const ownRun = (core: Core, call: Call, id: string): Effect.Effect<Model, Refusal> => {
  const model = core.state.models.get(id)
  return found(model?.owner === call.owner ? model : undefined, `Training run ${id}`)
}

const projectOf = ({ state }: Core, { projectId, sessionId }: Model): string | undefined =>
  projectId ?? state.sessions.get(sessionId)?.projectId

const runs = (core: Core): ReadonlyArray<Route> => [
  route(Api.getTrainingRun, ({ trainingRunId }, call) =>
    Effect.map(ownRun(core, call, trainingRunId), (model) => runOf(core, call, model)),
  ),
  route(Api.listTrainingRuns, ({ limit = 20, offset = 0, projectId }, call) => {
    const all = newestFirst(
      [...core.state.models.values()].filter(
        (model) => model.owner === call.owner && (projectId === undefined || projectOf(core, model) === projectId),
      ),
    )
    return Effect.succeed({
      trainingRuns: page(all, offset, limit).map((model) => runOf(core, call, model)),
      cursor: { offset, limit, totalCount: all.length },
    })
  }),
]

const checkpoints = (core: Core): ReadonlyArray<Route> => [
  route(Api.getWeightsInfo, ({ tinkerPath }, call) =>
    Effect.map(Owned.checkpoint(core, call, tinkerPath), ({ config, optimizerConfig }) => ({
      baseModel: config.baseModel,
      isLora: true,
      loraRank: Option.some(config.rank),
      trainUnembed: Option.some(config.trainUnembed),
      trainMlp: Option.some(config.trainMlp),
      trainAttn: Option.some(config.trainAttn),
      optimizerConfig: optimizerConfig as OptimizerConfig,
    })),
  ),
  route(Api.listCheckpoints, ({ trainingRunId }, call) =>
    Effect.map(ownRun(core, call, trainingRunId), () => ({
      checkpoints: checkpointsOf(core, call, trainingRunId).map(checkpointOf),
      cursor: Option.none(),
    })),
  ),
  route(Api.listUserCheckpoints, ({ limit = 100, offset = 0 }, call) => {
    const all = checkpointsOf(core, call)
    return Effect.succeed({
      checkpoints: page(all, offset, limit).map(checkpointOf),
      cursor: Option.some({ offset, limit, totalCount: all.length }),
    })
  }),
  route(Api.publishCheckpoint, ({ checkpointId, trainingRunId }, call) =>
    Effect.flatMap(ownCheckpoint(core, call, trainingRunId, checkpointId), (row) => {
      row.public = true
      return change(core, row, "checkpoint_published")
    }),
  ),
  route(Api.unpublishCheckpoint, ({ checkpointId, trainingRunId }, call) =>
    Effect.flatMap(ownCheckpoint(core, call, trainingRunId, checkpointId), (row) => {
      row.public = false
      return change(core, row, "checkpoint_unpublished")
    }),
  ),
  route(Api.setCheckpointTtl, ({ checkpointId, trainingRunId, ttlSeconds }, call) =>
    Effect.flatMap(
      Effect.zipLeft(ownCheckpoint(core, call, trainingRunId, checkpointId), Models.checkTtl(ttlSeconds)),
      (row) => {
        row.expiresAt = ttlSeconds === null ? undefined : call.now + ttlSeconds * 1000
        return change(core, row, "checkpoint_ttl_set")
      },
    ),
  ),
  route(Api.deleteCheckpoint, ({ checkpointId, trainingRunId }, call) =>
    Effect.flatMap(ownCheckpoint(core, call, trainingRunId, checkpointId), (row) =>
      Models.removeCheckpoint(core, row, "checkpoint_deleted"),
    ),
  ),
  route(Api.copyWeights, ({ destinationProjectId, sourcePath, ttlSeconds }, call) => {
    const { headers } = call.request
    const key = headers["x-idempotency-key"]
    return once(
      core,
      key === undefined ? undefined : `${call.owner} copy_weights ${key}`,
      Effect.gen(function* () {
        const token = headers["x-tinker-weights-access-token"]
        const row = yield* Owned.checkpoint(core, call, sourcePath, [
          token === undefined ? undefined : Auth.ownerOf(core, token, call.now),
        ])
        yield* Models.checkTtl(ttlSeconds)
        const trainingRunId = `copy-${randomUUID()}`
        const written = yield* Models.writeWeights(core, yield* Models.readWeights(core, row, row.path))
        const path = Models.pathOf(trainingRunId, row.kind, row.name)
        yield* Models.storeCopiedRun(core, trainingRunId, row, call, destinationProjectId)
        yield* Models.storeCheckpoint(
          core,
          {
            ...row,
            path,
            owner: call.owner,
            trainingRunId,
            sessionId: "",
            createdAt: call.now,
            public: false,
            expiresAt: ttlSeconds === undefined ? undefined : call.now + ttlSeconds * 1000,
            ...written,
          },
          "checkpoint_copied",
        )
        return { tinkerPath: path }
      }),
    )
  }),
]

// Files

/** How long a file URL is valid. */
const urlLifetime = 15 * 60_000

const signedUrl = ({ secrets, settings }: Core, { now, request }: Call, what: string): string => {
  const origin =
    settings.publicUrl ??
    `${request.headers["x-forwarded-proto"] === "https" ? "https" : "http"}://${request.headers["host"] ?? "localhost"}`
  const text = `${what}/${now + urlLifetime}`
  return `${origin}/files/${Buffer.from(text).toString("base64url")}/${Auth.sign(secrets.urls, text)}/${what.split("/").at(-1)}`
}

const expiry = ({ now }: Call): DateTime.Utc => time(now + urlLifetime)

const exported = (core: Core, row: CheckpointRow): Effect.Effect<ReadonlyArray<File>, Refusal> =>
  Effect.flatMap(Models.readWeights(core, row, row.path), (weights) =>
    Effect.mapError(core.host.files(row.config, weights), ({ message }) => bad("path", message)),
  )

const bytes = (body: Uint8Array, name: string): Answer => ({
  status: 200,
  headers: {
    "content-type": "application/octet-stream",
    "content-length": String(body.length),
    "content-disposition": `attachment; filename="${name.replaceAll(/[^\w.-]/g, "_")}"`,
  },
  body,
})

const traceOf = ({ state }: Core, session: Session): JsonObject => ({
  session_id: session.id,
  created_at: new Date(session.createdAt).toISOString(),
  status: session.state,
  requests: [...state.futures.values()]
    .filter(({ sessionId }) => sessionId === session.id)
    .map(({ createdAt, failed, id, lane, operation, seq, status }) => ({
      request_id: id,
      operation,
      target: lane,
      ...(seq !== undefined && { seq_id: seq }),
      created_at: new Date(createdAt).toISOString(),
      status: status === "done" ? (failed ? "failed" : "finished") : status,
    })),
})

const fileOf = (core: Core, call: Call): Effect.Effect<Answer, Refusal> =>
  Effect.gen(function* () {
    const text = Buffer.from(call.params["what"] ?? "", "base64url").toString()
    if (!Auth.isSigned(core.secrets.urls, text, call.params["signature"] ?? ""))
      return yield* refuse(403, "This URL is not valid")
    const parts = text.split("/")
    const [kind = "", id = "", name = ""] = parts
    if (Number(parts.at(-1)) <= call.now) return yield* refuse(403, "This URL has expired; request a new one")
    if (kind === "trace") {
      const session = yield* found(core.state.sessions.get(id), `Session ${id}`)
      return json(traceOf(core, session))
    }
    const row = yield* found(core.state.checkpoints.get(Buffer.from(id, "base64url").toString()), "This checkpoint")
    const files = yield* exported(core, row)
    if (kind === "archive") return bytes(tar(files, row.createdAt), `${row.name}.tar`)
    const file = yield* found(
      files.find((file) => file.name === name),
      name,
    )
    return bytes(file.bytes, name)
  })

const files = (core: Core): ReadonlyArray<Route> => [
  route(Api.getExternalWeightsUrls, ({ name, trainingRunId }, call) =>
    Effect.gen(function* () {
      const row = yield* Owned.checkpoint(core, call, pathOf(trainingRunId, `external_weights/${name}`))
      const id = Buffer.from(row.path).toString("base64url")
      const all = yield* exported(core, row)
      return {
        urls: Object.fromEntries(all.map((file) => [file.name, signedUrl(core, call, `file/${id}/${file.name}`)])),
        expires: expiry(call),
      }
    }),
  ),
  {
    endpoint: Api.getCheckpointArchive,
    answer: (call) =>
      Effect.gen(function* () {
        const { checkpointId, trainingRunId } = yield* read(Api.getCheckpointArchive, call)
        const row = yield* Owned.checkpoint(core, call, pathOf(trainingRunId, checkpointId))
        const id = Buffer.from(row.path).toString("base64url")
        return {
          status: 302,
          headers: {
            location: signedUrl(core, call, `archive/${id}/${row.name.replaceAll(/[^\w.-]/g, "_")}.tar`),
            expires: new Date(call.now + urlLifetime).toUTCString(),
          },
          body: "",
        }
      }),
  },
  {
    endpoint: { method: "GET", path: "files/:what/:signature/:name", root: "" },
    open: true,
    answer: (call) => fileOf(core, call),
  },
]

// Sessions

const statusOf = (session: Session): Wire.SessionStatus =>
  session.state === "active"
    ? { type: "active" }
    : session.state === "expired"
      ? { type: "cancelled", detail: Option.some("no heartbeat") }
      : {
          type: "client_finished",
          reason: { type: session.reason ?? "success" },
          detail: Option.fromNullable(session.detail),
        }

const sessionsOf = ({ state }: Core, { owner }: Call): Array<Session> =>
  newestFirst([...state.sessions.values()].filter((session) => session.owner === owner))

const summaryOf = (core: Core, call: Call, session: Session): Wire.SessionSummary => {
  const own = checkpointsOf(core, call).filter(({ sessionId }) => sessionId === session.id)
  return {
    sessionId: session.id,
    createdAt: time(session.createdAt),
    owner: session.owner,
    projectId: session.projectId ?? "default",
    checkpointsCount: own.length,
    status: Option.some(statusOf(session)),
    displayName: Option.fromNullable(session.displayName),
    userMetadata: Option.some(session.userMetadata),
    checkpointStorageBytes: Option.some(own.reduce((sum, { size }) => sum + size, 0)),
  }
}

type Search = Endpoint.Input<typeof Api.searchSessions>

const isFound = (search: Search, session: Session): boolean => {
  const { displayName, projectIds, sessionId, statuses, userMetadata = {} } = search
  const status = statusOf(session)
  return (
    (sessionId === undefined || session.id === sessionId) &&
    (projectIds === undefined || projectIds.includes(session.projectId ?? "default")) &&
    (displayName === undefined || (session.displayName ?? "").includes(displayName)) &&
    Object.entries(userMetadata).every(
      ([key, value]) => JSON.stringify(session.userMetadata[key]) === JSON.stringify(value),
    ) &&
    (statuses === undefined ||
      statuses.some(
        (one) =>
          one.type === status.type &&
          (one.type !== "client_finished" ||
            one.reasons === undefined ||
            one.reasons.includes(session.reason ?? "success")),
      ))
  )
}

const sessionRoutes = (core: Core): ReadonlyArray<Route> => [
  route(Api.searchSessions, (search, call) => {
    const { cursor, limit = 50 } = search
    const all = sessionsOf(core, call).filter((session) => isFound(search, session))
    const after = cursor === undefined ? -1 : all.findIndex(({ id }) => id === cursor.lastSessionId)
    const shown = all.slice(after + 1, after + 1 + limit)
    const last = shown.at(-1)
    return Effect.succeed({
      sessions: shown.map((session) => summaryOf(core, call, session)),
      nextCursor:
        last === undefined || after + 1 + limit >= all.length
          ? Option.none()
          : Option.some({ lastCreatedAt: new Date(last.createdAt).toISOString(), lastSessionId: last.id }),
    })
  }),
  route(Api.getSession, ({ sessionId }, call) =>
    Effect.map(Owned.anySession(core, call, sessionId), (session) => ({
      trainingRunIds: [...session.models.keys()],
      samplerIds: [...session.samplers.keys()],
      userMetadata: Option.some(session.userMetadata),
      displayName: Option.fromNullable(session.displayName),
    })),
  ),
  route(Api.listSessions, ({ limit = 20, offset = 0 }, call) =>
    Effect.succeed({ sessions: page(sessionsOf(core, call), offset, limit).map(({ id }) => id) }),
  ),
  route(Api.assignSessionProject, ({ projectId, sessionId }, call) =>
    Effect.flatMap(Owned.anySession(core, call, sessionId), (session) => {
      session.projectId = projectId
      return Effect.mapError(core.store.put("session", session.id, Models.sessionRow(session)), Models.storageFailure)
    }),
  ),
  route(Api.exportSessionTrace, ({ sessionId }, call) =>
    Effect.map(Owned.anySession(core, call, sessionId), ({ id }) => ({
      status: "ready",
      url: Option.some(signedUrl(core, call, `trace/${id}/trace.json`)),
      error: Option.none(),
    })),
  ),
]

// Administration

const gigabyte = 1e9

const administration = (core: Core): ReadonlyArray<Route> => [
  route(Api.getAuditLog, ({ day, eventType = "all" }, call) =>
    Effect.map(Effect.mapError(core.store.audit(call.owner), Models.storageFailure), (rows) => ({
      entries: rows
        .filter(
          ({ time }) =>
            (eventType === "all" || eventType === "checkpoints") &&
            (day === undefined || new Date(time).toISOString().startsWith(day)),
        )
        .map((row) => ({
          timestamp: time(row.time),
          event: row.event,
          eventDetails: {},
          modelId: Option.fromNullable(row.modelId),
          tinkerPath: Option.fromNullable(row.path),
          purpose: Option.none(),
        })),
    })),
  ),
  route(Api.getBillingUsage, ({ endingBefore, startingOn }, call) =>
    Effect.map(Effect.mapError(core.store.usage(call.owner), Models.storageFailure), (rows) => {
      const from = DateTime.toEpochMillis(startingOn)
      const to = DateTime.toEpochMillis(endingBefore)
      const shown = rows.filter(({ bucket }) => bucket + hour > from && bucket < to)
      return {
        data: shown.map((row) => ({
          bucketStart: time(row.bucket),
          bucketEnd: time(row.bucket + hour),
          eventInfo:
            row.kind === "checkpoint"
              ? { type: "checkpoint" as const, count: row.count }
              : row.kind === "sampling_prefill"
                ? { type: "sampling_prefill" as const, cached: false, tokenCount: row.count }
                : row.kind === "sampling_sample"
                  ? { type: "sampling_sample" as const, tokenCount: row.count }
                  : { type: "training" as const, tokenCount: row.count },
          baseModel: Option.some(row.baseModel),
          userId: Option.some(row.owner),
          userName: Option.some(row.owner),
          sessionId: Option.liftPredicate(row.sessionId, (id) => id !== ""),
          projectId: Option.fromNullable(core.state.sessions.get(row.sessionId)?.projectId),
          // A local server is free of charge.
          estimatedCostUsd: Option.some(0),
          effectiveRateUsdPerMillionTokens: Option.some(0),
          effectiveRateUsdPerGigabyteMonth: Option.none(),
        })),
        sessions: Object.fromEntries(
          shown
            .filter(({ sessionId }) => sessionId !== "")
            .map(({ sessionId }) => [
              sessionId,
              { userMetadata: Option.fromNullable(core.state.sessions.get(sessionId)?.userMetadata) },
            ]),
        ),
        costDataThrough: Option.some(time(call.now)),
      }
    }),
  ),
  route(Api.getCheckpointStorage, ({ projectId }, call) => {
    const own = checkpointsOf(core, call).filter(({ trainingRunId }) => {
      const model = core.state.models.get(trainingRunId)
      return projectId === undefined || (model !== undefined && projectOf(core, model) === projectId)
    })
    const sizeBytes = own.reduce((sum, { size }) => sum + size, 0)
    return Effect.succeed({
      effectiveRateUsdPerGigabyteMonth: Option.some(0),
      data: [
        {
          projectId: Option.fromNullable(projectId),
          orgUserUrn: Option.some(`tml:user:${call.owner}`),
          userEmail: Option.none(),
          userName: Option.some(call.owner),
          checkpointCount: own.length,
          sizeBytes,
          sizeGigabytes: sizeBytes / gigabyte,
          estimatedMonthlyCostUsd: Option.some(0),
        },
      ],
    })
  }),
  route(Api.getApiKey, (_, { owner }) =>
    Effect.succeed({
      keyId: 1,
      name: owner,
      note: "",
      details: { orgDetails: { name: "local" }, userDetails: { email: `${owner}@localhost` } },
    }),
  ),
  // Keys are given on the command line.
  route(Api.deleteApiKey, () => refuse(403, "API keys are configured when the server starts and cannot be deleted")),
]

export const management = (core: Core): ReadonlyArray<Route> => [
  ...runs(core),
  // Longer paths first, so that their suffix is not matched as part of a checkpoint name.
  ...files(core),
  ...checkpoints(core),
  ...sessionRoutes(core),
  ...administration(core),
]
