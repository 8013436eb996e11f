/** Results of the official cookbook's renderers; written and documented by `scripts/goldens`. */
import { GptOss, Llama3, Message, Qwen3, type Renderer, type RendererError, RoleColon } from "@effect-tinker/tokenizer"
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
  readonly sequences: ReadonlyArray<string>
  readonly responses: ReadonlyArray<OfResponse>
  readonly tools: ReadonlyArray<ReadonlyArray<{ readonly role: string; readonly content: string }> | Failed>
}

export type TokenizerName = "llama3" | "qwen3" | "gpt_oss"

const currentDate = "2026-01-02"

type Make = (tokenizer: Service) => Effect.Effect<Renderer.Renderer, RendererError.RendererError>

export const makers = {
  role_colon: RoleColon.make,
  role_colon_without_bos: RoleColon.make,
  llama3: Llama3.make,
  qwen3: (tokenizer) => Qwen3.make(tokenizer),
  qwen3_keeping: (tokenizer) => Qwen3.make(tokenizer, { stripThinkingFromHistory: false }),
  qwen3_disable_thinking: (tokenizer) => Qwen3.make(tokenizer, { mode: "disabled" }),
  qwen3_instruct: (tokenizer) => Qwen3.make(tokenizer, { mode: "instruct" }),
  gpt_oss_no_sysprompt: (tokenizer) => GptOss.make(tokenizer),
  gpt_oss_low_reasoning: (tokenizer) => GptOss.make(tokenizer, { reasoningEffort: "low", currentDate }),
  gpt_oss_medium_reasoning: (tokenizer) => GptOss.make(tokenizer, { reasoningEffort: "medium", currentDate }),
  gpt_oss_high_reasoning: (tokenizer) => GptOss.make(tokenizer, { reasoningEffort: "high", currentDate }),
} satisfies Record<string, Make>

export type Name = keyof typeof makers

export const names = Object.keys(makers) as ReadonlyArray<Name>

const tokenizerOf: Record<Name, TokenizerName> = {
  role_colon: "llama3",
  role_colon_without_bos: "qwen3",
  llama3: "llama3",
  qwen3: "qwen3",
  qwen3_keeping: "qwen3",
  qwen3_disable_thinking: "qwen3",
  qwen3_instruct: "qwen3",
  gpt_oss_no_sysprompt: "gpt_oss",
  gpt_oss_low_reasoning: "gpt_oss",
  gpt_oss_medium_reasoning: "gpt_oss",
  gpt_oss_high_reasoning: "gpt_oss",
}

export const golden = (name: Name): Golden => JSON.parse(text(`${name}.golden.json`))
export const datums: Datums = JSON.parse(text("datums.json"))
export const models: Readonly<Record<string, ReadonlyArray<string>>> = JSON.parse(text("models.json"))
export const tools: ReadonlyArray<Message.ToolSpec> = JSON.parse(text("tools.json"))

/** The conversations in the form of files. */
export const rawConversations: Readonly<Record<string, ReadonlyArray<unknown>>> = JSON.parse(text("conversations.json"))

export const conversations: Readonly<Record<string, ReadonlyArray<Message.Message>>> = Schema.decodeUnknownSync(
  Schema.Record({ key: Schema.String, value: Schema.Array(Message.FromJson) }),
)(rawConversations)

export const tokenizer = (name: TokenizerName, backend: Goldens.Backend = "native") =>
  Effect.provide(
    Goldens.make({ name, tokenizer: text(`${name}.tokenizer.json`), config: text(`${name}.config.json`) }),
    Goldens.backends[backend],
  )

export const load = (name: Name, backend: Goldens.Backend = "native") =>
  Effect.flatMap(tokenizer(tokenizerOf[name], backend), (tokenizer) =>
    Effect.map(makers[name](tokenizer), (renderer) => ({ renderer, tokenizer })),
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
