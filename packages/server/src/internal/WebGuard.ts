/**
 * Keeps web pages away from the server. A page can send requests to any address that its browser can reach, and with
 * DNS rebinding it can also read the responses, under a host name of its own.
 */
import type { Answer } from "effect-tinker/protocol/Exchange"
import { isIP } from "node:net"
import { hostname } from "node:os"

type Headers = Readonly<Record<string, string | undefined>>

/** Removes the port and the brackets of an IPv6 address. */
const nameOf = (host: string): string =>
  host
    .trim()
    .toLowerCase()
    .replace(/:\d*$/, "")
    .replace(/^\[(.*)\]$/, "$1")
    .replace(/\.$/, "")

/**
 * Checks the host that a request is addressed to. An address, unlike a name, cannot be pointed elsewhere by someone
 * else.
 */
export const isOwnHost = (host: string | undefined, allowed: ReadonlyArray<string>): boolean => {
  if (host === undefined) return false
  const name = nameOf(host)
  return (
    isIP(name) !== 0 ||
    name === "localhost" ||
    name.endsWith(".localhost") ||
    name === hostname().toLowerCase() ||
    allowed.some((one) => nameOf(one) === name)
  )
}

/** Whether an address can be reached only from this machine. */
export const isLoopback = (host: string): boolean =>
  host === "localhost" || host === "::1" || (isIP(host) === 4 && host.startsWith("127."))

const refuse = (detail: string): Answer => ({
  status: 403,
  headers: { "content-type": "application/json" },
  body: JSON.stringify({ detail }),
})

export interface Allowed {
  readonly hosts: ReadonlyArray<string>
  readonly origins: ReadonlyArray<string>
}

/** Refuses a request of a web page that is not allowed to use the server. */
export const check = ({ host, origin }: Headers, allowed: Allowed): Answer | undefined => {
  if (!isOwnHost(host, allowed.hosts))
    return refuse(
      `${JSON.stringify(host?.slice(0, 200) ?? "")} is not a host of this server; allow it with allowedHosts`,
    )
  return origin === undefined || allowed.origins.includes(origin)
    ? undefined
    : refuse(
        `web pages of ${JSON.stringify(origin.slice(0, 200))} may not use this server; allow them with corsOrigins`,
      )
}

/** Answers a browser that asks whether a page may send a request; for pages that may. */
export const preflight = (method: string, headers: Headers): Answer | undefined =>
  method === "OPTIONS" && headers["origin"] !== undefined && headers["access-control-request-method"] !== undefined
    ? {
        status: 204,
        headers: {
          "access-control-allow-methods": "GET, POST, PUT, DELETE",
          "access-control-allow-headers": headers["access-control-request-headers"] ?? "",
          "access-control-max-age": "600",
        },
        body: "",
      }
    : undefined

/** Lets the page of an allowed origin read a response. */
export const withCors = (answer: Answer, { origin }: Headers): Answer =>
  origin === undefined
    ? answer
    : {
        ...answer,
        headers: {
          ...answer.headers,
          "access-control-allow-origin": origin,
          "access-control-expose-headers": "retry-after, location, expires",
          vary: "origin",
        },
      }
