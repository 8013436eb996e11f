/**
 * Compares our renderers with the two references, on the conversations that `cases.py` recorded: identical, a known
 * difference, or different. With `--write`, puts the counts into docs/renderers.md.
 */
import { readdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { ExactJson, GptOss, Message, type Renderer, Renderers, TokenizerBackend } from "@effect-tinker/tokenizer"
import type { Failure } from "@effect-tinker/tokenizer/RendererError"
import type { Service } from "@effect-tinker/tokenizer/Tokenizer"
import { Console, Effect, Either, Schema } from "effect"
import type { ModelInput } from "effect-tinker"
import * as Known from "./known.ts"

interface Failed {
  readonly error: string
}

interface RawPart {
  readonly type: string
  readonly text?: string
  readonly thinking?: string
  readonly size?: readonly [width: number, height: number]
}

export interface Row {
  readonly messages: ReadonlyArray<{
    readonly role: string
    readonly content: string | ReadonlyArray<RawPart>
    readonly tool_calls?: ReadonlyArray<{
      readonly id: string | null
      readonly function: { readonly arguments: string; readonly name: string }
    }>
  }>
  readonly tools: ReadonlyArray<Message.ToolSpec> | null
  readonly mode: Renderer.TrainOn
  readonly cookbook: {
    readonly prompt: ReadonlyArray<number> | Failed
    readonly example: readonly [tokens: ReadonlyArray<number>, runs: ReadonlyArray<number>] | Failed
  }
  readonly rust?: { readonly text: string } | Failed
}

interface Head {
  readonly renderer: string
  readonly tokenizer: string
  readonly rust: boolean
  readonly date: string
}

interface Counts {
  identical: number
  refused: number
  known: number
  different: number
  first?: string
}

const directory = process.argv[2] ?? ""
const seed = process.argv[3] ?? ""
const writes = process.argv.includes("--write")

const plain = (value: ExactJson.ExactJson): unknown => {
  if (value instanceof Map) return Object.fromEntries([...value].map(([key, one]) => [key, plain(one)]))
  return Array.isArray(value) ? value.map(plain) : value
}
/** Reads numbers as written: the schemas of tools contain some. */
const readRow = (line: string) => plain(Either.getOrThrow(ExactJson.parse(line))) as Row

const isFailed = (value: unknown): value is Failed => typeof value === "object" && value !== null && "error" in value

const imageMark = 65_535

/** Writes the start of a PNG file: renderers read only its size. */
const png = (width: number, height: number) => {
  const file = Buffer.alloc(33)
  file.write("89504e470d0a1a0a0000000d49484452", "hex")
  file.writeUInt32BE(width, 16)
  file.writeUInt32BE(height, 20)
  return new Uint8Array(file)
}

const partOf =
  (name: string) =>
  (part: RawPart): Message.Part => {
    if (part.type === "text") return Message.text(part.text ?? "")
    if (part.type === "thinking") return Message.thinking(part.thinking ?? "")
    const [width, height] = part.size ?? [1, 1]
    const image = { type: "image", data: png(width, height), format: "png" } as const
    // Nothing is known about the images of this family: the reference was given other counts.
    return { type: "image", image: name.startsWith("nemotron3") ? { ...image, expectedTokens: 64 } : image }
  }

const fromJson = Schema.decodeUnknownSync(Message.FromJson)

const messagesOf = (name: string, { messages }: Row): ReadonlyArray<Message.Message> =>
  messages.map((message) => ({
    ...fromJson({ ...message, content: "" }),
    content: typeof message.content === "string" ? message.content : message.content.map(partOf(name)),
  }))

const tokensOf = (input: ModelInput.ModelInput): ReadonlyArray<number> =>
  input.chunks.flatMap((chunk) => {
    if (chunk.type === "encoded_text") return [...chunk.tokens]
    return chunk.type === "image" ? [imageMark, chunk.expectedTokens ?? 0] : [-1]
  })

const textOf = (tokenizer: Service, input: ModelInput.ModelInput) =>
  Effect.map(
    Effect.forEach(input.chunks, (chunk) =>
      chunk.type === "encoded_text"
        ? tokenizer.decode(chunk.tokens)
        : Effect.succeed(chunk.type === "image" ? `\ufffc${chunk.expectedTokens ?? 0}\ufffc` : ""),
    ),
    (all) => all.join(""),
  )

const runsOf = (weights: Float32Array): ReadonlyArray<number> => {
  const lengths = [0]
  let last = 0
  for (const weight of weights) {
    if (weight !== last) {
      lengths.push(0)
      last = weight
    }
    lengths[lengths.length - 1] = (lengths.at(-1) ?? 0) + 1
  }
  return lengths
}

const same = (one: ReadonlyArray<number>, other: ReadonlyArray<number>) =>
  one.length === other.length && one.every((value, index) => value === other[index])

const load = (head: Head) =>
  Effect.gen(function* () {
    const file = (kind: string) =>
      readFileSync(
        new URL(`../../packages/tokenizer/test/goldens/renderers/${head.tokenizer}.${kind}.json`, import.meta.url),
        "utf8",
      )
    const backend = yield* TokenizerBackend.TokenizerBackend
    const tokenizer = yield* backend.make({
      name: head.tokenizer,
      tokenizer: file("tokenizer"),
      config: file("config"),
    })
    const effort = /^gpt_oss_(low|medium|high)_reasoning$/.exec(head.renderer)?.[1] as GptOss.Effort | undefined
    const renderer =
      effort === undefined
        ? yield* Renderers.byName(head.renderer, tokenizer)
        : yield* GptOss.make(tokenizer, { reasoningEffort: effort, currentDate: head.date })
    return { renderer, tokenizer }
  })

const shown = (one: string, other: string): string => {
  let at = 0
  while (at < other.length && other[at] === one[at]) at++
  const around = (text: string) => JSON.stringify(text.slice(Math.max(0, at - 60), at + 80))
  return `ours ${around(one)}, theirs ${around(other)}`
}

const compareRun = (path: string) =>
  Effect.gen(function* () {
    const [first = "", ...lines] = readFileSync(path, "utf8").trimEnd().split("\n")
    const head = JSON.parse(first) as Head
    const { renderer, tokenizer } = yield* load(head)
    const none = (): Counts => ({ identical: 0, refused: 0, known: 0, different: 0 })
    const cookbook = none()
    const rust = none()
    const reasons = new Map<string, number>()

    const judge = (counts: Counts, verdict: "identical" | "refused" | string | undefined, about: () => string) => {
      if (verdict === "identical" || verdict === "refused") counts[verdict]++
      else if (verdict !== undefined) {
        counts.known++
        reasons.set(verdict, (reasons.get(verdict) ?? 0) + 1)
      } else {
        counts.different++
        counts.first ??= about()
      }
    }

    for (const line of lines) {
      const row = readRow(line)
      const given = messagesOf(head.renderer, row)
      const system = given[0]?.role === "system" && typeof given[0].content === "string" ? given[0].content : undefined
      const prefix = yield* Effect.either(
        row.tools === null ? Effect.succeed([]) : renderer.toolPrefix(row.tools, system ?? ""),
      )
      const whole = Either.map(prefix, (some) =>
        row.tools === null ? given : [...some, ...given.slice(system === undefined ? 0 : 1)],
      )
      const prompt: Either.Either<ModelInput.ModelInput, Failure> = yield* Effect.either(
        Effect.flatMap(whole, (messages) => renderer.generationPrompt(messages)),
      )
      const example: Either.Either<Renderer.Example, Failure> = yield* Effect.either(
        Effect.flatMap(whole, (messages) =>
          renderer.supervisedExample(
            row.mode === "customized"
              ? messages.map((message) => ({ ...message, trainable: message.role === "assistant" }))
              : messages,
            row.mode,
          ),
        ),
      )
      const about = (what: string, ours: string, theirs: string) => () =>
        `${what}: ${shown(ours, theirs)}\n    ${JSON.stringify({ messages: row.messages, tools: row.tools?.map(({ name }) => name), mode: row.mode }).slice(0, 1500)}`
      const messageOf = (failure: Failure) => `refuses: ${failure.message}`
      const decoded = (tokens: ReadonlyArray<number>) => tokenizer.decode(tokens.filter((token) => token < 60_000))

      const theirs = row.cookbook.prompt
      const oursOfPrompt = Either.isRight(prompt) ? yield* textOf(tokenizer, prompt.right) : messageOf(prompt.left)
      const ofPrompt = isFailed(theirs)
        ? Either.isLeft(prompt)
          ? "refused"
          : Known.cookbook(head.renderer, row, "prompt", undefined, theirs.error)
        : Either.isRight(prompt) && same(tokensOf(prompt.right), theirs)
          ? "identical"
          : Known.cookbook(head.renderer, row, "prompt", Either.isLeft(prompt) ? prompt.left : undefined, undefined)
      judge(cookbook, ofPrompt, about("prompt", oursOfPrompt, isFailed(theirs) ? theirs.error : yield* decoded(theirs)))

      const other = row.cookbook.example
      const ofExample = isFailed(other)
        ? Either.isLeft(example)
          ? "refused"
          : Known.cookbook(head.renderer, row, row.mode, undefined, other.error)
        : Either.isRight(example) &&
            same(tokensOf(example.right.modelInput), other[0]) &&
            same(runsOf(example.right.weights), other[1])
          ? "identical"
          : Known.cookbook(head.renderer, row, row.mode, Either.isLeft(example) ? example.left : undefined, undefined)
      const oursOfExample = Either.isRight(example)
        ? `${yield* textOf(tokenizer, example.right.modelInput)} ${runsOf(example.right.weights).join(" ")}`
        : messageOf(example.left)
      judge(
        cookbook,
        ofExample,
        about(
          row.mode,
          oursOfExample,
          isFailed(other) ? other.error : `${yield* decoded(other[0])} ${other[1].join(" ")}`,
        ),
      )

      if (row.rust === undefined) continue
      const text = isFailed(row.rust) ? undefined : row.rust.text
      // A difference is known only where the references disagree: ours equals the cookbook's.
      const agrees = ofPrompt === "identical" || ofPrompt === "refused"
      const disagreement = (theirText: string | undefined) =>
        agrees ? Known.rust(head.renderer, row, oursOfPrompt, theirText) : undefined
      const ofRust =
        text === undefined
          ? Either.isLeft(prompt)
            ? "refused"
            : disagreement(undefined)
          : oursOfPrompt === text
            ? "identical"
            : disagreement(text)
      judge(rust, ofRust, about("prompt of Rust", oursOfPrompt, text ?? (row.rust as Failed).error))
    }

    const listed = ({ different, identical, known, refused }: Counts) =>
      `${identical} identical, ${refused} refused by both, ${known} known differences, ${different} different`
    yield* Console.log(`${head.renderer}: cookbook ${listed(cookbook)}${head.rust ? `; Rust ${listed(rust)}` : ""}`)
    for (const [reason, times] of reasons) yield* Console.log(`    ${times} ${reason}`)
    for (const { first } of [cookbook, rust]) if (first !== undefined) yield* Console.log(`  DIFFERENT ${first}`)
    return { head, cases: lines.length, cookbook, rust }
  })

const begin = "<!-- conformance -->"
const end = "<!-- /conformance -->"

const tableOf = (runs: ReadonlyArray<Effect.Effect.Success<ReturnType<typeof compareRun>>>): string => {
  const cells = (counts: Counts) => [counts.identical, counts.refused, counts.known, counts.different]
  const rows = runs.map(({ cases, cookbook, head, rust }) => [
    `\`${head.renderer}\``,
    cases,
    ...cells(cookbook),
    ...(head.rust ? cells(rust) : ["", "", "", ""]),
  ])
  const heads = [
    "renderer",
    "cases",
    "cookbook: identical",
    "refused",
    "known",
    "different",
    "Rust: identical",
    "refused",
    "known",
    "different",
  ]
  return [heads, heads.map((_, index) => (index === 0 ? "---" : "--:")), ...rows]
    .map((row) => `| ${row.join(" | ")} |`)
    .join("\n")
}

const program = Effect.gen(function* () {
  const only = process.argv.find((argument) => argument.startsWith("--only="))?.slice("--only=".length)
  const files = readdirSync(directory).filter(
    (file) => file.endsWith(".jsonl") && (only === undefined || file.startsWith(only)),
  )
  const runs = yield* Effect.forEach(files.toSorted(), (file) => compareRun(join(directory, file)))
  const different = runs.reduce((sum, { cookbook, rust }) => sum + cookbook.different + rust.different, 0)
  yield* Console.log(`${runs.length} renderers, ${different} different`)
  if (different > 0 || runs.length === 0) process.exitCode = 1
  if (!writes) return
  const page = new URL("../../docs/renderers.md", import.meta.url)
  const text = readFileSync(page, "utf8")
  const about = `Seed ${seed}: ${runs.length} renderers.`
  const body = `${begin}\n\n${about}\n\n${tableOf(runs)}\n\n${end}`
  writeFileSync(
    page,
    text.replace(new RegExp(`${begin}[^]*${end}`), () => body),
  )
})

void Effect.runPromise(program.pipe(Effect.provide(TokenizerBackend.layerNative)))
