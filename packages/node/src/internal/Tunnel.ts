/** Connects through an HTTP proxy: asks it for a tunnel with `CONNECT`, and speaks TLS with the server inside. */
import * as Redacted from "effect/Redacted"
import type { Socket } from "node:net"
import type { ConnectionOptions } from "node:tls"
import type { buildConnector as Undici } from "undici"
import { buildConnector } from "./UndiciPool.ts"

/** A longer response to `CONNECT` is not one. */
const maxHead = 16 * 1024

/** Asks the proxy for a tunnel to the server, `host:port`. Calls back once. */
const handshake = (
  socket: Socket,
  { authority, authorization, proxy }: Readonly<Record<"authority" | "authorization" | "proxy", string>>,
  timeout: number,
  done: (error: Error | undefined) => void,
): void => {
  let head = Buffer.alloc(0)
  const end = (problem?: string) => {
    clearTimeout(timer)
    socket.off("data", onData).off("error", onError).off("close", onClose)
    socket.pause()
    done(
      problem === undefined ? undefined : new Error(`the proxy ${proxy} opened no tunnel to ${authority}: ${problem}`),
    )
  }
  const onError = (error: Error) => end(error.message)
  const onClose = () => end("it closed the connection")
  const onData = (chunk: Buffer) => {
    head = Buffer.concat([head, chunk])
    const at = head.indexOf("\r\n\r\n")
    if (at < 0) return head.length > maxHead ? end("its response is too long") : undefined
    const [, status] = /^HTTP\/1\.[01] (\d{3})/.exec(head.toString("latin1", 0, at)) ?? []
    if (status === undefined) return end("its response is not HTTP")
    if (!status.startsWith("2")) {
      return end(status === "407" ? "it refused the user name and password (407)" : `it responded with ${status}`)
    }
    const rest = head.subarray(at + 4)
    end()
    if (rest.length > 0) socket.unshift(rest)
  }
  const timer = setTimeout(() => end(`no response within ${timeout} ms`), timeout)
  socket.on("data", onData).on("error", onError).on("close", onClose)
  socket.write(
    [`CONNECT ${authority} HTTP/1.1`, `host: ${authority}`, ...(authorization === "" ? [] : [authorization])].join(
      "\r\n",
    ) + "\r\n\r\n",
  )
}

const authorizationOf = ({ password, username }: URL): string => {
  if (username === "" && password === "") return ""
  const credentials = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`
  return `proxy-authorization: Basic ${Buffer.from(credentials).toString("base64")}`
}

/** Leaves out what is meant for the server and must not reach the proxy. */
const forProxy = ({
  cert: _cert,
  key: _key,
  passphrase: _passphrase,
  pfx: _pfx,
  servername: _name,
  ...options
}: Undici.BuildOptions & ConnectionOptions): Undici.BuildOptions => ({ ...options, allowH2: false })

/**
 * Returns a connector that reaches servers through a proxy. `direct` speaks TLS inside the tunnel. Errors name the host
 * of the proxy, never its user and password.
 */
export const through = (
  url: Redacted.Redacted<string>,
  direct: Undici.connector,
  options: Undici.BuildOptions & { readonly timeout: number },
): Undici.connector => {
  const proxy = new URL(Redacted.value(url))
  const authorization = authorizationOf(proxy)
  const toProxy = buildConnector(forProxy(options))
  const address = {
    hostname: proxy.hostname.replace(/^\[|\]$/g, ""),
    host: proxy.host,
    protocol: proxy.protocol,
    port: proxy.port,
  }
  return (target, callback) => {
    const name = target.hostname.includes(":") ? `[${target.hostname}]` : target.hostname
    const authority = `${name}:${target.port || (target.protocol === "https:" ? 443 : 80)}`
    toProxy(address, (...opened) => {
      if (opened[0] !== null) return callback(opened[0], null)
      const [, socket] = opened
      handshake(socket, { authority, authorization, proxy: proxy.host }, options.timeout, (error) => {
        if (error !== undefined) {
          socket.destroy()
          return callback(error, null)
        }
        if (target.protocol === "https:") direct({ ...target, httpSocket: socket }, callback)
        else callback(null, socket)
      })
    })
  }
}
