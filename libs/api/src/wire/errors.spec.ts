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
  it.each(table)('map $kind to $code and back', ({ kind, code }) => {
    expect(toCode(kind)).toBe(code);
    expect(toErrorKind(code)).toBe(kind);
    expect(toConnectError(new CloudlessError(kind, 'why')).code).toBe(code);
    expect(fromConnectError(new ConnectError('why', code))).toMatchObject({ kind, message: 'why' });
  });

  it.each([Code.Canceled, Code.Unknown, Code.DataLoss])(
    'code %i, which is never sent, is internal',
    (code) => {
      expect(toErrorKind(code)).toBe('internal');
    },
  );
});

describe('toConnectError', () => {
  const own = new ConnectError('mine', Code.DataLoss);
  const late = new ConnectError('the operation timed out', Code.DeadlineExceeded);
  it.each([
    {
      name: 'keeps the message of a CloudlessError',
      reason: new CloudlessError('notFound', 'no such workload'),
      code: Code.NotFound,
      text: 'no such workload',
    },
    {
      name: 'lists violations',
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
      name: 'maps a stopped wait to UNAVAILABLE',
      reason: new StoppedError('secret path'),
      code: Code.Unavailable,
      text: 'the call was stopped before it completed',
    },
    {
      name: 'maps an aborted call of Node to UNAVAILABLE',
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

  it('returns a ConnectError unchanged, also as the reason of a stopped wait', () => {
    expect(toConnectError(own)).toBe(own);
    expect(toConnectError(new StoppedError(late))).toBe(late);
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
});

describe('createErrorInterceptor', () => {
  type Failing = 'unary' | 'stream at once' | 'stream later';
  async function call(where: Failing, reason: unknown) {
    const inside: [string, unknown][] = [];
    const transport = createRouterTransport(
      ({ service }) => {
        service(CoordinatorService, {
          getWorkload: () => {
            throw reason;
          },
          watchWorkloads: async function* () {
            if (where === 'stream later') yield { revision: 1n };
            throw reason;
          },
        });
      },
      {
        router: {
          interceptors: [createErrorInterceptor((rpc, cause) => inside.push([rpc, cause]))],
        },
      },
    );
    const client = createClient(CoordinatorService, transport);
    let items = 0;
    const run = async (): Promise<void> => {
      if (where === 'unary') await client.getWorkload({ name: 'a' });
      else for await (const _item of client.watchWorkloads({})) items += 1;
    };
    const failure = await run().catch((thrown: unknown) => thrown);
    return { failure, inside, items };
  }

  it.each<{ where: Failing; items: number; rpc: string }>([
    { where: 'unary', items: 0, rpc: 'cloudless.api.CoordinatorService/GetWorkload' },
    { where: 'stream at once', items: 0, rpc: 'cloudless.api.CoordinatorService/WatchWorkloads' },
    { where: 'stream later', items: 1, rpc: 'cloudless.api.CoordinatorService/WatchWorkloads' },
  ])(
    '$where: gives our kinds their code, and hides and tells of the rest',
    async ({ where, items, rpc }) => {
      const known = await call(where, new CloudlessError('compacted', 'read anew'));
      expect(known).toMatchObject({
        failure: { code: Code.OutOfRange, rawMessage: 'read anew' },
        inside: [],
        items,
      });
      const bug = new TypeError('x is undefined');
      const unknown = await call(where, bug);
      expect(unknown).toMatchObject({
        failure: { code: Code.Internal, rawMessage: 'internal error' },
        items,
      });
      expect(unknown.inside).toEqual([[rpc, bug]]);
    },
  );

  it('ends the source when a reader leaves the stream early', async () => {
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
