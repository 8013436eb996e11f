/**
 * Records the requests of a training client so that training can be resumed after a crash: each request is written
 * before it is sent, and its outcome afterwards. `TrainingClient.resume` reads the journal. This module provides an
 * in-memory journal; `@effect-tinker/node` provides a file.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { lazy } from "./internal/util/Lazy.ts"
import type { JournalFailed } from "./TinkerError.ts"

/**
 * A serialized request. A resend must be byte-identical.
 *
 * @since 0.1.0
 * @category models
 */
export interface StoredRequest {
  readonly path: string
  readonly contentType: string
  readonly bytes: Uint8Array
}

/**
 * The checkpoint that a model starts with.
 *
 * @since 0.1.0
 * @category records
 */
export const Origin = lazy(() => Schema.Struct({ path: Schema.String, withOptimizer: Schema.Boolean }))

/**
 * Records the creation of a client: its server, session and model.
 *
 * @since 0.1.0
 * @category records
 */
export const Opened = lazy(() =>
  Schema.TaggedStruct("Opened", {
    baseUrl: Schema.String,
    sessionId: Schema.String,
    modelId: Schema.String,
    /** The checkpoint to load first. */
    from: Schema.optionalWith(Origin, { as: "Option", nullable: true }).pipe(
      Schema.withConstructorDefault(() => Option.none()),
    ),
    /** The number of the first step: steps before it were made by another client. */
    firstStep: Schema.optionalWith(Schema.Number, { default: () => 0 }).pipe(Schema.withConstructorDefault(() => 0)),
  }),
)

/**
 * Records that another process resumed the client.
 *
 * @since 0.1.0
 * @category records
 */
export const Resumed = lazy(() => Schema.TaggedStruct("Resumed", {}))

/**
 * Records discovered server properties; the latest record applies.
 *
 * @since 0.1.0
 * @category records
 */
export const Learnt = lazy(() =>
  Schema.TaggedStruct("Learnt", {
    wire: Schema.OptionFromNullOr(Schema.Literal("protobuf", "json")),
    refusedUsesNumber: Schema.Boolean,
    guardsNumbers: Schema.OptionFromNullOr(Schema.Boolean),
  }),
)

/**
 * Records a request before it is sent. Without `request` it cannot be sent again after a restart.
 *
 * @since 0.1.0
 * @category records
 */
export const Intent = lazy(() =>
  Schema.TaggedStruct("Intent", {
    seq: Schema.Number,
    /** The wire name, e.g. `optim_step`. */
    operation: Schema.String,
    /** The wire name of the result type, e.g. `OptimStep`. */
    kind: Schema.String,
    /** The position of this request among the chunks of one call. */
    chunk: Schema.Number,
    chunks: Schema.Number,
    /** Whether the request may be repeated without harm. */
    repeatable: Schema.Boolean,
    idempotencyKey: Schema.String,
    hash: Schema.String,
    /** The user's name for the step. */
    tag: Schema.OptionFromNullOr(Schema.String),
  }),
)

/**
 * Records that the server accepted a request.
 *
 * @since 0.1.0
 * @category records
 */
export const Acknowledged = lazy(() =>
  Schema.TaggedStruct("Acknowledged", { seq: Schema.Number, requestId: Schema.String }),
)

/**
 * Records that a request was not accepted and that its number is free again.
 *
 * @since 0.1.0
 * @category records
 */
export const Withdrawn = lazy(() => Schema.TaggedStruct("Withdrawn", { seq: Schema.Number }))

/**
 * Records that the result of a request arrived.
 *
 * @since 0.1.0
 * @category records
 */
export const Settled = lazy(() => Schema.TaggedStruct("Settled", { seq: Schema.Number, succeeded: Schema.Boolean }))

/**
 * Records a state that was saved or loaded, and that training can go back to.
 *
 * @since 0.1.0
 * @category records
 */
export const Checkpoint = lazy(() =>
  Schema.TaggedStruct("Checkpoint", {
    seq: Schema.Number,
    path: Schema.String,
    /** Whether going back restores the optimizer. */
    withOptimizer: Schema.optionalWith(Schema.Boolean, { default: () => true }).pipe(
      Schema.withConstructorDefault(() => true),
    ),
  }),
)

/**
 * Records that the client's scope closed with success: the training run is complete.
 *
 * @since 0.1.0
 * @category records
 */
export const Completed = lazy(() => Schema.TaggedStruct("Completed", {}))

/**
 * A record of the journal.
 *
 * @since 0.1.0
 * @category records
 */
export const Record = lazy(() =>
  Schema.Union(Opened, Resumed, Learnt, Intent, Acknowledged, Withdrawn, Settled, Checkpoint, Completed),
)

/**
 * The type of {@link Record}.
 *
 * @since 0.1.0
 * @category records
 */
export type Record = typeof Record.Type

/**
 * A record with, for an intent, its request.
 *
 * @since 0.1.0
 * @category models
 */
export interface Entry {
  readonly record: Record
  /** Kept until the request is acknowledged or withdrawn. */
  readonly request?: StoredRequest | undefined
}

/**
 * The storage of a journal.
 *
 * @since 0.1.0
 * @category models
 */
export interface Journal {
  /**
   * Appends entries atomically: a crash may only lose entries from some point on. If an intent is included, the entries
   * are durable when the effect completes.
   */
  readonly append: (entries: ReadonlyArray<Entry>) => Effect.Effect<void, JournalFailed>
  /** Returns all entries in order, with the requests that are still stored. */
  readonly read: Effect.Effect<ReadonlyArray<Entry>, JournalFailed>
}

/**
 * Returns the number of the request that no longer has to be stored after this record.
 *
 * @since 0.1.0
 * @category folding
 */
export const settles = (record: Record): Option.Option<number> =>
  record._tag === "Acknowledged" || record._tag === "Withdrawn" ? Option.some(record.seq) : Option.none()

/**
 * Creates an in-memory journal, which survives the client but not the process.
 *
 * @example
 * ```ts
 * import { Console, Effect } from "effect"
 * import { Loss, Optimizer, ServiceClient, TrainingJournal } from "effect-tinker"
 * import { NodeTinker } from "@effect-tinker/node"
 *
 * const data = [{ modelInput: [10, 20, 30], inputs: { targetTokens: [20, 30, 40], weights: [1, 1, 1] } }]
 *
 * const program = Effect.gen(function* () {
 *   const journal = yield* TrainingJournal.memory
 *   const service = yield* ServiceClient.ServiceClient
 *   const training = yield* service.createLoraTrainingClient({
 *     baseModel: "effect-tinker/valley-1.5m",
 *     rank: 8,
 *     journal,
 *   })
 *   yield* training.trainStep(data, Loss.crossEntropy, Optimizer.adam())
 *
 *   const records = yield* journal.read
 *   yield* Console.log(records[0]?.record._tag) // → Opened
 *   yield* Console.log(records.filter(({ record }) => record._tag === "Acknowledged").length) // → 2
 * })
 *
 * await Effect.runPromise(program.pipe(Effect.scoped, Effect.provide(NodeTinker.layerConfig())))
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const memory: Effect.Effect<Journal> = Effect.sync(() => {
  const records: Array<Record> = []
  const requests = new Map<number, StoredRequest>()
  return {
    append: (entries) =>
      Effect.sync(() => {
        for (const { record, request } of entries) {
          records.push(record)
          if (record._tag === "Opened") requests.clear()
          if (record._tag === "Intent") requests.delete(record.seq)
          if (record._tag === "Intent" && request !== undefined) requests.set(record.seq, request)
          const done = settles(record)
          if (Option.isSome(done)) requests.delete(done.value)
        }
      }),
    read: Effect.sync(() =>
      records.map((record) => ({
        record,
        request: record._tag === "Intent" ? requests.get(record.seq) : undefined,
      })),
    ),
  }
})

/**
 * One request of a model according to the journal.
 *
 * @since 0.1.0
 * @category folding
 */
export interface Step {
  readonly intent: typeof Intent.Type
  readonly requestId: Option.Option<string>
  /** None until the result arrives. */
  readonly succeeded: Option.Option<boolean>
  readonly request: Option.Option<StoredRequest>
}

/**
 * The summary of a journal: the client that was opened last and its progress.
 *
 * @since 0.1.0
 * @category folding
 */
export interface State {
  readonly opened: typeof Opened.Type
  /** How often the client was resumed. */
  readonly resumes: number
  readonly learnt: Option.Option<typeof Learnt.Type>
  /** In numeric order, without withdrawn requests. */
  readonly steps: ReadonlyArray<Step>
  /** The withdrawn numbers that were not used again. */
  readonly withdrawn: ReadonlySet<number>
  /** In the order of their saves. */
  readonly checkpoints: ReadonlyArray<typeof Checkpoint.Type>
  readonly lastCheckpoint: Option.Option<typeof Checkpoint.Type>
  /** Whether the client's scope closed with success. */
  readonly completed: boolean
}

/**
 * Computes the state of the last client from the entries; none if the journal is empty.
 *
 * @since 0.1.0
 * @category folding
 */
export const state = (entries: ReadonlyArray<Entry>): Option.Option<State> => {
  let opened: typeof Opened.Type | undefined
  let learnt: typeof Learnt.Type | undefined
  let resumes = 0
  let completed = false
  const withdrawn = new Set<number>()
  let checkpoints: Array<typeof Checkpoint.Type> = []
  const steps = new Map<number, Step>()
  const change = (seq: number, f: (step: Step) => Step) => {
    const step = steps.get(seq)
    if (step !== undefined) steps.set(seq, f(step))
  }
  for (const { record, request } of entries) {
    switch (record._tag) {
      case "Opened":
        // A new client starts with its own numbers.
        opened = record
        learnt = undefined
        resumes = 0
        completed = false
        withdrawn.clear()
        checkpoints = []
        steps.clear()
        break
      case "Resumed":
        resumes++
        completed = false
        break
      case "Learnt":
        learnt = record
        break
      case "Intent":
        withdrawn.delete(record.seq)
        steps.set(record.seq, {
          intent: record,
          requestId: Option.none(),
          succeeded: Option.none(),
          request: Option.fromNullable(request),
        })
        break
      case "Acknowledged":
        change(record.seq, (step) => ({ ...step, requestId: Option.some(record.requestId), request: Option.none() }))
        break
      case "Withdrawn":
        withdrawn.add(record.seq)
        steps.delete(record.seq)
        break
      case "Settled":
        change(record.seq, (step) => ({ ...step, succeeded: Option.some(record.succeeded) }))
        break
      case "Checkpoint":
        checkpoints.push(record)
        break
      case "Completed":
        completed = true
        break
    }
  }
  return Option.map(Option.fromNullable(opened), (opened) => ({
    opened,
    resumes,
    completed,
    learnt: Option.fromNullable(learnt),
    steps: [...steps.values()].toSorted((a, b) => a.intent.seq - b.intent.seq),
    withdrawn,
    checkpoints,
    lastCheckpoint: Option.fromNullable(checkpoints.at(-1)),
  }))
}
