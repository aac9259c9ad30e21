import { hasOption } from '@bufbuild/protobuf';
import {
  DurationRulesSchema,
  StringRulesSchema,
  predefined,
} from '@bufbuild/protovalidate/gen/buf/validate/validate_pb.js';
import { createValidationInterceptor } from './validation.js';

describe('dropUnusedRules', () => {
  /** Names of the rules that protovalidate would compile. */
  const listRuleNames = (
    schema: typeof DurationRulesSchema | typeof StringRulesSchema,
  ): readonly string[] =>
    schema.fields.filter((field) => hasOption(field, predefined)).map(({ name }) => name);

  it('keeps the rules that messages of the API use, and removes most others', () => {
    createValidationInterceptor();
    expect(listRuleNames(DurationRulesSchema)).toEqual(expect.arrayContaining(['gte', 'lte']));
    expect(listRuleNames(DurationRulesSchema)).not.toContain('in');
    expect(listRuleNames(StringRulesSchema)).toEqual(
      expect.arrayContaining(['min_len', 'max_len', 'pattern', 'max_bytes']),
    );
    expect(listRuleNames(StringRulesSchema)).not.toEqual(expect.arrayContaining(['email']));
    expect(listRuleNames(StringRulesSchema).length).toBeLessThan(8);
  });
});
