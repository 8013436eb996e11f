/** Keeps the latest result of each kind of experiment in `docs/reliability.json`. */
import { readFile, writeFile } from "node:fs/promises"
import { fileURLToPath } from "node:url"
import { Effect } from "effect"

export interface Row {
  readonly id: string
  readonly promise: string
  /** What was tried, and how often. */
  readonly tried: string
  readonly outcome: string
  readonly command: string
}

export interface Results {
  readonly rows: ReadonlyArray<Row>
}

const path = fileURLToPath(new URL("../../../docs/reliability.json", import.meta.url))

/** Reads all results; there are none if the file does not exist. */
export const read: Effect.Effect<Results> = Effect.promise(async () => {
  try {
    return JSON.parse(await readFile(path, "utf8"))
  } catch {
    return { rows: [] }
  }
})

/** Adds a result, in place of an older one of the same kind. */
export const add = (row: Row): Effect.Effect<void> =>
  Effect.flatMap(read, ({ rows }) => {
    const others = rows.filter(({ id }) => id !== row.id)
    const sorted = [...others, row].toSorted((a, b) => (a.id < b.id ? -1 : 1))
    return Effect.promise(() => writeFile(path, `${JSON.stringify({ rows: sorted }, null, 2)}\n`))
  })
