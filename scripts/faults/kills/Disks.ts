import { Effect } from "effect"
import type { Bundles } from "../lab/Bundles.ts"
import type { Row } from "../results/Results.ts"
export const run = (_: Bundles): Effect.Effect<ReadonlyArray<Row>> => Effect.succeed([])
