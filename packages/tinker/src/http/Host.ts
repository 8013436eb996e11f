/**
 * Describes the platform, so that the SDK itself does not depend on Node. The default supports nothing;
 * `@effect-tinker/node` provides an implementation.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type * as Redacted from "effect/Redacted"

/**
 * The platform information sent to the server in headers, as in the reference SDK.
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
 * An incremental hash.
 *
 * @since 0.1.0
 * @category models
 */
export interface Hash {
  readonly update: (bytes: Uint8Array) => void
  /** Returns the digest; called once, at the end. */
  readonly digest: () => Uint8Array
}

/**
 * The operations of the platform.
 *
 * @since 0.1.0
 * @category models
 */
export interface Service {
  readonly platform: Platform
  /** Runs a shell command and returns its trimmed output. Fails with a message that contains no secrets. */
  readonly runCommand: (command: Redacted.Redacted<string>) => Effect.Effect<Redacted.Redacted<string>, string>
  /** Returns the text of a file, or none if the file does not exist. Fails with a message that contains no secrets. */
  readonly readFile: (path: string) => Effect.Effect<Option.Option<string>, string>
  /**
   * Returns the zstd encoder; none if there is none, in which case requests are sent uncompressed, which every server
   * accepts.
   */
  readonly zstd: Effect.Effect<Option.Option<Zstd>>
  /** Creates a hash; none if the algorithm is not supported, in which case downloads are not verified with it. */
  readonly hash: (algorithm: "md5" | "sha1" | "sha256" | "sha512") => Option.Option<Hash>
}

/**
 * The reference to the platform.
 *
 * @since 0.1.0
 * @category tags
 */
export class Host extends Context.Reference<Host>()("effect-tinker/http/Host", {
  defaultValue: (): Service => ({
    platform: { os: "unknown", arch: "unknown", runtime: "unknown", runtimeVersion: "unknown" },
    runCommand: () => Effect.fail("this platform cannot run a credential command; provide Host (@effect-tinker/node)"),
    readFile: () => Effect.fail("this platform cannot read a credentials file; provide Host (@effect-tinker/node)"),
    zstd: Effect.succeedNone,
    hash: () => Option.none(),
  }),
}) {}
