/**
 * The files that describe a tokenizer, as found in a model's repository.
 *
 * @since 0.1.0
 */
import * as FileSystem from "@effect/platform/FileSystem"
import * as Path from "@effect/platform/Path"
import type { PlatformError } from "@effect/platform/Error"
import * as Effect from "effect/Effect"
import * as Valley from "./internal/Valley.ts"
import * as ValleyTools from "./internal/ValleyTools.ts"
import * as Models from "./Models.ts"
import * as Tiktoken from "./Tiktoken.ts"
import { TokenizerError } from "./TokenizerError.ts"

/**
 * The contents of the files. Only `tokenizer` is needed to encode and decode.
 *
 * @since 0.1.0
 * @category models
 */
export interface TokenizerFiles {
  /** The name used in errors. */
  readonly name: string
  /** `tokenizer.json` */
  readonly tokenizer: string
  /** `tokenizer_config.json` */
  readonly config?: string | undefined
  /** `special_tokens_map.json` */
  readonly specialTokensMap?: string | undefined
  /** `chat_template.jinja` */
  readonly chatTemplate?: string | undefined
}

/**
 * The file name of each part. Only `tokenizer.json` is required.
 *
 * @since 0.1.0
 * @category models
 */
export const fileNames = {
  tokenizer: "tokenizer.json",
  config: "tokenizer_config.json",
  specialTokensMap: "special_tokens_map.json",
  chatTemplate: "chat_template.jinja",
} as const

/**
 * The files of the tokenizer of the model that ships with `@effect-tinker/engine`.
 *
 * @since 0.1.0
 * @category constants
 */
export const local: TokenizerFiles = { name: Models.local, tokenizer: Valley.tokenizer, config: Valley.config }

/**
 * The files of the tokenizer of the model with tools that ships with `@effect-tinker/engine`.
 *
 * @since 0.1.0
 * @category constants
 */
export const localTools: TokenizerFiles = {
  name: Models.localTools,
  tokenizer: ValleyTools.tokenizer,
  config: ValleyTools.config,
}

/** The file of tokenizers that are converted, instead of `tokenizer.json`. */
const ranksFile = "tiktoken.model"

/** Whether a program in the repository reads the file of ranks in the way that is known here. */
const isKimi = (name: string, config: string | undefined): config is string =>
  /Kimi-K2/.test(name) && config?.includes("TikTokenTokenizer") === true

/**
 * Collects the files with a function that reads one of them and returns `undefined` if it does not exist. The tokenizer
 * of Kimi K2, K2.5 and K2.6 is converted: the program in its repository is not run.
 *
 * @since 0.1.0
 * @category constructors
 */
export const collect = <E, R>(
  name: string,
  read: (file: string) => Effect.Effect<string | undefined, E, R>,
): Effect.Effect<TokenizerFiles, E | TokenizerError, R> =>
  Effect.gen(function* () {
    const tokenizer = yield* read(fileNames.tokenizer)
    const config = yield* read(fileNames.config)
    if (tokenizer === undefined) {
      const ranks = isKimi(name, config) ? yield* read(ranksFile) : undefined
      if (ranks === undefined || config === undefined) return yield* missing(name, config)
      return { ...(yield* Tiktoken.kimi(name, ranks, config)), chatTemplate: yield* read(fileNames.chatTemplate) }
    }
    const specialTokensMap = yield* read(fileNames.specialTokensMap)
    return { name, tokenizer, config, specialTokensMap, chatTemplate: yield* read(fileNames.chatTemplate) }
  })

/**
 * Reads the files from a directory with a downloaded model.
 *
 * @since 0.1.0
 * @category constructors
 */
export const fromDirectory = (
  directory: string,
): Effect.Effect<TokenizerFiles, TokenizerError, FileSystem.FileSystem | Path.Path> =>
  Effect.gen(function* () {
    const files = yield* FileSystem.FileSystem
    const path = yield* Path.Path
    return yield* collect(directory, (file) =>
      files.readFileString(path.join(directory, file)).pipe(
        Effect.catchIf(isAbsent, () => Effect.succeed(undefined)),
        Effect.mapError(
          (cause) =>
            new TokenizerError({
              reason: "Storage",
              tokenizer: directory,
              problem: `failed to read ${file}: ${cause.message}`,
              cause,
            }),
        ),
      ),
    )
  })

const isAbsent = (error: PlatformError) => error._tag === "SystemError" && error.reason === "NotFound"

const missing = (name: string, config: string | undefined) =>
  config?.includes('"auto_map"') === true
    ? new TokenizerError({
        reason: "NeedsCode",
        tokenizer: name,
        problem: `no ${fileNames.tokenizer}: this tokenizer is a program; convert it to a ${fileNames.tokenizer} and load that from a directory`,
      })
    : new TokenizerError({
        reason: "NotFound",
        tokenizer: name,
        problem: `no ${fileNames.tokenizer} found; check that the name is correct`,
      })
