/**
 * Implements the `effect-tinker` host on Node.js: credential command, credentials file, compression, hashes, and
 * platform name.
 *
 * @since 0.1.0
 */
import type * as WasmZstd from "@hpcc-js/wasm-zstd"
import { exec } from "node:child_process"
import { createHash } from "node:crypto"
import { readFile } from "node:fs/promises"
import * as zlib from "node:zlib"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Host from "effect-tinker/http/Host"

const systems: Partial<Record<NodeJS.Platform, string>> = {
  aix: "AIX",
  darwin: "MacOS",
  freebsd: "FreeBSD",
  linux: "Linux",
  openbsd: "OpenBSD",
  win32: "Windows",
}

const architectures: Partial<Record<NodeJS.Architecture, string>> = {
  arm: "arm",
  arm64: "arm64",
  ia32: "x32",
  x64: "x64",
}

/** A hanging command must not block all requests that wait for its output. */
const commandTimeout = 60_000

const runCommand: Host.Service["runCommand"] = (command) =>
  Effect.async((resume, signal) => {
    const options = {
      signal,
      timeout: commandTimeout,
      killSignal: "SIGKILL",
      maxBuffer: 1024 * 1024,
      windowsHide: true,
    } as const
    const child = exec(Redacted.value(command), options, (error, stdout) => {
      const output = stdout.trim()
      if (error !== null) {
        // Does not include the command or its output: both may contain the secret.
        const how =
          error.killed === true
            ? `was killed after ${commandTimeout / 1000} s`
            : error.signal
              ? `was terminated by ${error.signal}`
              : `exited with code ${error.code}`
        return resume(Effect.fail(`the credential command ${how}`))
      }
      return resume(
        output === "" ? Effect.fail("the credential command printed nothing") : Effect.succeed(Redacted.make(output)),
      )
    })
    // The command cannot prompt for input.
    child.stdin?.end()
  })

const isMissing = (error: unknown): boolean =>
  error instanceof Error && "code" in error && (error.code === "ENOENT" || error.code === "ENOTDIR")

const readText: Host.Service["readFile"] = (path) =>
  Effect.tryPromise({
    try: (signal) => readFile(path, { encoding: "utf8", signal }),
    catch: (error) => error,
  }).pipe(
    Effect.asSome,
    Effect.catchAll((error) =>
      isMissing(error)
        ? Effect.succeedNone
        : Effect.fail(`cannot read ${path}: ${error instanceof Error ? error.message : String(error)}`),
    ),
  )

/** Uses Node's own encoder (22.15 and later), otherwise the WASM encoder if it is installed. */
const zstd: Host.Service["zstd"] = Effect.suspend(() => {
  const own: unknown = Reflect.get(zlib, "zstdCompressSync")
  return typeof own === "function"
    ? Effect.succeedSome((bytes: Uint8Array) => Effect.sync((): Uint8Array => own(bytes)))
    : Effect.map(
        Effect.option(
          Effect.tryPromise(async () => {
            // A variable, because bundlers try to resolve a literal name.
            const optional: string = "@hpcc-js/wasm-zstd"
            const { Zstd } = (await import(optional)) as typeof WasmZstd
            return Zstd.load()
          }),
        ),
        Option.map((encoder) => (bytes: Uint8Array) => Effect.sync(() => encoder.compress(bytes))),
      )
})

/** Returns none for algorithms that this build of Node does not support. */
const hash: Host.Service["hash"] = (algorithm) =>
  Option.map(Option.liftThrowable(() => createHash(algorithm))(), (hash) => ({
    update: (bytes) => void hash.update(bytes),
    digest: () => hash.digest(),
  }))

/**
 * Creates the Node.js host.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make: Effect.Effect<Host.Service> = Effect.sync(() => {
  const { arch, platform, versions } = globalThis.process
  return {
    platform: {
      os: systems[platform] ?? `Other:${platform}`,
      arch: architectures[arch] ?? `other:${arch}`,
      runtime: "node",
      runtimeVersion: versions.node,
    },
    runCommand,
    readFile: readText,
    zstd,
    hash,
  }
})

/**
 * Provides the Node.js host.
 *
 * @since 0.1.0
 * @category layers
 */
export const layer: Layer.Layer<Host.Host> = Layer.effect(Host.Host, make)
