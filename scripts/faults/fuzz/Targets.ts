/** The decoders of everything that comes from the wire or from a file. None may throw, whatever the bytes are. */
import { gzipSync } from "node:zlib"
import { mkdtempSync, readFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Safetensors } from "@effect-tinker/engine"
import { FileJournal } from "@effect-tinker/node"
import { ChatTemplate, ExactJson, TokenizerBackend } from "@effect-tinker/tokenizer"
import { FileSystem, Path } from "@effect/platform"
import { Chunk, ConfigProvider, Effect, Either, Layer, Option, Redacted, Schema, Stream } from "effect"
import { Archive, Checkpoint, SampleResult, TinkerConfig, TrainingResult } from "effect-tinker"
import * as Credentials from "effect-tinker/Credentials"
import * as Host from "effect-tinker/http/Host"
import * as Sse from "effect-tinker/http/Sse"
import * as Api from "effect-tinker/protocol/Api"
import * as PassRequest from "effect-tinker/protocol/PassRequest"
import * as Futures from "effect-tinker/protocol/schemas/Futures"
import * as SamplerHandle from "effect-tinker/SamplerHandle"
import * as JournalFrames from "../../../packages/node/src/internal/JournalFrames.js"
import { TarReader } from "../../../packages/tinker/src/internal/files/Tar.js"
import * as MemoryFiles from "./MemoryFiles.ts"
import { model } from "./Model.ts"

export interface Target {
  /** Decodes the bytes. Typed errors are expected; anything thrown is a defect of the decoder. */
  readonly decode: (bytes: Uint8Array) => Effect.Effect<unknown, unknown>
  readonly seeds: ReadonlyArray<Uint8Array>
}

const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text)
const textOf = (bytes: Uint8Array): string => new TextDecoder().decode(bytes)

const either = (decode: (bytes: Uint8Array) => Either.Either<unknown, unknown>) => (bytes: Uint8Array) =>
  Effect.suspend(() => decode(bytes))

const jsonOf = (bytes: Uint8Array): Either.Either<unknown, "not JSON"> =>
  Either.try({ try: () => JSON.parse(textOf(bytes)) as unknown, catch: () => "not JSON" as const })

const json = (decode: (value: unknown) => Either.Either<unknown, unknown>) =>
  either((bytes) => Either.flatMap(jsonOf(bytes), decode))

const home = mkdtempSync(join(tmpdir(), "effect-tinker-fuzz-"))

// Archives

const header = (name: string, size: number): Buffer => {
  const block = Buffer.alloc(512)
  block.write(name, 0)
  block.write("0000644\u0000", 100)
  block.write(`${size.toString(8).padStart(11, "0")}\u0000`, 124)
  block.write("        0", 148)
  block.write("ustar\u000000", 257)
  const sum = block.reduce((total, byte) => total + byte, 0) - 48
  block.write(`${sum.toString(8).padStart(6, "0")}\u0000 `, 148)
  return block
}

const tar = Buffer.concat([header("a.txt", 3), Buffer.from("abc".padEnd(512, "\u0000")), Buffer.alloc(1024)])

const path = Effect.runSync(Effect.provide(Path.Path, Path.layer))

const unpack = (bytes: Uint8Array) =>
  Archive.unpack(Stream.make(bytes), "/archive/out", { maxBytes: 2 ** 20, maxEntries: 20 }).pipe(
    Effect.provideService(FileSystem.FileSystem, MemoryFiles.make("/archive")),
    Effect.provideService(Path.Path, path),
  )

/** Corrects the checksums of headers, without which a changed header is never read further. */
const repaired = (bytes: Uint8Array): Uint8Array => {
  const copy = Buffer.from(bytes)
  for (let at = 0; at + 512 <= copy.length; at += 512) {
    const block = copy.subarray(at, at + 512)
    if (at > 0 && block.toString("latin1", 257, 262) !== "ustar") continue
    block.fill(" ", 148, 156)
    const sum = block.reduce((total, byte) => total + byte, 0)
    block.write(`${sum.toString(8).padStart(6, "0")}\u0000 `, 148)
  }
  return copy
}

/** Reads entries; most inputs end here, and need no stream. */
const readTar = (bytes: Uint8Array): Either.Either<number, unknown> => {
  const reader = new TarReader((entry, detail) => `${entry}: ${detail}`)
  const fed = reader.feed(Chunk.of(bytes))
  const { ended = reader.end().ended } = fed
  return Either.map(ended ?? Either.void, () => fed.values.length)
}

/** Reads the archive as it is, and with right checksums. Unpacks what can be read. */
const tarFile = (bytes: Uint8Array) =>
  Effect.suspend(() => {
    const right = repaired(bytes)
    return Effect.flatMap(Effect.zipRight(Effect.ignore(readTar(bytes)), readTar(right)), () => unpack(right))
  })

// Journals

/** Reads what a journal file contains, as it is read when a journal is opened. */
const journalFile = (bytes: Buffer) =>
  Either.flatMap(JournalFrames.read(bytes), ({ places }) => Either.all(places.map(JournalFrames.decode)))

/** A journal with one entry, whose checksums are right: a record and a request with a zero byte between them. */
const journalOf = (bytes: Buffer): Buffer => {
  const at = bytes.indexOf(0)
  const [record, request] = at < 0 ? [bytes, Buffer.alloc(0)] : [bytes.subarray(0, at), bytes.subarray(at + 1)]
  return Buffer.concat([JournalFrames.preamble, ...JournalFrames.whole({ offset: 0, end: 0, record, request })])
}

const journal = either((bytes) => {
  const buffer = Buffer.from(bytes)
  return Either.all([Either.right(journalFile(buffer)), journalFile(journalOf(buffer))])
})

/** The bytes of a real journal. */
const journalSeed = await Effect.runPromise(
  Effect.scoped(
    Effect.gen(function* () {
      const { append } = yield* FileJournal.make(join(home, "seed"))
      yield* append([
        { record: { _tag: "Resumed" } },
        { record: { _tag: "Acknowledged", seq: 3, requestId: "a" } },
        { record: { _tag: "Settled", seq: 3, succeeded: true } },
      ])
      return new Uint8Array(readFileSync(join(home, "seed")))
    }),
  ),
)

// Credentials

const withFile = (text: string) =>
  Layer.mergeAll(
    Layer.succeed(Host.Host, {
      ...Host.Host.defaultValue(),
      readFile: () => Effect.succeedSome(text),
    }),
    TinkerConfig.layer({ credentialsFile: "credentials.json", baseUrl: "http://host" }),
  )

const credentialsFile = (bytes: Uint8Array) =>
  Effect.flatMap(Credentials.source, ({ credential }) => credential).pipe(Effect.provide(withFile(textOf(bytes))))

const token = (bytes: Uint8Array) =>
  Effect.scoped(
    Effect.flatMap(
      Credentials.make(
        { credential: Effect.succeed(Redacted.make("tml-x")), command: Option.none() },
        {
          flags: Effect.succeed({ pjwtAuthEnabled: true, credentialDefaultSource: "api_key" }),
          exchange: () => Effect.succeed(Redacted.make(textOf(bytes))),
        },
      ),
      ({ token }) => token,
    ),
  ).pipe(Effect.provide(TinkerConfig.layer({ apiKey: Redacted.make("tml-x"), baseUrl: "http://host" })))

// Wire

const responses = Object.values(Api).flatMap((endpoint) =>
  "response" in endpoint && endpoint.response.kind === "json" ? [endpoint.response.schema] : [],
)

/** Decodes with every schema of the table of endpoints. */
const everyResponse = json((value) => {
  for (const schema of responses) Schema.decodeUnknownEither(schema)(value)
  return Either.void
})

const poll = json((value) => {
  for (const schema of [Futures.TryAgain, Futures.CompleteMetadata, Futures.FailedFuture, Futures.Accepted])
    Schema.decodeUnknownEither(schema as Schema.Schema.AnyNoContext)(value)
  return Either.all([TrainingResult.fromJson(value), SampleResult.fromJson(value)])
})

const config = (bytes: Uint8Array) => {
  const [baseUrl = "", apiKey = "", tags = "", level = "", telemetry = ""] = textOf(bytes).split("\n")
  const variables = {
    TINKER_BASE_URL: baseUrl,
    TINKER_API_KEY: apiKey,
    TINKER_TAGS: tags,
    TINKER_LOG: level,
    TINKER_TELEMETRY: telemetry,
  }
  return Effect.withConfigProvider(
    TinkerConfig.fromEnvironment(),
    ConfigProvider.fromMap(new Map(Object.entries(variables))),
  )
}

// Tokenizers and templates

const template = (bytes: Uint8Array) =>
  Effect.flatMap(
    Effect.suspend(() => ChatTemplate.make(textOf(bytes), { limits: { steps: 20_000 } })),
    ({ render }) => render({ messages: [{ role: "user", content: "Hello" }], addGenerationPrompt: true }),
  )

const tokenizerFile = readFileSync(join(model, "tokenizer.json"), "utf8")

const smallTokenizer = (): string => {
  const file = JSON.parse(tokenizerFile)
  const vocab = Object.fromEntries(Object.entries(file.model.vocab).slice(0, 8))
  return JSON.stringify({ ...file, added_tokens: [], model: { ...file.model, vocab, merges: [] } })
}

const tokenizer = (bytes: Uint8Array) =>
  Effect.flatMap(TokenizerBackend.TokenizerBackend, ({ make }) =>
    make({ name: "fuzz", tokenizer: textOf(bytes) }),
  ).pipe(Effect.provide(TokenizerBackend.layerPortable))

const safetensors = Either.getOrElse(
  Either.try(() => {
    const text = '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    const file = Buffer.alloc(8 + text.length + 8)
    file.writeBigUInt64LE(BigInt(text.length))
    file.write(text, 8)
    return new Uint8Array(file)
  }),
  () => new Uint8Array(),
)

const jwt = `eyJhbGciOiJIUzI1NiJ9.${Buffer.from('{"exp":4102444800,"iat":1}').toString("base64url")}.c2lnbmF0dXJl`

export const targets: Readonly<Record<string, Target>> = {
  tar: { decode: tarFile, seeds: [tar] },
  gzip: { decode: unpack, seeds: [gzipSync(tar)] },
  journal: {
    decode: journal,
    seeds: [journalSeed, bytesOf('{"_tag":"Settled","seq":3,"succeeded":true}\u0000{"path":"a","contentType":"b"}\nx')],
  },
  sse: {
    decode: (bytes) => Stream.runCollect(Sse.decode({ maxEventBytes: 1000 })(Stream.make(bytes, bytes))),
    seeds: [bytesOf('id: 1\nevent: message\nretry: 10\ndata: {"a":1}\n\n: comment\r\ndata: x\r\n\r\n')],
  },
  credentials: {
    decode: credentialsFile,
    seeds: [bytesOf('{"api_key":"tml-abc","version":1}'), bytesOf('{"credentials":{"api_key":"tml-abc"}}')],
  },
  jwt: { decode: token, seeds: [bytesOf(jwt)] },
  handle: {
    decode: either((bytes) => SamplerHandle.decode(textOf(bytes))),
    seeds: [bytesOf('{"v":1,"baseUrl":"http://host","samplingSessionId":"a:b"}'), bytesOf("tinker-sampler:e30")],
  },
  checkpoint: {
    decode: either((bytes) => Checkpoint.parse(textOf(bytes))),
    seeds: [bytesOf("tinker://run/weights/final"), bytesOf("tinker://a:train:0/sampler_weights/x")],
  },
  safetensors: { decode: either(Safetensors.read), seeds: [safetensors] },
  "training result": {
    decode: either(TrainingResult.fromProtobuf),
    seeds: [Buffer.from("0a0a0a086c6f6770726f627312001a0d0a086c6f73733a73756d1100000000000000", "hex")],
  },
  "sample result": { decode: either(SampleResult.fromProtobuf), seeds: [Buffer.from("0a080a0201021202080a", "hex")] },
  "pass request": {
    decode: either((bytes) => Either.flatMap(PassRequest.message(bytes), PassRequest.fromMessage)),
    seeds: [Buffer.from("0a016d10011a0a0a080a060a040102030412001a00", "hex")],
  },
  poll: {
    decode: poll,
    seeds: [
      bytesOf('{"type":"try_again","queue_state":"active"}'),
      bytesOf(
        '{"loss_fn_output_type":"a","loss_fn_outputs":[{"logprobs":{"data":[1],"dtype":"float32","shape":[1]}}],"metrics":{"loss:sum":1}}',
      ),
      bytesOf('{"sequences":[{"tokens":[1],"logprobs":[0.5],"stop_reason":"stop"}],"prompt_logprobs":[null,1]}'),
      bytesOf('{"error":"no","category":"user"}'),
    ],
  },
  api: {
    decode: everyResponse,
    seeds: [
      bytesOf(
        '{"session_id":"s","type":"create_session","cursor":{"offset":0,"limit":1,"total_count":1},"checkpoints":[]}',
      ),
      bytesOf(
        '{"training_runs":[{"training_run_id":"a","base_model":"b","last_request_time":"2025-01-01T00:00:00Z"}]}',
      ),
      bytesOf(
        '{"choices":[{"index":0,"message":{"role":"assistant","content":"x"}}],"created":1,"model":"m","id":"i"}',
      ),
    ],
  },
  config: { decode: config, seeds: [bytesOf("http://host:80/a\ntml-abc\na,b\ndebug\ntrue")] },
  "exact json": {
    decode: either((bytes) => ExactJson.parse(textOf(bytes))),
    seeds: [bytesOf('{"a":[1.5e3,-0,"\\u00e9",null,true]}')],
  },
  template: {
    decode: template,
    seeds: [
      bytesOf(
        "{% for m in messages %}{{ m['role'] + ': ' + m.content | trim }}{% if loop.last %}!{% endif %}{% endfor %}",
      ),
      bytesOf("{% macro f(x, y=1) %}{{ x ~ y }}{% endmacro %}{% set ns = namespace(a=[]) %}{{ f('a', y=2)[:2] }}"),
    ],
  },
  tokenizer: {
    decode: tokenizer,
    seeds: [bytesOf(smallTokenizer()), bytesOf('{"version":"1.0","model":{"type":"BPE"}}')],
  },
}
