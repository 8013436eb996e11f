/**
 * The wire format of the vendor telemetry.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"
import { lazy } from "../../internal/util/Lazy.ts"
import * as Wire from "../../internal/codec/Wire.ts"

/**
 * The severity of an event.
 *
 * @since 0.1.0
 * @category telemetry
 */
export const Severity = Schema.Literal("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

/**
 * The type of {@link Severity}.
 *
 * @since 0.1.0
 * @category telemetry
 */
export type Severity = typeof Severity.Type

const common = {
  eventId: Schema.String,
  /** Counts the events of a session from 0. */
  eventSessionIndex: Schema.NonNegativeInt,
  severity: Severity,
  timestamp: Wire.Timestamp,
}

/**
 * A telemetry event.
 *
 * @since 0.1.0
 * @category telemetry
 */
export const TelemetryEvent = lazy(() =>
  Schema.Union(
    Wire.struct({ ...common, event: Schema.Literal("SESSION_START") }),
    Wire.struct({
      ...common,
      event: Schema.Literal("SESSION_END"),
      /** In the format `H:MM:SS.ffffff`. */
      duration: Schema.String,
    }),
    Wire.struct({
      ...common,
      event: Schema.Literal("UNHANDLED_EXCEPTION"),
      errorType: Schema.String,
      errorMessage: Schema.String,
      traceback: Wire.omitted(Schema.String),
    }),
    Wire.struct({
      ...common,
      event: Schema.Literal("GENERIC_EVENT"),
      eventName: Schema.String,
      eventData: Wire.withDefault(Wire.JsonObject, {}),
    }),
  ),
)

/**
 * The type of {@link TelemetryEvent}.
 *
 * @since 0.1.0
 * @category telemetry
 */
export type TelemetryEvent = typeof TelemetryEvent.Type

/**
 * A batch of events.
 *
 * @since 0.1.0
 * @category telemetry
 */
export const TelemetryRequest = lazy(() =>
  Wire.struct({
    events: Schema.Array(TelemetryEvent),
    platform: Schema.String,
    sdkVersion: Schema.String,
    sessionId: Schema.String,
    processUuid: Schema.String,
  }),
)

/**
 * The confirmation of a batch.
 *
 * @since 0.1.0
 * @category telemetry
 */
export const TelemetryResponse = lazy(() => Wire.struct({ status: Schema.Literal("accepted") }))
