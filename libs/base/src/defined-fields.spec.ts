import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { definedFields } from './defined-fields.js';

describe('definedFields', () => {
  it.each([
    { name: 'drops a field that is undefined', given: { a: undefined, b: 1 }, expected: { b: 1 } },
    {
      name: 'keeps null, zero, the empty string and false',
      given: { a: null, b: 0, c: '', d: false },
      expected: { a: null, b: 0, c: '', d: false },
    },
    { name: 'returns an empty object for no fields', given: {}, expected: {} },
  ])('$name', ({ given, expected }) => {
    expect(Object.entries(definedFields(given))).toEqual(Object.entries(expected));
  });

  it('keeps exactly the entries that are not undefined, in order', () => {
    const arbFields = fc.dictionary(fc.string(), fc.option(fc.integer(), { nil: undefined }));
    fc.assert(
      fc.property(arbFields, (fields) => {
        expect(Object.entries(definedFields(fields))).toEqual(
          Object.entries(fields).filter(([, value]) => value !== undefined),
        );
      }),
    );
  });
});
