/**
 * The API keys that are stored for the command and the SDK, in the file of the official command. Only the user can read
 * it, and it is replaced as a whole.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { randomBytes } from "node:crypto"
import { chmod, mkdir, open, readFile, rename, rm, stat } from "node:fs/promises"
import { homedir } from "node:os"
import { dirname, join } from "node:path"
import { Failure } from "./Failure.ts"
import { Shell, variable } from "./Shell.ts"

const Details = Schema.Struct({
  org_details: Schema.Struct({ name: Schema.String }),
  user_details: Schema.Struct({ email: Schema.String }),
})

const Key = Schema.Struct({
  type: Schema.optionalWith(Schema.Literal("manual", "generated"), { default: () => "manual" }),
  key: Schema.String,
  name: Schema.String,
  note: Schema.optional(Schema.String),
  details: Schema.optional(Details),
})

const File = Schema.parseJson(
  Schema.Struct({
    version: Schema.optionalWith(Schema.Literal(1), { default: () => 1 as const }),
    default: Schema.optional(Schema.NullOr(Schema.String)),
    keys: Schema.optionalWith(Schema.Record({ key: Schema.String, value: Key }), { default: () => ({}) }),
  }),
)

/** A stored key. A generated one belongs to this machine alone and is deleted on the server with it. */
export type Key = typeof Key.Type

interface Stored {
  readonly default: string | undefined
  readonly keys: Readonly<Record<string, Key>>
}

const pathOf = Effect.map(Shell, (shell) =>
  join(variable(shell, "HOME") ?? variable(shell, "USERPROFILE") ?? homedir(), ".tinker", "credentials.json"),
)

const failed = (what: string, path: string) => (cause: unknown) =>
  new Failure({
    message: `Cannot ${what} ${path}: ${cause instanceof Error ? cause.message : String(cause)}`,
    hint: "Check that the file and its directory belong to you.",
    cause,
  })

const read: Effect.Effect<Stored, Failure, Shell> = Effect.gen(function* () {
  const path = yield* pathOf
  const text = yield* Effect.tryPromise({ try: () => readFile(path, "utf8"), catch: (cause) => cause }).pipe(
    Effect.asSome,
    Effect.catchIf(
      (cause) => cause instanceof Error && "code" in cause && (cause.code === "ENOENT" || cause.code === "ENOTDIR"),
      () => Effect.succeedNone,
    ),
    Effect.mapError(failed("read", path)),
  )
  if (Option.isNone(text)) return { default: undefined, keys: {} }
  const file = yield* Effect.mapError(
    Schema.decodeUnknown(File)(text.value),
    // A parse error would quote the file, including its keys.
    () =>
      new Failure({
        message: `${path} is not a valid credentials file`,
        hint: "Delete it and run 'tinkerfx auth login' again.",
      }),
  )
  return { default: file.default ?? undefined, keys: file.keys }
})

const write = ({ default: chosen, keys }: Stored): Effect.Effect<void, Failure, Shell> =>
  Effect.flatMap(pathOf, (path) =>
    Effect.tryPromise({
      try: async () => {
        const directory = dirname(path)
        if ((await stat(directory).catch(() => undefined)) === undefined) {
          await mkdir(directory, { recursive: true, mode: 0o700 })
          await chmod(directory, 0o700)
        }
        const temporary = join(directory, `.credentials.json.${randomBytes(6).toString("hex")}`)
        const content = { version: 1, ...(chosen === undefined ? {} : { default: chosen }), keys }
        try {
          const handle = await open(temporary, "wx", 0o600)
          await handle.writeFile(JSON.stringify(content, null, 2))
          await handle.sync()
          await handle.close()
          await rename(temporary, path)
        } catch (cause) {
          await rm(temporary, { force: true })
          throw cause
        }
      },
      catch: failed("write", path),
    }),
  )

/** The default key and its id. */
export const current: Effect.Effect<
  Option.Option<{ readonly id: string; readonly key: Key }>,
  Failure,
  Shell
> = Effect.map(read, (stored) => {
  const id = stored.default
  const key = id === undefined ? undefined : stored.keys[id]
  return id === undefined || key === undefined ? Option.none() : Option.some({ id, key })
})

/** Stores a key and makes it the default. */
export const add = (id: string, key: Key): Effect.Effect<void, Failure, Shell> =>
  Effect.flatMap(read, ({ keys }) => write({ default: id, keys: { ...keys, [id]: key } }))

/** Removes a key. */
export const remove = (id: string): Effect.Effect<void, Failure, Shell> =>
  Effect.flatMap(read, ({ default: chosen, keys }) =>
    write({
      default: chosen === id ? undefined : chosen,
      keys: Object.fromEntries(Object.entries(keys).filter(([other]) => other !== id)),
    }),
  )
