/** What a client of the lab reports about itself, as one line of JSON. */

/** What an error claims about a request of the training sequence. */
export interface ErrorReport {
  readonly tag: string
  readonly message: string
  /** Whether the error is one of the SDK's own, or a defect. */
  readonly isTyped: boolean
  readonly reason?: string | undefined
  /** The wire name of the operation that failed. */
  readonly operation?: string | undefined
  readonly applied?: string | undefined
  readonly acknowledged?: number | undefined
}

/** One part of the program. Its value is compared with that of a run without faults. */
export interface Entry {
  readonly name: string
  readonly millis: number
  readonly value?: unknown
  /** The errors that ended this part: one, or those of the two halves of a step by name. */
  readonly errors?: Readonly<Record<string, ErrorReport>> | undefined
}

/** What the process still held after everything was closed. */
export interface Leftovers {
  readonly fibers: number
  /** Permits of the limiter that were not returned, and waiting callers. */
  readonly permits: number
  /** Open sockets and files that were not open before. */
  readonly descriptors: ReadonlyArray<string>
  readonly handles: ReadonlyArray<string>
}

export interface Report {
  readonly entries: ReadonlyArray<Entry>
  readonly modelId: string | undefined
  readonly leftovers: Leftovers
  /** The peak of the resident memory, in bytes. */
  readonly peakMemory: number
}
