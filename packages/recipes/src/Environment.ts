/**
 * The world that a policy acts in: it shows the model something to respond to, rates what the model did, and shows it
 * what follows. An environment is used for one rollout, inside a scope that cleans up whatever it started.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import * as Message from "@effect-tinker/tokenizer/Message"
import type { Renderer } from "@effect-tinker/tokenizer/Renderer"
import type { Failure as RendererFailure } from "@effect-tinker/tokenizer/RendererError"
import type * as ModelInput from "effect-tinker/ModelInput"
import type { SamplingParams } from "effect-tinker/SamplingParams"

/**
 * What the model sees before it acts, and where its action ends.
 *
 * @since 0.1.0
 * @category models
 */
export interface Observation {
  readonly prompt: ModelInput.Input
  readonly stop: NonNullable<SamplingParams["stop"]>
}

/**
 * What the model did.
 *
 * @since 0.1.0
 * @category models
 */
export interface Action {
  readonly tokens: Int32Array
  /** Whether the model stopped by itself or reached the limit of tokens. */
  readonly stopReason: "stop" | "length"
}

/**
 * What an action led to. The rollout ends when there is no next observation.
 *
 * @since 0.1.0
 * @category models
 */
export interface Outcome {
  readonly reward: number
  readonly next?: Observation | undefined
  /** Numbers to average over all rollouts, e.g. `correct`. */
  readonly metrics?: Readonly<Record<string, number>> | undefined
  /** Leaves the action out of training, e.g. because it could not be parsed. */
  readonly masked?: boolean | undefined
}

/**
 * An environment of one rollout.
 *
 * @since 0.1.0
 * @category models
 */
export interface Environment<out E = never, out R = never> {
  readonly start: Effect.Effect<Observation, E, R>
  readonly act: (action: Action) => Effect.Effect<Outcome, E, R>
}

/**
 * A task: every rollout of its group gets a new environment, in a scope of its own.
 *
 * @since 0.1.0
 * @category models
 */
export interface Task<out E = never, out R = never> {
  /** Shows the task to people. */
  readonly name: string
  readonly make: Effect.Effect<Environment<E, R>, E, R | Scope.Scope>
  /** Kinds of tasks that this one belongs to, for metrics. */
  readonly tags?: ReadonlyArray<string> | undefined
}

/**
 * Creates a task in which the model answers once and the answer is rated.
 *
 * @since 0.1.0
 * @category constructors
 */
export const question = <E = never, R = never>(options: {
  readonly renderer: Renderer
  readonly messages: ReadonlyArray<Message.Message>
  /** Rates the text of the answer. */
  readonly reward: (answer: string, message: Message.Message) => Effect.Effect<number, E, R> | number
  readonly tags?: ReadonlyArray<string> | undefined
}): Task<E | RendererFailure, R> =>
  conversation({
    ...options,
    reply: (message) =>
      Effect.suspend(() => {
        const reward = options.reward(Message.textOf(message).trim(), message)
        return Effect.map(Effect.isEffect(reward) ? reward : Effect.succeed(reward), (reward) => ({ reward }))
      }),
  })

/**
 * Creates a task in which the model talks to the environment: `reply` rates a message of the model and returns the
 * messages that follow it, or none at the end of the conversation. It also sees the conversation so far.
 *
 * @since 0.1.0
 * @category constructors
 */
export const conversation = <E = never, R = never>(options: {
  readonly renderer: Renderer
  readonly messages: ReadonlyArray<Message.Message>
  readonly reply: (
    message: Message.Message,
    history: ReadonlyArray<Message.Message>,
  ) => Effect.Effect<
    Omit<Outcome, "next"> & { readonly next?: ReadonlyArray<Message.Message> | undefined },
    E,
    R | Scope.Scope
  >
  readonly tags?: ReadonlyArray<string> | undefined
}): Task<E | RendererFailure, R> => {
  const { messages, renderer, reply, tags } = options
  const observe = (history: ReadonlyArray<Message.Message>): Effect.Effect<Observation, RendererFailure> =>
    Effect.map(renderer.generationPrompt(history), (prompt) => ({ prompt, stop: renderer.stopSequences }))
  return {
    name: messages.map((message) => `${message.role}: ${Message.textOf(message)}`).join("\n"),
    tags,
    make: Effect.map(Effect.context<R | Scope.Scope>(), (context) => {
      let history = messages
      return {
        start: observe(history),
        act: ({ tokens }) =>
          Effect.gen(function* () {
            const { message } = yield* renderer.parse(tokens)
            const { next, ...outcome } = yield* Effect.provide(reply(message, history), context)
            if (next === undefined) return outcome
            history = [...history, message, ...next]
            return { ...outcome, next: yield* observe(history) }
          }),
      }
    }),
  }
}
