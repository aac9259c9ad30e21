import { create, type DescMessage, type MessageInitShape } from '@bufbuild/protobuf';
import { createValidator } from '@bufbuild/protovalidate';
import fc from 'fast-check';
import {
  AgentMessageSchema,
  HeartbeatRequestSchema,
  CreateWorkloadRequestSchema,
  WorkloadSpecSchema,
} from '../index.js';
import { arbitraryMessage } from '../testing/arbitrary-message.js';
import { hasApplicableRules } from './applicable-rules.js';

type AgentMessageInit = Required<MessageInitShape<typeof AgentMessageSchema>>['message'];

describe('hasApplicableRules', () => {
  const validator = createValidator();

  it.each<{ schema: DescMessage }>([
    { schema: AgentMessageSchema },
    { schema: CreateWorkloadRequestSchema },
    { schema: WorkloadSpecSchema },
    { schema: HeartbeatRequestSchema },
  ])('returns true for each $schema.typeName that violates a rule', ({ schema }) => {
    fc.assert(
      fc.property(arbitraryMessage(schema), (message) => {
        if (!hasApplicableRules(schema, message))
          expect(validator.validate(schema, message)).toMatchObject({ kind: 'valid' });
      }),
    );
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
