/**
 * Persists sessions, models, samplers, checkpoints and futures in SQLite. The server works in memory, writes here
 * before it acknowledges a request, and reads everything back at the next start.
 *
 * Without a directory, the same tables are kept in memory and lost when the process exits.
 *
 * @since 0.1.0
 */
import * as LibsqlClient from "@effect/sql-libsql/LibsqlClient"
import * as SqlClient from "@effect/sql/SqlClient"
import type { SqlError } from "@effect/sql/SqlError"
import { type Client, createClient, type InStatement } from "@libsql/client"
import * as Context from "effect/Context"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Scope from "effect/Scope"
import { join } from "node:path"
import * as DirectoryLock from "./internal/DirectoryLock.ts"
import * as PrivateFiles from "./internal/PrivateFiles.ts"

/**
 * Reports a failed store operation, e.g. because the disk is full or the data was written by a newer version.
 *
 * @since 0.1.0
 * @category errors
 */
export class StoreError extends Data.TaggedError("StoreError")<{
  readonly operation: string
  readonly cause: unknown
}> {
  /** @since 0.1.0 */
  override get message(): string {
    return `the store could not ${this.operation}: ${this.cause instanceof Error ? this.cause.message : String(this.cause)}`
  }
}

/**
 * The kinds of objects that are stored as JSON by id.
 *
 * @since 0.1.0
 * @category models
 */
export type Kind = "session" | "model" | "sampler" | "checkpoint" | "refused" | "meta"

/**
 * An accepted request.
 *
 * @since 0.1.0
 * @category models
 */
export interface FutureRow {
  readonly id: string
  readonly owner: string
  readonly sessionId: string
  /** The id of the model or sampler that the request is for. */
  readonly lane: string
  readonly seq: number | null
  readonly operation: string
  readonly hash: string
  /** The JSON response that acknowledged the request. */
  readonly accepted: string
  readonly createdAt: number
  readonly contentType: string
  /** The request body, kept while the work may have to be repeated. */
  readonly body: Uint8Array | null
}

/**
 * The outcome of an accepted request.
 *
 * @since 0.1.0
 * @category models
 */
export interface ResultRow {
  readonly state: "result" | "failed" | "refused"
  readonly contentType: string
  readonly result: Uint8Array
}

/**
 * A future as read back from the store.
 *
 * @since 0.1.0
 * @category models
 */
export interface StoredFuture extends FutureRow {
  readonly state: "queued" | ResultRow["state"]
  /** The position in the order in which futures finished. */
  readonly finished: number | null
  readonly size: number
}

/**
 * The usage of one owner, session and base model within one hour. Chats belong to no session: their session is empty.
 *
 * @since 0.1.0
 * @category models
 */
export interface UsageRow {
  readonly bucket: number
  readonly owner: string
  readonly sessionId: string
  readonly baseModel: string
  readonly kind: string
  readonly count: number
}

/**
 * An entry of the audit log.
 *
 * @since 0.1.0
 * @category models
 */
export interface AuditRow {
  readonly time: number
  readonly owner: string
  readonly event: string
  readonly modelId: string | null
  readonly path: string | null
}

/**
 * Reads and writes the server's data.
 *
 * @since 0.1.0
 * @category models
 */
export interface Service {
  /** Whether the data survives the process. If so, request bodies are kept in case work has to be repeated. */
  readonly durable: boolean
  /** Saves an object by id, replacing any previous one. With `flushed`, it also survives a power failure. */
  readonly put: (
    kind: Kind,
    id: string,
    value: object,
    options?: { readonly flushed?: boolean },
  ) => Effect.Effect<void, StoreError>
  readonly remove: (kind: Kind, id: string) => Effect.Effect<void, StoreError>
  readonly all: (kind: Kind) => Effect.Effect<ReadonlyArray<unknown>, StoreError>
  readonly accept: (row: FutureRow) => Effect.Effect<void, StoreError>
  readonly finish: (
    id: string,
    finished: number,
    row: ResultRow,
    options: { readonly keepBody: boolean; readonly usage: ReadonlyArray<UsageRow> },
  ) => Effect.Effect<void, StoreError>
  readonly result: (id: string) => Effect.Effect<ResultRow | undefined, StoreError>
  readonly futures: Effect.Effect<ReadonlyArray<StoredFuture>, StoreError>
  /** Deletes the bodies of a lane's finished requests, up to and including a sequence number. */
  readonly dropBodies: (lane: string, upTo: number) => Effect.Effect<void, StoreError>
  readonly dropFutures: (sessionId: string) => Effect.Effect<void, StoreError>
  /** Deletes a session with its samplers and the refused numbers of its models. Models stay. */
  readonly dropSession: (
    sessionId: string,
    modelIds: ReadonlyArray<string>,
    samplerIds: ReadonlyArray<string>,
  ) => Effect.Effect<void, StoreError>
  readonly usage: (owner: string) => Effect.Effect<ReadonlyArray<UsageRow>, StoreError>
  /** Adds usage that belongs to no future. */
  readonly count: (rows: ReadonlyArray<UsageRow>) => Effect.Effect<void, StoreError>
  readonly audit: (owner: string) => Effect.Effect<ReadonlyArray<AuditRow>, StoreError>
  readonly record: (row: AuditRow) => Effect.Effect<void, StoreError>
}

/**
 * The store of a server.
 *
 * @since 0.1.0
 * @category tags
 */
export class Store extends Context.Tag("@effect-tinker/server/Store")<Store, Service>() {}

/** Creates the tables. Newer versions may only add to it. */
const schema = [
  `CREATE TABLE IF NOT EXISTS things (
    kind TEXT NOT NULL, id TEXT NOT NULL, data TEXT NOT NULL, PRIMARY KEY (kind, id)) WITHOUT ROWID`,
  `CREATE TABLE IF NOT EXISTS futures (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, session_id TEXT NOT NULL, lane TEXT NOT NULL, seq INTEGER,
    operation TEXT NOT NULL, hash TEXT NOT NULL, accepted TEXT NOT NULL, created_at INTEGER NOT NULL,
    content_type TEXT NOT NULL, body BLOB, state TEXT NOT NULL DEFAULT 'queued',
    finished INTEGER, result_type TEXT, result BLOB)`,
  `CREATE INDEX IF NOT EXISTS futures_by_lane ON futures (lane, seq)`,
  `CREATE INDEX IF NOT EXISTS futures_by_session ON futures (session_id)`,
  `CREATE TABLE IF NOT EXISTS usage (
    bucket INTEGER NOT NULL, owner TEXT NOT NULL, session_id TEXT NOT NULL, base_model TEXT NOT NULL,
    kind TEXT NOT NULL, count INTEGER NOT NULL, PRIMARY KEY (bucket, owner, session_id, base_model, kind)) WITHOUT ROWID`,
  `CREATE TABLE IF NOT EXISTS audit (
    time INTEGER NOT NULL, owner TEXT NOT NULL, event TEXT NOT NULL, model_id TEXT, path TEXT)`,
]

/** Must be increased when older versions could no longer read the data. */
const version = 1

const bytesOf = (value: unknown): Uint8Array =>
  value instanceof ArrayBuffer
    ? new Uint8Array(value)
    : value instanceof Uint8Array
      ? value
      : new TextEncoder().encode(typeof value === "string" ? value : "")

const addUsage = ({ baseModel, bucket, count, kind, owner, sessionId }: UsageRow): InStatement => ({
  sql: `INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?)
        ON CONFLICT (bucket, owner, session_id, base_model, kind) DO UPDATE SET count = count + excluded.count`,
  args: [bucket, owner, sessionId, baseModel, kind, count],
})

const make = (client: Client, durable: boolean): Effect.Effect<Service, StoreError, SqlClient.SqlClient> =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const toStoreError = (operation: string) =>
      Effect.mapError((error: SqlError) => new StoreError({ operation, cause: error.cause ?? error }))

    /** Runs statements atomically, on the existing connection: a transaction of the client would open another one. */
    const batch = (operation: string, statements: ReadonlyArray<InStatement>) =>
      Effect.tryPromise({
        try: () => client.batch([...statements], "write"),
        catch: (cause) => new StoreError({ operation, cause }),
      }).pipe(Effect.asVoid)

    if (durable) yield* toStoreError("be opened")(sql.unsafe("PRAGMA journal_mode = WAL"))
    yield* toStoreError("be opened")(sql.unsafe("PRAGMA synchronous = NORMAL"))
    for (const statement of schema) yield* toStoreError("create its tables")(sql.unsafe(statement))
    const [known] = yield* toStoreError("be opened")(sql.unsafe<{ user_version: number }>("PRAGMA user_version"))
    if (known !== undefined && known.user_version > version)
      return yield* new StoreError({
        operation: "be opened",
        cause: `the data has version ${known.user_version}, but this program supports at most ${version}; upgrade it`,
      })
    yield* toStoreError("be opened")(sql.unsafe(`PRAGMA user_version = ${version}`))

    const put: Service["put"] = (kind, id, value, options) => {
      const write = toStoreError(`save a ${kind}`)(
        sql`INSERT INTO things (kind, id, data) VALUES (${kind}, ${id}, ${JSON.stringify(value)})
            ON CONFLICT (kind, id) DO UPDATE SET data = excluded.data`,
      )
      if (options?.flushed !== true || !durable) return Effect.asVoid(write)
      const synchronous = (mode: string) => toStoreError("be flushed")(sql.unsafe(`PRAGMA synchronous = ${mode}`))
      return Effect.asVoid(
        Effect.ensuring(Effect.zipRight(synchronous("FULL"), write), Effect.ignore(synchronous("NORMAL"))),
      )
    }

    return {
      durable,
      put,
      remove: (kind, id) =>
        Effect.asVoid(toStoreError(`delete a ${kind}`)(sql`DELETE FROM things WHERE kind = ${kind} AND id = ${id}`)),
      all: (kind) =>
        toStoreError(`read every ${kind}`)(sql<{ data: string }>`SELECT data FROM things WHERE kind = ${kind}`).pipe(
          Effect.map((rows) => rows.map(({ data }): unknown => JSON.parse(data))),
        ),
      accept: (row) =>
        Effect.asVoid(
          toStoreError("accept a request")(
            sql`INSERT INTO futures (id, owner, session_id, lane, seq, operation, hash, accepted, created_at, content_type, body)
                VALUES (${row.id}, ${row.owner}, ${row.sessionId}, ${row.lane}, ${row.seq}, ${row.operation}, ${row.hash},
                        ${row.accepted}, ${row.createdAt}, ${row.contentType}, ${durable ? row.body : null})`,
          ),
        ),
      finish: (id, finished, row, { keepBody, usage }) =>
        batch("save a result", [
          {
            sql: `UPDATE futures SET state = ?, finished = ?, result_type = ?, result = ?${keepBody ? "" : ", body = NULL"} WHERE id = ?`,
            args: [row.state, finished, row.contentType, row.result, id],
          },
          ...usage.map(addUsage),
        ]),
      result: (id) =>
        toStoreError("read a result")(
          sql<{ state: string; result_type: string; result: unknown }>`SELECT state, result_type, result FROM futures
              WHERE id = ${id} AND state <> 'queued'`,
        ).pipe(
          Effect.map(([row]) =>
            row === undefined
              ? undefined
              : {
                  state: row.state as ResultRow["state"],
                  contentType: row.result_type,
                  result: bytesOf(row.result),
                },
          ),
        ),
      futures: toStoreError("read the futures")(
        sql<Record<string, unknown>>`SELECT id, owner, session_id, lane, seq, operation, hash, accepted, created_at,
            content_type, body, state, finished, length(result) AS size FROM futures ORDER BY rowid`,
      ).pipe(
        Effect.map((rows) =>
          rows.map((row): StoredFuture => ({
            id: String(row["id"]),
            owner: String(row["owner"]),
            sessionId: String(row["session_id"]),
            lane: String(row["lane"]),
            seq: row["seq"] === null ? null : Number(row["seq"]),
            operation: String(row["operation"]),
            hash: String(row["hash"]),
            accepted: String(row["accepted"]),
            createdAt: Number(row["created_at"]),
            contentType: String(row["content_type"]),
            body: row["body"] === null ? null : bytesOf(row["body"]),
            state: String(row["state"]) as StoredFuture["state"],
            finished: row["finished"] === null ? null : Number(row["finished"]),
            size: Number(row["size"] ?? 0),
          })),
        ),
      ),
      dropBodies: (lane, upTo) =>
        Effect.asVoid(
          toStoreError("delete request bodies")(
            sql`UPDATE futures SET body = NULL WHERE lane = ${lane} AND seq <= ${upTo} AND state <> 'queued'`,
          ),
        ),
      dropFutures: (sessionId) =>
        Effect.asVoid(toStoreError("delete futures")(sql`DELETE FROM futures WHERE session_id = ${sessionId}`)),
      dropSession: (sessionId, modelIds, samplerIds) =>
        batch("delete a session", [
          { sql: "DELETE FROM things WHERE kind = 'session' AND id = ?", args: [sessionId] },
          { sql: "DELETE FROM futures WHERE session_id = ?", args: [sessionId] },
          ...samplerIds.map((id) => ({ sql: "DELETE FROM things WHERE kind = 'sampler' AND id = ?", args: [id] })),
          // The keys of refused numbers are `model#number`, and "$" is the character after "#".
          ...modelIds.map((id) => ({
            sql: "DELETE FROM things WHERE kind = 'refused' AND id > ? AND id < ?",
            args: [`${id}#`, `${id}$`],
          })),
        ]),
      usage: (owner) =>
        toStoreError("read the usage")(
          sql<Record<string, unknown>>`SELECT * FROM usage WHERE owner = ${owner} ORDER BY bucket, session_id, kind`,
        ).pipe(
          Effect.map((rows) =>
            rows.map((row) => ({
              bucket: Number(row["bucket"]),
              owner: String(row["owner"]),
              sessionId: String(row["session_id"]),
              baseModel: String(row["base_model"]),
              kind: String(row["kind"]),
              count: Number(row["count"]),
            })),
          ),
        ),
      count: (rows) => batch("count usage", rows.map(addUsage)),
      audit: (owner) =>
        toStoreError("read the audit log")(
          sql<Record<string, unknown>>`SELECT * FROM audit WHERE owner = ${owner} ORDER BY rowid`,
        ).pipe(
          Effect.map((rows) =>
            rows.map((row) => ({
              time: Number(row["time"]),
              owner: String(row["owner"]),
              event: String(row["event"]),
              modelId: row["model_id"] === null ? null : String(row["model_id"]),
              path: row["path"] === null ? null : String(row["path"]),
            })),
          ),
        ),
      record: ({ event, modelId, owner, path, time }) =>
        Effect.asVoid(
          toStoreError("write the audit log")(
            sql`INSERT INTO audit VALUES (${time}, ${owner}, ${event}, ${modelId}, ${path})`,
          ),
        ),
    }
  })

/** Creates the directory, locks it and makes the database private, with the files that SQLite keeps beside it. */
const prepareDirectory = (directory: string): Effect.Effect<void, StoreError, Scope.Scope> => {
  const attempt = (operation: string, run: () => void) =>
    Effect.try({
      try: run,
      catch: (cause) => new StoreError({ operation, cause: PrivateFiles.problemWith(directory, cause) ?? cause }),
    })
  const database = join(directory, "tinker.db")
  return attempt("create its directory", () => PrivateFiles.ensureDirectory(directory)).pipe(
    Effect.zipRight(DirectoryLock.acquire(directory)),
    Effect.catchTag("LockError", (cause) => new StoreError({ operation: "be opened", cause })),
    Effect.zipRight(
      attempt("create its file", () => {
        PrivateFiles.ensureFile(database)
        for (const suffix of ["-wal", "-shm"]) PrivateFiles.restrict(`${database}${suffix}`)
      }),
    ),
  )
}

/**
 * Opens the store in a file of the directory, or in memory. Fails if another server uses the directory.
 *
 * @since 0.1.0
 * @category constructors
 */
export const open = (directory: string | undefined): Effect.Effect<Service, StoreError, Scope.Scope> =>
  Effect.gen(function* () {
    if (directory !== undefined) yield* prepareDirectory(directory)
    const url = directory === undefined ? ":memory:" : `file:${join(directory, "tinker.db")}`
    const client = yield* Effect.acquireRelease(
      Effect.try({
        try: () => createClient({ url }),
        catch: (cause) => new StoreError({ operation: "be opened", cause }),
      }),
      (client) => Effect.sync(() => client.close()),
    )
    const context = yield* Layer.build(LibsqlClient.layer({ liveClient: client }))
    return yield* Effect.provide(make(client, directory !== undefined), context)
  })

/**
 * Provides a store in a file of the directory, or in memory.
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = (directory: string | undefined): Layer.Layer<Store, StoreError> =>
  Layer.scoped(Store, open(directory))
