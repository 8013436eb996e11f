/**
 * The model that ships with `@effect-tinker/engine`.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Family from "../internal/renderer/Family.ts"
import * as Scanner from "../internal/renderer/Scanner.ts"
import type { Renderer } from "../Renderer.ts"
import type { RendererError } from "../RendererError.ts"
import type * as Tokenizer from "../Tokenizer.ts"

const name = "valley"

/**
 * Creates a renderer for the local model, equal to its chat template. Rejects tools and reasoning.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (tokenizer: Tokenizer.Service): Effect.Effect<Renderer, RendererError> =>
  Effect.gen(function* () {
    yield* Family.tokenOf(name, tokenizer, "<|turn|>")
    const stop = yield* Family.tokenOf(name, tokenizer, "<|end|>")
    const headerOf = (role: string, { index }: Family.Place) => `${index > 0 ? "\n" : ""}<|turn|>${role}\n`

    return Family.make(
      {
        name,
        hasExtensionProperty: true,
        stopSequences: [stop],
        stopTokens: new Set([stop]),
        bos: "",
        disablesThinking: false,
        render: (message, place) =>
          Either.map(Family.onlyText(name, message, place.path), (text) => ({
            header: headerOf(message.role, place),
            output: [{ text: `${text}<|end|>` }],
          })),
        suffix: (role, place) => Either.right(headerOf(role, place)),
        parse: Family.parseWith(name, tokenizer, new Map([[stop, "stop_sequence"]]), (content) => ({
          role: "assistant",
          content,
        })),
        scanner: Scanner.plain,
        toolPrefix: Family.noTools(name, "the model has never seen any"),
      },
      tokenizer,
    )
  })
