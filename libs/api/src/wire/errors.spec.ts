import { Code, ConnectError, createClient, createRouterTransport } from '@connectrpc/connect';
import { CloudlessError, InvalidInputError, StoppedError, type ErrorKind } from '@cloudless/base';
import {
  CoordinatorService,
  toCode,
  createErrorInterceptor,
  fromConnectError,
  toErrorKind,
  toConnectError,
} from '../index.js';

const table: readonly { kind: ErrorKind; code: Code }[] = [
  { kind: 'invalid', code: Code.InvalidArgument },
  { kind: 'notFound', code: Code.NotFound },
  { kind: 'exists', code: Code.AlreadyExists },
  { kind: 'denied', code: Code.PermissionDenied },
  { kind: 'precondition', code: Code.FailedPrecondition },
  { kind: 'conflict', code: Code.Aborted },
  { kind: 'exhausted', code: Code.ResourceExhausted },
  { kind: 'unavailable', code: Code.Unavailable },
  { kind: 'unauthenticated', code: Code.Unauthenticated },
  { kind: 'unimplemented', code: Code.Unimplemented },
  { kind: 'deadline', code: Code.DeadlineExceeded },
  { kind: 'compacted', code: Code.OutOfRange },
  { kind: 'internal', code: Code.Internal },
];

describe('toCode and toErrorKind', () => {
  it.each(table)('map $kind to the gRPC code $code and back', ({ kind, code }) => {
    expect(toCode(kind)).toBe(code);
    expect(toErrorKind(code)).toBe(kind);
    expect(toConnectError(new CloudlessError(kind, 'why')).code).toBe(code);
    expect(fromConnectError(new ConnectError('why', code))).toMatchObject({ kind, message: 'why' });
  });
});

describe('toErrorKind', () => {
  it.each([Code.Canceled, Code.Unknown, Code.DataLoss])(
    'returns internal for the code %i, which this API never sends',
    (code) => {
      expect(toErrorKind(code)).toBe('internal');
    },
  );
});

describe('toConnectError', () => {
  const connectError = new ConnectError('data lost', Code.DataLoss);
  const deadlineError = new ConnectError('the operation timed out', Code.DeadlineExceeded);
  it.each([
    {
      name: 'keeps the message of a CloudlessError',
      reason: new CloudlessError('notFound', 'no such workload'),
      code: Code.NotFound,
      text: 'no such workload',
    },
    {
      name: 'lists the violations of an InvalidInputError',
      reason: new InvalidInputError([
        { field: 'a', message: 'bad' },
        { field: '', message: 'worse' },
      ]),
      code: Code.InvalidArgument,
      text: 'a: bad; worse',
    },
    {
      name: 'hides the message of an internal error',
      reason: new CloudlessError('internal', 'secret path'),
      code: Code.Internal,
      text: 'internal error',
    },
    {
      name: 'hides the message of other errors',
      reason: new TypeError('secret path'),
      code: Code.Internal,
      text: 'internal error',
    },
    {
      name: 'hides a thrown value that is not an Error',
      reason: 'secret path',
      code: Code.Internal,
      text: 'internal error',
    },
    {
      name: 'converts a StoppedError to UNAVAILABLE',
      reason: new StoppedError('secret path'),
      code: Code.Unavailable,
      text: 'the call was stopped before it completed',
    },
    {
      name: 'converts an AbortError of Node to UNAVAILABLE',
      reason: Object.assign(new Error('secret path'), { name: 'AbortError' }),
      code: Code.Unavailable,
      text: 'the call was stopped before it completed',
    },
  ])('$name', ({ reason, code, text }) => {
    const error = toConnectError(reason);
    expect({ code: error.code, text: error.rawMessage, cause: error.cause }).toEqual({
      code,
      text,
      cause: reason,
    });
  });

  it('returns a ConnectError unchanged, also when the error has aborted a wait', () => {
    expect(toConnectError(connectError)).toBe(connectError);
    expect(toConnectError(new StoppedError(deadlineError))).toBe(deadlineError);
  });
});

describe('fromConnectError', () => {
  it('keeps the failure as cause, returns a CloudlessError unchanged, and accepts any value', () => {
    const failure = new ConnectError('busy', Code.ResourceExhausted);
    expect(fromConnectError(failure)).toMatchObject({
      kind: 'exhausted',
      message: 'busy',
      cause: failure,
    });
    const ours = new CloudlessError('denied', 'no');
    expect(fromConnectError(ours)).toBe(ours);
    expect(fromConnectError('odd')).toMatchObject({ kind: 'internal', message: 'odd' });
  });

  it('returns kind unavailable for a call that a closing server did not begin', () => {
    const reset = Object.assign(new Error('Stream closed with error code NGHTTP2_REFUSED_STREAM'), {
      code: 'ERR_HTTP2_STREAM_ERROR',
    });
    expect(fromConnectError(ConnectError.from(reset, Code.Internal))).toMatchObject({
      kind: 'unavailable',
      message: 'the server ended the connection before it began the call; try again',
    });
  });
});

describe('createErrorInterceptor', () => {
  type Failure = 'a unary call fails' | 'a stream fails at once' | 'a stream fails after an item';
  async function call(failure: Failure, reason: unknown) {
    /** Arguments of `onInternal`. */
    const reported: [string, unknown][] = [];
    const transport = createRouterTransport(
      ({ service }) => {
        service(CoordinatorService, {
          getWorkload: () => {
            throw reason;
          },
          watchWorkloads: async function* () {
            if (failure === 'a stream fails after an item') yield { revision: 1n };
            throw reason;
          },
        });
      },
      {
        router: {
          interceptors: [createErrorInterceptor((rpc, cause) => reported.push([rpc, cause]))],
        },
      },
    );
    const client = createClient(CoordinatorService, transport);
    let items = 0;
    const run = async (): Promise<void> => {
      if (failure === 'a unary call fails') await client.getWorkload({ name: 'a' });
      else for await (const _item of client.watchWorkloads({})) items += 1;
    };
    const error = await run().catch((thrown: unknown) => thrown);
    return { error, reported, items };
  }

  it.each<{ failure: Failure; items: number; rpc: string }>([
    {
      failure: 'a unary call fails',
      items: 0,
      rpc: 'cloudless.api.CoordinatorService/GetWorkload',
    },
    {
      failure: 'a stream fails at once',
      items: 0,
      rpc: 'cloudless.api.CoordinatorService/WatchWorkloads',
    },
    {
      failure: 'a stream fails after an item',
      items: 1,
      rpc: 'cloudless.api.CoordinatorService/WatchWorkloads',
    },
  ])(
    'sends the code of a CloudlessError, and hides and reports any other error, when $failure',
    async ({ failure, items, rpc }) => {
      const known = await call(failure, new CloudlessError('compacted', 'read anew'));
      expect(known).toMatchObject({
        error: { code: Code.OutOfRange, rawMessage: 'read anew' },
        reported: [],
        items,
      });
      const bug = new TypeError('x is undefined');
      const unknown = await call(failure, bug);
      expect(unknown).toMatchObject({
        error: { code: Code.Internal, rawMessage: 'internal error' },
        items,
      });
      expect(unknown.reported).toEqual([[rpc, bug]]);
    },
  );

  it('ends the stream of the handler when its reader leaves early', async () => {
    let ended = false;
    const endless = async function* () {
      try {
        for (;;) yield {};
      } finally {
        ended = true;
      }
    };
    const next = createErrorInterceptor(() => undefined)(() =>
      Promise.resolve({ stream: true, message: endless() } as never),
    );
    const response = await next({
      stream: true,
      service: CoordinatorService,
      method: CoordinatorService.method.watchEvents,
    } as never);
    for await (const _item of response.message as AsyncIterable<unknown>) break;
    expect(ended).toBe(true);
  });
});
