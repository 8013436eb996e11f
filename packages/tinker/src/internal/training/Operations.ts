/** The operations on a model: one row each, from the caller's arguments to the requests that are submitted. */
import * as Duration from "effect/Duration"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import type * as Redacted from "effect/Redacted"
import * as ApiFuture from "../../ApiFuture.ts"
import * as Checkpoint from "../../Checkpoint.ts"
import * as Loss from "../../Loss.ts"
import * as ModelInput from "../../ModelInput.ts"
import * as Optimizer from "../../Optimizer.ts"
import * as Api from "../../protocol/Api.ts"
import type * as Endpoint from "../../protocol/Endpoint.ts"
import type { Accepted } from "../../protocol/schemas/Futures.ts"
import type { ClientConfig } from "../../protocol/schemas/Session.ts"
import { InvalidInput } from "../../TinkerError.ts"
import type { TrainingResult } from "../../TrainingResult.ts"
import type { Service as Transport } from "../../Transport.ts"
import { invalid } from "../codec/Invalid.ts"
import type { JsonObject } from "../codec/Wire.ts"
import type { Meters } from "../runtime/Meters.ts"
import * as Chunks from "./Chunks.ts"
import { combine } from "./CombineResults.ts"
import * as PassRequests from "./PassRequests.ts"
import { rendering } from "./Request.ts"
import type { Operation } from "./Submission.ts"

/** Options of one call. */
export interface WaitOptions extends Pick<ApiFuture.Options, "deadline" | "stalledAfter"> {
  readonly tag?: string | undefined
}

/** Options of a training step. */
export interface StepOptions extends WaitOptions {
  /** How many passes the batch is split into. */
  readonly passes?: number | undefined
}

/** The parts that all operations of a client share. */
export interface Model {
  readonly transport: Transport
  readonly modelId: string
  readonly flags: ClientConfig
  readonly passes: PassRequests.Options
  readonly meters: Meters
  /** The client's own options, for calls that set none. */
  readonly defaults: WaitOptions
  /** Called with each state that training can go back to. */
  readonly onSaved: (seq: number, path: string, withOptimizer?: boolean) => void
  /** Called when a load has replaced the gradients of a partly accepted batch. */
  readonly onLoaded: () => void
}

type Built<B, A> = Either.Either<Operation<B, A>, InvalidInput>

/** The defaults of most operations: one request that does no harm when it is carried out twice. */
const harmless = {
  parallel: false,
  repeatable: true,
  conflictMeansNameTaken: false,
  independentPieces: true,
  clearsPartial: false,
} as const

const waitOf = ({ defaults }: Model, { deadline, stalledAfter, tag }: WaitOptions) => ({
  wait: { deadline: deadline ?? defaults.deadline, stalledAfter: stalledAfter ?? defaults.stalledAfter },
  tag: Option.fromNullable(tag),
})

/** An operation of one request. `input` is what the endpoint takes besides the model and the number. */
interface Row<S, O extends WaitOptions, I, B, A> extends Partial<
  Pick<Operation<B, A>, "repeatable" | "conflictMeansNameTaken" | "clearsPartial">
> {
  readonly kind: ApiFuture.Kind<B>
  readonly endpoint: Endpoint.Endpoint<I & Numbered, Accepted>
  readonly input: (subject: S, options: O) => Either.Either<Omit<I, keyof Numbered>, InvalidInput>
  readonly result: (result: B) => A
  readonly onSuccess?: (model: Model, seq: number, result: B, subject: S) => void
}

interface Numbered {
  readonly modelId: string
  readonly seqId: number
}

const row =
  <S, O extends WaitOptions, I, B, A>(definition: Row<S, O, I, B, A>) =>
  (model: Model, subject: S, options: O): Built<B, A> =>
    Either.flatMap(definition.input(subject, options), (input) => {
      const { modelId, transport } = model
      const { clearsPartial, conflictMeansNameTaken, endpoint, kind, onSuccess, repeatable, result } = definition
      // The rest of the input plus these two is what the endpoint takes.
      const numbered = (seqId: number) => ({ ...input, modelId, seqId }) as I & Numbered
      // Rendered once only to find what is wrong with it; the number does not matter.
      return Either.map(transport.render(endpoint, numbered(1)), () => ({
        ...harmless,
        ...waitOf(model, options),
        kind,
        requests: [{ kind, renderings: [rendering(transport, endpoint, numbered)] as const, bytes: 0 }],
        repeatable: repeatable ?? true,
        conflictMeansNameTaken: conflictMeansNameTaken ?? false,
        clearsPartial: clearsPartial ?? false,
        // There is one request, and so one result.
        combine: (results: ReadonlyArray<B>) => result(results[0] as B),
        onSuccess: (seq: number, value: B) => onSuccess?.(model, seq, value, subject),
      }))
    })

const pass =
  (forwardOnly: boolean) =>
  (model: Model, loss: Loss.Loss<never>, data: unknown, options: WaitOptions): Built<TrainingResult, TrainingResult> =>
    Either.flatMap(Loss.prepareUnknown(loss, data), (batch) => preparedPass(model, batch, forwardOnly, options))

/**
 * Creates a pass over a batch that was checked before. Several passes with one update are one operation, like the pieces
 * of a batch that is too large for one request: the journal keeps all of them before the first is sent.
 */
export const preparedPass = (
  model: Model,
  batch: Loss.PreparedBatch,
  forwardOnly: boolean,
  options: StepOptions,
): Built<TrainingResult, TrainingResult> => {
  const { flags, meters, passes } = model
  const parts = options.passes ?? 1
  if (!Number.isSafeInteger(parts) || parts < 1) return invalid("passes", "expected a whole number above 0")
  const limits = { maxLength: flags.fwdbwdMaxChunkLen, maxBytes: flags.fwdbwdMaxChunkBytesCount }
  const chunks = Chunks.split(batch, parts).flatMap((part) => Chunks.cut(part, limits))
  const requests = chunks.map((chunk) => PassRequests.request(passes, chunk, forwardOnly))
  // A piece that can't be written is found before another one is sent.
  const bad =
    requests.length > 1 ? requests.map(({ renderings: [first] }) => first.check()).find(Either.isLeft) : undefined
  if (bad !== undefined) return Either.left(bad.left)
  const meter = forwardOnly ? undefined : meters(Api.forwardBackward.operation)
  let unfinished = chunks.length
  return Either.right({
    ...harmless,
    ...waitOf(model, options),
    kind: forwardOnly ? ApiFuture.kinds.forward : ApiFuture.kinds.forwardBackward,
    requests,
    parallel: flags.parallelFwdbwdChunks,
    repeatable: forwardOnly,
    independentPieces: forwardOnly,
    combine,
    onSuccess: () => {
      if (--unfinished === 0) meter?.trained(tokensOf(batch))
    },
  })
}

/** Counts the tokens of a batch. A datum of unknown length, e.g. with an image, counts as 0. */
export const tokensOf = ({ data }: Loss.PreparedBatch): number =>
  data.reduce((sum, { chunks }) => sum + Option.getOrElse(ModelInput.length({ chunks }), () => 0), 0)

interface SaveOptions extends WaitOptions {
  readonly ttl?: Duration.DurationInput | undefined
}

const withTtl = <I>(
  ttl: Duration.DurationInput | undefined,
  input: (ttlSeconds: number | undefined) => I,
): Either.Either<I, InvalidInput> => Either.map(seconds(ttl), input)

const seconds = (ttl: Duration.DurationInput | undefined): Either.Either<number | undefined, InvalidInput> => {
  if (ttl === undefined) return Either.right(undefined)
  const duration = Duration.decodeUnknown(ttl)
  return Option.isSome(duration) && Duration.isFinite(duration.value)
    ? Either.right(Math.ceil(Duration.toSeconds(duration.value)))
    : Either.left(new InvalidInput({ path: "ttl", problem: "expected a finite duration" }))
}

interface LoadOptions extends WaitOptions {
  readonly weightsAccessToken?: Redacted.Redacted<string> | undefined
}

const load = (optimizer: boolean) =>
  row({
    kind: ApiFuture.kinds.loadWeights,
    endpoint: Api.loadWeights,
    input: (path: Checkpoint.Input, { weightsAccessToken }: LoadOptions) =>
      Either.map(Checkpoint.textOf(path), (path) => ({ path, optimizer, weightsAccessToken })),
    result: (): void => undefined,
    clearsPartial: true,
    onSuccess: (model, seq, _, path) => {
      // A state that was loaded can be loaded again. Its path was checked before it was sent.
      Either.map(Checkpoint.textOf(path), (text) => model.onSaved(seq, text, optimizer))
      model.onLoaded()
    },
  })

const onlyPath = ({ path }: { readonly path: string }): { readonly path: string } => ({ path })

/** Every operation by its name in the public interface. */
export const operations = {
  forward: pass(true),
  forwardBackward: pass(false),
  optimStep: row({
    kind: ApiFuture.kinds.optimStep,
    endpoint: Api.optimStep,
    input: (optimizer: Optimizer.Optimizer) => Either.map(Optimizer.validate(optimizer), Optimizer.toParams),
    result: (result) => result,
    repeatable: false,
  }),
  saveState: row({
    kind: ApiFuture.kinds.saveWeights,
    endpoint: Api.saveWeights,
    input: (
      path: string,
      {
        overwrite,
        ttl,
        userMetadata,
      }: SaveOptions & {
        readonly overwrite?: boolean | undefined
        readonly userMetadata?: JsonObject | undefined
      },
    ) => withTtl(ttl, (ttlSeconds) => ({ path, overwrite, ttlSeconds, userMetadata })),
    result: onlyPath,
    conflictMeansNameTaken: true,
    onSuccess: (model, seq, { path }) => model.onSaved(seq, path),
  }),
  saveWeightsForSampler: row({
    kind: ApiFuture.kinds.saveWeightsForSampler,
    endpoint: Api.saveWeightsForSampler,
    input: (path: string, { ttl, userMetadata }: SaveOptions & { readonly userMetadata?: JsonObject | undefined }) =>
      withTtl(ttl, (ttlSeconds) => ({ path, ttlSeconds, userMetadata })),
    result: onlyPath,
    conflictMeansNameTaken: true,
  }),
  saveWeightsExternal: row({
    kind: ApiFuture.kinds.saveWeightsExternal,
    endpoint: Api.saveWeightsExternal,
    input: (
      path: string,
      {
        ageEncryptionRecipients,
        ttl,
      }: SaveOptions & {
        readonly ageEncryptionRecipients?: ReadonlyArray<string> | undefined
      },
    ) => withTtl(ttl, (ttlSeconds) => ({ path, ttlSeconds, ageEncryptionRecipients })),
    result: ({ path, sizeBytes }) => ({ path, sizeBytes }),
    conflictMeansNameTaken: true,
  }),
  /** Saves weights without a name, for one sampling session. */
  saveSamplingSession: row({
    kind: ApiFuture.kinds.saveSamplingSession,
    endpoint: Api.saveWeightsForSampler,
    input: (samplingSessionSeqId: number) => Either.right({ samplingSessionSeqId }),
    result: (result) => result,
  }),
  loadState: load(false),
  loadStateWithOptimizer: load(true),
} as const

/** Takes a place in the order without sending a numbered request. */
export const barrier = (kind: ApiFuture.Kind<unknown>): Operation<never, void> => ({
  ...harmless,
  kind: kind as ApiFuture.Kind<never>,
  requests: [],
  combine: () => undefined,
  tag: Option.none(),
  wait: {},
  onSuccess: () => undefined,
})
