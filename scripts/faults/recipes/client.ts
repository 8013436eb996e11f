/** A recipe as a user runs it, in a process that may be killed. Its argument is `RecipeSettings` as JSON. */
import {
  Distillation,
  Environment,
  Rl,
  RunDirectory,
  type RunEvent,
  RunMain,
  RunStore,
  Supervised,
  Table,
} from "@effect-tinker/recipes"
import { NodeTinker } from "@effect-tinker/node"
import { Generic, Message, TokenizerBackend, TokenizerFiles } from "@effect-tinker/tokenizer"
import { NodeContext } from "@effect/platform-node"
import { Effect, Layer, Redacted, Stream } from "effect"
import type { ServiceClient } from "effect-tinker"
import { keyVariable, modelName } from "../program/Settings.ts"
import type { RecipeSettings } from "./Settings.ts"

const settings: RecipeSettings = JSON.parse(process.argv[2] ?? "")

const conversations = Array.from({ length: 40 }, (_, index) => {
  const [a, b] = [(index % 9) + 1, (index % 7) + 1]
  return {
    messages: [Message.user(`What is ${a} + ${b}?`), Message.assistant(`Ahoy! ${a + b}, captain.`)],
  }
})

const checkpoints = { everySteps: 4, rollingEverySteps: 1 }

const events = (stop: Effect.Effect<void>) =>
  Stream.unwrapScoped(
    Effect.gen(function* () {
      const backend = yield* TokenizerBackend.TokenizerBackend
      const tokenizer = yield* backend.make(yield* TokenizerFiles.fromDirectory(settings.model))
      const renderer = yield* Generic.make(tokenizer)
      const store = yield* RunDirectory.make(settings.directory)
      const data = yield* Table.fromArray(conversations, { name: "conversations" })
      const common = { model: modelName, rank: 4, checkpoints }
      const rollouts = { ...common, groupsPerIteration: 2, groupSize: 4, maxTokens: 12, learningRate: 4e-3 }
      const task = (messages: ReadonlyArray<Message.Message>) =>
        Environment.question({
          renderer,
          messages,
          reward: (answer) => [...answer].filter((letter) => letter === "a").length / 10,
        })
      const streams: Record<
        RecipeSettings["recipe"],
        Stream.Stream<
          RunEvent.RunEvent,
          Supervised.TrainError | Rl.TrainError | Distillation.TrainError,
          RunStore.RunStore | ServiceClient.ServiceClient
        >
      > = {
        supervised: Supervised.train({
          config: { ...common, epochs: 3, batchSize: 8, learningRate: 4e-3, heldOut: 8, evaluateEverySteps: 4 },
          renderer,
          data,
          stop,
        }),
        rl: Rl.train({
          config: { ...rollouts, iterations: 6 },
          tasks: "letters",
          task: (index) => task([Message.user(["Say something.", "Who are you?"][index % 2] ?? "")]),
          stop,
        }),
        // Rewards move the student away from the teacher, which is the same model.
        distillation: Distillation.train({
          config: { ...rollouts, teacher: modelName, maxIterations: 6, klPenalty: 0.1 },
          renderer,
          data,
          task: ({ messages }) => task(messages.slice(0, 1)),
          stop,
        }),
      }
      const stream = streams[settings.recipe]
      return Stream.provideService(stream, RunStore.RunStore, store)
    }),
  ).pipe(
    Stream.provideSomeLayer(
      Layer.mergeAll(
        NodeTinker.layer({ baseUrl: settings.baseUrl, apiKey: Redacted.make(process.env[keyVariable] ?? "") }),
        TokenizerBackend.layer,
        NodeContext.layer,
      ),
    ),
  )

await RunMain.run(events)
