/** Reads a tar archive incrementally: an entry, its data, the next entry. Supports ustar, pax and GNU long names. */
import type * as Chunk from "effect/Chunk"
import * as Either from "effect/Either"
import type { Reader, Step } from "../util/Transduce.ts"

export type Kind = "File" | "Directory" | "Link" | "Device" | "Other"

export type Item =
  | { readonly _tag: "Entry"; readonly name: string; readonly kind: Kind; readonly size: number }
  /** A piece of the data of the last entry, in order. */
  | { readonly _tag: "Data"; readonly bytes: Uint8Array }

const blockSize = 512

/** The maximum size of the names and attributes of one entry, which are read into memory. */
const maxMetadata = 1024 * 1024

/** The maximum total size of all names and attributes, including their headers. */
const maxMetadataInAll = 64 * maxMetadata

/** Archives are padded to whole tape records. More than this after the end is not padding. */
const maxTrailing = 16 * 1024 * 1024

const kinds: Readonly<Record<string, Kind>> = {
  "0": "File",
  "\0": "File",
  "7": "File",
  "5": "Directory",
  "1": "Link",
  "2": "Link",
  "3": "Device",
  "4": "Device",
  "6": "Device",
}

/** Entries that describe the next one: GNU long names and pax attributes. */
type Metadata = "L" | "K" | "x" | "g"

const isMetadata = (type: string): type is Metadata => type === "L" || type === "K" || type === "x" || type === "g"

class Failure {
  readonly detail: string
  constructor(detail: string) {
    this.detail = detail
  }
}

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

const text = (bytes: Uint8Array): string | Failure => {
  const end = bytes.indexOf(0)
  try {
    return decoder.decode(end < 0 ? bytes : bytes.subarray(0, end))
  } catch {
    return new Failure("the name is not UTF-8")
  }
}

/** Parses octal digits, or a binary number marked by its first bit. */
const number = (bytes: Uint8Array): number | Failure => {
  const [first = 0] = bytes
  if (first === 0x80) {
    const value = bytes.subarray(1).reduce((sum, byte) => sum * 256 + byte, 0)
    return Number.isSafeInteger(value) ? value : new Failure("the size is invalid")
  }
  const digits = /^[ \0]*([0-7]*)[ \0]*$/.exec(String.fromCharCode(...bytes))?.[1]
  return digits === undefined ? new Failure("invalid number in the header") : Number.parseInt(digits || "0", 8)
}

const hasChecksum = (block: Uint8Array): boolean => {
  let [unsigned, signed] = [0, 0]
  block.forEach((byte, at) => {
    const counted = at >= 148 && at < 156 ? 0x20 : byte
    unsigned += counted
    // Some old programs use signed sums.
    signed += counted > 127 ? counted - 256 : counted
  })
  const told = number(block.subarray(148, 156))
  return told === unsigned || told === signed
}

/** The relevant pax attributes. */
interface Attributes {
  path?: Uint8Array
  size?: Uint8Array
  isSparse?: boolean
}

/** Parses records like `12 path=a/b\n`: the decimal length includes itself and the line feed. */
const attributes = (bytes: Uint8Array): Attributes | Failure => {
  const found: Attributes = {}
  let at = 0
  while (at < bytes.length) {
    const space = bytes.indexOf(0x20, at)
    const digits = String.fromCharCode(...bytes.subarray(at, space < 0 ? at : Math.min(space, at + 10)))
    const end = at + Number(digits)
    const equals = bytes.indexOf(0x3d, space)
    const isRecord = /^[1-9]\d*$/.test(digits) && end <= bytes.length && bytes[end - 1] === 0x0a
    if (!isRecord || equals < 0 || equals >= end) return new Failure("invalid attributes")
    const key = text(bytes.subarray(space + 1, equals))
    if (key instanceof Failure) return key
    // Copied, so that the rest can be freed.
    if (key === "path" || key === "size") found[key] = bytes.slice(equals + 1, end - 1)
    if (key.startsWith("GNU.sparse")) found.isSparse = true
    at = end
  }
  return found
}

type State =
  | { readonly _tag: "Header" }
  | { readonly _tag: "Body"; left: number; padding: number; readonly metadata: Metadata | undefined }
  | { readonly _tag: "Padding"; left: number }
  | { readonly _tag: "End"; left: number }

export class TarReader<E> implements Reader<Uint8Array, Item, E> {
  private readonly corrupt: (entry: string, detail: string) => E
  private state: State = { _tag: "Header" }
  private readonly block = new Uint8Array(blockSize)
  private filled = 0
  private metadata = new Uint8Array(0)
  private metadataSize = 0
  private items: Array<Item> = []
  // The description of the next entry.
  private longName: string | undefined = undefined
  private pax: Attributes = {}
  private globalPax: Attributes = {}
  private metadataInAll = 0
  private entry = ""

  /** `corrupt` creates the error for an invalid archive. */
  constructor(corrupt: (entry: string, detail: string) => E) {
    this.corrupt = corrupt
  }

  feed(chunk: Chunk.Chunk<Uint8Array>): Step<Item, E> {
    this.items = []
    for (const bytes of chunk) {
      const failure = this.read(bytes)
      if (failure !== undefined) return this.step(failure)
    }
    return { values: this.items }
  }

  end(): Step<Item, E> {
    this.items = []
    return this.state._tag === "End" ? { values: [] } : this.step(new Failure("unexpected end of the archive"))
  }

  private step({ detail }: Failure): Step<Item, E> {
    return { values: this.items, ended: Either.left(this.corrupt(this.entry, detail)) }
  }

  private read(bytes: Uint8Array): Failure | undefined {
    let at = 0
    while (at < bytes.length) {
      const { state } = this
      const left = state._tag === "Header" ? blockSize - this.filled : state.left
      const piece = bytes.subarray(at, at + left)
      at += piece.length
      switch (state._tag) {
        case "Header": {
          this.block.set(piece, this.filled)
          this.filled += piece.length
          if (this.filled < blockSize) break
          this.filled = 0
          const failure = this.header(this.block)
          if (failure !== undefined) return failure
          break
        }
        case "Body": {
          if (state.metadata === undefined) this.items.push({ _tag: "Data", bytes: piece })
          else {
            this.metadata.set(piece, this.metadataSize)
            this.metadataSize += piece.length
          }
          state.left -= piece.length
          if (state.left > 0) break
          const failure = state.metadata === undefined ? undefined : this.learn(state.metadata)
          if (failure !== undefined) return failure
          this.skip(state.padding)
          break
        }
        case "Padding":
          state.left -= piece.length
          if (state.left === 0) this.state = { _tag: "Header" }
          break
        case "End":
          // Zero blocks in the middle of a damaged archive look like its end.
          if (piece.some((byte) => byte !== 0)) return new Failure("unexpected data after the end of the archive")
          state.left -= piece.length
          if (state.left === 0) return new Failure("too much padding after the end of the archive")
      }
    }
    return undefined
  }

  private skip(padding: number): void {
    this.state = padding === 0 ? { _tag: "Header" } : { _tag: "Padding", left: padding }
  }

  private header(block: Uint8Array): Failure | undefined {
    if (block.every((byte) => byte === 0)) {
      this.state = { _tag: "End", left: maxTrailing }
      return undefined
    }
    if (!hasChecksum(block)) return new Failure("wrong header checksum: not a tar archive, or damaged")
    const type = String.fromCharCode(block[156] ?? 0)
    const size = isMetadata(type) ? number(block.subarray(124, 136)) : this.sizeOf(block)
    if (size instanceof Failure) return size
    if (isMetadata(type)) {
      if (size > maxMetadata) return new Failure("the name or attributes are too long")
      this.metadataInAll += blockSize + size
      if (this.metadataInAll > maxMetadataInAll) return new Failure("the names and attributes are too large")
      this.metadata = new Uint8Array(size)
      this.metadataSize = 0
      return this.body(size, type)
    }
    const name = this.nameOf(block)
    if (name instanceof Failure) return name
    this.entry = name
    const told = this.pax.isSparse || this.globalPax.isSparse ? "Other" : (kinds[type] ?? "Other")
    // Directories of formats that predate the directory type end with a slash.
    const kind = told === "File" && name.endsWith("/") ? "Directory" : told
    this.longName = undefined
    this.pax = {}
    this.items.push({ _tag: "Entry", name, kind, size })
    return this.body(size, undefined)
  }

  private body(size: number, metadata: Metadata | undefined): Failure | undefined {
    const padding = (blockSize - (size % blockSize)) % blockSize
    if (size > 0) this.state = { _tag: "Body", left: size, padding, metadata }
    else if (metadata !== undefined) return this.learn(metadata)
    return undefined
  }

  private sizeOf(block: Uint8Array): number | Failure {
    const told = this.pax.size ?? this.globalPax.size
    if (told === undefined) return number(block.subarray(124, 136))
    const digits = text(told)
    return typeof digits === "string" && /^\d{1,15}$/.test(digits)
      ? Number(digits)
      : new Failure("the size is not a number")
  }

  private nameOf(block: Uint8Array): string | Failure {
    const told = this.pax.path ?? this.globalPax.path
    if (told !== undefined) return told.includes(0) ? new Failure("the name contains a zero byte") : text(told)
    if (this.longName !== undefined) return this.longName
    const name = text(block.subarray(0, 100))
    // GNU uses the prefix field for other data.
    const isPosix = String.fromCharCode(...block.subarray(257, 263)) === "ustar\0"
    const prefix = isPosix ? text(block.subarray(345, 500)) : ""
    if (name instanceof Failure || prefix instanceof Failure) return new Failure("the name is not UTF-8")
    return prefix === "" ? name : `${prefix}/${name}`
  }

  private learn(metadata: Metadata): Failure | undefined {
    const bytes = this.metadata
    this.metadata = new Uint8Array(0)
    if (metadata === "K") return undefined
    if (metadata === "L") {
      const name = text(bytes)
      if (name instanceof Failure) return name
      this.longName = name
      return undefined
    }
    const found = attributes(bytes)
    if (found instanceof Failure) return found
    if (metadata === "x") this.pax = found
    else this.globalPax = { ...this.globalPax, ...found }
    return undefined
  }
}
