/** Turns text that arrives in pieces into deltas. Holds back text whose meaning is still open. */
import type { Delta } from "../../Renderer.ts"

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

const opening = ["<think>", "<tool_call>"]

/**
 * Scans text with `<think>` and `<tool_call>` blocks. With `frames`, newlines around reasoning belong neither to the
 * reasoning nor to the text. A newline before a tool call never belongs to the text.
 */
export const tagged = (frames: boolean): Scanner => {
  const parts = new Parts()
  let state: "text" | "thinking" | "tool_call" = "text"
  let rest = ""
  /** Whether newlines are dropped until other text follows. */
  let skips = false
  const skip = () => {
    if (!skips) return
    rest = rest.replace(/^\n+/, "")
    skips = rest === ""
  }
  const take = (end: number) => {
    const text = rest.slice(0, end)
    rest = rest.slice(end)
    return parts.delta(state, text)
  }
  /** Takes one step; returns undefined if it needs more text. */
  const step = (): ReadonlyArray<Delta> | undefined => {
    skip()
    const marks = state === "text" ? opening : state === "thinking" ? ["</think>"] : ["</tool_call>"]
    const found = firstOf(rest, marks)
    if (found === undefined) {
      const open = openEnd(rest, marks)
      const certain = rest.slice(0, rest.length - open)
      const newlines = newlinesAtEnd(certain)
      const held = state === "text" ? Math.min(newlines, 1) : state === "thinking" && frames ? newlines : 0
      return held + open === rest.length ? undefined : take(rest.length - open - held)
    }
    const [place, mark] = found
    const newlines = newlinesAtEnd(rest.slice(0, place))
    const dropped = mark === "<tool_call>" ? Math.min(newlines, 1) : state === "thinking" && frames ? newlines : 0
    const deltas = take(place - dropped)
    rest = rest.slice(dropped + mark.length)
    parts.close()
    // Skips newlines at the start of reasoning and after its end.
    skips = frames && (mark === "<think>" || mark === "</think>")
    state = mark === "<think>" ? "thinking" : mark === "<tool_call>" ? "tool_call" : "text"
    return deltas
  }
  return {
    push: (text) => {
      rest += text
      return allOf(step)
    },
    finish: () => {
      skip()
      if (state === "thinking" && frames) rest = rest.replace(/\n+$/, "")
      return take(rest.length)
    },
  }
}

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
