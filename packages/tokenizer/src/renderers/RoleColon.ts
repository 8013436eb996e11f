/**
 * `User: …`, `Assistant: …`: a format for base models, which have no chat format.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as Family from "../internal/renderer/Family.ts"
import * as Scanner from "../internal/renderer/Scanner.ts"
import type { Renderer } from "../Renderer.ts"
import type * as Tokenizer from "../Tokenizer.ts"

const name = "role_colon"
const stop = "\n\nUser:"
const prefix = " "
const suffix = "\n\n"

const headerOf = (role: string) => `${role.slice(0, 1).toUpperCase()}${role.slice(1).toLowerCase()}:`

const contentOf = (text: string) => {
  const begun = text.startsWith(prefix) ? text.slice(prefix.length) : text
  return begun.endsWith(suffix) ? begun.slice(0, -suffix.length) : begun
}

/**
 * Creates a renderer for base models. An answer may also end with the end-of-text token. Rejects tools and reasoning.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (tokenizer: Tokenizer.Service): Effect.Effect<Renderer> => {
  const eos = Option.map(tokenizer.specialTokens.eos, ({ id }) => id)
  const bos = tokenizer.chat.specialTokens["bos_token"] ?? ""

  const family: Family.Family = {
    name,
    hasExtensionProperty: true,
    stopSequences: [stop],
    stopTokens: new Set(Option.toArray(eos)),
    bos,
    disablesThinking: false,
    render: (message, { path }) =>
      Either.map(Family.onlyText(name, message, path), (text) => ({
        header: headerOf(message.role),
        output: [{ text: prefix + text + suffix }],
        // Only answers end this way; other messages never include the rest of the stop sequence.
        stopOverlap: message.role === "assistant" ? "User:" : undefined,
      })),
    suffix: (role) => Either.right(headerOf(role)),
    parse: (tokens) => {
      const ended = Option.contains(eos, tokens.at(-1))
      return Effect.map(tokenizer.decode(ended ? tokens.slice(0, -1) : tokens), (text) => {
        const [first = "", ...more] = text.split(stop)
        const termination =
          more.length === 0
            ? ended
              ? "eos"
              : "malformed"
            : more.length === 1 && !ended
              ? "stop_sequence"
              : "malformed"
        return { message: { role: "assistant", content: contentOf(first) }, termination }
      })
    },
    scanner: () => Scanner.until(stop, prefix, suffix),
    toolPrefix: Family.noTools(name, "base models have no tool format"),
  }
  return Effect.succeed(Family.make(family, tokenizer))
}
