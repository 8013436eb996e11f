/**
 * Tokenizers from a hub, kept in a directory. A file is taken as whole only if it has the length, and the hash, that
 * the hub announced; what is in the directory is checked again whenever it is read.
 *
 * The token goes to the hub and nowhere else: not along a redirect to another origin, not into a log or an error.
 *
 * @since 0.1.0
 */
import * as FileSystem from "@effect/platform/FileSystem"
import * as HttpClient from "@effect/platform/HttpClient"
import * as Path from "@effect/platform/Path"
import * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Option from "effect/Option"
import type * as Redacted from "effect/Redacted"
import { InvalidInput } from "effect-tinker/TinkerError"
import * as HubCache from "./internal/HubCache.ts"
import * as HubDownload from "./internal/HubDownload.ts"
import * as HubFiles from "./internal/HubFiles.ts"
import type { TokenizerError } from "./TokenizerError.ts"
import type { TokenizerFiles } from "./TokenizerFiles.ts"

/**
 * @since 0.1.0
 * @category models
 */
export interface Progress {
  readonly repository: string
  readonly file: string
  readonly receivedBytes: number
  /** None if the hub did not tell. */
  readonly totalBytes: Option.Option<number>
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** Where files are kept. Processes may share it. */
  readonly cacheDirectory: string
  /** Default: `https://huggingface.co`. */
  readonly baseUrl?: string | undefined
  /** For repositories that are private or want their terms accepted. */
  readonly token?: Redacted.Redacted<string> | undefined
  /** Use only what is in the directory. Default: false. */
  readonly offline?: boolean | undefined
  /** Told after every piece of a download. */
  readonly onProgress?: ((progress: Progress) => Effect.Effect<void>) | undefined
  /** A file that is larger is refused. Default: 256 MiB. */
  readonly maxFileBytes?: number | undefined
  /** How long the hub may be silent, before its answer or within it. Default: 60 seconds. */
  readonly timeout?: Duration.DurationInput | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Service {
  /**
   * The files of a repository, all of one commit. `revision` is a branch, a tag or a commit; default: `main`. A commit
   * that is in the directory is not asked for again; of anything else the hub is asked whether it changed, and if it
   * can't be reached, what is there is used, with a warning in the log.
   */
  readonly files: (
    repository: string,
    options?: { readonly revision?: string | undefined },
  ) => Effect.Effect<TokenizerFiles, InvalidInput | TokenizerError>
}

/**
 * @since 0.1.0
 * @category tags
 */
export class TokenizerHub extends Context.Tag("@effect-tinker/tokenizer/TokenizerHub")<TokenizerHub, Service>() {}

/**
 * @since 0.1.0
 * @category constructors
 */
export const make = (
  options: Options,
): Effect.Effect<Service, InvalidInput, HttpClient.HttpClient | FileSystem.FileSystem | Path.Path> =>
  Effect.gen(function* () {
    const baseUrl = options.baseUrl ?? "https://huggingface.co"
    if (!/^https?:/.test(baseUrl) || !URL.canParse(baseUrl)) {
      return yield* new InvalidInput({ path: "baseUrl", problem: "is not a URL of http or https" })
    }
    const cache = HubCache.make(yield* FileSystem.FileSystem, yield* Path.Path, options.cacheDirectory)
    const base = new URL(baseUrl.endsWith("/") ? baseUrl : `${baseUrl}/`)
    const download = HubDownload.make(yield* HttpClient.HttpClient, cache, {
      baseUrl: base,
      token: options.token,
      onProgress: options.onProgress ?? (() => Effect.void),
      maxFileBytes: options.maxFileBytes ?? 256 * 1024 * 1024,
      timeout: options.timeout ?? "60 seconds",
    })
    return TokenizerHub.of({
      files: Effect.fn("TokenizerHub.files")(function* (repository, { revision = "main" } = {}) {
        yield* HubFiles.checkNames(repository, revision)
        const source = options.offline === true ? undefined : download
        return yield* HubFiles.read(cache, base.href, source, repository, revision)
      }),
    })
  })

/**
 * @since 0.1.0
 * @category layers
 */
export const layer = (
  options: Options,
): Layer.Layer<TokenizerHub, InvalidInput, HttpClient.HttpClient | FileSystem.FileSystem | Path.Path> =>
  Layer.effect(TokenizerHub, make(options))
