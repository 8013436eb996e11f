import { expect, it } from "@effect/vitest"
import { Either, Schema } from "effect"
import * as Endpoint from "effect-tinker/Endpoint"
import { type Exchange, exchanges } from "./wire.ts"

/** What is compared of a request: bodies as parsed JSON, since key order and number formats carry no meaning. */
const comparable = ({ request }: Exchange) => ({
  method: request.method,
  path: request.path,
  query: request.query,
  body: request.body ?? undefined,
})

const sent = (rendered: Endpoint.Rendered) => ({
  method: rendered.method,
  path: `/api/v1/${rendered.path}`,
  query: [...new URLSearchParams(rendered.query)],
  body: rendered.body === undefined ? undefined : JSON.parse(String(rendered.body.bytes)),
})

/**
 * The input must give a request of that vector, and the recorded answer must be readable. `nth` picks among several
 * requests to the same endpoint.
 */
export const replay = <Input, Output>(
  file: string,
  endpoint: Endpoint.Endpoint<Input, Output>,
  input: NoInfer<Input>,
  check: (output: Output) => void = () => {},
  nth = 0,
): void =>
  it(`${file}: ${endpoint.operation}${nth > 0 ? ` (${nth})` : ""}`, () => {
    const request = sent(Either.getOrThrow(Endpoint.render(endpoint, input)))
    const recorded = exchanges(file).filter(
      (exchange) => exchange.request.method === request.method && exchange.request.path === request.path,
    )[nth]
    if (recorded === undefined) throw new Error(`${file} has no ${request.method} ${request.path}`)
    expect(request).toEqual(comparable(recorded))

    const method = recorded.request.headers["x-sdk-method"]
    if (method !== undefined) {
      const short = method.replace(/_(from|by)_tinker_path$/, "")
      expect([method, short]).toContain(endpoint.headers["x-sdk-method"])
    }
    if (endpoint.response.kind === "json" && recorded.response.status < 300) {
      check(Schema.decodeUnknownSync(endpoint.response.schema)(recorded.response.body))
    }
  })
