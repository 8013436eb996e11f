import { describe, expect, it } from "@effect/vitest"
import { ImageFile, Message } from "@effect-tinker/tokenizer"
import { Effect, Either } from "effect"
import * as RendererGoldens from "./support/RendererGoldens.ts"

const bytes = (base64: string) => new Uint8Array(Buffer.from(base64, "base64"))

/** Files of 3 by 2 pixels. */
const files = {
  png: "iVBORw0KGgoAAAANSUhEUgAAAAMAAAACCAIAAAASFvFNAAAAC0lEQVR4nGNgQAYAAA4AAXWYi1sAAAAASUVORK5CYII=",
  gif: "R0lGODlhAwACAIAAAAAAAAAAACwAAAAAAwACAAACAoRfADs=",
}

/** Writes the start of a PNG file of any size. */
const png = (width: number, height: number) => {
  const file = bytes(files.png)
  const view = new DataView(file.buffer)
  view.setUint32(16, width)
  view.setUint32(20, height)
  return file
}

/** Writes a JPEG file up to its frame, after metadata with a thumbnail and fill bytes. */
const jpeg = (width: number, height: number) =>
  Uint8Array.of(
    0xff,
    0xd8,
    0xff,
    0xe1,
    0,
    8,
    0xff,
    0xc0,
    1,
    2,
    3,
    4,
    0xff,
    0xff,
    0xc2,
    0,
    17,
    8,
    height >> 8,
    height & 255,
    width >> 8,
    width & 255,
    3,
  )

const riff = (kind: string, rest: ReadonlyArray<number>) =>
  Uint8Array.of(
    ...Buffer.from("RIFF\0\0\0\0WEBP"),
    ...Buffer.from(kind),
    0,
    0,
    0,
    0,
    ...rest,
    ...Array.from({ length: 12 }, () => 0),
  )

describe("ImageFile", () => {
  it("ImageFile.info reads the size from the first bytes of a file", () => {
    expect(ImageFile.info(bytes(files.png))).toEqual(Either.right({ format: "png", width: 3, height: 2 }))
    expect(ImageFile.info(bytes(files.gif))).toEqual(Either.right({ format: "gif", width: 3, height: 2 }))
    expect(ImageFile.info(jpeg(640, 480))).toEqual(Either.right({ format: "jpeg", width: 640, height: 480 }))
    const lossy = riff("VP8 ", [0, 0, 0, 0x9d, 1, 0x2a, 3, 0x40, 2, 0])
    expect(ImageFile.info(lossy)).toEqual(Either.right({ format: "webp", width: 3, height: 2 }))
    const lossless = riff("VP8L", [0x2f, 2, 0x40, 0, 0])
    expect(ImageFile.info(lossless)).toEqual(Either.right({ format: "webp", width: 3, height: 2 }))
    const extended = riff("VP8X", [0, 0, 0, 0, 2, 0, 0, 1, 0, 0])
    expect(ImageFile.info(extended)).toEqual(Either.right({ format: "webp", width: 3, height: 2 }))
  })

  it("ImageFile.info rejects other files and files that end too early", () => {
    for (const file of [
      new Uint8Array(),
      bytes(files.png).slice(0, 20),
      jpeg(1, 1).slice(0, 14),
      png(0, 4),
      riff("VP9 ", []),
    ]) {
      expect(ImageFile.info(file)).toMatchObject({ left: { _tag: "InvalidInput" } })
    }
  })

  it("ImageFile.part accepts the formats of the service", () => {
    expect(ImageFile.part(jpeg(3, 2))).toMatchObject({ right: { type: "image", image: { format: "jpeg" } } })
    expect(ImageFile.part(bytes(files.gif))).toMatchObject({ left: { problem: expect.stringContaining("got gif") } })
  })

  // The numbers are those of tml-renderers 0.2.1.
  const sizes = [
    [1, 1],
    [32, 32],
    [40, 40],
    [41, 41],
    [100, 50],
    [640, 480],
    [800, 600],
    [1024, 768],
    [1920, 1080],
    [5000, 4000],
    [3000, 20],
    [20, 3000],
    [8000, 8000],
  ] as const
  const counts = {
    qwen3_vl: [64, 64, 64, 64, 72, 300, 475, 768, 2040, 16302, 94, 94, 16384],
    qwen3_5: [64, 64, 64, 64, 72, 300, 475, 768, 2040, 16302, 94, 94, 16384],
    kimi_k25: [1, 4, 4, 4, 8, 414, 638, 1036, 2691, 4176, 108, 108, 4225],
    tml_v0: [1, 1, 2, 4, 6, 204, 315, 520, 1323, 12600, 76, 75, 40200],
  } as const

  for (const [name, expected] of Object.entries(counts) as ReadonlyArray<
    [keyof typeof counts, ReadonlyArray<number>]
  >) {
    it.effect(`${name} counts the tokens of images from their size`, () =>
      Effect.gen(function* () {
        const { renderer } = yield* RendererGoldens.load(name)
        const counted: Array<number> = []
        for (const [width, height] of sizes) {
          const image = yield* ImageFile.part(png(width, height))
          const { chunks } = yield* renderer.generationPrompt([Message.user([image])])
          for (const chunk of chunks) if (chunk.type === "image") counted.push(chunk.expectedTokens ?? -1)
        }
        expect(counted).toEqual(expected)
      }),
    )
  }

  it.effect("images without a known number of tokens are rejected", () =>
    Effect.gen(function* () {
      const asking = (name: "qwen3_5" | "nemotron3_ultra", image: Message.ImagePart["image"]) =>
        Effect.flatMap(RendererGoldens.load(name), ({ renderer }) =>
          Effect.flip(renderer.generationPrompt([Message.user([{ type: "image", image }])])),
        )
      const { image } = yield* ImageFile.part(png(64, 64))
      expect(yield* asking("nemotron3_ultra", image)).toMatchObject({ reason: "Unsupported" })
      const pointer = { type: "image_asset_pointer", format: "png", location: "gs://b/i.png" } as const
      expect(yield* asking("qwen3_5", pointer)).toMatchObject({ _tag: "InvalidInput" })
      const wrong = { type: "image", data: png(4, 4), format: "jpeg" } as const
      expect(yield* asking("qwen3_5", wrong)).toMatchObject({ problem: expect.stringContaining("not jpeg") })
      const narrow = { type: "image", data: png(1, 300), format: "png" } as const
      expect(yield* asking("qwen3_5", narrow)).toMatchObject({ problem: expect.stringContaining("200 times") })
    }),
  )
})
