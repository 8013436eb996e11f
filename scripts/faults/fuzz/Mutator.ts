/** Changes inputs at random, from a seed. */

/** Returns integers from 0 to below a limit. */
export type Dice = (limit: number) => number

/** A generator whose numbers follow from a seed. */
export const dice = (seed: number): Dice => {
  let state = seed | 0
  return (limit) => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296) * limit)
  }
}

const interesting = [0, 1, 0x0a, 0x20, 0x22, 0x2c, 0x30, 0x5b, 0x5d, 0x7b, 0x7d, 0x7f, 0x80, 0xfe, 0xff]
const numbers = [
  "0",
  "-1",
  "1e400",
  "NaN",
  "9007199254740993",
  "4294967296",
  "null",
  "true",
  "{}",
  "[]",
  '""',
  "\\ud800",
]

type Change = (input: Buffer, dice: Dice, others: ReadonlyArray<Uint8Array>) => Buffer

const at = (input: Buffer, dice: Dice) => dice(input.length + 1)

const replaced = (input: Buffer, from: number, to: number, bytes: Uint8Array) =>
  Buffer.concat([input.subarray(0, from), bytes, input.subarray(to)])

const range = (input: Buffer, dice: Dice) => {
  const from = at(input, dice)
  return [from, Math.min(input.length, from + 1 + dice(8 ** (1 + dice(3))))] as const
}

const withByte = (input: Buffer, dice: Dice, value: number) => {
  if (input.length === 0) return Buffer.of(value)
  const copy = Buffer.from(input)
  copy[dice(copy.length)] = value
  return copy
}

const changes: ReadonlyArray<Change> = [
  (input, dice) => withByte(input, dice, dice(256)),
  (input, dice) => withByte(input, dice, interesting[dice(interesting.length)]!),
  (input, dice) => {
    if (input.length === 0) return input
    const copy = Buffer.from(input)
    const place = dice(copy.length)
    copy[place] = copy[place]! ^ (1 << dice(8))
    return copy
  },
  (input, dice) => {
    const place = at(input, dice)
    return replaced(input, place, place, Buffer.from(Array.from({ length: 1 + dice(4) }, () => dice(256))))
  },
  (input, dice) => {
    const place = at(input, dice)
    return replaced(input, place, place, Buffer.from(numbers[dice(numbers.length)]!))
  },
  (input, dice) => replaced(input, ...range(input, dice), Buffer.alloc(0)),
  (input, dice) => {
    const [from, to] = range(input, dice)
    return replaced(input, to, to, Buffer.concat(Array.from({ length: 1 + dice(5) }, () => input.subarray(from, to))))
  },
  (input, dice, others) => {
    const other = Buffer.from(others[dice(others.length)] ?? input)
    const place = at(input, dice)
    return replaced(input, place, place, other.subarray(...range(other, dice)))
  },
  (input, dice) => {
    if (input.length < 4) return input
    const copy = Buffer.from(input)
    const place = dice(copy.length - 3)
    const value = [0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 1 << dice(31)][dice(6)]! >>> 0
    if (dice(2) === 0) copy.writeUInt32LE(value, place)
    else copy.writeUInt32BE(value, place)
    return copy
  },
]

/** Applies one to eight changes; the result is at most `longest` bytes long. */
export const mutate = (
  input: Uint8Array,
  dice: Dice,
  others: ReadonlyArray<Uint8Array>,
  longest: number,
): Uint8Array => {
  let result = Buffer.from(input)
  for (let count = 1 << dice(4); count > 0; count--)
    result = Buffer.from(changes[dice(changes.length)]!(result, dice, others).subarray(0, longest))
  return result
}
