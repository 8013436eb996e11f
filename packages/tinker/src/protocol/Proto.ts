/**
 * The generated protobuf messages of the Tinker API, for servers and tests. Clients use `TrainingResult`,
 * `SampleResult` and `Loss.PreparedBatch` instead.
 *
 * @since 0.1.0
 */

/**
 * The generated messages.
 *
 * @since 0.1.0
 * @category messages
 */
export * from "../internal/codec/proto/tinker_public_pb.ts"
