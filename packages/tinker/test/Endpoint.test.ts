import { describe, expect, it } from "@effect/vitest"
import { Duration, Either, Redacted, Schema } from "effect"
import * as Api from "effect-tinker/protocol/Api"
import * as Endpoint from "effect-tinker/protocol/Endpoint"
import * as ForwardBackward from "effect-tinker/protocol/ForwardBackward"
import * as Loss from "effect-tinker/Loss"
import * as ModelInput from "effect-tinker/ModelInput"
import * as Optimizer from "effect-tinker/Optimizer"
import { table } from "./api/wire.ts"

const failure = <I, A>(endpoint: Endpoint.Endpoint<I, A>, input: unknown) => {
  const rendered = Endpoint.render(endpoint, input as I)
  return Either.isLeft(rendered) ? rendered.left.message : "no failure"
}

const path = (checkpointId: string, trainingRunId = "run-1") =>
  Either.map(Endpoint.render(Api.publishCheckpoint, { trainingRunId, checkpointId }), (rendered) => rendered.path)

const search = Endpoint.json({
  operation: "search",
  method: "GET",
  path: "search",
  purpose: "rest",
  query: Schema.Struct({
    words: Schema.Array(Schema.String),
    exact: Schema.Boolean,
    limit: Schema.optional(Schema.Number),
  }),
})

const encode = Endpoint.bytes({
  operation: "bytes",
  path: "bytes",
  purpose: "train",
  contentType: "application/x-protobuf",
  encode: (input: { readonly size: number }) => Either.right(new Uint8Array(input.size)),
  response: Schema.Struct({}),
})

describe("Endpoint.render", () => {
  it("Endpoint.render keeps colons in a path, and slashes only in parameters that allow them", () => {
    expect(path("weights/0001", "sess:train:0")).toEqual(
      Either.right("training_runs/sess:train:0/checkpoints/weights/0001/publish"),
    )
    expect(path("weights/a b?c#d%2f", "run/é")).toEqual(
      Either.right("training_runs/run%2F%C3%A9/checkpoints/weights/a%20b%3Fc%23d%252f/publish"),
    )
  })

  it.each(["", ".", "..", "weights/..", "../..", "weights//0001", "/weights", "weights/"])(
    "Endpoint.render rejects %j as a checkpoint id",
    (id) => {
      expect(failure(Api.publishCheckpoint, { trainingRunId: "run-1", checkpointId: id })).toMatch(
        /^checkpoints\/publish\.checkpointId: "\.*" is not a valid path segment$/,
      )
    },
  )

  it("Endpoint.render rejects a lone surrogate", () => {
    expect(failure(Api.getSampler, { samplerId: "\ud800" })).toBe(
      "samplers/get.samplerId: contains an unpaired surrogate",
    )
  })

  it.prop(
    "Endpoint.render keeps every path parameter within its own segments",
    [Schema.String, Schema.String],
    ([trainingRunId, checkpointId]) => {
      const rendered = path(checkpointId, trainingRunId)
      if (Either.isLeft(rendered)) return
      const url = new URL(`https://host.invalid/api/v1/${rendered.right}`)
      const segments = url.pathname.split("/").slice(3)
      expect(segments.map(decodeURIComponent)).toEqual([
        "training_runs",
        trainingRunId,
        "checkpoints",
        ...checkpointId.split("/"),
        "publish",
      ])
      expect(url.search + url.hash).toBe("")
    },
    {
      fastCheck: {
        examples: [
          ["..", "a"],
          ["%2e%2e", "a/%2E"],
          ["a\\..", "\\\\host/b"],
          ["a\tb", "c\nd"],
        ],
      },
    },
  )

  it("Endpoint.render writes booleans and lists into the query and omits missing values", () => {
    expect(
      Either.map(
        Endpoint.render(search, { words: ["a b", "é"], exact: false, limit: undefined }),
        ({ query }) => query,
      ),
    ).toEqual(Either.right("words=a+b%2C%C3%A9&exact=false"))
  })

  it("Endpoint.render sends no body for an endpoint without one, and an empty object for an endpoint with an empty body", () => {
    const body = <I, A>(endpoint: Endpoint.Endpoint<I, A>, input: I) =>
      Either.map(Endpoint.render(endpoint, input), ({ body }) => body)
    expect(body(Api.publishCheckpoint, { trainingRunId: "r", checkpointId: "weights/1" })).toEqual(
      Either.right(undefined),
    )
    expect(body(Api.authToken, {})).toEqual(Either.right({ contentType: "application/json", bytes: "{}" }))
    expect(body(encode, { size: 3 })).toEqual(
      Either.right({ contentType: "application/x-protobuf", bytes: new Uint8Array(3) }),
    )
  })

  it("Endpoint.render names the invalid field as the caller spells it", () => {
    const create = { sessionId: "s", modelSeqId: 0, baseModel: "m" }
    expect(failure(Api.createModel, { ...create, loraConfig: { rank: 1.5 } })).toBe(
      "create_model.loraConfig.rank: Expected an integer, got 1.5",
    )
    expect(failure(Api.optimStep, { modelId: "m", seqId: 1, adamParams: Optimizer.adam({ beta1: 1 }) })).toBe(
      "optim_step.adamParams.beta1: expected 0 <= beta < 1, got 1",
    )
    expect(failure(Api.optimStep, { modelId: "m", seqId: 1, adamParams: { ...Optimizer.adam(), eps: "1" } })).toBe(
      "optim_step.adamParams.eps: Expected number, got a string",
    )
    expect(failure(Api.createModel, { ...create, modelSeqId: undefined })).toBe(
      "create_model.modelSeqId: Expected number, got undefined",
    )
    expect(failure(Api.createModel, { sessionId: "s", baseModel: "m" })).toBe("create_model.modelSeqId: is missing")
    expect(failure(Api.searchSessions, { projectIds: ["p", 3] })).toBe(
      "sessions/search.projectIds[1]: Expected string, got 3",
    )
    expect(failure(Api.saveWeightsForSampler, { modelId: "m", seqId: 1 })).toBe(
      "save_weights_for_sampler: Expected exactly one of path and samplingSessionSeqId",
    )
    expect(failure(Api.createModel, null)).toMatch(/^create_model: Expected .*, got null$/)
  })

  it("Endpoint.render errors never contain secrets or text values", () => {
    const input = { modelId: "m", seqId: 1, path: "p", optimizer: false }
    const plain = failure(Api.loadWeights, { ...input, weightsAccessToken: "tml-secret" })
    expect(plain).toMatch(/^load_weights\.weightsAccessToken: .*, got a string$/)
    expect(failure(Api.loadWeights, { ...input, optimizer: "tml-secret" })).not.toContain("secret")
    expect(
      failure(Api.loadWeights, { ...input, seqId: -1, weightsAccessToken: Redacted.make("tml-secret") }),
    ).not.toContain("secret")
  })

  it("Endpoint.render omits fields that the server does not know when they have their default value", () => {
    const without = new Set(["optimizer_config", "user_metadata", "session_id"])
    const body = (input: Endpoint.Input<typeof Api.createModel>) =>
      Object.keys(
        JSON.parse(String(Either.getOrThrow(Endpoint.render(Api.createModel, input, { without })).body?.bytes)),
      )
    const create = { sessionId: "s", modelSeqId: 0, baseModel: "m" }
    // Omitting a required field leaves no request to compare with, so every field stays.
    expect(body(create)).toContain("optimizer_config")
    without.delete("session_id")
    expect(body(create)).toEqual(["session_id", "model_seq_id", "base_model", "lora_config", "type"])
    expect(body({ ...create, optimizerConfig: { type: "adamw" } })).not.toContain("optimizer_config")
    expect(body({ ...create, optimizerConfig: { type: "dimuon" } })).toContain("optimizer_config")
    expect(body({ ...create, userMetadata: {} })).toContain("user_metadata")
  })

  it("Endpoint.render turns an exception in an encoder into a failure", () => {
    expect(failure(Api.forwardBackward, { modelId: "m", seqId: 1, forwardOnly: false })).toBe(
      "batch: expected the result of Loss.prepare, got undefined",
    )
    expect(failure(Api.forwardBackwardJson, { modelId: "m", seqId: 1 })).toContain("batch: ")
    expect(failure(Api.forwardBackward, { modelId: "m", seqId: 1, batch: { data: [{}] } })).toBe(
      "forward_backward: cannot be encoded",
    )
    expect(failure(encode, { size: -1 })).toBe("bytes: cannot be encoded")
  })

  it("Endpoint.render rejects models and samples that no server can create", () => {
    const create = { sessionId: "s", modelSeqId: 0, baseModel: "m" }
    expect(failure(Api.createModel, { ...create, loraConfig: { rank: 0 } })).toBe(
      "create_model.loraConfig.rank: Expected a positive number, got 0",
    )
    const sampler = { sessionId: "s", samplingSessionSeqId: 0 }
    const one = "create_sampling_session: Expected exactly one of baseModel and modelPath"
    expect(failure(Api.createSamplingSession, sampler)).toBe(one)
    expect(failure(Api.createSamplingSession, { ...sampler, baseModel: "m", modelPath: "tinker://x" })).toBe(one)
    const sample = { samplingSessionId: "s", seqId: 0, prompt: ModelInput.empty }
    expect(failure(Api.sample, { ...sample, promptLogprobsLastN: 1 })).toBe(
      "asample.promptLogprobsLastN: requires promptLogprobs: true",
    )
    expect(failure(Api.sample, { ...sample, promptLogprobs: false, promptLogprobsLastN: 1 })).toContain(
      "LastN: requires",
    )
    expect(failure(Api.sample, { ...sample, promptLogprobs: true, promptLogprobsLastN: 1 })).toBe("no failure")
    expect(failure(Api.sample, { ...sample, seqId: 2 ** 53 })).toBe(
      "asample.seqId: Expected an integer, got 9007199254740992",
    )
    expect(failure(Api.sample, { ...sample, seqId: 7e9 })).toBe("no failure")
    expect(failure(Api.sample, { ...sample, samplingParams: { topK: 0 } })).toBe(
      "asample.samplingParams.topK: Expected -1 or a positive integer",
    )
    expect(failure(Api.sample, { ...sample, prompt: [1, 2] })).toMatch(/^asample\.prompt: Expected .*, got an array$/)
    const text = (tokens: unknown) => ModelInput.make({ type: "encoded_text", tokens: tokens as Int32Array })
    expect(failure(Api.sample, { ...sample, prompt: text([1]) })).toContain(
      "tokens: Expected an Int32Array of token ids, got an array",
    )
  })

  it("Endpoint.render rejects values that JSON cannot represent", () => {
    const save = { modelId: "m", seqId: 1, path: "p" }
    expect(failure(Api.saveWeights, { ...save, userMetadata: { loss: Number.NaN } })).toMatch(
      /^save_weights\.userMetadata\.loss: /,
    )
    const circular: Record<string, unknown> = {}
    circular["self"] = [circular]
    expect(failure(Api.saveWeights, { ...save, userMetadata: circular })).toBe("save_weights: cannot be encoded")
    const hot = { samplingSessionId: "s", seqId: 0, prompt: ModelInput.empty }
    expect(failure(Api.sample, { ...hot, samplingParams: { temperature: Infinity } })).toBe(
      "asample.samplingParams.temperature: Expected a finite number, got Infinity",
    )
    expect(failure(Api.saveWeights, { ...save, userMetadata: { count: 1n } })).toMatch(
      /^save_weights\.userMetadata\.count: .*, got 1n$/,
    )
  })
})

describe("Api", () => {
  it.each(table)("%s: the parameters in the path match the fields of the schema", (_, endpoint) => {
    const names = [...endpoint.path.matchAll(/:(\w+)/g)].map((match) => match[1])
    const fields = endpoint.params === undefined ? [] : Object.keys((endpoint.params as Schema.Struct<{}>).fields)
    expect(fields.toSorted()).toEqual(names.toSorted())
  })

  it("Api has one endpoint per method, path and encoding", () => {
    const rows = table.map(([, { body, headers, method, path, sequenced }]) =>
      [method, path, body.kind === "bytes" ? body.contentType : body.kind, sequenced, headers["accept"]].join(),
    )
    expect(new Set(rows).size).toBe(rows.length)
  })

  it("Api marks an endpoint as sequenced exactly when its body has the seq_id of a model", () => {
    const sequenced = table.filter(([, endpoint]) => endpoint.sequenced).map(([name]) => name)
    expect(sequenced.toSorted()).toEqual([
      "forwardBackward",
      "forwardBackwardJson",
      "forwardJson",
      "loadWeights",
      "optimStep",
      "saveWeights",
      "saveWeightsExternal",
      "saveWeightsForSampler",
    ])
  })

  it("Api disables retries for endpoints that have their own retry loop", () => {
    const own = table.filter(([, endpoint]) => endpoint.retry === "none").map(([name]) => name)
    expect(own.toSorted()).toEqual([
      "cancelFuture",
      "dynamicConfig",
      "heartbeat",
      "retrieveFuture",
      "retrieveFutures",
      "sample",
      "telemetry",
    ])
  })

  it("Api sets a timeout only for endpoints whose timeout the protocol fixes", () => {
    const own = table.flatMap(([name, { timeout }]) =>
      timeout === undefined ? [] : [[name, Duration.toSeconds(timeout)] as const],
    )
    expect(Object.fromEntries(own)).toEqual({
      dynamicConfig: 10,
      heartbeat: 10,
      telemetry: 5,
      retrieveFuture: 45,
      retrieveFutures: 45,
      cancelFuture: 30,
      getApiKey: 30,
      deleteApiKey: 30,
      // The response takes as long as the model generates.
      chatCompletions: 600,
      streamChatCompletions: 600,
      completions: 600,
      streamCompletions: 600,
    })
  })

  it("Api sends the configured credential only to endpoints that cannot use a token", () => {
    const raw = table.filter(([, endpoint]) => endpoint.auth === "credential").map(([name]) => name)
    const chats = ["chatCompletions", "completions", "listModels", "streamChatCompletions", "streamCompletions"]
    const start = ["authToken", "clientConfig", "deleteApiKey", "getApiKey", "health"]
    expect(raw.toSorted()).toEqual([...start, ...chats].toSorted())
  })

  it("Api has three encodings of a pass, all with the same input", () => {
    const batch = Either.getOrThrow(
      Loss.prepare(Loss.crossEntropy, [{ modelInput: [1, 2], inputs: { targetTokens: [2, 3], weights: [0, 1] } }]),
    )
    const pass = { modelId: "m", seqId: 4, batch, forwardOnly: false }
    const body = (endpoint: Endpoint.Endpoint<typeof pass, unknown>) => {
      const { body, path } = Either.getOrThrow(Endpoint.render(endpoint, pass))
      if (!(body?.bytes instanceof Uint8Array)) throw new Error("no bytes")
      return { path, contentType: body.contentType, bytes: body.bytes }
    }
    const json = ({ bytes }: { readonly bytes: Uint8Array }) => JSON.parse(new TextDecoder().decode(bytes))
    const input = {
      data: [
        {
          model_input: { chunks: [{ type: "encoded_text", tokens: [1, 2] }] },
          loss_fn_inputs: {
            target_tokens: { data: [2, 3], dtype: "int64", shape: [2] },
            weights: { data: [0, 1], dtype: "float32", shape: [2] },
          },
        },
      ],
      loss_fn: "cross_entropy",
    }
    expect(body(Api.forwardBackward)).toMatchObject({
      path: "forward_backward",
      contentType: "application/x-protobuf",
      bytes: Either.getOrThrow(ForwardBackward.toProtobuf(pass)),
    })
    expect(body(Api.forwardBackwardJson)).toMatchObject({ path: "forward_backward", contentType: "application/json" })
    expect(json(body(Api.forwardBackwardJson))).toEqual({ model_id: "m", seq_id: 4, forward_backward_input: input })
    expect(body(Api.forwardJson).path).toBe("forward")
    expect(json(body(Api.forwardJson))).toEqual({ model_id: "m", seq_id: 4, forward_input: input })
  })
})
