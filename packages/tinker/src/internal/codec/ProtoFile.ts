import { createFileRegistry } from "@bufbuild/protobuf"
import type { GenFile } from "@bufbuild/protobuf/codegenv2"
import type { FileDescriptorProto } from "@bufbuild/protobuf/wkt"

/**
 * Creates a file descriptor from the JSON written by `pnpm codegen`. The runtime's `fileDesc` reads protobuf, which
 * requires building more descriptors at every start than this package has itself.
 */
export const protoFile = (json: string): GenFile => {
  const declared: FileDescriptorProto = JSON.parse(json)
  // No other file imports it, and it is the only one in its registry.
  return createFileRegistry(declared, () => undefined).getFile(declared.name) as GenFile
}
