/** The data of the sequence core: its state, the events that change it and the commands that follow. */
import type { Meaning } from "./Response.ts"

/** How the body of a request is written. Only passes have a choice; everything else is `"fixed"`. */
export type Encoding = "protobuf" | "json" | "fixed"

/** The reaction to a lost response if the request must not be carried out twice. */
export type OnUnknownOutcome = "probe" | "resend" | "stop"

/** Properties of a server that no flag reveals, so that the client has to find them out. */
export interface ServerTraits {
  /** How the server reads a pass; undefined until it accepted one. */
  encoding: "protobuf" | "json" | undefined
  /** A rejected request consumes its number. */
  rejectionConsumesSeq: boolean
  /** The server notices that a number was used before, so that a resend is safe; undefined until it had to be known. */
  deduplicates: boolean | undefined
}

/** An operation of the user, without its bytes. */
export interface Operation {
  readonly id: number
  /** The endpoint's name on the wire. */
  readonly name: string
  /** How many requests it consists of. Each takes one number. */
  readonly pieces: number
  /** Sends later pieces first, all at once; the server holds them until the first piece arrives. */
  readonly parallel: boolean
  /** Carrying it out twice does no harm. */
  readonly repeatable: boolean
  /** A piece is useful without the others. The gradients of half a batch are not. */
  readonly independentPieces: boolean
  /** A conflict may be about a name that is taken instead of the number. */
  readonly conflictMeansNameTaken: boolean
  /** Replaces the gradients that a partly accepted batch left behind. */
  readonly clearsPartial: boolean
  /** The operation directly before it, without which it must not be sent. */
  readonly follows: number | undefined
  /** Whether its pieces can be encoded in two ways. */
  readonly encoding: "choice" | "fixed"
  /** Small enough to be rendered while the request before it is in flight. */
  readonly mayPrepare: boolean
  /** The pieces a previous process recorded before it stopped: sent again as they are, or not at all. */
  readonly recorded: ReadonlyArray<{ readonly seq: number; readonly hasBytes: boolean }> | undefined
}

export interface Acknowledgement {
  readonly seq: number
  readonly requestId: string
}

/** Why nothing can be submitted any more. */
export interface Broken {
  readonly operation: string
  readonly seq: number
  readonly applied: "no" | "partial" | "unknown"
  /** The error that broke the sequence, as numbered by the driver. */
  readonly error: number
}

/** The outcome of one piece. */
export type PieceOutcome =
  | { readonly _tag: "Acknowledged" }
  /** The number is free; `rejected` if the server saw the request. */
  | { readonly _tag: "Free"; readonly seq: number; readonly rejected: boolean; readonly error: number }
  /** The name is taken, perhaps by its own first attempt. */
  | { readonly _tag: "NameTaken"; readonly error: number }
  | { readonly _tag: "Lost"; readonly applied: "no" | "unknown"; readonly error: number }

/** The outcome of an operation's submission. */
export type Outcome =
  | { readonly _tag: "Accepted" }
  | { readonly _tag: "Failed"; readonly error: number }
  | { readonly _tag: "Broken"; readonly broken: Broken }
  | { readonly _tag: "Cancelled" }
  | { readonly _tag: "Closed" }

/** Which request stands in for the original one. */
export type Substitute = "None" | "Leaner" | "OtherEncoding" | "OtherNumber"

/** A request as it goes out: its number and its encoding. */
export interface Request {
  readonly seq: number
  readonly encoding: Encoding
}

export interface Piece {
  readonly index: number
  /** The request as it was first given a number and an encoding. */
  original: Request
  /** The request being sent: the original or a substitute. */
  current: Request
  substitute: Substitute
  phase: "Waiting" | "Journaling" | "Sending" | "Checking" | "Deciding" | "Delaying" | "Done"
  /** The server may have received the request without the client knowing. */
  inDoubt: boolean
  /** The server failed on the encoding of the current request, so it did nothing. */
  unreadable: boolean
  /** A probe showed that the lost request never reached the server, and used up its number. */
  absent: boolean
  /** How often the request was delayed after a conflict. */
  delays: number
  /** Numbers to try before the next delay. */
  candidates: Array<number>
  /** The failure of the original request, while a substitute is tried or a delay passes. */
  failure: (Failure & { readonly unreadable: boolean }) | undefined
  /** The failed attempt or response that a decision is pending for. */
  pending: { readonly _tag: "Attempt" | "Response"; readonly failure: Failure } | undefined
  outcome: PieceOutcome | undefined
}

export interface Active {
  readonly operation: Operation
  readonly mode: "Serial" | "Parallel" | "Recorded"
  readonly pieces: readonly [Piece, ...ReadonlyArray<Piece>]
  /** The intents of all pieces are being written. */
  isRecording: boolean
  /** Numbers with an intent in the journal that were neither acknowledged nor withdrawn. */
  intents: Array<number>
}

/** How far the client has come in finding out whether the server deduplicates. */
export type Probing =
  | { readonly _tag: "AwaitingResult" }
  | { readonly _tag: "Used"; readonly seq: number }
  /** Nothing is known to be used yet, so number 0, which creating the model may have used. */
  | { readonly _tag: "Zero" }
  /** The number in doubt itself, first with one harmless request, then with another one. */
  | { readonly _tag: "Own"; readonly first: string | undefined }

export interface State {
  next: number
  /** The failed number that the next operation takes again. */
  retake: number | undefined
  /** Rejected numbers that were given to later requests. */
  rejected: Array<number>
  /**
   * Numbers that may be used for another reason than a rejection: a save whose name is taken, in doubt, or a probe of a
   * previous process that withdrew them.
   */
  maybeUsed: Array<number>
  /** Numbers whose results failed, with no success after them. */
  failed: Array<number>
  /** Acknowledged numbers whose results are not known. */
  unsettled: Array<number>
  /** The highest number that is certainly used. */
  proven: Acknowledgement | undefined
  newest: Acknowledgement | undefined
  traits: ServerTraits
  probing: Probing | undefined
  broken: Broken | undefined
  queue: Array<Operation>
  active: Active | undefined
  closed: boolean
  readonly journaled: boolean
  readonly onUnknownOutcome: OnUnknownOutcome
}

/** A failed response, reduced to what the rules need. */
export interface Failure {
  readonly meaning: Meaning
  readonly error: number
  /** The server asks for a retry. */
  readonly asksForRetry: boolean
  /** The server may object to the encoding. */
  readonly mayDislikeEncoding: boolean
  /** The server may have failed on the encoding instead of refusing it. */
  readonly mayFailOnEncoding: boolean
  /** The request can be written again without fields that the server does not know. */
  readonly leaner: boolean
}

export type Event =
  | { readonly _tag: "Enqueued"; readonly operation: Operation }
  | { readonly _tag: "Cancelled"; readonly id: number }
  /** The turn of the first operation in the queue has come. */
  | { readonly _tag: "TurnStarted"; readonly traits: ServerTraits }
  | { readonly _tag: "Journaled"; readonly piece: number }
  | { readonly _tag: "JournalFailed"; readonly piece: number; readonly error: number }
  /** An attempt failed that the retry policy would repeat. */
  | { readonly _tag: "AttemptFailed"; readonly piece: number; readonly failure: Failure }
  | { readonly _tag: "Accepted"; readonly piece: number; readonly requestId: string }
  | { readonly _tag: "Refused"; readonly piece: number; readonly failure: Failure }
  | { readonly _tag: "EncodingChecked"; readonly piece: number; readonly readsOnlyJson: boolean }
  | { readonly _tag: "ResultHeard" }
  | {
      readonly _tag: "Probed"
      /** `Executed`: the server carried out the harmless request. */
      readonly answer: "Conflict" | "SameRequest" | "Executed" | "Unknown"
      readonly requestId: string | undefined
    }
  | { readonly _tag: "DelayOver"; readonly piece: number }
  | {
      readonly _tag: "Settled"
      readonly operation: string
      readonly seq: number
      readonly requestId: string
      /** It was sent more than once, or by a previous process. */
      readonly inDoubt: boolean
      readonly conflictMeansNameTaken: boolean
      readonly result: "Succeeded" | "Failed" | "Conflict" | "Unknown"
      readonly error: number
    }
  | { readonly _tag: "PartialAccepted" }
  /** Everything that is queued ends; `force` also ends the operation that is being submitted. */
  | { readonly _tag: "Closed"; readonly force: boolean }

/** A record that only speeds up a resume. */
export type JournalNote =
  | { readonly _tag: "Withdrawn"; readonly seq: number }
  | { readonly _tag: "Acknowledged"; readonly seq: number; readonly requestId: string }

export type JournalEntry =
  | { readonly _tag: "Intent"; readonly piece: number; readonly seq: number; readonly encoding: Encoding }
  | JournalNote

export type Command =
  /** Writes intents durably and answers with `Journaled` or `JournalFailed`. */
  | { readonly _tag: "Journal"; readonly piece: number; readonly entries: ReadonlyArray<JournalEntry> }
  /** Records what only speeds up a resume; a failure is logged and changes nothing. */
  | { readonly _tag: "Note"; readonly entries: ReadonlyArray<JournalNote> }
  | { readonly _tag: "Send"; readonly piece: number; readonly seq: number; readonly encoding: Encoding }
  /** Renders an operation that is probably sent next under this number. */
  | { readonly _tag: "Prepare"; readonly id: number; readonly seq: number; readonly encoding: Encoding }
  | { readonly _tag: "Delay"; readonly piece: number; readonly millis: number; readonly error: number }
  | { readonly _tag: "CheckEncoding"; readonly piece: number }
  /** Waits for the result of any acknowledged request and answers with `ResultHeard`. */
  | { readonly _tag: "AwaitResult" }
  /** Sends a harmless request under a number and answers with `Probed`. The two variants differ in their bytes. */
  | {
      readonly _tag: "Probe"
      readonly seq: number
      readonly requestId: string | undefined
      readonly variant: "first" | "second"
    }
  /** Answers an `AttemptFailed`. */
  | { readonly _tag: "Decide"; readonly piece: number; readonly resend: boolean }
  | { readonly _tag: "Learn"; readonly traits: Readonly<ServerTraits> }
  | {
      readonly _tag: "Poll"
      readonly id: number
      readonly piece: number
      readonly seq: number
      readonly requestId: string
      readonly inDoubt: boolean
    }
  | { readonly _tag: "Complete"; readonly id: number; readonly outcome: Outcome }

/** Where a client starts: at number 1, or where a previous process stopped. */
export interface Start {
  readonly next: number
  readonly newest: Acknowledgement | undefined
  readonly proven: Acknowledgement | undefined
  /** Numbers from `next` on that were withdrawn and that the server may think otherwise about. */
  readonly withdrawn: ReadonlyArray<number>
  readonly failed: ReadonlyArray<number>
  readonly unsettled: ReadonlyArray<number>
  readonly broken: Broken | undefined
}
