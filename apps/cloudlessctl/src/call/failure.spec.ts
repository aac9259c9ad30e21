import { Code, ConnectError } from '@connectrpc/connect';
import { isTransient } from './failure.js';

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
      is: true,
    },
    { name: 'a refused connection', reason: withCause('ECONNREFUSED'), is: true },
    {
      name: 'a stream that the server reset',
      reason: new ConnectError('http/2 stream closed with error code CANCEL (0x8)', Code.Canceled),
      is: true,
    },
    {
      name: 'a call that the client cancelled',
      reason: new ConnectError('This operation was aborted', Code.Canceled),
      is: false,
    },
    {
      name: 'a refusal by the coordinator',
      reason: new ConnectError('x', Code.NotFound),
      is: false,
    },
    { name: 'an error that is no call error', reason: new Error('x'), is: false },
  ])('returns $is for $name', ({ reason, is }) => {
    expect(isTransient(reason)).toBe(is);
  });
});
