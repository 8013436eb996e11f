/** Lets a server listen on a free port of this machine until the scope closes. */
import type { Server } from "node:http"
import type { AddressInfo } from "node:net"
import { Effect, type Scope } from "effect"

/** Returns the port. */
export const listen = (server: Server): Effect.Effect<number, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.async<number>((resume) => {
      server.listen(0, "127.0.0.1", () => resume(Effect.succeed((server.address() as AddressInfo).port)))
    }),
    () =>
      Effect.async<void>((resume) => {
        server.closeAllConnections()
        server.close(() => resume(Effect.void))
      }),
  )
