/** Downloads a file and shows its progress. */
import * as NodeFileSystem from "@effect/platform-node/NodeFileSystem"
import * as NodePath from "@effect/platform-node/NodePath"
import type { HttpClient } from "@effect/platform/HttpClient"
import * as Download from "effect-tinker/Download"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import type { Format } from "./Output.ts"
import * as Progress from "./Progress.ts"
import type { Shell } from "./Shell.ts"

const files = Layer.merge(NodeFileSystem.layer, NodePath.layer)

/** Downloads a file and returns its size. The URL is asked for again when the storage refuses it. */
export const toFile = <E, R>(
  url: Effect.Effect<string, E, R>,
  path: string,
  options: { readonly label: string; readonly format: Format; readonly keepPartial?: boolean },
): Effect.Effect<number, Download.DownloadError | E, HttpClient | Shell | R> =>
  Progress.during(options.format, options.label, (bar) => {
    let size = 0
    return Download.withProgress(url, path, { keepPartial: options.keepPartial ?? false }).pipe(
      Stream.runForEach(({ bytes, total }) => {
        size = bytes
        return bar.at(
          bytes,
          Option.getOrElse(total, () => bytes),
        )
      }),
      Effect.map(() => size),
      Effect.provide(files),
    )
  })
