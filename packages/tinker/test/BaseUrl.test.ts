import { describe, expect, it } from "@effect/vitest"
import { Either, FastCheck } from "effect"
import * as BaseUrl from "effect-tinker/http/BaseUrl"

const parse = (text: string) => Either.getOrThrow(BaseUrl.parse(text))
const problem = (text: string) => Either.getOrThrow(Either.flip(BaseUrl.parse(text, "TINKER_BASE_URL"))).message

describe("BaseUrl", () => {
  it("BaseUrl.parse normalizes different spellings of one server to the same value", () => {
    const spellings = ["http://host", "HTTP://HOST/", "http://Host:80", "http://host:80///", "http://host/./"]
    expect(new Set(spellings.map(parse))).toEqual(new Set(["http://host"]))
    expect(parse("https://host:443/services/tinker-prod//")).toBe("https://host/services/tinker-prod")
  })

  it("BaseUrl.parse keeps different path prefixes, schemes and ports distinct", () => {
    const servers = ["http://host/a", "http://host/b", "https://host/a", "http://host:8000/a", "http://host/A"]
    expect(new Set(servers.map(parse)).size).toBe(servers.length)
  })

  it("BaseUrl.make rejects a URL that is not normalized", () => {
    expect(() => BaseUrl.BaseUrl.make("HTTP://X/")).toThrow("normalized")
    expect(BaseUrl.BaseUrl.make("http://x")).toBe("http://x")
  })

  it("BaseUrl errors describe the problem and never include a password", () => {
    expect(problem("host:8000/x")).toBe("TINKER_BASE_URL: expected http: or https:, got host:")
    expect(problem("not a url")).toBe("TINKER_BASE_URL: not a valid URL; expected a URL like https://host/prefix")
    expect(problem("http://user:hunter2@host")).not.toContain("hunter2")
    expect(problem("http://host/?key=hunter2")).not.toContain("hunter2")
  })

  it.prop(
    "BaseUrl.parse is idempotent",
    [FastCheck.webUrl({ withQueryParameters: false, withFragments: false })],
    ([url]) => {
      const once = parse(url)
      expect(parse(once)).toBe(once)
      expect(parse(`${once}/`)).toBe(once)
    },
  )
})
