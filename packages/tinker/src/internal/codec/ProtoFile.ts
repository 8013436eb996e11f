import { createFileRegistry } from "@bufbuild/protobuf"
import type { GenFile } from "@bufbuild/protobuf/codegenv2"
import type { FileDescriptorProto } from "@bufbuild/protobuf/wkt"

/**
 * What a .proto file declares, from the JSON that `pnpm codegen` writes. The runtime's own `fileDesc` reads it from
 * protobuf, and first builds what it takes to read that: more than all of ours, at every start.
 */
export const protoFile = (json: string): GenFile => {
  const declared: FileDescriptorProto = JSON.parse(json)
  // It stands in no other file's imports, and is the only one of its registry.
  return createFileRegistry(declared, () => undefined).getFile(declared.name) as GenFile
}
