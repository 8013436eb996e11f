import { describe, expect, it } from "@effect/vitest"
import { Arbitrary, Either, FastCheck, Predicate, Redacted, Schema } from "effect"
import * as Futures from "effect-tinker/protocol/schemas/Futures"
import * as Endpoint from "effect-tinker/protocol/Endpoint"
import * as ModelInput from "effect-tinker/ModelInput"
import * as Optimizer from "effect-tinker/Optimizer"
import { SampleResult } from "effect-tinker/SampleResult"
import { TrainingResult } from "effect-tinker/TrainingResult"
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
  ["Sample", SampleResult],
  ["ForwardBackward", TrainingResult],
]

// Few random numbers are valid here.
const part = FastCheck.double({ min: 0, max: 1, maxExcluded: true, noNaN: true })
const steps = FastCheck.record({ modelId: FastCheck.string(), seqId: FastCheck.nat(), rate: part, beta1: part }).chain(
  ({ beta1, modelId, rate: learningRate, seqId }) =>
    FastCheck.constantFrom(Optimizer.adam({ learningRate, beta1 }), Optimizer.dimuon({ learningRate, beta1 })).map(
      (optimizer) => ({ modelId, seqId, ...Optimizer.toParams(optimizer) }),
    ),
)

const generators: Readonly<Record<string, FastCheck.Arbitrary<unknown>>> = {
  "optimStep (body)": steps,
  // The module before the type name is not kept, and an empty result has no name.
  ForwardBackward: Arbitrary.make(Schema.typeSchema(TrainingResult)).map((result) => ({
    ...result,
    outputType: "Kind",
  })),
}

// JSON has only one zero, and secrets compare by their value.
expect.addEqualityTesters([
  (a, b) =>
    typeof a === "number" && typeof b === "number" ? a === b || (Number.isNaN(a) && Number.isNaN(b)) : undefined,
  (a, b) => (Redacted.isRedacted(a) && Redacted.isRedacted(b) ? Redacted.value(a) === Redacted.value(b) : undefined),
  (a, b) =>
    a instanceof Float32Array && b instanceof Float32Array
      ? a.every((x, i) => Object.is(x + 0, (b[i] ?? 1) + 0)) && a.length === b.length
      : undefined,
])

const holdsProto = (value: unknown): boolean =>
  typeof value === "object" &&
  value !== null &&
  (Object.hasOwn(value, "__proto__") || Object.values(value).some(holdsProto))

/** No metric or file has this name; free-form data may, see `Fields.test.ts`. */
const notProto = (value: unknown) => FastCheck.pre(!holdsProto(value))

/** The given fields, without those left to their defaults. */
const givenFields = (value: unknown): unknown => {
  if (Array.isArray(value)) return value.map(givenFields)
  // The length of audio is not sent.
  if (value instanceof ModelInput.ModelInput)
    return ModelInput.fromChunks(
      value.chunks.map(
        (chunk) => givenFields(chunk.type === "dmel" ? ModelInput.dmel(chunk.dmel) : chunk) as ModelInput.Chunk,
      ),
    )
  if (!Predicate.isRecord(value) || Object.getPrototypeOf(value) !== Object.prototype) return value
  return Object.fromEntries(
    Object.entries(value).flatMap(([key, value]) => (value === undefined ? [] : [[key, givenFields(value)]])),
  )
}

describe("requests survive a round trip", () => {
  for (const [name, schema] of requests) {
    it.prop(
      `${name}: a server decodes the given fields of a request and encodes them back unchanged`,
      [generators[name] ?? Schema.typeSchema(schema)],
      ([input]) => {
        notProto(input)
        const sent = json(Schema.encodeSync(schema)(input))
        const read = Schema.decodeUnknownSync(schema)(sent)
        expect(read).toMatchObject(givenFields(input) as object)
        expect(json(Schema.encodeSync(schema)(read))).toEqual(sent)
      },
      { fastCheck: { numRuns: 30 } },
    )
  }
})

describe("prerendered bodies", () => {
  // Tokens only, like most prompts, and every other kind of prompt.
  const prompt = FastCheck.oneof(
    FastCheck.int32Array({ min: 0, maxLength: 40 }).map((tokens) => ModelInput.make({ type: "encoded_text", tokens })),
    FastCheck.int32Array({ maxLength: 5 }).map((tokens) => ModelInput.make({ type: "encoded_text", tokens })),
    Arbitrary.make(Schema.typeSchema(ModelInput.ModelInput)),
  )
  const withHoles = table.flatMap(([name, endpoint]) =>
    endpoint.body.kind === "json" && Object.keys(endpoint.body.holes).length > 0
      ? [[name, endpoint, endpoint.body.schema] as const]
      : [],
  )
  it("the endpoints with prerendered bodies are optimStep, retrieveFuture and sample", () => {
    expect(withHoles.map(([name]) => name).toSorted()).toEqual(["optimStep", "retrieveFuture", "sample"])
  })
  for (const [name, endpoint, schema] of withHoles) {
    const inputs = generators[`${name} (body)`] ?? Arbitrary.make(Schema.typeSchema(schema))
    it.prop(
      `${name}: a prerendered body equals the one that the schema encodes`,
      [inputs, prompt],
      ([input, prompt]) => {
        notProto(input)
        const given = { ...(input as object), ...(name === "sample" ? { prompt } : {}) }
        // Twice: the second time uses the cache.
        for (let i = 0; i < 2; i++) {
          const rendered = Either.getOrThrow(Endpoint.render(endpoint, given as never))
          expect(rendered.body?.bytes).toBe(JSON.stringify(Schema.encodeUnknownSync(schema)(given)))
        }
      },
      { fastCheck: { numRuns: 100 } },
    )
  }
})

describe("responses survive a round trip", () => {
  for (const [name, schema] of answers) {
    it.prop(
      `${name}: an encoded response decodes to the same value`,
      [generators[name] ?? Schema.typeSchema(schema)],
      ([answer]) => {
        notProto(answer)
        const sent = json(Schema.encodeSync(schema)(answer))
        expect(Schema.decodeUnknownSync(schema)(sent)).toEqual(answer)
      },
      { fastCheck: { numRuns: 30 } },
    )
  }
})
