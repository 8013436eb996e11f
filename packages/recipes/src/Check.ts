/**
 * Checks that save money, because what they find is otherwise found after a long run: whether a saved state continues as
 * if nothing had happened ({@link resume}), whether sampler and trainer compute the same numbers ({@link numerics}), and
 * whether a server elsewhere serves the weights that were trained ({@link serving}). Each one returns a report, which
 * {@link format} shows to people and {@link orFail} turns into a failure.
 *
 * @since 0.1.0
 */
import * as HttpClient from "@effect/platform/HttpClient"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as Datums from "@effect-tinker/tokenizer/Datums"
import type * as Tokenizer from "@effect-tinker/tokenizer/Tokenizer"
import type { TokenizerError } from "@effect-tinker/tokenizer/TokenizerError"
import type { Datum } from "effect-tinker/Datum"
import * as Loss from "effect-tinker/Loss"
import * as Optimizer from "effect-tinker/Optimizer"
import type * as SamplingClient from "effect-tinker/SamplingClient"
import { ServiceClient } from "effect-tinker/ServiceClient"
import { type FutureError, InvalidInput, type TrainingError, UnexpectedResponse } from "effect-tinker/TinkerError"
import type * as TrainingClient from "effect-tinker/TrainingClient"
import * as TrainingResult from "effect-tinker/TrainingResult"
import { oneLine, shortNumber } from "./internal/Lines.ts"
import { seedOf } from "./internal/Rollouts.ts"
import * as Served from "./internal/ServedCompletions.ts"
import * as Kl from "./Kl.ts"
import * as Likelihood from "./Likelihood.ts"
import type { Metrics } from "./RunEvent.ts"

/** What every report has. */
interface Verdict {
  /** Whether no problem was found. */
  readonly passed: boolean
  /** What is wrong, one sentence each. */
  readonly problems: ReadonlyArray<string>
}

const verdictOf = (problems: ReadonlyArray<string>): Verdict => ({ passed: problems.length === 0, problems })

const positive = (values: Readonly<Record<string, number>>): Either.Either<void, InvalidInput> => {
  const bad = Object.entries(values).find(([, value]) => !(value > 0 && Number.isFinite(value)))
  return bad === undefined
    ? Either.void
    : Either.left(new InvalidInput({ path: bad[0], problem: `expected a positive number, got ${bad[1]}` }))
}

const whole = (values: Readonly<Record<string, number>>): Either.Either<void, InvalidInput> => {
  const bad = Object.entries(values).find(([, value]) => !(Number.isSafeInteger(value) && value > 0))
  return bad === undefined
    ? Either.void
    : Either.left(new InvalidInput({ path: bad[0], problem: `expected a positive integer, got ${bad[1]}` }))
}

// Resume

/**
 * An example to train on.
 *
 * @since 0.1.0
 * @category models
 */
export type Example = Datum<{
  readonly targetTokens: Int32Array | ReadonlyArray<number>
  readonly weights: Float32Array | ReadonlyArray<number>
}>

/**
 * Options of {@link resume}.
 *
 * @since 0.1.0
 * @category models
 */
export interface ResumeOptions {
  /** The model to train: a base model, and the rank of its adapters. */
  readonly model: Omit<TrainingClient.LoraOptions, "journal">
  /**
   * At least two examples. The steps before the save train on the first half, the step after it on the other half, so
   * that an optimizer that has forgotten the first half takes another step.
   */
  readonly data: ReadonlyArray<Example>
  /**
   * How many steps are made before the state is saved.
   *
   * @default 3
   */
  readonly steps?: number | undefined
  /** @default Optimizer.adam({ learningRate: 1e-3 }) */
  readonly optimizer?: Optimizer.Optimizer | undefined
  /**
   * How far two log probabilities may be apart that should be the same.
   *
   * @default 0.01
   */
  readonly tolerance?: number | undefined
}

/**
 * One way to continue from a saved state, compared with the client that was never interrupted.
 *
 * `loaded`: into the same client, with the optimizer. `created`: as a new client, with the optimizer. `weights only`: as
 * a new client without the optimizer; it shows what a lost optimizer looks like.
 *
 * @since 0.1.0
 * @category models
 */
export interface Way {
  readonly name: "loaded" | "created" | "weights only"
  /** The loss of the next step. */
  readonly nextLoss: number
  /** The loss after that step. */
  readonly lossAfter: number
  /** The largest difference of a log probability before the next step: that of the weights. */
  readonly weights: number
  /** The largest difference of a log probability after the next step: that of the optimizer, if the weights are the same. */
  readonly optimizer: number
  readonly outcome: "same" | "other_weights" | "optimizer_dropped" | "other_optimizer" | "new_optimizer"
}

/**
 * What {@link resume} found.
 *
 * @since 0.1.0
 * @category models
 */
export interface ResumeReport extends Verdict {
  readonly _tag: "Resume"
  readonly steps: number
  readonly tolerance: number
  /** The losses of the client that was never interrupted. */
  readonly uninterrupted: { readonly nextLoss: number; readonly lossAfter: number }
  readonly ways: ReadonlyArray<Way>
}

/** What a client does next. */
interface Continuation {
  readonly before: ReadonlyArray<Float32Array>
  readonly nextLoss: number
  readonly after: ReadonlyArray<Float32Array>
  readonly lossAfter: number
}

/** Returns the largest difference, infinite if one of them is no number. */
const distance = (a: ReadonlyArray<Float32Array>, b: ReadonlyArray<Float32Array>): number =>
  a.reduce(
    (most, values, index) =>
      values.reduce((most, value, at) => {
        const difference = Math.abs(value - (b[index]?.[at] ?? Number.NaN))
        return Math.max(most, Number.isNaN(difference) ? Number.POSITIVE_INFINITY : difference)
      }, most),
    0,
  )

const outcomeOf = (
  name: Way["name"],
  { fresh, optimizer, weights }: { readonly fresh: number; readonly optimizer: number; readonly weights: number },
  tolerance: number,
): Way["outcome"] => {
  if (weights > tolerance) return "other_weights"
  if (optimizer <= tolerance) return "same"
  if (name === "weights only") return "new_optimizer"
  return fresh <= tolerance ? "optimizer_dropped" : "other_optimizer"
}

const described = {
  loaded: "loading the state with its optimizer into the same client",
  created: "creating a client from the state with its optimizer",
  "weights only": "creating a client from the weights only",
}

const problemOf = ({ name, optimizer, outcome, weights }: Way, tolerance: number): ReadonlyArray<string> => {
  const how = described[name]
  switch (outcome) {
    case "other_weights":
      return [
        `${how} restores other weights: log probabilities differ by up to ${shortNumber(weights)}, more than ${tolerance}`,
      ]
    case "optimizer_dropped":
      return [
        `${how} drops the optimizer: the next step is that of a new one, and log probabilities differ by up to ${shortNumber(optimizer)}`,
      ]
    case "other_optimizer":
      return [
        `${how} restores another optimizer: after the next step, log probabilities differ by up to ${shortNumber(optimizer)}`,
      ]
    case "same":
      return name === "weights only"
        ? [
            `a step with a new optimizer is the same within ${tolerance}, so that a lost one can't be noticed: use more steps, a higher learning rate or other data`,
          ]
        : []
    case "new_optimizer":
      return []
  }
}

/**
 * Trains a few steps, saves the state, and continues from it in three ways, each of which should do what the client does
 * that was never interrupted: same weights, same next loss, and after the next step the same weights again. A server that
 * drops the state of the optimizer is found and named. The checkpoint is deleted afterwards.
 *
 * @example
 * ```ts
 * import { Console, Effect } from "effect"
 * import { Check } from "@effect-tinker/recipes"
 * import { NodeTinker } from "@effect-tinker/node"
 *
 * const example = (...tokens: ReadonlyArray<number>) => ({
 *   modelInput: tokens.slice(0, -1),
 *   inputs: { targetTokens: tokens.slice(1), weights: tokens.slice(1).map(() => 1) },
 * })
 *
 * const program = Effect.gen(function* () {
 *   const report = yield* Check.resume({
 *     model: { baseModel: "effect-tinker/valley-1.5m", rank: 8 },
 *     data: [example(10, 20, 30, 40), example(50, 60, 70, 80)],
 *   })
 *   yield* Console.log(report.ways.map(({ name, outcome }) => `${name}: ${outcome}`).join(", "))
 *   // → loaded: same, created: same, weights only: new_optimizer
 *   yield* Check.orFail(report)
 * })
 *
 * await Effect.runPromise(Effect.provide(program, NodeTinker.layerConfig()))
 * ```
 *
 * @since 0.1.0
 * @category checks
 */
export const resume = (
  options: ResumeOptions,
): Effect.Effect<
  ResumeReport,
  TrainingError | TrainingClient.StepFailed | InvalidInput | UnexpectedResponse,
  ServiceClient
> =>
  Effect.scoped(
    Effect.gen(function* () {
      const { data, model, optimizer = Optimizer.adam({ learningRate: 1e-3 }), steps = 3, tolerance = 0.01 } = options
      yield* whole({ steps })
      yield* positive({ tolerance })
      if (data.length < 2)
        return yield* new InvalidInput({ path: "data", problem: `expected at least two examples, got ${data.length}` })
      const [before, next] = [data.slice(0, data.length >> 1), data.slice(data.length >> 1)]
      const lossOf = (logprobs: ReadonlyArray<Float32Array>) =>
        Option.getOrElse(
          Likelihood.meanNll(next.map(({ inputs }, at) => ({ logprobs: logprobs[at] ?? [], weights: inputs.weights }))),
          () => Number.NaN,
        )
      const continued = (
        client: TrainingClient.Service,
      ): Effect.Effect<Continuation, TrainingError | TrainingClient.StepFailed | UnexpectedResponse> =>
        Effect.gen(function* () {
          const before = yield* TrainingResult.logprobs(yield* client.forward(next, Loss.crossEntropy))
          const { pass } = yield* client.trainStep(next, Loss.crossEntropy, optimizer)
          const after = yield* TrainingResult.logprobs(yield* client.forward(next, Loss.crossEntropy))
          const nextLoss = lossOf(yield* TrainingResult.logprobs(pass))
          return { before, nextLoss, after, lossAfter: lossOf(after) }
        })

      const service = yield* ServiceClient
      const client = yield* service.createLoraTrainingClient(model)
      for (let step = 0; step < steps; step++) yield* client.trainStep(before, Loss.crossEntropy, optimizer)
      const { path } = yield* Effect.acquireRelease(
        client.saveState("check-resume", { ttl: "1 hour", overwrite: true }),
        // It expires anyway.
        ({ path }) => Effect.ignore(service.rest.deleteCheckpointByPath(path)),
      )
      const created = (withOptimizer: boolean) =>
        Effect.scoped(
          Effect.flatMap(service.createTrainingClientFromCheckpoint(path, { withOptimizer, optimizer }), continued),
        )
      const expected = yield* continued(client)
      const fresh = yield* created(false)
      const found = [
        ["loaded", yield* Effect.zipRight(client.loadStateWithOptimizer(path), continued(client))],
        ["created", yield* created(true)],
        ["weights only", fresh],
      ] as const
      const ways = found.map(([name, { after, before, lossAfter, nextLoss }]): Way => {
        const weights = distance(expected.before, before)
        const changed = distance(expected.after, after)
        const outcome = outcomeOf(name, { weights, optimizer: changed, fresh: distance(fresh.after, after) }, tolerance)
        return { name, nextLoss, lossAfter, weights, optimizer: changed, outcome }
      })
      return {
        _tag: "Resume",
        steps,
        tolerance,
        uninterrupted: { nextLoss: expected.nextLoss, lossAfter: expected.lossAfter },
        ways,
        ...verdictOf(ways.flatMap((way) => problemOf(way, tolerance))),
      }
    }),
  )

// Numerics

/**
 * Options of {@link numerics}.
 *
 * @since 0.1.0
 * @category models
 */
export interface NumericsOptions {
  /** The client whose current weights are sampled from and whose forward pass is compared. */
  readonly client: Pick<TrainingClient.Service, "forward" | "saveWeightsAndGetSamplingClient">
  /** What is sampled from. Long prompts find more: errors tend to grow with the length of the context. */
  readonly prompts: ReadonlyArray<Datums.Transition["observation"]>
  /**
   * How many sequences are sampled for each prompt.
   *
   * @default 4
   */
  readonly samplesPerPrompt?: number | undefined
  /**
   * The most tokens of a sequence.
   *
   * @default 128
   */
  readonly maxTokens?: number | undefined
  /**
   * The largest distance between sampler and trainer that passes. Healthy servers stay below 0.002 for most models; a
   * known bug caused 0.02 to 0.16.
   *
   * @default 0.01
   */
  readonly threshold?: number | undefined
  /**
   * How many of the tokens that differ most are reported.
   *
   * @default 10
   */
  readonly worst?: number | undefined
  /** Shows the texts of the worst tokens. */
  readonly tokenizer?: Pick<Tokenizer.Service, "decode"> | undefined
  /**
   * Decides what is sampled.
   *
   * @default 0
   */
  readonly seed?: number | undefined
}

/**
 * A token to which sampler and trainer give different log probabilities.
 *
 * @since 0.1.0
 * @category models
 */
export interface WorstToken {
  /** The number of the prompt, and of the sequence that was sampled for it, from 0. */
  readonly prompt: number
  readonly sample: number
  /** The place of the token in prompt and sequence together, from 0. */
  readonly position: number
  readonly token: number
  /** Its text, if a tokenizer was given. */
  readonly text: string | undefined
  readonly sampled: number
  readonly trained: number
  /** `sampled - trained`. */
  readonly difference: number
}

/**
 * The distances of the tokens at some positions.
 *
 * @since 0.1.0
 * @category models
 */
export interface Depth {
  /** The first position. */
  readonly from: number
  /** The position after the last one. */
  readonly to: number
  readonly tokens: number
  readonly metrics: Metrics
}

/**
 * What {@link numerics} found.
 *
 * @since 0.1.0
 * @category models
 */
export interface NumericsReport extends Verdict {
  readonly _tag: "Numerics"
  readonly threshold: number
  readonly sequences: number
  readonly tokens: number
  /** `optim/kl_sample_train_v1`, `optim/kl_sample_train_v2` and `optim/entropy` over all tokens. */
  readonly metrics: Metrics
  /** The same by position in the context: errors of long contexts appear at the end. */
  readonly depths: ReadonlyArray<Depth>
  /** The tokens that differ most, worst first. */
  readonly worst: ReadonlyArray<WorstToken>
}

interface Compared extends Kl.Compared {
  readonly prompt: number
  readonly sample: number
  readonly targets: Int32Array
}

/** The distance of both estimates, of which the first one may cancel out and the second one is never negative. */
const klOf = (metrics: Metrics): number =>
  Math.max(
    Math.abs(metrics["optim/kl_sample_train_v1"] ?? Number.NaN),
    metrics["optim/kl_sample_train_v2"] ?? Number.NaN,
  )

/** The first range of positions ends here; each of the others ends at twice the position. */
const firstDepth = 64

const depthsOf = (compared: ReadonlyArray<Compared>): Either.Either<ReadonlyArray<Depth>, InvalidInput> =>
  Either.gen(function* () {
    const longest = compared.reduce((most, { targets }) => Math.max(most, targets.length + 1), 0)
    const depths: Array<Depth> = []
    for (let [from, to] = [0, firstDepth]; from < longest; [from, to] = [to, 2 * to]) {
      let tokens = 0
      const within = compared.map(({ mask, other, sampled }) => ({
        sampled,
        other,
        mask: Float32Array.from(mask, (weight, at) => {
          const isInside = weight > 0 && at + 1 >= from && at + 1 < to
          if (isInside) tokens++
          return isInside ? 1 : 0
        }),
      }))
      if (tokens > 0) depths.push({ from, to, tokens, metrics: yield* Kl.sampleTrain(within) })
    }
    return depths
  })

const worstOf = (compared: ReadonlyArray<Compared>, count: number): ReadonlyArray<Omit<WorstToken, "text">> =>
  compared
    .flatMap(({ mask, other, prompt, sample, sampled, targets }) =>
      Array.from(targets, (token, at) => ({
        prompt,
        sample,
        position: at + 1,
        token,
        sampled: sampled[at] ?? Number.NaN,
        trained: other[at] ?? Number.NaN,
        difference: (sampled[at] ?? Number.NaN) - (other[at] ?? Number.NaN),
      })).filter((_, at) => (mask[at] ?? 0) > 0),
    )
    .toSorted((a, b) => sizeOf(b.difference) - sizeOf(a.difference))
    .slice(0, count)

/** What is no number is worse than any. */
const sizeOf = (difference: number): number =>
  Number.isNaN(difference) ? Number.POSITIVE_INFINITY : Math.abs(difference)

/**
 * Samples from the current weights and compares the log probabilities of the sampler with those of a forward pass over
 * the same tokens. Reinforcement learning assumes that they are the same: if not, every update goes in a wrong direction.
 *
 * @example
 * ```ts
 * import { Console, Effect } from "effect"
 * import { ServiceClient } from "effect-tinker"
 * import { Check } from "@effect-tinker/recipes"
 * import { NodeTinker } from "@effect-tinker/node"
 *
 * const program = Effect.gen(function* () {
 *   const service = yield* ServiceClient.ServiceClient
 *   const client = yield* service.createLoraTrainingClient({ baseModel: "effect-tinker/valley-1.5m", rank: 8 })
 *   const report = yield* Check.numerics({ client, prompts: [[10, 20, 30], [40, 50]], maxTokens: 16 })
 *   yield* Console.log(report.passed, report.sequences) // → true 8
 *   yield* Check.orFail(report)
 * })
 *
 * await Effect.runPromise(program.pipe(Effect.scoped, Effect.provide(NodeTinker.layerConfig())))
 * ```
 *
 * @since 0.1.0
 * @category checks
 */
export const numerics = (
  options: NumericsOptions,
): Effect.Effect<NumericsReport, TrainingError | InvalidInput | UnexpectedResponse | TokenizerError> =>
  Effect.scoped(
    Effect.gen(function* () {
      const { client, prompts, tokenizer } = options
      const { maxTokens = 128, samplesPerPrompt = 4, seed = 0, threshold = 0.01, worst: count = 10 } = options
      yield* whole({ maxTokens, samplesPerPrompt })
      yield* positive({ threshold })
      if (prompts.length === 0) return yield* new InvalidInput({ path: "prompts", problem: "expected at least one" })
      const sampler = yield* client.saveWeightsAndGetSamplingClient()
      const sampled = yield* Effect.forEach(
        prompts,
        (prompt, index) =>
          Effect.gen(function* () {
            const params = { maxTokens, temperature: 1, seed: seedOf(seed, index) }
            const { sequences } = yield* sampler.sample({ prompt, params, numSamples: samplesPerPrompt })
            return yield* Effect.forEach(sequences, ({ logprobs, tokens }, sample) =>
              Effect.gen(function* () {
                const given = yield* Option.match(logprobs, { onNone: () => withoutLogprobs, onSome: Effect.succeed })
                const [first] = yield* Datums.fromTrajectory([{ observation: prompt, tokens, logprobs: given }], 0)
                return first === undefined ? [] : [{ ...first, prompt: index, sample }]
              }),
            )
          }),
        { concurrency: 64 },
      )
      const data = sampled.flat(2)
      const result = yield* client.forward(
        data.map(({ datum }) => datum),
        Loss.importanceSampling,
      )
      const trained = yield* TrainingResult.logprobs(result)
      const compared = data.map(({ datum: { inputs }, mask, prompt, sample }, at): Compared => ({
        prompt,
        sample,
        targets: inputs.targetTokens,
        sampled: inputs.logprobs,
        other: trained[at] ?? new Float32Array(),
        mask,
      }))
      const metrics = yield* Kl.sampleTrain(compared)
      const worst = yield* Effect.forEach(worstOf(compared, count), (token) =>
        Effect.map(
          tokenizer === undefined ? Effect.succeed(undefined) : tokenizer.decode([token.token]),
          (text): WorstToken => ({ ...token, text }),
        ),
      )
      const kl = klOf(metrics)
      const problems =
        kl <= threshold
          ? []
          : [`sampler and trainer are ${shortNumber(kl)} apart, more than ${threshold}: updates would be wrong`]
      return {
        _tag: "Numerics",
        threshold,
        sequences: data.length,
        tokens: compared.reduce((sum, { mask }) => sum + Array.from(mask).filter((weight) => weight > 0).length, 0),
        metrics,
        depths: yield* depthsOf(compared),
        worst,
        ...verdictOf(problems),
      }
    }),
  )

const withoutLogprobs = new UnexpectedResponse({
  operation: "asample",
  reason: "Schema",
  detail: "the server returned no log probabilities",
})

// Serving

export {
  /**
   * Reports that the server of {@link serving} was not reached, refused the request, or returned no log probabilities.
   *
   * @since 0.1.0
   * @category errors
   */
  EndpointFailed,
  /**
   * Where a model is served.
   *
   * @since 0.1.0
   * @category models
   */
  type Endpoint,
} from "./internal/ServedCompletions.ts"

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
 * What {@link serving} found.
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

// Reports

/**
 * The report of any check.
 *
 * @since 0.1.0
 * @category models
 */
export type Report = ResumeReport | NumericsReport | ServingReport

const resumeText = ({ steps, uninterrupted, ways }: ResumeReport): ReadonlyArray<string> => [
  `resume after ${steps} steps`,
  `  uninterrupted: loss ${shortNumber(uninterrupted.nextLoss)}, ${shortNumber(uninterrupted.lossAfter)} after the next step`,
  ...ways.map(
    ({ lossAfter, name, nextLoss, optimizer, outcome, weights }) =>
      `  ${name}: loss ${shortNumber(nextLoss)}, ${shortNumber(lossAfter)} after the next step; differences ${shortNumber(weights)} and ${shortNumber(optimizer)}: ${outcome.replace("_", " ")}`,
  ),
]

const metricsText = (metrics: Metrics): string =>
  ["v1", "v2"]
    .map((name) => `${name} ${shortNumber(metrics[`optim/kl_sample_train_${name}`] ?? Number.NaN)}`)
    .join("  ")

const numericsText = ({ depths, metrics, sequences, tokens, worst }: NumericsReport): ReadonlyArray<string> => [
  `numerics of ${tokens} tokens in ${sequences} sequences`,
  `  KL of sampler and trainer  ${metricsText(metrics)}  entropy ${shortNumber(metrics["optim/entropy"] ?? Number.NaN)}`,
  ...(depths.length < 2
    ? []
    : depths.map(
        ({ from, metrics, to, tokens }) =>
          `  positions ${from} to ${to - 1}  ${metricsText(metrics)}  ${tokens} tokens`,
      )),
  ...worst.map(
    ({ difference, position, prompt, sample, sampled, text, token, trained }) =>
      `  prompt ${prompt}, sample ${sample}, position ${position}: ${text === undefined ? token : JSON.stringify(text)}  sampler ${shortNumber(sampled)}  trainer ${shortNumber(trained)}  difference ${shortNumber(difference)}`,
  ),
]

const servingText = (report: ServingReport): ReadonlyArray<string> => [
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

/**
 * Shows a report to people.
 *
 * @since 0.1.0
 * @category formatting
 */
export const format = (report: Report): string => {
  const [title = "", ...lines] =
    report._tag === "Resume"
      ? resumeText(report)
      : report._tag === "Numerics"
        ? numericsText(report)
        : servingText(report)
  return [
    `${report.passed ? "Passed" : "Failed"}: ${title}`,
    ...report.problems.map((problem) => `  ${oneLine(problem)}`),
    ...lines,
  ].join("\n")
}

/**
 * Reports that a check has not passed.
 *
 * @since 0.1.0
 * @category errors
 */
export class CheckFailed extends Data.TaggedError("CheckFailed")<{ readonly report: Report }> {
  /** @since 0.1.0 */
  override get message(): string {
    return format(this.report)
  }
}

/**
 * Fails with {@link CheckFailed} if a check has not passed, so that a script ends with an error.
 *
 * @since 0.1.0
 * @category checks
 */
export const orFail = <A extends Report>(report: A): Effect.Effect<A, CheckFailed> =>
  report.passed ? Effect.succeed(report) : Effect.fail(new CheckFailed({ report }))
