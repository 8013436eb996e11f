/** Starts a server with the stand-in model on a socket. */
import { ModelHost, NodeTinkerServer, type ServerOptions, TinkerServer } from "@effect-tinker/server"
import { Effect } from "effect"
import * as StandInModel from "./StandInModel.ts"

export const make = (listen: NodeTinkerServer.ListenOptions = {}, options: ServerOptions.ServerOptions = {}) =>
  Effect.gen(function* () {
    const server = yield* Effect.provideService(
      TinkerServer.make(options),
      ModelHost.ModelHost,
      ModelHost.inline(StandInModel.make()),
    )
    return yield* NodeTinkerServer.listen(server, { port: 0, ...listen })
  })
