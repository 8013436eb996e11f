/** Turns the body of a successful response into the output of its endpoint. */
import * as Either from "effect/Either"
import * as Exit from "effect/Exit"
import * as ParseResult from "effect/ParseResult"
import type * as HttpDirect from "../../http/HttpDirect.ts"
import type * as Endpoint from "../../protocol/Endpoint.ts"
import type { UnexpectedResponse } from "../../TinkerError.ts"
import { shorten } from "../util/Text.ts"
import { type Facts, unexpected } from "./AttemptError.ts"
import { type Reader, readerOf } from "./FastJson.ts"
import { preview } from "./Refusal.ts"

const utf8 = new TextDecoder()

/** Decoders are made at the first response of an endpoint: making all of them would slow down the start. */
const decoders = new WeakMap<Endpoint.ResponseBody, Reader>()
const decoderOf = (response: Extract<Endpoint.ResponseBody, { readonly kind: "json" }>): Reader => {
  let decoder = decoders.get(response)
  if (decoder === undefined) {
    decoder = readerOf(response.schema)
    decoders.set(response, decoder)
  }
  return decoder
}

/** Decodes a response. A body that does not fit is an `UnexpectedResponse`. */
export const decode = <A>(
  endpoint: Endpoint.Endpoint<never, A>,
  reply: HttpDirect.Incoming,
  facts: Facts,
): Exit.Exit<A, UnexpectedResponse> => {
  const { response } = endpoint
  if (response.kind === "void") return Exit.succeed(undefined as A)
  if (response.kind === "raw") {
    const { body, headers, status } = reply
    const { redact } = facts
    const contentType = headers["content-type"] ?? ""
    return Exit.succeed({ status, headers, contentType, body, redact } satisfies Endpoint.RawAnswer as A)
  }
  if (reply.body.length === 0) return fail(facts, reply, "Empty", "the body is empty")
  let value: unknown
  try {
    // The content type is ignored: servers send JSON as text, and the schema decides.
    value = JSON.parse(utf8.decode(reply.body))
  } catch {
    return fail(facts, reply, "NotJson", preview(reply.body, facts.redact))
  }
  try {
    const decoded = decoderOf(response)(value)
    return Either.isRight(decoded)
      ? // The schema is that of the endpoint's own output.
        Exit.succeed(decoded.right as A)
      : fail(facts, reply, "Schema", shorten(facts.redact(ParseResult.TreeFormatter.formatErrorSync(decoded.left))))
  } catch (cause) {
    // Reading a deeply nested value can overflow the stack.
    return fail(facts, reply, "Schema", `it can't be walked: ${String(cause)}`)
  }
}

const fail = (
  facts: Facts,
  reply: HttpDirect.Incoming,
  reason: UnexpectedResponse["reason"],
  detail: string,
): Exit.Exit<never, UnexpectedResponse> => Exit.fail(unexpected(facts, reply, reason, detail))
