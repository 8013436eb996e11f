/** Encodes the log probabilities of an answer in the two formats of the OpenAI-compatible endpoints. */
import * as Effect from "effect/Effect"
import type * as ModelHost from "../ModelHost.ts"
import type { Core } from "./Core.ts"

type Token = ModelHost.SampledToken

/** Returns the tokens of a sequence with their log probabilities. */
export const tokensOf = ({ logprobs, tokens, topk }: ModelHost.Sequence): Array<Token> =>
  Array.from(tokens, (token, i) => ({
    token,
    logprob: logprobs[i] ?? Number.NaN,
    top: topk && {
      tokenIds: topk.tokenIds.subarray(i * topk.k, (i + 1) * topk.k),
      logprobs: topk.logprobs.subarray(i * topk.k, (i + 1) * topk.k),
    },
  }))

/** Returns the UTF-8 bytes of a string, or null for a partial character, whose bytes the tokenizer does not provide. */
const bytesOf = (text: string): Array<number> | null => (text.includes("\uFFFD") ? null : [...Buffer.from(text)])

/** Decodes tokens and the most likely alternatives at their positions, all in one call. */
const textsOf = (core: Core, base: ModelHost.BaseModel, tokens: ReadonlyArray<Token>) => {
  const ids = tokens.flatMap(({ token, top }) => [token, ...(top?.tokenIds ?? [])])
  return Effect.map(core.host.pieces(base.name, Int32Array.from(ids)), (texts) => {
    let at = 0
    return tokens.map(({ logprob, top }) => ({
      logprob,
      text: texts[at++] ?? "",
      top: Array.from(top?.logprobs ?? [], (logprob) => ({ logprob, text: texts[at++] ?? "" })),
    }))
  })
}

interface Encoded {
  readonly value: object
  /** The offset in the text at which the tokens end. */
  readonly end: number
}

/** Encodes the log probabilities of tokens that start at offset `from` of the text. */
export const encode = (
  core: Core,
  base: ModelHost.BaseModel,
  kind: "chat" | "text",
  tokens: ReadonlyArray<Token>,
  from: number,
): Effect.Effect<Encoded, ModelHost.HostError> =>
  Effect.map(textsOf(core, base, tokens), (texts) => {
    const offsets = [from]
    for (const { text } of texts) offsets.push((offsets.at(-1) ?? 0) + text.length)
    const end = offsets.pop() ?? from
    if (kind === "text")
      return {
        end,
        value: {
          tokens: texts.map(({ text }) => text),
          token_logprobs: texts.map(({ logprob }) => logprob),
          top_logprobs: texts.map(({ top }) => Object.fromEntries(top.map(({ logprob, text }) => [text, logprob]))),
          text_offset: offsets,
        },
      }
    const cell = (text: string, logprob: number) => ({ token: text, logprob, bytes: bytesOf(text) })
    return {
      end,
      value: {
        content: texts.map(({ logprob, text, top }) => ({
          ...cell(text, logprob),
          top_logprobs: top.map(({ logprob, text }) => cell(text, logprob)),
        })),
        refusal: null,
      },
    }
  })
