/** What the test tells its server, and is told by it. */

/** When to kill the client. */
export interface Plan {
  readonly pid: number
  /** At which of its requests, from 1. */
  requests: number
  /**
   * `before` it is read, `after` it was carried out and before it is answered, as soon as it is `answered`, or `soon`
   * after it has come, whatever happens then.
   */
  readonly when: "before" | "after" | "answered" | "soon"
  /** For `soon`, in milliseconds. */
  readonly delay: number
}

/** What was done to the model. */
export interface Done {
  readonly models: number
  /** Fingerprints of the requests, in order. */
  readonly applied: ReadonlyArray<string>
  /** Their numbers. */
  readonly numbers: ReadonlyArray<number>
  readonly weights: number
}

/** How a client says that it ended. */
export type Ending =
  | { readonly end: "done" }
  | { readonly end: "SequenceBroken"; readonly applied: string; readonly seq: number }
