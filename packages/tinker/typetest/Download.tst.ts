import type { FileSystem, HttpClient, Path } from "@effect/platform"
import type { Effect, Stream } from "effect"
import * as Archive from "effect-tinker/Archive"
import * as Download from "effect-tinker/Download"
import type { CheckpointArchive } from "effect-tinker/RestClient"
import { describe, expect, it } from "tstyche"

type Environment = HttpClient.HttpClient | FileSystem.FileSystem | Path.Path

declare const source: Effect.Effect<CheckpointArchive, "refused", "service">
declare const bytes: Stream.Stream<Uint8Array, "cut", "service">

describe("Download", () => {
  it("Download requires no Tinker service", () => {
    expect(Download.toFile("https://host/a", "a")).type.toBe<
      Effect.Effect<Download.Downloaded, Download.DownloadError, Environment>
    >()
    expect(Download.withProgress(new URL("https://host/a"), "a")).type.toBe<
      Stream.Stream<Download.Progress, Download.DownloadError, Environment>
    >()
  })

  it("Download accepts an effect as its source and keeps its errors and requirements", () => {
    expect(Download.toFile(source, "a")).type.toBe<
      Effect.Effect<Download.Downloaded, Download.DownloadError | "refused", Environment | "service">
    >()
  })

  it("Download accepts only supported checksums", () => {
    expect(Download.toFile).type.toBeCallableWith("u", "a", { checksum: { algorithm: "sha256", value: "00" } })
    expect(Download.toFile).type.not.toBeCallableWith("u", "a", { checksum: { algorithm: "crc64", value: "00" } })
  })
})

describe("Archive", () => {
  it("Archive.unpack requires the file system and the requirements of the bytes", () => {
    expect(Archive.unpack("a.tar", "a")).type.toBe<
      Effect.Effect<Archive.Unpacked, Archive.UnpackError, FileSystem.FileSystem | Path.Path>
    >()
    expect(Archive.unpack(bytes, "a", { maxBytes: 1 })).type.toBe<
      Effect.Effect<Archive.Unpacked, Archive.UnpackError | "cut", FileSystem.FileSystem | Path.Path | "service">
    >()
  })
})
