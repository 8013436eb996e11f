/** Formats with `<|im_start|>role … <|im_end|>`, texts and images, and reasoning and calls in tags. */
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import { type ImagePart, type Message, parts } from "../../Message.ts"
import type { Renderer } from "../../Renderer.ts"
import type { RendererError } from "../../RendererError.ts"
import type { Service } from "../../Tokenizer.ts"
import type * as Encoder from "./Encoder.ts"
import * as Family from "./Family.ts"
import * as Images from "./Images.ts"
import * as Scanner from "./Scanner.ts"
import * as Tagged from "./Tagged.ts"

/** The parts of a message as they are written: texts and images. */
export type Piece = string | ImagePart

export interface Format {
  readonly name: string
  readonly hasExtensionProperty: boolean
  readonly disablesThinking: boolean
  /** The text after the role at the end of a prompt. */
  readonly opening: string
  /** Whether the prompt opens the reasoning. */
  readonly opensThinking: boolean
  readonly arrange?: Family.Family["arrange"]
  /** Changes a message before it is written. */
  readonly adjust?: (message: Message, place: Family.Place) => Family.Result<Message>
  /** Returns the text between the role and the content of an answer. */
  readonly lead: (message: Message, place: Family.Place) => string
  /** Whether the reasoning of an answer is left out. */
  readonly strips: (place: Family.Place) => boolean
  readonly thought: (thinking: string) => string
  /** Writes the calls of an answer, with the separator before them. */
  readonly calls: (message: Message, path: string) => Family.Result<string>
  /** The texts around a tool result, and between consecutive results if they share one turn. */
  readonly result: { readonly open: string; readonly close: string; readonly between?: string | undefined }
  readonly wrapImages: (pieces: ReadonlyArray<Piece>) => ReadonlyArray<Piece>
  readonly countImage: Images.Count | undefined
  readonly style: Tagged.Style
  readonly toolPrefix: Family.Family["toolPrefix"]
}

/** Puts marks around every image. */
export const wrapped =
  (open: string, close: string): Format["wrapImages"] =>
  (pieces) =>
    pieces.flatMap((piece) => (typeof piece === "string" ? [piece] : [open, piece, close]))

const roleOf = (role: string) => (role === "tool" ? "user" : role)

export const make = (format: Format, tokenizer: Service): Effect.Effect<Renderer, RendererError> =>
  Effect.gen(function* () {
    const { name, result } = format
    yield* Family.tokenOf(name, tokenizer, "<|im_start|>")
    const stop = yield* Family.tokenOf(name, tokenizer, "<|im_end|>")
    const close = format.opening === "" ? undefined : yield* Family.tokenOf(name, tokenizer, "</think>")

    const startOf = (role: string, { index }: Family.Place) => `${index > 0 ? "\n" : ""}<|im_start|>${role}\n`

    const piecesOf = (message: Message, place: Family.Place): ReadonlyArray<Piece> => {
      const strips = message.role === "assistant" && format.strips(place)
      return format.wrapImages(
        parts(message).flatMap((part): ReadonlyArray<Piece> => {
          if (part.type === "image") return [part]
          if (part.type === "text") return [part.text]
          return strips ? [] : [format.thought(part.thinking)]
        }),
      )
    }

    /** Joins consecutive texts: they are encoded as one. */
    const segmentsOf = (pieces: ReadonlyArray<Piece>, path: string): Family.Result<ReadonlyArray<Encoder.Segment>> => {
      const merged: Array<Piece> = []
      for (const piece of pieces) {
        const last = merged.at(-1)
        if (typeof piece === "string" && typeof last === "string") merged[merged.length - 1] = last + piece
        else merged.push(piece)
      }
      return Either.all(
        merged.map((piece) =>
          typeof piece === "string"
            ? Either.right({ text: piece })
            : Images.segment(name, piece, format.countImage, path),
        ),
      )
    }

    const render = (given: Message, place: Family.Place): Family.Result<Family.Rendered> =>
      Either.gen(function* () {
        const message = format.adjust === undefined ? given : yield* format.adjust(given, place)
        const isResult = message.role === "tool"
        const joins = (other: Message | undefined) => isResult && result.between !== undefined && other?.role === "tool"
        const start = startOf(roleOf(message.role), place)
        const whole = joins(place.previous)
          ? (result.between ?? "")
          : start + (message.role === "assistant" ? format.lead(message, place) : "")
        const said = piecesOf(message, place)
        const output = yield* segmentsOf(
          [
            ...(isResult ? [result.open, ...said, result.close] : said),
            (message.toolCalls ?? []).length === 0 ? "" : yield* format.calls(message, place.path),
            joins(place.next) ? "" : "<|im_end|>",
          ],
          place.path,
        )
        // The model writes what follows the prompt, even if it is part of the introduction.
        const prompt = start + format.opening
        const isSplit = message.role === "assistant" && place.isLast && whole.startsWith(prompt)
        return isSplit && whole !== prompt
          ? { header: prompt, output: [{ text: whole.slice(prompt.length), fixed: true }, ...output] }
          : { header: whole, output }
      })

    const parse = (text: string) => Tagged.parse(text, format.style)
    const restored = close === undefined ? undefined : Family.restoring(tokenizer, "<think>\n", close)

    return Family.make(
      {
        name,
        hasExtensionProperty: format.hasExtensionProperty,
        stopSequences: [stop],
        stopTokens: new Set([stop]),
        bos: "",
        disablesThinking: format.disablesThinking,
        arrange: format.arrange,
        render,
        suffix: (role, place) =>
          Either.right(startOf(format.opening === "" ? roleOf(role) : role, place) + format.opening),
        parse: Family.parseWith(name, tokenizer, new Map([[stop, "stop_sequence"]]), parse, restored),
        scanner: () =>
          Scanner.blocks({
            frame: format.style.frame,
            opened: format.opensThinking,
            call: Scanner.toolCall,
            gaps: format.style.gaps,
            after: format.style.after,
          }),
        toolPrefix: format.toolPrefix,
      },
      tokenizer,
    )
  })
