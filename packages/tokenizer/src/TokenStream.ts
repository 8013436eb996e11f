/**
 * Tokens in, text out, as they come: the text never changes afterwards and is never cut within a character.
 *
 * @since 0.1.0
 */
import * as Stream from "effect/Stream"
import type { InvalidInput } from "effect-tinker/TinkerError"
import type { DecodeOptions, Service, Tokens } from "./Tokenizer.ts"
import type { TokenizerError } from "./TokenizerError.ts"

/**
 * The pieces of text, none of them empty. Joined they are what `decode` makes of all tokens together.
 *
 * How long a token waits depends on the definition: for the rest of its character (byte-level), or for the end of a run
 * of bytes (byte fallback), because one bad byte makes all of the run unreadable.
 *
 * @since 0.1.0
 * @category combinators
 */
export const decode =
  (tokenizer: Pick<Service, "decoder">, options?: DecodeOptions) =>
  <E, R>(tokens: Stream.Stream<number | Tokens, E, R>): Stream.Stream<string, E | InvalidInput | TokenizerError, R> =>
    Stream.suspend(() => {
      // One for each run of the stream.
      const decoder = tokenizer.decoder(options)
      return tokens.pipe(
        Stream.mapEffect((some) => decoder.push(typeof some === "number" ? [some] : some)),
        Stream.concat(Stream.fromEffect(decoder.finish)),
        Stream.filter((text) => text !== ""),
      )
    })
