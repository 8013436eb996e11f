/**
 * Defines the options of a server; all are optional.
 *
 * @since 0.1.0
 */
import * as Duration from "effect/Duration"
import type * as Redacted from "effect/Redacted"

/**
 * Options of a server.
 *
 * @since 0.1.0
 * @category models
 */
export interface ServerOptions {
  /**
   * The accepted API keys; each key sees only its own data. Without keys, any key is accepted and all clients share the
   * same data.
   */
  readonly apiKeys?: ReadonlyArray<Redacted.Redacted<string>> | undefined
  /** Makes clients exchange their key for a token with this lifetime, which is at least ten minutes. */
  readonly jwt?: Duration.DurationInput | undefined
  /** Directory for runs, futures and weights. Without it, they are lost when the process exits. */
  readonly dataDirectory?: string | undefined
  /** Time without any request after which a session and its models expire. Default: 5 minutes. */
  readonly sessionTimeout?: Duration.DurationInput | undefined
  /** How long results can be retrieved after their session ended. Default: 1 hour. */
  readonly resultRetention?: Duration.DurationInput | undefined
  /**
   * How long a session is known after it ended. Its runs without checkpoints are then forgotten, too; checkpoints, their
   * runs, usage and the audit log stay. Default: 7 days.
   */
  readonly sessionRetention?: Duration.DurationInput | undefined
  /**
   * How long a poll is held open, less than 45 seconds; at most 5 seconds while more than 1,000 are. Default: 30
   * seconds.
   */
  readonly hold?: Duration.DurationInput | undefined
  /** How long a request waits for a missing one with a smaller sequence number. Default: 5 minutes. */
  readonly gapTimeout?: Duration.DurationInput | undefined
  /** Maximum number of queued and running samples per key; more are answered with 429. Default: 4096. */
  readonly maxQueuedSamples?: number | undefined
  /** Maximum number of samples that are computed at once; tenants take turns. Default: 64. */
  readonly maxRunningSamples?: number | undefined
  /** Maximum size of all passes that were accepted but not run; more are answered with 429. Default: 512 MiB. */
  readonly maxQueuedBytes?: number | undefined
  /** Number of updates after which a model is written to disk; a restart repeats at most this many. Default: 20. */
  readonly snapshotEvery?: number | undefined
  /** Size above which clients are sent only the size of a result first, if they support it. Default: 16 MiB. */
  readonly metadataAbove?: number | undefined
  /** Total size of the recent results that are kept in memory; others are read from the store. Default: 32 MiB. */
  readonly resultsInMemory?: number | undefined
  /** Flags for `client/config`, by wire name, which override the server's own. */
  readonly flags?: Readonly<Record<string, boolean | number | string>> | undefined
  /** The public URL of this server, used in file URLs. Default: taken from the request. */
  readonly publicUrl?: string | undefined
}

/**
 * Server options with all defaults applied. Durations are in milliseconds.
 *
 * @since 0.1.0
 * @category models
 */
export interface Settings {
  readonly apiKeys: ReadonlyArray<Redacted.Redacted<string>>
  readonly jwt: number | undefined
  readonly dataDirectory: string | undefined
  readonly sessionTimeout: number
  readonly resultRetention: number
  readonly sessionRetention: number
  readonly hold: number
  readonly gapTimeout: number
  readonly maxQueuedSamples: number
  readonly maxRunningSamples: number
  readonly maxQueuedBytes: number
  readonly snapshotEvery: number
  readonly metadataAbove: number
  readonly resultsInMemory: number
  readonly flags: Readonly<Record<string, boolean | number | string>>
  readonly publicUrl: string | undefined
}

/**
 * Applies the defaults to server options and converts durations to milliseconds.
 *
 * @since 0.1.0
 * @category defaults
 */
export const settings = (options: ServerOptions): Settings => ({
  apiKeys: options.apiKeys ?? [],
  // The official SDK requests a token without pause if it lives less than 300 s.
  jwt: options.jwt === undefined ? undefined : Math.max(600_000, Duration.toMillis(options.jwt)),
  dataDirectory: options.dataDirectory,
  sessionTimeout: Duration.toMillis(options.sessionTimeout ?? "5 minutes"),
  resultRetention: Duration.toMillis(options.resultRetention ?? "1 hour"),
  sessionRetention: Duration.toMillis(options.sessionRetention ?? "7 days"),
  hold: Math.min(Duration.toMillis(options.hold ?? "30 seconds"), 44_000),
  gapTimeout: Duration.toMillis(options.gapTimeout ?? "5 minutes"),
  maxQueuedSamples: options.maxQueuedSamples ?? 4096,
  maxRunningSamples: Math.max(1, options.maxRunningSamples ?? 64),
  maxQueuedBytes: options.maxQueuedBytes ?? 512 * 2 ** 20,
  snapshotEvery: options.snapshotEvery ?? 20,
  metadataAbove: options.metadataAbove ?? 16 * 2 ** 20,
  resultsInMemory: options.resultsInMemory ?? 32 * 2 ** 20,
  flags: options.flags ?? {},
  publicUrl: options.publicUrl,
})
