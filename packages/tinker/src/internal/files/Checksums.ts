/** Parses the checksums that storage servers send with a file and computes them incrementally. */
import * as Encoding from "effect/Encoding"
import * as Option from "effect/Option"
import type { Hash, Service as Host } from "../../http/Host.ts"

export type Algorithm = "sha512" | "sha256" | "crc32c" | "crc32" | "sha1" | "md5"

export interface Checksum {
  readonly algorithm: Algorithm
  /** In base64. */
  readonly value: string
}

/** The strongest algorithms first, then those that every platform supports. */
const preference: ReadonlyArray<Algorithm> = ["sha256", "sha512", "crc32c", "crc32", "sha1", "md5"]

/** The algorithms by header name. */
const names: Readonly<Record<string, Algorithm>> = {
  "sha-512": "sha512",
  "sha-256": "sha256",
  crc32c: "crc32c",
  crc32: "crc32",
  sha: "sha1",
  md5: "md5",
}

const table = (polynomial: number): Int32Array =>
  Int32Array.from({ length: 256 }, (_, byte) => {
    let rest = byte
    for (let bit = 0; bit < 8; bit++) rest = (rest & 1) === 1 ? (rest >>> 1) ^ polynomial : rest >>> 1
    return rest
  })

class Crc implements Hash {
  private readonly table: Int32Array
  private rest = -1

  constructor(polynomial: number) {
    this.table = table(polynomial)
  }

  update(bytes: Uint8Array): void {
    const { table } = this
    let rest = this.rest
    for (let i = 0; i < bytes.length; i++) rest = (table[(rest ^ (bytes[i] ?? 0)) & 0xff] ?? 0) ^ (rest >>> 8)
    this.rest = rest
  }

  digest(): Uint8Array {
    const bytes = new Uint8Array(4)
    new DataView(bytes.buffer).setInt32(0, ~this.rest)
    return bytes
  }
}

/** Creates a hash; none if this platform does not support the algorithm. */
export const make = (host: Host, algorithm: Algorithm): Option.Option<Hash> => {
  switch (algorithm) {
    case "crc32":
      return Option.some(new Crc(0xedb88320))
    case "crc32c":
      return Option.some(new Crc(0x82f63b78))
    default:
      return host.hash(algorithm)
  }
}

/** Parses `name=value, name=value`, with or without the colons of a structured header around the value. */
const parse = (header: string | undefined): ReadonlyArray<Checksum> =>
  (header ?? "").split(",").flatMap((part) => {
    const [, name = "", value = ""] = /^\s*([\w-]+)=:?([A-Za-z0-9+/]+=*):?\s*$/.exec(part) ?? []
    const algorithm = names[name.toLowerCase()]
    return algorithm === undefined ? [] : [{ algorithm, value }]
  })

const single = (algorithm: Algorithm, header: string | undefined): ReadonlyArray<Checksum> =>
  // A value with a dash is a checksum of part checksums, not of the file.
  header !== undefined && /^[A-Za-z0-9+/]+=*$/.test(header.trim()) ? [{ algorithm, value: header.trim() }] : []

/** Returns the checksums of a complete file from the response headers, best first. */
export const fromHeaders = (headers: Readonly<Record<string, string | undefined>>): ReadonlyArray<Checksum> =>
  [
    ...parse(headers["x-goog-hash"]),
    ...parse(headers["repr-digest"]),
    ...parse(headers["digest"]),
    ...single("md5", headers["content-md5"]),
    ...single("sha256", headers["x-amz-checksum-sha256"]),
    ...single("sha1", headers["x-amz-checksum-sha1"]),
    ...single("crc32c", headers["x-amz-checksum-crc32c"]),
    ...single("crc32", headers["x-amz-checksum-crc32"]),
  ].toSorted((a, b) => preference.indexOf(a.algorithm) - preference.indexOf(b.algorithm))

/** Converts a checksum given by the caller, in hex or base64, to base64. */
export const normalize = ({ algorithm, value }: Checksum): Checksum => {
  const hex = { sha512: 128, sha256: 64, sha1: 40, md5: 32, crc32: 8, crc32c: 8 }[algorithm]
  const decoded = value.length === hex ? Option.getRight(Encoding.decodeHex(value.toLowerCase())) : Option.none()
  return { algorithm, value: Option.match(decoded, { onNone: () => value, onSome: Encoding.encodeBase64 }) }
}
