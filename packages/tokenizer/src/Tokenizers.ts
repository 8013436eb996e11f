/**
 * Tokenizers that are shared: loaded once however many ask at the same time, kept while somebody holds them and for a
 * while after.
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
import * as Tokenizer from "./Tokenizer.ts"
import { TokenizerBackend } from "./TokenizerBackend.ts"
import * as TokenizerChoice from "./TokenizerChoice.ts"
import { TokenizerError } from "./TokenizerError.ts"
import * as TokenizerFiles from "./TokenizerFiles.ts"
import { TokenizerHub } from "./TokenizerHub.ts"

/**
 * Where a tokenizer is: in a repository of the hub, or in a directory. One that is in memory needs no sharing:
 * `TokenizerBackend` makes it.
 *
 * @since 0.1.0
 * @category models
 */
export type Source =
  | { readonly repository: string; readonly revision?: string | undefined }
  | { readonly directory: string }

/**
 * @since 0.1.0
 * @category models
 */
export interface Service {
  /** Held until the scope closes. A failure is told to those who waited, and tried again by the next who asks. */
  readonly get: (source: Source) => Effect.Effect<Tokenizer.Service, InvalidInput | TokenizerError, Scope.Scope>
  /** The tokenizer of a model, by {@link TokenizerChoice}. */
  readonly forModel: (
    model: TokenizerChoice.Model,
  ) => Effect.Effect<Tokenizer.Service, InvalidInput | TokenizerError, Scope.Scope>
}

/**
 * @since 0.1.0
 * @category tags
 */
export class Tokenizers extends Context.Tag("@effect-tinker/tokenizer/Tokenizers")<Tokenizers, Service>() {}

/**
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** How long a tokenizer is kept that nobody holds. Default: 5 minutes. */
  readonly idleTimeToLive?: Duration.DurationInput | undefined
  /** Default: the table of {@link TokenizerChoice}. */
  readonly table?: TokenizerChoice.Table | undefined
}

type Needs = TokenizerBackend | TokenizerHub | FileSystem.FileSystem | Path.Path

/**
 * In the current scope.
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
      "directory" in source
        ? Effect.provide(TokenizerFiles.fromDirectory(source.directory), files)
        : hub.files(source.repository, { revision: source.revision })

    const shared = yield* Shared.make({
      load: (source: Source) => Effect.flatMap(filesOf(source), backend.make),
      idleTimeToLive: options.idleTimeToLive ?? "5 minutes",
      closed: (source) =>
        new TokenizerError({
          reason: "Closed",
          tokenizer: "directory" in source ? source.directory : source.repository,
          problem: "the scope that held the tokenizers is closed",
        }),
    })

    const get: Service["get"] = (source) =>
      shared.get(
        "directory" in source
          ? Data.struct({ directory: source.directory })
          : Data.struct({ repository: source.repository, revision: source.revision ?? "main" }),
      )

    return Tokenizers.of({
      get,
      forModel: (model) =>
        Effect.flatMap(
          Effect.suspend(() => TokenizerChoice.choose(model, options.table)),
          ({ needsCode, repository, revision }) =>
            needsCode
              ? new TokenizerError({
                  reason: "NeedsCode",
                  tokenizer: model.model,
                  problem: `its tokenizer is a program in ${repository}, which is not run here; convert it to a tokenizer.json and load that from a directory`,
                })
              : get({ repository, revision: Option.getOrUndefined(revision) }),
        ),
    })
  })

/**
 * @since 0.1.0
 * @category layers
 */
export const layer = (options?: Options): Layer.Layer<Tokenizers, never, Needs> =>
  Layer.scoped(Tokenizers, make(options))

/**
 * One tokenizer as a service of its own.
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
 * The tokenizer of a model as a service of its own.
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
