/** Converts wire pieces of chat responses to parts, and parts to a complete answer. */
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import type * as Chat from "../../protocol/schemas/Chat.ts"
import type { Answer, Choice, Part, ToolCall, Usage } from "../../ChatClient.ts"
import type * as Wire from "../codec/Wire.ts"

type Reply = typeof Chat.ReplyPiece.Type
type WireChoice = (typeof Chat.Reply.Type)["choices"][number]
type WireCall = NonNullable<NonNullable<WireChoice["delta"]>["tool_calls"]>[number]
type Said = string | null | undefined

/** Converts pieces to parts as they arrive. Stores only the tool calls that are not complete yet. */
export class Assembler {
  private isStarted = false
  private readonly calls = new Map<number, Map<number, ToolCall>>()
  private readonly finished = new Set<number>()

  /** Checks whether this many choices have a finish reason. */
  hasFinished(choices: number): boolean {
    return this.finished.size >= choices
  }

  read(reply: Reply): Array<Part> {
    const parts: Array<Part> = []
    if (!this.isStarted) {
      this.isStarted = true
      parts.push({ _tag: "Started", id: reply.id ?? "", model: reply.model ?? "" })
    }
    for (const choice of reply.choices ?? []) this.readChoice(choice, parts)
    if (reply.usage) parts.push({ _tag: "Usage", usage: reply.usage })
    return parts
  }

  /** Returns the tool calls of choices without a finish reason. */
  rest(): Array<Part> {
    const parts: Array<Part> = []
    for (const choice of this.calls.keys()) this.endCalls(choice, parts)
    return parts
  }

  private readChoice(wire: WireChoice, parts: Array<Part>): void {
    const choice = wire.index ?? 0
    const piece = wire.delta ?? wire.message
    const say = (_tag: "Text" | "Reasoning" | "Refusal", text: Said) => {
      if (text) parts.push({ _tag, choice, text })
    }
    say("Reasoning", piece?.reasoning_content || piece?.reasoning)
    say("Text", piece?.content)
    say("Refusal", piece?.refusal)
    piece?.tool_calls?.forEach((call, position) => parts.push(this.readCall(choice, call, position)))
    say("Text", wire.text)
    if (wire.logprobs) parts.push({ _tag: "Logprobs", choice, value: wire.logprobs })
    if (wire.finish_reason) {
      this.finished.add(choice)
      this.endCalls(choice, parts)
      parts.push({ _tag: "Finished", choice, reason: wire.finish_reason })
    }
  }

  private readCall(choice: number, { function: told, id, index: at }: WireCall, position: number): Part {
    const calls = this.calls.get(choice) ?? new Map<number, ToolCall>()
    this.calls.set(choice, calls)
    const index = at ?? placeOf(calls, id ?? "", position)
    const known = calls.get(index) ?? { index, id: "", name: "", arguments: "" }
    const piece = told?.arguments ?? ""
    const next: ToolCall = {
      index,
      // Some servers repeat these fields in every piece.
      id: known.id || (id ?? ""),
      name: known.name || (told?.name ?? ""),
      arguments: known.arguments + piece,
    }
    calls.set(index, next)
    return { _tag: "ToolCallDelta", choice, index, id: next.id, name: next.name, arguments: piece }
  }

  private endCalls(choice: number, parts: Array<Part>): void {
    const calls = [...(this.calls.get(choice)?.values() ?? [])].toSorted((a, b) => a.index - b.index)
    this.calls.delete(choice)
    for (const call of calls) parts.push({ _tag: "ToolCall", choice, call })
  }
}

/** Returns the index of a call without one: a new id starts a new call, and no id continues the last one. */
const placeOf = (calls: ReadonlyMap<number, ToolCall>, id: string, position: number): number => {
  if (id === "") return Math.max(position, calls.size - 1)
  const known = [...calls.values()].find((call) => call.id === id)
  return known?.index ?? Math.max(position, calls.size)
}

interface Draft {
  text: string
  reasoning: string
  refusal: string
  readonly toolCalls: Array<ToolCall>
  logprobs: Option.Option<Wire.Json>
  finishReason: Choice["finishReason"]
}

/** Assembles parts into an answer. */
export class Folder {
  private id = ""
  private model = ""
  private usage: Option.Option<Usage> = Option.none()
  private readonly drafts = new Map<number, Draft>()

  add(part: Part): void {
    switch (part._tag) {
      case "Started":
        this.id = part.id
        this.model = part.model
        return
      case "Usage":
        this.usage = Option.some(part.usage)
        return
      case "ToolCallDelta":
        return
    }
    const draft = this.draft(part.choice)
    switch (part._tag) {
      case "Text":
        draft.text += part.text
        return
      case "Reasoning":
        draft.reasoning += part.text
        return
      case "Refusal":
        draft.refusal += part.text
        return
      case "ToolCall":
        draft.toolCalls.push(part.call)
        return
      case "Logprobs":
        draft.logprobs = Option.some(
          Option.match(draft.logprobs, {
            onNone: () => part.value,
            onSome: (before) => append(before, part.value),
          }),
        )
        return
      case "Finished":
        draft.finishReason = Option.some(part.reason)
    }
  }

  get answer(): Answer {
    const choices = [...this.drafts]
      .toSorted(([a], [b]) => a - b)
      .map(([index, draft]): Choice => ({ index, ...draft, toolCalls: [...draft.toolCalls] }))
    return { id: this.id, model: this.model, choices, usage: this.usage }
  }

  private draft(choice: number): Draft {
    const known = this.drafts.get(choice)
    if (known !== undefined) return known
    const draft: Draft = {
      text: "",
      reasoning: "",
      refusal: "",
      toolCalls: [],
      logprobs: Option.none(),
      finishReason: Option.none(),
    }
    this.drafts.set(choice, draft)
    return draft
  }
}

/** Merges log probabilities, which arrive as objects of lists to be concatenated. */
const append = (before: Wire.Json, after: Wire.Json): Wire.Json => {
  if (Array.isArray(before) && Array.isArray(after)) return [...before, ...after]
  if (!isObject(before) || !isObject(after)) return after ?? before
  const both: Record<string, Wire.Json> = {}
  for (const [key, value = null] of [...Object.entries(before), ...Object.entries(after)]) {
    const known = both[key]
    both[key] = known === undefined ? value : append(known, value)
  }
  return both
}

const isObject = (value: Wire.Json): value is Wire.JsonObject => Predicate.isRecord(value)
