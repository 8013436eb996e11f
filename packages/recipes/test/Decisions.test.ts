import { describe, expect, it } from "@effect/vitest"
import { DecisionRenderer, Decisions, DecisionScores, Evaluate, RunStore, Table } from "@effect-tinker/recipes"
import { Message } from "@effect-tinker/tokenizer"
import { Chunk, Effect, Either, Option, Stream } from "effect"
import { ModelInput, TensorData } from "effect-tinker"
import { renderer as letters, sampler } from "./support/Answers.ts"
import { afterAnyWrite } from "./support/Dying.ts"
import { expectClose, expectCloseMetrics, golden } from "./support/Goldens.ts"
import { weights } from "./support/Rollouts.ts"
import { decisions } from "./support/Sailor.ts"
import { clients, onServer } from "./support/Scripted.ts"

/** Tries every write instead of a few. */
const isFull = process.env["TINKER_TESTS"] === "all"

const choices = ["numbers", "words"]
const examples = decisions(24)

interface Case {
  readonly labels: ReadonlyArray<string>
  readonly rows: ReadonlyArray<{
    readonly label: number
    readonly length: number
    readonly logprobs: ReadonlyArray<number>
    readonly probabilities: ReadonlyArray<number>
  }>
  readonly metrics: Record<string, number>
}

/** A model with these log probabilities at the place of the answer. */
const answering = (logprobs: ReadonlyArray<number>) =>
  sampler(({ targetPromptLogprobs }) =>
    Effect.sync(() => ({
      sequences: [],
      promptLogprobs: Option.none(),
      topkPromptLogprobs: Option.none(),
      promptCacheHitTokens: 0,
      promptAltTokens: Option.none(),
      targetPromptLogprobs: TensorData.isTensorData(targetPromptLogprobs)
        ? Option.some(
            Either.getOrThrow(
              TensorData.float32(logprobs, {
                shape: targetPromptLogprobs.shape ?? [],
                ...(targetPromptLogprobs.sparse && { sparse: targetPromptLogprobs.sparse }),
              }),
            ),
          )
        : Option.none(),
    })),
  )

describe("the probabilities of labels", () => {
  it.effect("probabilities and scores are those of the cookbook", () =>
    Effect.gen(function* () {
      for (const { labels, metrics, rows } of golden<ReadonlyArray<Case>>("decisions")) {
        const scores = yield* Effect.forEach(rows, ({ label, length, logprobs, probabilities }) =>
          Effect.gen(function* () {
            const rendered = {
              prompt: ModelInput.make({ type: "encoded_text", tokens: new Int32Array(length) }),
              length,
              labels,
              tokens: Int32Array.from(labels, (_, at) => at),
            }
            const found = yield* Decisions.probabilities(answering(logprobs), rendered)
            expectClose(
              found.map(({ probability }) => probability),
              probabilities,
            )
            return DecisionScores.scores({ probabilities: found, label: labels[label] ?? "" })
          }),
        )
        const means = Object.keys(metrics).map((name) => [
          name,
          scores.reduce((sum, score) => sum + (score[name] ?? NaN), 0) / scores.length,
        ])
        expectCloseMetrics(Object.fromEntries(means), metrics)
      }
    }),
  )

  it("the calibration error is the distance between what was promised and what came true, by bin", () => {
    const decided = (probability: number, isRight: boolean): DecisionScores.Decided => ({
      probabilities: [
        { label: "yes", probability },
        { label: "no", probability: 1 - probability },
      ],
      label: isRight ? "yes" : "no",
    })
    expect(
      DecisionScores.calibrationError([
        decided(0.75, true),
        decided(0.75, true),
        decided(0.75, true),
        decided(0.75, false),
      ]),
    ).toBe(0)
    expect(DecisionScores.calibrationError([decided(1, true), decided(1, false)])).toBe(0.5)
    // Two bins: 0.9 and right, 0.6 and wrong.
    expect(DecisionScores.calibrationError([decided(0.9, true), decided(0.6, false)])).toBeCloseTo((0.1 + 0.6) / 2, 12)
    // The likeliest label counts, whichever it is.
    expect(DecisionScores.calibrationError([decided(0.2, false)])).toBeCloseTo(0.2, 12)
  })

  it.effect("choices that can't be told apart by one token are refused", () =>
    Effect.gen(function* () {
      const problem = (choices: ReadonlyArray<DecisionRenderer.Choice>) =>
        Effect.map(
          Effect.flip(DecisionRenderer.make(letters).render({ question: "q", choices })),
          ({ message }) => message,
        )
      expect(yield* problem(["yes"])).toContain("at least 2")
      expect(yield* problem(["yes", "yes"])).toContain('the label "yes" occurs twice')
      expect(
        yield* problem([
          { label: "yes", id: "Y" },
          { label: "no", id: "Y" },
        ]),
      ).toContain('the id "Y" occurs twice')
      expect(
        yield* problem([
          { label: "yes", id: "YES" },
          { label: "no", id: "NOT" },
        ]),
      ).toContain("more than one token")
      expect(yield* problem(Array.from({ length: 27 }, (_, at) => `label ${at}`))).toContain("at most 26")
      const shapeless: typeof letters = {
        ...letters,
        supervisedExample: (messages) =>
          letters.supervisedExample([...messages.slice(0, -1), Message.assistant("same")]),
      }
      const same = DecisionRenderer.make(shapeless).render({ question: "q", choices: ["a", "b"] })
      expect((yield* Effect.flip(same)).message).toContain("the same token")
    }),
  )
})

const small: Decisions.Input = {
  model: "m",
  choices,
  epochs: 2,
  batchSize: 4,
  learningRate: 1e-3,
  checkpoints: { everySteps: 0, rollingEverySteps: 2 },
}

const program = (store: RunStore.Service, config: Decisions.Input = small, rows = examples.slice(0, 12)) =>
  Effect.gen(function* () {
    const data = yield* Table.fromArray(rows, { name: "words" })
    return Chunk.toReadonlyArray(yield* Stream.runCollect(Decisions.train({ config, renderer: letters, data })))
  }).pipe(Effect.scoped, Effect.provideService(RunStore.RunStore, store), Effect.provide(clients))

describe("Decisions.train", () => {
  it.effect("a run that dies after any write ends with the same weights", () =>
    Effect.gen(function* () {
      const whole = yield* onServer(
        Effect.gen(function* () {
          const events = yield* program(yield* RunStore.memory())
          expect(events.at(-1)).toMatchObject({ _tag: "Done", step: 6, outcome: "complete" })
          // Only the id of the right label counts.
          expect(events.find(({ _tag }) => _tag === "Step")).toMatchObject({
            metrics: { num_sequences: 4, num_loss_tokens: 4 },
          })
          return yield* weights
        }),
      )
      yield* afterAnyWrite({ every: isFull ? 1 : 11, atLeast: isFull ? 25 : 3 }, ({ die, store, writes }) =>
        Effect.gen(function* () {
          yield* die((store) => program(store))
          yield* program(store)
          expect({ writes, weights: yield* weights }).toEqual({ writes, weights: whole })
        }),
      )
    }),
  )

  it.effect("two models are compared by their accuracy", () =>
    Effect.gen(function* () {
      const evaluation = Decisions.evaluation({ renderer: DecisionRenderer.make(letters), data: examples, choices })
      const [guess, other] = [answering([-1, -2]), answering([-3, -0.1])]
      const { base, metric, tuned, verdict } = yield* Evaluate.compare(guess, other, evaluation)
      expect(metric.name).toBe("accuracy")
      expect([base.metrics["accuracy"], tuned.metrics["accuracy"], verdict]).toEqual([0.5, 0.5, "undecided"])
      expect(base.metrics["log_loss"]).toBeLessThan(tuned.metrics["log_loss"] ?? NaN)
    }),
  )

  it.effect("rows that can't be used are errors that name them, or are left out", () =>
    onServer(
      Effect.gen(function* () {
        const fails = (config: Decisions.Input, ...more: ReadonlyArray<Decisions.Example>) =>
          Effect.gen(function* () {
            return yield* Effect.flip(program(yield* RunStore.memory(), config, [...more, ...examples.slice(0, 3)]))
          })
        expect(yield* fails(small, { question: "q", label: "fruit" })).toMatchObject({
          _tag: "BadRow",
          row: 1,
          field: "label",
          message: expect.stringContaining('got "fruit"'),
        })
        expect(yield* fails({ ...small, choices: undefined })).toMatchObject({ _tag: "BadRow", field: "choices" })
        expect(yield* fails({ ...small, choices: ["only"] })).toMatchObject({
          _tag: "InvalidInput",
          path: "config.choices",
        })
        const long = { question: "q".repeat(1000), label: "words" }
        expect(yield* fails({ ...small, maxLength: 500 }, long)).toMatchObject({ _tag: "BadRow", reason: "TooLong" })
        const store = yield* RunStore.memory()
        const events = yield* program(store, { ...small, maxLength: 500, onLongRow: "skip" }, [long, ...examples])
        expect(events[0]).toMatchObject({ _tag: "Warning", reason: "rows_skipped" })
        const own: Decisions.Example = { question: "q", label: "x", choices: ["x", "y", "z"] }
        expect((yield* program(yield* RunStore.memory(), { ...small, batchSize: 1, epochs: 1 }, [own])).length).toBe(3)
      }),
    ),
  )
})
