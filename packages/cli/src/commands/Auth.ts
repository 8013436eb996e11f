/** Implements `tinkerfx auth`. */
import * as NodeTinker from "@effect-tinker/node/NodeTinker"
import * as Api from "effect-tinker/protocol/Api"
import * as RestClient from "effect-tinker/RestClient"
import * as RetryPolicy from "effect-tinker/RetryPolicy"
import * as ServiceClient from "effect-tinker/ServiceClient"
import type { TinkerError } from "effect-tinker/TinkerError"
import { Transport } from "effect-tinker/Transport"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Clients from "../internal/Clients.ts"
import type { Handler } from "../internal/Commands.ts"
import * as CredentialStore from "../internal/CredentialStore.ts"
import { Aborted, Failure, report } from "../internal/Failure.ts"
import * as Output from "../internal/Output.ts"
import { nullable } from "../internal/Records.ts"
import { Shell } from "../internal/Shell.ts"

const console = "https://tinker.thinkingmachines.ai"

/** Makes a URL clickable where that is possible. */
const link = (url: string) =>
  Effect.map(Shell, ({ isTerminal }) => (isTerminal ? `\u001b]8;;${url}\u001b\\${url}\u001b]8;;\u001b\\` : url))

/** Sends a request with a key that is not, or no longer, the stored one. */
const withKey = <A, E, R>(key: string, effect: Effect.Effect<A, E, R>) =>
  Effect.provide(effect, NodeTinker.layerConfig({ apiKey: Redacted.make(key), retryPolicy: RetryPolicy.none }))

/** The first line of what an error prints, without its prefix. */
const said = (error: TinkerError): string => (report(error).text.split("\n")[0] ?? "").replace("Error: ", "")

export const login: Handler<object> = () =>
  Effect.gen(function* () {
    const shell = yield* Shell
    if (Option.isSome(yield* CredentialStore.current))
      return yield* new Failure({
        message: "Already logged in",
        hint: "Run 'tinkerfx auth logout' before logging in again.",
      })
    const query = new URLSearchParams({
      new_key: "true",
      key_name: `tinker-cli-${shell.machine.split(".")[0]?.trim() || "unknown"}`,
    })
    yield* shell.out(`Create an API Key: ${yield* link(`${console}/keys?${query}`)}\n\n`)
    const key = Option.map(yield* shell.secret("Paste your API key: "), (text) => text.trim())
    if (Option.isNone(key)) return yield* new Aborted()
    if (key.value === "")
      return yield* new Failure({
        message: "The API key must not be empty",
        hint: "Paste the key that the page above shows, or pipe it into the command.",
      })
    const found = yield* withKey(
      key.value,
      Effect.flatMap(Transport, ({ call }) => call(Api.getApiKey, {})),
    ).pipe(
      Effect.mapError(
        (cause) =>
          new Failure({
            message: `Could not validate the API key: ${said(cause)}`,
            hint: "Check that the whole key was pasted, and TINKER_BASE_URL if it is set.",
            cause,
          }),
      ),
    )
    const { details, keyId, name, note } = found
    yield* CredentialStore.add(String(keyId), {
      type: "manual",
      key: key.value,
      name,
      note,
      details: {
        org_details: { name: details.orgDetails.name },
        user_details: { email: details.userDetails.email },
      },
    })
    yield* shell.out(
      `Logged in as ${details.userDetails.email} (${details.orgDetails.name}). Stored API key '${name}' as the default credential.\n`,
    )
  })

export const logout: Handler<object> = () =>
  Effect.gen(function* () {
    const { out } = yield* Shell
    const stored = yield* CredentialStore.current
    if (Option.isNone(stored))
      return yield* new Failure({
        message: "No default credential is stored",
        hint: "There is nothing to log out from. Run 'tinkerfx auth login' to log in.",
      })
    const { id, key } = stored.value
    const organization = key.details?.org_details.name ?? "unknown (not stored with this credential)"
    const hint = Effect.map(
      link(`${console}/keys/${encodeURIComponent(id)}`),
      (url) => `API key organization: ${organization}\nDelete api key here: ${url}`,
    )
    if (key.type === "manual") {
      yield* CredentialStore.remove(id)
      yield* out(`Removed credential '${key.name}'. The API key is still active.\n${yield* hint}\n`)
      return
    }
    const deleted = yield* Effect.either(
      withKey(
        key.key,
        Effect.flatMap(Transport, ({ call }) => call(Api.deleteApiKey, {})),
      ),
    )
    yield* CredentialStore.remove(id)
    if (Either.isLeft(deleted))
      return yield* new Failure({
        message: "Could not delete the API key on the server",
        hint: `Removed the local credential.\nAPI key name: ${key.name}\nAPI key ID: ${id}\n${yield* hint}`,
        cause: deleted.left,
      })
    yield* out(`Removed credential '${key.name}' and deleted its API key on the server.\n`)
  })

export const status: Handler<object> = () =>
  Effect.gen(function* () {
    const { out } = yield* Shell
    const accessible = Effect.gen(function* () {
      yield* out("Credentials available: yes\n")
      const { getServerCapabilities } = yield* ServiceClient.ServiceClient
      // A value, so that only missing credentials are a failure below.
      return yield* Effect.either(getServerCapabilities)
    })
    const answer = yield* accessible.pipe(
      Clients.provideOnce,
      Effect.tapError(() => out("Credentials available: no\n")),
      Effect.mapError(
        (cause) =>
          new Failure({
            message: "No Tinker credentials are available",
            hint: "Run 'tinkerfx auth login' or configure a Tinker credential.",
            cause,
          }),
      ),
    )
    yield* out(`Tinker accessible: ${Either.isRight(answer) ? "yes" : "no"}\n`)
    if (Either.isLeft(answer)) return yield* answer.left
  })

export const whoami: Handler<object> = (_, { format }) =>
  Effect.gen(function* () {
    const { whoami } = yield* RestClient.RestClient
    const { email, orgUrn, userUrn } = yield* whoami
    yield* Output.print(format, {
      json: () => ({ user_urn: userUrn, org_urn: nullable(orgUrn), email: nullable(email) }),
      table: () => ({
        columns: Output.properties,
        rows: [
          ["Email", Option.getOrElse(email, () => "N/A")],
          ["User", userUrn],
          ["Organization", Option.getOrElse(orgUrn, () => "N/A")],
        ],
      }),
    })
  }).pipe(Clients.provide)
