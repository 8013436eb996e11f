/** Reads the files of one repository from the cache if they are known to be current, otherwise from the hub. */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { InvalidInput } from "effect-tinker/TinkerError"
import { TokenizerError } from "../TokenizerError.ts"
import * as TokenizerFiles from "../TokenizerFiles.ts"
import type { HubCache, Note, Place } from "./HubCache.ts"
import type { HubDownload } from "./HubDownload.ts"

/** Accepts `name` or `org/name`; the name becomes part of a URL. */
const isRepository = (name: string) => /^(?:[\w.-]+\/)?[\w.-]+$/.test(name) && !/(?:^|\/)\.+(?:\/|$)/.test(name)

export const checkNames = (repository: string, revision: string): Effect.Effect<void, InvalidInput> => {
  if (!isRepository(repository)) {
    const problem = `expected name or org/name, got ${JSON.stringify(repository)}`
    return new InvalidInput({ path: "repository", problem })
  }
  return /^[^\s]+$/.test(revision) && !/^\.+$/.test(revision)
    ? Effect.void
    : new InvalidInput({ path: "revision", problem: "expected a branch, tag or commit" })
}

const isCommit = (revision: string) => /^[0-9a-f]{40}$/.test(revision)

interface Contents {
  readonly commit: string | undefined
  readonly text: string | undefined
}

const textOf = (place: Place, bytes: Uint8Array): Effect.Effect<string, TokenizerError> =>
  Effect.try({
    try: () => new TextDecoder("utf-8", { fatal: true }).decode(bytes),
    catch: (cause) =>
      new TokenizerError({
        reason: "Invalid",
        tokenizer: place.repository,
        problem: `${place.file} is not valid UTF-8`,
        cause,
      }),
  })

const readOne = (cache: HubCache, download: HubDownload | undefined, place: Place) => {
  /** Returns the contents that a note refers to, or none if the cache lacks them. */
  const contentsOf = (note: Note): Effect.Effect<Option.Option<Contents>, TokenizerError> =>
    note.sha256 === null
      ? Effect.succeedSome({ commit: note.commit, text: undefined })
      : Effect.flatMap(
          cache.blob(place, note.sha256),
          Option.match({
            onNone: () => Effect.succeedNone,
            onSome: (bytes) => Effect.map(textOf(place, bytes), (text) => Option.some({ commit: note.commit, text })),
          }),
        )

  return Effect.gen(function* () {
    const note = yield* cache.note(place)
    const cached = Option.flatten(yield* Effect.transposeMapOption(note, contentsOf))
    if (Option.isSome(cached) && (download === undefined || isCommit(place.revision))) return cached.value
    if (download === undefined) {
      return yield* new TokenizerError({
        reason: "Offline",
        tokenizer: place.repository,
        problem: `${place.file} of ${place.revision} is not in the cache, and downloads are turned off`,
      })
    }
    // Missing or damaged contents are downloaded again even if the hub reports no change.
    const fresh = yield* Effect.either(download.refresh(place, Option.isSome(cached) ? note : Option.none()))
    if (fresh._tag === "Left") {
      if (fresh.left.reason !== "Unavailable" || Option.isNone(cached)) return yield* fresh.left
      yield* Effect.logWarning(`${fresh.left.message}; using the cached file`)
      return cached.value
    }
    yield* cache.setNote(place, fresh.right)
    const contents = yield* contentsOf(fresh.right)
    return yield* Option.match(contents, {
      onSome: Effect.succeed,
      onNone: () =>
        new TokenizerError({
          reason: "Storage",
          tokenizer: place.repository,
          problem: `${place.file} was downloaded but is missing from the cache`,
        }),
    })
  })
}

export const read = (
  cache: HubCache,
  baseUrl: string,
  download: HubDownload | undefined,
  repository: string,
  revision: string,
): Effect.Effect<TokenizerFiles.TokenizerFiles, TokenizerError> =>
  Effect.suspend(() => {
    // The first file determines the commit; the other files are read from the same commit.
    let at = revision
    return TokenizerFiles.collect(repository, (file) =>
      Effect.map(readOne(cache, download, { baseUrl, repository, revision: at, file }), ({ commit, text }) => {
        at = commit ?? at
        return text
      }),
    )
  })
