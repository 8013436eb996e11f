/**
 * What the machine around the program offers, so that the SDK itself imports nothing of Node. The default offers
 * nothing and says so; `@effect-tinker/node` supplies the real one.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type * as Redacted from "effect/Redacted"

/**
 * Told to the server in headers, as the reference SDK does.
 *
 * @since 0.1.0
 * @category models
 */
export interface Platform {
  readonly os: string
  readonly arch: string
  readonly runtime: string
  readonly runtimeVersion: string
}

/**
 * Compresses bytes with zstd.
 *
 * @since 0.1.0
 * @category models
 */
export type Zstd = (bytes: Uint8Array) => Effect.Effect<Uint8Array>

/**
 * A digest over bytes that come one after the other.
 *
 * @since 0.1.0
 * @category models
 */
export interface Hash {
  readonly update: (bytes: Uint8Array) => void
  /** Asked for once, at the end. */
  readonly digest: () => Uint8Array
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Service {
  readonly platform: Platform
  /** Runs a command through the shell and gives its trimmed output. Fails with a text that holds no secret. */
  readonly runCommand: (command: Redacted.Redacted<string>) => Effect.Effect<Redacted.Redacted<string>, string>
  /** The file's text, or none when there is no such file. Fails with a text that holds no secret. */
  readonly readFile: (path: string) => Effect.Effect<Option.Option<string>, string>
  /** None where there is no encoder: then requests go uncompressed, which every server accepts. */
  readonly zstd: Effect.Effect<Option.Option<Zstd>>
  /** None where it can't be computed: then what is downloaded is not checked by it. */
  readonly hash: (algorithm: "md5" | "sha1" | "sha256" | "sha512") => Option.Option<Hash>
}

/**
 * @since 0.1.0
 * @category tags
 */
export class Host extends Context.Reference<Host>()("effect-tinker/http/Host", {
  defaultValue: (): Service => ({
    platform: { os: "unknown", arch: "unknown", runtime: "unknown", runtimeVersion: "unknown" },
    runCommand: () => Effect.fail("this platform can't run a credential command; provide Host (@effect-tinker/node)"),
    readFile: () => Effect.fail("this platform can't read a credentials file; provide Host (@effect-tinker/node)"),
    zstd: Effect.succeedNone,
    hash: () => Option.none(),
  }),
}) {}
