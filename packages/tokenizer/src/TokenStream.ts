/**
 * Decodes streams of tokens. Emitted text never changes later and never ends within a character.
 *
 * @since 0.1.0
 */
import * as Stream from "effect/Stream"
import type { InvalidInput } from "effect-tinker/TinkerError"
import type { DecodeOptions, Service, Tokens } from "./Tokenizer.ts"
import type { TokenizerError } from "./TokenizerError.ts"

/**
 * Decodes a stream of tokens into non-empty pieces of text. Joined, they equal what `decode` returns for all tokens.
 *
 * How long text is held back depends on the tokenizer: until its character is complete (byte-level), or until a run of
 * bytes ends (byte fallback), because a single invalid byte makes the whole run invalid.
 *
 * @since 0.1.0
 * @category combinators
 */
export const decode =
  (tokenizer: Pick<Service, "decoder">, options?: DecodeOptions) =>
  <E, R>(tokens: Stream.Stream<number | Tokens, E, R>): Stream.Stream<string, E | InvalidInput | TokenizerError, R> =>
    Stream.suspend(() => {
      // Every run of the stream needs its own decoder.
      const decoder = tokenizer.decoder(options)
      return tokens.pipe(
        Stream.mapEffect((some) => decoder.push(typeof some === "number" ? [some] : some)),
        Stream.concat(Stream.fromEffect(decoder.finish)),
        Stream.filter((text) => text !== ""),
      )
    })
