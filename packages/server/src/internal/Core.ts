/** The state and services that all parts of a server share. */
import type * as Scope from "effect/Scope"
import type * as CheckpointFiles from "../CheckpointFiles.ts"
import type * as ModelHost from "../ModelHost.ts"
import type { Settings } from "../ServerOptions.ts"
import type * as Store from "../Store.ts"
import type { State } from "./State.ts"
import type { Turns } from "./Turns.ts"

/** The keys that sign; each is for one purpose, so that a signature for one is worthless for the other. */
export interface Secrets {
  readonly tokens: Uint8Array
  readonly urls: Uint8Array
}

export interface Core {
  readonly settings: Settings
  readonly state: State
  readonly store: Store.Service
  readonly files: CheckpointFiles.Service
  readonly host: ModelHost.Service
  /** Lets tenants take turns at sampling. */
  readonly turns: Turns
  /** The scope of the server; background work stops when it closes. */
  readonly scope: Scope.Scope
  readonly secrets: Secrets
  /** The hashes of the accepted keys; none if every key is accepted. */
  readonly keyHashes: ReadonlyArray<Uint8Array>
}

/** Finds a base model by name. */
export const baseModelOf = ({ host }: Core, name: string): ModelHost.BaseModel | undefined =>
  host.models.find((model) => model.name === name)
