/** The text of a row of the file that `scripts/bench/shuffle.ts` writes. */
const words = "the quick brown fox jumps over the lazy dog and trains a model – ünïcode ".repeat(200)

export const textOf = (id: number, rowBytes: number): string => {
  // Rows have between half and one and a half of the length, so that offsets are irregular.
  const length = Math.floor(rowBytes * (0.5 + ((id * 2_654_435_761) % 1000) / 1000)) - 30
  return words.slice(id % 50, (id % 50) + Math.max(1, length))
}
