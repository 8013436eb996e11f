/** Decides by the headers of a request whether its body is read, and how much of it. */
import * as Either from "effect/Either"
import type { Request } from "effect-tinker/protocol/Exchange"
import type { Route } from "./Call.ts"
import { Refusal } from "./Refusal.ts"

type Head = Omit<Request, "body">

/** The largest body of a pass, of any other request, and of a request that needs no body. */
export const maxBytes = { pass: 32 * 2 ** 20, other: 4 * 2 ** 20, none: 64 * 2 ** 10 }

const limitOf = ({ endpoint, isPass }: Route): number =>
  endpoint.method === "GET" || endpoint.method === "DELETE"
    ? maxBytes.none
    : isPass === true
      ? maxBytes.pass
      : maxBytes.other

const tooLarge = (limit: number): Refusal =>
  new Refusal({ status: 413, detail: `the request body exceeds ${limit} bytes` })

export const checkSize = (size: number, limit: number): Either.Either<void, Refusal> =>
  size > limit ? Either.left(tooLarge(limit)) : Either.void

/**
 * Checks the content type. A browser sends only some types to another origin without asking first, and JSON is not
 * among them.
 */
const checkType = ({ headers }: Head, { isPass }: Route): Either.Either<void, Refusal> => {
  const type = (headers["content-type"] ?? "").split(";")[0]?.trim().toLowerCase() ?? ""
  if (type === "application/json" || (isPass === true && type === "application/x-protobuf")) return Either.void
  const expected = isPass === true ? "application/json or application/x-protobuf" : "application/json"
  return Either.left(
    new Refusal({ status: 415, detail: `expected ${expected}, got ${JSON.stringify(type.slice(0, 80))}` }),
  )
}

const hasBody = ({ headers }: Head): boolean =>
  headers["transfer-encoding"] !== undefined || Number(headers["content-length"] ?? 0) > 0

/** Returns the size up to which the body is read. */
export const check = (head: Head, route: Route): Either.Either<number, Refusal> =>
  Either.gen(function* () {
    const limit = limitOf(route)
    yield* checkSize(Number(head.headers["content-length"] ?? 0), limit)
    if (hasBody(head)) yield* checkType(head, route)
    return limit
  })

/** Returns the head of a request that is already complete, with the length of its body. */
export const headOf = ({ body, headers, method, path }: Request): Head => ({
  method,
  path,
  headers: { ...headers, "content-length": String(body.length) },
})
