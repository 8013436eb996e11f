/**
 * What the server knows while it runs. Plain values that change, each change in one synchronous step; what must outlive
 * the process is written to the store before anybody hears of it.
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
  lastSeen: number
  /** Are its results gone? */
  isForgotten: boolean
  readonly models: Map<string, Model>
  readonly samplers: Map<string, Sampler>
}

/** A result as it travels. */
export interface Payload {
  readonly contentType: string
  readonly body: Uint8Array | string
}

export type Outcome =
  | { readonly _tag: "Result"; readonly payload: Payload }
  | { readonly _tag: "Failed"; readonly error: string; readonly category: "user" | "server" | "unknown" }
  | { readonly _tag: "Refused"; readonly status: number; readonly detail: string }

/** What was counted while the work was done. */
export interface Counted {
  readonly kind: "training" | "sampling_prefill" | "sampling_sample" | "checkpoint"
  readonly count: number
}

/** The work of a request. It can be done again after a restart: the same work on the same weights gives the same. */
export interface Job {
  readonly run: Effect.Effect<Payload, HostError | Refusal>
  /** Does it change the model? Then it is repeated when the model is made again after a restart. */
  readonly changes: boolean
  readonly baseModel: string
  readonly counts: ReadonlyArray<Counted>
  /** After the result is known. */
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
  /** Completed when it is in the store. */
  readonly stored: Deferred.Deferred<void, Refusal>
  readonly done: Deferred.Deferred<void>
  job: Job | undefined
  status: "waiting" | "running" | "done"
  /** Why it waits, if there is more to say than that others come first. */
  waitsFor: string | undefined
  /** Undefined while it is not done, and when it is in the store only. */
  outcome: Outcome | undefined
  failed: boolean
  size: number
  finished: number | undefined
}

/** A place in the order of a model. A number that was refused is not waited for, and can be used again. */
export type Taken = { readonly future: Future } | "refused"

export interface Lane {
  readonly key: string
  /** The number that comes next. */
  next: number
  readonly taken: Map<number, Taken>
  /** Accepted, not begun. */
  readonly held: Map<number, Future>
  busy: boolean
  /** Is somebody looking after a gap? */
  watched: boolean
  closed: boolean
}

export interface ModelRow {
  readonly id: string
  readonly owner: string
  readonly sessionId: string
  readonly number: number
  readonly config: AdapterConfig
  /** As it was asked for. */
  readonly optimizerConfig: JsonObject
  readonly userMetadata: JsonObject | undefined
  readonly createdAt: number
  /** Of a run without a session: a copy. */
  readonly projectId?: string | undefined
  /** The number up to which the snapshot has everything; -1 if there is none. */
  snapshot: number
}

export interface Model extends ModelRow {
  readonly lane: Lane
  lastRequest: number
  state: "making" | "ready" | "gone"
  updates: number
}

/** Bytes that are in the files, by a name that is never used twice. */
export interface Weights {
  readonly file: string
  readonly config: AdapterConfig
}

export interface SamplerRow {
  readonly id: string
  readonly owner: string
  readonly sessionId: string
  /** The request that made it. */
  readonly hash: string
  readonly baseModel: string
  readonly modelPath: string | undefined
  /** Undefined for the base model as it is. */
  readonly weights: Weights | undefined
  clients: number
}

export interface Sampler extends SamplerRow {
  readonly taken: Map<number, Future>
  /** In the order in which they finished. */
  readonly finished: Array<Future>
  /** Completed when another one is finished. */
  more: Deferred.Deferred<void>
}

export interface CheckpointRow {
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
  /** Another one for every save, so that who samples from an older one goes on with that. */
  readonly file: string
  /** The request that saved it. Done again after a kill, it is told what it did. */
  readonly savedBy?: string | undefined
}

export interface State {
  readonly sessions: Map<string, Session>
  readonly models: Map<string, Model>
  readonly samplers: Map<string, Sampler>
  readonly checkpoints: Map<string, CheckpointRow>
  readonly futures: Map<string, Future>
  /** Requests that make something, by what they make. */
  readonly made: Map<string, Future>
  /** Answers that are given again to the same idempotency key. */
  readonly remembered: Map<string, unknown>
  /** What the host has open to sample from, by file or base model. */
  readonly opened: Map<string, Effect.Effect<void, HostError | Refusal>>
  /** How many conversations use what is open. */
  readonly talking: Map<string, number>
  /** Samples of each owner that wait or run. */
  readonly sampling: Map<string, number>
  finished: number
  /** Whose results are in memory, the oldest first, and how large they are together. */
  readonly atHand: Array<Future>
  atHandBytes: number
}

export const emptyState = (): State => ({
  sessions: new Map(),
  models: new Map(),
  samplers: new Map(),
  checkpoints: new Map(),
  futures: new Map(),
  made: new Map(),
  remembered: new Map(),
  opened: new Map(),
  talking: new Map(),
  sampling: new Map(),
  finished: 0,
  atHand: [],
  atHandBytes: 0,
})

export const newLane = (key: string): Lane => ({
  key,
  // The number of the creation.
  next: 0,
  taken: new Map(),
  held: new Map(),
  busy: false,
  watched: false,
  closed: false,
})
