/** Reads the price list that an option names. */
import * as Cost from "effect-tinker/Cost"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { resolve } from "node:path"
import { Failure } from "./Failure.ts"
import * as Files from "./Files.ts"
import { Shell } from "./Shell.ts"

const decode = Schema.decode(Schema.parseJson(Cost.Prices))

/** Returns the prices in a file, none for `free`, or those that the service lists. */
export const read = (given: string | undefined): Effect.Effect<Cost.Prices, Failure, Shell> =>
  Effect.gen(function* () {
    if (given === undefined) return Cost.listed
    if (given === "free") return Cost.free
    const text = yield* Files.read(resolve((yield* Shell).directory, given))
    return yield* Effect.mapError(
      decode(text),
      (cause) =>
        new Failure({
          message: `${given} is not a price list: ${cause.message.replaceAll(/\s+/g, " ")}`,
          hint: "It is JSON with date, source, models and storagePerGigabyteMonth; see docs/cost.md.",
          cause,
        }),
    )
  })
