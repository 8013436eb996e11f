/**
 * Downloads tokenizers from a hub and caches them in a directory. A file is accepted only if it has the length and the
 * hash that the hub announced; cached files are checked again whenever they are read.
 *
 * The token is sent to the hub only. It does not follow redirects to other origins and is never logged.
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
 * The progress of a download.
 *
 * @since 0.1.0
 * @category models
 */
export interface Progress {
  readonly repository: string
  readonly file: string
  readonly receivedBytes: number
  /** None if the hub did not announce a length. */
  readonly totalBytes: Option.Option<number>
}

/**
 * Options of a hub.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** The directory for cached files. Several processes may share it. */
  readonly cacheDirectory: string
  /** Default: `https://huggingface.co`. */
  readonly baseUrl?: string | undefined
  /** Required for private repositories and for those whose terms must be accepted. */
  readonly token?: Redacted.Redacted<string> | undefined
  /** Whether to use cached files only. Default: false. */
  readonly offline?: boolean | undefined
  /** Called after every chunk of a download. */
  readonly onProgress?: ((progress: Progress) => Effect.Effect<void>) | undefined
  /** Larger files are rejected. Default: 256 MiB. */
  readonly maxFileBytes?: number | undefined
  /** How long to wait for an answer or for the next chunk of it. Default: 60 seconds. */
  readonly timeout?: Duration.DurationInput | undefined
}

/**
 * Provides the files of tokenizers.
 *
 * @since 0.1.0
 * @category models
 */
export interface Service {
  /**
   * Returns the files of a repository, all from one commit. `revision` is a branch, a tag or a commit (default:
   * `main`). A cached commit is not requested again. For a branch or tag, the hub is asked for the current commit; if
   * it can't be reached, the cached files are used and a warning is logged.
   */
  readonly files: (
    repository: string,
    options?: { readonly revision?: string | undefined },
  ) => Effect.Effect<TokenizerFiles, InvalidInput | TokenizerError>
}

/**
 * The service tag of the hub.
 *
 * @since 0.1.0
 * @category tags
 */
export class TokenizerHub extends Context.Tag("@effect-tinker/tokenizer/TokenizerHub")<TokenizerHub, Service>() {}

/**
 * Creates a hub.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (
  options: Options,
): Effect.Effect<Service, InvalidInput, HttpClient.HttpClient | FileSystem.FileSystem | Path.Path> =>
  Effect.gen(function* () {
    const baseUrl = options.baseUrl ?? "https://huggingface.co"
    if (!/^https?:/.test(baseUrl) || !URL.canParse(baseUrl)) {
      return yield* new InvalidInput({ path: "baseUrl", problem: "expected an http or https URL" })
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
 * Provides a hub as a layer.
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = (
  options: Options,
): Layer.Layer<TokenizerHub, InvalidInput, HttpClient.HttpClient | FileSystem.FileSystem | Path.Path> =>
  Layer.effect(TokenizerHub, make(options))
