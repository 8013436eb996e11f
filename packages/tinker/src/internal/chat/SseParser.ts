/** Parses an event stream incrementally. Lines are split at byte level, so that multi-byte characters are never cut. */
import * as Duration from "effect/Duration"
import * as Option from "effect/Option"
import type { Event } from "../../http/Sse.ts"

const lineFeed = 0x0a
const carriageReturn = 0x0d

/** The largest line buffer that is kept for reuse. */
const spareBytes = 64 * 1024

export class SseParser {
  private readonly limit: number
  // Invalid characters are replaced; a byte order mark inside the text is kept.
  private readonly decoder = new TextDecoder("utf-8", { ignoreBOM: true })
  private events: Array<Event> = []
  private isFirstLine = true
  /** A line feed right after a carriage return belongs to it, even if it arrives with the next bytes. */
  private afterReturn = false

  // The start of an incomplete line.
  private pending = new Uint8Array(256)
  private pendingSize = 0

  // The current event.
  private name = ""
  private lines: Array<string> = []
  private size = 0
  private id = ""
  private retry: Option.Option<Duration.Duration> = Option.none()

  constructor(limit: number) {
    this.limit = limit
  }

  /** Parses bytes; returns false if the current event exceeds the limit. */
  feed(bytes: Uint8Array): boolean {
    let start = 0
    for (let at = 0; at < bytes.length; at++) {
      const byte = bytes[at]
      if (byte !== lineFeed && byte !== carriageReturn) {
        this.afterReturn = false
        continue
      }
      if (byte === lineFeed && this.afterReturn) {
        this.afterReturn = false
      } else {
        if (!this.fits(at - start)) return false
        this.endLine(bytes.subarray(start, at))
        this.afterReturn = byte === carriageReturn
      }
      start = at + 1
    }
    if (!this.fits(bytes.length - start)) return false
    this.keep(bytes.subarray(start))
    return true
  }

  /** Returns and removes the complete events. */
  take(): ReadonlyArray<Event> {
    const { events } = this
    if (events.length > 0) this.events = []
    return events
  }

  private fits(more: number): boolean {
    return this.size + this.pendingSize + more <= this.limit
  }

  private keep(rest: Uint8Array): void {
    const size = this.pendingSize + rest.length
    if (size > this.pending.length) {
      // The buffer doubles, so that a line arriving byte by byte is not copied each time.
      const room = new Uint8Array(Math.max(size, 2 * this.pending.length))
      room.set(this.pending.subarray(0, this.pendingSize))
      this.pending = room
    }
    this.pending.set(rest, this.pendingSize)
    this.pendingSize = size
  }

  private endLine(rest: Uint8Array): void {
    if (this.pendingSize === 0) return this.line(rest)
    this.keep(rest)
    const line = this.pending.subarray(0, this.pendingSize)
    this.pendingSize = 0
    this.line(line)
    if (this.pending.length > spareBytes) this.pending = new Uint8Array(256)
  }

  private line(bytes: Uint8Array): void {
    const marked = this.isFirstLine && bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf
    this.isFirstLine = false
    const text = this.decoder.decode(marked ? bytes.subarray(3) : bytes)
    if (text === "") return this.dispatch()
    const colon = text.indexOf(":")
    // A leading colon marks a comment.
    if (colon === 0) return
    const name = colon < 0 ? text : text.slice(0, colon)
    const value = colon < 0 ? "" : text.slice(text[colon + 1] === " " ? colon + 2 : colon + 1)
    this.field(name, value, bytes.length)
  }

  private field(name: string, value: string, size: number): void {
    switch (name) {
      case "data":
        this.lines.push(value)
        this.size += size
        return
      case "event":
        this.name = value
        this.size += size
        return
      case "id":
        if (!value.includes("\0")) this.id = value
        return
      case "retry":
        if (/^\d{1,15}$/.test(value)) this.retry = Option.some(Duration.millis(Number(value)))
        return
    }
  }

  private dispatch(): void {
    const { id, lines, name, retry } = this
    this.name = ""
    this.size = 0
    if (lines.length === 0) return
    this.lines = []
    this.events.push({ event: name === "" ? "message" : name, data: lines.join("\n"), id, retry })
  }
}
