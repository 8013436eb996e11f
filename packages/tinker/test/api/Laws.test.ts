import { describe, expect, it } from "@effect/vitest"
import { Arbitrary, Either, FastCheck, Schema } from "effect"
import * as Futures from "effect-tinker/api/Futures"
import { SampleRequest } from "effect-tinker/api/Sampling"
import * as ModelInput from "effect-tinker/ModelInput"
import * as Optimizer from "effect-tinker/Optimizer"
import * as TensorData from "effect-tinker/TensorData"
import { results, table } from "./wire.ts"

const json = (value: unknown): unknown => JSON.parse(JSON.stringify(value))

const requests = table.flatMap(([name, { body, query }]) => [
  ...(body.kind === "json" ? [[`${name} (body)`, body.schema] as const] : []),
  ...(query === undefined ? [] : [[`${name} (query)`, query] as const]),
])

const answers: ReadonlyArray<readonly [string, Schema.Schema.AnyNoContext]> = [
  ...table.flatMap(([name, { response }]) => (response.kind === "json" ? [[name, response.schema] as const] : [])),
  ...Object.entries(results),
  ["TryAgain", Futures.TryAgain],
  ["CompleteMetadata", Futures.CompleteMetadata],
  ["FailedFuture", Futures.FailedFuture],
]

// Token ids and tensors are typed arrays, which schemas don't invent.
const samples = FastCheck.record({
  request: Arbitrary.make(Schema.typeSchema(SampleRequest.omit("prompt", "targetPromptLogprobs"))),
  tokens: FastCheck.int32Array({ min: 0 }),
  image: FastCheck.uint8Array(),
  targets: FastCheck.option(FastCheck.array(FastCheck.tuple(FastCheck.nat(), FastCheck.nat()), { minLength: 1 })),
}).map(({ image, request, targets, tokens }) => ({
  ...request,
  prompt: ModelInput.make({ type: "encoded_text", tokens }, { type: "image", data: image, format: "png" }),
  targetPromptLogprobs: targets === null ? undefined : Either.getOrThrow(TensorData.int64(targets)),
}))

// Of random numbers few are sensible.
const part = FastCheck.double({ min: 0, max: 1, maxExcluded: true, noNaN: true })
const steps = FastCheck.record({ modelId: FastCheck.string(), seqId: FastCheck.nat(), rate: part, beta1: part }).chain(
  ({ beta1, modelId, rate: learningRate, seqId }) =>
    FastCheck.constantFrom(Optimizer.adam({ learningRate, beta1 }), Optimizer.dimuon({ learningRate, beta1 })).map(
      (optimizer) => ({ modelId, seqId, ...Optimizer.toParams(optimizer) }),
    ),
)

const generators: Readonly<Record<string, FastCheck.Arbitrary<unknown>>> = {
  "sample (body)": samples,
  "optimStep (body)": steps,
}

describe("a request that a server has read says the same when it is written again", () => {
  for (const [name, schema] of requests) {
    it.prop(
      name,
      [generators[name] ?? Schema.typeSchema(schema)],
      ([input]) => {
        const sent = json(Schema.encodeSync(schema)(input))
        expect(json(Schema.encodeSync(schema)(Schema.decodeUnknownSync(schema)(sent)))).toEqual(sent)
      },
      { fastCheck: { numRuns: 30 } },
    )
  }
})

describe("an answer is read as it was meant", () => {
  for (const [name, schema] of answers) {
    it.prop(
      name,
      [Schema.typeSchema(schema)],
      ([answer]) => {
        const sent = json(Schema.encodeSync(schema)(answer))
        expect(json(Schema.encodeSync(schema)(Schema.decodeUnknownSync(schema)(sent)))).toEqual(sent)
      },
      { fastCheck: { numRuns: 30 } },
    )
  }
})
