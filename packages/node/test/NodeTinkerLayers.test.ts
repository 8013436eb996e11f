// Checks what the layers create, and how often, from a scripted server behind a real socket.
import { HttpClient } from "@effect/platform"
import { describe, expect, it } from "@effect/vitest"
import { NodeTinker } from "@effect-tinker/node"
import { ConfigProvider, Context, Effect, Layer, Option, Redacted, type Scope } from "effect"
import { RateLimiter, ServiceClient, type TinkerConfig, TinkerTenants } from "effect-tinker"
import * as Api from "effect-tinker/protocol/Api"
import * as Host from "effect-tinker/http/Host"
import * as Transport from "effect-tinker/Transport"
import * as ScriptedServer from "effect-tinker/testing/ScriptedServer"
import { handledBy, listen } from "./support/ScriptedSocket.ts"

interface Listening {
  readonly url: string
  readonly scripted: ScriptedServer.Service
  /** Client ports by API key, one per connection. */
  readonly ports: Map<string, Set<number>>
  /** Ports of open connections. */
  readonly open: Set<number>
}

const listening: Effect.Effect<Listening, never, Scope.Scope> = Effect.gen(function* () {
  const scripted = yield* ScriptedServer.make()
  const ports = new Map<string, Set<number>>()
  const open = new Set<number>()
  const url = yield* listen(
    (request) => {
      const key = String(request.headers["x-api-key"])
      ports.set(key, (ports.get(key) ?? new Set()).add(request.port))
      return handledBy(scripted, request)
    },
    (socket) => {
      const port = socket.remotePort ?? 0
      open.add(port)
      socket.on("close", () => open.delete(port))
    },
  )
  return { url, scripted, ports, open }
})

const key = "tml-key"
const values = (baseUrl: string): TinkerConfig.Values => ({ baseUrl, apiKey: Redacted.make(key) })

const health = Effect.flatMap(Transport.Transport, ({ call }) => call(Api.health, {}))
const operations = (scripted: ScriptedServer.Service) =>
  Effect.map(scripted.requests, (seen) => seen.map(({ operation }) => operation))

/** Waits for something that depends on the operating system. */
const until = (condition: () => boolean): Effect.Effect<void> =>
  Effect.suspend(() =>
    condition()
      ? Effect.void
      : Effect.zipRight(
          Effect.async<void>((resume) => void setImmediate(() => resume(Effect.void))),
          until(condition),
        ),
  )

describe("NodeTinker.layer", () => {
  it.scopedLive("NodeTinker.layer builds one configuration, HTTP client and transport", () =>
    Effect.gen(function* () {
      const { open, ports, scripted, url } = yield* listening
      const read: Array<string> = []
      const environment = ConfigProvider.mapInputPath(
        ConfigProvider.fromMap(
          new Map([
            ["TINKER_API_KEY", key],
            ["TINKER_BASE_URL", url],
          ]),
        ),
        (path) => {
          read.push(path)
          return path
        },
      )
      // With one connection per purpose, requests wait for it.
      const http = { connections: { session: 1, rest: 1 }, keepAliveTimeout: "1 minute" } as const
      yield* Effect.gen(function* () {
        // Building the layer sends nothing.
        expect(yield* scripted.requests).toEqual([])
        expect(open.size).toBe(0)
        expect(read.filter((name) => name === "TINKER_API_KEY").length).toBe(1)

        const { call } = yield* Transport.Transport
        yield* call(Api.getServerCapabilities, {})
        yield* (yield* ServiceClient.ServiceClient).getServerCapabilities
        const client = yield* HttpClient.HttpClient
        yield* Effect.flatMap(
          client.get(`${url}/api/v1/healthz`, { headers: { "x-api-key": key } }),
          ({ text }) => text,
        )
        // One transport requests the flags once, and one client has one connection per purpose.
        expect(yield* operations(scripted)).toEqual([
          "client/config",
          "get_server_capabilities",
          "get_server_capabilities",
          "healthz",
        ])
        expect(ports.get(key)?.size).toBe(2)
      }).pipe(Effect.provide(NodeTinker.layerConfig({}, { http })), Effect.withConfigProvider(environment))
      yield* until(() => open.size === 0)
    }),
  )

  it.scopedLive("NodeTinker.layer applies the session options and provides the Node host", () =>
    Effect.gen(function* () {
      const { scripted, url } = yield* listening
      yield* Effect.gen(function* () {
        yield* (yield* ServiceClient.ServiceClient).session
        const { platform, zstd } = yield* Host.Host
        expect(platform.runtime).toBe("node")
        expect(Option.isSome(yield* zstd)).toBe(true)
      }).pipe(Effect.provide(NodeTinker.layer(values(url), { session: { displayName: "a run" } })))
      const [created] = yield* scripted.requestsTo("create_session")
      expect(created?.json).toMatchObject({ display_name: "a run" })
      expect((yield* scripted.sessions).map(({ state }) => state)).toEqual(["success"])
    }),
  )

  it.scopedLive("layers that are built together share the rate limiter but no connections", () =>
    Effect.gen(function* () {
      const { ports, url } = yield* listening
      const tags = ["one", "other"].map((name) => ({
        tag: Context.GenericTag<Context.Context<NodeTinker.NodeTinker>>(name),
        layer: NodeTinker.layer({ ...values(url), apiKey: Redacted.make(`tml-${name}`) }),
      }))
      const [one, other] = yield* Effect.all(tags.map(({ tag }) => tag)).pipe(
        Effect.tap((contexts) => Effect.forEach(contexts, (context) => Effect.provide(health, context))),
        Effect.provide(
          Layer.mergeAll(
            Layer.empty,
            ...tags.map(({ layer, tag }) => Layer.map(layer, (context) => Context.make(tag, context))),
          ),
        ),
      )
      if (one === undefined || other === undefined) return expect.fail("not built")
      expect(Context.get(one, RateLimiter.RateLimiter)).toBe(Context.get(other, RateLimiter.RateLimiter))
      expect([...ports.keys()]).toEqual(["tml-one", "tml-other"])
      const [first = new Set(), second = new Set()] = ports.values()
      expect([...first].filter((port) => second.has(port))).toEqual([])
    }),
  )
})

describe("NodeTinker tenants", () => {
  const ways = {
    layerTenants: NodeTinker.layerTenants<never>,
    makeTenants: (options: NodeTinker.TenantsOptions<never, never>) =>
      Layer.provide(Layer.scoped(TinkerTenants.TinkerTenants, NodeTinker.makeTenants(options)), RateLimiter.layer),
  }

  it.scopedLive.each(["layerTenants", "makeTenants"] as const)(
    "%s gives each tenant its own connections and closes them with it",
    (way) =>
      Effect.gen(function* () {
        const { open, ports, scripted, url } = yield* listening
        const hosts: Array<string> = []
        const work = Effect.gen(function* () {
          hosts.push((yield* Host.Host).platform.runtime)
          yield* health
          return yield* (yield* ServiceClient.ServiceClient).session
        })
        const portsOf = (tenant: string) => [...(ports.get(`tml-${tenant}`) ?? [])]
        const isOpen = (tenant: string) => portsOf(tenant).some((port) => open.has(port))
        yield* Effect.gen(function* () {
          for (const tenant of ["a", "b", "a", "b"]) yield* TinkerTenants.provide(tenant)(work)
          expect(portsOf("a").filter((port) => portsOf("b").includes(port))).toEqual([])
          expect(isOpen("a")).toBe(true)
          yield* TinkerTenants.invalidate("a")
          yield* until(() => !isOpen("a"))
          expect(isOpen("b")).toBe(true)
        }).pipe(
          Effect.provide(
            ways[way]({
              lookup: (tenant) => Effect.succeed({ baseUrl: url, apiKey: Redacted.make(`tml-${tenant}`) }),
              session: (displayName) => ({ displayName }),
              // Idle connections must not be closed by their timeout.
              http: { keepAliveTimeout: "1 minute" },
            }),
          ),
        )
        yield* until(() => open.size === 0)
        expect(hosts).toEqual(["node", "node", "node", "node"])
        const names = (yield* scripted.requestsTo("create_session")).map(({ headers, json }) => [
          headers["x-api-key"],
          (json as { readonly display_name: string }).display_name,
        ])
        expect(names).toEqual([
          ["tml-a", "a"],
          ["tml-b", "b"],
        ])
      }),
  )
})
