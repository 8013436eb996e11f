/** Results of the official cookbook's renderers; written and documented by `scripts/goldens`. */
import {
  GptOss,
  Message,
  Qwen3,
  type Renderer,
  type RendererError,
  Renderers,
  RoleColon,
} from "@effect-tinker/tokenizer"
import type { Service } from "@effect-tinker/tokenizer/Tokenizer"
import { Effect, Schema } from "effect"
import { readFileSync } from "node:fs"
import * as Goldens from "./Goldens.ts"

const text = (file: string) => readFileSync(new URL(`../goldens/renderers/${file}`, import.meta.url), "utf8")

export interface Failed {
  readonly error: string
}

/** The index of the tokens in `sequences`, and run lengths of the weights: zeros, then ones, and so on. */
export type Weighted = readonly [sequence: number, runs: ReadonlyArray<number>]

export interface OfConversation {
  readonly prompt: number | Failed
  readonly prefilled: number | Failed
  readonly asUser: number | Failed
  readonly supervised: Readonly<Record<Renderer.TrainOn, Weighted | Failed>>
  readonly split: Readonly<Record<Renderer.TrainOn, ReadonlyArray<Weighted> | Failed>>
}

export interface OfResponse {
  readonly tokens: string
  readonly parsed:
    | { readonly message: unknown; readonly termination: Renderer.Termination; readonly failure: string | null }
    | Failed
}

export interface Golden {
  readonly tokenizer: TokenizerName
  readonly extension: boolean
  readonly stop: ReadonlyArray<string> | ReadonlyArray<number>
  readonly conversations: Readonly<Record<string, OfConversation>>
  readonly images: Readonly<Record<string, OfConversation>>
  /** The length of the start and of the end that a sequence has in common with the one before, and the rest. */
  readonly sequences: ReadonlyArray<readonly [start: number, rest: string, end: number]>
  readonly responses: ReadonlyArray<OfResponse>
  readonly tools: ReadonlyArray<ReadonlyArray<{ readonly role: string; readonly content: string }> | Failed>
}

export type TokenizerName = "llama3" | "qwen3" | "gpt_oss" | "glm" | "deepseek" | "kimi" | "tml"

const currentDate = "2026-01-02"

type Make = (tokenizer: Service) => Effect.Effect<Renderer.Renderer, RendererError.RendererError>

/** Renderers with options that no name has. */
const others = {
  role_colon_without_bos: RoleColon.make,
  qwen3_keeping: (tokenizer) => Qwen3.make(tokenizer, { stripThinkingFromHistory: false }),
  gpt_oss_low_reasoning: (tokenizer) => GptOss.make(tokenizer, { reasoningEffort: "low", currentDate }),
  gpt_oss_medium_reasoning: (tokenizer) => GptOss.make(tokenizer, { reasoningEffort: "medium", currentDate }),
  gpt_oss_high_reasoning: (tokenizer) => GptOss.make(tokenizer, { reasoningEffort: "high", currentDate }),
} satisfies Record<string, Make>

export type Name = Exclude<Renderers.Name, "valley" | "valley_tools"> | keyof typeof others

const isOther = (name: Name): name is keyof typeof others => Object.hasOwn(others, name)

/** The reference does not know the local models. */
export const names: ReadonlyArray<Name> = [
  ...new Set([...Renderers.names, ...(Object.keys(others) as ReadonlyArray<keyof typeof others>)]),
].filter((name) => name !== "valley" && name !== "valley_tools")

export const make = (name: Name, tokenizer: Service) =>
  isOther(name) ? others[name](tokenizer) : Renderers.byName(name, tokenizer)

const families: ReadonlyArray<readonly [prefix: string, tokenizer: TokenizerName]> = [
  ["role_colon_without_bos", "qwen3"],
  ["role_colon", "llama3"],
  ["llama3", "llama3"],
  ["qwen3", "qwen3"],
  ["nemotron3", "qwen3"],
  ["gpt_oss", "gpt_oss"],
  ["glm", "glm"],
  ["deepseek", "deepseek"],
  ["kimi", "kimi"],
  ["tml", "tml"],
]

/** Returns the small tokenizer with the special tokens of a renderer's family. */
export const tokenizerOf = (name: string): TokenizerName =>
  families.find(([prefix]) => name.startsWith(prefix))?.[1] ?? "llama3"

/** Marks a token of an image in a sequence. */
export const imageMark = 65_535

/** How many tokens the reference gave every image. */
const imageTokens = 7

const dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
const image: Message.ImagePart = {
  type: "image",
  image: { type: "image", data: Buffer.from(dot, "base64"), format: "png", expectedTokens: imageTokens },
}

/** Returns all sequences of a golden. */
export const sequencesOf = ({ sequences }: Golden): ReadonlyArray<ReadonlyArray<number>> => {
  let last: ReadonlyArray<number> = []
  return sequences.map(([start, rest, end]) => {
    last = [...last.slice(0, start), ...Goldens.unpack(rest), ...last.slice(last.length - end)]
    return last
  })
}

export const golden = (name: Name): Golden => JSON.parse(text(`${name}.golden.json`))
export const datums: Datums = JSON.parse(text("datums.json"))
export const models: Readonly<Record<string, ReadonlyArray<string>>> = JSON.parse(text("models.json"))
export const tools: ReadonlyArray<Message.ToolSpec> = JSON.parse(text("tools.json"))
export const typedTools: ReadonlyArray<Message.ToolSpec> = JSON.parse(text("typed.json"))

/** The conversations in the form of files. */
export const rawConversations: Readonly<Record<string, ReadonlyArray<unknown>>> = JSON.parse(text("conversations.json"))

export const conversations: Readonly<Record<string, ReadonlyArray<Message.Message>>> = Schema.decodeUnknownSync(
  Schema.Record({ key: Schema.String, value: Schema.Array(Message.FromJson) }),
)(rawConversations)

interface RawPart {
  readonly type: string
  readonly text: string
  readonly thinking: string
}

const rawImages: Readonly<Record<string, ReadonlyArray<{ readonly content: string | ReadonlyArray<RawPart> }>>> =
  JSON.parse(text("images.json"))

const partOf = (part: RawPart): Message.Part =>
  part.type === "image" ? image : part.type === "text" ? Message.text(part.text) : Message.thinking(part.thinking)

/** The conversations with images. */
export const imageConversations: Readonly<Record<string, ReadonlyArray<Message.Message>>> = Object.fromEntries(
  Object.entries(rawImages).map(([key, messages]) => [
    key,
    messages.map((message) => ({
      ...Schema.decodeUnknownSync(Message.FromJson)({ ...message, content: "" }),
      content: typeof message.content === "string" ? message.content : message.content.map(partOf),
    })),
  ]),
)

export const tokenizer = (name: TokenizerName, backend: Goldens.Backend = "native") =>
  Effect.provide(
    Goldens.make({ name, tokenizer: text(`${name}.tokenizer.json`), config: text(`${name}.config.json`) }),
    Goldens.backends[backend],
  )

export const load = (name: Name, backend: Goldens.Backend = "native") =>
  Effect.flatMap(tokenizer(tokenizerOf(name), backend), (tokenizer) =>
    Effect.map(make(name, tokenizer), (renderer) => ({ renderer, tokenizer })),
  )

export const weightsOf = (runs: ReadonlyArray<number>): ReadonlyArray<number> =>
  runs.flatMap((length, index) => Array.from({ length }, () => index % 2))

export interface TensorGolden {
  readonly dtype: string
  readonly data: ReadonlyArray<number>
  readonly shape: ReadonlyArray<number>
}

export type PieceGolden = ReadonlyArray<number> | { readonly image: string; readonly tokens: number }

export interface DatumGolden {
  readonly input: ReadonlyArray<PieceGolden>
  readonly inputs: Readonly<Record<string, TensorGolden>>
}

export interface Datums {
  readonly supervised: ReadonlyArray<{
    readonly chunks: ReadonlyArray<PieceGolden>
    readonly weights: ReadonlyArray<number>
    readonly maxLength: number | null
    readonly reduction: "none" | "mean"
    readonly datum: DatumGolden | Failed
  }>
  readonly trajectories: ReadonlyArray<{
    readonly steps: ReadonlyArray<
      readonly [
        observation: ReadonlyArray<PieceGolden>,
        action: ReadonlyArray<number>,
        logprobs: ReadonlyArray<number>,
        masked: boolean,
      ]
    >
    readonly advantage: number
    readonly datums: ReadonlyArray<DatumGolden> | Failed
  }>
}
