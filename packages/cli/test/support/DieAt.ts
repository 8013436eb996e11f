/**
 * Preloaded by a test: kills the process with SIGKILL while it writes weights, at the step named by `TINKER_DIE_AT`, or
 * after that fraction of the bytes.
 */
import fs from "node:fs/promises"
import { syncBuiltinESMExports } from "node:module"

const place = process.env["TINKER_DIE_AT"] ?? ""
const at = (here: string): void => {
  if (here === place) process.kill(process.pid, "SIGKILL")
}
const isWeights = (path: unknown): boolean => /[/\\]weights([/\\]|$)/.test(String(path))

const { open, rename } = fs

fs.open = async (...args) => {
  const handle = await open(...args)
  const [path, flags] = args
  if (!isWeights(path)) return handle
  const { sync, writeFile } = handle
  if (flags === "r")
    handle.sync = async () => {
      await sync.call(handle)
      at("flushed")
    }
  else {
    at("opened")
    handle.writeFile = async (bytes) => {
      if (bytes instanceof Uint8Array && Number(place) >= 0 && place !== "") {
        await handle.write(bytes, 0, Math.floor(bytes.length * Number(place)))
        process.kill(process.pid, "SIGKILL")
      }
      await writeFile.call(handle, bytes)
    }
  }
  return handle
}

fs.rename = async (from, to) => {
  if (isWeights(to)) at("synced")
  await rename(from, to)
  if (isWeights(to)) at("renamed")
}

syncBuiltinESMExports()
