import { describe, expect, it } from "@effect/vitest"
import { ConfigProvider, Effect, Either, Inspectable, Option, Redacted } from "effect"
import { TinkerConfig } from "effect-tinker"
import * as Proxy from "effect-tinker/http/Proxy"

const apiKey = Redacted.make("tml-secret-key")
const url = (text: string) => Redacted.make(text)
const proxied = (proxies: Proxy.Proxies, address: string) =>
  Option.getOrUndefined(Option.map(Proxy.select(proxies, new URL(address)), Redacted.value))

const environment = (variables: Record<string, string>, overrides?: TinkerConfig.Overrides) =>
  Effect.withConfigProvider(
    TinkerConfig.fromEnvironment(overrides),
    ConfigProvider.fromMap(new Map(Object.entries({ TINKER_API_KEY: "tml-secret-key", ...variables }))),
  )

describe("Proxy", () => {
  it("isExcepted compares hosts, names below them, addresses and ports", () => {
    const cases: ReadonlyArray<readonly [entry: string, address: string, expected: boolean]> = [
      ["example.com", "https://example.com", true],
      ["example.com", "https://EXAMPLE.com.", true],
      ["example.com", "https://a.b.example.com", true],
      ["example.com", "https://notexample.com", false],
      [".example.com", "https://a.example.com", true],
      [".example.com", "https://example.com", true],
      ["*.example.com", "https://a.example.com", true],
      ["example.com:8443", "https://example.com:8443", true],
      ["example.com:8443", "https://example.com", false],
      ["example.com:443", "https://example.com", true],
      ["example.com:80", "http://example.com", true],
      ["127.0.0.1", "http://127.0.0.1:8000", true],
      ["127.0.0.1", "http://127.0.0.10", false],
      ["::1", "http://[::1]:8000", true],
      ["[::1]", "http://[::1]:8000", true],
      ["[::1]:8000", "http://[::1]:8000", true],
      ["[::1]:8001", "http://[::1]:8000", false],
      ["*", "https://anything", true],
      ["", "https://example.com", false],
      [".", "https://example.com", false],
    ]
    for (const [entry, address, expected] of cases)
      expect([entry, address, Proxy.isExcepted([entry], new URL(address))]).toEqual([entry, address, expected])
  })

  it("parse completes a URL, and its messages do not show it", () => {
    const parse = (text: string) => Either.merge(Either.map(Proxy.parse(url(text)), Redacted.value))
    expect(parse("proxy:3128")).toBe("http://proxy:3128/")
    expect(parse("https://user:p%40ss@Proxy")).toBe("https://user:p%40ss@proxy/")
    expect(parse("socks5://user:secret@proxy")).toBe("expected http: or https:, got socks5:")
    expect(parse("http://user:secret@pro xy")).toBe("not a valid URL; expected a URL like http://host:port")
    expect(parse("http://user:secret@proxy/path")).toBe("must not contain a path, query or fragment")
  })
})

describe("proxies of TinkerConfig", () => {
  it.effect("are read from the variables in upper and lower case, and lower case takes precedence", () =>
    Effect.gen(function* () {
      const upper = yield* environment({
        HTTPS_PROXY: "http://user:secret@secure:1",
        HTTP_PROXY: "plain:2",
        NO_PROXY: "a.example, .b.example other",
      })
      expect(proxied(upper.proxies, "https://host")).toBe("http://user:secret@secure:1/")
      expect(proxied(upper.proxies, "http://host")).toBe("http://plain:2/")
      for (const name of ["a.example", "x.b.example", "other", "localhost", "127.0.0.1", "[::1]"])
        expect([name, proxied(upper.proxies, `https://${name}`)]).toEqual([name, undefined])
      expect(Inspectable.toStringUnknown(upper) + JSON.stringify(upper)).not.toContain("secret@")
      const lower = yield* environment({ HTTPS_PROXY: "upper", https_proxy: "lower", no_proxy: "*" })
      expect(lower.proxies.https).toEqual(Option.some(url("http://lower/")))
      expect(proxied(lower.proxies, "https://host")).toBeUndefined()
    }),
  )

  it.effect("given as an option replace those of the environment, also for the machine itself", () =>
    Effect.gen(function* () {
      const variables = { HTTPS_PROXY: "upper", NO_PROXY: "*" }
      const given = yield* environment(variables, { proxy: { https: url("given"), except: ["direct"] } })
      expect(proxied(given.proxies, "https://127.0.0.1")).toBe("http://given/")
      expect(proxied(given.proxies, "https://direct")).toBeUndefined()
      const none = yield* environment(variables, { proxy: {} })
      expect(none.proxies).toEqual(Proxy.none)
    }),
  )

  it.effect("that cannot be used are an error that names the setting and shows no secret", () =>
    Effect.gen(function* () {
      const message = (values: TinkerConfig.Values) =>
        Either.match(TinkerConfig.make(values), { onLeft: (error) => error.message, onRight: () => "" })
      expect(message({ apiKey, proxy: { https: url("socks5://u:secret@p") } })).toBe(
        "proxy.https: expected http: or https:, got socks5:",
      )
      expect(message({ apiKey, proxy: { http: "plain" as never } })).toBe(
        'proxy.http: expected Redacted.make("…"), got a string',
      )
      const error = yield* Effect.flip(environment({ https_proxy: "ftp://u:secret@p" }))
      expect(error.message).toBe("HTTPS_PROXY: expected http: or https:, got ftp:")
    }),
  )

  it.effect("are refused where they would see the key: for a base URL without TLS", () =>
    Effect.gen(function* () {
      const variables = { HTTP_PROXY: "proxy", TINKER_BASE_URL: "http://machine:8000" }
      const error = yield* Effect.flip(environment(variables))
      expect(error).toMatchObject({ _tag: "InvalidConfig", setting: "HTTP_PROXY" })
      expect(error.message).toBe(
        "HTTP_PROXY: the proxy would see the key, because TINKER_BASE_URL is not https; use https, or add machine:8000 to NO_PROXY",
      )
      yield* environment({ ...variables, NO_PROXY: "machine:8000" })
      yield* environment({ ...variables, TINKER_BASE_URL: "https://machine:8000" })
      yield* environment({ ...variables, TINKER_BASE_URL: "http://127.0.0.1:8000" })
      const values = { apiKey, baseUrl: "http://127.0.0.1:8000", proxy: { http: url("proxy") } }
      expect(Either.isLeft(TinkerConfig.make(values))).toBe(true)
    }),
  )
})
