import {
  Code,
  ConnectError,
  createContextValues,
  type StreamRequest,
  type StreamResponse,
} from '@connectrpc/connect';
import { CoordinatorService } from '@cloudless/api';
import { silentLog } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { CallLifetimes } from './call-lifetimes.js';

const method = CoordinatorService.method.watchWorkloads;

/** A call of WatchWorkloads, as an interceptor receives it. */
function aStreamRequest(signal = new AbortController().signal): StreamRequest {
  return {
    stream: true,
    service: CoordinatorService,
    method,
    requestMethod: 'POST',
    url: 'http://localhost/',
    signal,
    header: new Headers(),
    contextValues: createContextValues(),
    message: (async function* () {})(),
  } as StreamRequest;
}

/** The response of a handler that sends messages without end. */
function anEndlessResponse(): StreamResponse {
  const message = (async function* () {
    for (;;) yield {};
  })();
  return {
    stream: true,
    service: CoordinatorService,
    method,
    header: new Headers(),
    trailer: new Headers(),
    message,
  } as never;
}

describe('CallLifetimes.interceptor', () => {
  it('ends a call whose client resets its stream as cancelled, whatever the code of the reset', async () => {
    const lifetimes = new CallLifetimes({
      clock: new ManualClock(),
      log: silentLog,
      unaryDeadlineMs: 1_000,
    });
    const client = new AbortController();
    const call = lifetimes.interceptor(() => new Promise(() => undefined))(
      aStreamRequest(client.signal),
    );
    client.abort(
      new ConnectError('http/2 stream closed with error code INTERNAL_ERROR', Code.Internal),
    );
    await expect(call).rejects.toMatchObject({ code: Code.Canceled });
  });
});

describe('CallLifetimes.endStreams', () => {
  const closing = new ConnectError('the server is shutting down', Code.Unavailable);
  const createLifetimes = () =>
    new CallLifetimes({ clock: new ManualClock(), log: silentLog, unaryDeadlineMs: 1_000 });

  it('makes the next read of an open stream reject with the given error', async () => {
    const lifetimes = createLifetimes();
    const response = (await lifetimes.interceptor(async () => anEndlessResponse())(
      aStreamRequest(),
    )) as StreamResponse;
    const items = response.message[Symbol.asyncIterator]();
    expect((await items.next()).done).toBe(false);
    lifetimes.endStreams(closing);
    await expect(items.next()).rejects.toBe(closing);
  });

  it('refuses later streams before their handler runs', async () => {
    const lifetimes = createLifetimes();
    lifetimes.endStreams(closing);
    let called = 0;
    const call = lifetimes.interceptor(async () => {
      called += 1;
      return anEndlessResponse();
    })(aStreamRequest());
    await expect(call).rejects.toBe(closing);
    expect(called).toBe(0);
  });

  it('ends a stream whose handler has not responded yet', async () => {
    const lifetimes = createLifetimes();
    const call = lifetimes.interceptor(() => new Promise<never>(() => undefined))(aStreamRequest());
    lifetimes.endStreams(closing);
    await expect(call).rejects.toBe(closing);
  });
});
