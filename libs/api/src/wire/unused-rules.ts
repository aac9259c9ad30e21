import {
  clearExtension,
  getOption,
  hasOption,
  isFieldSet,
  type DescFile,
  type DescMessage,
  type Message,
} from '@bufbuild/protobuf';
import {
  BoolRulesSchema,
  BytesRulesSchema,
  DurationRulesSchema,
  EnumRulesSchema,
  FieldMaskRulesSchema,
  FieldRulesSchema,
  Int32RulesSchema,
  Int64RulesSchema,
  MapRulesSchema,
  RepeatedRulesSchema,
  StringRulesSchema,
  TimestampRulesSchema,
  UInt32RulesSchema,
  UInt64RulesSchema,
  field as fieldOption,
  predefined,
  type FieldRules,
} from '@bufbuild/protovalidate/gen/buf/validate/validate_pb.js';

/** Rule messages that protovalidate compiles as a whole at the first use of a kind. */
const RULES: readonly DescMessage[] = [
  BoolRulesSchema,
  BytesRulesSchema,
  DurationRulesSchema,
  EnumRulesSchema,
  FieldMaskRulesSchema,
  Int32RulesSchema,
  Int64RulesSchema,
  MapRulesSchema,
  RepeatedRulesSchema,
  StringRulesSchema,
  TimestampRulesSchema,
  UInt32RulesSchema,
  UInt64RulesSchema,
];

/**
 * Removes the expressions of validation rules that no message of these files uses from the
 * descriptors of protovalidate. Otherwise protovalidate compiles dozens of unused rules for each
 * kind of field, which took a large part of the start time of every process. The used rules are
 * determined from the files, so a new rule in a proto takes effect at once.
 * @param files - Files with all messages that are ever validated; their imports are included.
 */
export function dropUnusedRules(files: readonly DescFile[]): void {
  const used = new Set<string>();
  for (const file of withDependencies(files)) {
    for (const message of file.messages) collectMessageRules(message, used);
  }
  for (const schema of RULES) {
    for (const field of schema.fields) {
      if (field.proto.options === undefined || used.has(`${schema.typeName}.${field.name}`))
        continue;
      clearExtension(field.proto.options, predefined);
    }
  }
}

function withDependencies(
  files: readonly DescFile[],
  seen = new Set<DescFile>(),
): ReadonlySet<DescFile> {
  for (const file of files) {
    if (seen.has(file)) continue;
    seen.add(file);
    withDependencies(file.dependencies, seen);
  }
  return seen;
}

function collectMessageRules(message: DescMessage, used: Set<string>): void {
  for (const nested of message.nestedMessages) collectMessageRules(nested, used);
  for (const field of message.fields) {
    if (hasOption(field, fieldOption)) collectRules(getOption(field, fieldOption), used);
  }
}

function collectRules(rules: FieldRules, used: Set<string>): void {
  const { value } = rules.type;
  if (value === undefined) return;
  const schema = RULES.find(({ typeName }) => typeName === value.$typeName);
  if (schema === undefined) return;
  for (const field of schema.fields) {
    if (!isFieldSet(value as Message, field)) continue;
    used.add(`${schema.typeName}.${field.name}`);
    const inner: unknown = (value as unknown as Record<string, unknown>)[field.localName];
    // Of the items of a list, of the keys and values of a map.
    if (field.fieldKind === 'message' && field.message === FieldRulesSchema)
      collectRules(inner as FieldRules, used);
  }
}
