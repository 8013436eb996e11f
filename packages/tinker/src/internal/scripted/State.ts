/**
 * Holds the state of the server as mutable values. Every request changes it in one synchronous step, so requests never
 * interleave.
 */
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as FiberId from "effect/FiberId"
import type * as Option from "effect/Option"
import type { Accepted } from "../../protocol/schemas/Futures.ts"
import type { LoraConfig } from "../../protocol/schemas/Training.ts"
import type { OptimizerConfig } from "../../Optimizer.ts"
import type * as Scripted from "../../testing/ScriptedServer.ts"
import type { Payload } from "./Results.ts"
import type { Lane } from "./Lane.ts"

export type Mutable<A> = { -readonly [K in keyof A]: A[K] }

/** The outcome of a request. `Refused` is returned as the status of the poll. */
export type Outcome =
  | { readonly _tag: "Result"; readonly payload: Payload }
  | { readonly _tag: "Failed"; readonly error: string; readonly category: string | undefined }
  | { readonly _tag: "Refused"; readonly status: number; readonly detail: string }

export const failed = (error: string, category = "user"): Outcome => ({ _tag: "Failed", error, category })
export const gone: Outcome = { _tag: "Refused", status: 410, detail: "Gone" }

export interface Future {
  readonly id: string
  readonly operation: Scripted.Operation | undefined
  readonly sessionId: string
  readonly done: Deferred.Deferred<Outcome>
  outcome: Outcome | undefined
  readonly pause: { readonly queueState: string; readonly reason?: string; readonly until: number } | undefined
}

export type Session = Mutable<Scripted.SessionState>

/** A sequence number that arrived: the accepted request, or how it was rejected. */
export type Submitted =
  | { readonly hash: string; readonly accepted: Accepted; readonly begin: () => void }
  | { readonly hash: string; readonly rejected: Scripted.Answer }

/** The configuration of a model, which is stored with its checkpoints. */
export interface Making {
  readonly baseModel: string
  /** With all defaults applied. */
  readonly lora: {
    readonly [K in keyof LoraConfig]-?: K extends "seed" ? LoraConfig[K] : Exclude<LoraConfig[K], undefined>
  }
  readonly optimizerConfig: OptimizerConfig
}

export interface Model extends Making {
  readonly id: string
  readonly sessionId: string
  readonly applied: Array<Scripted.Applied>
  hash: string
  weights: Scripted.Weights
  gradient: number
  /** The next sequence number: among those that arrived, or in `nextOnly` mode among those that succeeded. */
  next: number
  /** In `nextOnly` mode: the number of accepted but unfinished requests, and later numbers that are used up. */
  running: number
  readonly skipped: Set<number>
  readonly submitted: Map<number, Submitted>
  readonly lane: Lane
}

export interface Checkpoint extends Scripted.Checkpoint {
  readonly making: Making
}

export interface Sampler {
  readonly id: string
  /** The hash of the request that created the sampler. */
  readonly madeBy: string
  readonly sessionId: string
  readonly baseModel: string
  readonly modelPath: Option.Option<string>
  readonly weights: Scripted.Weights
  readonly submitted: Map<number, { readonly hash: string; readonly accepted: Accepted }>
  /** Finished samples, in the order in which they finished. */
  readonly finished: Array<Future>
  /** Completed when the next sample finishes. */
  more: Deferred.Deferred<void>
  clients: number
}

type Given = Omit<Scripted.Options, "faults">

/** Options with defaults applied. */
export type Settings = {
  readonly [K in keyof Given]-?: K extends "apiKeys" | "sample" ? Given[K] : Exclude<Given[K], undefined>
}

const defaults: Settings = {
  mode: "dedupe",
  rejectedUsesNumber: false,
  wire: "both",
  wireStatus: 415,
  results: "protobuf",
  flags: {},
  dynamicFlags: {},
  messages: {},
  supportedModels: [
    { model_name: "Qwen/Qwen3-8B", max_context_length: 32768, trainable: true, sampleable: true },
    { model_name: "meta-llama/Llama-3.1-8B", max_context_length: 32768, trainable: true, sampleable: true },
  ],
  apiKeys: undefined,
  tokenLife: Duration.hours(1),
  strict: false,
  unknownFields: [],
  acceptedStatus: 200,
  requestIds: "name",
  sampleSequenceIds: true,
  hold: Duration.seconds(30),
  pending: "408",
  metadataAbove: Number.POSITIVE_INFINITY,
  work: Duration.zero,
  metrics: () => ({}),
  sample: undefined,
  promptLogprobsShort: false,
  samplerPath: "canonical",
  keep: Number.POSITIVE_INFINITY,
}

const requestId = {
  decimal: (count: number) => String(count),
  uuid: (count: number) => `00000000-0000-4000-8000-${count.toString(16).padStart(12, "0")}`,
  name: (count: number) => `req-${String(count).padStart(4, "0")}`,
}

export class State {
  settings = defaults
  readonly sessions = new Map<string, Session>()
  readonly models = new Map<string, Model>()
  readonly samplers = new Map<string, Sampler>()
  readonly checkpoints = new Map<string, Checkpoint>()
  readonly futures = new Map<string, Future>()
  /** Requests that create an object, by object: a repeated request creates nothing new. */
  readonly made = new Map<string, { readonly hash: string; readonly accepted: Accepted }>()
  /** Expiry time of each issued token. */
  readonly tokens = new Map<string, number>()
  /** Lanes with work that needs a fiber. */
  readonly waiting = new Set<Lane>()
  private sequences = 0
  private promised = 0

  constructor(options: Given) {
    this.configure(options)
  }

  /** Ignores options that are undefined. */
  configure(change: Given): void {
    const given = Object.fromEntries(Object.entries(change).filter(([, value]) => value !== undefined))
    this.settings = { ...this.settings, ...given }
  }

  future(operation: Future["operation"], sessionId: string, pause: Future["pause"]): Future {
    const id = requestId[this.settings.requestIds](++this.promised)
    const done = Deferred.unsafeMake<Outcome>(FiberId.none)
    const future: Future = { id, operation, sessionId, done, outcome: undefined, pause }
    this.futures.set(id, future)
    if (this.futures.size > this.settings.keep) this.forgetOldest()
    return future
  }

  /** Forgets the oldest result, unless it is still to come. */
  private forgetOldest(): void {
    const [oldest] = this.futures.values()
    if (oldest?.outcome !== undefined) this.futures.delete(oldest.id)
  }

  nextSequenceId(): string {
    return `seq-${String(++this.sequences).padStart(4, "0")}`
  }

  endSession(session: Session): void {
    session.state = "ended"
    for (const future of this.futures.values()) if (future.sessionId === session.id) settle(future, gone)
  }
}

/** Removes the oldest elements when there are twice as many as are kept: one by one would move all others each time. */
export const trim = (list: Array<unknown>, keep: number): void => {
  if (list.length > 2 * keep) list.splice(0, list.length - keep)
}

/** Settles a future; later outcomes are ignored. */
export const settle = (future: Future, outcome: Outcome): void => {
  if (future.outcome !== undefined) return
  future.outcome = outcome
  Deferred.unsafeDone(future.done, Effect.succeed(outcome))
}
