import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Code, ConnectError } from '@connectrpc/connect';
import {
  CloudlessError,
  ERROR_REASON_KINDS,
  InvalidInputError,
  type ErrorReason,
} from '@cloudless/base';
import {
  ErrorReason as ReasonEnum,
  fromConnectError,
  readErrorDetails,
  toConnectError,
  toCode,
} from '../index.js';

const reasons = Object.keys(ERROR_REASON_KINDS) as ErrorReason[];

describe('ErrorReason', () => {
  it('has the same names in the proto enum and in @cloudless/base', () => {
    const names = Object.keys(ReasonEnum).filter((name) => Number.isNaN(Number(name)));
    expect(names.sort()).toEqual(['ERROR_REASON_UNSPECIFIED', ...reasons].sort());
  });

  it('names in the proto comment of each value the code that errors with the reason have', () => {
    const proto = readFileSync(
      fileURLToPath(new URL('../../../../proto/cloudless/api/error.proto', import.meta.url)),
      'utf8',
    );
    const documented = Object.fromEntries(
      [...proto.matchAll(/ {2}\/\/ ([A-Z_]+): .*\n(?: {2}\/\/ .*\n)* {2}([A-Z_]+) = \d+;/g)].map(
        ([, code, reason]) => [reason, code],
      ),
    );
    const toName = (code: Code): string =>
      (Code[code] ?? '').replaceAll(/(?<=[a-z])(?=[A-Z])/g, '_').toUpperCase();
    const isOnlyInEvents = (reason: ReasonEnum): boolean =>
      reason >= ReasonEnum.NODE_LOST && reason <= ReasonEnum.ROLLOUT_FAILED;
    const inErrors = reasons.filter((reason) => !isOnlyInEvents(ReasonEnum[reason]));
    expect(documented).toEqual(
      Object.fromEntries(
        inErrors.map((reason) => [reason, toName(toCode(ERROR_REASON_KINDS[reason]))]),
      ),
    );
  });
});

describe('details of an error', () => {
  /** Converts an error to the form that a client receives, with encoded details. */
  const receive = (error: CloudlessError): ConnectError => toConnectError(error);

  it.each([
    {
      name: 'a reason with metadata',
      error: new CloudlessError('GENERATION_CONFLICT', 'changed', {
        metadata: { generation: '7' },
      }),
      details: { reason: 'GENERATION_CONFLICT', metadata: { generation: '7' }, violations: [] },
    },
    {
      name: 'the default reason of the kind',
      error: new CloudlessError('precondition', 'not now'),
      details: { reason: 'WRONG_STATE', metadata: {}, violations: [] },
    },
    {
      name: 'the invalid fields',
      error: new InvalidInputError([
        { field: 'spec.replicas', message: 'must be 0 or more' },
        { field: '', message: 'too odd' },
      ]),
      details: {
        reason: 'INVALID_INPUT',
        metadata: {},
        violations: [
          { field: 'spec.replicas', message: 'must be 0 or more' },
          { field: '', message: 'too odd' },
        ],
      },
    },
    {
      name: 'the default delay of a reason that a retry helps',
      error: new CloudlessError('SHUTTING_DOWN', 'bye'),
      details: { reason: 'SHUTTING_DOWN', metadata: {}, violations: [], retryAfterMs: 2_000 },
    },
    {
      name: 'the delay of the error',
      error: new CloudlessError('RATE_LIMITED', 'busy', { retryAfterMs: 250 }),
      details: { reason: 'RATE_LIMITED', metadata: {}, violations: [], retryAfterMs: 250 },
    },
  ])('contain $name', ({ error, details }) => {
    expect(readErrorDetails(receive(error))).toEqual(details);
  });

  it('contain no more than 2 KiB of field violations, whose texts are cut', () => {
    const read = (length: number): number =>
      readErrorDetails(
        receive(
          new InvalidInputError(
            Array.from({ length: 50 }, (_, index) => ({
              field: `f${index}`,
              message: 'é'.repeat(length),
            })),
          ),
        ),
      ).violations.length;
    expect(read(100)).toBe(10);
    expect(read(5_000)).toBe(3);
  });

  it('of another domain or with an unknown reason are no reason', () => {
    expect(readErrorDetails(new ConnectError('plain', Code.NotFound))).toEqual({
      metadata: {},
      violations: [],
    });
    const error = receive(new CloudlessError('NODE_NOT_FOUND', 'no'));
    for (const detail of error.details) {
      if ('desc' in detail) Object.assign(detail.value, { reason: 'FROM_THE_FUTURE' });
    }
    expect(readErrorDetails(error)).not.toHaveProperty('reason');
  });

  it.each(reasons)('bring the reason %s back to a client', (reason) => {
    const error = new CloudlessError(reason, 'why', { metadata: { id: 'a' } });
    const expected = error.kind === 'internal' ? {} : { metadata: { id: 'a' } };
    expect(fromConnectError(receive(error))).toMatchObject({
      kind: error.kind,
      reason,
      ...expected,
    });
  });

  it('do not change the kind of an error whose code contradicts the reason', () => {
    const error = new ConnectError('no', Code.Unavailable);
    error.details = receive(new CloudlessError('NODE_NOT_FOUND', 'no')).details;
    expect(fromConnectError(error)).toMatchObject({
      kind: 'unavailable',
      reason: 'TEMPORARILY_UNAVAILABLE',
    });
  });
});
