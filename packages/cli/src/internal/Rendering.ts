/** Chooses the tokenizer and the renderer of a model. */
import * as FetchHttpClient from "@effect/platform/FetchHttpClient"
import * as NodeFileSystem from "@effect/platform-node/NodeFileSystem"
import * as NodePath from "@effect/platform-node/NodePath"
import * as Models from "@effect-tinker/tokenizer/Models"
import type { Renderer } from "@effect-tinker/tokenizer/Renderer"
import * as Renderers from "@effect-tinker/tokenizer/Renderers"
import * as Generic from "@effect-tinker/tokenizer/renderers/Generic"
import type * as Tokenizer from "@effect-tinker/tokenizer/Tokenizer"
import * as TokenizerBackend from "@effect-tinker/tokenizer/TokenizerBackend"
import * as TokenizerHub from "@effect-tinker/tokenizer/TokenizerHub"
import * as Tokenizers from "@effect-tinker/tokenizer/Tokenizers"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { existsSync } from "node:fs"
import { homedir } from "node:os"
import { join, resolve } from "node:path"
import { Shell, variable } from "./Shell.ts"

export interface Choice {
  readonly model: string
  /** A directory, or a repository of the Hugging Face Hub. */
  readonly tokenizer?: string | undefined
  /** The name of a renderer, or `template`. */
  readonly renderer?: string | undefined
}

/** Files of tokenizers are kept where the commands of Hugging Face keep theirs, in a directory of their own. */
const tokenizers = Layer.unwrapEffect(
  Effect.map(Shell, (shell) => {
    const home = variable(shell, "HOME") ?? homedir()
    const token = variable(shell, "HF_TOKEN")
    const files = Layer.mergeAll(NodeFileSystem.layer, NodePath.layer, FetchHttpClient.layer)
    const hub = TokenizerHub.layer({
      cacheDirectory: join(variable(shell, "HF_HOME") ?? join(home, ".cache", "huggingface"), "tinkerfx"),
      baseUrl: variable(shell, "HF_ENDPOINT"),
      token: token === undefined ? undefined : Redacted.make(token),
    }).pipe(Layer.provide(files))
    return Tokenizers.layer().pipe(Layer.provide([hub, TokenizerBackend.layer, files]))
  }),
)

const load = ({ model, tokenizer }: Choice) =>
  Effect.gen(function* () {
    const all = yield* Tokenizers.Tokenizers
    if (tokenizer === undefined) return yield* all.forModel({ model })
    const directory = resolve((yield* Shell).directory, tokenizer)
    return yield* all.get(existsSync(directory) ? { directory } : { repository: tokenizer })
  })

/** Runs an effect with the tokenizer of a model. */
export const withTokenizer = <A, E, R>(choice: Choice, use: (tokenizer: Tokenizer.Service) => Effect.Effect<A, E, R>) =>
  Effect.flatMap(load(choice), use).pipe(Effect.scoped, Effect.provide(tokenizers))

const rendererOf = ({ model, renderer }: Choice, tokenizer: Tokenizer.Service) => {
  if (renderer === "template") return Generic.make(tokenizer)
  if (renderer !== undefined) return Renderers.byName(renderer, tokenizer)
  return Either.isLeft(Renderers.recommended(model)) && tokenizer.chat.templates.size > 0
    ? Generic.make(tokenizer)
    : Renderers.forModel(model, tokenizer)
}

/** Runs an effect with the tokenizer and the renderer of a model. A model without a known renderer has its template. */
export const withRenderer = <A, E, R>(
  choice: Choice,
  use: (renderer: Renderer, tokenizer: Tokenizer.Service) => Effect.Effect<A, E, R>,
) =>
  withTokenizer(choice, (tokenizer) =>
    Effect.flatMap(rendererOf(choice, tokenizer), (renderer) => use(renderer, tokenizer)),
  )

/** The model that ships with the engine. */
export const localModel = Models.local
