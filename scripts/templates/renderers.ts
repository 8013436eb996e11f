/**
 * Compares our renderers with the vendors' templates: the same text, the same text without the known differences, or a
 * required refusal; and with the official cookbook: the same tokens. Anything else is a difference and fails.
 */
import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import {
  ChatTemplate,
  ExactJson,
  Generic,
  GptOss,
  Llama3,
  Message,
  Qwen3,
  type Renderer,
  TokenizerBackend,
} from "@effect-tinker/tokenizer"
import type { Failure } from "@effect-tinker/tokenizer/RendererError"
import type { Service } from "@effect-tinker/tokenizer/Tokenizer"
import { DateTime, Effect, Either, Schema, TestClock, TestContext } from "effect"

/** The output of the template for a conversation. */
interface Theirs {
  readonly text?: string
  readonly raised?: string
  readonly error?: string
}

interface Row extends Theirs {
  readonly messages: ReadonlyArray<unknown>
  readonly tools: ReadonlyArray<{ readonly function: Message.ToolSpec }> | null
  readonly prompt: boolean
  /** The refusal that our renderer must give. */
  readonly refused?: string
  readonly reasons?: ReadonlyArray<string>
  /** Both sides without the known differences. */
  readonly adjusted?: Theirs & { readonly messages: ReadonlyArray<unknown> }
  /** The tokens of the official cookbook's renderer, or the name of its error. */
  readonly cookbook?: ReadonlyArray<number> | string
}

interface Head {
  readonly renderer: string
  readonly template: string
  readonly differences: ReadonlyArray<string>
  readonly date: string
  /** The template source, for the renderer that accepts any. */
  readonly source?: string
}

interface Said {
  readonly tokens: ReadonlyArray<number>
  readonly text: string
}

type Ours = Either.Either<Said, Failure>

const directory = process.argv[2] ?? ""
/** The number of cases from which every known difference must occur. */
const enough = 2000

/** Converts to plain objects, with numbers as written. */
const plain = (value: ExactJson.ExactJson): unknown => {
  if (value instanceof Map) return Object.fromEntries([...value].map(([key, one]) => [key, plain(one)]))
  return Array.isArray(value) ? value.map(plain) : value
}
const read = <A>(line: string) => plain(Either.getOrThrow(ExactJson.parse(line))) as A
const toMessages = Schema.decodeUnknownSync(Schema.Array(Message.FromJson))

/** Returns the small tokenizer of the model family, which the cookbook's renderers used, too. */
const tokenizerOf = ({ template }: Head) => {
  const name = template.startsWith("Llama") ? "llama3" : template.startsWith("Qwen3") ? "qwen3" : "gpt_oss"
  const file = (kind: string) =>
    readFileSync(
      new URL(`../../packages/tokenizer/test/goldens/renderers/${name}.${kind}.json`, import.meta.url),
      "utf8",
    )
  return Effect.flatMap(TokenizerBackend.TokenizerBackend, (backend) =>
    backend.make({ name, tokenizer: file("tokenizer"), config: file("config") }),
  ).pipe(Effect.provide(TokenizerBackend.layerNative))
}

const familyOf = ({ date, renderer }: Head, tokenizer: Service) => {
  switch (renderer) {
    case "llama3":
      return Llama3.make(tokenizer)
    case "qwen3":
      return Qwen3.make(tokenizer)
    case "qwen3_disable_thinking":
      return Qwen3.make(tokenizer, { mode: "disabled" })
    case "qwen3_instruct":
      return Qwen3.make(tokenizer, { mode: "instruct" })
    default: {
      const effort = /^gpt_oss_(low|medium|high)_reasoning$/.exec(renderer)?.[1] as GptOss.Effort | undefined
      return GptOss.make(tokenizer, { reasoningEffort: effort, currentDate: date })
    }
  }
}

/** Returns a function that renders a case with the renderer of a run. */
const speaker = (head: Head) =>
  Effect.gen(function* () {
    const { source } = head
    const tokenizer = yield* tokenizerOf(head)
    const family = source === undefined ? yield* familyOf(head, tokenizer) : undefined
    const template = ChatTemplate.make(source ?? "", { specialTokens: { bos_token: "<|begin_of_text|>" } })

    const begin = (tools: ReadonlyArray<Message.ToolSpec>, messages: ReadonlyArray<Message.Message>) =>
      Effect.gen(function* () {
        if (family === undefined) {
          const given = tools.length === 0 ? undefined : tools
          const renderer = yield* Generic.make(tokenizer, { template: yield* template, tools: given })
          return { renderer, whole: messages }
        }
        if (tools.length === 0) return { renderer: family, whole: messages }
        const system = messages[0]?.role === "system" ? messages[0] : undefined
        const prefix = yield* family.toolPrefix(tools, system === undefined ? "" : Message.textOf(system))
        return { renderer: family, whole: [...prefix, ...messages.slice(system === undefined ? 0 : 1)] }
      })

    return (
      { prompt, tools }: Row,
      given: ReadonlyArray<unknown>,
      trainOn?: Renderer.TrainOn,
    ): Effect.Effect<Said, Failure> =>
      Effect.gen(function* () {
        const specs = (tools ?? []).map((tool) => tool.function)
        const { renderer, whole } = yield* begin(specs, toMessages(given))
        const ofAnswer = whole.at(-1)?.role === "assistant" ? "last_assistant_message" : "all_tokens"
        const input = prompt
          ? yield* renderer.generationPrompt(whole)
          : (yield* renderer.supervisedExample(whole, trainOn ?? ofAnswer)).modelInput
        const tokens = input.chunks.flatMap((chunk) => (chunk.type === "encoded_text" ? [...chunk.tokens] : []))
        return { tokens, text: yield* tokenizer.decode(tokens) }
      })
  })

const reasonOf = (failure: Failure): string => ("reason" in failure ? failure.reason : failure._tag)

const shown = (ours: Ours, theirs: Theirs): string => {
  const one = Either.isRight(ours) ? ours.right.text : `${reasonOf(ours.left)} ${ours.left.message}`
  const other = theirs.text ?? `raises ${theirs.raised ?? theirs.error ?? ""}`
  let at = 0
  while (at < other.length && other[at] === one[at]) at++
  const around = (text: string) => JSON.stringify(text.slice(Math.max(0, at - 40), at + 80))
  return `ours ${around(one)}, theirs ${around(other)}`
}

/** Returns the problem of a case compared with the cookbook, which silently drops tool calls of Llama. */
const besideCookbook = ({ cookbook, messages, refused }: Row, ours: Ours): string | undefined => {
  if (Either.isLeft(ours)) {
    const drops = refused === "Unsupported" && JSON.stringify(messages).includes('"tool_calls"')
    return typeof cookbook === "string" || drops ? undefined : `refused, but not by the cookbook: ${ours.left.message}`
  }
  if (typeof cookbook === "string") return `not refused, but by the cookbook: ${cookbook}`
  const { tokens } = ours.right
  const isSame = tokens.length === cookbook?.length && tokens.every((token, index) => token === cookbook[index])
  return isSame ? undefined : "other tokens than the cookbook's"
}

const compareRun = (file: string) =>
  Effect.gen(function* () {
    const [first = "", ...lines] = readFileSync(join(directory, file), "utf8").trimEnd().split("\n")
    const head = read<Head>(first)
    const isGeneric = head.source !== undefined
    yield* TestClock.setTime(DateTime.toEpochMillis(DateTime.unsafeMake(`${head.date}T14:07:09Z`)))
    const say = yield* speaker(head)
    const counts = new Map<string, number>()
    const known = new Map<string, number>(head.differences.map((name) => [name, 0]))
    const count = (name: string, among = counts) => among.set(name, (among.get(name) ?? 0) + 1)

    /** Returns the problem of a case. */
    const judge = (row: Row, ours: Ours): Effect.Effect<string | undefined> =>
      Effect.gen(function* () {
        if (row.refused !== undefined) {
          if (Either.isRight(ours) || reasonOf(ours.left) !== row.refused) {
            return `has to refuse with ${row.refused}: ${shown(ours, row)}`
          }
          count(`refused, ${row.refused}`)
          // A case that cannot be weighted can still be rendered.
          const whole = isGeneric ? yield* Effect.either(say(row, row.messages, "all_tokens")) : undefined
          return whole === undefined || Either.getOrUndefined(whole)?.text === row.text ? undefined : shown(whole, row)
        }
        if (row.text === undefined) {
          const isExpected = isGeneric
            ? Either.isLeft(ours) &&
              reasonOf(ours.left) === (row.raised === undefined ? "Failed" : "Raised") &&
              ours.left.message.includes(row.raised ?? "")
            : Either.isRight(ours) && row.raised !== undefined && row.adjusted === undefined
          count(isGeneric ? "an error on both sides" : "an error of the template")
          return isExpected ? undefined : shown(ours, row)
        }
        if (Either.isRight(ours) && ours.right.text === row.text) {
          count("identical")
          return undefined
        }
        const { adjusted, reasons = [] } = row
        if (adjusted === undefined || reasons.length === 0) return shown(ours, row)
        const again = yield* Effect.either(say(row, adjusted.messages))
        if (Either.isLeft(again) || again.right.text !== adjusted.text) {
          return `not only ${reasons.join(", ")}: ${shown(again, adjusted)}`
        }
        count("known difference")
        for (const reason of reasons) count(reason, known)
        return undefined
      })

    const problems: Array<string> = []
    for (const line of lines) {
      const row = read<Row>(line)
      const ours = yield* Effect.either(say(row, row.messages))
      const problem = (isGeneric ? undefined : besideCookbook(row, ours)) ?? (yield* judge(row, ours))
      if (problem === undefined) continue
      count("DIFFERENT")
      if (problems.length === 0) {
        const { messages, prompt, tools } = row
        const names = tools?.map((tool) => tool.function.name) ?? []
        problems.push(`${problem}\n    the first of them: ${JSON.stringify({ messages, prompt, tools: names })}`)
      }
    }
    // A known difference that never occurs could hide a problem.
    const unseen = [...known].filter(([, times]) => times === 0).map(([name]) => name)
    if (lines.length >= enough && unseen.length > 0) problems.push(`never seen: ${unseen.join(", ")}`)

    const listed = [...counts].map(([name, times]) => `${times} ${name}`).join(", ")
    console.log(`${head.renderer}, template of ${head.template}: ${lines.length} cases: ${listed}`)
    for (const [name, times] of known) console.log(`    ${times} ${name}`)
    for (const problem of problems) console.log(`  FAILED: ${problem}`)
    return problems.length === 0
  })

const program = Effect.gen(function* () {
  const files = readdirSync(directory).filter((file) => file.endsWith(".jsonl"))
  const good = yield* Effect.forEach(files.toSorted(), compareRun)
  if (good.includes(false) || good.length === 0) process.exitCode = 1
})

void Effect.runPromise(program.pipe(Effect.provide(TestContext.TestContext)))
