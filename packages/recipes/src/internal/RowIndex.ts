/** Where rows are in a file: 16 bytes per row in typed arrays, and nothing of the rows themselves. */

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

  /** Returns the numbers as bytes, block by block. */
  *bytes(): Iterable<Uint8Array> {
    for (const [index, block] of this.blocks.entries()) {
      const used = Math.min(blockSize, this.length - index * blockSize)
      yield new Uint8Array(block.buffer, 0, used * block.BYTES_PER_ELEMENT)
    }
  }
}

/** The places of the rows of a file. */
export class RowIndex {
  private readonly offsets = new Blocks((size) => new Float64Array(size))
  private readonly sizes = new Blocks((size) => new Uint32Array(size))
  private readonly rows = new Blocks((size) => new Uint32Array(size))

  get size(): number {
    return this.offsets.length
  }

  add(row: number, offset: number, bytes: number): void {
    this.offsets.push(offset)
    this.sizes.push(bytes)
    this.rows.push(row)
  }

  offsetOf(index: number): number {
    return this.offsets.at(index)
  }

  bytesOf(index: number): number {
    return this.sizes.at(index)
  }

  rowOf(index: number): number {
    return this.rows.at(index)
  }

  /** The memory of the index, in bytes. */
  get memory(): number {
    return Math.ceil(this.size / blockSize) * blockSize * 16
  }

  /** Returns the numbers of the rows as bytes: they tell which rows of the file are used. */
  rowBytes(): Iterable<Uint8Array> {
    return this.rows.bytes()
  }
}
