/** The routes of the server. */
import * as Api from "../../protocol/Api.ts"
import type { Operation } from "../../testing/ScriptedServer.ts"
import { poll, pollMany } from "./Poll.ts"
import { plain, type Route } from "./Route.ts"
import * as Sampling from "./SamplingRoutes.ts"
import * as Session from "./SessionRoutes.ts"
import * as Training from "./TrainingRoutes.ts"

export const routes: Readonly<Record<Operation, Route>> = {
  "client/config": Session.clientConfig,
  "client/dynamic_config": Session.dynamicConfig,
  "auth/token": Session.authToken,
  create_session: Session.createSession,
  session_heartbeat: Session.heartbeat,
  "sessions/finish": Session.finishSession,
  get_server_capabilities: Session.capabilities,
  healthz: Session.health,
  telemetry: Session.telemetry,
  create_model: Training.createModel,
  unload_model: Training.unloadModel,
  get_info: Training.getInfo,
  forward: Training.pass(Api.forwardJson, "forward"),
  forward_backward: Training.pass(Api.forwardBackward, "forward_backward"),
  optim_step: Training.optimStep,
  save_weights: Training.saveWeights,
  save_weights_for_sampler: Training.saveWeightsForSampler,
  save_weights_external: Training.saveWeightsExternal,
  load_weights: Training.loadWeights,
  weights_info: Training.weightsInfo,
  create_sampling_session: Sampling.createSamplingSession,
  join_sampling_session: Sampling.joinSamplingSession,
  asample: Sampling.sample,
  "samplers/get": Sampling.getSampler,
  retrieve_future: plain(Api.retrieveFuture, poll),
  retrieve_futures: plain(Api.retrieveFutures, pollMany),
  cancel_future: Sampling.cancelFuture,
}
