/** Replays the reference's training calls: the same requests, the same results. */
import { describe, expect, it } from "@effect/vitest"
import { Effect, Either, Option, Redacted, Schema, type Scope } from "effect"
import {
  CustomLoss,
  type Datum,
  Gradient,
  Loss,
  ModelInput,
  Optimizer,
  ServiceClient,
  TensorData,
  type TinkerError,
  type TrainingClient,
  TrainingResult,
} from "effect-tinker"
import type * as Proto from "effect-tinker/protocol/Proto"
import * as Clients from "./support/Clients.ts"
import * as HttpScript from "./support/HttpScript.ts"
import * as Recorded from "./support/Recorded.ts"
import * as Replay from "./support/Replay.ts"

const { adam, baseModel } = Clients

const repeat = <A>(count: number, value: A): Array<A> => Array.from({ length: count }, () => value)

/** The first number in a recording, which was made in the middle of a longer session. */
const firstNumber = (file: Replay.VectorFile): number =>
  Math.min(
    ...Replay.requestsOf(file).flatMap(({ body }) => {
      const { seqId, seq_id } = body as { readonly seqId?: number; readonly seq_id?: number }
      return seqId ?? seq_id ?? []
    }),
  )

/** Makes one call on a client that has used up the earlier numbers; returns its requests and its result. */
const replay = <A, E>(
  file: Replay.VectorFile,
  use: (client: TrainingClient.Service) => Effect.Effect<A, E, Scope.Scope>,
  flags: Readonly<Record<string, unknown>> = {},
) => {
  const number = firstNumber(file)
  const before = Number.isFinite(number) ? number - 1 : 0
  const { optim_step = [], retrieve_future = [], ...answers } = Replay.answersOf(file)
  return Replay.run(
    Effect.gen(function* () {
      const { createLoraTrainingClient } = yield* ServiceClient.ServiceClient
      const client = yield* createLoraTrainingClient({ baseModel })
      for (let i = 0; i < before; i++) yield* client.optimStep(adam)
      return yield* Replay.watched(use(client))
    }),
    {
      ...answers,
      "client/config": [{ body: flags }],
      create_model: [Replay.accepted("req-model")],
      optim_step: [...repeat(before, Replay.accepted("req-before")), ...optim_step],
      retrieve_future: [
        { body: { model_id: "sess-0001:train:0" } },
        ...repeat(before, { body: { metrics: {} } }),
        ...retrieve_future,
      ],
    },
  )
}

const resultOf = (file: Replay.VectorFile) => Replay.untyped(Recorded.vector(file).result)

const asJson = Schema.encodeSync(TrainingResult.TrainingResult)

const sent = ({ requests }: { readonly requests: ReadonlyArray<HttpScript.Seen> }) => requests.map(Replay.asVector)

/** The data and loss behind a recorded pass. */
const callOf = ({ data, lossFn, lossFnConfigV2 }: Proto.ForwardBackwardRequest) => {
  const kinds: Record<string, TensorData.Dtype> = {}
  const tensor = ({ dtype, encoding, shape }: Proto.Tensor) => {
    const isInt = dtype === 2
    const elements = (bytes: Uint8Array) => {
      const { buffer } = Uint8Array.from(bytes)
      return Array.from<number | bigint, number>(isInt ? new BigInt64Array(buffer) : new Float32Array(buffer), Number)
    }
    const indices = (bytes: Uint8Array) => Array.from(new BigInt64Array(Uint8Array.from(bytes).buffer), Number)
    const sparse = encoding.case === "sparseCsr" ? encoding.value : undefined
    const values = elements(encoding.case === "dense" ? encoding.value : (sparse?.values ?? new Uint8Array()))
    const layout = {
      ...(shape.length === 0 ? {} : { shape: shape.map(Number) }),
      ...(sparse && { sparse: { crowIndices: indices(sparse.crowIndices), colIndices: indices(sparse.colIndices) } }),
    }
    return Either.getOrThrow<TensorData.TensorData, unknown>(
      isInt ? TensorData.int64(values, layout) : TensorData.float32(values, layout),
    )
  }
  const inputsOf = (inputs: Readonly<Record<string, Proto.Tensor>>) =>
    Object.fromEntries(
      Object.entries(inputs).map(([name, recorded]) => {
        const key = name.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase())
        const value = tensor(recorded)
        kinds[key] = value.dtype
        return [key, value]
      }),
    )
  const spansOf = (spans: ReadonlyArray<Proto.ProvenanceSpan>) =>
    spans.flatMap(({ span }): ReadonlyArray<Datum.Span> => {
      if (span.case === undefined) return []
      const { length, offset, sequenceId } = span.value
      const source = span.case === "promptTokens" ? "prompt" : "sampled"
      return [{ source, sequenceId, offset: Number(offset), length: Number(length) }]
    })
  const datums = data.map((recorded): Datum.Datum => {
    const chunks = recorded.modelInput.map(({ chunk }) => {
      if (chunk.case !== "encodedText") throw new Error(`not expected in a recording: ${chunk.case}`)
      const tokens = new Int32Array(Uint8Array.from(chunk.value.tokens).buffer)
      return { type: "encoded_text", tokens } as const
    })
    const spans = { modelInput: spansOf(recorded.modelInputSpans), loss: spansOf(recorded.lossFnInputSpans) }
    return {
      modelInput: ModelInput.make(...chunks),
      inputs: inputsOf(recorded.lossFnInputs),
      ...(spans.loss.length > 0 && { modelInputSpans: spans.modelInput, lossInputSpans: spans.loss }),
    }
  })
  const config = Object.entries(lossFnConfigV2).map(([key, { value }]) => [key, value.value ?? ""] as const)
  return { datums, loss: Loss.make({ name: lossFn, inputs: kinds, config: Object.fromEntries(config) }) }
}

describe("recorded passes", () => {
  it.effect.each([
    "vectors/forward.json",
    "vectors/forward_backward_cross_entropy.json",
    "vectors/forward_backward_dtypes.json",
    "vectors/forward_backward_loss_cispo.json",
    "vectors/forward_backward_loss_custom.json",
    "vectors/forward_backward_loss_dro.json",
    "vectors/forward_backward_loss_importance_sampling.json",
    "vectors/forward_backward_loss_ppo.json",
    "vectors/forward_backward_loss_stable_reinforce.json",
    "vectors/forward_backward_provenance_spans.json",
    "vectors/forward_backward_response_bf16.json",
    "vectors/forward_backward_response_int32_trailing.json",
    "vectors/forward_backward_response_no_outputs.json",
    "vectors/forward_backward_response_stripped_fields.json",
    "vectors/forward_backward_response_two_records.json",
    "vectors/forward_backward_sparse_csr.json",
    "vectors/forward_backward_torch_auto_sparse.json",
  ] as const)("a pass matches the recording %s", (file) =>
    Effect.gen(function* () {
      const expected = Replay.requestsOf(file)
      const pass = expected[0]?.body as Proto.ForwardBackwardRequest
      const { datums, loss } = callOf(pass)
      const outcome = yield* replay(file, (client) =>
        pass.forwardOnly ? client.forward(datums, loss) : client.forwardBackward(datums, loss),
      )
      expect(sent(outcome)).toEqual(expected)
      expect(Either.map(outcome.result, asJson)).toEqual(Either.right(resultOf(file)))
      expect(outcome.requests.map(({ purpose }) => purpose)).toEqual(["train", "retrieve"])
    }),
  )
})

const supervised = { modelInput: [1, 2, 3], inputs: { targetTokens: [2, 3, 4], weights: [0, 1, 1] } }

describe("recorded passes in chunks", () => {
  const polls = (requests: ReadonlyArray<{ readonly path: string }>) =>
    requests.filter(({ path }) => path.endsWith("/retrieve_future"))
  const passes = (requests: ReadonlyArray<{ readonly path: string }>) =>
    requests.filter(({ path }) => path.endsWith("/forward_backward"))

  it.effect.each([
    [
      "vectors/forward_backward_chunked_by_bytes.json",
      { fwdbwd_max_chunk_bytes_count: 100, parallel_fwdbwd_chunks: true },
    ],
    ["vectors/forward_backward_chunked_parallel.json", { fwdbwd_max_chunk_len: 2, parallel_fwdbwd_chunks: true }],
    ["vectors/forward_backward_chunked_serial.json", { fwdbwd_max_chunk_len: 2, parallel_fwdbwd_chunks: false }],
  ] as const)("a chunked pass matches the recording %s", ([file, flags]) =>
    Effect.gen(function* () {
      const expected = Replay.requestsOf(file)
      const outcome = yield* replay(
        file,
        (client) => client.forwardBackward(repeat(5, supervised), Loss.crossEntropy),
        flags,
      )
      // Where the polls fall between the submissions depends on timing.
      expect(passes(sent(outcome))).toEqual(passes(expected))
      expect(polls(sent(outcome))).toEqual(polls(expected))
      expect(outcome.requests.length).toBe(expected.length)
      expect(Either.map(outcome.result, asJson)).toEqual(Either.right(resultOf(file)))
    }),
  )

  it.effect(
    "vectors/forward_backward_chunked_parallel.json: chunks are as recorded, but in order unless the server allows others",
    () =>
      Effect.gen(function* () {
        const serial = "vectors/forward_backward_chunked_serial.json"
        const { result, requests } = yield* replay(
          serial,
          (client) => client.forwardBackward(repeat(5, supervised), Loss.crossEntropy),
          { fwdbwd_max_chunk_len: 2 },
        )
        expect(passes(requests.map(Replay.asVector))).toEqual(passes(Replay.requestsOf(serial)))
        expect(Either.map(result, asJson)).toEqual(
          Either.right(resultOf("vectors/forward_backward_chunked_parallel.json")),
        )
      }),
  )
})

describe("recorded operations", () => {
  const token = Redacted.make("tml-other-key")
  const path = "tinker://run-1/weights/0001"
  const userMetadata = { a: "b" }

  const operations: ReadonlyArray<
    readonly [Replay.VectorFile, (client: TrainingClient.Service) => Effect.Effect<unknown, { readonly _tag: string }>]
  > = [
    ["vectors/optim_step_adam_defaults.json", (client) => client.optimStep(adam)],
    [
      "vectors/optim_step_adam_full.json",
      (client) =>
        client.optimStep(
          Optimizer.adam({
            learningRate: 0.001,
            beta1: 0.8,
            beta2: 0.99,
            eps: 1e-8,
            weightDecay: 0.01,
            gradClipNorm: 1,
          }),
        ),
    ],
    ["vectors/optim_step_dimuon.json", (client) => client.optimStep(Optimizer.dimuon({ learningRate: 0.001 }))],
    ["vectors/save_state_defaults.json", (client) => client.saveState("ck-1")],
    [
      "vectors/save_state_full.json",
      (client) => client.saveState("ck-1", { ttl: "1 hour", overwrite: true, userMetadata }),
    ],
    ["vectors/save_weights_for_sampler_named.json", (client) => client.saveWeightsForSampler("s-1")],
    [
      "vectors/save_weights_for_sampler_named_full.json",
      (client) => client.saveWeightsForSampler("s-1", { ttl: "2 hours", userMetadata }),
    ],
    ["vectors/load_state.json", (client) => client.loadState(path)],
    [
      "vectors/load_state_with_optimizer.json",
      (client) => client.loadStateWithOptimizer(path, { weightsAccessToken: token }),
    ],
    ["vectors-0.25.0/optim_step.json", (client) => client.optimStep(adam)],
    ["vectors-0.25.0/save_state.json", (client) => client.saveState("ck", { ttl: "1 hour" })],
    ["vectors-0.25.0/save_weights_for_sampler.json", (client) => client.saveWeightsForSampler("s")],
  ]

  /** A load returns nothing new to its caller, and the type name of the response is not part of our result. */
  const returned = (file: Replay.VectorFile) => {
    const { metrics, path } = resultOf(file) as { readonly metrics?: unknown; readonly path?: string }
    if (file.includes("/load_state")) return undefined
    return metrics === undefined ? { path } : { metrics }
  }

  it.effect.each(operations)("the operation matches the recording %s", ([file, use]) =>
    Effect.gen(function* () {
      const outcome = yield* replay(file, use)
      expect(sent(outcome)).toEqual(Replay.requestsOf(file))
      expect(outcome.result).toEqual(Either.right(returned(file)))
    }),
  )

  it.effect("vectors/save_weights_and_get_sampling_client.json: requests match the recording", () =>
    Effect.gen(function* () {
      const file = "vectors/save_weights_and_get_sampling_client.json"
      const outcome = yield* replay(file, (client) => client.saveWeightsAndGetSamplingClient())
      expect(sent(outcome)).toEqual(Replay.requestsOf(file))
      expect(
        Either.map(outcome.result, ({ samplingSessionId }) => ({ sampling_session_id: samplingSessionId })),
      ).toEqual(Either.right(resultOf(file)))
    }),
  )

  it.effect("vectors/get_info.json: info is as recorded, and the tokenizer keeps its revision", () =>
    Effect.gen(function* () {
      const file = "vectors/get_info.json"
      const outcome = yield* replay(file, (client) => client.getInfo)
      expect(sent(outcome)).toEqual(Replay.requestsOf(file))
      const info = Either.getOrThrow(outcome.result)
      const reference = resultOf(file) as Readonly<Record<string, unknown>>
      expect({
        type: "get_info",
        model_id: info.modelId,
        model_data: {
          arch: Option.getOrNull(info.modelData.arch),
          model_name: Option.getOrNull(info.modelData.modelName),
          tokenizer_id: Option.getOrThrow(info.modelData.tokenizerId).replace(/:.*/, ""),
        },
        optimizer_config: info.optimizerConfig,
        is_lora: Option.getOrNull(info.isLora),
        lora_rank: Option.getOrNull(info.loraRank),
        model_name: Option.getOrNull(info.modelName),
      }).toEqual(reference)
      expect(info.modelData.tokenizerId).toEqual(Option.some("Qwen/Qwen3-8B:abc123"))
    }),
  )

  it.effect(
    "vectors/forward_backward_empty.json, vectors/forward_backward_image_asset_pointer_rejected.json: invalid data is rejected",
    () =>
      Effect.gen(function* () {
        const files = [
          "vectors/forward_backward_empty.json",
          "vectors/forward_backward_image_asset_pointer_rejected.json",
        ] as const
        const picture = Either.getOrThrow(ModelInput.imageAsset({ format: "png", location: "gs://x" }))
        const batches = [[], [{ ...supervised, modelInput: ModelInput.make(picture) }]]
        for (const [index, file] of files.entries()) {
          expect(Replay.exchangesOf(file)).toEqual([])
          const after = "vectors-0.25.0/save_state.json"
          const { requests, result } = yield* replay(after, (client) =>
            Effect.gen(function* () {
              const refused = yield* Effect.flip(client.forwardBackward(batches[index] ?? [], Loss.crossEntropy))
              yield* client.saveState("ck", { ttl: "1 hour" })
              return refused
            }),
          )
          expect(Recorded.vector(file).result).toMatchObject({ $error: "ValueError" })
          expect(result).toMatchObject({ right: { _tag: "InvalidInput" } })
          // Nothing was sent, and no number was used.
          expect(requests.map(Replay.asVector)).toEqual(Replay.requestsOf(after))
        }
      }),
  )
})

describe("recorded custom losses", () => {
  interface Weighted extends CustomLoss.Inputs {
    readonly weights: ReadonlyArray<number>
  }
  const total = (parts: ReadonlyArray<Gradient.Node>) => Gradient.sum(Gradient.concat(parts))
  /** The reference computes in float32. */
  const rounded = (metrics: typeof TrainingResult.TrainingResult.Encoded.metrics) =>
    Object.entries(metrics ?? {})
      .map(([name, value]) => [name, value?.toFixed(6)])
      .toSorted()

  const compare = <I extends CustomLoss.Inputs, E extends { readonly _tag: string }>(
    file: Replay.VectorFile,
    data: ReadonlyArray<Datum.Datum<I>>,
    loss: CustomLoss.CustomLoss<I, E>,
  ) =>
    Effect.gen(function* () {
      const outcome = yield* replay(file, (client) => client.forwardBackwardCustom(data, loss))
      expect(sent(outcome)).toEqual(Replay.requestsOf(file))
      const { metrics, ...ours } = asJson(Either.getOrThrow(outcome.result))
      const { metrics: theirs, ...reference } = resultOf(file) as typeof TrainingResult.TrainingResult.Encoded
      expect(ours).toEqual(reference)
      expect(rounded(metrics)).toEqual(rounded(theirs))
    })

  it.effect("vectors/forward_backward_custom.json: both passes match the recording", () =>
    compare<CustomLoss.Inputs, TinkerError.InvalidInput>(
      "vectors/forward_backward_custom.json",
      [supervised, { modelInput: supervised.modelInput, inputs: { targetTokens: supervised.inputs.targetTokens } }],
      CustomLoss.fromGradient((data) => ({
        loss: total(data.map(({ logprobs }) => Gradient.sum(Gradient.square(logprobs)))),
        metrics: { my_metric: data.length },
      })),
    ),
  )

  it.effect(
    "vectors/forward_backward_custom_handle_client_side.json: a loss function does what a handle does in the reference",
    () =>
      compare(
        "vectors/forward_backward_custom_handle_client_side.json",
        [supervised, supervised],
        CustomLoss.fromGradient<Weighted>((data) => {
          const loss = Gradient.neg(
            total(data.map(({ datum, logprobs }) => Gradient.dot(logprobs, datum.inputs.weights))),
          )
          const means = data.map(({ logprobs }) => Gradient.mean(Gradient.exp(logprobs)))
          return {
            loss,
            metrics: { "custom/neg_ll:sum": loss, "custom/m:mean": Gradient.mean(Gradient.concat(means)) },
          }
        }),
      ),
  )
})

describe("recorded models", () => {
  const checkpoint = "tinker://run-1/weights/0001"
  const weightsAccessToken = Redacted.make("tml-other-key")
  const viaLoad = { create_model_via_load_weights: true }

  /** The number of models that the session had before. */
  const modelsBefore = (file: Replay.VectorFile): number =>
    Math.max(
      ...Replay.requestsOf(file).flatMap(
        ({ body }) => (body as { readonly model_seq_id?: number } | null)?.model_seq_id ?? [],
      ),
    )

  const create = <E>(
    file: Replay.VectorFile,
    use: (service: ServiceClient.Service) => Effect.Effect<TrainingClient.Service, E, Scope.Scope>,
    flags: Readonly<Record<string, unknown>> = {},
    answers: Replay.Replies = Replay.answersOf(file),
  ) => {
    const before = modelsBefore(file)
    return Replay.run(
      Effect.gen(function* () {
        const service = yield* ServiceClient.ServiceClient
        for (let i = 0; i < before; i++) yield* service.createLoraTrainingClient({ baseModel: "other" })
        return yield* Replay.watched(Effect.map(use(service), ({ modelId }) => ({ model_id: modelId })))
      }),
      {
        ...answers,
        "client/config": [{ body: flags }],
        "client/dynamic_config": [{ body: {}, forever: true }],
        create_model: [...repeat(before, Replay.accepted("req-before")), ...(answers["create_model"] ?? [])],
        retrieve_future: [...repeat(before, { body: { model_id: "other" } }), ...(answers["retrieve_future"] ?? [])],
      },
    )
  }

  it.effect.each<
    readonly [
      Replay.VectorFile,
      (service: ServiceClient.Service) => Effect.Effect<TrainingClient.Service, { readonly _tag: string }, Scope.Scope>,
      Readonly<Record<string, unknown>>?,
    ]
  >([
    ["vectors/create_lora_training_client_defaults.json", (service) => service.createLoraTrainingClient({ baseModel })],
    [
      "vectors/create_lora_training_client_dimuon.json",
      (service) =>
        service.createLoraTrainingClient({ baseModel, optimizer: Optimizer.dimuon({ learningRate: 0.001 }) }),
    ],
    [
      "vectors/create_training_client_from_state_legacy.json",
      (service) => service.createTrainingClientFromCheckpoint(checkpoint),
    ],
    [
      "vectors/create_training_client_from_state_with_optimizer_legacy.json",
      (service) =>
        service.createTrainingClientFromCheckpoint(checkpoint, {
          withOptimizer: true,
          baseModel: "Qwen/Qwen3-8B-long",
          userMetadata: { a: "b" },
        }),
    ],
    [
      "vectors/create_training_client_from_state_via_load.json",
      (service) =>
        service.createTrainingClientFromCheckpoint(checkpoint, {
          baseModel,
          userMetadata: { a: "b" },
          weightsAccessToken,
          optimizer: adam,
        }),
      viaLoad,
    ],
    [
      "vectors/create_training_client_from_state_with_optimizer_via_load.json",
      (service) => service.createTrainingClientFromCheckpoint(checkpoint, { withOptimizer: true }),
      viaLoad,
    ],
  ])("creating a model matches the recording %s", ([file, use, flags]) =>
    Effect.gen(function* () {
      const outcome = yield* create(file, use, flags)
      expect(sent(outcome)).toEqual(Replay.requestsOf(file))
      expect(outcome.result).toEqual(Either.right(resultOf(file)))
    }),
  )

  it.effect(
    "restoring a checkpoint with its optimizer keeps the optimizer's type unless another one is requested",
    () =>
      Effect.gen(function* () {
        const file = "vectors/create_training_client_from_state_with_optimizer_legacy.json"
        const answers = Replay.answersOf(file)
        const [info] = answers["weights_info"] ?? []
        const dimuon = { type: "dimuon", version: 1 }
        const muon = Optimizer.dimuon({ learningRate: 0.001 })
        const made: Array<unknown> = []
        for (const options of [
          {},
          { withOptimizer: true },
          { withOptimizer: true, optimizer: adam },
          { optimizer: muon },
        ]) {
          const { requests } = yield* create(
            file,
            (service) => service.createTrainingClientFromCheckpoint(checkpoint, options),
            {},
            { ...answers, weights_info: [{ body: { ...(info?.body as object), optimizer_config: dimuon } }] },
          )
          const request = requests.find(({ path }) => path.endsWith("/create_model"))
          made.push(JSON.parse(request?.body ?? "").optimizer_config)
        }
        expect(made).toEqual([{ type: "adamw" }, dimuon, { type: "adamw" }, dimuon])
      }),
  )

  it.effect(
    "vectors/create_training_client_from_state_access_token.json: requests are as recorded, without a second start-up",
    () =>
      Effect.gen(function* () {
        const file = "vectors/create_training_client_from_state_access_token.json"
        const outcome = yield* create(file, (service) =>
          service.createTrainingClientFromCheckpoint(checkpoint, { weightsAccessToken }),
        )
        const [config, dynamic, ...rest] = Replay.requestsOf(file)
        expect([config?.path, dynamic?.path]).toEqual(["/api/v1/client/config", "/api/v1/client/dynamic_config"])
        expect(sent(outcome)).toEqual(rest)
        expect(outcome.result).toEqual(Either.right(resultOf(file)))
        // Only the lookup of the checkpoint uses the token of its owner.
        expect(outcome.requests.map(({ headers }) => headers["x-api-key"])).toEqual([
          "tml-other-key",
          ...repeat(4, "tml-a"),
        ])
      }),
  )

  it.effect(
    "vectors-0.25.0/create_lora_training_client.json: newer fields are left out for an older server that rejects them",
    () =>
      Effect.gen(function* () {
        const file = "vectors-0.25.0/create_lora_training_client.json"
        const answers = Replay.answersOf(file)
        const refusal = { detail: [{ type: "extra_forbidden", loc: ["body", "optimizer_config"] }] }
        const outcome = yield* create(
          file,
          (service) => service.createLoraTrainingClient({ baseModel }),
          {},
          { ...answers, create_model: [{ status: 422, body: refusal }, ...(answers["create_model"] ?? [])] },
        )
        expect(sent(outcome).slice(1)).toEqual(Replay.requestsOf(file))
        expect(outcome.result).toEqual(Either.right({ model_id: resultOf(file) }))
      }),
  )

  it.effect("vectors/get_server_capabilities.json: capabilities are fetched without a session", () =>
    Effect.gen(function* () {
      const file = "vectors/get_server_capabilities.json"
      const { paths, outcome } = yield* Replay.run(
        Effect.gen(function* () {
          const { getServerCapabilities } = yield* ServiceClient.ServiceClient
          const outcome = yield* Replay.watched(getServerCapabilities)
          const { seen } = yield* HttpScript.HttpScript
          return { outcome, paths: seen.map(({ path }) => path) }
        }),
        Replay.answersOf(file),
      )
      expect(sent(outcome)).toEqual(Replay.requestsOf(file))
      expect(paths).not.toContain("/api/v1/create_session")
      const { supportedModels } = Either.getOrThrow(outcome.result)
      expect({
        supported_models: supportedModels.map((model) => ({
          model_name: Option.getOrNull(model.modelName),
          max_context_length: Option.getOrNull(model.maxContextLength),
          trainable: Option.getOrNull(model.trainable),
          sampleable: Option.getOrNull(model.sampleable),
        })),
      }).toEqual(resultOf(file))
    }),
  )
})
