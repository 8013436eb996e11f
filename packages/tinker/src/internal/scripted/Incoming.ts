/** Parses requests. */
import * as Either from "effect/Either"
import * as Predicate from "effect/Predicate"
import type * as Scripted from "../../testing/ScriptedServer.ts"
import * as PassRequest from "../../protocol/PassRequest.ts"
import type { ForwardBackwardRequest } from "../codec/proto/tinker_public_pb.ts"
import * as Hash from "../util/Hash.ts"
import type { Mutable, Outcome, State } from "./State.ts"

export type Body =
  | { readonly _tag: "None" }
  | { readonly _tag: "Json"; readonly value: unknown }
  | { readonly _tag: "Protobuf"; readonly message: ForwardBackwardRequest }
  | { readonly _tag: "Unreadable"; readonly status: 415 | 422; readonly problem: string }

/** The scripted outcome of an accepted request. */
export interface Fate {
  readonly outcome?: Outcome
  readonly expires?: boolean
  readonly pause?: Extract<Scripted.Action, { readonly stateFor: unknown }>["stateFor"]
}

/** A request during processing. */
export class Call {
  readonly seen: Mutable<Scripted.Seen>
  readonly body: Body
  /** The path parameters. */
  readonly params: Readonly<Record<string, string>>
  readonly state: State
  readonly now: number
  readonly fate: Fate
  private hash: string | undefined = undefined

  constructor(seen: Mutable<Scripted.Seen>, body: Body, params: Call["params"], state: State, now: number, fate: Fate) {
    this.seen = seen
    this.body = body
    this.params = params
    this.state = state
    this.now = now
    this.fate = fate
  }

  /** Returns a copy with a scripted outcome. */
  destined(fate: Fate): Call {
    return new Call(this.seen, this.body, this.params, this.state, this.now, fate)
  }

  /** Hash of the body, computed lazily because only requests that create or change something need it. */
  get bodyHash(): string {
    return (this.hash ??= Hash.fingerprint(this.seen.bytes))
  }
}

const root = "/api/v1/"
const utf8 = new TextDecoder()
const noParams: Call["params"] = {}
const noFate: Fate = {}

const readBody = ({ body, headers }: Scripted.Request): Body => {
  if (body.length === 0) return { _tag: "None" }
  const encoding = headers["content-encoding"] ?? "identity"
  if (encoding !== "identity") return { _tag: "Unreadable", status: 415, problem: `can't read ${encoding}` }
  if (headers["content-type"]?.startsWith("application/x-protobuf") === true) {
    return Either.match(PassRequest.message(body), {
      onLeft: (problem) => ({ _tag: "Unreadable", status: 422, problem }),
      onRight: (message) => ({ _tag: "Protobuf", message }),
    })
  }
  try {
    return { _tag: "Json", value: JSON.parse(utf8.decode(body)) }
  } catch {
    return { _tag: "Unreadable", status: 422, problem: "JSON decode error" }
  }
}

/** Returns a field of a JSON object body. */
export const fieldOf = (body: Body, name: string): unknown =>
  body._tag === "Json" && Predicate.isRecord(body.value) ? body.value[name] : undefined

const numberOf = (body: Body): number | undefined => {
  const number = body._tag === "Protobuf" ? body.message.seqId : fieldOf(body, "seq_id")
  return typeof number === "number" ? number : undefined
}

export const read = (
  request: Scripted.Request,
  now: number,
  state: State,
  find: (method: string, path: string) => Matched | undefined,
): Call => {
  const query = request.path.indexOf("?")
  const path = query < 0 ? request.path : request.path.slice(0, query)
  const start = path.indexOf(root)
  const matched = start < 0 ? undefined : find(request.method, path.slice(start + root.length))
  const body = readBody(request)
  const seen: Call["seen"] = {
    at: now,
    operation: matched?.operation,
    method: request.method,
    path,
    headers: request.headers,
    json: body._tag === "Json" ? body.value : undefined,
    bytes: request.body,
    seq: numberOf(body),
    answered: undefined,
  }
  return new Call(seen, body, matched?.params ?? noParams, state, now, noFate)
}

export interface Matched {
  readonly operation: Scripted.Operation
  readonly params: Readonly<Record<string, string>>
}

/** Returns the model id in a body, or an empty string. */
export const modelIdOf = (body: Body): string =>
  body._tag === "Protobuf" ? body.message.modelId : (textOf(fieldOf(body, "model_id")) ?? "")

const textOf = (value: unknown): string | undefined => (typeof value === "string" ? value : undefined)

/** Finds the session of a request by any of the ids that it contains. */
export const sessionOf = ({ body, params, state }: Pick<Call, "body" | "params" | "state">): string | undefined => {
  const field = (name: string) => textOf(fieldOf(body, name)) ?? ""
  return (
    params["sessionId"] ??
    textOf(fieldOf(body, "session_id")) ??
    state.models.get(modelIdOf(body))?.sessionId ??
    state.samplers.get(params["samplerId"] ?? field("sampling_session_id"))?.sessionId ??
    state.futures.get(field("request_id"))?.sessionId
  )
}
