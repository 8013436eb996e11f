/** Reads what a killed server recorded: the requests that it accepted, and the weights that it saved. */
import { readFile } from "node:fs/promises"
import { join } from "node:path"
import { Store } from "@effect-tinker/server"
import { Effect } from "effect"
import { sha256 } from "../program/Data.ts"

/** An accepted request of the sequence. */
export interface Accepted {
  readonly seq: number
  readonly operation: string
  readonly state: Store.StoredFuture["state"]
}

export interface Record {
  /** The accepted requests of the model in the order of their numbers, without the SDK's probes. */
  readonly accepted: ReadonlyArray<Accepted>
  /** Hashes of the saved weights, by the last two parts of their path. */
  readonly weights: Readonly<globalThis.Record<string, string>>
}

/**
 * The smallest result of a pass of the programs. The SDK probes the server with passes of one token, which change
 * nothing and have smaller results.
 */
const smallestPass = 180

/** Whether a request is one of the program: neither the creation of the model nor a probe. */
const isOfProgram = ({ operation, size, state }: Store.StoredFuture): boolean => {
  if (operation === "create_model") return false
  return !operation.startsWith("forward") || state !== "result" || size >= smallestPass
}

const isCheckpoint = (
  row: unknown,
): row is { readonly path: string; readonly file: string; readonly modelId: string } =>
  typeof row === "object" && row !== null && "path" in row && "file" in row

const encoded = (name: string) => encodeURIComponent(name).replaceAll(".", "%2E").replaceAll("*", "%2A")

/** Reads the record of a model from a data directory that no server uses. */
export const read = (dataDirectory: string, modelId: string | undefined): Effect.Effect<Record, Store.StoreError> =>
  Effect.gen(function* () {
    const store = yield* Store.open(dataDirectory)
    const futures = yield* store.futures
    const accepted = futures
      .filter((row) => row.lane === modelId && isOfProgram(row))
      .flatMap(({ operation, seq, state }) => (seq === null ? [] : [{ seq, operation, state }]))
      .toSorted((a, b) => a.seq - b.seq)
    const checkpoints = (yield* store.all("checkpoint")).filter(isCheckpoint)
    const weights = yield* Effect.forEach(
      checkpoints.filter(({ path }) => modelId !== undefined && path.includes(modelId)),
      ({ file, path }) =>
        Effect.promise(async () => {
          const bytes = await readFile(join(dataDirectory, "files", "weights", encoded(file)))
          return [path.split("/").slice(-2).join("/"), sha256(bytes)] as const
        }),
    )
    return { accepted, weights: Object.fromEntries(weights) }
  }).pipe(Effect.scoped)
