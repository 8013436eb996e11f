/**
 * The shape of a module that `tinkerfx train rl --environment` and `tinkerfx eval --environment` load: tasks, and a
 * function that rates answers. It needs nothing but plain values and promises.
 *
 * @since 0.1.0
 */

/**
 * A message of a conversation.
 *
 * @since 0.1.0
 * @category models
 */
export interface Message {
  readonly role: string
  readonly content: string
}

/**
 * The messages that the model responds to. It may have more fields, e.g. the right answer, which the rating gets.
 *
 * @since 0.1.0
 * @category models
 */
export interface Task {
  readonly messages: ReadonlyArray<Message>
  /** Kinds of tasks that this one belongs to, for metrics. */
  readonly tags?: ReadonlyArray<string> | undefined
}

/**
 * The continuation of a conversation after an answer. Without `next`, the conversation ends.
 *
 * @since 0.1.0
 * @category models
 */
export interface Reply {
  readonly reward: number
  readonly next?: ReadonlyArray<Message> | undefined
  /** Numbers to average over all rollouts, e.g. `correct`. */
  readonly metrics?: Readonly<Record<string, number>> | undefined
}

/**
 * Tasks, and how answers are rated. A module exports it as its default, or each part under its name.
 *
 * @since 0.1.0
 * @category models
 */
export interface Environment<T extends Task = Task> {
  /** The tasks, or a function that returns them. Not given: the rows of `--data`. */
  readonly tasks?: ReadonlyArray<T> | (() => ReadonlyArray<T> | Promise<ReadonlyArray<T>>) | undefined
  /** Rates an answer: higher is better. */
  readonly reward?: ((answer: string, task: T) => number | Promise<number>) | undefined
  /** Rates an answer and continues the conversation, instead of `reward`. */
  readonly reply?:
    | ((answer: string, task: T, conversation: ReadonlyArray<Message>) => Reply | Promise<Reply>)
    | undefined
}

/**
 * Returns an environment as it is, with its type checked.
 *
 * @example
 * ```ts
 * import { Environment } from "@effect-tinker/cli"
 *
 * const sums = Environment.define({
 *   tasks: [{ messages: [{ role: "user", content: "What is 2 + 3?" }], right: "5" }],
 *   reward: (answer, { right }) => (answer.includes(right) ? 1 : 0),
 * })
 *
 * console.log(sums.reward?.("It is 5.", { messages: [], right: "5" })) // → 1
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const define = <T extends Task>(environment: Environment<T>): Environment<T> => environment
