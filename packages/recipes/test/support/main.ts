/**
 * A program of a user: trains on a scripted server in this process. Arguments: the directory of the run, the number of
 * its steps, and from which step on the server never answers.
 */
import { Effect, Layer, Logger, Redacted, Stream } from "effect"
import { CheckpointPolicy, Run, RunDirectory, RunMain, TrainingLoop } from "@effect-tinker/recipes"
import { Loss, Optimizer, RateLimiter, Tinker, TinkerConfig } from "effect-tinker"
import * as ScriptedServer from "effect-tinker/testing/ScriptedServer"

const [, , directory = "", steps = "", hangsAt = ""] = process.argv

// A process that outlives its test ends itself.
setTimeout(() => process.exit(1), 110_000).unref()

let passes = 0
const tokens = [1, 2, 3]
const batch = {
  data: [{ modelInput: tokens, inputs: { targetTokens: tokens, weights: [1, 1, 1] } }],
  tokens: 3,
  metrics: { epoch: 0 },
}

const layer = Layer.mergeAll(
  RunDirectory.layer(directory),
  Tinker.layer().pipe(
    Layer.provide([
      TinkerConfig.layer({ baseUrl: "http://server", apiKey: Redacted.make("tml-a") }),
      RateLimiter.layer,
      ScriptedServer.layer({
        work: ({ operation }) =>
          operation !== "forward_backward" ? 0 : ++passes > Number(hangsAt) ? "1 day" : "50 millis",
        metrics: ({ steps }) => ({ train_mean_nll: 4 / (steps + 1) }),
      }),
    ]),
  ),
  Logger.remove(Logger.defaultLogger),
)

await RunMain.run((stop) =>
  Stream.unwrapScoped(
    Effect.map(Run.open({ model: { baseModel: "m" }, configuration: {} }), (run) =>
      run._tag === "Completed"
        ? Stream.empty
        : TrainingLoop.events(run, {
            batches: (from) =>
              Stream.map(
                Stream.iterate(from, (step) => step + 1),
                () => batch,
              ),
            steps: Number(steps),
            loss: Loss.crossEntropy,
            optimizer: Optimizer.adam({ learningRate: 1e-3 }),
            metrics: ({ pass }) => Effect.succeed({ train_mean_nll: pass.metrics["train_mean_nll"] ?? NaN }),
            checkpoints: { ...CheckpointPolicy.defaults, everySteps: 4 },
            stop,
          }),
    ),
  ).pipe(Stream.provideLayer(layer)),
)
