/** The rules for following redirects, the same for every HTTP client. */
import type { Outgoing } from "../../http/HttpDirect.ts"

/** The most redirects that one attempt follows. */
export const maxRedirects = 10

/** Headers that may go to another origin: no configured header, no credential, no key. */
const portable = new Set(["accept", "user-agent"])

/**
 * Returns the request that a redirect asks for, or the reason why it is not followed. A credential never leaves its
 * origin, https never becomes http, and no other method becomes a GET: its response would look like success.
 */
export const follow = (request: Outgoing, status: number, location: string): Outgoing | string => {
  if (!URL.canParse(location, request.url)) return "its Location is not a URL"
  const from = new URL(request.url)
  const to = new URL(location, request.url)
  const isSameOrigin = to.origin === from.origin
  if (to.protocol !== "https:" && to.protocol !== from.protocol)
    return `it leads from ${from.protocol} to ${to.protocol}`
  // A fragment is not sent.
  to.hash = ""
  const url = to.href
  if (request.method === "GET")
    return { ...request, url, headers: isSameOrigin ? request.headers : only(request.headers) }
  if (!isSameOrigin) return `it leads to ${to.origin}, and only a GET may leave its origin: is that the base URL?`
  if (status !== 307 && status !== 308) return `it would turn a ${request.method} into a GET`
  return { ...request, url }
}

const only = (headers: Outgoing["headers"]): ReadonlyArray<string> =>
  headers.filter((_, at) => portable.has(headers[at - (at % 2)] ?? ""))
