/** Starts and controls the process of the mock server. */
import { spawn } from "node:child_process"
import { once } from "node:events"
import { createInterface } from "node:readline"

export interface MockServer {
  /** The URL for the SDKs. */
  readonly url: string
  /** The URL for its settings, always plain HTTP. */
  readonly control: string
  /** The file with its certificate authority, if TLS is used. */
  readonly certificate: string | undefined
  readonly stats: () => Promise<{ readonly cpu_s: number }>
  /** Resets all state and applies new settings. */
  readonly reset: (settings: Readonly<Record<string, unknown>>) => Promise<void>
  readonly close: () => Promise<void>
}

export const start = async (binary: string, tls: boolean): Promise<MockServer> => {
  const certificate = tls ? `${binary}-ca.pem` : undefined
  const secure = certificate === undefined ? [] : ["-tls-addr", "127.0.0.1:0", "-tls-cert-out", certificate]
  const child = spawn(binary, ["-addr", "127.0.0.1:0", ...secure], { stdio: ["ignore", "pipe", "inherit"] })
  // Stops the server when this process exits.
  const stop = () => child.kill()
  process.once("exit", stop)
  const [line] = (await once(createInterface(child.stdout), "line")) as [string]
  const { addr, tls_addr } = JSON.parse(line) as { readonly addr: string; readonly tls_addr: string }
  const control = `http://${addr}`
  const get = async (path: string, init?: RequestInit) => (await fetch(control + path, init)).json()
  return {
    url: tls ? `https://localhost:${tls_addr.split(":").at(-1)}` : control,
    control,
    certificate,
    stats: () => get("/__stats") as Promise<{ readonly cpu_s: number }>,
    reset: async (settings) => {
      await get("/__ctl", { method: "POST", body: JSON.stringify(settings) })
      await get("/__reset")
    },
    close: async () => {
      process.off("exit", stop)
      const ended = once(child, "exit")
      child.kill()
      await ended
    },
  }
}
