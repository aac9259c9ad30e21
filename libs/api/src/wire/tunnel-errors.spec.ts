import { create } from '@bufbuild/protobuf';
import { Code } from '@connectrpc/connect';
import { CloudlessError } from '@cloudless/base';
import { ErrorReason, TunnelErrorSchema, fromTunnelError, toTunnelError } from '../index.js';

describe('an error in a tunnel', () => {
  it('keeps kind, reason and message', () => {
    const error = new CloudlessError('CONTAINER_NOT_FOUND', 'container "a" is not on node b');
    expect(fromTunnelError(toTunnelError(error))).toMatchObject({
      kind: 'notFound',
      reason: 'CONTAINER_NOT_FOUND',
      message: 'container "a" is not on node b',
    });
  });

  it('does not disclose the message of an internal error', () => {
    expect(toTunnelError(new TypeError('secret path'))).toMatchObject({
      code: Code.Internal,
      message: 'internal error',
      reason: ErrorReason.INTERNAL,
    });
  });

  it.each([
    { name: 'of an older agent, without a reason', reason: ErrorReason.ERROR_REASON_UNSPECIFIED },
    { name: 'with a reason of a newer agent', reason: 9_999 as ErrorReason },
    { name: 'with a reason of another kind', reason: ErrorReason.NODE_UNREACHABLE },
  ])('$name, has the default reason of its kind', ({ reason }) => {
    const error = create(TunnelErrorSchema, { code: Code.NotFound, message: 'no', reason });
    expect(fromTunnelError(error)).toMatchObject({ kind: 'notFound', reason: 'NOT_FOUND' });
  });
});
