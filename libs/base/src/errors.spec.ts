import { runInNewContext } from 'node:vm';
import {
  CloudlessError,
  InvalidInputError,
  assert,
  assertNever,
  errorFields,
  errorKindOf,
  errorMessageOf,
  errorReasonOf,
} from './index.js';

class DiskFullError extends CloudlessError {
  constructor(options?: { readonly cause?: unknown }) {
    super('exhausted', 'the disk is full', options);
  }
}

describe('CloudlessError', () => {
  it('has a kind, the given cause and the name of its class', () => {
    const cause = new Error('ENOSPC');
    expect(new DiskFullError({ cause })).toMatchObject({
      kind: 'exhausted',
      name: 'DiskFullError',
      message: 'the disk is full',
      cause,
    });
    expect(new CloudlessError('denied', 'no')).toMatchObject({
      kind: 'denied',
      name: 'CloudlessError',
    });
    expect(new CloudlessError('denied', 'no')).not.toHaveProperty('cause');
  });

  it('takes its kind from its reason, and the default reason from its kind', () => {
    const error = new CloudlessError('NODE_NOT_FOUND', 'no', { metadata: { node: 'a' } });
    expect(error).toMatchObject({
      kind: 'notFound',
      reason: 'NODE_NOT_FOUND',
      metadata: { node: 'a' },
    });
    expect(error).not.toHaveProperty('retryAfterMs');
    expect(new CloudlessError('notFound', 'no')).toMatchObject({ reason: 'NOT_FOUND' });
    expect(new InvalidInputError([])).toMatchObject({ reason: 'INVALID_INPUT' });
  });

  it.each([
    { name: 'a CloudlessError', reason: new CloudlessError('STORE_FULL', 'x'), is: 'STORE_FULL' },
    { name: 'any other value', reason: new Error('x'), is: 'INTERNAL' },
  ])('errorReasonOf returns $is for $name', ({ reason, is }) => {
    expect(errorReasonOf(reason)).toBe(is);
  });
});

describe('InvalidInputError', () => {
  it('lists every violation in its message, with the field unless the whole input is invalid', () => {
    const error = new InvalidInputError([
      { field: 'spec.replicas', message: 'must be 0 or more' },
      { field: '', message: 'must be an object' },
    ]);
    expect(error).toMatchObject({
      kind: 'invalid',
      name: 'InvalidInputError',
      message: 'spec.replicas: must be 0 or more; must be an object',
    });
    expect(error.violations).toHaveLength(2);
  });
});

describe('errorKindOf and errorMessageOf', () => {
  const refused = (): AggregateError =>
    Object.assign(new AggregateError([new Error('connect ECONNREFUSED ::1:80'), 'odd']), {
      name: 'AggregateError',
    });
  it.each([
    {
      name: 'a CloudlessError',
      reason: new DiskFullError(),
      kind: 'exhausted',
      message: 'the disk is full',
    },
    { name: 'any other error', reason: new TypeError('bad'), kind: 'internal', message: 'bad' },
    { name: 'a thrown string', reason: 'gone', kind: 'internal', message: 'gone' },
    { name: 'undefined', reason: undefined, kind: 'internal', message: 'undefined' },
    { name: 'null', reason: null, kind: 'internal', message: 'null' },
    { name: 'a plain object', reason: { code: 7 }, kind: 'internal', message: '{"code":7}' },
    {
      name: 'an object without a prototype',
      reason: Object.create(null) as unknown,
      kind: 'internal',
      message: '{}',
    },
    {
      name: 'an object that JSON cannot serialise',
      reason: { size: 1n },
      kind: 'internal',
      message: 'an object',
    },
    { name: 'a function', reason: () => 1, kind: 'internal', message: 'a function' },
    {
      name: 'an AggregateError without a message',
      reason: refused(),
      kind: 'internal',
      message: 'Error: connect ECONNREFUSED ::1:80; odd',
    },
    {
      name: 'an error of another realm',
      reason: runInNewContext('new TypeError("foreign")') as unknown,
      kind: 'internal',
      message: 'foreign',
    },
    {
      name: 'an error without a message',
      reason: new RangeError(),
      kind: 'internal',
      message: 'RangeError',
    },
  ])('return the kind and the message of $name', ({ reason, kind, message }) => {
    expect({ kind: errorKindOf(reason), message: errorMessageOf(reason) }).toEqual({
      kind,
      message,
    });
  });
});

describe('errorFields', () => {
  const createCauseChain = (length: number): Error =>
    Array.from({ length }, (_, index) => index).reduce<Error>(
      (cause, index) => new Error(`${index}`, { cause }),
      new Error('root'),
    );
  const cycle = new Error('a');
  cycle.cause = new Error('b', { cause: cycle });

  it.each([
    {
      name: 'an error without a cause',
      reason: new RangeError('r'),
      fields: { error: 'r', errorName: 'RangeError' },
    },
    {
      name: 'a cause chain, the nearest cause first',
      reason: new DiskFullError({ cause: new Error('write', { cause: 'ENOSPC' }) }),
      fields: {
        error: 'the disk is full',
        errorName: 'DiskFullError',
        causes: ['Error: write', 'ENOSPC'],
      },
    },
    {
      name: 'a cause that is null',
      reason: new Error('e', { cause: null }),
      fields: { error: 'e', errorName: 'Error', causes: ['null'] },
    },
    { name: 'a thrown string', reason: 'gone', fields: { error: 'gone' } },
    {
      name: 'an AggregateError with the causes of each error',
      reason: new AggregateError(
        [new Error('one', { cause: new Error('deep') }), new Error('two')],
        'all failed',
      ),
      fields: {
        error: 'all failed',
        errorName: 'AggregateError',
        causes: ['Error: one', 'Error: two', 'Error: deep'],
      },
    },
  ])('returns the fields of $name', ({ reason, fields }) => {
    expect(errorFields(reason)).toEqual(fields);
  });

  it('returns at most 8 causes when causes form a cycle, a long chain or a large AggregateError', () => {
    expect(errorFields(cycle).causes).toEqual([
      'Error: b',
      'Error: a',
      'Error: b',
      'Error: a',
      'Error: b',
      'Error: a',
      'Error: b',
      'Error: a',
    ]);
    expect(errorFields(createCauseChain(100)).causes).toHaveLength(8);
    expect(
      errorFields(new AggregateError(Array.from({ length: 100 }, () => cycle))).causes,
    ).toHaveLength(8);
  });
});

describe('assert', () => {
  it('throws an internal error with the failed assertion', () => {
    expect(() => assert(true, 'fine')).not.toThrow();
    expect(() => assert(false, 'two is even')).toThrow(
      expect.objectContaining({ kind: 'internal', message: 'assertion failed: two is even' }),
    );
  });
});

describe('assertNever', () => {
  it.each([
    { value: 'sideways', shown: 'sideways' },
    { value: { kind: 'odd' }, shown: '{"kind":"odd"}' },
    { value: 7n, shown: '7' },
    { value: undefined, shown: 'undefined' },
  ])('throws an internal error that names the value $shown', ({ value, shown }) => {
    expect(() => assertNever(value as never)).toThrow(
      expect.objectContaining({ kind: 'internal', message: `unexpected value ${shown}` }),
    );
  });
});
