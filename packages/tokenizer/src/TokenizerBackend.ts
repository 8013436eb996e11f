/**
 * Who does the work: the Rust library as a binary for Node, or one in JavaScript that runs everywhere. Both are loaded
 * when the first tokenizer is made, not before.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Ref from "effect/Ref"
import * as Assemble from "./internal/Assemble.ts"
import * as Definition from "./internal/Definition.ts"
import * as Native from "./internal/Native.ts"
import * as Portable from "./internal/Portable.ts"
import type * as Tokenizer from "./Tokenizer.ts"
import { TokenizerError } from "./TokenizerError.ts"
import type { TokenizerFiles } from "./TokenizerFiles.ts"

/**
 * @since 0.1.0
 * @category models
 */
export interface Service {
  /** The tokenizer that these files describe. */
  readonly make: (files: TokenizerFiles) => Effect.Effect<Tokenizer.Service, TokenizerError>
}

/**
 * @since 0.1.0
 * @category tags
 */
export class TokenizerBackend extends Context.Tag("@effect-tinker/tokenizer/TokenizerBackend")<
  TokenizerBackend,
  Service
>() {}

type Make = (definition: Definition.Definition) => Effect.Effect<Assemble.Library, TokenizerError>

/** Tokens have the ids that the definition gives them, or it is not used. */
const checked =
  (make: Make): Make =>
  (definition) =>
    Effect.flatMap(make(definition), (made) => {
      const moved = definition.addedTokens.find(({ content, id }) => !Option.contains(made.tokenToId(content), id))
      return moved === undefined
        ? Effect.succeed(made)
        : new TokenizerError({
            reason: "Invalid",
            tokenizer: definition.name,
            problem: `the token ${JSON.stringify(moved.content)} can't have the id ${moved.id}`,
          })
    })

const withLibrary = (library: Effect.Effect<Make, TokenizerError>): Service => ({
  make: (files) =>
    Effect.gen(function* () {
      const make = checked(yield* library)
      const definition = yield* Definition.read(files)
      const made = yield* make(definition)
      // Few texts need it, so it is made for the first of them.
      const plain = yield* Effect.cached(Effect.suspend(() => make(Definition.withoutSpecialTokens(definition))))
      return Assemble.make(definition, made, plain)
    }),
})

const native: Effect.Effect<Make, TokenizerError> = Effect.map(
  Native.load,
  (module) => (definition) => Native.make(module, definition),
)

const portable: Effect.Effect<Make, TokenizerError> = Effect.map(
  Portable.load,
  (module) => (definition) => Portable.make(module, definition),
)

/**
 * The binary only: an error where there is none.
 *
 * @since 0.1.0
 * @category layers
 */
export const layerNative: Layer.Layer<TokenizerBackend> = Layer.succeed(TokenizerBackend, withLibrary(native))

/**
 * JavaScript only: slower, without offsets, and the same everywhere.
 *
 * @since 0.1.0
 * @category layers
 */
export const layerPortable: Layer.Layer<TokenizerBackend> = Layer.succeed(TokenizerBackend, withLibrary(portable))

/**
 * The binary, or JavaScript where it can't be loaded; a warning in the log tells so, once.
 *
 * @since 0.1.0
 * @category layers
 */
export const layer: Layer.Layer<TokenizerBackend> = Layer.effect(
  TokenizerBackend,
  Effect.map(Ref.make(false), (warned) => {
    const warnOnce = (error: TokenizerError) =>
      Effect.unlessEffect(
        Effect.logWarning(`${error.message}; the portable backend is used, which is slower`),
        Ref.getAndSet(warned, true),
      )
    return withLibrary(Effect.catchTag(native, "TokenizerError", (error) => Effect.zipRight(warnOnce(error), portable)))
  }),
)
