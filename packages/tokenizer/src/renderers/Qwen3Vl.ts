/**
 * Qwen3-VL: texts and images, with or without reasoning.
 *
 * @since 0.1.0
 */
import type * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Chatml from "../internal/renderer/Chatml.ts"
import * as Family from "../internal/renderer/Family.ts"
import * as Images from "../internal/renderer/Images.ts"
import * as PythonJson from "../internal/renderer/PythonJson.ts"
import * as Tagged from "../internal/renderer/Tagged.ts"
import type { Renderer } from "../Renderer.ts"
import type { RendererError } from "../RendererError.ts"
import type * as Tokenizer from "../Tokenizer.ts"
import { toolPrefix } from "./Qwen3.ts"

/**
 * Options of {@link make}.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** Whether the model has no reasoning blocks, as the instruct models. Default: false. */
  readonly instruct?: boolean | undefined
}

/**
 * Creates a renderer for Qwen3-VL. Special tokens spelled out in a message are encoded as special tokens.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (tokenizer: Tokenizer.Service, options: Options = {}): Effect.Effect<Renderer, RendererError> => {
  const instruct = options.instruct ?? false
  return Chatml.make(
    {
      name: instruct ? "qwen3_vl_instruct" : "qwen3_vl",
      // Reasoning is left out of the history, also for instruct models.
      hasExtensionProperty: false,
      disablesThinking: false,
      opening: "",
      opensThinking: false,
      lead: () => "",
      strips: ({ isLast }) => !isLast,
      thought: (thinking) => `<think>${thinking}</think>`,
      calls: ({ toolCalls = [] }, path) =>
        Either.map(
          Either.all(
            toolCalls.map((call, index) =>
              Either.match(PythonJson.reprint(call.arguments), {
                onLeft: ({ message }) =>
                  Family.invalid(`${path}.toolCalls[${index}].arguments`, `invalid JSON: ${message}`),
                onRight: (args) => Either.right(Tagged.callText(call.name, args)),
              }),
            ),
          ),
          (calls) => `\n${calls.join("\n")}`,
        ),
      result: { open: "<tool_response>\n", close: "\n</tool_response>" },
      wrapImages: Chatml.wrapped("<|vision_start|>", "<|vision_end|>"),
      countImage: Images.qwen,
      style: Tagged.qwen3(!instruct),
      toolPrefix: (tools, systemPrompt) => Either.right([toolPrefix(tools, systemPrompt)]),
    },
    tokenizer,
  )
}
