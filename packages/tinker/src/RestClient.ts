/**
 * Reads and manages training runs, checkpoints, sessions and samplers. Opens no session.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import type * as DateTime from "effect/DateTime"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import type * as Stream from "effect/Stream"
import * as Api from "./protocol/Api.ts"
import type { Accepted } from "./protocol/schemas/Futures.ts"
import type * as Management from "./protocol/schemas/Management.ts"
import * as Checkpoint from "./Checkpoint.ts"
import { Credentials } from "./Credentials.ts"
import type * as Endpoint from "./protocol/Endpoint.ts"
import * as Durations from "./internal/codec/Durations.ts"
import { invalid, type Result } from "./internal/codec/Invalid.ts"
import * as Jwt from "./internal/request/Jwt.ts"
import { lazy } from "./internal/util/Lazy.ts"
import * as Preparing from "./internal/management/PollUntilReady.ts"
import { maybe, struct } from "./internal/codec/Wire.ts"
import * as Pages from "./Pages.ts"
import { ServerConfig } from "./protocol/ServerConfig.ts"
import { TinkerConfig } from "./TinkerConfig.ts"
import {
  type DeadlineExceeded,
  InvalidConfig,
  type RequestFailed,
  type TinkerError,
  UnexpectedResponse,
} from "./TinkerError.ts"
import { type CallOptions, Transport } from "./Transport.ts"

/**
 * Selects the visible resources: those of the key's owner (default), or everything the key may access.
 *
 * @since 0.1.0
 * @category models
 */
export interface ScopeOptions {
  readonly accessScope?: Management.AccessScope | undefined
}

/**
 * Options of `listTrainingRuns`.
 *
 * @since 0.1.0
 * @category models
 */
export type ListTrainingRunsOptions = Endpoint.Input<typeof Api.listTrainingRuns>

/**
 * Options of `listUserCheckpoints`.
 *
 * @since 0.1.0
 * @category models
 */
export type ListUserCheckpointsOptions = Endpoint.Input<typeof Api.listUserCheckpoints>

/**
 * Options of `listSessions`.
 *
 * @since 0.1.0
 * @category models
 */
export type ListSessionsOptions = Endpoint.Input<typeof Api.listSessions>

/**
 * Options of `searchSessions`.
 *
 * @since 0.1.0
 * @category models
 */
export type SearchSessionsOptions = Endpoint.Input<typeof Api.searchSessions>

/**
 * Options for streaming a list.
 *
 * @since 0.1.0
 * @category models
 */
export interface WalkOptions {
  /**
   * The number of items per request.
   *
   * @default 100
   */
  readonly pageSize?: number | undefined
}

type Walk<Options> = Omit<Options, "limit"> & WalkOptions

/**
 * Options of `copyWeights`.
 *
 * @since 0.1.0
 * @category models
 */
export interface CopyWeightsOptions {
  /**
   * The destination project.
   *
   * @default the configured project
   */
  readonly projectId?: string | undefined
  /**
   * The lifetime of the copy.
   *
   * @default unlimited
   */
  readonly ttl?: Duration.DurationInput | undefined
  /** A credential with read access to the weights. */
  readonly weightsAccessToken?: Redacted.Redacted<string> | undefined
}

/**
 * Options of operations that wait for the server to prepare something.
 *
 * @since 0.1.0
 * @category models
 */
export interface WaitOptions {
  /**
   * The maximum total waiting time.
   *
   * @default "1 hour"
   */
  readonly deadline?: Duration.DurationInput | undefined
}

/**
 * The owner of a credential.
 *
 * @since 0.1.0
 * @category models
 */
export interface Identity {
  readonly userUrn: string
  readonly orgUrn: Option.Option<string>
  readonly email: Option.Option<string>
}

/**
 * A signed URL and its expiration time.
 *
 * @since 0.1.0
 * @category models
 */
export interface CheckpointArchive {
  readonly url: string
  readonly expires: DateTime.Utc
}

/**
 * The lists as streams of items. See `Pages` for the guarantees when a list changes.
 *
 * @since 0.1.0
 * @category models
 */
export interface Streams {
  readonly listTrainingRuns: (
    options?: Walk<ListTrainingRunsOptions>,
    callOptions?: CallOptions,
  ) => Stream.Stream<Management.TrainingRun, TinkerError>
  /** Streams the checkpoints of a run; the server returns all of them at once. */
  readonly listCheckpoints: (
    trainingRunId: string,
    callOptions?: CallOptions,
  ) => Stream.Stream<Management.Checkpoint, TinkerError>
  readonly listUserCheckpoints: (
    options?: Walk<ListUserCheckpointsOptions>,
    callOptions?: CallOptions,
  ) => Stream.Stream<Management.Checkpoint, TinkerError>
  /** Streams the ids of sessions. */
  readonly listSessions: (
    options?: Walk<ListSessionsOptions>,
    callOptions?: CallOptions,
  ) => Stream.Stream<string, TinkerError>
  /** Streams matching sessions. A page contains at most 200. */
  readonly searchSessions: (
    options?: Walk<SearchSessionsOptions>,
    callOptions?: CallOptions,
  ) => Stream.Stream<Management.SessionSummary, TinkerError>
}

/**
 * The operations of `RestClient`. An invalid path or argument fails with `InvalidInput` before anything is sent. Read a
 * two-part path returned by a server with `Checkpoint.fromServer` first.
 *
 * @since 0.1.0
 * @category models
 */
export interface Service {
  readonly getTrainingRun: (
    trainingRunId: string,
    options?: ScopeOptions,
    callOptions?: CallOptions,
  ) => Effect.Effect<Management.TrainingRun, TinkerError>
  /** Returns the run that a checkpoint belongs to. */
  readonly getTrainingRunByPath: (
    path: Checkpoint.Input,
    options?: ScopeOptions,
    callOptions?: CallOptions,
  ) => Effect.Effect<Management.TrainingRun, TinkerError>
  readonly listTrainingRuns: (
    options?: ListTrainingRunsOptions,
    callOptions?: CallOptions,
  ) => Effect.Effect<Management.TrainingRunsPage, TinkerError>
  /** Returns the properties that a model needs to load this checkpoint. */
  readonly getWeightsInfo: (
    path: Checkpoint.Input,
    callOptions?: CallOptions,
  ) => Effect.Effect<Management.WeightsInfo, TinkerError>
  readonly listCheckpoints: (
    trainingRunId: string,
    callOptions?: CallOptions,
  ) => Effect.Effect<Management.CheckpointsPage, TinkerError>
  /** Lists the checkpoints of all runs. */
  readonly listUserCheckpoints: (
    options?: ListUserCheckpointsOptions,
    callOptions?: CallOptions,
  ) => Effect.Effect<Management.CheckpointsPage, TinkerError>
  readonly deleteCheckpoint: (
    trainingRunId: string,
    checkpointId: string,
    callOptions?: CallOptions,
  ) => Effect.Effect<void, TinkerError>
  readonly deleteCheckpointByPath: (
    path: Checkpoint.Input,
    callOptions?: CallOptions,
  ) => Effect.Effect<void, TinkerError>
  readonly publishCheckpoint: (path: Checkpoint.Input, callOptions?: CallOptions) => Effect.Effect<void, TinkerError>
  readonly unpublishCheckpoint: (path: Checkpoint.Input, callOptions?: CallOptions) => Effect.Effect<void, TinkerError>
  /** Sets the lifetime from now on, rounded up to full seconds. `null` keeps the checkpoint forever. */
  readonly setCheckpointTtl: (
    path: Checkpoint.Input,
    ttl: Duration.DurationInput | null,
    callOptions?: CallOptions,
  ) => Effect.Effect<void, TinkerError>
  /** Returns signed URLs for the files of a checkpoint that was saved for external use. */
  readonly getExternalWeightsUrls: (
    path: Checkpoint.Input,
    callOptions?: CallOptions,
  ) => Effect.Effect<Management.ExternalWeightsUrls, TinkerError>
  /**
   * Returns the signed URL of a checkpoint archive and waits while it is being built. Supported by servers up to 0.25
   * and by open servers.
   */
  readonly getCheckpointArchiveUrl: (
    path: Checkpoint.Input,
    options?: WaitOptions,
    callOptions?: CallOptions,
  ) => Effect.Effect<CheckpointArchive, TinkerError | DeadlineExceeded>
  /** Copies weights to a project. Set `idempotencyKey` to retry after a failure without creating a second copy. */
  readonly copyWeights: (
    path: Checkpoint.Input,
    options?: CopyWeightsOptions,
    callOptions?: CallOptions,
  ) => Effect.Effect<Management.CopyWeightsResponse, TinkerError>
  readonly getSession: (
    sessionId: string,
    options?: ScopeOptions,
    callOptions?: CallOptions,
  ) => Effect.Effect<Management.SessionInfo, TinkerError>
  readonly listSessions: (
    options?: ListSessionsOptions,
    callOptions?: CallOptions,
  ) => Effect.Effect<Management.SessionsPage, TinkerError>
  readonly searchSessions: (
    options?: SearchSessionsOptions,
    callOptions?: CallOptions,
  ) => Effect.Effect<Management.SearchSessionsResponse, TinkerError>
  readonly assignSessionProject: (
    sessionId: string,
    projectId: string,
    callOptions?: CallOptions,
  ) => Effect.Effect<void, TinkerError>
  /** Returns the signed URL of a session trace. Polls every five seconds while the trace is being written. */
  readonly exportSessionTrace: (
    sessionId: string,
    options?: WaitOptions,
    callOptions?: CallOptions,
  ) => Effect.Effect<string, TinkerError | RequestFailed | DeadlineExceeded>
  readonly getSampler: (
    samplerId: string,
    callOptions?: CallOptions,
  ) => Effect.Effect<Management.SamplerInfo, TinkerError>
  /** Ends a model on servers up to 0.25, which do not end it with its session. The result is a future. */
  readonly unloadModel: (modelId: string, callOptions?: CallOptions) => Effect.Effect<Accepted, TinkerError>
  /** Returns the owner of the credential as stated in the token. Sends no request other than to obtain the token. */
  readonly whoami: Effect.Effect<Identity, TinkerError>
  readonly stream: Streams
}

/**
 * The service tag of the management client.
 *
 * @example
 * ```ts
 * import { Console, Effect } from "effect"
 * import { RestClient, ServiceClient } from "effect-tinker"
 * import { NodeTinker } from "@effect-tinker/node"
 *
 * const program = Effect.gen(function* () {
 *   const service = yield* ServiceClient.ServiceClient
 *   const training = yield* service.createLoraTrainingClient({ baseModel: "effect-tinker/valley-1.5m", rank: 8 })
 *   yield* training.saveState("first")
 *
 *   const rest = yield* RestClient.RestClient
 *   const { checkpoints } = yield* rest.listCheckpoints(training.modelId)
 *   yield* Console.log(checkpoints.map(({ checkpointId }) => checkpointId)) // → [ 'weights/first' ]
 * })
 *
 * await Effect.runPromise(program.pipe(Effect.scoped, Effect.provide(NodeTinker.layerConfig())))
 * ```
 *
 * @since 0.1.0
 * @category tags
 */
export class RestClient extends Context.Tag("effect-tinker/RestClient")<RestClient, Service>() {}

/**
 * The services required by the client, all provided by `Transport.layer`.
 *
 * @since 0.1.0
 * @category models
 */
export type Environment = Transport | Credentials | ServerConfig | TinkerConfig

const claimsOf = Jwt.claims(
  lazy(() =>
    struct({ sub: Schema.String, iss: maybe(Schema.String), orgId: maybe(Schema.String), email: maybe(Schema.String) }),
  ),
)

/** Sets the method header: the reference sends a different method name for calls that take a path. */
const named = (method: string, options: CallOptions | undefined): CallOptions => ({
  ...options,
  headers: { "x-sdk-method": method, ...options?.headers },
})

const anHour: Duration.DurationInput = "1 hour"
const defaultPageSize = 100

const checkpointOf = (path: Checkpoint.Path) => ({
  trainingRunId: path.trainingRunId,
  checkpointId: path.checkpointId,
})

/**
 * Creates the client.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make: Effect.Effect<Service, never, Environment> = Effect.gen(function* () {
  const { call } = yield* Transport
  const credentials = yield* Credentials
  const serverConfig = yield* ServerConfig
  const config = yield* TinkerConfig

  /** Creates a call about a checkpoint that validates the path before anything is sent. */
  const about =
    <I, A>(endpoint: Endpoint.Endpoint<I, A>, toInput: (path: Checkpoint.Path) => Result<NoInfer<I>>) =>
    (path: Checkpoint.Input, options?: CallOptions): Effect.Effect<A, TinkerError> =>
      Effect.flatMap(Either.flatMap(Checkpoint.from(path, `${endpoint.operation}.path`), toInput), (input) =>
        call(endpoint, input, options),
      )

  const plain = (path: Checkpoint.Path) => Either.right(checkpointOf(path))
  const deleteByPath = about(Api.deleteCheckpoint, plain)

  const waiting = <A, E>(
    operation: string,
    { deadline = anHour }: WaitOptions,
    wait: (deadline: Duration.Duration) => Effect.Effect<A, E>,
  ) => Effect.flatMap(Durations.wait(deadline, `${operation}.deadline`), wait)

  const copyTo = (options: CopyWeightsOptions, path: Checkpoint.Path) =>
    Either.gen(function* () {
      const at = Api.copyWeights.operation
      const destinationProjectId = options.projectId ?? Option.getOrUndefined(config.projectId)
      if (destinationProjectId === undefined) {
        return yield* invalid(`${at}.projectId`, "missing, and no project is configured (TINKER_PROJECT_ID)")
      }
      const ttlSeconds = options.ttl === undefined ? undefined : yield* Durations.seconds(options.ttl, `${at}.ttl`)
      return { sourcePath: path.toString(), destinationProjectId, ttlSeconds }
    })

  const whoami: Service["whoami"] = Effect.gen(function* () {
    const token = yield* credentials.token
    const { pjwtAuthEnabled } = yield* serverConfig.flags
    const claims = claimsOf(token)
    // The claims of a JWT from another issuer have a different meaning.
    if (
      !pjwtAuthEnabled &&
      !Option.exists(claims, ({ iss }) => Option.exists(iss, (iss) => iss.startsWith("passport-")))
    ) {
      return yield* new InvalidConfig({
        setting: "TINKER_API_KEY",
        problem: "the key does not identify its owner, and this server does not issue JWTs",
      })
    }
    if (Option.isNone(claims)) {
      return yield* new UnexpectedResponse({
        operation: Api.authToken.operation,
        reason: "Schema",
        detail: "the token does not identify its owner",
      })
    }
    const { email, orgId, sub } = claims.value
    return {
      userUrn: sub,
      orgUrn: Option.map(orgId, (id) => `tml:organization:${id}`),
      email: Option.filter(email, (email) => email !== ""),
    }
  })

  const listTrainingRuns: Service["listTrainingRuns"] = (options = {}, callOptions) =>
    call(Api.listTrainingRuns, options, callOptions)
  const listCheckpoints: Service["listCheckpoints"] = (trainingRunId, callOptions) =>
    call(Api.listCheckpoints, { trainingRunId }, callOptions)
  const listUserCheckpoints: Service["listUserCheckpoints"] = (options = {}, callOptions) =>
    call(Api.listUserCheckpoints, options, callOptions)
  const listSessions: Service["listSessions"] = (options = {}, callOptions) =>
    call(Api.listSessions, options, callOptions)
  const searchSessions: Service["searchSessions"] = (options = {}, callOptions) =>
    call(Api.searchSessions, options, callOptions)

  /** Streams a list; lists differ only in how a page is read. */
  const walk = <A>(
    { operation }: Endpoint.Endpoint<never, unknown>,
    { offset, pageSize = defaultPageSize }: WalkOptions & { readonly offset?: number | undefined },
    key: (item: A) => string,
    fetch: Pages.OffsetOptions<A, TinkerError, never>["fetch"],
  ): Stream.Stream<A, TinkerError> => Pages.byOffset({ operation, offset, pageSize, key, fetch })

  const stream: Streams = {
    listTrainingRuns: ({ pageSize, ...query } = {}, callOptions) =>
      walk(
        Api.listTrainingRuns,
        { offset: query.offset, pageSize },
        (run) => run.trainingRunId,
        (at) =>
          Effect.map(listTrainingRuns({ ...query, ...at }, callOptions), ({ cursor, trainingRuns }) => ({
            items: trainingRuns,
            total: Option.some(cursor.totalCount),
          })),
      ),
    listUserCheckpoints: ({ pageSize, ...query } = {}, callOptions) =>
      walk(
        Api.listUserCheckpoints,
        { offset: query.offset, pageSize },
        (checkpoint) => checkpoint.tinkerPath,
        (at) =>
          Effect.map(listUserCheckpoints({ ...query, ...at }, callOptions), ({ checkpoints, cursor }) => ({
            items: checkpoints,
            total: Option.map(cursor, ({ totalCount }) => totalCount),
          })),
      ),
    listSessions: ({ pageSize, ...query } = {}, callOptions) =>
      walk(
        Api.listSessions,
        { offset: query.offset, pageSize },
        (sessionId) => sessionId,
        (at) =>
          Effect.map(listSessions({ ...query, ...at }, callOptions), ({ sessions }) => ({
            items: sessions,
            total: Option.none(),
          })),
      ),
    listCheckpoints: (trainingRunId, callOptions) =>
      Pages.walk(undefined, () =>
        Effect.map(listCheckpoints(trainingRunId, callOptions), ({ checkpoints }) => ({
          items: checkpoints,
          next: Option.none(),
        })),
      ),
    searchSessions: ({ cursor, pageSize = defaultPageSize, ...query } = {}, callOptions) =>
      Pages.byCursor({
        operation: Api.searchSessions.operation,
        cursor,
        key: ({ lastCreatedAt, lastSessionId }: Management.SearchCursor) => `${lastCreatedAt} ${lastSessionId}`,
        fetch: (cursor) =>
          Effect.map(
            searchSessions({ ...query, limit: pageSize, cursor: Option.getOrUndefined(cursor) }, callOptions),
            ({ nextCursor, sessions }) => ({ items: sessions, next: nextCursor }),
          ),
      }),
  }

  return RestClient.of({
    getTrainingRun: (trainingRunId, options, callOptions) =>
      call(Api.getTrainingRun, { ...options, trainingRunId }, callOptions),
    getTrainingRunByPath: (path, options, callOptions) =>
      about(Api.getTrainingRun, ({ trainingRunId }) => Either.right({ ...options, trainingRunId }))(
        path,
        named("get_training_run_by_tinker_path", callOptions),
      ),
    listTrainingRuns,
    getWeightsInfo: about(Api.getWeightsInfo, (path) => Either.right({ tinkerPath: path.toString() })),
    listCheckpoints,
    listUserCheckpoints,
    deleteCheckpoint: (trainingRunId, checkpointId, callOptions) =>
      call(Api.deleteCheckpoint, { trainingRunId, checkpointId }, callOptions),
    deleteCheckpointByPath: (path, callOptions) =>
      deleteByPath(path, named("delete_checkpoint_from_tinker_path", callOptions)),
    publishCheckpoint: about(Api.publishCheckpoint, plain),
    unpublishCheckpoint: about(Api.unpublishCheckpoint, plain),
    setCheckpointTtl: (path, ttl, callOptions) =>
      about(Api.setCheckpointTtl, (path) =>
        Either.map(
          ttl === null ? Either.right(null) : Durations.seconds(ttl, `${Api.setCheckpointTtl.operation}.ttl`),
          (ttlSeconds) => ({ ...checkpointOf(path), ttlSeconds }),
        ),
      )(path, callOptions),
    getExternalWeightsUrls: about(Api.getExternalWeightsUrls, ({ kind, name, trainingRunId }) =>
      kind === "external"
        ? Either.right({ trainingRunId, name })
        : invalid(
            `${Api.getExternalWeightsUrls.operation}.path`,
            "expected weights for external use, tinker://<training run>/external_weights/<name>",
          ),
    ),
    getCheckpointArchiveUrl: (path, options = {}, callOptions) => {
      const { operation } = Api.getCheckpointArchive
      return Effect.flatMap(Checkpoint.from(path, `${operation}.path`), (path) =>
        waiting(operation, options, (deadline) => Preparing.archive(call, path, config.baseUrl, deadline, callOptions)),
      )
    },
    copyWeights: (path, options = {}, callOptions) =>
      about(Api.copyWeights, (path) => copyTo(options, path))(path, withToken(options.weightsAccessToken, callOptions)),
    getSession: (sessionId, options, callOptions) => call(Api.getSession, { ...options, sessionId }, callOptions),
    listSessions,
    searchSessions,
    assignSessionProject: (sessionId, projectId, callOptions) =>
      call(Api.assignSessionProject, { sessionId, projectId }, callOptions),
    exportSessionTrace: (sessionId, options = {}, callOptions) =>
      waiting(Api.exportSessionTrace.operation, options, (deadline) =>
        Preparing.trace(call, sessionId, deadline, callOptions),
      ),
    getSampler: (samplerId, callOptions) => call(Api.getSampler, { samplerId }, callOptions),
    unloadModel: (modelId, callOptions) => call(Api.unloadModel, { modelId }, callOptions),
    whoami,
    stream,
  })
})

const withToken = (
  token: Redacted.Redacted<string> | undefined,
  options: CallOptions | undefined,
): CallOptions | undefined =>
  token === undefined
    ? options
    : { ...options, headers: { ...options?.headers, "x-tinker-weights-access-token": token } }

/**
 * Provides `RestClient`. The layer is fresh: a layer memoized by reference would hand one tenant's credential to
 * another.
 *
 * @since 0.1.0
 * @category layers
 */
export const layer: Layer.Layer<RestClient, never, Environment> = Layer.fresh(Layer.effect(RestClient, make))
