/** Whether a server elsewhere serves the weights that were trained. */
import * as HttpClient from "@effect/platform/HttpClient"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type * as Tokenizer from "@effect-tinker/tokenizer/Tokenizer"
import type { TokenizerError } from "@effect-tinker/tokenizer/TokenizerError"
import type * as SamplingClient from "effect-tinker/SamplingClient"
import { type FutureError, InvalidInput, type UnexpectedResponse } from "effect-tinker/TinkerError"
import { oneLine, shortNumber } from "../Lines.ts"
import * as Served from "../ServedCompletions.ts"
import { positive, sizeOf, type Verdict, verdictOf, whole, withoutLogprobs } from "./Common.ts"

/**
 * Options of {@link serving}.
 *
 * @since 0.1.0
 * @category models
 */
export interface ServingOptions {
  /** Samples from the weights that should be served. */
  readonly sampler: Pick<SamplingClient.Service, "sample">
  /** A server with the completions of the OpenAI API, e.g. vLLM. */
  readonly endpoint: Served.Endpoint
  /** Prompts as token ids. */
  readonly prompts: ReadonlyArray<ReadonlyArray<number>>
  /**
   * The most tokens of a completion.
   *
   * @default 32
   */
  readonly maxTokens?: number | undefined
  /**
   * The largest mean difference of the log probabilities that passes.
   *
   * @default 0.02
   */
  readonly threshold?: number | undefined
  /**
   * Two tokens whose log probabilities are closer than this at the endpoint are a tie: the choice of the other one is no
   * error.
   *
   * @default 0.2
   */
  readonly tie?: number | undefined
  /** Needed for servers that return the texts of tokens instead of their ids. */
  readonly tokenizer?: Pick<Tokenizer.Service, "decode"> | undefined
}

/**
 * A prompt that sampler and endpoint have completed.
 *
 * @since 0.1.0
 * @category models
 */
export interface ServedPrompt {
  /** The number of the prompt, from 0. */
  readonly prompt: number
  /** How many tokens the sampler has generated, and how many of them the endpoint has generated as well. */
  readonly tokens: number
  readonly same: number
  /** The largest difference of a log probability. */
  readonly worst: number
  /** Where the endpoint has gone on otherwise. */
  readonly parting: Parting | undefined
}

/**
 * The first token that is not the same.
 *
 * @since 0.1.0
 * @category models
 */
export interface Parting {
  /** The number of the token in the completion, from 0. */
  readonly position: number
  /** The tokens as ids or texts; `nothing` if one of the two had ended. */
  readonly sampler: string
  readonly served: string
  /** How much likelier the endpoint's own token is there; infinite if that is unknown. */
  readonly gap: number
  readonly isTie: boolean
}

/**
 * The report of {@link serving}.
 *
 * @since 0.1.0
 * @category models
 */
export interface ServingReport extends Verdict {
  readonly _tag: "Serving"
  readonly model: string
  readonly threshold: number
  /** How many tokens were the same, so that their log probabilities can be compared. */
  readonly tokens: number
  /** The mean and the largest absolute difference of their log probabilities; 0 without any. */
  readonly meanDifference: number
  readonly worstDifference: number
  readonly prompts: ReadonlyArray<ServedPrompt>
}

interface OwnToken {
  readonly token: number
  readonly text: string | undefined
  readonly logprob: number
}

interface Own {
  readonly tokens: ReadonlyArray<OwnToken>
  readonly isStopped: boolean
}

const isNamed = ({ text, token }: OwnToken, name: Served.Name): boolean =>
  "id" in name ? name.id === token : name.text === text

const textOf = (name: Served.Name): string => ("id" in name ? String(name.id) : JSON.stringify(name.text))

/** Compares completions up to the first token that is not the same. */
const compare = (
  own: Own,
  served: Served.Completion,
  tie: number,
): Pick<ServedPrompt, "same" | "parting"> & { readonly differences: ReadonlyArray<number> } => {
  const differences: Array<number> = []
  for (let position = 0; ; position++) {
    const [mine, theirs] = [own.tokens[position], served.tokens[position]]
    if (mine !== undefined && theirs !== undefined && isNamed(mine, theirs.name)) {
      differences.push(sizeOf(mine.logprob - theirs.logprob))
      continue
    }
    // The token that ends a completion is not among those of the endpoint.
    const isEnd = position >= own.tokens.length - (own.isStopped ? 1 : 0)
    if (theirs === undefined && (mine === undefined || (isEnd && served.isStopped)))
      return { same: position, parting: undefined, differences }
    const known = mine && theirs?.top.find(({ name }) => isNamed(mine, name))
    const gap = known === undefined || theirs === undefined ? Number.POSITIVE_INFINITY : theirs.logprob - known.logprob
    return {
      same: position,
      differences,
      parting: {
        position,
        sampler:
          mine === undefined ? "nothing" : mine.text === undefined ? String(mine.token) : JSON.stringify(mine.text),
        served: theirs === undefined ? "nothing" : textOf(theirs.name),
        gap,
        isTie: gap <= tie,
      },
    }
  }
}

/**
 * Compares a model that is served elsewhere with the sampler: the most likely completions of the same prompts, and their
 * log probabilities. Finds adapters that were not loaded, not merged, or belong to another checkpoint.
 *
 * @since 0.1.0
 * @category checks
 */
export const serving = (
  options: ServingOptions,
): Effect.Effect<
  ServingReport,
  InvalidInput | FutureError | UnexpectedResponse | TokenizerError | Served.EndpointFailed,
  HttpClient.HttpClient
> =>
  Effect.gen(function* () {
    const { endpoint, maxTokens = 32, prompts, sampler, threshold = 0.02, tie = 0.2, tokenizer } = options
    yield* whole({ maxTokens })
    yield* positive({ threshold, tie })
    if (prompts.length === 0) return yield* new InvalidInput({ path: "prompts", problem: "expected at least one" })
    const http = yield* HttpClient.HttpClient
    const compared = yield* Effect.forEach(
      prompts,
      (prompt, index) =>
        Effect.gen(function* () {
          const { sequences } = yield* sampler.sample({ prompt, params: { maxTokens, temperature: 0 } })
          const served = yield* Served.complete(http, endpoint, prompt, maxTokens)
          if (tokenizer === undefined && served.tokens.some(({ name }) => "text" in name)) {
            const problem = `${endpoint.url} names tokens by their texts: a tokenizer is needed to compare them`
            return yield* new InvalidInput({ path: "tokenizer", problem })
          }
          const [sequence] = sequences
          if (sequence === undefined) return yield* withoutLogprobs
          const logprobs = yield* Option.match(sequence.logprobs, {
            onNone: () => withoutLogprobs,
            onSome: Effect.succeed,
          })
          const tokens = yield* Effect.forEach(sequence.tokens, (token, at) =>
            Effect.map(
              tokenizer === undefined ? Effect.succeed(undefined) : tokenizer.decode([token]),
              (text): OwnToken => ({ token, text, logprob: logprobs[at] ?? Number.NaN }),
            ),
          )
          const { differences, ...found } = compare({ tokens, isStopped: sequence.stopReason === "stop" }, served, tie)
          const worst = differences.reduce((most, difference) => Math.max(most, difference), 0)
          return { differences, report: { ...found, prompt: index, tokens: tokens.length, worst } }
        }),
      { concurrency: 8 },
    )
    const differences = compared.flatMap(({ differences }) => differences)
    const meanDifference =
      differences.length === 0 ? 0 : differences.reduce((sum, size) => sum + size, 0) / differences.length
    const all = compared.map(({ report }): ServedPrompt => report)
    const problems = [
      ...all.flatMap(({ parting, prompt }) =>
        parting === undefined || parting.isTie
          ? []
          : [
              `prompt ${prompt}: token ${parting.position} is ${parting.served} instead of ${parting.sampler}, and no tie`,
            ],
      ),
      ...(meanDifference <= threshold
        ? []
        : [`log probabilities are ${shortNumber(meanDifference)} apart on average, more than ${threshold}`]),
    ]
    return {
      _tag: "Serving",
      model: endpoint.model,
      threshold,
      tokens: differences.length,
      meanDifference,
      worstDifference: differences.reduce((most, difference) => Math.max(most, difference), 0),
      prompts: all,
      ...verdictOf(problems),
    }
  })

export const servingText = (report: ServingReport): ReadonlyArray<string> => [
  `serving of ${oneLine(report.model)}: ${report.tokens} tokens of ${report.prompts.length} prompts`,
  ...(report.tokens === 0
    ? []
    : [
        `  difference of log probabilities: mean ${shortNumber(report.meanDifference)}, largest ${shortNumber(report.worstDifference)}`,
      ]),
  ...report.prompts.flatMap(({ parting, prompt, same, tokens, worst }) => [
    `  prompt ${prompt}: ${same} of ${tokens} tokens the same${same === 0 ? "" : `, largest difference ${shortNumber(worst)}`}`,
    ...(parting === undefined
      ? []
      : [
          `    then ${oneLine(parting.served)} instead of ${oneLine(parting.sampler)}${parting.isTie ? ", which is a tie" : ""}`,
        ]),
  ]),
]
