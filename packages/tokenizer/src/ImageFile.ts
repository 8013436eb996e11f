/**
 * Reads the format and the size of an image from the first bytes of its file, without decoding it. Renderers need the
 * size to know how many tokens an image takes.
 *
 * @since 0.1.0
 */
import * as Either from "effect/Either"
import { InvalidInput } from "effect-tinker/TinkerError"
import type { ImagePart } from "./Message.ts"

/**
 * The format and the size of an image in pixels.
 *
 * @since 0.1.0
 * @category models
 */
export interface Info {
  readonly format: "png" | "jpeg" | "gif" | "webp"
  readonly width: number
  readonly height: number
}

const ascii = (bytes: Uint8Array, from: number, to: number) => String.fromCharCode(...bytes.subarray(from, to))

const viewOf = (bytes: Uint8Array) => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)

const png = (bytes: Uint8Array): Info | undefined =>
  bytes.length >= 24 && ascii(bytes, 12, 16) === "IHDR"
    ? { format: "png", width: viewOf(bytes).getUint32(16), height: viewOf(bytes).getUint32(20) }
    : undefined

const gif = (bytes: Uint8Array): Info | undefined =>
  bytes.length >= 10
    ? { format: "gif", width: viewOf(bytes).getUint16(6, true), height: viewOf(bytes).getUint16(8, true) }
    : undefined

/** Finds the marker that starts a frame; the markers before it hold metadata, tables and thumbnails. */
const jpeg = (bytes: Uint8Array): Info | undefined => {
  const view = viewOf(bytes)
  let at = 2
  while (at + 9 <= bytes.length) {
    if (bytes[at] !== 0xff) return undefined
    const marker = bytes[at + 1] ?? 0
    if (marker === 0xff) {
      at++
      continue
    }
    const isFrame = marker >= 0xc0 && marker <= 0xcf && marker !== 0xc4 && marker !== 0xc8 && marker !== 0xcc
    if (isFrame) return { format: "jpeg", width: view.getUint16(at + 7), height: view.getUint16(at + 5) }
    const isAlone = marker === 0x01 || (marker >= 0xd0 && marker <= 0xd8)
    at += isAlone ? 2 : 2 + view.getUint16(at + 2)
  }
  return undefined
}

const webp = (bytes: Uint8Array): Info | undefined => {
  if (bytes.length < 30) return undefined
  const view = viewOf(bytes)
  const uint24 = (at: number) => view.getUint16(at, true) + ((bytes[at + 2] ?? 0) << 16)
  switch (ascii(bytes, 12, 16)) {
    case "VP8 ":
      return { format: "webp", width: view.getUint16(26, true) & 0x3fff, height: view.getUint16(28, true) & 0x3fff }
    case "VP8L": {
      const bits = view.getUint32(21, true)
      return { format: "webp", width: (bits & 0x3fff) + 1, height: ((bits >>> 14) & 0x3fff) + 1 }
    }
    case "VP8X":
      return { format: "webp", width: uint24(24) + 1, height: uint24(27) + 1 }
    default:
      return undefined
  }
}

const known = (bytes: Uint8Array): Info | undefined => {
  if (bytes[0] === 0x89 && ascii(bytes, 1, 4) === "PNG") return png(bytes)
  if (bytes[0] === 0xff && bytes[1] === 0xd8) return jpeg(bytes)
  if (/^GIF8[79]a$/.test(ascii(bytes, 0, 6))) return gif(bytes)
  return ascii(bytes, 0, 4) === "RIFF" && ascii(bytes, 8, 12) === "WEBP" ? webp(bytes) : undefined
}

/**
 * Reads the format and the size of a PNG, JPEG, GIF or WebP file. An orientation in the metadata is ignored, as the
 * reference does.
 *
 * @example
 * ```ts
 * import { ImageFile } from "@effect-tinker/tokenizer"
 * import { Either } from "effect"
 *
 * const dot = Buffer.from("R0lGODlhAQABAIAAAP///wAAACwAAAAAAQABAAACAkQBADs=", "base64")
 * console.log(Either.getOrThrow(ImageFile.info(dot))) // → { format: 'gif', width: 1, height: 1 }
 * ```
 *
 * @since 0.1.0
 * @category getters
 */
export const info = (bytes: Uint8Array): Either.Either<Info, InvalidInput> => {
  const found = known(bytes)
  return found !== undefined && found.width > 0 && found.height > 0
    ? Either.right(found)
    : Either.left(
        new InvalidInput({ path: "image", problem: "expected a PNG, JPEG, GIF or WebP file with a readable size" }),
      )
}

/**
 * Creates the part of a message for a PNG or JPEG file. The service takes no other formats.
 *
 * @since 0.1.0
 * @category constructors
 */
export const part = (bytes: Uint8Array): Either.Either<ImagePart, InvalidInput> =>
  Either.flatMap(info(bytes), ({ format }) =>
    format === "png" || format === "jpeg"
      ? Either.right<ImagePart>({ type: "image", image: { type: "image", data: bytes, format } })
      : Either.left(
          new InvalidInput({
            path: "image",
            problem: `the service takes PNG and JPEG, got ${format}; convert the file`,
          }),
        ),
  )
