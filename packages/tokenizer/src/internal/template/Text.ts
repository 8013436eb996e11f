/** Functions of Python's `str` that differ from JavaScript's `string`. */
import { raise, unsupported } from "./Failure.ts"
import { countPoints, isFlat } from "./Value.ts"

/** Python's white space, as the inside of a character class; JavaScript's `\s` differs. */
export const spaces = "\\t-\\r\\x1c- \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"

const space = new RegExp(`[${spaces}]`)
const allSpaces = new RegExp(`[${spaces}]+`)
const isSpace = (letter: string): boolean => space.test(letter)

export type Side = "both" | "left" | "right"

/** Strips the characters in `chars` (default: white space) from the ends. */
export const strip = (text: string, side: Side, chars?: string): string => {
  const set = chars === undefined ? undefined : new Set(chars)
  const isStripped = set === undefined ? isSpace : (letter: string) => set.has(letter)
  let start = 0
  let end = text.length
  if (side !== "right") {
    while (start < end) {
      const letter = String.fromCodePoint(text.codePointAt(start) ?? 0)
      if (!isStripped(letter)) break
      start += letter.length
    }
  }
  if (side !== "left") {
    while (end > start) {
      const low = text.charCodeAt(end - 1)
      const isPair = low >= 0xdc00 && low <= 0xdfff && end - start > 1 && (text.charCodeAt(end - 2) & 0xfc00) === 0xd800
      const letter = text.slice(isPair ? end - 2 : end - 1, end)
      if (!isStripped(letter)) break
      end -= letter.length
    }
  }
  return text.slice(start, end)
}

/** Splits at white space. */
const splitSpaces = (text: string, most: number): Array<string> => {
  const words: Array<string> = []
  let rest = strip(text, "left")
  while (rest !== "") {
    const at = words.length < most ? rest.search(space) : -1
    if (at === -1) {
      words.push(rest)
      break
    }
    words.push(rest.slice(0, at))
    rest = strip(rest.slice(at), "left")
  }
  return words
}

const reversed = (text: string): string => Array.from(text).toReversed().join("")

const splitAt = (text: string, separator: string, most: number): Array<string> => {
  const parts = text.split(separator)
  return parts.length <= most + 1 ? parts : [...parts.slice(0, most), parts.slice(most).join(separator)]
}

const rsplitAt = (text: string, separator: string, most: number): Array<string> => {
  const parts: Array<string> = []
  let end = text.length
  // Searches from the right because occurrences may overlap.
  while (parts.length < most) {
    const at = end < separator.length ? -1 : text.lastIndexOf(separator, end - separator.length)
    if (at === -1) break
    parts.unshift(text.slice(at + separator.length, end))
    end = at
  }
  return [text.slice(0, end), ...parts]
}

/** Implements `split` and `rsplit`; a negative limit means no limit. */
export const split = (
  text: string,
  separator: string | undefined,
  limit: number,
  from: "left" | "right",
): Array<string> => {
  const most = limit < 0 ? Number.POSITIVE_INFINITY : limit
  if (separator === undefined) {
    if (most === Number.POSITIVE_INFINITY) return text.split(allSpaces).filter((word) => word !== "")
    return from === "left"
      ? splitSpaces(text, most)
      : splitSpaces(reversed(text), most)
          .map((word) => reversed(word))
          .toReversed()
  }
  if (separator === "") return raise("ValueError", "empty separator")
  return from === "left" ? splitAt(text, separator, most) : rsplitAt(text, separator, most)
}

export const splitLines = (text: string, keepEnds: boolean): Array<string> => {
  // oxlint-disable-next-line no-control-regex
  const lines = text.match(/[^\n\r\v\f\x1c-\x1e\x85\u2028\u2029]*(?:\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]|$)/g) ?? []
  if (lines.at(-1) === "") lines.pop()
  // oxlint-disable-next-line no-control-regex
  return keepEnds ? lines : lines.map((line) => line.replace(/(?:\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029])$/, ""))
}

const countParts = (text: string, part: string): number => {
  let count = 0
  for (let at = text.indexOf(part); at !== -1; at = text.indexOf(part, at + part.length)) count++
  return count
}

/** Counts occurrences without overlap; the empty string occurs before and after each character. */
export const occurrences = (text: string, part: string): number =>
  part === "" ? countPoints(text) + 1 : countParts(text, part)

export const replace = (text: string, old: string, fresh: string, limit: number): string => {
  if (old !== "") {
    return limit < 0 ? text.split(old).join(fresh) : splitAt(text, old, limit).join(fresh)
  }
  const letters = Array.from(text)
  const most = limit < 0 ? letters.length + 1 : limit
  let result = ""
  for (let index = 0; index <= letters.length; index++) result += (index < most ? fresh : "") + (letters[index] ?? "")
  return result
}

/** Converts an index in code points to an index in UTF-16 units. */
export const unitIndex = (text: string, point: number): number => {
  if (isFlat(text)) return point
  let index = 0
  for (let left = point; left > 0 && index < text.length; left--)
    index += (text.codePointAt(index) ?? 0) > 0xffff ? 2 : 1
  return index
}

const digraphs = new Map(
  ["Ǆǅǆ", "Ǉǈǉ", "Ǌǋǌ", "Ǳǲǳ"].flatMap((group) => {
    const [upper = "", title = "", lower = ""] = group
    return [upper, title, lower].map((letter) => [letter, title] as const)
  }),
)

const titled = (letter: string): string => {
  const digraph = digraphs.get(letter)
  if (digraph !== undefined) return digraph
  if (/\p{Script=Georgian}/u.test(letter)) return letter
  const upper = letter.toUpperCase()
  const [first = "", ...rest] = upper
  if (rest.length === 0) return upper
  // ß becomes Ss and ﬁ becomes Fi; Greek letters with iota subscript have special title-case forms.
  return /\p{Script=Greek}/u.test(letter)
    ? unsupported(`the title case of ${letter}`)
    : first + rest.join("").toLowerCase()
}

/** Capitalizes the first letter. Lowercases the text as a whole, because a sigma at the end of a word differs. */
export const capitalize = (text: string): string => {
  if (text === "") return ""
  const first = String.fromCodePoint(text.codePointAt(0) ?? 0)
  return titled(first) + text.toLowerCase().slice(first.toLowerCase().length)
}

export const title = (text: string): string =>
  text.replace(/[\p{Lowercase}\p{Uppercase}\p{Lt}]+/gu, (word) => capitalize(word))
