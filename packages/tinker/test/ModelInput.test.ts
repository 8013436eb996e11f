import { describe, expect, it } from "@effect/vitest"
import { Either, FastCheck as fc, Option, pipe, Schema } from "effect"
import * as ModelInput from "effect-tinker/ModelInput"
import type { InvalidInput } from "effect-tinker/TinkerError"
import { readFileSync } from "node:fs"

const claims = ["vectors/sample_multimodal.json"]

const problem = (result: Either.Either<unknown, InvalidInput>) =>
  Either.match(result, { onLeft: ({ path, problem }) => `${path}: ${problem}`, onRight: () => "no problem" })

const encode = Schema.encodeSync(ModelInput.ModelInput)
const decode = Schema.decodeUnknownSync(ModelInput.ModelInput)

const png = Uint8Array.of(137, 80, 78, 71)
const image = (options: Partial<Omit<ModelInput.Image, "type">> = {}) =>
  Either.getOrThrow(ModelInput.image({ data: png, format: "png", ...options }))
const text = (tokens: ReadonlyArray<number> | Int32Array) => Either.getOrThrow(ModelInput.text(tokens))

describe("ModelInput", () => {
  it("ModelInput.from accepts every kind of integer array as tokens", () => {
    const tokens = Int32Array.of(1, 2)
    expect(Either.getOrThrow(ModelInput.from(tokens)).chunks).toEqual([{ type: "encoded_text", tokens }])
    expect(Either.getOrThrow(ModelInput.from([1, 2])).chunks).toEqual([{ type: "encoded_text", tokens }])
    expect(Either.getOrThrow(ModelInput.from(Uint32Array.of(1, 2))).chunks).toEqual([{ type: "encoded_text", tokens }])
    expect(Either.getOrThrow(ModelInput.from(Uint8Array.of(1, 2))).chunks).toEqual([{ type: "encoded_text", tokens }])
    expect(problem(ModelInput.from(Uint32Array.of(1, 2 ** 31), "prompt"))).toContain("prompt[1]: expected a token id")
    expect(problem(ModelInput.from(Int8Array.of(-1), "prompt"))).toContain("prompt[0]: expected a token id")
    const input = ModelInput.make(text(tokens))
    expect(Either.getOrThrow(ModelInput.from(input))).toBe(input)
  })

  it("ModelInput.from errors name the first invalid token", () => {
    expect(problem(ModelInput.from([1, -1], "prompt"))).toBe(
      "prompt[1]: expected a token id, an integer from 0 to 2^31 - 1, got -1",
    )
    expect(problem(ModelInput.from([1.5], "prompt"))).toContain("prompt[0]")
    expect(problem(ModelInput.from([2 ** 31], "prompt"))).toContain("prompt[0]")
    expect(problem(ModelInput.from(JSON.parse('[1, "2"]'), "prompt"))).toContain("got a string")
    expect(problem(ModelInput.from(JSON.parse('{"chunks": []}'), "prompt"))).toContain("prompt: expected a ModelInput")
  })

  it("ModelInput.image and ModelInput.imageAsset reject values that no server accepts", () => {
    expect(problem(ModelInput.image({ data: png, format: "gif" as never }))).toContain("format: ")
    expect(problem(ModelInput.image({ data: png, format: "png", expectedTokens: -1 }))).toContain("expectedTokens: ")
    expect(problem(ModelInput.imageAsset({ format: "png", location: 5 as never }))).toBe(
      "imageAsset.location: Expected string, got 5",
    )
    const private_ = ModelInput.image({ data: "private bytes" as never, format: "png" })
    expect(problem(private_)).toBe("image.data: Expected a Uint8Array, got a string")
    expect(JSON.stringify(Either.flip(private_).pipe(Either.getOrThrow))).not.toContain("private")
  })

  it("ModelInput.append concatenates inputs", () => {
    const input = pipe(
      ModelInput.empty,
      ModelInput.append(text([1])),
      ModelInput.append(ModelInput.make(image(), text([2]))),
    )
    expect(input.chunks.map((chunk) => chunk.type)).toEqual(["encoded_text", "image", "encoded_text"])
    expect(ModelInput.empty.chunks).toEqual([])
    // More than an engine accepts as function arguments.
    const many = ModelInput.fromChunks(Array.from({ length: 200_000 }).fill(text([1])) as Array<ModelInput.Chunk>)
    expect(ModelInput.append(many, text([2])).chunks.length).toBe(200_001)
  })

  it("ModelInput.length is known if the length of every chunk is known", () => {
    expect(ModelInput.length(ModelInput.make(text([1, 2]), image({ expectedTokens: 5 })))).toEqual(Option.some(7))
    expect(ModelInput.length(ModelInput.make(image({ tokens: 3 })))).toEqual(Option.some(3))
    expect(ModelInput.length(ModelInput.make(text([1]), image()))).toEqual(Option.none())
    expect(ModelInput.length(ModelInput.make(ModelInput.dmel(png)))).toEqual(Option.none())
    expect(ModelInput.length(ModelInput.make(ModelInput.dmel(png, { length: 6 }), text([1])))).toEqual(Option.some(7))
    expect(ModelInput.length(ModelInput.empty)).toEqual(Option.some(0))
  })

  it("trainingBytes and samplingBytes count bytes as the service does", () => {
    const asset = Either.getOrThrow(ModelInput.imageAsset({ format: "png", location: "gs://x" }))
    const input = ModelInput.make(text([1, 2, 3]), image(), ModelInput.dmel(png), asset)
    expect(ModelInput.trainingBytes(input)).toBe(3 * 4 + 4 + 4 + 6)
    expect(ModelInput.samplingBytes(input)).toBe(3 * 10 + 4 + 4 + 6)
  })

  it("legacy image fields are sent only when given", () => {
    expect(encode(ModelInput.make(image({ height: 1, width: 2, tokens: 3 })))).toEqual({
      chunks: [{ type: "image", data: "iVBORw==", format: "png", height: 1, width: 2, tokens: 3 }],
    })
  })

  it("the length of audio is never sent", () => {
    expect(encode(ModelInput.make(ModelInput.dmel(png, { length: 6 })))).toEqual({
      chunks: [{ type: "dmel", dmel: "iVBORw==" }],
    })
    expect(() => encode(ModelInput.make(ModelInput.dmel(png, { length: -1 })))).toThrow()
  })

  it("encoding a four-megabyte image takes little CPU time", () => {
    const data = new Uint8Array(4 * 2 ** 20).map((_, index) => index)
    const large = ModelInput.make(image({ data }))
    const start = process.cpuUsage()
    const json = encode(large)
    // CPU time in microseconds, so that other processes don't count.
    const { system, user } = process.cpuUsage(start)
    expect(user + system).toBeLessThan(400_000)
    expect(json.chunks[0]).toHaveProperty("data", Buffer.from(data).toString("base64"))
    expect(() => decode({ chunks: [{ type: "image", data: "?", format: "png" }] })).toThrow("multiple of 4")
  })

  it.each(claims)("ModelInput encodes what the reference encodes: %s", (file) => {
    const vector = JSON.parse(readFileSync(new URL(`../../../test/wire/${file}`, import.meta.url), "utf8"))
    const prompt = vector.exchanges[0].request.body.prompt
    expect(encode(decode(prompt))).toEqual(prompt)
    expect(decode(prompt).chunks.map((chunk) => chunk.type)).toEqual([
      "encoded_text",
      "image",
      "image_asset_pointer",
      "image_asset_pointer",
      "dmel",
    ])
  })

  const formats = fc.constantFrom("png" as const, "jpeg" as const)
  const count = fc.option(fc.nat(), { nil: undefined })
  const given = (options: Readonly<Record<string, number | undefined>>) =>
    Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined))
  const chunk = fc.oneof(
    fc.array(fc.nat()).map(text),
    fc
      .record({ data: fc.uint8Array(), format: formats, expectedTokens: count, height: count })
      .map(({ data, format, ...rest }) => image({ data, format, ...given(rest) })),
    fc
      .record({ location: fc.string(), format: formats, expectedTokens: count })
      .map(({ location, format, ...rest }) =>
        Either.getOrThrow(ModelInput.imageAsset({ location, format, ...given(rest) })),
      ),
    fc.uint8Array().map((bytes) => ModelInput.dmel(bytes)),
  )

  it.prop("ModelInput survives a JSON round trip", { chunks: fc.array(chunk) }, ({ chunks }) => {
    const input = ModelInput.make(...chunks)
    expect(decode(JSON.parse(JSON.stringify(encode(input))))).toEqual(input)
  })
})
