/** Reads and writes files of the user. Failures say what to do. */
import * as Effect from "effect/Effect"
import { mkdir, readFile, writeFile } from "node:fs/promises"
import { dirname } from "node:path"
import { Failure } from "./Failure.ts"

const reasonOf = (cause: unknown): string =>
  cause instanceof Error && "code" in cause && cause.code === "ENOENT"
    ? "there is no such file"
    : cause instanceof Error
      ? cause.message
      : String(cause)

/** Reads a text. */
export const read = (path: string): Effect.Effect<string, Failure> =>
  Effect.tryPromise({
    try: () => readFile(path, "utf8"),
    catch: (cause) =>
      new Failure({ message: `Cannot read ${path}: ${reasonOf(cause)}`, hint: "Check the name of the file.", cause }),
  })

/** Writes a text, into a directory that is created if needed. */
export const write = (path: string, text: string): Effect.Effect<void, Failure> =>
  Effect.tryPromise({
    try: async () => {
      await mkdir(dirname(path), { recursive: true })
      await writeFile(path, text)
    },
    catch: (cause) =>
      new Failure({
        message: `Cannot write ${path}: ${reasonOf(cause)}`,
        hint: "Check that the directory exists and can be written.",
        cause,
      }),
  })
