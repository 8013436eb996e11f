/**
 * What a server can be told, all of it optional.
 *
 * @since 0.1.0
 */
import * as Duration from "effect/Duration"
import type * as Redacted from "effect/Redacted"

/**
 * @since 0.1.0
 * @category models
 */
export interface ServerOptions {
  /** With keys, only they open the door, and none sees what another made. Without, every key is welcome and the same. */
  readonly apiKeys?: ReadonlyArray<Redacted.Redacted<string>> | undefined
  /** Ask clients to exchange their key for a token that lives this long; at least ten minutes. */
  readonly jwt?: Duration.DurationInput | undefined
  /** Runs, futures and weights are kept here. Without it they end with the process. */
  readonly dataDirectory?: string | undefined
  /** A session whose client is not heard of for so long is over, with its models. 5 minutes. */
  readonly sessionTimeout?: Duration.DurationInput | undefined
  /** How long a poll is held; below 45 seconds. 30 seconds. */
  readonly hold?: Duration.DurationInput | undefined
  /** How long a request waits for one with a smaller number that has not come. 5 minutes. */
  readonly gapTimeout?: Duration.DurationInput | undefined
  /** At most so many samples wait or run for one key; more get 429. 4096. */
  readonly maxQueuedSamples?: number | undefined
  /** A model is written to disk after so many updates, so that a restart need not repeat more than these. 20. */
  readonly snapshotEvery?: number | undefined
  /** Results of which clients are told the size first. 16 MiB. */
  readonly metadataAbove?: number | undefined
  /** So many bytes of the newest results are held in memory; others are read from the store. 32 MiB. */
  readonly resultsInMemory?: number | undefined
  /** Flags for `client/config`, by the names of the wire, in place of the server's own. */
  readonly flags?: Readonly<Record<string, boolean | number | string>> | undefined
  /** Where clients find this server, for the addresses of files. By default what the request says. */
  readonly publicUrl?: string | undefined
}

/**
 * With all of the defaults.
 *
 * @since 0.1.0
 * @category models
 */
export interface Settings {
  readonly apiKeys: ReadonlyArray<Redacted.Redacted<string>>
  readonly jwt: number | undefined
  readonly dataDirectory: string | undefined
  readonly sessionTimeout: number
  readonly hold: number
  readonly gapTimeout: number
  readonly maxQueuedSamples: number
  readonly snapshotEvery: number
  readonly metadataAbove: number
  readonly resultsInMemory: number
  readonly flags: Readonly<Record<string, boolean | number | string>>
  readonly publicUrl: string | undefined
}

/**
 * Durations are milliseconds here.
 *
 * @since 0.1.0
 * @category defaults
 */
export const settings = (options: ServerOptions): Settings => ({
  apiKeys: options.apiKeys ?? [],
  // The reference asks again without pause for a token that lives less than 300 s.
  jwt: options.jwt === undefined ? undefined : Math.max(600_000, Duration.toMillis(options.jwt)),
  dataDirectory: options.dataDirectory,
  sessionTimeout: Duration.toMillis(options.sessionTimeout ?? "5 minutes"),
  hold: Math.min(Duration.toMillis(options.hold ?? "30 seconds"), 44_000),
  gapTimeout: Duration.toMillis(options.gapTimeout ?? "5 minutes"),
  maxQueuedSamples: options.maxQueuedSamples ?? 4096,
  snapshotEvery: options.snapshotEvery ?? 20,
  metadataAbove: options.metadataAbove ?? 16 * 2 ** 20,
  resultsInMemory: options.resultsInMemory ?? 32 * 2 ** 20,
  flags: options.flags ?? {},
  publicUrl: options.publicUrl,
})
