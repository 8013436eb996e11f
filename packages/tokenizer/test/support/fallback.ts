/** Prints which backend two tokenizers got, and the logged warnings. */
import { TokenizerBackend } from "@effect-tinker/tokenizer"
import { Effect, Logger } from "effect"
import * as Goldens from "./Goldens.ts"

const warnings: Array<string> = []
const listen = Logger.replace(
  Logger.defaultLogger,
  Logger.make(({ message }) => warnings.push(String(message))),
)

const program = Effect.gen(function* () {
  const backendOf = Effect.map(Goldens.make(Goldens.files("gpt2")), ({ backend }) => backend)
  const backends = yield* Effect.all([backendOf, backendOf]).pipe(Effect.provide(TokenizerBackend.layer))
  const native = yield* backendOf.pipe(
    Effect.catchTag("TokenizerError", ({ reason }) => Effect.succeed(reason)),
    Effect.provide(TokenizerBackend.layerNative),
  )
  return { backends, warnings, native }
})

const report = await Effect.runPromise(Effect.provide(program, listen))
globalThis.process.stdout.write(JSON.stringify(report))
