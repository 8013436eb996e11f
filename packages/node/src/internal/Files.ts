import { open } from "node:fs/promises"

/** The system's name for what went wrong with a file, e.g. `ENOENT`. */
export const codeOf = (error: unknown): string | undefined =>
  error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : undefined

/** A new name in a directory is durable only when the directory is. */
export const syncDirectory = async (path: string): Promise<void> => {
  // There a directory can't be opened, and need not be.
  if (globalThis.process.platform === "win32") return
  const directory = await open(path, "r")
  try {
    await directory.sync()
  } finally {
    await directory.close()
  }
}
