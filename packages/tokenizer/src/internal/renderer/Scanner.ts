/** Turns text that arrives in pieces into deltas. Holds back text whose meaning is still open. */
import type { Delta } from "../../Renderer.ts"
import { spaces, strip } from "../template/Text.ts"

export interface Scanner {
  readonly push: (text: string) => ReadonlyArray<Delta>
  readonly finish: () => ReadonlyArray<Delta>
}

/** Returns how many characters at the end of the text may be the start of a mark. */
const openEnd = (text: string, marks: ReadonlyArray<string>): number => {
  let most = 0
  for (const mark of marks) {
    for (let length = Math.min(text.length, mark.length - 1); length > most; length--) {
      if (text.endsWith(mark.slice(0, length))) most = length
    }
  }
  return most
}

/** Returns the first mark in the text and its position. */
const firstOf = (text: string, marks: ReadonlyArray<string>): readonly [place: number, mark: string] | undefined => {
  let found: readonly [number, string] | undefined
  for (const mark of marks) {
    const place = text.indexOf(mark)
    if (place !== -1 && (found === undefined || place < found[0])) found = [place, mark]
  }
  return found
}

/** Repeats a step until it has nothing more to report, and collects the deltas. */
const allOf = (step: () => ReadonlyArray<Delta> | undefined): Array<Delta> => {
  const all: Array<Delta> = []
  for (let deltas = step(); deltas !== undefined; deltas = step()) all.push(...deltas)
  return all
}

const newlinesAtEnd = (text: string): number => {
  let count = 0
  while (text[text.length - 1 - count] === "\n") count++
  return count
}

/** Counts the parts of a message. A part starts with its first character, so empty parts do not count. */
class Parts {
  index = -1
  private kind: string | undefined

  /** Ends the current part, so that the next text starts a new one even if it is of the same kind. */
  close(): void {
    this.kind = undefined
  }

  delta(type: "text" | "thinking" | "tool_call", text: string, name?: string): ReadonlyArray<Delta> {
    if (text === "") return []
    if (this.kind !== type) {
      this.kind = type
      this.index++
    }
    const { index } = this
    switch (type) {
      case "text":
        return [{ type, index, text }]
      case "thinking":
        return [{ type, index, thinking: text }]
      case "tool_call":
        return [name === undefined ? { type, index, text } : { type, index, name, text }]
    }
  }
}

/** Treats everything as text. */
export const plain = (): Scanner => {
  const parts = new Parts()
  return { push: (text) => parts.delta("text", text), finish: () => [] }
}

/** Scans a text between `prefix` and `suffix` that ends at `stop`. */
export const until = (stop: string, prefix: string, suffix: string): Scanner => {
  const parts = new Parts()
  let rest = ""
  let begun = false
  let ended = false
  const begin = () => {
    if (begun || (rest.length < prefix.length && prefix.startsWith(rest))) return begun
    begun = true
    if (rest.startsWith(prefix)) rest = rest.slice(prefix.length)
    return true
  }
  const take = (end: number) => {
    const text = rest.slice(0, end)
    rest = rest.slice(end)
    return parts.delta("text", text)
  }
  const last = () => {
    const text = rest.endsWith(suffix) ? rest.slice(0, -suffix.length) : rest
    rest = ""
    return parts.delta("text", text)
  }
  return {
    push: (text) => {
      if (ended) return []
      rest += text
      if (!begin()) return []
      const place = rest.indexOf(stop)
      if (place !== -1) {
        ended = true
        rest = rest.slice(0, place)
        return last()
      }
      const open = openEnd(rest, [stop])
      return take(rest.length - open - newlinesAtEnd(rest.slice(0, rest.length - open)))
    },
    finish: () => {
      if (ended) return []
      begun = begun || (rest === prefix && ((rest = ""), true))
      return last()
    },
  }
}

/** How answers with reasoning and calls are written. */
export interface Blocks {
  /** The white space at the ends of reasoning that belongs to its frame; newlines after a frame belong to it, too. */
  readonly frame: "none" | "newlines" | "spaces"
  /** Whether the prompt already opens the reasoning. */
  readonly opened: boolean
  readonly call: { readonly open: string; readonly close: string }
  /** Marks around all calls, and whether text after them counts. */
  readonly section?: { readonly open: string; readonly close: string; readonly ends: boolean } | undefined
  /** Separators before a call or section, the longest first, or all white space. */
  readonly gaps: ReadonlyArray<string> | "spaces"
  /** A separator after a call. */
  readonly after: string
}

export const toolCall = { open: "<tool_call>", close: "</tool_call>" }

/** The blocks of Qwen3, with or without frames around reasoning. */
export const qwen3 = (frames: boolean): Blocks => ({
  frame: frames ? "newlines" : "none",
  opened: false,
  call: toolCall,
  gaps: ["\n"],
  after: "",
})

const spacesAtStart = new RegExp(`^[${spaces}]+`)

/** Scans text with reasoning and calls. */
export const blocks = (format: Blocks): Scanner => {
  const parts = new Parts()
  const { after, call, frame, gaps, section } = format
  const first = section?.open ?? call.open
  let state: "text" | "thinking" | "section" | "tool_call" | "done" = format.opened ? "thinking" : "text"
  let rest = ""
  /** White space that is dropped until other text follows. */
  let skips: RegExp | undefined = format.opened && frame !== "none" ? startOf(frame) : undefined
  /** A separator that is dropped if it comes next. */
  let expected = ""
  /** Whether nothing was read yet after a prompt that opens the reasoning, which the model may open again. */
  let fresh = format.opened
  const marksOf = () => {
    switch (state) {
      case "text":
        return ["<think>", first]
      case "thinking":
        return ["</think>"]
      case "section":
        return [call.open, section?.close ?? call.open]
      case "tool_call":
        return [call.close]
      case "done":
        return []
    }
  }
  /** Returns the length of the separator at the end of a text; with `open`, of what may become one. */
  const gapOf = (text: string, open: boolean): number => {
    if (state === "thinking") {
      return frame === "none" ? 0 : text.length - strip(text, "right", frame === "newlines" ? "\n" : undefined).length
    }
    if (state !== "text") return 0
    if (gaps === "spaces") return text.length - strip(text, "right").length
    if (open) return Math.min(newlinesAtEnd(text), gaps[0]?.length ?? 0)
    return gaps.find((gap) => text.endsWith(gap))?.length ?? 0
  }
  const take = (end: number): ReadonlyArray<Delta> => {
    const text = rest.slice(0, end)
    rest = rest.slice(end)
    return state === "section" || state === "done" ? [] : parts.delta(state, text)
  }
  /** Drops what precedes text; returns whether more text is needed to know. */
  const waits = (): boolean => {
    if (fresh) {
      if (rest.length < "<think>".length && "<think>".startsWith(rest)) return true
      fresh = false
      if (rest.startsWith("<think>")) rest = rest.slice("<think>".length)
    }
    if (expected !== "") {
      if (rest.length < expected.length && expected.startsWith(rest)) return true
      if (rest.startsWith(expected)) rest = rest.slice(expected.length)
      expected = ""
    }
    if (skips !== undefined) {
      rest = rest.replace(skips, "")
      if (rest !== "") skips = undefined
    }
    return rest === ""
  }
  /** Takes one step; returns undefined if it needs more text. */
  const step = (): ReadonlyArray<Delta> | undefined => {
    if (waits()) return undefined
    if (state === "done") return take(rest.length)
    const marks = marksOf()
    const found = firstOf(rest, marks)
    if (found === undefined) {
      const open = openEnd(rest, marks)
      const held = gapOf(rest.slice(0, rest.length - open), true)
      return held + open === rest.length ? undefined : take(rest.length - open - held)
    }
    const [place, mark] = found
    const dropped = mark === "<think>" ? 0 : gapOf(rest.slice(0, place), false)
    const deltas = take(place - dropped)
    rest = rest.slice(dropped + mark.length)
    parts.close()
    skips = undefined
    switch (mark) {
      case "<think>":
        state = "thinking"
        skips = startOf(frame)
        break
      case "</think>":
        state = "text"
        skips = frame === "none" ? undefined : startOf("newlines")
        break
      case call.open:
        state = "tool_call"
        break
      case call.close:
        state = section === undefined ? "text" : "section"
        expected = section === undefined ? after : ""
        break
      case section?.open:
        state = "section"
        break
      default:
        state = section?.ends === true ? "done" : "text"
    }
    return deltas
  }
  return {
    push: (text) => {
      rest += text
      return allOf(step)
    },
    finish: () => {
      waits()
      if (state === "thinking") return take(rest.length - gapOf(rest, false))
      return take(rest.length)
    },
  }
}

const startOf = (frame: Blocks["frame"]): RegExp | undefined =>
  frame === "none" ? undefined : frame === "newlines" ? /^\n+/ : spacesAtStart

const ends = ["<|end|>", "<|call|>", "<|return|>"]

/** Scans the channels of Harmony: a sequence of `header <|message|> body <|end|>`. */
export const harmony = (
  kindOf: (header: string) => { readonly type: "text" | "thinking" | "tool_call"; readonly name?: string } | undefined,
): Scanner => {
  const parts = new Parts()
  let rest = ""
  let kind: ReturnType<typeof kindOf>
  let inBody = false
  /** Whether the body has any text; one with only white space is dropped. */
  let said = false
  const take = (end: number): ReadonlyArray<Delta> => {
    const text = rest.slice(0, end)
    if (!said && text.trim() === "") return []
    said = true
    rest = rest.slice(end)
    return kind === undefined ? [] : parts.delta(kind.type, text, kind.name)
  }
  const step = (): ReadonlyArray<Delta> | undefined => {
    if (!inBody) {
      const place = rest.indexOf("<|message|>")
      if (place === -1) return undefined
      kind = kindOf(rest.slice(0, place))
      rest = rest.slice(place + "<|message|>".length)
      inBody = true
      said = false
      parts.close()
      return []
    }
    const found = firstOf(rest, ends)
    if (found === undefined) {
      const before = rest
      const deltas = take(rest.length - openEnd(rest, ends))
      return rest === before ? undefined : deltas
    }
    const [place, mark] = found
    const before = rest
    const deltas = take(place)
    rest = before.slice(place + mark.length)
    inBody = false
    return deltas
  }
  return {
    push: (text) => {
      rest += text
      return allOf(step)
    },
    finish: () => (inBody ? take(rest.length) : []),
  }
}
