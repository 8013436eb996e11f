/** How a pass is put to a server, and how it is found out what kind of server it is. */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import * as Api from "../../protocol/Api.ts"
import { kinds, type Service as Futures } from "../../ApiFuture.ts"
import type * as Endpoint from "../../protocol/Endpoint.ts"
import type { Zstd } from "../../http/Host.ts"
import * as Loss from "../../Loss.ts"
import type { PreparedBatch } from "../../Loss.ts"
import type { TinkerError } from "../../TinkerError.ts"
import type { Service as Transport } from "../../Transport.ts"
import type { Chunk } from "./Chunks.ts"
import * as Proto from "../protocol/ForwardBackwardProto.ts"
import * as Sequencer from "./Sequencer.ts"

export interface Options {
  readonly transport: Transport
  readonly modelId: string
  /** Set if the server asks for compressed passes and they can be compressed here. */
  readonly zstd: Option.Option<Zstd>
}

const forms = (
  { modelId, transport, zstd }: Options,
  batch: PreparedBatch,
  forwardOnly: boolean,
): Sequencer.Request["forms"] => {
  const protobuf = Sequencer.form(transport, Api.forwardBackward, (seqId) => ({ modelId, seqId, batch, forwardOnly }), {
    wire: "protobuf",
    check: () => Proto.check(batch.data),
  })
  const json = Sequencer.form(
    transport,
    forwardOnly ? Api.forwardJson : Api.forwardBackwardJson,
    (seqId) => ({ modelId, seqId, batch }),
    { wire: "json" },
  )
  return [Option.match(zstd, { onNone: () => protobuf, onSome: (compress) => compressed(protobuf, compress) }), json]
}

/** Compressed when it is sent: what is kept for a resend stays readable. */
const compressed = (form: Sequencer.Form, compress: Zstd): Sequencer.Form => ({
  ...form,
  dispatch: undefined,
  send: (rendered, options) => {
    const bytes = rendered.body?.bytes
    return bytes === undefined || typeof bytes === "string"
      ? form.send(rendered, options)
      : Effect.flatMap(compress(bytes), (smaller) =>
          form.send(
            { ...rendered, body: { contentType: rendered.body?.contentType ?? "", bytes: smaller } },
            { ...options, headers: { ...options.headers, "content-encoding": "zstd" } },
          ),
        )
  },
})

export const request = (options: Options, chunk: Chunk, forwardOnly: boolean): Sequencer.Request => ({
  forms: forms(options, chunk, forwardOnly),
  bytes: chunk.bytes,
})

/** One token with no weight: worth nothing to train on, and only read. */
const harmless: Either.Either<PreparedBatch, unknown> = Loss.prepare(Loss.crossEntropy, [
  { modelInput: [0], inputs: { targetTokens: [0], weights: [0] } },
])

/**
 * Does the server see that a number was used before? Asked with a forward pass under a number that is used: refused
 * with a conflict, or answered with the old request's id, it does; done once more, it does not. Other answers tell
 * nothing.
 */
export const probe =
  (options: Options, futures: Futures, wire: Effect.Effect<Option.Option<"protobuf" | "json">>) =>
  (used: { readonly seq: number; readonly requestId: Option.Option<string> }): Effect.Effect<Option.Option<boolean>> =>
    Effect.gen(function* () {
      const known = Option.getOrElse(yield* wire, () => "protobuf" as const)
      const form = forms(options, yield* harmless, true).find((form) => form.wire === known)
      if (form === undefined) return Option.none()
      const sent = yield* Effect.either(form.send(yield* form.render(used.seq), {}))
      if (Either.isLeft(sent)) return Sequencer.isConflict(sent.left) ? Option.some(true) : Option.none()
      const { requestId } = sent.right
      if (Option.contains(used.requestId, requestId)) return Option.some(true)
      const done = yield* Effect.either(
        Effect.flatMap(futures.attach(kinds.forward, requestId, { deadline: "5 minutes" }), (future) => future.await),
      )
      if (Either.isRight(done)) return Option.some(false)
      return Sequencer.isConflict(done.left) ? Option.some(true) : Option.none()
    }).pipe(Effect.orElseSucceed(() => Option.none<boolean>()))

/**
 * Does the server read JSON only? Asked with a pass of no bytes, which nobody can do anything with. Who then complains
 * of the body as a whole wanted JSON.
 */
export const readsOnlyJson = ({ transport }: Pick<Options, "transport">): Effect.Effect<boolean> =>
  transport
    .send(Api.forwardBackward, nothing, {
      // It has no number and no effect: a lost connection is no reason not to know.
      mayRetry: (error) => Effect.succeed(error._tag === "Unavailable" && error.reason !== "ServerError"),
    })
    .pipe(
      Effect.as(false),
      Effect.catchAll((error) => Effect.succeed(complainsOfBody(error))),
    )

const nothing: Endpoint.Rendered = {
  method: "POST",
  path: Api.forwardBackward.path,
  query: "",
  body: { contentType: "application/x-protobuf", bytes: new Uint8Array() },
  secrets: [],
}

const complainsOfBody = (error: TinkerError): boolean => {
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
