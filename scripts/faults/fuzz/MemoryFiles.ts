/** A file system in memory, with what unpacking an archive needs: thousands of archives a second, and no disk. */
import { FileSystem } from "@effect/platform"
import { SystemError, type SystemErrorReason } from "@effect/platform/Error"
import { Effect } from "effect"

const failure = (method: string, reason: SystemErrorReason, pathOrDescriptor: string) =>
  Effect.fail(new SystemError({ module: "FileSystem", method, reason, pathOrDescriptor }))

const parentOf = (path: string): string => path.slice(0, path.lastIndexOf("/"))

/** Creates a file system whose root is a directory. A write outside of the root is a defect. */
export const make = (root: string): FileSystem.FileSystem => {
  const directories = new Set([root])
  const files = new Map<string, number>()
  const isInside = (path: string) => path === root || path.startsWith(`${root}/`)
  const inside = <A, E>(path: string, effect: Effect.Effect<A, E>) =>
    isInside(path) && !path.split("/").includes("..")
      ? Effect.suspend(() => effect)
      : Effect.dieMessage(`${JSON.stringify(path)} is outside of the directory`)

  const makeDirectory = (path: string, recursive: boolean): Effect.Effect<void, SystemError> => {
    if (files.has(path)) return failure("makeDirectory", "AlreadyExists", path)
    if (directories.has(path)) return recursive ? Effect.void : failure("makeDirectory", "AlreadyExists", path)
    const parent = parentOf(path)
    const before = directories.has(parent)
      ? Effect.void
      : recursive
        ? makeDirectory(parent, true)
        : failure("makeDirectory", "NotFound", path)
    return Effect.map(before, () => void directories.add(path))
  }

  const file = (path: string) =>
    ({
      sync: Effect.void,
      writeAll: (bytes: Uint8Array) => Effect.sync(() => void files.set(path, (files.get(path) ?? 0) + bytes.length)),
    }) as unknown as FileSystem.File

  return FileSystem.makeNoop({
    readDirectory: (path) => (directories.has(path) ? Effect.succeed([]) : failure("readDirectory", "NotFound", path)),
    makeDirectory: (path, options) =>
      inside(
        path,
        Effect.suspend(() => makeDirectory(path, options?.recursive === true)),
      ),
    open: (path, options) =>
      inside(
        path,
        Effect.suspend(() => {
          if (options?.flag === "r") return Effect.succeed(file(path))
          if (files.has(path) || directories.has(path)) return failure("open", "AlreadyExists", path)
          files.set(path, 0)
          return Effect.succeed(file(path))
        }),
      ),
    rename: (from, to) => inside(from, inside(to, Effect.void)),
    remove: (path) => inside(path, Effect.void),
  })
}
