/** Bad conditions for a process: file systems that are full, read-only or slow, and a clock that jumps. */
import { spawnSync } from "node:child_process"
import type { Conditions } from "../lab/Child.ts"

const mounted =
  (options: string) =>
  (directory: string): Conditions => ({
    wrapper: [
      "unshare",
      "--map-root-user",
      "--mount",
      "sh",
      "-c",
      `mount -t tmpfs -o ${options} tmpfs "$0" && exec "$@"`,
      directory,
    ],
  })

/** Whether this system lets a process mount a file system of its own. */
export const canMount: boolean =
  spawnSync("unshare", ["--map-root-user", "--mount", "sh", "-c", "mount -t tmpfs tmpfs /mnt"]).status === 0

/** A file system of so many kibibytes. */
export const small = (kibibytes: number) => mounted(`size=${kibibytes}k`)

export const readOnly = mounted("ro")

/** Loads code before the program. */
const preloaded = (code: string) => (): Conditions => ({
  node: ["--import", `data:text/javascript,${encodeURIComponent(code)}`],
})

/** Every write and flush takes this much longer. */
export const slow = (millis: number) =>
  preloaded(`
    import { open } from "node:fs/promises"
    const file = await open("/dev/null")
    const handle = Object.getPrototypeOf(file)
    await file.close()
    for (const name of ["write", "writev", "writeFile", "sync", "datasync"]) {
      const plain = handle[name]
      handle[name] = async function (...args) {
        await new Promise((resume) => setTimeout(resume, ${millis}))
        return plain.apply(this, args)
      }
    }`)

/** The time of day jumps by so many milliseconds, back and forth, every 200 ms. */
export const jumping = (millis: number) =>
  preloaded(`
    const now = Date.now.bind(Date)
    const startedAt = now()
    Date.now = () => now() + (Math.floor((now() - startedAt) / 200) % 2 === 1 ? ${millis} : 0)`)
