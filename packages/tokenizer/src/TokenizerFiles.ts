/**
 * The files that describe a tokenizer, as they are in a model's repository.
 *
 * @since 0.1.0
 */
import * as FileSystem from "@effect/platform/FileSystem"
import * as Path from "@effect/platform/Path"
import type { PlatformError } from "@effect/platform/Error"
import * as Effect from "effect/Effect"
import { TokenizerError } from "./TokenizerError.ts"

/**
 * The texts of the files. Only the first is needed to encode and decode.
 *
 * @since 0.1.0
 * @category models
 */
export interface TokenizerFiles {
  /** For errors. */
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
 * Which file has which part. The first must be there.
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
 * Reads them, by a function that knows how to read one; `undefined` is a file that is not there.
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
    if (tokenizer === undefined) return yield* missing(name, config)
    const specialTokensMap = yield* read(fileNames.specialTokensMap)
    return { name, tokenizer, config, specialTokensMap, chatTemplate: yield* read(fileNames.chatTemplate) }
  })

/**
 * From a directory, as it is left by a download of a model.
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
              problem: `${file} can't be read: ${cause.message}`,
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
        problem: `has no ${fileNames.tokenizer}, but a program of its own that makes tokens; convert it to a ${fileNames.tokenizer} and load it from a directory`,
      })
    : new TokenizerError({
        reason: "NotFound",
        tokenizer: name,
        problem: `has no ${fileNames.tokenizer}, or there is nothing of that name`,
      })
