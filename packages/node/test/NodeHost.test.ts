import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { describe, expect, it } from "@effect/vitest"
import { Effect, Option, Redacted } from "effect"
import { NodeHost } from "@effect-tinker/node"

const run = (command: string) => Effect.flatMap(NodeHost.make, (host) => host.runCommand(Redacted.make(command)))

describe("NodeHost", () => {
  it.effect("runCommand runs a command through the shell and trims its output", () =>
    Effect.gen(function* () {
      expect(Redacted.value(yield* run("echo tml-a | tr a b"))).toBe("tml-b")
    }),
  )

  it.effect("runCommand reports how a command failed, without the command or its output", () =>
    Effect.gen(function* () {
      expect(yield* Effect.flip(run("echo tml-secret; echo tml-secret >&2; exit 3"))).toBe(
        "the credential command exited with code 3",
      )
      expect(yield* Effect.flip(run("true"))).toBe("the credential command printed nothing")
      expect(yield* Effect.flip(run("kill -TERM $$"))).toBe("the credential command was terminated by SIGTERM")
      // Standard input is closed.
      expect(yield* Effect.flip(run("read answer && echo tml-$answer"))).toMatch(/^the credential command exited with/)
    }),
  )

  it.effect("readFile distinguishes a missing file from an unreadable one", () =>
    Effect.gen(function* () {
      const folder = yield* Effect.acquireRelease(
        Effect.sync(() => mkdtempSync(join(tmpdir(), "node-host-"))),
        (folder) => Effect.sync(() => rmSync(folder, { recursive: true })),
      )
      writeFileSync(join(folder, "a"), "text")
      const { readFile } = yield* NodeHost.make
      expect(yield* readFile(join(folder, "a"))).toEqual(Option.some("text"))
      expect(yield* readFile(join(folder, "b"))).toEqual(Option.none())
      expect(yield* readFile(join(folder, "a", "b"))).toEqual(Option.none())
      expect(yield* Effect.flip(readFile(folder))).toMatch(/^cannot read .+: EISDIR/)
    }).pipe(Effect.scoped),
  )

  it.effect("NodeHost names the platform as the official SDK does", () =>
    Effect.map(NodeHost.make, ({ platform }) => {
      expect(platform.runtime).toBe("node")
      expect(platform.runtimeVersion).toBe(process.versions.node)
      expect(platform.os).toMatch(/^(Linux|MacOS|Windows|FreeBSD|OpenBSD|AIX|Other:.*)$/)
    }),
  )
})
