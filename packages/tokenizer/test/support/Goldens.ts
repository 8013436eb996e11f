/** Results of the reference library; written and documented by `scripts/goldens`. */
import { TokenizerBackend } from "@effect-tinker/tokenizer"
import type { TokenizerFiles } from "@effect-tinker/tokenizer/TokenizerFiles"
import { Effect, type Layer } from "effect"
import { readFileSync } from "node:fs"

const text = (file: string) => readFileSync(new URL(`../goldens/${file}`, import.meta.url), "utf8")

export const shapes = [
  "gpt2",
  "llama3",
  "qwen",
  "o200k",
  "deepseek",
  "llama2",
  "mistral",
  "gemma",
  "unigram",
  "wordpiece",
] as const

export type Shape = (typeof shapes)[number]

interface Golden {
  readonly encoded: ReadonlyArray<string>
  readonly bare: ReadonlyArray<string>
  readonly offsets: ReadonlyArray<string>
  readonly decoded: ReadonlyArray<string | 0>
  readonly skipped: ReadonlyArray<string | 0>
  readonly salads: ReadonlyArray<readonly [tokens: string, text: string, skipped: string | 0]>
}

export interface Outcome {
  readonly result?: unknown
  readonly error?: string
}

export const texts: ReadonlyArray<string> = JSON.parse(text("texts.json"))
export const golden = (shape: Shape): Golden => JSON.parse(text(`${shape}.golden.json`))
export const refusals: Readonly<Record<Shape, Readonly<Record<string, Outcome>>>> = JSON.parse(text("refusals.json"))
export const files = (shape: Shape): TokenizerFiles => ({ name: shape, tokenizer: text(`${shape}.tokenizer.json`) })

/** Unpacks 16-bit numbers from base64. */
export const unpack = (packed: string): Array<number> => {
  const bytes = Buffer.from(packed, "base64")
  return Array.from({ length: bytes.length / 2 }, (_, i) => bytes.readUInt16LE(2 * i))
}

export const make = (description: TokenizerFiles) =>
  Effect.flatMap(TokenizerBackend.TokenizerBackend, (backend) => backend.make(description))

export const backends = {
  native: TokenizerBackend.layerNative,
  portable: TokenizerBackend.layerPortable,
} satisfies Record<string, Layer.Layer<TokenizerBackend.TokenizerBackend>>

export type Backend = keyof typeof backends

export const load = (shape: Shape, backend: Backend) => Effect.provide(make(files(shape)), backends[backend])
