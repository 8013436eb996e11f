import { FileSystem } from "@effect/platform"
import { NodeContext } from "@effect/platform-node"
import { describe, expect, it } from "@effect/vitest"
import { Deferred, Effect, FastCheck, Fiber, Stream } from "effect"
import { Archive } from "effect-tinker"
import { execFileSync } from "node:child_process"
import { randomBytes } from "node:crypto"
import { gzipSync } from "node:zlib"

interface Entry {
  readonly name: string | Uint8Array
  readonly type?: string
  readonly body?: string | Uint8Array
  /** The size in the header, if it differs from that of the body. */
  readonly size?: number | Uint8Array
  readonly prefix?: string
  readonly magic?: string
  readonly checksum?: number
}

const octal = (value: number, width: number) => value.toString(8).padStart(width - 1, "0") + "\0"

/** Builds an archive block by hand, so that every field can be wrong. */
const block = ({ body = "", checksum, magic = "ustar\x0000", name, prefix = "", size, type = "0" }: Entry): Buffer => {
  const bytes = Buffer.from(body)
  const header = Buffer.alloc(512)
  header.set(Buffer.from(name).subarray(0, 100), 0)
  header.write("0000644\0", 100)
  if (size instanceof Uint8Array) header.set(size, 124)
  else header.write(octal(size ?? bytes.length, 12), 124)
  header.write(octal(0, 12), 136)
  header.write("        ", 148)
  header.write(type, 156)
  header.write("target", 157)
  header.write(magic, 257, "latin1")
  header.write(prefix, 345)
  const sum = header.reduce((sum, byte) => sum + byte, 0)
  header.write(octal(checksum ?? sum, 8), 148)
  return Buffer.concat([header, bytes, Buffer.alloc((512 - (bytes.length % 512)) % 512)])
}

const end = Buffer.alloc(1024)
const tar = (...entries: ReadonlyArray<Entry>) => Buffer.concat([...entries.map(block), end])

const pax = (records: Readonly<Record<string, string>>) =>
  Object.entries(records)
    .map(([key, value]) => {
      const rest = Buffer.byteLength(` ${key}=${value}\n`)
      let length = rest + String(rest).length
      if (String(length).length > String(rest).length) length = rest + String(length).length
      return `${length} ${key}=${value}\n`
    })
    .join("")

const live = <A, E, R>(program: Effect.Effect<A, E, R>) => Effect.provide(program, NodeContext.layer)

const room = Effect.gen(function* () {
  const root = yield* (yield* FileSystem.FileSystem).makeTempDirectoryScoped()
  return { root, directory: `${root}/checkpoint` }
})

/** Lists everything below a directory, with the contents of the files. */
const listing = (directory: string) =>
  Effect.gen(function* () {
    const fs = yield* FileSystem.FileSystem
    const found: Record<string, string> = {}
    for (const name of (yield* fs.readDirectory(directory, { recursive: true })).toSorted()) {
      const { type } = yield* fs.stat(`${directory}/${name}`)
      found[name] = type === "Directory" ? "/" : yield* fs.readFileString(`${directory}/${name}`)
    }
    return found
  })

/** Splits bytes into chunks of a given size. */
const pieces = (bytes: Uint8Array, size = 1 << 16) =>
  Stream.fromIterable(
    Array.from({ length: Math.ceil(bytes.length / size) }, (_, i) => bytes.subarray(i * size, (i + 1) * size)),
  ).pipe(Stream.rechunk(1))

const long = `${"deep/".repeat(40)}${"n".repeat(120)}.safetensors`

const good = tar(
  { name: "./", type: "5" },
  { name: "adapter_config.json", body: "{}" },
  { name: "empty", body: "" },
  { name: "sub/", type: "5" },
  { name: "model.bin", prefix: "sub/prefixed", body: "x".repeat(512) },
  { name: "old/", type: "\0" },
  { name: "././@LongLink", type: "L", body: `${long}\0`, magic: "ustar  \0" },
  { name: long.slice(0, 100), body: "gnu", magic: "ustar  \0" },
  { name: "PaxHeader", type: "x", body: pax({ path: "pax/größe.bin", size: "3", mtime: "1.5" }) },
  { name: "ignored", body: "pax", size: 0 },
  { name: "global", type: "g", body: pax({ comment: "hello" }) },
  { name: "binary-size", body: "four", size: Uint8Array.of(0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4) },
)

const files = {
  "adapter_config.json": "{}",
  empty: "",
  "sub/prefixed/model.bin": "x".repeat(512),
  [long]: "gnu",
  "pax/größe.bin": "pax",
  "binary-size": "four",
}

const onlyFiles = (found: Readonly<Record<string, string>>) =>
  Object.fromEntries(Object.entries(found).filter(([, text]) => text !== "/"))

describe("Archive", () => {
  it.scopedLive.each([
    ["tar", good],
    ["tar.gz", gzipSync(good)],
    ["tar.gz in two members", Buffer.concat([gzipSync(good.subarray(0, 1000)), gzipSync(good.subarray(1000))])],
    ["tar, padded as for a tape", Buffer.concat([good, Buffer.alloc(10_240)])],
    ["tar with one empty block at its end", good.subarray(0, -512)],
  ] as const)("unpack reads %s in chunks of any size", ([, bytes]) =>
    live(
      Effect.gen(function* () {
        const fs = yield* FileSystem.FileSystem
        const { root } = yield* room
        for (const size of [1, 7, 511, 512, 513, 100_000]) {
          const directory = `${root}/below/size-${size}`
          const unpacked = yield* Archive.unpack(pieces(bytes, size), directory)
          expect(unpacked.directory).toBe(directory)
          expect(Object.fromEntries(unpacked.files.map(({ bytes, path }) => [path, bytes]))).toEqual(
            Object.fromEntries(Object.entries(files).map(([path, text]) => [path, Buffer.byteLength(text)])),
          )
          const found = yield* listing(directory)
          expect(onlyFiles(found)).toEqual(files)
          expect([found["sub"], found["old"]]).toEqual(["/", "/"])
        }
        yield* fs.writeFile(`${root}/a.tar`, bytes)
        yield* Archive.unpack(`${root}/a.tar`, `${root}/from-file`)
        expect(onlyFiles(yield* listing(`${root}/from-file`))).toEqual(files)
      }),
    ),
  )

  it.scopedLive("unpack reads archives of the system's tar in GNU and POSIX formats", () =>
    live(
      Effect.gen(function* () {
        const fs = yield* FileSystem.FileSystem
        const { root } = yield* room
        const tree: Record<string, string> = {
          "a.txt": "a",
          [`${"long-directory-name/".repeat(12)}${"f".repeat(150)}`]: "deep",
          "großes/日本語.bin": "utf-8",
          "big.bin": "b".repeat(100_000),
        }
        for (const [path, text] of Object.entries(tree)) {
          yield* fs.makeDirectory(`${root}/in/${path}`.replace(/\/[^/]*$/, ""), { recursive: true })
          yield* fs.writeFileString(`${root}/in/${path}`, text)
        }
        for (const format of ["gnu", "posix"]) {
          for (const [flags, name] of [
            ["-cf", "t.tar"],
            ["-czf", "t.tar.gz"],
          ] as const) {
            execFileSync("tar", [`--format=${format}`, flags, `${root}/${format}-${name}`, "-C", `${root}/in`, "."])
            yield* Archive.unpack(`${root}/${format}-${name}`, `${root}/${format}-${name}.d`)
            expect(onlyFiles(yield* listing(`${root}/${format}-${name}.d`))).toEqual(tree)
          }
        }
      }),
    ),
  )

  const fine = { name: "fine", body: "fine" }
  const bad: ReadonlyArray<readonly [string, Archive.ArchiveRefused["reason"], Uint8Array, Archive.Options?]> = [
    ["a path outside the directory", "OutsidePath", tar(fine, { name: "../evil", body: "x" })],
    [
      "a path with .. in the middle that leaves the directory",
      "OutsidePath",
      tar(fine, { name: "a/../../evil", body: "x" }),
    ],
    [
      "a path with .. in the middle that stays in the directory",
      "OutsidePath",
      tar(fine, { name: "a/../b", body: "x" }),
    ],
    ["a path outside the directory with a backslash", "OutsidePath", tar(fine, { name: "..\\evil", body: "x" })],
    ["a directory outside the directory", "OutsidePath", tar(fine, { name: "../evil/", type: "5" })],
    ["a prefix outside the directory", "OutsidePath", tar(fine, { name: "evil", prefix: "..", body: "x" })],
    ["a long name outside the directory", "OutsidePath", tar(fine, { name: "l", type: "L", body: "../evil\0" }, fine)],
    [
      "a pax path outside the directory",
      "OutsidePath",
      tar(fine, { name: "p", type: "x", body: pax({ path: "../evil" }) }, fine),
    ],
    [
      "a global pax path outside the directory",
      "OutsidePath",
      tar({ name: "p", type: "g", body: pax({ path: "../evil" }) }, fine),
    ],
    ["an absolute path", "AbsolutePath", tar(fine, { name: "/tmp/evil", body: "x" })],
    ["an absolute Windows path", "AbsolutePath", tar(fine, { name: "C:evil", body: "x" })],
    ["a Windows share", "AbsolutePath", tar(fine, { name: "\\\\host\\share", body: "x" })],
    ["a name with a backslash", "BadName", tar(fine, { name: "a\\b", body: "x" })],
    ["a name with a line feed", "BadName", tar(fine, { name: "a\nb", body: "x" })],
    ["an empty name", "BadName", tar(fine, { name: "", body: "x" })],
    ["a name longer than 255 bytes", "BadName", tar(fine, { name: "l", type: "L", body: "n".repeat(256) }, fine)],
    ["a symbolic link", "Link", tar(fine, { name: "link", type: "2" })],
    ["a hard link", "Link", tar(fine, { name: "link", type: "1" })],
    ["a character device", "Device", tar(fine, { name: "tty", type: "3" })],
    ["a block device", "Device", tar(fine, { name: "sda", type: "4" })],
    ["a pipe", "Device", tar(fine, { name: "pipe", type: "6" })],
    ["an unknown entry type", "UnknownKind", tar(fine, { name: "x", type: "Z" })],
    ["a GNU sparse file", "UnknownKind", tar(fine, { name: "x", type: "S" })],
    ["a pax sparse file", "UnknownKind", tar({ name: "p", type: "x", body: pax({ "GNU.sparse.major": "1" }) }, fine)],
    ["the same file twice", "Duplicate", tar(fine, fine)],
    ["a file in place of a directory", "Duplicate", tar({ name: "a/b", body: "" }, { name: "a", body: "x" })],
    ["a directory in place of a file", "Duplicate", tar(fine, { name: "fine/", type: "5" })],
    ["a file below a file", "Duplicate", tar(fine, { name: "fine/below", body: "x" })],
    ["more bytes than allowed", "TooLarge", tar(fine, { name: "b", body: "12345" }), { maxBytes: 8 }],
    [
      "an announced size above the limit",
      "TooLarge",
      tar(fine, { name: "b", size: 2 ** 33 - 1 }),
      { maxBytes: 2 ** 32 },
    ],
    ["more entries than allowed", "TooManyEntries", tar(fine, { name: "b/", type: "5" }), { maxEntries: 1 }],
    ["a size that is not a number", "Corrupt", tar(fine, { name: "b", size: Buffer.from("0000000008x\0") })],
    [
      "a size that overflows",
      "Corrupt",
      tar(fine, { name: "b", size: new Uint8Array(12).fill(0xff).fill(0x80, 0, 1) }),
    ],
    ["a negative size", "Corrupt", tar(fine, { name: "b", size: new Uint8Array(12).fill(0xff) })],
    ["invalid pax attributes", "Corrupt", tar({ name: "p", type: "x", body: "nonsense" }, fine)],
    ["truncated pax attributes", "Corrupt", tar({ name: "p", type: "x", body: "99 path=a\n" }, fine)],
    [
      "a pax attribute with a NUL character",
      "Corrupt",
      tar({ name: "p", type: "x", body: pax({ path: "a\0b" }) }, fine),
    ],
    ["an invalid pax size", "Corrupt", tar({ name: "p", type: "x", body: pax({ size: "-1" }) }, fine)],
    ["pax attributes without end", "Corrupt", tar({ name: "p", type: "x", size: 2 ** 30 }, fine)],
    ["a name that is not UTF-8", "Corrupt", tar({ name: Uint8Array.of(0xff, 0x41) }, fine)],
    ["a directory with content", "Corrupt", tar(fine, { name: "d/", type: "5", body: "x" })],
    ["a wrong checksum", "Corrupt", tar(fine, { name: "b", checksum: 1 })],
    ["random bytes", "Corrupt", randomBytes(2000)],
    ["an empty input", "Corrupt", new Uint8Array(0)],
    ["an archive without its end", "Corrupt", tar(fine).subarray(0, -1024)],
    ["a file without its end", "Corrupt", tar({ name: "b", body: "x".repeat(2000) }).subarray(0, 1500)],
    ["a header without its end", "Corrupt", tar(fine).subarray(0, 300)],
    [
      "more trailing bytes than padding",
      "Corrupt",
      gzipSync(Buffer.concat([tar(fine), Buffer.alloc(17 * 1024 * 1024)])),
    ],
    [
      "an empty block in the middle",
      "Corrupt",
      Buffer.concat([block(fine), Buffer.alloc(512), tar({ name: "b", body: "lost" })]),
    ],
    ["data after the end", "Corrupt", Buffer.concat([tar(fine), Buffer.alloc(512, "A")])],
    [
      "too many pax attributes",
      "Corrupt",
      gzipSync(
        Buffer.concat([
          ...Array<Buffer>(70).fill(block({ name: "g", type: "g", body: pax({ k: "v".repeat(1_000_000) }) })),
          tar(fine),
        ]),
      ),
    ],
    ["gzip without its end", "Corrupt", gzipSync(tar(fine)).subarray(0, -4)],
    ["gzip with a wrong checksum", "Corrupt", Buffer.concat([gzipSync(tar(fine)).subarray(0, -8), Buffer.alloc(8)])],
    ["gzip of random bytes", "Corrupt", gzipSync(randomBytes(2000))],
  ]

  it.scopedLive.each(bad)("unpack refuses %s with %s and leaves no files behind", ([, reason, bytes, options]) =>
    live(
      Effect.gen(function* () {
        const { directory, root } = yield* room
        for (const size of [bytes.length + 1, 100]) {
          const error = yield* Effect.flip(Archive.unpack(pieces(bytes, size), directory, options))
          expect(error).toMatchObject({ _tag: "ArchiveRefused", reason })
        }
        expect(yield* listing(root)).toEqual({})
      }),
    ),
  )

  it.scopedLive("unpack refuses a directory that is not empty", () =>
    live(
      Effect.gen(function* () {
        const fs = yield* FileSystem.FileSystem
        const { directory, root } = yield* room
        yield* fs.makeDirectory(directory)
        yield* fs.writeFileString(`${directory}/mine`, "mine")
        expect(yield* Effect.flip(Archive.unpack(pieces(good), directory))).toMatchObject({ _tag: "InvalidInput" })
        expect(yield* listing(root)).toEqual({ checkpoint: "/", "checkpoint/mine": "mine" })
        yield* fs.remove(`${directory}/mine`)
        yield* Archive.unpack(pieces(good), directory)
        expect(onlyFiles(yield* listing(directory))).toEqual(files)
        expect(yield* Effect.flip(Archive.unpack(pieces(good), `${root}/x`, { maxBytes: Number.NaN }))).toMatchObject({
          _tag: "InvalidInput",
          path: "unpack.options.maxBytes",
        })
        expect(yield* Effect.flip(Archive.unpack(`${root}/missing.tar`, `${root}/x`))).toMatchObject({
          _tag: "FileFailed",
          reason: "NotFound",
        })
      }),
    ),
  )

  it.scopedLive("unpack passes on a failure of the input, compressed or not, and leaves no files behind", () =>
    live(
      Effect.gen(function* () {
        const { directory, root } = yield* room
        for (const bytes of [good, gzipSync(good)]) {
          const cut = Stream.concat(pieces(bytes.subarray(0, 200), 50), Stream.fail("cut" as const))
          expect(yield* Effect.flip(Archive.unpack(cut, directory))).toBe("cut")
        }
        expect(yield* listing(root)).toEqual({})
      }),
    ),
  )

  it.scopedLive("an interrupted unpack leaves no files behind", () =>
    live(
      Effect.gen(function* () {
        const { directory, root } = yield* room
        const reached = yield* Deferred.make<void>()
        const fiber = yield* Stream.concat(
          pieces(good.subarray(0, 2500)),
          Stream.fromEffect(Deferred.succeed(reached, undefined)).pipe(Stream.flatMap(() => Stream.never)),
        ).pipe((bytes) => Archive.unpack(bytes, directory), Effect.fork)
        yield* Deferred.await(reached)
        expect(Object.keys(yield* listing(root)).length).toBeGreaterThan(0)
        yield* Fiber.interrupt(fiber)
        expect(yield* listing(root)).toEqual({})
      }),
    ),
  )

  it.scopedLive("unpack reads no faster than it writes, compressed or not", () =>
    live(
      Effect.gen(function* () {
        const fs = yield* FileSystem.FileSystem
        const { directory } = yield* room
        const large = tar({ name: "large", body: randomBytes(32 * 1024 * 1024) })
        for (const bytes of [large, gzipSync(large, { level: 1 })]) {
          let pulled = 0
          let taken = 0
          let ahead = 0
          const counted = pieces(bytes).pipe(Stream.tap((piece) => Effect.sync(() => (pulled += piece.length))))
          const slow = (path: string, options?: FileSystem.OpenFileOptions) =>
            Effect.map(fs.open(path, options), (file): FileSystem.File => ({
              ...file,
              sync: file.sync,
              writeAll: (piece) =>
                // Waits until everything else that could run has run.
                Effect.async<void>((resume) => void setImmediate(() => resume(Effect.void))).pipe(
                  Effect.map(() => {
                    taken += piece.length
                    ahead = Math.max(ahead, pulled - taken)
                  }),
                ),
            }))
          yield* Effect.provideService(Archive.unpack(counted, directory), FileSystem.FileSystem, { ...fs, open: slow })
          yield* fs.remove(directory, { recursive: true })
          expect(taken).toBe(32 * 1024 * 1024)
          expect(ahead).toBeLessThan(2 * 1024 * 1024)
        }
      }),
    ),
  )

  it.scopedLive("unpack reports a full disk and leaves no files behind", () =>
    live(
      Effect.gen(function* () {
        const fs = yield* FileSystem.FileSystem
        const { directory, root } = yield* room
        const error = yield* Effect.flip(Archive.unpack(pieces(good), directory)).pipe(
          Effect.provideService(FileSystem.FileSystem, { ...fs, open: () => fs.open("/dev/full", { flag: "w" }) }),
        )
        expect(error).toMatchObject({ _tag: "FileFailed", reason: "DiskFull" })
        expect(yield* listing(root)).toEqual({})
      }),
    ),
  )

  it.effect.prop(
    "unpack accepts or refuses a modified archive and writes nothing outside the directory",
    [
      FastCheck.array(FastCheck.tuple(FastCheck.nat(good.length - 1), FastCheck.nat(255)), {
        minLength: 1,
        maxLength: 5,
      }),
    ],
    ([changes]) =>
      live(
        Effect.scoped(
          Effect.gen(function* () {
            const fs = yield* FileSystem.FileSystem
            const { directory, root } = yield* room
            const bytes = Buffer.from(good)
            for (const [at, byte] of changes) bytes[at] = byte
            const ended = yield* Effect.either(Archive.unpack(pieces(bytes), directory, { maxBytes: 1_000_000 }))
            const left = yield* fs.readDirectory(root)
            expect(left).toEqual(ended._tag === "Right" ? ["checkpoint"] : [])
            if (ended._tag === "Left") expect(["ArchiveRefused", "FileFailed"]).toContain(ended.left._tag)
          }),
        ),
      ),
    { fastCheck: { numRuns: process.env["TINKER_TESTS"] === "all" ? 100 : 25 } },
  )
})
