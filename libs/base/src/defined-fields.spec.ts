import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { definedFields } from './defined-fields.js';

describe('definedFields', () => {
  it.each([
    {
      name: 'leaves out a field whose value is undefined',
      fields: { a: undefined, b: 1 },
      expected: { b: 1 },
    },
    {
      name: 'keeps null, zero, the empty string and false',
      fields: { a: null, b: 0, c: '', d: false },
      expected: { a: null, b: 0, c: '', d: false },
    },
    { name: 'returns an empty object for an empty object', fields: {}, expected: {} },
  ])('$name', ({ fields, expected }) => {
    expect(Object.entries(definedFields(fields))).toEqual(Object.entries(expected));
  });

  it('keeps all other fields in their order', () => {
    const anyFields = fc.dictionary(fc.string(), fc.option(fc.integer(), { nil: undefined }));
    fc.assert(
      fc.property(anyFields, (fields) => {
        expect(Object.entries(definedFields(fields))).toEqual(
          Object.entries(fields).filter(([, value]) => value !== undefined),
        );
      }),
    );
  });
});
