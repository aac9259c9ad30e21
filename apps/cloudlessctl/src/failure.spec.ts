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
    { name: 'no coordinator leads', reason: new ConnectError('x', Code.Unavailable), is: true },
    { name: 'nobody listens', reason: withCause('ECONNREFUSED'), is: true },
    {
      name: 'the server died in mid-stream',
      reason: new ConnectError('http/2 stream closed with error code CANCEL (0x8)', Code.Canceled),
      is: true,
    },
    {
      name: 'we ended the call',
      reason: new ConnectError('This operation was aborted', Code.Canceled),
      is: false,
    },
    { name: 'a refusal', reason: new ConnectError('x', Code.NotFound), is: false },
    { name: 'a fault of ours', reason: new Error('x'), is: false },
  ])('$name: $is', ({ reason, is }) => {
    expect(isTransient(reason)).toBe(is);
  });
});
