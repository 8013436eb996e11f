/**
 * Measures a JSON text before anything is built from it: how deep it is and how many values it has. Finds the elements
 * of a large array, so that they can be parsed one by one.
 */

export interface Limits {
  readonly depth: number
  /** Maximum number of values, including those of objects and arrays. */
  readonly values: number
  /** Maximum number of objects, arrays and keys. */
  readonly structures: number
  /** The limits of the array whose elements are wanted. */
  readonly elements?: { readonly count: number; readonly bytes: number; readonly structures: number }
}

/** A half-open range of bytes. */
export interface Range {
  readonly from: number
  readonly to: number
}

/** The array whose elements are wanted: the property `array` of the property `object` of the text. */
export interface Wanted {
  readonly objects: ReadonlyArray<string>
  readonly array: string
}

const quote = 0x22
const comma = 0x2c
const colon = 0x3a
const backslash = 0x5c
const openBracket = 0x5b
const closeBracket = 0x5d
const openBrace = 0x7b
const closeBrace = 0x7d

/** Scans a text step by step. It checks only limits; `JSON.parse` checks the syntax of the parts. */
export class JsonScan {
  readonly #bytes: Uint8Array
  readonly #limits: Limits
  readonly #wanted: Wanted | undefined
  #at = 0
  #depth = 0
  /** The start of the last string at depth 1 or 2, which is a key if a colon follows. */
  #string: Range = { from: 0, to: 0 }
  #keys: [string, string] = ["", ""]
  #elementFrom = -1
  #elementStructures = 0
  #structures = 0
  values = 1
  /** The array, with its brackets, once it was found. */
  array: Range | undefined
  readonly elements: Array<Range> = []
  /** Why the text is refused. */
  problem: string | undefined

  constructor(bytes: Uint8Array, limits: Limits, wanted?: Wanted) {
    this.#bytes = bytes
    this.#limits = limits
    this.#wanted = wanted
  }

  /** Scans at least as many bytes as given; returns whether the scan has ended. */
  advance(count: number): boolean {
    const end = Math.min(this.#bytes.length, this.#at + count)
    while (this.#at < end && this.problem === undefined) this.#next()
    return this.problem !== undefined || this.#at >= this.#bytes.length
  }

  #next(): void {
    switch (this.#bytes[this.#at]) {
      case quote:
        return this.#skipString()
      case openBrace:
      case openBracket:
        this.#open()
        break
      case closeBrace:
      case closeBracket:
        this.#close()
        break
      case comma:
        this.#count()
        if (this.#elementFrom >= 0 && this.#depth === 3) this.#endElement()
        break
      case colon:
        this.#countStructure()
        if (this.#depth === 1 || this.#depth === 2) this.#keys[this.#depth - 1] = this.#text(this.#string)
        break
      default:
    }
    this.#at++
  }

  #skipString(): void {
    const from = this.#at + 1
    let to = this.#bytes.indexOf(quote, from)
    while (to >= 0 && this.#isEscaped(to, from)) to = this.#bytes.indexOf(quote, to + 1)
    this.#at = to < 0 ? this.#bytes.length : to + 1
    if (this.#depth <= 2) this.#string = { from, to: to < 0 ? from : to }
  }

  #isEscaped(at: number, from: number): boolean {
    let first = at
    while (first > from && this.#bytes[first - 1] === backslash) first--
    return (at - first) % 2 === 1
  }

  #open(): void {
    this.#count()
    this.#countStructure()
    if (++this.#depth > this.#limits.depth) this.problem = `more than ${this.#limits.depth} levels of nesting`
    if (this.#depth !== 3 || this.#bytes[this.#at] !== openBracket || !this.#isWanted()) return
    if (this.array !== undefined) this.problem = `more than one "${this.#wanted?.array}"`
    this.array = { from: this.#at, to: this.#bytes.length }
    this.#elementFrom = this.#at + 1
    this.#elementStructures = this.#structures
  }

  #close(): void {
    if (this.#elementFrom >= 0 && this.#depth === 3 && this.array !== undefined) {
      this.#endElement()
      this.#elementFrom = -1
      this.array = { from: this.array.from, to: this.#at + 1 }
      if (this.#bytes[this.#at] !== closeBracket) this.problem = `"${this.#wanted?.array}" is not closed`
    }
    this.#depth--
  }

  #isWanted(): boolean {
    const [object, array] = this.#keys
    return this.#wanted !== undefined && this.#wanted.objects.includes(object) && array === this.#wanted.array
  }

  #endElement(): void {
    const element = { from: this.#elementFrom, to: this.#at }
    const { bytes = Infinity, count = Infinity, structures = Infinity } = this.#limits.elements ?? {}
    const name = this.#wanted?.array
    if (this.elements.length >= count) this.problem = `more than ${count} elements in "${name}"`
    if (element.to - element.from > bytes) this.problem = `an element of "${name}" with more than ${bytes} bytes`
    if (this.#structures - this.#elementStructures > structures)
      this.problem = `an element of "${name}" with more than ${structures} objects, arrays and keys`
    this.elements.push(element)
    this.#elementFrom = this.#at + 1
    this.#elementStructures = this.#structures
  }

  #countStructure(): void {
    if (++this.#structures > this.#limits.structures)
      this.problem = `more than ${this.#limits.structures} objects, arrays and keys`
  }

  #count(): void {
    if (++this.values > this.#limits.values) this.problem = `more than ${this.#limits.values} values`
  }

  #text({ from, to }: Range): string {
    // A longer key is none of the wanted ones.
    return String.fromCharCode(...this.#bytes.subarray(from, Math.min(to, from + 64)))
  }
}

/** Measures a whole text in one go; for texts of limited size. */
export const measure = (bytes: Uint8Array, limits: Limits): JsonScan => {
  const scan = new JsonScan(bytes, limits)
  scan.advance(bytes.length)
  return scan
}
