/** Counts the tokens of images, as the processors of the models do after resizing. */
import * as Either from "effect/Either"
import * as ImageFile from "../../ImageFile.ts"
import type { ImagePart } from "../../Message.ts"
import type * as Encoder from "./Encoder.ts"
import * as Family from "./Family.ts"

interface Size {
  readonly width: number
  readonly height: number
}

/** Returns the number of tokens, or the reason why the model does not take such an image. */
export type Count = (size: Size) => Either.Either<number, string>

/** Rounds halves to even numbers, as Python does. */
const round = (value: number): number => {
  const down = Math.floor(value)
  const rest = value - down
  return rest < 0.5 || (rest === 0.5 && down % 2 === 0) ? down : down + 1
}

/**
 * Qwen3-VL and later: sides become multiples of 32 pixels, the area is kept within bounds, and every square of 32 pixels
 * is one token.
 */
export const qwen: Count = ({ height, width }) => {
  const factor = 32
  const [least, most] = [65_536, 16_777_216]
  const ratio = Math.max(height, width) / Math.min(height, width)
  if (ratio > 200) return Either.left(`one side must not be more than 200 times the other, got ${ratio}`)
  const rounded = [height, width].map((side) => round(side / factor)) as [number, number]
  const area = rounded[0] * rounded[1] * factor * factor
  if (area > most) {
    const beta = Math.sqrt((height * width) / most)
    const side = (length: number) => Math.max(1, Math.floor(length / beta / factor))
    return Either.right(side(height) * side(width))
  }
  if (area < least) {
    const beta = Math.sqrt(least / (height * width))
    const side = (length: number) => Math.ceil((length * beta) / factor)
    return Either.right(side(height) * side(width))
  }
  return Either.right(rounded[0] * rounded[1])
}

/** Kimi K2.5 and K2.6: large images shrink, sides are padded to multiples of 28 pixels, every such square is one token. */
export const kimi: Count = ({ height, width }) => {
  const [patch, side, most] = [14, 512, 16_384]
  const patches = Math.max(1, Math.floor(width / patch)) * Math.max(1, Math.floor(height / patch))
  const scale = Math.min(1, Math.sqrt(most / patches), (side * patch) / width, (side * patch) / height)
  const tokens = (length: number) =>
    Math.ceil(Math.min(Math.max(1, Math.floor(length * scale)), side * patch) / (2 * patch))
  return Either.right(tokens(height) * tokens(width))
}

/** Inkling: every square of 40 pixels is one token, with one more column if the width is a multiple of 40. */
export const tml: Count = ({ height, width }) => Either.right((Math.floor(width / 40) + 1) * Math.ceil(height / 40))

/** Returns the segment of an image: with the given number of tokens, or with one counted from its size. */
export const segment = (
  renderer: string,
  { image }: ImagePart,
  count: Count | undefined,
  path: string,
): Family.Result<Encoder.Segment> => {
  if (image.expectedTokens !== undefined) return Either.right({ image, length: image.expectedTokens })
  if (count === undefined) {
    return Family.reject(
      renderer,
      "Unsupported",
      `${path}.content: the number of tokens of an image is unknown for this model; set expectedTokens`,
    )
  }
  if (image.type !== "image") {
    return Family.invalid(
      `${path}.content`,
      "the size of an image that the server fetches is unknown; set expectedTokens",
    )
  }
  return Either.flatMap(ImageFile.info(image.data), (info) => {
    if (info.format !== image.format) {
      return Family.invalid(`${path}.content`, `the image has the format ${info.format}, not ${image.format}`)
    }
    return Either.match(count(info), {
      onLeft: (problem) => Family.invalid(`${path}.content`, problem),
      onRight: (length) => Either.right({ image, length }),
    })
  })
}
