import { type DescField, type DescFile, fromJson, toBinary } from "@bufbuild/protobuf"
import { fileDesc } from "@bufbuild/protobuf/codegenv2"
import { nestedTypes } from "@bufbuild/protobuf/reflect"
import { base64Encode } from "@bufbuild/protobuf/wire"
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt"
import { describe, expect, it } from "@effect/vitest"
import * as Proto from "effect-tinker/protocol/Proto"

/** All properties of a field; references to other types by name. */
const plain = (field: DescField) => ({
  ...Object.fromEntries(
    Object.entries(field).map(([key, value]) => [
      key,
      typeof value === "object" && value !== null ? String(value) : typeof value === "function" ? undefined : value,
    ]),
  ),
  text: String(field),
})

const contents = (file: DescFile) =>
  [...nestedTypes(file)].map((type) => ({
    text: String(type),
    fields: type.kind === "message" ? type.fields.map(plain) : undefined,
    oneofs: type.kind === "message" ? type.oneofs.map(String) : undefined,
    values:
      type.kind === "enum" ? type.values.map((value) => ({ name: value.localName, number: value.number })) : undefined,
  }))

describe("the JSON file descriptor", () => {
  it("the JSON file descriptor reads like the same descriptor in protobuf", () => {
    const declared = JSON.parse(JSON.stringify(Proto.file_tinker_public.proto))
    const message = fromJson(FileDescriptorProtoSchema, declared, { ignoreUnknownFields: true })
    const own = fileDesc(base64Encode(toBinary(FileDescriptorProtoSchema, message)))
    expect(contents(own).length).toBeGreaterThan(20)
    expect(contents(Proto.file_tinker_public)).toEqual(contents(own))
  })
})
