/** The faults that the proxy can inject into one exchange, as plain data that is logged and repeated by seed. */

/** Before the request reaches the server, or after the server has answered it. */
export type Moment = "before" | "after"

export type Fault =
  /** Resets the connection: before or after the work, or while the body of the request is being sent. */
  | { readonly _tag: "Reset"; readonly moment: Moment | "body" }
  | { readonly _tag: "Delay"; readonly moment: Moment; readonly millis: number }
  /** Sends a part of the response, and ends as if it were complete (`clean`) or by closing the connection. */
  | { readonly _tag: "Truncate"; readonly clean: boolean; readonly fraction: number }
  /** Sends the request twice and returns one of the two responses. */
  | { readonly _tag: "Duplicate"; readonly answer: "first" | "second"; readonly apart: number }
  /** Holds the request until another one has overtaken it. */
  | { readonly _tag: "Reorder" }
  /** Flips bits of one byte. */
  | {
      readonly _tag: "Corrupt"
      readonly side: "request" | "response"
      readonly fraction: number
      readonly mask: number
    }
  /** Sends nothing for a while, or until the client gives up, and closes the connection. */
  | { readonly _tag: "Stall"; readonly moment: Moment; readonly millis: number }
  /** Answers with a status: instead of the server, or although the server has done the work. */
  | {
      readonly _tag: "Status"
      readonly moment: Moment
      readonly status: number
      readonly headers: Readonly<Record<string, string>>
      readonly body: string
    }
  /** Answers 200 with something else than the response. */
  | { readonly _tag: "Unreadable"; readonly moment: Moment; readonly how: "empty" | "html" | "encoding" | "json" }
  /** Answers with a small compressed body that becomes very large. */
  | { readonly _tag: "Bomb"; readonly moment: Moment }
  /** Answers a poll with `try_again`, or with 410 because the result is gone. */
  | { readonly _tag: "TryAgain" }
  | { readonly _tag: "Expired" }
  /** Kills the server and starts it again on the same data. */
  | { readonly _tag: "Restart"; readonly moment: Moment; readonly gateway: "reset" | "502" }

/** A fault at the `nth` request (from 0) of an endpoint, and at the `times - 1` requests of this endpoint after it. */
export interface Planned {
  readonly endpoint: string
  readonly nth: number
  readonly times: number
  readonly fault: Fault
}

/** Everything that a seed decides. */
export interface Plan {
  readonly seed: number
  readonly parallel: boolean
  readonly jwt: boolean
  readonly faults: ReadonlyArray<Planned>
}

/** Describes a fault in a few words. */
export const describe = ({ endpoint, fault, nth, times }: Planned): string => {
  const { _tag, ...details } = fault
  const values = Object.entries(details).map(([name, value]) => `${name} ${JSON.stringify(value)}`)
  const repeated = times > 1 ? ` ×${times}` : ""
  return `${endpoint}#${nth}${repeated}: ${_tag}${values.length === 0 ? "" : ` (${values.join(", ")})`}`
}

/** Whether the bytes of a message are changed in a way that only a checksum or TLS could detect. */
export const isTampering = ({ _tag }: Fault): boolean => _tag === "Corrupt"

/** Whether the response is untrue: it refuses a request although the server did the work. */
export const isLie = (fault: Fault): boolean =>
  fault._tag === "Status" &&
  fault.moment === "after" &&
  fault.status >= 400 &&
  fault.status < 500 &&
  fault.status !== 408
