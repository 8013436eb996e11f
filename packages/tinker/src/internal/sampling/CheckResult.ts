/** Checks a sample's result against its request. */
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import { kinds } from "../../ApiFuture.ts"
import * as ModelInput from "../../ModelInput.ts"
import type { Accepted } from "../../protocol/schemas/Futures.ts"
import type { SampleRequest } from "../../protocol/schemas/Sampling.ts"
import * as SampleResult from "../../SampleResult.ts"
import { UnexpectedResponse } from "../../TinkerError.ts"

type Request = Pick<SampleRequest, "prompt" | "promptAltTokensK" | "promptLogprobsLastN">

/** Aligns the result with its prompt, and fails if it lacks what was asked for or holds what was not. */
export const checkResult = (
  { prompt, promptAltTokensK = 0, promptLogprobsLastN }: Request,
  { requestId, sampleSequenceIds }: Accepted,
  response: SampleResult.SampleResult,
): Either.Either<SampleResult.SampleResult, UnexpectedResponse> => {
  const unexpected = (detail: string) =>
    Either.left(
      new UnexpectedResponse({
        operation: kinds.sample.type,
        requestId: Option.some(requestId),
        reason: "Schema",
        detail,
      }),
    )
  const result = Option.match(ModelInput.length(prompt), {
    onNone: () => response,
    onSome: (length) => SampleResult.alignPromptLogprobs(response, length),
  })
  if (promptAltTokensK > 0 && Option.isNone(result.promptAltTokens)) {
    return unexpected("no promptAltTokens, which were asked for; the server may be older than they are")
  }
  if (promptLogprobsLastN !== undefined && Option.isSome(result.promptLogprobs)) {
    const before = result.promptLogprobs.value.subarray(0, -promptLogprobsLastN)
    const early = before.findIndex((value) => !Number.isNaN(value))
    if (early >= 0) {
      return unexpected(`a log probability at ${early}, before the last ${promptLogprobsLastN} of the prompt`)
    }
  }
  return Either.right(
    Option.match(sampleSequenceIds, {
      onNone: () => result,
      onSome: (ids) => SampleResult.withSequenceIds(result, ids),
    }),
  )
}

/** Counts the tokens that were sampled. */
export const tokensIn = ({ sequences }: SampleResult.SampleResult): number =>
  sequences.reduce((sum, { tokens }) => sum + tokens.length, 0)
