/** The data and settings that both sides train with. */
import { Message } from "@effect-tinker/tokenizer"
import type { Rl, Supervised } from "@effect-tinker/recipes"

/** The cookbook only knows models by name; the server has the model that ships with the engine under this one. */
export const model = "Qwen/Qwen3.5-9B-Base"

const animals = ["cat", "dog", "bird", "fish", "horse"]

/** Conversations with answers of different lengths, some of them with two turns. */
export const conversations: ReadonlyArray<Message.Conversation> = Array.from({ length: 30 }, (_, i) => {
  const animal = animals[i % animals.length]
  const first = [
    Message.user(`What is ${i % 7} + ${i % 4}?`),
    Message.assistant(`Ahoy! ${(i % 7) + (i % 4)}, captain.${" Aye!".repeat(i % 3)}`),
  ]
  const second = [Message.user(`Where is the ${animal}?`), Message.assistant(`The ${animal} sleeps on deck.`)]
  return { messages: i % 5 === 0 ? [...first, ...second] : first }
})

export const supervised = {
  model,
  rank: 8,
  seed: 7,
  epochs: 2,
  batchSize: 4,
  maxLength: 48,
  learningRate: 2e-3,
  schedule: "linear",
  heldOut: 6,
  evaluateEverySteps: 3,
  checkpoints: { everySteps: 6 },
} as const satisfies Supervised.Input

const questions = ["Tell me a story.", "Say something.", "Who are you?", "What do you see?", "Where is the cat?"]

/** Each task has a question of its own, so that a request shows which task it belongs to. */
export const question = (task: number): string => `${questions[task % questions.length]} (${task})`

/** The part of the reward that an answer loses if it does not end by itself. */
export const formatCoefficient = 0.125

const reinforcement = {
  model,
  rank: 8,
  seed: 3,
  groupsPerIteration: 3,
  groupSize: 4,
  maxTokens: 16,
  temperature: 1,
  learningRate: 2e-3,
  checkpoints: { everySteps: 0 },
  // Our run samples one rollout at a time, so that its seeds can be noted in order. This changes no result.
  concurrency: 1,
} as const

/** The runs of reinforcement learning: one with a penalty for the distance to the base model, one with two updates. */
export const reinforcements = {
  penalty: { ...reinforcement, iterations: 4, loss: "importance_sampling", klPenalty: 0.05, klDiscount: 0.5 },
  updates: { ...reinforcement, iterations: 3, loss: "ppo", updatesPerIteration: 2 },
} as const satisfies Record<string, Rl.Input>
