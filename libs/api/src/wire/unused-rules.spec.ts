import { hasOption } from '@bufbuild/protobuf';
import {
  DurationRulesSchema,
  StringRulesSchema,
  predefined,
} from '@bufbuild/protovalidate/gen/buf/validate/validate_pb.js';
import './validation.js';

describe('dropUnusedRules', () => {
  const compiled = (
    schema: typeof DurationRulesSchema | typeof StringRulesSchema,
  ): readonly string[] =>
    schema.fields.filter((field) => hasOption(field, predefined)).map(({ name }) => name);

  it('keeps exactly the rules that our messages use, including rules of items, keys and values', () => {
    expect(compiled(DurationRulesSchema)).toEqual(expect.arrayContaining(['gte', 'lte']));
    expect(compiled(DurationRulesSchema)).not.toContain('in');
    expect(compiled(StringRulesSchema)).toEqual(
      expect.arrayContaining(['min_len', 'max_len', 'pattern', 'max_bytes']),
    );
    expect(compiled(StringRulesSchema)).not.toEqual(expect.arrayContaining(['email']));
    expect(compiled(StringRulesSchema).length).toBeLessThan(8);
  });
});
