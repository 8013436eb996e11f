/**
 * Reads an organization's administrative data: audit log, usage and cost, and checkpoint storage. Opens no session.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as DateTime from "effect/DateTime"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Api from "./protocol/Api.ts"
import type * as Billing from "./protocol/schemas/Billing.ts"
import type * as Endpoint from "./protocol/Endpoint.ts"
import { invalid, type Result } from "./internal/codec/Invalid.ts"
import type { TinkerError } from "./TinkerError.ts"
import { type CallOptions, Transport } from "./Transport.ts"

/**
 * A point in time. Strings are not accepted because a string without a time zone means a different time on each
 * machine.
 *
 * @since 0.1.0
 * @category models
 */
export type Moment = DateTime.DateTime | Date

/**
 * Options of `getAuditLog`.
 *
 * @since 0.1.0
 * @category models
 */
export interface AuditLogOptions {
  readonly eventType?: Endpoint.Input<typeof Api.getAuditLog>["eventType"]
  /** A UTC day as `YYYY-MM-DD`, or any moment within that day. */
  readonly day?: Moment | string | undefined
}

/**
 * Options of `getBillingUsage`: the start is included, the end is excluded.
 *
 * @since 0.1.0
 * @category models
 */
export interface BillingUsageOptions {
  readonly startingOn: Moment
  readonly endingBefore: Moment
}

/**
 * Options of `getCheckpointStorageUsage`.
 *
 * @since 0.1.0
 * @category models
 */
export interface CheckpointStorageOptions {
  /**
   * Restricts the result to one project.
   *
   * @default all projects
   */
  readonly projectId?: string | undefined
}

/**
 * The operations of `AdminClient`.
 *
 * @since 0.1.0
 * @category models
 */
export interface Service {
  readonly getAuditLog: (
    options?: AuditLogOptions,
    callOptions?: CallOptions,
  ) => Effect.Effect<typeof Billing.AuditLog.Type, TinkerError>
  readonly getBillingUsage: (
    options: BillingUsageOptions,
    callOptions?: CallOptions,
  ) => Effect.Effect<Billing.Usage, TinkerError>
  /** Returns the current storage usage. */
  readonly getCheckpointStorageUsage: (
    options?: CheckpointStorageOptions,
    callOptions?: CallOptions,
  ) => Effect.Effect<Billing.CheckpointStorage, TinkerError>
}

/**
 * The service tag of the administration client.
 *
 * @since 0.1.0
 * @category tags
 */
export class AdminClient extends Context.Tag("effect-tinker/AdminClient")<AdminClient, Service>() {}

const momentOf = (moment: Moment, path: string): Result<DateTime.Utc> =>
  (DateTime.isDateTime(moment) || moment instanceof Date ? DateTime.make(moment) : Option.none()).pipe(
    Option.match({
      onNone: () => invalid(path, "expected a DateTime or a valid Date"),
      onSome: (moment) => Either.right(DateTime.toUtc(moment)),
    }),
  )

const dayOf = (day: Moment | string, path: string): Result<string> =>
  typeof day === "string" ? Either.right(day) : Either.map(momentOf(day, path), DateTime.formatIsoDateUtc)

/**
 * Creates the client on top of a `Transport`.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make: Effect.Effect<Service, never, Transport> = Effect.map(Transport, ({ call }) =>
  AdminClient.of({
    getAuditLog: ({ day, eventType } = {}, callOptions) =>
      Effect.flatMap(
        day === undefined ? Either.right(undefined) : dayOf(day, `${Api.getAuditLog.operation}.day`),
        (day) => call(Api.getAuditLog, { eventType, day }, callOptions),
      ),
    getBillingUsage: (options, callOptions) =>
      Effect.flatMap(
        Either.all({
          startingOn: momentOf(options.startingOn, `${Api.getBillingUsage.operation}.startingOn`),
          endingBefore: momentOf(options.endingBefore, `${Api.getBillingUsage.operation}.endingBefore`),
        }),
        (span) => call(Api.getBillingUsage, span, callOptions),
      ),
    getCheckpointStorageUsage: (options = {}, callOptions) => call(Api.getCheckpointStorage, options, callOptions),
  }),
)

/**
 * Provides `AdminClient`. The layer is fresh: a layer memoized by reference would hand one tenant's credential to
 * another.
 *
 * @since 0.1.0
 * @category layers
 */
export const layer: Layer.Layer<AdminClient, never, Transport> = Layer.fresh(Layer.effect(AdminClient, make))
