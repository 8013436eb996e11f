import { FileSystem } from "@effect/platform"
import { Effect } from "effect"

/** Writes a temporary file, which is deleted at the end of the scope. */
export const fileOf = (content: string | Uint8Array, suffix = "") =>
  Effect.gen(function* () {
    const files = yield* FileSystem.FileSystem
    const path = yield* files.makeTempFileScoped({ suffix })
    yield* files.writeFile(path, typeof content === "string" ? new TextEncoder().encode(content) : content)
    return path
  })

/** Writes fields as RFC 4180 wants them. */
export const csvOf = (rows: ReadonlyArray<ReadonlyArray<string>>, delimiter = ",", end = "\r\n") =>
  rows
    .map((fields) =>
      fields
        .map((field) =>
          /["\r\n]/.test(field) || field.includes(delimiter) || field === ""
            ? `"${field.replaceAll('"', '""')}"`
            : field,
        )
        .join(delimiter),
    )
    .join(end)
