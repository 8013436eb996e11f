/**
 * The libraries that do the work: a native binary of the Rust library for Node, and a JavaScript one that runs
 * everywhere. Each is loaded when it is first needed.
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
 * Creates tokenizers from their files.
 *
 * @since 0.1.0
 * @category models
 */
export interface Service {
  /** Creates the tokenizer described by these files. */
  readonly make: (files: TokenizerFiles) => Effect.Effect<Tokenizer.Service, TokenizerError>
}

/**
 * The service tag of the backend.
 *
 * @since 0.1.0
 * @category tags
 */
export class TokenizerBackend extends Context.Tag("@effect-tinker/tokenizer/TokenizerBackend")<
  TokenizerBackend,
  Service
>() {}

type Make = (definition: Definition.Definition) => Effect.Effect<Assemble.Library, TokenizerError>

/** Fails if the library gives an added token another id than the definition does. */
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
            problem: `the token ${JSON.stringify(moved.content)} does not get its id ${moved.id}`,
          })
    })

const withLibrary = (library: Effect.Effect<Make, TokenizerError>): Service => ({
  make: (files) =>
    Effect.gen(function* () {
      const make = checked(yield* library)
      const definition = yield* Definition.read(files)
      const made = yield* make(definition)
      // Few texts need the tokenizer without special tokens, so it is created on first use.
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
 * Uses the native library only; creating a tokenizer fails if the library can't be loaded.
 *
 * @since 0.1.0
 * @category layers
 */
export const layerNative: Layer.Layer<TokenizerBackend> = Layer.succeed(TokenizerBackend, withLibrary(native))

/**
 * Uses the JavaScript library only: slower and without offsets, but the same on every platform.
 *
 * @since 0.1.0
 * @category layers
 */
export const layerPortable: Layer.Layer<TokenizerBackend> = Layer.succeed(TokenizerBackend, withLibrary(portable))

/**
 * Uses the native library, or the JavaScript one if the native one can't be loaded; then logs one warning.
 *
 * @since 0.1.0
 * @category layers
 */
export const layer: Layer.Layer<TokenizerBackend> = Layer.effect(
  TokenizerBackend,
  Effect.map(Ref.make(false), (warned) => {
    const warnOnce = (error: TokenizerError) =>
      Effect.unlessEffect(
        Effect.logWarning(`${error.message}; falling back to the portable backend, which is slower`),
        Ref.getAndSet(warned, true),
      )
    return withLibrary(Effect.catchTag(native, "TokenizerError", (error) => Effect.zipRight(warnOnce(error), portable)))
  }),
)
