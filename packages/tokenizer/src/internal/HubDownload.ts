/** Downloads one file of a repository into the cache. */
import * as FetchHttpClient from "@effect/platform/FetchHttpClient"
import * as HttpClient from "@effect/platform/HttpClient"
import type { HttpClientError } from "@effect/platform/HttpClientError"
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import type { HttpClientResponse } from "@effect/platform/HttpClientResponse"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Schedule from "effect/Schedule"
import * as Stream from "effect/Stream"
import { TokenizerError } from "../TokenizerError.ts"
import type { Progress } from "../TokenizerHub.ts"
import { type HubCache, type Note, type Place, sha256 } from "./HubCache.ts"

export interface Options {
  readonly baseUrl: URL
  readonly token: Redacted.Redacted<string> | undefined
  readonly onProgress: (progress: Progress) => Effect.Effect<void>
  readonly maxFileBytes: number
  readonly timeout: Duration.DurationInput
}

export interface HubDownload {
  /** Returns the current state. Downloads the file only if it differs from `known`. */
  readonly refresh: (place: Place, known: Option.Option<Note>) => Effect.Effect<Note, TokenizerError>
}

/** The last response of the hub itself, and the response with the contents. */
interface Answer {
  readonly hub: HttpClientResponse
  readonly response: HttpClientResponse
}

const maxRedirects = 10

const header = (response: HttpClientResponse, ...names: ReadonlyArray<string>): string | undefined =>
  names.map((name) => response.headers[name]).find((value) => value !== undefined)

const bare = (etag: string) => etag.replace(/^W\//, "").replaceAll('"', "")

/** The hub announces large files before it redirects to their storage. */
const etagOf = (response: HttpClientResponse) => {
  const etag = header(response, "x-linked-etag", "etag")
  return etag === undefined ? undefined : bare(etag)
}

const lengthOf = ({ hub, response }: Answer): number | undefined => {
  const encoded = header(response, "content-encoding") !== undefined
  const length = header(hub, "x-linked-size") ?? (encoded ? undefined : header(response, "content-length"))
  return length !== undefined && /^\d+$/.test(length) ? Number(length) : undefined
}

/** Describes an error without exposing it: it holds the request headers and temporarily valid signed URLs. */
const describe = (error: HttpClientError): string => {
  const cause = error.cause instanceof Error ? error.cause.message : undefined
  return [error.reason, cause].filter((word) => word !== undefined && word !== "").join(", ")
}

const retries = Schedule.intersect(Schedule.exponential("500 millis"), Schedule.recurs(3))

export const make = (client: HttpClient.HttpClient, cache: HubCache, options: Options): HubDownload => {
  const quiet = HttpClient.withTracerDisabledWhen(client, () => true)

  const failure = ({ file, repository }: Place, reason: TokenizerError["reason"], problem: string) =>
    new TokenizerError({ reason, tokenizer: repository, problem: `failed to download ${file}: ${problem}` })

  const urlOf = ({ file, repository, revision }: Place) =>
    new URL(`${repository}/resolve/${encodeURIComponent(revision)}/${file}`, options.baseUrl)

  const send = (place: Place, url: URL, known: Option.Option<Note>, atHub: boolean) => {
    const etag = Option.getOrUndefined(known)?.etag
    const request = HttpClientRequest.get(url).pipe(
      // Without compression, so that the announced length is that of the file.
      HttpClientRequest.setHeader("accept-encoding", "identity"),
      atHub && etag !== undefined ? HttpClientRequest.setHeader("if-none-match", `"${etag}"`) : (same) => same,
      atHub && options.token !== undefined
        ? HttpClientRequest.bearerToken(Redacted.value(options.token))
        : (same) => same,
    )
    return quiet.execute(request).pipe(
      Effect.provideService(FetchHttpClient.RequestInit, { redirect: "manual" }),
      Effect.mapError((error) => failure(place, "Unavailable", describe(error))),
      Effect.timeoutFail({
        duration: options.timeout,
        onTimeout: () => failure(place, "Unavailable", "timed out while waiting for an answer"),
      }),
    )
  }

  /** Discards the body of a response. */
  const drop = (response: HttpClientResponse) => Effect.ignore(Stream.runDrain(Stream.take(response.stream, 1)))

  const follow = (
    place: Place,
    url: URL,
    known: Option.Option<Note>,
    from: Answer | undefined,
    redirects: number,
  ): Effect.Effect<Answer, TokenizerError> =>
    Effect.gen(function* () {
      // After a redirect away from the hub the credential is never sent again, not even on the way back.
      const atHub = from === undefined || from.hub === from.response
      const trusted = atHub && url.origin === options.baseUrl.origin
      const response = yield* send(place, url, known, trusted)
      const answer: Answer = { hub: trusted ? response : (from?.hub ?? response), response }
      const location = header(response, "location")
      if (response.status < 300 || response.status >= 400 || location === undefined) return answer
      if (isUnchanged(answer, known)) return answer
      yield* drop(response)
      if (redirects === maxRedirects) return yield* failure(place, "Unavailable", `more than ${maxRedirects} redirects`)
      if (!URL.canParse(location, url)) return yield* failure(place, "Unavailable", "invalid redirect location")
      const next = new URL(location, url)
      if (next.protocol !== "https:" && next.protocol !== url.protocol) {
        return yield* failure(place, "Unavailable", `redirect from ${url.protocol} to ${next.protocol}`)
      }
      return yield* follow(place, next, known, answer, redirects + 1)
    })

  const isUnchanged = ({ hub, response }: Answer, known: Option.Option<Note>) => {
    const { etag, sha256: hash } = Option.getOrElse(known, (): Note => ({ sha256: null }))
    if (typeof hash !== "string" || etag === undefined || response.status >= 400) return false
    return response.status === 304 || etagOf(hub) === etag
  }

  const store = (place: Place, answer: Answer): Effect.Effect<string, TokenizerError> =>
    Effect.scoped(
      Effect.gen(function* () {
        const damaged = (problem: string) => failure(place, "Damaged", problem)
        const total = lengthOf(answer)
        const tooLarge = damaged(`larger than ${options.maxFileBytes} bytes`)
        if (total !== undefined && total > options.maxFileBytes) {
          yield* drop(answer.response)
          return yield* tooLarge
        }
        const scratch = yield* cache.scratch(place)
        let received = 0
        yield* answer.response.stream.pipe(
          Stream.mapError((error) => failure(place, "Unavailable", describe(error))),
          Stream.timeoutFail(() => failure(place, "Unavailable", "the download stalled"), options.timeout),
          Stream.runForEach((bytes) => {
            received += bytes.length
            if (received > options.maxFileBytes) return tooLarge
            const { file, repository } = place
            const progress = { repository, file, receivedBytes: received, totalBytes: Option.fromNullable(total) }
            return Effect.zipRight(scratch.write(bytes), options.onProgress(progress))
          }),
        )
        const contents = yield* scratch.contents
        if (total !== undefined && contents.length !== total) {
          return yield* damaged(`received ${contents.length} of ${total} bytes`)
        }
        const hash = yield* sha256(contents)
        const announced = etagOf(answer.hub)
        // Only large files have the SHA-256 of their contents as etag; others have a git hash.
        if (announced !== undefined && /^[0-9a-f]{64}$/.test(announced) && announced !== hash) {
          return yield* damaged("the hash differs from the announced one")
        }
        yield* scratch.keep(hash)
        return hash
      }),
    )

  const attempt = (place: Place, known: Option.Option<Note>): Effect.Effect<Note, TokenizerError> =>
    Effect.gen(function* () {
      const answer = yield* follow(place, urlOf(place), known, undefined, 0)
      const { hub, response } = answer
      const commit = header(hub, "x-repo-commit")
      const etag = etagOf(hub)
      const described = { ...(commit === undefined ? {} : { commit }), ...(etag === undefined ? {} : { etag }) }
      if (isUnchanged(answer, known) && Option.isSome(known)) {
        yield* drop(response)
        return { ...known.value, ...described, etag: known.value.etag }
      }
      if (response.status >= 200 && response.status < 300) {
        return { ...described, sha256: yield* store(place, answer) }
      }
      yield* drop(response)
      return yield* outcomeOf(place, answer, described)
    })

  const outcomeOf = (place: Place, { hub, response: { status } }: Answer, described: Omit<Note, "sha256">) => {
    const code = header(hub, "x-error-code")
    if (status === 404 && (code === "RepoNotFound" || code === "RevisionNotFound")) {
      return Effect.fail(failure(place, "NotFound", `no such ${code === "RepoNotFound" ? "repository" : "revision"}`))
    }
    if (status === 404) return Effect.succeed<Note>({ ...described, sha256: null })
    if (status === 401 || status === 403) {
      const hint =
        options.token === undefined ? "a token is required, or the name is wrong" : "this token has no access"
      return Effect.fail(failure(place, "Unauthorized", `${hint} (status ${status})`))
    }
    return Effect.fail(failure(place, "Unavailable", `the hub answered with status ${status}`))
  }

  return {
    refresh: (place, known) =>
      Effect.retry(attempt(place, known), { schedule: retries, while: (error) => error.reason === "Unavailable" }),
  }
}
