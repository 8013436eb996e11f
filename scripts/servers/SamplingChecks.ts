/** Checks sampling from the base model, whose numbers are known, and from trained weights. */
import { Array as Arr, Duration, Effect, type Option } from "effect"
import { SamplingClient, ServiceClient, type TrainingClient } from "effect-tinker"
import { CheckFailed, expect, refused, type Report } from "./Report.ts"
import { modelName } from "./Server.ts"
import * as ToyTask from "./ToyTask.ts"

const prompt = ToyTask.pairs[0].prompt
/** The greedy continuation of the prompt by the base model. */
const continuation = [445, 344, 473]

const greedy = { temperature: 0, maxTokens: continuation.length }

const equal = (actual: ArrayLike<number>, wanted: ReadonlyArray<number>) =>
  expect(Arr.getEquivalence(Object.is)(Array.from(actual), wanted), `expected ${wanted}, got ${Array.from(actual)}`)

/** Samples one sequence. */
const tokens = (sampler: SamplingClient.Service, request: Omit<SamplingClient.Request, "prompt">) =>
  Effect.flatMap(sampler.sample({ prompt, ...request }), ({ sequences: [sequence] }) =>
    sequence === undefined ? new CheckFailed({ message: "the response has no sequence" }) : Effect.succeed(sequence),
  )

const required = <A>(option: Option.Option<A>) =>
  Effect.mapError(option, () => new CheckFailed({ message: "the server ignored the request" }))

export const base = ({ check, probe }: Report) =>
  Effect.gen(function* () {
    const service = yield* ServiceClient.ServiceClient
    const sampler = yield* check(
      "create a sampler of the base model",
      service.createSamplingClient({ baseModel: modelName }),
      ({ samplingSessionId }) => samplingSessionId,
    )
    yield* probe(
      "base model name of a sampler",
      Effect.tap(sampler.getBaseModel, (name) => expect(name === modelName, name)),
    )
    yield* probe(
      "greedy sampling gives the known tokens",
      Effect.gen(function* () {
        const sequence = yield* tokens(sampler, { params: greedy })
        yield* equal(sequence.tokens, continuation)
        yield* expect(sequence.stopReason === "length", `the stop reason is ${sequence.stopReason}`)
        const [first = Number.NaN] = yield* required(sequence.logprobs)
        yield* expect(Math.abs(first - -4.485) < 0.02, `the first token has the log probability ${first}`)
      }),
    )
    yield* probe(
      "prompt log probabilities align with the tokens, with none for the first",
      Effect.gen(function* () {
        const [first, ...others] = yield* sampler.computeLogprobs(prompt)
        yield* expect(Number.isNaN(first), `the first is ${first}`)
        yield* expect(others.length === prompt.length - 1, `${others.length + 1} for ${prompt.length} tokens`)
        for (const [i, logprob] of others.entries()) {
          const wanted = ToyTask.firstLogprobs[i] ?? Number.NaN
          yield* expect(Math.abs(logprob - wanted) < 0.02, `${logprob} at ${i + 1}, not ${wanted}`)
        }
      }),
    )
    const hot = { numSamples: 4, params: { temperature: 1, maxTokens: 8, seed: 7 } }
    yield* probe(
      "four samples, identical with the same seed",
      Effect.gen(function* () {
        const drawn = Effect.map(sampler.sample({ prompt, ...hot }), ({ sequences }) =>
          sequences.map((sequence) => Array.from(sequence.tokens).join(" ")),
        )
        const first = yield* drawn
        yield* expect(
          new Set(first).size === hot.numSamples,
          `expected four different samples, got ${first.join(", ")}`,
        )
        yield* expect(Arr.getEquivalence(Object.is)(first, yield* drawn), "the same seed gave different samples")
      }),
    )
    yield* probe(
      "a stop token ends a sample",
      Effect.gen(function* () {
        const sequence = yield* tokens(sampler, { params: { ...greedy, stop: [continuation[1] ?? 0] } })
        yield* equal(sequence.tokens, continuation.slice(0, 2))
        yield* expect(sequence.stopReason === "stop", `the stop reason is ${sequence.stopReason}`)
      }),
    )
    yield* probe("stop texts", tokens(sampler, { params: { ...greedy, stop: ["five", "six"] } }))
    yield* probe("one stop text", tokens(sampler, { params: { ...greedy, stop: "five" } }))
    yield* probe("sample without a token limit", tokens(sampler, { params: { temperature: 0 } }))
    yield* probe(
      "most likely tokens of the prompt",
      Effect.flatMap(
        sampler.sample({ prompt, params: greedy, promptLogprobs: true, topkPromptLogprobs: 2 }),
        ({ topkPromptLogprobs }) => required(topkPromptLogprobs),
      ),
    )
    yield* probe(
      "most likely tokens of the sample",
      Effect.flatMap(tokens(sampler, { params: greedy, topkSampleLogprobs: 2 }), ({ topkLogprobs }) =>
        required(topkLogprobs),
      ),
    )
    yield* probe(
      "64 concurrent samples",
      Effect.gen(function* () {
        const all = yield* Effect.forEach(Arr.range(1, 64), () => tokens(sampler, { params: greedy }), {
          concurrency: "unbounded",
        })
        yield* Effect.forEach(all, (sequence) => equal(sequence.tokens, continuation))
      }),
    )
    yield* probe(
      "an interrupted sample ends immediately, and the next one works",
      Effect.gen(function* () {
        const [took] = yield* tokens(sampler, { params: { temperature: 1, maxTokens: 200 } }).pipe(
          Effect.timeoutOption("50 millis"),
          Effect.timed,
        )
        yield* expect(Duration.lessThan(took, "1 second"), "it took longer than a second")
        yield* tokens(sampler, { params: greedy })
      }),
    )
    yield* probe(
      "a future of a sample",
      Effect.flatMap(sampler.submit.sample({ prompt, params: greedy }), (future) => future.await),
    )
    yield* probe(
      "a second client of a sampler by handle",
      Effect.gen(function* () {
        const clone = yield* SamplingClient.fromHandle(yield* sampler.handle)
        yield* equal((yield* tokens(clone, { params: greedy })).tokens, continuation)
      }),
    )
    yield* probe(
      "a sampler of a missing checkpoint is refused",
      refused(
        Effect.flatMap(
          service.createSamplingClient({ modelPath: "tinker://unknown/sampler_weights/missing" }),
          (missing) => missing.sample({ prompt, params: greedy }),
        ),
        "NotFound",
      ),
    )
  }).pipe(Effect.scoped)

/** Returns the number of correct greedy answers. */
const score = (sampler: SamplingClient.Service) =>
  Effect.map(
    Effect.forEach(
      ToyTask.pairs,
      ({ answer, prompt }) =>
        Effect.map(
          sampler.sample({ prompt, params: { temperature: 0, maxTokens: 8, stop: [ToyTask.endOfAnswer] } }),
          ({ sequences }) => {
            const said = Array.from(sequences[0]?.tokens ?? []).filter((token) => token !== ToyTask.endOfAnswer)
            return said.join(" ") === answer.join(" ")
          },
        ),
      { concurrency: "unbounded" },
    ),
    (right) => right.filter(Boolean).length,
  )

const knows = (sampler: SamplingClient.Service) =>
  Effect.flatMap(score(sampler), (right) =>
    expect(right === ToyTask.pairs.length, `${right} of ${ToyTask.pairs.length} answers are right`),
  )

/** Checks the learned answers; returns the path of the weights. */
export const learned = ({ check, probe }: Report, training: TrainingClient.Service) =>
  Effect.gen(function* () {
    yield* probe(
      "a sampler of the current weights gives the learned answers",
      Effect.flatMap(training.saveWeightsAndGetSamplingClient(), knows),
    )
    const { path } = yield* check("save sampler weights", training.saveWeightsForSampler("learned"), ({ path }) => path)
    yield* probe(
      "a sampler of the saved weights gives the learned answers",
      Effect.flatMap(training.createSamplingClient(path), knows),
    )
    return path
  })
