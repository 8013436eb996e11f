/**
 * Holds the in-memory state of the server as mutable values. Each change is one synchronous step; persistent data is
 * written to the store before a client hears of it.
 */
import type * as Deferred from "effect/Deferred"
import type * as Effect from "effect/Effect"
import type { Accepted } from "effect-tinker/protocol/schemas/Futures"
import type { FinishReason } from "effect-tinker/protocol/schemas/Session"
import type * as Checkpoints from "effect-tinker/Checkpoint"
import type { JsonObject } from "./Json.ts"
import type { AdapterConfig, HostError } from "../ModelHost.ts"
import type { Refusal } from "./Refusal.ts"

export interface SessionRow {
  readonly id: string
  readonly owner: string
  readonly createdAt: number
  readonly tags: ReadonlyArray<string>
  readonly userMetadata: JsonObject
  readonly displayName: string | undefined
  readonly sdkVersion: string
  projectId: string | undefined
  state: "active" | "finished" | "expired"
  reason: FinishReason | undefined
  detail: string | undefined
  endedAt: number | undefined
}

export interface Session extends SessionRow {
  /** By the clock of `Uptime`. */
  lastSeen: number
  /** Whether its results were deleted. */
  resultsDropped: boolean
  readonly models: Map<string, Model>
  readonly samplers: Map<string, Sampler>
}

/** An encoded result. */
export interface Payload {
  readonly contentType: string
  readonly body: Uint8Array | string
}

export type Outcome =
  | { readonly _tag: "Result"; readonly payload: Payload }
  | { readonly _tag: "Failed"; readonly error: string; readonly category: "user" | "server" | "unknown" }
  | { readonly _tag: "Refused"; readonly status: number; readonly detail: string }

/** Usage is counted by the hour. */
export const hour = 3_600_000

/** The start of the hour of a time. */
export const hourOf = (millis: number): number => Math.floor(millis / hour) * hour

/** Usage that a successful request adds. */
export interface Counted {
  readonly kind: "training" | "sampling_prefill" | "sampling_sample" | "checkpoint"
  readonly count: number
}

/** The work of a request. It is deterministic, so it can be repeated after a restart. */
export interface Job {
  readonly run: Effect.Effect<Payload, HostError | Refusal>
  /** Whether the job changes the model and has to be repeated when the model is restored after a restart. */
  readonly changes: boolean
  readonly baseModel: string
  readonly counts: ReadonlyArray<Counted>
  /** The size of what the job keeps in memory until it has run. */
  readonly bytes?: number
  /** Runs after the outcome was recorded. */
  readonly after?: Effect.Effect<void>
}

export interface Future {
  readonly id: string
  readonly owner: string
  readonly sessionId: string
  readonly lane: string
  readonly seq: number | undefined
  readonly operation: string
  readonly hash: string
  readonly accepted: Accepted
  readonly createdAt: number
  /** Completed when the future is in the store. */
  readonly stored: Deferred.Deferred<void, Refusal>
  readonly done: Deferred.Deferred<void>
  job: Job | undefined
  status: "waiting" | "running" | "done"
  /** Why the future waits, if not just for earlier requests. */
  waitsFor: string | undefined
  /** Undefined while the future is not done, and when its outcome is only in the store. */
  outcome: Outcome | undefined
  failed: boolean
  size: number
  finished: number | undefined
  /** The bytes that the future has reserved from the budget for queued jobs. */
  queuedBytes: number
}

/** A slot in the order of a model. The number of a refused request is skipped and can be used again. */
export type Taken = { readonly future: Future } | "refused"

export interface Lane {
  readonly key: string
  /** The next sequence number to run. */
  next: number
  readonly taken: Map<number, Taken>
  /** Requests that were accepted but not started. */
  readonly held: Map<number, Future>
  busy: boolean
  /** Whether a timer watches for a missing sequence number. */
  watched: boolean
  closed: boolean
}

export interface ModelRow {
  readonly id: string
  readonly owner: string
  readonly sessionId: string
  readonly number: number
  readonly config: AdapterConfig
  /** The configuration from the request. */
  readonly optimizerConfig: JsonObject
  readonly userMetadata: JsonObject | undefined
  readonly createdAt: number
  /** Only set for runs without a session: copied weights, and runs that outlived their session. */
  projectId?: string | undefined
  /** The last sequence number that the snapshot covers; -1 if there is no snapshot. */
  snapshot: number
  /** The checksum of the snapshot; undefined if an older version wrote it. */
  snapshotChecksum?: string | undefined
}

export interface Model extends ModelRow {
  readonly lane: Lane
  lastRequest: number
  state: "creating" | "ready" | "unloaded"
  /** Why the model could not be restored at a start. */
  lostBecause?: string
  updates: number
}

/** A file of weights. A new one for every save, so that open samplers of an older save keep working. */
export interface WeightsFile {
  /** A name that is never reused. */
  readonly file: string
  /** Undefined if the file is in memory, or if an older version wrote it. */
  readonly checksum?: string | undefined
}

/** The weights of a sampler. */
export interface Weights extends WeightsFile {
  readonly config: AdapterConfig
  /** The checkpoint or sampler that they belong to; undefined if an older version wrote this. */
  readonly of?: string | undefined
}

export interface SamplerRow {
  readonly id: string
  readonly owner: string
  readonly sessionId: string
  /** The hash of the request that created the sampler. */
  readonly hash: string
  readonly baseModel: string
  readonly modelPath: string | undefined
  /** Undefined for the unmodified base model. */
  readonly weights: Weights | undefined
  clients: number
}

export interface Sampler extends SamplerRow {
  readonly taken: Map<number, Future>
  /** In the order in which they finished. */
  readonly finished: Array<Future>
  /** Completed when the next future finishes. */
  more: Deferred.Deferred<void>
}

export interface CheckpointRow extends WeightsFile {
  readonly path: string
  readonly owner: string
  readonly trainingRunId: string
  readonly kind: Checkpoints.Kind
  readonly name: string
  readonly createdAt: number
  readonly size: number
  readonly config: AdapterConfig
  readonly optimizerConfig: JsonObject
  readonly userMetadata: JsonObject | undefined
  readonly sessionId: string
  public: boolean
  expiresAt: number | undefined
  /** The request that saved the checkpoint. If it is repeated after a crash, it finds that it is already done. */
  readonly savedBy?: string | undefined
}

export interface State {
  readonly sessions: Map<string, Session>
  readonly models: Map<string, Model>
  readonly samplers: Map<string, Sampler>
  readonly checkpoints: Map<string, CheckpointRow>
  readonly futures: Map<string, Future>
  /** Responses by idempotency key, returned again for a repeated request. */
  readonly responses: Map<string, unknown>
  /** The samplers that are open in the host, by file or base model. */
  readonly openSamplers: Map<string, Effect.Effect<void, HostError | Refusal>>
  /** Number of chat requests that use each open sampler. */
  readonly activeCompletions: Map<string, number>
  /** The size of all jobs that have not run. */
  queuedBytes: number
  /** Number of polls that wait for a result. */
  heldPolls: number
  /** Number of queued and running samples of each owner. */
  readonly sampling: Map<string, number>
  finished: number
  /** Futures whose outcome is in memory, oldest first, and their total size. */
  readonly cachedResults: Array<Future>
  cachedBytes: number
}

export const emptyState = (): State => ({
  sessions: new Map(),
  models: new Map(),
  samplers: new Map(),
  checkpoints: new Map(),
  futures: new Map(),
  responses: new Map(),
  openSamplers: new Map(),
  activeCompletions: new Map(),
  queuedBytes: 0,
  heldPolls: 0,
  sampling: new Map(),
  finished: 0,
  cachedResults: [],
  cachedBytes: 0,
})

export const newLane = (key: string): Lane => ({
  key,
  // The creation of the model is request 0.
  next: 0,
  taken: new Map(),
  held: new Map(),
  busy: false,
  watched: false,
  closed: false,
})
