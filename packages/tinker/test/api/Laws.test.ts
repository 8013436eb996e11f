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

// Of random numbers few are sensible.
const part = FastCheck.double({ min: 0, max: 1, maxExcluded: true, noNaN: true })
const steps = FastCheck.record({ modelId: FastCheck.string(), seqId: FastCheck.nat(), rate: part, beta1: part }).chain(
  ({ beta1, modelId, rate: learningRate, seqId }) =>
    FastCheck.constantFrom(Optimizer.adam({ learningRate, beta1 }), Optimizer.dimuon({ learningRate, beta1 })).map(
      (optimizer) => ({ modelId, seqId, ...Optimizer.toParams(optimizer) }),
    ),
)

const generators: Readonly<Record<string, FastCheck.Arbitrary<unknown>>> = {
  "optimStep (body)": steps,
  // The module before the name is not kept, and nothing has no name.
  ForwardBackward: Arbitrary.make(Schema.typeSchema(TrainingResult)).map((result) => ({
    ...result,
    outputType: "Kind",
  })),
}

// JSON has one zero only, and a secret compares by what it hides.
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

/** No metric or file is called so; free-form data may be, see `Fields.test.ts`. */
const notProto = (value: unknown) => FastCheck.pre(!holdsProto(value))

/** What a program says, without what it leaves to the defaults. */
const said = (value: unknown): unknown => {
  if (Array.isArray(value)) return value.map(said)
  // How long audio is, is for the program only.
  if (value instanceof ModelInput.ModelInput)
    return ModelInput.fromChunks(
      value.chunks.map(
        (chunk) => said(chunk.type === "dmel" ? ModelInput.dmel(chunk.dmel) : chunk) as ModelInput.Chunk,
      ),
    )
  if (!Predicate.isRecord(value) || Object.getPrototypeOf(value) !== Object.prototype) return value
  return Object.fromEntries(
    Object.entries(value).flatMap(([key, value]) => (value === undefined ? [] : [[key, said(value)]])),
  )
}

describe("a server reads of a request what was said, and would write the same again", () => {
  for (const [name, schema] of requests) {
    it.prop(
      name,
      [generators[name] ?? Schema.typeSchema(schema)],
      ([input]) => {
        notProto(input)
        const sent = json(Schema.encodeSync(schema)(input))
        const read = Schema.decodeUnknownSync(schema)(sent)
        expect(read).toMatchObject(said(input) as object)
        expect(json(Schema.encodeSync(schema)(read))).toEqual(sent)
      },
      { fastCheck: { numRuns: 30 } },
    )
  }
})

describe("a body whose holes are filled is the one that the schema writes", () => {
  // Tokens alone, as most prompts are, and everything else that there is.
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
  it("there are some", () => {
    expect(withHoles.map(([name]) => name).toSorted()).toEqual(["optimStep", "retrieveFuture", "sample"])
  })
  for (const [name, endpoint, schema] of withHoles) {
    const inputs = generators[`${name} (body)`] ?? Arbitrary.make(Schema.typeSchema(schema))
    it.prop(
      name,
      [inputs, prompt],
      ([input, prompt]) => {
        notProto(input)
        const given = { ...(input as object), ...(name === "sample" ? { prompt } : {}) }
        // Twice: the second time what the first found out is remembered.
        for (let i = 0; i < 2; i++) {
          const rendered = Either.getOrThrow(Endpoint.render(endpoint, given as never))
          expect(rendered.body?.bytes).toBe(JSON.stringify(Schema.encodeUnknownSync(schema)(given)))
        }
      },
      { fastCheck: { numRuns: 100 } },
    )
  }
})

describe("an answer is read as it was meant", () => {
  for (const [name, schema] of answers) {
    it.prop(
      name,
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
