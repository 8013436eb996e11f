import { TokenizerBackend, TokenizerChoice, TokenizerHub, type Tokenizers, TokenStream } from "@effect-tinker/tokenizer"
import type { Tokenizer } from "@effect-tinker/tokenizer"
import type { TokenizerError } from "@effect-tinker/tokenizer/TokenizerError"
import type { FileSystem, HttpClient, Path } from "@effect/platform"
import type { Effect, Either, Layer, Option, Scope } from "effect"
import { Redacted, Stream } from "effect"
import type { InvalidInput } from "effect-tinker/TinkerError"
import { describe, expect, it } from "tstyche"

declare const tokenizer: Tokenizer.Service
declare const tokenizers: Tokenizers.Service

describe("Tokenizer", () => {
  it("tokenizer methods require no services and fail with InvalidInput or TokenizerError", () => {
    expect(tokenizer.encode("a")).type.toBe<Effect.Effect<Int32Array, InvalidInput | TokenizerError>>()
    expect(tokenizer.decode([1])).type.toBe<Effect.Effect<string, InvalidInput | TokenizerError>>()
    expect(tokenizer.tokenToId("a")).type.toBe<Option.Option<number>>()
    expect(tokenizer.decoder().push([1])).type.toBe<Effect.Effect<string, InvalidInput>>()
  })

  it("decode accepts arrays of numbers only", () => {
    expect(tokenizer.decode).type.toBeCallableWith(Int32Array.of(1))
    expect(tokenizer.decode).type.toBeCallableWith(Uint32Array.of(1), { skipSpecialTokens: true })
    expect(tokenizer.decode).type.not.toBeCallableWith(BigInt64Array.of(1n))
    expect(tokenizer.decode).type.not.toBeCallableWith(["1"])
    expect(tokenizer.encode).type.not.toBeCallableWith("a", { skipSpecialTokens: true })
  })

  it("TokenStream.decode keeps the errors and requirements of the stream", () => {
    const stream = Stream.make(1, 2) as Stream.Stream<number, "failed", "Service">
    expect(stream.pipe(TokenStream.decode(tokenizer))).type.toBe<
      Stream.Stream<string, "failed" | InvalidInput | TokenizerError, "Service">
    >()
  })
})

describe("Tokenizers", () => {
  it("Tokenizers.get requires a scope", () => {
    expect(tokenizers.get({ directory: "x" })).type.toBe<
      Effect.Effect<Tokenizer.Service, InvalidInput | TokenizerError, Scope.Scope>
    >()
    expect(tokenizers.get).type.not.toBeCallableWith("org/model")
    expect(TokenizerChoice.choose({ model: "x" })).type.toBe<Either.Either<TokenizerChoice.Choice, TokenizerError>>()
  })

  it("layers name their requirements", () => {
    expect(TokenizerBackend.layer).type.toBe<Layer.Layer<TokenizerBackend.TokenizerBackend>>()
    expect(TokenizerHub.layer({ cacheDirectory: "x", token: Redacted.make("t") })).type.toBe<
      Layer.Layer<TokenizerHub.TokenizerHub, InvalidInput, HttpClient.HttpClient | FileSystem.FileSystem | Path.Path>
    >()
    expect(TokenizerHub.layer).type.not.toBeCallableWith({ cacheDirectory: "x", token: "t" })
    expect(TokenizerHub.layer).type.not.toBeCallableWith({})
  })
})
