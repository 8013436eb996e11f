/**
 * Authenticates callers by API key or by a token issued by this server. Keys are compared and stored only as hashes.
 */
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import { createHash, createHmac, hkdfSync, timingSafeEqual } from "node:crypto"
import type { Core, Secrets } from "./Core.ts"
import { type Refusal, refuse } from "./Refusal.ts"

const digest = (text: string): Buffer => createHash("sha256").update(text).digest()

/** The owner of everything if the server has no API keys. */
export const sharedOwner = "local"

const ownerOfKey = (key: string): string => `key-${digest(key).toString("hex").slice(0, 16)}`

/** Hashes the accepted keys, once: a server with a thousand keys would otherwise hash them all for every request. */
export const hashesOf = (keys: ReadonlyArray<Redacted.Redacted<string>>): ReadonlyArray<Uint8Array> =>
  keys.map((key) => digest(Redacted.value(key)))

/** Compares with every key, in constant time. */
export const isKnown = (keyHashes: ReadonlyArray<Uint8Array>, key: string): boolean => {
  const hash = digest(key)
  return keyHashes.reduce((known, one) => timingSafeEqual(one, hash) || known, false)
}

export const sign = (secret: Uint8Array, text: string): string =>
  createHmac("sha256", secret).update(text).digest("base64url")

/** Checks a signature, in constant time. */
export const isSigned = (secret: Uint8Array, text: string, signature: string): boolean =>
  timingSafeEqual(digest(sign(secret, text)), digest(signature))

const derive = (secret: Uint8Array, purpose: string): Uint8Array =>
  new Uint8Array(hkdfSync("sha256", secret, new Uint8Array(0), purpose, 32))

/** Derives the key of each purpose from the stored secret. */
export const secretsOf = (secret: Uint8Array): Secrets => ({
  tokens: derive(secret, "tokens"),
  urls: derive(secret, "urls"),
})

const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString("base64url")

/** Issues a token for an owner that expires at the given time (milliseconds since 1970). */
export const issueToken = (core: Core, owner: string, expires: number, id: string): string => {
  const claims = {
    sub: `tml:user:${owner}`,
    org_id: "local",
    email: `${owner}@localhost`,
    exp: Math.floor(expires / 1000),
    jti: id,
  }
  const text = `${part({ alg: "HS256", typ: "JWT" })}.${part(claims)}`
  return `${text}.${sign(core.secrets.tokens, text)}`
}

const ownerOfToken = (core: Core, token: string, now: number): string | undefined => {
  const [header = "", claims = "", signature = ""] = token.split(".")
  if (!isSigned(core.secrets.tokens, `${header}.${claims}`, signature)) return undefined
  try {
    const { exp, sub } = JSON.parse(Buffer.from(claims, "base64url").toString())
    return typeof exp === "number" && now < exp * 1000 ? String(sub).replace("tml:user:", "") : undefined
  } catch {
    return undefined
  }
}

/** Returns the owner that a credential belongs to, or undefined if it is not valid. */
export const ownerOf = (core: Core, credential: string | undefined, now: number): string | undefined => {
  if (credential !== undefined && credential.split(".").length === 3) {
    const owner = ownerOfToken(core, credential, now)
    if (owner !== undefined) return owner
  }
  if (core.keyHashes.length === 0) return sharedOwner
  return credential !== undefined && isKnown(core.keyHashes, credential) ? ownerOfKey(credential) : undefined
}

export const credentialOf = (headers: Readonly<Record<string, string | undefined>>): string | undefined =>
  headers["x-api-key"] ?? /^bearer (.+)$/i.exec(headers["authorization"] ?? "")?.[1]

export const authorize = (
  core: Core,
  headers: Readonly<Record<string, string | undefined>>,
  now: number,
): Effect.Effect<string, Refusal> => {
  const credential = credentialOf(headers)
  const owner = ownerOf(core, credential, now)
  return owner === undefined
    ? refuse(401, credential === undefined ? "Missing API key; send it as X-API-Key" : "Invalid API key")
    : Effect.succeed(owner)
}
