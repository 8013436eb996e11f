/**
 * What survives the process of a training client: each request is written down before it is sent, and what became of
 * it afterwards. `TrainingClient.resume` reads it. Kept in memory here; `@effect-tinker/node` keeps it in a file.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { lazy } from "./internal/util/Lazy.ts"
import type { JournalFailed } from "./TinkerError.ts"

/**
 * A request as it goes over the wire. A resend is bit-identical, or it is not one.
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
 * The checkpoint that a model begins with.
 *
 * @since 0.1.0
 * @category records
 */
export const Origin = lazy(() => Schema.Struct({ path: Schema.String, withOptimizer: Schema.Boolean }))

/**
 * The client was made: on this server, in this session, for this model.
 *
 * @since 0.1.0
 * @category records
 */
export const Opened = lazy(() =>
  Schema.TaggedStruct("Opened", {
    baseUrl: Schema.String,
    sessionId: Schema.String,
    modelId: Schema.String,
    /** What is to be loaded first. */
    from: Schema.optionalWith(Origin, { as: "Option", nullable: true }).pipe(
      Schema.withConstructorDefault(() => Option.none()),
    ),
  }),
)

/**
 * Another process took over.
 *
 * @since 0.1.0
 * @category records
 */
export const Resumed = lazy(() => Schema.TaggedStruct("Resumed", {}))

/**
 * What the server turned out to be like; the newest record counts.
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
 * A request is about to be sent. Without `request` it can't be sent again after a restart.
 *
 * @since 0.1.0
 * @category records
 */
export const Intent = lazy(() =>
  Schema.TaggedStruct("Intent", {
    seq: Schema.Number,
    /** The wire's name, e.g. `optim_step`. */
    operation: Schema.String,
    /** What kind of result it has, by the wire's name, e.g. `OptimStep`. */
    kind: Schema.String,
    /** Which of the pieces of one call it is, and of how many. */
    chunk: Schema.Number,
    chunks: Schema.Number,
    /** May it be done twice without harm? */
    repeatable: Schema.Boolean,
    idempotencyKey: Schema.String,
    hash: Schema.String,
    /** The user's own name for the step. */
    tag: Schema.OptionFromNullOr(Schema.String),
  }),
)

/**
 * The server has it.
 *
 * @since 0.1.0
 * @category records
 */
export const Acknowledged = lazy(() =>
  Schema.TaggedStruct("Acknowledged", { seq: Schema.Number, requestId: Schema.String }),
)

/**
 * It was not accepted, and its number is free again.
 *
 * @since 0.1.0
 * @category records
 */
export const Withdrawn = lazy(() => Schema.TaggedStruct("Withdrawn", { seq: Schema.Number }))

/**
 * Its result is there.
 *
 * @since 0.1.0
 * @category records
 */
export const Settled = lazy(() => Schema.TaggedStruct("Settled", { seq: Schema.Number, succeeded: Schema.Boolean }))

/**
 * A state to which one can go back.
 *
 * @since 0.1.0
 * @category records
 */
export const Checkpoint = lazy(() => Schema.TaggedStruct("Checkpoint", { seq: Schema.Number, path: Schema.String }))

/**
 * @since 0.1.0
 * @category records
 */
export const Record = lazy(() =>
  Schema.Union(Opened, Resumed, Learnt, Intent, Acknowledged, Withdrawn, Settled, Checkpoint),
)

/**
 * @since 0.1.0
 * @category records
 */
export type Record = typeof Record.Type

/**
 * A record, and for an intent the request itself.
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
 * @since 0.1.0
 * @category models
 */
export interface Journal {
  /** All of them or, after a crash, none from some point on; durable when it completes if an intent is among them. */
  readonly append: (entries: ReadonlyArray<Entry>) => Effect.Effect<void, JournalFailed>
  /** Everything in order, with the requests that are still kept. */
  readonly read: Effect.Effect<ReadonlyArray<Entry>, JournalFailed>
}

/**
 * The requests that need not be kept any longer when this record is written.
 *
 * @since 0.1.0
 * @category folding
 */
export const settles = (record: Record): Option.Option<number> =>
  record._tag === "Acknowledged" || record._tag === "Withdrawn" ? Option.some(record.seq) : Option.none()

/**
 * In memory: survives the client, not the process.
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
 * One request of a model, as the journal tells it.
 *
 * @since 0.1.0
 * @category folding
 */
export interface Step {
  readonly intent: typeof Intent.Type
  readonly requestId: Option.Option<string>
  /** None while its result is not there. */
  readonly succeeded: Option.Option<boolean>
  readonly request: Option.Option<StoredRequest>
}

/**
 * What a journal amounts to: the client that was opened last, and how far it came.
 *
 * @since 0.1.0
 * @category folding
 */
export interface State {
  readonly opened: typeof Opened.Type
  readonly lives: number
  readonly learnt: Option.Option<typeof Learnt.Type>
  /** By number, without those that were withdrawn. */
  readonly steps: ReadonlyArray<Step>
  /** The numbers that were withdrawn and that nothing has again. */
  readonly withdrawn: ReadonlySet<number>
  readonly lastCheckpoint: Option.Option<string>
}

/**
 * @since 0.1.0
 * @category folding
 */
export const state = (entries: ReadonlyArray<Entry>): Option.Option<State> => {
  let opened: typeof Opened.Type | undefined
  let learnt: typeof Learnt.Type | undefined
  let lives = 0
  const withdrawn = new Set<number>()
  let lastCheckpoint: string | undefined
  const steps = new Map<number, Step>()
  const change = (seq: number, f: (step: Step) => Step) => {
    const step = steps.get(seq)
    if (step !== undefined) steps.set(seq, f(step))
  }
  for (const { record, request } of entries) {
    switch (record._tag) {
      case "Opened":
        // Another client, with numbers of its own.
        opened = record
        learnt = undefined
        lives = 0
        withdrawn.clear()
        lastCheckpoint = undefined
        steps.clear()
        break
      case "Resumed":
        lives++
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
        lastCheckpoint = record.path
        break
    }
  }
  return Option.map(Option.fromNullable(opened), (opened) => ({
    opened,
    lives,
    learnt: Option.fromNullable(learnt),
    steps: [...steps.values()].toSorted((a, b) => a.intent.seq - b.intent.seq),
    withdrawn,
    lastCheckpoint: Option.fromNullable(lastCheckpoint),
  }))
}
