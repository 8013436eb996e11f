#!/usr/bin/env node
import host from "node:process"
import { run } from "../Main.ts"

const stop = new AbortController()

/** The first signal stops the command cleanly, a second one exits immediately. */
for (const signal of ["SIGINT", "SIGTERM"] as const)
  host.on(signal, () => {
    if (stop.signal.aborted) host.exit(130)
    stop.abort()
  })

// The reader of the output has gone, for example `head`.
host.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code === "EPIPE") host.exit(0)
})

host.exit(await run(host.argv.slice(2), { signal: stop.signal }))
