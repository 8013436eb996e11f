/**
 * Shares tokenizers: each is loaded once, even for concurrent requests, and kept while it is in use and for some time
 * after.
 *
 * @since 0.1.0
 */
import type * as FileSystem from "@effect/platform/FileSystem"
import type * as Path from "@effect/platform/Path"
import * as Context from "effect/Context"
import * as Data from "effect/Data"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import type { InvalidInput } from "effect-tinker/TinkerError"
import * as Shared from "./internal/Shared.ts"
import * as Models from "./Models.ts"
import * as Tokenizer from "./Tokenizer.ts"
import { TokenizerBackend } from "./TokenizerBackend.ts"
import * as TokenizerChoice from "./TokenizerChoice.ts"
import { TokenizerError } from "./TokenizerError.ts"
import * as TokenizerFiles from "./TokenizerFiles.ts"
import { TokenizerHub } from "./TokenizerHub.ts"

/**
 * Where to load a tokenizer from: a repository of the hub, a directory, or this package, which has that of the local
 * model. For files in memory, use `TokenizerBackend` directly.
 *
 * @since 0.1.0
 * @category models
 */
export type Source =
  | { readonly repository: string; readonly revision?: string | undefined }
  | { readonly directory: string }
  | { readonly local: true }

/**
 * Provides shared tokenizers.
 *
 * @since 0.1.0
 * @category models
 */
export interface Service {
  /**
   * Returns a tokenizer and holds it until the scope closes. A failed load is reported to all waiting callers and
   * retried by the next one.
   */
  readonly get: (source: Source) => Effect.Effect<Tokenizer.Service, InvalidInput | TokenizerError, Scope.Scope>
  /** Returns the tokenizer of a model, chosen by {@link TokenizerChoice}. */
  readonly forModel: (
    model: TokenizerChoice.Model,
  ) => Effect.Effect<Tokenizer.Service, InvalidInput | TokenizerError, Scope.Scope>
}

/**
 * The service tag of shared tokenizers.
 *
 * @since 0.1.0
 * @category tags
 */
export class Tokenizers extends Context.Tag("@effect-tinker/tokenizer/Tokenizers")<Tokenizers, Service>() {}

/**
 * Options of {@link make}.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** How long to keep an unused tokenizer. Default: 5 minutes. */
  readonly idleTimeToLive?: Duration.DurationInput | undefined
  /** Default: the table of {@link TokenizerChoice}. */
  readonly table?: TokenizerChoice.Table | undefined
}

type Needs = TokenizerBackend | TokenizerHub | FileSystem.FileSystem | Path.Path

/**
 * Creates the shared tokenizers; closing the scope releases them.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (options: Options = {}): Effect.Effect<Service, never, Needs | Scope.Scope> =>
  Effect.gen(function* () {
    const backend = yield* TokenizerBackend
    const hub = yield* TokenizerHub
    const files = yield* Effect.context<FileSystem.FileSystem | Path.Path>()

    const filesOf = (source: Source) =>
      "local" in source
        ? Effect.succeed(TokenizerFiles.local)
        : "directory" in source
          ? Effect.provide(TokenizerFiles.fromDirectory(source.directory), files)
          : hub.files(source.repository, { revision: source.revision })

    const shared = yield* Shared.make({
      load: (source: Source) => Effect.flatMap(filesOf(source), backend.make),
      idleTimeToLive: options.idleTimeToLive ?? "5 minutes",
      closed: (source) =>
        new TokenizerError({
          reason: "Closed",
          tokenizer: "local" in source ? Models.local : "directory" in source ? source.directory : source.repository,
          problem: "the scope that holds the tokenizers is closed",
        }),
    })

    const get: Service["get"] = (source) =>
      shared.get(
        "local" in source
          ? Data.struct({ local: true as const })
          : "directory" in source
            ? Data.struct({ directory: source.directory })
            : Data.struct({ repository: source.repository, revision: source.revision ?? "main" }),
      )

    return Tokenizers.of({
      get,
      forModel: (model) =>
        model.tokenizerId === undefined && Models.baseName(model.model) === Models.local
          ? get({ local: true })
          : Effect.flatMap(
              Effect.suspend(() => TokenizerChoice.choose(model, options.table)),
              ({ isConverted, needsCode, repository, revision }) =>
                needsCode && !isConverted
                  ? new TokenizerError({
                      reason: "NeedsCode",
                      tokenizer: model.model,
                      problem: `its tokenizer is a program in ${repository}, which is not run; convert it to a tokenizer.json and load that from a directory`,
                    })
                  : get({ repository, revision: Option.getOrUndefined(revision) }),
            ),
    })
  })

/**
 * Provides shared tokenizers as a layer.
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = (options?: Options): Layer.Layer<Tokenizers, never, Needs> =>
  Layer.scoped(Tokenizers, make(options))

/**
 * Provides one tokenizer as a layer.
 *
 * @since 0.1.0
 * @category layers
 */
export const layerTokenizer = (
  source: Source,
): Layer.Layer<Tokenizer.Tokenizer, InvalidInput | TokenizerError, Tokenizers> =>
  Layer.scoped(
    Tokenizer.Tokenizer,
    Effect.flatMap(Tokenizers, ({ get }) => get(source)),
  )

/**
 * Provides the tokenizer of a model as a layer.
 *
 * @since 0.1.0
 * @category layers
 */
export const layerForModel = (
  model: TokenizerChoice.Model,
): Layer.Layer<Tokenizer.Tokenizer, InvalidInput | TokenizerError, Tokenizers> =>
  Layer.scoped(
    Tokenizer.Tokenizer,
    Effect.flatMap(Tokenizers, ({ forModel }) => forModel(model)),
  )
