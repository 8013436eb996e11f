/** Prints what a command found: a table, or JSON with `--format json`. */
import * as Effect from "effect/Effect"
import * as Json from "./Json.ts"
import { Shell } from "./Shell.ts"
import * as Table from "./Table.ts"

export type Format = "table" | "json"

/** The options of the program, which every command gets. */
export interface Settings {
  readonly format: Format
  readonly verbose: boolean
}

export interface Output {
  readonly json: () => Json.Value
  readonly table: () => Table.Table
}

/** Prints the result of a command in the chosen format. */
export const print = (format: Format, output: Output): Effect.Effect<void, never, Shell> =>
  Effect.flatMap(Shell, ({ hasColors, out, width }) =>
    out(
      format === "json"
        ? `${Json.pretty(output.json())}\n`
        : Table.render(output.table(), width, hasColors ? Table.colored : Table.plain),
    ),
  )

/** The columns of tables that list the properties of one thing. */
export const properties = ["Property", "Value"]

export interface Records {
  readonly records: ReadonlyArray<Json.Record>
  readonly table: () => Table.Table
}

/** Prints records: a table, or one record per line. Only the official commands print one JSON document instead. */
export const printRecords = (format: Format, { records, table }: Records): Effect.Effect<void, never, Shell> =>
  Effect.flatMap(Shell, ({ hasColors, out, width }) =>
    out(
      format === "json"
        ? records.map((record) => `${Json.compact(record)}\n`).join("")
        : Table.render(table(), width, hasColors ? Table.colored : Table.plain),
    ),
  )
