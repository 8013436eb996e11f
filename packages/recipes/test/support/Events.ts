/** Generated events of a run, as realistic as reports and loggers need them. */
import type { RunEvent } from "@effect-tinker/recipes"

export const start = Date.UTC(2026, 10, 18, 8, 0, 0)

export const step = (
  step: number,
  metrics: Readonly<Record<string, number>> = { train_mean_nll: 2 / (step + 1) },
  more: { readonly steps?: number; readonly at?: number } = {},
): RunEvent.RunEvent => ({ _tag: "Step", step, metrics, at: start + step * 2_000, ...more })

export const warning: RunEvent.RunEvent = {
  _tag: "Warning",
  step: 1,
  reason: "rows_skipped",
  message: "3 rows of data.jsonl\nare too long\u001B[2J",
  at: start + 3_000,
}

export const evaluation: RunEvent.RunEvent = {
  _tag: "Evaluation",
  step: 2,
  name: "test",
  metrics: { nll: 1.25, "test/accuracy": 0.5 },
  at: start + 4_000,
}

export const checkpoint: RunEvent.RunEvent = {
  _tag: "Checkpoint",
  step: 2,
  name: "000002",
  kind: "periodic",
  statePath: "tinker://run/weights/000002",
  at: start + 4_500,
}

export const sample: RunEvent.RunEvent = {
  _tag: "Sample",
  step: 2,
  source: "rollout",
  group: "0",
  prompt: "2 + 2 =",
  tokens: [
    { text: " 4", logprob: -0.1, advantage: 0.5 },
    { text: "\n", logprob: -2 },
  ],
  reward: 1,
  at: start + 4_600,
}

export const done: RunEvent.RunEvent = { _tag: "Done", step: 3, outcome: "complete", at: start + 6_000 }

export const one: ReadonlyArray<RunEvent.RunEvent> = [step(0), step(1), warning, evaluation, checkpoint, sample, done]
