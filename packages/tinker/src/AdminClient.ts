/**
 * What an administrator asks: the audit log, usage and its cost, storage. Opens no session.
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
 * A moment. A text is not taken: without a zone it would mean something else on every machine.
 *
 * @since 0.1.0
 * @category models
 */
export type Moment = DateTime.DateTime | Date

/**
 * @since 0.1.0
 * @category models
 */
export interface AuditLogOptions {
  readonly eventType?: Endpoint.Input<typeof Api.getAuditLog>["eventType"]
  /** A day of UTC, `YYYY-MM-DD`, or the one that a moment is in. */
  readonly day?: Moment | string | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface BillingUsageOptions {
  readonly startingOn: Moment
  readonly endingBefore: Moment
}

/**
 * @since 0.1.0
 * @category models
 */
export interface CheckpointStorageOptions {
  /** Default: all projects. */
  readonly projectId?: string | undefined
}

/**
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
  /** As it is now. */
  readonly getCheckpointStorageUsage: (
    options?: CheckpointStorageOptions,
    callOptions?: CallOptions,
  ) => Effect.Effect<Billing.CheckpointStorage, TinkerError>
}

/**
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
 * @since 0.1.0
 * @category layers
 */
export const layer: Layer.Layer<AdminClient, never, Transport> = Layer.fresh(Layer.effect(AdminClient, make))
