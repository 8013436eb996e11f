/** A temporary directory that is removed with the scope. */
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Effect } from "effect"

export const directory = Effect.acquireRelease(
  Effect.promise(() => mkdtemp(join(tmpdir(), "effect-tinker-lab-"))),
  (path) => Effect.promise(() => rm(path, { recursive: true, force: true })),
)
