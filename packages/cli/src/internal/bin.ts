#!/usr/bin/env node
import host from "node:process"
import { run } from "../Main.ts"

const [stop, hurry] = [new AbortController(), new AbortController()]

/**
 * Programs that start others, e.g. npx and pnpm, pass on a Ctrl-C that the terminal has sent to all of them. A signal so
 * many milliseconds after the first one is the same one.
 */
const relayedWithin = 300

let stoppedAt: number | undefined

/** The first signal stops the command, the second one stops it at once, and the third one ends the process. */
for (const signal of ["SIGINT", "SIGTERM"] as const)
  host.on(signal, () => {
    if (stoppedAt === undefined) {
      stoppedAt = performance.now()
      stop.abort()
    } else if (performance.now() - stoppedAt < relayedWithin) return
    else if (hurry.signal.aborted) host.exit(130)
    else hurry.abort()
  })

// The reader of the output has gone, for example `head`.
host.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code === "EPIPE") host.exit(0)
})

host.exit(await run(host.argv.slice(2), { signal: stop.signal, hurry: hurry.signal }))
