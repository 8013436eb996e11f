import { describe, expect, it } from "@effect/vitest"
import { Evaluate, Likelihood, type Progress, Run, type RunEvent, RunStore, TrainingLoop } from "@effect-tinker/recipes"
import { Message } from "@effect-tinker/tokenizer"
import { Data, Deferred, Effect, Exit, Option, Stream, TestClock } from "effect"
import { Loss, Optimizer } from "effect-tinker"
import * as ScriptedServer from "effect-tinker/testing/ScriptedServer"
import { answering, promptOf, renderer, sampler } from "./support/Answers.ts"
import { afterAnyWrite } from "./support/Dying.ts"
import { conversations } from "./support/Sailor.ts"
import { clients, onServer } from "./support/Scripted.ts"

/** Tries every write instead of a few. */
const isFull = process.env["TINKER_TESTS"] === "all"

const questions = Array.from({ length: 12 }, (_, index) => ({
  messages: [Message.user(`What is ${index} + 1?`)],
  answers: [String(index + 1), `It is ${index + 1}.`],
}))

/** Knows the answers to the questions below a number. */
const knowing = (limit: number) =>
  answering((prompt) => {
    const number = Number(/What is (\d+)/.exec(prompt)?.[1])
    return number < limit ? ` ${number + 1}\n` : "I do not know.\n"
  })

const exact = Evaluate.exactMatch({ renderer, questions, maxTokens: 8 })

describe("Evaluate.run", () => {
  it.effect("an exact match is scored by question, with a confidence interval around the mean", () =>
    Effect.gen(function* () {
      const result = yield* Evaluate.run(knowing(3), exact)
      expect(result.metrics).toEqual({ exact_match: 0.25 })
      const interval = result.intervals["exact_match"]
      expect(interval).toMatchObject({ estimate: 0.25, confidence: 0.95, count: 12 })
      expect(interval?.low).toBeLessThan(0.25)
      expect(interval?.high).toBeGreaterThan(0.25)
      expect(result.outcomes).toHaveLength(12)
      expect(result.outcomes[2]).toMatchObject({
        _tag: "Answered",
        question: "user: What is 2 + 1?",
        scores: { exact_match: 1 },
        answer: [{ text: "3", stopReason: "stop" }],
      })
      expect(Evaluate.format(result)).toBe("exact_match: 12 questions\n  exact_match 0.25 (95% confidence: 0 to 0.5)")
    }),
  )

  it.effect("texts are normalized before they are compared", () =>
    Effect.gen(function* () {
      const shouting = answering(() => "YES")
      const asked = { renderer, questions: [{ messages: [Message.user("?")], answers: ["yes"] }], maxTokens: 8 }
      expect((yield* Evaluate.run(shouting, Evaluate.exactMatch(asked))).metrics).toEqual({ exact_match: 0 })
      const normalize = (text: string) => text.toLowerCase()
      const lenient = Evaluate.exactMatch({ ...asked, normalize })
      expect((yield* Evaluate.run(shouting, lenient)).metrics).toEqual({ exact_match: 1 })
    }),
  )

  it.effect("every question has a seed of its own, which depends on the seed of the evaluation only", () =>
    Effect.gen(function* () {
      const seeds = (seed: number) =>
        Effect.gen(function* () {
          const seen = new Map<string, number>()
          const model = answering((prompt, seed) => {
            seen.set(prompt, seed)
            return "\n"
          })
          yield* Evaluate.run(model, exact, { seed, concurrency: 5 })
          return [...seen].toSorted(([one], [other]) => (one < other ? -1 : 1))
        })
      const first = yield* seeds(1)
      expect(new Set(first.map(([, seed]) => seed)).size).toBe(12)
      expect(yield* seeds(1)).toEqual(first)
      expect(yield* seeds(2)).not.toEqual(first)
    }),
  )

  it.effect("no more questions than allowed are asked at once", () =>
    Effect.gen(function* () {
      let open = 0
      let most = 0
      const model = answering(() => "1\n")
      const slow = sampler((request) =>
        Effect.acquireUseRelease(
          Effect.sync(() => (most = Math.max(most, ++open))),
          () => Effect.zipRight(Effect.yieldNow(), model.sample(request)),
          () => Effect.sync(() => open--),
        ),
      )
      yield* Evaluate.run(slow, exact, { concurrency: 3 })
      expect(most).toBe(3)
    }),
  )

  it.effect("pass@k is estimated from several attempts in one request", () =>
    Effect.gen(function* () {
      let requests = 0
      const model = answering((_, __, attempt) => {
        if (attempt === 0) requests++
        return attempt === 1 ? "yes\n" : "no\n"
      })
      const evaluation = yield* Evaluate.passAtK({
        renderer,
        questions,
        maxTokens: 8,
        k: 2,
        attempts: 4,
        isSolved: ({ text }) => text === "yes",
      })
      const result = yield* Evaluate.run(model, evaluation)
      expect(result.metrics["pass@1"]).toBeCloseTo(0.25)
      expect(result.metrics["pass@2"]).toBeCloseTo(0.5)
      expect(result.main.name).toBe("pass@2")
      expect(requests).toBe(12)
      const refused = Evaluate.passAtK({ renderer, questions, maxTokens: 8, k: 5, attempts: 4, isSolved: () => true })
      expect(yield* Effect.flip(refused)).toMatchObject({ _tag: "InvalidInput", path: "k" })
    }),
  )

  it.effect("options that make no sense are refused before anything is asked", () =>
    Effect.gen(function* () {
      const never = answering(() => {
        throw new Error("asked")
      })
      for (const [options, path] of [
        [{ concurrency: 0 }, "concurrency"],
        [{ seed: 0.5 }, "seed"],
      ] as const)
        expect(yield* Effect.flip(Evaluate.run(never, exact, options))).toMatchObject({ _tag: "InvalidInput", path })
      const empty = Evaluate.exactMatch({ renderer, questions: [], maxTokens: 8 })
      expect(yield* Effect.flip(Evaluate.run(never, empty))).toMatchObject({ path: "exact_match.questions" })
    }),
  )
})

class Down extends Data.TaggedError("Down")<{ readonly message: string }> {}

const judged = (fails: (question: number) => boolean) =>
  Evaluate.judge({
    renderer,
    questions,
    maxTokens: 8,
    score: ({ text }, { messages }) => {
      const number = Number(/What is (\d+)/.exec(Message.textOf(messages[0] ?? Message.user("")))?.[1])
      return fails(number) ? Effect.fail(new Down({ message: "the judge is down" })) : Effect.succeed(text.length)
    },
  })

describe("questions that fail", () => {
  it.effect("a question that fails ends the evaluation with an error that names it", () =>
    Effect.gen(function* () {
      const error = yield* Effect.flip(
        Evaluate.run(
          knowing(12),
          judged((number) => number === 4),
        ),
      )
      expect(error).toMatchObject({ _tag: "QuestionFailed", evaluation: "judge", index: 4, cause: { _tag: "Down" } })
      expect(error.message).toBe(
        'question 4 of judge failed: the judge is down; the question is "user: What is 4 + 1?"',
      )
    }),
  )

  it.effect("a question that fails is counted and left out if that is the policy", () =>
    Effect.gen(function* () {
      const result = yield* Evaluate.run(
        knowing(12),
        judged((number) => number === 4),
        { onFailure: "count" },
      )
      expect(result.failed).toBe(1)
      expect(result.metrics["failed"]).toBe(1)
      expect(result.intervals["score"]?.count).toBe(11)
      expect(result.outcomes[4]).toMatchObject({ _tag: "Failed", error: { index: 4 } })
      expect(Evaluate.format(result)).toContain("12 questions, 1 failed")
    }),
  )

  it.effect("an evaluation in which every question fails is an error, whatever the policy is", () =>
    Effect.gen(function* () {
      const error = yield* Effect.flip(
        Evaluate.run(
          knowing(12),
          judged(() => true),
          { onFailure: "count" },
        ),
      )
      expect(error).toMatchObject({ _tag: "QuestionFailed", index: 0 })
    }),
  )

  it.effect("a judge that throws or returns no number fails the question", () =>
    Effect.gen(function* () {
      const failing = (score: () => number) => Evaluate.judge({ renderer, questions, maxTokens: 8, score })
      const thrown = failing(() => {
        throw new Error("a bug")
      })
      expect(yield* Effect.flip(Evaluate.run(knowing(1), thrown))).toMatchObject({ detail: "a bug" })
      expect(
        yield* Effect.flip(
          Evaluate.run(
            knowing(1),
            failing(() => Number.NaN),
          ),
        ),
      ).toMatchObject({
        detail: "score: expected a finite number, got NaN",
      })
    }),
  )

  it.effect("an interruption is not a failure of a question", () =>
    Effect.gen(function* () {
      const asked = yield* Deferred.make<void>()
      const hanging = sampler(() => Effect.zipRight(Deferred.succeed(asked, undefined), Effect.never))
      const fiber = yield* Effect.fork(Evaluate.run(hanging, exact, { onFailure: "count" }))
      yield* Deferred.await(asked)
      const exit = yield* Effect.flatMap(fiber.interruptAsFork(fiber.id()), () => fiber.await)
      expect(Exit.isInterrupted(exit)).toBe(true)
    }),
  )
})

/** Collects what is written. */
const outputOf = (isTerminal: boolean): Progress.Output & { readonly texts: Array<string> } => {
  const texts: Array<string> = []
  return { texts, write: (text) => void texts.push(text), isTerminal, columns: () => 80, color: false }
}

describe("progress", () => {
  const slow = sampler((request) => Effect.delay(knowing(6).sample(request), "1 second"))

  const shown = (output: Progress.Output) =>
    Effect.gen(function* () {
      const fiber = yield* Effect.fork(Evaluate.run(slow, exact, { concurrency: 1, progress: output }))
      yield* TestClock.adjust("12 seconds")
      yield* fiber.await
    })

  it.effect("progress is one line that is redrawn on a terminal", () =>
    Effect.gen(function* () {
      const output = outputOf(true)
      yield* shown(output)
      expect(output.texts).toHaveLength(13)
      expect(output.texts[2]).toBe("\r\u001B[K███░░░░░░░ 3/12  exact_match 1  9s left")
      expect(output.texts.slice(-2)).toEqual(["\r\u001B[K██████████ 12/12  exact_match 0.5  0s left", "\n"])
    }),
  )

  it.effect("progress is a line for each tenth in a pipe", () =>
    Effect.gen(function* () {
      const output = outputOf(false)
      yield* shown(output)
      expect(output.texts).toHaveLength(10)
      expect(output.texts.at(-1)).toBe("██████████ 12/12  exact_match 0.5  0s left\n")
    }),
  )
})

describe("Evaluate.compare", () => {
  it.effect("a model that knows more answers has improved, and the same questions are asked with the same seeds", () =>
    Effect.gen(function* () {
      const seen: Array<string> = []
      const noting = (name: string, limit: number) =>
        sampler(
          (request) => {
            seen.push(`${promptOf(request.prompt)} ${request.params?.seed}`)
            return knowing(limit).sample(request)
          },
          () => Effect.dieMessage(name),
        )
      const result = yield* Evaluate.compare(noting("base", 2), noting("tuned", 10), exact)
      expect(result.verdict).toBe("improved")
      expect(result).toMatchObject({ pairs: 12, changed: 8 })
      expect(result.difference.estimate).toBeCloseTo(8 / 12)
      expect(result.difference.low).toBeGreaterThan(0.3)
      expect(result.probability).toBe(1)
      expect(seen).toHaveLength(24)
      expect(new Set(seen).size).toBe(12)
      expect(Evaluate.format(result).split("\n").slice(0, 2)).toEqual([
        "The model improved: exact_match, 12 questions",
        "  exact_match 0.1667 → 0.8333 (highest is best)",
      ])
    }),
  )

  it.effect("a model that knows fewer answers is worse, and the same model is undecided", () =>
    Effect.gen(function* () {
      const worse = yield* Evaluate.compare(knowing(10), knowing(2), exact)
      expect(worse).toMatchObject({ verdict: "worse", probability: 0 })
      const same = yield* Evaluate.compare(knowing(5), knowing(5), exact)
      expect(same).toMatchObject({ verdict: "undecided", probability: 0.5, changed: 0 })
    }),
  )

  it.effect("fewer than six questions with another score never decide, although their interval excludes 0", () =>
    Effect.gen(function* () {
      const few = yield* Evaluate.compare(knowing(0), knowing(5), exact)
      expect(few.difference.low).toBeGreaterThan(0)
      expect(few.verdict).toBe("undecided")
      expect(Evaluate.format(few)).toContain("Only 5 of 12 questions got another score")
      expect((yield* Evaluate.compare(knowing(0), knowing(6), exact)).verdict).toBe("improved")
    }),
  )

  it.effect("a metric that should be low improves when it falls", () =>
    Effect.gen(function* () {
      const lengths = Evaluate.judge({
        renderer,
        questions,
        maxTokens: 8,
        better: "lowest",
        score: ({ text }) => text.length,
      })
      const result = yield* Evaluate.compare(
        answering(() => "long"),
        answering(() => "no"),
        lengths,
      )
      expect(result).toMatchObject({ verdict: "improved", probability: 1, difference: { estimate: -2 } })
    }),
  )

  it.effect("questions that failed for one of the models are left out of the pairs", () =>
    Effect.gen(function* () {
      const base = yield* Evaluate.run(
        knowing(1),
        judged((number) => number === 4),
        { onFailure: "count" },
      )
      const tuned = yield* Evaluate.run(
        knowing(12),
        judged((number) => number === 5),
        { onFailure: "count" },
      )
      const comparison = yield* Evaluate.compareResults(base, tuned)
      expect(comparison.pairs).toBe(10)
      expect(Evaluate.format(comparison)).toContain("2 answers failed")
    }),
  )

  it.effect("results of different questions are not compared", () =>
    Effect.gen(function* () {
      const one = yield* Evaluate.run(knowing(1), exact)
      const other = (questions: ReadonlyArray<Evaluate.Answerable>) =>
        Evaluate.run(knowing(1), Evaluate.exactMatch({ renderer, questions, maxTokens: 8 }))
      for (const some of [questions.slice(1), [...questions.slice(1), ...questions.slice(0, 1)]])
        expect(yield* Effect.flip(Evaluate.compareResults(one, yield* other(some)))).toMatchObject({ path: "tuned" })
    }),
  )
})

describe("Evaluate.likelihood", () => {
  it.effect("long conversations count more: the mean is that of all tokens", () =>
    Effect.gen(function* () {
      const data = ["a", "abc", "abcdefgh"].map((text) => ({ messages: [Message.user("?"), Message.assistant(text)] }))
      // The further a token is from the start, the likelier it is.
      const model = sampler(
        () => Effect.dieMessage("nothing is sampled"),
        (prompt) => Effect.succeed(Float32Array.from(promptOf(prompt), (_, at) => (at === 0 ? Number.NaN : -1 / at))),
      )
      const tokenizer = {
        decode: (tokens: ArrayLike<number>) => Effect.succeed(String.fromCodePoint(...Array.from(tokens))),
        specialTokens: { all: [{ content: "\n", id: 10 }] },
      } as unknown as NonNullable<Evaluate.LikelihoodOptions["tokenizer"]>
      const result = yield* Evaluate.run(model, Evaluate.likelihood({ renderer, data, tokenizer }))
      const all = result.outcomes.flatMap((outcome) => (outcome._tag === "Answered" ? outcome.answer : []))
      expect(result.metrics["nll"]).toBeCloseTo(Option.getOrThrow(Likelihood.meanNll(all)), 10)
      const bytes = Likelihood.bytesOf(tokenizer)
      expect(result.metrics["bpb"]).toBeCloseTo(Option.getOrThrow(yield* Likelihood.bitsPerByte(all, bytes)), 10)
      const means = result.outcomes.map((outcome) => (outcome._tag === "Answered" ? (outcome.scores["nll"] ?? 0) : 0))
      expect(Math.abs((means[0] ?? 0) + (means[1] ?? 0) + (means[2] ?? 0)) / 3).not.toBeCloseTo(
        result.metrics["nll"] ?? 0,
        3,
      )
      expect(result.intervals["nll"]?.estimate).toBeCloseTo(result.metrics["nll"] ?? 0, 10)
    }),
  )

  it.effect("a token that is impossible for the model makes the mean infinite and comparisons undecided", () =>
    Effect.gen(function* () {
      const data = conversations(8)
      const scoring = (logprob: number) =>
        sampler(
          () => Effect.dieMessage("nothing is sampled"),
          (prompt) => Effect.succeed(Float32Array.from(promptOf(prompt), () => logprob)),
        )
      const evaluation = Evaluate.likelihood({ renderer, data })
      const result = yield* Evaluate.compare(scoring(-1), scoring(Number.NEGATIVE_INFINITY), evaluation)
      expect(result.tuned.metrics["nll"]).toBe(Number.POSITIVE_INFINITY)
      expect(result.verdict).toBe("undecided")
      expect((yield* Evaluate.compare(scoring(-2), scoring(-1), evaluation)).verdict).toBe("improved")
    }),
  )
})

describe("in a run that dies", () => {
  const asked = Evaluate.judge({
    name: "numbers",
    renderer,
    questions: questions.slice(0, 4),
    maxTokens: 4,
    temperature: 1,
    score: ({ text }) => (text.codePointAt(0) ?? 0) % 7,
  })

  const program = (store: RunStore.Service) =>
    Effect.gen(function* () {
      const run = yield* Run.open({ model: { baseModel: "m" }, configuration: {} })
      if (run._tag === "Completed") return
      const data = [{ modelInput: [1, 2], inputs: { targetTokens: [2, 3], weights: [1, 1] } }]
      yield* TrainingLoop.events(run, {
        batches: (from) => Stream.range(from, 3).pipe(Stream.map(() => ({ data, tokens: 2, metrics: {} }))),
        steps: 4,
        loss: Loss.crossEntropy,
        optimizer: Optimizer.adam({ learningRate: 1e-2 }),
        metrics: () => Effect.succeed({}),
        evaluations: [Evaluate.inRun(asked, { everySteps: 2, samples: 1 })],
      }).pipe(Stream.runDrain)
    }).pipe(Effect.scoped, Effect.provideService(RunStore.RunStore, store), Effect.provide(clients))

  /** The events without their times; a sample may be there twice if the process died before its evaluation. */
  const seen = (store: RunStore.Service) =>
    Effect.map(Run.readEvents(store), (events) => {
      const bare = ({ at: _at, ...event }: RunEvent.RunEvent) => JSON.stringify(event)
      return [...new Set(events.filter(({ _tag }) => _tag === "Evaluation" || _tag === "Sample").map(bare))].toSorted()
    })

  const weights = Effect.flatMap(ScriptedServer.ScriptedServer, ({ models }) =>
    Effect.map(models, (models) => models.at(-1)?.weights),
  )

  it.effect("a run that dies after any write repeats its evaluations with the same results", () =>
    Effect.gen(function* () {
      const whole = yield* onServer(
        Effect.gen(function* () {
          const store = yield* RunStore.memory()
          yield* program(store)
          return { seen: yield* seen(store), weights: yield* weights }
        }),
      )
      expect(whole.seen).toHaveLength(6)
      yield* afterAnyWrite({ every: isFull ? 1 : 8, atLeast: isFull ? 20 : 3 }, ({ die, store, writes }) =>
        Effect.gen(function* () {
          yield* die((store) => program(store))
          yield* program(store)
          expect({ writes, seen: yield* seen(store), weights: yield* weights }).toEqual({ writes, ...whole })
        }),
      )
    }),
  )
})
