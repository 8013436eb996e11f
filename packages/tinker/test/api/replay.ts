import { expect, it } from "@effect/vitest"
import { Either, Schema } from "effect"
import * as Endpoint from "effect-tinker/protocol/Endpoint"
import { version } from "effect-tinker/protocol/Version"
import { type Exchange, exchanges } from "./wire.ts"

/** The compared parts of a request: bodies as parsed JSON, since key order and number formats carry no meaning. */
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

/** Headers that the caller of an endpoint adds to each call. */
const perCall = [
  "x-tinker-request-type",
  "x-tinker-request-iteration",
  "x-tinker-create-promise-roundtrip-time",
  "x-tinker-weights-access-token",
]

/** The headers that an endpoint itself adds; the reference's two names of one method count as the same. */
const headers = (all: Readonly<Record<string, string>>) =>
  Object.fromEntries(
    Object.entries(all).flatMap(([name, value]) => {
      if (!/^x-(sdk|tinker)-/.test(name) || perCall.includes(name)) return []
      if (name === "x-sdk-version") return [[name, value === version ? "0.36.0" : value]]
      return [[name, value.replace(/_(from|by)_tinker_path$/, "")]]
    }),
  )

/**
 * Checks that the input renders to a request in the recording and that the recorded response decodes. `nth` picks among
 * several requests to the same endpoint.
 */
export const replay = <Input, Output>(
  file: string,
  endpoint: Endpoint.Endpoint<Input, Output>,
  input: NoInfer<Input>,
  check: (output: Output) => void = () => {},
  nth = 0,
): void =>
  it(`${file}: ${endpoint.operation}${nth > 0 ? ` (${nth})` : ""} renders the recorded request`, () => {
    const request = sent(Either.getOrThrow(Endpoint.render(endpoint, input)))
    const recorded = exchanges(file).filter(
      (exchange) => exchange.request.method === request.method && exchange.request.path === request.path,
    )[nth]
    if (recorded === undefined) throw new Error(`${file} has no ${request.method} ${request.path}`)
    expect(request).toEqual(comparable(recorded))

    // Version 0.25.0 had none of these headers.
    if (!file.startsWith("vectors-0.25.0")) expect(headers(endpoint.headers)).toEqual(headers(recorded.request.headers))
    if (endpoint.response.kind === "json" && recorded.response.status < 300) {
      check(Schema.decodeUnknownSync(endpoint.response.schema)(recorded.response.body))
    }
  })
