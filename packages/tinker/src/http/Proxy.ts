/**
 * Decides which HTTP proxy a request goes through. Platform packages open a tunnel (`CONNECT`) through it, so that a
 * proxy never sees what is sent to an https server.
 *
 * @since 0.1.0
 */
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"

/**
 * The proxies of a client, by the scheme of the server. A URL is secret, because it may contain a password.
 *
 * @since 0.1.0
 * @category models
 */
export interface Proxies {
  readonly https: Option.Option<Redacted.Redacted<string>>
  readonly http: Option.Option<Redacted.Redacted<string>>
  /** Servers that are reached directly, see `isExcepted`. */
  readonly except: ReadonlyArray<string>
}

/**
 * Reaches every server directly.
 *
 * @since 0.1.0
 * @category constants
 */
export const none: Proxies = { https: Option.none(), http: Option.none(), except: [] }

/**
 * The names of the machine itself, which proxies of the environment are not used for.
 *
 * @since 0.1.0
 * @category constants
 */
export const loopback: ReadonlyArray<string> = ["localhost", "127.0.0.1", "[::1]"]

/**
 * Normalizes the URL of a proxy, or returns why it cannot be one; the message does not contain the URL. The scheme may
 * be missing.
 *
 * @since 0.1.0
 * @category constructors
 */
export const parse = (proxy: Redacted.Redacted<string>): Either.Either<Redacted.Redacted<string>, string> => {
  const text = Redacted.value(proxy).trim()
  const full = /^[a-z][a-z0-9+.-]*:\/\//i.test(text) ? text : `http://${text}`
  if (!URL.canParse(full)) return Either.left("not a valid URL; expected a URL like http://host:port")
  const url = new URL(full)
  if (url.protocol !== "http:" && url.protocol !== "https:") {
    return Either.left(`expected http: or https:, got ${url.protocol}`)
  }
  return url.pathname === "/" && url.search === "" && url.hash === ""
    ? Either.right(Redacted.make(url.href))
    : Either.left("must not contain a path, query or fragment")
}

/** Removes the brackets of an IPv6 address and the dot at the end of a full name. */
const plain = (host: string): string =>
  host
    .toLowerCase()
    .replace(/^\[|\]$/g, "")
    .replace(/\.$/, "")

/** Splits `host:port`; the host may be an IPv6 address, with or without brackets. */
const split = (entry: string): readonly [host: string, port: string | undefined] => {
  const [, host = entry, port] = /^(\[.*\]|[^:]*):(\d+)$/.exec(entry) ?? []
  return [plain(host), port]
}

/**
 * Checks whether one of the entries names the server of a URL. An entry is a host name, which includes all names below
 * it (with or without `.` or `*.` at its beginning), or an address, each with an optional port; `*` names every server.
 *
 * @since 0.1.0
 * @category predicates
 */
export const isExcepted = (entries: ReadonlyArray<string>, url: URL): boolean => {
  const name = plain(url.hostname)
  const port = url.port === "" ? (url.protocol === "https:" ? "443" : "80") : url.port
  return entries.some((entry) => {
    if (entry === "*") return true
    const [host, only] = split(entry.replace(/^\*?\./, ""))
    return host !== "" && (only === undefined || only === port) && (name === host || name.endsWith(`.${host}`))
  })
}

/**
 * Returns the proxy through which the server of a URL is reached; none if directly.
 *
 * @since 0.1.0
 * @category accessors
 */
export const select = (proxies: Proxies, url: URL): Option.Option<Redacted.Redacted<string>> =>
  isExcepted(proxies.except, url) ? Option.none() : url.protocol === "https:" ? proxies.https : proxies.http
