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

/** Kinds of rules that the library compiles as a whole when the first of a kind is met. */
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
 * Takes the expressions of all rules that none of our messages uses out of the library's own
 * descriptors. It would compile them all the same, dozens for each kind of field, which was a good
 * part of the start of every process. What is used is found in the files themselves, so a rule that
 * a proto begins to use is there at once.
 * @param files - All whose messages are ever validated, with what they import.
 */
export function dropUnusedRules(files: readonly DescFile[]): void {
  const used = new Set<string>();
  for (const file of withDependencies(files)) {
    for (const message of file.messages) noteMessage(message, used);
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

function noteMessage(message: DescMessage, used: Set<string>): void {
  for (const nested of message.nestedMessages) noteMessage(nested, used);
  for (const field of message.fields) {
    if (hasOption(field, fieldOption)) noteRules(getOption(field, fieldOption), used);
  }
}

function noteRules(rules: FieldRules, used: Set<string>): void {
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
      noteRules(inner as FieldRules, used);
  }
}
