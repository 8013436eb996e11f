/** Reads what a run has written earlier. Anything else in its files is `RunStoreFailed` with the place. */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Schema from "effect/Schema"
import { RunStoreFailed } from "../RunError.ts"
import type { Service as Store } from "../RunStore.ts"
import * as Problems from "./Problems.ts"

export const damaged = (store: Pick<Store, "name">, file: string, detail: string): RunStoreFailed =>
  new RunStoreFailed({ reason: "Corrupt", run: store.name, file, detail })

/** Decodes the text of a file by a schema. */
export const decode = <A>(
  store: Pick<Store, "name">,
  file: string,
  schema: Schema.Schema<A, string>,
  text: string,
): Either.Either<A, RunStoreFailed> =>
  Either.mapLeft(Schema.decodeEither(schema)(text), (error) => damaged(store, file, Problems.text(error)))

/** Decodes each line of a file by a schema. */
export const lines = <A>(
  store: Store,
  file: string,
  schema: Schema.Schema<A, string>,
): Effect.Effect<ReadonlyArray<A>, RunStoreFailed> => {
  const decode = Schema.decodeEither(schema)
  return Effect.flatMap(store.lines(file), (lines) =>
    Effect.forEach(lines, (line, index) =>
      Either.mapLeft(decode(line), (error) => damaged(store, file, `line ${index + 1}: ${Problems.text(error)}`)),
    ),
  )
}
