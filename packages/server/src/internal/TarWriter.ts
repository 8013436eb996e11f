/** Packs files into an uncompressed tar archive (ustar): weights do not compress well. */
import type { File } from "../ModelHost.ts"

const block = 512

const header = ({ bytes, name }: File, seconds: number): Uint8Array => {
  const head = new Uint8Array(block)
  const put = (text: string, at: number) => head.set(new TextEncoder().encode(text), at)
  const octal = (value: number, digits: number) => `${value.toString(8).padStart(digits, "0")}\0`
  put(name, 0)
  put(octal(0o644, 7), 100)
  put(octal(0, 7), 108)
  put(octal(0, 7), 116)
  put(octal(bytes.length, 11), 124)
  put(octal(seconds, 11), 136)
  put("        ", 148)
  put("0", 156)
  put("ustar\u000000", 257)
  put(
    `${head
      .reduce((sum, byte) => sum + byte, 0)
      .toString(8)
      .padStart(6, "0")}\0 `,
    148,
  )
  return head
}

export const tar = (files: ReadonlyArray<File>, now: number): Uint8Array => {
  const size = files.reduce((sum, { bytes }) => sum + block + Math.ceil(bytes.length / block) * block, 2 * block)
  const all = new Uint8Array(size)
  let at = 0
  for (const file of files) {
    all.set(header(file, Math.floor(now / 1000)), at)
    all.set(file.bytes, at + block)
    at += block + Math.ceil(file.bytes.length / block) * block
  }
  return all
}
