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

/**
 * Messages with the rules of one kind of field. Protovalidate compiles all rules of a kind at its
 * first use.
 */
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
 * Removes from the descriptors of protovalidate the expressions of all rules that no message of the
 * given files uses. Otherwise protovalidate compiles dozens of unused rules for each kind of field,
 * which takes a large part of the start time of every process. The used rules are read from the
 * files, so a new rule in a proto file takes effect without a change here. Call it before the first
 * validation.
 * @param files - Files with all messages that are ever validated; their imports are included.
 */
export function dropUnusedRules(files: readonly DescFile[]): void {
  const usedRules = new Set<string>();
  for (const file of withDependencies(files)) {
    for (const message of file.messages) collectMessageRules(message, usedRules);
  }
  for (const schema of RULES) {
    for (const field of schema.fields) {
      if (field.proto.options === undefined || usedRules.has(`${schema.typeName}.${field.name}`))
        continue;
      clearExtension(field.proto.options, predefined);
    }
  }
}

/** Returns the files with all files that they import, directly or indirectly. */
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

function collectMessageRules(message: DescMessage, usedRules: Set<string>): void {
  for (const nested of message.nestedMessages) collectMessageRules(nested, usedRules);
  for (const field of message.fields) {
    if (hasOption(field, fieldOption)) collectRules(getOption(field, fieldOption), usedRules);
  }
}

function collectRules(rules: FieldRules, usedRules: Set<string>): void {
  const { value } = rules.type;
  if (value === undefined) return;
  const schema = RULES.find(({ typeName }) => typeName === value.$typeName);
  if (schema === undefined) return;
  for (const field of schema.fields) {
    if (!isFieldSet(value as Message, field)) continue;
    usedRules.add(`${schema.typeName}.${field.name}`);
    const inner: unknown = (value as unknown as Record<string, unknown>)[field.localName];
    // The rules of a list contain rules of its items; those of a map, rules of its keys and values.
    if (field.fieldKind === 'message' && field.message === FieldRulesSchema)
      collectRules(inner as FieldRules, usedRules);
  }
}
