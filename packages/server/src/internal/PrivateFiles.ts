/** Creates files and directories that only the user of the process can read. */
import { chmodSync, closeSync, existsSync, mkdirSync, openSync } from "node:fs"

export const fileMode = 0o600
export const directoryMode = 0o700

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
