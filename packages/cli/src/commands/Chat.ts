/** Implements `tinkerfx chat` and `tinkerfx sample`. */
import * as ChatClient from "effect-tinker/ChatClient"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import { appendFile } from "node:fs/promises"
import { resolve } from "node:path"
import { suggestion } from "../internal/Arguments.ts"
import type { Handler } from "../internal/Commands.ts"
import { Failure } from "../internal/Failure.ts"
import * as Files from "../internal/Files.ts"
import * as Input from "../internal/Input.ts"
import * as Json from "../internal/Json.ts"
import * as Numbers from "../internal/Numbers.ts"
import * as Places from "../internal/Places.ts"
import { Shell } from "../internal/Shell.ts"
import * as Words from "../internal/Words.ts"

/** The options about what is sampled. */
export interface Sampling {
  readonly maxTokens: string | undefined
  readonly temperature: string | undefined
  readonly topP: string | undefined
  readonly seed: string | undefined
}

const paramsOf = (input: Sampling) =>
  Effect.all({
    maxTokens: Numbers.whole("max-tokens", input.maxTokens, 1),
    temperature: Numbers.real("temperature", input.temperature, 0),
    topP: Numbers.real("top-p", input.topP, 0, 1),
    seed: Numbers.whole("seed", input.seed, 0),
  })

const defaultMaxTokens = 512

const commands = ["/reset", "/history", "/save", "/help", "/exit"]

const help = `/reset forgets the conversation, /history shows it, /save FILE adds it to a file of conversations, /exit leaves.\n`

const rowOf = (history: ReadonlyArray<ChatClient.Message>): string => `${JSON.stringify({ messages: history })}\n`

const textOf = ({ content }: ChatClient.Message): string => (typeof content === "string" ? content : "")

export const chat: Handler<
  Sampling & Places.Options & { readonly target: string | undefined; readonly system: string | undefined }
> = (input, { format }) =>
  Effect.gen(function* () {
    const shell = yield* Shell
    const { out } = shell
    const { maxTokens = defaultMaxTokens, ...params } = yield* paramsOf(input)
    const target = yield* Places.find(input.target, input)
    yield* Effect.gen(function* () {
      const client = yield* ChatClient.ChatClient
      const start: ReadonlyArray<ChatClient.Message> =
        input.system === undefined ? [] : [{ role: "system", content: input.system }]
      let history = start
      const [dim, plain] = shell.hasColors ? ["\u001b[2m", "\u001b[0m"] : ["", ""]
      const notice = (text: string) => (shell.isInteractive ? out(`${dim}${text}${plain}`) : Effect.void)

      const answer = Effect.gen(function* () {
        const show = (text: string) => (format === "json" ? Effect.void : out(Words.safe(text)))
        const request = { model: target.model, messages: history, maxTokens, ...params }
        const parts = client
          .streamChat(request)
          .pipe(
            Stream.tap((part) =>
              part._tag === "Text"
                ? show(part.text)
                : part._tag === "Reasoning"
                  ? show(`${dim}${part.text}${plain}`)
                  : Effect.void,
            ),
          )
        const [choice] = (yield* ChatClient.collect(parts)).choices
        if (choice === undefined) return
        history = [...history, ChatClient.toMessage(choice)]
        const reason = Option.getOrElse(choice.finishReason, () => "stop")
        if (format === "json")
          return yield* out(`${Json.compact({ role: "assistant", content: choice.text, finish_reason: reason })}\n`)
        yield* out("\n")
        if (reason === "length") yield* notice("(cut off: the answer has reached --max-tokens)\n")
      })

      const perform = (line: string) => {
        const [command = "", ...rest] = line.split(/\s+/)
        const file = rest.join(" ")
        switch (command) {
          case "/reset":
            history = start
            return notice("The conversation begins anew.\n")
          case "/history":
            return out(
              format === "json"
                ? rowOf(history)
                : history.map((message) => `${message.role}: ${Words.safe(textOf(message))}\n`).join(""),
            )
          case "/save":
            if (file === "") return shell.err("Usage: /save FILE\n")
            return Effect.tryPromise(() => appendFile(resolve(shell.directory, file), rowOf(history))).pipe(
              Effect.zipRight(notice(`Added to ${file}.\n`)),
              Effect.catchAll(({ cause }) => shell.err(`Error: Cannot write ${file}: ${String(cause)}\n`)),
            )
          case "/help":
            return out(help)
          default:
            return shell.err(`No such command '${command}'.${suggestion(command, commands)}\n`)
        }
      }

      yield* notice(`Chatting with ${target.model}. ${help}`)
      while (true) {
        const line = Option.map(yield* shell.ask("> "), (text) => text.trim())
        if (Option.isNone(line) || line.value === "/exit" || line.value === "/quit") return
        if (line.value === "") continue
        if (line.value.startsWith("/")) {
          yield* perform(line.value)
          continue
        }
        const before = history
        history = [...history, { role: "user", content: line.value }]
        // A person can try again; a script must not go on with half a conversation.
        yield* shell.isInteractive
          ? Effect.catchAll(answer, (error) => {
              history = before
              return shell.err(`\nError: ${error.message}\n`)
            })
          : answer
      }
    }).pipe(Effect.provide(target.clients))
  })

const promptOf = ({ file, prompt }: { readonly prompt: string | undefined; readonly file: string | undefined }) =>
  Effect.gen(function* () {
    if (prompt !== undefined && prompt !== "-") return prompt
    const { directory, isInteractive } = yield* Shell
    if (file !== undefined) return yield* Files.read(resolve(directory, file))
    if (isInteractive && prompt === undefined)
      return yield* new Failure({
        message: "There is no prompt",
        hint: "Use --prompt TEXT or --file FILE, or pipe the prompt into the command.",
      })
    return yield* Input.all
  })

export const sample: Handler<
  Sampling &
    Places.Options & {
      readonly target: string | undefined
      readonly prompt: string | undefined
      readonly file: string | undefined
      readonly system: string | undefined
      readonly count: string | undefined
      readonly raw: boolean
    }
> = (input, { format }) =>
  Effect.gen(function* () {
    const { out } = yield* Shell
    const { maxTokens = defaultMaxTokens, ...params } = yield* paramsOf(input)
    const n = (yield* Numbers.whole("count", input.count, 1, 128)) ?? 1
    const prompt = yield* promptOf(input)
    if (prompt.trim() === "")
      return yield* new Failure({ message: "The prompt is empty", hint: "Use --prompt TEXT or --file FILE." })
    const target = yield* Places.find(input.target, input)
    const { choices } = yield* Effect.flatMap(ChatClient.ChatClient, (client) => {
      const common = { model: target.model, maxTokens, n, ...params }
      if (input.raw) return client.complete({ ...common, prompt })
      const system = input.system === undefined ? [] : [{ role: "system" as const, content: input.system }]
      return client.chat({ ...common, messages: [...system, { role: "user", content: prompt }] })
    }).pipe(Effect.provide(target.clients))
    const reasonOf = (choice: ChatClient.Choice) => Option.getOrElse(choice.finishReason, () => "stop")
    yield* out(
      choices
        .map((choice) =>
          format === "json"
            ? `${Json.compact({ index: choice.index, text: choice.text, finish_reason: reasonOf(choice) })}\n`
            : `${n === 1 ? "" : `--- ${choice.index + 1} of ${n} (${reasonOf(choice)})\n`}${Words.safe(choice.text)}\n`,
        )
        .join(""),
    )
  })
