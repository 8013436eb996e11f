/** The messages between the load generator and the processes that it starts. */

export interface LoadSettings {
  readonly baseUrl: string
  readonly kind: "samples" | "tenants" | "soak"
  /** The number of samples in flight, or of tenants. */
  readonly count: number
  /** The duration of a soak. */
  readonly seconds: number
}

/** The variable that holds the keys of all tenants, with commas between them. */
export const keysVariable = "TINKER_LAB_KEYS"

/** The state of a process at one time. */
export interface Point {
  readonly seconds: number
  /** In bytes. */
  readonly heap: number
  readonly resident: number
  /** Open sockets, timers and the like. */
  readonly handles: number
  readonly done: number
}

export interface LoadReport {
  readonly done: number
  readonly errors: Readonly<Record<string, number>>
  readonly seconds: number
  readonly points: ReadonlyArray<Point>
  /** What each tenant had received when half of everything was done. */
  readonly shares: ReadonlyArray<number>
  /** What is left after everything was closed. */
  readonly handlesLeft: ReadonlyArray<string>
}
