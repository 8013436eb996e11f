/** The events of a whole run, generated. */
import type { RunEvent } from "@effect-tinker/recipes"

const start = Date.UTC(2026, 10, 18, 8, 0, 0)

/** Numbers in [0, 1) that are the same each time. */
const randomOf = (seed: number) => {
  let state = seed
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return state / 2 ** 32
  }
}

const words = "The answer is simple : we add both numbers , carry the one and obtain".split(" ")

const questions = ["What is 17 + 25?", "What is 308 - 99?", "How many minutes are in three hours?", "What is 12 * 12?"]

/** An RL run of 200 steps with evaluations, rollouts, checkpoints and warnings. */
export const realistic = (seed = 1): ReadonlyArray<RunEvent.RunEvent> => {
  const random = randomOf(seed)
  const noise = (size: number) => (random() - 0.5) * size
  const events: Array<RunEvent.RunEvent> = []
  const steps = 200
  const rollout = (step: number, i: number, source = "rollout"): RunEvent.RunEvent => {
    const isGood = random() < 0.2 + (0.7 * step) / steps
    const length = 8 + Math.floor(random() * 40)
    const advantage = isGood ? 0.3 + random() : -0.3 - random()
    return {
      _tag: "Sample",
      step,
      source,
      group: String(Math.floor(i / 4)),
      prompt: questions[i % questions.length] ?? "",
      tokens: Array.from({ length }, (_, j) => ({
        text: j === length - 1 ? (isGood ? " 42." : " maybe.") : ` ${words[j % words.length]}`,
        logprob: -(random() ** 3) * 6,
        advantage,
      })),
      reward: isGood ? 1 : Math.round(random() * 20) / 100,
      at: start + step * 7_300 + 100 + i,
    }
  }
  for (let step = 0; step < steps; step++) {
    const progress = step / steps
    if (step % 50 === 0) {
      const accuracy = 0.21 + 0.5 * (1 - Math.exp(-3 * progress)) + noise(0.02)
      events.push({
        _tag: "Evaluation",
        step,
        name: "test",
        metrics: {
          accuracy,
          accuracy_low: accuracy - 0.05,
          accuracy_high: accuracy + 0.05,
          nll: 1.9 - progress + noise(0.05),
        },
        at: start + step * 7_300 + 50,
      })
      for (const i of [0, 1]) events.push({ ...rollout(step, i, "test"), reward: undefined } as RunEvent.RunEvent)
      for (let i = 0; i < 6; i++) events.push(rollout(step, i))
      if (step > 0)
        events.push({
          _tag: "Checkpoint",
          step,
          name: String(step).padStart(6, "0"),
          kind: step === 150 ? "best" : "periodic",
          statePath: `tinker://0191b2c4-7a11-7c3e-9a53-${seed}f2f0e8d1c77:train:0/weights/${String(step).padStart(6, "0")}`,
          samplerPath: `tinker://0191b2c4-7a11-7c3e-9a53-${seed}f2f0e8d1c77:train:0/sampler_weights/${String(step).padStart(6, "0")}`,
          at: start + step * 7_300 + 80,
        })
    }
    events.push({
      _tag: "Step",
      step,
      steps,
      metrics: {
        "reward/total": 0.25 + 0.6 * (1 - Math.exp(-3 * progress)) + noise(0.2),
        "env/all/reward/total": 0.25 + 0.6 * (1 - Math.exp(-3 * progress)) + noise(0.2),
        "env/all/format": 0.5 + 0.5 * progress + noise(0.05),
        "optim/lr": 4e-5 * (1 - progress),
        "optim/entropy": 1.4 - 0.9 * progress + noise(0.1),
        "optim/kl_sample_train_v1": 0.001 + random() * 0.002,
        "by_group/frac_mixed": 0.6 - 0.3 * progress + noise(0.1),
        num_tokens: 16_000 + Math.floor(random() * 4_000),
        "time/sampling": 3.2 + random(),
        "time/train": 1.9 + random() * 0.4,
        "time/total": 6.4 + random() * 1.4,
        "cost/usd": (step + 1) * 0.0187,
      },
      at: start + (step + 1) * 7_300,
    })
    if (step % 70 === 33)
      events.push({
        _tag: "Warning",
        step,
        reason: "rollout_failed",
        message: `the environment of group ${step % 7} did not respond within 30 seconds; the group has 3 rollouts`,
        at: start + step * 7_300 + 200,
      })
  }
  events.push({ _tag: "Done", step: steps, outcome: "complete", at: start + steps * 7_300 + 500 })
  return events
}

export const configuration = (learningRate = 4e-5) => ({
  recipe: "rl",
  model: "Qwen/Qwen3-8B",
  lora: { rank: 32, seed: 0 },
  optimizer: { learningRate, schedule: "linear", betas: [0.9, 0.95] },
  groups: { perBatch: 16, size: 4, removeConstant: true },
  loss: "importance_sampling",
  steps: 200,
  evaluation: { every: 50, names: ["test"] },
})
