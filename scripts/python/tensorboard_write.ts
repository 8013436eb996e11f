/** Writes an event file as two processes of one run would: the second goes back to step 3. */
import { NodeFileSystem } from "@effect/platform-node"
import { Effect } from "effect"
import { type RunEvent, TensorBoard } from "@effect-tinker/recipes"

const directory = process.argv[2] ?? ""

const step = (step: number, at: number): RunEvent.RunEvent => ({
  _tag: "Step",
  step,
  metrics: { train_mean_nll: 2 / (step + 1), "optim/lr": 1e-4, broken: Number.NaN },
  at: at * 1000,
})

const write = (events: ReadonlyArray<RunEvent.RunEvent>) =>
  Effect.scoped(Effect.flatMap(TensorBoard.make({ directory }), ({ log }) => Effect.forEach(events, log)))

const first = [0, 1, 2, 3, 4].map((i) => step(i, 1_700_000_000 + i))
const second: ReadonlyArray<RunEvent.RunEvent> = [
  ...[3, 4, 5].map((i) => step(i, 1_700_000_100 + i)),
  { _tag: "Evaluation", step: 6, name: "test", metrics: { nll: 0.5 }, at: 1_700_000_107_000 },
  {
    _tag: "Sample",
    step: 6,
    source: "rollout",
    prompt: "Grüße 你好",
    tokens: [{ text: "one" }, { text: " two" }],
    reward: 1,
    at: 1_700_000_108_000,
  },
  { _tag: "Warning", step: 6, reason: "rows_skipped", message: "x".repeat(300), at: 1_700_000_109_000 },
  { _tag: "Done", step: 6, outcome: "complete", at: 1_700_000_110_000 },
]

await Effect.runPromise(Effect.zipRight(write(first), write(second)).pipe(Effect.provide(NodeFileSystem.layer)))
