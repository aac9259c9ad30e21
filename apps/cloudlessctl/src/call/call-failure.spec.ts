import { Code, ConnectError } from '@connectrpc/connect';
import { toConnectError } from '@cloudless/api';
import { CloudlessError, type ErrorReason } from '@cloudless/base';
import { describeCallFailure, isTransient } from './call-failure.js';
import { ExitCode } from './failure.js';

const nodeError = (code: string): Error => Object.assign(new Error('x'), { code });

/** Creates the error of a call whose cause is a Node error with this code. */
const withCause = (code: string): ConnectError =>
  new ConnectError('x', Code.Internal, undefined, undefined, nodeError(code));

/** Creates the error of a call whose connection failed because of TLS. */
const withTlsFailure = (cause: CloudlessError): ConnectError =>
  new ConnectError('x', Code.Internal, undefined, undefined, cause);

/** Creates the error of a call that a closing coordinator refuses, as connect-node does. */
const createRefusedCall = (): ConnectError => {
  const text = 'Stream closed with error code NGHTTP2_REFUSED_STREAM';
  const cause = Object.assign(new Error(text), { code: 'ERR_HTTP2_STREAM_ERROR' });
  return ConnectError.from(cause, Code.Internal);
};

describe('describeCallFailure', () => {
  const target = { server: 'http://127.0.0.1:8080', configPath: '/home/u/config.yaml' };
  const exitCodeOf = (error: ConnectError): number =>
    describeCallFailure(error, target, 0).exitCode;

  it.each<{ reason: ErrorReason; exitCode: number }>([
    { reason: 'NO_CAPACITY', exitCode: ExitCode.noCapacity },
    { reason: 'LIMIT_REACHED', exitCode: ExitCode.noCapacity },
    { reason: 'RATE_LIMITED', exitCode: ExitCode.unavailable },
    { reason: 'SERVER_OVERLOADED', exitCode: ExitCode.unavailable },
    { reason: 'TOO_MANY_STREAMS', exitCode: ExitCode.unavailable },
    { reason: 'REQUEST_TOO_LARGE', exitCode: ExitCode.usage },
    { reason: 'STORE_FULL', exitCode: ExitCode.noCapacity },
    { reason: 'ROLLOUT_FAILED', exitCode: ExitCode.rolloutFailed },
    { reason: 'PLAN_STALE', exitCode: ExitCode.conflict },
    { reason: 'WORKLOAD_NOT_FOUND', exitCode: ExitCode.notFound },
    { reason: 'LEADERSHIP_LOST', exitCode: ExitCode.unavailable },
  ])('returns exit code $exitCode for the reason $reason', ({ reason, exitCode }) => {
    expect(exitCodeOf(toConnectError(new CloudlessError(reason, 'x')))).toBe(exitCode);
  });

  it('says that the connection was lost when the coordinator died during the call', () => {
    const reset = new ConnectError(
      'http/2 stream closed with error code CANCEL (0x8)',
      Code.Canceled,
    );
    expect(describeCallFailure(reset, target, 0)).toMatchObject({
      exitCode: ExitCode.unavailable,
      message:
        'the connection to the coordinator (http://127.0.0.1:8080) was lost before the call ended. Check whether the change was made, then repeat the command',
    });
  });

  it('says that a closing coordinator did not begin the call', () => {
    expect(describeCallFailure(createRefusedCall(), target, 0)).toMatchObject({
      exitCode: ExitCode.unavailable,
      message:
        'the coordinator (http://127.0.0.1:8080) ended the connection before it began the call. Repeat the command',
    });
  });

  it('names the flag instead of the field of a request', () => {
    const hint = 'workload default/web has no earlier version; name one with to_version';
    const undo = toConnectError(new CloudlessError('NO_EARLIER_VERSION', hint));
    expect(describeCallFailure(undo, target, 0).message).toContain('name one with --to-version (');
    const other = new ConnectError(hint, Code.FailedPrecondition);
    expect(describeCallFailure(other, target, 0).message).toContain('name one with to_version (');
  });

  it('returns the exit code of the error code without a reason', () => {
    expect(exitCodeOf(new ConnectError('x', Code.ResourceExhausted))).toBe(ExitCode.noCapacity);
  });
});

describe('isTransient', () => {
  it.each([
    {
      name: 'UNAVAILABLE of a coordinator without leadership',
      reason: new ConnectError('x', Code.Unavailable),
      expected: true,
    },
    { name: 'a refused connection', reason: withCause('ECONNREFUSED'), expected: true },
    {
      name: 'a server that is not trusted',
      reason: withTlsFailure(new CloudlessError('CERTIFICATE_INVALID', 'x')),
      expected: false,
    },
    {
      name: 'a server with TLS that went away before it answered',
      reason: withTlsFailure(new CloudlessError('unavailable', 'x')),
      expected: true,
    },
    {
      name: 'a server that closed the connection in the handshake',
      reason: withTlsFailure(new CloudlessError('unavailable', 'x', { cause: nodeError('EPIPE') })),
      expected: true,
    },
    {
      name: 'a server without TLS',
      reason: withCause('ERR_SSL_WRONG_VERSION_NUMBER'),
      expected: false,
    },
    {
      name: 'a stream that the server reset',
      reason: new ConnectError('http/2 stream closed with error code CANCEL (0x8)', Code.Canceled),
      expected: true,
    },
    {
      name: 'a call that a closing coordinator refused',
      reason: createRefusedCall(),
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
