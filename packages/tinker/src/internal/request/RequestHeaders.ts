/** The headers of every request, in the order in which they are sent. */
import * as Redacted from "effect/Redacted"
import type { Platform } from "../../http/Host.ts"
import type { Endpoint, Rendered } from "../../protocol/Endpoint.ts"
import { version } from "../../protocol/Version.ts"
import type * as TinkerConfig from "../../TinkerConfig.ts"
import { reveal } from "../util/Redact.ts"

type Headers = Readonly<Record<string, string>>

/** The inputs of the headers of one attempt. */
export interface Sent {
  readonly endpoint: Pick<Endpoint<never, unknown>, "scheme">
  readonly rendered: Pick<Rendered, "method" | "body">
  /** The headers of the call. They replace all others but those of the protocol itself. */
  readonly headers: Headers
  readonly idempotencyKey: string
  /** In milliseconds. */
  readonly timeout: number
}

/** Returns the headers that describe the client, and the configured ones. */
export const common = (config: TinkerConfig.Service, platform: Platform): Headers => ({
  accept: "application/json",
  "user-agent": `effect-tinker/${version}`,
  "x-stainless-package-version": version,
  "x-stainless-os": platform.os,
  "x-stainless-arch": platform.arch,
  "x-stainless-runtime": platform.runtime,
  "x-stainless-runtime-version": platform.runtimeVersion,
  "x-stainless-async": "effect",
  ...reveal(config.headers),
})

/** Returns the headers that are the same in every request of an endpoint, names and values in turn. */
export const ofEndpoint = (common: Headers, endpoint: Headers): ReadonlyArray<string> =>
  Object.entries({ ...common, ...endpoint }).flat()

/** Returns all headers of an attempt, names and values in turn. `shared` are those of its endpoint. */
export const ofAttempt = (
  shared: ReadonlyArray<string>,
  { endpoint: { scheme }, headers, idempotencyKey, rendered: { body, method }, timeout }: Sent,
  token: Redacted.Redacted<string>,
  retryCount: number,
): ReadonlyArray<string> => {
  const all = shared.slice()
  for (const name of Object.keys(headers)) set(all, name, headers[name] ?? "")
  if (scheme === "bearer") set(all, "authorization", `Bearer ${Redacted.value(token)}`)
  else set(all, "x-api-key", Redacted.value(token))
  set(all, "x-stainless-retry-count", String(retryCount))
  if (Number.isFinite(timeout)) set(all, "x-stainless-read-timeout", String(timeout / 1_000))
  if (method !== "GET") {
    set(all, "content-type", body?.contentType ?? "application/json")
    set(all, "x-idempotency-key", idempotencyKey)
  }
  return all
}

const set = (all: Array<string>, name: string, value: string): void => {
  for (let at = 0; at < all.length; at += 2) {
    if (all[at] === name) {
      all[at + 1] = value
      return
    }
  }
  all.push(name, value)
}
