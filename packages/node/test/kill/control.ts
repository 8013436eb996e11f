/** The messages between the test and its server. */

/** When to kill the client. */
export interface Plan {
  readonly pid: number
  /** The number of the request at which to kill, from 1. */
  requests: number
  /**
   * `before` the request is handled, `after` it was applied but before the response, right after it was `answered`, or
   * `soon` after it arrived.
   */
  readonly when: "before" | "after" | "answered" | "soon"
  /** The delay for `soon`, in milliseconds. */
  readonly delay: number
}

/** The requests that were applied to the model. */
export interface Done {
  readonly models: number
  /** Hashes of the requests, in order. */
  readonly applied: ReadonlyArray<string>
  /** Sequence numbers of the requests. */
  readonly numbers: ReadonlyArray<number>
  readonly weights: number
}

/** How a client reports its end. */
export type Ending =
  | { readonly end: "done" }
  | { readonly end: "SequenceBroken"; readonly applied: string; readonly seq: number }
