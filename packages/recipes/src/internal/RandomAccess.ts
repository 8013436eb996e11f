/** Reads any part of an open file. */
import type { PlatformError } from "@effect/platform/Error"
import * as FileSystem from "@effect/platform/FileSystem"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"

/** An open file. */
export interface RandomAccess {
  readonly size: number
  /** Tells two states of the file apart: its size and when it was changed. */
  readonly state: Effect.Effect<string, PlatformError>
  /** Reads bytes from an offset; fewer if the file ends there. */
  readonly read: (offset: number, bytes: number) => Effect.Effect<Uint8Array, PlatformError>
}

/** Opens a file until the scope closes. */
export const open = (path: string): Effect.Effect<RandomAccess, PlatformError, FileSystem.FileSystem | Scope.Scope> =>
  Effect.gen(function* () {
    const files = yield* FileSystem.FileSystem
    const file = yield* files.open(path, { flag: "r" })
    const { size } = yield* file.stat
    // The position belongs to the file, so only one read at a time may set and use it.
    const alone = yield* Effect.makeSemaphore(1)
    const readAll = (buffer: Uint8Array, done: number): Effect.Effect<Uint8Array, PlatformError> =>
      done === buffer.length
        ? Effect.succeed(buffer)
        : Effect.flatMap(file.read(buffer.subarray(done)), (count) =>
            count === FileSystem.Size(0)
              ? Effect.succeed(buffer.subarray(0, done))
              : readAll(buffer, done + Number(count)),
          )
    return {
      size: Number(size),
      state: Effect.map(
        file.stat,
        ({ mtime, size }) =>
          `${size} bytes, changed at ${Option.match(mtime, { onNone: () => "?", onSome: (time) => time.toISOString() })}`,
      ),
      read: (offset, bytes) =>
        alone.withPermits(1)(
          Effect.zipRight(
            file.seek(offset, "start"),
            Effect.suspend(() => readAll(new Uint8Array(bytes), 0)),
          ),
        ),
    }
  })
