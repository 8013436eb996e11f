/** Reads the response to a poll: the state of the request, and its result or error. */
import * as Either from "effect/Either"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import * as ParseResult from "effect/ParseResult"
import type { Kind } from "../../ApiFuture.ts"
import type { RawAnswer } from "../../protocol/Endpoint.ts"
import { serverDelay } from "../../RetryPolicy.ts"
import {
  type FutureError,
  RequestFailed,
  RequestRejected,
  type TinkerError,
  UnexpectedResponse,
} from "../../TinkerError.ts"
import * as PollResponse from "../core/PollResponse.ts"
import { preview } from "../request/Refusal.ts"
import { shorten } from "../util/Text.ts"

export interface Reading<out A> {
  readonly response: PollResponse.PollResponse
  /** The result, or the error that ends the poll if the response does. */
  readonly exit: Exit.Exit<A, FutureError> | undefined
}

const utf8 = new TextDecoder()

const protobuf = "application/x-protobuf"
const isProtobuf = (contentType: string): boolean =>
  contentType === protobuf || contentType.trim().toLowerCase().startsWith(protobuf)

const failed = (error: FutureError): Reading<never> => ({
  response: { _tag: "Failed", expired: false },
  exit: Exit.fail(error),
})

/** Reads a response with status 200. */
export const fromResponse = <A>(kind: Kind<A>, requestId: string, raw: RawAnswer): Reading<A> => {
  const { body, contentType, redact } = raw
  const unexpected = (reason: UnexpectedResponse["reason"], detail: string) =>
    fromError(new UnexpectedResponse({ ...fieldsOf(kind, requestId, raw), reason, detail: shorten(redact(detail)) }))
  const result = (
    decoded: Either.Either<A, ParseResult.ParseError>,
    reason: UnexpectedResponse["reason"],
  ): Reading<A> =>
    Either.isRight(decoded)
      ? { response: { _tag: "Done" }, exit: Exit.succeed(decoded.right) }
      : unexpected(reason, ParseResult.TreeFormatter.formatErrorSync(decoded.left))

  if (isProtobuf(contentType)) {
    return Option.isSome(kind.fromProtobuf)
      ? result(kind.fromProtobuf.value(body), "NotProtobuf")
      : unexpected("NotProtobuf", "protobuf, where only JSON can be")
  }
  let json: unknown
  try {
    json = JSON.parse(utf8.decode(body))
  } catch {
    return unexpected("NotJson", preview(body, redact))
  }
  const read = PollResponse.fromBody(json, (text) => shorten(redact(text)))
  switch (read._tag) {
    case "Result":
      return result(kind.fromJson(json), "Schema")
    case "Error":
      return failed(failureOf(read, fieldsOf(kind, requestId, raw)))
    default:
      return { response: read, exit: undefined }
  }
}

const fieldsOf = (kind: Kind<unknown>, requestId: string, { status }: RawAnswer) => ({
  operation: kind.type,
  status: Option.some(status),
  requestId: Option.some(requestId),
})

const failureOf = (
  { category, detail }: Extract<PollResponse.Body, { readonly _tag: "Error" }>,
  fields: ReturnType<typeof fieldsOf>,
): FutureError =>
  category === "user"
    ? new RequestRejected({ ...fields, detail, reason: "UserCategory" })
    : new RequestFailed({ ...fields, detail, reason: category === "server" ? "Server" : "Unknown" })

/** Reads a poll that failed. */
export const fromError = (error: TinkerError): Reading<never> => ({
  response: PollResponse.fromError(error, Option.getOrUndefined(serverDelay(error)), shorten),
  exit: Exit.fail(error),
})
