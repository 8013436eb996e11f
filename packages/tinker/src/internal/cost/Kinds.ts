/** The kinds of work on tokens, and their names in prices and billing rows. */
import type * as Billing from "../../protocol/schemas/Billing.ts"
import type { Tokens } from "./Tokens.ts"

export type Kind = keyof Tokens

export const kinds: ReadonlyArray<Kind> = ["prefill", "cachedPrefill", "sampled", "trained"]

export const priceOf = {
  prefill: "prefill",
  cachedPrefill: "cachedPrefill",
  sampled: "sample",
  trained: "train",
} as const

export const kindOf = (info: Billing.UsageInfo): Kind | undefined => {
  switch (info.type) {
    case "training":
      return "trained"
    case "sampling_prefill":
      return "cached" in info && info.cached === true ? "cachedPrefill" : "prefill"
    case "sampling_sample":
      return "sampled"
    default:
      return undefined
  }
}
