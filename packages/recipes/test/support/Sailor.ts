/** Data that the local model can learn from. */
import type { Decisions } from "@effect-tinker/recipes"
import { Message } from "@effect-tinker/tokenizer"

const words = ["apple", "bell", "boat", "bread", "cat", "cloud", "fish", "garden", "lamp", "river", "stone", "tree"]

/** Returns a question and its answer. */
const task = (index: number): readonly [string, string] => {
  const at = (offset: number, size: number) => (index * 7919 + offset * 104_729) % size
  if (index % 2 === 0) {
    const [a, b] = [at(1, 10) + 1, at(2, 9) + 1]
    return [`What is ${a} + ${b}?`, `${a + b}`]
  }
  const some = [words[at(3, 12)], words[at(4, 12)]].join(" ")
  return [`Repeat: ${some}`, some]
}

/** Conversations with a sailor. */
export const conversations = (count: number): ReadonlyArray<Message.Conversation> =>
  Array.from({ length: count }, (_, index) => {
    const [question, answer] = task(index)
    return { messages: [Message.user(question), Message.assistant(`Ahoy! ${answer}, captain.`)] }
  })

/** The questions of the conversations, and whether they are about numbers or words. */
export const decisions = (count: number): ReadonlyArray<Decisions.Example> =>
  Array.from({ length: count }, (_, index) => ({
    question: task(index)[0],
    label: index % 2 === 0 ? "numbers" : "words",
  }))
