import {
  create,
  createFileRegistry,
  setExtension,
  type DescMessage,
  type DescService,
  type MessageInitShape,
} from '@bufbuild/protobuf';
import {
  FieldDescriptorProto_Label as Label,
  FieldDescriptorProto_Type as Type,
  FileDescriptorProtoSchema,
  MessageOptionsSchema,
  OneofOptionsSchema,
  type MessageOptions,
  type OneofOptions,
} from '@bufbuild/protobuf/wkt';
import { createValidator } from '@bufbuild/protovalidate';
import {
  MessageRulesSchema,
  OneofRulesSchema,
  message as messageRules,
  oneof as oneofRules,
} from '@bufbuild/protovalidate/gen/buf/validate/validate_pb.js';
import fc from 'fast-check';
import * as api from '../index.js';
import { arbitraryMessage } from '../testing/arbitrary-message.js';
import { hasApplicableRules } from './applicable-rules.js';

const { AgentMessageSchema } = api;
type AgentMessageInit = Required<MessageInitShape<typeof AgentMessageSchema>>['message'];

/** Returns the messages of all RPCs, and those that they contain. */
function listMessages(): readonly DescMessage[] {
  const methods = Object.values<unknown>(api)
    .filter(isService)
    .flatMap((service) => service.methods);
  const messages = new Set(methods.flatMap(({ input, output }) => [input, output]));
  for (const { fields } of messages)
    for (const { message } of fields) if (message !== undefined) messages.add(message);
  return [...messages];
}

function isService(value: unknown): value is DescService {
  return typeof value === 'object' && value !== null && 'kind' in value && value.kind === 'service';
}

/** Returns the schema of a message with the given options, and one with a map of such messages. */
function createSchemas(options: { message?: MessageOptions; oneof?: OneofOptions }) {
  const optional = { label: Label.OPTIONAL, type: Type.STRING };
  const file = create(FileDescriptorProtoSchema, {
    name: 'test.proto',
    package: 'test',
    syntax: 'proto3',
    messageType: [
      {
        name: 'Checked',
        field: [{ ...optional, name: 'text', number: 1, oneofIndex: 0 }],
        oneofDecl: [{ name: 'choice', ...(options.oneof && { options: options.oneof }) }],
        ...(options.message && { options: options.message }),
      },
      {
        name: 'Container',
        field: [
          {
            ...{ name: 'values', number: 1, label: Label.REPEATED },
            ...{ type: Type.MESSAGE, typeName: '.test.Container.ValuesEntry' },
          },
        ],
        nestedType: [
          {
            name: 'ValuesEntry',
            options: { mapEntry: true },
            field: [
              { ...optional, name: 'key', number: 1 },
              {
                ...{ name: 'value', number: 2, label: Label.OPTIONAL },
                ...{ type: Type.MESSAGE, typeName: '.test.Checked' },
              },
            ],
          },
        ],
      },
    ],
  });
  const registry = createFileRegistry(file, () => undefined);
  const find = (name: string): DescMessage => registry.getMessage(name) as DescMessage;
  return { checked: find('test.Checked'), container: find('test.Container') };
}

describe('hasApplicableRules', () => {
  const validator = createValidator();
  /** Messages without rules of their own, which may contain others with rules. */
  const schemas = listMessages().filter((schema) => !hasApplicableRules(schema, create(schema)));

  it('returns true for each message of an RPC that violates a rule of an inner message', () => {
    const results = { applicable: 0, skipped: 0 };
    for (const schema of schemas)
      fc.assert(
        fc.property(arbitraryMessage(schema), (message) => {
          const isApplicable = hasApplicableRules(schema, message);
          results[isApplicable ? 'applicable' : 'skipped'] += 1;
          if (!isApplicable)
            expect(validator.validate(schema, message)).toMatchObject({ kind: 'valid' });
        }),
        { numRuns: 20 },
      );
    expect(results.applicable).toBeGreaterThan(0);
    expect(results.skipped).toBeGreaterThan(0);
  });

  const messageOptions = create(MessageOptionsSchema);
  const never = { id: 'never', message: 'is refused', expression: 'false' };
  setExtension(messageOptions, messageRules, create(MessageRulesSchema, { cel: [never] }));
  const oneofOptions = create(OneofOptionsSchema);
  setExtension(oneofOptions, oneofRules, create(OneofRulesSchema, { required: true }));

  it.each([
    { name: 'a message', options: { message: messageOptions } },
    { name: 'a oneof', options: { oneof: oneofOptions } },
  ])('returns true for a rule of $name, also of a value in a map', ({ options }) => {
    const { checked, container } = createSchemas(options);
    const message = create(checked);
    const values = { a: message } as never;
    expect(validator.validate(checked, message)).toMatchObject({ kind: 'invalid' });
    expect(hasApplicableRules(checked, message)).toBe(true);
    expect(hasApplicableRules(container, create(container, { values }))).toBe(true);
    expect(hasApplicableRules(container, create(container))).toBe(false);
  });

  it('returns false for a message of another file without rules', () => {
    const { checked } = createSchemas({});
    expect(hasApplicableRules(checked, create(checked))).toBe(false);
  });

  it.each<{ name: string; message: AgentMessageInit; expected: boolean }>([
    { name: 'a report', message: { case: 'report', value: { container: {} } }, expected: false },
    { name: 'an inventory', message: { case: 'inventory', value: {} }, expected: false },
    { name: 'no content', message: { case: undefined }, expected: false },
    {
      name: 'a Hello, whose node id is required',
      message: { case: 'hello', value: {} },
      expected: true,
    },
  ])('returns $expected for a message of an agent with $name', ({ message, expected }) => {
    expect(hasApplicableRules(AgentMessageSchema, create(AgentMessageSchema, { message }))).toBe(
      expected,
    );
  });
});
