/**
 * Keeps the keys and values of recent sequences, so that a prompt that begins like one of them only computes the rest.
 * They are computed in the same order either way, so results are the same bits.
 */
import type { ModelConfig } from "../ModelConfig.ts"
import type { Adapter } from "./Adapter.ts"
import type { Memory } from "./Memory.ts"

/** Keys [layer][kvHead][headDim][room] and values [layer][room][kvHeads x headDim]. */
export interface Block {
  readonly keys: number
  readonly values: number
  readonly room: number
}

interface Entry extends Block {
  readonly owner: Adapter | undefined
  readonly tokens: Int32Array
}

const common = (a: Int32Array, b: Int32Array): number => {
  const most = Math.min(a.length, b.length)
  for (let i = 0; i < most; i++) if (a[i] !== b[i]) return i
  return most
}

export class PrefixCache {
  readonly #memory: Memory
  readonly #layers: number
  readonly #wide: number
  readonly #limit: number
  /** The least recently used first. */
  #entries: Array<Entry> = []

  constructor(memory: Memory, { headDim, kvHeads, layers }: ModelConfig, bytes: number) {
    this.#memory = memory
    this.#layers = layers
    this.#wide = kvHeads * headDim
    this.#limit = bytes / 4
  }

  /** The number of bytes held. */
  get bytes(): number {
    return 4 * this.#entries.reduce((sum, { room }) => sum + this.#sizeOf(room), 0)
  }

  #sizeOf(room: number): number {
    return 2 * this.#layers * room * this.#wide
  }

  #copy(from: Block, to: Block, count: number): void {
    const { floats } = this.#memory
    for (let row = 0; row < this.#layers * this.#wide; row++) {
      const start = from.keys + row * from.room
      floats.copyWithin(to.keys + row * to.room, start, start + count)
    }
    for (let layer = 0; layer < this.#layers; layer++) {
      const start = from.values + layer * from.room * this.#wide
      floats.copyWithin(to.values + layer * to.room * this.#wide, start, start + count * this.#wide)
    }
  }

  #free({ keys, values }: Block): void {
    this.#memory.free(keys)
    this.#memory.free(values)
  }

  /** Fills a block with the longest known beginning of the tokens, at most `most` of them, and returns how many. */
  load(owner: Adapter | undefined, tokens: Int32Array, most: number, to: Block): number {
    let best: Entry | undefined
    let length = 0
    for (const entry of this.#entries) {
      if (entry.owner !== owner) continue
      const found = Math.min(most, common(entry.tokens, tokens))
      if (found > length) [best, length] = [entry, found]
    }
    if (best === undefined) return 0
    this.#copy(best, to, length)
    this.#touch(best)
    return length
  }

  #touch(entry: Entry): void {
    this.#entries = [...this.#entries.filter((one) => one !== entry), entry]
  }

  /**
   * Keeps a copy of a sequence that was computed with a version of the weights, in place of its own beginnings. Frees the
   * least recently used ones if there are too many.
   */
  store(owner: Adapter | undefined, version: number, tokens: Int32Array, from: Block): void {
    if (version !== (owner?.version ?? 0)) return
    const room = tokens.length
    const size = this.#sizeOf(room)
    if (room === 0 || size > this.#limit) return
    const known = this.#entries.find((entry) => entry.owner === owner && common(entry.tokens, tokens) === room)
    if (known !== undefined) return this.#touch(known)
    this.#drop((entry) => entry.owner === owner && common(entry.tokens, tokens) === entry.tokens.length)
    let held = this.bytes / 4
    this.#drop(({ room }) => {
      const isTooMuch = held + size > this.#limit
      if (isTooMuch) held -= this.#sizeOf(room)
      return isTooMuch
    })
    const keys = this.#memory.alloc(size / 2)
    const entry = { owner, tokens, keys, values: this.#memory.alloc(size / 2), room }
    this.#copy(from, entry, room)
    this.#entries.push(entry)
  }

  /** Frees what was computed with weights that have changed since then. */
  dropOf(owner: Adapter): void {
    this.#drop((entry) => entry.owner === owner)
  }

  #drop(isGone: (entry: Entry) => boolean): void {
    this.#entries = this.#entries.filter((entry) => {
      const gone = isGone(entry)
      if (gone) this.#free(entry)
      return !gone
    })
  }
}
