/** How a pass is written for a server, and how the client finds out what kind of server it is. */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import { kinds, type Service as Futures } from "../../ApiFuture.ts"
import type { Zstd } from "../../http/Host.ts"
import * as Loss from "../../Loss.ts"
import type { PreparedBatch } from "../../Loss.ts"
import * as Api from "../../protocol/Api.ts"
import type * as Endpoint from "../../protocol/Endpoint.ts"
import type { TinkerError } from "../../TinkerError.ts"
import type { TrainingResult } from "../../TrainingResult.ts"
import type { Service as Transport } from "../../Transport.ts"
import * as Response from "../core/Response.ts"
import * as Proto from "../protocol/ForwardBackwardProto.ts"
import type { Chunk } from "./Chunks.ts"
import { passKind } from "./PassKind.ts"
import { type Rendering, rendering, type Request } from "./Request.ts"
import type { Probe, ProbeAnswer } from "./TrainingDriver.ts"

export interface Options {
  readonly transport: Transport
  readonly modelId: string
  /** Set if the server asks for compressed passes and the platform can compress them. */
  readonly zstd: Option.Option<Zstd>
}

const renderings = (
  { modelId, transport, zstd }: Options,
  batch: PreparedBatch,
  forwardOnly: boolean,
): Request["renderings"] => {
  const protobuf = rendering(transport, Api.forwardBackward, (seqId) => ({ modelId, seqId, batch, forwardOnly }), {
    encoding: "protobuf",
    check: () => Proto.check(batch.data),
  })
  const json = rendering(
    transport,
    forwardOnly ? Api.forwardJson : Api.forwardBackwardJson,
    (seqId) => ({ modelId, seqId, batch }),
    { encoding: "json" },
  )
  return [Option.match(zstd, { onNone: () => protobuf, onSome: (compress) => compressed(protobuf, compress) }), json]
}

/** Compresses a request when it is sent, so that what the journal keeps stays readable. */
const compressed = (rendering: Rendering, compress: Zstd): Rendering => ({
  ...rendering,
  send: (rendered, options) => {
    const bytes = rendered.body?.bytes
    return bytes === undefined || typeof bytes === "string"
      ? rendering.send(rendered, options)
      : Effect.flatMap(compress(bytes), (smaller) =>
          rendering.send(
            { ...rendered, body: { contentType: rendered.body?.contentType ?? "", bytes: smaller } },
            { ...options, onBodySent: undefined, headers: { ...options.headers, "content-encoding": "zstd" } },
          ),
        )
  },
})

/** Creates the request for a chunk of a batch. */
export const request = (options: Options, chunk: Chunk, forwardOnly: boolean): Request<TrainingResult> => ({
  kind: passKind(forwardOnly, chunk.data.length),
  renderings: renderings(options, chunk, forwardOnly),
  bytes: chunk.bytes,
})

/** One token without weight: nothing to train on, and only read. The token makes the variants differ in their bytes. */
const harmless = (variant: Probe["variant"]): Either.Either<PreparedBatch, unknown> => {
  const token = variant === "first" ? 0 : 1
  return Loss.prepare(Loss.crossEntropy, [{ modelInput: [token], inputs: { targetTokens: [token], weights: [0] } }])
}

/** Sends a harmless forward pass under a number and returns what the server made of it. */
export const probe =
  (options: Options, futures: Futures, encoding: Effect.Effect<"protobuf" | "json">) =>
  ({ requestId: known, seq, variant }: Probe): Effect.Effect<ProbeAnswer> =>
    Effect.gen(function* () {
      const chosen = yield* encoding
      const [first, ...others] = renderings(options, yield* harmless(variant), true)
      const written = others.find((other) => other.encoding === chosen) ?? first
      const sent = yield* Effect.either(written.send(yield* written.render(seq), {}))
      if (Either.isLeft(sent)) return answerOf(sent.left)
      const { requestId } = sent.right
      if (requestId === known) return { answer: "SameRequest", requestId } as const
      const done = yield* Effect.either(futures.follow(kinds.forward, requestId, { deadline: "5 minutes" }))
      return Either.isRight(done) ? ({ answer: "Executed", requestId } as const) : answerOf(done.left)
    }).pipe(Effect.orElseSucceed(() => unknownAnswer))

const unknownAnswer: ProbeAnswer = { answer: "Unknown", requestId: undefined }

const answerOf = (error: Parameters<typeof Response.meaningOf>[0]): ProbeAnswer =>
  Response.meaningOf(error) === "Conflict" ? { answer: "Conflict", requestId: undefined } : unknownAnswer

/**
 * Checks whether the server reads only JSON, by sending a pass of no bytes, which no server can do anything with. A
 * server that complains about the body as a whole expected JSON.
 */
export const readsOnlyJson = ({ transport }: Pick<Options, "transport">): Effect.Effect<boolean> =>
  transport
    .send(Api.forwardBackward, nothing, {
      // It has no number and no effect, so a lost connection is repeated.
      mayRetry: (error) => Effect.succeed(error._tag === "Unavailable" && error.reason !== "ServerError"),
    })
    .pipe(
      Effect.as(false),
      Effect.catchAll((error) => Effect.succeed(complainsAboutBody(error))),
    )

const nothing: Endpoint.Rendered = {
  method: "POST",
  path: Api.forwardBackward.path,
  query: "",
  body: { contentType: "application/x-protobuf", bytes: new Uint8Array() },
  secrets: [],
}

const complainsAboutBody = (error: TinkerError): boolean => {
  if (error._tag !== "RequestRejected" || error.reason !== "Unprocessable") return false
  const body = Option.getOrUndefined(error.body)
  const detail = Predicate.isRecord(body) ? body["detail"] : undefined
  return (
    Array.isArray(detail) &&
    detail.some(
      (issue: unknown) =>
        Predicate.isRecord(issue) &&
        Array.isArray(issue["loc"]) &&
        issue["loc"].length === 1 &&
        issue["loc"][0] === "body",
    )
  )
}
