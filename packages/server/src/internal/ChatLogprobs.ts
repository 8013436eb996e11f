/** Log probabilities of an answer, in the two forms in which the OpenAI-compatible endpoints tell them. */
import * as Effect from "effect/Effect"
import type * as ModelHost from "../ModelHost.ts"
import type { Core } from "./Core.ts"

type Token = ModelHost.SampledToken

/** The tokens of a whole sequence, as they were drawn. */
export const tokensOf = ({ logprobs, tokens, topk }: ModelHost.Sequence): Array<Token> =>
  Array.from(tokens, (token, i) => ({
    token,
    logprob: logprobs[i] ?? Number.NaN,
    top: topk && {
      tokenIds: topk.tokenIds.subarray(i * topk.k, (i + 1) * topk.k),
      logprobs: topk.logprobs.subarray(i * topk.k, (i + 1) * topk.k),
    },
  }))

/** Half a character has bytes, which the tokenizer does not tell. */
const bytesOf = (text: string): Array<number> | null => (text.includes("\uFFFD") ? null : [...Buffer.from(text)])

/** The texts of tokens and of the likeliest in their place, all asked for at once. */
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

interface Told {
  readonly value: object
  /** Where in the text the tokens end. */
  readonly end: number
}

/** `from` is where in the text the tokens begin. */
export const told = (
  core: Core,
  base: ModelHost.BaseModel,
  kind: "chat" | "text",
  tokens: ReadonlyArray<Token>,
  from: number,
): Effect.Effect<Told, ModelHost.HostError> =>
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
