/** Runs a server on a data directory until it is killed: `Holder.ts <directory>`. */
import { Effect } from "effect"
import * as Raw from "./Raw.ts"

const [dataDirectory = ""] = process.argv.slice(2)

Effect.runFork(
  Raw.make({ dataDirectory }).pipe(
    Effect.zipRight(Effect.sync(() => console.log("ready"))),
    Effect.zipRight(Effect.never),
    Effect.scoped,
  ),
)
setInterval(() => {}, 60_000)
