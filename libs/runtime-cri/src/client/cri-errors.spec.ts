import { describe, expect, it } from '@jest/globals';
import { Code, ConnectError } from '@connectrpc/connect';
import { fromCriError } from './cri-errors.js';

const where = { call: 'ListContainers', socketPath: '/run/cri.sock' };

describe('fromCriError', () => {
  it.each([
    { code: Code.NotFound, text: 'no container', kind: 'notFound', message: 'no container' },
    { code: Code.InvalidArgument, text: 'bad', kind: 'invalid', message: 'bad' },
    { code: Code.Unknown, text: 'what is this', kind: 'internal', message: 'what is this' },
    {
      code: Code.Unknown,
      text: 'server is not initialized yet',
      kind: 'unavailable',
      message:
        'the container runtime at /run/cri.sock is unavailable: server is not initialized yet',
    },
    {
      code: Code.Unavailable,
      text: 'gone',
      kind: 'unavailable',
      message: 'the container runtime at /run/cri.sock is unavailable: gone',
    },
    {
      code: Code.DeadlineExceeded,
      text: 'late',
      kind: 'unavailable',
      message:
        'the container runtime at /run/cri.sock did not answer ListContainers in time: see its log',
    },
    {
      code: Code.Unimplemented,
      text: 'unknown method',
      kind: 'unimplemented',
      message:
        'the container runtime at /run/cri.sock does not know ListContainers: unknown method',
    },
  ])(
    'converts status code $code with the text "$text" to kind $kind',
    ({ code, text, kind, message }) => {
      expect(fromCriError(new ConnectError(text, code), where)).toMatchObject({ kind, message });
    },
  );

  it.each(['ERR_HTTP2_STREAM_ERROR', 'ERR_HTTP2_INVALID_SESSION', 'ECONNRESET', 'EPIPE'])(
    'converts the system error of a broken connection to kind unavailable: %s',
    (code) => {
      const broken = Object.assign(
        new Error('Stream closed with error code NGHTTP2_REFUSED_STREAM'),
        { code },
      );
      const error = new ConnectError('stream closed', Code.Internal, undefined, undefined, broken);
      expect(fromCriError(error, where)).toMatchObject({
        kind: 'unavailable',
        message: 'the container runtime at /run/cri.sock is unavailable: stream closed',
      });
    },
  );

  it.each([
    {
      code: 'ECONNREFUSED',
      message: 'no container runtime answers at /run/cri.sock (ECONNREFUSED)',
    },
    {
      code: 'EACCES',
      message:
        'this process may not open the socket /run/cri.sock of the container runtime (EACCES): run the agent as root',
    },
  ])('names the socket when the cause of the cause is $code', ({ code, message }) => {
    const refused = Object.assign(new Error('connect'), { code });
    const error = new ConnectError(
      'broken',
      Code.Internal,
      undefined,
      undefined,
      new Error('outer', { cause: refused }),
    );
    expect(fromCriError(error, where)).toMatchObject({
      kind: 'unavailable',
      message: expect.stringContaining(message),
    });
  });
});
