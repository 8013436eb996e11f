/**
 * Llama 3 instruct models, without the dates that the stock template adds to the system message.
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

const name = "llama3"

const headerOf = (role: string) => `<|start_header_id|>${role}<|end_header_id|>\n\n`

/**
 * Creates a renderer for Llama 3. Rejects tools: calls would be bare JSON, indistinguishable from an answer in JSON.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (tokenizer: Tokenizer.Service): Effect.Effect<Renderer, RendererError> =>
  Effect.gen(function* () {
    const bos = "<|begin_of_text|>"
    for (const token of [bos, "<|start_header_id|>", "<|end_header_id|>"]) {
      yield* Family.tokenOf(name, tokenizer, token)
    }
    const stop = yield* Family.tokenOf(name, tokenizer, "<|eot_id|>")

    return Family.make(
      {
        name,
        hasExtensionProperty: true,
        stopSequences: [stop],
        stopTokens: new Set([stop]),
        bos,
        disablesThinking: false,
        render: (message, { path }) =>
          Either.map(Family.onlyText(name, message, path), (text) => ({
            header: headerOf(message.role),
            output: [{ text: `${text}<|eot_id|>` }],
          })),
        suffix: (role) => Either.right(headerOf(role)),
        parse: (tokens) =>
          Effect.gen(function* () {
            const { before, stopped } = yield* Family.beforeStop(name, tokens, stop)
            const content = yield* tokenizer.decode(before)
            return { message: { role: "assistant", content }, termination: stopped ? "stop_sequence" : "malformed" }
          }),
        scanner: Scanner.plain,
        toolPrefix: Family.noTools(name, "its tool calls can't be distinguished from answers in JSON"),
      },
      tokenizer,
    )
  })
