import { open } from "node:fs/promises"

/** Returns the system error code of a file error, e.g. `ENOENT`. */
export const codeOf = (error: unknown): string | undefined =>
  error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : undefined

/** Flushes a directory, which makes new names in it durable. */
export const syncDirectory = async (path: string): Promise<void> => {
  // On Windows, directories cannot be opened and need no flush.
  if (globalThis.process.platform === "win32") return
  const directory = await open(path, "r")
  try {
    await directory.sync()
  } finally {
    await directory.close()
  }
}
