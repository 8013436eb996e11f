/** Everything that was seen of one experiment. */
import type * as Child from "../lab/Child.ts"
import type { Record } from "../lab/Record.ts"
import type { Report } from "../program/Report.ts"
import type { Plan, Planned } from "../proxy/Fault.ts"

export interface Observation {
  readonly plan: Plan
  readonly injected: ReadonlyArray<Planned>
  /** Undefined if the client reported nothing in time. */
  readonly report: Report | undefined
  /** How the client ended by itself; undefined if it had to be killed. */
  readonly end: Child.End | undefined
  readonly record: Record
  /** The output of client and server, and all files, by their name. */
  readonly texts: Readonly<globalThis.Record<string, string>>
  /** The requests at the proxy. */
  readonly log: ReadonlyArray<string>
  readonly millis: number
}
