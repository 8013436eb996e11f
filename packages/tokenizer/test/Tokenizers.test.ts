import { NodeContext } from "@effect/platform-node"
import {
  Tokenizer,
  TokenizerBackend,
  TokenizerError,
  type TokenizerFiles,
  TokenizerHub,
  Tokenizers,
} from "@effect-tinker/tokenizer"
import { describe, expect, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Layer, Scope, TestClock } from "effect"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as Goldens from "./support/Goldens.ts"

/** A hub whose answers the test controls. */
const world = Effect.gen(function* () {
  const asked: Array<string> = []
  const answers: Array<Deferred.Deferred<TokenizerFiles.TokenizerFiles, TokenizerError.TokenizerError>> = []
  const hub = Layer.succeed(TokenizerHub.TokenizerHub, {
    files: (repository, options) =>
      Effect.gen(function* () {
        asked.push(`${repository}@${options?.revision}`)
        const answer = yield* Deferred.make<TokenizerFiles.TokenizerFiles, TokenizerError.TokenizerError>()
        answers.push(answer)
        return yield* Deferred.await(answer)
      }),
  })
  const scope = yield* Scope.make()
  const tokenizers = yield* Tokenizers.make({ idleTimeToLive: "1 minute" }).pipe(
    Scope.extend(scope),
    Effect.provide([hub, TokenizerBackend.layerPortable, NodeContext.layer]),
  )
  const succeed = (i: number) => Deferred.succeed(answers[i]!, Goldens.files("gpt2"))
  return { asked, answers, succeed, tokenizers, close: Scope.close(scope, Exit.void) }
})

const settle = Effect.repeatN(Effect.yieldNow(), 200)
const model = { repository: "org/model" }

describe("Tokenizers", () => {
  it.effect("Tokenizers.get loads a tokenizer once for concurrent callers", () =>
    Effect.gen(function* () {
      const { asked, succeed, tokenizers } = yield* world
      const fibers = yield* Effect.forEach(Array.from({ length: 50 }), () => Effect.fork(tokenizers.get(model)))
      yield* settle
      yield* succeed(0)
      const got = yield* Effect.forEach(fibers, Fiber.join)
      expect(asked).toEqual(["org/model@main"])
      expect(new Set(got).size).toBe(1)
      expect(yield* tokenizers.get({ ...model, revision: "main" })).toBe(got[0])
    }).pipe(Effect.scoped),
  )

  it.effect("a load continues for other callers if the first one is interrupted", () =>
    Effect.gen(function* () {
      const { asked, succeed, tokenizers } = yield* world
      const first = yield* Effect.fork(Effect.scoped(tokenizers.get(model)))
      yield* settle
      const second = yield* Effect.fork(tokenizers.get(model))
      yield* settle
      yield* Fiber.interrupt(first)
      yield* succeed(0)
      expect((yield* Fiber.join(second)).vocabSize).toBeGreaterThan(1000)
      expect(asked.length).toBe(1)
    }).pipe(Effect.scoped),
  )

  it.effect("a failed load fails all waiting callers and is retried by the next one", () =>
    Effect.gen(function* () {
      const { answers, asked, succeed, tokenizers } = yield* world
      const waiting = yield* Effect.forEach([1, 2], () => Effect.fork(Effect.flip(tokenizers.get(model))))
      yield* settle
      const error = new TokenizerError.TokenizerError({
        reason: "Unavailable",
        tokenizer: "org/model",
        problem: "down",
      })
      yield* Deferred.fail(answers[0]!, error)
      expect(yield* Effect.forEach(waiting, Fiber.join)).toEqual([error, error])
      const again = yield* Effect.fork(tokenizers.get(model))
      yield* settle
      yield* succeed(1)
      yield* Fiber.join(again)
      expect(asked.length).toBe(2)
    }).pipe(Effect.scoped),
  )

  it.effect("an unused tokenizer is released after idleTimeToLive", () =>
    Effect.gen(function* () {
      const { asked, succeed, tokenizers } = yield* world
      const hold = Effect.scoped(tokenizers.get(model))
      const first = yield* Effect.fork(hold)
      yield* settle
      yield* succeed(0)
      const loaded = yield* Fiber.join(first)
      yield* TestClock.adjust("59 seconds")
      expect(yield* hold).toBe(loaded)
      yield* TestClock.adjust("59 seconds")
      expect(yield* hold).toBe(loaded)
      yield* TestClock.adjust("61 seconds")
      const later = yield* Effect.fork(hold)
      yield* settle
      yield* succeed(1)
      expect(yield* Fiber.join(later)).not.toBe(loaded)
      expect(asked.length).toBe(2)
    }),
  )

  it.effect("Tokenizers.get fails with Closed when the scope closes", () =>
    Effect.gen(function* () {
      const { close, tokenizers } = yield* world
      const waiting = yield* Effect.fork(Effect.flip(tokenizers.get(model)))
      yield* settle
      yield* close
      expect(yield* Fiber.join(waiting)).toMatchObject({ reason: "Closed", tokenizer: "org/model" })
      expect(yield* Effect.flip(tokenizers.get(model))).toMatchObject({ reason: "Closed" })
    }).pipe(Effect.scoped),
  )

  it.effect("Tokenizers.forModel loads the chosen tokenizer and rejects programs", () =>
    Effect.gen(function* () {
      const { asked, succeed, tokenizers } = yield* world
      const fiber = yield* Effect.fork(tokenizers.forModel({ model: "meta-llama/Llama-3.2-1B" }))
      yield* settle
      yield* succeed(0)
      yield* Fiber.join(fiber)
      expect(asked).toEqual(["thinkingmachineslabinc/meta-llama-3-instruct-tokenizer@main"])
      const rejected = yield* Effect.flip(tokenizers.forModel({ model: "moonshotai/Kimi-K3" }))
      expect(rejected).toMatchObject({ reason: "NeedsCode", tokenizer: "moonshotai/Kimi-K3" })
      expect(rejected.message).toContain("convert it to a tokenizer.json")
      expect(yield* Effect.flip(tokenizers.forModel({ model: "TML/x" }))).toMatchObject({ reason: "NeedsCode" })
      expect(asked.length).toBe(1)
    }).pipe(Effect.scoped),
  )
})

describe("Tokenizers with a directory", () => {
  const inDirectory = <A, E>(
    files: Record<string, string>,
    use: (directory: string) => Effect.Effect<A, E, Tokenizers.Tokenizers>,
  ) =>
    Effect.acquireUseRelease(
      Effect.sync(() => {
        const directory = mkdtempSync(join(tmpdir(), "tokenizer-"))
        for (const [name, text] of Object.entries(files)) writeFileSync(join(directory, name), text)
        return directory
      }),
      use,
      (directory) => Effect.sync(() => rmSync(directory, { recursive: true })),
    ).pipe(
      Effect.provide(
        Tokenizers.layer().pipe(
          Layer.provide([
            TokenizerBackend.layer,
            Layer.succeed(TokenizerHub.TokenizerHub, {
              files: () => Effect.dieMessage("unexpected request to the hub"),
            }),
          ]),
          Layer.provide(NodeContext.layer),
        ),
      ),
    )

  it.effect("Tokenizers.layerTokenizer provides the tokenizer of a directory", () =>
    inDirectory({ "tokenizer.json": Goldens.files("qwen").tokenizer, "chat_template.jinja": "hi" }, (directory) =>
      Effect.gen(function* () {
        const tokenizer = yield* Tokenizer.Tokenizer
        expect(yield* tokenizer.decode(yield* tokenizer.encode("from a directory"))).toBe("from a directory")
        expect(tokenizer.chat.templates.get("default")).toBe("hi")
        expect(tokenizer.backend).toBe("native")
      }).pipe(Effect.provide(Tokenizers.layerTokenizer({ directory }))),
    ),
  )

  it.effect("Tokenizers.get fails if the directory or its tokenizer.json is missing", () =>
    inDirectory({ "tokenizer_config.json": "{}" }, (directory) =>
      Effect.gen(function* () {
        const { get } = yield* Tokenizers.Tokenizers
        const reason = (directory: string) => Effect.map(Effect.flip(get({ directory })), (error) => error.message)
        expect(yield* reason(directory)).toContain("no tokenizer.json found")
        expect(yield* reason(join(directory, "nowhere"))).toContain("no tokenizer.json found")
      }).pipe(Effect.scoped),
    ),
  )
})
