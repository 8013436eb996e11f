/** Creates files and directories that only the user of the process can read. */
import { chmodSync, closeSync, existsSync, mkdirSync, openSync } from "node:fs"

export const fileMode = 0o600
export const directoryMode = 0o700

/** Advice on errors of the operating system. */
const advice: Readonly<Record<string, string>> = {
  EROFS: "is on a read-only file system",
  EACCES: "cannot be written by this user",
  EPERM: "cannot be written by this user",
  ENOTDIR: "is not a directory",
  EEXIST: "is not a directory",
  ENOSPC: "is on a disk that is full",
}

/** Describes why a directory cannot be used, for an error of the system that a user can do something about. */
export const problemWith = (directory: string, cause: unknown): string | undefined => {
  const problem = cause instanceof Error ? advice[String(Reflect.get(cause, "code"))] : undefined
  return problem === undefined ? undefined : `${directory} ${problem}; use a directory that can be written`
}

/** Creates a directory if it does not exist. The mode of an existing one is the user's choice and stays. */
export const ensureDirectory = (path: string): void => void mkdirSync(path, { recursive: true, mode: directoryMode })

/** Creates a file if it does not exist, and restricts it in either case. */
export const ensureFile = (path: string): void => {
  closeSync(openSync(path, "a", fileMode))
  chmodSync(path, fileMode)
}

/** Restricts a file if it exists. */
export const restrict = (path: string): void => {
  if (existsSync(path)) chmodSync(path, fileMode)
}
