/** Implements `tinkerfx session`. */
import * as RestClient from "effect-tinker/RestClient"
import * as Effect from "effect/Effect"
import { join, resolve } from "node:path"
import * as Clients from "../internal/Clients.ts"
import type { Handler } from "../internal/Commands.ts"
import * as Fetch from "../internal/Fetch.ts"
import * as Output from "../internal/Output.ts"
import * as Prompt from "../internal/Prompt.ts"
import { Shell } from "../internal/Shell.ts"
import * as Words from "../internal/Words.ts"

export const exportTrace: Handler<{
  readonly sessionId: string
  readonly output: string | undefined
  readonly urlOnly: boolean
  readonly yes: boolean
}> = ({ output, sessionId, urlOnly, yes }, { format }) =>
  Effect.gen(function* () {
    const { directory, err, out } = yield* Shell
    const shown = output ?? join(directory, `${sessionId}.pftrace`)
    const path = resolve(directory, shown)
    if (!urlOnly) yield* Prompt.replace(path, yes)
    const rest = yield* RestClient.RestClient
    if (format !== "json") yield* err(`Exporting trace for session ${sessionId} (this may take a while)...\n`)
    const url = yield* rest.exportSessionTrace(sessionId)
    if (urlOnly && format !== "json") return yield* out(`${url}\n`)
    const saved = urlOnly
      ? {}
      : {
          destination: shown,
          size: yield* Fetch.toFile(Effect.succeed(url), path, { label: "Downloading trace", format }).pipe(
            Effect.onInterrupt(() => err(`${shown} was not saved.\n`)),
          ),
        }
    yield* Output.print(format, {
      json: () => ({
        session_id: sessionId,
        ...(urlOnly ? { url } : {}),
        ...(saved.destination === undefined ? {} : { destination: saved.destination }),
        ...(saved.size === undefined || saved.size === 0 ? {} : { file_size_bytes: saved.size }),
      }),
      table: () => ({
        title: `Trace Export: ${sessionId}`,
        columns: Output.properties,
        rows: [
          ["Session ID", sessionId],
          ...(saved.destination === undefined ? [] : [["Saved to", saved.destination]]),
          ...(saved.size === undefined || saved.size === 0 ? [] : [["Size", Words.size(saved.size)]]),
        ],
      }),
    })
  }).pipe(Clients.provide)
