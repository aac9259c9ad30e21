import { Code, ConnectError } from '@connectrpc/connect';
import { isTransient } from './call-failure.js';

/** Creates the error of a call whose cause is a Node error with this code. */
const withCause = (code: string): ConnectError =>
  new ConnectError(
    'x',
    Code.Internal,
    undefined,
    undefined,
    Object.assign(new Error('x'), { code }),
  );

describe('isTransient', () => {
  it.each([
    {
      name: 'UNAVAILABLE of a coordinator without leadership',
      reason: new ConnectError('x', Code.Unavailable),
      expected: true,
    },
    { name: 'a refused connection', reason: withCause('ECONNREFUSED'), expected: true },
    {
      name: 'a stream that the server reset',
      reason: new ConnectError('http/2 stream closed with error code CANCEL (0x8)', Code.Canceled),
      expected: true,
    },
    {
      name: 'a call that the client cancelled',
      reason: new ConnectError('This operation was aborted', Code.Canceled),
      expected: false,
    },
    {
      name: 'a refusal by the coordinator',
      reason: new ConnectError('x', Code.NotFound),
      expected: false,
    },
    { name: 'an error other than a ConnectError', reason: new Error('x'), expected: false },
  ])('returns $expected for $name', ({ reason, expected }) => {
    expect(isTransient(reason)).toBe(expected);
  });
});
