/**
 * The protobuf messages of the Tinker API, generated. For servers and tests; clients hold `TrainingResult`,
 * `SampleResult` and `Loss.PreparedBatch` instead.
 *
 * @since 0.1.0
 */

/**
 * @since 0.1.0
 * @category messages
 */
export * from "../internal/codec/proto/tinker_public_pb.ts"
