/**
 * Sends GET requests to hosts other than the Tinker server: without credentials or configured headers, and with a
 * secret URL.
 */
import * as FetchHttpClient from "@effect/platform/FetchHttpClient"
import * as HttpClient from "@effect/platform/HttpClient"
import type { HttpClientError } from "@effect/platform/HttpClientError"
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import type * as HttpClientResponse from "@effect/platform/HttpClientResponse"
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import * as Redacted from "effect/Redacted"
import * as Stream from "effect/Stream"
import { parseRetryAfter } from "../../RetryPolicy.ts"
import { InvalidInput, type RequestError, Unavailable, UnexpectedResponse } from "../../TinkerError.ts"
import { version } from "../../protocol/Version.ts"
import * as Answer from "../request/Refusal.ts"
import { shorten } from "../util/Text.ts"
import { redactor } from "../util/Redact.ts"

export const operation = "download"

const maxRedirects = 10

/** Removes URLs from text. The query contains the signature, which servers repeat when they reject it. */
const redactUrls = (urls: ReadonlyArray<URL>): ((text: string) => string) =>
  redactor(
    urls
      .flatMap((url) => [url.href, url.search, ...url.searchParams.values()])
      .filter((text) => text.length >= 8)
      .map(Redacted.make),
  )

export const parseUrl = (text: string | URL): Either.Either<URL, InvalidInput> => {
  const invalid = (problem: string) => Either.left(new InvalidInput({ path: `${operation}.url`, problem }))
  if (!URL.canParse(text)) return invalid("not a valid URL")
  const url = new URL(text)
  if (url.protocol !== "http:" && url.protocol !== "https:")
    return invalid(`expected http: or https:, got ${url.protocol}`)
  return url.username === "" && url.password === ""
    ? Either.right(url)
    : invalid("must not contain a user name or password")
}

type Response = HttpClientResponse.HttpClientResponse

export interface Answered {
  readonly response: Response
  /** Removes all URLs of this request chain from text. */
  readonly redact: (text: string) => string
}

export interface Storage {
  /** Returns the response of any status as soon as its headers arrive, following redirects. */
  readonly get: (url: URL, headers: Readonly<Record<string, string>>) => Effect.Effect<Answered, RequestError>
  /** Fails with the error for an unexpected response. */
  readonly refuse: (answered: Answered) => Effect.Effect<never, RequestError>
}

/** Releases the connection of a response whose body is not needed. */
export const letGo = (response: Response): Effect.Effect<void> =>
  Stream.runDrain(response.stream).pipe(
    Effect.interruptible,
    Effect.timeout(0),
    Effect.catchAllCause(() => Effect.void),
  )

/** Converts a client error to a request error. */
export const fold = (error: HttpClientError, redact: (text: string) => string): RequestError => {
  const { cause } = error
  const detail = shorten(redact(cause instanceof Error ? cause.message : (error.description ?? "")))
  if (Predicate.isTagged(cause, "UnsupportedEncoding") || Predicate.isTagged(cause, "CorruptBody")) {
    return new UnexpectedResponse({ operation, reason: "Encoding", detail })
  }
  return new Unavailable({
    operation,
    reason: Predicate.isTagged(cause, "NotSent") ? "Connect" : "Disconnected",
    detail,
  })
}

export const make = (client: HttpClient.HttpClient, timeout: Duration.Duration): Storage => {
  // The platform's spans would contain the complete URL.
  const quiet = HttpClient.withTracerDisabledWhen(client, () => true)

  const follow = (
    url: URL,
    headers: Readonly<Record<string, string>>,
    before: ReadonlyArray<URL>,
  ): Effect.Effect<Answered, RequestError> => {
    const urls = [...before, url]
    const redact = redactUrls(urls)
    return quiet.execute(HttpClientRequest.get(url, { headers })).pipe(
      Effect.mapError((error) => fold(error, redact)),
      Effect.flatMap((response) => {
        const location = response.headers["location"]
        if (response.status < 300 || response.status >= 400 || location === undefined) {
          return Effect.succeed({ response, redact })
        }
        const to = URL.canParse(location, url) ? new URL(location, url) : undefined
        const isWorse = to?.protocol !== "https:" && to?.protocol !== url.protocol
        // The response is read to make its connection reusable.
        const next =
          to === undefined || isWorse || urls.length > maxRedirects
            ? Effect.fail(
                new UnexpectedResponse({
                  operation,
                  reason: "Redirect",
                  status: Option.some(response.status),
                  detail: isWorse ? "redirect to an insecure URL" : "invalid redirect",
                }),
              )
            : follow(to, headers, urls)
        return Effect.zipRight(Effect.ignore(response.arrayBuffer), next)
      }),
    )
  }

  const within = <A>(effect: Effect.Effect<A, RequestError>): Effect.Effect<A, RequestError> =>
    effect.pipe(
      Effect.timeoutFail({
        duration: timeout,
        onTimeout: () =>
          new Unavailable({ operation, reason: "Timeout", detail: `no response in ${Duration.format(timeout)}` }),
      }),
      // fetch would follow redirects by itself, even from https to http.
      Effect.provideService(FetchHttpClient.RequestInit, { redirect: "manual" }),
    )

  return {
    get: (url, headers) =>
      within(
        follow(
          url,
          { accept: "*/*", "accept-encoding": "identity", "user-agent": `effect-tinker/${version}`, ...headers },
          [],
        ),
      ),
    refuse: ({ redact, response }) =>
      within(
        Effect.gen(function* () {
          const body = yield* Effect.orElseSucceed(response.arrayBuffer, () => new ArrayBuffer(0))
          const now = yield* Clock.currentTimeMillis
          const { headers, status } = response
          return yield* Effect.fail(
            Answer.toError(
              { status, headers, body: new Uint8Array(body), retryAfter: parseRetryAfter(headers, now) },
              { operation, attempts: 1, elapsed: Duration.zero, redact },
            ),
          )
        }),
      ),
  }
}
