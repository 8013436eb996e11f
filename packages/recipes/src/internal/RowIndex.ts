/** Where rows are in a file: 12 bytes per row in typed arrays, 16 if some rows were left out, and nothing of the
 * rows themselves. */

const blockSize = 65_536

/** A list of numbers that grows in blocks, so that it is never copied. */
class Blocks<Block extends Float64Array | Uint32Array> {
  private readonly blocks: Array<Block> = []
  private readonly make: (size: number) => Block
  length = 0

  constructor(make: (size: number) => Block) {
    this.make = make
  }

  push(value: number): void {
    if (this.length % blockSize === 0) this.blocks.push(this.make(blockSize))
    const block = this.blocks[this.blocks.length - 1]
    if (block !== undefined) block[this.length % blockSize] = value
    this.length++
  }

  at(index: number): number {
    return this.blocks[Math.floor(index / blockSize)]?.[index % blockSize] ?? 0
  }
}

/** The places of the rows of a file. */
export class RowIndex {
  private readonly offsets = new Blocks((size) => new Float64Array(size))
  private readonly sizes = new Blocks((size) => new Uint32Array(size))
  /** The number of the first row, from which the others follow until one is left out. */
  private first = 1
  private rows: Blocks<Uint32Array> | undefined

  get size(): number {
    return this.offsets.length
  }

  add(row: number, offset: number, bytes: number): void {
    if (this.size === 0) this.first = row
    else if (this.rows === undefined && row !== this.first + this.size) {
      this.rows = new Blocks((size) => new Uint32Array(size))
      for (let index = 0; index < this.size; index++) this.rows.push(this.first + index)
    }
    this.rows?.push(row)
    this.offsets.push(offset)
    this.sizes.push(bytes)
  }

  offsetOf(index: number): number {
    return this.offsets.at(index)
  }

  bytesOf(index: number): number {
    return this.sizes.at(index)
  }

  rowOf(index: number): number {
    return this.rows === undefined ? this.first + index : this.rows.at(index)
  }

  /** Returns the numbers of the rows as bytes, piece by piece: they tell which rows of the file are used. */
  *rowBytes(): Iterable<Uint8Array> {
    for (let from = 0; from < this.size; from += blockSize) {
      const rows = Uint32Array.from({ length: Math.min(blockSize, this.size - from) }, (_, at) => this.rowOf(from + at))
      yield new Uint8Array(rows.buffer)
    }
  }
}
