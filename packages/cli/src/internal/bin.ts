#!/usr/bin/env node
import host from "node:process"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import { run } from "../Main.ts"

const fiber = Effect.runFork(run(host.argv.slice(2)))

/** The first signal shuts down cleanly, a second one exits immediately. */
let asked = false
for (const signal of ["SIGINT", "SIGTERM"] as const)
  host.on(signal, () => {
    if (asked) host.exit(130)
    asked = true
    Effect.runFork(Fiber.interruptFork(fiber))
  })

fiber.addObserver((result) => host.exit(result._tag === "Success" ? result.value : asked ? 0 : 1))
